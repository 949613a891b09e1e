// Annotations of kernels on a GPU: what is derived, as text, and what is refused.

#include "tile/annotate/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "tile/annotate/annotate.h"
#include "tile/annotate/variants.h"
#include "tile/examples_test.h"

namespace tilewright {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr gpu::BlockLimits kLimits{256, 164 << 10};

TileProgram derived(const std::string& text) { return annotate(parse_tile_program(text), {0, false, kLimits}); }

/// The lines of the statements, of their annotations alone: what stands behind the padding.
std::vector<std::string> annotation_lines(const TileProgram& t) {
    std::vector<std::string> out;
    std::istringstream lines(print(t));
    for (std::string line; std::getline(lines, line);) {
        const size_t statement = line.find_first_not_of(' '), padding = line.find(" padding ");
        if (padding == std::string::npos) continue;
        const size_t behind = line.find(' ', padding + 9);
        out.push_back(line.substr(statement, line.find(' ', statement) - statement) +
                      (behind == std::string::npos ? "" : line.substr(behind)));
    }
    return out;
}
std::vector<std::string> derived_lines(const std::string& text) { return annotation_lines(derived(text)); }

/// relu(A B + bias) in blocks of 64 x 64, sixteen of the sum at a time, 8 x 4 results a thread.
std::string blocked_product(const std::string& n = "256", const std::string& registers = "m=8 n=4 k=4",
                            const std::string& type = "f32", const std::string& stages = " stages 3") {
    return fmt::format(R"TW(tile product {{
stages {{
program product {{
  input a: {1}[512, 128]
  input b: {1}[128, {0}]
  input z: {1}[{0}]
  c: {1}[512, {0}] = [512, {0}] sum(i2 < 128) mul(@0, @1) then max(add(acc, @2), @2) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = z[i1]  ; c ""
  output c
}}
}}
axes m="512" n="{0}" k="128"
stage 0 over [m n k]
parallel m by 64 {{
  parallel n by 64 {{
    for k by 16{3} {{
      load 0 access 0 layout "" padding local
      load 0 access 1 layout "" padding local
      compute 0 vector n lanes 4 registers [{2}] order [m n k] padding local
    }}
    store c padding local
  }}
}}
}}
)TW",
                       n, type, registers, stages);
}

/// Copies and reads of 16 bytes; the loop over k is unrolled as its register tile says. (A thread's elements of A lie
/// 16 apart.)
TEST(AnnotateGpu, a_product_through_shared_memory) {
    EXPECT_THAT(derived_lines(blocked_product()),
                ElementsAre("load copy [0 1] by 4 async", "load copy [0 1] by 4 async",
                            "compute unroll [k=4] read 1 by 4 read 2 by 4 write by 1", "store copy by 4"));
}

TEST(AnnotateGpu, copies_run_beside_the_program_in_pipelined_loops_alone) {
    EXPECT_THAT(derived_lines(blocked_product("256", "m=8 n=4", "f32", "")),
                ElementsAre("load copy [0 1] by 4", "load copy [0 1] by 4",
                            "compute unroll [] read 1 by 4 read 2 by 4 write by 1", "store copy by 4"));
}

/// Rows of 255 elements: the address of a row's vectors is a multiple of one element.
TEST(AnnotateGpu, odd_rows_are_copied_one_by_one) {
    EXPECT_THAT(derived_lines(blocked_product("255")),
                ElementsAre("load copy [0 1] by 4 async", "load copy [0 1] by 1 async",
                            "compute unroll [k=4] read 1 by 4 write by 1", "store copy by 1"));
}

/// Of 16 bytes eight halves; a thread that has four of them side by side reads four.
TEST(AnnotateGpu, vectors_of_halves) {
    EXPECT_THAT(derived_lines(blocked_product("256", "m=8 n=4", "f16")),
                ElementsAre("load copy [0 1] by 8 async", "load copy [0 1] by 8 async",
                            "compute unroll [] read 1 by 4 read 2 by 4 write by 1", "store copy by 4"));
}

/// Products of the matrix instructions of a warp, of a warpgroup.
std::string matrix_product(bool group, int stages) {
    return fmt::format(R"TW(tile product {{
stages {{
program product {{
  input a: f16[512, 128]
  input b: f16[128, 256]
  c: f16[512, 256] = [512, 256] sum(i2 < 128) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]  ; c ""
  output c
}}
}}
axes m="512" n="256" k="128"
stage 0 over [m n k]
parallel m by 64 {{
  parallel n by 64 {{
    for k by 64 stages {0} {{
      load 0 access 0 layout "{1} padding local
      load 0 access 1 layout "{1} padding local
      compute 0 matrix f16{2} [m n k] registers [m={3} n={3} k={4}] padding local
    }}
    store c padding local
  }}
}}
}}
)TW",
                       stages, group ? "split(1, 64) reorder(1, 0, 2)\" swizzle 128" : "pad(1, 0, 8)\"",
                       group ? " group" : "", group ? 64 : 32, group ? 64 : 16);
}

