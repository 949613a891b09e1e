// device/cuda.cuh against device/emulated.cuh: every asm statement is interpreted, and gives what its twin gives;
// kernels that are generated behind the former give what their stages give.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/device_text.h"
#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/matrix_cases_test.h"
#include "backend/cuda/oracle/interpreted.h"
#include "backend/cuda/oracle/probes_test.h"
#include "base/error.h"

namespace tilewright::cuda::oracle {
namespace {

using cuda::test::LockstepCase;
using testing::HasSubstr;
using testing::Not;

LockstepOptions options() { return {TW_TEST_CXX, {"-O0"}}; }

/// The result of a probe's kernel.
template <class Kernels>
Tensor result_of(const Kernels& kernels, size_t k, const Probe& p) {
    std::vector<Tensor> tensors = p.inputs;
    tensors.emplace_back(p.type, p.output);
    kernels.run(k, tensors, {}, 1);
    return tensors.back();
}

/// The first element that differs; empty where none does. A NaN is equal to any other.
std::string difference(const Probe& p, const Tensor& expected, const Tensor& given) {
    const auto size = static_cast<int64_t>(byte_size(p.type));
    for (int64_t i = 0; i < expected.count(); ++i) {
        const auto* a = static_cast<const char*>(expected.data()) + i * size;
        const auto* b = static_cast<const char*>(given.data()) + i * size;
        if (std::memcmp(a, b, static_cast<size_t>(size)) == 0) continue;
        const double x = expected.get(i), y = given.get(i);
        if (p.type == DType::F32 && std::isnan(x) && std::isnan(y)) continue;
        // ex2.approx.ftz gives 0 for what is below 2^-126.
        if (p.tolerance > 0 && (std::fabs(x - y) <= p.tolerance * std::fabs(x) || (y == 0 && x < 0x1p-126))) continue;
        return fmt::format("{}: element {} is {} in the emulation and {} in PTX", p.kernel.name, i, x, y);
    }
    return "";
}

std::vector<KernelText> kernels_of(const std::vector<Probe>& probes) {
    std::vector<KernelText> out;
    for (const Probe& p : probes) out.push_back(p.kernel);
    return out;
}

/// What the emulation and cuda.cuh make of the probes: differences, and refusals of the interpreter.
std::vector<std::string> disagreements(const std::vector<Probe>& probes, const Lockstep& emulated,
                                       const Interpreted& interpreted) {
    std::vector<std::string> out;
    for (size_t k = 0; k < probes.size(); ++k) {
        const Tensor expected = result_of(emulated, k, probes[k]);
        std::string wrong;
        try {
            wrong = difference(probes[k], expected, result_of(interpreted, k, probes[k]));
        } catch (const RuntimeError& e) {
            wrong = e.what();
        }
        if (!wrong.empty()) out.push_back(wrong);
    }
    return out;
}

TEST(Ptx, OfEveryStatementDoesWhatItsEmulationDoes) {
    const std::vector<Probe> probes = all_probes();
    const Lockstep emulated(kernels_of(probes), options());
    const Interpreted interpreted(kernels_of(probes), options());
    EXPECT_EQ(disagreements(probes, emulated, interpreted), std::vector<std::string>());
    // Every asm statement of cuda.cuh has been executed; common.cuh and kernels have none.
    for (size_t k = 0; k < interpreted.statements().size(); ++k)
        EXPECT_TRUE(interpreted.executed().contains(k)) << "never executed: " << interpreted.statements()[k];
    EXPECT_GE(interpreted.statements().size(), size_t{60});
}

/// Changes a place of cuda.cuh: what the probes with this name show, or the interpreter refuses.
struct Fault {
    std::string what, from, to, probes;
};
const std::vector<Fault> kFaults = {
    {"registers of the left fragment exchanged", "{%4, %5, %6, %7}, {%8, %9}", "{%4, %6, %5, %7}, {%8, %9}",
     "multiply"},
    {"registers of the right fragment exchanged", "{%8, %9}", "{%9, %8}", "multiply"},
    {"sums exchanged", ".f32 {%0, %1, %2, %3}, {%4", ".f32 {%2, %1, %0, %3}, {%4", "multiply"},
    {"a shape of another type", "m16n8k8.row.col.f32.tf32", "m16n8k16.row.col.f32.tf32", "multiply"},
    {"a type for another", "m16n8k16.row.col.f32.bf16.bf16", "m16n8k16.row.col.f32.f16.f16", "multiply_bf16"},
    {"matrices that are not transposed", "turned, \".trans\"", "turned, \"\"", "load_"},
    {"halves of a pair exchanged", "\"f\"(second), \"f\"(first)", "\"f\"(first), \"f\"(second)", "f16_pair"},
    {"rounding to zero", "cvt.rn.f16.f32", "cvt.rz.f16.f32", "to_f16"},
    {"a NaN that loses", "max.NaN.f32", "max.f32", "maximum"},
    {"bytes that are not replaced by zeros", "16, %2;", "16, 16;", "copy_8_if"},
    {"a group that is not waited for", "\"n\"(open)", "\"n\"(open + 1)", "copy_4"},
    {"coordinates exchanged", "\"%3, %4, %5\"", "\"%3, %5, %4\"", "box_3d_0"},
    {"an arrival that does not come", "[%0], 1;\" ::\"r\"(at_shared(first + i))",
     "[%0], 2;\" ::\"r\"(at_shared(first + i))", "box_2d_0"},
    {"a wait for the other phase", "done, [%0], %1", "done, [%0], 1", "box_2d_0"},
    {"no fence in front of products", "wgmma.fence.sync.aligned;", "", "f16_16"},
    {"sums of wgmma in another order", "\"+f\"(low[i]), \"+f\"(low[i + 1])", "\"+f\"(low[i + 1]), \"+f\"(low[i])",
     "f16_16"},
    {"a product that does not add", "setp.ne.b32 add, 1, 0", "setp.eq.b32 add, 1, 0", "f16_16"},
    {"offsets of a descriptor exchanged", "exchanged ? across : along", "exchanged ? along : across", "f16_layout_3"},
    {"another swizzle", "row == 64 ? 2 : row == 32 ? 3", "row == 64 ? 3 : row == 32 ? 2", "f16_layout_1"},
    {"halves of a descriptor exchanged", "{%1, %2};\" : \"=l\"", "{%2, %1};\" : \"=l\"", "f16_16"},
    {"an operand of a wrong class", "\"r\"(at), \"l\"(from)", "\"l\"(at), \"r\"(1)", "copy_8"},
    {"an operand that does not exist", "TW_GROUP(8, 4, 5, 6, 7, 8, 9)", "TW_GROUP(8, 4, 5, 6, 9, 8, 9)", "f16_8"},
    {"an unknown instruction", "ex2.approx.ftz.f32", "ex2.approx.f64", "exp_near"},
    {"a counter with one block more", "static_cast<unsigned>(parts - 1)", "static_cast<unsigned>(parts)",
     "last_to_arrive"},
    {"a block that is never the last", "before == last", "before != last", "last_to_arrive"},
    {"every warp's first thread in place of one", "== 0 && one != 0", ">= 0 && one != 0", "elected"},
};

TEST(Ptx, OfAPlantedFaultIsFound) {
    const std::string text = kDeviceCuda;
    for (const Fault& f : kFaults) {
        std::string planted = text;
        size_t count = 0;
        for (size_t at = planted.find(f.from); at != std::string::npos;
             at = planted.find(f.from, at + f.to.size()), ++count)
            planted.replace(at, f.from.size(), f.to);
        EXPECT_GE(count, size_t{1}) << f.what;
        std::vector<Probe> probes = all_probes();
        std::erase_if(probes, [&](const Probe& p) { return !p.kernel.name.starts_with("probe_" + f.probes); });
        ASSERT_FALSE(probes.empty()) << f.what;
        const Lockstep emulated(kernels_of(probes), options());
        try {
            const Interpreted interpreted(kernels_of(probes), options(), planted);
            EXPECT_NE(disagreements(probes, emulated, interpreted), std::vector<std::string>()) << f.what;
        } catch (const RuntimeError& e) {
            // PTX that is refused; not C++.
            EXPECT_THAT(e.what(), Not(HasSubstr("refuses the text of a kernel"))) << f.what;
        }
    }
}

std::vector<LockstepCase> generated_cases() {
    using namespace cuda::test;
    std::vector<LockstepCase> out;
    const auto whole = [&](const std::string& name, const TileProgram& p) {
        out.push_back({name, p, {schedule_cases::whole_numbers(p.stages, {})}, 0});
    };
    for (const auto& [type, unit] : {std::pair("f16", "f16"), std::pair("bf16", "bf16"), std::pair("f32", "tf32")}) {
        whole(fmt::format("{} by ldmatrix", unit), matrix_product({"40", "72", "48", type, unit}));
        for (const bool swizzled : {false, true})
            for (const bool turned : {false, true}) {
                if (turned && std::string(unit) == "tf32") continue;
                MatrixProduct p = {"128", "128", "128", type, unit};
                p.group = true;
                p.swizzled = swizzled;
                p.a_turned = turned;
                p.b_turned = !turned;
                p.block = p.warp = "64";
                p.step = 64;
                whole(fmt::format("{} of a warpgroup, {}, {}", unit, swizzled, turned), matrix_product(p));
            }
    }
    for (const int stages : {2, 4}) {
        MatrixProduct p = {"64", "132", "136", "f32", "tf32"};
        p.group = p.swizzled = p.exchanged = true;
        p.block = p.warp = "64";
        p.stages = stages;
        whole(fmt::format("tf32 with rows along the result, {}", stages), matrix_product(p));
    }
    for (const bool group : {false, true}) {
        MatrixProduct p = {"128", "64", "328", "f16", "f16"};
        p.group = p.swizzled = group;
        p.split = "64";
        whole(fmt::format("parts of sums, {}", group), matrix_product(p));
    }
    for (const bool group : {false, true}) {
        const TileProgram p = matrix_attention("f16", "f16", 1, 128, 96, 64, 64, 64, 32, 2, group);
        out.push_back({fmt::format("attention {}", group), p, {random_inputs(p.stages, 3)}, 2e-3});
    }
    return out;
}

TEST(Ptx, OfGeneratedKernelsComputesWhatTheirStagesSay) {
    const std::vector<LockstepCase> cases = generated_cases();
    std::vector<KernelText> texts;
    for (const LockstepCase& c : cases) {
        ASSERT_EQ(verify(c.program), std::vector<std::string>()) << c.name;
        texts.push_back(generate(c.program, h200(), fmt::format("kernel_{}", texts.size())));
    }
    const Interpreted kernels(texts, options());
    for (size_t k = 0; k < cases.size(); ++k)
        EXPECT_EQ(cuda::test::disagreement(kernels, k, cases[k]), "") << cases[k].name;
}

TEST(Ptx, ThatIsNotKnownIsRefused) {
    const auto refusal = [](const std::string& text) -> std::string {
        try {
            const PtxMachine machine({text});
        } catch (const RuntimeError& e) {
            return e.what();
        }
        return "";
    };
    EXPECT_EQ(refusal("cp.async.wait_all.shared;"), "unknown instruction: cp.async.wait_all.shared");
    EXPECT_EQ(refusal("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%0}, %1, %2, p, 1, 1, 0, 0;"),
              "unknown instruction: wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16");
    EXPECT_THAT(refusal("cvt.rn.f16.f32 %0, %1"), HasSubstr("no ';'"));
    EXPECT_THAT(refusal("{ ret;"), HasSubstr("a '{' without a '}'"));
    EXPECT_THAT(refusal("max.NaN.f32 %x, %1, %2;"), HasSubstr("'x' is no number"));
}

}  // namespace
}  // namespace tilewright::cuda::oracle
