#pragma once
// Hand-written schedules of products on a CPU's matrix instructions (MatrixForm::Tile and Dot).

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tile/schedule_cases_test.h"

namespace tilewright::schedule_cases {

/// c = relu(a b + bias), b in pairs along k and blocks of `block` columns: [n / block, k / 2, n % block, k % 2].
inline std::string paired_product(const std::string& m, int n, int k, int block, const std::string& out,
                                  const std::string& type = "bf16") {
    return fmt::format(R"TW(program product {{
  input a: {7}[{0}, {2}]
  input b: {7}[{4}, {5}, {3}, 2]
  input bias: f32[{1}]
  c: {6}[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = a[i0, i2], @1 = b[i1 // {3}, i2 // 2, i1 % {3}, i2 % 2], @2 = bias[i1]  ; c ""
  output c
}})TW",
                       m, n, k, block, (n + block - 1) / block, k / 2, out, type);
}

inline void products_on_tile_registers_have_rests_of_rows_and_columns(Collector& right) {
    struct Shape {
        const char* m;
        int n, k, block, rows, step;
    };
    // Rests of one and two row tiles, of columns in whole and in partial vectors; rows of unequal halves; short steps.
    for (const Shape& s :
         {Shape{"64", 64, 64, 32, 32, 32}, Shape{"70", 40, 64, 32, 32, 32}, Shape{"25", 96, 40, 96, 15, 20},
          Shape{"50", 23, 48, 32, 25, 24}, Shape{"$m", 40, 64, 32, 32, 32}, Shape{"$m", 33, 32, 16, 48, 16}})
        for (const char* out : {"f32", "bf16"}) {
            const std::string schedule = fmt::format(
                "axes m=\"{}\" n=\"{}\" k=\"{}\"\nstage 0 over [m n k]\nparallel m by {} {{\n"
                "compute 0 vector n lanes 16 matrix bf16 tile [m n k] registers [m={} n={} k={}] order [n m k] "
                "padding partition\n}}",
                s.m, s.n, s.k, 2 * s.rows, s.rows, s.block, s.step);
            const bool known = std::string(s.m) != "$m";
            right(kernel(paired_product(s.m, s.n, s.k, s.block, out), schedule),
                  known ? std::vector<Sizes>{{}} : all_of("m", {1, 15, 16, 17, 32, 33, 48, 100}),
                  out == std::string("f32") ? 0 : 4e-3);
        }
}

/// Products of pairs of terms (orchestrate/bf16_terms.h), which share tiles; blocks of the sum outside of the columns.
inline void pairs_of_terms_share_tile_registers(Collector& right) {
    for (const char* m : {"64", "45"})
        for (const bool blocked : {false, true}) {
            const int rows = blocked ? 32 : 16;
            right(kernel(fmt::format(R"TW(program product {{
  input t: bf16[{0}, 5, 3, 32]
  input v: bf16[2, 4, 3, 16, 32, 2]
  y: f32[{0}, 64] = [{0}, 64] sum(i2 < 4, i3 < 6, i4 < 32) mul(@0, @1) then max(acc, 0.0) where @0 = t[i0, i2, min(min(max(i3 - 1, 0), 1) + max(i3 - 3, 0), min(2, -2*i3 + 10)), i4], @1 = v[i1 // 32, i2, max(-min(i3, 1) - max(i3 - 2, 0) + 2, 0), i4 // 2, i1 % 32, i4 % 2]  ; y ""
  output y
}})TW",
                                     m),
                         fmt::format(R"TW(axes m="{}" n="64" b="4" p="6" k="32"
stage 0 over [m n b p k]
{}compute 0 vector n lanes 16 matrix bf16 tile [m n k] registers [m={} n=32 p=6 k=32] order [n m b p k] padding partition{})TW",
                                     m, blocked ? "for b by 2 {\nfor n by 32 {\n" : "", rows, blocked ? "\n}\n}" : "")),
                  std::vector<Sizes>{{}}, 0);
        }
}

