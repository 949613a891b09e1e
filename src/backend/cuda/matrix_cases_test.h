#pragma once
// Schedules on matrix instructions, written by hand.

#include <fmt/format.h>

#include <string>

#include "tile/schedule_cases_test.h"

namespace tilewright::cuda::test {

/// What stands between "stages { }" and the schedule, for a product over m, n, k.
struct MatrixProduct {
    std::string m = "64", n = "64", k = "64";
    std::string type = "f16";  ///< of the operands and the result in memory
    std::string unit = "f16";  ///< of the instructions
    std::string block = "64";  ///< rows and columns of a block
    std::string warp = "32";   ///< and of a warp
    int step = 32;             ///< of the loop over k
    int stages = 3;
    bool a_turned = false, b_turned = false;  ///< a[k, m], b[n, k] in memory
    std::string batch = {};                   ///< "" or a number
    bool group = false;                       ///< on instructions of four warps: `warp` columns, 64 rows
    std::string warp_columns = {};            ///< "" for `warp`
    std::string split = {};                   ///< "" or the points of k in a part of the sum, of a block
    bool swizzled = false;                    ///< operands of four warps: rows of 128 bytes, or of as many as they have
    bool exchanged = false;                   ///< rows of instructions are n, which b has side by side; swizzled
};

/// Of a copy: rows with room behind them, or blocks of eight rows of 16 bytes. `along_sum`: what lies side by side in
/// memory goes along the sum; floats that do not are turned round.
inline std::string operand_layout(const MatrixProduct& p, bool batched, bool along_sum) {
    const int last = batched ? 2 : 1, row = p.unit == "tf32" ? 4 : 8;
    if (!p.group) return fmt::format("pad({}, 0, 8)", last);
    const std::string turned = along_sum || row == 8 ? "" : batched ? "reorder(0, 2, 1) " : "reorder(1, 0) ";
    return turned + fmt::format("split({}, {}) {} pad({}, 0, 1)", last, row,
                                batched ? "reorder(0, 2, 1, 3)" : "reorder(1, 0, 2)", last);
}

/// The layout of a copy whose rows are swizzled. `side`: points along what lies side by side in memory.
inline std::string swizzled_layout(const MatrixProduct& p, bool batched, bool along_sum, int side, bool is_left) {
    const int size = p.unit == "tf32" ? 4 : 2, last = batched ? 2 : 1;
    const bool stays = along_sum || size == 2 || is_left;
    const std::string turned = stays ? "" : batched ? "reorder(0, 2, 1) " : "reorder(1, 0) ";
    const int row = std::min(128, (turned.empty() ? side : p.step) * size);
    return fmt::format("\"{}split({}, {}) {}\" swizzle {}", turned, last, row / size,
                       batched ? "reorder(0, 2, 1, 3)" : "reorder(1, 0, 2)", row);
}
inline std::string loaded(const MatrixProduct& p, bool batched, bool along_sum, int side, bool is_left) {
    if (p.swizzled) return swizzled_layout(p, batched, along_sum, side, is_left);
    return "\"" + operand_layout(p, batched, along_sum) + "\"";
}

inline TileProgram matrix_product(const MatrixProduct& p) {
    const bool batched = !p.batch.empty();
    const std::string lead = batched ? p.batch + ", " : "", i = batched ? "i0, " : "";
    const int first = batched ? 1 : 0;
    const std::string row = fmt::format("i{}", first), column = fmt::format("i{}", first + 1),
                      sum = fmt::format("i{}", first + 2);
    const std::string stages = fmt::format(
        R"TW(program product {{
  input a: {type}[{lead}{a}]
  input b: {type}[{lead}{b}]
  input bias: {type}[{n}]
  c: {type}[{lead}{m}, {n}] = [{lead}{m}, {n}] sum({sum} < {k}) mul(@0, @1) then max(add(acc, @2), @2) where @0 = a[{i}{ai}], @1 = b[{i}{bi}], @2 = bias[{column}]
  output c
}})TW",
        fmt::arg("type", p.type), fmt::arg("lead", lead), fmt::arg("m", p.m), fmt::arg("n", p.n), fmt::arg("k", p.k),
        fmt::arg("a", p.a_turned ? p.k + ", " + p.m : p.m + ", " + p.k),
        fmt::arg("b", p.b_turned ? p.n + ", " + p.k : p.k + ", " + p.n),
        fmt::arg("ai", p.a_turned ? sum + ", " + row : row + ", " + sum),
        fmt::arg("bi", p.b_turned ? column + ", " + sum : sum + ", " + column), fmt::arg("sum", sum), fmt::arg("i", i),
        fmt::arg("column", column));
    const std::string rows = p.group && p.warp == "32" ? "64" : p.warp,
                      columns = p.warp_columns.empty() ? p.warp : p.warp_columns;
    const std::string schedule = fmt::format(
        R"TW(axes {axis}m="{m}" n="{n}" k="{k}"
stage 0 over [{over}m n k]
{open}parallel m by {block} {{
  parallel n by {block} {{ {split}
    for k by {step}{ahead} {{
      load 0 access 0 layout {a_layout} padding local
      load 0 access 1 layout {b_layout} padding local
      compute 0 matrix {unit} [{roles} k] registers [m={warp} n={columns} k={step}] padding local
    }}
    store c padding local
  }} {end_split}
}}{close})TW",
        fmt::arg("axis", batched ? fmt::format("b=\"{}\" ", p.batch) : ""), fmt::arg("m", p.m), fmt::arg("n", p.n),
        fmt::arg("k", p.k), fmt::arg("over", batched ? "b " : ""),
        fmt::arg("open", batched ? "parallel b by 1 {\n" : ""), fmt::arg("close", batched ? "\n}" : ""),
        fmt::arg("split", p.split.empty() ? "" : fmt::format("parallel k by {} {{", p.split)),
        fmt::arg("end_split", p.split.empty() ? "" : "}"), fmt::arg("block", p.block),
        fmt::arg("roles", p.exchanged ? "n m" : "m n"), fmt::arg("warp", p.exchanged ? columns : rows),
        fmt::arg("columns", p.exchanged ? rows : columns), fmt::arg("step", p.step),
        fmt::arg("ahead", p.stages == 1 ? "" : fmt::format(" stages {}", p.stages)),
        fmt::arg("unit", p.unit + (p.group ? " group" : "")),
        fmt::arg("a_layout", loaded(p, batched, !p.a_turned, p.a_turned ? std::stoi(p.block) : p.step, !p.exchanged)),
        fmt::arg("b_layout", loaded(p, batched, p.b_turned,
                                    p.b_turned    ? p.step
                                    : p.exchanged ? std::stoi(p.block)
                                                  : std::stoi(columns),
                                    p.exchanged)));
    return schedule_cases::kernel(stages, schedule);
}

