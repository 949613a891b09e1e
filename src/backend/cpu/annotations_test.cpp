// Generated code follows the annotations of tile programs, which never change the results.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "backend/cpu/kernel.h"
#include "backend/cpu/run_kernel_test.h"
#include "cost/annotate_options.h"
#include "tile/annotate/annotate.h"
#include "tile/schedule_cases_test.h"
#include "tile/walk.h"

namespace tilewright::cpu::test {
namespace {

TileProgram product_annotated(const std::string& rows, const std::string& annotations) {
    TileProgram t = parse_tile_program(fmt::format(R"(tile product {{
stages {{
program product {{
  input x: f32[{0}, 64]
  input w: f32[64, 16]
  y: f32[{0}, 16] = [{0}, 16] sum(i2 < 64) mul(@0, @1) then mul(exp(acc), exp(mul(acc, 0.5))) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y ""
  output y
}}
}}
axes s0="{0}" s1="16" r2="64"
stage 0 over [s0 s1 r2]
compute 0 vector s1 lanes 8 registers [s0=8 s1=16] order [s1 s0 r2] padding partition{1}
}}
)",
                                                   rows, annotations));
    EXPECT_EQ(verify(t), std::vector<std::string>()) << annotations;
    return t;
}

CacheLevel cache_of(int64_t bytes) {
    CacheLevel level;
    level.bytes = bytes;
    return level;
}

int count_of(const std::string& of, const std::string& code) {
    int found = 0;
    for (size_t at = 0; (at = code.find(of, at)) != std::string::npos; ++at) ++found;
    return found;
}

/// Counts occurrences of `of` in the unoptimised code with these annotations. The annotated program must compute what
/// its stages compute.
int occurrences_annotated(const std::string& of, const std::string& rows, const std::string& annotations) {
    const TileProgram t = product_annotated(rows, annotations);
    if (runs_here(avx2()))
        for (const int64_t n : {1, 3, 8, 13, 15, 21}) {
            if (rows != "$rows" && rows != std::to_string(n)) continue;
            std::vector<Tensor> inputs;
            for (const Shape& shape : {Shape{n, 64}, Shape{64, 16}}) {
                inputs.emplace_back(DType::F32, shape);
                for (int64_t i = 0; i < inputs.back().count(); ++i)
                    inputs.back().set(i, static_cast<double>((i * 7 + n) % 11 - 5) / 64);
            }
            EXPECT_EQ(disagreement(t, inputs, 1e-5, avx2()), "") << n << " rows," << annotations;
        }
    return count_of(of, print_emitted(t, avx2()));
}

constexpr const char* kMultiplyAdd = "call <8 x float> @llvm.fma.v8f32(";

/// Multiply-adds of the reduction and of the epilogue's exponentials.
int multiply_adds_annotated(const std::string& rows, const std::string& annotations) {
    return occurrences_annotated(kMultiplyAdd, rows, annotations);
}

TEST(AnnotatedCode, accumulators) {
    const int one = multiply_adds_annotated("1", " accumulators 1");
    EXPECT_EQ(multiply_adds_annotated("1", " accumulators 2"), one + 2);  // two steps of two vectors
    EXPECT_EQ(multiply_adds_annotated("1", " accumulators 4"), one + 6);
    EXPECT_EQ(multiply_adds_annotated("1", " accumulators 4 in_flight 4"), one + 2);
    EXPECT_EQ(multiply_adds_annotated("1", ""), one + 6);  // derived annotation
}

TEST(AnnotatedCode, tails) {
    const auto tiles = [](const std::string& annotations) {
        return multiply_adds_annotated("$rows", " accumulators 1 epilogue_loop [] non_temporal never" + annotations);
    };
    const int clamped = tiles(" tail s0 [8]");  // the whole tile twice: full, and clamped
    EXPECT_EQ(clamped % 2, 0);
    const int row = clamped / 16;
    EXPECT_EQ(tiles(" tail s0 [1 8]"), clamped + row);
    EXPECT_EQ(tiles(" tail s0 [1 2 8]"), clamped + 3 * row);
    EXPECT_EQ(tiles(" tail s0 [1 2 8] shift"), clamped + 3 * row);
    EXPECT_EQ(tiles(" tail s0 [1]"), clamped / 2 + row);             // a tile a row
    EXPECT_EQ(tiles(" tail s0 [1 2]"), clamped / 2 + 3 * row);       // tiles of two rows, and one of what is left
    EXPECT_EQ(tiles(" tail s0 [1 2 3 4]"), clamped / 2 + 10 * row);  // one tile, or two halves
    EXPECT_EQ(tiles(" tail s0 [2 4]"), clamped / 2 + 6 * row);       // clamped halves
    EXPECT_EQ(tiles(""), tiles(" tail s0 [1 2 3 4]"));               // derived annotation
}

