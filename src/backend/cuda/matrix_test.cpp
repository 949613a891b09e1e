// Products, convolutions, chains and attentions on matrix instructions, with copies that run ahead: the text of each
// kernel gives what its stages give.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/matrix_cases_test.h"
#include "base/error.h"
#include "tile/examples_test.h"
#include "tile/gpu_memory_test.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

LockstepCase whole_numbers(const std::string& name, const TileProgram& p) {
    // Sums of small whole numbers are exact in f32, whatever the instruction rounds its operands to.
    return {name, p, {schedule_cases::whole_numbers(p.stages, {})}, 0};
}

TEST(CudaMatrixText, BringsFragmentsOfHalvesByLdmatrixAndCopiesAhead) {
    const KernelText text = generate(matrix_product({"128", "128", "96"}), h200());
    EXPECT_EQ(text.threads, 128);
    EXPECT_THAT(text.text, AllOf(HasSubstr("float r_c[4][8]"), Not(HasSubstr("s_c"))));
    EXPECT_THAT(text.text, HasSubstr("tw::copy_async<8>(s_a_at"));
    EXPECT_THAT(text.text, HasSubstr("tw::wait_async<1>();\n        tw::barrier();"));
    EXPECT_THAT(text.text, HasSubstr("tw::load_matrices(left[2 * f + 0][2 * g + 0]"));
    EXPECT_THAT(text.text, HasSubstr("tw::load_matrices_turned(right[f"));
    EXPECT_THAT(text.text, HasSubstr("tw::multiply_f16(r_c[2 * i + 0][2 * j + 0]"));
    EXPECT_THAT(text.text, HasSubstr("tw::store<2>(g_c"));
    // Whole tiles need no condition.
    EXPECT_THAT(text.text, Not(HasSubstr("held")));
    // Three tiles of 64 x (32 + 8) and 32 x (64 + 8) halves.
    EXPECT_EQ(text.shared_bytes, 3 * ((64 * 40 * 2 + 64) + (32 * 72 * 2 + 64)));
}

TEST(CudaMatrixText, OfProductsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    const std::vector<std::pair<std::string, std::string>> types = {
        {"f16", "f16"}, {"bf16", "bf16"}, {"f32", "tf32"}, {"f32", "f16"}};
    for (const auto& [type, unit] : types)
        for (const auto& [m, n, k] :
             std::vector<std::array<int, 3>>{{128, 64, 96}, {40, 72, 24}, {33, 65, 9}, {5, 7, 70}})
            cases.push_back(
                whole_numbers(fmt::format("{} on {} {}x{}x{}", type, unit, m, n, k),
                              matrix_product({std::to_string(m), std::to_string(n), std::to_string(k), type, unit})));
    expect_right(cases);
}

TEST(CudaMatrixText, OfOperandsStoredEitherWayComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    for (const bool a : {false, true})
        for (const bool b : {false, true})
            for (const char* unit : {"f16", "tf32"}) {
                MatrixProduct p = {"40", "64", "48", unit == std::string("f16") ? "f16" : "f32", unit};
                p.a_turned = a;
                p.b_turned = b;
                p.stages = a == b ? 2 : 1;
                p.batch = "2";
                cases.push_back(whole_numbers(fmt::format("{} a {} b {}", unit, a, b), matrix_product(p)));
            }
    MatrixProduct open = {"$m", "$n", "64"};
    open.stages = 2;
    LockstepCase symbolic{"any rows and columns", matrix_product(open), {}, 0};
    for (const auto& [m, n] : std::vector<std::pair<int, int>>{{64, 64}, {1, 70}, {65, 3}})
        symbolic.inputs.push_back(schedule_cases::whole_numbers(symbolic.program.stages, {{"m", m}, {"n", n}}));
    cases.push_back(symbolic);
    // More tiles than warps, of which each takes several; one that is smaller than an instruction.
    MatrixProduct many = {"64", "64", "32"};
    many.block = "64";
    many.warp = "16";
    cases.push_back(whole_numbers("sixteen tiles for eight warps", matrix_product(many)));
    expect_right(cases);
}

MatrixProduct group_product(const std::string& m, const std::string& n, const std::string& k,
                            const std::string& type = "f16", const std::string& unit = "f16") {
    MatrixProduct p = {m, n, k, type, unit};
    p.group = true;
    return p;
}

