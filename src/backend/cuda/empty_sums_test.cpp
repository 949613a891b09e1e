// Sums, maxima and products over nothing: the neutral element, on every kind of unit and with every kind of copy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/fake_gpu_test.h"
#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/matrix_cases_test.h"
#include "cost/target_with_test.h"
#include "schedule/gpu/gpu_schedule.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using namespace test;

/// Run with nothing to reduce, and with something.
LockstepCase empty_and_not(const std::string& name, TileProgram program, int64_t other = 5) {
    LockstepCase c{name, std::move(program), {}, 1e-6};
    for (const int64_t k : {int64_t{0}, other})
        c.inputs.push_back(schedule_cases::whole_numbers(c.program.stages, {{"k", k}}));
    return c;
}

TileProgram scheduled(const std::string& stages, Precision precision) {
    Program p = parse_program(stages);
    const IndexVector<PrimitiveId, std::vector<size_t>> rows(p.primitives.size());
    return gpu_schedule(std::move(p), rows, tilewright::test::on_gpu(h200()), precision);
}

TEST(CudaEmptySums, OfEveryReducerAreItsNeutralElement) {
    std::vector<LockstepCase> cases;
    for (const char* reducer : {"sum", "max", "min", "prod"})
        for (const char* rows : {"7", "1000"})
            cases.push_back(
                empty_and_not(fmt::format("{} of {} rows", reducer, rows), scheduled(fmt::format(R"TW(program p {{
  input x: f32[{1}, $k]
  y: f32[{1}] = [{1}] {0}(i1 < $k) @0 then add(acc, 1.0) where @0 = x[i0, i1]
  output y
}})TW",
                                                                                                 reducer, rows),
                                                                                     Precision::F32)));
    // A mean and what is normalised by it, in one kernel.
    cases.push_back(empty_and_not("a sum that a later stage reads", scheduled(R"TW(program p {
  input x: f32[9, $k]
  input z: f32[9, 16]
  s: f32[9, 1] = [9, 1] sum(i2 < $k) @0 where @0 = x[i0, i2]
  y: f32[9, 16] = [9, 16] sub(@0, @1) where @0 = z[i0, i1], @1 = s[i0, 0]
  output y
})TW",
                                                                              Precision::F32)));
    expect_right(cases);
}

TEST(CudaEmptySums, OfProductsAreZerosWithTheirEpilogue) {
    std::vector<LockstepCase> cases;
    for (const auto& [type, precision] :
         {std::pair("f32", Precision::F32), std::pair("f32", Precision::TF32), std::pair("f16", Precision::F32)})
        for (const char* m : {"1", "70"})
            cases.push_back(empty_and_not(fmt::format("{} rows of {} in {}", m, type, to_string(precision)),
                                          scheduled(schedule_cases::product(m, "64", "$k", type), precision), 40));
    for (const int stages : {1, 3})
        for (const char* unit : {"f16", "tf32"}) {
            MatrixProduct p = {"72", "64", "$k", unit == std::string("f16") ? "f16" : "f32", unit};
            p.stages = stages;
            cases.push_back(empty_and_not(fmt::format("warps, {}, {} copies", unit, stages), matrix_product(p), 40));
            p.group = true;
            cases.push_back(empty_and_not(fmt::format("groups, {}, {} copies", unit, stages), matrix_product(p), 40));
            p.swizzled = p.a_turned = true;  // rows of known length
            cases.push_back(empty_and_not(fmt::format("TMA, {}, {} copies", unit, stages), matrix_product(p), 40));
        }
    expect_right(cases);
}

/// A driver describes no tensor without elements, and takes no null for strides.
TEST(CudaEmptySums, AreLaunchedWithoutADescriptionOfTheTensor) {
    MatrixProduct p = {"64", "64", "$k", "f16", "f16"};
    p.group = p.swizzled = p.a_turned = true;
    const TileProgram t = matrix_product(p);
    const KernelText text = generate(t, h200(), "kernel");
    ASSERT_EQ(text.maps.size(), size_t{2});
    test::FakeGpu machine;
    machine.major = 9;
    machine.argument_count = [](const std::string&) { return size_t{4 + 1}; };
    machine.run = [](const std::string&, const std::vector<uint64_t>&, int64_t) {};
    const Gpu gpu(0, machine.driver());
    const Gpu::Kernel kernel = gpu.load(text.text, text);
    for (const int64_t k : {0, 64}) {
        gpu.run(kernel, text, t.stages, schedule_cases::whole_numbers(t.stages, {{"k", k}}));
        EXPECT_EQ(machine.wrong, "") << k;
        EXPECT_EQ(machine.maps.size(), k == 0 ? size_t{0} : size_t{2});
    }
    EXPECT_EQ(machine.launches, 2);
}

}  // namespace
}  // namespace tilewright::cuda
