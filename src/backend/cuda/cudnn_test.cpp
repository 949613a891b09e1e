// cuDNN's graphs: on a fake cuDNN, which computes what it is told of; and on the library itself as far as it goes
// without a GPU, where there is one.

#include "backend/cuda/cudnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/fake_gpu_test.h"
#include "base/error.h"
#include "libraries/attention_programs_test.h"
#include "program/random_program.h"
#include "tile/library_products_test.h"

namespace tilewright::cuda {
namespace {

using testing::HasSubstr;

/// A kernel of these stages; how it would run matters to no library, but for what it rounds to.
TileProgram stages_only(const std::string& text) {
    TileProgram kernel;
    kernel.name = "k";
    kernel.stages = parse_program(text);
    return kernel;
}

struct Convolution {
    std::string name, inputs, result, expression;
};

std::string convolution(const Convolution& c) {
    return "program p {\n" + c.inputs + "  y: " + c.result + " = " + c.expression + "\n  output y\n}";
}

std::vector<LibraryKernel> forms(const Program& stages) {
    auto found = library_kernels(stages);
    return std::holds_alternative<Refusal>(found) ? std::vector<LibraryKernel>()
                                                  : std::get<std::vector<LibraryKernel>>(std::move(found));
}
LibraryOperation operation(const Convolution& c) {
    return std::get<LibraryOperation>(forms(parse_program(convolution(c))).front());
}

/// The library's first kernel; null with the reason where it has none.
std::shared_ptr<const LibraryPlan> plan_of(const KernelLibrary& library, const LibraryKernel& kernel, std::string& why,
                                           Precision precision = Precision::F32) {
    const auto found = library.candidates(kernel, {1, precision}, 1);
    if (const auto* refusal = std::get_if<Refusal>(&found)) {
        why = refusal->reason;
        return nullptr;
    }
    return library.make(std::get<std::vector<KernelLibrary::Candidate>>(found).front());
}

/// What the library's plan gives on a fake GPU, beside the interpreter's.
void expect_same(const TileProgram& kernel, const Cudnn& library, test::FakeGpu& device, const Gpu& gpu,
                 double tolerance, const std::vector<Tensor>& given = {}) {
    const auto found = forms(kernel.stages);
    ASSERT_FALSE(found.empty());
    std::string why;
    const auto plan = plan_of(library, found.front(), why);
    ASSERT_TRUE(plan) << why;
    const std::vector<Tensor> inputs = given.empty() ? random_inputs(kernel.stages, 5) : given,
                              expected = interpret(kernel.stages, inputs);
    std::vector<std::shared_ptr<void>> memory;
    std::vector<void*> tensors;
    const auto put = [&](const Tensor& t) {
        memory.push_back(gpu.allocate(t.bytes()));
        tensors.push_back(memory.back().get());
        gpu.to_device(tensors.back(), t.data(), t.bytes());
    };
    for (const Tensor& t : inputs) put(t);
    Tensor out(expected[0].dtype(), expected[0].shape());
    put(out);
    const auto workspace = gpu.allocate(static_cast<size_t>(plan->workspace_bytes()));
    const Gpu::Stream stream = gpu.stream();
    const int before = device.cudnn.graphs;
    plan->run(stream, tensors, workspace.get());
    stream.synchronize();
    EXPECT_EQ(device.cudnn.graphs, before + 1);
    gpu.to_host(out.mutable_data(), tensors.back(), out.bytes());
    EXPECT_EQ(device.wrong, "");
    EXPECT_LE(largest_difference(expected, {out}), tolerance);
}

const std::vector<Convolution>& convolutions() {
    static const std::vector<Convolution> all = {
        {"strided and padded, with a bias and relu",
         "  input x: f32[2, 6, 9, 8]\n  input w: f32[10, 6, 3, 3]\n  input b: f32[10, 1, 1]\n", "f32[2, 10, 5, 4]",
         "[2, 10, 5, 4] sum(i4 < 6, i5 < 3, i6 < 3) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = x[i0, i4, 2*i2 "
         "+ "
         "i5 - 1, 2*i3 + i6 - 1] when 2*i2 + i5 - 1 >= 0 and 9 - 2*i2 - i5 >= 0 and 2*i3 + i6 - 1 >= 0 else 0, @1 = "
         "w[i1, i4, i5, i6], @2 = b[i1, 0, 0]"},
        {"dilated, one image, more zeros in front than behind",
         "  input x: f32[1, 5, 12, 11]\n  input w: f32[7, 5, 3, 2]\n", "f32[1, 7, 11, 9]",
         "[7, 11, 9] -> [0, i0, i1, i2] sum(i3 < 5, i4 < 3, i5 < 2) mul(@0, @1) where @0 = x[0, i3, i1 + 2*i4 - 3, i2 "
         "+ "
         "2*i5] when i1 + 2*i4 - 3 >= 0 else 0, @1 = w[i0, i3, i4, i5]"},
        {"in three groups, with gelu", "  input x: f32[2, 6, 6, 7]\n  input w: f32[12, 2, 3, 3]\n  input b: f32[12]\n",
         "f32[2, 12, 4, 5]",
         "[2, 3, 4, 4, 5] -> [i0, 4*i1 + i2, i3, i4] sum(i5 < 2, i6 < 3, i7 < 3) mul(@0, @1) then "
         "mul(mul(add(acc, @2), 0.5), add(tanh(mul(add(add(acc, @2), mul(mul(mul(add(acc, @2), add(acc, @2)), "
         "add(acc, @2)), 0.044715)), 0.7978845608028654)), 1.0)) where @0 = x[i0, 2*i1 + i5, i3 + i6, i4 + i7], @1 = "
         "w[4*i1 + i2, i5, i6, i7], @2 = b[4*i1 + i2]"},
        {"of each channel by itself", "  input x: f32[1, 8, 7, 7]\n  input w: f32[8, 1, 3, 3]\n", "f32[1, 8, 7, 7]",
         "[8, 7, 7] -> [0, i0, i1, i2] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = x[0, i0, i1 + i3 - 1, i2 + i4 - 1] "
         "when i1 + i3 - 1 >= 0 and 7 - i1 - i3 >= 0 and i2 + i4 - 1 >= 0 and 7 - i2 - i4 >= 0 else 0, @1 = w[i0, 0, "
         "i3, i4]"},
        {"with channels last, and a sum of the input",
         "  input x: f16[2, 6, 6, 8]\n  input w: f16[8, 3, 3, 8]\n  input z: f16[2, 4, 4, 8]\n  input b: f16[8]\n",
         "f16[2, 4, 4, 8]",
         "[2, 4, 4, 8] sum(i4 < 8, i5 < 3, i6 < 3) mul(@0, @1) then max(add(add(acc, @3), @2), 0.0) where @0 = x[i0, "
         "i1 "
         "+ i5, i2 + i6, i4], @1 = w[i3, i5, i6, i4], @2 = z[i0, i1, i2, i3], @3 = b[i3]"},
        {"of one dimension, bf16", "  input x: bf16[3, 4, 20]\n  input w: bf16[6, 4, 5]\n", "bf16[3, 6, 8]",
         "[3, 6, 8] sum(i3 < 4, i4 < 5) mul(@1, @0) where @0 = x[i0, i3, 2*i2 + i4], @1 = w[i1, i3, i4]"},
        {"of three dimensions", "  input x: f32[1, 3, 5, 6, 7]\n  input w: f32[4, 3, 2, 3, 3]\n", "f32[1, 4, 4, 4, 5]",
         "[4, 4, 4, 5] -> [0, i0, i1, i2, i3] sum(i4 < 3, i5 < 2, i6 < 3, i7 < 3) mul(@0, @1) where @0 = x[0, i4, i1 + "
         "i5, i2 + i6, i3 + i7], @1 = w[i0, i4, i5, i6, i7]"},
        {"clipped", "  input x: f16[2, 8, 6, 7]\n  input w: f16[8, 8, 3, 3]\n  input b: f32[8]\n", "f16[2, 8, 4, 5]",
         "[2, 8, 4, 5] sum(i4 < 8, i5 < 3, i6 < 3) mul(@0, @1) then min(max(add(acc, @2), 0.0), 6.0) where @0 = x[i0, "
         "i4, i2 + i5, i3 + i6], @1 = w[i1, i4, i5, i6], @2 = b[i1]"},
        {"one point, strided", "  input x: f32[2, 5, 8, 8]\n  input w: f32[6, 5, 1, 1]\n", "f32[2, 6, 4, 4]",
         "[2, 6, 4, 4] sum(i4 < 5) mul(@0, @1) where @0 = x[i0, i4, 2*i2, 2*i3], @1 = w[i1, i4, 0, 0]"},
        {"transposed, with a bias and relu",
         "  input x: f32[2, 4, 5, 6]\n  input w: f32[6, 4, 4, 8]\n  input b: f32[8]\n", "f32[2, 8, 10, 8]",
         "[2, 8, 10, 8] -> [i0, i3, i2, i1] sum(i4 < 6, i5 < 4, i6 < 4) mul(@0, @1) then max(add(acc, @2), 0.0) where "
         "@0 = x[i0, (i1 + 1 - i5) // 2, (i2 + 1 - i6) // 2, i4] when (i1 + 1 - i5) // 2 >= 0 and "
         "3 - (i1 + 1 - i5) // 2 >= 0 and -((i1 + 1 - i5) % 2) >= 0 and (i2 + 1 - i6) // 2 >= 0 and "
         "4 - (i2 + 1 - i6) // 2 >= 0 and -((i2 + 1 - i6) % 2) >= 0 else 0, @1 = w[i4, i5, i6, i3], @2 = b[i3]"},
        {"transposed, of channels last, f16",
         "  input x: f16[2, 4, 5, 8]\n  input w: f16[8, 4, 4, 16]\n  input b: f16[16]\n", "f16[2, 8, 10, 16]",
         "[2, 8, 10, 16] sum(i4 < 8, i5 < 4, i6 < 4) mul(@0, @1) then max(add(acc, @2), 0.0) where "
         "@0 = x[i0, (i1 + 1 - i5) // 2, (i2 + 1 - i6) // 2, i4] when (i1 + 1 - i5) // 2 >= 0 and "
         "3 - (i1 + 1 - i5) // 2 >= 0 and -((i1 + 1 - i5) % 2) >= 0 and (i2 + 1 - i6) // 2 >= 0 and "
         "4 - (i2 + 1 - i6) // 2 >= 0 and -((i2 + 1 - i6) % 2) >= 0 else 0, @1 = w[i4, i5, i6, i3], @2 = b[i3]"},
        {"transposed, in two groups, dilated, of stride 3, with a last row that no window reaches",
         "  input x: f32[1, 6, 5]\n  input w: f32[6, 2, 3]\n", "f32[1, 4, 17]",
         "[2, 2, 17] -> [0, 2*i0 + i1, i2] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = x[0, 3*i0 + i3, (i2 + 1 - 2*i4) "
         "// 3] when (i2 + 1 - 2*i4) // 3 >= 0 and 4 - (i2 + 1 - 2*i4) // 3 >= 0 and -((i2 + 1 - 2*i4) % 3) >= 0 else "
         "0, @1 = w[3*i0 + i3, i1, i4]"},
        {"transposed, of three dimensions, two of stride 1",
         "  input x: f32[1, 3, 4, 5, 6]\n  input w: f32[3, 4, 2, 3, 3]\n", "f32[1, 4, 8, 7, 6]",
         "[4, 8, 7, 6] -> [0, i0, i1, i2, i3] sum(i4 < 3, i5 < 2, i6 < 3, i7 < 3) mul(@0, @1) where @0 = x[0, i4, "
         "(i1 - i5) // 2, i2 - i6, i3 + 1 - i7] when (i1 - i5) // 2 >= 0 and -((i1 - i5) % 2) >= 0 and i2 - i6 >= 0 "
         "and 4 - i2 + i6 >= 0 and i3 + 1 - i7 >= 0 and 4 - i3 + i7 >= 0 else 0, @1 = w[i4, i0, i5, i6, i7]"},
    };
    return all;
}

struct Products {
    std::string name, text;
};
/// Products with epilogues that cuBLASLt has not.
std::vector<Products> products() {
    const std::string sum = "add(acc, @2)";
    return {
        {"clipped", tilewright::test::product_then(" then min(max(" + sum + ", 0.0), 6.0)", "f32[64]", "i1", "f16")},
        {"gelu by erf, bf16", tilewright::test::product_then(" then mul(mul(" + sum + ", 0.5), add(erf(mul(" + sum +
                                                                 ", 0.7071067811865475)), 1.0))",
                                                             "f32[64]", "i1", "bf16")},
        {"silu, of a scaled product",
         tilewright::test::product_then(" then div(mul(acc, 1.0), add(exp(neg(acc)), 1.0))", "", "", "f32")},
        {"scaled, by rows", tilewright::test::product_then(" then add(mul(acc, 0.25), @2)", "f16[48]", "i0", "f16")},
        {"tanh behind a residual",
         tilewright::test::product_then(" then tanh(add(@2, acc))", "f16[48, 64]", "i0, i1", "f16")},
        {"cut into heads, with a bias", R"(program p {
  input a: f16[20, 32]
  input b: f16[48, 32]
  input c: f32[48]
  y: f16[3, 20, 16] = [3, 20, 16] sum(i3 < 32) mul(@0, @1) then add(acc, @2) where @0 = a[i1, i3], @1 = b[16*i0 + i2, i3], @2 = c[16*i0 + i2]
  output y
})"},
        {"a batch of transposed operands", R"(program p {
  input q: f16[40, 8, 16]
  input k: f16[8, 48, 16]
  c: f32[8, 40, 48] = [8, 40, 48] sum(i3 < 16) mul(@0, @1) then max(acc, 0.0) where @0 = q[i1, i0, i3], @1 = k[i0, i2, i3]
  output c
})"}};
}

/// `masked`: what the scaled products become, of which @2 is the mask.
std::string attention(const std::string& type, const std::string& mask, const std::string& at, bool late,
                      const std::string& masked = "add(@2, mul(acc, 0.25))") {
    const std::string scores = " then " + (mask.empty() && masked[0] == 'a' ? "mul(acc, 0.25)" : masked);
    std::string p = "program p {\n  input q: " + type + "[2, 3, 10, 16]\n  input k: " + type +
                    "[2, 3, 12, 16]\n  input v: " + type + "[2, 3, 12, 8]\n" +
                    (mask.empty() ? "" : "  input m: " + mask + "\n");
    p += "  s: f32[2, 3, 10, 12] = [2, 3, 10, 12] sum(i4 < 16) mul(@0, @1)" + scores +
         " where @0 = q[i0, i1, i2, i4], @1 = k[i0, i1, i3, i4]" + (mask.empty() ? "" : ", @2 = m[" + at + "]") + "\n";
    p +=
        "  t: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] max(i3 < 12) @0 where @0 = s[i0, i1, i2, i3]\n"
        "  e: f32[2, 3, 10, 12] = [2, 3, 10, 12] exp(sub(@0, @1)) where @0 = s[i0, i1, i2, i3], @1 = t[i0, i1, i2, 0]\n"
        "  d: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] sum(i3 < 12) @0 where @0 = e[i0, i1, i2, i3]\n";
    if (late)
        p += "  o: f32[2, 3, 10, 8] = [2, 3, 10, 8] sum(i4 < 12) mul(@0, @1) where @0 = e[i0, i1, i2, i4], @1 = v[i0, "
             "i1, "
             "i4, i3]\n  y: " +
             type +
             "[2, 10, 24] = [2, 3, 10, 8] -> [i0, i2, 8*i1 + i3] div(@0, @1) where @0 = o[i0, i1, i2, i3], @1 = d[i0, "
             "i1, "
             "i2, 0]\n";
    else
        p += "  c: " + type +
             "[2, 3, 10, 12] = [2, 3, 10, 12] div(@0, @1) where @0 = e[i0, i1, i2, i3], @1 = d[i0, i1, i2, 0]\n  y: " +
             type +
             "[2, 3, 10, 8] = [2, 3, 10, 8] sum(i4 < 12) mul(@0, @1) where @0 = c[i0, i1, i2, i4], @1 = v[i0, i1, i4, "
             "i3]\n";
    return p + "  output y\n}";
}

struct Attentions {
    std::string name, text;
};
std::vector<Attentions> attentions() {
    return {{"divided behind the product", attention("f16", "", "", true)},
            {"divided in front of it", attention("bf16", "", "", false)},
            {"masked by rows and columns", attention("f16", "f16[10, 12]", "i2, i3", true)},
            {"masked for each head", attention("f16", "f32[2, 3, 10, 12]", "i0, i1, i2, i3", false)},
            {"masked by columns", attention("bf16", "bf16[2, 1, 1, 12]", "i0, 0, 0, i3", true)},
            {"selected by rows and columns", attention("f16", "bool[2, 1, 10, 12]", "i0, 0, i2, i3", true,
                                                       "select(@2, mul(acc, 0.25), -3.4028235e+38f)")},
            {"selected by columns",
             attention("bf16", "bool[12]", "i3", false, "select(@2, mul(acc, 0.25), -3.4028235e+38f)")},
            {"causal", attention("f16", "", "", true, "select(ge(index(i2 - i3), 0), mul(acc, 0.25), -inf)")},
            {"causal behind two keys, masked and selected",
             attention("f16", "bool[2, 3, 10, 12]", "i0, i1, i2, i3", true,
                       "select(and(lt(index(i3), index(i2 + 3)), @2), mul(acc, 0.25), -3.4028235e+38f)")},
            {"heads that share keys, causal", R"(program p {
  input q: f16[6, 10, 16]
  input k: f16[2, 12, 16]
  input v: f16[2, 12, 16]
  s: f32[2, 3, 10, 12] = [2, 3, 10, 12] sum(i4 < 16) mul(@0, @1) then select(ge(index(i2 - i3), 0), mul(acc, 0.25), -inf) where @0 = q[3*i0 + i1, i2, i4], @1 = k[i0, i3, i4]
  t: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] max(i3 < 12) @0 where @0 = s[i0, i1, i2, i3]
  e: f32[2, 3, 10, 12] = [2, 3, 10, 12] exp(sub(@0, @1)) where @0 = s[i0, i1, i2, i3], @1 = t[i0, i1, i2, 0]
  d: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] sum(i3 < 12) @0 where @0 = e[i0, i1, i2, i3]
  o: f32[2, 3, 10, 16] = [2, 3, 10, 16] sum(i4 < 12) mul(@0, @1) where @0 = e[i0, i1, i2, i4], @1 = v[i0, i4, i3]
  y: f16[6, 10, 16] = [2, 3, 10, 16] -> [3*i0 + i1, i2, i3] div(@0, @1) where @0 = o[i0, i1, i2, i3], @1 = d[i0, i1, i2, 0]
  output y
})"},
            {"columns of one tensor", tilewright::test::kColumnsOfOneTensor},
            {"heads that share keys, which are turned first", R"(program p {
  input q: f16[6, 10, 16]
  input k: f16[16, 2, 12]
  input v: f16[2, 12, 16]
  l: f16[2, 12, 16] = [2, 12, 16] @0 where @0 = k[i2, i0, i1]
  s: f32[2, 3, 10, 12] = [2, 3, 10, 12] sum(i4 < 16) mul(@0, @1) where @0 = l[i0, i3, i4], @1 = q[3*i0 + i1, i2, i4]
  t: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] max(i3 < 12) @0 where @0 = s[i0, i1, i2, i3]
  e: f32[2, 3, 10, 12] = [2, 3, 10, 12] exp(sub(@0, @1)) where @0 = s[i0, i1, i2, i3], @1 = t[i0, i1, i2, 0]
  d: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] sum(i3 < 12) @0 where @0 = e[i0, i1, i2, i3]
  o: f32[2, 3, 10, 16] = [2, 3, 10, 16] sum(i4 < 12) mul(@0, @1) where @0 = e[i0, i1, i2, i4], @1 = v[i0, i4, i3]
  y: f16[6, 10, 16] = [2, 3, 10, 16] -> [3*i0 + i1, i2, i3] div(@0, @1) where @0 = o[i0, i1, i2, i3], @1 = d[i0, i1, i2, 0]
  output y
})"}};
}