TEST(CudaGroupText, ReadsOperandsWhereLoadsHavePutThem) {
    MatrixProduct p = group_product("128", "96", "96");
    p.block = "128";
    p.warp_columns = "96";
    const KernelText text = generate(matrix_product(p), h200());
    EXPECT_EQ(text.threads, 256);
    // Four warps have 64 rows and 96 columns, in instructions of 64 and 32; rows of 16 bytes, 129 of them to a column.
    EXPECT_THAT(text.text, HasSubstr("tw::warp_of_group() * 16 + "));
    EXPECT_THAT(text.text, HasSubstr("tw::multiply_group_f16_64<0, 1>(r_c[2 * f + 0], r_c[2 * f + 1], "
                                     "tw::cores<2064, 128>(s_a_at"));
    EXPECT_THAT(text.text, HasSubstr("tw::multiply_group_f16_32<0, 1>(r_c[2 * f + 0] + 16, "));
    EXPECT_THAT(text.text, HasSubstr("tw::fence_async();\n            tw::barrier();"));
    // Copies move 16 bytes on both sides, and neighbouring threads along the rows of memory.
    EXPECT_THAT(text.text, HasSubstr("tw::copy_async<8>(s_a_at"));
    try {
        generate(matrix_product(p), a100());
        FAIL() << "sm_80 has no such instruction";
    } catch (const RuntimeError& e) {
        EXPECT_THAT(e.what(), HasSubstr("multiplies by four warps at a time, which sm_90a alone has; 'a100' is sm_80"));
    }
}

TEST(CudaGroupText, OfProductsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    const auto add = [&](const std::string& name, const MatrixProduct& p) {
        cases.push_back(whole_numbers(name, matrix_product(p)));
    };
    for (const auto& [type, unit] : {std::pair("f16", "f16"), std::pair("bf16", "bf16"), std::pair("f32", "tf32")})
        for (const auto& [m, n, k] :
             std::vector<std::array<const char*, 3>>{{"64", "64", "64"}, {"130", "72", "80"}, {"65", "100", "40"}})
            add(fmt::format("{} {}x{}x{}", type, m, n, k), group_product(m, n, k, type, unit));
    for (const bool a : {false, true})
        for (const bool b : {false, true})
            for (const char* unit : {"f16", "tf32"}) {
                MatrixProduct p = group_product("64", "72", "48", unit == std::string("f16") ? "f16" : "f32", unit);
                p.a_turned = a;
                p.b_turned = b;
                p.stages = a == b ? 2 : 1;
                p.batch = "2";
                add(fmt::format("{} a {} b {}", unit, a, b), p);
            }
    // Two fragments of rows and pieces of columns; two tiles behind each other.
    MatrixProduct wide = group_product("128", "104", "32");
    wide.block = "128";
    wide.warp = "128";
    wide.warp_columns = "104";
    add("wide", wide);
    MatrixProduct many = group_product("128", "128", "32");
    many.block = "128";
    many.warp_columns = "32";
    add("eight tiles for two times four warps", many);
    MatrixProduct open = group_product("$m", "64", "64");
    LockstepCase symbolic{"any rows", matrix_product(open), {}, 0};
    for (const int m : {1, 64, 65})
        symbolic.inputs.push_back(schedule_cases::whole_numbers(symbolic.program.stages, {{"m", m}}));
    cases.push_back(symbolic);
    expect_right(cases);
}

TEST(CudaGroupText, HasTheCopyEngineBringSwizzledBoxes) {
    MatrixProduct p = group_product("128", "128", "128");
    p.block = "128";
    p.warp_columns = "128";
    p.step = 64;
    p.swizzled = true;
    const KernelText text = generate(matrix_product(p), h200());
    // a's rows go along the sum, 64 of it in 128 bytes; b's across it: 128 columns are two boxes.
    ASSERT_EQ(text.maps.size(), size_t{2});
    EXPECT_THAT(text.maps[0].box, ElementsAre(64, 128));
    EXPECT_THAT(text.maps[1].box, ElementsAre(64, 64));
    EXPECT_EQ(text.maps[1].swizzle, 128);
    EXPECT_THAT(text.text, HasSubstr("const TW_GRID_CONSTANT tw::TensorMap map_a, const TW_GRID_CONSTANT tw::TensorMap "
                                     "map_b) {"));
    // One thread copies both operands, whose bytes come at one mbarrier.
    EXPECT_THAT(text.text,
                HasSubstr("if (elected) {\n                tw::expect_bytes(s_arrivals + (0 + ahead), 32768);"));
    EXPECT_THAT(text.text, HasSubstr("tw::wait_arrival(s_arrivals + (0 + slot), arrived_0 >> slot & 1);"));
    EXPECT_THAT(text.text, Not(HasSubstr("arrived_3")));
    EXPECT_THAT(text.text, HasSubstr("tw::multiply_group_f16_128<0, 1>(r_c[2 * f + 0], r_c[2 * f + 1], "
                                     "tw::cores<16, 1024, 128>(s_a_at"));
    EXPECT_THAT(text.text, HasSubstr("tw::cores<1024, 8192, 128>(s_b_at"));
    EXPECT_THAT(text.text, Not(HasSubstr("copy_async")));
    // Six copies of 16 KiB each, and what they are waited for at.
    EXPECT_EQ(text.shared_bytes, 6 * (16384 + 8));

    // What the engine cannot do, threads do, to the same places; the text says why.
    const auto by_threads = [](MatrixProduct q) {
        q.swizzled = true;
        const std::string s = generate(matrix_product(q), h200()).text;
        const size_t at = s.find(", by threads: ");
        return at == std::string::npos ? "" : s.substr(at + 14, s.find('\n', at) - at - 14);
    };
    EXPECT_EQ(by_threads(group_product("64", "64", "76")), "its rows are 152 bytes apart, not a multiple of 16");
    EXPECT_EQ(by_threads(group_product("64", "$n", "64")),
              "its rows are a dynamic number of bytes apart, perhaps not a multiple of 16");
    EXPECT_EQ(by_threads(group_product("64", "64", "64", "f32", "tf32")),
              "its rows go along another dimension than the tensor's last");
}

