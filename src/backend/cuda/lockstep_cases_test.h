#pragma once
// Tile programs under the lockstep executor, many to a translation unit; or on a GPU (on_gpu_test.h).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/lockstep.h"
#include "backend/cuda/on_gpu_test.h"
#include "backend/cuda/ulp_error_test.h"
#include "program/random_program.h"
#include "tile/random_schedule.h"

namespace tilewright::cuda::test {

inline LockstepOptions lockstep_options() { return {TW_TEST_CXX, {"-O0"}}; }

/// Tile programs, as texts, that the executor, or the GPU, has run in this process, and that gave what their stages
/// give.
inline std::set<std::string>& executed() {
    static std::set<std::string> all;
    return all;
}
/// Counts the program. TILEWRIGHT_TILE_PROGRAMS=FOLDER: keeps it there as a text, for bench_ptxas.
inline void count_executed(const TileProgram& p) {
    const std::string text = print(p);
    const bool is_new = executed().insert(text).second;
    const char* folder = std::getenv("TILEWRIGHT_TILE_PROGRAMS");
    if (folder == nullptr || !is_new) return;
    std::filesystem::create_directories(folder);
    std::ofstream(std::filesystem::path(folder) / fmt::format("{:04}.tile", executed().size())) << text;
}

struct LockstepCase {
    std::string name;
    TileProgram program;
    std::vector<std::vector<Tensor>> inputs;  ///< each is one run
    double tolerance = 1e-4;
};

/// Empty where the kernel, executed or on a GPU, gives, up to the tolerance relative to 1 + |x|, what the stages give.
template <class Kernels>
std::string disagreement(const Kernels& kernels, size_t k, const LockstepCase& c) {
    for (const std::vector<Tensor>& inputs : c.inputs) try {
            const std::vector<Tensor> expected = interpret(c.program.stages, inputs);
            const std::vector<Tensor> got = kernels.run(k, c.program.stages, inputs);
            const double difference = largest_difference(expected, got);
            if (!(difference <= c.tolerance))
                return fmt::format("the kernel is {} from the stages: {}", difference, error_text(expected, got));
        } catch (const std::exception& e) {
            return e.what();
        }
    return "";
}

inline std::string disagreement(const LockstepCase& c) {
    try {
        return disagreement(Lockstep({generate(c.program, h200(), "kernel")}, lockstep_options()), 0, c);
    } catch (const std::exception& e) {
        return e.what();
    }
}

/// Kernels where this process tests them: in the executor, or on a GPU.
class TestKernels {
  public:
    explicit TestKernels(const std::vector<KernelText>& kernels, const LockstepOptions& options = lockstep_options()) {
        if (TestGpu* on = test_gpu())
            gpu_.emplace(*on, kernels);
        else
            lockstep_.emplace(kernels, options);
    }
    void run(size_t k, std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) const {
        gpu_ ? gpu_->run(k, tensors, names, blocks) : lockstep_->run(k, tensors, names, blocks);
    }
    std::vector<Tensor> run(size_t k, const Program& stages, const std::vector<Tensor>& inputs,
                            const Bindings& bindings = {}) const {
        return gpu_ ? gpu_->run(k, stages, inputs, bindings) : lockstep_->run(k, stages, inputs, bindings);
    }

  private:
    std::optional<Lockstep> lockstep_;
    std::optional<KernelsOnGpu> gpu_;
};

/// expect_right() on a GPU. What it cannot run, as it has less shared memory or not these instructions, is left out.
inline void expect_right_on(TestGpu& on, const std::vector<LockstepCase>& cases) {
    std::vector<KernelText> texts;
    std::vector<const LockstepCase*> run;
    for (const LockstepCase& c : cases) try {
            if (on.lacks(c.program)) continue;
            texts.push_back(generate(c.program, target_on(on.gpu), fmt::format("kernel_{}", texts.size())));
            run.push_back(&c);
        } catch (const RuntimeError&) {  // made for more shared memory
        }
    try {
        const KernelsOnGpu kernels(on, texts);
        int failures = 0;
        for (size_t k = 0; k < run.size() && failures < 3; ++k) {
            const std::string wrong = disagreement(kernels, k, *run[k]);
            if (wrong.empty())
                count_executed(run[k]->program);
            else if (++failures == 1)
                ADD_FAILURE() << run[k]->name << ": " << wrong << "\n" << print(run[k]->program) << texts[k].text;
            else
                ADD_FAILURE() << run[k]->name << ": " << wrong;
            if (!on.lost.empty()) return;  // the rest would say the same
        }
    } catch (const RuntimeError& e) {
        ADD_FAILURE() << e.what();
    }
}

/// Expects of every case that its kernel is right; of the first that is not, the simplest program that still is not.
inline void expect_right(const std::vector<LockstepCase>& cases) {
    if (TestGpu* on = test_gpu()) return expect_right_on(*on, cases);
    std::vector<KernelText> texts;
    for (const LockstepCase& c : cases) {
        ASSERT_EQ(verify(c.program), std::vector<std::string>()) << c.name << "\n" << print(c.program);
        texts.push_back(generate(c.program, h200(), fmt::format("kernel_{}", texts.size())));
    }
    const Lockstep kernels(texts, lockstep_options());
    int failures = 0;
    for (size_t k = 0; k < cases.size() && failures < 3; ++k) {
        const std::string wrong = disagreement(kernels, k, cases[k]);
        if (wrong.empty()) {
            count_executed(cases[k].program);
            continue;
        }
        LockstepCase small = cases[k];
        if (failures++ == 0)
            small.program = shrink(cases[k].program, [&](const TileProgram& t) {
                try {
                    generate(t, h200());
                } catch (const std::exception&) {
                    return false;  // refused, which is another fault
                }
                return !disagreement({"", t, cases[k].inputs, cases[k].tolerance}).empty();
            });
        ADD_FAILURE() << cases[k].name << ": " << wrong << "\n"
                      << disagreement(small) << "\n"
                      << print(small.program) << generate(small.program, h200()).text;
    }
}

}  // namespace tilewright::cuda::test
