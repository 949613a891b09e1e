// How many tile programs all of these tests together have executed without a GPU; and that NVIDIA's compiler takes
// every one of them, where it is there.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <thread>

#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/machine_code.h"
#include "base/error.h"

namespace tilewright::cuda {
namespace {

/// Kernels of every `stride`th of these for one GPU.
std::vector<KernelText> texts_for(const std::vector<TileProgram>& programs, const GpuTarget& target, size_t stride) {
    std::vector<KernelText> out;
    for (size_t k = 0; k < programs.size(); k += stride) {
        const TileProgram& p = programs[k];
        if (!target.has_wgmma() && test::on_four_warps(p)) continue;
        try {
            out.push_back(generate(p, target, "kernel"));
        } catch (const RuntimeError&) {  // made for more shared memory than this one has
        }
    }
    return out;
}

/// Empty, or the compiler's words on the first text that it refuses.
std::string refused(const Nvrtc& nvrtc, const std::vector<KernelText>& texts, int capability) {
    const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
    try {
        const auto codes = machine_code(
            texts, capability, CodeCache(test::cubin_folder()), [&] { return nvrtc; }, threads);
        for (const std::string& code : codes)
            if (code.substr(1, 3) != "ELF") return "no machine code";
        return "";
    } catch (const RuntimeError&) {
    }
    for (const KernelText& text : texts) try {
            nvrtc.compile(std::vector<KernelText>{text}, capability);
        } catch (const RuntimeError& e) {
            return fmt::format("{}\n{}", e.what(), text.text);
        }
    return "it refuses texts together that it takes one by one";
}

class Executed : public testing::Environment {
  public:
    void TearDown() override {
        const testing::UnitTest& run = *testing::UnitTest::GetInstance();
        const std::set<std::string>& all = test::executed();
        if (const test::TestGpu* on = test::test_gpu()) {
            std::cout << all.size() << " tile programs gave the reference's results on '" << on->gpu.target().name
                      << "'\n";
            return;
        }
        std::cout << all.size() << " tile programs gave the reference's results in lockstep\n";
        // Fewer where the conformance cases are not at hand, or some tests alone were asked for.
        const bool whole = run.test_to_run_count() == run.total_test_count() &&
                           std::filesystem::exists(std::filesystem::path(TW_SOURCE_DIR) / "../shared/conformance/core");
        if (whole) {
            EXPECT_GE(all.size(), size_t{300});
        }
        std::optional<Nvrtc> nvrtc;
        try {
            nvrtc.emplace();
        } catch (const RuntimeError& e) {
            std::cout << "none was compiled: " << e.what() << "\n";
            return;
        }
        std::vector<TileProgram> programs;
        programs.reserve(all.size());
        for (const std::string& text : all) programs.push_back(parse_tile_program(text));
        // All for one of them: the texts for the other differ in few instructions, and compiling 100 takes 6 seconds.
        for (const auto& [target, stride] : {std::pair{h200(), size_t{1}}, std::pair{a100(), size_t{4}}}) {
            const std::vector<KernelText> texts = texts_for(programs, target, stride);
            EXPECT_EQ(refused(*nvrtc, texts, target.capability()), "");
            std::cout << texts.size() << " of them were compiled for sm_" << target.capability() << "\n";
            if (whole) {
                EXPECT_GE(texts.size(), size_t{300} / stride);
            }
        }
    }
};

const testing::Environment* const kExecuted = testing::AddGlobalTestEnvironment(new Executed);

}  // namespace
}  // namespace tilewright::cuda
