#include "program/intervals.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "program/analysis/contraction.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The unbounded interval if an end is NaN or infinite: an overflow may also produce NaN.
RealInterval bounded(double low, double high) {
    if (!(std::isfinite(low) && std::isfinite(high))) return {};
    return {low, high};
}

RealInterval around_zero(double magnitude) { return bounded(-magnitude, magnitude); }

RealInterval product(const RealInterval& a, const RealInterval& b) {
    if (!a.is_bounded() || !b.is_bounded()) return {};
    const auto [low, high] = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
    return bounded(low, high);
}

RealInterval square(const RealInterval& a) {
    const double nearest = a.low <= 0 && a.high >= 0 ? 0 : std::min(std::fabs(a.low), std::fabs(a.high));
    return bounded(nearest * nearest, a.magnitude() * a.magnitude());
}

RealInterval quotient(const RealInterval& a, const RealInterval& b) {
    if (!b.is_bounded() || (b.low <= 0 && b.high >= 0)) return {};
    return product(a, {1 / b.high, 1 / b.low});
}

RealInterval either(const RealInterval& a, const RealInterval& b) {
    return bounded(std::min(a.low, b.low), std::max(a.high, b.high));
}

/// The function's own bounds, and its values at the ends of `a` where it has none. Exp is bounded by 0 and not by
/// exp(a.low), because backends may flush small results to 0.
RealInterval image(const ScalarFunction& f, const RealInterval& a) {
    if (!a.is_bounded()) return {};
    double low = f.reference(a.low), high = f.reference(a.high);
    if (std::isnan(low) || std::isnan(high)) return {};  // an end outside of the domain
    if (f.curve == Curve::Poles) return {};
    if (high < low) std::swap(low, high);
    return bounded(std::isfinite(f.low) ? f.low : low, std::isfinite(f.high) ? f.high : high);
}

RealInterval of_type(DType t) {
    switch (t) {
        case DType::Bool:
            return {0, 1};
        case DType::I8:
            return {-128, 127};
        case DType::U8:
            return {0, 255};
        case DType::I16:
            return {-32768, 32767};
        case DType::U16:
            return {0, 65535};
        default:
            return is_float(t) ? RealInterval{} : around_zero(0x1p64);
    }
}

/// Evaluates the nodes in order.
class Bodies {
  public:
    explicit Bodies(const std::vector<RealInterval>& operands) : operands_(operands) {}

    RealInterval result(const ScalarBody& body) {
        IndexVector<ScalarId, RealInterval> known;
        for (const ScalarNode& n : body.nodes()) known.push_back(of(n, known));
        return known[body.root()];
    }

  private:
    RealInterval of(const ScalarNode& n, const IndexVector<ScalarId, RealInterval>& known) const {
        const auto at = [&](ScalarId id) { return id ? known[id] : RealInterval{}; };
        const RealInterval a = at(n.a), b = at(n.b);
        switch (n.op) {
            case ScalarOp::Const:
                return is_float(n.dtype) ? bounded(n.value, n.value)
                                         : bounded(static_cast<double>(n.int_value), static_cast<double>(n.int_value));
            case ScalarOp::Access:
                return operands_[n.slot];
            case ScalarOp::Add:
                return bounded(a.low + b.low, a.high + b.high);
            case ScalarOp::Sub:
                return bounded(a.low - b.high, a.high - b.low);
            case ScalarOp::Mul:
                if (n.a == n.b) return square(a);
                return product(a, b);
            case ScalarOp::Weigh:
                return product(a, b);
            case ScalarOp::Div:
                return quotient(a, b);
            case ScalarOp::Min:
                return a.is_bounded() && b.is_bounded() ? RealInterval{std::min(a.low, b.low), std::min(a.high, b.high)}
                                                        : RealInterval{};
            case ScalarOp::Max:
                return a.is_bounded() && b.is_bounded() ? RealInterval{std::max(a.low, b.low), std::max(a.high, b.high)}
                                                        : RealInterval{};
            case ScalarOp::Neg:
                return bounded(-a.high, -a.low);
            case ScalarOp::Abs:
                return bounded(0, a.magnitude());
            case ScalarOp::Select:
                return either(b, at(n.c));
            case ScalarOp::Table:
                return of_table(*n.table);
            case ScalarOp::Cast:
                if (is_float(n.dtype)) return a;
                return of_type(n.dtype);
            default:
                if (const ScalarFunction* f = scalar_function(n.op); f != nullptr && is_float(n.dtype))
                    return image(*f, a);
                return of_type(n.dtype);
        }
    }

    static RealInterval of_table(const std::vector<double>& numbers) {
        double low = 0, high = 0;  // out of bounds the table is 0
        for (const double x : numbers) {
            low = std::min(low, x);
            high = std::max(high, x);
        }
        return bounded(low, high);
    }

    const std::vector<RealInterval>& operands_;
};

template <class T>
RealInterval interval_of_elements(const T* data, int64_t n) {
    if (n == 0) return {0, 0};
    double low = kInfinity, high = -kInfinity;
    bool numbers = true;
    for (int64_t i = 0; i < n; ++i) {
        const auto x = static_cast<double>(data[i]);
        numbers = numbers && x == x;
        low = std::min(low, x);
        high = std::max(high, x);
    }
    return numbers ? bounded(low, high) : RealInterval{};
}

