// Products of a few rows, as decoders have them: weights are read 16 bytes a thread, by neighbours side by side.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/kernel.h"
#include "backend/cuda/lockstep_cases_test.h"
#include "base/error.h"
#include "cost/annotate_options.h"
#include "cost/target_with_test.h"
#include "schedule/gpu/gpu_schedule.h"
#include "tile/annotate/gpu.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::HasSubstr;

/// max(x w + bias, bias); `turned`: w[n, k].
std::string rows(const std::string& m, const std::string& n, const std::string& k, const std::string& type,
                 bool turned) {
    return fmt::format(R"TW(program p {{
  input x: {type}[{m}, {k}]
  input w: {type}[{w}]
  input bias: {type}[{n}]
  c: {type}[{m}, {n}] = [{m}, {n}] sum(i2 < {k}) mul({x}, {y}) then max(add(acc, {b}), {b}) where @0 = x[i0, i2], @1 = w[{at}], @2 = bias[i1]
  output c
}})TW",
                       fmt::arg("type", type), fmt::arg("m", m), fmt::arg("n", n), fmt::arg("k", k),
                       fmt::arg("w", turned ? n + ", " + k : k + ", " + n),
                       fmt::arg("at", turned ? "i1, i2" : "i2, i1"), fmt::arg("x", "@0"), fmt::arg("y", "@1"),
                       fmt::arg("b", "@2"));
}

std::vector<TileProgram> schedules(const std::string& stages) {
    std::vector<TileProgram> out;
    for (auto& [seconds, t] : gpu_row_schedules(parse_program(stages), tilewright::test::on_gpu(h200())))
        out.push_back(std::move(t));
    return out;
}
TileProgram best(const std::string& stages) {
    return gpu_schedule(parse_program(stages), IndexVector<PrimitiveId, std::vector<size_t>>(1),
                        tilewright::test::on_gpu(h200()), Precision::F32);
}

LockstepCase whole(const std::string& name, const TileProgram& p,
                   const std::vector<schedule_cases::Sizes>& sizes = {{}}) {
    LockstepCase c{name, p, {}, 0};
    for (const auto& s : sizes) c.inputs.push_back(schedule_cases::whole_numbers(p.stages, s));
    return c;
}

/// How many bytes of the weights a thread of the schedule reads at a time.
int64_t bytes_at_a_time(const TileProgram& p) {
    const TileProgram annotated = gpu::annotate(p, *annotate_options(h200()).gpu);
    const Walk tree = walk(annotated);
    const auto& access = tree.computes.at(0).second->micro.annotations.access;
    const OperandRead* read = access->read(1);
    const ValueId w = p.stages.primitives[PrimitiveId(0)].expr()->accesses[1].value;
    return (read != nullptr ? read->width : 1) * static_cast<int64_t>(byte_size(p.stages.values[w].dtype));
}

TEST(RowProducts, ReadWeightsOfEveryTypeAndLayout16BytesAThread) {
    std::vector<LockstepCase> cases;
    for (const char* type : {"f32", "f16", "bf16"})
        for (const bool turned : {false, true})
            for (const char* m : {"1", "3", "8"}) {
                const std::string stages = rows(m, "384", "512", type, turned);
                const std::string name = fmt::format("{} rows of {}, {}", m, type, turned);
                const std::vector<TileProgram> all = schedules(stages);
                ASSERT_FALSE(all.empty()) << name;
                for (const TileProgram& t : all) {
                    EXPECT_EQ(verify(t), std::vector<std::string>()) << print(t);
                    EXPECT_EQ(bytes_at_a_time(t), 16) << name << print(t);
                }
                const std::string text = generate(all[0], h200()).text;
                EXPECT_THAT(text, HasSubstr(fmt::format("tw::load<{}>(w", std::string(type) == "f32" ? 4 : 8))) << name;
                // The whole sum is of several threads: neighbours, or those of several warps.
                EXPECT_THAT(text, HasSubstr(turned ? "tw::reduce_in_warp<tw::Sum" : "tw::reduce_apart<tw::Sum"))
                    << name;
                cases.push_back(whole(name, all[0]));
            }
    expect_right(cases);
}

TEST(RowProducts, OfEverySizeOfBlocksAreRight) {
    std::vector<LockstepCase> cases;
    std::set<std::string> seen;
    for (const bool turned : {false, true})
        for (const TileProgram& t : schedules(rows("2", "320", "768", "f16", turned)))
            if (seen.insert(print_schedule(t)).second && seen.size() % 3 == 1)
                cases.push_back(whole(fmt::format("schedule {}", seen.size()), t));
    EXPECT_GE(cases.size(), size_t{8});
    expect_right(cases);
}

TEST(RowProducts, ThatAreNotAlignedReadWhatTheirRowsPermit) {
    std::vector<LockstepCase> cases;
    const std::vector<std::pair<std::string, int64_t>> lengths = {{"500", 8}, {"250", 4}, {"251", 2}};
    for (const auto& [length, bytes] : lengths)
        for (const bool turned : {false, true}) {
            const auto all =
                schedules(turned ? rows("1", "96", length, "f16", true) : rows("1", length, "96", "f16", false));
            ASSERT_FALSE(all.empty());
            EXPECT_EQ(bytes_at_a_time(all[0]), bytes) << print(all[0]);
            cases.push_back(whole(fmt::format("{} {}", length, turned), all[0]));
        }
    expect_right(cases);
}

TEST(RowProducts, OfDynamicSizesReadOneByOneWhereTheirRowsAreDynamic) {
    std::vector<LockstepCase> cases;
    for (const char* type : {"f32", "f16"})
        for (const bool turned : {false, true}) {
            const TileProgram columns = best(rows("1", "$n", "256", type, turned));
            cases.push_back(whole("columns", columns, {{{"n", 1}}, {{"n", 70}}, {{"n", 300}}}));
            const TileProgram sum = best(rows("2", "128", "$k", type, turned));
            cases.push_back(whole("sum", sum, {{{"k", 0}}, {{"k", 5}}, {{"k", 300}}}));
            const int64_t size = std::string(type) == "f32" ? 4 : 2;
            EXPECT_EQ(bytes_at_a_time(columns), turned ? 16 : size) << print(columns);
            EXPECT_EQ(bytes_at_a_time(sum), turned ? size : 16) << print(sum);
        }
    expect_right(cases);
}

TEST(RowProducts, OfADecoderHaveBlocksForEveryMultiprocessor) {
    for (const char* type : {"f32", "f16", "bf16"})
        for (const bool turned : {false, true})
            for (const auto& [n, k] :
                 {std::pair("4096", "4096"), std::pair("1024", "4096"), std::pair("4096", "14336")}) {
                const TileProgram t = best(rows("1", n, k, type, turned));
                SCOPED_TRACE(print(t));
                EXPECT_EQ(bytes_at_a_time(t), 16);
                const KernelText text = generate(t, h200());
                int64_t blocks = 1;
                for (const Expr& g : text.grid) blocks *= g.constant();
                EXPECT_GE(blocks, h200().multiprocessors / 2);
                EXPECT_GE(text.threads, 128);
            }
}

TEST(RowProducts, AreLeftToOthersWithoutNeighboursInMemory) {
    EXPECT_TRUE(schedules(rows("9", "256", "256", "f16", false)).empty());  // matrix instructions have work
    EXPECT_TRUE(schedules(R"TW(program p {
  input x: f32[1, 256]
  input w: f32[256, 256, 2]
  c: f32[1, 256] = [1, 256] sum(i2 < 256) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1, i2, 0]
  output c
})TW")
                    .empty());
}

}  // namespace
}  // namespace tilewright::cuda
