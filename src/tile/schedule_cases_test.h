#pragma once
// Hand-written schedules, one for each way in which tiles do not divide an extent. Generated code must compute exactly
// what the stages compute.

#include <fmt/format.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tile/examples_test.h"
#include "tile/tile.h"

namespace tilewright::schedule_cases {

/// Values of symbols, by name.
using Sizes = std::map<std::string, int64_t>;

struct Case {
    TileProgram program;
    std::vector<Sizes> sizes;  ///< to be run with all of these
    double tolerance = 0;      ///< relative to 1 + |x|, on whole_numbers
};
struct Group {
    std::string name;
    std::vector<Case> cases;
};

/// Parses a tile program from the text of its stages and of its schedule.
inline TileProgram kernel(const std::string& stages, const std::string& schedule) {
    return parse_tile_program("tile case {\nstages {\n" + stages + "\n}\n" + schedule + "\n}\n");
}

/// Small whole numbers, so that sums are exact in any order.
inline std::vector<Tensor> whole_numbers(const Program& stages, const Sizes& sizes) {
    Bindings bindings;
    for (const auto& [name, size] : sizes) bindings[*symbol(name).as_var()] = size;
    std::vector<Tensor> inputs;
    for (const ValueId v : stages.inputs) {
        Tensor t(stages.values[v].dtype, evaluate(stages.values[v].shape, bindings));
        const auto k = static_cast<int64_t>(inputs.size());
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, (i * 7 + i / 11 + k * 3) % 13 - 6);
        inputs.push_back(t);
    }
    return inputs;
}

inline std::vector<Sizes> all_of(const std::string& name, const std::vector<int64_t>& sizes) {
    std::vector<Sizes> out;
    for (const int64_t n : sizes) out.push_back({{name, n}});
    return out;
}

/// Collects the cases of one group.
class Collector {
  public:
    void operator()(TileProgram program, std::vector<Sizes> sizes = {{}}, double tolerance = 0) {
        cases.push_back({std::move(program), std::move(sizes), tolerance});
    }
    std::vector<Case> cases;
};

// --- copies that transpose

inline std::string transposition(const std::string& type, const std::string& rows, const std::string& columns) {
    return fmt::format(R"TW(program transposition {{
  input x: {0}[{1}, {2}]
  y: {0}[{2}, {1}] = [{2}, {1}] @0 where @0 = x[i1, i0]  ; y ""
  output y
}})TW",
                       type, rows, columns);
}

inline void transposing_copies_turn_blocks_in_registers(Collector& right) {
    const TileProgram blocks = kernel(transposition("f32", "48", "32"), R"TW(axes c="32" r="48"
stage 0 over [c r]
compute 0 vector r lanes 8 registers [c=8 r=8] order [c r] padding partition)TW");
    right(blocks);
    const TileProgram rows = kernel(transposition("f32", "48", "32"), R"TW(axes c="32" r="48"
stage 0 over [c r]
compute 0 vector r lanes 8 registers [r=8] order [c r] padding partition)TW");
    right(rows);
}

inline void transposing_copies_have_rests_on_both_axes(Collector& right) {
    for (const char* type : {"f32", "f64", "f16", "i64", "bool"})
        right(kernel(transposition(type, "50", "33"), R"TW(axes c="33" r="50"
stage 0 over [c r]
compute 0 vector r lanes 8 registers [c=8 r=16] order [c r] padding partition)TW"));
    const TileProgram open = kernel(transposition("f32", "$r", "$c"), R"TW(axes c="$c" r="$r"
stage 0 over [c r]
parallel c by 16 {
  compute 0 vector r lanes 8 registers [c=8 r=8] order [r c] padding partition
})TW");
    std::vector<Sizes> sizes;
    for (const int64_t r : {0, 1, 7, 8, 9, 24, 31})
        for (const int64_t c : {1, 8, 15, 16, 17, 40}) sizes.push_back({{"r", r}, {"c", c}});
    right(open, sizes);
}

inline void transposing_copies_of_padded_tensors_fill_whole_lanes(Collector& right) {
    right(kernel(R"TW(program padded {
  input x: f32[20, 24]
  y: f32[24, 23] = [24, 23] @0 where @0 = x[i1 - 2, i0] when i1 - 2 >= 0 and -i1 + 21 >= 0 else 7  ; y ""
  output y
})TW",
                 R"TW(axes c="24" r="23"
stage 0 over [c r]
compute 0 vector r lanes 8 registers [c=8 r=8] order [c r] padding partition)TW"));
}

