// Micro-kernels for all samples of dynamic sizes. "Measured" seconds are estimates times a factor of the register tile
// that the model does not have.

#include "schedule/dynamic/joint_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "program/random_program.h"
#include "schedule/construct/problems_test.h"
#include "schedule/construct/walk.h"
#include "schedule/dynamic/joint_schedules.h"
#include "schedule/kernel_costs_test.h"
#include "tile/walk.h"

namespace tilewright::dynamic {
namespace {

using testing::HasSubstr;

/// Dense layers of BERT: rows are tokens.
Program dense(const char* rows = "$rows") {
    return parse_program(fmt::format(R"(program dense {{
  input a: f32[{0}, 64]
  input b: f32[64, 96]
  c: f32[{0}, 96] = [{0}, 96] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
}})",
                                     rows));
}
const Var kRows =
    *parse_program("program p {\n  input a: f32[$rows]\n  output a\n}").values[ValueId(0)].shape[0].as_var();
const IndexVector<PrimitiveId, std::vector<size_t>> kNoRows(1);

std::vector<SizeSample> rows_of(const std::vector<int64_t>& sizes) {
    std::vector<SizeSample> out;
    for (const int64_t n : sizes) out.push_back({{{kRows, n}}, 1});
    return out;
}

Scheduling how(int workers = 1) {
    Scheduling s;
    s.kind = SchedulerKind::DietCode;
    s.target = construct::narrow_target(workers);
    s.estimates = true;
    return s;
}

std::vector<Instance> instances(const std::vector<int64_t>& sizes, int workers = 1) {
    return instances_of(dense(), kNoRows, rows_of(sizes), how(workers));
}

/// A micro-kernel of the first space with these tiles.
MicroKernel with_tiles(const Instance& space, int64_t rows, int64_t columns, Padding padding) {
    construct::Etir e = construct::initial(*space.problem);
    for (auto& tile : e.tiles) tile = space.problem->stage.extents;
    e.tiles[0][0] = 4;
    e.tiles[0][1] = 16;
    e.tiles[1][0] = e.tiles[2][0] = rows;
    e.tiles[1][1] = e.tiles[2][1] = columns;
    MicroKernel out = micro_kernel(space, construct::realise(*space.problem, e), construct::narrow_target());
    out.padding = padding;
    return out;
}

TEST(Adaption, is_the_share_of_whole_tiles_and_of_whole_waves) {
    const std::vector<Instance> at = instances({960, 1024}, 4);
    const Target four = construct::narrow_target(4);
    const MicroKernel global = with_tiles(at[1], 128, 48, Padding::Global);
    // DietCode's example: 16 x 60 rows in tiles of 128 are 8 tiles of which 1,024 rows are computed. 2 x 8 tasks are 4
    // waves of 4.
    EXPECT_DOUBLE_EQ(adaption(global, at[0], four).pad, 960.0 / 1024);
    EXPECT_DOUBLE_EQ(adaption(global, at[0], four).spatial, 1);
    EXPECT_DOUBLE_EQ(adaption(global, at[1], four).share(), 1);
    // 10 tiles of 104 rows, each in 2 tasks: 5 waves of 4.
    const MicroKernel more = with_tiles(at[1], 104, 96, Padding::Global);
    EXPECT_DOUBLE_EQ(adaption(more, at[1], four).spatial, 10.0 / 12) << "10 tasks in 3 waves of 4";
}

TEST(Adaption, depends_on_the_padding_policy) {
    const std::vector<Instance> at = instances({9, 128});
    const Target one = construct::narrow_target();
    const auto pad = [&](Padding padding) { return adaption(with_tiles(at[1], 128, 96, padding), at[0], one).pad; };
    EXPECT_DOUBLE_EQ(pad(Padding::Global), 9.0 / 128) << "to the task";
    EXPECT_DOUBLE_EQ(pad(Padding::Local), 9.0 / 12) << "to register tiles of 4";
    // One row of two vectors has two multiply-adds under way, of the eight or more that the units take.
    EXPECT_DOUBLE_EQ(pad(Padding::Partition), 9.0 / 12);
    const std::vector<Instance> even = instances({8, 128});
    EXPECT_DOUBLE_EQ(adaption(with_tiles(even[1], 128, 96, Padding::Partition), even[0], one).pad, 1);
}

