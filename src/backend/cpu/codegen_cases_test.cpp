// Machine code of hand-written schedules, one for each way in which tiles do not divide an extent.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/run_kernel_test.h"
#include "tile/quantised_cases_test.h"
#include "tile/schedule_cases_test.h"
#include "tile/tile_register_cases_test.h"

namespace tilewright::cpu {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;

std::vector<Target> isas() {
    std::vector<Target> out = {host()};
    for (const Target* isa : {&avx2(), &avx512()})
        if (runs_here(*isa)) out.push_back(*isa);
    return out;
}

/// The code gives exactly the results of the stages, for all sizes of the symbols.
void right(const schedule_cases::Case& c) {
    const TileProgram& t = c.program;
    ASSERT_EQ(verify(t), std::vector<std::string>()) << print(t);
    for (const Target& isa : isas()) {
        const CompiledKernel code = compile(t, isa);
        for (const schedule_cases::Sizes& s : c.sizes)
            EXPECT_EQ(disagreement(code, t, schedule_cases::whole_numbers(t.stages, s), c.tolerance), "")
                << to_string(isa.isa) << " " << testing::PrintToString(s) << "\n"
                << print(t);
    }
}

TEST(LlvmCpu, IsTheHostOrTheFirstWithTheInstructionSet) {
    EXPECT_EQ(llvm_cpu(avx2()).name, "x86-64-v3");
    EXPECT_EQ(llvm_cpu(avx512()).name, "x86-64-v4");
    EXPECT_EQ(llvm_cpu(avx2()).features, "");
    EXPECT_EQ(llvm_cpu(avx2()).triple, llvm_cpu(host()).triple);
    EXPECT_NE(llvm_cpu(host()).features, "");
    EXPECT_EQ(llvm_cpu(generic_target(VectorIsa::neon)).triple, "aarch64-unknown-linux-gnu");
}

class CodegenCases : public testing::TestWithParam<schedule_cases::Group> {};

TEST_P(CodegenCases, ComputeWhatTheirStagesSay) {
    for (const schedule_cases::Case& c : GetParam().cases) right(c);
}

INSTANTIATE_TEST_SUITE_P(All, CodegenCases, testing::ValuesIn(schedule_cases::all()),
                         [](const auto& group) { return group.param.name; });

// Where the machine has tile registers, both code for them and its emulation run, which must agree.
INSTANTIATE_TEST_SUITE_P(TileRegisters, CodegenCases, testing::ValuesIn(schedule_cases::on_tile_registers()),
                         [](const auto& group) { return group.param.name; });

// Likewise where it has AVX512_BF16 or AVX512_FP16.
INSTANTIATE_TEST_SUITE_P(DotProducts, CodegenCases, testing::ValuesIn(schedule_cases::of_dot_products()),
                         [](const auto& group) { return group.param.name; });

INSTANTIATE_TEST_SUITE_P(QuantisedWeights, CodegenCases, testing::ValuesIn(schedule_cases::of_quantised_weights()),
                         [](const auto& group) { return group.param.name; });

TEST(CodegenDotProducts, of_bytes_do_not_saturate) {
    const TileProgram t = schedule_cases::kernel(schedule_cases::product_of_bytes("5", 24, 32, 16, false), R"TW(
axes m="5" n="24" k="32"
stage 0 over [m n k]
compute 0 vector n lanes 8 matrix i8 dot [m n k] registers [m=4 n=16 k=4] order [n m k] padding partition)TW");
    std::vector<Tensor> inputs = schedule_cases::whole_numbers(t.stages, {});
    for (int64_t i = 0; i < inputs[0].count(); ++i) inputs[0].set(i, i % 3 == 0 ? 0 : 255);
    for (int64_t i = 0; i < inputs[1].count(); ++i) inputs[1].set(i, i % 5 == 0 ? 127 : -128);
    for (const Target& isa : isas()) EXPECT_EQ(disagreement(t, inputs, 0, isa), "") << to_string(isa.isa);
    EXPECT_THAT(print_llvm(t, avx2()), HasSubstr("avx2.pmadd.wd"));
}

TEST(CodegenSums, of_bytes_times_a_number_have_all_lanes) {
    const TileProgram t = schedule_cases::kernel(R"TW(program sums {
  input x: u8[9, 16]
  y: i32[9] = [9] sum(i1 < 16) mul(i32(@0), -9:i32) where @0 = x[i0, i1]  ; y ""
  output y
})TW",
                                                 R"TW(axes m="9" k="16"
stage 0 over [m k]
compute 0 vector k lanes 16 registers [k=16] order [m k] padding partition)TW");
    for (const Target& isa : isas())
        EXPECT_EQ(disagreement(t, schedule_cases::whole_numbers(t.stages, {}), 0, isa), "") << to_string(isa.isa);
}

