// Loops are cut where conditions change, as long as the code stays small.

#include "tile/cuts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The cuts of a program's only stage, as text, per axis.
std::vector<std::vector<std::string>> cuts(const std::string& values, const std::string& stage,
                                           const std::function<void(CutQuestion&)>& change = {}) {
    const Program program = parse_program("program cut {\n" + values + "\n  y: " + stage + "  ; y \"\"\n  output y\n}");
    const TensorExpr& e = *program.primitives[PrimitiveId(0)].expr();
    const Ranges ranges = e.ranges();
    CutQuestion q;
    q.expr = &e;
    q.ranges = &ranges;
    q.may_cut.assign(e.spatial, true);
    q.checked.assign(e.accesses.size(), false);
    if (change) change(q);
    std::vector<std::vector<std::string>> out;
    for (const std::vector<Expr>& axis_cuts : choose_cuts(q)) {
        out.emplace_back();
        for (const Expr& c : axis_cuts) out.back().push_back(c.text());
    }
    return out;
}

const std::string kImage = "  input x: f32[7, 9]";
const std::string kWindow =
    "f32[7, 9] = [7, 9] sum(i2 < 3, i3 < 3) @0 where @0 = x[i0 + i2 - 1, i1 + i3 - 1] when i0 + i2 - 1 >= 0 and -i0 - "
    "i2 + 7 >= 0 and i1 + i3 - 1 >= 0 and -i1 - i3 + 9 >= 0 else 0";

TEST(Cuts, of_a_padded_window_are_behind_the_first_and_before_the_last_place) {
    // Two reduction axes, which are never cut, follow.
    EXPECT_THAT(cuts(kImage, kWindow), ElementsAre(ElementsAre("1", "6"), ElementsAre("1", "8"), IsEmpty(), IsEmpty()));
}

TEST(Cuts, of_a_strided_window_count_steps_not_elements) {
    // Window 2 * i0 + i1 - 3 of 5 taps over 10 elements: below 3 / 2 it starts outside, from (9 + 3 - 4) // 2 + 1 on it
    // ends outside.
    EXPECT_THAT(cuts("  input x: f32[10]",
                     "f32[6] = [6] sum(i1 < 5) @0 where @0 = x[2*i0 + i1 - 3] when 2*i0 + i1 - 3 >= 0 and -2*i0 - i1 "
                     "+ 12 >= 0 else 0"),
                ElementsAre(ElementsAre("2", "5"), IsEmpty()));
}

TEST(Cuts, along_vectors_are_where_the_first_ends_and_the_last_begins) {
    const auto along = [](int64_t width, int64_t lanes) {
        return cuts(fmt::format("  input x: f32[{}]", width),
                    fmt::format("f32[{0}] = [{0}] sum(i1 < 3) @0 where @0 = x[i0 + i1 - 1] when i0 + i1 - 1 >= 0 and "
                                "-i0 - i1 + {0} >= 0 else 0",
                                width),
                    [&](CutQuestion& q) {
                        q.vector_axis = 0;
                        q.lanes = lanes;
                    })[0];
    };
    EXPECT_THAT(along(56, 16), ElementsAre("16", "48"));
    EXPECT_THAT(along(64, 16), ElementsAre("16", "48"));
    EXPECT_THAT(along(33, 16), ElementsAre("16", "32"));
    EXPECT_THAT(along(20, 16), ElementsAre("16"));
    EXPECT_THAT(along(16, 16), IsEmpty());  // one vector
    EXPECT_THAT(along(9, 16), IsEmpty());
    // Cuts in the middle of a row do not move.
    EXPECT_EQ(cut_beside_vectors(24, 64, 16), 24);
}

TEST(Cuts, of_a_concatenation_are_where_the_operand_changes) {
    const std::string values = "  input x: f32[64, 8]\n  input z: f32[32, 8]";
    const std::string stage =
        "f32[96, 8] = [96, 8] select(lt(index(i0), 64), @0, @1) where @0 = x[i0, i1] when -i0 + 63 >= 0 else 0, @1 = "
        "z[i0 - 64, i1] when i0 - 64 >= 0 else 0";
    EXPECT_THAT(cuts(values, stage), ElementsAre(ElementsAre("64"), IsEmpty()));
    // Also where Loads evaluate the conditions and only the Select is left.
    EXPECT_THAT(cuts(values, stage,
                     [](CutQuestion& q) {
                         q.checked = {true, true};
                     }),
                ElementsAre(ElementsAre("64"), IsEmpty()));
}