/// softmax(q k^T / 2 + mask) v of one head and batch in one kernel; rows in blocks of `rows`, keys in steps of `keys`.
/// `group`: on instructions of four warps, whose operands are swizzled.
inline TileProgram matrix_attention(const std::string& unit, const std::string& type, int heads, int m, int n, int k,
                                    int h, int rows, int keys, int stages, bool group = false) {
    const int size = type == "f32" ? 4 : 2;
    const auto layout = [&](int width) {
        int row = 128;
        while (width * size % row != 0) row /= 2;
        return !group ? "\"pad(2, 0, 8)\""
                      : fmt::format("\"split(2, {}) reorder(0, 2, 1, 3)\" swizzle {}", row / size, row);
    };
    return schedule_cases::kernel(
        fmt::format(R"TW(program attention {{
  input q: {type}[{heads}, {m}, {k}]
  input k: {type}[{heads}, {n}, {k}]
  input mask: f32[{m}, {n}]
  input v: {type}[{heads}, {n}, {h}]
  c: f32[{heads}, {m}, {n}] = [{heads}, {m}, {n}] sum(i3 < {k}) mul(@0, @1) then add(mul(acc, 0.5), @2) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3], @2 = mask[i1, i2]
  r: f32[{heads}, {m}, 1] = [{heads}, {m}, 1] max(i3 < {n}) @0 where @0 = c[i0, i1, i3]
  p: f32[{heads}, {m}, {n}] = [{heads}, {m}, {n}] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[{heads}, {m}, 1] = [{heads}, {m}, 1] sum(i3 < {n}) @0 where @0 = p[i0, i1, i3]
  e: f32[{heads}, {m}, {h}] = [{heads}, {m}, {h}] sum(i3 < {n}) mul(@0, @1) where @0 = p[i0, i1, i3], @1 = v[i0, i3, i2]
  o: {type}[{heads}, {m}, {h}] = [{heads}, {m}, {h}] div(@0, @1) where @0 = e[i0, i1, i2], @1 = s[i0, i1, 0]
  output o
}})TW",
                    fmt::arg("type", type), fmt::arg("heads", heads), fmt::arg("m", m), fmt::arg("n", n),
                    fmt::arg("k", k), fmt::arg("h", h)),
        fmt::format(R"TW(axes b="{heads}" m="{m}" n="{n}" k="{k}" h="{h}" one="1"
stage 0 over [b m n k]
stage 1 over [b m one n]
stage 2 over [b m n]
stage 3 over [b m one n]
stage 4 over [b m h n]
stage 5 over [b m h]
parallel b by 1 {{
  parallel m by {rows} {{
    load 0 access 0 layout {of_sum} padding local
    for n by {keys}{ahead} {{
      load 0 access 1 layout {of_sum} padding local
      load 4 access 1 layout {of_columns} padding local
      compute 0 matrix {unit} [m n k] registers [m={own} n={keys} k={sum}] padding local
      compute 1 online padding local
      compute 2 padding local
      compute 3 padding local
      compute 4 matrix {unit} [m h n] registers [m={own} h={columns} n={part}] padding local
    }}
    compute 5 padding local
  }}
}})TW",
                    fmt::arg("heads", heads), fmt::arg("m", m), fmt::arg("n", n), fmt::arg("k", k), fmt::arg("h", h),
                    fmt::arg("rows", rows), fmt::arg("keys", keys), fmt::arg("unit", unit + (group ? " group" : "")),
                    fmt::arg("own", group ? 64 : 16), fmt::arg("part", group ? keys : 16),
                    fmt::arg("of_sum", layout(k)), fmt::arg("of_columns", layout(h)),
                    fmt::arg("sum", (k + 15) / 16 * 16), fmt::arg("columns", (h + 7) / 8 * 8),
                    fmt::arg("ahead", stages == 1 ? "" : fmt::format(" stages {}", stages))));
}

}  // namespace tilewright::cuda::test
