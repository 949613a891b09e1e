// How many tile programs all of these tests together have executed without a GPU; and that NVIDIA's compiler takes
// them, where it is there.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>

#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/nvrtc.h"
#include "base/code_cache.h"
#include "base/error.h"

namespace tilewright::cuda {
namespace {

/// Kernels for one GPU of every `stride`th of these, and of all that multiply by warpgroups.
std::vector<KernelText> texts_for(const std::vector<TileProgram>& programs, const GpuTarget& target, size_t stride) {
    std::vector<KernelText> out;
    for (size_t k = 0; k < programs.size(); ++k) {
        const TileProgram& p = programs[k];
        if (test::on_four_warps(p) ? !target.has_wgmma() : k % stride != 0) continue;
        try {
            out.push_back(generate(p, target, fmt::format("kernel{}", k)));
        } catch (const RuntimeError&) {  // made for more shared memory than this one has
        }
    }
    return out;
}

/// Empty, or the compiler's words on the first of the texts that it refuses.
std::string refused_group(const Nvrtc& nvrtc, const std::vector<KernelText>& group, int capability,
                          const CodeCache& cache) {
    std::string made_of = fmt::format("sm_{}\n{}", capability, device_header());
    for (const KernelText& text : group) made_of += "\n" + text.text;
    if (cache.find(made_of)) return "";
    try {
        const std::string code = nvrtc.compile(group, capability);
        if (code.substr(1, 3) != "ELF") return "no machine code";
        cache.keep(made_of, code);
        return "";
    } catch (const RuntimeError&) {
    }
    for (const KernelText& text : group) try {
            nvrtc.compile(std::vector<KernelText>{text}, capability);
        } catch (const RuntimeError& e) {
            return fmt::format("{}\n{}", e.what(), text.text);
        }
    return "it refuses texts together that it takes one by one";
}

/// Empty, or the compiler's words on the first text that it refuses. Groups of texts are compiled together: most of a
/// compilation is the header.
std::string refused(const Nvrtc& nvrtc, const std::vector<KernelText>& texts, int capability) {
    constexpr size_t kGroup = 16;
    const CodeCache cache(test::cubin_folder());
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::string first;
    const auto work = [&] {
        for (size_t at = kGroup * next++; at < texts.size(); at = kGroup * next++) {
            const auto end = texts.begin() + static_cast<std::ptrdiff_t>(std::min(at + kGroup, texts.size()));
            const std::vector<KernelText> group(texts.begin() + static_cast<std::ptrdiff_t>(at), end);
            const std::string why = refused_group(nvrtc, group, capability, cache);
            const std::lock_guard lock(mutex);
            if (first.empty()) first = why;
        }
    };
    std::vector<std::thread> others;
    for (unsigned t = 1; t < std::clamp(std::thread::hardware_concurrency(), 1u, 8u); ++t) others.emplace_back(work);
    work();
    for (std::thread& t : others) t.join();
    return first;
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
        // Compiling 100 takes 10 seconds, and the texts for the two differ in few instructions.
        for (const auto& [target, stride] : {std::pair{h200(), size_t{2}}, std::pair{a100(), size_t{7}}}) {
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
