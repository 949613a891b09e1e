#include "program/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <numeric>

#include "base/error.h"
#include "program/symbolic.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The expression that makes `v`, as print() writes it.
std::string made_by(const Program& p, ValueId v) {
    for (const Primitive& q : p.primitives)
        if (!q.outputs.empty() && q.outputs[0] == v && q.expr() != nullptr) return print(p, *q.expr());
    return p.is_constant(v) ? "constant" : "nothing";
}

Tensor iota(DType t, const Shape& shape) {
    Tensor x(t, shape);
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, i);
    return x;
}

std::vector<double> numbers(const Tensor& t) {
    std::vector<double> v;
    for (int64_t i = 0; i < t.count(); ++i) v.push_back(t.get(i));
    return v;
}

/// A program of one input (of constant shape) and the primitives that `write` adds.
struct OneInput {
    Program program;
    Builder b{program};
    ValueId x;
    explicit OneInput(Dims shape, DType t = DType::F32) { x = b.input("x", t, std::move(shape)); }
    Tensor run(ValueId y, const Tensor& in) {
        b.set_outputs({y});
        return interpret(program, {in}).front();
    }
};

// --- requirements

/// "broadcast [$n, $m]", one a line.
std::string required(const Program& p) {
    std::string s;
    for (const Requirement& r : p.requirements)
        s += fmt::format("{} {}\n", to_string(r.kind), to_string(std::vector{r.a, r.b}));
    return s;
}

struct TwoInputs {
    Program program;
    Builder b{program};
    ValueId x, y;
    TwoInputs(Dims one, Dims two) {
        x = b.input("x", DType::F32, std::move(one));
        y = b.input("y", DType::F32, std::move(two));
        b.set_source("node", "Op");
    }
};

TEST(BuilderRequirements, StateUnknownDimensionsOnce) {
    TwoInputs t({symbol("n"), symbol("k")}, {symbol("l"), symbol("m")});
    t.b.matmul(t.x, t.y);
    t.b.matmul(t.x, t.y);
    EXPECT_EQ(required(t.program), "equal [$k, $l]\n");
    EXPECT_EQ(t.program.requirements[0].source, "node 'node' (Op)");
    EXPECT_EQ(t.program.requirements[0].violated(3, 4), "node 'node' (Op): dimensions k = 3 and l = 4 differ");
    t.b.contract("nk,lm->nm", t.x, t.y, DType::F32, "apart");
    t.b.contract("nk,km->nm", t.x, t.y, DType::F32, "product");
    EXPECT_EQ(t.program.requirements.size(), 1u);
}

TEST(BuilderRequirements, AreNotNeededForConstantOrEqualDimensions) {
    TwoInputs t({symbol("n"), 3}, {3, symbol("n")});
    t.b.matmul(t.x, t.y);
    t.b.binary(ScalarOp::Add, t.x, t.x);
    t.b.reshape(t.x, {3, symbol("n")});
    t.b.slice(t.x, 1, 1, 2);
    t.b.pad(t.x, {1, 0}, {2, 2}, 0);
    EXPECT_EQ(required(t.program), "");
}

TEST(BuilderRequirements, PreferTheConstantDimension) {
    TwoInputs t({symbol("n"), symbol("k")}, {5, 1});
    const ValueId sum = t.b.binary(ScalarOp::Add, t.x, t.y);
    EXPECT_EQ(required(t.program), "spread [$n, 5]\n");
    EXPECT_THAT(t.b.shape(sum), ElementsAre(Expr(5), symbol("k")));
    const std::vector<ValueId> parts = {t.x, t.y};
    t.b.concat(parts, 0);
    EXPECT_EQ(required(t.program), "spread [$n, 5]\nequal [$k, 1]\n");
}

TEST(BuilderRequirements, TrackTheOperandsOfABroadcast) {
    TwoInputs t({symbol("n")}, {symbol("m")});
    const ValueId sum = t.b.binary(ScalarOp::Add, t.x, t.y);
    t.b.binary(ScalarOp::Add, t.b.binary(ScalarOp::Mul, sum, t.x), t.y);
    EXPECT_EQ(required(t.program), "broadcast [$n, $m]\n");
    // A maximum that is not from a broadcast implies no requirement.
    TwoInputs other({max(symbol("n"), symbol("m"))}, {symbol("n")});
    other.b.binary(ScalarOp::Add, other.x, other.y);
    EXPECT_EQ(required(other.program), "broadcast [max($m, $n), $n]\n");
}

