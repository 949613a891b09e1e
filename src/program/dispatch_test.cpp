#include "program/dispatch.h"

#include <gmock/gmock.h>

namespace tilewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Dispatch three_ways() {
    Dispatch d;
    d.keys = {symbol("seq")};
    d.cuts = {{48, 400}};
    d.table = {1, 0, 2};
    d.needs = {{}, {}, {Expr(512) - symbol("seq")}};
    return d;
}

uint32_t at(const Dispatch& d, int64_t seq) {
    return d.choose([&](Expr e) {
        return e.is_constant() ? e.constant() : evaluate(e, [&] {
            Env env;
            static thread_local std::function<std::optional<int64_t>(Var)> names;
            names = [seq](Var) { return std::optional(seq); };
            env.names = &names;
            return env;
        }());
    });
}

TEST(Dispatch, EverySizeHasAWay) {
    const Dispatch d = three_ways();
    EXPECT_THAT(d.faults(), IsEmpty());
    EXPECT_EQ(at(d, 0), 1u);
    EXPECT_EQ(at(d, 47), 1u);
    EXPECT_EQ(at(d, 48), 0u);
    EXPECT_EQ(at(d, 400), 2u);
}

TEST(Dispatch, AWayWhoseNeedsDoNotHoldIsNotTaken) {
    EXPECT_EQ(at(three_ways(), 512), 2u);
    EXPECT_EQ(at(three_ways(), 513), 0u);
}

TEST(Dispatch, PrintsSizesAndNeeds) {
    EXPECT_EQ(
        three_ways().print(),
        "$seq < 48: way 1; 48 <= $seq < 400: way 0; 400 <= $seq: way 2; way 2 only if -$seq + 512 >= 0, else way 0");
}

TEST(Dispatch, TwoKeysHaveACellForEachPair) {
    Dispatch d;
    d.keys = {symbol("batch"), symbol("seq")};
    d.cuts = {{4}, {48, 400}};
    d.table = {0, 0, 1, 0, 1, 1};
    d.needs = {{}, {}};
    EXPECT_THAT(d.faults(), IsEmpty());
    EXPECT_THAT(d.print(), HasSubstr("4 <= $batch, 48 <= $seq < 400: way 1"));
}

TEST(Dispatch, FaultsNameWhatIsMalformed) {
    Dispatch d = three_ways();
    d.table = {1, 0};
    EXPECT_THAT(d.faults(), ElementsAre(HasSubstr("does not fit its cuts")));
    d = three_ways();
    d.table[0] = 3;
    EXPECT_THAT(d.faults(), ElementsAre(HasSubstr("names way 3 of 3")));
    d = three_ways();
    d.otherwise = 2;
    EXPECT_THAT(d.faults(), ElementsAre(HasSubstr("has needs")));
    d = three_ways();
    d.cuts[0] = {48, 48};
    EXPECT_THAT(d.faults(), ElementsAre(HasSubstr("not ascending")));
}

}  // namespace
}  // namespace tilewright
