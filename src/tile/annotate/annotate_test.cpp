// Annotations: their text, their rules, and what is derived.

#include "tile/annotate/annotate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "tile/annotate/variants.h"
#include "tile/examples_test.h"
#include "tile/quantised_cases_test.h"

namespace tilewright {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// A product with a dynamic number of rows, with annotations behind its padding.
std::string annotated_product(const std::string& annotations = "", const std::string& registers = "m=13 n=32",
                              const std::string& rows = "$rows") {
    return fmt::format(R"TW(tile product {{
stages {{
program product {{
  input a: f32[{2}, 512]
  input b: f32[512, 1024]
  input z: f32[{2}, 1024]
  c: f32[{2}, 1024] = [{2}, 1024] sum(i2 < 512) mul(@0, @1) then add(acc, @2) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = z[i0, i1]  ; c ""
  output c
}}
}}
axes m="{2}" n="1024" k="512"
stage 0 over [m n k]
compute 0 vector n lanes 16 registers [{1}] order [n m k] padding partition{0}
}}
)TW",
                       annotations, registers, rows);
}

const Annotations& annotations_of(const TileProgram& t, size_t statement = 0) {
    const Stmt* s = &t.body.at(0);
    while (const auto* loop = std::get_if<TileLoop>(&s->kind))
        s = &loop->body.at(std::holds_alternative<TileLoop>(loop->body[0].kind) ? 0 : statement);
    return std::get<Compute>(s->kind).micro.annotations;
}

Annotations derived(const std::string& text, int64_t cache_bytes = 0, size_t statement = 0) {
    return annotations_of(annotate(parse_tile_program(text), {cache_bytes}), statement);
}

std::vector<std::string> annotation_errors(const std::string& annotations) {
    return verify(parse_tile_program(annotated_product(annotations)));
}

constexpr const char* kAll =
    " accumulators 4 in_flight 8 epilogue_loop [m] vectors 16 steps 4 non_temporal above 4096"
    " prefetch 1 panel bytes 8192 results 8 prefetch 2 epilogue bytes 0 tail m [1 2 3 13] shift border 2 cut [m]";

TEST(Annotations, are_read_back_as_they_are_printed) {
    for (const char* some : {kAll, "", " accumulators 1 epilogue_loop [] non_temporal never prefetch never cut []",
                             " non_temporal always prefetch 1 task bytes 64", " sum looped tail m [13]",
                             " partial_sums early tail m [13]"}) {
        const std::string text = annotated_product(some);
        const TileProgram t = parse_tile_program(text);
        EXPECT_EQ(print(t), text);
        EXPECT_EQ(verify(t), std::vector<std::string>()) << text;
    }
    const std::string stored = changed(kGemm, "store c padding local", "store c padding local non_temporal always");
    EXPECT_EQ(print(parse_tile_program(stored)), stored);
    EXPECT_EQ(verify(parse_tile_program(stored)), std::vector<std::string>());
}

TEST(Annotations, that_are_malformed_are_rejected) {
    for (const char* wrong : {" accumulators", " sum", " epilogue_loop m", " epilogue_loop [x]", " non_temporal",
                              " prefetch 1", " prefetch 1 lines bytes 4", " prefetch -1 panel bytes 4", " tail m",
                              " tail x [1]", " tail m [1] border", " cut m", " unroll 4"})
        EXPECT_THROW(parse_tile_program(annotated_product(wrong)), ModelError) << wrong;
}