TEST(BuilderRequirements, SimplifyAnIndexIfOnlyTheFullExtentFits) {
    const auto index = [](Expr d, const std::vector<Expr>& inputs) {
        Program p;
        Builder b(p);
        b.input("sizes", DType::F32, inputs);
        const ValueId x = b.full({symbol("s")}, DType::F32, 1);
        TensorExpr e;  // of shape [d], without a broadcast
        e.extents = {d};
        e.spatial = 1;
        e.body.set_root(e.body.cast(DType::F32, e.body.index(axis(0))));
        const ValueId mask = b.emit(std::move(e), DType::F32, "mask");
        const std::string text = made_by(p, b.binary(ScalarOp::Add, mask, x));
        return text.substr(text.find("mask["), text.find(']', text.find("mask[")) - text.find("mask[") + 1);
    };
    const Expr s = symbol("s"), t = symbol("t");
    EXPECT_EQ(index(min(s, 1024), {s, t}), "mask[i0]");
    EXPECT_EQ(index(min(min(s, 700), 1024), {s, t}), "mask[i0]");
    EXPECT_EQ(index(t, {s, t}), "mask[min($t - 1, i0)]") << "may be 1 alone";
    EXPECT_EQ(index(min(s, t), {s, t}), "mask[min(i0, min($s, $t) - 1)]") << "likewise";
    EXPECT_EQ(index(min(t + 1, 1024), {s, t}), "mask[min(i0, min($t + 1, 1024) - 1)]") << "1 where $t is 0";
    EXPECT_EQ(index(t + 2, {s, t}), "mask[i0]");
    EXPECT_EQ(index(min(s, 64), {s, t}), "mask[min(i0, min($s, 64) - 1)]") << "kernels are measured with 128";
    EXPECT_EQ(index(min(s, 1024), {2 * s, t}), "mask[min(i0, min($s, 1024) - 1)]") << "$s is not an input's own";
}

TEST(BuilderRequirements, CompareElementCountsOfReshapes) {
    TwoInputs t({symbol("n"), symbol("k")}, {symbol("l")});
    t.b.reshape(t.x, {symbol("l")});
    t.b.squeeze(t.x, {1});
    t.b.unsqueeze(t.x, {1});
    EXPECT_EQ(required(t.program), "equal [$k*$n, $l]\nequal [$k, 1]\n");
    EXPECT_EQ(t.program.requirements[0].what, "element counts");
}

TEST(BuilderRequirements, KeepConstantIndicesInBounds) {
    TwoInputs t({symbol("n"), symbol("k")}, {symbol("n")});
    t.b.gather(t.x, t.b.constant(Tensor::of_i64({4, -2})), 0);
    EXPECT_EQ(required(t.program), "at_least [$n, 5]\nat_least [$n, 2]\n");
    // A certainly evaluated index is required to be in bounds even if its operator states no requirement.
    TwoInputs u({symbol("n")}, {});
    u.b.view(u.x, {symbol("k")}, {axis(0) + 2}, "view");
    EXPECT_EQ(required(u.program), "at_least [$n, $k + 2]\n");
    u.b.view(u.x, {symbol("k")}, {axis(0) + 2}, "view", {symbol("n") - 3 - axis(0)});
    EXPECT_EQ(u.program.requirements.size(), 1u) << "where a condition says that it is inside";
}

TEST(BuilderRequirements, AreEvaluated) {
    using Kind = Requirement::Kind;
    const auto holds = [](Kind kind, int64_t a, int64_t b) { return Requirement{kind, {}, {}, "", ""}.holds(a, b); };
    for (const Kind kind : {Kind::Equal, Kind::Broadcast, Kind::Spread, Kind::AtLeast})
        for (const int64_t n : {0, 1, 7}) EXPECT_TRUE(holds(kind, n, n)) << to_string(kind);
    EXPECT_FALSE(holds(Kind::Equal, 1, 2));
    EXPECT_TRUE(holds(Kind::Broadcast, 1, 2) && holds(Kind::Broadcast, 2, 1));
    EXPECT_FALSE(holds(Kind::Broadcast, 2, 3) || holds(Kind::Broadcast, 0, 1) || holds(Kind::Broadcast, 1, 0))
        << "the result's dimension, their maximum, would be 1";
    EXPECT_TRUE(holds(Kind::Spread, 1, 2) && holds(Kind::Spread, 1, 0));
    EXPECT_FALSE(holds(Kind::Spread, 2, 1) || holds(Kind::Spread, 0, 1));
    EXPECT_TRUE(holds(Kind::AtLeast, 3, 2));
    EXPECT_FALSE(holds(Kind::AtLeast, 2, 3));
}

