#include "program/interpret_lanes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "program/scalar_ops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // these loops dominate the interpreter's time: vectorise them in every build type
#endif

namespace tilewright::interp {

namespace {

template <class T, class F>
void each1(Column a, Column out, int64_t n, F f) {
    const T* x = static_cast<const T*>(a.data);
    T* o = static_cast<T*>(out.data);
    for (int64_t l = 0; l < n; ++l) o[l] = f(x[l]);
}

template <class T, class O, class F>
void each2(Column a, Column b, Column out, int64_t n, F f) {
    const T* x = static_cast<const T*>(a.data);
    const T* y = static_cast<const T*>(b.data);
    O* o = static_cast<O*>(out.data);
    for (int64_t l = 0; l < n; ++l) o[l] = f(x[l], y[l]);
}

template <class T>
void select_lanes(Column condition, Column a, Column b, Column out, int64_t n) {
    const int64_t* p = condition.i();
    const T* x = static_cast<const T*>(a.data);
    const T* y = static_cast<const T*>(b.data);
    T* o = static_cast<T*>(out.data);
    for (int64_t l = 0; l < n; ++l) o[l] = p[l] != 0 ? x[l] : y[l];
}

double nan_max(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : (a < b ? b : a); }
double nan_min(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : (b < a ? b : a); }

template <class T>
bool compare_lanes(ScalarOp op, Column a, Column b, Column out, int64_t n) {
    switch (op) {
        case ScalarOp::Eq:
            each2<T, int64_t>(a, b, out, n, [](T x, T y) { return x == y; });
            return true;
        case ScalarOp::Ne:
            each2<T, int64_t>(a, b, out, n, [](T x, T y) { return x != y; });
            return true;
        case ScalarOp::Lt:
            each2<T, int64_t>(a, b, out, n, [](T x, T y) { return x < y; });
            return true;
        case ScalarOp::Le:
            each2<T, int64_t>(a, b, out, n, [](T x, T y) { return x <= y; });
            return true;
        case ScalarOp::Gt:
            each2<T, int64_t>(a, b, out, n, [](T x, T y) { return x > y; });
            return true;
        case ScalarOp::Ge:
            each2<T, int64_t>(a, b, out, n, [](T x, T y) { return x >= y; });
            return true;
        default:
            return false;
    }
}

bool float_lanes(ScalarOp op, Column a, Column b, Column out, int64_t n) {
    switch (op) {
        case ScalarOp::Add:
            each2<double, double>(a, b, out, n, [](double x, double y) { return x + y; });
            return true;
        case ScalarOp::Sub:
            each2<double, double>(a, b, out, n, [](double x, double y) { return x - y; });
            return true;
        case ScalarOp::Mul:
            each2<double, double>(a, b, out, n, [](double x, double y) { return x * y; });
            return true;
        case ScalarOp::Weigh:
            each2<double, double>(a, b, out, n, [](double x, double y) { return x == 0 ? 0 : x * y; });
            return true;
        case ScalarOp::Div:
            each2<double, double>(a, b, out, n, [](double x, double y) { return x / y; });
            return true;
        case ScalarOp::Min:
            each2<double, double>(a, b, out, n, nan_min);
            return true;
        case ScalarOp::Max:
            each2<double, double>(a, b, out, n, nan_max);
            return true;
        case ScalarOp::Neg:
            each1<double>(a, out, n, [](double x) { return -x; });
            return true;
        case ScalarOp::Abs:
            each1<double>(a, out, n, [](double x) { return std::fabs(x); });
            return true;
        default:
            if (const ScalarFunction* f = scalar_function(op)) {
                each1<double>(a, out, n, f->reference);
                return true;
            }
            return false;
    }
}

}  // namespace

void wrap_lanes(DType t, Column out, int64_t n) {
    if (is_float(t) || t == DType::I64 || t == DType::U64) return;
    int64_t* o = out.i();
    for (int64_t l = 0; l < n; ++l) o[l] = wrap_integer(t, o[l]);
}

namespace {

bool integer_lanes(ScalarOp op, DType t, Column a, Column b, Column out, int64_t n) {
    switch (op) {
        case ScalarOp::Add:
            each2<uint64_t, uint64_t>(a, b, out, n, [](uint64_t x, uint64_t y) { return x + y; });
            break;
        case ScalarOp::Sub:
            each2<uint64_t, uint64_t>(a, b, out, n, [](uint64_t x, uint64_t y) { return x - y; });
            break;
        case ScalarOp::Mul:
            each2<uint64_t, uint64_t>(a, b, out, n, [](uint64_t x, uint64_t y) { return x * y; });
            break;
        case ScalarOp::BitAnd:
            each2<uint64_t, uint64_t>(a, b, out, n, [](uint64_t x, uint64_t y) { return x & y; });
            break;
        case ScalarOp::BitOr:
            each2<uint64_t, uint64_t>(a, b, out, n, [](uint64_t x, uint64_t y) { return x | y; });
            break;
        default:
            return false;
    }
    wrap_lanes(t, out, n);
    return true;
}

bool cast_lanes(DType to, DType from, Column a, Column out, int64_t n) {
    if (is_float(from) && is_float(to)) {
        if (to == DType::F64) {
            each1<double>(a, out, n, [](double x) { return x; });
            return true;
        }
        if (to == DType::F32) {
            each1<double>(a, out, n, [](double x) { return static_cast<double>(static_cast<float>(x)); });
            return true;
        }
        return false;
    }
    if (!is_float(from) && !is_float(to)) {
        std::copy_n(a.i(), n, out.i());
        wrap_lanes(to, out, n);
        return true;
    }
    if (!is_float(from) && from != DType::U64 && (to == DType::F32 || to == DType::F64)) {
        for (int64_t l = 0; l < n; ++l)
            out.f()[l] =
                to == DType::F64 ? static_cast<double>(a.i()[l]) : static_cast<double>(static_cast<float>(a.i()[l]));
        return true;
    }
    return false;
}

/// Calls f with a null pointer of the storage type of `t`; false for types that need decoding.
template <class F>
bool with_storage(DType t, F f) {
    switch (t) {
        case DType::F32:
            f(static_cast<float*>(nullptr));
            return true;
        case DType::F64:
            f(static_cast<double*>(nullptr));
            return true;
        case DType::I8:
        case DType::I4:
        case DType::I2:
            f(static_cast<int8_t*>(nullptr));
            return true;
        case DType::I16:
            f(static_cast<int16_t*>(nullptr));
            return true;
        case DType::I32:
            f(static_cast<int32_t*>(nullptr));
            return true;
        case DType::I64:
        case DType::U64:
            f(static_cast<int64_t*>(nullptr));
            return true;
        case DType::U8:
        case DType::U4:
        case DType::U2:
        case DType::Bool:
            f(static_cast<uint8_t*>(nullptr));
            return true;
        case DType::U16:
            f(static_cast<uint16_t*>(nullptr));
            return true;
        case DType::U32:
            f(static_cast<uint32_t*>(nullptr));
            return true;
        default:
            return false;
    }
}

/// double -> float such that rounding the result to a type of at most 22 significant bits rounds the double once:
/// rounds towards zero and sets the last bit if any bit was lost.
float round_to_odd(double v) {
    auto f = static_cast<float>(v);
    if (std::isnan(v) || std::isinf(f) || static_cast<double>(f) == v) return f;
    if (std::fabs(static_cast<double>(f)) > std::fabs(v)) f = std::nextafter(f, 0.0f);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(f) | 1u);
}

void store_one(Tensor& tensor, int64_t position, bool from_float, double f, int64_t i) {
    const DType t = tensor.dtype();
    if (!from_float)
        tensor.set(position, i);
    else if (t == DType::F32 || t == DType::F64)
        tensor.set(position, f);
    else
        tensor.set(position, static_cast<double>(round_to_odd(f)));
}

}  // namespace