/// ldmatrix brings the operands; two of the four instructions along k are unrolled.
TEST(AnnotateGpu, a_product_on_matrix_instructions) {
    EXPECT_THAT(
        derived_lines(matrix_product(false, 2)),
        ElementsAre("load copy [0 1] by 8 async", "load copy [0 1] by 8 async",
                    "compute unroll [k=2] read 0 by fragments read 1 by fragments write by 1", "store copy by 2"));
}

/// TMA copies, WGMMA reads shared memory. From three steps on products go on while the next step begins.
TEST(AnnotateGpu, a_product_of_a_warpgroup) {
    EXPECT_THAT(derived_lines(matrix_product(true, 3)),
                ElementsAre("load copy by boxes", "load copy by boxes",
                            "compute unroll [] read 0 in place read 1 in place write by 1 products overlapped",
                            "store copy by 2"));
    EXPECT_THAT(derived_lines(matrix_product(true, 2)), Contains(HasSubstr("products awaited")));
}

std::string elementwise(const std::string& columns, const std::string& index, const std::string& registers) {
    return fmt::format(R"TW(tile sums {{
stages {{
program sums {{
  input x: f32[64, {0}]
  input y: f32[{0}]
  z: f32[64, {0}] = [64, {0}] add(@0, @1) where @0 = x[i0, i1], @1 = y[{1}]  ; z ""
  output z
}}
}}
axes m="64" n="{0}"
stage 0 over [m n]
parallel m by 8 {{
  compute 0 vector n lanes 4 registers [{2}] padding local
}}
}}
)TW",
                       columns, index, registers);
}

TEST(AnnotateGpu, elementwise_stages) {
    EXPECT_THAT(derived_lines(elementwise("128", "i1", "n=4")),
                ElementsAre("compute read 0 by 4 read 1 by 4 write by 4"));
    // Every thread's operand would lie in another place: the others have its neighbours.
    EXPECT_THAT(derived_lines(elementwise("128", "127 - i1", "n=4")), ElementsAre("compute write by 1"));
    // Rows are no whole vectors.
    EXPECT_THAT(derived_lines(elementwise("126", "i1", "n=4")), ElementsAre("compute write by 1"));
}

TEST(AnnotateGpu, explicit_annotations_stay) {
    const std::string half = changed(blocked_product(), "layout \"\" padding local\n      load 0 access 1",
                                     "layout \"\" padding local copy [1 0] by 1\n      load 0 access 1");
    EXPECT_THAT(derived_lines(half),
                ElementsAre("load copy [1 0] by 1", "load copy [0 1] by 4 async",
                            "compute unroll [k=4] read 1 by 4 read 2 by 4 write by 1", "store copy by 4"));
}

TEST(AnnotateGpu, derived_programs_are_valid_and_read_back_as_they_are_printed) {
    for (const std::string& text : {blocked_product(), blocked_product("255"), matrix_product(false, 2),
                                    matrix_product(true, 3), elementwise("128", "i1", "n=4")}) {
        const TileProgram t = derived(text);
        EXPECT_EQ(verify(t), std::vector<std::string>());
        const std::string printed = print(t);
        EXPECT_EQ(print(parse_tile_program(printed)), printed);
        EXPECT_EQ(print(annotate(t, {0, false, kLimits})), printed);
    }
}

/// The rules, each broken once.
std::vector<std::string> faults_of(const std::string& text, const std::string& what, const std::string& instead) {
    return verify(parse_tile_program(changed(print(derived(text)), what, instead)));
}

TEST(GpuAnnotations, of_reads_need_whole_aligned_vectors) {
    const auto faults = [](const std::string& reads) {
        return faults_of(blocked_product(), "read 1 by 4 read 2 by 4 write by 1", reads);
    };
    EXPECT_THAT(faults("read 1 by 2 read 2 by 1 write by 1"), IsEmpty());
    EXPECT_THAT(faults("write by 1"), IsEmpty());
    EXPECT_THAT(faults("read 1 by 3 write by 1"),
                ElementsAre("compute 0: access 1 is read 3 elements at a time, but vectors have a power of two of "
                            "elements, 4 at most"));
    EXPECT_THAT(faults("read 1 by 8 write by 1"), ElementsAre(HasSubstr("4 at most")));
    EXPECT_THAT(faults("read 0 by 4 write by 1"),
                ElementsAre("compute 0: access 0 is read 4 elements at a time, but neighbours along m are not "
                            "neighbours in memory"));
    EXPECT_THAT(faults("read 7 by 4 write by 1"), Contains("compute 0: access 7 of 3"));
    EXPECT_THAT(faults("read 1 by fragments write by 1"),
                ElementsAre("compute 0: access 1 is no operand of matrix instructions as it stands"));
    EXPECT_THAT(faults("write by 4"), ElementsAre("compute 0: sums are written one by one, not 4 elements at a time"));
}

