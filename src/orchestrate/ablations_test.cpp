// Plans with one mechanism switched off compute the same outputs, and do not use the mechanism.

#include "orchestrate/ablations.h"
#include "compile/pipeline.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cost/given_test.h"
#include "orchestrate/operators.h"
#include "orchestrate/options.h"
#include "orchestrate/program_test.h"
#include "orchestrate/run_plan_test.h"
#include "orchestrate/scheduling_test.h"

namespace tilewright {
namespace {

using namespace tilewright::test;

/// Makes primitives whose names begin alike ("softmax/max", "softmax/exp") come from one node of the model.
Program with_nodes(Program p) {
    std::map<std::string, uint32_t> nodes;
    for (Primitive& q : p.primitives) {
        const std::string node = q.name.substr(0, q.name.find('/'));
        const auto [it, fresh] = nodes.try_emplace(node, static_cast<uint32_t>(p.nodes.size()));
        if (fresh) p.nodes.push_back({node, "Op"});
        q.origin.nodes = {it->second};
    }
    return p;
}

/// A product with bias, scale and softmax: operators of one stage, of several, and a cheap one in between.
const char* const kScores = R"(program scores {
  input x: f32[32, 24]
  input w: f32[24, 40]
  p: f32[32, 40] = [32, 40] sum(i2 < 24) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; product Gemm
  q: f32[32, 40] = [32, 40] mul(@0, 0.125) where @0 = p[i0, i1]  ; scale Mul
  m: f32[32, 1] = [32, 1] max(i2 < 40) @0 where @0 = q[i0, i2]  ; "softmax/max" Softmax
  e: f32[32, 40] = [32, 40] exp(sub(@0, @1)) where @0 = q[i0, i1], @1 = m[i0, 0]  ; "softmax/exp" Softmax
  s: f32[32, 1] = [32, 1] sum(i2 < 40) @0 where @0 = e[i0, i2]  ; "softmax/sum" Softmax
  d: f32[32, 40] = [32, 40] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0, 0]  ; "softmax/div" Softmax
  y: f32[32, 40] = [32, 40] add(@0, 1.0) where @0 = d[i0, i1]  ; plus Add
  output y
})";

/// Two reductions along different axes that read the same cheap values.
const char* const kShared = R"(program shared {
  input x: f32[256, 256]
  a: f32[256, 256] = [256, 256] abs(@0) where @0 = x[i0, i1]  ; abs Abs
  b: f32[256, 256] = [256, 256] max(@0, 0.5) where @0 = a[i0, i1]  ; max Max
  r: f32[256] = [256] sum(i1 < 256) @0 where @0 = b[i0, i1]  ; rows ReduceSum
  z: f32[256] = [256] sum(i1 < 256) @0 where @0 = b[i1, i0]  ; columns ReduceSum
  output r
  output z
})";

/// A reduction of rows whose statistics are outputs as well.
const char* const kSeveral = R"(program several {
  input x: f32[64, 128]
  s: f32[64] = [64] sum(i1 < 128) @0 where @0 = x[i0, i1]  ; sum ReduceSum
  y: f32[64, 128] = [64, 128] div(@0, @1) where @0 = x[i0, i1], @1 = s[i0]  ; div Div
  output s
  output y
})";

/// Two convolutions and their residual connection.
const char* const kBlock = R"(program block {
  input x: f32[1, 32, 10, 10]
  input w: f32[32, 32, 3, 3]
  input w1: f32[32, 32, 3, 3]
  c: f32[1, 32, 10, 10] = [1, 32, 10, 10] sum(i4 < 32, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and 10 - i2 - i5 >= 0 and i3 + i6 - 1 >= 0 and 10 - i3 - i6 >= 0 else 0, @1 = w[i1, i4, i5, i6]  ; conv Conv
  r: f32[1, 32, 10, 10] = [1, 32, 10, 10] max(@0, 0.0) where @0 = c[i0, i1, i2, i3]  ; relu Relu
  f: f32[1, 32, 10, 10] = [1, 32, 10, 10] sum(i4 < 32, i5 < 3, i6 < 3) mul(@0, @1) where @0 = r[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and 10 - i2 - i5 >= 0 and i3 + i6 - 1 >= 0 and 10 - i3 - i6 >= 0 else 0, @1 = w1[i1, i4, i5, i6]  ; conv2 Conv
  g: f32[1, 32, 10, 10] = [1, 32, 10, 10] add(@0, @1) where @0 = f[i0, i1, i2, i3], @1 = x[i0, i1, i2, i3]  ; add Add
  y: f32[1, 32, 10, 10] = [1, 32, 10, 10] max(@0, 0.0) where @0 = g[i0, i1, i2, i3]  ; relu2 Relu
  output y
})";

struct Planned {
    Plan plan;
    KernelSet set;
    std::vector<std::set<uint32_t>> parts;  ///< per kernel: its primitives
    std::vector<size_t> outputs;            ///< per kernel: the number of outputs
};

OrchestrateOptions options_of(Orchestrator orchestrator, const Ablations& without) {
    OrchestrateOptions o = orchestration(orchestrator);
    o.without = without;
    return o;
}

