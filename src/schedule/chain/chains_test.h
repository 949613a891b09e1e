#pragma once
// GEMM chains as text, for the tests of this folder and of folders above.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "program/program.h"

namespace tilewright::chain {

/// E = (A B) D over m, n, k, h: the paper's example.
inline Program two_products(int64_t m, int64_t n, int64_t k, int64_t h) {
    return parse_program(fmt::format(R"(program chain {{
  input a: f32[{0}, {2}]
  input b: f32[{2}, {1}]
  input d: f32[{1}, {3}]
  c: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: f32[{0}, {3}] = [{0}, {3}] sum(i2 < {1}) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
}})",
                                     m, n, k, h));
}

/// F = ((A B) D) G over m, n, k, h, p.
inline Program three_products(int64_t m, int64_t n, int64_t k, int64_t h, int64_t p) {
    return parse_program(fmt::format(R"(program chain {{
  input a: f32[{0}, {2}]
  input b: f32[{2}, {1}]
  input d: f32[{1}, {3}]
  input g: f32[{3}, {4}]
  c: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  e: f32[{0}, {3}] = [{0}, {3}] sum(i2 < {1}) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  f: f32[{0}, {4}] = [{0}, {4}] sum(i2 < {3}) mul(@0, @1) where @0 = e[i0, i2], @1 = g[i2, i1]
  output f
}})",
                                     m, n, k, h, p));
}

/// softmax(epilogue(Q K^T)) V, with the division before the second product, as models have it. `epilogue`: of the
/// scores, over acc and @2 = mask[row, column].
inline Program attention(int64_t heads, int64_t m, int64_t n, int64_t k, int64_t h,
                         const std::string& epilogue = "mul(acc, 0.5)") {
    const bool masked = epilogue.find("@2") != std::string::npos;
    return parse_program(fmt::format(R"(program attention {{
  input q: f32[{0}, {1}, {3}]
  input k: f32[{0}, {2}, {3}]
  input v: f32[{0}, {2}, {4}]
{7}  c: f32[{0}, {1}, {2}] = [{0}, {1}, {2}] sum(i3 < {3}) mul(@0, @1) then {5} where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]{6}
  r: f32[{0}, {1}, 1] = [{0}, {1}, 1] max(i3 < {2}) @0 where @0 = c[i0, i1, i3]
  p: f32[{0}, {1}, {2}] = [{0}, {1}, {2}] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[{0}, {1}, 1] = [{0}, {1}, 1] sum(i3 < {2}) @0 where @0 = p[i0, i1, i3]
  w: f32[{0}, {1}, {2}] = [{0}, {1}, {2}] div(@0, @1) where @0 = p[i0, i1, i2], @1 = s[i0, i1, 0]
  e: f32[{0}, {1}, {4}] = [{0}, {1}, {4}] sum(i3 < {2}) mul(@0, @1) where @0 = w[i0, i1, i3], @1 = v[i0, i3, i2]
  output e
}})",
                                     heads, m, n, k, h, epilogue, masked ? ", @2 = mask[i1, i2]" : "",
                                     masked ? fmt::format("  input mask: f32[{}, {}]\n", m, n) : ""));
}

