// Plans for several sizes in one model (orchestrate/dynamic): every way of every region computes the program's values,
// and sizes that repeat cost nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "compile/pipeline.h"
#include "compile/random_inputs.h"
#include "driver/inputs.h"
#include "driver/zoo/zoo.h"
#include "graph/import.h"
#include "ops/rule_test.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

Model zoo(const std::string& name, const ZooSettings& settings = {}) {
    const ZooModel m = build_zoo_model(name, 0, settings);
    return load_model_from_bytes(m.bytes.data(), m.bytes.size());
}

PipelineOptions options(int threads = 1) {
    PipelineOptions o;
    o.compile.threads = threads;
    o.passes.verify_each = true;
    return o;
}

std::vector<Tensor> inputs_for(const Compilation& c, const std::map<std::string, int64_t>& sizes) {
    InputRequest request;
    request.dims = sizes;
    return make_inputs(c.model->inputs(), request);
}

/// `way` in every region that has it, for all sizes that it is legal for.
void force_way(Plan& plan, uint32_t way) {
    for (Region& r : plan.regions)
        for (uint32_t& cell : r.dispatch.table)
            cell = std::min<uint32_t>(way, static_cast<uint32_t>(r.dispatch.ways()) - 1);
    for (Step& step : plan.steps)
        for (auto& body : step.bodies) {
            auto changed = std::make_shared<Plan>(*body);
            force_way(*changed, way);
            body = std::move(changed);
        }
}

size_t most_ways(const Plan& plan) {
    size_t n = 0;
    for (const Region& r : plan.regions) n = std::max(n, r.dispatch.ways());
    for (const Step& step : plan.steps)
        for (const auto& body : step.bodies) n = std::max(n, most_ways(*body));
    return n;
}

struct WaysCase {
    std::string name;
    ZooSettings settings;
    std::map<std::string, std::string> ranges;
    std::vector<std::map<std::string, int64_t>> sizes;
};
void PrintTo(const WaysCase& c, std::ostream* to) { *to << c.name; }

class Ways : public testing::TestWithParam<WaysCase> {};

