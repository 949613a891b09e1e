// Layout propagation on the examples of ALT §4.2 and §6; programs compute the same in any layouts.

#include "layout/propagate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/random_layout_test.h"
#include "program/builder.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Layout kBlocked = parse_layout("split(1, 4) reorder(0, 1, 3, 4, 2)");  // N C/4 H W 4
const Layout kLast = parse_layout("reorder(0, 2, 3, 1)");                    // N H W C

/// Builds small networks.
struct Network {
    Program program;
    Builder b{program};

    Network() { b.set_source("net", "Net"); }

    ValueId weights(Shape shape) {
        Tensor t(DType::F32, std::move(shape));
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(i * 37 % 19 - 9) * 0.05);
        return b.constant(std::move(t), "weights");
    }

    /// A convolution of [1, in, h, w] to `out` channels, windows of k x k, no padding.
    ValueId conv(ValueId x, int64_t out, int64_t k, int64_t stride = 1) {
        const std::vector<Expr> s = b.shape(x);
        const ValueId w = weights({out, s[1].constant(), k, k});
        TensorExpr e;
        e.extents = {1, out, (s[2].constant() - k) / stride + 1, (s[3].constant() - k) / stride + 1, s[1], k, k};
        e.spatial = 4;
        e.accesses = {{x, {axis(0), axis(4), axis(2) * stride + axis(5), axis(3) * stride + axis(6)}, {}, 0},
                      {w, {axis(1), axis(4), axis(5), axis(6)}, {}, 0}};
        e.reducer = Reducer::Sum;
        e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, DType::F32), e.body.access(1, DType::F32)));
        return b.emit(std::move(e), DType::F32, "conv");
    }

    ValueId relu(ValueId x) { return b.binary(ScalarOp::Max, x, 0.0); }
    ValueId pad(ValueId x) { return b.pad(x, {0, 0, 1, 1}, {0, 0, 1, 1}, 0); }
    PrimitiveId maker(ValueId v) { return program.producers()[v]; }
    Reader image(ValueId conv) { return {maker(conv), 0}; }

    PropagateOptions options() const {
        PropagateOptions o;
        o.fixed = row_major_values(program);
        return o;
    }
    LayoutPlan plan(const LayoutRequests& requests) const { return plan_layouts(program, requests, options()); }

    /// The program in these layouts is valid and computes the same.
    Program holds(const LayoutPlan& layouts) const {
        Program moved = apply_layouts(program, layouts);
        EXPECT_EQ(verify(moved), std::vector<std::string>()) << print(moved);
        const std::vector<Tensor> inputs = random_inputs(program, 3);
        EXPECT_LE(largest_difference(interpret(program, inputs), interpret(moved, inputs)), 1e-6) << print(moved);
        return moved;
    }
};

std::string text(const LayoutPlan& plan, ValueId v) {
    const auto it = plan.values.find(v);
    return it == plan.values.end() ? "" : print(it->second);
}

TEST(Propagate, a_padding_writes_what_the_convolution_reads) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId p = n.pad(x), y = n.conv(p, 4, 3);
    n.b.set_outputs({y});
    const LayoutPlan plan = n.plan({{}, {{n.image(y), kBlocked}}});
    EXPECT_EQ(text(plan, p), print(kBlocked));
    EXPECT_EQ(text(plan, x), "");
    EXPECT_THAT(plan.conversions, IsEmpty());
    n.holds(plan);
}

TEST(Propagate, a_programs_input_is_converted) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId y = n.conv(x, 4, 3), z = n.conv(x, 8, 1);
    n.b.set_outputs({y, z});
    const LayoutPlan plan = n.plan({{}, {{n.image(y), kBlocked}, {n.image(z), kBlocked}}});
    EXPECT_THAT(plan.values, IsEmpty());
    ASSERT_EQ(plan.conversions.size(), 1u);  // one copy for both
    EXPECT_THAT(plan.conversions[0].readers, ElementsAre(n.image(y), n.image(z)));
    EXPECT_EQ(n.holds(plan).primitives.size(), n.program.primitives.size() + 1);
}

