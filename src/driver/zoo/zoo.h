#pragma once
// Well-known architectures, written as ONNX files from code, with seeded weights.
//
// The graphs have the real dimensions and the real number of layers; the weights are random, scaled so that activations
// keep their size from the first layer to the last. That is what a compiler needs to be tested and timed without any
// download: arithmetic, memory traffic and graph habits of the real model, outputs that are finite and depend on the
// inputs. The predictions mean nothing.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "graph/graph.h"

namespace tilewright {

/// What may be set about a model: "batch", "seq", "size", "opset", ... In `batch` and `seq` 0 leaves the extent
/// symbolic.
using ZooSettings = std::map<std::string, int64_t>;

struct ZooOption {
    std::string name;
    int64_t fallback = 0;  ///< the value when nothing is set
    int64_t lowest = 0;
    int64_t highest = 0;
    std::string help;
};

/// One input of a model. Float inputs expect roughly standard normal numbers; integer inputs lie in [0, limit).
struct ZooInput {
    std::string name;
    DType dtype = DType::F32;
    std::vector<DeclaredDim> shape;
    int64_t limit = 0;
};

/// A model of the zoo, as it is with its default settings.
struct ZooEntry {
    std::string name;
    std::string description;
    std::vector<ZooOption> options;
    std::vector<ZooInput> inputs;
    std::vector<std::string> outputs;
    int64_t parameters = 0;  ///< trainable numbers, as papers count them (batch-norm statistics are not among them)
    int64_t macs = 0;  ///< multiply-adds of convolutions and matrix products; symbolic extents at ZooModel's values
};

/// A model in memory.
struct ZooModel {
    std::string bytes;  ///< the serialised ModelProto
    std::vector<ZooInput> inputs;
    std::vector<std::string> outputs;
    int64_t parameters = 0;
    int64_t macs = 0;  ///< with batch = 1 and seq = 128 where they are symbolic
};

/// Every model, by family. Built on first use (milliseconds); thread-safe.
const std::vector<ZooEntry>& zoo();

/// Builds a model in memory. The same name, seed and settings give the same bytes on every machine.
/// Throws ModelError for an unknown name (with near names as the hint), an unknown setting or one out of its range, and
/// for a model that would pass the 2 GB that an ONNX file can hold.
ZooModel build_zoo_model(std::string_view name, uint64_t seed = 0, const ZooSettings& settings = {});

/// The same, into a file. Throws RuntimeError when it cannot be written; no half-written file stays behind.
void write_zoo_model(std::string_view name, const std::string& path, uint64_t seed = 0,
                     const ZooSettings& settings = {});

}  // namespace tilewright
