// Scalar bodies: semantics of each operator, folding, and round trips through text.

#include "program/scalar.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "base/error.h"
#include "program/scalar_eval.h"
#include "program/scalar_text.h"

namespace tilewright {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

double on_floats(ScalarOp op, double a, double b = 0) {
    return eval_scalar(op, DType::F32, DType::F32, {a, 0}, {b, 0}).f;
}
int64_t on(DType t, ScalarOp op, int64_t a, int64_t b = 0) { return eval_scalar(op, t, t, {0, a}, {0, b}).i; }
bool holds(ScalarOp op, double a, double b) { return eval_scalar(op, DType::Bool, DType::F32, {a, 0}, {b, 0}).i != 0; }
ScalarValue cast(DType to, DType from, ScalarValue v) { return eval_scalar(ScalarOp::Cast, to, from, v); }

TEST(ScalarEval, FloatRemaindersFollowDivisorOrDividend) {
    EXPECT_EQ(on_floats(ScalarOp::FloorMod, -7, 3), 2);
    EXPECT_EQ(on_floats(ScalarOp::FloorMod, 7, -3), -2);
    EXPECT_EQ(on_floats(ScalarOp::TruncMod, -7, 3), -1);
    EXPECT_EQ(on_floats(ScalarOp::TruncMod, 7, -3), 1);
    EXPECT_TRUE(std::signbit(on_floats(ScalarOp::FloorMod, 6, -3)));
    EXPECT_TRUE(std::isnan(on_floats(ScalarOp::FloorMod, 1, 0)));
}

TEST(ScalarEval, IntegerDivisionTruncatesAndByZeroIsZero) {
    EXPECT_EQ(on(DType::I32, ScalarOp::Div, -7, 2), -3);
    EXPECT_EQ(on(DType::I32, ScalarOp::Div, -7, 0), 0);
    EXPECT_EQ(on(DType::I64, ScalarOp::Div, INT64_MIN, -1), INT64_MIN);
    EXPECT_EQ(on(DType::U64, ScalarOp::Div, -1, 2), INT64_MAX);
    EXPECT_EQ(on(DType::I32, ScalarOp::FloorMod, -7, 3), 2);
    EXPECT_EQ(on(DType::I32, ScalarOp::TruncMod, -7, 3), -1);
    EXPECT_EQ(on(DType::I32, ScalarOp::FloorMod, 7, 0), 0);
    EXPECT_EQ(on(DType::I64, ScalarOp::TruncMod, INT64_MIN, -1), 0);
}

TEST(ScalarEval, IntegersWrap) {
    EXPECT_EQ(on(DType::I8, ScalarOp::Add, 127, 1), -128);
    EXPECT_EQ(on(DType::U8, ScalarOp::Sub, 0, 1), 255);
    EXPECT_EQ(on(DType::I32, ScalarOp::Mul, 1 << 16, 1 << 16), 0);
    EXPECT_EQ(on(DType::I64, ScalarOp::Add, INT64_MAX, 1), INT64_MIN);
    EXPECT_EQ(on(DType::I8, ScalarOp::Neg, -128), -128);
    EXPECT_EQ(on(DType::I8, ScalarOp::Abs, -128), -128);
}

TEST(ScalarEval, IntegerPowersWithNegativeExponents) {
    EXPECT_EQ(on(DType::I32, ScalarOp::Pow, 3, 4), 81);
    EXPECT_EQ(on(DType::I32, ScalarOp::Pow, 2, -1), 0);
    EXPECT_EQ(on(DType::I32, ScalarOp::Pow, 1, -5), 1);
    EXPECT_EQ(on(DType::I32, ScalarOp::Pow, -1, -5), -1);
    EXPECT_EQ(on(DType::I32, ScalarOp::Pow, -1, -4), 1);
    EXPECT_EQ(on(DType::U8, ScalarOp::Pow, 2, 200), 0);
}

TEST(ScalarEval, ShiftsPastTheWidthGiveZero) {
    EXPECT_EQ(on(DType::U8, ScalarOp::ShiftLeft, 3, 7), 128);
    EXPECT_EQ(on(DType::U8, ScalarOp::ShiftLeft, 3, 8), 0);
    EXPECT_EQ(on(DType::I32, ScalarOp::ShiftRight, -8, 1), -4);
    EXPECT_EQ(on(DType::U32, ScalarOp::ShiftRight, 0xFFFFFFF8, 1), 0x7FFFFFFC);
    EXPECT_EQ(on(DType::I32, ScalarOp::ShiftRight, -8, 32), 0);
    EXPECT_EQ(on(DType::I32, ScalarOp::ShiftRight, -8, -1), 0);
}

TEST(ScalarEval, NanPropagatesThroughExtremaAndFailsComparisons) {
    for (const ScalarOp op : {ScalarOp::Min, ScalarOp::Max}) {
        EXPECT_TRUE(std::isnan(on_floats(op, kNan, 1)));
        EXPECT_TRUE(std::isnan(on_floats(op, 1, kNan)));
        EXPECT_TRUE(std::isnan(on_floats(op, -kInf, kNan)));
    }
    for (const ScalarOp op : {ScalarOp::Eq, ScalarOp::Lt, ScalarOp::Le, ScalarOp::Gt, ScalarOp::Ge})
        EXPECT_FALSE(holds(op, kNan, kNan)) << to_string(op);
    EXPECT_TRUE(holds(ScalarOp::Ne, kNan, kNan));
    EXPECT_TRUE(std::isnan(on_floats(ScalarOp::Sign, kNan)));
}

TEST(ScalarEval, UnsignedNumbersCompareAsSuch) {
    EXPECT_EQ(on(DType::U64, ScalarOp::Max, -1, 1), -1);
    EXPECT_NE(eval_scalar(ScalarOp::Gt, DType::Bool, DType::U64, {0, -1}, {0, 1}).i, 0);
    EXPECT_EQ(on(DType::U8, ScalarOp::Sign, 200), 1);
    EXPECT_EQ(on(DType::I64, ScalarOp::Max, -1, 1), 1);
}

TEST(ScalarEval, BooleansAreLogical) {
    EXPECT_EQ(on(DType::Bool, ScalarOp::BitNot, 1), 0);
    EXPECT_EQ(on(DType::Bool, ScalarOp::BitNot, 0), 1);
    EXPECT_EQ(on(DType::Bool, ScalarOp::Max, 0, 1), 1);
    EXPECT_EQ(on(DType::I8, ScalarOp::BitNot, 0), -1);
}

TEST(ScalarEval, CastsToIntegersTruncateAndSaturate) {
    EXPECT_EQ(cast(DType::I32, DType::F32, {-1.9, 0}).i, -1);
    EXPECT_EQ(cast(DType::I8, DType::F32, {1e9, 0}).i, 127);
    EXPECT_EQ(cast(DType::I8, DType::F32, {-128.9, 0}).i, -128);
    EXPECT_EQ(cast(DType::U8, DType::F32, {-0.5, 0}).i, 0);
    EXPECT_EQ(cast(DType::U8, DType::F32, {-5, 0}).i, 0);
    EXPECT_EQ(cast(DType::U8, DType::F32, {256, 0}).i, 255);
    EXPECT_EQ(cast(DType::I64, DType::F32, {kNan, 0}).i, 0);
    EXPECT_EQ(cast(DType::I64, DType::F64, {kInf, 0}).i, INT64_MAX);
    EXPECT_EQ(cast(DType::I64, DType::F64, {-kInf, 0}).i, INT64_MIN);
    EXPECT_EQ(cast(DType::U64, DType::F64, {kInf, 0}).i, -1);
    EXPECT_EQ(cast(DType::U64, DType::F64, {0x1p63, 0}).i, INT64_MIN);
    EXPECT_EQ(cast(DType::Bool, DType::F32, {kNan, 0}).i, 1);
    EXPECT_EQ(cast(DType::Bool, DType::F32, {-0.0, 0}).i, 0);
    EXPECT_EQ(cast(DType::I4, DType::F32, {9, 0}).i, 7);
}

TEST(ScalarEval, CastsBetweenIntegersWrap) {
    EXPECT_EQ(cast(DType::I8, DType::I32, {0, 200}).i, -56);
    EXPECT_EQ(cast(DType::U8, DType::I64, {0, -1}).i, 255);
    EXPECT_EQ(cast(DType::U4, DType::I32, {0, 18}).i, 2);
    EXPECT_EQ(cast(DType::Bool, DType::I32, {0, 2}).i, 1);
}

TEST(ScalarEval, CastsToFloatsRoundOnce) {
    EXPECT_EQ(cast(DType::F32, DType::F64, {0.1, 0}).f, static_cast<double>(0.1f));
    EXPECT_EQ(cast(DType::F16, DType::F32, {1.0 + 0x1p-11, 0}).f, 1.0);
    EXPECT_EQ(cast(DType::F16, DType::F32, {70000, 0}).f, kInf);
    EXPECT_EQ(cast(DType::BF16, DType::F32, {1.0 + 0x1p-7, 0}).f, 1.0 + 0x1p-7);
    // 1 above the middle of two floats: through double the 1 would be lost, and the tie would round to even
    const int64_t above_tie = (int64_t{1} << 60) + (int64_t{1} << 36) + 1;
    EXPECT_EQ(cast(DType::F32, DType::I64, {0, above_tie}).f, 0x1p60 + 0x1p37);
    EXPECT_EQ(cast(DType::F32, DType::U64, {0, -1}).f, 0x1p64);
}

TEST(ScalarEval, ZeroWeightsDropTheirTerm) {
    EXPECT_EQ(on_floats(ScalarOp::Weigh, 3, 2), 6);
    for (const double term : {kInf, -kInf, kNan, 1e38}) {
        EXPECT_EQ(on_floats(ScalarOp::Weigh, 0, term), 0);
        EXPECT_EQ(on_floats(ScalarOp::Weigh, -0.0, term), 0);
    }
    EXPECT_TRUE(std::isnan(on_floats(ScalarOp::Weigh, kNan, 0)));
}

TEST(ScalarTables, ReturnZeroOutOfBounds) {
    const auto numbers = std::make_shared<const std::vector<double>>(std::vector<double>{4, -0.5});
    for (const auto& [position, number] : {std::pair(0, 4.0), {1, -0.5}, {2, 0.0}, {-1, 0.0}}) {
        ScalarBody b;
        b.set_root(b.table(DType::F32, numbers, b.index(position)));
        EXPECT_EQ(b[b.root()].op, ScalarOp::Const) << "known at once";
        EXPECT_EQ(b[b.root()].value, number);
    }
}

TEST(ScalarTables, AreHashConsedByContents) {
    ScalarBody b;
    const auto table = [&](std::vector<double> numbers) {
        return b.table(DType::F32, std::make_shared<const std::vector<double>>(std::move(numbers)), b.index(axis(0)));
    };
    EXPECT_EQ(table({1, 2}), table({1, 2}));
    EXPECT_NE(table({1, 2}), table({1, 3}));
    EXPECT_NE(table({1, 2}), table({1, 2, 0}));
}

TEST(ScalarTables, RoundTripThroughText) {
    const auto f32 = [](uint32_t) { return std::optional(DType::F32); };
    for (const std::string text :
         {"weigh(table{4, -0.5, 0.1}(index(i0)), @0)", "table.f64{0.1, 1e+300}(index(i0 + 1))", "table{}(index(i0))"})
        EXPECT_EQ(parse_scalar(text, f32, std::nullopt).print(), text);
    for (const char* wrong :
         {"table{1, x}(index(i0))", "table{1}(@0)", "table.i32{1}(index(i0))", "table{1(index(i0))"})
        EXPECT_THROW(parse_scalar(wrong, f32, std::nullopt), ModelError) << wrong;
}

TEST(ScalarEval, BitcastsKeepBits) {
    EXPECT_EQ(eval_scalar(ScalarOp::Bitcast, DType::I32, DType::F32, {1.0, 0}).i, 0x3F800000);
    EXPECT_EQ(eval_scalar(ScalarOp::Bitcast, DType::F32, DType::U32, {0, 0xFF800000}).f, -kInf);
    EXPECT_EQ(eval_scalar(ScalarOp::Bitcast, DType::U8, DType::I8, {0, -1}).i, 255);
    EXPECT_EQ(eval_scalar(ScalarOp::Bitcast, DType::I16, DType::F16, {1.0, 0}).i, 0x3C00);
}

TEST(ScalarEval, F32ArithmeticIsNotRounded) { EXPECT_EQ(on_floats(ScalarOp::Add, 1.0, 0x1p-40), 1.0 + 0x1p-40); }

// --- bodies

TEST(ScalarBody, EqualNodesAreOne) {
    ScalarBody b;
    const ScalarId x = b.access(0, DType::F16), y = b.access(0, DType::F32);
    EXPECT_EQ(x, y);  // both compute in f32
    EXPECT_EQ(b.binary(ScalarOp::Mul, x, y), b.binary(ScalarOp::Mul, x, x));
    EXPECT_NE(b.constant(DType::F32, 0.0), b.constant(DType::F32, -0.0));
    EXPECT_EQ(b.constant(DType::F32, kNan), b.constant(DType::F32, kNan));
    EXPECT_NE(b.constant(DType::F32, 1), b.constant(DType::F64, 1));
}

TEST(ScalarBody, EqualNodesAreOneInLargeBodiesAndTheirCopies) {
    constexpr uint32_t kOperands = 500;
    const auto node = [](ScalarBody& b, uint32_t k) {
        const ScalarId x = b.binary(ScalarOp::Mul, b.access(k, DType::F32), b.constant(DType::F32, k % 7));
        return b.binary(ScalarOp::Add, x, b.constant(DType::F32, k % 2 == 0 ? 0.0 : -0.0));
    };
    ScalarBody b;
    std::vector<ScalarId> ids;
    for (uint32_t k = 0; k < kOperands; ++k) ids.push_back(node(b, k));
    ScalarBody copy = b;
    for (const auto body : {&b, &copy}) {
        const size_t before = body->nodes().size();
        for (uint32_t k = 0; k < kOperands; ++k) EXPECT_EQ(node(*body, k), ids[k]);
        EXPECT_EQ(body->nodes().size(), before);
        std::set<ScalarId> different(ids.begin(), ids.end());
        EXPECT_TRUE(different.insert(node(*body, kOperands)).second);  // copies grow by themselves
    }
    EXPECT_EQ(b.nodes().size(), copy.nodes().size());
}

TEST(ScalarBody, IdentitiesThatHoldForEveryOperandDisappear) {
    ScalarBody b;
    const ScalarId f = b.access(0, DType::F32), i = b.access(1, DType::I32), c = b.access(2, DType::Bool);
    const auto float_op = [&](ScalarOp op, double v) { return b.binary(op, f, b.constant(DType::F32, v)); };
    const auto int_op = [&](ScalarOp op, int64_t v) { return b.binary(op, i, b.int_constant(DType::I32, v)); };
    EXPECT_EQ(float_op(ScalarOp::Mul, 1), f);
    EXPECT_EQ(float_op(ScalarOp::Div, 1), f);
    EXPECT_EQ(float_op(ScalarOp::Add, -0.0), f);
    EXPECT_EQ(float_op(ScalarOp::Sub, 0.0), f);
    EXPECT_EQ(int_op(ScalarOp::Add, 0), i);
    EXPECT_EQ(int_op(ScalarOp::Mul, 1), i);
    EXPECT_EQ(b.select(b.int_constant(DType::Bool, 0), i, b.int_constant(DType::I32, 4)),
              b.int_constant(DType::I32, 4));
    EXPECT_EQ(b.select(c, f, f), f);
    EXPECT_EQ(b.cast(DType::F32, f), f);
    EXPECT_EQ(b.binary(ScalarOp::BitAnd, c, b.int_constant(DType::Bool, 1)), c);
    EXPECT_EQ(b.binary(ScalarOp::BitOr, b.int_constant(DType::Bool, 0), c), c);
    const ScalarId half = b.cast(DType::F16, f);
    EXPECT_NE(half, f);
    EXPECT_EQ(b.cast(DType::F32, half), half);
    EXPECT_EQ(b.cast(DType::F16, half), half);
}

TEST(ScalarBody, SpecialValuesPreventSimplification) {
    ScalarBody b;
    const ScalarId f = b.access(0, DType::F32);
    EXPECT_NE(b.binary(ScalarOp::Mul, f, b.constant(DType::F32, 0)), b.constant(DType::F32, 0));  // inf * 0
    EXPECT_NE(b.binary(ScalarOp::Add, f, b.constant(DType::F32, 0)), f);                          // -0 + 0
    EXPECT_NE(b.binary(ScalarOp::Sub, f, b.constant(DType::F32, -0.0)), f);
    EXPECT_NE(b.binary(ScalarOp::Sub, f, f), b.constant(DType::F32, 0));  // inf - inf
}

TEST(ScalarBody, ConstantsFold) {
    ScalarBody b;
    const ScalarId two = b.constant(DType::F32, 2);
    EXPECT_EQ(b.unary(ScalarOp::Sqrt, b.binary(ScalarOp::Add, two, two)), two);
    EXPECT_EQ(b.binary(ScalarOp::Lt, two, b.constant(DType::F32, 3)), b.int_constant(DType::Bool, 1));
    EXPECT_EQ(b.cast(DType::I64, b.constant(DType::F32, 2.5)), b.int_constant(DType::I64, 2));
    EXPECT_EQ(b.index(Expr(3)), b.int_constant(DType::I64, 3));
    EXPECT_EQ(b.int_constant(DType::I8, 200), b.int_constant(DType::I8, -56));
    const ScalarId half = b.cast(DType::F16, b.constant(DType::F32, 0.1));
    EXPECT_EQ(b[half].dtype, DType::F32);  // rounded there, an f32 here
    EXPECT_EQ(b[half].value, static_cast<double>(half_to_float(float_to_half(0.1f))));
}

TEST(ScalarBody, MixedTypesAreABug) {
    ScalarBody b;
    const ScalarId f = b.access(0, DType::F32), i = b.access(1, DType::I32);
    EXPECT_THROW(b.binary(ScalarOp::Add, f, i), InternalError);
    EXPECT_THROW(b.select(f, f, f), InternalError);
    EXPECT_THROW(b.bitcast(DType::F64, f), InternalError);
}

TEST(ScalarBody, InliningReplacesLeavesAndFoldsAgain) {
    ScalarBody inner;  // mul(@0, add(@1, @1))
    const ScalarId y = inner.access(1, DType::F32);
    inner.set_root(inner.binary(ScalarOp::Mul, inner.access(0, DType::F32), inner.binary(ScalarOp::Add, y, y)));
    ScalarBody outer;
    const ScalarId root = outer.inline_body(inner, [](ScalarBody& to, const ScalarNode& leaf) {
        if (leaf.op == ScalarOp::Access && leaf.slot == 1) return to.constant(DType::F32, 0.5);
        return ScalarId();
    });
    outer.set_root(root);
    EXPECT_EQ(outer.print(), "@0");  // mul(@0, add(0.5, 0.5))
}

TEST(ScalarBody, PrunedKeepsLiveNodes) {
    ScalarBody b;
    const ScalarId x = b.access(3, DType::F32);
    b.unary(ScalarOp::Exp, x);
    b.access(1, DType::F32);
    b.set_root(b.unary(ScalarOp::Tanh, x));
    EXPECT_EQ(b.pruned().nodes().size(), 2u);
    EXPECT_EQ(b.slots(), std::vector<uint32_t>{3});
    EXPECT_TRUE(b == b.pruned());
    EXPECT_FALSE(b.uses_acc());
}

// --- text

std::optional<DType> storage(uint32_t slot) {
    static const std::vector<DType> types{DType::F32, DType::F64, DType::I32, DType::I64, DType::Bool, DType::F16};
    if (slot >= types.size()) return std::nullopt;
    return types[slot];
}

std::string reprinted(std::string_view text) { return parse_scalar(text, storage, DType::F32).print(); }

std::string failure(std::string_view text, std::optional<DType> acc = std::nullopt) {
    try {
        return parse_scalar(text, storage, acc).print();
    } catch (const ModelError& e) {
        return e.what();
    }
}

TEST(ScalarText, RoundTrips) {
    for (const std::string_view text : {"mul(@0, add(@5, 1.0))",
                                        "max(add(acc, @0), -0.0)",
                                        "select(lt(@2, 3:i32), @0, -inf)",
                                        "pow(@1, 0.5:f64)",
                                        "add(@3, index($n + 2*i0 - 1))",
                                        "f16(@0)",
                                        "bitcast.i32(@0)",
                                        "bool(@0)",
                                        "not(and(@4, isnan(@0)))",
                                        "mul(@0, 0.1f)",
                                        "mul(@0, 0.1)",
                                        "mul(@0, 1e+30)",
                                        "mul(@0, 1e-45f)",
                                        "floormod(@3, -5)",
                                        "nan",
                                        "true",
                                        "add(@3, -9223372036854775808)",
                                        "u64(@3)",
                                        "18446744073709551615:u64",
                                        "shr(i64(@2), 2)"})
        EXPECT_EQ(reprinted(text), text);
}

TEST(ScalarText, DoublesRoundTripExactly) {
    ScalarBody b;
    b.set_root(b.constant(DType::F32, 0.1));
    EXPECT_EQ(b.print(), "0.1");
    b.set_root(b.constant(DType::F32, 0.1f));
    EXPECT_EQ(b.print(), "0.1f");
    b.set_root(b.constant(DType::F32, 16777217.0));
    EXPECT_EQ(b.print(), "16777217.0");
}

TEST(ScalarText, LongSharedSubexpressionsGetNames) {
    ScalarBody b;
    ScalarId x = b.access(0, DType::F32);
    for (int k = 0; k < 4; ++k) x = b.binary(ScalarOp::Mul, x, x);
    b.set_root(x);
    EXPECT_EQ(b.print().find("let"), std::string::npos);
    for (int k = 0; k < 60; ++k) x = b.binary(ScalarOp::Mul, x, x);
    b.set_root(x);
    const std::string text = b.print();
    EXPECT_EQ(text.substr(0, 46), "let t0 = mul(@0, @0), t1 = mul(t0, t0), t2 = m");
    EXPECT_EQ(reprinted(text), text);
    EXPECT_TRUE(parse_scalar(text, storage) == b);
}

TEST(ScalarText, DeepBodiesReadBack) {
    ScalarBody b;
    ScalarId x = b.access(0, DType::F32);
    for (int k = 0; k < 3000; ++k) x = b.unary(k % 2 == 0 ? ScalarOp::Sin : ScalarOp::Cos, x);
    b.set_root(x);
    EXPECT_EQ(reprinted(b.print()), b.print());
}

TEST(ScalarText, SyntaxErrorsStateTheirPosition) {
    EXPECT_EQ(failure("mul(@0)"), "scalar expression, line 1, column 7: expected ',', found ')'");
    EXPECT_EQ(failure("mul(@0, @1)"),
              "scalar expression, line 1, column 1: operator 'mul' takes operands of one type, found f32 and f64");
    EXPECT_EQ(failure("exp(@2)"),
              "scalar expression, line 1, column 1: operator 'exp' takes floating-point numbers, found i32");
    EXPECT_EQ(failure("add(@4, @4)"), "scalar expression, line 1, column 1: operator 'add' takes numbers, found bool");
    EXPECT_EQ(failure("select(@0, @0, @0)"),
              "scalar expression, line 1, column 1: operator 'select' takes a boolean condition, found f32");
    EXPECT_EQ(failure("bitcast.f64(@0)"),
              "scalar expression, line 1, column 1: operator 'bitcast' takes types of one size, found f32 and f64");
    EXPECT_EQ(failure("@9"), "scalar expression, line 1, column 2: there is no access @9");
    EXPECT_EQ(failure("frob(@0)"),
              "scalar expression, line 1, column 1: expected a scalar operator, constant or access, found 'frob(@0)'");
    EXPECT_EQ(failure("acc"), "scalar expression, line 1, column 1: 'acc' is valid in an epilogue only");
    EXPECT_EQ(failure("exp(@0) exp(@0)"),
              "scalar expression, line 1, column 9: expected the end of the text, found 'exp(@0)'");
    EXPECT_EQ(failure("index(i0 +)"),
              "scalar expression, line 1, column 7: index expression 'i0 +': expected an operand at column 5");
    EXPECT_EQ(failure("exp(index(i0))"),
              "scalar expression, line 1, column 1: operator 'exp' takes floating-point numbers, found i64");
    EXPECT_EQ(failure("exp(1)"),
              "scalar expression, line 1, column 1: operator 'exp' takes floating-point numbers, found i64");
    std::string deep;
    for (int k = 0; k < 100000; ++k) deep += "sin(";
    EXPECT_NE(failure(deep).find("nested this deep"), std::string::npos);
}

// --- properties

class RandomBody {
  public:
    explicit RandomBody(uint64_t seed) : engine_(seed) {}

