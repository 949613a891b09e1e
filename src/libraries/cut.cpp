#include "libraries/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "libraries/phases.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"

namespace tilewright {

namespace {

/// Elements that a copy of an operand may have for each element of the tensors that it is made of: windows that overlap
/// stay with convolutions.
constexpr double kMostCopies = 2;

bool is_library_type(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; }

DType type_of(Precision p) {
    return p == Precision::F16 ? DType::F16 : p == Precision::BF16 ? DType::BF16 : DType::F32;
}

/// A node in place of one of the body; none: the node stays.
using Replacement = std::function<ScalarId(ScalarBody& to, ScalarId id, const ScalarNode& node)>;

/// What `root` depends on, with nodes replaced.
ScalarBody rebuilt(const ScalarBody& body, ScalarId root, const Replacement& replaced) {
    ScalarBody out;
    std::vector<ScalarId> at(body.nodes().size());
    for (size_t k = 0; k <= root.index(); ++k) {
        ScalarNode n = body[ScalarId(k)];
        at[k] = replaced(out, ScalarId(k), n);
        if (at[k]) continue;
        for (ScalarId* operand : {&n.a, &n.b, &n.c})
            if (*operand) *operand = at[operand->index()];
        at[k] = out.add(std::move(n));
    }
    out.set_root(at[root.index()]);
    return out.pruned();
}

ScalarBody subtree(const ScalarBody& body, ScalarId root) {
    return rebuilt(body, root, [](ScalarBody&, ScalarId, const ScalarNode&) { return ScalarId(); });
}

constexpr uint32_t kNoSlot = UINT32_MAX;

/// The body behind `node`: what its root depends on besides.
ScalarBody without(const ScalarBody& body, ScalarId node) {
    return rebuilt(body, body.root(), [&](ScalarBody& b, ScalarId id, const ScalarNode&) {
        return id == node ? b.access(kNoSlot, DType::F32) : ScalarId();
    });
}

/// The nodes of an epilogue through which its root depends on the sum, and through nothing else; the root first.
std::vector<ScalarId> waists(const ScalarBody& epilogue) {
    std::vector<ScalarId> out;
    for (size_t k = epilogue.nodes().size(); k-- > 0;) {
        const ScalarId node(k);
        if (is_float(epilogue[node].dtype) && !without(epilogue, node).uses_acc()) out.push_back(node);
    }
    return out;
}

/// A sum of products with the axes of its factors: data, weights.
struct SumOfProducts {
    const Primitive& primitive;
    const TensorExpr& e;
    Contraction contraction;
    ContractionAxes roles;

