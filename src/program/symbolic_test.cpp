#include "program/symbolic.h"

#include <gtest/gtest.h>

#include <random>

#include "index/expr_size.h"

namespace tilewright {
namespace {

const Expr batch = symbol("batch"), seq = symbol("seq"), count = scalar("count");

KnownContents known_ints(std::vector<Expr> elements) {
    KnownContents k;
    k.shape = {static_cast<int64_t>(elements.size())};
    k.elements = std::move(elements);
    return k;
}

using Body = std::function<ScalarId(ScalarBody&, std::span<const ScalarId>)>;

/// out[i] = f(operands[i]...), operands of one element broadcast.
TensorExpr elementwise(std::span<const KnownContents> operands, int64_t n, const Body& f) {
    TensorExpr e;
    e.extents = {n};
    e.spatial = 1;
    std::vector<ScalarId> args;
    for (const KnownContents& k : operands) {
        e.accesses.push_back({ValueId(), {k.shape[0] == 1 ? Expr(0) : axis(0)}, {}, 0});
        args.push_back(e.body.access(static_cast<uint32_t>(args.size()), k.dtype));
    }
    e.body.set_root(f(e.body, args));
    return e;
}

std::optional<std::vector<Expr>> map(std::vector<KnownContents> operands, const Body& f, DType out = DType::I64) {
    int64_t n = 1;
    for (const KnownContents& k : operands) n = std::max(n, k.shape[0]);
    return evaluate_symbolic(elementwise(operands, n, f), operands, out, Shape{n});
}

Body binary(ScalarOp op) {
    return [op](ScalarBody& b, std::span<const ScalarId> a) { return b.binary(op, a[0], a[1]); };
}

using Exprs = std::vector<Expr>;

TEST(Symbolic, arithmetic_over_dimensions) {
    EXPECT_EQ(map({known_ints({batch, 3}), known_ints({12, seq})}, binary(ScalarOp::Mul)),
              (Exprs{batch * 12, seq * 3}));
    EXPECT_EQ(map({known_ints({batch, 3}), known_ints({1})}, binary(ScalarOp::Sub)), (Exprs{batch - 1, 2}));
    EXPECT_EQ(map({known_ints({batch * 12, seq}), known_ints({12, 4})}, binary(ScalarOp::Div)),
              (Exprs{batch, floor_div(seq, 4)}));
    EXPECT_EQ(map({known_ints({-seq}), known_ints({2})}, binary(ScalarOp::Div)), (Exprs{-floor_div(seq, 2)}));
    EXPECT_EQ(map({known_ints({seq}), known_ints({8})}, binary(ScalarOp::FloorMod)), (Exprs{mod(seq, 8)}));
    EXPECT_EQ(map({known_ints({seq, batch}), known_ints({1})}, binary(ScalarOp::Max)), (Exprs{seq, batch}));
}

TEST(Symbolic, a_division_that_would_truncate_differently_is_unknown) {
    EXPECT_EQ(map({known_ints({count}), known_ints({2})}, binary(ScalarOp::Div)), std::nullopt);
    EXPECT_EQ(map({known_ints({seq}), known_ints({count})}, binary(ScalarOp::Div)), std::nullopt);
}

TEST(Symbolic, selects_of_an_expand_with_minus_one_are_decided) {
    // Where(shape == -1, 1, shape) and Where(shape == 0, other, shape), as exporters write them
    const auto where = [](int64_t special) {
        return [special](ScalarBody& b, std::span<const ScalarId> a) {
            return b.select(b.binary(ScalarOp::Eq, a[0], b.int_constant(DType::I64, special)), a[1], a[0]);
        };
    };
    EXPECT_EQ(map({known_ints({-1, batch, seq * 2}), known_ints({1})}, where(-1)), (Exprs{1, batch, seq * 2}));
    EXPECT_EQ(map({known_ints({0, batch}), known_ints({seq})}, where(0)), (Exprs{seq, batch}));
    EXPECT_EQ(map({known_ints({count}), known_ints({seq})}, where(0)), std::nullopt);
}

TEST(Symbolic, unused_operands_of_a_select_may_be_unknown) {
    const auto f = [](ScalarBody& b, std::span<const ScalarId> a) {
        const ScalarId unknown = b.binary(ScalarOp::Div, a[1], b.int_constant(DType::I64, 2));
        return b.select(b.binary(ScalarOp::Gt, a[0], b.int_constant(DType::I64, 0)), a[0], unknown);
    };
    EXPECT_EQ(map({known_ints({seq}), known_ints({count})}, f), (Exprs{seq}));
}

TEST(Symbolic, comparisons_and_casts_to_bool) {
    EXPECT_EQ(map({known_ints({seq, 0}), known_ints({0})}, binary(ScalarOp::Gt), DType::Bool), (Exprs{1, 0}));
    EXPECT_EQ(map({known_ints({seq}), known_ints({5})}, binary(ScalarOp::Gt), DType::Bool), std::nullopt);
    const auto to_bool = [](ScalarBody& b, std::span<const ScalarId> a) { return b.cast(DType::Bool, a[0]); };
    EXPECT_EQ(map({known_ints({seq, 0, -seq})}, to_bool, DType::Bool), (Exprs{1, 0, 1}));
}

TEST(Symbolic, casts_between_integer_types_keep_dimensions) {
    const auto through = [](DType t) {
        return [t](ScalarBody& b, std::span<const ScalarId> a) { return b.cast(DType::I64, b.cast(t, a[0])); };
    };
    EXPECT_EQ(map({known_ints({seq, 300})}, through(DType::I32)), (Exprs{seq, 300}));
    EXPECT_EQ(map({known_ints({300})}, through(DType::U8)), (Exprs{300 - 256}));
    EXPECT_EQ(map({known_ints({seq})}, through(DType::U8)), std::nullopt);
    EXPECT_EQ(map({known_ints({count})}, through(DType::U32)), std::nullopt);
    EXPECT_EQ(map({known_ints({7})}, through(DType::F32)), (Exprs{7}));
    EXPECT_EQ(map({known_ints({seq})}, through(DType::F32)), std::nullopt);
}

TEST(Symbolic, concatenation_reads_each_part_where_it_is_valid) {
    // [a0, a1, b0]: both parts are read with conditions and added
    TensorExpr e;
    e.extents = {3};
    e.spatial = 1;
    e.accesses = {{ValueId(), {axis(0)}, {Expr(1) - axis(0)}, 0}, {ValueId(), {axis(0) - 2}, {axis(0) - 2}, 0}};
    e.body.set_root(e.body.binary(ScalarOp::Add, e.body.access(0, DType::I64), e.body.access(1, DType::I64)));
    const std::vector<KnownContents> operands = {known_ints({batch, 12}), known_ints({seq})};
    EXPECT_EQ(evaluate_symbolic(e, operands, DType::I64, Shape{3}), (Exprs{batch, 12, seq}));
}

TEST(Symbolic, gather_through_known_indices) {
    TensorExpr e;
    e.extents = {2};
    e.spatial = 1;
    e.accesses = {{ValueId(), {axis(0)}, {}, 0}, {ValueId(), {load(0)}, {}, 0}};
    e.body.set_root(e.body.access(1, DType::I64));
    KnownContents numbers;
    numbers.shape = {2};
    numbers.elements = Tensor::of_i64({2, 0});
    const std::vector<KnownContents> operands = {numbers, known_ints({batch, 12, seq})};
    EXPECT_EQ(evaluate_symbolic(e, operands, DType::I64, Shape{2}), (Exprs{seq, batch}));
    const std::vector<KnownContents> beyond = {known_ints({3, 0}), known_ints({batch, 12, seq})};
    EXPECT_EQ(evaluate_symbolic(e, beyond, DType::I64, Shape{2}), std::nullopt);
}

TEST(Symbolic, reductions) {
    const auto reduce = [](Reducer r, std::vector<Expr> elements) {
        TensorExpr e;
        e.extents = {static_cast<int64_t>(elements.size())};
        e.reducer = r;
        e.accesses = {{ValueId(), {axis(0)}, {}, 0}};
        e.body.set_root(e.body.access(0, DType::I64));
        return evaluate_symbolic(e, std::vector<KnownContents>{known_ints(std::move(elements))}, DType::I64, Shape{});
    };
    EXPECT_EQ(reduce(Reducer::Prod, {batch, 12, seq}), (Exprs{batch * seq * 12}));
    EXPECT_EQ(reduce(Reducer::Sum, {batch, 12, seq}), (Exprs{batch + seq + 12}));
    EXPECT_EQ(reduce(Reducer::Max, {batch, 0}), (Exprs{batch}));
    EXPECT_EQ(reduce(Reducer::Prod, {}), (Exprs{1}));
    EXPECT_EQ(reduce(Reducer::Min, {}), (Exprs{INT64_MAX}));
}

TEST(Symbolic, overflow_is_unknown_and_not_an_error) {
    EXPECT_EQ(map({known_ints({seq * INT64_MAX}), known_ints({2})}, binary(ScalarOp::Mul)), std::nullopt);
}

TEST(Symbolic, expressions_that_grow_without_bounds_are_left_to_run_time) {
    for (const ScalarOp op : {ScalarOp::Mul, ScalarOp::Min}) {
        std::optional<Exprs> e = Exprs{batch + seq};
        int steps = 0;
        for (Expr other = batch; e; ++steps, other = floor_div(other * 5 + seq, 3)) {
            EXPECT_FALSE(is_long(e->at(0)));
            e = map({known_ints(*e), known_ints({other})}, binary(op));
        }
        EXPECT_GT(steps, 3);
        EXPECT_LT(steps, 1000);
    }
    const KnownContents many = known_ints(Exprs(20, batch + seq + 1));
    TensorExpr product = elementwise(std::span(&many, 1), 20, [](ScalarBody&, auto a) { return a[0]; });
    product.spatial = 0;
    product.reducer = Reducer::Prod;
    EXPECT_EQ(evaluate_symbolic(product, std::span(&many, 1), DType::I64, Shape{}), std::nullopt);
}

/// Returned elements must equal the interpreter's, for all values of the symbols and scalars.
TEST(Symbolic, agrees_with_the_interpreter_on_random_expressions) {
    std::mt19937_64 rng(7);
    const auto upto = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n)(rng); };
    const ScalarOp ops[] = {ScalarOp::Add, ScalarOp::Sub,      ScalarOp::Mul,      ScalarOp::Div, ScalarOp::Min,
                            ScalarOp::Max, ScalarOp::FloorMod, ScalarOp::TruncMod, ScalarOp::Abs, ScalarOp::Sign};
    const ScalarOp comparisons[] = {ScalarOp::Eq, ScalarOp::Ne, ScalarOp::Lt, ScalarOp::Le, ScalarOp::Gt, ScalarOp::Ge};
    int evaluated = 0;
    for (int round = 0; round < 2000; ++round) {
        const auto element = [&]() -> Expr {
            const Expr pool[] = {batch, seq, batch * 12, seq + batch, floor_div(seq, 2), count, count + 1};
            return upto(2) == 0 ? Expr(upto(8) - 3) : pool[upto(6)];
        };
        std::vector<KnownContents> operands = {known_ints({element(), element(), element()}),
                                               known_ints({element(), element(), element()})};
        const TensorExpr e = elementwise(operands, 3, [&](ScalarBody& b, std::span<const ScalarId> args) {
            std::vector<ScalarId> pool(args.begin(), args.end());
            const auto any = [&] { return pool[static_cast<size_t>(upto(static_cast<int64_t>(pool.size()) - 1))]; };
            for (int k = 0; k < 4; ++k) {
                if (upto(3) == 0) {
                    pool.push_back(b.select(b.binary(comparisons[upto(5)], any(), any()), any(), any()));
                } else {
                    const ScalarOp op = ops[upto(9)];
                    pool.push_back(arity(op) == 1 ? b.unary(op, any()) : b.binary(op, any(), any()));
                }
            }
            return pool.back();
        });
        const auto result = evaluate_symbolic(e, operands, DType::I64, Shape{3});
        if (!result) continue;
        ++evaluated;
        for (int trial = 0; trial < 5; ++trial) {
            const Bindings bindings = {
                {*batch.as_var(), 1 + upto(9)}, {*seq.as_var(), 1 + upto(40)}, {*count.as_var(), upto(20) - 10}};
            std::vector<Tensor> numbers;
            for (const KnownContents& k : operands)
                numbers.push_back(Tensor::of_i64(evaluate(std::get<std::vector<Expr>>(k.elements), bindings)));
            EXPECT_EQ(interpret(e, numbers, DType::I64, Shape{3}, bindings).to_ints(), evaluate(*result, bindings))
                << e.body.print() << " gave " << to_string(*result);
        }
    }
    EXPECT_GT(evaluated, 500);
}

}  // namespace
}  // namespace tilewright