    size_t below(size_t n) { return engine_() % n; }

    ScalarValue number(DType t) {
        static const double kFloats[] = {0.0, -0.0, 1, -1, 2.5, 0.1, -3e9, 1e300, 5e-324, kInf, -kInf, kNan};
        static const int64_t kInts[] = {0, 1, -1, 2, 7, -128, 255, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 31};
        if (is_float(t)) return {t == DType::F32 ? static_cast<float>(kFloats[below(12)]) : kFloats[below(12)], 0};
        return {0, wrap_integer(t, kInts[below(12)])};
    }

    /// The same expression twice: in `body`, with leaves from `leaf`, and evaluated on the numbers.
    ScalarValue node(ScalarBody& body, ScalarId& id, DType t, int depth,
                     const std::function<ScalarId(ScalarBody&, DType, ScalarValue)>& leaf) {
        if (depth == 0) {
            const ScalarValue v = number(t);
            id = leaf(body, t, v);
            return v;
        }
        std::vector<ScalarOp> fitting;
        for (int k = static_cast<int>(ScalarOp::Add); k <= static_cast<int>(ScalarOp::IsInf); ++k)
            fitting.push_back(static_cast<ScalarOp>(k));
        for (;;) {
            ScalarNode n;
            n.op = fitting[below(fitting.size())];
            const DType operand = n.op == ScalarOp::Cast || t == DType::Bool ? types()[below(types().size())] : t;
            if (n.op == ScalarOp::Bitcast) continue;
            ScalarBody scratch;  // try the types on constants
            n.dtype = t;
            n.a = scratch.int_constant(n.op == ScalarOp::Select ? DType::Bool : operand, 1);
            if (arity(n.op) > 1) n.b = scratch.int_constant(n.op == ScalarOp::Select ? t : operand, 1);
            if (arity(n.op) > 2) n.c = scratch.int_constant(t, 1);
            if (!type_fault(scratch, n).empty()) continue;
            if (n.op == ScalarOp::Cast && operand == t) continue;
            ScalarValue v[3];
            const DType wanted[3] = {n.op == ScalarOp::Select ? DType::Bool : operand,
                                     n.op == ScalarOp::Select ? t : operand, t};
            ScalarId* ids[3] = {&n.a, &n.b, &n.c};
            for (int k = 0; k < arity(n.op); ++k)
                v[k] = node(body, *ids[k], wanted[k], static_cast<int>(below(static_cast<size_t>(depth))), leaf);
            id = body.add(n);
            return eval_scalar(n.op, t, operand, v[0], v[1], v[2]);
        }
    }

