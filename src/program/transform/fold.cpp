#include "program/transform/fold.h"

#include <algorithm>

#include "base/error.h"
#include "program/transform/dead_code.h"
#include "program/transform/substitute.h"

namespace tilewright {

namespace {

constexpr int64_t kAlwaysFolded = 64;  // elements

class Folder {
  public:
    Folder(Program program, const FoldOptions& options)
        : out_(std::move(program)),
          options_(options),
          budget_(options.total_work),
          plan_(out_.values.size()),
          needed_(out_.values.size(), 0),
          readers_(out_.consumers()) {
        for (const auto& [v, tensor] : out_.constants)
            if (out_.unread.count(v) == 0 || !options.contents) {
                plan_[v].known = true;
                plan_[v].contents = tensor;
            }
    }

    Program run() {
        find_foldable();
        choose();
        chosen_ = true;
        for (const ValueId v : out_.values.ids()) {
            if (!plan_[v].materialize) continue;
            const Value& value = out_.values[v];
            out_.constants[v] =
                options_.contents ? contents(v) : Tensor(value.dtype, evaluate(value.shape, Bindings()), false);
            if (!options_.contents) out_.unread.emplace(v, v.value);
        }
        IndexVector<PrimitiveId, Primitive> primitives = std::move(out_.primitives);
        out_.primitives = {};
        for (Primitive& p : primitives)
            if (p.outputs.empty() || !plan_[p.outputs[0]].materialize) out_.primitives.push_back(std::move(p));
        return eliminate_dead_code(std::move(out_));
    }

  private:
    struct Plan {
        bool known = false;        ///< a constant, or computable from constants within the budget
        bool materialize = false;  ///< is to become a constant
        Tensor contents;           ///< once computed
        PrimitiveId producer;
    };

    bool all_known(const Primitive& p) {
        const std::vector<ValueId> inputs = p.inputs();
        return std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return plan_[v].known; });
    }

    /// Marks foldable values, in order. Opaque operators and reads of scalars are executed at once, since shapes may
    /// depend on them.
    void find_foldable() {
        for (const PrimitiveId id : out_.primitives.ids()) {
            Primitive& p = out_.primitives[id];
            fold_nested(p);
            if (!all_known(p)) continue;
            if (const TensorExpr* e = p.expr()) {
                if (!product(out_.values[p.outputs[0]].shape).is_constant() || !affordable(*e)) continue;
                plan_[p.outputs[0]].known = true;
                plan_[p.outputs[0]].producer = id;
            } else if (!options_.contents) {
                continue;
            } else if (const auto* opaque = std::get_if<Opaque>(&p.kind)) {
                if (opaque->op->deterministic()) execute(p, *opaque);
            } else if (const auto* read = std::get_if<ReadScalar>(&p.kind)) {
                const Tensor t = contents(read->value);
                if (read->position < t.count())
                    replace_names({{*scalar(read->name).as_var(), Expr(t.get_int(read->position))}});
            }
        }
    }

    void replace_names(const std::map<Var, Expr>& by) {
        if (!by.empty()) out_ = substitute_names(out_, by);
    }

    void fold_nested(Primitive& p) const {
        const auto nested = [&](std::shared_ptr<const Program>& program) {
            if (program) program = std::make_shared<const Program>(fold_constants(*program, options_));
        };
        if (auto* branch = std::get_if<If>(&p.kind)) {
            nested(branch->then_branch);
            nested(branch->else_branch);
        } else if (auto* loop = std::get_if<Loop>(&p.kind)) {
            nested(loop->body);
        }
    }

    /// Takes the expression's work from the budget; false if the work is too large or unknown, leaving the budget
    /// unchanged.
    bool affordable(const TensorExpr& e) {
        std::set<Var> names;
        for (const Expr x : e.extents) add_names(x, names);
        Primitive probe;
        probe.kind = e;
        names.merge(names_used(probe));
        if (!names.empty()) return false;
        auto work = static_cast<int64_t>(e.body.nodes().size());
        for (const Expr x : e.extents)
            if (__builtin_mul_overflow(work, x.constant(), &work)) return false;
        if (work > options_.work || work > budget_) return false;
        budget_ -= work;
        return true;
    }

    class Outputs final : public OpaqueOutputs {
      public:
        Outputs(const Program& program, const Primitive& p) : program_(program), p_(p), tensors(p.outputs.size()) {}
        TensorView allocate(size_t k, std::span<const int64_t> shape) override {
            tensors.at(k) = Tensor(program_.values[p_.outputs[k]].dtype, Shape(shape.begin(), shape.end()), false);
            return {tensors[k].dtype(), tensors[k].shape(), tensors[k].mutable_data()};
        }

      private:
        const Program& program_;
        const Primitive& p_;

      public:
        std::vector<Tensor> tensors;
    };