TEST(Annotations, must_be_legal) {
    for (const auto& [wrong, why] : std::vector<std::pair<std::string, std::string>>{
             {" accumulators 0", "1 to 16 accumulators"},
             {" accumulators 17", "1 to 16 accumulators"},
             {" sum unrolled", "needs a constant-coefficient linear transform"},
             {" epilogue_loop [n]", "spatial axes beside"},
             {" epilogue_loop [k]", "spatial axes beside"},
             {" epilogue_loop [m] vectors 0", "spatial axes beside"},
             {" non_temporal above -1", "need a result in memory"},
             {" prefetch 3 panel bytes 64", "access 3 has no panel"},
             {" prefetch 0 panel bytes 64", "access 0 has no panel"},  // its lanes read one element
             {" prefetch 1 panel bytes -64", "access 1 has no panel"},
             {" prefetch 1 rows bytes 64", "access 1 has no rows"},
             {" prefetch 1 epilogue bytes 0", "access 1 has no epilogue"},
             {" prefetch 1 map bytes 0", "access 1 has no map"},
             {" tail n [32]", "a spatial axis that is not the vector axis"},
             {" tail k [1]", "a spatial axis that is not the vector axis"},
             {" tail m []", "tail sizes ascend"},
             {" tail m [2 2 13]", "tail sizes ascend"},
             {" tail m [1 14]", "tail sizes ascend"},
             {" tail m [1 2] shift", "a shifted tail is a whole tile"},
             {" tail m [13] border -1", "a border has 0 points or more"},
             {" tail m [13] tail m [1 13]", "an axis has two tails"},
             {" cut [k]", "loops are cut along spatial axes"}})
        EXPECT_THAT(annotation_errors(wrong), Contains(HasSubstr(why))) << wrong;
}

TEST(Annotations, a_tail_on_tile_registers_leaves_none_of_them_empty) {
    const auto faults = [](const std::string& tail) {
        return verify(parse_tile_program(fmt::format(R"(tile product {{
stages {{
program product {{
  input x: bf16[$m, 64]
  input w: bf16[32, 32, 2]
  y: f32[$m, 32] = [$m, 32] sum(i2 < 64) mul(f32(@0), f32(@1)) where @0 = x[i0, i2], @1 = w[i2 // 2, i1, i2 % 2]  ; y ""
  output y
}}
}}
axes m="$m" n="32" k="64"
stage 0 over [m n k]
compute 0 vector n lanes 16 matrix bf16 tile [m n k] registers [m=32 n=32 k=32] order [n m k] padding partition{}
}}
)",
                                                     tail)));
    };
    EXPECT_THAT(faults(""), ElementsAre());
    EXPECT_THAT(faults(" tail m [16 32]"), ElementsAre());
    for (const char* tail : {" tail m [32]", " tail m [1 32]", " tail m [8 32]"})
        EXPECT_THAT(faults(tail), ElementsAre(HasSubstr("leaves none of them empty"))) << tail;
}

TEST(Annotations, several_accumulators_need_a_reduction_that_is_looped_over) {
    const auto errors = [](const std::string& registers, const char* from = "vector n", const char* to = "vector n") {
        std::string text = annotated_product(" accumulators 4", registers);
        text = changed(text, from, to);
        return verify(parse_tile_program(text));
    };
    EXPECT_THAT(errors("m=13 n=32"), ElementsAre());
    EXPECT_THAT(errors("m=13 n=32 k=2"), Contains(HasSubstr("neither vectorised nor unrolled")));
    EXPECT_THAT(errors("m=13 k=32", "vector n", "vector k"), Contains(HasSubstr("neither vectorised nor unrolled")));
    const auto of_softmax = [](const std::string& compute) {
        return verify(parse_tile_program(changed(kSoftmax, compute, compute + " accumulators 2")));
    };
    EXPECT_THAT(of_softmax("compute 2 padding partition"), ElementsAre());
    EXPECT_THAT(of_softmax("compute 1 padding partition"),
                Contains(HasSubstr("several accumulators need a reduction")));
}

TEST(Annotations, results_of_a_buffer_are_not_stored_non_temporally) {
    const std::string text =
        changed(kGemm, "vthreads [m=2] padding partition", "vthreads [m=2] padding partition non_temporal always");
    EXPECT_THAT(verify(parse_tile_program(text)), Contains(HasSubstr("need a result in memory")));
}

TEST(Annotations, a_cut_sum_is_not_computed_twice) {
    const std::string text = changed(kGemm, "vthreads [m=2] padding partition", "padding partition tail m [1 8] shift");
    EXPECT_THAT(verify(parse_tile_program(text)), Contains(HasSubstr("needs a whole reduction")));
}

