#include "backend/cuda/sass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tilewright::cuda {
namespace {

using testing::ElementsAre;

/// A kernel that waits in a loop of one block inside a loop of three, with a function behind it.
const char* const kListing = R"(        .target        sm_90a

//--------------------- .text.kernel              --------------------------
        .section        .text.kernel,"ax",@progbits
        .align        128
        .global         kernel
kernel:
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   ISETP.NE.AND P0, PT, R0, RZ, PT ;
.L_x_0:
        /*0020*/                   UIADD3 UR4, UR5, 0x1, URZ ;
.L_x_1:
        /*0030*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR7], R4 ;
        /*0040*/              @!P1 BRA `(.L_x_1) ;
        /*0050*/               @P0 BRA `(.L_x_2) ;
        /*0060*/                   UTMALDG.2D [UR8], [UR12] ;
.L_x_2:
        /*0070*/                   HGMMA.64x256x16.F32 R24, gdesc[UR16].tnspB, R24, gsb0 ;
        /*0080*/                   CALL.REL.NOINC `(.L_x_4) ;
        /*0090*/               @P2 BRA `(.L_x_0) ;
        /*00a0*/                   STG.E desc[UR4][R2.64], R24 ;
        /*00b0*/                   EXIT ;
.L_x_4:
        /*00c0*/                   MUFU.RCP R3, R2 ;
        /*00d0*/                   RET.REL.NODEC R20 `(kernel) ;
.L_x_3:
        /*00e0*/                   BRA `(.L_x_3);
        /*00f0*/                   NOP;
.L_x_5:

//--------------------- .nv.info  --------------------------
        .section        .nv.info,"",@"SHT_CUDA_INFO"
        .align        4
)";

TEST(Sass, HasTheInstructionsOfAListing) {
    const auto kernels = parse_sass(kListing);
    ASSERT_EQ(kernels.size(), size_t{1});
    const SassKernel& k = kernels[0];
    EXPECT_EQ(k.name, "kernel");
    ASSERT_EQ(k.instructions.size(), size_t{14});  // the branch to itself and the NOP are padding
    EXPECT_EQ(k.instructions[4].predicate, "!P1");
    EXPECT_EQ(k.instructions[4].target, size_t{3});
    EXPECT_EQ(k.instructions[7].opcode, "HGMMA.64x256x16.F32");
    EXPECT_EQ(k.instructions[7].operands, "R24, gdesc[UR16].tnspB, R24, gsb0");
    EXPECT_TRUE(k.instructions[7].is("HGMMA"));
    EXPECT_FALSE(k.instructions[7].is("HGM"));
    EXPECT_FALSE(k.instructions[9].ends_flow());
    EXPECT_TRUE(k.instructions[11].ends_flow());
}

TEST(Sass, HasTheNaturalLoops) {
    const auto loops = sass_loops(parse_sass(kListing)[0]);
    ASSERT_EQ(loops.size(), size_t{2});
    EXPECT_THAT(loops[0].instructions, ElementsAre(2, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_EQ(loops[0].depth, size_t{1});
    EXPECT_THAT(loops[1].instructions, ElementsAre(3, 4));
    EXPECT_EQ(loops[1].parent, size_t{0});
    EXPECT_EQ(loops[1].depth, size_t{2});
}

TEST(Sass, LoopsThatFollowEachOtherAreTwo) {
    const auto loops = sass_loops(parse_sass(R"(        .section        .text.k,"ax",@progbits
.L_x_0:
        /*0000*/                   IADD3 R0, R0, 0x1, RZ ;
        /*0010*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0020*/                   IADD3 R0, R0, 0x1, RZ ;
        /*0030*/                   BRA P0, `(.L_x_1) ;
        /*0040*/                   EXIT ;
)")[0]);
    ASSERT_EQ(loops.size(), size_t{2});
    EXPECT_THAT(loops[0].instructions, ElementsAre(0, 1));
    EXPECT_THAT(loops[1].instructions, ElementsAre(2, 3));
    EXPECT_EQ(loops[1].parent, std::nullopt);
}

TEST(Sass, TheShortestWayLeavesOutWhatBranchesPass) {
    const SassKernel k = parse_sass(R"(        .section        .text.k,"ax",@progbits
.L_x_0:
        /*0000*/                   BSSY B0, `(.L_x_1) ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
        /*0020*/                   FMUL R0, R0, R1 ;
        /*0030*/                   FMUL R2, R2, R1 ;
.L_x_1:
        /*0040*/                   BSYNC B0 ;
        /*0050*/               @P1 BRA `(.L_x_2) ;
        /*0060*/                   IADD3 R3, R3, 0x1, RZ ;
        /*0070*/                   BRA `(.L_x_0) ;
.L_x_2:
        /*0080*/                   EXIT ;
)")[0];
    const std::vector<size_t> loop = sass_loops(k).at(0).instructions;
    EXPECT_EQ(shortest_way(k, loop, {0}), size_t{6});  // back to it, not out of the loop
    EXPECT_EQ(shortest_way(k, loop, {0, 6}), size_t{6});
    EXPECT_EQ(shortest_way(k, loop, {2, 6}), size_t{8});          // through what would be passed
    EXPECT_EQ(shortest_way(k, {1, 2, 3, 4}, {1, 4}), size_t{2});  // without a loop: the last one counts
    EXPECT_EQ(shortest_way(k, loop, {}), size_t{0});
}

TEST(Sass, ThatIsNoListingIsRefused) {
    EXPECT_THROW(parse_sass("        .section .text.k,\"ax\"\nIADD3 R0, R0, 0x1, RZ ;\n"), InternalError);
    EXPECT_TRUE(parse_sass("nvdisasm fatal: no such file").empty());
}

}  // namespace
}  // namespace tilewright::cuda