    static const std::vector<DType>& types() {
        static const std::vector<DType> kTypes{DType::F32, DType::F64, DType::I8,  DType::I32,
                                               DType::I64, DType::U8,  DType::U64, DType::Bool};
        return kTypes;
    }

  private:
    std::mt19937_64 engine_;
};

bool same(DType t, ScalarValue a, ScalarValue b) {
    if (!is_float(t)) return a.i == b.i;
    return std::isnan(a.f) ? std::isnan(b.f) : std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f);
}

TEST(ScalarProperty, ConstantFoldingMatchesEvaluation) {
    EXPECT_TRUE(rc::check([] {
        const auto seed = *rc::gen::arbitrary<uint64_t>();
        for (uint64_t k = 0; k < 50; ++k) {
            RandomBody random(seed + k);
            const DType t = RandomBody::types()[random.below(RandomBody::types().size())];
            ScalarBody folded;
            ScalarId root;
            const ScalarValue v = random.node(folded, root, t, 4, [](ScalarBody& b, DType type, ScalarValue x) {
                return is_float(type) ? b.constant(type, x.f) : b.int_constant(type, x.i);
            });
            RC_ASSERT(folded[root].op == ScalarOp::Const);
            RC_ASSERT(same(t, {folded[root].value, folded[root].int_value}, v));
        }
    }));
}