TEST(Annotations, change_no_result) {
    const std::vector<Tensor> inputs = [] {
        std::vector<Tensor> out;
        for (const Shape& shape : {Shape{3, 512}, Shape{512, 1024}, Shape{3, 1024}}) {
            out.emplace_back(DType::F32, shape);
            for (int64_t i = 0; i < out.back().count(); ++i) out.back().set(i, static_cast<double>(i % 7 - 3));
        }
        return out;
    }();
    const Tensor with = interpret(parse_tile_program(annotated_product(kAll)), inputs, {}).at(0);
    const Tensor without = interpret(parse_tile_program(annotated_product()), inputs, {}).at(0);
    for (int64_t i = 0; i < with.count(); ++i) ASSERT_EQ(with.get(i), without.get(i));
}

TEST(Annotate, a_product_with_dynamic_rows) {
    const Annotations a = derived(annotated_product(), 1 << 20);
    EXPECT_EQ(a.accumulators, (Accumulators{4, 8}));
    EXPECT_EQ(a.non_temporal, 1 << 20);
    ASSERT_TRUE(a.prefetch);
    EXPECT_THAT(*a.prefetch,
                ElementsAre(Prefetch{0, PrefetchKind::Rows, 13 * 512 * 4}, Prefetch{1, PrefetchKind::Panel, 8192, 10},
                            Prefetch{2, PrefetchKind::Epilogue, 0}));
    EXPECT_THAT(a.tails, ElementsAre(Tail{0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, false}));
    EXPECT_FALSE(a.cut || a.epilogue_loop || a.unroll_sum);
}

TEST(Annotate, tiles_of_rows_prefetch_their_shares_of_the_next_panel) {
    const auto of_weights = [](int rows, int columns, int sum) {
        const Annotations a = derived(fmt::format(R"TW(tile product {{
stages {{
program product {{
  input a: f32[{0}, {2}]
  input b: f32[{3}, {2}, 32]
  c: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 32, i2, i1 % 32]
  output c
}}
}}
axes m="{0}" n="{1}" k="{2}"
stage 0 over [m n k]
compute 0 vector n lanes 16 registers [m=13 n=32] order [n m k] padding partition
}}
)TW",
                                                  rows, columns, sum, columns / 32));
        return a.prefetch ? *a.prefetch : std::vector<Prefetch>();
    };
    EXPECT_THAT(of_weights(128, 768, 768), Contains(Prefetch{1, PrefetchKind::Next, 32 * 768 * 4, 10}));
    // Two panels of 384 KB, one tile of rows, one panel.
    EXPECT_THAT(of_weights(128, 768, 3072), Contains(Prefetch{1, PrefetchKind::Panel, 8192, 10}));
    EXPECT_THAT(of_weights(13, 768, 768), Contains(Prefetch{1, PrefetchKind::Panel, 8192, 10}));
    EXPECT_THAT(of_weights(128, 32, 8192), Contains(Prefetch{1, PrefetchKind::Panel, 8192, 10}));
}

/// A prefetch takes as long in L2 as a read: five rows of multiply-adds take longer than both.
TEST(Annotate, tiles_of_few_rows_leave_panels_to_the_hardware) {
    const auto least_results = [](int rows, int columns) {
        const Annotations a = derived(fmt::format(R"TW(tile product {{
stages {{
program product {{
  input a: f32[56, 4096]
  input b: f32[12, 4096, 64]
  c: f32[56, 768] = [56, 768] sum(i2 < 4096) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 64, i2, i1 % 64]
  output c
}}
}}
axes m="56" n="768" k="4096"
stage 0 over [m n k]
compute 0 vector n lanes 16 registers [m={0} n={1}] order [n m k] padding partition
}}
)TW",
                                                  rows, columns));
        for (const Prefetch& p : a.prefetch.value_or(std::vector<Prefetch>()))
            if (p.access == 1) return p.results;
        return int64_t{0};
    };
    EXPECT_EQ(least_results(7, 64), 20) << "5 rows of 4 vectors";
    EXPECT_EQ(least_results(14, 32), 10);
    EXPECT_EQ(least_results(8, 16), 8);
    EXPECT_EQ(least_results(4, 64), 0) << "no prefetch";
    EXPECT_EQ(least_results(4, 32), 0);
}