TEST(Cuts, stand_over_symbols_behind_those_that_are_numbers) {
    EXPECT_THAT(cuts("  input x: f32[$n]",
                     "f32[$n + 2] = [$n + 2] @0 where @0 = x[i0 - 1] when i0 - 1 >= 0 and $n - i0 >= 0 else 0"),
                ElementsAre(ElementsAre("1", "$n + 1")));
}

TEST(Cuts, are_made_only_where_they_are_asked_for) {
    EXPECT_THAT(cuts(kImage, kWindow,
                     [](CutQuestion& q) {
                         q.may_cut = {true, false};
                     }),
                ElementsAre(ElementsAre("1", "6"), IsEmpty(), IsEmpty(), IsEmpty()));
    EXPECT_THAT(cuts(kImage, kWindow, [](CutQuestion& q) { q.checked = {true}; }),
                ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(Cuts, are_left_out_where_conditions_hold_everywhere) {
    EXPECT_THAT(cuts("  input x: f32[8]", "f32[8] = [8] @0 where @0 = x[i0] when i0 >= 0 and -i0 + 7 >= 0 else 0"),
                ElementsAre(IsEmpty()));
}

TEST(Cuts, are_left_out_where_the_code_would_grow_too_much) {
    EXPECT_THAT(cuts(kImage, kWindow, [](CutQuestion& q) { q.tile_points = 100000; }),
                ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), IsEmpty()));
}

/// n operands of `rows` x 32 side by side, then a ReLU: the form of concatenations.
std::string concatenation(size_t n, int64_t rows) {
    std::string inputs, body = fmt::format("@{}", n - 1), reads;
    for (size_t k = 0; k < n; ++k) {
        inputs += fmt::format("  input x{}: f32[{}, 32]\n", k, rows);
        reads += fmt::format("{}@{} = x{}[i0, i1 - {}] when i1 - {} >= 0 and {} - i1 >= 0 else 0", k > 0 ? ", " : "", k,
                             k, 32 * k, 32 * k, 32 * k + 31);
    }
    for (size_t k = n - 1; k-- > 0;) body = fmt::format("select(lt(index(i1 - {}), 0), @{}, {})", 32 * k + 32, k, body);
    return fmt::format("program concatenation {{\n{}  y: f32[{}, {}] = [{}, {}] max({}, 0.0) where {}\n  output y\n}}",
                       inputs, rows, 32 * n, rows, 32 * n, body, reads);
}

const TensorExpr& expr_of(const Program& p) { return *p.primitives[PrimitiveId(0)].expr(); }

/// The code of a concatenation's subrange is that of one operand, so that many operands are cut as well as few.
TEST(Cuts, of_concatenations_count_the_code_of_each_piece) {
    const auto cuts_of = [](size_t n, size_t tile_points) {
        const Program p = parse_program(concatenation(n, 8));
        const Ranges ranges = expr_of(p).ranges();
        CutQuestion q;
        q.expr = &expr_of(p);
        q.ranges = &ranges;
        q.may_cut = {true, true};
        q.checked.assign(n, false);
        q.tile_points = tile_points;
        return choose_cuts(q)[1].size();
    };
    EXPECT_EQ(cuts_of(40, 14), 39u);
    EXPECT_EQ(cuts_of(71, 8), 70u);
    EXPECT_EQ(cuts_of(80, 1), 0u) << "too many pieces";
    EXPECT_EQ(cuts_of(40, 200), 0u) << "too much code";
}

