#pragma once
// Kernels whose sums libraries may compute, and whose epilogues or operands they do not have.

#include <ostream>
#include <string>
#include <vector>

#include "schedule/gpu/gpu_schedule.h"
#include "tile/library_products_test.h"

namespace tilewright::test {

struct CutCase {
    std::string name, text;
    Precision precision = Precision::F32;
    std::string sum;        ///< of the cut's text
    size_t primitives = 2;  ///< of the cut
};

inline std::ostream& operator<<(std::ostream& out, const CutCase& c) { return out << c.name; }

inline std::string product_f16(const std::string& expression, const std::string& rest, const std::string& y) {
    return "program p {\n  input x: f32[20, 32]\n  input w: f16[48, 32]\n" + rest + "  y: " + y + " = " + expression +
           "\n  output y\n}";
}

inline std::vector<CutCase> cut_cases() {
    return {
        {"a function behind a bias", product_then(" then min(max(add(acc, @2), 0.0), 6.0)", "f32[64]"), Precision::F32,
         "then max(add(acc, @2), 0.0) where"},
        {"a function behind a bias, of both", product_then(" then mul(add(acc, @2), tanh(add(acc, @2)))", "f32[64]"),
         Precision::F32, "then add(acc, @2) where"},
        {"an epilogue of which nothing is taken", product_then(" then mul(acc, @2)", "f32[48, 64]", "i0, i1"),
         Precision::F32, "mul(@0, @1) where"},
        {"a comparison of the sum",
         product_then(" then select(lt(add(acc, @2), 0.0), mul(add(acc, @2), 0.125), add(acc, @2))", "f32[64]"),
         Precision::F32, "then add(acc, @2) where"},
        {"rounded to 16 bits behind it", product_then(" then tanh(acc)", "", "", "f16"), Precision::F16,
         "sum: f32[48, 64] = "},
        {"cut into heads", R"(program p {
  input a: f32[20, 32]
  input b: f32[48, 32]
  input c: f32[48]
  y: f32[3, 20, 16] = [3, 20, 16] sum(i3 < 32) mul(@0, @1) then add(acc, @2) where @0 = a[i1, i3], @1 = b[16*i0 + i2, i3], @2 = c[16*i0 + i2]
  output y
})",
         Precision::F32, "sum: f32[20, 3, 16] = "},
        {"turned, with a residual", R"(program p {
  input a: f32[20, 32]
  input b: f32[48, 32]
  input c: f32[48, 20]
  y: f32[48, 20] = [20, 48] -> [i1, i0] sum(i2 < 32) mul(@0, @1) then add(@2, acc) where @0 = a[i0, i2], @1 = b[i1, i2], @2 = c[i1, i0]
  output y
})",
         Precision::F32, "sum: f32[48, 20] = "},
        {"an operand of f32 beside one of f16, which is rounded",
         product_f16("[20, 48] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1, i2]", "", "f32[20, 48]"),
         Precision::F16, "operand: f16[20, 32]"},
        {"or the other is widened",
         product_f16("[20, 48] sum(i2 < 32) mul(@0, @1) then exp(acc) where @0 = x[i0, i2], @1 = w[i1, i2]", "",
                     "f32[20, 48]"),
         Precision::TF32, "operand: f32[48, 32]", 3},
        {"a function of an operand",
         product_f16("[20, 20] sum(i2 < 32) mul(max(@0, @2), @1) where @0 = x[i0, i2], @1 = x[i1, i2], @2 = z[i2]",
                     "  input z: f32[32]\n", "f32[20, 20]"),
         Precision::F32, "operand: f32[20, 32] = [20, 32] max(@0, @1)"},
        {"a column in front, of ones", R"(program p {
  input a: f32[20, 32]
  input b: f32[48, 30]
  y: f32[20, 48] = [20, 48] sum(i2 < 32) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1, i2 - 1] when i2 - 1 >= 0 and -i2 + 30 >= 0 else 1
  output y
})",
         Precision::F32, "operand: f32[48, 32]"},
        {"a convolution of 16 bits of an image of 32",
         R"(program p {
  input x: f32[1, 6, 9, 8]
  input w: f16[10, 6, 3, 3]
  input b: f32[10]
  y: f16[1, 9, 8, 10] = [9, 8, 10] -> [0, i0, i1, i2] sum(i3 < 6, i4 < 3, i5 < 3) mul(@0, @1) then min(max(add(acc, @2), 0.0), 6.0) where @0 = x[0, i3, i0 + i4 - 1, i1 + i5 - 1] when i0 + i4 - 1 >= 0 and -i0 - i4 + 9 >= 0 and i1 + i5 - 1 >= 0 and -i1 - i5 + 8 >= 0 else 0, @1 = w[i2, i3, i4, i5], @2 = b[i2]
  output y
})",
         Precision::F16, "operand: f16[1, 6, 9, 8]", 3},
        {"patches, whose windows do not overlap",
         R"(program p {
  input x: f32[1, 3, 8, 12]
  input w: f16[10, 3, 4, 4]
  y: f32[1, 6, 10] = [2, 3, 10] -> [0, 3*i0 + i1, i2] sum(i3 < 3, i4 < 4, i5 < 4) mul(@0, @1) where @0 = x[0, i3, 4*i0 + i4, 4*i1 + i5], @1 = w[i2, i3, i4, i5]
  output y
})",
         Precision::F16, "operand: f16[2, 3, 3, 4, 4]"},
        {"heads of any number of rows and examples", R"(program p {
  input a: f32[$batch, $rows, 32]
  input b: f32[48, 32]
  input c: f32[48]
  y: f32[$batch, 3, $rows, 16] = [$batch, 3, $rows, 16] sum(i4 < 32) mul(@0, @1) then tanh(add(acc, @2)) where @0 = a[i0, i2, i4], @1 = b[16*i1 + i3, i4], @2 = c[16*i1 + i3]
  output y
})",
         Precision::F32, "sum: f32[$batch, $rows, 3, 16] = "},
        {"a sum over any number of rows, of 16 bits", R"(program p {
  input a: f32[$rows, 20]
  input b: f16[$rows, 48]
  y: f32[20, 48] = [20, 48] sum(i2 < $rows) mul(@0, @1) where @0 = a[i2, i0], @1 = b[i2, i1]
  output y
})",
         Precision::F16, "operand: f16[20, $rows]"},
        {"an image of any size", R"(program p {
  input x: f32[1, 6, $h, 2*$h]
  input w: f32[10, 6, 3, 3]
  y: f32[1, 10, $h, 2*$h] = [10, $h, 2*$h] -> [0, i0, i1, i2] sum(i3 < 6, i4 < 3, i5 < 3) mul(@0, @1) then tanh(acc) where @0 = x[0, i3, i1 + i4 - 1, i2 + i5 - 1] when i1 + i4 - 1 >= 0 and $h - i1 - i4 >= 0 and i2 + i5 - 1 >= 0 and 2*$h - i2 - i5 >= 0 else 0, @1 = w[i0, i3, i4, i5]
  output y
})",
         Precision::F32, "sum: f32[1, 10, $h, 2*$h] = "},
        {"a transposed convolution, phase by phase", R"(program p {
  input x: f32[2, 4, 5, 6]
  input w: f32[2, 2, 8, 6, 2, 2]
  input b: f32[8]
  y: f32[2, 8, 8, 10] = [2, 8, 4, 2, 5, 2] -> [i0, i1, 2*i2 + i3, 2*i4 + i5] sum(i6 < 6, i7 < 2, i8 < 2) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = x[i0, i2 + i3 + i7 - 1, i4 + i5 + i8 - 1, i6] when i2 + i3 + i7 - 1 >= 0 and -i2 - i3 - i7 + 4 >= 0 and i4 + i5 + i8 - 1 >= 0 and -i4 - i5 - i8 + 5 >= 0 else 0, @1 = w[i3, i5, i1, i6, i7, i8], @2 = b[i1]
  output y
})",
         Precision::F32, "y_weights: f32[6, 4, 4, 8] = "},
        {"transposed phases of one dimension, in groups, channels first, behind which nothing is taken", R"(program p {
  input x: f32[2, 6, 5]
  input w: f16[2, 6, 4, 2]
  y: f32[2, 8, 10] = [2, 2, 4, 5, 2] -> [i0, 4*i1 + i2, 2*i3 + i4] sum(i5 < 3, i6 < 2) mul(@0, @1) then tanh(acc) where @0 = x[i0, 3*i1 + i5, i3 + i4 + i6 - 1] when i3 + i4 + i6 - 1 >= 0 and -i3 - i4 - i6 + 5 >= 0 else 0, @1 = w[i4, 3*i1 + i5, i2, i6]
  output y
})",
         Precision::F16, "y_weights: f16[2, 3, 4, 4] = ", 4},
        {"phases along one dimension and plain windows along the other", R"(program p {
  input x: f32[1, 6, 5, 9]
  input w: f32[2, 8, 6, 2, 3]
  y: f32[1, 8, 10, 9] = [8, 5, 2, 9] -> [0, i0, 2*i1 + i2, i3] sum(i4 < 6, i5 < 2, i6 < 3) mul(@0, @1) then max(acc, 0.0) where @0 = x[0, i4, i1 + i2 + i5 - 1, i3 + i6 - 1] when i1 + i2 + i5 - 1 >= 0 and -i1 - i2 - i5 + 5 >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + 9 >= 0 else 0, @1 = w[i2, i0, i4, i5, i6]
  output y
})",
         Precision::F32, "y_weights: f32[6, 8, 4, 3] = "},
        {"two products and what lies between them", R"(program p {
  input a: f32[20, 32]
  input b: f32[32, 24]
  input c: f32[24, 16]
  s: f32[20, 24] = [20, 24] sum(i2 < 32) mul(@0, @1) then exp(acc) where @0 = a[i0, i2], @1 = b[i2, i1]
  r: f32[20, 1] = [20] -> [i0, 0] sum(i1 < 24) @0 where @0 = s[i0, i1]
  t: f32[20, 16] = [20, 16] sum(i2 < 24) mul(@0, @1) where @0 = s[i0, i2], @1 = c[i2, i1]
  y: f32[20, 16] = [20, 16] div(@0, @1) where @0 = t[i0, i1], @1 = r[i0, 0]
  output y
  output t
})",
         Precision::F32, "sum: f32[20, 24] = ", 5},
    };
}

}  // namespace tilewright::test