/// The window's axes are loops around the block: 512 channels are the panel.
TEST(Annotate, blocks_of_windows_prefetch_the_next_block) {
    const Annotations a = derived(R"TW(tile convolution {
stages {
program convolution {
  input x: f32[9, 9, 512]
  input w: f32[16, 3, 3, 512, 32]
  y: f32[7, 7, 512] = [512, 7, 7] -> [i1, i2, i0] sum(i3 < 512, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i1 + i4, i2 + i5, i3], @1 = w[i0 // 32, i4, i5, i3, i0 % 32]
  output y
}
}
axes o="512" h="7" w="7" c="512" y="3" x="3"
stage 0 over [o h w c y x]
for o by 32 {
  for y by 1 {
    for x by 1 {
      compute 0 vector o lanes 16 registers [o=32 h=2 w=7] order [o h w y x c] padding partition
    }
  }
}
}
)TW");
    ASSERT_TRUE(a.prefetch);
    EXPECT_THAT(*a.prefetch, Contains(Prefetch{1, PrefetchKind::Next, 512 * 32 * 4, 10}));
}

TEST(Annotate, rows_that_map_to_the_same_sets_and_blocks_of_rows_are_not_prefetched) {
    const auto prefetches_rows = [](int sum, const std::string& loop) {
        const Annotations a = derived(fmt::format(R"TW(tile product {{
stages {{
program product {{
  input a: f32[1024, {0}]
  input b: f32[{0}, 16]
  c: f32[1024, 16] = [1024, 16] sum(i2 < {0}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
}}
}}
axes m="1024" n="16" k="{0}"
stage 0 over [m n k]
{1}
compute 0 vector n lanes 8 registers [m=6 n=16] order [n m k] padding partition
{2}}}
)TW",
                                                  sum, loop, loop.empty() ? "" : "}\n"));
        const std::vector<Prefetch> all = a.prefetch.value_or(std::vector<Prefetch>());
        return std::any_of(all.begin(), all.end(), [](const Prefetch& p) { return p.kind == PrefetchKind::Rows; });
    };
    EXPECT_TRUE(prefetches_rows(768, ""));
    EXPECT_FALSE(prefetches_rows(768, "for k by 384 {")) << "the other half of the next rows";
    EXPECT_FALSE(prefetches_rows(1024, "")) << "4 KiB apart";
    EXPECT_FALSE(prefetches_rows(3072, ""));
    EXPECT_TRUE(prefetches_rows(1040, ""));
}

TEST(Annotate, one_thread_streams_a_left_factor_that_L1_does_not_keep) {
    const auto streamed = [](int rows, bool one_thread) {
        const TileProgram t = parse_tile_program(fmt::format(R"TW(tile product {{
stages {{
program product {{
  input a: bf16[{0}, 256]
  input b: bf16[2, 128, 32, 2]
  c: f32[{0}, 64] = [{0}, 64] sum(i2 < 256) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 32, i2 // 2, i1 % 32, i2 % 2]
  output c
}}
}}
axes m="{0}" n="64" k="256"
stage 0 over [m n k]
compute 0 vector n lanes 16 matrix bf16 tile [m n k] registers [m=32 n=32 k=32] order [n m k] padding partition
}}
)TW",
                                                             rows));
        return annotations_of(annotate(t, {0, one_thread, {}})).stream_left == true;
    };
    EXPECT_TRUE(streamed(128, true));  // 64 KB
    EXPECT_FALSE(streamed(32, true));  // 16 KB
    EXPECT_FALSE(streamed(128, false));
    EXPECT_THAT(annotation_errors(" left streamed"),
                Contains(HasSubstr("only tile registers stream their left factor")));
}

/// The product whose sum runs in blocks of so many terms.
std::string product_in_blocks(int terms, const std::string& annotations = "") {
    const std::string compute = "compute 0 vector n lanes 16 registers [m=13 n=32] order [n m k] padding partition";
    return changed(annotated_product(), compute + "\n",
                   fmt::format("for k by {} {{\n{}{}\n}}\n", terms, compute, annotations));
}