/// Grouped-query attention: `group` heads share keys and values, which exporters write as K[h // group].
inline Program grouped_attention(int64_t heads, int64_t group, int64_t m, int64_t n, int64_t k, int64_t h) {
    return parse_program(fmt::format(R"(program grouped {{
  input q: f32[{0}, {2}, {4}]
  input k: f32[{6}, {3}, {4}]
  input v: f32[{6}, {3}, {5}]
  c: f32[{0}, {2}, {3}] = [{0}, {2}, {3}] sum(i3 < {4}) mul(@0, @1) then mul(acc, 0.5) where @0 = q[i0, i1, i3], @1 = k[i0 // {1}, i2, i3]
  r: f32[{0}, {2}, 1] = [{0}, {2}, 1] max(i3 < {3}) @0 where @0 = c[i0, i1, i3]
  p: f32[{0}, {2}, {3}] = [{0}, {2}, {3}] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[{0}, {2}, 1] = [{0}, {2}, 1] sum(i3 < {3}) @0 where @0 = p[i0, i1, i3]
  w: f32[{0}, {2}, {3}] = [{0}, {2}, {3}] div(@0, @1) where @0 = p[i0, i1, i2], @1 = s[i0, i1, 0]
  e: f32[{0}, {2}, {5}] = [{0}, {2}, {5}] sum(i3 < {3}) mul(@0, @1) where @0 = w[i0, i1, i3], @1 = v[i0 // {1}, i3, i2]
  output e
}})",
                                     heads, group, m, n, k, h, heads / group));
}

/// A normalisation of rows of k points, and the product that reads it. `norm`: "layer" or "rms".
inline Program norm_product(const std::string& norm, const std::string& m, int64_t n, int64_t k) {
    const std::string statistics =
        norm == "rms" ? "  v: f32[{0}, 1] = [{0}] -> [i0, 0] sum(i1 < {2}) mul(@0, @0) then sqrt(add(div(acc, {2}.0), "
                        "0.00001)) where @0 = x[i0, i1]\n"
                        "  n: f32[{0}, {2}] = [{0}, {2}] mul(div(@0, @1), @2) where @0 = x[i0, i1], @1 = v[i0, 0], @2 "
                        "= scale[i1]\n"
                      : "  m: f32[{0}, 1] = [{0}] -> [i0, 0] sum(i1 < {2}) @0 then div(acc, {2}.0) where @0 = x[i0, "
                        "i1]\n"
                        "  v: f32[{0}, 1] = [{0}] -> [i0, 0] sum(i1 < {2}) mul(sub(@0, @1), sub(@0, @1)) then "
                        "div(1.0, sqrt(add(div(acc, {2}.0), 0.00001))) where @0 = x[i0, i1], @1 = m[i0, 0]\n"
                        "  n: f32[{0}, {2}] = [{0}, {2}] mul(mul(sub(@0, @1), @2), @3) where @0 = x[i0, i1], @1 = "
                        "m[i0, 0], @2 = v[i0, 0], @3 = scale[i1]\n";
    return parse_program(fmt::format(fmt::runtime("program {3}_product {{\n  input x: f32[{0}, {2}]\n  input scale: "
                                                  "f32[{2}]\n  input w: f32[{2}, {1}]\n" +
                                                  statistics +
                                                  "  y: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where "
                                                  "@0 = n[i0, i2], @1 = w[i2, i1]\n  output y\n}}"),
                                     m, n, k, norm));
}