TEST(CodegenDotProducts, of_f16_are_one_instruction_for_32_products) {
    const TileProgram t = schedule_cases::kernel(schedule_cases::paired_product("16", 32, 128, 32, "f32", "f16"), R"TW(
axes m="16" n="32" k="128"
stage 0 over [m n k]
compute 0 vector n lanes 16 matrix f16 dot [m n k] registers [m=4 n=32 k=64] order [n m k] padding partition)TW");
    const auto code = [&](const char* level) {
        return print_llvm(t, restricted(generic_target(VectorIsa::avx512), code_level_from_string(level).value()));
    };
    EXPECT_THAT(code("avx512-fp16"), HasSubstr("call <32 x half> @llvm.fma.v32f16"));
    EXPECT_THAT(code("avx512-fp16"), Not(HasSubstr("call <16 x float> @llvm.fma")));
    EXPECT_THAT(code("avx512-bf16"), Not(HasSubstr("@llvm.fma.v32f16")));
}

TEST(CodegenTables, of_sixteen_numbers_are_permutations_of_a_register) {
    const auto code = [&](const char* numbers, int lanes, const Target& isa) {
        return print_llvm(schedule_cases::kernel(
                              schedule_cases::quantised_product("1", 32, 8, schedule_cases::number_of_word(numbers, 4)),
                              schedule_cases::schedule_of_quantised_product("1", 32, 8, 1, 32, lanes, "")),
                          isa);
    };
    EXPECT_THAT(code(schedule_cases::kUneven16, 16, avx512()), HasSubstr("permvar.sf.512"));
    EXPECT_THAT(code(schedule_cases::kUneven16, 16, avx512()), Not(HasSubstr("and <16 x i32>")));
    EXPECT_THAT(code(schedule_cases::kUneven16, 8, avx2()), HasSubstr("avx2.permps"));
    EXPECT_THAT(code(schedule_cases::kEven16, 8, avx2()), HasSubstr("itofp <8 x i32>"));
}

TEST(CodegenBlocks, turned_in_registers_need_no_gathers) {
    const std::string stages = schedule_cases::transposition("f32", "48", "32");
    const std::string axes = "axes c=\"32\" r=\"48\"\nstage 0 over [c r]\n";
    const auto llvm = [&](const std::string& compute) {
        return print_llvm(schedule_cases::kernel(stages, axes + compute), host());
    };
    EXPECT_THAT(llvm("compute 0 vector r lanes 8 registers [c=8 r=8] order [c r] padding partition"),
                Not(HasSubstr("gather")));
    EXPECT_THAT(llvm("compute 0 vector r lanes 8 registers [r=8] order [c r] padding partition"), HasSubstr("gather"));
}

TEST(CodegenWindows, along_rows_are_vectors_of_neighbours_also_under_the_padding) {
    const std::string code = print_llvm(schedule_cases::kernel(R"TW(program pooling {
  input x: f32[4, 112]
  y: f32[4, 56] = [4, 56] max(i2 < 3) @0 where @0 = x[i0, 2*i1 + i2 - 1] when 2*i1 + i2 - 1 >= 0 else -inf  ; y ""
  output y
})TW",
                                                               R"TW(axes c="4" w="56" q="3"
stage 0 over [c w q]
compute 0 vector w lanes 8 registers [w=8 q=3] order [c w q] padding partition
)TW"),
                                        host());
    EXPECT_THAT(code, Not(HasSubstr("gather")));
    EXPECT_THAT(code, Not(HasSubstr("masked")));  // 56 is 7 vectors; the first starts at its second lane
}

TEST(CodegenEpilogues, are_written_once_for_a_row_where_they_are_long) {
    const auto divisions = [&](const std::string& registers) {
        const std::string code = print_llvm(
            schedule_cases::kernel(schedule_cases::gated_product("f32", "24"),
                                   "axes b=\"2\" m=\"24\" n=\"37\" k=\"19\"\nstage 0 over [b m n k]\nfor n by 32 {\n"
                                   "compute 0 vector n lanes 8 registers [" +
                                       registers + "] order [b n m k] padding partition\n}"),
            host());
        size_t count = 0;
        for (size_t at = code.find("fdiv"); at != std::string::npos; at = code.find("fdiv", at + 1)) ++count;
        return count;
    };
    // Rows [0, 2) are padding in the third tensor and have unrolled epilogues. The others are finished in a loop: three
    // divisions per vector, for whole vectors and for the last five columns. Few sums are unrolled.
    EXPECT_EQ(divisions("m=22 n=8"), 3 + 3);
    EXPECT_EQ(divisions("m=22 n=16"), 6 + 3);
    EXPECT_EQ(divisions("m=11 n=8"), 13 + 13);
}

}  // namespace
}  // namespace tilewright::cpu