    const std::vector<size_t>& own(size_t factor) const { return factor == 0 ? roles.rows : roles.columns; }
    ScalarId node(size_t factor) const { return contraction.factors[factor].node; }
    bool plain(size_t factor) const { return contraction.factors[factor].slot.has_value(); }
    const Access& read(size_t factor) const {
        return e.accesses[plain(factor) ? *contraction.factors[factor].slot : subtree(e.body, node(factor)).slots()[0]];
    }
    DType stored(const Program& stages, size_t factor) const {
        return plain(factor) ? stages.values[read(factor).value].dtype : DType::F32;
    }
};

/// Why a sum of products has no form of libraries; nothing where it may have one.
std::optional<Refusal> refusal_of(const TensorExpr& e, const Contraction& c, const ContractionAxes& roles) {
    if (std::any_of(e.accesses.begin(), e.accesses.end(), [](const Access& a) { return uses_load(a.index); }))
        return Refusal{"an index that is data"};
    if (c.type != DType::F32) return Refusal{"products that are not f32"};
    if (!roles.broadcast.empty()) return Refusal{"a result axis that neither operand uses"};
    if (!roles.one_sided.empty()) return Refusal{"a reduction axis that only one operand uses"};
    if (roles.sum.empty() || (roles.rows.empty() && roles.columns.empty()))
        return Refusal{"a sum that uses no element twice"};
    return std::nullopt;
}

/// Nothing for another expression than a sum of products of reads.
std::optional<SumOfProducts> sum_of_products(const Primitive& p) {
    const TensorExpr* e = p.expr();
    const auto c = e == nullptr ? std::nullopt : contraction(*e);
    if (!c) return std::nullopt;
    for (const Contraction::Factor& f : c->factors)
        if (subtree(e->body, f.node).slots().empty()) return std::nullopt;
    ContractionAxes roles = axes(*e, *c);
    for (auto* list : {&roles.batch, &roles.rows, &roles.columns, &roles.broadcast, &roles.sum, &roles.one_sided})
        std::erase_if(*list, [&](size_t a) { return e->extents[a].is_constant(1); });
    return SumOfProducts{p, *e, *c, std::move(roles)};
}

/// The axes in the order in which the index has them, outermost first. `sizes`: assumed.
std::vector<size_t> in_order_of(std::vector<size_t> axes, const std::vector<Expr>& index, const Bindings& sizes) {
    const auto place = [&](size_t a) {
        const Var v{VarKind::Axis, static_cast<uint32_t>(a)};
        for (size_t d = 0; d < index.size(); ++d) {
            if (!uses(index[d], v)) continue;
            const auto linear = linear_in(index[d], v);
            return std::pair(d, linear ? -assumed_value(linear->coefficient, sizes) : 0);
        }
        return std::pair(index.size(), int64_t{0});
    };
    std::stable_sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
    return axes;
}

/// How the result of a sum lies in memory.
enum class SumLayout : uint8_t { OfKernel, BatchFirst, RowsFirst };

class Cutting {
  public:
    Cutting(const Program& kernel, Precision precision, const LibraryRefusal& refusal)
        : kernel_(kernel), precision_(precision), refusal_(refusal) {}

    std::variant<KernelCut, Refusal> run() {
        out_.stages = kernel_;
        out_.stages.primitives = {};
        for (const Primitive& p : kernel_.primitives) {
            if (const auto sum = sum_of_products(p)) {
                auto refused = refusal_of(sum->e, sum->contraction, sum->roles);
                if (!refused) refused = cut(*sum);
                if (refused && cut_without_phases(p)) continue;
                if (!refused) continue;
                out_.refused.push_back(*std::move(refused));
            }
            out_.stages.primitives.push_back(p);
        }
        if (out_.sums.empty()) return out_.refused.empty() ? Refusal{"no sum of products"} : out_.refused[0];
        return std::move(out_);
    }

  private:
    /// Which operands are copied first, even where they could be read as they are.
    struct Copies {
        bool of[2] = {false, false};
    };

    /// A transposed convolution whose phases have no form of libraries may have one as a whole.
    bool cut_without_phases(const Primitive& p) {
        KernelCut before = out_;
        const auto whole = without_phases(out_.stages, p);
        const auto sum = whole ? sum_of_products(*whole) : std::nullopt;
        if (sum && !refusal_of(sum->e, sum->contraction, sum->roles) && !cut(*sum)) return true;
        out_ = std::move(before);
        return false;
    }

    /// Appends the sum, with what is in front and behind; or returns why no library takes even the sum alone.
    std::optional<Refusal> cut(const SumOfProducts& s) {
        constexpr Copies kCopies[] = {{{false, false}}, {{true, false}}, {{false, true}}, {{true, true}}};
        reason_ = {"operands of types that no library has"};
        reason_known_ = false;
        constexpr SumLayout kLayouts[] = {SumLayout::OfKernel, SumLayout::BatchFirst, SumLayout::RowsFirst};
        const std::vector<ScalarId> nodes = s.e.epilogue.empty() ? std::vector<ScalarId>{} : waists(s.e.epilogue);
        for (const Copies& copies : kCopies) {
            const auto sum_alone = [&](SumLayout layout) {
                return attempt(s, copies, nodes.empty() ? std::nullopt : std::optional(nodes.back()), layout, false);
            };
            if (std::none_of(std::begin(kLayouts), std::end(kLayouts), [&](SumLayout l) { return sum_alone(l); }))
                continue;
            std::vector<std::optional<ScalarId>> ends(nodes.begin(), nodes.end());
            if (ends.empty()) ends.emplace_back();
            for (const auto& end : ends)
                for (const SumLayout layout : kLayouts)
                    for (const bool narrow : {true, false})
                        if (auto found = attempt(s, copies, end, layout, narrow)) {
                            out_ = *std::move(found);
                            return std::nullopt;
                        }
        }
        return reason_;
    }