/// In code for whole tiles, positions in blocks are constants. It is right for every number of rows, with derived
/// annotations.
void expect_right_for_all_rows(const std::string& text, const std::function<std::vector<Shape>(int64_t)>& shapes) {
    const TileProgram t = parse_tile_program(text);
    ASSERT_EQ(verify(t), std::vector<std::string>());
    if (!runs_here(avx2())) return;
    for (int64_t n = 1; n <= 37; ++n) {
        std::vector<Tensor> inputs;
        for (const Shape& shape : shapes(n)) {
            inputs.emplace_back(DType::F32, shape);
            for (int64_t i = 0; i < inputs.back().count(); ++i)
                inputs.back().set(i, static_cast<double>((i * 7 + n) % 11 - 5) / 64);
        }
        EXPECT_EQ(disagreement(t, inputs, 1e-5, avx2()), "") << n;
    }
}

/// F(2, 3)'s output transform: row i of a block of two has the weights i of a table.
std::string output_transform(int registers, const std::string& annotations = "") {
    return fmt::format(R"(tile transform {{
stages {{
program transform {{
  input r: f32[$rows, 8]
  input x: f32[4, ($rows + 1) // 2, 8]
  y: f32[$rows, 8] = [$rows, 8] sum(i2 < 4) weigh(table{{1, 1, 1, 0, 0, 1, -1, 1}}(index(4*(i0 % 2) + i2)), @0) then add(acc, @1) where @0 = x[i2, i0 // 2, i1], @1 = r[i0, i1]  ; y ""
  output y
}}
}}
axes s0="$rows" s1="8" r2="4"
stage 0 over [s0 s1 r2]
compute 0 vector s1 lanes 8 registers [s0={} s1=8 r2=4] order [s0 s1 r2] padding partition{}
}}
)",
                       registers, annotations);
}

TEST(AnnotatedCode, of_a_transform_s_blocks_with_a_dynamic_number_of_rows) {
    for (const int registers : {2, 4, 8})
        expect_right_for_all_rows(output_transform(registers), [](int64_t n) {
            return std::vector<Shape>{{n, 8}, {4, (n + 1) / 2, 8}};
        });
}

TEST(AnnotatedCode, of_a_transform_s_blocks_has_tails_of_whole_tiles) {
    EXPECT_EQ(verify(parse_tile_program(output_transform(4, " sum unrolled tail s0 [2 4]"))),
              std::vector<std::string>());
    for (const char* tail : {" tail s0 [1]", " tail s0 [1 2]", " tail s0 [4] border 2"})
        EXPECT_EQ(verify(parse_tile_program(output_transform(4, std::string(" sum unrolled") + tail))).size(), 1u)
            << tail;
}

/// Given tails that start inside of a block leave the sum in loops.
TEST(AnnotatedCode, of_a_transform_with_other_tails_is_not_unrolled) {
    for (const char* tail : {" tail s0 [4] shift", " tail s0 [1 4] shift", " tail s0 [1 2]", " tail s0 [1 4]"})
        expect_right_for_all_rows(output_transform(4, tail), [](int64_t n) {
            return std::vector<Shape>{{n, 8}, {4, (n + 1) / 2, 8}};
        });
}

/// A tile holds whole rows of 20 elements: those of odd rows start inside of a vector.
TEST(AnnotatedCode, non_temporal_stores_of_rows_that_are_no_whole_vectors) {
    expect_right_for_all_rows(R"(tile scale {
stages {
program scale {
  input x: f32[$b, 6, 20]
  y: f32[$b, 6, 20] = [$b, 6, 20] exp(@0) where @0 = x[i0, i1, i2]  ; y ""
  output y
}
}
axes s0="$b" s1="6" s2="20"
stage 0 over [s0 s1 s2]
compute 0 vector s2 lanes 8 registers [s0=1 s1=6 s2=24] order [s0 s1 s2] padding partition non_temporal always
}
)",
                              [](int64_t n) {
                                  return std::vector<Shape>{{n, 6, 20}};
                              });
}