inline void partial_sums_of_tile_registers_are_kept_in_a_buffer(Collector& right) {
    // Of 40 columns the last vector has 8; a Store gives the result itself a buffer.
    for (const char* m : {"40", "$m"})
        for (const char* out : {"f32", "bf16"})
            for (const bool stored : {false, true})
                for (const int n : {48, 40}) {
                    const std::string schedule =
                        fmt::format(R"TW(axes m="{0}" n="{1}" k="128"
stage 0 over [m n k]
for m by 32 {{
  for k by 64 {{
    compute 0 vector n lanes 16 matrix bf16 tile [m n k] registers [m=16 n=32 k=32] order [n m k] padding partition{2}
  }}{3}
}})TW",
                                    m, n, stored ? "" : " left streamed", stored ? "\n  store c padding local" : "");
                    right(kernel(paired_product(m, n, 128, 32, out), schedule),
                          std::string(m) == "40" ? std::vector<Sizes>{{}} : all_of("m", {1, 31, 40, 64}),
                          out == std::string("f32") ? 0 : 4e-3);
                }
}

inline void windows_on_tile_registers_are_summed_in_parts(Collector& right) {
    // Rows of windows outside of the loop over pixels; two images, a result in blocks of 16 channels.
    right(kernel(R"TW(program convolution {
  input x: bf16[2, 9, 9, 32]
  input w: bf16[2, 3, 3, 16, 32, 2]
  y: bf16[2, 3, 7, 7, 16] = [2, 7, 7, 48] -> [i0, i3 // 16, i1, i2, i3 % 16] sum(i4 < 32, i5 < 3, i6 < 3) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i1 + i5, i2 + i6, i4], @1 = w[i3 // 32, i5, i6, i4 // 2, i3 % 32, i4 % 2]  ; y ""
  output y
})TW",
                 R"TW(axes b="2" h="7" w="7" n="48" k="32" kh="3" kw="3"
stage 0 over [b h w n k kh kw]
for h by 4 {
  for n by 32 {
    for kh by 1 {
      compute 0 vector n lanes 16 matrix bf16 tile [w n k] registers [h=2 w=7 n=32 k=32] order [n b h w kh kw k] padding partition
    }
  }
})TW"),
          {{}}, 4e-3);
}

inline void windows_on_tile_registers_share_a_padded_copy(Collector& right) {
    // 3 x 3 windows of 7 x 7 pixels: two rows of 7 pixels in a register tile, the last one alone.
    right(kernel(R"TW(program convolution {
  input x: bf16[7, 7, 32]
  input w: bf16[2, 3, 3, 16, 32, 2]
  y: f32[7, 7, 64] = [7, 7, 64] sum(i3 < 32, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i0 + i4 - 1, i1 + i5 - 1, i3] when i0 + i4 - 1 >= 0 and -i0 - i4 + 7 >= 0 and i1 + i5 - 1 >= 0 and -i1 - i5 + 7 >= 0 else 0, @1 = w[i2 // 32, i4, i5, i3 // 2, i2 % 32, i3 % 2]  ; y ""
  output y
})TW",
                 R"TW(axes h="7" w="7" n="64" k="32" kh="3" kw="3"
stage 0 over [h w n k kh kw]
load 0 access 0 layout "" padding local
compute 0 vector n lanes 16 matrix bf16 tile [w n k] registers [h=2 w=7 n=32 k=32] order [n h w kh kw k] padding partition)TW"));
}

