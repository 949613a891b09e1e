#include "program/transform/common_subexpressions.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/hash.h"
#include "program/form_hash.h"
#include "program/transform/dead_code.h"
#include "program/transform/substitute.h"

namespace tilewright {

namespace {

bool equal(const TensorExpr& a, const TensorExpr& b) {
    return a.extents == b.extents && a.spatial == b.spatial && a.accesses == b.accesses && a.body == b.body &&
           a.reducer == b.reducer && a.epilogue.empty() == b.epilogue.empty() &&
           (a.epilogue.empty() || a.epilogue == b.epilogue) && a.output_index == b.output_index;
}

/// Hashes the form and a few elements: large weights are compared only if their samples agree.
uint64_t sample_hash(const Tensor& tensor) {
    constexpr size_t kWords = 64;
    uint64_t h = hash_text(to_string(tensor.dtype()));
    for (const int64_t d : tensor.shape()) h = hash_combine(h, static_cast<uint64_t>(d));
    const auto* bytes = static_cast<const char*>(tensor.data());
    const size_t words = tensor.bytes() / sizeof(uint64_t), step = std::max<size_t>(1, words / kWords);
    for (size_t k = 0; k < words; k += step) {
        uint64_t word = 0;
        std::memcpy(&word, bytes + k * sizeof word, sizeof word);
        h = hash_combine(h, word);
    }
    for (size_t k = words * sizeof(uint64_t); k < tensor.bytes(); ++k)
        h = hash_combine(h, static_cast<unsigned char>(bytes[k]));
    return h;
}

class Merger {
  public:
    explicit Merger(Program program) : out_(std::move(program)), representative_(out_.values.size()) {
        for (const ValueId v : out_.values.ids()) representative_[v] = v;
        is_output_.resize(out_.values.size());
        for (const ValueId v : out_.outputs) is_output_[v] = 1;
    }

    Program run() {
        merge_constants();
        IndexVector<PrimitiveId, Primitive> primitives = std::move(out_.primitives);
        out_.primitives = {};
        for (Primitive& p : primitives) {
            rename_operands(p);
            if (!names_.empty()) {
                substitute_names(p, names_);
                for (const ValueId v : p.outputs) rename_shape(v);
            }
            merge_nested(p);
            if (!merged(p)) out_.primitives.push_back(std::move(p));
        }
        substitute_names(out_.requirements, names_);
        return eliminate_dead_code(std::move(out_));
    }

  private:
    void merge_constants() {
        std::unordered_map<uint64_t, std::vector<ValueId>> known;
        for (const auto& [v, tensor] : out_.constants) {
            const auto unread = out_.unread.find(v);
            std::vector<ValueId>& like = known[unread != out_.unread.end() ? unread->second : sample_hash(tensor)];
            const auto same = std::find_if(like.begin(), like.end(), [&, t = &tensor, id = v](ValueId u) {
                return out_.unread.count(u) == out_.unread.count(id) && out_.constants.at(u) == *t;
            });
            if (same == like.end() || is_output_[v] != 0)
                like.push_back(v);
            else
                representative_[v] = *same;
        }
    }

    void rename(ValueId& v) const {
        if (v) v = representative_[v];
    }
    void rename_operands(Primitive& p) const {
        if (TensorExpr* e = p.expr()) {
            for (Access& a : e->accesses) rename(a.value);
        } else if (auto* opaque = std::get_if<Opaque>(&p.kind)) {
            for (ValueId& v : opaque->inputs) rename(v);
        } else if (auto* read = std::get_if<ReadScalar>(&p.kind)) {
            rename(read->value);
        } else if (auto* branch = std::get_if<If>(&p.kind)) {
            rename(branch->condition);
            for (ValueId& v : branch->captures) rename(v);
        } else if (auto* loop = std::get_if<Loop>(&p.kind)) {
            if (loop->condition) rename(*loop->condition);
            for (ValueId& v : loop->carried) rename(v);
            for (Loop::ScanInput& s : loop->scan_inputs) rename(s.value);
            for (ValueId& v : loop->captures) rename(v);
        }
    }
    void rename_shape(ValueId v) {
        for (Expr& e : out_.values[v].shape)
            e = substitute(e, [&](Var name) -> std::optional<Expr> {
                const auto it = names_.find(name);
                if (it == names_.end()) return std::nullopt;
                return it->second;
            });
    }
    static void merge_nested(Primitive& p) {
        const auto nested = [](std::shared_ptr<const Program>& program) {
            if (program) program = std::make_shared<const Program>(merge_common_subexpressions(*program));
        };
        if (auto* branch = std::get_if<If>(&p.kind)) {
            nested(branch->then_branch);
            nested(branch->else_branch);
        } else if (auto* loop = std::get_if<Loop>(&p.kind)) {
            nested(loop->body);
        }
    }