Planned plan_of(const Program& p, const OrchestrateOptions& options) {
    Planned out;
    out.plan = plan_program(p, out.set, options);
    EXPECT_EQ(verify(out.plan.program), std::vector<std::string>()) << out.plan.print();
    for (const Step& step : out.plan.steps) {
        const auto& call = std::get<KernelCall>(step.what);
        std::set<uint32_t> parts;
        for (const PrimitiveId id : call.primitives) {
            const std::vector<uint32_t>& some = out.plan.program.primitives[id].origin.parts;
            parts.insert(some.begin(), some.end());
        }
        out.parts.push_back(std::move(parts));
        out.outputs.push_back(out.set.kernels()[call.kernel].stages.outputs.size());
    }
    const std::vector<Tensor> inputs = random_inputs(p, 5);
    EXPECT_LE(largest_difference(interpret(p, inputs), run_by_tiles(out.plan, out.set, inputs)), 1e-5)
        << out.plan.print();
    return out;
}

/// Nodes of the model in a kernel.
std::set<uint32_t> nodes_of(const Program& p, const std::set<uint32_t>& parts) {
    std::set<uint32_t> out;
    for (const uint32_t part : parts) {
        const std::vector<uint32_t>& some = p.primitives[PrimitiveId(part)].origin.nodes;
        out.insert(some.begin(), some.end());
    }
    return out;
}

class Without : public testing::TestWithParam<Orchestrator> {
  protected:
    Planned plan(const char* text, const Ablations& without) const {
        return plan_of(with_nodes(with_weights(text)), options_of(GetParam(), without));
    }
};

INSTANTIATE_TEST_SUITE_P(Orchestrators, Without, testing::Values(Orchestrator::Greedy, Orchestrator::Optimal),
                         [](const auto& of) { return std::string(to_string(of.param)); });

TEST_P(Without, computes_the_same) {
    for (const char* text : {kScores, kShared, kSeveral, kBlock}) {
        plan(text, {});
        plan(text, {.no_fission = true});
        plan(text, {.no_operator_fusion = true});
        plan(text, {.no_redundancy = true});
        plan(text, {.single_output = true});
        plan(text, {.layouts_first = true});
        plan(text, {.no_fission = true, .no_redundancy = true, .single_output = true, .layouts_first = true});
    }
}

/// Every primitive is in some kernel, and repeated ones are in each that computes them.
TEST_P(Without, stages_know_what_they_were_made_of) {
    for (const char* text : {kScores, kShared, kSeveral, kBlock}) {
        const Planned p = plan(text, {});
        std::set<uint32_t> all;
        for (const std::set<uint32_t>& parts : p.parts) all.insert(parts.begin(), parts.end());
        EXPECT_EQ(all.size(), p.plan.unfused.primitives.size()) << p.plan.print();
    }
}

TEST_P(Without, fission_softmax_shares_kernels_with_nothing) {
    const Program model = with_nodes(with_weights(kScores));
    const uint32_t softmax = 2;
    ASSERT_EQ(model.nodes[softmax].name, "softmax");
    const Planned p = plan(kScores, {.no_fission = true});
    for (const std::set<uint32_t>& parts : p.parts) {
        const std::set<uint32_t> nodes = nodes_of(model, parts);
        EXPECT_TRUE(nodes.count(softmax) == 0 || nodes.size() == 1) << p.plan.print();
    }
    // With fission, the addition after the quotient is part of the softmax's kernel.
    const Planned fissioned = plan(kScores, {});
    EXPECT_LT(fissioned.plan.steps.size(), p.plan.steps.size()) << fissioned.plan.print();
}

TEST_P(Without, operator_fusion_each_kernel_is_of_one_node) {
    for (const char* text : {kScores, kShared, kBlock}) {
        const Program model = with_nodes(with_weights(text));
        const Planned p = plan(text, {.no_operator_fusion = true});
        for (const std::set<uint32_t>& parts : p.parts)
            EXPECT_LE(nodes_of(model, parts).size(), 1u) << p.plan.print();  // copies between layouts have none
    }
}

TEST_P(Without, redundancy_each_primitive_is_in_one_kernel) {
    const auto most_kernels = [](const Planned& p) {
        std::map<uint32_t, size_t> kernels;
        for (const std::set<uint32_t>& parts : p.parts)
            for (const uint32_t part : parts) ++kernels[part];
        size_t most = 0;
        for (const auto& [part, n] : kernels) most = std::max(most, n);
        return most;
    };
    if (GetParam() == Orchestrator::Greedy) {
        EXPECT_GT(most_kernels(plan(kShared, {})), 1u);
    }
    for (const char* text : {kScores, kShared, kSeveral, kBlock})
        EXPECT_EQ(most_kernels(plan(text, {.no_redundancy = true})), 1u) << text;
}

TEST_P(Without, several_outputs_each_kernel_writes_one) {
    for (const char* text : {kScores, kShared, kSeveral, kBlock}) {
        const Planned p = plan(text, {.single_output = true});
        for (const size_t outputs : p.outputs) EXPECT_EQ(outputs, 1u) << p.plan.print();
    }
    const Planned p = plan(kSeveral, {});
    EXPECT_EQ(p.plan.steps.size(), 1u) << p.plan.print();
    EXPECT_EQ(p.outputs[0], 2u);
}

/// Layouts of convolutions are chosen before fusion, and they do not prevent fusion.
TEST_P(Without, layouts_after_kernels_blocks_still_fuse) {
    const Planned p = plan(kBlock, {.layouts_first = true});
    EXPECT_LE(p.plan.steps.size(), 4u) << p.plan.print();
}

}  // namespace
}  // namespace tilewright
