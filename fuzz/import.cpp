// Arbitrary bytes are either a valid model or an error: no crash, no undefined behaviour, and no memory beyond the
// limits. Accepted models must verify and print.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "graph/import.h"

namespace {

/// A folder with one data file, for models with external data; removed at exit.
const std::string& data_folder() {
    struct Folder {
        Folder() {
            path = (std::filesystem::temp_directory_path() / "tilewright-fuzz-XXXXXX").string();
            if (mkdtemp(path.data()) == nullptr) std::abort();
            std::ofstream(path + "/data.bin") << std::string(64, '\1');
        }
        ~Folder() { std::filesystem::remove_all(path); }
        std::string path;
    };
    static const Folder folder;
    return folder.path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tilewright::ImportLimits limits;
    limits.max_nodes = 10'000;
    limits.max_tensor_bytes = int64_t{64} << 20;
    limits.max_total_bytes = int64_t{128} << 20;
    limits.max_expanded_bytes = int64_t{16} << 20;
    try {
        const tilewright::Model model = tilewright::load_model_from_bytes(data, size, data_folder(), limits);
        for (const std::string& problem : model.graph.verify()) {
            std::fprintf(stderr, "an imported graph does not verify: %s\n", problem.c_str());
            std::abort();
        }
        if (model.graph.print().empty()) std::abort();
    } catch (const tilewright::ModelError&) {
    } catch (const tilewright::RuntimeError&) {
    }
    return 0;
}