inline void copies_into_pairs_interleave_vectors(Collector& right) {
    struct Copy {
        const char *type, *shape, *read;
        int k, registers;
    };
    // From rows along k, transposed in registers, and from rows along n; whole and partial tiles; zeros beyond the end.
    for (const Copy& c : {Copy{"f32", "[37, 48]", "x[i1, i0]", 48, 16}, Copy{"bf16", "[37, 48]", "x[i1, i0]", 48, 16},
                          Copy{"bf16", "[48, 37]", "x[i0, i1]", 48, 2}, Copy{"f32", "[48, 37]", "x[i0, i1]", 48, 4},
                          Copy{"f32", "[37, 42]", "x[i1, i0]", 42, 16},
                          Copy{"f32", "[45, 37]", "x[i0, i1] when -i0 + 44 >= 0 else 0", 64, 2},
                          Copy{"bf16", "[37, 45]", "x[i1, i0] when -i0 + 44 >= 0 else 0", 64, 16}})
        right(kernel(fmt::format(R"TW(program pairs {{
  input x: {0}{1}
  y: bf16[{3}, 37, 2] = [{2}, 37] -> [i0 // 2, i1, i0 % 2] @0 where @0 = {4}  ; y ""
  output y
}})TW",
                                 c.type, c.shape, c.k, c.k / 2, c.read),
                     fmt::format("axes k=\"{0}\" n=\"37\"\nstage 0 over [k n]\ncompute 0 vector n lanes 16 registers "
                                 "[k={1} n=16] order [k n] padding partition",
                                 c.k, c.registers)));
    // Three channels and a column of zeros, vectors along the columns.
    right(kernel(R"TW(program channels {
  input x: f32[3, 5, 37]
  y: bf16[5, 148] = [5, 37, 4] -> [i0, 4*i1 + i2] @0 where @0 = x[i2, i0, i1] when -i2 + 2 >= 0 else 0  ; y ""
  output y
})TW",
                 R"TW(axes h="5" w="37" c="4"
stage 0 over [h w c]
compute 0 vector w lanes 16 registers [w=16 c=4] order [h w c] padding partition)TW"));
}

inline void dot_products_have_tails_of_rows_and_columns(Collector& right) {
    struct Shape {
        const char* m;
        int n, k, block, rows, lanes;
    };
    // Tails of rows, of columns in whole and in partial vectors; both widths of a vector.
    for (const Shape& s :
         {Shape{"64", 64, 64, 32, 8, 16}, Shape{"23", 40, 30, 32, 12, 16}, Shape{"25", 24, 6, 48, 3, 16},
          Shape{"13", 23, 48, 16, 6, 8}, Shape{"$m", 40, 32, 32, 14, 16}, Shape{"$m", 33, 10, 16, 5, 8}})
        for (const char* out : {"f32", "bf16"}) {
            const std::string schedule = fmt::format(
                "axes m=\"{}\" n=\"{}\" k=\"{}\"\nstage 0 over [m n k]\nparallel m by {} {{\n"
                "compute 0 vector n lanes {} matrix bf16 dot [m n k] registers [m={} n={} k=2] order [n m k] "
                "padding partition\n}}",
                s.m, s.n, s.k, 2 * s.rows, s.lanes, s.rows, s.block);
            const bool known = std::string(s.m) != "$m";
            right(kernel(paired_product(s.m, s.n, s.k, s.block, out), schedule),
                  known ? std::vector<Sizes>{{}} : all_of("m", {1, 2, 5, 13, 14, 15, 31, 60}),
                  out == std::string("f32") ? 0 : 4e-3);
        }
}

inline void partial_sums_of_dot_products_are_kept_in_the_result(Collector& right) {
    for (const char* m : {"20", "$m"})
        right(kernel(paired_product(m, 48, 128, 32, "f32"), fmt::format(R"TW(axes m="{0}" n="48" k="128"
stage 0 over [m n k]
for k by 64 {{
  compute 0 vector n lanes 16 matrix bf16 dot [m n k] registers [m=8 n=32 k=2] order [n m k] padding partition
}})TW",
                                                                        m)),
              std::string(m) == "20" ? std::vector<Sizes>{{}} : all_of("m", {1, 8, 19, 32}));
}

