// Elementwise fusion by a heuristic: elementwise expressions move to where their operand is in a register.
//
//     matmul -> add bias -> gelu            one product with an epilogue
//     transpose -> matmul                   the product reads through the transposition
//     exp -> sum, exp -> div                stays two reads of one value: computing exp twice costs more than it saves

#include "orchestrate/fuse.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"
#include "program/analysis/rounded.h"
#include "program/analysis/scalar_cost.h"
#include "program/analysis/sized.h"
#include "program/transform/canonical.h"
#include "program/transform/dead_code.h"
#include "program/transform/fusions.h"

namespace tilewright {

namespace {

/// Whether the expression only moves or repeats elements.
bool moves_only(const TensorExpr& e) {
    if (e.reducer != Reducer::None) return false;
    const ScalarNode& root = e.body[e.body.root()];
    return root.op == ScalarOp::Access;
}

bool plain_index(Expr i) {
    for (const Var v : variables(i)) {
        if (v.kind == VarKind::Load) return false;
        if (v.kind != VarKind::Axis) continue;
        const auto linear = linear_in(i, v);
        if (!linear || !linear->coefficient.is_constant()) return false;
    }
    return true;
}

/// Whether the index needs a division by a size that is unknown at compile time.
bool divides_by_sizes(Expr e) {
    for (const Term& t : e.terms())
        for (const Atom* a : t.atoms) {
            if (a->kind == Atom::Kind::Var) continue;
            const bool divides = a->kind == Atom::Kind::FloorDiv || a->kind == Atom::Kind::Mod;
            if ((divides && !a->b.is_constant()) || divides_by_sizes(a->a) || divides_by_sizes(a->b)) return true;
        }
    return false;
}

/// Whether a product's micro-kernel supports the operand: affine indices, with conditions on single indices.
bool good_operand(const Access& a) {
    if (!std::all_of(a.index.begin(), a.index.end(), plain_index)) return false;
    return std::all_of(a.valid.begin(), a.valid.end(), [&](Expr c) {
        return std::any_of(a.index.begin(), a.index.end(),
                           [&](Expr i) { return is_uniform(c - i) || is_uniform(c + i); });
    });
}

bool good_product(const TensorExpr& e) {
    const auto c = contraction(e);
    if (!c || !c->reads_widened()) return false;
    for (const Contraction::Factor& f : c->factors)
        if (!good_operand(e.accesses[*f.read])) return false;
    if (!e.output_index.empty()) return std::all_of(e.output_index.begin(), e.output_index.end(), plain_index);
    return true;
}

constexpr size_t kMostAccesses = 24, kMostNodes = 200;  // of a fused expression

struct Fuser {
    Program p;
    const FusionLimits& limits;
    Fusions& known;
    std::vector<bool> gone;
    IndexVector<ValueId, PrimitiveId> producer;
    std::map<ValueId, std::set<PrimitiveId>> readers;
    std::set<ValueId> results;
    IndexVector<ValueId, char> of_sizes;

    Fuser(const Program& program, const FusionLimits& l, Fusions& f)
        : p(program),
          limits(l),
          known(f),
          gone(program.primitives.size(), false),
          producer(program.producers()),
          of_sizes(l.sizes_apart ? depend_on_sizes(program) : IndexVector<ValueId, char>(program.values.size(), 0)) {
        results.insert(p.outputs.begin(), p.outputs.end());
        for (const PrimitiveId id : p.primitives.ids())
            for (const ValueId v : p.primitives[id].inputs()) readers[v].insert(id);
    }

    TensorExpr* live(PrimitiveId id) { return id && !gone[id.index()] ? p.primitives[id].expr() : nullptr; }

    void replace(PrimitiveId id, TensorExpr e) {
        for (const ValueId v : p.primitives[id].inputs()) readers[v].erase(id);
        p.primitives[id].kind = std::move(e);
        for (const ValueId v : p.primitives[id].inputs()) readers[v].insert(id);
    }

    void drop(PrimitiveId id) {
        gone[id.index()] = true;
        for (const ValueId v : p.primitives[id].inputs()) readers[v].erase(id);
    }

    bool may_share(PrimitiveId a, PrimitiveId b) const {
        return !limits.may_share || limits.may_share(p.primitives[a], p.primitives[b]);
    }

    using FusedOrRefusal = std::variant<TensorExpr, FusionRefusal>;

