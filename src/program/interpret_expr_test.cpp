// The interpreter of one expression against a direct implementation of the definition, one point at a time.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "program/program.h"
#include "program/scalar_eval.h"

namespace tilewright {
namespace {

ScalarValue element(const Tensor& t, int64_t i) {
    return is_float(t.dtype()) ? ScalarValue{t.get(i), 0} : ScalarValue{0, t.get_int(i)};
}

/// Evaluates expressions point by point, as defined in program.h.
class Literal {
  public:
    Literal(const TensorExpr& expr, const std::vector<Tensor>& operands, const Bindings& bindings)
        : expr_(expr), operands_(operands), extents_(evaluate(expr.extents, bindings)) {
        names_ = [bindings](Var v) { return std::optional<int64_t>(bindings.at(v)); };
    }

    Tensor run(DType out, const Shape& shape) {
        Tensor result(out, shape);
        std::vector<int64_t> point(extents_.size(), 0);
        for (int64_t n = 0, count = points(0, expr_.spatial); n < count; ++n) {
            place(point, n, 0, expr_.spatial);
            ScalarValue v;
            if (expr_.reducer == Reducer::None) {
                v = body(expr_.body, point, {});
            } else {
                const DType t = expr_.body.dtype();
                v = identity(t);
                for (int64_t r = 0, all = points(expr_.spatial, extents_.size()); r < all; ++r) {
                    place(point, r, expr_.spatial, extents_.size());
                    v = combine(t, v, body(expr_.body, point, {}));
                }
                if (!is_float(t)) v.i = wrap_integer(t, v.i);
            }
            if (!expr_.epilogue.empty()) v = body(expr_.epilogue, point, v);
            int64_t flat = 0;
            for (size_t d = 0; d < shape.size(); ++d) {
                const int64_t i = expr_.output_index.empty() ? point[d] : number(expr_.output_index[d], point, {});
                flat = flat * shape[d] + i;
            }
            if (is_float(out))
                result.set(flat, v.f);
            else
                result.set(flat, v.i);
        }
        return result;
    }

  private:
    int64_t points(size_t begin, size_t end) const {
        int64_t n = 1;
        for (size_t k = begin; k < end; ++k) n *= extents_[k];
        return n;
    }
    void place(std::vector<int64_t>& point, int64_t n, size_t begin, size_t end) const {
        for (size_t k = end; k-- > begin;) {
            point[k] = n % extents_[k];
            n /= extents_[k];
        }
    }
    int64_t number(Expr e, const std::vector<int64_t>& point, const std::vector<int64_t>& loads) const {
        return evaluate(e, Env{point, loads, &names_});
    }
    ScalarValue identity(DType t) const {
        if (expr_.reducer == Reducer::Sum) return {};
        if (expr_.reducer == Reducer::Prod) return {1, 1};
        if (t == DType::Bool) return {0, expr_.reducer == Reducer::Min ? 1 : 0};
        return scalar_from_double(t, expr_.reducer == Reducer::Max ? -INFINITY : INFINITY);
    }
    ScalarValue combine(DType t, ScalarValue a, ScalarValue b) const {
        const ScalarOp op = expr_.reducer == Reducer::Sum    ? ScalarOp::Add
                            : expr_.reducer == Reducer::Prod ? ScalarOp::Mul
                            : expr_.reducer == Reducer::Max  ? ScalarOp::Max
                                                             : ScalarOp::Min;
        return eval_scalar(op, t, t, a, b);
    }
    ScalarValue body(const ScalarBody& b, const std::vector<int64_t>& point, ScalarValue acc) const {
        std::vector<int64_t> loads;
        std::vector<ScalarValue> read;
        for (size_t k = 0; k < expr_.accesses.size(); ++k) {
            const Access& a = expr_.accesses[k];
            const Tensor& t = operands_[k];
            bool valid = true;
            for (const Expr e : a.valid) valid = valid && number(e, point, loads) >= 0;
            ScalarValue v = scalar_from_double(t.dtype(), a.fill);
            if (valid) {
                int64_t flat = 0;
                for (size_t d = 0; d < a.index.size(); ++d) {
                    const int64_t i = number(a.index[d], point, loads);
                    if (i < 0 || i >= t.shape()[d]) throw InternalError("outside");
                    flat = flat * t.shape()[d] + i;
                }
                v = element(t, flat);
            }
            read.push_back(v);
            loads.push_back(v.i);
        }
        std::vector<ScalarValue> values;
        for (const ScalarNode& n : b.nodes()) {
            ScalarValue v;
            const auto arg = [&](ScalarId id) { return id ? values[id.index()] : ScalarValue{}; };
            if (n.op == ScalarOp::Const)
                v = {n.value, n.int_value};
            else if (n.op == ScalarOp::Access)
                v = read[n.slot];
            else if (n.op == ScalarOp::Acc)
                v = acc;
            else if (n.op == ScalarOp::Index)
                v = {0, number(n.index, point, loads)};
            else
                v = eval_scalar(n.op, n.dtype, b[n.op == ScalarOp::Select ? n.b : n.a].dtype, arg(n.a), arg(n.b),
                                arg(n.c));
            values.push_back(v);
        }
        return values[b.root().index()];
    }

