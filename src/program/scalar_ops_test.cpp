// Each row of the table of scalar operators against the function that it describes: a wrong column fails here.

#include "program/scalar_ops.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "program/interpret_lanes.h"
#include "program/intervals.h"
#include "program/scalar_eval.h"
#include "program/scalar_text.h"
#include "program/text.h"

namespace tilewright {

void PrintTo(const ScalarFunction& f, std::ostream* out) { *out << to_string(f.op); }

namespace {

std::vector<ScalarOp> all_operators() {
    std::vector<ScalarOp> out;
    for (int k = 0; k <= static_cast<int>(ScalarOp::IsInf); ++k) out.push_back(static_cast<ScalarOp>(k));
    return out;
}

/// Numbers of every magnitude, and many between -2 and 2, ascending.
std::vector<double> points() {
    std::mt19937_64 rng(11);
    std::uniform_real_distribution<double> small(-2, 2), medium(-60, 60), exponent(-1000, 1000);
    std::vector<double> out = {0, 1, -1, 1 - 0x1p-50, -1 + 0x1p-50};
    for (int k = 0; k < 2000; ++k) {
        out.push_back(small(rng));
        out.push_back(medium(rng));
        out.push_back((k % 2 == 0 ? 1 : -1) * std::exp2(exponent(rng)));
    }
    std::sort(out.begin(), out.end());
    return out;
}

struct Point {
    double x, y;
};

/// Where the function is defined, ascending.
std::vector<Point> graph_of(const ScalarFunction& f) {
    std::vector<Point> out;
    for (const double x : points())
        if (const double y = f.reference(x); !std::isnan(y)) out.push_back({x, y});
    return out;
}

/// True if y <= z up to a rounding.
bool at_most(double y, double z) { return y <= z || y - z <= 1e-14 * std::max(std::fabs(y), std::fabs(z)); }

class EachFunction : public testing::TestWithParam<ScalarFunction> {};
INSTANTIATE_TEST_SUITE_P(Table, EachFunction, testing::ValuesIn(scalar_functions().begin(), scalar_functions().end()),
                         [](const auto& instance) { return std::string(to_string(instance.param.op)); });

TEST(ScalarOps, AreInTheOrderOfTheirNumbersWithNamesOfTheirOwn) {
    std::set<std::string_view> names;
    for (const ScalarOp op : all_operators()) {
        EXPECT_EQ(scalar_op_info(op).op, op);
        EXPECT_TRUE(names.insert(to_string(op)).second) << to_string(op);
        EXPECT_EQ(scalar_op_from_string(to_string(op)), arity(op) > 0 ? std::optional(op) : std::nullopt);
    }
    EXPECT_EQ(names.size(), all_operators().size());
}

bool has_value(ScalarOp op, DType t) {
    try {
        eval_scalar(op, t, t, {1, 1}, {1, 1});
        return true;
    } catch (const InternalError&) {
        return false;
    }
}

bool is_predicate(ScalarOp op) { return op == ScalarOp::IsNan || op == ScalarOp::IsInf; }

TEST(ScalarOps, HaveValuesForTheTypesThatTheyTake) {
    for (const ScalarOp op : all_operators()) {
        const ScalarOpInfo& row = scalar_op_info(op);
        if (row.arity == 0 || row.gives == Gives::Own) continue;
        EXPECT_EQ(has_value(op, DType::F32), row.takes != Takes::Integers && row.takes != Takes::IntegersOrBool)
            << row.text;
        if (rounds_to_integer(op) || is_predicate(op)) continue;  // evaluated on integers, and refused in text
        EXPECT_EQ(has_value(op, DType::I32), row.takes != Takes::Floats) << row.text;
    }
}

TEST(ScalarOps, ReadBackFromTextWithTheTypeThatTheyGive) {
    for (const ScalarOp op : all_operators()) {
        const ScalarOpInfo& row = scalar_op_info(op);
        if (row.arity == 0 || row.gives == Gives::Own || op == ScalarOp::Select) continue;
        const DType t = row.takes == Takes::Integers || row.takes == Takes::IntegersOrBool ? DType::I32 : DType::F32;
        const std::string text = fmt::format("{}(@0{})", row.text, row.arity == 2 ? ", @1" : "");
        const ScalarBody body = parse_scalar(text, [&](uint32_t) { return t; });
        EXPECT_EQ(body[body.root()].op, op);
        EXPECT_EQ(body.print(), text);
        EXPECT_EQ(body.dtype(), is_comparison(op) || is_predicate(op) ? DType::Bool : t) << text;
    }
}

TEST_P(EachFunction, TakesAndGivesFloats) {
    const ScalarOpInfo& row = scalar_op_info(GetParam().op);
    EXPECT_EQ(row.arity, 1);
    EXPECT_EQ(row.takes, Takes::Floats);
    EXPECT_EQ(row.gives, Gives::Same);
    EXPECT_EQ(scalar_function(GetParam().op)->op, GetParam().op);
}

/// The values are those of the mathematical functions, and not computed by the code under test.
TEST_P(EachFunction, HasTheValueOfItsName) {
    const std::map<std::string_view, Point> known = {
        {"floor", {-1.5, -2}},
        {"ceil", {-1.5, -1}},
        {"trunc", {-1.75, -1}},
        {"round", {2.5, 2}},
        {"sqrt", {6.25, 2.5}},
        {"exp", {1, 2.718281828459045}},
        {"log", {10, 2.302585092994046}},
        {"log1p", {1e-10, 9.9999999995e-11}},
        {"expm1", {1e-10, 1.00000000005e-10}},
        {"erf", {0.5, 0.5204998778130465}},
        {"sin", {0.5, 0.479425538604203}},
        {"cos", {0.5, 0.8775825618903728}},
        {"tan", {0.5, 0.5463024898437905}},
        {"asin", {0.5, 0.5235987755982989}},
        {"acos", {0.25, 1.318116071652818}},
        {"atan", {0.5, 0.4636476090008061}},
        {"sinh", {0.5, 0.5210953054937474}},
        {"cosh", {0.5, 1.1276259652063807}},
        {"tanh", {0.5, 0.46211715726000973}},
        {"asinh", {0.5, 0.48121182505960347}},
        {"acosh", {2, 1.3169578969248166}},
        {"atanh", {0.5, 0.5493061443340549}},
    };
    const auto value = known.find(to_string(GetParam().op));
    ASSERT_NE(value, known.end()) << "write a value of the function here";
    const auto& [x, y] = value->second;
    EXPECT_NEAR(GetParam().reference(x), y, 1e-15 * (1 + std::fabs(y)));
    EXPECT_TRUE(std::isnan(GetParam().reference(std::nan(""))));
}

TEST_P(EachFunction, IsTheSameInFoldingAndInTheInterpreter) {
    const ScalarFunction& f = GetParam();
    for (const double x : {0.75, -0.75, 2.5, -1e10, 0.0}) {
        const auto expected = std::bit_cast<uint64_t>(f.reference(x));
        const auto same = [&](double y) {
            return std::bit_cast<uint64_t>(y) == expected || (std::isnan(y) && std::isnan(f.reference(x)));
        };
        EXPECT_TRUE(same(eval_scalar(f.op, DType::F64, DType::F64, {x, 0}).f)) << x;
        ScalarBody body;
        const ScalarNode& folded = body[body.unary(f.op, body.constant(DType::F64, x))];
        EXPECT_EQ(folded.op, ScalarOp::Const);
        EXPECT_TRUE(same(folded.value)) << x;
        ScalarNode node;
        node.op = f.op;
        node.dtype = DType::F64;
        std::vector<double> in(3, x), out(3);
        interp::eval_lanes(node, DType::F64, {in.data()}, {}, {}, {out.data()}, 3);
        EXPECT_TRUE(same(out[0]) && same(out[2])) << x;
    }
}

TEST_P(EachFunction, FollowsItsCurve) {
    const ScalarFunction& f = GetParam();
    const std::vector<Point> graph = graph_of(f);
    int falls = 0, rises = 0;
    for (size_t k = 1; k < graph.size(); ++k) {
        const auto& [x, y] = graph[k - 1];
        const auto& [next_x, next_y] = graph[k];
        falls += next_y < y;
        rises += next_y > y;
        const std::string where = fmt::format("from {} at {} to {} at {}", y, x, next_y, next_x);
        switch (f.curve) {
            case Curve::Steps:
                EXPECT_EQ(y, std::rint(y)) << where;
                EXPECT_LE(std::fabs(y - x), 1) << where;
                EXPECT_LE(y, next_y) << where;
                break;
            case Curve::Increasing:
                EXPECT_TRUE(at_most(y, next_y)) << where;
                break;
            case Curve::Decreasing:
                EXPECT_TRUE(at_most(next_y, y)) << where;
                break;
            case Curve::Convex:
                if (std::isfinite(y) && std::isfinite(next_y)) {
                    EXPECT_TRUE(at_most(f.reference(x / 2 + next_x / 2), y / 2 + next_y / 2)) << where;
                }
                break;
            case Curve::Gentle:
                EXPECT_LE(std::fabs(next_y - y), next_x - x + 1e-15) << where;
                break;
            case Curve::Poles:
                if (next_x - x < 0.1) {
                    EXPECT_TRUE(at_most(y, next_y) || (y > 0 && next_y < 0)) << where;
                }
                break;
        }
    }
    const bool may_fall = f.curve != Curve::Steps && f.curve != Curve::Increasing;
    const bool may_rise = f.curve != Curve::Decreasing;
    EXPECT_EQ(falls > 0, may_fall) << "a narrower curve fits";
    EXPECT_EQ(rises > 0, may_rise) << "a narrower curve fits";
}

/// Not only does no value pass the bounds, but values come close to them.
TEST_P(EachFunction, StaysWithinItsBoundsAndReachesThem) {
    const ScalarFunction& f = GetParam();
    double lowest = HUGE_VAL, highest = -HUGE_VAL;
    for (const auto& [x, y] : graph_of(f)) {
        lowest = std::min(lowest, y);
        highest = std::max(highest, y);
    }
    EXPECT_GE(lowest, f.low);
    EXPECT_LE(highest, f.high);
    EXPECT_TRUE(std::isfinite(f.low) ? lowest < f.low + 0.01 : lowest < -10) << lowest;
    EXPECT_TRUE(std::isfinite(f.high) ? highest > f.high - 0.01 : highest > 10) << highest;
}

TEST_P(EachFunction, HasAnErrorUnlessItRounds) {
    EXPECT_EQ(GetParam().ulp == 0, GetParam().curve == Curve::Steps);
    EXPECT_EQ(rounds_to_integer(GetParam().op), GetParam().curve == Curve::Steps);
}

/// The values of f on random intervals lie in the interval of f(x).
TEST_P(EachFunction, HasIntervalsThatContainItsValues) {
    const ScalarFunction& f = GetParam();
    const Program p = parse_program(
        fmt::format("program p {{\n  input x: f32[4]\n  y: f32[4] = [4] {}(@0) where @0 = x[i0]\n  output y\n}}\n",
                    to_string(f.op)));
    std::mt19937_64 rng(5);
    int bounded = 0;
    for (const double size : {1.0, 3.0, 20.0}) {
        std::uniform_real_distribution<double> any(-size, size);
        for (int k = 0; k < 200; ++k) {
            const auto [low, high] = std::minmax({any(rng), any(rng)});
            const RealInterval x{low, high};
            const RealInterval y = interval_of(p, *p.primitives.begin()->expr(), [&](ValueId) { return x; });
            bounded += y.is_bounded();
            for (int eighths = 0; eighths <= 8; ++eighths) {
                const double value = f.reference(std::min(low + 0.125 * eighths * (high - low), high));
                if (std::isnan(value)) {
                    EXPECT_FALSE(y.is_bounded()) << low << " " << high;
                }
                if (!y.is_bounded()) continue;
                EXPECT_TRUE(at_most(y.low, value)) << value << " on [" << low << ", " << high << "]";
                EXPECT_TRUE(at_most(value, y.high)) << value << " on [" << low << ", " << high << "]";
            }
        }
    }
    EXPECT_EQ(bounded > 0, f.curve != Curve::Poles);
}

}  // namespace
}  // namespace tilewright