TEST(CudaGroupText, OfSwizzledBoxesComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    const auto add = [&](const std::string& name, MatrixProduct p) {
        p.swizzled = true;
        cases.push_back(whole_numbers(name, matrix_product(p)));
    };
    for (const auto& [type, unit] : {std::pair("f16", "f16"), std::pair("bf16", "bf16"), std::pair("f32", "tf32")})
        for (const auto& [m, n, k] :
             std::vector<std::array<const char*, 3>>{{"64", "64", "64"}, {"130", "72", "80"}, {"65", "104", "40"}})
            for (const int step : {16, 32, 64}) {
                if (step == 64 && k != std::string("64")) continue;
                MatrixProduct p = group_product(m, n, k, type, unit);
                p.step = step;
                p.b_turned = step == 32;
                add(fmt::format("{} {}x{}x{} by {}", type, m, n, k, step), p);
            }
    for (const bool a : {false, true})
        for (const bool b : {false, true}) {
            MatrixProduct p = group_product("64", "72", "48");
            p.a_turned = a;
            p.b_turned = b;
            p.stages = a == b ? 2 : 1;
            p.batch = "2";
            add(fmt::format("a {} b {}", a, b), p);
        }
    MatrixProduct wide = group_product("128", "256", "128");
    wide.block = "128";
    wide.warp = "128";
    wide.warp_columns = "128";
    wide.step = 128;  // a row of the sum is two
    wide.stages = 1;
    add("wide", wide);
    MatrixProduct threads = group_product("64", "64", "76");  // by threads, to the same places
    add("by threads", threads);
    MatrixProduct open = group_product("$m", "64", "64");
    open.swizzled = true;
    LockstepCase symbolic{"any rows", matrix_product(open), {}, 0};
    for (const int m : {1, 64, 65})
        symbolic.inputs.push_back(schedule_cases::whole_numbers(symbolic.program.stages, {{"m", m}}));
    cases.push_back(symbolic);
    expect_right(cases);
}

TEST(CudaGroupText, TakesLeftOperandsThatNoInstructionReadsFromEachWarpsOwnRows) {
    // Windows of rows that are 66 pixels apart begin in the middle of eight: ldmatrix brings them.
    const TileProgram t = schedule_cases::kernel(R"TW(program p {
  input x: f16[1, 4, 66, 32]
  input w: f16[1, 3, 32, 16]
  y: f16[1, 4, 64, 16] = [1, 4, 64, 16] sum(i4 < 3, i5 < 32) mul(@0, @1) where @0 = x[i0, i1, i2 + i4, i5], @1 = w[i0, i4, i5, i3]
  output y
})TW",
                                                 R"TW(axes b="1" h="4" w="64" o="16" t="3" c="32"
stage 0 over [b h w o t c]
load 0 access 0 layout "" swizzle 64 padding local
load 0 access 1 layout "" swizzle 32 padding local
compute 0 matrix f16 group [w o c] registers [w=64 o=16 c=32] padding local)TW");
    const std::string text = generate(t, h200()).text;
    EXPECT_THAT(text, AllOf(HasSubstr("tw::load_matrices(left["), HasSubstr("tw::multiply_group_f16_16<")));
    expect_right({whole_numbers("windows", t)});
}

/// Six steps by three or four copies, brought by the engine or by threads.
MatrixProduct in_flight(const char* type, const char* unit, bool swizzled, int stages) {
    MatrixProduct p = group_product("130", "72", "192", type, unit);
    p.block = "128";
    p.warp_columns = "72";
    p.stages = stages;
    p.swizzled = swizzled;
    return p;
}