TEST(Propagate, elementwise_primitives_keep_the_layout_of_a_convolution) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId y = n.conv(x, 8, 3), r = n.relu(y), t = n.b.unary(ScalarOp::Tanh, r);
    n.b.set_outputs({n.b.reduce(Reducer::Sum, t, {2, 3}, false, "sum")});
    const LayoutPlan plan = n.plan({{{y, kBlocked}}, {}});
    for (const ValueId v : {y, r, t}) EXPECT_EQ(text(plan, v), print(kBlocked));
    EXPECT_THAT(plan.conversions, IsEmpty());
    n.holds(plan);
}

TEST(Propagate, a_simple_primitive_between_two_convolutions_converts) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId y = n.conv(x, 8, 3), r = n.relu(y), z = n.conv(r, 4, 1);
    n.b.set_outputs({z});
    const LayoutPlan plan = n.plan({{{y, kBlocked}}, {{n.image(z), kLast}}});
    EXPECT_EQ(text(plan, y), print(kBlocked));
    EXPECT_EQ(text(plan, r), print(kLast));
    EXPECT_THAT(plan.conversions, IsEmpty());
    n.holds(plan);
}

TEST(Propagate, two_convolutions_get_a_conversion_between_them) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId y = n.conv(x, 8, 3), z = n.conv(y, 4, 1);
    n.b.set_outputs({z});
    const LayoutPlan differ = n.plan({{{y, kBlocked}}, {{n.image(z), kLast}}});
    EXPECT_EQ(text(differ, y), print(kBlocked));
    ASSERT_EQ(differ.conversions.size(), 1u);
    EXPECT_EQ(print(differ.conversions[0].layout), print(kLast));
    n.holds(differ);

    EXPECT_THAT(n.plan({{{y, kBlocked}}, {{n.image(z), kBlocked}}}).conversions, IsEmpty());
    // A producer without a request gets the reader's layout.
    const LayoutPlan given = n.plan({{}, {{n.image(z), kLast}}});
    EXPECT_EQ(text(given, y), print(kLast));
    EXPECT_THAT(given.conversions, IsEmpty());
    n.holds(given);
    // Row-major can be requested too.
    EXPECT_EQ(n.plan({{{y, kBlocked}}, {{n.image(z), Layout()}}}).conversions.size(), 1u);
}

TEST(Propagate, does_not_propagate_onto_another_complex_operators_result) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId y = n.conv(x, 8, 1), r = n.relu(y), z = n.conv(n.relu(r), 8, 1);
    n.b.set_outputs({n.relu(z)});
    EXPECT_EQ(text(n.plan({{{y, kBlocked}}, {}}), z), "");
    // Nor upstream.
    EXPECT_EQ(text(n.plan({{{r, kBlocked}}, {}}), y), "");
}

TEST(Propagate, every_reader_gets_the_layout_of_a_value) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId y = n.conv(x, 8, 3), r = n.relu(y), t = n.b.unary(ScalarOp::Tanh, y),
                  s = n.b.binary(ScalarOp::Add, r, t);
    const ValueId z = n.conv(y, 4, 1);
    n.b.set_outputs({z, n.relu(s)});
    const LayoutPlan plan = n.plan({{{y, kBlocked}}, {}});
    for (const ValueId v : {y, r, t, s}) EXPECT_EQ(text(plan, v), print(kBlocked));
    EXPECT_THAT(plan.conversions, IsEmpty());  // z reads it without a conversion
    n.holds(plan);
}

TEST(Propagate, the_first_reader_wins_and_the_other_gets_a_copy) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId p = n.pad(x), y = n.conv(p, 4, 3), z = n.conv(p, 8, 1);
    n.b.set_outputs({y, z});
    const LayoutPlan plan = n.plan({{}, {{n.image(z), kLast}, {n.image(y), kBlocked}}});
    EXPECT_EQ(text(plan, p), print(kBlocked));
    ASSERT_EQ(plan.conversions.size(), 1u);
    EXPECT_THAT(plan.conversions[0].readers, ElementsAre(n.image(z)));
    n.holds(plan);
}

