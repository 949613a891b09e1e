#include "backend/cpu/library_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "program/analysis/contraction.h"
#include "program/scalar_eval.h"

namespace tilewright::cpu {

namespace {

/// Why a kernel is none of the library's.
struct Refusal {
    std::string reason;
};

constexpr size_t kMostDims = 12;    // of the library's tensors
constexpr int64_t kMostPixels = 2;  // dimensions of a picture

// --- what follows the sum

double activate(Activation a, double x) {
    switch (a) {
        case Activation::None:
            return x;
        case Activation::Relu:
            return std::max(x, 0.0);
        case Activation::Gelu:
            return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
        case Activation::GeluTanh:
            return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        case Activation::Silu:
            return x / (1 + std::exp(-x));
        case Activation::Sigmoid:
            return 1 / (1 + std::exp(-x));
        case Activation::Tanh:
            return std::tanh(x);
        case Activation::HardSwish:
            return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    }
    return x;
}

constexpr Activation kActivations[] = {Activation::None, Activation::Relu,    Activation::Gelu, Activation::GeluTanh,
                                       Activation::Silu, Activation::Sigmoid, Activation::Tanh, Activation::HardSwish};

/// The epilogue as a function of the sum and of what it reads.
class EpilogueFunction {
  public:
    explicit EpilogueFunction(const ScalarBody& body) : body_(body) {
        std::set<uint32_t> slots;
        for (const ScalarNode& n : body.nodes()) {
            // No comparisons, no rounding: such a function is what it looks like at points close to each other.
            switch (n.op) {
                case ScalarOp::Access:
                    slots.insert(n.slot);
                    break;
                case ScalarOp::Acc:
                case ScalarOp::Const:
                case ScalarOp::Add:
                case ScalarOp::Sub:
                case ScalarOp::Mul:
                case ScalarOp::Div:
                case ScalarOp::Pow:
                case ScalarOp::Neg:
                case ScalarOp::Min:
                case ScalarOp::Max:
                case ScalarOp::Exp:
                case ScalarOp::Erf:
                case ScalarOp::Tanh:
                    break;
                default:
                    throw Refusal{fmt::format("its epilogue has {}", to_string(n.op))};
            }
            if (n.dtype != DType::F32) throw Refusal{"its epilogue has other types than f32"};
        }
        slots_.assign(slots.begin(), slots.end());
    }

    const std::vector<uint32_t>& slots() const { return slots_; }

    double operator()(double sum, const std::vector<double>& read) const {
        if (body_.empty()) return sum;
        std::vector<ScalarValue> values;
        for (const ScalarNode& n : body_.nodes()) {
            ScalarValue v;
            if (n.op == ScalarOp::Acc) {
                v.f = sum;
            } else if (n.op == ScalarOp::Access) {
                v.f = read[static_cast<size_t>(std::find(slots_.begin(), slots_.end(), n.slot) - slots_.begin())];
            } else if (n.op == ScalarOp::Const) {
                v.f = n.value;
            } else {
                const auto at = [&](ScalarId k) { return k ? values[k.value] : ScalarValue{}; };
                v = eval_node(n, body_[n.a].dtype, at(n.a), at(n.b), at(n.c));
            }
            values.push_back(v);
        }
        return values[body_.root().value].f;
    }

  private:
    const ScalarBody& body_;
    std::vector<uint32_t> slots_;
};

/// Whether f is activation(scale * sum + all that is read), looked at all over where it bends.
bool is_function(const EpilogueFunction& f, Activation activation, double scale) {
    std::vector<double> read(f.slots().size());
    size_t step = 0;
    for (double x = -40; x <= 40; x += std::fabs(x) < 10 ? 0.0737 : 1.37)
        for (int variant = 0; variant < 3; ++variant) {
            double argument = scale * x;
            for (double& r : read) argument += r = variant == 0 ? 0.0 : static_cast<double>(++step % 29) / 4 - 3.6;
            const double wanted = activate(activation, argument);
            if (!(std::fabs(f(x, read) - wanted) <= 2e-6 * (1 + std::fabs(wanted)))) return false;
        }
    return true;
}

void find_function(const EpilogueFunction& f, LibraryOp& op) {
    const std::vector<double> none(f.slots().size(), 0.0);
    const double slope = f(1, none) - f(0, none);
    for (const Activation a : kActivations)
        for (const double scale : {1.0, slope}) {
            if (scale != 1 && a != Activation::None) continue;
            if (!is_function(f, a, scale)) continue;
            op.activation = a;
            op.scale = scale;
            return;
        }
    throw Refusal{"its epilogue is no sum with an activation that keeps a NaN"};
}

// --- where elements lie

Expr flat_offset(const std::vector<Expr>& shape, const std::vector<Expr>& index) {
    Expr offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset = offset * shape[d] + index[d];
    return offset;
}

/// An axis of the expression, or several that are walked as one.
struct Walked {
    std::vector<size_t> axes;  ///< outermost first
    int64_t extent = 1;
};

enum : size_t { kData, kWeights, kResult };

/// The tensors of a kernel: data, weights, result, then what the epilogue reads.
class Tensors {
  public:
    Tensors(const Program& stages, const TensorExpr& e) : stages_(stages) {
        for (const Expr& x : e.extents) extents_.push_back(x.constant());
    }

