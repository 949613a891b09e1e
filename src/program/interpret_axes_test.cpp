// Axes that blocked layouts divide: which plans they give, and that results keep their bits.

#include "program/interpret_axes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "program/interpret_frame.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using namespace interp;

/// Hides an axis, so that it is not split: nothing else that chooses lanes distinguishes max(i, 0) // 16 from i // 16.
Expr hidden(Expr e) { return max(e, 0); }

const TensorExpr& last_expr(const Program& p) { return *p.primitives[PrimitiveId(p.primitives.size() - 1)].expr(); }

/// The plan of the program's last expression for operands of zeros.
struct Planned {
    TensorExpr expr;
    Plan plan;
    Frame body;

    Planned(const Program& p, const Bindings& bindings = {}) : expr(last_expr(p)) {
        std::vector<Tensor> operands;
        for (const Access& a : expr.accesses)
            operands.emplace_back(p.values[a.value].dtype, evaluate(p.values[a.value].shape, bindings));
        const Value& value = p.values[p.primitives[PrimitiveId(p.primitives.size() - 1)].outputs[0]];
        const Tensor out(value.dtype, evaluate(value.shape, bindings));
        plan = make_plan(expr, operands, evaluate(expr.extents, bindings), out, bindings);
        body = make_frame(plan, expr.body, plan.body_index, plan.lane_axis);
    }
    bool writes_affinely() const { return plan.accesses[plan.output()].address.registers.empty(); }
};

Program parsed(const std::string& text) {
    const Program p = parse_program(text);
    EXPECT_EQ(verify(p), std::vector<std::string>()) << text;
    return p;
}

/// A convolution with data, weights and result in blocks of 16 channels.
Program blocked_convolution(int in, int out, const std::string& channels = "i3", const std::string& results = "i0") {
    return parsed(fmt::format(R"(program t {{
  input x: f32[{0}, 9, 9, 16]
  input w: f32[{1}, {0}, 3, 3, 16, 16]
  y: f32[{1}, 7, 7, 16] = [{3}, 7, 7] -> [i0 // 16, i1, i2, i0 % 16] sum(i3 < {2}, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[{4} // 16, i1 + i4, i2 + i5, {4} % 16], @1 = w[{5} // 16, {4} // 16, i4, i5, {4} % 16, {5} % 16]
  output y
}})",
                              in / 16, out / 16, in, out, channels, results));
}

TEST(InterpretAxes, blocked_convolutions_are_sums_of_products) {
    for (const auto& [in, out] : {std::pair(32, 64), {64, 32}, {16, 48}, {128, 16}}) {
        const Planned p(blocked_convolution(in, out));
        EXPECT_TRUE(p.body.products) << in << " -> " << out;
        EXPECT_TRUE(product_block(p.plan, p.body).has_value()) << in << " -> " << out;
        EXPECT_TRUE(p.writes_affinely()) << in << " -> " << out;
    }
    EXPECT_FALSE(Planned(blocked_convolution(32, 64, "max(i3, 0)", "max(i0, 0)")).body.products) << "not split";
}