void eval_lanes(const ScalarNode& node, DType operand, Column a, Column b, Column c, Column out, int64_t n) {
    const bool from_float = is_float(operand);
    bool done = false;
    if (node.op == ScalarOp::Select) {
        from_float ? select_lanes<double>(a, b, c, out, n) : select_lanes<int64_t>(a, b, c, out, n);
        done = true;
    } else if (node.op == ScalarOp::Cast) {
        done = cast_lanes(node.dtype, operand, a, out, n);
    } else if (from_float) {
        done = float_lanes(node.op, a, b, out, n) || compare_lanes<double>(node.op, a, b, out, n);
    } else {
        done = integer_lanes(node.op, node.dtype, a, b, out, n) ||
               (is_signed(operand) ? compare_lanes<int64_t>(node.op, a, b, out, n)
                                   : compare_lanes<uint64_t>(node.op, a, b, out, n));
    }
    if (done) return;
    const int operands = arity(node.op);
    const bool to_float = is_float(node.dtype);
    for (int64_t l = 0; l < n; ++l) {
        const ScalarValue r =
            eval_node(node, operand, lane(operand, a, l), operands > 1 ? lane(operand, b, l) : ScalarValue{});
        if (to_float)
            out.f()[l] = r.f;
        else
            out.i()[l] = r.i;
    }
}