    const TensorExpr& expr_;
    const std::vector<Tensor>& operands_;
    std::vector<int64_t> extents_;
    std::function<std::optional<int64_t>(Var)> names_;
};

/// Equal numbers; floats up to double-precision reassociation, NaNs equal to each other.
::testing::AssertionResult same(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || a.shape() != b.shape())
        return ::testing::AssertionFailure() << to_string(a.shape()) << " and " << to_string(b.shape());
    for (int64_t i = 0; i < a.count(); ++i) {
        if (!is_float(a.dtype())) {
            if (a.get_int(i) != b.get_int(i))
                return ::testing::AssertionFailure()
                       << "element " << i << ": " << a.get_int(i) << " and " << b.get_int(i);
            continue;
        }
        const double x = a.get(i), y = b.get(i);
        if (std::isnan(x) && std::isnan(y)) continue;
        if (x == y) continue;
        if (!(std::fabs(x - y) <= 1e-5 * std::max(std::fabs(x), std::fabs(y)) + 1e-12))
            return ::testing::AssertionFailure() << "element " << i << ": " << x << " and " << y;
    }
    return ::testing::AssertionSuccess();
}

class Source {
  public:
    explicit Source(uint64_t seed) : rng_(seed) {}
    int64_t upto(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n)(rng_); }
    bool chance(double p) { return std::bernoulli_distribution(p)(rng_); }
    double real() { return std::normal_distribution<double>()(rng_); }
    template <class T>
    T pick(std::initializer_list<T> list) {
        return *(list.begin() + upto(static_cast<int64_t>(list.size()) - 1));
    }
    Tensor tensor(DType t, Shape shape, int64_t bound = 100) {
        Tensor r(t, std::move(shape));
        for (int64_t i = 0; i < r.count(); ++i) {
            if (is_float(t))
                r.set(i, chance(0.02) ? pick<double>({INFINITY, -INFINITY, NAN, -0.0}) : real());
            else
                r.set(i, is_signed(t) && bound == 100 ? upto(200) - 100 : upto(bound - 1));
        }
        return r;
    }

  private:
    std::mt19937_64 rng_;
};

struct Case {
    TensorExpr expr;
    std::vector<Tensor> operands;
    DType out = DType::F32;
    Shape shape;
    Bindings bindings;
};

/// An index into a dimension whose length is then chosen to fit, over axes (with `wild`, also divisions and minima).
Expr random_index(Source& s, const std::vector<int64_t>& extents) {
    Expr e = s.upto(2);
    for (size_t k = 0; k < extents.size(); ++k)
        if (s.chance(0.5)) e += axis(k) * s.pick<int64_t>({1, 1, 2, 3});
    const int64_t c = 1 + s.upto(6);
    switch (s.upto(9)) {
        case 0:
            return floor_div(e, c);
        case 1:
            return mod(e, c);
        case 2:
            return min(e, Expr(c));
        case 3:
            return floor_div(e, c) * 2 + mod(e, c);
        case 4:
            return max(e - 3, Expr(0));
        default:
            return e;
    }
}