TEST(CudaGroupText, GoesInRoundsOfOneStepForEachCopy) {
    // A round is unrolled, so the number of the copy is a constant. Where the steps are no whole rounds it ends early.
    EXPECT_THAT(generate(matrix_product(in_flight("f16", "f16", true, 4)), h200()).text,
                HasSubstr("    for (int round = 0; round * 128 < 192; ++round) {\n        TW_UNROLL\n"
                          "        for (int slot = 0; slot < 4; ++slot) {\n"
                          "            const int step_k = round * 4 + slot;\n"
                          "            if (!(step_k * 32 < 192)) break;\n"));
    // Products of single warps have many more instructions a step.
    MatrixProduct p = group_product("64", "64", "64");
    p.group = false;
    EXPECT_THAT(generate(matrix_product(p), h200()).text, Not(HasSubstr("round")));
    // Fewer steps than a round, whole rounds, every remainder. (Masked attentions count steps when they run.)
    std::vector<LockstepCase> cases;
    for (const int stages : {2, 3, 4})
        for (const char* k : {"32", "64", "96", "128", "160"}) {
            MatrixProduct q = in_flight("f16", "f16", true, stages);
            q.k = k;
            cases.push_back(whole_numbers(fmt::format("{} by {}", k, stages), matrix_product(q)));
        }
    expect_right(cases);
}

TEST(CudaGroupText, LetsProductsGoOnWhileTheNextStepBegins) {
    const KernelText text = generate(matrix_product(in_flight("f16", "f16", true, 4)), h200(), "kernel");
    // Sums begin as zeros in front of the loop and get their epilogue behind it. Of four copies one is being read, one
    // by the step before, and two are on their way.
    const size_t zeros = text.text.find("= 0.0f;"), loop = text.text.find("for (int round"),
                 one = text.text.find("tw::wait_products<1>();"), all = text.text.find("tw::wait_products<0>();"),
                 epilogue = text.text.find("tw::maximum((r_c[");
    ASSERT_NE(epilogue, std::string::npos);
    EXPECT_LT(zeros, loop);
    EXPECT_LT(loop, one);
    EXPECT_LT(one, all);
    EXPECT_LT(all, epilogue);
    EXPECT_THAT(text.text, HasSubstr("const int ahead_2 = step_k + 2;"));
    EXPECT_THAT(text.text, Not(HasSubstr("fence_async")));  // the engine alone writes
    EXPECT_THAT(generate(matrix_product(in_flight("f16", "f16", false, 4)), h200()).text,
                HasSubstr("tw::wait_async<1>();\n            tw::fence_async();\n            tw::barrier();"));
    // Two copies are one too few.
    const std::string two = generate(matrix_product(in_flight("f16", "f16", true, 2)), h200()).text;
    EXPECT_THAT(two, AllOf(HasSubstr("const int ahead_2 = step_k + 1;"), Not(HasSubstr("wait_products<1>"))));

    std::vector<LockstepCase> cases;
    for (const auto& [type, unit] : {std::pair("f16", "f16"), std::pair("bf16", "bf16"), std::pair("f32", "tf32")})
        for (const bool swizzled : {false, true})
            for (const int stages : {3, 4})
                cases.push_back(whole_numbers(fmt::format("{} {} {}", unit, swizzled, stages),
                                              matrix_product(in_flight(type, unit, swizzled, stages))));
    expect_right(cases);
}

// --- tf32 whose right operand lies along its columns: c[m, n] = sum(k) a[m, k] b[k, n], rows n, columns m

MatrixProduct exchanged(const std::string& m, const std::string& n, const std::string& k, int stages = 3) {
    MatrixProduct p = group_product(m, n, k, "f32", "tf32");
    p.swizzled = p.exchanged = true;
    p.stages = stages;
    return p;
}

TEST(CudaGroupText, BringsALeftOperandOfFloatsAlongTheRowsToRegistersInPairs) {
    MatrixProduct p = exchanged("128", "128", "192", 4);
    p.block = "128";
    p.warp_columns = "128";
    const KernelText text = generate(matrix_product(p), h200());
    EXPECT_EQ(text.threads, 256);
    // TMA brings both operands as they lie: 32 of the sum by 128 rows of a, and 4 boxes of 32 columns of b.
    ASSERT_EQ(text.maps.size(), size_t{2});
    EXPECT_THAT(text.maps[0].box, ElementsAre(32, 128));
    EXPECT_THAT(text.maps[1].box, ElementsAre(32, 32));
    EXPECT_THAT(text.text, Not(HasSubstr("copy_async")));
    // Two neighbours at a time; what steps of eight add to an address stands outside of the swizzle.
    EXPECT_THAT(text.text, HasSubstr("tw::load<2>(x[r_k], s_b_at_3 + tw::swizzled<128, 4>("));
    EXPECT_THAT(text.text, AllOf(HasSubstr("(r_k % 2) * 128"), HasSubstr("(r_k / 2) * 256")));
    EXPECT_THAT(text.text, HasSubstr("left[r_n][word] = tw::bitcast<u32>(x[word][r_n]);"));
    // Sums lie side by side along the instruction's columns.
    EXPECT_THAT(text.text, HasSubstr("float r_c[2][32];"));
    EXPECT_THAT(text.text,
                HasSubstr("tw::multiply_group_tf32_128<0>(r_c[2 * f + 0], r_c[2 * f + 1], left[2 * f + 0]["));
    // Its words are other registers in the next step, so products go on meanwhile.
    EXPECT_THAT(text.text, HasSubstr("tw::wait_products<1>();"));
    // Results of a thread are two neighbours.
    EXPECT_THAT(text.text, HasSubstr("tw::store<2>(g_c + "));
}

