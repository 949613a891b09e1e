#include "driver/quantize/samples.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "driver/inputs.h"
#include "driver/npz.h"

namespace tilewright::quantize {

namespace fs = std::filesystem;

namespace {

/// Inputs that a file lacks would be random.
void require_all(const std::vector<ModelIo>& declared, const std::string& file) {
    const std::vector<NamedTensor> arrays = load_npz(file);
    for (const ModelIo& io : declared)
        if (std::none_of(arrays.begin(), arrays.end(), [&](const NamedTensor& a) { return a.name == io.name; }))
            model_error("'{}' has no array {}, an input of the model: {}", file, quoted_name(io.name), describe(io));
}

}  // namespace

std::vector<std::vector<Tensor>> load_samples(const std::vector<ModelIo>& declared, const std::string& folder,
                                              size_t most) {
    if (!fs::is_directory(folder)) model_error("'{}' is not a folder", folder);
    std::vector<InputRequest> requests;
    if (fs::exists(folder + "/input_0.pb")) {
        requests.emplace_back().folder = folder;
    } else {
        std::vector<fs::path> paths;
        for (const fs::directory_entry& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
        std::sort(paths.begin(), paths.end());
        for (const fs::path& path : paths) {
            if (path.extension() == ".npz") requests.emplace_back().files = {path.string()};
            if (fs::exists(path / "input_0.pb")) requests.emplace_back().folder = path.string();
        }
    }
    if (requests.empty())
        throw ModelError(fmt::format("'{}' has no samples of the model's inputs", folder),
                         "it may hold .npz files, one a run, with the inputs by name (numpy.savez), or test data sets "
                         "(folders with input_0.pb, input_1.pb, ...)");
    requests.resize(std::min(requests.size(), most));
    std::vector<std::vector<Tensor>> samples;
    for (const InputRequest& request : requests) {
        if (request.folder.empty()) require_all(declared, request.files[0]);
        samples.push_back(make_inputs(declared, request));
    }
    return samples;
}

}  // namespace tilewright::quantize