int64_t largest(Expr e, const std::vector<int64_t>& extents) {
    int64_t best = 0, count = 1;
    for (const int64_t x : extents) count *= x;
    for (int64_t n = 0; n < count; ++n) {
        std::vector<int64_t> point(extents.size());
        int64_t rest = n;
        for (size_t k = extents.size(); k-- > 0;) {
            point[k] = rest % extents[k];
            rest /= extents[k];
        }
        best = std::max(best, evaluate(e, Env{point, {}, nullptr}));
    }
    return best;
}

Case random_case(uint64_t seed) {
    Source s(seed);
    Case c;
    const auto rank = static_cast<size_t>(s.upto(3)), reduced = static_cast<size_t>(s.upto(2));
    std::vector<int64_t> extents;
    for (size_t k = 0; k < rank + reduced; ++k)
        extents.push_back(s.chance(0.05) ? 0 : s.chance(0.1) ? 515 + s.upto(1000) : 1 + s.upto(6));
    int64_t points = 1;
    for (int64_t& e : extents) {
        if (points * e > 4000) e = std::min<int64_t>(e, 2);
        points *= std::max<int64_t>(e, 1);
        c.expr.extents.emplace_back(e);
    }
    c.expr.spatial = rank;
    if (s.chance(0.3) && !extents.empty()) {  // one extent is a symbol
        const auto k = static_cast<size_t>(s.upto(static_cast<int64_t>(extents.size()) - 1));
        c.expr.extents[k] = symbol("n");
        c.bindings[*symbol("n").as_var()] = extents[k];
    }
    if (reduced > 0) c.expr.reducer = s.pick({Reducer::Sum, Reducer::Sum, Reducer::Prod, Reducer::Max, Reducer::Min});
    std::vector<int64_t> nonempty = extents;
    for (int64_t& e : nonempty) e = std::max<int64_t>(e, 1);

    const DType type = s.pick({DType::F32, DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64,
                               DType::I32, DType::U8, DType::U64, DType::Bool});
    const int64_t reads = 1 + s.upto(2);
    for (int64_t r = 0; r < reads; ++r) {
        if (s.chance(0.15)) {  // a table read through a load
            const int64_t rows = 1 + s.upto(4);
            Access ids;
            ids.index = {random_index(s, nonempty)};
            c.operands.push_back(s.tensor(DType::I64, {largest(ids.index[0], nonempty) + 1}, rows));
            Access table;
            table.index = {load(c.expr.accesses.size()), random_index(s, nonempty)};
            c.expr.accesses.push_back(ids);
            c.operands.push_back(s.tensor(type, {rows, largest(table.index[1], nonempty) + 1}));
            c.expr.accesses.push_back(table);
            continue;
        }
        Access a;
        Shape shape;
        for (int64_t d = s.upto(3); d > 0; --d) {
            Expr e = random_index(s, nonempty);
            int64_t length = largest(e, nonempty) + 1;
            if (element_count(shape) * length > 20000) {
                e = mod(e, 3);
                length = 3;
            }
            if (s.chance(0.25)) {  // padding on both sides
                const int64_t before = s.upto(s.chance(0.3) ? 800 : 2),
                              keep = std::max<int64_t>(1, length - s.upto(length));
                e = e - before;
                length = keep;
                a.valid.push_back(e);
                a.valid.push_back(Expr(keep - 1) - e);
                a.fill = s.pick<double>({0.0, 1.0, is_float(type) ? -INFINITY : 3.0});
            }
            a.index.push_back(e);
            shape.push_back(length);
        }
        c.operands.push_back(s.tensor(type, shape));
        c.expr.accesses.push_back(a);
    }

    ScalarBody& b = c.expr.body;
    const DType t = compute_type(type);
    const auto grow = [&](ScalarBody& body, std::vector<ScalarId> pool, int64_t nodes) {
        for (int64_t i = 0; i < nodes; ++i) {
            const auto any = [&] { return pool[static_cast<size_t>(s.upto(static_cast<int64_t>(pool.size()) - 1))]; };
            if (t == DType::Bool) {
                pool.push_back(
                    body.binary(s.pick({ScalarOp::BitAnd, ScalarOp::BitOr, ScalarOp::BitXor}), any(), any()));
            } else if (s.chance(0.2)) {
                pool.push_back(body.select(
                    body.binary(s.pick({ScalarOp::Lt, ScalarOp::Ge, ScalarOp::Eq}), any(), any()), any(), any()));
            } else if (s.chance(0.3)) {
                pool.push_back(body.unary(is_float(t) ? s.pick({ScalarOp::Neg, ScalarOp::Tanh, ScalarOp::Floor,
                                                                ScalarOp::Erf, ScalarOp::Sign, ScalarOp::Abs})
                                                      : s.pick({ScalarOp::Neg, ScalarOp::Abs, ScalarOp::Sign}),
                                          any()));
            } else if (s.chance(0.15)) {
                pool.push_back(body.cast(t, body.index(random_index(s, {}))));
            } else {
                pool.push_back(body.binary(s.pick({ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Min,
                                                   ScalarOp::Max, ScalarOp::Div, ScalarOp::FloorMod}),
                                           any(), any()));
            }
        }
        body.set_root(pool.back());
    };
    std::vector<ScalarId> pool;
    for (size_t k = 0; k < c.operands.size(); ++k)
        if (c.operands[k].dtype() == type) pool.push_back(b.access(static_cast<uint32_t>(k), type));
    if (pool.size() > 1 && t != DType::Bool && s.chance(0.5))
        b.set_root(b.binary(ScalarOp::Mul, pool[0], pool[1]));  // the sum-of-products path
    else
        grow(b, pool, s.upto(4));
    if (reduced > 0 && t == DType::Bool) c.expr.reducer = s.pick({Reducer::Max, Reducer::Min});
    if (reduced > 0 && s.chance(0.3)) {
        std::vector<ScalarId> leaves = {c.expr.epilogue.acc(b.dtype())};
        grow(c.expr.epilogue, leaves, 1 + s.upto(2));
    }
    c.out = type;
    for (size_t k = 0; k < rank; ++k) c.shape.push_back(extents[k]);
    if (rank == 2 && s.chance(0.4)) {
        if (s.chance(0.5)) {  // transposed
            c.expr.output_index = {axis(1), axis(0)};
            std::swap(c.shape[0], c.shape[1]);
        } else {  // one dimension
            c.expr.output_index = {axis(0) * extents[1] + axis(1)};
            c.shape = {extents[0] * extents[1]};
        }
    } else if (rank == 1 && extents[0] % 3 == 0 && extents[0] > 0 && s.chance(0.7)) {  // split by 3
        c.expr.output_index = {mod(axis(0), 3), floor_div(axis(0), 3)};
        c.shape = {3, extents[0] / 3};
    }
    return c;
}

