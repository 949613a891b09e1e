// The operators of the ONNX project's own test cases as CUDA text: what they are lowered to, primitive by primitive, on
// the numbers that the cases give them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "backend/cuda/lockstep_cases_test.h"
#include "base/error.h"
#include "cost/target_with_test.h"
#include "graph/import.h"
#include "ops/lowering.h"
#include "schedule/default_schedule.h"

namespace tilewright::cuda {
namespace {

using namespace test;
namespace fs = std::filesystem;

struct OperatorKernel {
    std::string name;
    TileProgram program;
    KernelText text;
    std::vector<Tensor> inputs;
    Tensor expected;
    Bindings bindings;  ///< sizes that only the data decides
};

std::vector<Tensor> load_tensors(const fs::path& folder, const std::string& kind) {
    std::vector<Tensor> out;
    for (int k = 0;; ++k) {
        const fs::path file = folder / fmt::format("{}_{}.pb", kind, k);
        if (!fs::exists(file)) return out;
        out.push_back(load_tensor_pb(file.string()).value);
    }
}

/// Numbers that only the run reads stand in it.
bool needs_scalars(const TensorExpr& e) {
    std::vector<Expr> all = e.extents;
    for (const Access& a : e.accesses) {
        all.insert(all.end(), a.index.begin(), a.index.end());
        all.insert(all.end(), a.valid.begin(), a.valid.end());
    }
    for (const ScalarBody* body : {&e.body, &e.epilogue})
        for (const ScalarNode& n : body->nodes())
            if (n.op == ScalarOp::Index) all.push_back(n.index);
    return std::any_of(all.begin(), all.end(), [](Expr x) {
        const std::vector<Var> names = variables(x);
        return std::any_of(names.begin(), names.end(), [](Var v) { return v.kind == VarKind::Scalar; });
    });
}

/// One primitive as a program of its own.
Program alone(const Program& p, const Primitive& primitive) {
    Program out;
    out.name = "operator";
    TensorExpr e = *primitive.expr();
    std::map<ValueId, ValueId> moved;
    for (Access& a : e.accesses) {
        const auto [it, is_new] = moved.emplace(a.value, ValueId());
        if (is_new) {
            it->second = out.values.push_back(p.values[a.value]);
            out.inputs.push_back(it->second);
        }
        a.value = it->second;
    }
    const ValueId result = out.values.push_back(p.values[primitive.outputs[0]]);
    Primitive only = primitive;
    only.outputs = {result};
    only.kind = std::move(e);
    out.primitives.push_back(std::move(only));
    out.outputs = {result};
    return out;
}

/// Bytes of all values of static size.
int64_t known_bytes(const Program& p) {
    int64_t all = 0;
    for (const Value& v : p.values) {
        auto bytes = static_cast<int64_t>(byte_size(v.dtype));
        for (const Expr& d : v.shape) bytes *= d.is_constant() ? d.constant() : 1;
        all += bytes;
    }
    return all;
}

/// The kernels of a case that no case before had; false where it is a whole network, whose operators other cases have.
bool collect(const fs::path& folder, std::set<std::string>& seen, std::vector<OperatorKernel>& out, int& refused) {
    constexpr int64_t kMostBytes = int64_t{64} << 20;
    const Model model = load_model((folder / "model.onnx").string());
    Program p = lower(model);
    if (known_bytes(p) > kMostBytes) return false;
    // Every operand and result of a primitive, as the interpreter has it.
    std::vector<PrimitiveId> wanted;
    std::vector<ValueId> values;
    for (const PrimitiveId id : p.primitives.ids()) {
        const TensorExpr* e = p.primitives[id].expr();
        if (e == nullptr || needs_scalars(*e)) continue;
        wanted.push_back(id);
        values.push_back(p.primitives[id].outputs[0]);
        for (const Access& a : e->accesses) values.push_back(a.value);
    }
    std::map<ValueId, Tensor> known(p.constants.begin(), p.constants.end());
    const std::vector<Tensor> inputs = load_tensors(folder / "test_data_set_0", "input");
    for (size_t i = 0; i < p.inputs.size() && i < inputs.size(); ++i) known[p.inputs[i]] = inputs[i];
    p.outputs.clear();
    for (const ValueId v : values)
        if (known.count(v) == 0 && std::find(p.outputs.begin(), p.outputs.end(), v) == p.outputs.end())
            p.outputs.push_back(v);
    const std::vector<Tensor> results = interpret(p, inputs);
    for (size_t k = 0; k < results.size(); ++k) known[p.outputs[k]] = results[k];

    const Target target = tilewright::test::target_with({.lanes = 4});
    for (const PrimitiveId id : wanted) {
        const Primitive& primitive = p.primitives[id];
        OperatorKernel kernel;
        kernel.program = default_schedule(alone(p, primitive), target);
        if (!seen.insert(print(kernel.program)).second) continue;
        try {
            kernel.text = generate(kernel.program, h200(), fmt::format("kernel_{}", out.size()));
        } catch (const RuntimeError&) {  // tiles for a CPU's cache that are too large for a block
            ++refused;
            continue;
        }
        kernel.name = fmt::format("{}: {}", folder.filename().string(), primitive.name);
        const auto bind = [&](ValueId v) {
            bind_shape(kernel.bindings, p.values[v].shape, known.at(v).shape(), p.values[v].name);
        };
        std::set<ValueId> given;
        for (const Access& a : primitive.expr()->accesses)
            if (given.insert(a.value).second) {
                kernel.inputs.push_back(known.at(a.value));
                bind(a.value);
            }
        kernel.expected = known.at(primitive.outputs[0]);
        bind(primitive.outputs[0]);
        out.push_back(std::move(kernel));
    }
    return true;
}

/// "" where the kernel gives what the interpreter gave.
std::string difference_of(const TestKernels& kernels, size_t k, const OperatorKernel& kernel) {
    try {
        const Program& stages = kernel.program.stages;
        std::vector<Tensor> inputs;  // axes may have been merged
        for (size_t i = 0; i < kernel.inputs.size(); ++i)
            inputs.push_back(
                kernel.inputs[i].reshaped(evaluate(stages.values[stages.inputs[i]].shape, kernel.bindings)));
        const Tensor got = kernels.run(k, stages, inputs, kernel.bindings).at(0).reshaped(kernel.expected.shape());
        const double difference = largest_difference({kernel.expected}, {got});
        return difference <= 1e-4
                   ? ""
                   : fmt::format("{} from the interpreter: {}", difference, error_text({kernel.expected}, {got}));
    } catch (const std::exception& e) {
        return e.what();
    }
}

TEST(CudaOperators, OfTheTestCasesComputeWhatTheInterpreterDoes) {
    std::vector<OperatorKernel> kernels;
    std::set<std::string> seen, operators;
    int refused = 0;
    for (const char* suite : {"core", "quant"}) {
        const fs::path root = fs::path(TW_SOURCE_DIR) / "../shared/conformance" / suite;
        if (!fs::exists(root / "index.tsv")) GTEST_SKIP() << "no " << suite << " test cases at hand";
        std::vector<fs::path> cases;
        for (const auto& entry : fs::directory_iterator(root))
            if (entry.is_directory()) cases.push_back(entry.path());
        std::sort(cases.begin(), cases.end());
        for (const fs::path& folder : cases) try {
                // A case for each new operator.
                const Model model = load_model((folder / "model.onnx").string());
                std::set<std::string> fresh;
                for (const Node& n : model.graph.nodes)
                    if (operators.count(n.domain + n.op) == 0) fresh.insert(n.domain + n.op);
                if (!fresh.empty() && collect(folder, seen, kernels, refused)) operators.merge(fresh);
            } catch (const ModelError&) {  // what has no rule has no kernel
            }
    }
    ASSERT_GT(kernels.size(), size_t{100});
    EXPECT_LE(refused, 5);
    std::cout << operators.size() << " operators, " << kernels.size() << " kernels, " << refused << " refused\n";
    constexpr size_t kMany = 64;
    for (size_t from = 0; from < kernels.size(); from += kMany) {
        std::vector<KernelText> texts;
        const size_t to = std::min(from + kMany, kernels.size());
        for (size_t k = from; k < to; ++k) texts.push_back(kernels[k].text);
        const TestKernels runner(texts);
        for (size_t k = from; k < to; ++k) {
            const std::string wrong = difference_of(runner, k - from, kernels[k]);
            EXPECT_EQ(wrong, "") << kernels[k].name << "\n" << print(kernels[k].program) << texts[k - from].text;
            if (wrong.empty()) count_executed(kernels[k].program);
        }
    }
}

}  // namespace
}  // namespace tilewright::cuda
