// A compiled model that is written and read again computes the same bits.

#include "artifact/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "compile/pipeline.h"
#include "model/recurrence_test.h"
#include "model/session.h"
#include "ops/rule_test.h"
#include "program/random_program.h"

namespace tilewright::artifact {
namespace {

using testing::HasSubstr;

/// What plans are saved with.
ModelOrigin origin() {
    ModelOrigin o{"0123", {}};
    o.info.producer = "test";
    o.info.version = -7;
    o.info.metadata = {{"author", ""}, {"licence", "none\n"}};
    return o;
}

/// Weights as they lie in a file, and the functions of a model that is compiled in this process.
struct Saved {
    WeightsWriter writer;
    PlanFile plan;
    std::shared_ptr<std::vector<std::byte>> weights;
    std::span<const std::byte> content;
    std::vector<cpu::KernelFn> code;

    explicit Saved(const std::shared_ptr<const CompiledModel>& model) : plan(write_plan(model, origin(), writer)) {
        const Weights w = writer.finished();
        weights = std::make_shared<std::vector<std::byte>>(w.bytes + 128);
        std::byte* start = weights->data() + (64 - reinterpret_cast<uintptr_t>(weights->data()) % 64);
        for (const Weights::Block& b : w.blocks)
            if (b.tensor.bytes() > 0) std::memcpy(start + b.offset, b.tensor.data(), b.tensor.bytes());
        content = {start, w.bytes};
        for (const cpu::CompiledKernel* k : plan.kernels) code.push_back(k->run);
    }
    std::shared_ptr<const CompiledModel> read(const std::string& bytes) const {
        const auto owner =
            std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(weights, plan.model);
        return read_plan(bytes, content, code, owner);
    }
    std::shared_ptr<const CompiledModel> read() const { return read(plan.bytes); }
};

/// Bytes of two runs with all inputs, and what the runs count.
void expect_same_runs(const std::shared_ptr<const CompiledModel>& model,
                      const std::vector<std::vector<Tensor>>& inputs) {
    const Saved saved(model);
    EXPECT_EQ(Saved(model).plan.bytes, saved.plan.bytes);
    const std::shared_ptr<const CompiledModel> read = saved.read();
    ASSERT_EQ(read->inputs().size(), model->inputs().size());
    EXPECT_EQ(read->stats().steps, model->stats().steps);
    EXPECT_EQ(read->stats().kernels, static_cast<int>(model->kernels().size()));
    for (const int threads : {1, 2}) {
        Session a(model, threads), b(read, threads);
        for (const std::vector<Tensor>& x : inputs) {
            EXPECT_EQ(a.run(x), b.run(x));
            EXPECT_EQ(a.last_flops(), b.last_flops());
        }
    }
    WeightsWriter weights;
    EXPECT_EQ(write_plan(read, origin(), weights).bytes, saved.plan.bytes);
}

TEST(PlanFile, OfRandomProgramsRunsTheSame) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        const Program p = random_program(seed, 14);
        SCOPED_TRACE(print(p));
        expect_same_runs(compile_program(p, {}), {random_inputs(p, 1), random_inputs(p, 2)});
    }
}

TEST(PlanFile, OfLoopsRunsTheSame) {
    for (const bool conditional : {false, true}) {
        test::Recurrences options;
        options.conditional = conditional;
        options.chained = conditional;
        expect_same_runs(compile_program(test::recurrences(options), {}),
                         {test::recurrence_inputs(7, 3, options.hidden), test::recurrence_inputs(0, 2, options.hidden),
                          test::recurrence_inputs(4, 16, options.hidden)});
    }
}

test::In unknown_length(const std::string& name) { return {name, DType::F32, {"n", "m"}}; }

TEST(PlanFile, OfBranchesAndOpaqueOperatorsRunsTheSame) {
    using namespace test;
    const auto branch = [](const std::string& op, const std::string& out) {
        return std::make_shared<const Graph>(graph({}, {node(op, {"x"}, {out})}, {out}));
    };
    const Graph g =
        graph({unknown_length("x")},
              {node("ReduceSum", {"x"}, {"sum"}, {{"keepdims", int64_t{0}}}), node("Greater", {"sum", "zero"}, {"yes"}),
               node("If", {"yes"}, {"y"}, {{"then_branch", branch("Exp", "a")}, {"else_branch", branch("Neg", "b")}}),
               node("NonZero", {"y"}, {"places"}), node("TopK", {"y", "two"}, {"best", "where"})},
              {"y", "places", "best", "where"}, {{"zero", floats({}, {0})}, {"two", whole({1}, {2})}});
    const auto compiled = compile_model(test::model(g)).model;
    expect_same_runs(compiled, {{floats({2, 3}, {1, -2, 0, 4, 0, 6})}, {floats({1, 4}, {-1, 0, -3, 2})}});
}