TEST(Cudnn, ComputesConvolutions) {
    test::FakeGpu device;
    const Gpu gpu(0, device.driver());
    {
        const Cudnn library(gpu, device.graphs_library());
        EXPECT_EQ(library.version(), 90100u);
        for (const Convolution& c : convolutions()) {
            SCOPED_TRACE(c.name);
            expect_same(stages_only(convolution(c)), library, device, gpu, c.result[0] == 'b' ? 3e-2 : 4e-3);
        }
    }
    EXPECT_FALSE(device.cudnn.has_descriptors());
}

TEST(Cudnn, ComputesProducts) {
    test::FakeGpu device;
    const Gpu gpu(0, device.driver());
    {
        const Cudnn library(gpu, device.graphs_library());
        for (const Products& p : products()) {
            SCOPED_TRACE(p.name);
            expect_same(stages_only(p.text), library, device, gpu, 5e-2);
        }
    }
    EXPECT_FALSE(device.cudnn.has_descriptors());
}

TEST(Cudnn, ComputesAttentions) {
    test::FakeGpu device;
    const Gpu gpu(0, device.driver());
    {
        const Cudnn library(gpu, device.graphs_library());
        for (const Attentions& a : attentions()) {
            SCOPED_TRACE(a.name);
            if (a.name == "heads that share keys, which are turned first") {
                // Keys whose width is not innermost are none of the library's.
                EXPECT_TRUE(forms(parse_program(a.text)).empty());
                std::string text = a.text;
                const auto replace = [&](const std::string& what, const std::string& with) {
                    text.replace(text.find(what), what.size(), with);
                };
                replace("k: f16[16, 2, 12]", "k: f16[12, 2, 16]");
                replace("k[i2, i0, i1]", "k[i1, i0, i2]");
                expect_same(stages_only(text), library, device, gpu, 4e-3);
                continue;
            }
            expect_same(stages_only(a.text), library, device, gpu, 2e-2);
        }
        // The library may know no masks.
        device.cudnn.supports_masks = false;
        std::string why;
        EXPECT_TRUE(plan_of(library, forms(parse_program(attentions()[0].text)).front(), why));
        EXPECT_FALSE(plan_of(library, forms(parse_program(attentions()[2].text)).front(), why));
        EXPECT_THAT(
            why, HasSubstr("none of 3 engines takes it; status 3000, some error: this engine supports no such graph"));
    }
    EXPECT_FALSE(device.cudnn.has_descriptors());
}