    void add(ValueId value, const std::vector<Expr>& index, bool constant) {
        One t;
        const auto in = std::find(stages_.inputs.begin(), stages_.inputs.end(), value);
        t.number = static_cast<size_t>(in - stages_.inputs.begin());
        t.constant = constant;
        if (stages_.values[value].dtype != DType::F32) throw Refusal{"a tensor of another type than f32"};
        const Expr offset = flat_offset(stages_.values[value].shape, index);
        if (constant) {
            t.places = places_of(offset);
        } else {
            for (size_t a = 0; a < extents_.size(); ++a) {
                const auto linear = linear_in(offset, {VarKind::Axis, static_cast<uint32_t>(a)});
                const bool plain = linear && linear->coefficient.is_constant();
                if (!plain && extents_[a] > 1) throw Refusal{"a tensor that no strides describe"};
                t.strides.push_back(plain ? linear->coefficient.constant() : 0);
            }
        }
        t.origin = evaluate(offset, Env{std::vector<int64_t>(extents_.size(), 0), {}, nullptr});
        all_.push_back(std::move(t));
    }

    size_t size() const { return all_.size(); }
    int64_t origin(size_t t) const { return all_[t].origin; }
    bool constant(size_t t) const { return all_[t].constant; }
    int64_t extent(size_t axis) const { return extents_[axis]; }
    bool moves(size_t t, size_t axis) const {
        const One& o = all_[t];
        if (extents_[axis] == 1) return false;
        if (!o.constant) return o.strides[axis] != 0;
        return std::any_of(o.places[axis].begin(), o.places[axis].end(), [](int64_t p) { return p != 0; });
    }
    int64_t stride(size_t t, size_t axis) const { return all_[t].strides[axis]; }
    int64_t stride(size_t t, const Walked& w) const { return w.axes.empty() ? 0 : stride(t, w.axes.back()); }

    /// Those axes, each group of which all tensors walk as one, outermost first; in the order in which `by` has them.
    std::vector<Walked> merged(std::vector<size_t> axes, size_t by) const {
        std::erase_if(axes, [&](size_t a) { return extents_[a] == 1; });
        const auto width = [&](size_t a) {
            return constant(by) ? all_[by].places[a].back() / (extents_[a] - 1) : std::abs(stride(by, a));
        };
        std::stable_sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return width(a) > width(b); });
        std::vector<Walked> out;
        for (size_t k = axes.size(); k-- > 0;) {
            if (!out.empty() && follows(axes[k], out.back())) {
                out.back().axes.insert(out.back().axes.begin(), axes[k]);
                out.back().extent *= extents_[axes[k]];
            } else {
                out.push_back({{axes[k]}, extents_[axes[k]]});
            }
        }
        std::reverse(out.begin(), out.end());
        return out;
    }

    /// One axis of all of them.
    Walked one(const std::vector<size_t>& axes, size_t by, const char* what) const {
        const std::vector<Walked> all = merged(axes, by);
        if (all.size() > 1) throw Refusal{fmt::format("{} that lie in pieces", what)};
        return all.empty() ? Walked{} : all[0];
    }

