// Applies layouts to a program, and packs the weights of its products in the order in which micro-kernels read them.

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/tensor.h"
#include "orchestrate/layouts.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/transform/axes.h"
#include "program/transform/tidy.h"
#include "schedule/gpu/gpu_nest.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

/// The smallest f > 1 for which (axis a) // f or % f occurs and f divides the extent.
std::optional<int64_t> split_factor(Expr e, size_t a) {
    std::optional<int64_t> found;
    for (const Term& t : e.terms())
        for (const Atom* atom : t.atoms) {
            if (atom->kind == Atom::Kind::Var) continue;
            if ((atom->kind == Atom::Kind::FloorDiv || atom->kind == Atom::Kind::Mod) && atom->b.is_constant()) {
                const auto v = atom->a.as_var();
                if (v && v->kind == VarKind::Axis && v->id == a) found = atom->b.constant();
            }
            for (const Expr inner : {atom->a, atom->b})
                if (!found) found = split_factor(inner, a);
        }
    return found;
}

/// Splits axes that layouts address in blocks, so that indices are affine again. `keep` stays whole: it is the vector
/// axis, which the code generator handles.
void split_blocked_axes(TensorExpr& e, std::optional<size_t> keep) {
    for (size_t a = 0; a < e.extents.size(); ++a) {
        if (keep && a == *keep) continue;
        std::optional<int64_t> factor;
        const auto look = [&](Expr x) {
            if (!factor) factor = split_factor(x, a);
        };
        for (const Access& access : e.accesses)
            for (const Expr& i : access.index) look(i);
        for (const Expr& i : e.output_index) look(i);
        if (!factor || *factor <= 1 || !e.extents[a].is_constant() || e.extents[a].constant() % *factor != 0 ||
            e.extents[a].constant() == *factor)
            continue;
        e = split_axis_only(e, a, *factor);
        e = map_indices(e, [ranges = e.ranges()](Expr x) { return simplify(x, ranges); });
        if (keep && *keep > a) ++*keep;
        ++a;
    }
}

/// The axis of the sum of which an index is a function, but no multiple: terms of bf16 (orchestrate/bf16_terms.h).
///     max(max(2 - i3, 0), i3 - 4)  ->  3
std::optional<size_t> term_axis(Expr index) {
    const std::vector<Var> all = variables(index);
    if (all.size() != 1 || all[0].kind != VarKind::Axis || linear_in(index, all[0])) return std::nullopt;
    return all[0].id;
}

/// The axes that address a dimension together, the outermost first; SIZE_MAX alone: a dimension of one element, which
/// none does. nullopt: they do not reach every element, in order.
///     64 * i3 + i5, i3 < 12, i5 < 64, of 768  ->  3, 5
std::optional<std::vector<size_t>> axes_of_dimension(const TensorExpr& e, Expr index, int64_t extent) {
    if (const auto pair = term_axis(index)) return std::vector<size_t>{*pair};
    if (index.constant() != 0) return std::nullopt;
    std::vector<std::pair<int64_t, size_t>> parts;  // stride and axis
    for (const Term& t : index.terms()) {
        if (t.atoms.size() != 1 || t.atoms[0]->kind != Atom::Kind::Var || t.atoms[0]->var.kind != VarKind::Axis)
            return std::nullopt;
        parts.emplace_back(t.coefficient, t.atoms[0]->var.id);
    }
    if (parts.empty()) return extent == 1 ? std::optional(std::vector<size_t>{SIZE_MAX}) : std::nullopt;
    std::sort(parts.begin(), parts.end());
    std::vector<size_t> axes;
    int64_t expected = 1;
    for (const auto& [stride, a] : parts) {
        if (stride != expected || !e.extents[a].is_constant()) return std::nullopt;
        expected *= e.extents[a].constant();
        axes.insert(axes.begin(), a);
    }
    return expected == extent ? std::optional(axes) : std::nullopt;
}

