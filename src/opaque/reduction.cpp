// Reductions along axes unknown at compile time, and running sums and products.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "opaque/operators.h"
#include "opaque/text.h"

namespace tilewright {

namespace {

Tensor viewed(const TensorView& v) {
    return {v.dtype, Shape(v.shape.begin(), v.shape.end()), v.data, std::shared_ptr<const void>()};
}

Tensor writable(const TensorView& v) { return viewed(v); }

using opaque::Reduction;

constexpr std::string_view kReductionNames[] = {
    "sum", "prod", "max", "min", "mean", "l1", "l2", "sum_of_squares", "log_of_sum", "log_of_sum_of_exp"};

/// Accumulates and finalises a reduction: floats in double, integers exactly.
class Accumulator {
  public:
    Accumulator(Reduction kind, DType t) : kind_(kind), floating_(is_float(t)) {
        if (kind == Reduction::Prod) {
            real_ = 1;
            whole_ = 1;
        }
        if (kind == Reduction::Max || kind == Reduction::Min) set_identity(t);
    }

    void add(const Tensor& x, int64_t i) {
        ++count_;
        if (floating_ || is_root_or_log())
            add_real(x.get(i));
        else
            add_whole(static_cast<uint64_t>(x.get_int(i)), x.dtype() == DType::U64);
    }

    void store(Tensor& y, int64_t i) const {
        if (!floating_ && !is_root_or_log()) {
            const auto sum = static_cast<int64_t>(whole_);
            return y.set(i, kind_ == Reduction::Mean ? (count_ == 0 ? 0 : sum / count_) : sum);
        }
        double v = real_;
        if (kind_ == Reduction::Mean) v /= static_cast<double>(count_);
        if (kind_ == Reduction::L2) v = std::sqrt(v);
        if (kind_ == Reduction::LogSum) v = std::log(v);
        if (kind_ == Reduction::LogSumExp) v = std::log(v) + shift_;
        y.set(i, v);
    }

  private:
    bool is_root_or_log() const {
        return kind_ == Reduction::L2 || kind_ == Reduction::LogSum || kind_ == Reduction::LogSumExp;
    }

    void set_identity(DType t) {
        const bool max = kind_ == Reduction::Max;
        constexpr double kInf = std::numeric_limits<double>::infinity();
        real_ = max ? -kInf : kInf;
        const auto bits = static_cast<int>(8 * byte_size(t));
        const uint64_t all = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
        if (t == DType::Bool)
            whole_ = max ? 0 : 1;
        else if (is_signed(t))
            whole_ = max ? ~(all >> 1) : all >> 1;
        else
            whole_ = max ? 0 : all;
    }

    void add_real(double v) {
        switch (kind_) {
            case Reduction::Prod:
                real_ *= v;
                break;
            case Reduction::Max:
                real_ = std::isnan(v) || v > real_ ? v : real_;
                break;
            case Reduction::Min:
                real_ = std::isnan(v) || v < real_ ? v : real_;
                break;
            case Reduction::L1:
                real_ += std::fabs(v);
                break;
            case Reduction::L2:
            case Reduction::SumSquare:
                real_ += v * v;
                break;
            case Reduction::LogSumExp:
                add_exponential(v);
                break;
            default:
                real_ += v;
        }
    }

    /// sum of exp(x - shift) with a shift that follows the largest x.
    void add_exponential(double v) {
        if (count_ == 1 || v > shift_) {
            real_ = count_ == 1 || std::isinf(v) ? real_ : real_ * std::exp(shift_ - v);
            if (!std::isinf(v)) shift_ = v;
        }
        real_ += std::exp(v - shift_);
    }

    void add_whole(uint64_t v, bool is_unsigned) {
        const auto less = [&](uint64_t a, uint64_t b) {
            return is_unsigned ? a < b : static_cast<int64_t>(a) < static_cast<int64_t>(b);
        };
        switch (kind_) {
            case Reduction::Prod:
                whole_ *= v;
                break;
            case Reduction::Max:
                whole_ = less(whole_, v) ? v : whole_;
                break;
            case Reduction::Min:
                whole_ = less(v, whole_) ? v : whole_;
                break;
            case Reduction::L1:
                whole_ += !is_unsigned && static_cast<int64_t>(v) < 0 ? 0 - v : v;
                break;
            case Reduction::SumSquare:
                whole_ += v * v;
                break;
            default:
                whole_ += v;
        }
    }