    /// The operand with these dimensions; those that it does not move along are 1, unless it is to have them all.
    LibraryOperand operand(size_t t, const std::vector<Walked>& dims, bool whole) const {
        const One& o = all_[t];
        LibraryOperand out;
        out.tensor = o.number;
        for (const Walked& w : dims) {
            const bool here = std::any_of(w.axes.begin(), w.axes.end(), [&](size_t a) { return moves(t, a); });
            out.dims.push_back(here || whole ? w.extent : 1);
            if (!o.constant) {
                out.strides.push_back(here ? stride(t, w) : 0);
                continue;
            }
            std::vector<int64_t> places = {0};
            if (here)
                for (const size_t a : w.axes) {
                    std::vector<int64_t> finer;
                    for (const int64_t p : places)
                        for (const int64_t q : o.places[a]) finer.push_back(p + q);
                    places = std::move(finer);
                }
            out.places.push_back(std::move(places));
        }
        if (!o.constant) name_strides_of_ones(out);
        return out;
    }

  private:
    struct One {
        size_t number = 0;  ///< of the kernel
        bool constant = false;
        std::vector<int64_t> strides;              ///< per axis
        std::vector<std::vector<int64_t>> places;  ///< of a constant: per axis and position
        int64_t origin = 0;
    };

    bool follows(size_t outer, const Walked& inner) const {
        return std::all_of(all_.begin(), all_.end(), [&](const One& o) {
            return o.constant || o.strides[outer] == o.strides[inner.axes.back()] * inner.extent;
        });
    }

    /// What offset each axis adds alone, where they add up.
    std::vector<std::vector<int64_t>> places_of(Expr offset) const {
        for (const Term& term : offset.terms()) {
            std::set<Var> vars;
            for (const Atom* atom : term.atoms)
                for (const Var v : variables(atom->kind == Atom::Kind::Var ? Expr::var(atom->var) : whole(*atom)))
                    vars.insert(v);
            if (vars.size() != 1 || vars.begin()->kind != VarKind::Axis)
                throw Refusal{"a constant whose axes do not lie apart"};
        }
        std::vector<int64_t> at(extents_.size(), 0);
        const int64_t origin = evaluate(offset, Env{at, {}, nullptr});
        std::vector<std::vector<int64_t>> out(extents_.size());
        for (size_t a = 0; a < extents_.size(); ++a) {
            if (!uses(offset, {VarKind::Axis, static_cast<uint32_t>(a)})) {
                out[a].assign(static_cast<size_t>(extents_[a]), 0);
                continue;
            }
            for (int64_t x = 0; x < extents_[a]; ++x) {
                at[a] = x;
                out[a].push_back(evaluate(offset, Env{at, {}, nullptr}) - origin);
            }
            at[a] = 0;
        }
        return out;
    }
    static Expr whole(const Atom& atom) { return atom.a + atom.b * 2; }  // only its variables count

    /// Of a dimension of one element the stride says nothing: the library likes the one that a dense tensor would have.
    static void name_strides_of_ones(LibraryOperand& o) {
        std::vector<size_t> order(o.dims.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            return (o.dims[a] == 1 ? 0 : o.strides[a]) > (o.dims[b] == 1 ? 0 : o.strides[b]);
        });
        for (size_t d = 0; d < o.dims.size(); ++d) {
            if (o.dims[d] != 1) continue;
            int64_t dense = 1;
            for (size_t k = d + 1; k < o.dims.size(); ++k)
                if (o.dims[k] != 1) dense = std::max(dense, o.strides[k] * o.dims[k]);
            o.strides[d] = dense;
        }
    }

    const Program& stages_;
    std::vector<int64_t> extents_;
    std::vector<One> all_;
};

// --- the whole

class Recognition {
  public:
    Recognition(const Program& stages, const std::vector<bool>& weights, bool convolution)
        : stages_(stages), constant_(weights) {
        op_.convolution = convolution;
    }