inline void packing_loads_turn_their_operand_around(Collector& right) {
    // B is read along k: packed to [n / 16, k, n % 16].
    const TileProgram t = kernel(R"TW(program product {
  input a: f32[14, 40]
  input b: f32[37, 40]
  c: f32[14, 37] = [14, 37] sum(i2 < 40) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1, i2]  ; c ""
  output c
})TW",
                                 R"TW(axes m="14" n="37" k="40"
stage 0 over [m n k]
load 0 access 1 layout "split(0, 16) reorder(0, 2, 1)" padding local
compute 0 vector n lanes 8 registers [m=6 n=16] order [n m k] padding partition)TW");
    right(t);
}

// --- constant-coefficient linear transforms

inline void bytes_are_looked_up_in_tables(Collector& right) {
    std::string numbers;
    for (int k = 0; k < 256; ++k) numbers += fmt::format("{}{}", k == 0 ? "" : ", ", k * k - 700);
    for (const char* position : {"i64(@0)", "add(i64(@1), 128:i64)", "i64(u8(mul(f32(i32(@0)), 0.5)))"})
        for (const int lanes : {4, 8, 16})
            right(
                kernel(fmt::format(R"TW(program lookup {{
  input x: u8[5, 37]
  input z: i8[5, 37]
  y: f32[5, 37] = [5, 37] table{{{0}}}({1}) where @0 = x[i0, i1], @1 = z[i0, i1]  ; y ""
  output y
}})TW",
                                   numbers, position),
                       fmt::format("axes m=\"5\" n=\"37\"\nstage 0 over [m n]\ncompute 0 vector n lanes {0} registers "
                                   "[n={0}] order [m n] padding partition",
                                   lanes)));
}

inline void sums_weighed_by_tables_know_their_weights_or_read_them(Collector& right) {
    // Winograd's F(2, 3) of padded rows, along both axes of 4 x 4 tiles that overlap.
    const std::string stages = R"TW(program weighed {
  input x: f32[14, 14, $c]
  input b: f32[$c]
  y: f32[4, 4, 7, 7, $c] = [4, 4, 7, 7, $c] sum(i5 < 4, i6 < 4) weigh(mul(table{1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1}(index(4*i0 + i5)), table{1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1}(index(4*i1 + i6))), @0) then max(add(acc, @1), 0.0) where @0 = x[2*i2 + i5 - 1, 2*i3 + i6 - 1, i4] when 2*i2 + i5 - 1 >= 0 and -2*i2 - i5 + 14 >= 0 and 2*i3 + i6 - 1 >= 0 and -2*i3 - i6 + 14 >= 0 else 0, @1 = b[i4]  ; y ""
  output y
})TW";
    const std::string axes = R"TW(axes p="4" q="4" ty="7" tx="7" c="$c" i="4" j="4"
