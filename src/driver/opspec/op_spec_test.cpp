// Operators as text: parsing and errors.

#include "driver/opspec/op_spec.h"

#include <gmock/gmock.h>

#include <set>

#include "base/error.h"
#include "driver/files.h"
#include "driver/opspec/op_model.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// "message | hint" of the error of building the line.
std::string error_of(const std::string& line) {
    try {
        build_op(parse_op(line));
    } catch (const ModelError& e) {
        return std::string(e.what()) + " | " + e.hint();
    }
    return "no error";
}

TEST(ParseOp, ReadsKeysInAnyOrderAndFillsInDefaults) {
    const OpSpec op = parse_op("  gemm k=3072 m=512\tn=768 act=gelu ");
    EXPECT_EQ(op.kind->name, "gemm");
    EXPECT_EQ(op.number("m"), 512);
    EXPECT_EQ(op.number("k"), 3072);
    EXPECT_EQ(op.number("batch"), 1);
    EXPECT_FALSE(op.flag("bias"));
    EXPECT_EQ(op.text("act"), "gelu");
    EXPECT_EQ(op.text("weights"), "constant");
    EXPECT_EQ(op.print(), "gemm m=512 n=768 k=3072 act=gelu") << "what was given, in the table's order";
}

TEST(ParseOp, TakesFallbacksFromOtherKeys) {
    const OpSpec op = parse_op("conv2d c=3 h=224 o=64 kh=7 kw=5");
    EXPECT_EQ(op.number("w"), 224) << "as h";
    EXPECT_EQ(op.number("kw"), 5) << "given";
    EXPECT_EQ(parse_op("attention m=512 k=64").number("n"), 512);
    EXPECT_FALSE(parse_op("attention m=512 k=64").has("scale"));
    EXPECT_EQ(parse_op("attention m=512 k=64 scale=0.125").real("scale"), 0.125);
    EXPECT_THAT(parse_op("chain m=4 dims=64:128:32").numbers("dims"), ElementsAre(64, 128, 32));
}

TEST(ParseOp, HintsAtValidValues) {
    EXPECT_THAT(error_of(""), HasSubstr("an operator is missing"));
    EXPECT_THAT(error_of("gem m=1"), StartsWith("there is no operator 'gem' | choose from gemm, gemv, chain"));
    EXPECT_THAT(error_of("gemv m=1 k=2 q=3"),
                StartsWith("operator 'gemv' has no key 'q' | its keys are m, k, bias, act, weights"));
    EXPECT_THAT(error_of("gemv m k=2"), StartsWith("operator 'gemv': 'm' is not of the form key=value"));
    EXPECT_THAT(error_of("gemm m=512 k=64"), StartsWith("operator 'gemm' needs n | "));
    EXPECT_THAT(error_of("gemm m=512 n=0 k=64"),
                StartsWith("operator 'gemm': n is '0' | n (columns) takes a whole number, at least 1"));
    EXPECT_THAT(error_of("gemm m=512 n=12x k=64"), HasSubstr("n is '12x'"));
    EXPECT_THAT(error_of("gemm m=512 n=1 k=99999999999999999999"), HasSubstr("k is '99999999999999999999'"));
    EXPECT_THAT(error_of("gemm m=1 n=1 k=1 bias=2"), HasSubstr("takes a whole number, 0 to 1"));
    EXPECT_THAT(error_of("gemm m=1 n=1 k=1 m=2"), HasSubstr("m is given twice"));
    EXPECT_THAT(error_of("pool c=1 h=4 kh=2 kind=median"), HasSubstr("takes max, avg"));
    EXPECT_THAT(error_of("reduce dims=4:5: axes=0"), HasSubstr("whole numbers with ':' between them"));
    EXPECT_THAT(error_of("attention m=4 k=4 scale=nan"), HasSubstr("takes a number, as in 0.125"));
}

