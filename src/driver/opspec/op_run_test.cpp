// Every operator of the table, in small sizes: machine code against the interpreter.

#include <gmock/gmock.h>

#include <set>

#include "compile/pipeline.h"
#include "driver/opspec/check.h"
#include "driver/opspec/op_model.h"
#include "driver/opspec/part.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kSmall = {
    "gemm m=33 n=50 k=70 bias=1 act=gelu",
    "gemm m=33 n=50 k=70 weights=input ta=1 tb=1 batch=3",
    "gemm m=5 n=40 k=7 batch=2 act=hard_swish",
    "gemv m=50 k=70 bias=1 act=relu",
    "gemv m=50 k=70 weights=input",
    "chain m=32 k=16 n=48 h=24",
    "chain m=20 dims=16:48:24:8 batch=2 act=relu",
    "conv1d c=8 w=40 o=12 kw=5 pad=2 bias=1 act=relu",
    "conv2d n=2 c=8 h=14 w=10 o=16 kh=3 kw=1 pad=1 stride=2 groups=2",
    "conv2d c=8 h=14 o=16 kh=3 pad=2 dilation=2 act=mish",
    "conv3d c=3 d=6 h=8 o=8 kd=3 pad=1",
    "conv_transposed2d c=6 h=7 o=8 kh=4 stride=2 pad=1 groups=2 bias=1",
    "conv_transposed3d c=3 d=4 o=5 kd=2 stride=2",
    "depthwise c=20 h=11 kh=3 pad=1 act=relu6 multiplier=2",
    "conv_chain c=8 h=9 o=8 kh=3 pad=1 o2=12 bias=1 act=leaky_relu",
    "pool c=6 h=13 kh=3 stride=2 pad=1",
    "pool c=6 h=13 kh=2 stride=2 pad=1 kind=avg",
    "softmax m=20 n=37",
    "softmax m=20 n=37 axis=first",
    "layernorm m=20 n=37",
    "rmsnorm m=20 n=37",
    "instancenorm c=7 h=9 act=relu pad=2",
    "instancenorm n=2 c=3 h=5 w=8 pad=1 pad_mode=constant",
    "elementwise dims=3:50 op=silu",
    "elementwise dims=3:50 op=softplus",
    "elementwise dims=3:50 op=div with=row",
    "elementwise dims=3:50 op=max",
    "transpose dims=3:4:50 perm=2:0:1",
    "gather rows=9 width=20 count=100",
    "reduce dims=4:5:6 axes=0:2 op=mean",
    "reduce dims=4:5:6 axes=1",
    "reduce dims=4:5:6 axes=0:1:2 op=max",
    "ntrans m=5 n=40",
    "attention heads=2 m=24 k=16 scale=0.25",
    "attention heads=2 m=24 n=30 k=16 mask=causal norm=layer",
    "attention heads=2 m=24 n=30 k=16 h=8 mask=additive bias=1 norm=rms batch=2",
    "attention heads=6 kv_heads=2 m=1 n=30 k=16",
    "attention heads=6 kv_heads=2 m=5 n=30 k=16 batch=2 mask=causal",
    "attention heads=4 kv_heads=1 m=1 n=40 k=8",
    "attention heads=4 m=1 n=40 k=8 mask=additive",
    "linear_attention heads=2 n=30 k=8",
    "mlp_mixer batch=2 tokens=12 channels=20 hidden_tokens=8 hidden_channels=30",
    "gated_mlp m=4 n=40 k=30",
    "gated_mlp m=4 n=40 k=30 down=1 act=gelu_tanh",
    "norm_gemm m=9 n=20 k=30 bias=1 act=tanh",
    "norm_gemm m=9 n=20 k=30 norm=rms act=sigmoid",
    "lora m=9 n=20 k=30 r=4",
};

TEST(SmallOps, CoverTheTable) {
    std::set<std::string> there, covered;
    for (const OpKind& kind : op_kinds()) there.insert(kind.name);
    for (const std::string& line : kSmall) covered.insert(parse_op(line).kind->name);
    EXPECT_EQ(covered, there);
}

/// An operator, run.
struct Ran {
    Compilation compilation;
    std::vector<Tensor> inputs, outputs;

    explicit Ran(const std::string& line, SchedulerKind scheduler = SchedulerKind::Default) {
        const ZooModel model = build_op(parse_op(line), 1);
        PipelineOptions options;
        options.compile.threads = 2;
        options.compile.scheduler = scheduler;
        options.passes.verify_each = true;
        compilation = compile_model(model.bytes.data(), model.bytes.size(), options);
        inputs = draw_inputs(model.inputs, 1);
        Session session(compilation.model, 2);
        outputs = session.run(inputs);
    }
    OpCheck check(double budget) const { return check_outputs(compilation.program, inputs, outputs, budget, 3); }
};

class EveryOp : public testing::TestWithParam<std::string> {};

TEST_P(EveryOp, ComputesWhatTheInterpreterDoes) {
    const Ran run(GetParam());
    const OpCheck all = run.check(1e9);
    EXPECT_TRUE(all.ok) << all.reason;
    EXPECT_FALSE(all.sampled);
    EXPECT_EQ(all.elements, all.total);
    const OpCheck some = run.check(0.6 * point_count(run.compilation.program));
    EXPECT_TRUE(some.ok) << some.reason;
    EXPECT_TRUE(some.sampled);
    EXPECT_GE(some.elements, std::min<int64_t>(some.total, 4));
}