stage 0 over [p q ty tx c i j]
)TW";
    std::vector<Sizes> sizes;
    for (const int64_t c : {1, 8, 13, 32}) sizes.push_back({{"c", c}});
    for (const char* compute : {
             "vector c lanes 8 registers [p=4 q=4 c=8 i=4 j=4] order [ty tx c p q i j]",  // the whole transform
             "vector c lanes 8 registers [p=4 q=4 tx=2 c=16] order [ty tx c p q i j]",
             "registers [p=4 q=4] order [p q ty tx c i j]",                               // one result at a time
             "vector c lanes 8 registers [p=2 q=4 c=8 i=4 j=4] order [p q ty tx c i j]",  // half of it: read
             "vector c lanes 8 registers [c=8] order [p q ty tx c i j]",
         })
        right(kernel(stages, fmt::format("{}parallel ty by 3 {{\ncompute 0 {} padding partition\n}}", axes, compute)),
              sizes);
}

// --- vectors under masks

inline void masks_of_wide_vectors_are_kept_where_half_of_them_is_false(Collector& right) {
    // Two registers of f64. The condition on rows depends on data and columns come in blocks that no cut separates, so
    // that every mask combines a condition and constants. LLVM 19 dropped the condition of the upper register when all
    // constants of the lower register are false.
    for (const int offset : {0, 1, 4, 5, 7})
        right(kernel(fmt::format(R"TW(program pads {{
  input x: f64[$n, {0}]
  input at: i64[19]
  y: f64[19, 16] = [19, 16] @1 where @0 = at[i0], @1 = x[@0, i1 % 8 - {1}] when @0 >= 0 and $n - @0 - 1 >= 0 and i1 % 8 - {1} >= 0 else 0  ; y ""
  output y
}})TW",
                                 8 - offset, offset),
                     R"TW(axes r="19" c="16"
stage 0 over [r c]
compute 0 vector c lanes 8 registers [c=8] order [r c] padding partition)TW"),
              all_of("n", {1, 3, 6}));
}

inline void an_index_from_memory_is_held_to_its_conditions(Collector& right) {
    for (const char* compute :
         {"compute 0 vector r lanes 8 registers [r=8] padding partition", "compute 0 padding local"})
        right(kernel(R"TW(program gather {
  input x: f32[$n]
  input at: i64[19]
  y: f32[19] = [19] @1 where @0 = at[i0], @1 = x[@0] when @0 >= 0 and $n - @0 - 1 >= 0 else 7  ; y ""
  output y
})TW",
                     std::string("axes r=\"19\"\nstage 0 over [r]\n") + compute),
              all_of("n", {0, 1, 3, 6, 20}));
}

inline void vectors_are_padded_on_either_side_by_any_amount(Collector& right) {
    for (const char* type : {"f32", "f64", "i64", "f16"})
        for (const auto& [columns, inner, offset] :
             std::vector<std::array<int, 3>>{{8, 3, 0}, {8, 1, 7}, {9, 8, 1}, {13, 4, 5}, {16, 9, 7}, {19, 18, 0}})
            right(kernel(fmt::format(R"TW(program pads {{
  input x: {0}[3, {2}]
  y: {0}[5, {1}] = [5, {1}] @0 where @0 = x[i0 - 1, i1 - {3}] when i0 - 1 >= 0 and -i0 + 3 >= 0 and i1 - {3} >= 0 and -i1 + {4} >= 0 else 1  ; y ""
  output y
}})TW",
                                     type, columns, inner, offset, offset + inner - 1),
                         fmt::format(R"TW(axes r="5" c="{}"
stage 0 over [r c]
compute 0 vector c lanes 8 registers [r=2 c=8] order [r c] padding partition)TW",
                                     columns)));
}

// --- axes that are cut

inline void concatenations_are_cut_where_the_operand_changes(Collector& right) {
    right(kernel(R"TW(program concat {
  input x: f32[19, 10]
  input y: f32[6, 10]
  z: f32[25, 10] = [25, 10] select(lt(index(i0), 19), @0, @1) where @0 = x[i0, i1] when -i0 + 18 >= 0 else 0, @1 = y[i0 - 19, i1] when i0 - 19 >= 0 else 0  ; z ""
  output z
})TW",
                 R"TW(axes r="25" c="10"
stage 0 over [r c]
parallel r by 7 {
  compute 0 vector c lanes 8 registers [r=4 c=8] order [r c] padding partition
})TW"));
    right(kernel(R"TW(program concat {
  input x: f32[5, 11]
  input y: f32[5, 16]
  z: f32[5, 27] = [5, 27] select(lt(index(i1), 11), @0, @1) where @0 = x[i0, i1] when -i1 + 10 >= 0 else 0, @1 = y[i0, i1 - 11] when i1 - 11 >= 0 else 0  ; z ""
  output z
})TW",
                 R"TW(axes r="5" c="27"
