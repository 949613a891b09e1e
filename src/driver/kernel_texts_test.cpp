#include "driver/kernel_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "driver/files.h"
#include "program/builder.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

/// out = tanh(x * w) for `rows` rows, and -x; every name has the prefix `prefix`.
Program product_and_negation(const std::string& prefix, Expr rows) {
    Program p;
    p.name = prefix + "program";
    Builder b(p);
    const ValueId x = b.input(prefix + "x", DType::F32, {rows, 64});
    const ValueId w = b.input(prefix + "w", DType::F32, {64, 48});
    b.set_outputs({b.unary(ScalarOp::Tanh, b.matmul(x, w)), b.unary(ScalarOp::Neg, x)});
    for (Value& v : p.values)
        if (!v.name.starts_with(prefix)) v.name = prefix + v.name;
    for (Primitive& primitive : p.primitives) primitive.name = prefix + primitive.name;
    return p;
}

/// Planned for a fixed machine description that differs from the host; without machine code.
CompileOptions printed_for(VectorIsa isa) {
    CompileOptions o;
    o.threads = 2;
    o.machine = generic_target(isa);
    o.isa = to_string(isa);
    o.code = false;
    return o;
}

std::vector<KernelTexts> texts_of(const Program& program, const CompileOptions& options) {
    return kernel_texts(*compile_program(program, options));
}

TEST(KernelTexts, DoNotDependOnNames) {
    const std::vector<KernelTexts> a =
        texts_of(product_and_negation("a_", symbol("m")), printed_for(VectorIsa::avx512));
    const std::vector<KernelTexts> b =
        texts_of(product_and_negation("another_", symbol("rows")), printed_for(VectorIsa::avx512));
    ASSERT_EQ(a.size(), b.size());
    ASSERT_GE(a.size(), 2u);
    for (size_t k = 0; k < a.size(); ++k) {
        EXPECT_EQ(a[k].tiles, b[k].tiles);
        EXPECT_EQ(a[k].code, b[k].code);
    }
}

TEST(KernelTexts, DependOnTheDescribedMachine) {
    const Program p = product_and_negation("", 96);
    const std::vector<KernelTexts> avx2 = texts_of(p, printed_for(VectorIsa::avx2));
    const std::vector<KernelTexts> avx512 = texts_of(p, printed_for(VectorIsa::avx512));
    EXPECT_THAT(avx2[0].code, HasSubstr("\"target-cpu\"=\"x86-64-v3\""));
    EXPECT_THAT(avx512[0].code, HasSubstr("\"target-cpu\"=\"x86-64-v4\""));
    EXPECT_THAT(avx512[0].code, Not(HasSubstr("target triple")));
    const Program large = product_and_negation("", 4096);  // -x has 1 MiB
    CompileOptions smaller = printed_for(VectorIsa::avx512);
    for (CacheLevel& c : smaller.machine->caches) c.bytes /= 64;
    const auto streams = [](const std::vector<KernelTexts>& kernels) {
        return std::any_of(kernels.begin(), kernels.end(),
                           [](const KernelTexts& k) { return k.code.find("!nontemporal") != std::string::npos; });
    };
    EXPECT_TRUE(streams(texts_of(large, smaller)));
    EXPECT_FALSE(streams(texts_of(large, printed_for(VectorIsa::avx512))));
}

TEST(KernelTexts, HaveTheTextOfGpuKernels) {
    CompileOptions o = printed_for(VectorIsa::avx512);
    o.gpu = h200();
    const std::vector<KernelTexts> a = texts_of(product_and_negation("a_", 96), o);
    const std::vector<KernelTexts> b = texts_of(product_and_negation("b_", 96), o);
    ASSERT_FALSE(a.empty());
    EXPECT_THAT(a[0].code, HasSubstr("TW_KERNEL(kernel, "));
    EXPECT_EQ(a[0].code, b[0].code);
    EXPECT_THAT(print_hashes(*compile_program(product_and_negation("", 96), o), a), HasSubstr(" cuda "));
}

TEST(KernelTexts, AreSavedByTheirHash) {
    const auto model = compile_program(product_and_negation("", 96), printed_for(VectorIsa::avx2));
    const std::vector<KernelTexts> kernels = kernel_texts(*model);
    const TemporaryFolder folder;
    save_texts(kernels, folder / "texts");
    save_texts(kernels, folder / "texts");
    std::set<std::string> hashes;
    for (const KernelTexts& k : kernels) {
        for (const std::string& text : {k.tiles, k.code}) {
            hashes.insert(text_hash(text));
            EXPECT_EQ(read_file(folder / ("texts/" + text_hash(text) + ".txt")), text);
        }
        EXPECT_EQ(k.calls, 1u);
        EXPECT_THAT(print_hashes(*model, kernels),
                    HasSubstr("tiles " + text_hash(k.tiles) + " llvm " + text_hash(k.code) + " calls 1 stages "));
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "texts"), {}),
              static_cast<std::ptrdiff_t>(hashes.size()));
}

TEST(KernelTexts, AModelWithoutCodeDoesNotRun) {
    const auto model = compile_program(product_and_negation("", 96), printed_for(VectorIsa::avx2));
    EXPECT_THAT(model->dump("asm"), HasSubstr("ret"));
    EXPECT_THROW(Session(model, 1), RuntimeError);
}

}  // namespace
}  // namespace tilewright