void fill_lanes(DType dtype, ScalarValue v, Column out, int64_t begin, int64_t end) {
    TW_CHECK(begin >= 0 && begin <= end && end <= kLanes, "lanes [{}, {})", begin, end);
    if (is_float(dtype))
        std::fill(out.f() + begin, out.f() + end, v.f);
    else
        std::fill(out.i() + begin, out.i() + end, v.i);
}

ScalarValue lane(DType dtype, Column column, int64_t l) {
    return is_float(dtype) ? ScalarValue{column.f()[l], 0} : ScalarValue{0, column.i()[l]};
}

void load_lanes(const Tensor& tensor, int64_t start, int64_t step, Column out, int64_t begin, int64_t end) {
    TW_CHECK(begin >= 0 && begin <= end && end <= kLanes, "lanes [{}, {})", begin, end);
    const bool to_float = is_float(tensor.dtype());
    const bool known = with_storage(tensor.dtype(), [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        using O = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
        const T* data = static_cast<const T*>(tensor.data()) + start;
        O* o = static_cast<O*>(out.data);
        if (step == 1)
            for (int64_t l = begin; l < end; ++l) o[l] = static_cast<O>(data[l]);
        else
            for (int64_t l = begin; l < end; ++l) o[l] = static_cast<O>(data[step * l]);
    });
    if (known) return;
    for (int64_t l = begin; l < end; ++l) {
        if (to_float)
            out.f()[l] = tensor.get(start + step * l);
        else
            out.i()[l] = tensor.get_int(start + step * l);
    }
}

void store_lanes(Tensor& tensor, int64_t start, int64_t step, Column in, int64_t n) {
    const DType t = tensor.dtype();
    const bool plain = t != DType::Bool && t != DType::I4 && t != DType::U4 && t != DType::I2 && t != DType::U2;
    const bool known = plain && with_storage(t, [&](auto* type) {
                           using T = std::remove_pointer_t<decltype(type)>;
                           using I = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
                           const I* from = static_cast<const I*>(in.data);
                           T* to = static_cast<T*>(tensor.mutable_data()) + start;
                           for (int64_t l = 0; l < n; ++l) to[step * l] = static_cast<T>(from[l]);
                       });
    if (known) return;
    for (int64_t l = 0; l < n; ++l) {
        if (is_float(t))
            store_one(tensor, start + step * l, true, in.f()[l], 0);
        else
            store_one(tensor, start + step * l, false, 0, in.i()[l]);
    }
}

void store_lane(Tensor& tensor, int64_t position, DType dtype, ScalarValue v) {
    store_one(tensor, position, is_float(dtype), v.f, v.i);
}

ScalarValue reducer_identity(Reducer reducer, DType dtype) {
    switch (reducer) {
        case Reducer::None:
        case Reducer::Sum:
            return {};
        case Reducer::Prod:
            return {1.0, 1};
        case Reducer::Max:
            return dtype == DType::Bool ? ScalarValue{0, 0} : scalar_from_double(dtype, -HUGE_VAL);
        case Reducer::Min:
            return scalar_from_double(dtype, HUGE_VAL);
    }
    return {};
}