TEST(Annotate, partial_sums_are_added_behind_the_steps_that_cover_their_way) {
    EXPECT_EQ(derived(product_in_blocks(256)).resume_late, true);
    EXPECT_EQ(derived(product_in_blocks(32)).resume_late, true);
    EXPECT_FALSE(derived(product_in_blocks(16)).resume_late);
    EXPECT_EQ(derived(product_in_blocks(256, " partial_sums early")).resume_late, false);
    EXPECT_FALSE(derived(annotated_product()).resume_late) << "a whole sum";
    EXPECT_EQ(verify(parse_tile_program(product_in_blocks(16, " partial_sums late"))), std::vector<std::string>());
    EXPECT_THAT(annotation_errors(" partial_sums late"), Contains(HasSubstr("no partial sums can be added late")));
}

TEST(Annotate, a_product_whose_rows_are_known) {
    const Annotations a = derived(annotated_product("", "m=13 n=32", "100"), 1 << 20);
    EXPECT_THAT(a.tails, ElementsAre());
    EXPECT_FALSE(a.non_temporal);
    EXPECT_EQ(derived(annotated_product("", "m=13 n=32", "300"), 1 << 20).non_temporal, kNonTemporalAlways);
}

TEST(Annotate, parts_of_many_lines_are_stored_through_the_caches) {
    const auto stored = [](const char* lanes, const char* registers) {
        return derived(changed(annotated_product("", registers, "300"), "lanes 16", lanes), 1 << 20).non_temporal;
    };
    EXPECT_EQ(stored("lanes 8", "m=12 n=16"), kNonTemporalAlways) << "whole lines";
    EXPECT_EQ(stored("lanes 8", "m=8 n=8"), kNonTemporalAlways) << "halves of few lines";
    EXPECT_FALSE(stored("lanes 8", "m=12 n=8"));
    EXPECT_EQ(stored("lanes 16", "m=12 n=16"), kNonTemporalAlways);
}

/// The product with its sum in two parts of 256 terms, each in rows of its own.
std::string product_in_parts() {
    return R"TW(tile product {
stages {
program product {
  input a: f32[2, 1024, 256]
  input b: f32[64, 2, 256, 16]
  c: f32[1024, 1024] = [1024, 1024] sum(i2 < 2, i3 < 256) mul(@0, @1) where @0 = a[i2, i0, i3], @1 = b[i1 // 16, i2, i3, i1 % 16]
  output c
}
}
axes m="1024" n="1024" j="2" k="256"
stage 0 over [m n j k]
compute 0 vector n lanes 8 registers [m=6 n=16] order [n m j k] padding partition
}
)TW";
}

TEST(Annotate, the_steps_of_several_reductions_prefetch_rows_and_panels_as_those_of_one) {
    const Annotations a = derived(product_in_parts());
    ASSERT_TRUE(a.prefetch);
    EXPECT_THAT(*a.prefetch, Contains(Prefetch{0, PrefetchKind::Rows, 6 * 256 * 4}));
    EXPECT_THAT(*a.prefetch, Contains(Prefetch{1, PrefetchKind::Next, 2 * 256 * 16 * 4, 8}));
    // Lines of a panel that are not in the order of the steps.
    const Annotations other = derived(changed(product_in_parts(), "order [n m j k]", "order [n m k j]"));
    EXPECT_THAT(other.prefetch.value_or(std::vector<Prefetch>()),
                testing::Not(Contains(testing::Field(&Prefetch::kind, PrefetchKind::Next))));
}

TEST(Annotate, keeps_what_is_there_and_changes_nothing_again) {
    const Annotations given = annotations_of(parse_tile_program(annotated_product(" accumulators 2 prefetch never")));
    const TileProgram once = annotate(parse_tile_program(annotated_product(" accumulators 2 prefetch never")), {4096});
    EXPECT_EQ(annotations_of(once).accumulators, given.accumulators);
    EXPECT_EQ(annotations_of(once).prefetch, given.prefetch);
    EXPECT_FALSE(annotations_of(once).tails.empty());
    EXPECT_EQ(print(annotate(once, {4096})), print(once));
    EXPECT_EQ(verify(once), std::vector<std::string>());
}