// --- index maps of reshapes

TEST(BuilderReshape, SplitsOnlyTheDimensionsThatChange) {
    const Expr b = symbol("b"), s = symbol("s");
    OneInput t({b, s, 768});
    EXPECT_EQ(made_by(t.program, t.b.reshape(t.x, {b, s, 12, 64})),
              "[$b, $s, 12, 64] @0 where @0 = x[i0, i1, 64*i2 + i3]");
}

TEST(BuilderReshape, MergesWithPlainIndices) {
    const Expr b = symbol("b"), s = symbol("s");
    OneInput t({b, s, 12, 64});
    EXPECT_EQ(made_by(t.program, t.b.reshape(t.x, {b, s, 768})),
              "[$b, $s, 768] @0 where @0 = x[i0, i1, i2 // 64, i2 % 64]");
}

TEST(BuilderReshape, DividesByASymbolInsideAGroup) {
    const Expr b = symbol("b"), s = symbol("s");
    OneInput t({b * s, 4});
    const ValueId split = t.b.reshape(t.x, {b, s, 4});
    EXPECT_EQ(made_by(t.program, split), "[$b, $s, 4] @0 where @0 = x[$s*i0 + i1, i2]");
    EXPECT_EQ(made_by(t.program, t.b.reshape(split, {b * s, 4})),
              "[$b*$s, 4] @0 where @0 = reshape[i0 // $s, i0 % $s, i1]");
}

TEST(BuilderReshape, MatchesTrailingDimensionsWhenLeadingOnesDiffer) {
    OneInput t({symbol("b"), symbol("s"), 64});
    EXPECT_THAT(made_by(t.program, t.b.reshape(t.x, {symbol("n"), 8, 8})), HasSubstr(", 8*i1 + i2]"));
}

TEST(BuilderReshape, RejectsAnotherElementCount) {
    OneInput t({2, 3});
    t.b.set_source("r", "Reshape");
    EXPECT_THROW(
        {
            try {
                t.b.reshape(t.x, {7});
            } catch (const ModelError& e) {
                EXPECT_STREQ(e.what(),
                             "node 'r' (Reshape): 6 elements of shape [2, 3] do not make a tensor of shape [7]");
                throw;
            }
        },
        ModelError);
}

Shape random_factors(int64_t n) {
    Shape s;
    while (n > 1) {
        std::vector<int64_t> divisors;
        for (int64_t d = 2; d <= n; ++d)
            if (n % d == 0) divisors.push_back(d);
        const int64_t d = *rc::gen::elementOf(divisors);
        s.push_back(d);
        n /= d;
        if (*rc::gen::inRange(0, 4) == 0) s.push_back(1);
    }
    return s;
}

RC_GTEST_PROP(BuilderReshape, KeepsTheOrderOfElements, ()) {
    const int64_t n = *rc::gen::element<int64_t>(1, 6, 12, 24, 36, 60, 64);
    const Shape in = random_factors(n), out = random_factors(n);
    OneInput t(Dims(in.begin(), in.end()), DType::I64);
    const Tensor y = t.run(t.b.reshape(t.x, Dims(out.begin(), out.end())), iota(DType::I64, in));
    RC_ASSERT(y.shape() == out);
    for (int64_t i = 0; i < n; ++i) RC_ASSERT(y.get_int(i) == i);
}

// --- broadcasting

TEST(BuilderBroadcast, IndexesDimensionsOfOneWithZero) {
    OneInput t({symbol("b"), 1, 4});
    const ValueId y = t.b.input("y", DType::F32, {3, 4});
    EXPECT_EQ(made_by(t.program, t.b.binary(ScalarOp::Add, t.x, y)),
              "[$b, 3, 4] add(@0, @1) where @0 = x[i0, 0, i2], @1 = y[i1, i2]");
}