namespace {

/// The reducer on one pair, for loops over columns.
template <class T>
T combine(Reducer reducer, T a, T b) {
    using U = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>;  // sums of int64_t wrap
    switch (reducer) {
        case Reducer::Sum:
            return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
        case Reducer::Prod:
            return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
        case Reducer::Max:
            if constexpr (std::is_same_v<T, double>)
                return b > a || b != b ? b : a;
            else
                return b > a ? b : a;
        case Reducer::Min:
            if constexpr (std::is_same_v<T, double>)
                return b < a || b != b ? b : a;
            else
                return b < a ? b : a;
        case Reducer::None:
            break;
    }
    return b;
}

template <class T>
void reduce_typed(Reducer reducer, Column acc, Column in, int64_t n) {
    T* a = static_cast<T*>(acc.data);
    const T* b = static_cast<const T*>(in.data);
    const auto loop = [&](auto r) {
        for (int64_t l = 0; l < n; ++l) a[l] = combine<T>(r.value, a[l], b[l]);
    };
    switch (reducer) {
        case Reducer::Sum:
            return loop(std::integral_constant<Reducer, Reducer::Sum>());
        case Reducer::Prod:
            return loop(std::integral_constant<Reducer, Reducer::Prod>());
        case Reducer::Max:
            return loop(std::integral_constant<Reducer, Reducer::Max>());
        case Reducer::Min:
            return loop(std::integral_constant<Reducer, Reducer::Min>());
        case Reducer::None:
            return loop(std::integral_constant<Reducer, Reducer::None>());
    }
}

template <class T>
T run_typed(Reducer reducer, T acc, Column in, int64_t n) {
    const T* b = static_cast<const T*>(in.data);
    const auto loop = [&](auto r) {
        for (int64_t l = 0; l < n; ++l) acc = combine<T>(r.value, acc, b[l]);
        return acc;
    };
    switch (reducer) {
        case Reducer::Sum:
            return loop(std::integral_constant<Reducer, Reducer::Sum>());
        case Reducer::Prod:
            return loop(std::integral_constant<Reducer, Reducer::Prod>());
        case Reducer::Max:
            return loop(std::integral_constant<Reducer, Reducer::Max>());
        case Reducer::Min:
            return loop(std::integral_constant<Reducer, Reducer::Min>());
        case Reducer::None:
            break;
    }
    return acc;
}

template <class A, class B>
void add_products_typed(double* acc, const A* a, int64_t a_step, const B* b, int64_t b_step, int64_t n) {
    if (a_step == 0 && b_step == 1) {
        const double x = *a;
        for (int64_t l = 0; l < n; ++l) acc[l] += x * static_cast<double>(b[l]);
    } else if (a_step == 1 && b_step == 0) {
        const double y = *b;
        for (int64_t l = 0; l < n; ++l) acc[l] += static_cast<double>(a[l]) * y;
    } else if (a_step == 1 && b_step == 1) {
        for (int64_t l = 0; l < n; ++l) acc[l] += static_cast<double>(a[l]) * static_cast<double>(b[l]);
    } else {
        for (int64_t l = 0; l < n; ++l)
            acc[l] += static_cast<double>(a[l * a_step]) * static_cast<double>(b[l * b_step]);
    }
}

template <class A, class B>
double dot_typed(const A* a, int64_t a_step, const B* b, int64_t b_step, int64_t n) {
    double sum[8] = {};
    int64_t l = 0;
    if (a_step == 1 && b_step == 1) {
        for (; l + 8 <= n; l += 8)
            for (int64_t j = 0; j < 8; ++j) sum[j] += static_cast<double>(a[l + j]) * static_cast<double>(b[l + j]);
    }
    for (; l < n; ++l) sum[l % 8] += static_cast<double>(a[l * a_step]) * static_cast<double>(b[l * b_step]);
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

template <class F>
auto with_operands(Strided a, Strided b, F f) {
    const auto* af = static_cast<const float*>(a.data);
    const auto* ad = static_cast<const double*>(a.data);
    const auto* bf = static_cast<const float*>(b.data);
    const auto* bd = static_cast<const double*>(b.data);
    if (a.wide) return b.wide ? f(ad, bd) : f(ad, bf);
    return b.wide ? f(af, bd) : f(af, bf);
}

}  // namespace

void reduce_lanes(Reducer reducer, DType dtype, Column acc, Column in, int64_t n) {
    if (is_float(dtype))
        reduce_typed<double>(reducer, acc, in, n);
    else if (dtype == DType::U64)
        reduce_typed<uint64_t>(reducer, acc, in, n);
    else
        reduce_typed<int64_t>(reducer, acc, in, n);
}

ScalarValue reduce_run(Reducer reducer, DType dtype, ScalarValue acc, Column in, int64_t n) {
    if (is_float(dtype)) return {run_typed<double>(reducer, acc.f, in, n), 0};
    if (dtype == DType::U64)
        return {0, static_cast<int64_t>(run_typed<uint64_t>(reducer, static_cast<uint64_t>(acc.i), in, n))};
    return {0, run_typed<int64_t>(reducer, acc.i, in, n)};
}

void add_products(double* acc, Strided a, Strided b, int64_t n) {
    with_operands(a, b, [&](auto* x, auto* y) { add_products_typed(acc, x, a.step, y, b.step, n); });
}

double dot_product(Strided a, Strided b, int64_t n) {
    return with_operands(a, b, [&](auto* x, auto* y) { return dot_typed(x, a.step, y, b.step, n); });
}

}  // namespace tilewright::interp
