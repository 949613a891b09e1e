// --target cuda, as the help of dump, run and verify says.

#include <gmock/gmock.h>

#include "onnx/onnx_pb.h"

#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::AllOf;
using testing::HasSubstr;

class GpuCommand : public testing::Test {
  protected:
    /// y = Relu(x a), x: [batch, 16].
    GpuCommand() {
        onnx::ModelProto m = new_model();
        onnx::GraphProto& g = *m.mutable_graph();
        add_input(g, "x", {1, 16});
        g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(
            "batch");
        add_input(g, "a", {16, 24});
        add_node(g, "MatMul", {"x", "a"}, {"c"});
        add_node(g, "Relu", {"c"}, {"y"});
        add_output(g, "y");
        for (onnx::ValueInfoProto& o : *g.mutable_output()) o.mutable_type()->mutable_tensor_type()->clear_shape();
        place_.write("model.onnx", m);
    }
    Workplace place_;
};

TEST_F(GpuCommand, dump_shows_the_text_of_kernels) {
    const Result r = place_.run({"dump", "model.onnx", "--stage", "cuda", "--precision", "bf16"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out,
                AllOf(HasSubstr("// kernel 0"), HasSubstr("TW_KERNEL(kernel_0"), HasSubstr("tw::multiply_bf16(")));
    const Result tiles = place_.run({"dump", "model.onnx", "--stage", "tiles", "--target", "cuda:sm_80"});
    EXPECT_THAT(tiles.out, HasSubstr("load 0 access 0"));
    EXPECT_THAT(place_.run({"dump", "model.onnx", "--stage", "asm", "--target", "cuda"}).err,
                HasSubstr("stage 'asm' is there of models for a CPU"));
}

TEST_F(GpuCommand, verify_runs_the_kernels_on_this_cpu_and_prints_the_error) {
    const Result r = place_.run({"verify", "model.onnx", "--target", "cuda:sm_80", "--lockstep", "--dim", "batch=20"});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("largest difference"), HasSubstr("verified")));
    const Result rounded = place_.run({"verify", "model.onnx", "--target", "cuda", "--precision", "bf16", "--lockstep",
                                       "--dim", "batch=20", "--max-relative", "1e-7"});
    EXPECT_EQ(rounded.status, 1) << rounded.out;  // bf16 has two digits
    EXPECT_EQ(place_.run({"verify", "model.onnx", "--lockstep"}).status, 2);
}

TEST_F(GpuCommand, run_says_where_there_is_no_gpu) {
    const Result r = place_.run({"run", "model.onnx", "--target", "cuda:sm_80"});
    if (r.status == 0) GTEST_SKIP() << "there is a GPU";
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, AllOf(HasSubstr("model.onnx was compiled for cuda:sm_80 (1 kernels), but cannot run here:"),
                             HasSubstr("driver")));
    EXPECT_EQ(place_.run({"run", "model.onnx", "--precision", "tf32"}).status, 2);
}

}  // namespace
}  // namespace tilewright::tool_test
