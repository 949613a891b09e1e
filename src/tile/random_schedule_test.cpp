// Tiling changes when and where results are computed, never the results.

#include "tile/random_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "program/random_program.h"
#include "tile/random_case_test.h"

namespace tilewright {
namespace {

/// Empty when the result of the schedule equals that of its stages.
std::string disagreement(const TileProgram& t, const std::vector<Tensor>& inputs) {
    try {
        const double difference = largest_difference(interpret(t.stages, inputs), interpret(t, inputs, {}));
        // Sums in another order, followed by a cancellation.
        return difference <= 1e-5 ? "" : fmt::format("largest difference {}", difference);
    } catch (const std::exception& e) {
        return e.what();
    }
}

struct Features {
    int loops = 0, parallel = 0, loads = 0, stores = 0, vectors = 0, several = 0, shared = 0;
    std::set<Padding> load, store, micro;

    void see(const std::vector<Stmt>& body) {
        for (const Stmt& s : body) {
            if (const auto* loop = std::get_if<TileLoop>(&s.kind)) {
                ++(loop->parallel ? parallel : loops);
                shared += loop->body.size() > 1 ? 1 : 0;
                see(loop->body);
            } else if (const auto* l = std::get_if<Load>(&s.kind)) {
                ++loads;
                load.insert(l->padding);
            } else if (const auto* c = std::get_if<Compute>(&s.kind)) {
                vectors += c->micro.vector_axis ? 1 : 0;
                micro.insert(c->micro.padding);
            } else {
                ++stores;
                store.insert(std::get<Store>(s.kind).padding);
            }
        }
    }
};

TEST(RandomSchedule, computes_what_its_stages_compute) {
    constexpr uint64_t kCases = 2000;
    const std::set<Padding> every = {Padding::Local, Padding::Partition, Padding::Global};
    Features seen;
    int failures = 0, epilogues = 0, output_indices = 0;
    for (uint64_t seed = 0; seed < kCases && failures < 3; ++seed) {
        const int size = 1 + static_cast<int>(seed % 5);
        const ScheduledCase scheduled = random_scheduled_case(seed, size);
        const TileProgram& t = scheduled.program;
        const std::vector<Tensor>& inputs = scheduled.given.inputs;
        ASSERT_EQ(verify(t), std::vector<std::string>()) << "seed " << seed << "\n" << print(t);
        EXPECT_EQ(print(parse_tile_program(print(t))), print(t)) << "seed " << seed;
        seen.see(t.body);
        seen.several += t.stages.primitives.size() > 1 ? 1 : 0;
        for (const Primitive& p : t.stages.primitives) {
            epilogues += p.expr()->epilogue.empty() ? 0 : 1;
            output_indices += p.expr()->output_index.empty() ? 0 : 1;
        }
        const std::string wrong = disagreement(t, inputs);
        if (wrong.empty()) continue;
        ++failures;
        const TileProgram small = shrink(t, [&](const TileProgram& x) { return !disagreement(x, inputs).empty(); });
        ADD_FAILURE() << "seed " << seed << ": " << wrong << "\n"
                      << disagreement(small, inputs) << "\n"
                      << print(small);
    }
    EXPECT_EQ(seen.load, every);
    EXPECT_EQ(seen.store, every);
    EXPECT_EQ(seen.micro, every);
    EXPECT_GT(seen.loops, 2000);
    EXPECT_GT(seen.parallel, 500);
    EXPECT_GT(seen.loads, 500);
    EXPECT_GT(seen.stores, 500);
    EXPECT_GT(seen.vectors, 2000);
    EXPECT_GT(seen.several, 1000);
    EXPECT_GT(seen.shared, 500);
    EXPECT_GT(epilogues, 200);
    EXPECT_GT(output_indices, 100);
}

/// A tree with one defect: two statements exchanged, one moved out of its loop or into a new one, a loop removed or
/// over another axis.
TileProgram disturbed(TileProgram t, uint64_t seed) {
    std::mt19937_64 rng(seed);
    const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
    std::vector<Stmt>* body = &t.body;
    std::vector<Stmt>* outer = nullptr;
    size_t at = 0;
    for (bool deeper = true; deeper;) {
        const size_t i = below(body->size());
        auto* loop = std::get_if<TileLoop>(&(*body)[i].kind);
        deeper = loop != nullptr && below(3) != 0;
        if (!deeper) break;
        outer = body;
        at = i;
        body = &loop->body;
    }
    const size_t i = below(body->size());
    Stmt& s = (*body)[i];
    switch (below(5)) {
        case 0:
            std::swap(s, (*body)[below(body->size())]);
            break;
        case 1:
            if (outer != nullptr && body->size() > 1) {
                Stmt moved = s;
                body->erase(body->begin() + static_cast<std::ptrdiff_t>(i));
                outer->insert(outer->begin() + static_cast<std::ptrdiff_t>(at + below(2)), std::move(moved));
            }
            break;
        case 2: {
            TileLoop loop;
            loop.axis = below(t.axes.size());
            loop.step = 1 + static_cast<int64_t>(below(3));
            loop.body.push_back(s);
            s = Stmt{std::move(loop)};
            break;
        }
        case 3:
            if (auto* loop = std::get_if<TileLoop>(&s.kind)) {
                const std::vector<Stmt> inside = loop->body;
                body->erase(body->begin() + static_cast<std::ptrdiff_t>(i));
                body->insert(body->begin() + static_cast<std::ptrdiff_t>(i), inside.begin(), inside.end());
            }
            break;
        default:
            if (auto* loop = std::get_if<TileLoop>(&s.kind)) loop->axis = below(t.axes.size());
    }
    return t;
}

TEST(RandomSchedule, what_verify_accepts_computes_what_its_stages_compute) {
    int accepted = 0, rejected = 0;
    RandomScheduleOptions options;
    options.global_padding = false;  // only the execution checks whether tensors are whole tiles
    for (uint64_t seed = 0; seed < 1500; ++seed) {
        const Case c = random_case(seed, 1 + static_cast<int>(seed % 4), true);
        TileProgram t = random_schedule(c.stages, seed, options);
        if (t.axes.empty()) continue;
        for (uint64_t k = 0; k < 3; ++k) {
            TileProgram other = disturbed(t, seed * 8 + k);
            if (!verify(other).empty()) {
                ++rejected;
                continue;
            }
            ++accepted;
            EXPECT_EQ(disagreement(other, c.inputs), "") << "seed " << seed << "\n" << print(other);
            t = std::move(other);
        }
    }
    EXPECT_GT(accepted, 1000);
    EXPECT_GT(rejected, 500);
}

TEST(RandomSchedule, is_decided_by_its_seed) {
    const Program stages = random_case(5, 4, true).stages;
    EXPECT_EQ(print(random_schedule(stages, 1)), print(random_schedule(stages, 1)));
    EXPECT_NE(print(random_schedule(stages, 1)), print(random_schedule(stages, 2)));
}

TEST(RandomSchedule, shrinking_keeps_what_fails) {
    const Case c = random_case(8, 4, true);
    const auto loads = [](const TileProgram& t) { return print(t).find("load ") != std::string::npos; };
    for (uint64_t seed = 0;; ++seed) {
        ASSERT_LT(seed, 100u) << "no schedule with a Load";
        const TileProgram t = random_schedule(c.stages, seed);
        if (!loads(t)) continue;
        const TileProgram small = shrink(t, loads);
        EXPECT_EQ(verify(small), std::vector<std::string>());
        EXPECT_TRUE(loads(small));
        EXPECT_EQ(print(small).find("for "), std::string::npos) << print(small);
        EXPECT_EQ(print(small).find("vector"), std::string::npos) << print(small);
        break;
    }
}

}  // namespace
}  // namespace tilewright