TEST(AnnotatedCode, of_results_in_a_dynamic_number_of_blocks) {
    for (const int registers : {4, 8, 16})
        expect_right_for_all_rows(fmt::format(R"(tile pack {{
stages {{
program pack {{
  input x: f32[$blocks, 4, 8]
  y: f32[$blocks, 8, 4] = [4*$blocks, 8] -> [i0 // 4, i1, i0 % 4] exp(@0) where @0 = x[i0 // 4, i0 % 4, i1]  ; y ""
  output y
}}
}}
axes s0="4*$blocks" s1="8"
stage 0 over [s0 s1]
compute 0 vector s1 lanes 8 registers [s0={} s1=8] order [s0 s1] padding partition
}}
)",
                                              registers),
                                  [](int64_t n) {
                                      return std::vector<Shape>{{n, 4, 8}};
                                  });
}

TEST(AnnotatedCode, prefetches) {
    constexpr const char* kPrefetch = "call void @llvm.prefetch";
    EXPECT_GT(occurrences_annotated(kPrefetch, "$rows", ""), 0);
    EXPECT_EQ(occurrences_annotated(kPrefetch, "$rows", " prefetch never"), 0);
    EXPECT_EQ(occurrences_annotated(kPrefetch, "8", ""), 0);
    EXPECT_EQ(occurrences_annotated(kPrefetch, "8", " prefetch 1 panel bytes 4160"), 2 * 1);
    EXPECT_GT(occurrences_annotated("i64 4160", "8", " prefetch 1 panel bytes 4160"), 0);
    EXPECT_EQ(occurrences_annotated(kPrefetch, "8", " prefetch 1 panel bytes 4160 results 17"), 0);
}

TEST(AnnotatedCode, prefetches_a_share_of_the_next_panel_with_each_step) {
    const auto product = [](const std::string& rows, const std::string& annotation) {
        return parse_tile_program(fmt::format(R"(tile product {{
stages {{
program product {{
  input a: f32[{0}, 24]
  input b: f32[3, 24, 16]
  c: f32[{0}, 48] = [{0}, 48] sum(i2 < 24) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 16, i2, i1 % 16]
  output c
}}
}}
axes m="{0}" n="48" k="24"
stage 0 over [m n k]
compute 0 vector n lanes 8 registers [m=4 n=16] order [n m k] padding partition {1}
}}
)",
                                              rows, annotation));
    };
    const auto prefetches = [&](const std::string& rows, const std::string& annotation) {
        return count_of("call void @llvm.prefetch", print_emitted(product(rows, annotation), avx2()));
    };
    EXPECT_EQ(prefetches("8", "prefetch never"), 0);
    EXPECT_EQ(prefetches("8", "prefetch 1 next bytes 1536"), 1) << "a line for two tiles of rows";
    EXPECT_EQ(prefetches("4", "prefetch 1 panel bytes 64"), 2);
    EXPECT_GT(prefetches("$m", "prefetch 1 next bytes 1536"), 0);
    for (const int64_t rows : {1, 4, 11, 32}) {
        std::vector<Tensor> inputs;
        for (const Shape& shape : {Shape{rows, 24}, Shape{3, 24, 16}}) {
            inputs.emplace_back(DType::F32, shape);
            for (int64_t i = 0; i < inputs.back().count(); ++i) inputs.back().set(i, static_cast<double>(i % 9 - 4));
        }
        if (!runs_here(avx2())) continue;
        EXPECT_EQ(disagreement(product("$m", "prefetch 1 next bytes 1536"), inputs, 1e-5, avx2()), "") << rows;
    }
}