    LibraryOp run() {
        if (stages_.primitives.size() != 1 || stages_.outputs.size() != 1) throw Refusal{"several stages"};
        const Primitive& p = stages_.primitives[PrimitiveId(0)];
        e_ = p.expr();
        const auto c = contraction(*e_);
        if (!c || c->type != DType::F32) throw Refusal{"no sum of products"};
        if (!c->reads_plainly()) throw Refusal{"operands computed on the way"};
        for (const Expr& x : e_->extents)
            if (!x.is_constant()) throw Refusal{"sizes that only the run knows"};
        uint32_t data = *c->factors[0].slot, weight = *c->factors[1].slot;
        if (slides(e_->accesses[weight])) std::swap(data, weight);
        // The right operand of a product is the one along which the result's elements lie side by side.
        if (!op_.convolution && !walks_result(weight) && walks_result(data)) std::swap(data, weight);
        const EpilogueFunction follows(e_->epilogue);
        find_function(follows, op_);

        Tensors t(stages_, *e_);
        const Access &x = e_->accesses[data], &w = e_->accesses[weight];
        if (!w.valid.empty() || (!op_.convolution && !x.valid.empty())) throw Refusal{"an operand with gaps"};
        t.add(x.value, x.index, !op_.convolution && is_constant(x.value));
        t.add(w.value, w.index, is_constant(w.value));
        t.add(p.outputs[0], result_index(*e_), false);
        for (const uint32_t slot : follows.slots()) {
            const Access& read = e_->accesses[slot];
            if (!read.valid.empty()) throw Refusal{"an operand with gaps"};
            t.add(read.value, read.index, false);
        }
        for (size_t k = op_.convolution ? 1 : 0; k < t.size(); ++k)
            if (t.origin(k) != 0) throw Refusal{"a tensor that is not walked from its beginning"};
        sort_axes(t);
        op_.convolution ? convolution(t, x) : product(t);
        op_.result.tensor = stages_.inputs.size();
        return std::move(op_);
    }

    /// Whether it looks as if windows slid over an operand.
    static bool has_windows(const Program& stages) {
        Recognition r(stages, {}, true);
        if (stages.primitives.size() != 1) return false;
        r.e_ = stages.primitives[PrimitiveId(0)].expr();
        return std::any_of(r.e_->accesses.begin(), r.e_->accesses.end(), [&](const Access& a) { return r.slides(a); });
    }

  private:
    bool is_constant(ValueId v) const {
        const auto in = std::find(stages_.inputs.begin(), stages_.inputs.end(), v);
        const auto k = static_cast<size_t>(in - stages_.inputs.begin());
        return k < constant_.size() && constant_[k];
    }

    /// Whether a window slides over the operand: a dimension that both an axis of the result and one of the sum walk,
    /// or one whose ends are passed, or that is walked in larger steps.
    bool slides(const Access& a) const {
        if (!a.valid.empty()) return true;
        if (a.index.size() < 2) return false;  // a tensor of one dimension hides those that it had
        return std::any_of(a.index.begin(), a.index.end(), [&](Expr i) {
            bool spatial = false, summed = false;
            const std::vector<Var> vars = variables(i);
            for (const Var v : vars)
                if (v.kind == VarKind::Axis) (v.id < e_->spatial ? spatial : summed) = true;
            const auto linear = vars.size() == 1 ? linear_in(i, vars[0]) : std::nullopt;
            return (spatial && summed) || (spatial && linear && !linear->coefficient.is_constant(1));
        });
    }

    /// Whether the operand moves along the axis along which the result's elements lie side by side.
    bool walks_result(uint32_t slot) const {
        const Expr out = flat_offset(stages_.values[stages_.outputs[0]].shape, result_index(*e_));
        for (size_t a = 0; a < e_->spatial; ++a) {
            const Var v{VarKind::Axis, static_cast<uint32_t>(a)};
            const auto linear = linear_in(out, v);
            if (!linear || !linear->coefficient.is_constant(1) || e_->extents[a].is_constant(1)) continue;
            const std::vector<Expr>& index = e_->accesses[slot].index;
            if (std::any_of(index.begin(), index.end(), [&](Expr i) { return uses(i, v); })) return true;
        }
        return false;
    }

    /// By which of the three tensors move along them.
    void sort_axes(const Tensors& t) {
        for (size_t a = 0; a < e_->extents.size(); ++a) {
            if (t.extent(a) == 1) continue;
            const bool x = t.moves(kData, a), w = t.moves(kWeights, a);
            if (a >= e_->spatial) {
                if (!w || (!x && !op_.convolution)) throw Refusal{"a sum that one operand knows nothing of"};
                sum_.push_back(a);
            } else if (x && w) {
                batch_.push_back(a);
            } else if (x || w) {
                (x ? rows_ : columns_).push_back(a);
            } else {
                throw Refusal{"a result that neither operand moves along"};
            }
        }
    }