TEST(BuilderBroadcast, IsCorrectWhicheverDynamicDimensionIsOne) {
    for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 3}, {3, 1}, {3, 3}}) {
        OneInput t({symbol("n")});
        const ValueId y = t.b.input("y", DType::F32, {symbol("m")});
        t.b.set_outputs({t.b.binary(ScalarOp::Add, t.x, y)});
        const Tensor a = iota(DType::F32, {n}), b = iota(DType::F32, {m});
        const Tensor sum = interpret(t.program, {a, b}).front();
        ASSERT_EQ(sum.shape(), Shape{std::max(n, m)});
        for (int64_t i = 0; i < sum.count(); ++i)
            EXPECT_EQ(sum.get(i), static_cast<double>((n == 1 ? 0 : i) + (m == 1 ? 0 : i)));
    }
}

TEST(BuilderBroadcast, NamesMismatchedShapes) {
    OneInput t({2, 3});
    const ValueId y = t.b.input("y", DType::F32, {4});
    EXPECT_THROW(
        {
            try {
                t.b.binary(ScalarOp::Add, t.x, y);
            } catch (const ModelError& e) {
                EXPECT_STREQ(e.what(), "shapes [2, 3] and [4] do not broadcast: 3 against 4");
                throw;
            }
        },
        ModelError);
}

// --- known contents

TEST(BuilderKnown, ConstantsFold) {
    Program p;
    Builder b(p);
    const ValueId x = b.constant(Tensor::of<float>(DType::F32, {3}, {1, 2, 3}));
    const ValueId y = b.binary(ScalarOp::Mul, x, b.scalar_constant(DType::F32, 2.0f));
    ASSERT_NE(b.contents(y), nullptr);
    EXPECT_THAT(numbers(*b.contents(y)), ElementsAre(2, 4, 6));
    EXPECT_TRUE(p.primitives.empty());
}

TEST(BuilderKnown, LargeResultsAreNotFolded) {
    Program p;
    Builder b(p);
    b.fold_limit = 2;
    const ValueId x = b.constant(Tensor::of<float>(DType::F32, {3}, {1, 2, 3}));
    EXPECT_EQ(b.contents(b.unary(ScalarOp::Neg, x)), nullptr);
    EXPECT_EQ(p.primitives.size(), 1u);
}

TEST(BuilderKnown, OneElementConstantsAreSubstituted) {
    OneInput t({4});
    EXPECT_EQ(made_by(t.program, t.b.binary(ScalarOp::Div, t.x, t.b.scalar_constant(DType::F32, 8.0f))),
              "[4] div(@0, 8.0) where @0 = x[i0]");
    const ValueId n = t.b.cast(t.b.int_values({symbol("n") * 2}, {}), DType::F32);
    EXPECT_THAT(made_by(t.program, t.b.binary(ScalarOp::Mul, t.x, n)), HasSubstr("mul(@0, @1)"));
}

TEST(BuilderKnown, ShapeArithmeticNeverReachesTheProgram) {
    // Reshape(x, Concat(Gather(Shape(x), 0) * 12, [-1]))
    const Expr batch = symbol("batch");
    OneInput t({batch, 12, 7});
    const ValueId shape = t.b.int_values({batch, 12, 7}, {3});
    const ValueId first = t.b.gather(shape, t.b.scalar_constant<int64_t>(DType::I64, 0), 0);
    const ValueId rows = t.b.unsqueeze(t.b.binary(ScalarOp::Mul, first, 12), {0});
    const std::vector<ValueId> parts = {rows, t.b.constant(Tensor::of_i64({-1}))};
    const auto known = t.b.int_contents(t.b.concat(parts, 0));
    ASSERT_TRUE(known.has_value());
    EXPECT_THAT(*known, ElementsAre(batch * 12, Expr(-1)));
    EXPECT_TRUE(t.program.primitives.empty());
}

TEST(BuilderKnown, ContentsReadAtRunTimeAreMaterialised) {
    const Expr n = symbol("n");
    OneInput t({n}, DType::I64);
    const Tensor y = t.run(t.b.int_values({n, n * 4, 7}, {3}), iota(DType::I64, {5}));
    EXPECT_THAT(numbers(y), ElementsAre(5, 20, 7));
    EXPECT_THAT(verify(t.program), testing::IsEmpty());
}

