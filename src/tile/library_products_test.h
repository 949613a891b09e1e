#pragma once
// Contractions as text that libraries support too, for the tests of each backend.

#include <string>

namespace tilewright::test {

/// sum_k a[m, k] b[k, n] with m, n, k = 48, 64, 32, followed by `then`, which may read c[at], a tensor of type `c`.
inline std::string product_then(const std::string& then, const std::string& c = "", const std::string& at = "i1",
                                const std::string& type = "f32") {
    return "program p {\n  input a: " + type + "[48, 32]\n  input b: " + type + "[32, 64]\n" +
           (c.empty() ? "" : "  input c: " + c + "\n") + "  y: " + type +
           "[48, 64] = [48, 64] sum(i2 < 32) mul(@0, @1)" + then + " where @0 = a[i0, i2], @1 = b[i2, i1]" +
           (c.empty() ? "" : ", @2 = c[" + at + "]") + "\n  output y\n}";
}

/// Attention scores of 2 x 8 heads: q has two batch axes that do not merge into one; the keys are transposed.
inline std::string scores_of_heads(const std::string& type) {
    return "program p {\n  input q: " + type + "[2, 40, 8, 16]\n  input k: " + type + "[2, 8, 48, 16]\n  c: " + type +
           "[2, 8, 40, 48] = [2, 8, 40, 48] sum(i4 < 16) mul(@0, @1) where @0 = q[i0, i2, i1, i4], @1 = k[i0, i1, i3, "
           "i4]\n  output c\n}";
}

}  // namespace tilewright::test
