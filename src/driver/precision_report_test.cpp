#include "driver/precision_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "compile/pipeline.h"
#include "cost/host_probe.h"
#include "driver/compare.h"
#include "driver/explain/write.h"
#include "model/session.h"
#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

Tensor numbers(const Shape& shape, double scale) {
    Tensor t(DType::F32, shape);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, scale * std::sin(static_cast<double>(i) * 1.7));
    return t;
}

/// y = relu(x a) b, compiled for a machine with tile registers, which are emulated where this one has none.
struct Compiled {
    explicit Compiled(std::vector<std::string> keep_f32) {
        using namespace test;
        o.keep_rewritten = o.compile.keep_refusals = true;
        o.compile.threads = 1;
        o.compile.machine = generic_target(VectorIsa::avx2);
        o.compile.machine->native = true;
        for (const char* f : {"amx-bf16", "amx-tile"}) o.compile.machine->features.emplace_back(f);
        assume_unit_rates(*o.compile.machine);
        o.compile.precision = Precision::BF16;
        o.compile.keep_f32 = std::move(keep_f32);
        o.passes.after = [this](const std::string& pass, const PassResult& result) {
            if (pass == "narrow_operands") narrowed = result.unit->whole_program();
        };
        c = compile_model(model(graph({{"x", DType::F32, {32, 64}}},
                                      {node("MatMul", {"x", "a"}, {"h"}), node("Relu", {"h"}, {"r"}),
                                       node("MatMul", {"r", "b"}, {"y"})},
                                      {"y"}, {{"a", numbers({64, 64}, 0.1)}, {"b", numbers({64, 48}, 0.2)}})),
                          o);
    }

    std::vector<ProductError> errors() {
        ProductErrors products(*c.precision);
        expected = interpret(c.program, inputs, {}, products.reference(c.program)).at(0);
        return products.of(*narrowed, inputs);
    }

    PipelineOptions o;
    Compilation c;
    std::optional<Program> narrowed;
    std::vector<Tensor> inputs = {numbers({32, 64}, 1)};
    Tensor expected;
};

TEST(PrecisionReport, ListsResultsOfProductsTheLargestErrorsFirst) {
    Compiled all({});
    const std::vector<ProductError> errors = all.errors();
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_GE(errors[0].error, errors[1].error);
    for (const ProductError& e : errors) {
        EXPECT_TRUE(e.rounded);
        EXPECT_GT(e.error, 1e-4) << e.tensor;
        EXPECT_LT(e.error, 0.05) << e.tensor;
        EXPECT_FALSE(e.nodes.empty());
    }
    const Json j = Json::parse(to_json(errors));
    EXPECT_EQ(j[0]["tensor"], errors[0].tensor);
    EXPECT_EQ(j[1]["error"], errors[1].error);
    EXPECT_THAT(print(errors, 1), HasSubstr("largest errors of 2 products' results"));
    EXPECT_THAT(print(errors, 1), Not(HasSubstr("'" + errors[1].tensor + "'")));
}

TEST(PrecisionReport, FindsTheErrorOfTheModelsOutputs) {
    Compiled all({});
    double of_y = 0;
    for (const ProductError& e : all.errors())
        if (e.tensor == "y") of_y = e.error;
    const Tensor y = Session(all.c.model, 1).run(all.inputs).at(0);
    const Comparison r = compare(y, all.expected, {}, "y");
    EXPECT_NEAR(r.max_difference / r.max_magnitude, of_y, 0.02 * of_y) << "kernels round as the program says";
}

TEST(PrecisionReport, OfAProductInF32HasNoErrorOfItsOwn) {
    Compiled first({"a"});
    for (const ProductError& e : first.errors()) {
        EXPECT_EQ(e.rounded, e.tensor == "y") << e.tensor;
        if (!e.rounded)
            EXPECT_LT(e.error, 1e-6);
        else
            EXPECT_GT(e.error, 1e-4);
    }
}

TEST(PrecisionReport, IsPartOfAnExplanation) {
    Compiled first({"a"});
    const explain::Report r = explain::explain(first.c, first.o, {});
    EXPECT_NEAR(r.plan().estimate_ms, r.greedy().estimate_ms, 1e-9) << "with the same products in f32";
    EXPECT_THAT(explain::print(r, 0), HasSubstr("precision bf16: 1 of 2 products rounded\n  f32: "));
    EXPECT_EQ(Json::parse(explain::to_json(r))["precision"]["in_f32"][0]["reason"], "named");
}

TEST(Explain, PrintsTheTypesInWhichTensorsAreStored) {
    Compiled all({});
    std::map<std::string, std::string> types;
    for (const explain::KernelNote& k : explain::explain(all.c, all.o, {}).kernels)
        for (const explain::TensorNote& t : k.writes) types[t.name] = t.type;
    EXPECT_EQ(types["r"], "bf16[32, 64]") << "between two products that are rounded";
    EXPECT_EQ(types["y"], "f32[32, 48]");
}

TEST(PrecisionReport, SaysWhichProductsAreInF32AndWhy) {
    PrecisionChoice choice;
    choice.products = {{"h", {"fc1 (MatMul)"}, PrecisionReason::Error, 0.03},
                       {"u", {"fc2 (MatMul)"}, PrecisionReason::Named, {}},
                       {"v", {}, PrecisionReason::Slower, {}},
                       {"y", {"fc3 (MatMul)"}, PrecisionReason::Rounded, 0.001}};
    choice.max_error = 0.01;
    choice.error = 0.008;
    choice.error_of_all = 0.04;
    choice.seconds = 0.001;
    choice.f32_seconds = 0.002;
    EXPECT_EQ(print(choice),
              "precision bf16: 1 of 4 products rounded; largest error on sample inputs 0.008 (0.04 with all), at most "
              "0.01; estimated 1 ms, 2 ms in f32\n"
              "  f32: 'fc1 (MatMul)': error 0.03 if it alone is rounded\n"
              "  f32: 'fc2 (MatMul)': --keep-f32\n"
              "  f32: 'v': slower in bf16\n");
    EXPECT_THAT(print(choice, 1), HasSubstr("and 2 more"));
    const Json j = Json::parse(to_json(choice));
    EXPECT_EQ(j["precision"], "bf16");
    EXPECT_EQ(j["rounded"], 1);
    EXPECT_EQ(j["error_of_all"], 0.04);
    ASSERT_EQ(j["in_f32"].size(), 3U);
    EXPECT_EQ(j["in_f32"][0]["error_alone"], 0.03);
    EXPECT_EQ(j["in_f32"][1]["reason"], "named");
    EXPECT_TRUE(j["in_f32"][1]["error_alone"].is_null());
    choice.available = false;
    EXPECT_EQ(
        print(choice),
        "precision f32: the target has no products of bf16 that are faster than those of f32 (AMX, AVX512_BF16)\n");
    EXPECT_EQ(Json::parse(to_json(choice))["precision"], "f32");
}

}  // namespace
}  // namespace tilewright