/// The multiplicity of each term in the sum: the product of its axes' extents; infinite if one is dynamic.
double terms(const TensorExpr& e, const std::vector<bool>& counted) {
    double n = 1;
    for (size_t a = e.spatial; a < e.extents.size(); ++a)
        if (counted[a]) n *= e.extents[a].is_constant() ? static_cast<double>(e.extents[a].constant()) : kInfinity;
    return n;
}

/// The largest sum of magnitudes over the dimensions indexed by reduction axes, and those axes; none if an index is not
/// an axis.
std::optional<double> largest_sum(const TensorExpr& e, const Access& access, const Tensor& weights,
                                  std::vector<bool>& counted) {
    if (!access.valid.empty() || weights.dtype() != DType::F32 || weights.count() == 0) return std::nullopt;
    const Shape& shape = weights.shape();
    std::vector<bool> summed(shape.size(), false);
    for (size_t d = 0; d < shape.size(); ++d) {
        const auto v = access.index[d].as_var();
        if (!v || v->kind != VarKind::Axis) return std::nullopt;
        summed[d] = v->id >= e.spatial;
        if (summed[d]) counted[v->id] = false;
    }
    // One sum for each point of the other dimensions.
    std::vector<int64_t> stride(shape.size(), 0);
    int64_t points = 1;
    for (size_t d = shape.size(); d-- > 0;) {
        if (summed[d]) continue;
        stride[d] = points;
        points *= shape[d];
    }
    std::vector<double> sums(static_cast<size_t>(points), 0);
    const auto* w = static_cast<const float*>(weights.data());
    Shape at(shape.size(), 0);
    int64_t point = 0;
    for (int64_t i = 0; i < weights.count(); ++i) {
        sums[static_cast<size_t>(point)] += std::fabs(static_cast<double>(w[i]));
        for (size_t d = shape.size(); d-- > 0;) {
            point += stride[d];
            if (++at[d] < shape[d]) break;
            point -= stride[d] * shape[d];
            at[d] = 0;
        }
    }
    return *std::max_element(sums.begin(), sums.end());
}

/// Matches sum(mul(constant, x)) and sum(mul(x, constant)).
std::optional<RealInterval> of_products(const Program& program, const TensorExpr& e,
                                        const std::vector<RealInterval>& operands) {
    const auto c = weighted_contraction(program, e);
    if (!c) return std::nullopt;
    const auto constant = program.constants.find(e.accesses[c->weights].value);
    if (program.unread.count(constant->first) != 0) return std::nullopt;
    std::vector<bool> counted(e.extents.size(), true);
    const auto sum = largest_sum(e, e.accesses[c->weights], constant->second, counted);
    if (!sum) return std::nullopt;
    return around_zero(*sum * operands[c->data].magnitude() * terms(e, counted));
}

}  // namespace

bool RealInterval::is_bounded() const { return std::isfinite(low) && std::isfinite(high); }
double RealInterval::magnitude() const { return is_bounded() ? std::max(std::fabs(low), std::fabs(high)) : kInfinity; }

RealInterval interval_of(const Tensor& tensor) {
    if (tensor.dtype() == DType::F32)
        return interval_of_elements(static_cast<const float*>(tensor.data()), tensor.count());
    if (tensor.dtype() == DType::F64)
        return interval_of_elements(static_cast<const double*>(tensor.data()), tensor.count());
    std::vector<double> numbers(static_cast<size_t>(tensor.count()));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = tensor.get(static_cast<int64_t>(i));
    return interval_of_elements(numbers.data(), tensor.count());
}

RealInterval interval_of(const Program& program, const TensorExpr& e,
                         const std::function<RealInterval(ValueId)>& operand) {
    std::vector<RealInterval> operands;
    for (const Access& a : e.accesses) {
        RealInterval i = operand(a.value);
        if (!a.valid.empty()) i = either(i, bounded(a.fill, a.fill));
        const RealInterval of_it = of_type(program.values[a.value].dtype);
        operands.push_back(i.is_bounded() ? i : of_it);
    }
    Bodies bodies(operands);
    const auto reduced = [&]() -> RealInterval {
        const RealInterval body = bodies.result(e.body);
        switch (e.reducer) {
            case Reducer::None:
                return body;
            case Reducer::Max:  // over an empty space: infinite
            case Reducer::Min:
                for (size_t a = e.spatial; a < e.extents.size(); ++a)
                    if (!e.extents[a].is_constant() || e.extents[a].constant() == 0) return {};
                return body;
            case Reducer::Sum: {
                if (const auto products = of_products(program, e, operands)) return *products;
                const double n = terms(e, std::vector<bool>(e.extents.size(), true));
                return bounded(std::min(body.low * n, 0.0), std::max(body.high * n, 0.0));
            }
            case Reducer::Prod:
                break;
        }
        return {};
    };
    if (!e.epilogue.empty()) return {};  // in fused kernels only
    return reduced();
}

}  // namespace tilewright