    bool any_output(const Primitive& p) const {
        return std::any_of(p.outputs.begin(), p.outputs.end(), [&](ValueId v) { return is_output_[v] != 0; });
    }
    bool same_value(ValueId a, ValueId b) const {
        return out_.values[a].dtype == out_.values[b].dtype && out_.values[a].shape == out_.values[b].shape;
    }

    /// Whether an earlier primitive computes the same as `p`; then p's outputs and names are replaced.
    bool merged(const Primitive& p) {
        if (const TensorExpr* e = p.expr()) {
            if (any_output(p)) return false;
            if (is_copy(*e, p.outputs[0])) {
                representative_[p.outputs[0]] = e->accesses[0].value;
                return true;
            }
        }
        std::vector<PrimitiveId>& like = known_[key(p)];
        const PrimitiveId here(out_.primitives.size());
        for (const PrimitiveId id : like)
            if (merged_into(p, out_.primitives[id])) {
                out_.primitives[id].origin.add(p.origin);
                return true;
            }
        like.push_back(here);
        return false;
    }

    bool is_copy(const TensorExpr& e, ValueId made) const {
        if (e.accesses.size() != 1 || e.reducer != Reducer::None || !e.epilogue.empty() || !e.output_index.empty() ||
            !e.accesses[0].valid.empty() || e.body[e.body.root()].op != ScalarOp::Access ||
            !same_value(made, e.accesses[0].value))
            return false;
        for (size_t k = 0; k < e.spatial; ++k)
            if (!(e.accesses[0].index[k] == axis(k)) && !e.extents[k].is_constant(1)) return false;
        return true;
    }

    static uint64_t key(const Primitive& p) {
        if (const TensorExpr* e = p.expr()) return form_hash(*e, [](ValueId v) { return uint64_t{v.value}; });
        std::string text;
        if (const auto* opaque = std::get_if<Opaque>(&p.kind)) {
            text = "opaque " + opaque->op->print();
            for (const ValueId v : opaque->inputs) text += " " + std::to_string(v.value);
        } else if (const auto* read = std::get_if<ReadScalar>(&p.kind)) {
            text = "read " + std::to_string(read->value.value) + " " + std::to_string(read->position);
        }
        return hash_text(text);
    }

    bool merged_into(const Primitive& p, const Primitive& earlier) {
        if (p.kind.index() != earlier.kind.index() || p.outputs.size() != earlier.outputs.size()) return false;
        if (const TensorExpr* e = p.expr()) {
            if (!equal(*e, *earlier.expr()) || !same_value(p.outputs[0], earlier.outputs[0])) return false;
            representative_[p.outputs[0]] = earlier.outputs[0];
            return true;
        }
        if (const auto* read = std::get_if<ReadScalar>(&p.kind)) {
            names_[*scalar(read->name).as_var()] = scalar(std::get<ReadScalar>(earlier.kind).name);
            return true;
        }
        const auto* opaque = std::get_if<Opaque>(&p.kind);
        if (opaque == nullptr || !opaque->op->deterministic() || any_output(p)) return false;
        std::map<Var, Expr> fresh;
        for (size_t k = 0; k < p.outputs.size(); ++k) {
            const Value& made = out_.values[p.outputs[k]];
            const Value& before = out_.values[earlier.outputs[k]];
            if (made.dtype != before.dtype || made.shape.size() != before.shape.size()) return false;
            for (size_t d = 0; d < made.shape.size(); ++d) {
                if (made.shape[d] == before.shape[d]) continue;
                const auto v = made.shape[d].as_var();
                if (!v || v->kind != VarKind::Symbol) return false;
                const auto [it, is_new] = fresh.try_emplace(*v, before.shape[d]);
                if (!is_new && !(it->second == before.shape[d])) return false;
            }
        }
        if (std::any_of(fresh.begin(), fresh.end(), [&](const auto& f) { return bound_before(f.first); })) return false;
        for (size_t k = 0; k < p.outputs.size(); ++k) representative_[p.outputs[k]] = earlier.outputs[k];
        names_.insert(fresh.begin(), fresh.end());
        return true;
    }

    /// Whether an earlier value has `name` in its shape: then the primitive does not bind the name itself.
    bool bound_before(Var name) const {
        std::set<Var> names;
        const auto add = [&](ValueId v) {
            for (const Expr e : out_.values[v].shape) add_names(e, names);
        };
        for (const ValueId v : out_.inputs) add(v);
        for (const Primitive& p : out_.primitives)
            for (const ValueId v : p.outputs) add(v);
        return names.count(name) != 0;
    }

    Program out_;
    IndexVector<ValueId, ValueId> representative_;
    IndexVector<ValueId, char> is_output_;
    std::map<Var, Expr> names_;  ///< symbols and scalars that an earlier primitive binds under another name
    std::unordered_map<uint64_t, std::vector<PrimitiveId>> known_;
};

}  // namespace

Program merge_common_subexpressions(Program program) { return Merger(std::move(program)).run(); }

}  // namespace tilewright