TEST_P(Ways, ComputeTheProgramAtAllSizes) {
    const WaysCase& c = GetParam();
    PipelineOptions o = options(2);
    for (const auto& [name, text] : c.ranges) o.compile.ranges[name] = parse_dim_range(text);
    const Model model = zoo(c.name, c.settings);
    const Compilation chosen = compile_model(model, o);
    const size_t ways = most_ways(chosen.model->plan());  // as many as this machine's rates make worthwhile
    std::vector<std::vector<Tensor>> inputs, expected;
    for (const auto& sizes : c.sizes) {
        inputs.push_back(inputs_for(chosen, sizes));
        expected.push_back(interpret(chosen.program, inputs.back()));
    }
    for (size_t way = 0; way <= ways; ++way) {
        Compilation forced;
        if (way < ways) {
            o.passes.after = [&](const std::string& pass, const PassResult& r) {
                if (pass == "merge_kernels") force_way(*r.plan, static_cast<uint32_t>(way));
            };
            forced = compile_model(model, o);
        }
        Session session(way < ways ? forced.model : chosen.model, 2);
        for (int round = 0; round < 2; ++round)
            for (size_t k = 0; k < inputs.size(); ++k)
                EXPECT_LE(largest_difference(expected[k], session.run(inputs[k])), 2e-4)
                    << "way " << way << ", sizes " << k << ", round " << round;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, Ways,
    testing::Values(WaysCase{"bert_tiny_dyn",
                             {},
                             {},
                             {{{"batch", 1}, {"seq", 1}}, {{"batch", 2}, {"seq", 7}}, {{"batch", 1}, {"seq", 128}}}},
                    WaysCase{"gpt2_tiny",
                             {},
                             {},
                             {{{"batch", 1}, {"seq", 1}}, {{"batch", 3}, {"seq", 31}}, {{"batch", 1}, {"seq", 97}}}}),
    [](const auto& test) { return test.param.name; });

TEST(DynamicSizes, ThatRepeatArePreparedOnce) {
    const Compilation c = compile_model(zoo("gpt2_tiny"), options());
    Session session(c.model, 1);
    std::mt19937 rng(3);
    std::vector<std::vector<Tensor>> inputs;
    for (int k = 0; k < 16; ++k) inputs.push_back(inputs_for(c, {{"batch", 1}, {"seq", 3 + 5 * k}}));
    for (const auto& in : inputs) session.run_in_place(in);
    const RunCounts first = session.counts();
    EXPECT_EQ(first.preparations, 16u);
    EXPECT_GT(first.memory_plans, 0u);
    EXPECT_LE(first.memory_plans, 16u) << "a plan for somewhat larger sizes serves as well";
    for (int k = 0; k < 200; ++k) session.run_in_place(inputs[rng() % inputs.size()]);
    const RunCounts then = session.counts();
    EXPECT_EQ(then.preparations, first.preparations);
    EXPECT_EQ(then.memory_plans, first.memory_plans);
    EXPECT_EQ(then.dispatches, first.dispatches);
    EXPECT_EQ(then.compilations, 0u);
    EXPECT_EQ(then.runs, first.runs + 200);
}

TEST(DynamicSizes, OutsideOfADeclaredRangeAreRefused) {
    PipelineOptions o = options();
    o.compile.ranges["seq"] = parse_dim_range("2..64");
    const Compilation c = compile_model(zoo("gpt2_tiny"), o);
    Session session(c.model, 1);
    for (const int64_t seq : {1, 65}) try {
            session.run(inputs_for(c, {{"batch", 1}, {"seq", seq}}));
            ADD_FAILURE() << seq << " was accepted";
        } catch (const ModelError& e) {
            EXPECT_THAT(e.what(), HasSubstr("and the model is compiled for 2 to 64"));
        }
    session.run(inputs_for(c, {{"batch", 1}, {"seq", 64}}));
}

/// Halves, and quarters that are doubled again: equal sizes where 4 divides them.
Model halves_and_quarters() {
    using namespace test;
    const std::map<std::string, Attribute> two = {{"kernel_shape", ints({2, 2})}, {"strides", ints({2, 2})}};
    return model(graph({{"x", DType::F32, {1, 3, "height", "width"}}},
                       {node("MaxPool", {"x"}, {"half"}, two), node("MaxPool", {"half"}, {"quarter"}, two),
                        node("ConvTranspose", {"quarter", "w"}, {"doubled"}, {{"strides", ints({2, 2})}}),
                        node("Concat", {"half", "doubled"}, {"y"}, {{"axis", int64_t{1}}})},
                       {"y"}, {{"w", random_tensor("w", DType::F32, {3, 5, 2, 2}, 1)}}));
}

TEST(DynamicSizes, InStepsAreDividedWithoutRemainders) {
    PipelineOptions o = options();
    for (const char* name : {"height", "width"}) o.compile.ranges[name] = parse_dim_range("32..128/32");
    const Compilation c = compile_model(halves_and_quarters(), o);
    EXPECT_EQ(to_string(c.model->inputs()[0].shape), "[1, 3, 32*$height/32, 32*$width/32]");
    EXPECT_EQ(to_string(c.model->outputs()[0].shape), "[1, 8, 16*$height/32, 16*$width/32]");
    for (const Requirement& r : c.program.requirements) EXPECT_EQ(r.kind, Requirement::Kind::Declared) << r.what;
    Session session(c.model, 1);
    for (const int64_t width : {64, 96}) {
        const std::vector<Tensor> inputs = inputs_for(c, {{"height", 32}, {"width", width}});
        EXPECT_LE(largest_difference(interpret(c.program, inputs), session.run(inputs)), 1e-5) << width;
    }
    EXPECT_THROW(inputs_for(c, {{"height", 48}}), ModelError);
    try {
        session.run({Tensor(DType::F32, {1, 3, 48, 64}, true)});
        ADD_FAILURE() << "48 rows were accepted";
    } catch (const ModelError& e) {
        EXPECT_THAT(e.what(), HasSubstr("48 elements in dimension 2, which the model is compiled for in steps of 32"));
    }
}

TEST(DynamicSizes, ARangeOfAnUnknownDimensionIsRefused) {
    PipelineOptions o = options();
    o.compile.ranges["sequence"] = parse_dim_range("1..64");
    EXPECT_THROW(compile_model(zoo("gpt2_tiny"), o), ModelError);
}

TEST(DynamicSizes, WithoutSamplesAreThoseOfOnePlan) {
    PipelineOptions o = options();
    o.compile.skip = {"sample_sizes"};
    EXPECT_TRUE(compile_model(zoo("gpt2_tiny"), o).model->plan().regions.empty());
}

}  // namespace
}  // namespace tilewright
