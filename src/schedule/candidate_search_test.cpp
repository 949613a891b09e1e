// The candidates of a kernel, in rounds.

#include "schedule/candidate_search.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "schedule/construct/problems_test.h"
#include "tile/tile.h"

namespace tilewright {
namespace {

Scheduling searching() {
    Scheduling how;
    how.kind = SchedulerKind::Search;
    how.target = construct::narrow_target();
    how.estimates = true;
    return how;
}

Program two_products() {
    return parse_program(R"(program chain {
  input a: f32[256, 64]
  input b: f32[64, 256]
  input d: f32[256, 64]
  c: f32[256, 256] = [256, 256] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: f32[256, 64] = [256, 64] sum(i2 < 256) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
})");
}

std::unique_ptr<CandidateSearch> states(const Program& stages) {
    return search_states(stages, IndexVector<PrimitiveId, std::vector<size_t>>(stages.primitives.size()), searching());
}

/// The texts of all candidates of so many rounds; the time of each is a hash of its text, and every fifth cannot run.
std::vector<std::string> texts(CandidateSearch& search, int rounds, size_t most) {
    std::vector<std::string> out;
    for (int r = 0; r < rounds; ++r) {
        std::vector<double> seconds;
        for (const TileProgram& p : search.next(most)) {
            EXPECT_TRUE(verify(p).empty()) << print(p);
            out.push_back(print(p));
            const size_t hash = std::hash<std::string>()(out.back());
            seconds.push_back(hash % 5 == 0 ? -1 : static_cast<double>(hash % 1000));
        }
        EXPECT_LE(seconds.size(), most);
        search.tell(seconds);
    }
    return out;
}

TEST(CandidateSearch, gives_each_state_once_and_as_many_as_are_wanted) {
    const auto search = states(construct::product(96, 128, 256));
    ASSERT_NE(search, nullptr);
    const std::vector<std::string> all = texts(*search, 10, 8);
    EXPECT_EQ(all.size(), 80u);
    EXPECT_GE(std::set<std::string>(all.begin(), all.end()).size(), 76u) << "few states are equal as programs";
}

TEST(CandidateSearch, is_the_same_when_the_times_are) {
    const Program stages = construct::product(96, 128, 256);
    EXPECT_EQ(texts(*states(stages), 6, 8), texts(*states(stages), 6, 8));
}

TEST(CandidateSearch, depends_on_the_times) {
    const Program stages = construct::product(96, 128, 256);
    const auto one = states(stages), other = states(stages);
    const std::vector<std::string> by_hash = texts(*one, 6, 8);
    std::vector<std::string> by_number;
    for (int r = 0; r < 6; ++r) {
        std::vector<double> seconds;
        for (const TileProgram& p : other->next(8)) {
            by_number.push_back(print(p));
            seconds.push_back(static_cast<double>(by_number.size()));
        }
        other->tell(seconds);
    }
    EXPECT_TRUE(std::equal(by_hash.begin(), by_hash.begin() + 8, by_number.begin()));
    EXPECT_NE(by_hash, by_number);
}

TEST(CandidateSearch, ends_when_a_small_space_has_no_others) {
    const auto search = states(construct::product(4, 8, 2));
    ASSERT_NE(search, nullptr);
    const std::vector<std::string> all = texts(*search, 200, 8);
    EXPECT_LT(all.size(), 1000u);
    EXPECT_TRUE(search->next(8).empty());
}

TEST(CandidateSearch, copies_have_one_schedule) {
    EXPECT_EQ(states(parse_program(R"(program t {
  input x: f32[64, 32]
  y: f32[32, 64] = [32, 64] @0 where @0 = x[i1, i0]
  output y
})")),
              nullptr);
}

TEST(CandidateSearch, programs_of_a_chain_come_by_estimate) {
    const Scheduling how = searching();
    const auto search = search_chain(two_products(), how, 40);
    ASSERT_NE(search, nullptr);
    double before = 0;
    std::set<std::string> seen;
    for (std::vector<TileProgram> some = search->next(8); !some.empty(); some = search->next(8))
        for (const TileProgram& p : some) {
            const double seconds = estimate(p, how.target).seconds;
            EXPECT_GE(seconds, before);
            before = seconds;
            EXPECT_TRUE(seen.insert(print(p)).second);
        }
    EXPECT_GT(seen.size(), 8u);
    EXPECT_LE(seen.size(), 40u);
    EXPECT_EQ(search_chain(construct::product(96, 128, 256), how, 40), nullptr);
}

}  // namespace
}  // namespace tilewright
