#pragma once
// An attention with online softmax, and rows that are numerically hard for it.

#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "tile/examples_test.h"

namespace tilewright {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// One head of attention: scores, their maximum, exponentials, sums, weighted values, quotient.
inline const std::string kAttention = R"TW(tile attention {
stages {
program attention {
  input q: f32[6, 3]
  input k: f32[8, 3]
  input mask: f32[6, 8]
  input v: f32[8, 5]
  c: f32[6, 8] = [6, 8] sum(i2 < 3) mul(@0, @1) then add(mul(acc, 0.5), @2) where @0 = q[i0, i2], @1 = k[i1, i2], @2 = mask[i0, i1]  ; c ""
  r: f32[6] = [6] max(i1 < 8) @0 where @0 = c[i0, i1]  ; r ""
  p: f32[6, 8] = [6, 8] exp(sub(@0, @1)) where @0 = c[i0, i1], @1 = r[i0]  ; p ""
  s: f32[6] = [6] sum(i1 < 8) @0 where @0 = p[i0, i1]  ; s ""
  e: f32[6, 5] = [6, 5] sum(i2 < 8) mul(@0, @1) where @0 = p[i0, i2], @1 = v[i2, i1]  ; e ""
  o: f32[6, 5] = [6, 5] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0]  ; o ""
  output o
}
}
axes m="6" n="8" k="3" h="5"
stage 0 over [m n k]
stage 1 over [m n]
stage 2 over [m n]
stage 3 over [m n]
stage 4 over [m h n]
stage 5 over [m h]
parallel m by 4 {
  for n by 3 {
    compute 0 padding partition
    compute 1 online padding partition
    compute 2 padding partition
    compute 3 padding partition
    compute 4 padding partition
  }
  compute 5 padding partition
}
}
)TW";

inline Tensor matrix(Shape shape, const std::function<float(int64_t)>& f) {
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, f(i));
    return t;
}

inline float number(int64_t i) { return static_cast<float>((i * 7919 + 13) % 101) / 50 - 1; }

/// Rows: plain; all equal; huge range; a leading -inf; all tiles masked but the last; fully masked.
inline std::vector<Tensor> hard_inputs(float poison) {
    Tensor mask = matrix({6, 8}, number);
    const auto set = [&](int64_t m, int64_t n, float x) { mask.set(m * 8 + n, x); };
    for (int64_t n = 0; n < 8; ++n) {
        set(1, n, 3);
        set(2, n, n % 2 == 0 ? 1e4F : -1e4F);
        set(4, n, n < 6 ? -kInf : 1);
        set(5, n, -kInf);
    }
    set(3, 0, -kInf);
    set(0, 4, poison);
    return {matrix({6, 3}, number), matrix({8, 3}, number), mask, matrix({8, 5}, number)};
}

}  // namespace tilewright