    void execute(const Primitive& p, const Opaque& opaque) {
        std::vector<Tensor> operands;
        size_t bytes = 0;
        for (const ValueId v : opaque.inputs) {
            operands.push_back(v ? contents(v) : Tensor());
            bytes += operands.back().bytes();
        }
        if (static_cast<int64_t>(bytes) > options_.work) return;
        std::vector<TensorView> views;
        for (size_t k = 0; k < operands.size(); ++k) {
            if (opaque.inputs[k])
                views.push_back({operands[k].dtype(), operands[k].shape(), operands[k].mutable_data()});
            else
                views.emplace_back();
        }
        Outputs outputs(out_, p);
        opaque.op->run(views, outputs);
        std::map<Var, Expr> bound;
        for (size_t k = 0; k < p.outputs.size(); ++k) {
            const std::vector<Expr>& declared = out_.values[p.outputs[k]].shape;
            TW_CHECK(declared.size() == outputs.tensors[k].shape().size(), "{}", opaque.op->print());
            for (size_t d = 0; d < declared.size(); ++d) {
                const auto v = declared[d].as_var();
                if (v && v->kind == VarKind::Symbol) bound.try_emplace(*v, Expr(outputs.tensors[k].shape()[d]));
            }
            plan_[p.outputs[k]].known = true;
            plan_[p.outputs[k]].contents = std::move(outputs.tensors[k]);
        }
        replace_names(bound);
    }

    /// Backwards: a known value becomes a constant if a non-folded reader needs it and it is not much larger than its
    /// operands; else its producer stays, and needs its operands.
    void choose() {
        for (const ValueId v : out_.outputs) needed_[v] = 1;
        const std::vector<PrimitiveId> ids = out_.primitives.ids();
        for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
            const Primitive& p = out_.primitives[*id];
            const bool known = !p.outputs.empty() && std::all_of(p.outputs.begin(), p.outputs.end(),
                                                                 [&](ValueId v) { return plan_[v].known; });
            if (known) {
                const bool wanted =
                    std::any_of(p.outputs.begin(), p.outputs.end(), [&](ValueId v) { return needed_[v]; });
                if (!wanted) continue;
                if (p.expr() == nullptr || worth_storing(p)) {
                    for (const ValueId v : p.outputs) plan_[v].materialize = true;
                    continue;
                }
            }
            for (const ValueId v : p.inputs()) needed_[v] = 1;
        }
    }

    bool worth_storing(const Primitive& p) const {
        const Value& made = out_.values[p.outputs[0]];
        const int64_t count = product(made.shape).constant();
        if (count <= kAlwaysFolded) return true;
        const TensorExpr& e = *p.expr();
        if (e.accesses.empty() && !uses_index(e.body)) return false;  // a fill
        int64_t read = 0, read_bytes = 0;
        for (const ValueId v : p.inputs()) {
            const Expr n = product(out_.values[v].shape);
            read = std::max(read, n.constant());
            read_bytes += n.constant() * static_cast<int64_t>(byte_size(out_.values[v].dtype));
        }
        if (!e.accesses.empty() && count > read && category(out_, p) == Category::Broadcast) return false;
        return count * static_cast<int64_t>(byte_size(made.dtype)) <= options_.growth * read_bytes + options_.slack;
    }

    static bool uses_index(const ScalarBody& body) {
        return std::any_of(body.nodes().begin(), body.nodes().end(),
                           [](const ScalarNode& n) { return n.op == ScalarOp::Index; });
    }

    /// The contents of a known value, computed on first use.
    const Tensor& contents(ValueId v) {
        Plan& plan = plan_[v];
        TW_CHECK(plan.known);
        if (!plan.producer) return plan.contents;
        const TensorExpr e = *out_.primitives[plan.producer].expr();
        std::vector<Tensor> operands;
        for (const Access& a : e.accesses) operands.push_back(contents(a.value));
        const Shape shape = evaluate(out_.values[v].shape, Bindings());
        plan.contents = interpret(e, operands, out_.values[v].dtype, shape, {});
        plan.producer = PrimitiveId();
        // Frees operands without further uses: weights being transformed are as large as the result.
        for (const Access& a : e.accesses)
            if (chosen_ && readers_[a.value].size() == 1 && !needed_[a.value] && !plan_[a.value].materialize) {
                plan_[a.value].contents = Tensor();
                out_.constants.erase(a.value);
            }
        return plan.contents;
    }

    Program out_;
    const FoldOptions& options_;
    int64_t budget_;
    IndexVector<ValueId, Plan> plan_;
    IndexVector<ValueId, char> needed_;  ///< once chosen: by outputs and by primitives that stay
    IndexVector<ValueId, std::vector<PrimitiveId>> readers_;
    bool chosen_ = false;  ///< whether anything becomes a constant
};

}  // namespace

Program fold_constants(Program program, const FoldOptions& options) {
    return Folder(std::move(program), options).run();
}

}  // namespace tilewright
