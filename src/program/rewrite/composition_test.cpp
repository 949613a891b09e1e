// Sequences of rules that produce the forms shown in the papers.

#include <gtest/gtest.h>

#include "program/rewrite/rewrite.h"
#include "program/rewrite/rewrite_test.h"
#include "program/transform/common_subexpressions.h"
#include "program/transform/fold.h"

namespace tilewright {
namespace {

/// The program's text without the names of primitives.
std::string text(Program p) {
    for (Primitive& primitive : p.primitives) primitive.name.clear();
    return print(p);
}

/// The program after the rule's match at the primitive that computes `at`.
Program rewritten(const Program& p, std::string_view rule, std::string_view at, size_t which = 0) {
    const RewriteContext context(p);
    std::vector<Patch> found;
    for (const PrimitiveId id : p.primitives.ids())
        if (p.values[p.primitives[id].outputs[0]].name == at) rewrite_rule(rule)->find(context, id, found);
    EXPECT_GT(found.size(), which) << rule << " at " << at << "\n" << print(p);
    if (found.size() <= which) return p;
    Program out = apply(p, found[which]);
    EXPECT_EQ(verify(out), std::vector<std::string>()) << print(out);
    const std::vector<Tensor> inputs = random_inputs(p, 1);
    EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(out, inputs, {.exact = true})),
              1e-11);
    return out;
}

// Korch, figure 2 (b): the division of softmax moves behind the product, its sum becomes a product with ones, and both
// products are merged into one with v padded with ones.
TEST(Composition, Korch_figure_2) {
    Program p = parse_sound(R"(program attention {
  input s: f32[4, 6]
  input v: f32[6, 3]
  e: f32[4, 6] = [4, 6] exp(@0) where @0 = s[i0, i1]
  r: f32[4, 1] = [4, 1] sum(i2 < 6) @0 where @0 = e[i0, i2]
  p: f32[4, 6] = [4, 6] div(@0, @1) where @0 = e[i0, i1], @1 = r[i0, 0]
  o: f32[4, 3] = [4, 3] sum(i2 < 6) mul(@0, @1) where @0 = p[i0, i2], @1 = v[i2, i1]
  output o
})");
    p = rewritten(p, "factor_across_sum", "o");
    p = rewritten(p, "sum_as_product", "r");
    p = rewritten(p, "merge_products", "o/unscaled");
    EXPECT_EQ(text(merge_common_subexpressions(p)), R"(program attention {
  input s: f32[4, 6]
  input v: f32[6, 3]
  e: f32[4, 6] = [4, 6] exp(@0) where @0 = s[i0, i1]
  o/unscaled/side_by_side: f32[6, 4] = [6, 4] select(lt(index(i1 - 3), 0), @0, 1.0) where @0 = v[i0, i1] when -i1 + 2 >= 0 else 0
  o/unscaled/merged: f32[4, 4] = [4, 4] sum(i2 < 6) mul(@0, @1) where @0 = e[i0, i2], @1 = o/unscaled/side_by_side[i2, i1]
  r: f32[4, 1] = [4, 1] @0 where @0 = o/unscaled/merged[i0, 3]
  o/unscaled: f32[4, 3] = [4, 3] @0 where @0 = o/unscaled/merged[i0, i1]
  o: f32[4, 3] = [4, 3] div(@0, @1) where @0 = o/unscaled[i0, i1], @1 = r[i0, 0]
  output o
}
)");
}

