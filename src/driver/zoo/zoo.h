#pragma once
// Well-known architectures, generated as ONNX files with seeded weights.
//
// The graphs have the real dimensions and the real number of layers; the weights are random, scaled so that activations
// keep their magnitude from the first layer to the last. That allows testing and timing a compiler without downloads:
// the arithmetic, memory traffic and graph structure are those of the real model, and outputs are finite and depend on
// the inputs. The predictions are meaningless.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "graph/graph.h"

namespace tilewright {

/// The settings of a model by name: "batch", "seq", "size", "opset", ... A `batch` or `seq` of 0 makes the extent
/// symbolic.
using ZooSettings = std::map<std::string, int64_t>;

struct ZooOption {
    std::string name;
    int64_t fallback = 0;  ///< the default
    int64_t lowest = 0;
    int64_t highest = 0;
    std::string help;
};

/// One input of a model. Float inputs expect approximately standard normal numbers; integer inputs are in [0, limit).
struct ZooInput {
    std::string name;
    DType dtype = DType::F32;
    std::vector<DeclaredDim> shape;
    int64_t limit = 0;
};

/// A model of the zoo with its default settings.
struct ZooEntry {
    std::string name;
    std::string description;
    std::vector<ZooOption> options;
    std::vector<ZooInput> inputs;
    std::vector<std::string> outputs;
    int64_t parameters = 0;  ///< trainable numbers as counted in papers (without batch-norm statistics)
    int64_t macs = 0;  ///< multiply-adds of convolutions and matrix products; symbolic extents at ZooModel's values
};

/// A model in memory.
struct ZooModel {
    std::string bytes;  ///< the serialised ModelProto
    std::vector<ZooInput> inputs;
    std::vector<std::string> outputs;
    int64_t parameters = 0;
    int64_t macs = 0;  ///< with batch = 1 and seq = 128 if they are symbolic
};

/// Every model, by family. Built on first use (milliseconds); thread-safe.
const std::vector<ZooEntry>& zoo();

/// Builds a model in memory. The same name, seed and settings give the same bytes on every machine. Throws ModelError
/// for an unknown name (with similar names as the hint), an unknown setting or one out of its range, and for a model
/// above the 2 GB limit of an ONNX file.
ZooModel build_zoo_model(std::string_view name, uint64_t seed = 0, const ZooSettings& settings = {});

/// As build_zoo_model, to a file. Throws RuntimeError if it cannot be written; no partial file is left.
void write_zoo_model(std::string_view name, const std::string& path, uint64_t seed = 0,
                     const ZooSettings& settings = {});

}  // namespace tilewright