stage 0 over [r c]
compute 0 vector c lanes 8 registers [r=2 c=16] order [r c] padding partition)TW"));
}

inline void concatenations_of_unknown_extents_are_cut_at_run_time(Collector& right) {
    const TileProgram t = kernel(R"TW(program concat {
  input x: f32[$a, 6]
  input y: f32[$b, 6]
  z: f32[$a + $b, 6] = [$a + $b, 6] select(lt(index(i0), index($a)), @0, @1) where @0 = x[i0, i1] when $a - i0 - 1 >= 0 else 0, @1 = y[i0 - $a, i1] when i0 - $a >= 0 else 0  ; z ""
  output z
})TW",
                                 R"TW(axes r="$a + $b" c="6"
stage 0 over [r c]
parallel r by 8 {
  compute 0 vector c lanes 8 registers [r=4 c=8] order [r c] padding partition
})TW");
    std::vector<Sizes> sizes;
    for (const int64_t a : {0, 1, 3, 8, 17})
        for (const int64_t b : {0, 1, 2, 8, 21}) sizes.push_back({{"a", a}, {"b", b}});
    right(t, sizes);
}

inline const std::string kPooling = R"TW(program pooling {
  input x: f32[2, $h, $w, 12]
  y: f32[2, $h, $w, 12] = [2, $h, $w, 12] max(i4 < 3, i5 < 3) @0 where @0 = x[i0, i1 + i4 - 1, i2 + i5 - 1, i3] when i1 + i4 - 1 >= 0 and $h - i1 - i4 >= 0 and i2 + i5 - 1 >= 0 and $w - i2 - i5 >= 0 else -inf  ; y ""
  output y
})TW";

inline void padded_windows_check_their_first_and_last_places_only(Collector& right) {
    std::vector<Sizes> sizes;
    for (const int64_t h : {0, 1, 2, 5, 12})
        for (const int64_t w : {0, 1, 2, 7, 9}) sizes.push_back({{"h", h}, {"w", w}});
    const std::string axes = R"TW(axes n="2" h="$h" w="$w" c="12" p="3" q="3"
stage 0 over [n h w c p q]
)TW";
    right(
        kernel(kPooling, axes + "compute 0 vector c lanes 8 registers [w=3 c=8] order [n h w c p q] padding partition"),
        sizes);
    right(kernel(kPooling, axes + "parallel h by 4 {\n compute 0 vector w lanes 8 registers [c=2 w=8 p=3 q=3] "
                                  "order [n h c w p q] padding local\n}"),
          sizes);
}

/// Vectorises along a window's rows: the vectors that overlap the padding are masked, at the start, the end or both.
inline void vectors_along_padded_rows_are_masked_at_their_ends(Collector& right) {
    for (const int64_t step : {1, 2})
        for (const int64_t width : {5, 8, 9, 17, 24, 31, 40}) {
            const int64_t out = (width - 1) / step + 1;
            const std::string stages = fmt::format(R"TW(program pooling {{
  input x: f32[3, {0}]
  y: f32[3, {1}] = [3, {1}] max(i2 < 5) @0 where @0 = x[i0, {2}*i1 + i2 - 2] when {2}*i1 + i2 - 2 >= 0 and -{2}*i1 - i2 + {3} >= 0 else -inf  ; y ""
  output y
}})TW",
                                                   width, out, step, width + 1);
            for (const int64_t registers : {8, 16})
                right(kernel(
                    stages,
                    fmt::format("axes c=\"3\" w=\"{}\" q=\"5\"\nstage 0 over [c w q]\ncompute 0 vector w lanes 8 "
                                "registers [w={} q=5] order [c w q] padding partition",
                                out, registers)));
        }
}