TEST(Cudnn, RoundsNoMoreThanIsAllowed) {
    test::FakeGpu device;
    const Gpu gpu(0, device.driver());
    const Cudnn library(gpu, device.graphs_library());
    const auto kernel = operation(convolutions()[0]);
    std::string why;
    EXPECT_TRUE(plan_of(library, kernel, why));
    EXPECT_TRUE(device.cudnn.chose_exact_engine);
    EXPECT_TRUE(plan_of(library, kernel, why, Precision::TF32));
    EXPECT_FALSE(device.cudnn.chose_exact_engine);
    // Each engine that rounds no more is a candidate of its own.
    const auto count = [&](Precision precision, size_t most) {
        return std::get<std::vector<KernelLibrary::Candidate>>(library.candidates(kernel, {1, precision}, most)).size();
    };
    EXPECT_EQ(count(Precision::F32, 8), 1u);
    EXPECT_EQ(count(Precision::TF32, 8), 2u);
    EXPECT_EQ(count(Precision::TF32, 1), 1u);
}

TEST(Cudnn, LeavesOthersAlone) {
    test::FakeGpu device;
    const Gpu gpu(0, device.driver());
    const Cudnn library(gpu, device.graphs_library());
    std::string why;
    EXPECT_FALSE(plan_of(library, forms(parse_program(tilewright::test::scores_of_heads("f16"))).front(), why));
    EXPECT_THAT(why, HasSubstr("batches of several dimensions"));
    const CublasLt products(gpu, device.products());
    EXPECT_FALSE(plan_of(products, LibraryAttention{}, why));
    EXPECT_THAT(why, HasSubstr("it multiplies matrices"));
    // What it says of a description that cannot be.
    auto kernel = operation(convolutions()[0]);
    kernel.begins[0] = 0;
    EXPECT_FALSE(plan_of(library, kernel, why));
    EXPECT_THAT(why, HasSubstr("cuDNN cannot describe an operation: status 2008, some error: extents of a "
                               "convolution's result"));
    try {
        const Cudnn none(gpu, {"libnosuchthing.so.1"});
        FAIL() << "there is none";
    } catch (const RuntimeError& e) {
        EXPECT_THAT(e.what(), HasSubstr("no cuDNN: libnosuchthing.so.1"));
    }
}

