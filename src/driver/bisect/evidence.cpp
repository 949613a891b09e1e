#include "driver/bisect/evidence.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "driver/files.h"
#include "driver/npy.h"
#include "graph/export.h"
#include "program/transform/substitute.h"

namespace tilewright::bisect {

namespace {

constexpr int64_t kPrinted = 64;  // elements of a constant whose contents are printed (program.h)

void make_folder(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) throw RuntimeError(fmt::format("cannot make folder '{}': {}", path, error.message()));
}

}  // namespace

void write_evidence(const Evidence& evidence, const std::string& folder) {
    make_folder(folder);
    for (const auto& [name, text] : evidence.texts) write_file(folder + "/" + name, {text});
    for (const auto& [name, tensor] : evidence.tensors) {
        const std::string path = folder + "/" + name + ".npy";
        make_folder(std::filesystem::path(path).parent_path().string());
        save_npy(path, numpy_tensor(tensor));
    }
    if (!evidence.onnx) return;
    write_file(folder + "/model.onnx", {model_to_bytes(evidence.onnx->model)});
    const std::string data = folder + "/test_data_set_0";
    make_folder(data);
    const auto save = [&](const char* prefix, const std::vector<NamedTensor>& tensors) {
        for (size_t k = 0; k < tensors.size(); ++k)
            save_tensor_pb(fmt::format("{}/{}_{}.pb", data, prefix, k), tensors[k]);
    };
    save("input", evidence.onnx->inputs);
    save("output", evidence.onnx->expected);
}

Part part_of(const Program& program, const std::vector<ValueId>& outputs, const Evaluation& evaluation,
             const std::function<bool(ValueId)>& known) {
    std::map<Var, Expr> sizes;
    for (const auto& [name, size] : evaluation.names) sizes.emplace(name, Expr(size));
    const auto selected = [&](ValueId v) { return evaluation.values.count(v) != 0 && known(v); };
    const Cone c = cone(program, outputs, selected);
    const Program sized = substitute_names(program, sizes);
    Part part;
    part.program = sized;
    Program& p = part.program;
    p.name = "part";
    p.outputs = outputs;
    p.inputs.clear();
    p.requirements.clear();
    p.primitives = {};
    std::set<ValueId> read(outputs.begin(), outputs.end());
    for (const PrimitiveId id : c.primitives) {
        const Primitive& primitive = sized.primitives[id];
        if (std::holds_alternative<ReadScalar>(primitive.kind)) continue;
        const std::vector<ValueId> inputs = primitive.inputs();
        read.insert(inputs.begin(), inputs.end());
        p.primitives.push_back(primitive);
    }
    std::erase_if(p.constants, [&](const auto& constant) { return read.count(constant.first) == 0; });
    const auto give = [&](ValueId v, const Tensor& tensor) {
        p.inputs.push_back(v);
        part.inputs.push_back({p.values[v].name, tensor});
    };
    for (const ValueId v : c.from) {
        const auto it = evaluation.values.find(v);
        give(v, it == evaluation.values.end() ? Tensor() : it->second);
    }
    for (auto it = p.constants.begin(); it != p.constants.end();) {
        if (it->second.count() <= kPrinted) {
            ++it;
            continue;
        }
        give(it->first, it->second);
        it = p.constants.erase(it);
    }
    return part;
}

std::set<std::string> nodes_of(const Program& program, const std::set<PrimitiveId>& primitives) {
    std::set<std::string> names;
    for (const PrimitiveId id : primitives)
        for (const uint32_t node : program.primitives[id].origin.nodes) names.insert(program.nodes.at(node).name);
    return names;
}

std::optional<OnnxCase> onnx_case(const Model& model, const std::set<std::string>& nodes, const std::string& wanted,
                                  const KnownTensors& known) {
    std::vector<std::string> results;
    for (const Node& n : model.graph.nodes) {
        if (nodes.count(n.name) == 0) continue;
        if (std::find(n.outputs.begin(), n.outputs.end(), wanted) != n.outputs.end()) {
            results = {wanted};
            break;
        }
        std::vector<std::string> shown;
        for (const std::string& name : n.outputs)
            if (known.count(name) != 0) shown.push_back(name);
        if (!shown.empty()) results = shown;
    }
    std::map<std::string, DeclaredType> types;
    for (const auto& [name, tensor] : known) types.emplace(name, declared_type(tensor));
    std::vector<GraphInput> outputs;
    OnnxCase out;
    for (const std::string& name : results) {
        if (known.count(name) == 0) return std::nullopt;
        outputs.push_back({name, types.at(name)});
        out.expected.push_back({name, known.at(name)});
    }
    if (outputs.empty()) return std::nullopt;
    try {
        Submodel part = submodel(model, nodes, outputs, types);
        for (const std::string& name : part.inputs) out.inputs.push_back({name, known.at(name)});
        out.model = std::move(part.model);
    } catch (const ModelError&) {
        return std::nullopt;
    }
    return out;
}

std::set<std::string> with_producers(const Model& model, const std::set<std::string>& nodes) {
    std::map<std::string, const Node*> producers;
    for (const Node& n : model.graph.nodes)
        for (const std::string& name : n.outputs) producers[name] = &n;
    std::set<std::string> more = nodes;
    for (const Node& n : model.graph.nodes)
        if (nodes.count(n.name) != 0)
            for (const std::string& name : n.inputs)
                if (const auto it = producers.find(name); it != producers.end()) more.insert(it->second->name);
    return more;
}

}  // namespace tilewright::bisect