TEST(Instances, are_the_different_sizes_of_the_samples) {
    std::vector<SizeSample> samples = rows_of({8, 100, 8});
    samples[1].weight = 3;
    const std::vector<Instance> all = instances_of(dense(), kNoRows, samples, how());
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].problem->stage.extents, (std::vector<int64_t>{8, 96, 64}));
    EXPECT_DOUBLE_EQ(all[0].weight, 2);
    EXPECT_DOUBLE_EQ(all[1].weight, 3);
    EXPECT_DOUBLE_EQ(all[1].points(), 100.0 * 96 * 64);
    EXPECT_TRUE(instances_of(dense(), kNoRows, {}, how()).empty());
}

/// Seconds of a schedule at the assumed sizes.
double truth(const TileProgram& t) {
    const auto& registers = walk(t).computes.front().second->micro.registers;
    return estimated_costs(how()).estimate(t) * (registers[0] == 3 ? 0.5 : 1);
}

struct Searched {
    JointResult result;
    std::vector<std::pair<std::string, int64_t>> measured;  ///< schedules and rows
};

Searched search(const std::vector<Instance>& all, JointOptions options) {
    Searched out;
    options.population = 64;
    options.batch = 16;
    options.initial = 20;
    MeanModel model;
    const Scheduling scheduling = how();
    const EstimateAt estimate = [&](const TileProgram& t, const Instance& at) {
        return estimated_costs(scheduling).estimate(t, at.models);
    };
    const MeasurePrograms measure = [&](const std::vector<TileProgram>& programs) {
        std::vector<double> seconds;
        for (const TileProgram& t : programs) {
            EXPECT_TRUE(verify(t).empty()) << print(t);
            out.measured.emplace_back(print_schedule(t), t.stages.assumed.at(kRows));
            seconds.push_back(truth(t));
        }
        return seconds;
    };
    out.result = joint_search(all, scheduling.target, options, model, estimate, measure);
    return out;
}

/// The least seconds of many states of the space of one size.
double best_alone(const Instance& at) {
    std::mt19937_64 rng(5);
    double best = 1e300;
    for (int k = 0; k < 300; ++k) {
        const construct::Realised r = construct::realise(*at.problem, construct::random_state(*at.problem, rng));
        best = std::min(best, truth(construct::to_tile_program(at.stages, *at.problem, r)));
    }
    return best;
}

TEST(JointSearch, finds_for_all_samples_what_searches_for_each_find) {
    const std::vector<Instance> all = instances({3, 48, 600});
    JointOptions options;
    options.trials = 160;
    const Searched s = search(all, options);
    EXPECT_LE(s.result.pairs, 160u);
    EXPECT_EQ(s.measured.size(), s.result.pairs);
    ASSERT_EQ(s.result.chosen.size(), 3u);
    for (size_t i = 0; i < all.size(); ++i) {
        const auto& chosen = s.result.chosen[i];
        EXPECT_EQ(chosen.program.stages.assumed.at(kRows), all[i].stages.assumed.at(kRows));
        EXPECT_LE(truth(chosen.program), 1.1 * best_alone(all[i])) << i;
        EXPECT_LE(truth(chosen.program), truth(all[i].rule)) << i;
    }
    EXPECT_LE(s.result.cover.ways.size(), 3u);
}

TEST(JointSearch, measures_no_pair_twice_and_is_the_same_when_the_times_are) {
    const std::vector<Instance> all = instances({3, 48, 600});
    JointOptions options;
    options.trials = 60;
    const Searched one = search(all, options), other = search(all, options);
    EXPECT_EQ(one.measured, other.measured);
    EXPECT_EQ(std::set(one.measured.begin(), one.measured.end()).size(), one.measured.size());
    options.seed = 2;
    EXPECT_NE(search(all, options).measured, one.measured);
}

TEST(JointSearch, measures_only_what_can_change_the_choice) {
    const std::vector<Instance> all = instances({3, 48, 600});
    JointOptions options;
    options.trials = 100'000;
    const Searched s = search(all, options);
    EXPECT_LT(s.result.pairs, 2000u);
    EXPECT_GT(s.result.skipped, 0u);
    EXPECT_NE(s.result.ended, "all trials were made");
}