/// Chains of every kind, small enough to interpret hundreds of schedules.
inline std::vector<Program> small_chains() {
    std::vector<Program> out = {
        two_products(9, 8, 5, 6),
        two_products(2, 12, 7, 16),
        three_products(6, 7, 5, 8, 4),
        attention(1, 6, 8, 3, 5),
        attention(2, 5, 9, 4, 8),
        attention(3, 4, 4, 2, 4, "acc"),
        attention(2, 6, 7, 3, 5, "add(mul(acc, 0.5), @2)"),
        attention(1, 8, 8, 4, 4, "select(ge(index(i1), index(i2)), mul(acc, 0.5), -inf)"),
        attention(3, 1, 9, 4, 5),  // one query of each head
        grouped_attention(6, 3, 1, 9, 4, 5),
        grouped_attention(4, 2, 5, 7, 3, 4),
        grouped_attention(5, 5, 1, 8, 4, 3),  // one head of keys for all
        norm_product("layer", "9", 12, 8),
        norm_product("rms", "7", 9, 10),
    };
    for (const char* text : {// a product with bias and GELU, then a product with bias
                             R"(program mlp {
  input x: f32[10, 6]
  input w0: f32[6, 16]
  input b0: f32[16]
  input w1: f32[16, 7]
  input b1: f32[7]
  h: f32[10, 16] = [10, 16] sum(i2 < 6) mul(@0, @1) then mul(mul(add(acc, @2), 0.5), add(erf(mul(add(acc, @2), 0.70710678)), 1.0)) where @0 = x[i0, i2], @1 = w0[i2, i1], @2 = b0[i1]
  y: f32[10, 7] = [10, 7] sum(i2 < 16) mul(@0, @1) then add(acc, @2) where @0 = h[i0, i2], @1 = w1[i2, i1], @2 = b1[i1]
  output y
})",
                             // two products of the same input, their gate, and a third product
                             R"(program gated {
  input x: f32[9, 6]
  input wg: f32[6, 12]
  input wu: f32[6, 12]
  input wd: f32[12, 5]
  g: f32[9, 12] = [9, 12] sum(i2 < 6) mul(@0, @1) then div(acc, add(exp(neg(acc)), 1.0)) where @0 = x[i0, i2], @1 = wg[i2, i1]
  u: f32[9, 12] = [9, 12] sum(i2 < 6) mul(@0, @1) then mul(acc, @2) where @0 = x[i0, i2], @1 = wu[i2, i1], @2 = g[i0, i1]
  y: f32[9, 5] = [9, 5] sum(i2 < 12) mul(@0, @1) where @0 = u[i0, i2], @1 = wd[i2, i1]
  output y
})",
                             // a normalisation of the rows between two products
                             R"(program norm {
  input x: f32[6, 8]
  input w0: f32[8, 12]
  input w1: f32[12, 4]
  input scale: f32[12]
  t: f32[6, 12] = [6, 12] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i2, i1]
  m: f32[6, 1] = [6, 1] sum(i2 < 12) @0 then div(acc, 12.0) where @0 = t[i0, i2]
  d: f32[6, 12] = [6, 12] sub(@0, @1) where @0 = t[i0, i1], @1 = m[i0, 0]
  v: f32[6, 1] = [6, 1] sum(i2 < 12) mul(@0, @0) then div(acc, 12.0) where @0 = d[i0, i2]
  n: f32[6, 12] = [6, 12] mul(div(@0, sqrt(add(@1, 0.00001))), @2) where @0 = d[i0, i1], @1 = v[i0, 0], @2 = scale[i1]
  y: f32[6, 4] = [6, 4] sum(i2 < 12) mul(@0, @1) where @0 = n[i0, i2], @1 = w1[i2, i1]
  output y
})",
                             // MLP-Mixer: an MLP along the tokens, the last axis of its input and the second axis of
                             // the tensor that is added
                             R"(program mixer {
  input x: f32[2, 9, 5]
  input t: f32[2, 5, 9]
  input w0: f32[9, 7]
  input w1: f32[7, 9]
  h: f32[2, 5, 7] = [2, 5, 7] sum(i3 < 9) mul(@0, @1) then max(acc, 0.0) where @0 = t[i0, i1, i3], @1 = w0[i3, i2]
  y: f32[2, 9, 5] = [2, 5, 9] -> [i0, i2, i1] sum(i3 < 7) mul(@0, @1) then add(@2, acc) where @0 = h[i0, i1, i3], @1 = w1[i3, i2], @2 = x[i0, i2, i1]
  output y
})",
                             // four products
                             R"(program four {
  input a: f32[6, 4]
  input w0: f32[4, 7]
  input w1: f32[7, 5]
  input w2: f32[5, 8]
  input w3: f32[8, 3]
  b: f32[6, 7] = [6, 7] sum(i2 < 4) mul(@0, @1) where @0 = a[i0, i2], @1 = w0[i2, i1]
  c: f32[6, 5] = [6, 5] sum(i2 < 7) mul(@0, @1) then tanh(acc) where @0 = b[i0, i2], @1 = w1[i2, i1]
  d: f32[6, 8] = [6, 8] sum(i2 < 5) mul(@0, @1) where @0 = c[i0, i2], @1 = w2[i2, i1]
  e: f32[6, 3] = [6, 3] sum(i2 < 8) mul(@0, @1) where @0 = d[i0, i2], @1 = w3[i2, i1]
  output e
})",
                             // batched, with transposed right operands
                             R"(program transposed {
  input a: f32[2, 9, 4]
  input b: f32[2, 8, 4]
  input d: f32[2, 16, 8]
  c: f32[2, 9, 8] = [2, 9, 8] sum(i3 < 4) mul(@0, @1) then max(acc, 0.0) where @0 = a[i0, i1, i3], @1 = b[i0, i2, i3]
  e: f32[2, 9, 16] = [2, 9, 16] sum(i3 < 8) mul(@0, @1) where @0 = c[i0, i1, i3], @1 = d[i0, i2, i3]
  output e
})"})
        out.push_back(parse_program(text));
    return out;
}