// EfficientViT's linear attention: (relu(q) relu(k)^T) v takes n^2 (d + h) multiplications, relu(q) (relu(k)^T v) takes
// n d h twice.
TEST(Composition, linear_attention_is_bracketed_from_the_right) {
    Program p = parse_sound(R"(program linear_attention {
  input q: f32[2, 64, 4]
  input k: f32[2, 64, 4]
  input v: f32[2, 64, 4]
  fq: f32[2, 64, 4] = [2, 64, 4] max(@0, 0.0) where @0 = q[i0, i1, i2]
  fk: f32[2, 64, 4] = [2, 64, 4] max(@0, 0.0) where @0 = k[i0, i1, i2]
  kt: f32[2, 4, 64] = [2, 4, 64] @0 where @0 = fk[i0, i2, i1]
  s: f32[2, 64, 64] = [2, 64, 64] sum(i3 < 4) mul(@0, @1) where @0 = fq[i0, i1, i3], @1 = kt[i0, i3, i2]
  o: f32[2, 64, 4] = [2, 64, 4] sum(i3 < 64) mul(@0, @1) where @0 = s[i0, i1, i3], @1 = v[i0, i3, i2]
  output o
})");
    p = rewritten(p, "reassociate", "o");
    EXPECT_EQ(text(p), R"(program linear_attention {
  input q: f32[2, 64, 4]
  input k: f32[2, 64, 4]
  input v: f32[2, 64, 4]
  fq: f32[2, 64, 4] = [2, 64, 4] max(@0, 0.0) where @0 = q[i0, i1, i2]
  fk: f32[2, 64, 4] = [2, 64, 4] max(@0, 0.0) where @0 = k[i0, i1, i2]
  kt: f32[2, 4, 64] = [2, 4, 64] @0 where @0 = fk[i0, i2, i1]
  o/pair: f32[2, 4, 4] = [2, 4, 4] sum(i3 < 64) mul(@0, @1) where @0 = kt[i0, i1, i3], @1 = v[i0, i3, i2]
  o: f32[2, 64, 4] = [2, 64, 4] sum(i3 < 4) mul(@0, @1) where @0 = fq[i0, i1, i3], @1 = o/pair[i0, i3, i2]
  output o
}
)");
}

// A convolution, its bias and a normalisation become one convolution and one addition, with all constants folded.
TEST(Composition, normalisation_folds_into_the_convolution) {
    Program p = parse_sound(R"(program conv_bn {
  input x: f32[1, 2, 4, 4]
  const w: f32[2, 2, 1, 1] = {1, 2, 3, 4}
  const bias: f32[2, 1, 1] = {1, 2}
  const mean: f32[2, 1, 1] = {3, 4}
  const deviation: f32[2, 1, 1] = {2, 4}
  const gain: f32[2, 1, 1] = {6, 8}
  const beta: f32[2, 1, 1] = {5, 7}
  y: f32[1, 2, 4, 4] = [1, 2, 4, 4] sum(i4 < 2) mul(@0, @1) where @0 = x[0, i4, i2, i3], @1 = w[i1, i4, 0, 0]
  b: f32[1, 2, 4, 4] = [1, 2, 4, 4] add(@0, @1) where @0 = y[0, i1, i2, i3], @1 = bias[i1, 0, 0]
  c: f32[1, 2, 4, 4] = [1, 2, 4, 4] sub(@0, @1) where @0 = b[0, i1, i2, i3], @1 = mean[i1, 0, 0]
  d: f32[1, 2, 4, 4] = [1, 2, 4, 4] div(@0, @1) where @0 = c[0, i1, i2, i3], @1 = deviation[i1, 0, 0]
  g: f32[1, 2, 4, 4] = [1, 2, 4, 4] mul(@0, @1) where @0 = d[0, i1, i2, i3], @1 = gain[i1, 0, 0]
  n: f32[1, 2, 4, 4] = [1, 2, 4, 4] add(@0, @1) where @0 = g[0, i1, i2, i3], @1 = beta[i1, 0, 0]
  output n
})");
    p = rewritten(p, "fold_affine_chain", "n");
    p = rewritten(p, "scale_into_sum", "n");
    EXPECT_EQ(text(fold_constants(p)), R"(program conv_bn {
  input x: f32[1, 2, 4, 4]
  const n/shift: f32[2] = {-1, 3}
  const n/scaled: f32[2, 2, 1, 1] = {3, 6, 6, 8}
  n/products: f32[1, 2, 4, 4] = [1, 2, 4, 4] sum(i4 < 2) mul(@0, @1) where @0 = x[0, i4, i2, i3], @1 = n/scaled[i1, i4, 0, 0]
  n: f32[1, 2, 4, 4] = [1, 2, 4, 4] add(@0, @1) where @0 = n/products[0, i1, i2, i3], @1 = n/shift[i1]
  output n
}
)");
}

// x[rows[i]] + 0: what the index reads stays.
TEST(Composition, a_gathered_operand_keeps_its_indices) {
    Program p = parse_sound(R"(program gathered {
  input x: f32[4, 5]
  input rows: i64[3]
  g: f32[3] = [3] @1 where @0 = rows[i0], @1 = x[@0, 2]
  z: f32[3] = [3] add(@0, 0.0) where @0 = g[i0]
  output z
})");
    EXPECT_EQ(text(rewritten(p, "fold_affine_chain", "z")), R"(program gathered {
  input x: f32[4, 5]
  input rows: i64[3]
  z: f32[3] = [3] @1 where @0 = rows[i0], @1 = x[@0, 2]
  output z
}
)");
}

}  // namespace
}  // namespace tilewright