    Reduction kind_;
    bool floating_;
    double real_ = 0, shift_ = 0;
    uint64_t whole_ = 0;
    int64_t count_ = 0;
};

class RunTimeReduction final : public OpaqueOp {
  public:
    RunTimeReduction(Reduction kind, bool keep, bool empty_means_none)
        : kind_(kind), keep_(keep), empty_means_none_(empty_means_none) {}
    std::string print() const override {
        return fmt::format("Reduce(kind={}, keepdims={}, noop_with_empty_axes={})",
                           kReductionNames[static_cast<size_t>(kind_)], keep_ ? 1 : 0, empty_means_none_ ? 1 : 0);
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const Tensor x = viewed(inputs[0]);
        const std::vector<bool> gone = reduced(viewed(inputs[1]), x.shape().size());
        Shape shape;
        std::vector<int64_t> strides(x.shape().size(), 0);  // of the output, along each input dimension
        for (size_t k = 0; k < x.shape().size(); ++k)
            if (!gone[k] || keep_) shape.push_back(gone[k] ? 1 : x.shape()[k]);
        int64_t stride = 1;
        for (size_t k = x.shape().size(); k-- > 0;) {
            if (gone[k]) continue;
            strides[k] = stride;
            stride *= x.shape()[k];
        }
        Tensor y = writable(outputs.allocate(0, shape));
        std::vector<Accumulator> sums(static_cast<size_t>(y.count()), Accumulator(kind_, x.dtype()));
        std::vector<int64_t> at(x.shape().size(), 0);
        for (int64_t i = 0, n = x.count(), target = 0; i < n; ++i) {
            sums[static_cast<size_t>(target)].add(x, i);
            for (size_t k = at.size(); k-- > 0;) {
                target += strides[k];
                if (++at[k] < x.shape()[k]) break;
                target -= strides[k] * at[k];
                at[k] = 0;
            }
        }
        for (int64_t i = 0; i < y.count(); ++i) sums[static_cast<size_t>(i)].store(y, i);
    }

  private:
    std::vector<bool> reduced(const Tensor& axes, size_t rank) const {
        std::vector<bool> gone(rank, axes.count() == 0 && !empty_means_none_);
        const auto r = static_cast<int64_t>(rank);
        for (const int64_t a : axes.to_ints()) {
            if (a < -r || a >= r) throw ModelError(fmt::format("Reduce: axis {} is outside [{}, {}]", a, -r, r - 1));
            gone[static_cast<size_t>(a < 0 ? a + r : a)] = true;
        }
        return gone;
    }

    Reduction kind_;
    bool keep_, empty_means_none_;
};

class Cumulative final : public OpaqueOp {
  public:
    Cumulative(bool product, bool exclusive, bool reverse)
        : product_(product), exclusive_(exclusive), reverse_(reverse) {}
    std::string print() const override {
        return fmt::format("{}(exclusive={}, reverse={})", product_ ? "CumProd" : "CumSum", exclusive_ ? 1 : 0,
                           reverse_ ? 1 : 0);
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const Tensor x = viewed(inputs[0]);
        const auto r = x.rank();
        int64_t axis = viewed(inputs[1]).get_int(0);
        if (axis < -r || axis >= r)
            throw ModelError(
                fmt::format("{}: axis {} is outside [{}, {}]", product_ ? "CumProd" : "CumSum", axis, -r, r - 1));
        axis = axis < 0 ? axis + r : axis;
        Tensor y = writable(outputs.allocate(0, x.shape()));
        const auto k = static_cast<size_t>(axis);
        int64_t inner = 1;
        for (size_t d = k + 1; d < x.shape().size(); ++d) inner *= x.shape()[d];
        const int64_t length = x.shape()[k], outer = length == 0 ? 0 : x.count() / (inner == 0 ? 1 : inner * length);
        for (int64_t o = 0; o < outer; ++o)
            for (int64_t i = 0; i < inner; ++i) {
                if (is_float(x.dtype()))
                    line<double>(x, y, o * length * inner + i, inner, length);
                else
                    line<uint64_t>(x, y, o * length * inner + i, inner, length);
            }
    }

  private:
    template <class T>
    void line(const Tensor& x, Tensor& y, int64_t first, int64_t stride, int64_t length) const {
        T sum = product_ ? 1 : 0;
        for (int64_t n = 0; n < length; ++n) {
            const int64_t at = first + (reverse_ ? length - 1 - n : n) * stride;
            if (exclusive_) store(y, at, sum);
            T v;
            if constexpr (std::is_same_v<T, double>)
                v = x.get(at);
            else
                v = static_cast<uint64_t>(x.get_int(at));
            sum = product_ ? sum * v : sum + v;
            if (!exclusive_) store(y, at, sum);
        }
    }
    static void store(Tensor& y, int64_t at, double v) { y.set(at, v); }
    static void store(Tensor& y, int64_t at, uint64_t v) { y.set(at, static_cast<int64_t>(v)); }

    bool product_, exclusive_, reverse_;
};

}  // namespace

namespace opaque {

Operator reduction(Reduction kind, bool keep_dims, bool empty_means_none) {
    return std::make_shared<RunTimeReduction>(kind, keep_dims, empty_means_none);
}
Operator cumulative(bool product, bool exclusive, bool reverse) {
    return std::make_shared<Cumulative>(product, exclusive, reverse);
}

}  // namespace opaque

std::vector<OpaqueReader> reduction_readers() {
    return {
        {"Reduce",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<RunTimeReduction>(t.choice<Reduction>("kind", kReductionNames), t.flag("keepdims"),
                                                       t.flag("noop_with_empty_axes"));
         }},
        {"CumSum",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<Cumulative>(false, t.flag("exclusive"), t.flag("reverse"));
         }},
        {"CumProd",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<Cumulative>(true, t.flag("exclusive"), t.flag("reverse"));
         }},
    };
}

}  // namespace tilewright