// --- contractions

inline std::string product(const std::string& m, const std::string& n, const std::string& k,
                           const std::string& type = "f32") {
    return fmt::format(R"TW(program product {{
  input a: {3}[{0}, {2}]
  input b: {3}[{2}, {1}]
  input bias: {3}[{1}]
  c: {3}[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) then max(add(acc, @2), @2) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = bias[i1]  ; c ""
  output c
}})TW",
                       m, n, k, type);
}

inline std::string product_axes(const std::string& m, const std::string& n, const std::string& k) {
    return fmt::format("axes m=\"{}\" n=\"{}\" k=\"{}\"\nstage 0 over [m n k]\n", m, n, k);
}

inline void products_have_odd_rests_on_every_axis(Collector& right) {
    for (const char* compute : {
             "compute 0 vector n lanes 8 registers [m=6 n=16 k=4] order [n m k] padding partition",
             "compute 0 vector n lanes 8 registers [m=4 n=24] order [m n k] padding local",
             "compute 0 vector n lanes 16 registers [m=5 n=16 k=2] order [n m k] padding partition",
             "compute 0 vector m lanes 8 registers [m=8 n=3] order [m n k] padding partition",
             "compute 0 vector k lanes 8 registers [m=2 n=3 k=16] order [m n k] padding partition",
             "compute 0 vector n lanes 8 registers [m=4 n=16] order [n m k] vthreads [m=2 n=2] padding partition",
             "compute 0 order [m n k] padding local",
         }) {
        right(kernel(product("13", "29", "11"), product_axes("13", "29", "11") + compute));
        right(kernel(product("13", "29", "11", "f64"), product_axes("13", "29", "11") + compute));
        right(kernel(product("1", "1", "1"), product_axes("1", "1", "1") + compute));
    }
}

inline void products_of_unknown_extents_run_with_any(Collector& right) {
    std::vector<Sizes> sizes, summed;  // a loop over the reduction axis alone would have no iterations if it is empty
    for (const int64_t m : {0, 1, 5, 6, 7, 24})
        for (const int64_t n : {0, 1, 8, 16, 17, 37})
            for (const int64_t k : {0, 1, 4, 9}) {
                sizes.push_back({{"m", m}, {"n", n}, {"k", k}});
                if (k > 0) summed.push_back(sizes.back());
            }
    const std::string stages = product("$m", "$n", "$k"), axes = product_axes("$m", "$n", "$k");
    for (const char* schedule : {
             "compute 0 vector n lanes 8 registers [m=6 n=16] order [n m k] padding partition",
             "parallel m by 12 {\n parallel n by 32 {\n"
             " compute 0 vector n lanes 8 registers [m=6 n=16 k=4] order [n m k] padding local\n}\n}",
             "compute 0 vector k lanes 8 registers [m=2 n=2 k=16] order [m n k] padding partition",
         })
        right(kernel(stages, axes + schedule), sizes);
    right(kernel(stages, axes + "for m by 4 {\n for k by 4 {\n compute 0 vector n lanes 8 registers [m=4 n=8] "
                                "order [n m k] padding partition\n}\n}"),
          summed);
}