/// Chains with dynamic extents: of rows, and of the columns of an attention.
inline std::vector<Program> dynamic_chains() {
    std::vector<Program> out = {norm_product("layer", "$rows", 12, 8), norm_product("rms", "$rows", 9, 10)};
    for (const char* text : {R"(program mlp {
  input x: f32[$rows, 6]
  input w0: f32[6, 16]
  input w1: f32[16, 7]
  h: f32[$rows, 16] = [$rows, 16] sum(i2 < 6) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i2], @1 = w0[i2, i1]
  y: f32[$rows, 7] = [$rows, 7] sum(i2 < 16) mul(@0, @1) where @0 = h[i0, i2], @1 = w1[i2, i1]
  output y
})",
                             R"(program attention {
  input q: f32[$batch, $m, 4]
  input k: f32[$batch, $n, 4]
  input v: f32[$batch, $n, 5]
  input mask: f32[$m, $n]
  c: f32[$batch, $m, $n] = [$batch, $m, $n] sum(i3 < 4) mul(@0, @1) then add(mul(acc, 0.5), @2) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3], @2 = mask[i1, i2]
  r: f32[$batch, $m, 1] = [$batch, $m, 1] max(i3 < $n) @0 where @0 = c[i0, i1, i3]
  p: f32[$batch, $m, $n] = [$batch, $m, $n] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[$batch, $m, 1] = [$batch, $m, 1] sum(i3 < $n) @0 where @0 = p[i0, i1, i3]
  w: f32[$batch, $m, $n] = [$batch, $m, $n] div(@0, @1) where @0 = p[i0, i1, i2], @1 = s[i0, i1, 0]
  e: f32[$batch, $m, 5] = [$batch, $m, 5] sum(i3 < $n) mul(@0, @1) where @0 = w[i0, i1, i3], @1 = v[i0, i3, i2]
  output e
})",
                             R"(program decode {
  input q: f32[6, 4]
  input k: f32[2, $n, 4]
  input v: f32[2, $n, 5]
  c: f32[6, $n] = [6, $n] sum(i2 < 4) mul(@0, @1) where @0 = q[i0, i2], @1 = k[i0 // 3, i1, i2]
  r: f32[6] = [6] max(i1 < $n) @0 where @0 = c[i0, i1]
  p: f32[6, $n] = [6, $n] exp(sub(@0, @1)) where @0 = c[i0, i1], @1 = r[i0]
  s: f32[6] = [6] sum(i1 < $n) @0 where @0 = p[i0, i1]
  w: f32[6, $n] = [6, $n] div(@0, @1) where @0 = p[i0, i1], @1 = s[i0]
  e: f32[6, 5] = [6, 5] sum(i2 < $n) mul(@0, @1) where @0 = w[i0, i2], @1 = v[i0 // 3, i2, i1]
  output e
})"})
        out.push_back(parse_program(text));
    return out;
}

}  // namespace tilewright::chain
