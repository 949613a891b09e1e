#include "tune/operands.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "program/random_program.h"
#include "tile/examples_test.h"

namespace tilewright {
namespace {

const std::string kEmbedding = R"TW(program p {
  input ids: i64[$n]
  input table: f32[5, 3]
  y: f32[$n, 3] = [$n, 3] @1 where @0 = ids[i0], @1 = table[@0, i1]
  output y
}
)TW";

Bindings sized(const std::string& name, int64_t n) { return {{*symbol(name).as_var(), n}}; }

TEST(KernelInputs, depend_on_the_seed_and_are_valid_indices) {
    const Program p = with_sizes(parse_program(kEmbedding), sized("n", 200));
    const std::vector<Tensor> inputs = kernel_inputs(p, 3, Spread::Wide);
    EXPECT_EQ(inputs, kernel_inputs(p, 3, Spread::Wide));
    EXPECT_FALSE(inputs == kernel_inputs(p, 4, Spread::Wide));
    std::set<int64_t> seen;
    for (const int64_t i : inputs[0].to_ints()) seen.insert(i);
    EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2, 3, 4}));
    EXPECT_NO_THROW(interpret(p, inputs));
}

/// An index that is an expression of the input: 2*@0 + i1 must stay below 8.
TEST(KernelInputs, of_indices_in_expressions_stay_inside) {
    const Program p = parse_program(
        "program p {\n  input ids: i32[50]\n  input t: f32[8]\n"
        "  y: f32[50, 2] = [50, 2] @1 where @0 = ids[i0], @1 = t[2*@0 + i1]\n  output y\n}\n");
    EXPECT_NO_THROW(interpret(p, kernel_inputs(p, 1, Spread::Wide)));
}

TEST(WithSizes, replaces_every_symbol) {
    const Program p = with_sizes(parse_tile_program(kSoftmax).stages, sized("rows", 4));
    for (const Value& v : p.values)
        for (const Expr d : v.shape) EXPECT_TRUE(d.is_constant());
    EXPECT_THROW(with_sizes(parse_tile_program(kSoftmax).stages, {}), InternalError);
}

class RunsGemm : public testing::Test {
  protected:
    TileProgram program_ = parse_tile_program(kGemm);
    cpu::CompiledKernel kernel_ = cpu::compile(program_, host_target());
    std::vector<Tensor> inputs_ = kernel_inputs(program_.stages, 1, Spread::Wide);
    std::vector<Tensor> expected_ = interpret(program_.stages, inputs_);
    ThreadPool pool_{2};
};

TEST_F(RunsGemm, on_warm_operands) {
    Operands operands(program_.stages, inputs_, {.guarded = true});
    KernelRun run(kernel_, {}, operands, pool_);
    operands.fill_outputs(0xff);
    run();
    EXPECT_LT(largest_difference({operands.output(0)}, expected_), 1e-5);
    EXPECT_EQ(operands.intact(), "");
    EXPECT_EQ(operands.copies(), 1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(reinterpret_cast<uintptr_t>(operands.next()[i]) % kBufferAlignment, 0u);
}

TEST_F(RunsGemm, on_other_copies_of_weights_each_time) {
    Operands operands(program_.stages, inputs_,
                      {.warmth = Warmth::cold_weights, .weights = {false, true, true}, .cache_bytes = 4096});
    ASSERT_GT(operands.copies(), 4);
    KernelRun run(kernel_, {}, operands, pool_);
    for (int i = 0; i < operands.copies() + 1; ++i) {
        operands.fill_outputs(0xff);
        run();
        EXPECT_LT(largest_difference({operands.output(0)}, expected_), 1e-5);
    }
    std::set<void*> a, b, c;
    for (int i = 0; i < operands.copies(); ++i) {
        void* const* tensors = operands.next();
        a.insert(tensors[0]);
        b.insert(tensors[1]);
        c.insert(tensors[3]);
    }
    EXPECT_EQ(a.size(), 1u) << "an activation is where it was";
    EXPECT_EQ(c.size(), 1u);
    EXPECT_EQ(b.size(), static_cast<size_t>(operands.copies())) << "every copy has its turn";
}

TEST_F(RunsGemm, and_detects_writes_out_of_bounds) {
    const auto wrong = [&](int tensor, int64_t at) {
        Operands operands(program_.stages, inputs_, {.guarded = true});
        static_cast<char*>(operands.next()[tensor])[at] ^= 1;
        return operands.intact();
    };
    EXPECT_EQ(wrong(1, 3), "input b was overwritten");
    EXPECT_EQ(wrong(3, -1), "memory after bias was overwritten") << "c follows bias";
    EXPECT_EQ(wrong(0, -1), "memory before a was overwritten");
    EXPECT_EQ(wrong(3, 10 * 8 * 4), "memory after c was overwritten");
    EXPECT_EQ(wrong(3, 0), "");
}

TEST(AssumedSizes, GiveEverySymbolANumberAndScalarsNone) {
    const auto stages = [](const std::string& extent) {
        return parse_program("program t {\n  input x: f32[$n, " + extent + "]\n  y: f32[$n, " + extent + "] = [$n, " +
                             extent + "] neg(@0) where @0 = x[i0, i1]\n  output y\n}");
    };
    const auto sizes = assumed_sizes(stages("$m"), 96);
    ASSERT_TRUE(sizes);
    EXPECT_EQ(sizes->size(), 2u);
    for (const auto& [v, size] : *sizes) EXPECT_EQ(size, 96);
    EXPECT_EQ(with_sizes(stages("$m"), *sizes).values[ValueId(0)].shape[1], Expr(96));
    EXPECT_FALSE(assumed_sizes(stages("?k")));
    EXPECT_TRUE(assumed_sizes(stages("$m - 96"), 96));
    EXPECT_FALSE(assumed_sizes(stages("$m - 97"), 96));
}

}  // namespace
}  // namespace tilewright
