// Whatever the tiles, machine code gives what the tile interpreter gives, and what the stages give.

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/run_kernel_test.h"
#include "tile/random_case_test.h"

namespace tilewright::cpu {
namespace {

using namespace test;

/// How a batch of random kernels is made, and how near its results must be.
struct Family {
    Isa isa;
    int64_t lanes = 16;
    int64_t registers = 16;
    bool doubles = false;
    double tolerance = 1e-3;
    int size = 3;
};

ScalarBody in_doubles(const ScalarBody& body) {
    ScalarBody out;
    std::vector<ScalarId> at;
    for (ScalarNode n : body.nodes()) {
        if (n.dtype == DType::F32) n.dtype = DType::F64;
        for (ScalarId* operand : {&n.a, &n.b, &n.c})
            if (*operand) *operand = at[operand->index()];
        at.push_back(out.add(n));
    }
    if (!body.empty()) out.set_root(at[body.root().index()]);
    return out;
}

/// The same kernel and inputs, with f64 for every f32.
void turn_to_doubles(ScheduledCase& c) {
    Program& stages = c.program.stages;
    for (Value& v : stages.values)
        if (v.dtype == DType::F32) v.dtype = DType::F64;
    for (Primitive& p : stages.primitives) {
        p.expr()->body = in_doubles(p.expr()->body);
        p.expr()->epilogue = in_doubles(p.expr()->epilogue);
    }
    for (Tensor& t : c.given.inputs) {
        if (t.dtype() != DType::F32) continue;
        Tensor wide(DType::F64, t.shape());
        for (int64_t i = 0; i < t.count(); ++i) wide.set(i, t.get(i));
        t = wide;
    }
}

ScheduledCase made(uint64_t seed, const Family& family) {
    RandomScheduleOptions schedule;
    schedule.most_lanes = family.lanes;
    schedule.most_registers = family.registers;
    RandomProgramOptions options;
    options.other_types = !family.doubles;
    const int size = 1 + static_cast<int>(seed % static_cast<uint64_t>(family.size));
    ScheduledCase made = random_scheduled_case(seed, size, schedule, options);
    if (family.doubles) turn_to_doubles(made);
    return made;
}

/// Compiles `many` kernels at a time, as a model's are, and compares them one by one.
void agree(uint64_t from, uint64_t to, const Family& family) {
    constexpr uint64_t kMany = 32;
    int failures = 0;
    for (uint64_t begin = from; begin < to && failures < 3; begin += kMany) {
        std::vector<ScheduledCase> cases;
        for (uint64_t seed = begin; seed < std::min(begin + kMany, to); ++seed) cases.push_back(made(seed, family));
        std::vector<const TileProgram*> programs;
        for (const ScheduledCase& c : cases) programs.push_back(&c.program);
        std::vector<CompiledKernel> kernels;
        try {
            kernels = compile(programs, {family.isa, true});
        } catch (const std::exception&) {  // one by one, to say which
        }
        for (size_t i = 0; i < cases.size(); ++i) {
            const TileProgram& t = cases[i].program;
            const std::vector<Tensor>& inputs = cases[i].given.inputs;
            if (!kernels.empty() && disagreement(kernels[i], t, inputs, family.tolerance).empty()) continue;
            const std::string wrong = explained(t, inputs, family.tolerance, family.isa);
            if (wrong.empty() && kernels.empty()) continue;
            ++failures;
            ADD_FAILURE() << "seed " << begin + i << ": " << wrong;
        }
    }
}

TEST(Codegen, of_random_schedules_computes_what_they_say_on_avx2) {
    if (!runs_here(Isa::avx2())) GTEST_SKIP() << "this machine has no AVX2";
    agree(0, 1500, {.isa = Isa::avx2(), .lanes = 8});
    agree(1500, 1700, {.isa = Isa::avx2(), .lanes = 16});
}

TEST(Codegen, of_random_schedules_computes_what_they_say_in_doubles) {
    if (!runs_here(Isa::avx2())) GTEST_SKIP() << "this machine has no AVX2";
    agree(5000, 5300, {.isa = Isa::avx2(), .lanes = 8, .doubles = true, .tolerance = 1e-9});
}

TEST(Codegen, of_random_schedules_computes_what_they_say_on_avx512) {
    if (!runs_here(Isa::avx512())) GTEST_SKIP() << "this machine has no AVX-512";
    agree(0, 1700, {.isa = Isa::avx512(), .lanes = 16});
    agree(5000, 5300, {.isa = Isa::avx512(), .lanes = 8, .doubles = true, .tolerance = 1e-9});
}

}  // namespace
}  // namespace tilewright::cpu
