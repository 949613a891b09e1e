// Kernels of libraries in models of dynamic sizes, on a fake GPU with fake libraries.

#include "model/gpu_offers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "index/expr_scope.h"
#include "model/gpu_machine_test.h"
#include "program/random_program.h"
#include "program/transform/substitute.h"

namespace tilewright {
namespace {

using test::Machine;
using testing::Contains;
using testing::HasSubstr;

/// A product that cuBLASLt has with its bias and relu, and one of a difference that is cut into heads.
Program rows_and_heads() {
    return parse_program(R"(program p {
  input x: f32[$rows, 48]
  input w: f32[48, 80]
  input b: f32[80]
  input z: f32[80]
  input u: f32[32, 80]
  y: f32[$rows, 80] = [$rows, 80] sum(i2 < 48) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = x[i0, i2], @1 = w[i2, i1], @2 = b[i1]
  h: f32[2, $rows, 16] = [2, $rows, 16] sum(i3 < 80) mul(sub(@0, @1), @2) then mul(tanh(acc), acc) where @0 = y[i1, i3], @1 = z[i3], @2 = u[16*i0 + i2, i3]
  output y
  output h
})");
}

std::map<std::string, DimRange> ranges() { return {{"rows", parse_dim_range("0..64:4,32")}}; }

std::vector<Tensor> inputs_of(const Program& program, int64_t rows) {
    std::vector<Tensor> inputs = random_inputs(program, static_cast<uint64_t>(rows) + 1);
    Tensor x(DType::F32, {rows, 48});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>((i * 7919) % 101 - 50) * 0.02);
    inputs[0] = std::move(x);
    return inputs;
}

/// Runs with so many rows, `times` times. Returns how many products cuBLASLt has computed.
int products_of(Machine& machine, Session& session, const Program& program, int64_t rows, int times = 3) {
    const std::vector<Tensor> inputs = inputs_of(program, rows), expected = interpret(program, inputs);
    const int before = machine.gpu().library_products + machine.gpu().cudnn.graphs;
    for (int k = 0; k < times; ++k)
        EXPECT_LE(largest_difference(expected, session.run(inputs)), 1e-4) << rows << " rows, run " << k;
    EXPECT_EQ(machine.gpu().wrong, "") << rows << " rows";
    return machine.gpu().library_products + machine.gpu().cudnn.graphs - before;
}

TEST(GpuOffers, OfDynamicSizesRunAtSizesThatWereNeverMeasured) {
    const Program program = rows_and_heads();
    Machine machine(program, 1 << 24, true, ranges());
    {
        const auto model = machine.load_with_library(0.5);
        EXPECT_EQ(model->library_kernels(), 2);
        EXPECT_THAT(model->library_notes(), Contains(HasSubstr("at rows = 4, cuBLASLt, algorithm 0: ")));
        EXPECT_THAT(model->library_notes(),
                    Contains(HasSubstr("at rows = 32, cuBLASLt, algorithm 0, and 2 generated kernels: ")));
        Session session(model);
        for (const int64_t rows : {4, 32, 5, 17, 64, 1, 33, 5}) {
            const int choices = machine.gpu().product_choices, launches = machine.gpu().graph_launches;
            EXPECT_EQ(products_of(machine, session, program, rows), 2 * 3) << rows;
            // What was compared at a sample runs there, and nothing is chosen again for sizes that come again.
            const bool sample = rows == 4 || rows == 32;
            EXPECT_EQ(products_of(machine, session, program, rows), 2 * 3) << rows;
            EXPECT_LE(machine.gpu().product_choices - choices, sample ? 0 : 2) << rows;
            EXPECT_GE(machine.gpu().graph_launches - launches, 3) << "captured like generated kernels";
        }
        EXPECT_EQ(products_of(machine, session, program, 0), 0) << "no library has a tensor without elements";
    }
    EXPECT_EQ(machine.gpu().used, 0u);
    EXPECT_FALSE(machine.gpu().cudnn.has_descriptors());
}

