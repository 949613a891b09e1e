// Constant-coefficient linear transforms: recognition and operation counts.

#include "program/constant_transform.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fmt/format.h>

#include <stdexcept>

namespace tilewright {
namespace {

/// The one expression of a program with input x: f32[shape] and result y: f32[shape].
TensorExpr expression(const std::string& x, const std::string& y, const std::string& text) {
    const Program p = parse_program(
        fmt::format("program p {{\n  input x: f32[{}]\n  y: f32[{}] = {}  ; y \"\"\n  output y\n}}\n", x, y, text));
    EXPECT_EQ(verify(p), std::vector<std::string>());
    return *p.primitives[PrimitiveId(0)].expr();
}

/// The linear transform of the expression.
ConstantTransform map_of(const TensorExpr& e) {
    const auto map = constant_transform(e);
    if (!map) throw std::logic_error("no sum weighed by known numbers");
    return *map;
}

/// For one line of the terms.
std::vector<double> rows_of(const SharedSums& s, const std::vector<double>& line) {
    std::vector<double> nodes = line;
    for (const auto& terms : s.sums) {
        double v = 0;
        for (const auto& [node, weight] : terms) v += nodes.at(node) * weight;
        nodes.push_back(v);
    }
    std::vector<double> out;
    out.reserve(s.rows.size());
    for (const auto& node : s.rows) out.push_back(node ? nodes.at(*node) : 0);
    return out;
}
std::vector<double> rows_of(const ConstantTransform& m, const std::vector<double>& line) {
    std::vector<double> out(m.row_count(), 0);
    for (size_t r = 0; r < out.size(); ++r)
        for (size_t c = 0; c < line.size(); ++c) out[r] += m.weights[r * line.size() + c] * line[c];
    return out;
}

/// B^T of Winograd's F(4, 3).
constexpr const char* kB =
    "table{4, 0, -5, 0, 1, 0, 0, -4, -4, 1, 1, 0, 0, 4, -4, -1, 1, 0, 0, -2, -1, 2, 1, 0, 0, 2, -1, -2, 1, 0, 0, 4, "
    "0, -5, 0, 1}";

TEST(ConstantTransform, shares_common_subexpressions_of_rows) {
    const TensorExpr e = expression(
        "6, 16", "6, 16", fmt::format("[6, 16] sum(i2 < 6) weigh({}(index(6*i0 + i2)), @0) where @0 = x[i2, i1]", kB));
    const ConstantTransform map = map_of(e);
    EXPECT_EQ(map.rows, std::vector<uint32_t>{0});
    EXPECT_EQ(map.columns, std::vector<uint32_t>{2});
    EXPECT_EQ(share_sums(map).operations(), 12U);  // for 22 non-zero weights
}

TEST(ConstantTransform, is_applied_along_one_axis_after_another) {
    const TensorExpr e = expression(
        "6, 6, 16", "6, 6, 16",
        fmt::format("[6, 6, 16] sum(i3 < 6, i4 < 6) weigh(mul({0}(index(6*i0 + i3)), {0}(index(6*i1 + i4))), @0) "
                    "where @0 = x[i3, i4, i2]",
                    kB));
    const ConstantTransform map = map_of(e);
    EXPECT_EQ(map.row_count(), 36U);
    EXPECT_EQ(share_sums(map).operations(), 144U);  // instead of 484
    EXPECT_EQ(map_size(e).value_or(MapSize()).operations, 144);
}

TEST(ConstantTransform, numbers_rows_and_columns_with_the_last_axis_fastest) {
    const TensorExpr e = expression(
        "2, 3, 16", "4, 16",
        "[4, 16] sum(i2 < 2, i3 < 3) weigh(table{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}(index(6*(i0 % 2) + 3*i2 + i3)),"
        " @0) where @0 = x[i2, i3, i1]");
    const ConstantTransform map = map_of(e);
    EXPECT_EQ(map.row_at({3, 7, 0, 0}), 1U);  // two rows, periodically
    std::vector<int64_t> axes = {3, 7, 0, 0};
    map.to_column(5, axes);
    EXPECT_EQ(axes, (std::vector<int64_t>{3, 7, 1, 2}));
    EXPECT_EQ(map.weights.at(1 * map.column_count() + 5), 12);
}

TEST(ConstantTransform, rejects_terms_that_depend_on_rows_and_data_dependent_weights) {
    EXPECT_FALSE(constant_transform(
        expression("8", "4", "[4] sum(i1 < 3) weigh(table{1, 2, 3}(index(i1 + i0)), @0) where @0 = x[i0 + i1]")));
    EXPECT_FALSE(constant_transform(expression("4, 3", "4", "[4] sum(i1 < 3) weigh(@0, @0) where @0 = x[i0, i1]")));
    EXPECT_FALSE(constant_transform(expression(
        "3, 4", "2, 4", "[2, 4] sum(i2 < 3) mul(table{1, 2, 3, 4, 5, 6}(index(3*i0 + i2)), @0) where @0 = x[i2, i1]")));
    EXPECT_FALSE(constant_transform(expression(
        "3, 4", "2, 4", "[2, 4] sum(i2 < 3) weigh(table{1, 2, inf, 4}(index(3*i0 + i2)), @0) where @0 = x[i2, i1]")));
}

TEST(ConstantTransform, shared_sums_compute_the_rows) {
    rc::check("of any map, and of products of maps along several axes", [] {
        ConstantTransform m;
        const bool nested = *rc::gen::arbitrary<bool>();
        const auto weights = [](int64_t n) {
            return *rc::gen::container<std::vector<int>>(static_cast<size_t>(n), rc::gen::inRange(-2, 3));
        };
        for (int k = *rc::gen::inRange(1, 4); k > 0; --k) {
            m.row_extents.push_back(*rc::gen::inRange(1, 5));
            m.column_extents.push_back(*rc::gen::inRange(1, 5));
        }
        const auto total = static_cast<int64_t>(m.row_count() * m.column_count());
        if (!nested) {
            for (const int w : weights(total)) m.weights.push_back(w);
        } else {
            std::vector<std::vector<int>> along;
            along.reserve(m.row_extents.size());
            for (size_t k = 0; k < m.row_extents.size(); ++k)
                along.push_back(weights(m.row_extents[k] * m.column_extents[k]));
            for (size_t r = 0; r < m.row_count(); ++r)
                for (size_t c = 0; c < m.column_count(); ++c) {
                    auto row = static_cast<int64_t>(r), column = static_cast<int64_t>(c);
                    double w = 1;
                    for (size_t k = m.row_extents.size(); k-- > 0;) {
                        w *= along[k][static_cast<size_t>(row % m.row_extents[k] * m.column_extents[k] +
                                                          column % m.column_extents[k])];
                        row /= m.row_extents[k];
                        column /= m.column_extents[k];
                    }
                    m.weights.push_back(w);
                }
        }
        std::vector<double> line;
        line.reserve(m.column_count());
        for (size_t c = 0; c < m.column_count(); ++c) line.push_back(*rc::gen::inRange(-8, 9));
        const SharedSums shared = share_sums(m);
        RC_ASSERT(rows_of(shared, line) == rows_of(m, line));
        const auto weighed = std::count_if(m.weights.begin(), m.weights.end(), [](double w) { return w != 0; });
        RC_ASSERT(static_cast<std::ptrdiff_t>(shared.operations()) <= weighed);
    });
}

TEST(ConstantTransform, zero_weights_drop_their_term_for_every_value) {
    const Program p = parse_program(R"(program p {
  input x: f32[3]
  y: f32[2] = [2] sum(i1 < 3) weigh(table{1, 0, 2, 0, 3, 0}(index(3*i0 + i1)), @0) where @0 = x[i1]  ; y ""
  output y
}
)");
    Tensor x(DType::F32, {3});
    x.set(0, HUGE_VAL);
    x.set(1, 5);
    x.set(2, 1);
    const Tensor y = interpret(p, {x})[0];
    EXPECT_EQ(y.get(0), HUGE_VAL);
    EXPECT_EQ(y.get(1), 15);
}

}  // namespace
}  // namespace tilewright