TEST(InterpretExpr, agrees_with_the_definition_on_random_expressions) {
    for (uint64_t seed = 0; seed < 4000; ++seed) {
        const Case c = random_case(seed);
        const Tensor expected = Literal(c.expr, c.operands, c.bindings).run(c.out, c.shape);
        const Tensor found = interpret(c.expr, c.operands, c.out, c.shape, c.bindings);
        ASSERT_TRUE(same(expected, found)) << "seed " << seed << ": " << c.expr.body.print();
    }
}

TensorExpr row_sums(int64_t rows, Expr columns) {
    TensorExpr e;
    e.extents = {rows, columns};
    e.spatial = 1;
    e.reducer = Reducer::Sum;
    e.accesses = {{ValueId(), {axis(0), axis(1)}, {}, 0}};
    e.body.set_root(e.body.access(0, DType::F32));
    return e;
}

TEST(InterpretExpr, out_of_bounds_reads_are_errors_that_name_the_access) {
    const TensorExpr e = row_sums(2, 4);
    try {
        interpret(e, std::vector<Tensor>{Tensor(DType::F32, {2, 3})}, DType::F32, Shape{2}, {});
        FAIL();
    } catch (const InternalError& error) {
        EXPECT_NE(std::string(error.what()).find("access @0 reads index 3 of dimension 1, outside [0, 3)"),
                  std::string::npos)
            << error.what();
    }
}