TEST(InterpretAxes, blocked_weights_alone_are_split) {
    const Planned p(parsed(R"(program t {
  input x: f32[49, 64]
  input w: f32[2, 64, 16]
  y: f32[49, 32] = [32, 49] -> [i1, i0] sum(i2 < 64) mul(@0, @1) where @0 = x[i1, i2], @1 = w[i0 // 16, i2, i0 % 16]
  output y
})"));
    EXPECT_EQ(p.plan.extents, (std::vector<int64_t>{2, 16, 49, 64}));
    EXPECT_TRUE(p.body.products);
    EXPECT_TRUE(product_block(p.plan, p.body).has_value());
}

/// i0 = 32*a + 16*b + c; the third access reads blocks of 16 of the second half.
TEST(InterpretAxes, several_divisors_of_an_axis_are_nested) {
    const Planned p(parsed(R"(program t {
  input a: f32[2, 7, 32]
  input b: f32[4, 7, 16]
  input c: f32[8, 7, 16]
  y: f32[64, 7] = [64, 7] add(add(@0, @1), @2) where @0 = a[i0 // 32, i1, i0 % 32], @1 = b[i0 // 16, i1, i0 % 16], @2 = c[(i0 + 64) // 16, i1, (i0 + 64) % 16]
  output y
})"));
    EXPECT_EQ(p.plan.extents, (std::vector<int64_t>{2, 2, 16, 7}));
    for (const AccessPlan& a : p.plan.accesses) EXPECT_TRUE(a.address.registers.empty());
}

TEST(InterpretAxes, divisions_that_a_split_does_not_make_affine_stay) {
    const Planned p(parsed(R"(program t {
  input a: f32[3, 16]
  input b: f32[16, 4]
  y: f32[48] = [48] add(@0, @1) where @0 = a[i0 // 16, i0 % 16], @1 = b[(i0 + 3) // 4 % 16, i0 // 24]
  output y
})"));
    EXPECT_EQ(p.plan.extents, (std::vector<int64_t>{2, 24}));
    EXPECT_EQ(p.plan.accesses[0].address.registers.size(), 2u) << "16 does not divide 24";
    EXPECT_EQ(p.plan.accesses[1].address.registers.size(), 1u);
    const Planned odd(parsed(R"(program t {
  input a: f32[3, 16]
  y: f32[40] = [40] @0 where @0 = a[i0 // 16, i0 % 16]
  output y
})"));
    EXPECT_EQ(odd.plan.extents, std::vector<int64_t>{40}) << "16 does not divide 40";
}

TEST(InterpretAxes, a_symbolic_extent_is_split_where_its_value_is_divisible) {
    const Program p = parsed(R"(program t {
  input a: f32[4, 3, 16]
  input size: f32[$n]
  y: f32[$n, 3] = [$n, 3] add(@0, @1) where @0 = a[i0 // 16, i1, i0 % 16], @1 = size[i0]
  output y
})");
    const Var n = *symbol("n").as_var();
    EXPECT_EQ(Planned(p, {{n, 64}}).plan.extents, (std::vector<int64_t>{4, 16, 3}));
    EXPECT_EQ(Planned(p, {{n, 40}}).plan.extents, (std::vector<int64_t>{40, 3}));
    EXPECT_EQ(Planned(p, {{n, 16}}).plan.extents, (std::vector<int64_t>{16, 3})) << "affine already";
}

TEST(InterpretAxes, products_added_in_partial_sums_keep_their_lanes) {
    const Planned p(parsed(R"(program t {
  input x: f32[3, 2048]
  input w: f32[32, 2048]
  y: f32[2, 3, 16] = [3, 32] -> [i1 // 16, i0, i1 % 16] sum(i2 < 2048) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1, i2]
  output y
})"));
    EXPECT_EQ(p.plan.extents, (std::vector<int64_t>{3, 32, 2048}));
    EXPECT_EQ(p.plan.lane_axis, 2u);
}

TEST(InterpretAxes, a_long_reduction_with_short_rows_keeps_its_lanes) {
    const Planned p(parsed(R"(program t {
  input x: f32[128, 3, 16]
  y: f32[3] = [3] sum(i1 < 2048) @0 where @0 = x[i1 // 16, i0, i1 % 16]
  output y
})"));
    EXPECT_EQ(p.plan.extents, (std::vector<int64_t>{3, 2048}));
    EXPECT_EQ(p.plan.lane_axis, 1u);
}

class Source {
  public:
    explicit Source(uint64_t seed) : rng_(seed) {}
    size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }
    bool chance(double p) { return std::bernoulli_distribution(p)(rng_); }
    template <class T>
    T pick(std::initializer_list<T> list) {
        return *(list.begin() + static_cast<std::ptrdiff_t>(below(list.size())));
    }
    Tensor tensor(DType t, Shape shape) {
        Tensor r(t, std::move(shape));
        std::normal_distribution<double> real;
        for (int64_t i = 0; i < r.count(); ++i)
            is_float(t) ? r.set(i, real(rng_)) : r.set(i, static_cast<int64_t>(below(200)));
        return r;
    }

  private:
    std::mt19937_64 rng_;
};

/// The index of a tensor that some axes address in blocks.
struct BlockedIndex {
    std::vector<Expr> index, unsplit;  ///< `unsplit` with hidden axes
    Shape shape;
};

BlockedIndex blocked_index(Source& s, const std::vector<int64_t>& extents, const std::vector<size_t>& axes) {
    BlockedIndex r;
    const auto add = [&](Expr e, Expr unsplit, int64_t length) {
        const size_t at = s.below(r.index.size() + 1);
        r.index.insert(r.index.begin() + static_cast<std::ptrdiff_t>(at), e);
        r.unsplit.insert(r.unsplit.begin() + static_cast<std::ptrdiff_t>(at), unsplit);
        r.shape.insert(r.shape.begin() + static_cast<std::ptrdiff_t>(at), length);
    };
    for (const size_t k : axes) {
        const int64_t by = s.pick<int64_t>({2, 3, 4, 8, 12, 16});
        if (!s.chance(0.6) || extents[k] % by != 0 || extents[k] == by) {
            add(axis(k), axis(k), extents[k]);
            continue;
        }
        add(floor_div(axis(k), by), floor_div(hidden(axis(k)), by), extents[k] / by);
        add(mod(axis(k), by), mod(hidden(axis(k)), by), by);
    }
    return r;
}

/// An expression with blocked operands and result, and the same one with hidden axes.
struct BlockedCase {
    TensorExpr expr, unsplit;
    std::vector<Tensor> operands;
    DType dtype = DType::F32;
    Shape shape;

    explicit BlockedCase(uint64_t seed) {
        Source s(seed);
        std::vector<int64_t> extents;
        const size_t spatial = 1 + s.below(3), reduced = s.below(3);
        int64_t points = 1;
        for (size_t k = 0; k < spatial + reduced; ++k) {
            extents.push_back(k < spatial ? s.pick<int64_t>({3, 12, 16, 32, 48}) : s.pick<int64_t>({48, 64, 96}));
            if (points * extents.back() > 10000) extents.back() = 4;
            points *= extents.back();
        }
        expr.spatial = spatial;
        expr.extents.assign(extents.begin(), extents.end());
        dtype = s.pick({DType::F32, DType::F32, DType::F64, DType::F16, DType::I32});
        if (reduced > 0) expr.reducer = s.pick({Reducer::Sum, Reducer::Sum, Reducer::Prod, Reducer::Max});
        unsplit = expr;
        for (int k = 0; k < 2; ++k) {
            std::vector<size_t> axes;
            for (size_t a = 0; a < extents.size(); ++a)
                if (s.chance(0.8)) axes.push_back(a);
            const BlockedIndex read = blocked_index(s, extents, axes);
            operands.push_back(s.tensor(dtype, read.shape));
            expr.accesses.push_back({ValueId(0), read.index, {}, 0});
            unsplit.accesses.push_back({ValueId(0), read.unsplit, {}, 0});
        }
        std::vector<size_t> axes;
        for (size_t a = 0; a < spatial; ++a) axes.push_back(a);
        const BlockedIndex written = blocked_index(s, extents, axes);
        expr.output_index = written.index;
        unsplit.output_index = written.unsplit;
        shape = written.shape;
        ScalarBody& b = expr.body;
        const DType t = compute_type(dtype);
        const auto read = [&](uint32_t k) { return b.access(k, dtype); };
        ScalarId root = b.binary(s.pick({ScalarOp::Mul, ScalarOp::Mul, ScalarOp::Add}), read(0), read(1));
        if (s.chance(0.3)) root = b.binary(ScalarOp::Add, root, b.cast(t, b.index(mod(axis(0), 4))));
        b.set_root(root);
        unsplit.body = b;
    }
    Plan plan(const TensorExpr& e) const {
        return make_plan(e, operands, evaluate(e.extents, {}), Tensor(dtype, shape), {});
    }
    Tensor value(const TensorExpr& e) const { return interpret(e, operands, dtype, shape, {}); }
};

TEST(InterpretAxes, splitting_axes_keeps_the_bits_of_random_expressions) {
    int along_rows = 0, along_reductions = 0;
    for (uint64_t seed = 0; seed < 2000; ++seed) {
        const BlockedCase c(seed);
        ASSERT_TRUE(c.value(c.expr) == c.value(c.unsplit)) << "seed " << seed;
        const Plan before = c.plan(c.unsplit), after = c.plan(c.expr);
        if (after.extents == before.extents) continue;
        ++(before.lane_axis == before.row_axis ? along_rows : along_reductions);
    }
    EXPECT_GT(along_rows, 500);
    EXPECT_GT(along_reductions, 50);
}

/// A transposed window over overlapping tiles: what a split leaves of one division is read by another register.
TEST(InterpretAxes, registers_of_registers_are_split_once) {
    const auto results = [](const std::string& row) {
        const Program p = parsed(fmt::format(R"(program t {{
  input x: f32[2, 5]
  input w: f32[3]
  y: f32[2, 3] = [6] -> [{0} // 3, {0} % 3] sum(i1 < 3) mul(@0, @1) where @0 = x[min((i0 - i1 + 2) // 3, 1), i0 - i1 - 3*min((i0 - i1 + 2) // 3, 1) + 2], @1 = w[i1]
  output y
}})",
                                             row));
        return interpret(p, random_inputs(p, 1));
    };
    EXPECT_EQ(results("i0"), results("max(i0, 0)"));
}

/// A dimension of a value that is stored in blocks: x[.., c, ..] as x[.., c // by, .., c % by].
struct Blocks {
    size_t dimension = 0;
    int64_t by = 1;
};

/// The program with some values between its primitives stored in blocks; `hide` hides the axes that are divided.
Program in_blocks(Program p, uint64_t seed, bool hide) {
    Source s(seed);
    std::map<ValueId, Blocks> blocks;
    const IndexVector<ValueId, PrimitiveId> producers = p.producers();
    std::set<ValueId> fixed(p.outputs.begin(), p.outputs.end());
    for (const Primitive& q : p.primitives)
        if (q.expr() == nullptr)
            for (const ValueId v : q.inputs()) fixed.insert(v);
    for (const ValueId v : p.values.ids()) {
        if (!producers[v] || p.primitives[producers[v]].expr() == nullptr || fixed.count(v) != 0) continue;
        std::vector<Blocks> possible;
        for (size_t d = 0; d < p.values[v].shape.size(); ++d)
            for (const int64_t by : {2, 3, 4})
                if (const Expr extent = p.values[v].shape[d]; extent.is_constant() && extent.constant() % by == 0)
                    possible.push_back({d, by});
        if (!possible.empty()) blocks.emplace(v, possible[s.below(possible.size())]);
    }
    const auto rewrite = [&](std::vector<Expr>& index, ValueId v, const TensorExpr& e) {
        const auto b = blocks.find(v);
        if (b == blocks.end()) return;
        Expr& i = index[b->second.dimension];
        const auto a = i.as_var();
        const bool divided = a && a->kind == VarKind::Axis && e.extents[a->id].is_constant() &&
                             e.extents[a->id].constant() > b->second.by;
        const Expr whole = hide && divided ? hidden(i) : i;
        i = floor_div(whole, b->second.by);
        index.push_back(mod(whole, b->second.by));
    };
    for (Primitive& q : p.primitives) {
        TensorExpr* e = q.expr();
        if (e == nullptr) continue;
        for (Access& a : e->accesses) rewrite(a.index, a.value, *e);
        if (blocks.count(q.outputs[0]) == 0) continue;
        e->output_index = result_index(*e);
        rewrite(e->output_index, q.outputs[0], *e);
    }
    for (const auto& [v, b] : blocks) {
        std::vector<Expr>& shape = p.values[v].shape;
        shape[b.dimension] = floor_div(shape[b.dimension], b.by);
        shape.push_back(b.by);
    }
    return p;
}

TEST(InterpretAxes, splitting_axes_keeps_the_bits_of_random_programs) {
    int stored = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const Program p = random_program(seed, 12), split = in_blocks(p, seed, false);
        ASSERT_EQ(verify(split), std::vector<std::string>()) << "seed " << seed;
        stored += print(split) == print(p) ? 0 : 1;
        const std::vector<Tensor> inputs = random_inputs(p, seed);
        const auto results = interpret(split, inputs);
        ASSERT_TRUE(results == interpret(in_blocks(p, seed, true), inputs)) << "seed " << seed;
        ASSERT_LE(largest_difference(results, interpret(p, inputs)), 1e-5) << "seed " << seed;
    }
    EXPECT_GT(stored, 200);
}

}  // namespace
}  // namespace tilewright