    /// Makes the elementwise consumer of a reduction its epilogue.
    bool epilogue(PrimitiveId id) {
        const TensorExpr* e = live(id);
        if (e == nullptr || e->reducer == Reducer::None) return false;
        const std::set<PrimitiveId>& consumers = readers[p.primitives[id].outputs[0]];
        for (const PrimitiveId reader : consumers) {
            if (live(reader) == nullptr) continue;
            FusedOrRefusal fused = with_epilogue(id, *e, reader, *live(reader));
            if (const auto* refusal = std::get_if<FusionRefusal>(&fused)) {
                limits.refuse(p.primitives[id], p.primitives[reader], *refusal);
                if (!limits.refusals) return false;
                continue;
            }
            // The epilogue runs where the reduction ends, and its other operands must exist by then. The fused
            // primitive therefore takes the reader's place.
            p.primitives[reader].name = p.primitives[id].name + " + " + p.primitives[reader].name;
            p.primitives[reader].source = p.primitives[id].source;
            p.primitives[reader].origin.add(p.primitives[id].origin);
            drop(id);
            replace(reader, std::move(std::get<TensorExpr>(fused)));
            return true;
        }
        return false;
    }

    FusedOrRefusal with_epilogue(PrimitiveId id, const TensorExpr& e, PrimitiveId reader, const TensorExpr& c) {
        const ValueId made = p.primitives[id].outputs[0];
        if (results.count(made) != 0) return FusionRefusal{"its operand is an output of the program"};
        if (readers[made].size() != 1) return FusionRefusal{"its operand has other readers"};
        if (c.reducer != Reducer::None) return FusionRefusal{"both are reductions"};
        if (!may_share(id, reader)) return FusionRefusal{"an option forbids fusing the two"};
        if (is_kept_for_sizes(made, reader)) return kKeptForSizes;
        if (is_widened_later(made, reader)) return FusionRefusal{"its reader can compute it from fewer bytes"};
        std::optional<size_t> access;
        for (size_t i = 0; i < c.accesses.size(); ++i)
            if (c.accesses[i].value == made) {
                if (access) return FusionRefusal{"it reads its operand at several places"};
                access = i;
            }
        if (!access) return FusionRefusal{"it uses its operand only as an index"};
        auto fused = known.epilogue(e, c, *access, p.values[made]);
        if (!fused) return FusionRefusal{"it cannot be an epilogue: its reads and writes are at different points"};
        const bool product = good_product(e);
        if (product && !good_product(*fused)) return FusionRefusal{"the product would lose its micro-kernel"};
        if (product && moves_only(c) && cuts_rows(made, p.primitives[reader].outputs[0]))
            return FusionRefusal{"it would split rows of the product into ranges shorter than a vector"};
        // Statistics of rows stay separate, since their readers repeat them along the row.
        if (fused->spatial > 0 && !product && c.extents.size() > e.spatial &&
            assumed_points(c.extents, p.assumed) > assumed_points(std::span(e.extents).first(e.spatial), p.assumed))
            return FusionRefusal{"it repeats its operand along the row"};
        return std::move(*fused);
    }

    static constexpr FusionRefusal kKeptForSizes = {"its operand is computed once for all runs of equal sizes"};

    /// Whether `made` depends on sizes alone, so that a session computes it once for all runs of equal sizes, and its
    /// reader does not.
    bool is_kept_for_sizes(ValueId made, PrimitiveId reader) const {
        if (of_sizes[made] == 0 || of_sizes[p.primitives[reader].outputs[0]] != 0) return false;
        return assumed_points(p.values[made].shape, p.assumed) * static_cast<double>(byte_size(p.values[made].dtype)) <=
               static_cast<double>(kMostSizedBytes);
    }

    /// Whether computing an element takes no longer than reading it: comparisons of indices, steps of a range.
    static bool is_cheap(const TensorExpr& q) {
        constexpr double kRead = 4;
        const auto simple = [](Expr i) { return plain_index(i) && !divides_by_sizes(i); };
        return body_operations(q.body) <= kRead &&
               std::all_of(q.accesses.begin(), q.accesses.end(),
                           [&](const Access& a) { return std::all_of(a.index.begin(), a.index.end(), simple); }) &&
               std::none_of(q.body.nodes().begin(), q.body.nodes().end(),
                            [](const ScalarNode& n) { return divides_by_sizes(n.index); });
    }

    /// Whether the expression only converts bytes to a wider type, as dequantisations do, and all its readers may
    /// compute it in place: elementwise expressions, epilogues, and sums that read every element once.
    bool is_widened_later(ValueId made, PrimitiveId id) {
        const ValueId wide = p.primitives[id].outputs[0];
        if (!is_byte(p.values[made].dtype) || byte_size(p.values[wide].dtype) < 4) return false;
        const TensorExpr* by = live(id);
        if (results.count(wide) != 0 || readers[wide].empty() || by == nullptr) return false;
        if (readers[wide].size() > 1 && !only_widens(*by, wide)) return false;
        return std::all_of(readers[wide].begin(), readers[wide].end(), [&](PrimitiveId reader) {
            const TensorExpr* e = live(reader);
            if (e == nullptr) return false;
            const std::vector<uint32_t> slots = e->body.slots();
            return e->reducer == Reducer::None ||
                   std::none_of(slots.begin(), slots.end(),
                                [&](uint32_t slot) { return e->accesses[slot].value == wide; }) ||
                   (readers[wide].size() > 1 && reads_once(*e, wide));
        });
    }