TEST(PlanFile, HasTheStrictModelForInputsThatWinogradIsInexactFor) {
    using namespace test;
    Tensor weights(DType::F32, {32, 32, 3, 3}), x(DType::F32, {1, 32, 56, 56});
    for (int64_t i = 0; i < weights.count(); ++i) weights.set(i, static_cast<double>(i * 37 % 19 - 9) / 64);
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i * 91 % 23 - 11) / 8);
    const Graph g =
        graph({{"x", DType::F32, {1, 32, 56, 56}}},
              {node("Conv", {"x", "w"}, {"y"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}})}, {"y"}, {{"w", weights}});
    Tensor large = x;
    large = Tensor::of(DType::F32, x.shape(), std::vector<float>(x.as<float>().begin(), x.as<float>().end()));
    large.set(5, 3e30);
    const auto model = compile_model(test::model(g)).model;
    ASSERT_NE(model->impl().fallback_model(), nullptr);
    expect_same_runs(model, {{x}, {large}, {x}});
}

/// The bytes with a header that fits them.
std::string with_checksum(std::string bytes) {
    const Checksum sum = checksum({std::string_view(bytes).substr(36)});
    bytes.replace(20, 16, sum.text());
    return bytes;
}

std::string refusal(const Saved& saved, const std::string& bytes) {
    try {
        saved.read(bytes);
    } catch (const ModelError& e) {
        return e.what();
    }
    return "read";
}

TEST(PlanFile, ThatIsTruncatedOrChangedIsRefused) {
    const Saved saved(compile_program(test::recurrences({}), {}));
    const std::string& bytes = saved.plan.bytes;
    for (size_t n = 0; n < bytes.size(); n += 1 + n / 40)
        EXPECT_NE(refusal(saved, bytes.substr(0, n)), "read") << n << " bytes";
    for (size_t at = 0; at < bytes.size(); at += 1 + at / 100)
        for (const int bit : {0, 7}) {
            std::string wrong = bytes;
            wrong[at] = static_cast<char>(wrong[at] ^ (1 << bit));
            EXPECT_NE(refusal(saved, wrong), "read") << "bit " << bit << " of byte " << at;
        }
    EXPECT_THAT(refusal(saved, bytes + "x"), HasSubstr("bytes, and should have"));
    std::string version = bytes;
    version[8] = 99;
    EXPECT_THAT(refusal(saved, version), HasSubstr("format version 99"));
    EXPECT_THAT(refusal(saved, "TWPLAN"), HasSubstr("no compiled model"));
    EXPECT_EQ(refusal(saved, bytes), "read");
}

/// The reader checks every field: whatever the bytes are, it ends with a model or an exception.
TEST(PlanFile, OfWrongFieldsIsReadOrRefused) {
    const Saved saved(compile_program(test::recurrences({}), {}));
    int refused = 0;
    for (size_t at = 52; at < saved.plan.bytes.size(); ++at)
        for (const int to : {0, 0x7f, 0xff}) {
            std::string wrong = saved.plan.bytes;
            wrong[at] = static_cast<char>(to);
            try {
                saved.read(with_checksum(wrong));
            } catch (const std::exception&) {
                ++refused;
            }
        }
    EXPECT_GT(refused, 1000);
}

TEST(PlanFile, SaysWhatItIs) {
    CompileOptions options;
    options.isa = "avx2";
    const Saved saved(compile_program(test::recurrences({}), options));
    const About about = read_about(saved.plan.bytes);
    EXPECT_EQ(about.origin.hash, "0123");
    EXPECT_EQ(about.origin.info.producer, "test");
    EXPECT_EQ(about.origin.info.version, -7);
    EXPECT_EQ(about.origin.info.metadata, origin().info.metadata);
    EXPECT_THAT(about.compiler, HasSubstr("Tilewright"));
    EXPECT_EQ(about.platform.isa, VectorIsa::avx2);
}

TEST(PlanFile, IsNotMadeOfModelsWithoutCode) {
    CompileOptions options;
    options.code = false;
    const auto model = compile_program(test::recurrences({}), options);
    WeightsWriter weights;
    EXPECT_THROW(write_plan(model, {}, weights), ModelError);
}

TEST(PlanFile, RefusesOperatorsThatHaveNoText) {
    struct Secret : OpaqueOp {
        std::string print() const override { return "Secret()"; }
        void run(std::span<const TensorView> in, OpaqueOutputs& out) const override { out.allocate(0, in[0].shape); }
    };
    Program p;
    p.name = "secret";
    Builder b(p);
    const ValueId x = b.input("x", DType::F32, {4});
    b.set_source("hidden", "Secret");
    b.set_outputs({b.emit_opaque(std::make_shared<Secret>(), {x}, {{DType::F32, {4}}}, "y").front()});
    const auto model = compile_program(p, {});
    WeightsWriter weights;
    try {
        write_plan(model, {}, weights);
        FAIL();
    } catch (const ModelError& e) {
        EXPECT_THAT(e.what(), HasSubstr("Secret()"));
    }
}

}  // namespace
}  // namespace tilewright::artifact
