// Loops give what the interpreter's give: side by side, with results written in place, in alternating directions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/pipeline.h"
#include "model/recurrence_test.h"
#include "model/session.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using test::Recurrences;

CompileOptions for_threads(int n) {
    CompileOptions out;
    out.threads = n;
    return out;
}

/// All shapes through the same two sessions, of one and of two threads; then all again, the other way around.
void agrees(const Recurrences& options, const std::vector<std::pair<int64_t, int64_t>>& shapes) {
    const Program program = recurrences(options);
    const auto model = compile_program(program, for_threads(2));
    Session one(model, 1), two(model, 2);
    std::vector<std::pair<int64_t, int64_t>> all = shapes;
    all.insert(all.end(), shapes.rbegin(), shapes.rend());
    for (const auto& [steps, batch] : all) {
        const std::vector<Tensor> inputs = test::recurrence_inputs(steps, batch, options.hidden);
        const std::vector<Tensor> expected = interpret(program, inputs), alone = one.run(inputs);
        EXPECT_LE(largest_difference(expected, alone), 1e-5) << steps << " steps of " << batch;
        EXPECT_EQ(two.run(inputs), alone) << steps << " steps of " << batch;
        EXPECT_EQ(two.last_flops(), one.last_flops());
    }
}

// Slices of 80 bytes times the batch: some are whole cache lines, which a body writes to where they stay, some not.
const std::vector<std::pair<int64_t, int64_t>> kShapes = {{1, 1}, {4, 3},  {3, 4}, {2, 16}, {7, 1},
                                                          {0, 4}, {30, 5}, {1, 4}, {30, 5}, {5, 8}};

TEST(Loops, side_by_side_give_what_the_interpreter_gives) { agrees({}, kShapes); }

TEST(Loops, that_need_each_other_give_what_the_interpreter_gives) {
    Recurrences chained;
    chained.chained = true;
    agrees(chained, kShapes);
    Recurrences different;
    different.different = true;
    different.loops = 3;
    agrees(different, kShapes);
}

TEST(Loops, with_conditions_give_what_the_interpreter_gives) {
    Recurrences conditional;
    conditional.conditional = true;
    agrees(conditional, kShapes);
}

TEST(Loops, whose_weights_are_as_large_as_a_cache_are_read_in_alternating_order) {
    Recurrences large;
    large.hidden = 352;  // 484 KiB
    agrees(large, {{6, 1}, {5, 3}, {4, 20}});
}

TEST(Loops, side_by_side_are_all_in_the_profile) {
    const auto model = compile_program(test::recurrences({}), for_threads(2));
    std::vector<std::vector<std::string>> names(2);
    for (const int threads : {1, 2}) {
        Session session(model, threads);
        std::vector<StepTime> profile;
        session.set_profile(&profile);
        session.run(test::recurrence_inputs(3, 2, 20));
        for (const StepTime& t : profile) names[static_cast<size_t>(threads - 1)].push_back(t.name);
    }
    EXPECT_THAT(names[0], testing::Contains("loop0/steps"));
    EXPECT_NE(names[0], names[1]) << "two threads keep one thread's order";
    EXPECT_THAT(names[1], testing::UnorderedElementsAreArray(names[0]));
}

TEST(Loops, side_by_side_say_what_does_not_fit_and_go_on) {
    const auto model = compile_program(test::recurrences({}), for_threads(2));
    const std::vector<Tensor> large = test::recurrence_inputs(1, 4096, 20), small = test::recurrence_inputs(2, 1, 20);
    const std::vector<Tensor> expected = Session(model, 1).run(small);
    bool in_a_loop = false, fits = false;
    for (uint64_t limit = 1 << 18; !fits; limit += 1 << 17) {
        Session session(model, 2, limit);
        try {
            session.run(large);
            fits = true;
        } catch (const RuntimeError& e) {
            in_a_loop = in_a_loop || std::string(e.what()).find("loop 'loop") != std::string::npos;
            if (limit > 1 << 19) {
                EXPECT_EQ(session.run(small), expected);
            }
        }
    }
    EXPECT_TRUE(in_a_loop);
}

}  // namespace
}  // namespace tilewright
