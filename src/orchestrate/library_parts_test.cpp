// The parts of a kernel give what the kernel gives: generated parts in lockstep, and the interpreter in place of the
// libraries.

#include "orchestrate/library_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "backend/cuda/library_offer.h"
#include "backend/cuda/lockstep.h"
#include "libraries/attention_programs_test.h"
#include "libraries/cut_programs_test.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

Target gpu_target(const GpuTarget& gpu) {
    Target out = generic_target(VectorIsa::avx512);
    out.gpu = gpu;
    return out;
}

std::optional<LibraryParts> parts_of(const std::string& text, Precision precision, KernelSet& kernels,
                                     const GpuTarget& gpu = a100()) {
    return library_parts(parse_program(text), gpu_target(gpu), precision, cuda::library_refusal, kernels);
}

/// Attention of f32 with a mask along the keys, whose result is cut out of heads: cuDNN has none.
constexpr const char* kAttention = R"(program p {
  input q: f32[1, 3, 20, 16]
  input k: f32[1, 3, 24, 16]
  input m: f32[1, 1, 1, 24]
  input v: f32[1, 3, 24, 16]
  s: f32[1, 3, 20, 24] = [3, 20, 24] -> [0, i0, i1, i2] sum(i3 < 16) mul(@0, @1) then add(@2, mul(acc, 0.25)) where @0 = q[0, i0, i1, i3], @1 = k[0, i0, i2, i3], @2 = m[0, 0, 0, i2]
  t: f32[1, 3, 20, 1] = [3, 20] -> [0, i0, i1, 0] max(i2 < 24) @0 where @0 = s[0, i0, i1, i2]
  e: f32[1, 3, 20, 24] = [3, 20, 24] -> [0, i0, i1, i2] exp(sub(@0, @1)) where @0 = s[0, i0, i1, i2], @1 = t[0, i0, i1, 0]
  d: f32[1, 3, 20, 1] = [3, 20] -> [0, i0, i1, 0] sum(i2 < 24) @0 where @0 = e[0, i0, i1, i2]
  o: f32[20, 3, 16] = [20, 3, 16] sum(i3 < 24) mul(@0, @1) where @0 = e[0, i1, i0, i3], @1 = v[0, i1, i3, i2]
  y: f32[1, 20, 48] = [20, 3, 16] -> [0, i0, 16*i1 + i2] div(@0, @1) where @0 = o[i0, i1, i2], @1 = d[0, i1, i0, 0]
  output y
})";

std::vector<test::CutCase> cases() {
    std::vector<test::CutCase> out = test::cut_cases();
    out.push_back({"an attention in f32", kAttention, Precision::TF32, ""});
    return out;
}

/// The kernel's outputs. `generated`: runs a generated part.
std::vector<Tensor> run(
    const LibraryParts& parts, const Program& kernel, const std::vector<Tensor>& inputs,
    const std::function<std::vector<Tensor>(size_t, const Program&, const std::vector<Tensor>&)>& generated) {
    std::vector<Tensor> tensors(parts.given + parts.between.size());
    std::copy(inputs.begin(), inputs.end(), tensors.begin());
    for (const LibraryParts::Part& part : parts.parts) {
        std::vector<Tensor> in;
        const size_t count = part.stages.inputs.size();
        for (size_t k = 0; k < count; ++k) in.push_back(tensors.at(part.tensors[k]));
        const std::vector<Tensor> out =
            part.kernel ? generated(*part.kernel, part.stages, in) : interpret(part.stages, in);
        for (size_t k = 0; k < out.size(); ++k) tensors.at(part.tensors[count + k]) = out[k];
    }
    return {tensors.begin() + static_cast<std::ptrdiff_t>(inputs.size()),
            tensors.begin() + static_cast<std::ptrdiff_t>(inputs.size() + kernel.outputs.size())};
}

/// Whether both have NaN and infinities at the same places.
bool agree_on_specials(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    for (size_t k = 0; k < a.size(); ++k)
        for (int64_t i = 0; i < a[k].count(); ++i) {
            const double x = a[k].get(i), y = b[k].get(i);
            if (!(std::isnan(x) ? std::isnan(y) : std::isinf(x) ? x == y : std::isfinite(y))) return false;
        }
    return true;
}

