// Machine code of online softmax, on numerically hard rows.

#include <gtest/gtest.h>

#include "backend/cpu/run_kernel_test.h"
#include "tile/online_cases_test.h"

namespace tilewright::cpu {
namespace {

using namespace test;

void right(const std::string& text) {
    const TileProgram p = parse_tile_program(text);
    ASSERT_EQ(verify(p), std::vector<std::string>{});
    for (const Target* isa : {&host(), &avx2(), &avx512()}) {
        if (!runs_here(*isa)) continue;
        for (const float poison : {0.25F, std::numeric_limits<float>::quiet_NaN(), kInf})
            EXPECT_EQ(disagreement(p, hard_inputs(poison), 1e-5, *isa), "") << to_string(isa->isa) << " " << poison;
    }
}

TEST(OnlineCode, GivesWhatTheWholeRowsGive) {
    for (const char* step : {"for n by 3", "for n by 1", "for n by 4", "for n by 8"})
        right(changed(kAttention, "for n by 3", step));
}

TEST(OnlineCode, WithVectorsAlongTheReductionOrAcrossIt) {
    const std::string wide = changed(
        changed(changed(changed(changed(kAttention, "compute 0", "compute 0 vector n lanes 4 registers [m=2 n=4]"),
                                "compute 1 online", "compute 1 online vector n lanes 2 registers [n=4]"),
                        "compute 2", "compute 2 vector n lanes 4 registers [n=4]"),
                "compute 3", "compute 3 vector n lanes 2 registers [n=4]"),
        "compute 4", "compute 4 vector h lanes 4 registers [m=4 h=4]");
    right(wide);
    right(changed(wide, "for n by 3", "for n by 4"));
    right(changed(wide, "compute 1 online vector n lanes 2 registers [n=4]",
                  "compute 1 online vector m lanes 4 registers [m=4]"));
    right(changed(wide, "compute 4 vector h lanes 4 registers [m=4 h=4]",
                  "compute 4 vector m lanes 4 registers [m=4 h=2]"));
}

TEST(OnlineCode, RescalesEveryTileOfTheSum) {
    right(changed(kAttention, "    compute 4 padding partition\n",
                  "    for h by 2 {\n      compute 4 vector h lanes 2 registers [m=3 h=2] padding partition\n    }\n"));
}

}  // namespace
}  // namespace tilewright::cpu