TEST(Needed, is_one_operand_where_a_concatenation_is_cut_and_all_where_it_is_not) {
    const Program p = parse_program(concatenation(3, 8));
    const TensorExpr& e = expr_of(p);
    const auto share = [&](const Needed& n) {
        double of_reads = 0;
        for (const ScalarId id : e.body.nodes().ids())
            if (e.body[id].op == ScalarOp::Access) of_reads += n.nodes[id.index()];
        return of_reads;
    };
    const std::vector<std::vector<int64_t>> all = choice_cuts(e);
    EXPECT_THAT(all, ElementsAre(IsEmpty(), ElementsAre(32, 64)));
    const Needed cut = *needed_between(e, {8, 96}, all);
    EXPECT_NEAR(share(cut), 1, 1e-9);
    for (const auto& axes : cut.accesses) {
        EXPECT_EQ(axes[0], 1);
        EXPECT_NEAR(axes[1], 1.0 / 3, 1e-9);
    }
    EXPECT_NEAR(share(*needed_between(e, {8, 96}, {})), 3, 1e-9);
    // Cut at 64 alone, two thirds of the points have two operands each.
    EXPECT_NEAR(share(*needed_between(e, {8, 96}, {{}, {64}})), 2 * 2.0 / 3 + 1.0 / 3, 1e-9);
    const Program plain = parse_program(
        "program p {\n  input x: f32[8]\n  y: f32[8] = [8] exp(@0) where @0 = x[i0]\n"
        "  output y\n}");
    EXPECT_FALSE(needed_between(expr_of(plain), {8}, {}).has_value());
}

/// Channels in blocks of 512: the condition is on two axes.
TEST(Needed, is_one_operand_in_boxes_where_a_condition_on_two_axes_is_decided) {
    const Program p = parse_program(R"(program concatenation {
  input x: f32[768, 8]
  input y: f32[256, 8]
  z: f32[2, 512, 8] = [2, 512, 8] select(lt(index(512*i0 + i1 - 768), 0), @0, @1) where @0 = x[512*i0 + i1, i2] when 767 - 512*i0 - i1 >= 0 else 0, @1 = y[512*i0 + i1 - 768, i2] when 512*i0 + i1 - 768 >= 0 else 0
  output z
})");
    const TensorExpr& e = expr_of(p);
    const std::vector<std::vector<int64_t>> all = choice_cuts(e);
    EXPECT_THAT(all, ElementsAre(ElementsAre(1), ElementsAre(256), IsEmpty()));
    const auto share = [&](const std::vector<std::vector<int64_t>>& cuts, uint32_t slot) {
        const Needed n = *needed_between(e, {2, 512, 8}, cuts);
        double sum = 0;
        for (const ScalarId id : e.body.nodes().ids())
            if (e.body[id].op == ScalarOp::Access && e.body[id].slot == slot) sum += n.nodes[id.index()];
        return sum;
    };
    EXPECT_NEAR(share(all, 0), 0.75, 1e-9);
    EXPECT_NEAR(share(all, 1), 0.25, 1e-9);
    EXPECT_NEAR(share({{1}, {}, {}}, 0), 1, 1e-9) << "the second block reads both";
    EXPECT_NEAR(share({{1}, {}, {}}, 1), 0.5, 1e-9);
}

TEST(Cuts, are_not_made_for_conditions_on_data) {
    EXPECT_THAT(cuts("  input x: f32[8]\n  input at: i64[8]",
                     "f32[8] = [8] @1 where @0 = at[i0], @1 = x[@0] when @0 + i0 - 3 >= 0 else 0"),
                ElementsAre(IsEmpty()));
}

TEST(IndexComparison, is_a_comparison_of_indices_with_indices_or_whole_numbers) {
    struct Case {
        ScalarOp op;
        const char* expression;
        bool negated;
    };
    for (const Case& c : {Case{ScalarOp::Lt, "i0 - 5", true}, Case{ScalarOp::Le, "-i0 + 5", false},
                          Case{ScalarOp::Gt, "-i0 + 5", true}, Case{ScalarOp::Ge, "i0 - 5", false}}) {
        ScalarBody body;
        const ScalarId id = body.binary(c.op, body.index(axis(0)), body.int_constant(DType::I64, 5));
        const auto condition = index_condition(body, id);
        ASSERT_TRUE(condition.has_value());
        EXPECT_EQ(condition->expression, parse_expr(c.expression));
        EXPECT_EQ(condition->negated, c.negated);
    }
    ScalarBody body;
    const ScalarId x = body.access(0, DType::F32), y = body.access(1, DType::F32);
    EXPECT_FALSE(index_condition(body, body.binary(ScalarOp::Lt, x, y)).has_value());
    EXPECT_FALSE(
        index_condition(body, body.binary(ScalarOp::Eq, body.index(axis(0)), body.index(axis(1)))).has_value());
}

}  // namespace
}  // namespace tilewright