TEST_P(EveryOp, ComputesTheSameWithEveryScheduler) {
    for (const SchedulerKind scheduler :
         {SchedulerKind::Tree, SchedulerKind::Gensor, SchedulerKind::Mcfuser, SchedulerKind::Auto}) {
        const OpCheck all = Ran(GetParam(), scheduler).check(1e9);
        EXPECT_TRUE(all.ok) << to_string(scheduler) << ": " << all.reason;
    }
}

TEST_P(EveryOp, ReportsAWrongElement) {
    Ran run(GetParam());
    Tensor& out = run.outputs.at(0);
    const double points = point_count(run.compilation.program);
    // The first element is in the first sample, and differs by more than rounding.
    double largest = 0;
    for (int64_t i = 0; i < out.count(); ++i) largest = std::max(largest, std::abs(out.get(i)));
    out.set(0, out.get(0) + 1e-3 * largest);
    for (const double budget : {1e9, points / 2}) {
        const OpCheck check = run.check(budget);
        EXPECT_FALSE(check.ok);
        EXPECT_GT(check.error, check.tolerance);
        EXPECT_THAT(check.reason, HasSubstr("output 'out': element ["));
    }
}

INSTANTIATE_TEST_SUITE_P(Small, EveryOp, testing::ValuesIn(kSmall));

TEST(ChainsOfProducts, BecomeOneKernelIfTheEstimateIsBetter) {
    const auto steps = [](const std::string& line, SchedulerKind scheduler) {
        const ZooModel model = build_op(parse_op(line), 1);
        PipelineOptions options;
        options.compile.threads = 2;
        options.compile.scheduler = scheduler;
        return compile_model(model.bytes.data(), model.bytes.size(), options).model->stats().steps;
    };
    int one = 0;
    for (const char* line :
         {"chain m=256 k=64 n=256 h=64", "attention heads=4 m=128 k=32", "attention heads=4 m=128 k=32 scale=0.25",
          "attention heads=4 m=128 k=32 mask=causal", "attention heads=4 m=128 n=96 k=32 h=48 mask=additive"}) {
        const int apart = steps(line, SchedulerKind::Gensor), together = steps(line, SchedulerKind::Mcfuser);
        EXPECT_GT(apart, 1) << line;
        EXPECT_LE(together, apart) << line;
        one += together == 1 ? 1 : 0;
    }
    EXPECT_GE(one, 3);  // which ones depends on the machine
}

// --- windows of programs

Program program_of(const std::string& line) {
    const ZooModel model = build_op(parse_op(line));
    return compile_model(model.bytes.data(), model.bytes.size()).program;
}

TEST(ComputePart, ComputesOnlyTheRequiredElements) {
    const Program chain = program_of("chain m=32 k=16 n=48 h=24");
    EXPECT_EQ(point_count(chain), 32 * 48 * 16 + 32 * 24 * 48);
    const Program part = compute_part(chain, {{{5, 2}, {7, 3}}});
    EXPECT_EQ(point_count(part), 2 * 48 * 16 + 2 * 1 * 48) << "two rows of the intermediate result";

    const Program conv = program_of("conv_chain c=8 h=9 o=8 kh=3 pad=1 o2=12");
    EXPECT_EQ(point_count(compute_part(conv, {{{0, 4, 0, 0}, {1, 5, 1, 2}}})), 8 * 2 * 8 * 9 + 2 * 8);
}

TEST(ComputePart, EqualsTheElementsOfTheFullResult) {
    for (const std::string& line : kSmall) {
        SCOPED_TRACE(line);
        const ZooModel model = build_op(parse_op(line));
        const Program program = compile_model(model.bytes.data(), model.bytes.size()).program;
        const std::vector<Tensor> inputs = draw_inputs(model.inputs, 7);
        const Tensor all = interpret(program, inputs).at(0);
        Box box;  // the middle of each axis
        for (const int64_t n : all.shape()) {
            box.lo.push_back(n / 3);
            box.hi.push_back(std::max(n / 3 + 1, 2 * n / 3));
        }
        const Tensor part = interpret(compute_part(program, {box}), inputs).at(0);
        const Tensor expected = cut(all, box);
        ASSERT_EQ(part.shape(), expected.shape());
        EXPECT_EQ(part.count(), box.count());
        for (int64_t i = 0; i < part.count(); ++i)
            ASSERT_NEAR(part.get(i), expected.get(i), 1e-6 * (1 + std::abs(expected.get(i)))) << "element " << i;
    }
}

TEST(DrawInputs, GivesIndicesOfTheTable) {
    const ZooModel model = build_op(parse_op("gather rows=200 width=1 count=10"));
    const Tensor ids = draw_inputs(model.inputs, 0).at(0);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < ids.count(); ++i) seen.insert(ids.get_int(i));
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), 9);
    EXPECT_EQ(seen.size(), 10u);
}

}  // namespace
}  // namespace tilewright