/// Steps that are one group of pairs, several, and several of an odd number of pairs; sums below 2048 are exact in f16.
inline void dot_products_of_f16_sum_up_in_steps(Collector& right) {
    struct Shape {
        const char* m;
        int n, k, block, rows, lanes, step;
    };
    for (const Shape& s :
         {Shape{"64", 64, 64, 32, 8, 16, 64}, Shape{"23", 40, 30, 32, 12, 16, 30}, Shape{"25", 24, 6, 48, 3, 16, 2},
          Shape{"13", 23, 48, 16, 6, 8, 24}, Shape{"$m", 40, 96, 32, 14, 16, 32}, Shape{"$m", 33, 10, 16, 5, 8, 10}})
        for (const char* out : {"f32", "f16"}) {
            const std::string schedule = fmt::format(
                "axes m=\"{}\" n=\"{}\" k=\"{}\"\nstage 0 over [m n k]\nparallel m by {} {{\n"
                "compute 0 vector n lanes {} matrix f16 dot [m n k] registers [m={} n={} k={}] order [n m k] "
                "padding partition\n}}",
                s.m, s.n, s.k, 2 * s.rows, s.lanes, s.rows, s.block, s.step);
            const bool known = std::string(s.m) != "$m";
            right(kernel(paired_product(s.m, s.n, s.k, s.block, out, "f16"), schedule),
                  known ? std::vector<Sizes>{{}} : all_of("m", {1, 2, 5, 13, 14, 15, 31, 60}),
                  out == std::string("f32") ? 0 : 5e-4);
        }
    right(kernel(paired_product("20", 48, 128, 32, "f32", "f16"), R"TW(axes m="20" n="48" k="128"
stage 0 over [m n k]
for k by 64 {
  compute 0 vector n lanes 16 matrix f16 dot [m n k] registers [m=8 n=32 k=32] order [n m k] padding partition
})TW"));
    right(kernel(R"TW(program convolution {
  input x: f16[7, 7, 6]
  input w: f16[2, 3, 3, 3, 32, 2]
  y: f32[7, 7, 64] = [7, 7, 64] sum(i3 < 6, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i0 + i4 - 1, i1 + i5 - 1, i3] when i0 + i4 - 1 >= 0 and -i0 - i4 + 7 >= 0 and i1 + i5 - 1 >= 0 and -i1 - i5 + 7 >= 0 else 0, @1 = w[i2 // 32, i4, i5, i3 // 2, i2 % 32, i3 % 2]  ; y ""
  output y
})TW",
                 R"TW(axes h="7" w="7" n="64" k="6" kh="3" kw="3"
stage 0 over [h w n k kh kw]
load 0 access 0 layout "" padding local
compute 0 vector n lanes 16 matrix f16 dot [w n k] registers [h=2 w=5 n=32 k=6] order [n h w kh kw k] padding partition)TW"));
}

inline void windows_of_dot_products_share_a_padded_copy(Collector& right) {
    right(kernel(R"TW(program convolution {
  input x: bf16[7, 7, 6]
  input w: bf16[2, 3, 3, 3, 32, 2]
  y: f32[7, 7, 64] = [7, 7, 64] sum(i3 < 6, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i0 + i4 - 1, i1 + i5 - 1, i3] when i0 + i4 - 1 >= 0 and -i0 - i4 + 7 >= 0 and i1 + i5 - 1 >= 0 and -i1 - i5 + 7 >= 0 else 0, @1 = w[i2 // 32, i4, i5, i3 // 2, i2 % 32, i3 % 2]  ; y ""
  output y
})TW",
                 R"TW(axes h="7" w="7" n="64" k="6" kh="3" kw="3"
stage 0 over [h w n k kh kw]
load 0 access 0 layout "" padding local
compute 0 vector n lanes 16 matrix bf16 dot [w n k] registers [h=2 w=5 n=32 k=2] order [n h w kh kw k] padding partition)TW"));
}

/// c = a b - 3 of bytes, b in groups of four along k and blocks of `block` columns.
inline std::string product_of_bytes(const std::string& m, int n, int k, int block, bool left_signed) {
    return fmt::format(R"TW(program product {{
  input a: {5}[{0}, {2}]
  input b: {6}[{4}, {7}, {3}, 4]
  c: i32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(i32(@0), i32(@1)) then sub(acc, 3:i32) where @0 = a[i0, i2], @1 = b[i1 // {3}, i2 // 4, i1 % {3}, i2 % 4]  ; c ""
  output c
}})TW",
                       m, n, k, block, (n + block - 1) / block, left_signed ? "i8" : "u8", left_signed ? "u8" : "i8",
                       k / 4);
}