inline void lanes_two_to_five_elements_apart_stay_within_their_tensor(Collector& right) {
    for (const char* type : {"f32", "i64", "f16"})
        for (const int stride : {2, 3, 4, 5})
            for (const int points : {1, 8, 21, 40}) {
                // The last point reads the last element of the tensor: one element further is out of bounds.
                const std::string stages = fmt::format(R"TW(program windows {{
  input x: {0}[{3}]
  y: {0}[{1}] = [{1}] max(i1 < 2) @0 where @0 = x[{2} * i0 + i1]  ; y ""
  output y
}})TW",
                                                       type, points, stride, stride * (points - 1) + 2);
                for (const int lanes : {8, 16})
                    right(kernel(stages,
                                 fmt::format("axes n=\"{}\" k=\"2\"\nstage 0 over [n k]\ncompute 0 vector n lanes {} "
                                             "registers [n={}] order [n k] padding partition",
                                             points, lanes, 2 * lanes)));
            }
}

inline void rests_of_rows_are_held_by_the_least_tile_that_fits(Collector& right) {
    const std::string compute = "compute 0 vector n lanes 8 registers [m=13 n=16] order [n m k] padding partition";
    for (const char* k : {"31", "32", "259"})
        for (const char* m : {"1", "2", "3"}) right(kernel(product(m, "37", k), product_axes(m, "37", k) + compute));
    for (const char* k : {"67", "$k"}) {
        std::vector<Sizes> sizes;
        for (const int64_t m : {1, 2, 3, 5, 6, 14, 15})
            for (const int64_t summed : {1, 7, 8, 100}) sizes.push_back({{"m", m}, {"k", summed}});
        right(kernel(product("$m", "37", k), product_axes("$m", "37", k) + compute), sizes);
    }
}

inline void paddings_differ_in_what_they_do_with_rests(Collector& right) {
    // No tile divides 26 rows and 36 columns. Globally padded: 24 rows and 32 columns, which all tiles divide.
    for (const char* padding : {"local", "partition", "global"}) {
        const bool whole = std::string(padding) == "global";
        const std::string m = whole ? "24" : "26", n = whole ? "32" : "36", k = whole ? "12" : "13";
        right(kernel(product(m, n, k),
                     product_axes(m, n, k) + fmt::format(R"TW(buffer c layout "split(1, 8) reorder(1, 0, 2)"
parallel m by 12 {{
  for n by 16 {{
    for k by 4 {{
      load 0 access 0 layout "reorder(1, 0)" padding {0}
      load 0 access 1 layout "split(1, 8) reorder(1, 0, 2)" padding {0}
      compute 0 vector n lanes 8 registers [m=4 n=16] order [n m k] padding {0}
    }}
    store c padding {0}
  }}
}})TW",
                                                         padding)));
    }
}

// --- split reductions

inline void partial_sums_are_kept_in_memory_until_the_last_part_applies_the_epilogue(Collector& right) {
    for (const char* compute : {
             "compute 0 vector n lanes 8 registers [m=3 n=8] order [m n k] padding partition",
             "compute 0 vector k lanes 8 registers [m=2 k=16] order [m n k] padding partition",
             "compute 0 order [n m k] padding local",
         })
        for (const bool known : {true, false}) {
            const std::string k = known ? "23" : "$k";
            const auto sizes = known ? std::vector<Sizes>{{}} : all_of("k", {1, 9, 10, 11, 40});
            right(kernel(product("7", "20", k), product_axes("7", "20", k) + "for k by 10 {\n" + compute + "\n}"),
                  sizes);
            right(kernel(product("7", "20", k), product_axes("7", "20", k) +
                                                    "parallel m by 4 {\n for k by 10 {\n for n by 8 {\n" + compute +
                                                    "\n}\n}\n}"),
                  sizes);
        }
}

/// A value of a narrower type between two stages: partial sums accumulate in the buffer in f32.
inline void partial_sums_of_a_narrow_type_are_kept_as_they_are_accumulated(Collector& right) {
    for (const char* type : {"f16", "bf16"})
        right(kernel(fmt::format(R"TW(program half {{
  input a: {0}[7, $k]
  input b: {0}[$k, 20]
  s: {0}[7, 20] = [7, 20] sum(i2 < $k) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]  ; s ""
  y: f32[7, 20] = [7, 20] add(@0, 1.0) where @0 = s[i0, i1]  ; y ""
  output y
}})TW",
                                 type),
                     R"TW(axes m="7" n="20" k="$k"