TEST(CudaGroupText, WithRowsAlongTheResultComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    const auto add = [&](const std::string& name, const MatrixProduct& p) {
        cases.push_back(whole_numbers(name, matrix_product(p)));
    };
    // Whole tiles; rows, columns and sums that end inside of one; rows of memory that are no multiple of 16 bytes.
    for (const auto& [m, n, k] : std::vector<std::array<const char*, 3>>{
             {"64", "64", "64"}, {"72", "132", "80"}, {"100", "68", "44"}, {"64", "66", "32"}})
        for (const int stages : {1, 2, 3, 4})
            add(fmt::format("{}x{}x{} by {}", m, n, k, stages), exchanged(m, n, k, stages));
    for (const int step : {8, 16, 64}) {
        MatrixProduct p = exchanged("64", "128", "128");
        p.step = step;
        add(fmt::format("steps of {}", step), p);
    }
    MatrixProduct batch = exchanged("64", "72", "48");
    batch.batch = "2";
    add("batch", batch);
    MatrixProduct parts = exchanged("64", "128", "328", 2);
    parts.split = "96";
    add("parts of sums", parts);
    MatrixProduct wide = exchanged("128", "128", "96", 4);  // two fragments of rows, instructions of 64 and 32 columns
    wide.block = "128";
    wide.warp = "128";
    wide.warp_columns = "96";
    wide.m = "96";
    add("wide", wide);
    // The left operand as it is: a[k, m].
    for (const bool swizzled : {false, true}) {
        MatrixProduct p = group_product("130", "72", "96", "f32", "tf32");
        p.a_turned = p.b_turned = true;
        p.swizzled = swizzled;
        p.m = "132";
        add(fmt::format("a[k, m], {}", swizzled), p);
    }
    LockstepCase symbolic{"any rows", matrix_product(exchanged("64", "$n", "64")), {}, 0};
    for (const int n : {1, 64, 68})
        symbolic.inputs.push_back(schedule_cases::whole_numbers(symbolic.program.stages, {{"n", n}}));
    cases.push_back(symbolic);
    expect_right(cases);
}

TEST(CudaGroupText, GivesTheSameNumbersHoweverOperandsOfFloatsLie) {
    // tf32 truncates both operands, in shared memory and in registers: numbers of 24 bits show it.
    const TileProgram along = [] {
        MatrixProduct p = exchanged("64", "64", "64");
        p.exchanged = false;
        p.b_turned = true;
        return matrix_product(p);
    }();
    const TileProgram across = matrix_product(exchanged("64", "64", "64"));
    std::vector<Tensor> inputs = random_inputs(across.stages, 7), other = inputs;
    for (int64_t k = 0; k < 64; ++k)
        for (int64_t n = 0; n < 64; ++n) other[1].set(n * 64 + k, inputs[1].get(k * 64 + n));
    const Lockstep kernels({generate(along, h200(), "along"), generate(across, h200(), "across")}, lockstep_options());
    EXPECT_EQ(kernels.run(0, along.stages, other), kernels.run(1, across.stages, inputs));
}

TEST(CudaGroupText, IsSeenToGoWrongWhereProductsAreStillReading) {
    const TileProgram t = matrix_product(in_flight("f16", "f16", true, 3));
    const KernelText right = generate(t, h200(), "right");
    const auto changed = [&](const char* name, const std::vector<std::pair<std::string, std::string>>& changes) {
        KernelText k = right;
        k.name = name;
        for (const auto& [from, to] : changes) {
            const size_t at = k.text.find(from);
            EXPECT_NE(at, std::string::npos) << from;
            k.text.replace(at, from.size(), to);
        }
        k.text.replace(k.text.find("(right,"), 7, fmt::format("({},", name));
        return k;
    };
    const Lockstep kernels(
        {changed("one_further", {{"ahead < 1", "ahead < 2"}, {"step_k + 1", "step_k + 2"}, {"slot + 1", "slot + 2"}}),
         changed("no_barrier", {{"tw::barrier();\n            {", "{"}}),
         changed("no_wait", {{"tw::wait_products<1>();", ""}}),
         changed("no_last_wait", {{"    tw::wait_products<0>();", ""}})},
        lockstep_options());
    const std::vector<Tensor> inputs = schedule_cases::whole_numbers(t.stages, {});
    const auto said = [&](size_t k) -> std::string {
        try {
            const double far = largest_difference(interpret(t.stages, inputs), kernels.run(k, t.stages, inputs));
            return far == 0 ? "nothing" : "other numbers";
        } catch (const RuntimeError& e) {
            return e.what();
        }
    };
    EXPECT_THAT(said(0), HasSubstr("which a product that is not waited for may read"));
    EXPECT_THAT(said(1), HasSubstr("since the last barrier"));
    EXPECT_THAT(said(2), HasSubstr("which a product that is not waited for may read"));
    EXPECT_EQ(said(3), "other numbers");
}

