// Statistics of estimates against times.

#include "driver/opspec/chain_model.h"

#include <gtest/gtest.h>

#include "compile/pipeline.h"
#include "driver/opspec/op_model.h"

namespace tilewright {
namespace {

TEST(ChainModel, CorrelatesEstimatesAndTimes) {
    EXPECT_NEAR((ChainModel{{{1, 10, {}}, {2, 20, {}}, {3, 30, {}}}}.correlation()), 1, 1e-12);
    EXPECT_NEAR((ChainModel{{{1, 30, {}}, {2, 20, {}}, {3, 10, {}}}}.correlation()), -1, 1e-12);
    // (x - 2) = -1 0 1, (y - 2) = -1 1 0: 1 / sqrt(2 * 2)
    EXPECT_NEAR((ChainModel{{{1, 1, {}}, {2, 3, {}}, {3, 2, {}}}}.correlation()), 0.5, 1e-12);
    EXPECT_EQ((ChainModel{{{1, 5, {}}, {1, 6, {}}}}.correlation()), 0);
}

TEST(ChainModel, RanksTheFastest) {
    const ChainModel m{{{1, 4, {}}, {2, 5, {}}, {3, 2, {}}, {4, 3, {}}}};
    EXPECT_EQ(m.rank_of_fastest(), 3u);
    EXPECT_DOUBLE_EQ(m.share_of_first(2), 0.5);
    EXPECT_DOUBLE_EQ(m.share_of_first(3), 1);
    EXPECT_DOUBLE_EQ(m.share_of_first(8), 1);
}

TEST(ChainModel, MeasuresCandidatesOfAnOperatorThatIsAChain) {
    const auto model_of = [](const std::string& line) {
        const ZooModel model = build_op(parse_op(line));
        const Program p = compile_model(model.bytes.data(), model.bytes.size()).program;
        Target target = host_target();
        target.workers = 1;
        TuneSettings settings;
        settings.measure.seconds = 1e-4;
        settings.check_work = 1 << 18;
        return measure_chain_model(p, target, 5, settings, nullptr);
    };
    const auto m = model_of("chain m=64 n=64 k=32 h=32");
    ASSERT_TRUE(m);
    EXPECT_EQ(m->points.size(), 5u);
    EXPECT_EQ(m->refused, 0u);
    for (size_t k = 0; k < m->points.size(); ++k) {
        EXPECT_GT(m->points[k].seconds, 0);
        EXPECT_NE(m->points[k].candidate.find('='), std::string::npos) << m->points[k].candidate;
        EXPECT_GE(m->points[k].estimate, m->points[k > 0 ? k - 1 : 0].estimate);
    }
    EXPECT_FALSE(model_of("gemm m=64 n=64 k=64"));
}

}  // namespace
}  // namespace tilewright
