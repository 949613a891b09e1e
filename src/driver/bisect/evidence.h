#pragma once
// What shows a fault: a folder with the part of the computation that it is in.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/bisect/evaluate.h"
#include "graph/graph.h"
#include "graph/import.h"

namespace tilewright::bisect {

/// Part of a model with the inputs and outputs of one run, as an ONNX test case.
struct OnnxCase {
    Model model;
    std::vector<NamedTensor> inputs, expected;
    bool shows = false;  ///< compiled by itself it gives other results than `expected`
};

/// Files of a test case folder.
struct Evidence {
    std::vector<std::pair<std::string, std::string>> texts;  ///< name and content
    std::vector<std::pair<std::string, Tensor>> tensors;     ///< name without ".npy"
    std::optional<OnnxCase> onnx;                            ///< model.onnx, test_data_set_0
};

/// Writes the files. Throws RuntimeError with the path and the reason.
void write_evidence(const Evidence& evidence, const std::string& folder);

/// Part of a program: `outputs`, computed from the values that are known in `evaluation` (`known` selects among them),
/// the program's inputs, and constants. Dimensions have the sizes of the evaluation. Constants of more than 64
/// elements, whose contents are no part of the printed text, are inputs.
struct Part {
    Program program;
    std::vector<NamedTensor>
        inputs;  ///< in the order of the program's inputs; undefined where the evaluation lacks one
};
Part part_of(const Program& program, const std::vector<ValueId>& outputs, const Evaluation& evaluation,
             const std::function<bool(ValueId)>& known);

/// The ONNX nodes that these primitives come from.
std::set<std::string> nodes_of(const Program& program, const std::set<PrimitiveId>& primitives);

/// The tensors of a model whose contents are known, by name.
using KnownTensors = std::map<std::string, Tensor>;
/// The nodes called `nodes`, with what they read and give in `known`. Nothing where the model cannot be cut there.
/// `wanted`: the tensor to show; where it is none of the model's, the results of the last of the nodes are shown.
std::optional<OnnxCase> onnx_case(const Model& model, const std::set<std::string>& nodes, const std::string& wanted,
                                  const KnownTensors& known);
/// The nodes that compute what `nodes` read, and `nodes`.
std::set<std::string> with_producers(const Model& model, const std::set<std::string>& nodes);

}  // namespace tilewright::bisect