TEST(BuilderKnown, UnknownIntegersAreReadOnce) {
    OneInput t({2}, DType::I64);
    const std::vector<Expr> a = t.b.read_ints(t.x), b = t.b.read_ints(t.x);
    EXPECT_EQ(a, b);
    EXPECT_EQ(t.program.primitives.size(), 2u);
    const Tensor y = t.run(t.b.full({a[0], a[1] + 1}, DType::F32, 3), Tensor::of_i64({2, 4}));
    EXPECT_EQ(y.shape(), (Shape{2, 5}));
}

TEST(BuilderKnown, FreshSymbolsAreUniqueInNestedBuilders) {
    Program outer, inner;
    Builder a(outer);
    a.input("x", DType::F32, {symbol("n")});
    Builder b(inner, a);
    EXPECT_NE(a.fresh_symbol("n"), symbol("n"));
    EXPECT_NE(a.fresh_symbol("n"), b.fresh_symbol("n"));
}

class Triple final : public OpaqueOp {
  public:
    std::string print() const override { return "Triple()"; }
    void run(std::span<const TensorView> in, OpaqueOutputs& out) const override {
        const TensorView y = out.allocate(0, in[0].shape);
        for (int64_t i = 0; i < y.count(); ++i) y.as<float>()[i] = 3 * in[0].as<float>()[i];
    }
};

TEST(BuilderKnown, OpaqueOperatorsFoldOnConstants) {
    Program p;
    Builder b(p);
    const ValueId x = b.constant(Tensor::of<float>(DType::F32, {2}, {1, 2}));
    const ValueId y = b.emit_opaque(std::make_shared<Triple>(), {x}, {{DType::F32, {b.fresh_symbol("n")}}}, "y")[0];
    ASSERT_NE(b.contents(y), nullptr);
    EXPECT_THAT(b.shape(y), ElementsAre(Expr(2)));
}

// --- reductions and products

TEST(BuilderReduce, SumsOverAxesAndKeepsThemAsOne) {
    OneInput t({2, 3});
    EXPECT_EQ(made_by(t.program, t.b.reduce(Reducer::Sum, t.x, {-1}, true, "sum")),
              "[2, 1] sum(i2 < 3) @0 where @0 = x[i0, i2]");
    EXPECT_EQ(made_by(t.program, t.b.reduce(Reducer::Max, t.x, {0}, false, "max")),
              "[3] max(i1 < 2) @0 where @0 = x[i1, i0]");
}

TEST(BuilderReduce, AHalfPrecisionMeanDoesNotOverflow) {
    OneInput t({4096}, DType::F16);
    Tensor x(DType::F16, {4096});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, 100);
    EXPECT_EQ(t.run(t.b.mean(t.x, {0}, false), x).get(0), 100);
}

TEST(BuilderMatmul, FollowsNumpy) {
    struct Case {
        Dims a, b, out;
    };
    for (const Case& c : {Case{{2, 3}, {3, 4}, {2, 4}}, Case{{3}, {3, 4}, {4}}, Case{{2, 3}, {3}, {2}},
                          Case{{3}, {3}, {}}, Case{{5, 1, 2, 3}, {7, 3, 4}, {5, 7, 2, 4}}}) {
        OneInput t(c.a);
        const ValueId y = t.b.input("y", DType::F32, c.b);
        EXPECT_EQ(t.b.shape(t.b.matmul(t.x, y)), c.out) << to_string(c.a) << " x " << to_string(c.b);
    }
    OneInput t({2, 3});
    EXPECT_THROW(t.b.matmul(t.x, t.x), ModelError);
}

TEST(BuilderContract, PutsReductionAxesLast) {
    OneInput t({2, 3, 4});
    const ValueId y = t.b.input("y", DType::F32, {2, 5, 4});
    EXPECT_EQ(made_by(t.program, t.b.contract("bij,bkj->bki", t.x, y, DType::F32, "p")),
              "[2, 5, 3] sum(i3 < 4) mul(@0, @1) where @0 = x[i0, i2, i3], @1 = y[i0, i1, i3]");
}

// --- layout

TEST(BuilderLayout, IdentitiesEmitNoPrimitive) {
    OneInput t({2, symbol("n")});
    EXPECT_EQ(t.b.transpose(t.x, {0, 1}), t.x);
    EXPECT_EQ(t.b.expand(t.x, {1, symbol("n")}), t.x);
    EXPECT_EQ(t.b.reshape(t.x, {2, symbol("n")}), t.x);
    EXPECT_EQ(t.b.cast(t.x, DType::F32), t.x);
}

