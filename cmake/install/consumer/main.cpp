// usage: cpp_consumer MODEL.onnx VERSION
//
// What a stranger's C++17 program does with Tilewright: compiles the model, runs it on ones, prints the outputs.
#include <cstdio>
#include <tilewright/tilewright.hpp>

int main(int argc, char** argv) try {
    if (argc != 3 || tilewright_version() != std::string(argv[2])) return 2;
    try {
        tw::Model::from_file("no/such/file.onnx");
        return 1;
    } catch (const tw::Error&) {
        // as it should be
    }
    tw::Options options;
    options.threads = 1;
    const tw::Model model = tw::Model::from_file(argv[1], options);
    const tw::Io input = model.inputs().at(0);
    std::size_t count = 1;
    for (const std::int64_t d : input.dims) count *= static_cast<std::size_t>(d);
    const std::vector<float> ones(count, 1.0f);
    tw::Session session(model, 1);
    const tw::Tensor output = session.run({tw::tensor(ones, input.dims)}).at(0);
    for (std::size_t i = 0; i < output.count(); ++i) std::printf("%.9g\n", static_cast<double>(output.as<float>()[i]));
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