TEST(InterpretExpr, an_out_of_bounds_load_is_an_error) {
    TensorExpr e;
    e.extents = {2};
    e.spatial = 1;
    e.accesses = {{ValueId(), {axis(0)}, {}, 0}, {ValueId(), {load(0)}, {}, 0}};
    e.body.set_root(e.body.access(1, DType::F32));
    const std::vector<Tensor> operands = {Tensor::of_i64({1, 7}), Tensor(DType::F32, {3})};
    EXPECT_THROW(interpret(e, operands, DType::F32, Shape{2}, {}), InternalError);
    const std::vector<Tensor> huge = {Tensor::of_i64({1, INT64_MAX}), Tensor(DType::F32, {3})};
    EXPECT_THROW(interpret(e, huge, DType::F32, Shape{2}, {}), InternalError);
}

TEST(InterpretExpr, invalid_accesses_read_nothing) {
    TensorExpr e;
    e.extents = {6};
    e.spatial = 1;
    const Expr shifted = axis(0) - 2;
    e.accesses = {{ValueId(), {shifted}, {shifted, Expr(1) - shifted}, -1.5}};
    e.body.set_root(e.body.access(0, DType::F32));
    const std::vector<Tensor> operands = {Tensor::of<double>(DType::F32, {2}, {10, 20})};
    EXPECT_EQ(interpret(e, operands, DType::F32, Shape{6}, {}),
              Tensor::of<double>(DType::F32, {6}, {-1.5, -1.5, 10, 20, -1.5, -1.5}));
}

TEST(InterpretExpr, empty_reductions_return_the_identity) {
    const auto reduce = [](Reducer r, DType t) {
        TensorExpr e;
        e.extents = {2, 0};
        e.spatial = 1;
        e.reducer = r;
        e.accesses = {{ValueId(), {axis(0), axis(1)}, {}, 0}};
        e.body.set_root(e.body.access(0, t));
        return interpret(e, std::vector<Tensor>{Tensor(t, {2, 0})}, t, Shape{2}, {});
    };
    EXPECT_EQ(reduce(Reducer::Sum, DType::F32).get(1), 0);
    EXPECT_EQ(reduce(Reducer::Prod, DType::F32).get(1), 1);
    EXPECT_EQ(reduce(Reducer::Max, DType::F32).get(1), -INFINITY);
    EXPECT_EQ(reduce(Reducer::Min, DType::F16).get(1), INFINITY);
    EXPECT_EQ(reduce(Reducer::Max, DType::I8).get_int(1), -128);
    EXPECT_EQ(reduce(Reducer::Min, DType::I64).get_int(1), INT64_MAX);
    EXPECT_EQ(reduce(Reducer::Max, DType::U32).get_int(1), 0);
    EXPECT_EQ(reduce(Reducer::Min, DType::U64).get_int(1), -1);
    EXPECT_EQ(reduce(Reducer::Max, DType::Bool).get_int(1), 0);
    EXPECT_EQ(reduce(Reducer::Min, DType::Bool).get_int(1), 1);
}

TEST(InterpretExpr, products_of_empty_matrices_apply_the_epilogue_to_zero) {
    const Program p = parse_program(R"(program t {
  input a: f32[7, $k]
  input b: f32[$k, 20]
  c: f32[7, 20] = [7, 20] sum(i2 < $k) mul(@0, @1) then add(acc, 3.0) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
})");
    const Tensor c = interpret(p, {Tensor(DType::F32, {7, 0}), Tensor(DType::F32, {0, 20})}).front();
    for (int64_t i = 0; i < c.count(); ++i) EXPECT_EQ(c.get(i), 3);
}

TEST(InterpretExpr, maxima_and_minima_propagate_nan) {
    for (const Reducer r : {Reducer::Max, Reducer::Min}) {
        TensorExpr e = row_sums(1, 3);
        e.reducer = r;
        for (int64_t at = 0; at < 3; ++at) {
            Tensor t = Tensor::of<double>(DType::F32, {1, 3}, {1, 2, 3});
            t.set(at, double(NAN));
            EXPECT_TRUE(std::isnan(interpret(e, std::vector<Tensor>{t}, DType::F32, Shape{1}, {}).get(0)));
        }
    }
}

