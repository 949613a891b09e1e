// Whatever the tiles, the text of a kernel gives what its stages give, thread by thread.

#include <gtest/gtest.h>

#include "backend/cuda/lockstep_cases_test.h"
#include "tile/examples_test.h"
#include "tile/random_case_test.h"

namespace tilewright::cuda {
namespace {

using namespace test;

/// Small whole numbers, so that sums are exact in any order.
std::vector<Tensor> whole_numbers(const Program& stages, const std::map<std::string, int64_t>& sizes = {}) {
    Bindings bindings;
    for (const auto& [name, size] : sizes) bindings[*symbol(name).as_var()] = size;
    std::vector<Tensor> inputs;
    for (const ValueId v : stages.inputs) {
        Tensor t(stages.values[v].dtype, evaluate(stages.values[v].shape, bindings));
        const auto k = static_cast<int64_t>(inputs.size());
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, (i * 7 + i / 11 + k * 3) % 13 - 6);
        inputs.push_back(t);
    }
    return inputs;
}

TEST(CudaText, OfTheExamplesComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    for (const std::string& text : {kGemm, kChain, kConvolution}) {
        const TileProgram p = parse_tile_program(text);
        cases.push_back({p.name, p, {whole_numbers(p.stages)}, 0});
    }
    const TileProgram softmax = parse_tile_program(kSoftmax);
    cases.push_back({"softmax", softmax, {}, 1e-6});
    for (const int64_t rows : {1, 2, 3, 8})
        cases.back().inputs.push_back(whole_numbers(softmax.stages, {{"rows", rows}}));
    expect_right(cases);
}

std::vector<LockstepCase> random_cases(uint64_t from, uint64_t to, const RandomScheduleOptions& schedule) {
    std::vector<LockstepCase> out;
    for (uint64_t seed = from; seed < to; ++seed) {
        ScheduledCase c = random_scheduled_case(seed, 1 + static_cast<int>(seed % 3), schedule, {});
        out.push_back({fmt::format("seed {}", seed), c.program, {c.given.inputs}, 1e-3});
    }
    return out;
}

TEST(CudaText, OfRandomSchedulesComputesWhatTheySay) {
    RandomScheduleOptions schedule;
    schedule.most_lanes = 8;
    schedule.most_registers = 16;
    const char* wanted = std::getenv("TILEWRIGHT_RANDOM_PROGRAMS");
    const auto upto = static_cast<uint64_t>(wanted != nullptr ? std::atoll(wanted) : 256);
    for (uint64_t from = 0; from < upto; from += 32) expect_right(random_cases(from, from + 32, schedule));
}

}  // namespace
}  // namespace tilewright::cuda