TEST(BuilderLayout, ConcatenatesPartsOfUnknownLength) {
    OneInput t({symbol("n")});
    const ValueId y = t.b.input("y", DType::F32, {symbol("m")}), z = t.b.constant(iota(DType::F32, {2}));
    const std::vector<ValueId> parts = {t.x, y, z};
    t.b.set_outputs({t.b.concat(parts, 0)});
    const Tensor out = interpret(t.program, {iota(DType::F32, {3}), iota(DType::F32, {1})}).front();
    EXPECT_THAT(numbers(out), ElementsAre(0, 1, 2, 0, 0, 1));
}

TEST(BuilderLayout, ConcatenatesManyPartsInGroups) {
    OneInput t({symbol("n")});
    std::vector<ValueId> parts;
    std::vector<double> expected;
    for (int k = 0; k < 1000; ++k) {  // scalars, empty parts, and one part of unknown length
        parts.push_back(k == 500 ? t.x
                                 : t.b.constant(k % 7 == 3 ? Tensor(DType::F32, {0})
                                                           : Tensor::of<double>(DType::F32, {1}, {double(k)})));
        if (k == 500)
            expected.insert(expected.end(), {0, 1, 2});
        else if (k % 7 != 3)
            expected.push_back(k);
    }
    t.b.set_outputs({t.b.concat(parts, 0)});
    EXPECT_EQ(numbers(interpret(t.program, {iota(DType::F32, {3})}).front()), expected);
    for (const Primitive& p : t.program.primitives) EXPECT_LE(p.expr()->accesses.size(), 64u);
}

TEST(BuilderLayout, PadsAndCrops) {
    OneInput t({4});
    EXPECT_THAT(numbers(t.run(t.b.pad(t.x, {-1}, {2}, 9), iota(DType::F32, {4}))), ElementsAre(1, 2, 3, 9, 9));
}

TEST(BuilderLayout, SlicesBackwards) {
    OneInput t({symbol("n")});
    const ValueId y = t.b.slice(t.x, 0, symbol("n") - 1, symbol("n"), -1);
    EXPECT_THAT(numbers(t.run(y, iota(DType::F32, {3}))), ElementsAre(2, 1, 0));
}

TEST(BuilderGather, CountsNegativeIndicesFromTheEnd) {
    OneInput t({4}, DType::I64);
    const ValueId data = t.b.constant(Tensor::of<float>(DType::F32, {3}, {10, 20, 30}));
    EXPECT_THAT(numbers(t.run(t.b.gather(data, t.x, 0), Tensor::of_i64({0, -1, 2, -3}))), ElementsAre(10, 30, 30, 10));
}

TEST(BuilderGather, ConstantIndicesAreCheckedAndUnchanged) {
    OneInput t({3, 2});
    EXPECT_EQ(made_by(t.program, t.b.gather(t.x, t.b.scalar_constant<int64_t>(DType::I64, -1), 0)),
              "[2] @0 where @0 = x[2, i0]");
    EXPECT_THAT(made_by(t.program, t.b.gather(t.x, t.b.constant(Tensor::of_i64({0, 2})), 0)), HasSubstr("x[@0, i1]"));
    EXPECT_THROW(t.b.gather(t.x, t.b.constant(Tensor::of_i64({3})), 0), ModelError);
}

TEST(BuilderCopy, MakesAnInputAnOutput) {
    OneInput t({2});
    const Tensor y = t.run(t.b.copy(t.x), iota(DType::F32, {2}));
    EXPECT_THAT(numbers(y), ElementsAre(0, 1));
    EXPECT_NE(t.program.outputs[0], t.x);
}

TEST(BuilderNames, AreUnique) {
    OneInput t({2});
    t.b.set_source("n", "Neg");
    const ValueId a = t.b.unary(ScalarOp::Neg, t.x), b = t.b.unary(ScalarOp::Neg, a);
    EXPECT_EQ(t.program.values[a].name, "n/neg");
    EXPECT_EQ(t.program.values[b].name, "n/neg.1");
    t.b.rename(b, "n/neg");
    EXPECT_EQ(t.program.values[b].name, "n/neg.2");
}

}  // namespace
}  // namespace tilewright
