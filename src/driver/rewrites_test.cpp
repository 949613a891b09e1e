// The rewrite search on whole models, and the resulting kernels: the zoo's models, planned for one core of a fixed
// machine description, without code.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "compile/pipeline.h"
#include "compile/planned_cost.h"
#include "cost/target_with_test.h"
#include "driver/zoo/zoo.h"
#include "graph/import.h"
#include "orchestrate/options.h"
#include "program/transform/common_subexpressions.h"

namespace tilewright {
namespace {

OrchestrateOptions planning(int threads) {
    OrchestrateOptions o;
    o.scheduling.kind = SchedulerKind::Auto;
    o.scheduling.target = test::target_with({.workers = threads});
    o.scheduling.estimates = true;
    o.schedules = std::make_shared<Schedules>(o.scheduling);
    o.skip.emplace_back("sample_sizes");  // the search evaluates one set of sizes
    return o;
}

double seconds_of(const Plan& plan) {
    double sum = 0;
    for (const Step& step : plan.steps)
        if (const auto* call = std::get_if<KernelCall>(&step.what)) sum += call->estimated_seconds + kKernelSeconds;
    return sum;
}

struct Compiled {
    Program before, after;  ///< rewritten
    Plan plan;
    RewriteReport report;
    double unrewritten = 0;  ///< seconds of the plan without rewrites
};

Compiled compile(const std::string& name, const ZooSettings& settings, int threads = 1) {
    const ZooModel model = build_zoo_model(name, 0, settings);
    const OrchestrateOptions o = planning(threads);
    PipelineOptions options;
    options.compile.numerics = Numerics::Fast;  // without checks, which the search does not model
    options.rewrite = default_rewrites();
    options.rewrite->evaluator = planned_cost(o, options.rewrite->rules.folding);
    Compiled c;
    c.before = lower_model(load_model_from_bytes(model.bytes.data(), model.bytes.size()), options);
    c.after = rewrite_program(c.before, options, &c.report);
    PipelineOptions plain = options;
    plain.rewrite.reset();
    KernelSet with, without;
    c.unrewritten = seconds_of(plan_program(rewrite_program(c.before, plain), without, o));
    c.plan = plan_program(c.after, with, o);
    return c;
}

struct Case {
    const char* model;
    ZooSettings settings;
    double most;  ///< maximum ratio to the plan without rewrites, with one thread
};
class ModelsRewritten : public testing::TestWithParam<Case> {};

/// The evaluator's estimate of a program is the estimate of its plan, and the rewritten program takes at most the given
/// fraction: 1 if no rewrite is known to be faster.
TEST_P(ModelsRewritten, gain_by_estimate) {
    for (const int threads : {1, 2}) {
        const Compiled c = compile(GetParam().model, GetParam().settings, threads);
        EXPECT_EQ(verify(c.after), std::vector<std::string>());
        EXPECT_NEAR(c.report.planned_before / c.unrewritten, 1, 1e-3);
        EXPECT_NEAR(c.report.planned_after / seconds_of(c.plan), 1, 1e-3);
        EXPECT_LE(seconds_of(c.plan), c.unrewritten * (threads == 1 ? GetParam().most : 1.0001));
        EXPECT_LE(c.report.costed, default_rewrites().programs);
        EXPECT_LE(c.report.planned, 5u);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, ModelsRewritten,
    testing::Values(Case{"mlp", {}, 1.0001}, Case{"attention", {}, 1.0001}, Case{"resnet18", {{"size", 64}}, 0.8},
                    Case{"densenet121", {{"size", 64}}, 0.87}, Case{"mobilenet_v2", {{"size", 64}}, 1.0001},
                    Case{"shufflenet_v2_x1_0", {{"size", 64}}, 1.0001}, Case{"gpt2_tiny", {}, 1.0001},
                    Case{"bert_tiny", {{"seq", 32}}, 1.0001}, Case{"candy", {{"size", 64}}, 0.5},
                    Case{"efficientvit_b1", {{"size", 64}}, 1.0001}, Case{"dcgan_generator", {}, 0.85},
                    Case{"m5", {}, 0.98}, Case{"lstm_tagger", {}, 1.0001}),
    [](const auto& tested) { return std::string(tested.param.model); });

/// 3x3 convolutions between concatenations: Winograd convolutions, all in one layout.
TEST(RewrittenModels, densenet_gains) {
    const Compiled c = compile("densenet121", {{"size", 128}});
    EXPECT_LT(seconds_of(c.plan), 0.97 * c.unrewritten);
}

/// The model's nodes of which a step's kernel computes primitives: operators by name.
std::map<std::string, std::string> nodes_of(const Plan& plan, const Step& step) {
    std::map<std::string, std::string> out;
    if (const auto* call = std::get_if<KernelCall>(&step.what))
        for (const PrimitiveId id : call->primitives)
            for (const uint32_t n : plan.program.primitives[id].origin.nodes)
                out.emplace(plan.program.nodes[n].name, plan.program.nodes[n].op);
    return out;
}

/// The number of kernels of each attention of EfficientViT, between its convolutions.
std::map<std::string, int> kernels_of_attentions(const Plan& plan) {
    std::map<std::string, int> kernels;
    for (const Step& step : plan.steps) {
        std::set<std::string> here;
        for (const auto& [name, op] : nodes_of(plan, step))
            if (const size_t end = name.find("context_module"); end != std::string::npos && op != "Conv" && op != "Add")
                here.insert(name.substr(0, end));
        for (const std::string& attention : here) ++kernels[attention];
    }
    return kernels;
}

/// EfficientViT: an attention between its convolutions takes at most seven kernels (Korch, figure 10 and section 6.4),
/// and none of them materialises the pixel-by-pixel matrix. Without fusion it takes more.
TEST(RewrittenModels, linear_attention_of_efficientvit_takes_at_most_seven_kernels) {
    constexpr int64_t kPlaces = 32 * 32;  // of the first stage that has attentions
    const Compiled c = compile("efficientvit_b1", {{"size", 512}});
    const std::map<std::string, int> kernels = kernels_of_attentions(c.plan);
    EXPECT_EQ(kernels.size(), 7u);
    for (const auto& [attention, n] : kernels) EXPECT_LE(n, 7) << attention;
    OrchestrateOptions apart = planning(1);
    apart.fuse = false;
    KernelSet set;
    const std::map<std::string, int> unfused = kernels_of_attentions(plan_program(c.after, set, apart));
    EXPECT_EQ(unfused.size(), 7u);
    for (const auto& [attention, n] : unfused) EXPECT_GT(n, 7) << attention;
    for (const Primitive& p : c.plan.program.primitives) {
        if (p.expr() == nullptr) continue;
        const std::vector<Expr>& shape = c.plan.program.values[p.outputs[0]].shape;
        const auto places = std::count_if(shape.begin(), shape.end(), [](Expr d) { return d.is_constant(kPlaces); });
        EXPECT_LT(places, 2) << p.name;
    }
}

/// Candy, InstanceNorm + ReLU + Pad (figure 12): the normalisations are split. Their statistics run in separate
/// kernels, their last primitives are fused with the ReLU.
TEST(RewrittenModels, instance_norms_of_candy_are_fused_with_their_consumers) {
    const Compiled c = compile("candy", {{"size", 64}});
    OrchestrateOptions optimally = planning(1);
    optimally.orchestrator = Orchestrator::Optimal;
    KernelSet set;
    const Plan plan = plan_program(c.after, set, optimally);
    std::map<std::string, int> kernels;  // by normalisation
    size_t with_relu = 0;
    for (const Step& step : plan.steps) {
        const auto nodes = nodes_of(plan, step);
        const auto has = [&](const char* op) {
            return std::any_of(nodes.begin(), nodes.end(), [&](const auto& n) { return n.second == op; });
        };
        for (const auto& [name, op] : nodes) kernels[name] += op == "InstanceNormalization" ? 1 : 0;
        with_relu += has("InstanceNormalization") && has("Relu") ? 1 : 0;
    }
    size_t broken = 0;
    for (const auto& [name, n] : kernels) broken += n > 1 ? 1 : 0;
    EXPECT_GE(broken, 10u) << plan.print();
    EXPECT_GE(with_relu, 9u) << plan.print();
}

/// Projections of one input: BERT's queries, keys and values are merged into one product, in every layer.
TEST(RewrittenModels, queries_keys_and_values_of_bert_are_merged_into_one_product) {
    const ZooModel model = build_zoo_model("bert_tiny", 0, {{"seq", 32}});
    const Program p = lower_model(load_model_from_bytes(model.bytes.data(), model.bytes.size()), {});
    size_t of_three = 0;
    for (const Patch& patch : find_all(RewriteContext(p), *rewrite_rule("merge_products"))) {
        const auto anew = std::count_if(patch.primitives.begin(), patch.primitives.end(), [&](const Primitive& q) {
            return p.values.contains(q.outputs[0]);  // parts of the merged product
        });
        of_three += anew == 3 ? 1 : 0;
    }
    EXPECT_EQ(of_three, 4u);  // layers
}

}  // namespace
}  // namespace tilewright