    /// Whether the expression converts each of as many bytes by a few operations, so that several readers may do so:
    /// that costs less than to store and read four bytes for each.
    bool only_widens(const TensorExpr& q, ValueId wide) const {
        constexpr double kConversion = 5;  // f32(i32(q) - zero) * scale
        if (q.reducer != Reducer::None || body_operations(q.body) > kConversion) return false;
        size_t computed = 0;
        for (const Access& a : q.accesses)
            if (p.constants.count(a.value) == 0) {
                ++computed;
                if (!is_byte(p.values[a.value].dtype) || p.values[a.value].shape != p.values[wide].shape) return false;
            }
        return computed == 1 && byte_size(p.values[wide].dtype) >= 4;
    }

    /// Whether a reduction other than a product reads every element of the value once.
    bool reads_once(const TensorExpr& e, ValueId v) const {
        if (contraction(e)) return false;
        return assumed_points(e.extents, p.assumed) <= 1.01 * assumed_points(p.values[v].shape, p.assumed);
    }

    /// Whether rows of `whole` become rows of `moved` that are too short to fill vectors, as 312 columns do as 12 heads
    /// of 26. Their readers can then read them in place.
    bool cuts_rows(ValueId whole, ValueId moved) const {
        constexpr int64_t kVector = 16;
        const std::vector<Expr>&from = p.values[whole].shape, &to = p.values[moved].shape;
        if (from.empty() || to.empty() || !to.back().is_constant()) return false;
        const int64_t piece = to.back().constant();
        return piece % kVector != 0 && prove_nonnegative(from.back() - 2 * piece, Ranges());
    }

    /// Computes the producers of a primitive's operands in place where that is cheaper.
    bool inline_operands(PrimitiveId id) {
        bool changed = false;
        for (bool again = true; again;) {
            again = false;
            const TensorExpr* e = live(id);
            if (e == nullptr || e->accesses.size() > kMostAccesses) return changed;
            for (size_t i = 0; i < e->accesses.size(); ++i) {
                const ValueId v = e->accesses[i].value;
                const PrimitiveId from = producer[v];
                const TensorExpr* q = live(from);
                if (q == nullptr || q->reducer != Reducer::None) continue;
                FusedOrRefusal fused = with_inlined(id, *e, i, from, *q);
                if (const auto* refusal = std::get_if<FusionRefusal>(&fused)) {
                    limits.refuse(p.primitives[from], p.primitives[id], *refusal);
                    continue;
                }
                replace(id, std::move(std::get<TensorExpr>(fused)));
                p.primitives[id].origin.add(p.primitives[from].origin);
                if (readers[v].empty()) drop(from);
                changed = again = true;
                break;
            }
        }
        return changed;
    }

    FusedOrRefusal with_inlined(PrimitiveId id, const TensorExpr& e, size_t access, PrimitiveId from,
                                const TensorExpr& q) {
        const ValueId v = e.accesses[access].value;
        if (results.count(v) != 0) return FusionRefusal{"its operand is an output of the program"};
        if (!may_share(from, id)) return FusionRefusal{"an option forbids fusing the two"};
        if (!limits.recompute && readers[v].size() > 1)
            return FusionRefusal{"an option forbids recomputation, and its operand has other readers"};
        if (is_kept_for_sizes(v, id) && !is_cheap(q)) return kKeptForSizes;
        if (!moves_only(q) && readers[p.primitives[id].outputs[0]].size() > 1 && is_widened_later(v, id))
            return FusionRefusal{"its reader can compute it from fewer bytes"};
        if (const auto refusal = too_expensive(e, access, from, q)) return *refusal;
        auto fused = known.inlined(e, access, q, unrounded(q, v));
        if (!fused) return FusionRefusal{"its operand cannot be computed in place"};
        if (good_product(e) && !good_product(*fused)) return FusionRefusal{"the product would lose its micro-kernel"};
        if (fused->accesses.size() > kMostAccesses || fused->body.nodes().size() > kMostNodes)
            return FusionRefusal{"the expression would become too large"};
        return std::move(*fused);
    }