    void product(const Tensors& t) {
        const std::vector<Walked> batch = t.merged(batch_, kResult), rows = t.merged(rows_, kResult),
                                  columns = t.merged(columns_, kResult);
        const Walked sum = t.one(sum_, t.constant(kData) ? kWeights : kData, "sums");
        // Of rows and columns that lie in several pieces all but the last are batches, of which one operand knows
        // nothing.
        std::vector<Walked> front = batch;
        for (const auto* list : {&rows, &columns})
            for (size_t k = 0; k + 1 < list->size(); ++k) front.push_back((*list)[k]);
        const Walked m = rows.empty() ? Walked{} : rows.back(), n = columns.empty() ? Walked{} : columns.back();
        if (front.size() + 2 > kMostDims) throw Refusal{"more dimensions than the library has"};
        const auto dims = [&](const Walked& a, const Walked& b) {
            std::vector<Walked> out = front;
            out.push_back(a);
            out.push_back(b);
            return out;
        };
        op_.data = t.operand(kData, dims(m, sum), false);
        op_.weights = t.operand(kWeights, dims(sum, n), false);
        op_.result = t.operand(kResult, dims(m, n), true);
        for (size_t k = kResult + 1; k < t.size(); ++k) op_.added.push_back(t.operand(k, dims(m, n), false));
    }

    void convolution(const Tensors& t, const Access& x) {
        if (!t.constant(kWeights)) throw Refusal{"a convolution whose weights are computed"};
        const std::vector<Expr>& shape = stages_.values[x.value].shape;
        if (x.fill != 0) throw Refusal{"padding that is not zero"};
        std::set<size_t> of_windows;
        struct Window {
            Walked pixel, tap;
            int64_t step = 1, dilation = 1, begin = 0, extent = 1, stride = 1;
        };
        std::vector<Window> windows;
        std::vector<Expr> conditions = x.valid;
        int64_t stride = 1;
        for (size_t d = shape.size(); d-- > 0; stride *= shape[d].constant()) {
            if (!shape[d].is_constant()) throw Refusal{"sizes that only the run knows"};
            Window w;
            size_t pixels = 0, taps = 0;
            for (const Var v : variables(x.index[d])) {
                if (v.kind != VarKind::Axis) throw Refusal{"a window that the data moves"};
                const auto linear = linear_in(x.index[d], v);
                if (!linear || !linear->coefficient.is_constant()) throw Refusal{"a window of no even steps"};
                const int64_t step = linear->coefficient.constant();
                if (v.id < e_->spatial) {
                    ++pixels;
                    w.pixel = {{v.id}, t.extent(v.id)};
                    w.step = step;
                } else {
                    ++taps;
                    w.tap = {{v.id}, t.extent(v.id)};
                    w.dilation = step;
                }
            }
            const int64_t begin = -x.index[d].constant();
            std::vector<Expr> mine;
            for (const Expr& c : {x.index[d], shape[d] - 1 - x.index[d]})
                if (const auto it = std::find(conditions.begin(), conditions.end(), c); it != conditions.end())
                    mine.push_back(*it);
            if (taps == 0 && begin == 0 && mine.empty() && (pixels != 1 || w.step == 1)) continue;
            if (pixels > 1 || taps > 1) throw Refusal{"a window over several dimensions at a time"};
            if (taps == 1 && pixels == 0 && begin == 0 && mine.empty()) continue;  // channels
            if (w.step < 1 || w.dilation < 1 || begin < 0) throw Refusal{"a window that runs backwards"};
            for (const Expr& c : mine) std::erase(conditions, c);
            w.begin = begin;
            w.extent = shape[d].constant();
            w.stride = stride;
            for (const auto* axes : {&w.pixel.axes, &w.tap.axes})
                for (const size_t a : *axes) of_windows.insert(a);
            windows.insert(windows.begin(), w);
        }
        if (!conditions.empty()) throw Refusal{"an operand with gaps"};
        const auto others = [&](std::vector<size_t> axes) {
            std::erase_if(axes, [&](size_t a) { return of_windows.count(a) != 0; });
            return axes;
        };
        std::vector<size_t> images = others(rows_);
        if (windows.empty() || windows.size() > kMostPixels) throw Refusal{"windows of other than two dimensions"};
        if (windows.size() < 2) {
            // The picture's other dimension, if it has one: a window of one tap.
            Window w;
            const auto pixels = t.merged(images, kResult);
            if (!pixels.empty()) {
                w.pixel = pixels.back();
                w.extent = w.pixel.extent;
                w.stride = t.stride(kData, w.pixel);
                std::erase_if(images, [&](size_t a) {
                    return std::find(w.pixel.axes.begin(), w.pixel.axes.end(), a) != w.pixel.axes.end();
                });
            }
            windows.insert(windows[0].stride < w.stride ? windows.begin() : windows.end(), w);
        }
        const Walked image = t.one(images, kResult, "pictures"), groups = t.one(batch_, kResult, "groups"),
                     in = t.one(others(sum_), kData, "channels"), out = t.one(columns_, kResult, "channels");
        for (const size_t a : others(sum_))
            if (!t.moves(kData, a)) throw Refusal{"a sum that one operand knows nothing of"};
        // Channels of the groups lie behind each other, as one dimension.
        const auto channels = [&](size_t tensor, const Walked& of_group) {
            const int64_t inner = t.stride(tensor, of_group), outer = t.stride(tensor, groups);
            if (groups.extent > 1 && of_group.extent > 1 && outer != inner * of_group.extent)
                throw Refusal{"groups that lie in pieces"};
            return std::pair(groups.extent * of_group.extent, of_group.extent > 1 ? inner : outer);
        };
        const auto picture = [&](size_t tensor, const Walked& of_group, int64_t h, int64_t w, int64_t along_h,
                                 int64_t along_w) {
            const auto [c, along_c] = channels(tensor, of_group);
            LibraryOperand o = t.operand(tensor, {image}, true);
            o.dims = {image.extent, c, h, w};
            o.strides = {o.strides[0], along_c, along_h, along_w};
            const int64_t dense[] = {0, 1, w * c, c};
            for (size_t d = 1; d < 4; ++d)
                if (o.dims[d] == 1) o.strides[d] = dense[d];
            if (o.dims[0] == 1) {
                o.strides[0] = 1;
                for (size_t d = 1; d < 4; ++d) o.strides[0] = std::max(o.strides[0], o.strides[d] * o.dims[d]);
            }
            return o;
        };
        const Window &h = windows[0], &w = windows[1];
        op_.data = picture(kData, in, h.extent, w.extent, h.stride, w.stride);
        op_.weights = t.operand(kWeights, {groups, out, in, h.tap, w.tap}, true);
        op_.result = picture(kResult, out, h.pixel.extent, w.pixel.extent, t.stride(kResult, h.pixel),
                             t.stride(kResult, w.pixel));
        for (size_t k = kResult + 1; k < t.size(); ++k) {
            LibraryOperand o =
                picture(k, out, h.pixel.extent, w.pixel.extent, t.stride(k, h.pixel), t.stride(k, w.pixel));
            for (size_t d = 0; d < 4; ++d)
                if (o.strides[d] == 0) o.dims[d] = 1, o.strides[d] = 1;
            op_.added.push_back(std::move(o));
        }
        for (const Window* one : {&h, &w}) {
            op_.strides.push_back(one->step);
            op_.dilations.push_back(one->dilation);
            op_.begins.push_back(one->begin);
            op_.ends.push_back((one->pixel.extent - 1) * one->step + (one->tap.extent - 1) * one->dilation + 1 -
                               one->extent - one->begin);
        }
    }

