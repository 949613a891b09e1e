// run_arrays MODEL.so OUTPUT_FOLDER FILE,DIMENSION,...: runs a compiled model once. The files have the elements of its
// inputs, in their order; OUTPUT_FOLDER/0.bin and so on get those of its outputs, and a line "f32 2 3" each is printed.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tilewright/tilewright.hpp"

namespace {

struct Input {
    std::vector<std::int64_t> shape;
    std::vector<char> bytes;
};

Input read_input(const std::string& argument) {
    std::istringstream parts(argument);
    std::string path, dimension;
    std::getline(parts, path, ',');
    Input input;
    while (std::getline(parts, dimension, ',')) input.shape.push_back(std::stoll(dimension));
    std::ifstream file(path, std::ios::binary);
    input.bytes.assign(std::istreambuf_iterator<char>(file), {});
    return input;
}

void run(const char* model_path, const std::string& folder, const std::vector<Input>& inputs) {
    const tw::Model model = tw::Model::load(model_path);
    const std::vector<tw::Io> io = model.inputs();
    std::vector<tw::Tensor> given;
    for (std::size_t i = 0; i < inputs.size(); ++i)
        given.push_back({io.at(i).dtype, inputs[i].shape, inputs[i].bytes.data(), inputs[i].bytes.size()});
    tw::Session session(model, 2);
    const std::vector<tw::Tensor> outputs = session.run(given);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
        std::ofstream(folder + "/" + std::to_string(o) + ".bin", std::ios::binary)
            .write(static_cast<const char*>(outputs[o].data), static_cast<std::streamsize>(outputs[o].bytes));
        std::cout << tilewright_dtype_name(outputs[o].dtype);
        for (const std::int64_t d : outputs[o].shape) std::cout << ' ' << d;
        std::cout << '\n';
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::cerr << "usage: run_arrays MODEL.so OUTPUT_FOLDER FILE,DIMENSION,...\n";
        return 2;
    }
    try {
        std::vector<Input> inputs;
        for (int i = 3; i < argc; ++i) inputs.push_back(read_input(argv[i]));
        run(argv[1], argv[2], inputs);
    } catch (const std::exception& e) {
        std::cerr << "error: " << e.what() << '\n';
        return 1;
    }
    return 0;
}