TEST(Propagate, the_first_of_several_producers_wins) {
    // Y[i] = F(X0[i], X1[i], X2[j])
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId x0 = n.conv(x, 8, 3), x1 = n.conv(x, 8, 3), bias = n.weights({8, 1, 1});
    const ValueId y = n.b.map(
        {x0, x1, bias}, DType::F32,
        [](ScalarBody& b, std::span<const ScalarId> a) {
            return b.binary(ScalarOp::Add, b.binary(ScalarOp::Sub, a[0], a[1]), a[2]);
        },
        "sum");
    n.b.set_outputs({n.b.reduce(Reducer::Max, y, {2, 3}, false, "max")});
    const LayoutPlan both = n.plan({{{x0, kBlocked}, {x1, kLast}}, {}});
    EXPECT_EQ(text(both, y), print(kBlocked));
    EXPECT_EQ(text(both, x1), print(kLast));
    EXPECT_EQ(text(both, bias), "");
    n.holds(both);
}

TEST(Propagate, propagates_upstream_when_the_result_is_tuned_first) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId x0 = n.pad(x), x1 = n.b.unary(ScalarOp::Tanh, n.pad(x)), table = n.weights({1, 8, 8, 8});
    const ValueId y = n.b.binary(ScalarOp::Add, n.b.binary(ScalarOp::Add, x0, x1), table), z = n.conv(y, 4, 3);
    n.b.set_outputs({z});
    const LayoutRequests requests = {{}, {{n.image(z), kBlocked}}};
    const LayoutPlan plan = n.plan(requests);
    for (const ValueId v : {x0, x1, y, table}) EXPECT_EQ(text(plan, v), print(kBlocked));
    EXPECT_EQ(text(plan, x), "");
    const Program moved = n.holds(plan);
    EXPECT_EQ(moved.constants.at(table), to_physical(kBlocked, n.program.constants.at(table)));

    PropagateOptions only_forward = n.options();
    only_forward.upstream = false;
    EXPECT_EQ(plan_layouts(n.program, requests, only_forward).values.size(), 1u);
}

TEST(Propagate, expanding_layouts_need_a_conversion) {
    // Overlapped tiles: 4 rows of outputs of a 3x3 window with stride 1: B = 4 + 2, S = 4.
    const Layout tiles = parse_layout("unfold(2, 6, 4) reorder(0, 2, 1, 3, 4)");
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 4, 8, 5});
    const ValueId r = n.relu(n.pad(x)), y = n.conv(r, 4, 3);
    n.b.set_outputs({y});
    const LayoutPlan plan = n.plan({{}, {{n.image(y), tiles}}});
    EXPECT_THAT(plan.values, IsEmpty());
    ASSERT_EQ(plan.conversions.size(), 1u);
    const Program moved = n.holds(plan);
    // Every window is read from one tile.
    const TensorExpr& conv = *moved.primitives[PrimitiveId(moved.primitives.size() - 1)].expr();
    EXPECT_EQ(conv.accesses[0].index[1].text(), "i2 // 4");
    // The same holds for a padding, and a split that does not divide.
    for (const char* layout : {"pad(3, 0, 3)", "split(1, 3)", "split(3, 4) reorder(0, 1, 3, 2, 4)"}) {
        const LayoutPlan padded = n.plan({{}, {{n.image(y), parse_layout(layout)}}});
        EXPECT_EQ(padded.conversions.size(), 1u) << layout;
        n.holds(padded);
    }
}

/// What `v` holds in the layout, by the program that writes it so.
Tensor written_in(const Network& n, ValueId v, const Layout& layout) {
    Program program = n.program;
    program.outputs = {v};
    LayoutPlan plan;
    plan.values.emplace(v, layout);
    const Program moved = apply_layouts(program, plan);
    EXPECT_EQ(verify(moved), std::vector<std::string>()) << print(moved);
    return interpret(moved, random_inputs(program, 3)).at(0);
}