    const Program& stages_;
    std::vector<bool> constant_;
    const TensorExpr* e_ = nullptr;
    LibraryOp op_;
    std::vector<size_t> batch_, rows_, columns_, sum_;
};

}  // namespace

bool LibraryOp::is_bias(size_t i) const {
    const size_t channel = convolution ? 1 : result.dims.size() - 1;
    const LibraryOperand& o = added[i];
    for (size_t d = 0; d < o.dims.size(); ++d)
        if (d == channel ? o.dims[d] != result.dims[d] || o.strides[d] != 1 : o.dims[d] != 1) return false;
    return true;
}

std::variant<LibraryOp, std::string> library_op(const Program& stages, const std::vector<bool>& weights) {
    const auto as = [&](bool convolution) -> std::variant<LibraryOp, std::string> {
        try {
            return Recognition(stages, weights, convolution).run();
        } catch (Refusal& refusal) {
            return std::move(refusal.reason);
        }
    };
    if (!Recognition::has_windows(stages)) return as(false);
    auto found = as(true);  // strides of a product say some windows as well, but worse
    if (std::holds_alternative<LibraryOp>(found)) return found;
    auto product = as(false);
    return std::holds_alternative<LibraryOp>(product) ? product : found;
}

}  // namespace tilewright::cpu