TEST(GpuAnnotations, of_results_end_where_the_axis_does) {
    EXPECT_THAT(faults_of(elementwise("128", "i1", "n=4"), "write by 4", "write by 8"),
                Contains(HasSubstr("compute 0: the result is written 8 elements at a time, but vectors have")));
    EXPECT_THAT(faults_of(elementwise("126", "i1", "n=4"), "write by 1", "write by 4"),
                ElementsAre("compute 0: the result is written 4 elements at a time, but their address is a multiple "
                            "of 2 elements"));
    EXPECT_THAT(faults_of(changed(elementwise("126", "i1", "n=2"), "lanes 4", "lanes 2"), "write by 2", "write by 4"),
                Contains(HasSubstr("a thread has 2 side by side along n")));
}

TEST(GpuAnnotations, of_copies) {
    const auto faults = [](const std::string& n, const std::string& copy) {
        const std::string text = print(derived(blocked_product(n)));
        const size_t at = text.find("load 0 access 1"), from = text.find("copy", at);
        std::string broken = text;
        broken.replace(from, text.find('\n', from) - from, copy);
        return verify(parse_tile_program(broken));
    };
    EXPECT_THAT(faults("256", "copy [1 0] by 1"), IsEmpty());
    EXPECT_THAT(faults("256", "copy [0 1] by 2 async"), IsEmpty());
    EXPECT_THAT(faults("255", "copy [0 1] by 4 async"),
                ElementsAre("load 0 access 1: the result is written 4 elements at a time, but a vector may cross the "
                            "end of an axis, or the place where a condition changes"));
    EXPECT_THAT(faults("256", "copy [0] by 4"),
                ElementsAre("load 0 access 1: its order is no permutation of its dimensions"));
    EXPECT_THAT(faults("256", "copy [0 1] by 8"), ElementsAre(HasSubstr("4 at most")));
    EXPECT_THAT(faults("256", "copy by boxes"), ElementsAre("load 0 access 1: TMA has no boxes for it"));
    EXPECT_THAT(faults_of(blocked_product("256", "m=8 n=4", "f32", ""),
                          "load 0 access 0 layout \"\" padding local copy [0 1] by 4",
                          "load 0 access 0 layout \"\" padding local copy [0 1] by 4 async"),
                ElementsAre(HasSubstr("copies run beside the program in a loop of several stages")));
}

TEST(GpuAnnotations, of_unrolled_loops_and_overlapped_products) {
    EXPECT_THAT(faults_of(blocked_product(), "unroll [k=4]", "unroll [k=8]"), IsEmpty());
    EXPECT_THAT(faults_of(blocked_product(), "unroll [k=4]", "unroll [m=2]"),
                ElementsAre(HasSubstr("compute 0: 2 steps along m are unrolled: 1 to 256")));
    EXPECT_THAT(faults_of(blocked_product(), "write by 1", "write by 1 products awaited"),
                ElementsAre("compute 0: only products of a warpgroup overlap"));
    EXPECT_THAT(faults_of(matrix_product(true, 2), "products awaited", "products overlapped"),
                ElementsAre(HasSubstr("in a loop of three stages or more")));
    EXPECT_THAT(faults_of(matrix_product(true, 3), "products overlapped", "products awaited"), IsEmpty());
}

/// The lines of the statement's variants, with what `annotate` derives beside the annotation that each of them sets.
std::vector<std::string> variant_lines(const std::string& text, const std::string& statement) {
    const TileProgram t = parse_tile_program(text);
    const Walk tree = walk(t);
    TreePath path = tree.computes.at(0).first;
    if (statement == "load") path = tree.loads.at(1).first;
    if (statement == "store") path = tree.stores.at(0).first;
    std::vector<std::string> out;
    for (const TileProgram& variant : gpu::annotation_variants(t, path, kLimits)) {
        const TileProgram whole = annotate(variant, {0, false, kLimits});
        EXPECT_EQ(verify(whole), std::vector<std::string>());
        const std::vector<std::string> lines = annotation_lines(whole);
        out.push_back(lines.at(statement == "load" ? 1 : statement == "compute" ? 2 : 3));
    }
    return out;
}

TEST(GpuAnnotationVariants, differ_from_what_is_derived_in_one_annotation) {
    EXPECT_THAT(variant_lines(blocked_product(), "compute"),
                ElementsAre("compute unroll [] read 1 by 4 read 2 by 4 write by 1",
                            "compute unroll [k=2] read 1 by 4 read 2 by 4 write by 1",
                            "compute unroll [k=8] read 1 by 4 read 2 by 4 write by 1",
                            "compute unroll [k=4] read 1 by 2 read 2 by 4 write by 1",
                            "compute unroll [k=4] read 1 by 1 read 2 by 4 write by 1",
                            "compute unroll [k=4] read 1 by 4 read 2 by 2 write by 1",
                            "compute unroll [k=4] read 1 by 4 read 2 by 1 write by 1"));
    EXPECT_THAT(variant_lines(blocked_product(), "load"),
                ElementsAre("load copy [0 1] by 1 async", "load copy [0 1] by 2 async", "load copy [0 1] by 4"));
    EXPECT_THAT(variant_lines(blocked_product(), "store"), ElementsAre("store copy by 1", "store copy by 2"));
    EXPECT_THAT(variant_lines(matrix_product(true, 3), "compute"),
                ElementsAre("compute unroll [] read 0 in place read 1 in place write by 1 products awaited"));
}

}  // namespace
}  // namespace tilewright