TEST(GpuOffers, AreThoseOfTheNearestSample) {
    const Program program = rows_and_heads();
    Machine machine(program, 1 << 24, true, ranges());
    machine.library_seconds = [&] { return machine.gpu().product_rows >= 32 ? 0.5 : 2.0; };
    const auto model = machine.load_with_library(0);
    EXPECT_EQ(model->library_kernels(), 2);
    Session session(model);
    // Between 4 and 32, on a logarithmic scale, lies 11.3.
    for (const int64_t rows : {1, 4, 11}) EXPECT_EQ(products_of(machine, session, program, rows), 0) << rows;
    for (const int64_t rows : {12, 32, 64}) EXPECT_EQ(products_of(machine, session, program, rows), 6) << rows;
}

TEST(GpuOffers, OfDynamicSizesLeaveWhatALibraryDoesNotTakeToGeneratedKernels) {
    const Program program = rows_and_heads();
    Machine machine(program, 1 << 24, true, ranges());
    machine.gpu().cudnn.supports_products = false;
    const auto model = machine.load_with_library(0.5);
    EXPECT_EQ(model->library_kernels(), 2);
    Session session(model);
    machine.gpu().most_rows_known = 40;
    EXPECT_EQ(products_of(machine, session, program, 41), 0) << "no algorithm for these sizes";
    EXPECT_EQ(products_of(machine, session, program, 40), 6);
    // An algorithm that was chosen and does not run.
    machine.gpu().most_rows_run = 20;
    EXPECT_EQ(products_of(machine, session, program, 21), 0);
    EXPECT_EQ(products_of(machine, session, program, 20), 6);
    EXPECT_EQ(products_of(machine, session, program, 21), 0) << "nor the next time";
    machine.gpu().most_rows_run = 64;
    EXPECT_EQ(products_of(machine, session, program, 40), 6);
}

/// Expressions live as long as the process, and a server runs at any number of sizes.
TEST(GpuOffers, OfDynamicSizesLeaveNoExpressionsBehind) {
    const Program program = rows_and_heads();
    Machine machine(program, 1 << 24, true, ranges());
    const auto model = machine.load_with_library(0.5);
    ASSERT_EQ(model->library_kernels(), 2);
    const size_t before = interned_exprs();
    for (int64_t rows = 5; rows < 32; ++rows)
        for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(model->offers().plan(k, {{symbol("rows").as_var().value(), rows}}));
    EXPECT_EQ(interned_exprs(), before);
}

/// What is wrong at one sample may be wrong between samples.
TEST(GpuOffers, OfDynamicSizesAreRightAtEverySample) {
    const Program program = rows_and_heads();
    Machine machine(program, 1 << 24, true, ranges());
    machine.gpu().cudnn.supports_products = false;
    machine.gpu().wrong_rows = 4;
    const auto model = machine.load_with_library(0.5);
    EXPECT_THAT(model->library_notes(),
                Contains(HasSubstr("at rows = 4, cuBLASLt, algorithm 0: its results are others")));
    EXPECT_THAT(model->library_notes(), Contains(HasSubstr("at rows = 32, cuBLASLt, algorithm 0: 500 ms")));
    EXPECT_EQ(model->library_kernels(), 0);
    Session session(model);
    EXPECT_EQ(products_of(machine, session, program, 30), 0);
}

/// Counters do not depend on what computes a kernel.
TEST(GpuOffers, LeaveCountersAlone) {
    const Program program = rows_and_heads();
    const auto counts = [&](bool libraries) {
        Machine machine(program, 1 << 24, true, ranges());
        const auto model = libraries ? machine.load_with_library(0.5) : machine.load();
        Session session(model);
        for (const int64_t rows : {4, 9, 4, 9, 30}) session.run(inputs_of(program, rows));
        return session.counts();
    };
    const RunCounts with = counts(true), without = counts(false);
    EXPECT_EQ(with.runs, without.runs);
    EXPECT_EQ(with.preparations, without.preparations);
    EXPECT_EQ(with.recalled, without.recalled);
    EXPECT_EQ(with.memory_plans, without.memory_plans);
    EXPECT_EQ(with.bytes_copied, without.bytes_copied);
}