TEST(ParseOp, RefusesInconsistentValues) {
    EXPECT_THAT(error_of("conv2d c=6 h=8 o=8 groups=4"), HasSubstr("groups=4 divides not both c=6 and o=8"));
    EXPECT_THAT(error_of("conv2d c=6 h=2 o=8 kh=5"), HasSubstr("a window of 5 does not fit into 2"));
    EXPECT_THAT(error_of("conv_transposed2d c=6 h=1 o=8 kh=2 pad=1"), HasSubstr("pad=1 leaves nothing"));
    EXPECT_THAT(error_of("pool c=6 h=8 kh=2 pad=2"), HasSubstr("pad=2 is not smaller than the window"));
    EXPECT_THAT(error_of("chain m=4"), HasSubstr("either k, n and h or dims"));
    EXPECT_THAT(error_of("chain m=4 k=4 n=4 h=4 dims=4:4"), HasSubstr("either k, n and h or dims"));
    EXPECT_THAT(error_of("chain m=4 k=4 n=4"), HasSubstr("h is missing"));
    EXPECT_THAT(error_of("chain m=4 dims=4"), HasSubstr("is not a product"));
    EXPECT_THAT(error_of("transpose dims=2:3:4 perm=0:1:1"), HasSubstr("does not name each of the 3 axes"));
    EXPECT_THAT(error_of("reduce dims=2:3 axes=2"), HasSubstr("are not axes"));
    EXPECT_THAT(error_of("attention m=8 n=4 k=4 mask=causal"), HasSubstr("n=4 must be at least m=8"));
    EXPECT_THAT(error_of("instancenorm c=2 h=4 pad=4"), HasSubstr("reflects more than"));
}

TEST(ParseBatch, ReadsLinesAndNamesTheOneThatIsWrong) {
    const std::vector<BatchLine> lines =
        parse_batch("# two\n\ngemv m=4 k=8   # first\r\n\t\nsoftmax m=2 n=3", "ops.txt");
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0].number, 3);
    EXPECT_EQ(lines[0].op.print(), "gemv m=4 k=8");
    EXPECT_EQ(lines[1].number, 5);
    try {
        parse_batch("softmax m=2 n=3\nsoftmax m=2\n", "ops.txt");
        FAIL() << "should have thrown";
    } catch (const ModelError& e) {
        EXPECT_STREQ(e.what(), "ops.txt:2: operator 'softmax' needs n");
    }
}

// --- the files in bench/ops

std::vector<BatchLine> bench_file(const std::string& name) {
    const std::string path = std::string(TW_SOURCE_DIR) + "/bench/ops/" + name + ".txt";
    return parse_batch(read_file(path), path);
}

TEST(BenchFiles, HoldOperatorsThatCanBeBuilt) {
    for (const auto& [name, lines] : std::vector<std::pair<std::string, size_t>>{{"mcfuser_gemm_chains", 12},
                                                                                 {"mcfuser_attention", 9},
                                                                                 {"gensor", 32},
                                                                                 {"gensor_scaled", 32},
                                                                                 {"alt", 93},
                                                                                 {"dietcode", 54},
                                                                                 {"korch", 23},
                                                                                 {"mirage", 11}}) {
        const std::vector<BatchLine> file = bench_file(name);
        EXPECT_EQ(file.size(), lines) << name;
        for (const BatchLine& line : file)
            EXPECT_FALSE(summarize_op(line.op).inputs.empty()) << name << ":" << line.number;
    }
}

TEST(BenchFiles, HaveScaledOperatorsOfTheSameKindsInTheSameOrder) {
    const std::vector<BatchLine> original = bench_file("gensor"), scaled = bench_file("gensor_scaled");
    ASSERT_EQ(original.size(), scaled.size());
    for (size_t i = 0; i < original.size(); ++i) {
        EXPECT_EQ(original[i].op.kind, scaled[i].op.kind) << scaled[i].op.print();
        const int64_t macs = summarize_op(scaled[i].op).macs;
        EXPECT_LE(macs, summarize_op(original[i].op).macs) << scaled[i].op.print();
        EXPECT_LE(macs, 10'000'000'000) << scaled[i].op.print() << ": 0.3 s of a core";
    }
}

TEST(OpKinds, AreListedWithTheirKeys) {
    std::set<std::string> names;
    const std::string text = print_op_kinds();
    for (const OpKind& kind : op_kinds()) {
        EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
        EXPECT_THAT("\n" + text, HasSubstr("\n" + kind.name + " "));
        for (const OpParam& p : kind.params) EXPECT_NE(p.help, "") << kind.name << " " << p.name;
    }
    EXPECT_THAT(text, HasSubstr("    pad=0 "));
    EXPECT_THAT(text, HasSubstr("    kw=(as kh) "));
    EXPECT_THAT(text, HasSubstr("    m=(needed) "));
}

}  // namespace
}  // namespace tilewright