TEST(AnnotatedCode, non_temporal_stores) {
    constexpr const char* kNonTemporal = "!nontemporal";
    EXPECT_EQ(occurrences_annotated(kNonTemporal, "8", ""), 0);
    EXPECT_EQ(occurrences_annotated(kNonTemporal, "8", " non_temporal never"), 0);
    EXPECT_EQ(occurrences_annotated(kNonTemporal, "8", " non_temporal above 512"), 0);  // its size is 512 bytes
    Target target = avx2();
    const auto stores = [&](const std::string& rows, const std::string& annotations) {
        return print_emitted(product_annotated(rows, annotations), target).find(kNonTemporal) != std::string::npos;
    };
    EXPECT_TRUE(stores("8", " non_temporal always"));
    EXPECT_TRUE(stores("8", " non_temporal above 511"));
    EXPECT_TRUE(stores("$rows", " non_temporal above 4096"));
    target.caches = {cache_of(256)};
    EXPECT_TRUE(stores("8", ""));
    EXPECT_FALSE(stores("8", " non_temporal never"));
}

/// Other threads must see a task's stores when it is done.
TEST(AnnotatedCode, non_temporal_stores_of_a_buffer_end_with_a_fence) {
    const auto code = [](const std::string& annotations) {
        const TileProgram t = parse_tile_program(R"(tile product {
stages {
program product {
  input x: f32[8, 64]
  input w: f32[64, 16]
  y: f32[8, 16] = [8, 16] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y ""
  output y
}
}
axes s0="8" s1="16" r2="64"
stage 0 over [s0 s1 r2]
parallel s0 by 8 {
  for r2 by 16 {
    compute 0 vector s1 lanes 8 registers [s0=4 s1=16] order [s1 s0 r2] padding partition
  }
  store y padding local)" + annotations + "\n}\n}\n");
        EXPECT_EQ(verify(t), std::vector<std::string>());
        return print_emitted(t, avx2());
    };
    const std::string past = code(" non_temporal always"), cached = code("");
    EXPECT_NE(past.find("!nontemporal"), std::string::npos);
    EXPECT_NE(past.find("sse.sfence"), std::string::npos);
    EXPECT_EQ(cached.find("!nontemporal"), std::string::npos);
    EXPECT_EQ(cached.find("sse.sfence"), std::string::npos);
}

TEST(AnnotatedCode, epilogue_loops) {
    const int unrolled = multiply_adds_annotated("8", " accumulators 1 epilogue_loop []");
    const int looped = multiply_adds_annotated("8", " accumulators 1 epilogue_loop [s0]");
    EXPECT_EQ(unrolled - 16, 8 * (looped - 16));  // 16 belong to the reduction
    EXPECT_EQ(multiply_adds_annotated("8", " accumulators 1 epilogue_loop [s0] vectors 17"), unrolled);
    EXPECT_EQ(multiply_adds_annotated("8", " accumulators 1 epilogue_loop [s0] steps 9"), unrolled);
    EXPECT_EQ(multiply_adds_annotated("8", " accumulators 1"), looped);  // derived annotation
}

TEST(AnnotatedCode, cuts) {
    const auto selects = [](const std::string& annotations) {
        const TileProgram t = parse_tile_program(R"(tile join {
stages {
program join {
  input x: f32[64]
  input y: f32[32]
  z: f32[96] = [96] select(lt(index(i0), 64), @0, @1) where @0 = x[i0] when -i0 + 63 >= 0 else 0, @1 = y[i0 - 64] when i0 - 64 >= 0 else 0  ; z ""
  output z
}
}
axes s0="96"
stage 0 over [s0]
compute 0 vector s0 lanes 8 registers [s0=8] order [s0] padding partition)" +
                                                 annotations + "\n}\n");
        EXPECT_EQ(verify(t), std::vector<std::string>());
        Tensor x(DType::F32, {64}), y(DType::F32, {32});
        for (int64_t i = 0; i < 64; ++i) x.set(i, static_cast<double>(i));
        for (int64_t i = 0; i < 32; ++i) y.set(i, static_cast<double>(-i));
        if (runs_here(avx2())) {
            EXPECT_EQ(disagreement(t, {x, y}, 0, avx2()), "") << annotations;
        }
        return print_emitted(t, avx2()).find("select ") != std::string::npos;
    };
    EXPECT_FALSE(selects(""));
    EXPECT_FALSE(selects(" cut [s0]"));
    EXPECT_TRUE(selects(" cut []"));
}