    /// The stages so far with the sum, whose epilogue ends at node `end`; nothing where no library takes that.
    /// `narrow`: what leaves the sum has the type of the kernel's result.
    std::optional<KernelCut> attempt(const SumOfProducts& s, const Copies& copies, std::optional<ScalarId> end,
                                     SumLayout layout, bool narrow) {
        const Value& result = kernel_.values[s.primitive.outputs[0]];
        const bool whole = !end || *end == s.e.epilogue.root();
        if (narrow && !whole) return std::nullopt;
        if (!narrow && result.dtype == DType::F32 && whole && layout == SumLayout::OfKernel) narrow = true;
        if (end && !narrow && s.e.epilogue[*end].dtype != DType::F32) return std::nullopt;
        KernelCut made = out_;
        Primitive p = s.primitive;
        TensorExpr& e = *p.expr();
        e = with_operands(made.stages, s, copies);
        if (e.accesses.empty()) return std::nullopt;
        if (end) e.epilogue = epilogue_of(s.e, *end, e);
        if (whole && narrow && layout == SumLayout::OfKernel) {
            made.sums.push_back(made.stages.primitives.push_back(std::move(p)));
            return taken(std::move(made));
        }
        Value value{fresh(made.stages, "sum"), narrow ? result.dtype : DType::F32, result.shape};
        if (layout != SumLayout::OfKernel) {
            const std::vector<size_t> order = result_order(s, layout);
            value.shape.clear();
            e.output_index.clear();
            for (const size_t a : order) {
                value.shape.push_back(s.e.extents[a]);
                e.output_index.push_back(axis(a));
            }
        }
        const ValueId sum = made.stages.values.push_back(std::move(value));
        Primitive rest = s.primitive;
        *rest.expr() = rest_of(s.e, end, {sum, result_index(e), {}, 0}, made.stages.values[sum].dtype);
        p.outputs = {sum};
        made.sums.push_back(made.stages.primitives.push_back(std::move(p)));
        made.stages.primitives.push_back(std::move(rest));
        return taken(std::move(made));
    }

    std::optional<KernelCut> taken(KernelCut made) {
        auto refused = refusal_(alone(made.stages, made.sums.back()));
        if (!refused) return made;
        if (!reason_known_) reason_ = *std::move(refused);
        reason_known_ = true;
        return std::nullopt;
    }