TEST(CudaMatrixText, RoundsOperandsAndAddsUpInFloats) {
    // 1 + 2^-12 is 1 in every type here; 256 of them times one are 256 exactly, then 2^-9 that came from a's rest.
    const MatrixProduct p = {"16", "16", "256", "f32", "f16"};
    const TileProgram t = matrix_product(p);
    Tensor a(DType::F32, {16, 256}), b(DType::F32, {256, 16}), bias(DType::F32, {16});
    for (int64_t i = 0; i < a.count(); ++i) a.set(i, 1 + std::ldexp(1, -12));
    for (int64_t i = 0; i < b.count(); ++i) b.set(i, 1.0);
    for (int64_t i = 0; i < 16; ++i) bias.set(i, std::ldexp(1, -9));
    const Tensor c = Lockstep({generate(t, h200(), "kernel")}, lockstep_options()).run(0, t.stages, {a, b, bias}).at(0);
    for (int64_t i = 0; i < c.count(); ++i) EXPECT_EQ(c.get(i), 256 + std::ldexp(1, -9));
}

// --- factors that are more than a tensor, convolutions

TEST(CudaMatrixText, OfPrologueFactorsComputesWhatTheySay) {
    // relu of the left operand is taken as its fragments are made; 8 * bias behind the end of the sum is no zero.
    const std::string stages = R"TW(program product {
  input a: f32[40, 23]
  input b: f32[23, 24]
  input shift: f32[23]
  c: f32[40, 24] = [40, 24] sum(i2 < 23) mul(max(add(@0, @2), 0.0), @1) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = shift[i2]
  output c
})TW";
    std::vector<LockstepCase> cases;
    for (const char* loads :
         {"",
          "      load 0 access 0 layout \"pad(1, 0, 4)\" padding local\n      load 0 access 1 layout "
          "\"pad(1, 0, 8)\" padding local\n"})
        cases.push_back(whole_numbers("relu", schedule_cases::kernel(stages, fmt::format(R"TW(axes m="40" n="24" k="23"
stage 0 over [m n k]
parallel m by 32 {{
  for k by 16 {{
{}    compute 0 matrix tf32 [m n k] registers [m=16 n=24 k=16] padding local
  }}
  store c padding local
}})TW",
                                                                                         loads))));
    expect_right(cases);
}

TEST(CudaMatrixText, OfConvolutionsComputesWhatTheySay) {
    // Rows: output channels; columns: pixels of a row; the sum: input channels, once for each place of the window.
    const std::string nchw = R"TW(program convolution {
  input x: f16[2, 20, 9, 19]
  input w: f16[24, 20, 3, 3]
  y: f16[2, 24, 9, 19] = [2, 24, 9, 19] sum(i4 < 20, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and -i2 - i5 + 9 >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + 19 >= 0 else 0, @1 = w[i1, i4, i5, i6]
  output y
})TW";
    // Rows: pixels, in two rows of the image a warp; columns: output channels, which lie side by side.
    const std::string nhwc = R"TW(program convolution {
  input x: f32[1, 11, 18, 12]
  input w: f32[3, 3, 12, 16]
  y: f32[1, 5, 8, 16] = [1, 5, 8, 16] sum(i4 < 3, i5 < 3, i6 < 12) mul(@0, @1) where @0 = x[i0, 2 * i1 + i4, 2 * i2 + i5, i6], @1 = w[i4, i5, i6, i3]
  output y
})TW";
    std::vector<LockstepCase> cases;
    for (const int stages : {1, 2}) {
        const std::string ahead = stages == 1 ? "" : " stages 2";
        cases.push_back(whole_numbers(
            "nchw", schedule_cases::kernel(nchw, fmt::format(R"TW(axes b="2" o="24" h="9" w="19" c="20" p="3" q="3"
stage 0 over [b o h w c p q]
parallel b by 1 {{
  parallel h by 4 {{
    for c by 16{} {{
      load 0 access 0 layout "" padding local
      load 0 access 1 layout "reorder(0, 2, 3, 1) pad(3, 0, 8)" padding local
      compute 0 matrix f16 [o w c] registers [o=32 h=2 w=24 c=16] padding local
    }}
    store y padding local
  }}
}})TW",
                                                             ahead))));
        cases.push_back(whole_numbers(
            "nhwc", schedule_cases::kernel(nhwc, fmt::format(R"TW(axes b="1" h="5" w="8" o="16" p="3" q="3" c="12"
stage 0 over [b h w o p q c]
parallel h by 3 {{
  for p by 1{} {{
    load 0 access 0 layout "pad(3, 0, 4)" padding local
    load 0 access 1 layout "pad(3, 0, 8)" padding local
    compute 0 matrix tf32 [w o c] registers [h=2 w=16 o=16 c=8] padding local
  }}
  store y padding local
}})TW",
                                                             ahead))));
    }
    expect_right(cases);
}

