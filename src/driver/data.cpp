#include "driver/data.h"

#include <filesystem>

#include "base/error.h"
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

std::vector<Tensor> load_numbered(const std::string& folder, const std::string& prefix) {
    if (!std::filesystem::is_directory(folder)) model_error("'{}' is not a folder", folder);
    std::vector<Tensor> out;
    for (;;) {
        const std::string path = fmt::format("{}/{}_{}.pb", folder, prefix, out.size());
        if (!std::filesystem::exists(path)) return out;
        out.push_back(load_tensor_pb(path).value);
    }
}

}  // namespace tilewright