TEST(AnnotatedCode, is_the_same_where_annotations_are_derived_before) {
    Target target = avx2();
    target.caches = {cache_of(256)};
    for (const char* rows : {"$rows", "1", "8", "21"}) {
        const TileProgram t = product_annotated(rows, "");
        const TileProgram annotated = annotate(t, annotate_options(target));
        EXPECT_NE(print(annotated), print(t));
        EXPECT_EQ(print_emitted(annotated, target), print_emitted(t, target));
    }
}

/// Adds the annotations that `choose` gives each compute, except those that are illegal for it.
TileProgram annotated_where_legal(TileProgram program,
                                  const std::function<std::vector<Annotations>(const StageSite&)>& choose) {
    const TileProgram given = program;
    const Walk tree = walk(program);
    for (const auto& [path, compute] : tree.computes) {
        const StageSite site = site_of(given, tree, path, *compute);
        for (const Annotations& a : choose(site))
            if (annotation_faults(a, site).empty()) const_cast<Compute*>(compute)->micro.annotations = a;
    }
    return program;
}

class AnnotatedCases : public testing::TestWithParam<schedule_cases::Group> {};

TEST_P(AnnotatedCases, compute_what_their_stages_do_with_other_annotations) {
    const auto plain = [](const StageSite&) {
        Annotations a;
        a.accumulators = {1, 0};
        a.unroll_sum = false;
        a.epilogue_loop.emplace();
        a.prefetch.emplace();
        a.cut.emplace();
        a.resume_late = false;
        return std::vector{a};
    };
    const auto other = [](const StageSite& site) {
        Annotations a;
        std::vector<Annotations> out{a};
        for (size_t axis = 0; axis < site.expr->spatial; ++axis)
            if (const int64_t tile = site.register_tile(axis); !site.vector_axis(axis) && tile > 1) {
                a.tails.push_back({axis, {1, tile}, false});
                out.push_back(a);
                a.tails.back().shift = true;
                out.push_back(a);
            }
        a.accumulators = {3, 0};
        out.push_back(a);
        a.resume_late = true;  // of few steps as well
        out.push_back(a);
        return out;
    };
    for (const schedule_cases::Case& c : GetParam().cases)
        for (const auto& choose : {std::function<std::vector<Annotations>(const StageSite&)>(plain),
                                   std::function<std::vector<Annotations>(const StageSite&)>(other)}) {
            const TileProgram t = annotated_where_legal(c.program, choose);
            ASSERT_EQ(verify(t), std::vector<std::string>()) << print(t);
            const CompiledKernel code = compile(t, host());
            for (const schedule_cases::Sizes& s : c.sizes)
                EXPECT_EQ(disagreement(code, t, schedule_cases::whole_numbers(t.stages, s), c.tolerance), "")
                    << testing::PrintToString(s) << "\n"
                    << print(t);
        }
}

INSTANTIATE_TEST_SUITE_P(All, AnnotatedCases, testing::ValuesIn(schedule_cases::all()),
                         [](const auto& group) { return group.param.name; });

/// Images of three channels get a fourth one and a border (orchestrate/window_runs.h). A cut between the third and the
/// fourth channel would leave gaps in what a vector of pixels stores.
TEST(AnnotatedCopies, of_a_channel_more_store_all_channels_of_a_vector_together) {
    const TileProgram t = annotate(parse_tile_program(R"(tile stages {
stages {
program stages {
  input x: u8[3, 8, 32]
  y: u8[9, 132] = [9, 33, 4] -> [i0, 4*i1 + i2] @0 where @0 = x[i2, i0 - 1, i1 - 1] when -i2 + 2 >= 0 and i0 - 1 >= 0 and i1 - 1 >= 0 else 123  ; y ""
  output y
}
}
axes h="9" w="33" c="4"
stage 0 over [h w c]
compute 0 vector w lanes 8 registers [w=8 c=4] order [h w c] padding partition
}
)"),
                                   annotate_options(host()));
    EXPECT_THAT(print(t), testing::HasSubstr("cut [h w]"));
    const std::vector<Tensor> inputs = schedule_cases::whole_numbers(t.stages, {});
    EXPECT_EQ(disagreement(t, inputs, 0), "");
    EXPECT_THAT(print_llvm(t, host()), testing::HasSubstr("store <32 x i8>"));
}

}  // namespace
}  // namespace tilewright::cpu::test
