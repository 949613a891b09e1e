#pragma once
// Programs of attentions that libraries compute, for tests of what recognises them and of what runs them.

namespace tilewright::test {

/// Queries, keys and values of one product, as ViT's exporters have it.
inline constexpr const char* kColumnsOfOneTensor = R"TW(program p {
  input x: f16[2, 10, 144]
  s: f32[2, 3, 10, 10] = [2, 3, 10, 10] sum(i4 < 16) mul(@0, @1) where @0 = x[i0, i2, 16*i1 + i4], @1 = x[i0, i3, 16*i1 + i4 + 48]
  t: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] max(i3 < 10) @0 where @0 = s[i0, i1, i2, i3]
  e: f32[2, 3, 10, 10] = [2, 3, 10, 10] exp(sub(@0, @1)) where @0 = s[i0, i1, i2, i3], @1 = t[i0, i1, i2, 0]
  d: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] sum(i3 < 10) @0 where @0 = e[i0, i1, i2, i3]
  o: f32[2, 10, 3, 16] = [2, 10, 3, 16] sum(i4 < 10) mul(@0, @1) where @0 = e[i0, i2, i1, i4], @1 = x[i0, i4, 16*i2 + i3 + 96]
  y: f16[2, 10, 48] = [2, 10, 3, 16] -> [i0, i1, 16*i2 + i3] div(@0, @1) where @0 = o[i0, i1, i2, i3], @1 = d[i0, i2, i1, 0]
  output y
})TW";

}  // namespace tilewright::test