stage 0 over [m n k]
stage 1 over [m n]
for m by 4 {
  for n by 16 {
    for k by 10 {
      compute 0 vector n lanes 8 registers [m=2 n=16] order [m n k] padding partition
    }
    compute 1 vector n lanes 8 registers [n=16] order [m n] padding partition
  }
})TW"),
              all_of("k", {1, 9, 10, 11}));
}

inline void reductions_across_lanes_ignore_lanes_beyond_the_end(Collector& right) {
    for (const char* reduce : {"sum", "max", "min", "prod"})
        for (const char* type : {"f32", "f64", "i64"})
            right(kernel(fmt::format(R"TW(program rows {{
  input x: {0}[$r, 21]
  y: {0}[$r] = [$r] {1}(i1 < 21) @0 where @0 = x[i0, i1]  ; y ""
  output y
}})TW",
                                     type, reduce),
                         R"TW(axes r="$r" c="21"
stage 0 over [r c]
compute 0 vector c lanes 8 registers [r=2 c=16] order [r c] padding partition)TW"),
                  all_of("r", {0, 1, 2, 5}));
}

// --- results in other layouts

inline void stores_write_what_the_layout_of_the_buffer_holds(Collector& right) {
    for (const char* layout : {"", "reorder(1, 0)", "split(0, 4) reorder(1, 2, 0)", "pad(1, 1, 2)", "fuse(0, 2)"})
        for (const char* padding : {"local", "partition"})
            right(kernel(product("14", "19", "5"),
                         product_axes("14", "19", "5") + fmt::format(R"TW(buffer c layout "{}"
parallel m by 8 {{
  for n by 8 {{
    compute 0 vector n lanes 8 registers [m=4 n=8] order [m n k] padding {}
    store c padding {}
  }}
}})TW",
                                                                     layout, padding, padding)));
}

inline void the_examples_of_tile_programs_compute_what_they_say(Collector& right) {
    right(parse_tile_program(kGemm));
    right(parse_tile_program(kChain));
    right(parse_tile_program(kConvolution));
    right(parse_tile_program(kSoftmax), all_of("rows", {1, 2, 3, 8}), 1e-6);
}

// --- results with expensive epilogues

/// 2 x m x 37 sums of 19 products, through x * sigmoid(x), plus a tensor that is padded for the first two rows.
inline std::string gated_product(const std::string& type, const std::string& m) {
    return fmt::format(R"TW(program gated {{
  input a: {0}[2, {1}, 19]
  input w: {0}[19, 37]
  input bias: {0}[37]
  input r: {0}[2, {1}, 37]
  y: {0}[2, {1}, 37] = [2, {1}, 37] sum(i3 < 19) mul(@0, @1) then add(div(add(mul(acc, 0.03125:{0}), @2), add(exp(neg(add(mul(acc, 0.03125:{0}), @2))), 1.0:{0})), @3) where @0 = a[i0, i1, i3], @1 = w[i3, i2], @2 = bias[i2], @3 = r[i0, i1 - 2, i2] when i1 - 2 >= 0 else 0.5  ; y ""
  output y
}})TW",
                       type, m);
}

inline void long_epilogues_finish_a_tile_row_by_row(Collector& right) {
    for (const auto& [type, m, registers, part] : std::vector<std::array<const char*, 4>>{
             {"f32", "18", "m=8 n=16", "19"},
             {"f32", "$m", "m=8 n=16", "10"},
             {"f32", "$m", "b=2 m=8 n=8", "19"},
             {"f64", "18", "b=2 m=8 n=8", "10"},
         }) {
        const std::string schedule = fmt::format(
            "axes b=\"2\" m=\"{}\" n=\"37\" k=\"19\"\nstage 0 over [b m n k]\nfor k by {} {{\n"
            "compute 0 vector n lanes 8 registers [{}] order [b n m k] padding partition\n}}",
            m, part, registers);
        const bool known = std::string(m) != "$m";
        right(kernel(gated_product(type, m), schedule),
              known ? std::vector<Sizes>{{}} : all_of("m", {1, 2, 7, 8, 9, 18}), 1e-6);
    }
}