/// Each micro-kernel once, where most of it is whole tiles.
TEST(JointSearch, as_published_measures_a_micro_kernel_at_one_instance) {
    const std::vector<Instance> all = instances({3, 48, 600});
    JointOptions options;
    options.trials = 64;
    options.published = true;
    const Searched s = search(all, options);
    EXPECT_EQ(s.result.pairs, 64u);
    EXPECT_EQ(s.result.kernels, 64u);
    std::set<std::string> schedules;
    for (const auto& [schedule, rows] : s.measured) schedules.insert(schedule);
    EXPECT_EQ(schedules.size(), 64u);
    EXPECT_EQ(s.result.skipped, 0u);
}

TEST(JointSearch, leaves_out_what_cannot_run) {
    const std::vector<Instance> all = instances({3, 48});
    MeanModel model;
    const EstimateAt estimate = [&](const TileProgram& t, const Instance& at) {
        return estimated_costs(how()).estimate(t, at.models);
    };
    JointOptions options;
    options.trials = 40;
    options.population = 32;
    const auto run = [&](const MeasurePrograms& measure) {
        return joint_search(all, how().target, options, model, estimate, measure);
    };
    const JointResult none =
        run([](const std::vector<TileProgram>& programs) { return std::vector<double>(programs.size(), -1); });
    for (const auto& chosen : none.chosen) EXPECT_LT(chosen.seconds, 0);
    const JointResult late = run([](const std::vector<TileProgram>&) { return std::vector<double>(); });
    EXPECT_EQ(late.pairs, 0u);
    EXPECT_LT(late.chosen.at(0).seconds, 0);
}

/// A schedule for one size computes all of them.
TEST(JointSearch, gives_schedules_that_are_right_for_all_sizes) {
    const std::vector<Instance> all = instances({3, 48});
    JointOptions options;
    options.trials = 40;
    const Searched s = search(all, options);
    for (const auto& chosen : s.result.chosen)
        for (const int64_t rows : {1, 2, 3, 13, 48, 50}) {
            const Program fixed = dense(std::to_string(rows).c_str());
            const std::vector<Tensor> inputs = random_inputs(fixed, 7);
            EXPECT_LE(largest_difference(interpret(fixed, inputs), interpret(chosen.program, inputs, {})), 1e-5)
                << rows << "\n"
                << print(chosen.program);
        }
}

TEST(JointSchedules, search_once_for_all_samples) {
    Scheduling s = how();
    size_t measured = 0, reports = 0;
    test::measure_schedules_by(s, [&](const std::vector<TileProgram>& all) {
        measured += all.size();
        std::vector<double> seconds;
        for (const TileProgram& t : all) seconds.push_back(truth(t));
        return seconds;
    });
    s.trials = 40;
    JointOptions options;
    options.population = 32;
    s.joint = std::make_shared<JointSchedules>(
        rows_of({3, 48}), options, [] { return std::make_unique<MeanModel>(); },
        [&](const std::string& kernel, const JointResult& r) {
            EXPECT_THAT(kernel, HasSubstr("dense"));
            EXPECT_EQ(r.chosen.size(), 2u);
            ++reports;
        });
    for (const int64_t rows : {48, 3}) {
        Program stages = dense();
        stages.assumed[kRows] = rows;
        stages.at_most[kRows] = 4 * rows;  // as the pass sample_sizes bounds it
        const TileProgram made = make_schedule(stages, kNoRows, s);
        EXPECT_TRUE(verify(made).empty());
        EXPECT_EQ(made.stages.assumed.at(kRows), rows);
    }
    EXPECT_EQ(reports, 1u);
    EXPECT_LE(measured, 40u);
    // Other sizes than the samples', and fixed ones, are searched alone.
    EXPECT_FALSE(s.joint->schedule(dense(), kNoRows, s).has_value());
    EXPECT_FALSE(s.joint->schedule(dense("20"), kNoRows, s).has_value());
    Program other = dense();
    other.assumed[kRows] = 7;
    EXPECT_FALSE(s.joint->schedule(other, kNoRows, s).has_value());
}

}  // namespace
}  // namespace tilewright::dynamic