/// Padding::Local computes whole tiles and writes under a condition.
TEST(Annotate, local_padding_clamps_tails) {
    const std::string local = changed(annotated_product(), "padding partition", "padding local");
    EXPECT_THAT(derived(local).tails, ElementsAre(Tail{0, {13}, false}));
}

TEST(Annotate, rows_of_a_softmax) {
    const std::string text = R"TW(tile softmax {
stages {
program softmax {
  input x: f32[4096, 1024]
  m: f32[4096] = [4096] max(i1 < 1024) @0 where @0 = x[i0, i1]  ; m ""
  s: f32[4096] = [4096] sum(i1 < 1024) exp(sub(@0, @1)) where @0 = x[i0, i1], @1 = m[i0]  ; s ""
  y: f32[4096, 1024] = [4096, 1024] div(exp(sub(@0, @1)), @2) where @0 = x[i0, i1], @1 = m[i0], @2 = s[i0]  ; y ""
  output y
}
}
axes row="4096" a="1024" b="1024" c="1024"
stage 0 over [row a]
stage 1 over [row b]
stage 2 over [row c]
parallel row by 1 {
  compute 0 vector a lanes 8 registers [a=32] order [row a] padding partition
  compute 1 vector b lanes 8 registers [b=32] order [row b] padding partition
  compute 2 vector c lanes 8 registers [c=16] order [row c] padding partition
}
}
)TW";
    EXPECT_EQ(derived(text, 1 << 20, 0), Annotations());
    EXPECT_EQ(derived(text, 1 << 20, 1), Annotations());
    Annotations last;
    last.prefetch = {{0, PrefetchKind::Task, 4096}};
    last.non_temporal = kNonTemporalAlways;
    EXPECT_EQ(derived(text, 1 << 20, 2), last);
}

TEST(Annotate, a_padded_convolution_with_dynamic_rows) {
    const Annotations a = derived(R"TW(tile conv {
stages {
program conv {
  input x: f32[$rows, 64, 64]
  input w: f32[3, 3, 64]
  y: f32[$rows, 64, 64] = [$rows, 64, 64] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = x[i0 + i3 - 1, i1 + i4 - 1, i2] when i0 + i3 - 1 >= 0 and $rows - i0 - i3 >= 0 and i1 + i4 - 1 >= 0 and -i1 - i4 + 64 >= 0 else 0, @1 = w[i3, i4, i2]  ; y ""
  output y
}
}
axes s0="$rows" s1="64" s2="64" r3="3" r4="3"
stage 0 over [s0 s1 s2 r3 r4]
compute 0 vector s2 lanes 8 registers [s0=2 s1=4 s2=8] order [s0 s1 s2 r3 r4] padding partition
}
)TW");
    ASSERT_TRUE(a.cut);
    EXPECT_THAT(*a.cut, ElementsAre(0, 1));
    EXPECT_THAT(a.tails, ElementsAre(Tail{0, {1}, false, 2}));
    ASSERT_TRUE(a.prefetch);
    EXPECT_THAT(*a.prefetch, ElementsAre(Prefetch{0, PrefetchKind::Window, 8192}));
    EXPECT_FALSE(a.accumulators);  // of three steps
}

/// The texts of the variants of the first compute.
std::vector<std::string> variants_of(const std::string& text, int64_t cache_bytes = 0) {
    const TileProgram t = parse_tile_program(text);
    const Walk tree = walk(t);
    const auto& [path, compute] = tree.computes.at(0);
    std::vector<std::string> out;
    for (Annotations& a :
         annotation_variants(compute->micro.annotations, site_of(t, tree, path, *compute), {cache_bytes})) {
        TileProgram variant = t;
        std::get<Compute>(variant.body.at(0).kind).micro.annotations = std::move(a);
        EXPECT_EQ(verify(variant), std::vector<std::string>()) << print(variant);
        const std::string line = print(variant);
        const size_t from = line.find("padding partition") + 17;
        out.push_back(line.substr(from, line.find('\n', from) - from));
    }
    return out;
}