/// Every group, in the order of this file.
inline std::vector<Group> all() {
    const std::pair<const char*, void (*)(Collector&)> groups[] = {
        {"transposing_copies_turn_blocks_in_registers", transposing_copies_turn_blocks_in_registers},
        {"transposing_copies_have_rests_on_both_axes", transposing_copies_have_rests_on_both_axes},
        {"transposing_copies_of_padded_tensors_fill_whole_lanes",
         transposing_copies_of_padded_tensors_fill_whole_lanes},
        {"packing_loads_turn_their_operand_around", packing_loads_turn_their_operand_around},
        {"bytes_are_looked_up_in_tables", bytes_are_looked_up_in_tables},
        {"sums_weighed_by_tables_know_their_weights_or_read_them",
         sums_weighed_by_tables_know_their_weights_or_read_them},
        {"masks_of_wide_vectors_are_kept_where_half_of_them_is_false",
         masks_of_wide_vectors_are_kept_where_half_of_them_is_false},
        {"an_index_from_memory_is_held_to_its_conditions", an_index_from_memory_is_held_to_its_conditions},
        {"vectors_are_padded_on_either_side_by_any_amount", vectors_are_padded_on_either_side_by_any_amount},
        {"concatenations_are_cut_where_the_operand_changes", concatenations_are_cut_where_the_operand_changes},
        {"concatenations_of_unknown_extents_are_cut_at_run_time",
         concatenations_of_unknown_extents_are_cut_at_run_time},
        {"padded_windows_check_their_first_and_last_places_only",
         padded_windows_check_their_first_and_last_places_only},
        {"vectors_along_padded_rows_are_masked_at_their_ends", vectors_along_padded_rows_are_masked_at_their_ends},
        {"products_have_odd_rests_on_every_axis", products_have_odd_rests_on_every_axis},
        {"products_of_unknown_extents_run_with_any", products_of_unknown_extents_run_with_any},
        {"lanes_two_to_five_elements_apart_stay_within_their_tensor",
         lanes_two_to_five_elements_apart_stay_within_their_tensor},
        {"rests_of_rows_are_held_by_the_least_tile_that_fits", rests_of_rows_are_held_by_the_least_tile_that_fits},
        {"paddings_differ_in_what_they_do_with_rests", paddings_differ_in_what_they_do_with_rests},
        {"partial_sums_of_a_narrow_type_are_kept_as_they_are_accumulated",
         partial_sums_of_a_narrow_type_are_kept_as_they_are_accumulated},
        {"partial_sums_are_kept_in_memory_until_the_last_part_applies_the_epilogue",
         partial_sums_are_kept_in_memory_until_the_last_part_applies_the_epilogue},
        {"reductions_across_lanes_ignore_lanes_beyond_the_end", reductions_across_lanes_ignore_lanes_beyond_the_end},
        {"stores_write_what_the_layout_of_the_buffer_holds", stores_write_what_the_layout_of_the_buffer_holds},
        {"long_epilogues_finish_a_tile_row_by_row", long_epilogues_finish_a_tile_row_by_row},
        {"the_examples_of_tile_programs_compute_what_they_say", the_examples_of_tile_programs_compute_what_they_say},
    };
    std::vector<Group> out;
    for (const auto& [name, collect] : groups) {
        Collector right;
        collect(right);
        out.push_back({name, std::move(right.cases)});
    }
    return out;
}

}  // namespace tilewright::schedule_cases