// --- one product's result in another's registers

TEST(CudaMatrixText, KeepsAttentionInRegisters) {
    const TileProgram p = matrix_attention("f16", "f16", 2, 64, 96, 32, 32, 32, 32, 2);
    EXPECT_THAT(gpu::test::in_registers(p, 64), UnorderedElementsAre("c", "r", "p", "s", "e"));
    const KernelText text = generate(p, h200());
    EXPECT_EQ(text.threads, 64);
    EXPECT_THAT(text.text, HasSubstr("tw::reduce_in_warp<tw::Max, 4>"));
    EXPECT_THAT(text.text, HasSubstr("float r_correction_r[2]"));
    for (const char* in_memory : {"s_c", "s_p", "s_r", "s_s", "s_e"}) EXPECT_THAT(text.text, Not(HasSubstr(in_memory)));
    // With fewer columns a warp than there are, rows cross warps: they are reduced through shared memory.
    EXPECT_THAT(gpu::test::in_registers(parse_tile_program(changed(print(p), "n=32 k=32]", "n=16 k=32]")), 128),
                UnorderedElementsAre("e"));
}

/// Rows of the mask: plain; one -inf in front; only the last tile is not masked; huge range; fully masked.
LockstepCase attention_case(const TileProgram& p, double tolerance, size_t seed) {
    std::vector<Tensor> inputs = random_inputs(p.stages, seed);
    Tensor& mask = inputs[2];
    const int64_t n = mask.shape()[1];
    const double inf = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < n; ++i) {
        if (i == 0) mask.set(1 * n + i, -inf);
        if (i + 1 < n) mask.set(2 * n + i, -inf);
        mask.set(3 * n + i, i % 2 == 0 ? 1e4 : -1e4);
        mask.set(4 * n + i, -inf);
    }
    return {"attention", p, {inputs}, tolerance};
}

TEST(CudaMatrixText, OfAttentionsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    const auto add = [&](const TileProgram& p, double tolerance) {
        cases.push_back(attention_case(p, tolerance, cases.size()));
    };
    add(matrix_attention("f16", "f16", 2, 64, 96, 32, 32, 32, 32, 2), 4e-3);
    add(matrix_attention("bf16", "bf16", 1, 40, 48, 16, 24, 32, 32, 2), 3e-2);
    add(matrix_attention("tf32", "f32", 1, 21, 37, 20, 12, 16, 16, 1), 4e-3);
    add(matrix_attention("f16", "f32", 1, 16, 70, 9, 40, 16, 32, 3), 4e-3);
    // Steps of three eights and of one: instructions of the second product sum 16.
    add(matrix_attention("f16", "f16", 1, 40, 72, 32, 32, 32, 24, 2), 4e-3);
    add(matrix_attention("bf16", "f32", 1, 16, 13, 16, 8, 16, 8, 1), 3e-2);
    // Through shared memory.
    add(parse_tile_program(
            changed(print(matrix_attention("f16", "f16", 1, 40, 96, 32, 32, 32, 32, 2)), "n=32 k=32]", "n=16 k=32]")),
        4e-3);
    expect_right(cases);
}

TEST(CudaGroupText, KeepsAttentionInRegisters) {
    const TileProgram p = matrix_attention("f16", "f16", 2, 128, 96, 64, 64, 128, 32, 2, true);
    EXPECT_THAT(gpu::test::in_registers(p, 256), UnorderedElementsAre("c", "r", "p", "s", "e"));
    const KernelText text = generate(p, h200());
    EXPECT_EQ(text.threads, 256);
    // Queries and keys are read in shared memory; the exponentials are words of the threads that have them.
    EXPECT_THAT(text.text, HasSubstr("tw::multiply_group_f16_32<0, 0>(sum[2 * f + 0], sum[2 * f + 1], tw::cores<"));
    EXPECT_THAT(text.text, HasSubstr("tw::multiply_group_f16_64<1>(sum_4[2 * f_2 + 0], sum_4[2 * f_2 + 1], left[2 * "
                                     "f_2 + 0][2 * 0 + 0], "));
    EXPECT_THAT(text.text, AllOf(HasSubstr("tw::reduce_in_warp<tw::Max, 4>"), HasSubstr("tw::expect_bytes"),
                                 HasSubstr("tw::wait_arrival"), Not(HasSubstr("copy_async"))));
    for (const char* in_memory : {"s_c", "s_p", "s_r", "s_s", "s_e"}) EXPECT_THAT(text.text, Not(HasSubstr(in_memory)));
}