    /// The sum of products of the operands, without an epilogue. Without accesses where they have no form of libraries.
    TensorExpr with_operands(Program& stages, const SumOfProducts& s, const Copies& copies) const {
        TensorExpr e;
        e.extents = s.e.extents;
        e.spatial = s.e.spatial;
        e.reducer = Reducer::Sum;
        e.output_index = s.e.output_index;
        const DType types[2] = {s.stored(stages, 0), s.stored(stages, 1)};
        if (!is_library_type(types[0]) || !is_library_type(types[1])) return e;
        DType type = types[0];
        if (types[0] != types[1]) {
            const DType rounded = type_of(precision_);  // f32 may be rounded to it, and no other type
            const auto fits = [&](DType t) { return t == DType::F32 || t == rounded; };
            type = fits(types[0]) && fits(types[1]) ? rounded : DType::F32;
        }
        std::vector<Access> accesses;
        for (size_t f = 0; f < 2; ++f) {
            const bool fits = s.plain(f) && types[f] == type;
            if (copies.of[f] || !fits) {
                if (auto copy = dense(stages, s, f, type)) {
                    accesses.push_back(*std::move(copy));
                    continue;
                }
                if (!s.plain(f)) return e;
                if (!fits) {
                    accesses.push_back(converted(stages, s, f, type));
                    continue;
                }
            }
            accesses.push_back(s.read(f));
        }
        e.accesses = std::move(accesses);
        e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, type), e.body.access(1, type)));
        return e;
    }

    /// A copy of the factor along its own axes: batch, rows or columns, sum.
    std::optional<Access> dense(Program& stages, const SumOfProducts& s, size_t f, DType type) const {
        const ScalarBody body = subtree(s.e.body, s.node(f));
        const std::vector<Expr>& index = s.read(f).index;
        std::vector<size_t> order;
        for (const auto* list : {&s.roles.batch, &s.own(f), &s.roles.sum})
            for (const size_t a : in_order_of(*list, index, kernel_.assumed)) order.push_back(a);
        TensorExpr copy;
        std::vector<Expr> moved(s.e.extents.size(), Expr(0));
        Access out;
        for (size_t k = 0; k < order.size(); ++k) {
            copy.extents.push_back(s.e.extents[order[k]]);
            moved[order[k]] = axis(k);
            out.index.push_back(axis(order[k]));
        }
        copy.spatial = order.size();
        double read = 1;
        std::vector<uint32_t> slots = body.slots();
        for (const uint32_t slot : slots) {
            Access a = s.e.accesses[slot];
            read = std::max(read, assumed_points(stages.values[a.value].shape, kernel_.assumed));
            for (auto* list : {&a.index, &a.valid})
                for (Expr& x : *list) x = substitute_axes(x, moved);
            copy.accesses.push_back(std::move(a));
        }
        if (assumed_points(copy.extents, kernel_.assumed) > kMostCopies * read) return std::nullopt;
        copy.body.set_root(copy.body.inline_body(body, [&](ScalarBody& b, const ScalarNode& n) {
            if (n.op == ScalarOp::Index) return b.index(substitute_axes(n.index, moved));
            if (n.op != ScalarOp::Access) return ScalarId();
            const auto at = std::find(slots.begin(), slots.end(), n.slot) - slots.begin();
            return b.access(static_cast<uint32_t>(at), stages.values[s.e.accesses[n.slot].value].dtype);
        }));
        out.value = append(stages, s, std::move(copy), type);
        return out;
    }

    /// The factor's tensor in another type, and the factor's read of it.
    Access converted(Program& stages, const SumOfProducts& s, size_t f, DType type) const {
        Access out = s.read(f);
        TensorExpr copy;
        copy.extents = stages.values[out.value].shape;
        copy.spatial = copy.extents.size();
        copy.accesses = {{out.value, plain_axes(copy.spatial), {}, 0}};
        copy.body.set_root(copy.body.access(0, stages.values[out.value].dtype));
        out.value = append(stages, s, std::move(copy), type);
        return out;
    }

    static ValueId append(Program& stages, const SumOfProducts& s, TensorExpr copy, DType type) {
        const ValueId v = stages.values.push_back({fresh(stages, "operand"), type, copy.extents});
        Primitive p;
        p.name = stages.values[v].name;
        p.outputs = {v};
        p.kind = std::move(copy);
        p.origin = s.primitive.origin;
        stages.primitives.push_back(std::move(p));
        return v;
    }

    /// The epilogue up to node `end`. `e` receives its reads behind those that it has.
    static ScalarBody epilogue_of(const TensorExpr& from, ScalarId end, TensorExpr& e) {
        if (from.epilogue[end].op == ScalarOp::Acc) return {};
        const std::vector<uint32_t> live = subtree(from.epilogue, end).slots();
        return rebuilt(from.epilogue, end, [&](ScalarBody& b, ScalarId, const ScalarNode& n) {
            return reads(n, live) ? read(b, from, n, e) : ScalarId();
        });
    }

    /// What is left to do for each element of the sum; a copy without `end`.
    TensorExpr rest_of(const TensorExpr& from, std::optional<ScalarId> end, Access sum, DType type) const {
        TensorExpr rest;
        rest.extents.assign(from.extents.begin(), from.extents.begin() + static_cast<std::ptrdiff_t>(from.spatial));
        rest.spatial = from.spatial;
        rest.output_index = from.output_index;
        rest.accesses = {std::move(sum)};
        if (!end || *end == from.epilogue.root()) {
            rest.body.set_root(rest.body.access(0, type));
            return rest;
        }
        const std::vector<uint32_t> live = without(from.epilogue, *end).slots();
        rest.body = rebuilt(from.epilogue, from.epilogue.root(), [&](ScalarBody& b, ScalarId id, const ScalarNode& n) {
            if (id == *end) return b.access(0, type);
            return reads(n, live) ? read(b, from, n, rest) : ScalarId();
        });
        return rest;
    }

    static bool reads(const ScalarNode& n, const std::vector<uint32_t>& slots) {
        return n.op == ScalarOp::Access && std::find(slots.begin(), slots.end(), n.slot) != slots.end();
    }

    /// The node, which reads an access of `from`, as one that reads it of `to`.
    static ScalarId read(ScalarBody& body, const TensorExpr& from, ScalarNode n, TensorExpr& to) {
        const Access& a = from.accesses[n.slot];
        const auto at = std::find(to.accesses.begin(), to.accesses.end(), a);
        n.slot = static_cast<uint32_t>(at - to.accesses.begin());
        if (at == to.accesses.end()) to.accesses.push_back(a);
        return body.add(std::move(n));
    }

    /// The axes of the result as dimensions. The one along which the kernel's result is contiguous comes last.
    std::vector<size_t> result_order(const SumOfProducts& s, SumLayout layout) const {
        const auto ordered = [&](const std::vector<size_t>& axes, size_t factor) {
            return in_order_of(axes, s.read(factor).index, kernel_.assumed);
        };
        const auto batch = ordered(s.roles.batch, 0);
        auto rows = ordered(s.roles.rows, 0), columns = ordered(s.roles.columns, 1);
        const auto strides = axis_strides(kernel_, s.e, s.primitive.outputs[0], result_index(s.e));
        if (std::any_of(rows.begin(), rows.end(), [&](size_t a) {
                return strides[a] && strides[a]->is_constant(1) && !s.e.extents[a].is_constant(1);
            }))
            std::swap(rows, columns);
        std::vector<size_t> out = layout == SumLayout::BatchFirst ? batch : rows;
        const std::vector<size_t>& next = layout == SumLayout::BatchFirst ? rows : batch;
        out.insert(out.end(), next.begin(), next.end());
        out.insert(out.end(), columns.begin(), columns.end());
        return out;
    }

    /// A name that no value has.
    static std::string fresh(const Program& stages, const std::string& name) {
        std::set<std::string> used;
        for (const Value& v : stages.values) used.insert(v.name);
        std::string out = name;
        for (int k = 1; used.count(out) != 0; ++k) out = fmt::format("{}{}", name, k);
        return out;
    }

    const Program& kernel_;
    const Precision precision_;
    const LibraryRefusal& refusal_;
    KernelCut out_;
    Refusal reason_;             ///< the first against the sum alone
    bool reason_known_ = false;  ///< of a library
};

}  // namespace

Program alone(const Program& stages, PrimitiveId primitive) {
    Program out;
    out.name = stages.name;
    out.assumed = stages.assumed;
    Primitive p = stages.primitives[primitive];
    std::map<ValueId, ValueId> local;
    const auto add = [&](ValueId v) { return local[v] = out.values.push_back(stages.values[v]); };
    for (const ValueId v : p.inputs()) out.inputs.push_back(add(v));
    out.outputs = {add(p.outputs[0])};
    p.outputs = out.outputs;
    for (Access& a : p.expr()->accesses) a.value = local.at(a.value);
    out.primitives.push_back(std::move(p));
    return out;
}

std::variant<KernelCut, Refusal> cut_at_sums(const Program& stages, Precision precision,
                                             const LibraryRefusal& refusal) {
    if (!refusal(stages)) return Refusal{"a library has the kernel as a whole"};
    return Cutting(stages, precision, refusal).run();
}

}  // namespace tilewright
