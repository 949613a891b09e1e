#include "driver/data.h"

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "driver/npy.h"
#include "graph/import.h"

namespace tilewright {

Tensor load_tensor(const std::string& path) {
    if (path.ends_with(".npy")) return load_npy(path);
    if (path.ends_with(".pb")) return load_tensor_pb(path).value;
    if (path.ends_with(".npz"))
        throw ModelError(fmt::format("'{}' names its arrays itself", path), "give the file alone: --input " + path);
    model_error("'{}': expected a file that ends in .npy or .pb", path);
}

Tensor random_tensor(const std::string& name, DType dtype, const Shape& shape, uint64_t seed) {
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

std::vector<Tensor> load_numbered(const std::string& folder, const std::string& prefix) {
    if (!std::filesystem::is_directory(folder)) model_error("'{}' is no folder", folder);
    std::vector<Tensor> out;
    for (;;) {
        const std::string path = fmt::format("{}/{}_{}.pb", folder, prefix, out.size());
        if (!std::filesystem::exists(path)) return out;
        out.push_back(load_tensor_pb(path).value);
    }
}

}  // namespace tilewright