/// A convolution of images of any size, and an attention of any number of rows, as cuDNN has them.
TEST(GpuOffers, OfDynamicSizesAreConvolutionsAndAttentions) {
    const Program program = parse_program(R"(program p {
  input x: f32[1, 4, $h, 9]
  input w: f32[8, 4, 3, 3]
  input q: f16[2, $m, 16]
  input k: f16[2, $n, 16]
  input v: f16[2, $n, 16]
  c: f32[1, 8, $h, 9] = [8, $h, 9] -> [0, i0, i1, i2] sum(i3 < 4, i4 < 3, i5 < 3) mul(@0, @1) then max(acc, 0.0) where @0 = x[0, i3, i1 + i4 - 1, i2 + i5 - 1] when i1 + i4 - 1 >= 0 and -i1 - i4 + $h >= 0 and i2 + i5 - 1 >= 0 and -i2 - i5 + 9 >= 0 else 0, @1 = w[i0, i3, i4, i5]
  p: f16[2, $m, $n] = [2, $m, $n] sum(i3 < 16) mul(@0, @1) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]
  s: f32[2, $m, $n] = [2, $m, $n] mul(@0, 0.25) where @0 = p[i0, i1, i2]
  t: f32[2, $m] = [2, $m] max(i2 < $n) @0 where @0 = s[i0, i1, i2]
  e: f32[2, $m, $n] = [2, $m, $n] exp(sub(@0, @1)) where @0 = s[i0, i1, i2], @1 = t[i0, i1]
  d: f32[2, $m] = [2, $m] sum(i2 < $n) @0 where @0 = e[i0, i1, i2]
  f: f16[2, $m, $n] = [2, $m, $n] div(@0, @1) where @0 = e[i0, i1, i2], @1 = d[i0, i1]
  o: f16[2, $m, 16] = [2, $m, 16] sum(i3 < $n) mul(@0, @1) where @0 = f[i0, i1, i3], @1 = v[i0, i3, i2]
  output c
  output o
})");
    Machine machine(
        program, 1 << 24, true,
        {{"h", parse_dim_range("1..64:9")}, {"m", parse_dim_range("1..64:16")}, {"n", parse_dim_range("1..64:24")}});
    const auto model = machine.load_with_library(0.5);
    const int kernels = static_cast<int>(kernels_called(model->model()->plan()));
    EXPECT_EQ(kernels, 2) << "an attention is one kernel";
    EXPECT_EQ(model->library_kernels(), kernels);
    Session session(model);
    for (uint64_t seed = 1; seed < 6; ++seed) {
        const std::vector<Tensor> inputs = random_inputs(program, seed), expected = interpret(program, inputs);
        const int graphs = machine.gpu().cudnn.graphs;
        for (int k = 0; k < 3; ++k) EXPECT_LE(largest_difference(expected, session.run(inputs)), 2e-2) << seed;
        EXPECT_EQ(machine.gpu().cudnn.graphs - graphs, 3 * kernels) << seed;
    }
    EXPECT_EQ(machine.gpu().wrong, "");
}

/// A transposed convolution, phase by phase, of any number of images: a generated part has the weights, cuDNN the rest.
TEST(GpuOffers, OfTransposedConvolutionsAreOneGradient) {
    const Program program = parse_program(R"(program p {
  input x: f32[$n, 4, 5, 6]
  input w: f32[2, 2, 8, 6, 2, 2]
  input b: f32[8]
  y: f32[$n, 8, 8, 10] = [$n, 8, 4, 2, 5, 2] -> [i0, i1, 2*i2 + i3, 2*i4 + i5] sum(i6 < 6, i7 < 2, i8 < 2) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = x[i0, i2 + i3 + i7 - 1, i4 + i5 + i8 - 1, i6] when i2 + i3 + i7 - 1 >= 0 and -i2 - i3 - i7 + 4 >= 0 and i4 + i5 + i8 - 1 >= 0 and -i4 - i5 - i8 + 5 >= 0 else 0, @1 = w[i3, i5, i1, i6, i7, i8], @2 = b[i1]
  output y
})");
    Machine machine(program, 1 << 24, true, {{"n", parse_dim_range("1..8:1,4")}});
    const auto model = machine.load_with_library(0.5);
    EXPECT_EQ(model->library_kernels(), 1);
    EXPECT_THAT(model->library_notes(),
                Contains(HasSubstr("at n = 4, cuDNN, engine 1, and 1 generated kernel: 500 ms")));
    Session session(model);
    for (uint64_t seed = 1; seed < 5; ++seed) {
        const std::vector<Tensor> inputs = random_inputs(program, seed), expected = interpret(program, inputs);
        const int graphs = machine.gpu().cudnn.graphs;
        for (int k = 0; k < 3; ++k) EXPECT_LE(largest_difference(expected, session.run(inputs)), 1e-4) << seed;
        EXPECT_EQ(machine.gpu().cudnn.graphs - graphs, 3) << seed;
    }
    EXPECT_EQ(machine.gpu().wrong, "");
}