TEST(InterpretExpr, sixty_four_bit_integers_are_exact_and_wrap) {
    TensorExpr e;
    e.extents = {2};
    e.spatial = 1;
    e.accesses = {{ValueId(), {axis(0)}, {}, 0}};
    e.body.set_root(e.body.binary(ScalarOp::Add, e.body.access(0, DType::I64), e.body.int_constant(DType::I64, 1)));
    const std::vector<Tensor> operands = {Tensor::of_i64({(int64_t{1} << 53), INT64_MAX})};
    const Tensor r = interpret(e, operands, DType::I64, Shape{2}, {});
    EXPECT_EQ(r.get_int(0), (int64_t{1} << 53) + 1);
    EXPECT_EQ(r.get_int(1), INT64_MIN);
}

TEST(InterpretExpr, stores_round_once) {
    // Rounded to float first, this would be a tie, and go to the even neighbour below.
    const double v = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
    TensorExpr e;
    e.extents = {1};
    e.spatial = 1;
    e.body.set_root(e.body.constant(DType::F32, v));
    EXPECT_EQ(interpret(e, {}, DType::F16, Shape{1}, {}).get(0), 1 + std::ldexp(1.0, -10));
    EXPECT_EQ(interpret(e, {}, DType::F32, Shape{1}, {}).get(0), static_cast<double>(static_cast<float>(v)));
    EXPECT_EQ(interpret(e, {}, DType::F32, Shape{1}, {}, {.exact = true}).get(0), v);
}

TEST(InterpretExpr, conditions_that_hold_in_few_of_many_lanes) {
    // the parts of a long concatenation: [0, 700) [700, 1900) [1900, 2000)
    TensorExpr e;
    e.extents = {2000};
    e.spatial = 1;
    const int64_t ends[] = {0, 700, 1900, 2000};
    std::vector<Tensor> operands;
    ScalarId sum = e.body.constant(DType::F32, 0);
    for (size_t k = 0; k < 3; ++k) {
        const Expr at = axis(0) - ends[k];
        e.accesses.push_back({ValueId(), {at}, {at, Expr(ends[k + 1] - ends[k] - 1) - at}, 0});
        Tensor part(DType::F32, {ends[k + 1] - ends[k]});
        for (int64_t i = 0; i < part.count(); ++i) part.set(i, static_cast<double>(ends[k] + i));
        operands.push_back(part);
        sum = e.body.binary(ScalarOp::Add, sum, e.body.access(static_cast<uint32_t>(k), DType::F32));
    }
    e.body.set_root(sum);
    const Tensor r = interpret(e, operands, DType::F32, Shape{2000}, {});
    for (int64_t i = 0; i < 2000; ++i) ASSERT_EQ(r.get(i), static_cast<double>(i));
}

TEST(InterpretExpr, long_rows_and_many_threads_give_the_same_sums) {
    const int64_t rows = 700, columns = 1500;
    Tensor t(DType::F32, {rows, columns});
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(i % 17 - 8));
    const Tensor sums = interpret(row_sums(rows, symbol("c")), std::vector<Tensor>{t}, DType::F32, Shape{rows},
                                  {{*symbol("c").as_var(), columns}});
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += t.get(r * columns + c);
        ASSERT_EQ(sums.get(r), sum);
    }
}

TEST(InterpretExpr, a_condition_that_holds_late_in_a_row_fills_the_lanes_before) {
    const int64_t n = 5000, first = 2100, end = 3900;
    Tensor t(DType::F32, {n});
    for (int64_t i = 0; i < n; ++i) t.set(i, static_cast<double>(i));
    TensorExpr e;
    e.extents = {n};
    e.spatial = 1;
    e.accesses = {{ValueId(0), {axis(0)}, {}, 0}, {ValueId(0), {axis(0)}, {axis(0) - first, end - 1 - axis(0)}, -1}};
    e.body.set_root(e.body.binary(ScalarOp::Sub, e.body.access(0, DType::F32), e.body.access(1, DType::F32)));
    const Tensor out = interpret(e, std::vector<Tensor>{t, t}, DType::F32, Shape{n}, {});
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out.get(i), i >= first && i < end ? 0 : static_cast<double>(i) + 1) << i;
}

}  // namespace
}  // namespace tilewright
