#include "compile/random_inputs.h"

#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "graph/graph.h"
#include "runtime/memory_limit.h"

namespace tilewright {

Tensor random_tensor(const std::string& name, DType dtype, const Shape& shape, uint64_t seed) {
    double needed = static_cast<double>(byte_size(dtype));
    for (const int64_t d : shape) needed *= static_cast<double>(d);
    require_memory(needed < 0x1p63 ? static_cast<uint64_t>(needed) : UINT64_MAX,
                   fmt::format("input {} of shape {}", quoted_name(name), to_string(shape)));
    Tensor t(dtype, shape);
    const bool ones = dtype == DType::Bool || name.find("mask") != std::string::npos;
    uint64_t state = hash_combine(hash_text(name), seed);
    const auto uniform = [&] {
        state += 0x9E3779B97F4A7C15ull;
        return static_cast<double>(hash_mix(state) >> 11) * 0x1p-53;
    };
    for (int64_t i = 0; i < t.count(); ++i) {
        if (is_float(dtype) && !ones)
            t.set(i, (uniform() + uniform() + uniform() + uniform() - 2.0) * std::sqrt(3.0));
        else
            t.set(i, ones ? int64_t{1} : static_cast<int64_t>(uniform() * 2));
    }
    return t;
}

std::vector<Tensor> random_inputs(const std::vector<ModelIo>& declared) {
    Bindings sizes;
    for (const ModelIo& io : declared)
        for (const Expr d : io.shape)
            for (const Var v : variables(d)) sizes[v] = 1;
    std::vector<Tensor> inputs;
    inputs.reserve(declared.size());
    for (const ModelIo& io : declared) inputs.push_back(random_tensor(io.name, io.dtype, evaluate(io.shape, sizes), 0));
    return inputs;
}

}  // namespace tilewright
