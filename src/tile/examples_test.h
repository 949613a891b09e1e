#pragma once
// Hand-written tile programs that the tests of this folder share and modify.

#include <gtest/gtest.h>

#include <string>

namespace tilewright {

/// C = relu(A B + bias) in tiles of 4 x 3. B's tile is copied and packed. A loop cuts k, so that C accumulates in a
/// buffer.
inline const std::string kGemm = R"TW(tile gemm {
stages {
program gemm {
  input a: f32[10, 7]
  input b: f32[7, 8]
  input bias: f32[8]
  c: f32[10, 8] = [10, 8] sum(i2 < 7) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = bias[i1]  ; c ""
  output c
}
}
axes m="10" n="8" k="7"
stage 0 over [m n k]
buffer c layout "reorder(1, 0)"
parallel m by 4 {
  parallel n by 3 {
    for k by 2 {
      load 0 access 1 layout "split(1, 2) reorder(1, 0, 2)" padding local
      compute 0 vector n lanes 2 registers [m=2 n=2] order [n m k] vthreads [m=2] padding partition
    }
    store c padding local
  }
}
}
)TW";

/// E = (A B) D, as in MCFuser's Fig. 4: mh(n(k(La,Lb,C0),Ld,C1),Se).
inline const std::string kChain = R"TW(tile chain {
stages {
program chain {
  input a: f32[9, 5]
  input b: f32[5, 8]
  input d: f32[8, 6]
  c: f32[9, 8] = [9, 8] sum(i2 < 5) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]  ; c ""
  e: f32[9, 6] = [9, 6] sum(i2 < 8) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]  ; e ""
  output e
}
}
axes m="9" n="8" k="5" h="6"
stage 0 over [m n k]
stage 1 over [m h n]
parallel m by 4 {
  parallel h by 4 {
    for n by 3 {
      for k by 2 {
        load 0 access 0 layout "" padding local
        load 0 access 1 layout "" padding partition
        compute 0 order [m n k] padding partition
      }
      load 1 access 1 layout "" padding local
      compute 1 order [m h n] padding partition
    }
    store e padding partition
  }
}
}
)TW";

/// A softmax, two rows at a time; the buffers between the stages hold these rows.
inline const std::string kSoftmax = R"TW(tile softmax {
stages {
program softmax {
  input x: f32[$rows, 6]
  m: f32[$rows] = [$rows] max(i1 < 6) @0 where @0 = x[i0, i1]  ; m ""
  e: f32[$rows, 6] = [$rows, 6] exp(sub(@0, @1)) where @0 = x[i0, i1], @1 = m[i0]  ; e ""
  s: f32[$rows] = [$rows] sum(i1 < 6) @0 where @0 = e[i0, i1]  ; s ""
  y: f32[$rows, 6] = [$rows, 6] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0]  ; y ""
  output y
}
}
axes row="$rows" c="6"
stage 0 over [row c]
stage 1 over [row c]
stage 2 over [row c]
stage 3 over [row c]
buffer e layout "reorder(1, 0)"
parallel row by 2 {
  load 0 access 0 layout "" padding local
  for c by 4 {
    compute 0 vector c lanes 4 registers [c=4] padding local
  }
  compute 1 padding partition
  for c by 4 {
    compute 2 padding partition
  }
  for c by 1 {
    compute 3 padding partition
  }
}
}
)TW";

/// A 3x3 convolution with zero padding; the padding is filled when the image tile is copied.
inline const std::string kConvolution = R"TW(tile convolution {
stages {
program convolution {
  input x: f32[3, 7, 6]
  input w: f32[4, 3, 3, 3]
  y: f32[4, 7, 6] = [4, 7, 6] sum(i3 < 3, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i3, i1 + i4 - 1, i2 + i5 - 1] when i1 + i4 - 1 >= 0 and -i1 - i4 + 7 >= 0 and i2 + i5 - 1 >= 0 and -i2 - i5 + 6 >= 0 else 0, @1 = w[i0, i3, i4, i5]  ; y ""
  output y
}
}
axes o="4" h="7" w="6" i="3" p="3" q="3"
stage 0 over [o h w i p q]
parallel h by 3 {
  for w by 4 {
    load 0 access 0 layout "unfold(1, 3, 1)" padding local
    for o by 3 {
      for i by 2 {
        load 0 access 1 layout "reorder(1, 2, 3, 0)" padding partition
        compute 0 vector o lanes 4 registers [o=4 w=2] padding local
      }
    }
  }
}
}
)TW";

/// Returns the text with the first `from` replaced.
inline std::string changed(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace tilewright
