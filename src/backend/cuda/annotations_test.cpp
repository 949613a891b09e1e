// The text of a kernel follows its annotations, and gives what its stages give whatever they are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/kernel_text.h"
#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/matrix_cases_test.h"
#include "base/error.h"
#include "tile/annotate/gpu.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;

/// A product through shared memory, and an elementwise stage of its result.
TileProgram blocked() {
    return schedule_cases::kernel(schedule_cases::product("40", "128", "24"),
                                  schedule_cases::product_axes("40", "128", "24") + R"TW(parallel m by 32 {
  parallel n by 64 {
    for k by 8 stages 2 {
      load 0 access 0 layout "reorder(1, 0)" padding local
      load 0 access 1 layout "" padding local
      compute 0 vector n lanes 4 registers [m=4 n=8 k=2] order [m n k] padding local
    }
    store c padding local
  }
})TW");
}

TEST(CudaAnnotations, AreFollowed) {
    const auto text = [](const std::string& what, const std::string& instead) {
        const std::string whole = print(annotate(blocked(), annotate_options(h200())));
        return generate(parse_tile_program(what.empty() ? whole : changed(whole, what, instead)), h200()).text;
    };
    const std::string derived = text("", "");
    EXPECT_EQ(derived, generate(blocked(), h200()).text) << "explicit annotations are what is derived";
    for (const char* line : {"TW_UNROLL_BY(2)", "tw::copy_async<4>(s_b", "tw::load<4>(b +", "tw::store<4>(g_c"})
        EXPECT_THAT(derived, HasSubstr(line));
    EXPECT_THAT(text("unroll [k=2]", "unroll [k=8]"), HasSubstr("TW_UNROLL_BY(8)"));
    EXPECT_THAT(text("unroll [k=2]", "unroll []"), Not(HasSubstr("TW_UNROLL_BY")));
    EXPECT_THAT(text("read 1 by 4", "read 1 by 2"), HasSubstr("tw::load<2>(b +"));
    EXPECT_THAT(text("read 1 by 4 ", ""), Not(HasSubstr("tw::load<4>(b +")));
    EXPECT_THAT(text("padding local copy by 4", "padding local copy by 2"), HasSubstr("tw::store<2>(g_c"));
    EXPECT_THAT(text("copy [0 1] by 4 async\n      compute", "copy [0 1] by 2 async\n      compute"),
                HasSubstr("tw::copy_async<2>(s_b"));
    EXPECT_THAT(text("copy [0 1] by 4 async\n      compute", "copy [0 1] by 4\n      compute"),
                Not(HasSubstr("tw::copy_async<4>(s_b")));
}

TEST(CudaAnnotations, AreNeverMissingWhereTheTextIsWritten) {
    const TileProgram without = blocked();
    EXPECT_THROW(KernelGenerator(without, h200()).run("kernel"), InternalError);
}

TEST(CudaAnnotations, OfEveryVariantGiveTheSameResults) {
    std::vector<LockstepCase> cases;
    MatrixProduct warps, group;
    group.group = group.swizzled = true;
    group.step = 64;
    group.block = "64";
    group.warp = "64";
    for (const TileProgram& p : {blocked(), matrix_product(warps), matrix_product(group)}) {
        const std::vector<std::vector<Tensor>> inputs{schedule_cases::whole_numbers(p.stages, {})};
        const Walk tree = walk(p);
        std::vector<TreePath> statements;
        for (const auto& [path, load] : tree.loads) statements.push_back(path);
        for (const auto& [path, compute] : tree.computes) statements.push_back(path);
        for (const auto& [path, store] : tree.stores) statements.push_back(path);
        for (const TreePath& path : statements)
            for (TileProgram& v : gpu::annotation_variants(p, path, *annotate_options(h200()).gpu))
                cases.push_back({p.name, std::move(v), inputs, 1e-3});
    }
    EXPECT_GT(cases.size(), size_t{20});
    expect_right(cases);
}

}  // namespace
}  // namespace tilewright::cuda
