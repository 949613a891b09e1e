#pragma once
// GraphBuilder: ONNX graphs from code.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "driver/zoo/weights.h"
#include "driver/zoo/zoo.h"
#include "graph/graph.h"

namespace tilewright::nets {

using Ints = std::vector<int64_t>;
using Attributes = std::map<std::string, Attribute>;

/// One extent of a value. A symbolic one ("batch") also has the size that is assumed for counts and scalings.
struct Extent {
    int64_t size = 0;
    std::string symbol;

    Extent(int64_t n) : size(n) {}  // NOLINT(google-explicit-constructor): shapes are written as {1, 3, 224}
    Extent(int64_t n, std::string s) : size(n), symbol(std::move(s)) {}
    bool is_symbolic() const { return !symbol.empty(); }
};
using Extents = std::vector<Extent>;

int64_t element_count(const Extents& shape);
/// The product of two extents: batch, seq -> batch*seq, symbolic if either is.
Extent operator*(const Extent& a, const Extent& b);

/// A value of the graph under construction. `mean` and `variance` are the expected distribution of its elements: layers
/// update them, and scale their weights by them. The default Value is a missing input.
struct Value {
    std::string name;
    DType dtype = DType::F32;
    Extents shape;
    double mean = 0;
    double variance = 1;

    int64_t rank() const { return static_cast<int64_t>(shape.size()); }
    /// Negative axes count from the end.
    const Extent& operator[](int64_t axis) const;
    int64_t size(int64_t axis) const { return (*this)[axis].size; }
};

struct BuildOptions {
    uint64_t seed = 0;
    int64_t opset = 17;
    bool keep_batch_norm =
        false;              ///< keep BatchNormalization as a node, instead of folding it into the preceding convolution
    bool with_data = true;  ///< false: shapes and counts only, no weights
};

/// Builds one ONNX graph, node by node. Nodes and weights are named after their scopes, as in PyTorch's exporter: node
/// "/layer1/0/conv1/Conv", weight "layer1.0.conv1.weight".
class GraphBuilder {
  public:
    GraphBuilder(const std::string& graph_name, const BuildOptions& options);
    ~GraphBuilder();
    GraphBuilder(const GraphBuilder&) = delete;
    GraphBuilder& operator=(const GraphBuilder&) = delete;

    const BuildOptions& options() const { return options_; }

    /// Closes its scope when it is destroyed.
    class Scope {
      public:
        explicit Scope(GraphBuilder& builder) : builder_(builder) {}
        ~Scope() { builder_.path_.pop_back(); }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        GraphBuilder& builder_;
    };
    [[nodiscard]] Scope scope(const std::string& name);

    /// A graph input. Integer inputs take values in [0, limit).
    Value input(const std::string& name, DType dtype, const Extents& shape, int64_t limit = 0);
    /// Makes `v` a graph output called `name`.
    void output(const Value& v, const std::string& name);

    /// One node in the current scope. `outputs` give type, shape and distribution; their names are generated.
    std::vector<Value> node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes,
                            std::vector<Value> outputs);
    /// One node with one output of `shape`, of the type and expected distribution of its first input.
    Value node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes,
               const Extents& shape);
    /// One node whose output has type, shape and distribution of its first input.
    Value node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes = {});

    /// A trainable F32 initialiser `leaf` of the current scope; `fill` writes its elements (and is not called if the
    /// model is built without data).
    Value weight(const std::string& leaf, const Ints& shape, const std::function<void(std::span<float>)>& fill);
    /// As above, with random elements drawn under its own name.
    Value weight(const std::string& leaf, const Ints& shape, const Draw& draw);
    /// An initialiser that is not trainable: a mask, a table of positions, batch-norm statistics.
    Value buffer(const std::string& leaf, const Ints& shape, const std::function<void(std::span<float>)>& fill);
    Value buffer(const std::string& leaf, const Ints& shape, const Draw& draw);
    Value buffer(const std::string& leaf, const Tensor& value);
    /// The random numbers that weight(leaf, ...) would draw; empty if built without data.
    std::vector<float> draw(const std::string& leaf, int64_t count, const Draw& draw) const;

    /// A Constant node.
    Value constant(const Tensor& value);
    Value ints(const Ints& values) { return constant(Tensor::of_i64(values)); }  ///< 1-D
    Value int_scalar(int64_t value) { return constant(Tensor::of(DType::I64, {}, Ints{value})); }
    Value scalar(float value) { return constant(Tensor::of(DType::F32, {}, std::vector<float>{value})); }

    void count_macs(int64_t n) { macs_ += n; }
    /// Counts trainable numbers that folding has removed from the file.
    void count_folded_parameters(int64_t n) { parameters_ += n; }

    /// The properties of the model without the bytes.
    ZooModel summary() const;
    /// The serialised ModelProto. Throws ModelError above 2 GB.
    std::string serialize() const;
    /// Serialises directly to a file. Throws ModelError above 2 GB, RuntimeError if the file cannot be written.
    void write(const std::string& path) const;

  private:
    struct Proto;  // the protobuf message stays out of this header

    std::string node_prefix() const;
    std::string weight_name(const std::string& leaf) const;
    std::string unique(const std::string& name);
    void check_size() const;

    BuildOptions options_;
    std::string graph_name_;
    std::unique_ptr<Proto> proto_;
    std::vector<std::string> path_;
    std::map<std::string, int> used_names_;
    std::vector<ZooInput> inputs_;
    std::vector<std::string> outputs_;
    int64_t parameters_ = 0;
    int64_t macs_ = 0;
    int64_t weight_bytes_ = 0;
};

}  // namespace tilewright::nets