/// The same with two constants as weights, of one kernel that is called twice: the weights of the phases are put
/// together when the model is loaded, for each constant, and no generated kernel runs in a session.
TEST(GpuOffers, PutConstantWeightsTogetherOnce) {
    const std::string convolution =
        "[$n, 8, 8, 10] = [$n, 8, 4, 2, 5, 2] -> [i0, i1, 2*i2 + i3, 2*i4 + i5] sum(i6 < 6, i7 < 2, i8 < 2) "
        "mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = x[i0, i2 + i3 + i7 - 1, i4 + i5 + i8 - 1, i6] when "
        "i2 + i3 + i7 - 1 >= 0 and -i2 - i3 - i7 + 4 >= 0 and i4 + i5 + i8 - 1 >= 0 and -i4 - i5 - i8 + 5 >= 0 else "
        "0, ";
    Program program = parse_program(
        "program p {\n  input x: f32[$n, 4, 5, 6]\n  input b: f32[8]\n  input v: f32[2, 2, 8, 6, 2, 2]\n"
        "  input w: f32[2, 2, 8, 6, 2, 2]\n  y: f32" +
        convolution + "@1 = v[i3, i5, i1, i6, i7, i8], @2 = b[i1]\n  z: f32" + convolution +
        "@1 = w[i3, i5, i1, i6, i7, i8], @2 = b[i1]\n  output y\n  output z\n}");
    std::vector<Tensor> all = random_inputs(program, 9);
    for (int k = 0; k < 2; ++k) {
        program.constants.emplace(program.inputs.back(), all.back());
        program.inputs.pop_back();
        all.pop_back();
    }
    Machine machine(program, 1 << 24, true, {{"n", parse_dim_range("1..8:1,4")}});
    {
        const auto model = machine.load_with_library(0.5);
        EXPECT_EQ(model->model()->stats().kernels, 1);
        EXPECT_EQ(model->library_kernels(), 1);
        EXPECT_THAT(model->library_notes(),
                    Contains(HasSubstr("at n = 4, cuDNN, engine 1, and 0 generated kernels: 500 ms")));
        EXPECT_EQ(model->weight_bytes(), 4 * 2 * 2 * 8 * 6 * 2 * 2 * 4) << "each constant, and what is made of it";
        Session one(model), other(model);
        machine.gpu().launches = 0;
        for (uint64_t seed = 1; seed < 5; ++seed) {
            const std::vector<Tensor> inputs = random_inputs(program, seed), expected = interpret(program, inputs);
            for (int k = 0; k < 3; ++k) EXPECT_LE(largest_difference(expected, one.run(inputs)), 1e-4) << seed;
            EXPECT_LE(largest_difference(expected, other.run(inputs)), 1e-4) << seed;
        }
        EXPECT_EQ(machine.gpu().launches, 0);
    }
    EXPECT_EQ(machine.gpu().wrong, "");
    EXPECT_EQ(machine.gpu().used, 0u);
}

TEST(GpuOffers, AgreeWithTheInterpreterOnRandomProgramsOfDynamicSizes) {
    int libraries = 0;
    for (uint64_t seed = 500; seed < 600; ++seed) {
        const Program program = random_program(seed, 4 + static_cast<int>(seed % 8));
        if (names_of(program).empty()) continue;
        Machine machine(program, 1 << 24, true, {{"n", parse_dim_range("0..8:1,3")}});
        const auto model = machine.load_with_library(0.5);
        for (size_t k = 0; k < kernels_called(model->model()->plan()); ++k)
            libraries += model->offers().names(k).empty() ? 0 : 1;
        Session session(model);
        for (const uint64_t other : {0, 1, 2}) {
            const std::vector<Tensor> inputs = random_inputs(program, seed + other);
            const std::vector<Tensor> expected = interpret(program, inputs);
            for (int k = 0; k < 2; ++k)
                EXPECT_LE(largest_difference(expected, session.run(inputs)), 2e-3) << "seed " << seed << "\n"
                                                                                   << print(program);
        }
        EXPECT_EQ(machine.gpu().wrong, "") << "seed " << seed;
    }
    EXPECT_GT(libraries, 5);
}

}  // namespace
}  // namespace tilewright