TEST(LibraryParts, GiveWhatTheKernelGives) {
    for (const GpuTarget& gpu : {a100(), h200()}) {
        KernelSet kernels;
        std::vector<test::CutCase> tried;
        std::vector<LibraryParts> all;
        for (const test::CutCase& c : cases()) {
            auto parts = parts_of(c.text, c.precision, kernels, gpu);
            const bool whole = !cuda::library_refusal(parse_program(c.text));
            ASSERT_EQ(parts.has_value(), !whole) << c.name;
            if (whole) continue;
            tried.push_back(c);
            all.push_back(*std::move(parts));
        }
        EXPECT_GE(all.size() + 4, cases().size()) << "those with a residual, tanh, and a convolution as a whole";
        std::vector<cuda::KernelText> texts;
        for (const TileProgram& t : kernels.kernels())
            texts.push_back(cuda::generate(t, gpu, fmt::format("kernel_{}", texts.size())));
        const cuda::Lockstep lockstep(texts, {TW_TEST_CXX, {"-O0"}});
        Bindings names;
        const auto generated = [&](size_t k, const Program& stages, const std::vector<Tensor>& inputs) {
            return lockstep.run(k, stages, inputs, names);
        };
        for (size_t k = 0; k < all.size(); ++k) {
            const test::CutCase& c = tried[k];
            SCOPED_TRACE(c.name);
            const Program kernel = parse_program(c.text);
            std::vector<Tensor> inputs = random_inputs(kernel, 5);
            names.clear();
            for (size_t i = 0; i < inputs.size(); ++i)
                bind_shape(names, kernel.values[kernel.inputs[i]].shape, inputs[i].shape(), "an input");
            EXPECT_LE(largest_difference(interpret(kernel, inputs), run(all[k], kernel, inputs, generated)),
                      c.precision == Precision::F32 ? 1e-4 : 1e-2);
            for (const double special :
                 {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
                inputs[0] = Tensor(inputs[0].dtype(), inputs[0].shape());
                for (int64_t i = 0; i < inputs[0].count(); ++i)
                    inputs[0].set(i, i % 97 == 5 ? special : static_cast<double>(i % 7) * 0.125 - 0.375);
                EXPECT_TRUE(agree_on_specials(interpret(kernel, inputs), run(all[k], kernel, inputs, generated)))
                    << special;
            }
        }
    }
}

TEST(LibraryParts, AreSumsAndKernelsBetweenThem) {
    KernelSet kernels;
    const LibraryParts parts = parts_of(kAttention, Precision::TF32, kernels).value();
    // The product and its mask; maximum, exponentials and their sums; the second product; the quotients.
    EXPECT_EQ(parts.library_kernels(), 2u);
    ASSERT_THAT(parts.parts, SizeIs(4));
    EXPECT_FALSE(parts.parts[0].kernel || parts.parts[2].kernel);
    EXPECT_THAT(parts.parts[1].stages.primitives, SizeIs(3));
    EXPECT_THAT(kernels.kernels(), SizeIs(2));
    EXPECT_EQ(parts.given, 5u);
    EXPECT_THAT(parts.between, SizeIs(4)) << "scores, exponentials, their sums, and results";
    // Equal parts of kernels are one kernel.
    parts_of(kAttention, Precision::TF32, kernels);
    EXPECT_THAT(kernels.kernels(), SizeIs(2));
}

TEST(LibraryParts, ReadConstantsOnce) {
    const auto parts = [](const std::string& name, const std::vector<bool>& constant) {
        for (const test::CutCase& c : test::cut_cases())
            if (c.name == name) {
                KernelSet kernels;
                return library_parts(parse_program(c.text), gpu_target(a100()), c.precision, cuda::library_refusal,
                                     kernels, constant)
                    .value();
            }
        throw std::out_of_range(name);
    };
    const auto once = [](const LibraryParts& all) {
        std::vector<bool> out;
        for (const LibraryParts::Part& p : all.parts) out.push_back(p.once);
        return out;
    };
    // The weights of all phases, then the sum with its bias.
    const std::string phases = "a transposed convolution, phase by phase";
    EXPECT_THAT(once(parts(phases, {false, true, true})), ElementsAre(true, false));
    EXPECT_THAT(once(parts(phases, {false, false, true})), ElementsAre(false, false));
    EXPECT_THAT(once(parts(phases, {})), ElementsAre(false, false));
    EXPECT_EQ(parts(phases, {false, true, true}).kernels_once(), 1u);
    // Of an operand that is rounded and one that is widened, each a copy: of constants, once. All are never once: sums
    // are a library's, and what follows them depends on what the library gives.
    const std::string rounded = "an operand of f32 beside one of f16, which is rounded",
                      widened = "or the other is widened";
    EXPECT_THAT(once(parts(rounded, {true, false})), ElementsAre(true, false));
    EXPECT_THAT(once(parts(rounded, {false, true})), ElementsAre(false, false));
    EXPECT_THAT(once(parts(widened, {false, true})), ElementsAre(true, false, false));
    EXPECT_THAT(once(parts(widened, {true, true})), ElementsAre(true, false, false));
    // An operand of any number of rows is another one for each.
    EXPECT_THAT(once(parts("a sum over any number of rows, of 16 bits", {true, true})), ElementsAre(false, false));
}

TEST(LibraryParts, AreNoneWhereALibraryHasTheWholeKernel) {
    KernelSet kernels;
    EXPECT_FALSE(parts_of(test::kColumnsOfOneTensor, Precision::F16, kernels));
    EXPECT_FALSE(parts_of(test::product_then(" then max(add(acc, @2), 0.0)", "f32[64]"), Precision::F32, kernels));
    EXPECT_THAT(kernels.kernels(), SizeIs(0));
}

}  // namespace
}  // namespace tilewright
