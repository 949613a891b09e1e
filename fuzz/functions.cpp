// Arbitrary bytes are a library of functions or an error, for a model that calls two of them: no crash, no undefined
// behaviour, and no memory or nodes beyond the limits. Accepted models must verify and print.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/export.h"
#include "graph/import.h"

namespace {

using namespace tilewright;

Node call(const char* function, std::vector<std::string> inputs, const char* output) {
    Node n;
    n.op = function;
    n.domain = "own";
    n.name = output;
    n.inputs = std::move(inputs);
    n.outputs = {output};
    return n;
}

GraphInput vector(const char* name) {
    GraphInput v{name, {}};
    v.type.has_dtype = true;
    v.type.shape = {int64_t{3}};
    return v;
}

/// z = F(G(F(x), x))
const std::string& model() {
    static const std::string bytes = [] {
        Model m;
        m.ir_version = 8;
        m.opsets = {{"", 17}, {"own", 1}};
        m.graph.name = "calls";
        m.graph.inputs = {vector("x")};
        m.graph.nodes = {call("F", {"x"}, "t"), call("G", {"t", "x"}, "y"), call("F", {"y"}, "z")};
        m.graph.outputs = {vector("z")};
        return model_to_bytes(m);
    }();
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ImportLimits limits;
    limits.max_nodes = 10'000;
    limits.max_tensor_bytes = int64_t{64} << 20;
    limits.max_total_bytes = int64_t{128} << 20;
    limits.max_expanded_bytes = int64_t{16} << 20;
    const FunctionLibrary library{"functions", std::string(reinterpret_cast<const char*>(data), size), {}};
    try {
        const Model read = load_model_from_bytes(model().data(), model().size(), {}, limits, {library});
        for (const std::string& problem : read.graph.verify()) {
            std::fprintf(stderr, "an imported graph does not verify: %s\n", problem.c_str());
            std::abort();
        }
        if (read.graph.print().empty()) std::abort();
    } catch (const ModelError&) {
    } catch (const RuntimeError&) {
    }
    return 0;
}
