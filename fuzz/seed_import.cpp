// usage: seed_fuzz_import FOLDER      writes one small model for each feature of the format

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "graph/import_models_test.h"
#include "onnx/onnx_pb.h"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    std::filesystem::create_directories(argv[1]);
    for (const auto& [name, model] : tilewright::import_test::sample_models()) {
        const std::string bytes = tilewright::import_test::to_bytes(model);
        std::ofstream out(std::filesystem::path(argv[1]) / (name + ".onnx"), std::ios::binary);
        if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return 1;
    }
    return 0;
}