TEST(CudaGroupText, RefusesHalfOfAnInstructionsSumInRegisters) {
    const std::string text = print(matrix_attention("f16", "f16", 1, 64, 96, 32, 32, 64, 16, 2, true));
    const TileProgram p = parse_tile_program(changed(
        changed(changed(text, "for n by 16", "for n by 24"), "n=16 k=32]", "n=24 k=32]"), "h=32 n=16]", "h=32 n=32]"));
    try {
        generate(p, h200());
        ADD_FAILURE() << "24 keys are one and a half instructions";
    } catch (const RuntimeError& e) {
        EXPECT_THAT(e.what(), HasSubstr("its left operand in registers is no whole number of instructions"));
    }
}

TEST(CudaGroupText, OfAttentionsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    const auto add = [&](const TileProgram& p, double tolerance) {
        cases.push_back(attention_case(p, tolerance, cases.size()));
    };
    add(matrix_attention("f16", "f16", 2, 64, 96, 32, 32, 64, 32, 2, true), 4e-3);
    add(matrix_attention("bf16", "bf16", 1, 128, 128, 64, 128, 128, 64, 3, true), 3e-2);
    add(matrix_attention("f16", "f16", 1, 130, 64, 128, 64, 64, 64, 1, true), 4e-3);  // rows that are not there
    add(matrix_attention("f16", "f16", 1, 64, 80, 48, 80, 64, 16, 2, true), 4e-3);    // rows of 32 bytes
    expect_right(cases);
}

TEST(CudaMatrixText, OfChainsComputesWhatTheySay) {
    const auto chain = [](const char* type, const char* unit, int m, int n, int k, int h) {
        return schedule_cases::kernel(
            fmt::format(R"TW(program chain {{
  input a: {type}[{m}, {k}]
  input b: {type}[{k}, {n}]
  input d: {type}[{n}, {h}]
  c: {type}[{m}, {n}] = [{m}, {n}] sum(i2 < {k}) mul(@0, @1) then max(acc, 0.0) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: {type}[{m}, {h}] = [{m}, {h}] sum(i2 < {n}) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
}})TW",
                        fmt::arg("type", type), fmt::arg("m", m), fmt::arg("n", n), fmt::arg("k", k), fmt::arg("h", h)),
            fmt::format(R"TW(axes m="{m}" n="{n}" k="{k}" h="{h}"
stage 0 over [m n k]
stage 1 over [m h n]
parallel m by 32 {{
  for n by 32 {{
    for k by 16 stages 2 {{
      load 0 access 0 layout "pad(1, 0, 8)" padding local
      load 0 access 1 layout "pad(1, 0, 8)" padding local
      compute 0 matrix {unit} [m n k] registers [m=16 n=32 k=16] padding local
    }}
    load 1 access 1 layout "pad(1, 0, 8)" padding local
    compute 1 matrix {unit} [m h n] registers [m=16 h=32 n=32] padding local
  }}
  store e padding local
}})TW",
                        fmt::arg("m", m), fmt::arg("n", n), fmt::arg("k", k), fmt::arg("h", h),
                        fmt::arg("unit", unit)));
    };
    std::vector<LockstepCase> cases;
    for (const auto& [m, n, k, h] : std::vector<std::array<int, 4>>{{64, 64, 48, 32}, {37, 41, 20, 27}}) {
        const TileProgram halves = chain("f16", "f16", m, n, k, h), floats = chain("f32", "tf32", m, n, k, h);
        EXPECT_THAT(gpu::test::in_registers(halves, 64), UnorderedElementsAre("c", "e"));
        // Sixteenths below a half: c has 11 bits at most, which every type here holds.
        for (const TileProgram& p : {halves, floats}) {
            std::vector<Tensor> inputs = schedule_cases::whole_numbers(p.stages, {});
            for (Tensor& t : inputs)
                for (int64_t i = 0; i < t.count(); ++i) t.set(i, t.get(i) / 16);
            cases.push_back({"chain", p, {inputs}, 0});
        }
    }
    expect_right(cases);
}

}  // namespace
}  // namespace tilewright::cuda