TEST(Propagate, a_result_can_be_written_in_a_layout_that_expands) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 4, 8, 5});
    const ValueId p = n.pad(x), e = n.b.unary(ScalarOp::Exp, p), y = n.conv(e, 4, 3);
    const ValueId s = n.b.reduce(Reducer::Sum, e, {1}, false, "sum");
    n.b.set_outputs({y, s});
    // Overlapped tiles, zeros around (exp(0) is 1), a split that does not divide; of a map, a window, and a sum.
    for (const ValueId v : {p, e, y, s}) {
        Program program = n.program;
        program.outputs = {v};
        const Tensor logical = interpret(program, random_inputs(program, 3)).at(0);
        for (const char* text : {"unfold(1, 3, 2)", "pad(1, 1, 2)", "split(1, 3) reorder(0, 2, 1, 3)",
                                 "pad(2, 0, 1) unfold(2, 4, 3) reorder(0, 2, 1, 3)"}) {
            Layout layout = parse_layout(text);
            const size_t rank = logical.shape().size();
            if (auto* r = std::get_if<layout::Reorder>(&layout.primitives.back()))
                for (size_t d = r->permutation.size(); d < rank + 1; ++d) r->permutation.push_back(d);
            EXPECT_TRUE(expands(layout, n.program.values[v].shape)) << text;
            EXPECT_LE(largest_difference({to_physical(layout, logical)}, {written_in(n, v, layout)}), 1e-6)
                << text << " of " << n.program.values[v].name;
        }
    }
}

TEST(Propagate, windows_with_strides_are_read_from_one_tile) {
    // V = 2, M = 3, 3 windows a tile: B = V*2 + M = 7, S = V*3 = 6.
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 4, 19, 5});
    const ValueId y = n.conv(x, 4, 3, 2);
    n.b.set_outputs({y});
    const Program moved = n.holds(n.plan({{}, {{n.image(y), parse_layout("unfold(2, 7, 6)")}}}));
    const TensorExpr& conv = *moved.primitives[PrimitiveId(moved.primitives.size() - 1)].expr();
    EXPECT_EQ(conv.accesses[0].index[2].text(), "i2 // 3");
}

TEST(Propagate, constants_are_moved_at_compile_time) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 4, 8, 5});
    const ValueId y = n.conv(x, 8, 3);
    n.b.set_outputs({y});
    const Layout packed = parse_layout("split(0, 3) reorder(0, 2, 3, 4, 1)");  // 8 outputs in blocks of 3, padded
    const LayoutPlan plan = n.plan({{}, {{{n.maker(y), 1}, packed}}});
    const Program moved = n.holds(plan);
    EXPECT_EQ(moved.primitives.size(), n.program.primitives.size());
    ASSERT_EQ(moved.constants.size(), 1u);  // the old one is dropped
    EXPECT_EQ(moved.constants.begin()->second.shape(), (Shape{3, 4, 3, 3, 3}));
}

TEST(Propagate, stops_where_the_shape_changes) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId y = n.conv(x, 8, 1);
    TensorExpr pool;
    pool.extents = {1, 8, 3, 3, 2, 2};
    pool.spatial = 4;
    pool.accesses = {{y, {axis(0), axis(1), axis(2) * 2 + axis(4), axis(3) * 2 + axis(5)}, {}, 0}};
    pool.reducer = Reducer::Max;
    pool.body.set_root(pool.body.access(0, DType::F32));
    const ValueId q = n.b.emit(std::move(pool), DType::F32, "pool"), r = n.relu(q);
    const ValueId mean = n.b.reduce(Reducer::Sum, r, {3}, false, "sum"), t = n.b.transpose(r, {0, 2, 1, 3});
    n.b.set_outputs({n.relu(mean), n.relu(t)});
    const std::map<ValueId, Layout> chosen = {{y, kBlocked}};
    EXPECT_EQ(propagate_layouts(n.program, chosen, n.options()).size(), 1u);

    // Unless the dimension of the layout is kept: the channels of a pooling, of its sum over rows, of a transposition.
    PropagateOptions kept = n.options();
    kept.kept_dimensions = true;
    LayoutPlan plan;
    plan.values = propagate_layouts(n.program, chosen, kept);
    for (const ValueId v : {q, r}) EXPECT_EQ(text(plan, v), print(kBlocked));
    EXPECT_EQ(text(plan, mean), "split(1, 4) reorder(0, 1, 3, 2)");
    EXPECT_EQ(text(plan, t), "split(2, 4) reorder(0, 1, 2, 4, 3)");
    n.holds(plan);
    // Channels last.
    plan.values = propagate_layouts(n.program, {{y, kLast}}, kept);
    EXPECT_EQ(text(plan, mean), "reorder(0, 2, 1)");
    n.holds(plan);
}