TEST(AnnotationVariants, differ_from_what_is_derived_in_one_annotation) {
    EXPECT_EQ(derived(annotated_product()).accumulators, (Accumulators{4, 8}));
    const std::vector<std::string> all = variants_of(annotated_product());
    for (const char* one : {" accumulators 1", " accumulators 2", " accumulators 4", " accumulators 8", " tail m [13]",
                            " tail m [1 13]", " tail m [1 13] shift", " tail m [1 2 3 4 5 6 7]", " prefetch never"})
        EXPECT_THAT(all, Contains(one));
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
}

TEST(AnnotationVariants, keep_explicit_annotations_beside_the_one_that_they_set) {
    for (const std::string& v : variants_of(annotated_product(" accumulators 2 non_temporal always")))
        EXPECT_TRUE(v.find(" accumulators 2") == 0 || v.find(" non_temporal always") != std::string::npos) << v;
    EXPECT_THAT(variants_of(annotated_product(" accumulators 2")), testing::Not(Contains(" accumulators 2")));
}

TEST(AnnotationVariants, of_stores_need_a_result_near_the_size_of_the_cache) {
    const std::string whole = annotated_product("", "m=8 n=32", "64");  // its result has 256 KiB
    EXPECT_THAT(variants_of(whole, 8 << 20), testing::Not(Contains(" non_temporal always")));
    EXPECT_THAT(variants_of(whole, 512 << 10), Contains(" non_temporal always"));
    EXPECT_THAT(variants_of(whole, 128 << 10), Contains(" non_temporal never"));
}

TEST(AnnotationVariants, of_a_whole_number_of_tiles_have_no_tails) {
    for (const std::string& v : variants_of(annotated_product("", "m=8 n=32", "64")))
        EXPECT_EQ(v.find("tail"), std::string::npos) << v;
}

/// A product whose weights are decoded, with one scale for 32 numbers.
std::string quantised(const std::string& annotations, int rows = 1) {
    return fmt::format(
        "tile q {{\nstages {{\n{}\n}}\n{}\n}}\n",
        schedule_cases::quantised_product(std::to_string(rows), 64, 8,
                                          schedule_cases::number_of_word(schedule_cases::kEven16, 4)),
        schedule_cases::schedule_of_quantised_product(std::to_string(rows), 64, 8, rows, 32, 16, annotations));
}

TEST(Annotations, hoist_scales_of_quantised_weights) {
    EXPECT_EQ(derived(quantised("")).hoist_scale, (HoistScale{12, 8}));
    EXPECT_EQ(derived(quantised(" scale_hoisted 0")).hoist_scale, HoistScale());
    EXPECT_EQ(derived(annotated_product()).hoist_scale, std::nullopt);
    for (const char* some : {" scale_hoisted 0", " scale_hoisted 12", " scale_hoisted 4 in_flight 8"}) {
        const TileProgram t = parse_tile_program(quantised(some));
        EXPECT_THAT(print(t), HasSubstr(some));
        EXPECT_EQ(verify(t), std::vector<std::string>());
    }
    EXPECT_THAT(annotation_errors(" scale_hoisted 12"), ElementsAre(HasSubstr("a hoisted scale needs a product")));
}

TEST(Annotations, prefetch_what_a_step_decodes_several_numbers_of_from_far_memory) {
    TileProgram t = parse_tile_program(quantised(""));
    const auto prefetches = [&] { return annotations_of(annotate(t, {})).prefetch; };
    EXPECT_FALSE(prefetches());  // 2 KiB of codes, in a cache
    t.stages.far = {{t.stages.inputs[1], Residence::Memory}, {t.stages.inputs[2], Residence::Memory}};
    ASSERT_TRUE(prefetches());
    EXPECT_EQ(prefetches()->at(0).access, 1u);
    EXPECT_EQ(prefetches()->at(0).results, 1);
}

}  // namespace
}  // namespace tilewright