/// One factor of u8, the other of i8, in both orders.
inline void dot_products_of_bytes_have_tails_of_rows_and_columns(Collector& right) {
    struct Shape {
        const char* m;
        int n, k, block, rows, lanes;
    };
    for (const Shape& s :
         {Shape{"23", 40, 20, 32, 12, 16}, Shape{"13", 23, 48, 16, 6, 8}, Shape{"$m", 33, 12, 16, 5, 8}})
        for (const bool left_signed : {false, true})
            right(
                kernel(product_of_bytes(s.m, s.n, s.k, s.block, left_signed),
                       fmt::format("axes m=\"{}\" n=\"{}\" k=\"{}\"\nstage 0 over [m n k]\ncompute 0 vector n lanes {} "
                                   "matrix i8 dot [m n k] registers [m={} n={} k=4] order [n m k] padding partition",
                                   s.m, s.n, s.k, s.lanes, s.rows, s.block)),
                std::string(s.m) != "$m" ? std::vector<Sizes>{{}} : all_of("m", {1, 5, 13}));
}

inline std::vector<Group> of_dot_products() {
    Collector tails, partial, windows, bytes, halves;
    dot_products_of_f16_sum_up_in_steps(halves);
    dot_products_of_bytes_have_tails_of_rows_and_columns(bytes);
    dot_products_have_tails_of_rows_and_columns(tails);
    partial_sums_of_dot_products_are_kept_in_the_result(partial);
    windows_of_dot_products_share_a_padded_copy(windows);
    return {{"dot_products_have_tails_of_rows_and_columns", tails.cases},
            {"partial_sums_of_dot_products_are_kept_in_the_result", partial.cases},
            {"windows_of_dot_products_share_a_padded_copy", windows.cases},
            {"dot_products_of_f16_sum_up_in_steps", halves.cases},
            {"dot_products_of_bytes_have_tails_of_rows_and_columns", bytes.cases}};
}

inline void products_of_bytes_on_tile_registers_have_rests(Collector& right) {
    struct Shape {
        const char* m;
        int n, k, block, rows, step;
    };
    for (const Shape& s : {Shape{"70", 40, 128, 32, 32, 64}, Shape{"25", 96, 80, 96, 15, 20},
                           Shape{"50", 23, 48, 32, 25, 48}, Shape{"$m", 33, 64, 16, 48, 32}})
        for (const bool left_signed : {false, true})
            right(kernel(product_of_bytes(s.m, s.n, s.k, s.block, left_signed),
                         fmt::format("axes m=\"{0}\" n=\"{1}\" k=\"{2}\"\nstage 0 over [m n k]\nparallel m by {3} {{\n"
                                     "compute 0 vector n lanes 16 matrix i8 tile [m n k] registers [m={4} n={5} k={6}] "
                                     "order [n m k] padding partition\n}}",
                                     s.m, s.n, s.k, 2 * s.rows, s.rows, s.block, s.step)),
                  std::string(s.m) != "$m" ? std::vector<Sizes>{{}} : all_of("m", {1, 16, 17, 33, 48, 100}));
}

inline std::vector<Group> on_tile_registers() {
    Collector rests, partial, terms, windows, pairs, bytes;
    products_of_bytes_on_tile_registers_have_rests(bytes);
    copies_into_pairs_interleave_vectors(pairs);
    products_on_tile_registers_have_rests_of_rows_and_columns(rests);
    partial_sums_of_tile_registers_are_kept_in_a_buffer(partial);
    pairs_of_terms_share_tile_registers(terms);
    windows_on_tile_registers_are_summed_in_parts(partial);
    windows_on_tile_registers_share_a_padded_copy(windows);
    return {{"copies_into_pairs_interleave_vectors", pairs.cases},
            {"products_on_tile_registers_have_rests_of_rows_and_columns", rests.cases},
            {"products_of_bytes_on_tile_registers_have_rests", bytes.cases},
            {"partial_sums_of_tile_registers_are_kept_in_a_buffer", partial.cases},
            {"pairs_of_terms_share_tile_registers", terms.cases},
            {"windows_on_tile_registers_share_a_padded_copy", windows.cases}};
}

}  // namespace tilewright::schedule_cases