TEST(Propagate, fixed_values_stay_row_major) {
    Network n;
    const ValueId x = n.b.input("x", DType::F32, {1, 8, 6, 6});
    const ValueId y = n.conv(x, 8, 1), r = n.relu(y);
    n.b.set_outputs({r, n.relu(n.relu(r))});
    const auto layouts = propagate_layouts(n.program, {{y, kBlocked}, {r, kBlocked}}, n.options());
    EXPECT_EQ(layouts.size(), 1u);
    EXPECT_EQ(layouts.count(y), 1u);
}

TEST(Propagate, expansion) {
    const std::vector<Expr> shape = {6, symbol("n")};
    EXPECT_FALSE(expands(parse_layout("split(0, 3) reorder(0, 2, 1)"), shape));
    EXPECT_FALSE(expands(parse_layout("fuse(0, 2)"), shape));
    EXPECT_TRUE(expands(parse_layout("split(0, 4)"), shape));
    EXPECT_TRUE(expands(parse_layout("split(1, 4)"), shape));  // unknown at compile time
    EXPECT_TRUE(expands(parse_layout("pad(0, 0, 1)"), shape));
    EXPECT_FALSE(expands(parse_layout("pad(0, 0, 0)"), shape));
    EXPECT_TRUE(expands(parse_layout("unfold(0, 3, 3)"), shape));
}

/// Random requests for any values: the program computes the same.
TEST(PropagateProperty, programs_mean_the_same_in_any_layout) {
    size_t laid = 0, converted = 0;
    for (uint64_t seed = 0; seed < 500; ++seed) {
        const Program program = random_program(seed, 2 + static_cast<int>(seed % 8));
        LayoutChoice choice(seed);
        LayoutRequests requests;
        for (const PrimitiveId id : program.primitives.ids()) {
            const Primitive& p = program.primitives[id];
            if (choice.upto(0, 2) == 0)
                requests.written[p.outputs[0]] = choice.layout(program.values[p.outputs[0]].shape.size(), true);
            for (size_t k = 0; k < p.expr()->accesses.size(); ++k)
                if (choice.upto(0, 3) == 0)
                    requests.read[{id, k}] =
                        choice.layout(program.values[p.expr()->accesses[k].value].shape.size(), false);
        }
        PropagateOptions options;
        options.fixed = row_major_values(program);
        options.kept_dimensions = seed % 2 == 0;
        const LayoutPlan plan = plan_layouts(program, requests, options);
        laid += plan.values.size();
        converted += plan.conversions.size();
        const Program moved = apply_layouts(program, plan);
        ASSERT_EQ(verify(moved), std::vector<std::string>()) << "seed " << seed << "\n" << print(moved);
        const std::vector<Tensor> inputs = random_inputs(program, seed);
        ASSERT_LE(largest_difference(interpret(program, inputs), interpret(moved, inputs)), 1e-6)
            << "seed " << seed << "\n"
            << print(program) << print(moved);
    }
    EXPECT_GT(laid, 500u);
    EXPECT_GT(converted, 500u);
}

}  // namespace
}  // namespace tilewright