    /// Whether the computed tensors that an expression reads take less memory than its result: dequantisations,
    /// upsampling.
    bool reads_fewer_bytes(const TensorExpr& q, ValueId made) const {
        const auto bytes = [&](ValueId v) {
            return assumed_points(p.values[v].shape, p.assumed) * static_cast<double>(byte_size(p.values[v].dtype));
        };
        std::set<ValueId> read;
        for (const Access& a : q.accesses)
            if (p.constants.count(a.value) == 0) read.insert(a.value);
        double all = 0;
        for (const ValueId v : read) all += bytes(v);
        return all < bytes(made);
    }

    /// The value in the type that its reader requires. An element that is only moved was rounded before, and a
    /// product's operand stays an operand.
    Value unrounded(const TensorExpr& q, ValueId v) const {
        Value made = p.values[v];
        if (!moves_only(q)) return made;
        const Access& read = q.accesses[q.body[q.body.root()].slot];
        if (read.valid.empty() && p.values[read.value].dtype == made.dtype) made.dtype = compute_type(made.dtype);
        return made;
    }

    /// The reason why computing `q` in place, once per read instead of once, costs more than it saves.
    std::optional<FusionRefusal> too_expensive(const TensorExpr& e, size_t access, PrimitiveId from,
                                               const TensorExpr& q) {
        const std::vector<uint32_t> before = e.body.slots();
        const bool behind = !std::binary_search(before.begin(), before.end(), access);  // in the epilogue alone
        if (is_plain_product(e) && !(behind && reads_fewer_bytes(q, p.primitives[from].outputs[0]))) {
            if (!moves_only(q)) return FusionRefusal{"its operand would be computed once for each use in the product"};
            return std::nullopt;
        }
        if (moves_only(q) && q.accesses[q.body[q.body.root()].slot].valid.empty()) return std::nullopt;
        const double made = assumed_points(q.extents, p.assumed);
        const double reads =
            assumed_points(std::span(e.extents).first(behind ? e.spatial : e.extents.size()), p.assumed);
        const double repeats = std::max(1.0, reads / std::max(1.0, made));
        const double cost = body_operations(q.body);
        if (readers[p.primitives[from].outputs[0]].size() == 1) {
            const bool once = repeats <= 1.01;
            // Computing a few elements twice (the reflected rim of an image) costs less than moving all of them through
            // memory.
            const bool cheap = (e.reducer != Reducer::None && !behind) || once
                                   ? once || cost <= 4 || made * 8 < reads / 64
                                   : cost * repeats <= 4 || cost * (repeats - 1) <= 2;
            if (cheap) return std::nullopt;
            return FusionRefusal{"its operand would be computed several times"};
        }
        // Several readers: only if computing is cheaper than reading the value again.
        size_t big = 0;
        for (const Access& a : q.accesses)
            if (assumed_points(p.values[a.value].shape, p.assumed) * 4 > made) ++big;
        if (repeats <= 1.01 && ((cost <= 2 && big <= 1) || only_widens(q, p.primitives[from].outputs[0])))
            return std::nullopt;
        return FusionRefusal{"its operand has other readers and would be computed in each"};
    }

    Program result() {
        Program out = p;
        out.primitives = {};
        for (const PrimitiveId id : p.primitives.ids())
            if (!gone[id.index()]) out.primitives.push_back(p.primitives[id]);
        return canonical_bodies(eliminate_dead_code(std::move(out)));
    }
};

}  // namespace

Program fuse_greedily(const Program& program, const FusionLimits& limits, Fusions* known) {
    Fusions own;
    Fuser f(program, limits, known != nullptr ? *known : own);
    for (const PrimitiveId id : f.p.primitives.ids())
        if (TensorExpr* e = f.live(id)) f.replace(id, f.known.clean(*e));
    // Epilogues first, since most elementwise expressions of a model belong there. A fused product may take the next
    // reader.
    bool changed = true;
    for (int round = 0; changed && round < 4; ++round) {
        changed = false;
        // The last reduction first. In a sequence of sums, where each adds another product to the previous sum, every
        // product then adds to the result of the one before it. With the first reduction first, that one would take all
        // sums, and the other products would be stored in memory.
        for (size_t k = f.p.primitives.size(); k-- > 0;) {
            const PrimitiveId id(static_cast<uint32_t>(k));
            // The fused primitive took the reader's place: continue there.
            PrimitiveId at = id;
            while (f.live(at) != nullptr) {
                const ValueId made = f.p.primitives[at].outputs[0];
                const PrimitiveId next = f.readers[made].size() == 1 ? *f.readers[made].begin() : PrimitiveId();
                if (!f.epilogue(at)) break;
                changed = true;
                at = next;
            }
        }
        for (const PrimitiveId id : f.p.primitives.ids())
            if (f.live(id) != nullptr && f.inline_operands(id)) changed = true;
    }
    return f.result();
}

}  // namespace tilewright