ScalarValue walk(const ScalarBody& body, const std::vector<ScalarValue>& accesses) {
    std::vector<ScalarValue> values;
    for (const ScalarNode& n : body.nodes()) {
        const auto at = [&](ScalarId id) { return id ? values[id.index()] : ScalarValue{}; };
        if (n.op == ScalarOp::Const)
            values.push_back({n.value, n.int_value});
        else if (n.op == ScalarOp::Access)
            values.push_back(accesses[n.slot]);
        else
            values.push_back(eval_scalar(n.op, n.dtype, body[n.op == ScalarOp::Select ? n.b : n.a].dtype, at(n.a),
                                         at(n.b), at(n.c)));
    }
    return values[body.root().index()];
}

TEST(ScalarProperty, SimplifiedBodiesKeepTheirValueAndRoundTrip) {
    EXPECT_TRUE(rc::check([] {
        const auto seed = *rc::gen::arbitrary<uint64_t>();
        for (uint64_t k = 0; k < 50; ++k) {
            RandomBody random(seed + k);
            const DType t = RandomBody::types()[random.below(RandomBody::types().size())];
            ScalarBody body;
            ScalarId root;
            std::vector<ScalarValue> values;
            std::vector<DType> types;
            const auto leaf = [&](ScalarBody& b, DType type, ScalarValue x) {
                if (random.below(2) == 0) return is_float(type) ? b.constant(type, x.f) : b.int_constant(type, x.i);
                values.push_back(x);
                types.push_back(type);
                return b.access(static_cast<uint32_t>(values.size() - 1), type);
            };
            const ScalarValue expected = random.node(body, root, t, 5, leaf);
            body.set_root(root);
            RC_LOG() << body.print() << '\n';
            RC_ASSERT(same(t, walk(body, values), expected));
            const ScalarBody read = parse_scalar(
                body.print(), [&](uint32_t slot) { return std::optional(types.at(slot)); }, std::nullopt);
            RC_ASSERT(read.print() == body.print());
            RC_ASSERT(read == body);
        }
    }));
}

}  // namespace
}  // namespace tilewright
