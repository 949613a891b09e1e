// Every operator with operands of every element type: code, or an error with a reason; never an internal error.

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>

#include "compile/pipeline.h"
#include "graph/import.h"
#include "ops/rule_test.h"
#include "ops/type_constraints.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTypes = {DType::F32,    DType::F64,        DType::F16,    DType::BF16,     DType::I8,
                               DType::I16,    DType::I32,        DType::I64,    DType::U8,       DType::U16,
                               DType::U32,    DType::U64,        DType::Bool,   DType::F8E4M3FN, DType::F8E4M3FNUZ,
                               DType::F8E5M2, DType::F8E5M2FNUZ, DType::F8E8M0, DType::I4,       DType::U4,
                               DType::F4E2M1, DType::I2,         DType::U2};

struct Counts {
    int compiled = 0, refused = 0;
};

/// Compiles with the default schedules.
void try_model(const Model& model, const std::string& what, Counts& counts) {
    PipelineOptions options;
    options.rewrite.reset();
    options.passes.verify_each = true;
    options.compile.threads = 1;
    options.compile.scheduler = SchedulerKind::Default;
    try {
        compile_model(model, options);
        ++counts.compiled;
    } catch (const ModelError& e) {
        EXPECT_NE(std::string(e.what()), "") << what;
        ++counts.refused;
    } catch (const std::exception& e) {
        ADD_FAILURE() << what << ": " << e.what();
    }
}

/// One node with as many inputs as the schema has, all of one shape; attributes without default are missing.
Model one_node(const OperatorSchema& schema, DType type, const Shape& shape) {
    std::vector<test::In> inputs;
    std::vector<std::string> names;
    for (size_t k = 0; k < schema.inputs.size(); ++k) {
        names.push_back("x" + std::to_string(k));
        inputs.push_back({names.back(), type, {shape.begin(), shape.end()}});
    }
    Model m = test::model(test::graph(inputs, {test::node(std::string(schema.op), names, {"y"})}, {"y"}, {},
                                      std::max<int64_t>(schema.since, 7)),
                          std::max<int64_t>(schema.since, 7));
    Node& node = m.graph.nodes[0];
    if (const size_t dot = node.op.rfind('.'); dot != std::string::npos) {  // "com.microsoft.Gelu"
        node.domain = node.op.substr(0, dot);
        node.op.erase(0, dot + 1);
        m.opsets[node.domain] = 1;
    }
    return m;
}

TEST(TypeSweep, OfSchemasGivesCodeOrARefusal) {
    std::map<std::string_view, const OperatorSchema*> newest;
    for (const OperatorSchema& s : operator_schemas()) newest[s.op] = &s;
    Counts counts;
    bool scalar = false;  // every other type with operands of rank 0, or else of rank 1
    for (const auto& [op, schema] : newest)
        for (const DType t : kTypes) {
            scalar = !scalar;
            for (const Shape& shape : {scalar ? Shape{} : Shape{3}, Shape{2, 3, 4, 4}})
                try_model(one_node(*schema, t, shape), fmt::format("{} of {}{}", op, to_string(t), to_string(shape)),
                          counts);
        }
    EXPECT_GT(counts.compiled, 500);
    EXPECT_GT(counts.refused, 1000);
}

/// The models of ONNX's conformance cases with one node, one for each operator.
std::map<std::string, Model> models_of_cases() {
    std::map<std::string, Model> out;
    for (const char* suite : {"core", "quant"}) {
        const fs::path root = fs::path(TW_SOURCE_DIR) / "../shared/conformance" / suite;
        if (!fs::exists(root)) continue;
        for (const auto& entry : fs::directory_iterator(root)) {
            const fs::path file = entry.path() / "model.onnx";
            if (!fs::exists(file)) continue;
            Model m = load_model(file.string());
            if (m.graph.nodes.size() == 1) out.emplace(m.graph.nodes[0].op, std::move(m));
        }
    }
    return out;
}

TEST(TypeSweep, OfOnnxsOwnCasesGivesCodeOrARefusal) {
    const std::map<std::string, Model> models = models_of_cases();
    if (models.empty()) GTEST_SKIP() << "no test cases present";
    Counts counts;
    for (const auto& [op, original] : models)
        for (const DType t : kTypes)
            // One input, or all of the first's type; these two are the same where there is one input.
            for (size_t k = original.graph.inputs.size() == 1 ? 1 : 0; k <= original.graph.inputs.size(); ++k) {
                Model m = original;
                for (GraphInput& o : m.graph.outputs) o.type = {};
                const bool all = k == original.graph.inputs.size();
                if (m.graph.inputs.empty()) continue;
                const DType first = m.graph.inputs[0].type.dtype;
                for (size_t i = 0; i < m.graph.inputs.size(); ++i)
                    if (all ? m.graph.inputs[i].type.dtype == first : i == k) m.graph.inputs[i].type.dtype = t;
                try_model(
                    m, fmt::format("{}, {} of type {}", op, all ? "inputs" : fmt::format("input {}", k), to_string(t)),
                    counts);
            }
    EXPECT_GT(counts.compiled, 500);
    EXPECT_GT(counts.refused, 1000);
}

}  // namespace
}  // namespace tilewright