/// An H100 as cuDNN 9.8 and newer write it.
constexpr const char* kH100 =
    R"({"deviceVer":900,"driverVer":13000,"cudaDeviceId":0,"pciDeviceId":0,"deviceName":"H100","isTccDriver":0,)"
    R"("supportCoopLaunch":1,"multiProcessorCount":132,"smClockRateKHz":1980000,"memClockRateKHz":2619000,)"
    R"("l2CacheSize":52428800,"warpSize":32,"totalGlobalMem":85899345920,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxSharedMemoryPerSM":233472,)"
    R"("ccMajor":9,"ccMinor":0})";

TEST(Cudnn, ItselfTakesTheGraphs) {
    std::optional<Cudnn> library;
    try {
        library.emplace(Cudnn::find(), kH100);
    } catch (const RuntimeError& e) {
        GTEST_SKIP() << e.what();
    }
    // Convolutions become plans without a GPU. Attentions, products, and what follows a convolution other than a bias
    // and relu, are compiled when they are planned, which needs the driver: the library supports the graphs, and lacks
    // the driver alone.
    const auto is_known = [&](const std::string& name, const LibraryKernel& kernel, bool precompiled) {
        std::string why;
        const auto plan = plan_of(*library, kernel, why);
        const bool no_driver = why.find("RUNTIME_PREREQUISITE_MISSING") != std::string::npos ||
                               why.find("EXECUTION_FAILED_CUDA_DRIVER") != std::string::npos;
        EXPECT_TRUE(plan != nullptr || (!precompiled && no_driver)) << name << ": " << why;
        if (plan) {
            EXPECT_GE(plan->workspace_bytes(), 0);
        }
    };
    for (const Convolution& c : convolutions()) {
        const LibraryOperation kernel = operation(c);
        if (kernel.activation == Activation::GeluTanh) continue;  // groups have none but relu
        const bool relu = kernel.activation == Activation::None || kernel.activation == Activation::Relu;
        // (Of a gradient what follows is compiled as well.)
        is_known(c.name, kernel,
                 kernel.transposed ? kernel.added.empty() && kernel.activation == Activation::None
                                   : relu && kernel.added.size() < 2);
    }
    for (const Products& p : products())
        for (const LibraryKernel& kernel : forms(parse_program(p.text))) is_known(p.name, kernel, false);
    for (const Attentions& a : attentions())
        for (const LibraryKernel& kernel : forms(parse_program(a.text))) is_known(a.name, kernel, false);
    // A graph that it does not support is refused with its reason.
    auto odd = operation(convolutions()[0]);
    odd.dilations[0] = 0;
    std::string why;
    EXPECT_FALSE(plan_of(*library, odd, why));
    EXPECT_THAT(why, HasSubstr("cuDNN cannot describe a convolution: status 2"));
}

}  // namespace
}  // namespace tilewright::cuda