/// The order in which the micro-kernel reads a constant operand, as a layout: [spatial..., v / block, reductions..., v
/// % block]. Matrix instructions read groups along their sum s, pairs of bf16 or four bytes:
/// [spatial..., v / block, ..., s / 2, v % block, s % 2].
std::optional<Layout> packed_weights(const TensorExpr& e, const Access& w, const Shape& shape, const Micro& micro) {
    const size_t vector = *micro.vector_axis;
    Layout layout;
    struct Dim {
        size_t axis;
        bool lane = false, pair = false;
    };
    std::vector<Dim> dims;  // of the current layout: the axis that indexes each
    std::vector<std::vector<Dim>> per_dimension;
    for (size_t d = 0; d < w.index.size(); ++d) {
        const auto parts = axes_of_dimension(e, w.index[d], shape[d]);
        if (!parts) return std::nullopt;
        std::vector<Dim> out;
        for (const size_t a : *parts) out.push_back({a});
        per_dimension.push_back(out);
    }
    // Splits, outermost part first: dimension -> part0, (remainder), ...
    for (size_t d = 0; d < per_dimension.size(); ++d) {
        const std::vector<Dim>& parts = per_dimension[d];
        for (size_t k = 0; k < parts.size(); ++k) {
            if (k + 1 < parts.size()) {
                int64_t inner = 1;
                for (size_t j = k + 1; j < parts.size(); ++j) inner *= e.extents[parts[j].axis].constant();
                layout.primitives.emplace_back(layout::Split{dims.size(), inner});
            }
            if (parts[k].axis == vector) {
                if (k + 1 != parts.size()) return std::nullopt;
                layout.primitives.emplace_back(layout::Split{dims.size(), micro.registers[vector]});
                dims.push_back({vector});
                dims.push_back({vector, true});
            } else if (micro.matrix && parts[k].axis == micro.matrix->sum) {
                layout.primitives.emplace_back(layout::Split{dims.size(), dot_step(micro.matrix->type)});
                dims.push_back({parts[k].axis});
                dims.push_back({parts[k].axis, false, true});
            } else {
                dims.push_back(parts[k]);
            }
        }
    }
    std::vector<size_t> order;  // of the dimensions in memory
    const auto append = [&](const std::function<bool(const Dim&)>& f) {
        for (size_t i = 0; i < dims.size(); ++i)
            if (f(dims[i]) && std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
    };
    append([&](const Dim& x) { return x.axis == SIZE_MAX; });
    append([&](const Dim& x) { return x.axis < e.spatial && x.axis != vector; });
    append([&](const Dim& x) { return x.axis == vector && !x.lane; });
    for (const size_t r : micro.order)
        append([&](const Dim& x) { return x.axis == r && r >= e.spatial && !x.lane && !x.pair; });
    append([&](const Dim& x) { return !x.lane && !x.pair; });
    append([](const Dim& x) { return x.lane; });
    append([](const Dim&) { return true; });
    layout::Reorder reorder;
    reorder.permutation = std::move(order);
    layout.primitives.emplace_back(reorder);
    return layout;
}

/// The layout whose last dimension is the one that axis `sum` indexes, as TMA and WGMMA read operands of every type:
/// [o, c, 3, 3] -> [o, 3, 3, c], [k, n] -> [n, k]. Nothing where it is last, or indexed by other axes too.
std::optional<Layout> sum_last(const Access& w, size_t sum) {
    const auto found = std::find(w.index.begin(), w.index.end(), axis(sum));
    if (found == w.index.end() || found + 1 == w.index.end()) return std::nullopt;
    const auto at = static_cast<size_t>(found - w.index.begin());
    layout::Reorder reorder;
    for (size_t d = 0; d < w.index.size(); ++d)
        if (d != at) reorder.permutation.push_back(d);
    reorder.permutation.push_back(at);
    Layout layout;
    layout.primitives.emplace_back(reorder);
    return layout;
}

bool is_dimension(const Access& a, size_t of) { return std::ranges::count(a.index, axis(of)) == 1; }

/// The longest axis of the sum that is a dimension of the weights and of the data, if matrix instructions can sum along
/// it: channels, not taps.
std::optional<size_t> longest_sum(const TensorExpr& e, const Access& weights, const Access& data) {
    constexpr int64_t kLeast = 8;
    std::optional<size_t> longest;
    for (size_t a = e.spatial; a < e.extents.size(); ++a)
        if (is_dimension(weights, a) && is_dimension(data, a) &&
            (!longest || guess(e.extents[*longest]) < guess(e.extents[a])))
            longest = a;
    return longest && guess(e.extents[*longest]) >= kLeast ? longest : std::nullopt;
}

/// Drops constants of which only packed copies are read.
void drop_unread_constants(Program& program) {
    std::set<ValueId> used(program.outputs.begin(), program.outputs.end());
    for (const Primitive& p : program.primitives)
        for (const ValueId v : p.inputs()) used.insert(v);
    for (auto it = program.constants.begin(); it != program.constants.end();)
        it = used.count(it->first) != 0 ? std::next(it) : program.constants.erase(it);
}

/// Rewrites a program for its layouts, and packs the weights of its products.
class LayOut {
  public:
    LayOut(Program original, const std::map<ValueId, Layout>& chosen, const Target& target,
           const LayOutOptions& options)
        : original_(std::move(original)), target_(target), options_(options), chosen_(chosen) {}

    Program run() {
        LayoutPlan layouts;
        layouts.values = chosen_;
        program_ = apply_layouts(original_, layouts);
        TW_CHECK(program_.primitives.size() == original_.primitives.size());
        readers_ = IndexVector<ValueId, size_t>(program_.values.size(), 0);
        for (const Primitive& p : program_.primitives)
            for (const ValueId v : p.inputs()) ++readers_[v];
        for (const ValueId v : program_.outputs) ++readers_[v];
        for (Primitive& p : program_.primitives)
            if (p.expr() != nullptr) one(p);
        drop_unread_constants(program_);
        return std::move(program_);
    }

  private:
    void one(Primitive& p) {
        TensorExpr& e = *p.expr();
        const auto product = weighted_contraction(program_, e);
        const std::vector<ValueId> inputs = p.inputs();
        const bool touched =
            chosen_.count(p.outputs[0]) != 0 ||
            std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) { return chosen_.count(v) != 0; });
        // The vector axis of a product is the one that only weights and result share.
        std::optional<size_t> keep;
        if (product)
            for (size_t a = 0; a < e.spatial; ++a)
                if (index_uses(e.accesses[product->weights].index, a) &&
                    !index_uses(e.accesses[product->data].index, a))
                    keep = a;
        if (touched) split_blocked_axes(e, keep);
        if (!product) return;
        if (target_.gpu) {
            if (const auto sum = longest_sum(e, e.accesses[product->weights], e.accesses[product->data]);
                sum && options_.precision != Precision::F32)
                pack(p, product->weights, [&](const Access& w, const Shape&) { return sum_last(w, *sum); });
            return;
        }
        const Micro micro = micro_of(p, *product);
        if (!micro.vector_axis) return;
        const auto bias = options_.store_biases ? bias_of(e, product->weights, micro) : std::nullopt;
        for (const uint32_t slot : constants_of_weights(e, product->weights))
            if (index_uses(e.accesses[slot].index, *micro.vector_axis))
                pack(
                    p, slot, [&](const Access& w, const Shape& shape) { return packed_weights(e, w, shape, micro); },
                    slot == product->weights ? bias : std::nullopt);
    }

    /// The micro-kernel of a product. `choose_micro` takes a program of one product. The program's values are swapped
    /// in and back, because a copy for every product would be quadratic.
    Micro micro_of(const Primitive& p, const WeightedContraction& product) {
        Program alone;
        std::swap(alone.values, program_.values);
        alone.primitives.push_back(p);
        const ValueId weights = p.expr()->accesses[product.weights].value;
        alone.constants.emplace(weights, program_.constants.at(weights));
        if (original_.constants_at != Residence::Near) alone.far.emplace(weights, original_.constants_at);
        const TensorExpr& view = *alone.primitives[PrimitiveId(0)].expr();
        const StageChoice choice = choose_micro(alone, view, alone.values[p.outputs[0]].dtype, target_);
        std::swap(alone.values, program_.values);
        return choice.micro;
    }

    /// The constants of the factor that reads the weights: these, and what they are decoded with.
    std::vector<uint32_t> constants_of_weights(const TensorExpr& e, uint32_t weights) const {
        const auto c = contraction(e);
        TW_CHECK(c, "weights without a product");
        ScalarBody factor = e.body;
        factor.set_root(c->factors[c->factors[0].read == weights ? 0 : 1].node);
        std::vector<uint32_t> slots = factor.slots();
        std::erase_if(slots, [&](uint32_t k) { return !program_.is_constant(e.accesses[k].value); });
        return slots;
    }

    /// The bias of a product: a constant of the weights' type that the epilogue alone reads, one number for each point
    /// of the vector axis.
    std::optional<uint32_t> bias_of(const TensorExpr& e, uint32_t weights, const Micro& micro) const {
        const ValueId w = e.accesses[weights].value;
        if (micro.matrix || e.epilogue.empty() || readers_[w] != 1) return std::nullopt;
        const std::vector<uint32_t> body = e.body.slots();
        for (const uint32_t slot : e.epilogue.slots()) {
            const Access& b = e.accesses[slot];
            if (!program_.is_constant(b.value) || b.value == w || !b.valid.empty() ||
                std::ranges::count(body, slot) != 0)
                continue;
            const Value& value = program_.values[b.value];
            const bool numbers = value.dtype == program_.values[w].dtype && value.shape.size() == 1 &&
                                 value.shape[0] == e.extents[*micro.vector_axis];
            if (numbers && b.index[0] == axis(*micro.vector_axis)) return slot;
        }
        return std::nullopt;
    }

    /// Where the numbers of a bias are stored among packed weights (ALT's store_at).
    struct Stored {
        Layout weights, bias;
    };
    /// `packed`: of the weights w of `shape`, [v / block, reductions..., v % block], where v is the bias's index;
    /// others get no row. `host`: the weights' name.
    static std::optional<Stored> with_row(const Layout& packed, const std::vector<Expr>& shape, const TensorExpr& e,
                                          const Access& w, Expr v, const std::string& host) {
        const std::vector<Expr> dims = physical_shape(packed, shape), at = physical_index(packed, shape, w.index);
        if (dims.size() < 3 || !product(dims).is_constant()) return std::nullopt;
        const int64_t block = dims.back().constant();
        const Ranges ranges = e.ranges();
        const auto same = [&](Expr x, Expr y) { return simplify(x - y, ranges).is_constant(0); };
        if (!same(at.front(), floor_div(v, block)) || !same(at.back(), mod(v, block))) return std::nullopt;
        const int64_t rows = product(dims).constant() / dims[0].constant() / block;
        Stored out{packed, {}};
        out.weights.primitives.emplace_back(layout::Fuse{1, dims.size() - 2});
        out.weights.primitives.emplace_back(layout::Pad{1, 0, 1});
        out.bias.primitives = {layout::Split{0, block}, layout::Split{0, 1}, layout::StoreAt{host, 1, rows, rows + 1}};
        return out;
    }

    /// Packs a constant in the layout that `order` gives it, if any, and stores the bias in it.
    template <class Order>
    void pack(Primitive& p, uint32_t slot, const Order& order, std::optional<uint32_t> bias = std::nullopt) {
        TensorExpr& e = *p.expr();
        Access& w = e.accesses[slot];
        const Tensor weights = original_.constants.at(w.value);
        std::optional<Layout> layout = order(w, weights.shape());
        if (!layout) return;
        std::optional<Stored> both;
        if (bias) {
            const Value& value = original_.values[w.value];
            both = with_row(*layout, value.shape, e, w, e.accesses[*bias].index[0], value.name);
        }
        if (both) layout = both->weights;
        const auto key = std::pair(w.value, print(*layout));
        auto it = packed_.find(key);
        if (it == packed_.end()) {
            Value value = original_.values[w.value];
            value.name += ".packed" + std::to_string(packed_.size());
            value.shape = physical_shape(*layout, original_.values[w.value].shape);
            const ValueId v = program_.values.push_back(value);
            const bool packs = options_.contents == Contents::Moved && original_.unread.count(w.value) == 0;
            Tensor packed = packs ? to_physical(*layout, weights)
                                  : Tensor(weights.dtype(), evaluate(value.shape, Bindings()), false);
            if (both && packs)
                add_stored(packed, to_physical(both->bias, program_.constants.at(e.accesses[*bias].value)));
            program_.constants.emplace(v, std::move(packed));
            it = packed_.emplace(key, v).first;
        }
        if (both) {
            Access& b = e.accesses[*bias];
            b.index = physical_index(both->bias, program_.values[b.value].shape, b.index);
            b.value = it->second;
            for (Expr& i : b.index) i = simplify(i, e.ranges());
        }
        const std::vector<Expr> index = physical_index(*layout, original_.values[w.value].shape, w.index);
        const ValueId unpacked = std::exchange(w.value, it->second);
        const std::vector<ValueId> reads = p.inputs();
        if (std::find(reads.begin(), reads.end(), unpacked) == reads.end() && --readers_[unpacked] == 0) {
            program_.constants.erase(unpacked);
            original_.constants.erase(unpacked);
        }
        w.index = index;
        const Ranges now = e.ranges();
        for (Expr& i : w.index) i = simplify(i, now);
    }

    /// Adds what a tensor stores inside of another one, where this has zeros.
    static void add_stored(Tensor& host, const Tensor& guest) {
        TW_CHECK(host.shape() == guest.shape() && host.dtype() == guest.dtype(), "a bias stored in other weights");
        auto* to = static_cast<unsigned char*>(host.mutable_data());
        const auto* from = static_cast<const unsigned char*>(guest.data());
        for (size_t i = 0; i < host.bytes(); ++i) to[i] = static_cast<unsigned char>(to[i] | from[i]);
    }

    Program original_, program_;
    const Target& target_;
    const LayOutOptions options_;
    const std::map<ValueId, Layout>& chosen_;
    IndexVector<ValueId, size_t> readers_;
    std::map<std::pair<ValueId, std::string>, ValueId> packed_;
};

}  // namespace

LayOutOptions lay_out_options(const OrchestrateOptions& options, Contents contents) {
    return {contents, options.scheduling.precision, options.joint && options.joint->store_biases};
}

Program lay_out(Program original, const std::map<ValueId, Layout>& chosen, const Target& target,
                const LayOutOptions& options) {
    const ReuseTensorMemory reuse;  // of packed constants for the next ones
    return LayOut(std::move(original), chosen, target, options).run();
}

}  // namespace tilewright
