// usage: seed_fuzz_functions FOLDER      writes libraries of the functions F and G that fuzz_functions calls

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace {

onnx::FunctionProto& function(onnx::ModelProto& library, const char* name, const std::vector<const char*>& inputs) {
    onnx::FunctionProto& f = *library.add_functions();
    f.set_name(name);
    f.set_domain("own");
    for (const char* input : inputs) f.add_input(input);
    f.add_output("r");
    for (const char* domain : {"", "own"}) {
        onnx::OperatorSetIdProto& imported = *f.add_opset_import();
        imported.set_domain(domain);
        imported.set_version(domain[0] == '\0' ? 17 : 1);
    }
    return f;
}

onnx::NodeProto& node(onnx::FunctionProto& f, const char* op, const std::vector<const char*>& inputs,
                      const char* output = "r") {
    onnx::NodeProto& n = *f.add_node();
    n.set_op_type(op);
    for (const char* input : inputs) n.add_input(input);
    n.add_output(output);
    return n;
}

/// F of operators; G calls F.
onnx::ModelProto nested() {
    onnx::ModelProto library;
    library.set_ir_version(8);
    onnx::FunctionProto& f = function(library, "F", {"a"});
    node(f, "Neg", {"a"}, "n");
    node(f, "Relu", {"n"});
    onnx::FunctionProto& g = function(library, "G", {"a", "b"});
    node(g, "F", {"b"}, "c").set_domain("own");
    node(g, "Add", {"a", "c"});
    return library;
}

/// F with an attribute; G with an If of a constant.
onnx::ModelProto with_attributes() {
    onnx::ModelProto library;
    library.set_ir_version(9);
    onnx::FunctionProto& f = function(library, "F", {"a"});
    f.add_attribute("alpha");  // calls leave it out
    onnx::AttributeProto& reference = *node(f, "LeakyRelu", {"a"}).add_attribute();
    reference.set_name("alpha");
    reference.set_ref_attr_name("alpha");
    reference.set_type(onnx::AttributeProto::FLOAT);
    onnx::FunctionProto& g = function(library, "G", {"a", "b"});
    node(g, "ReduceMax", {"a"}, "m");
    node(g, "Less", {"m", "m"}, "c");
    onnx::NodeProto& choice = node(g, "If", {"c"});
    for (const char* branch : {"then_branch", "else_branch"}) {
        onnx::AttributeProto& body = *choice.add_attribute();
        body.set_name(branch);
        body.set_type(onnx::AttributeProto::GRAPH);
        onnx::NodeProto& n = *body.mutable_g()->add_node();
        n.set_op_type("Mul");
        n.add_input("a");
        n.add_input("b");
        n.add_output("p");
        body.mutable_g()->set_name(branch);
        body.mutable_g()->add_output()->set_name("p");
    }
    return library;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    const std::vector<onnx::ModelProto> libraries = {nested(), with_attributes()};
    for (size_t i = 0; i < libraries.size(); ++i) {
        const std::string bytes = libraries[i].SerializeAsString();
        std::ofstream out(folder / (std::to_string(i) + ".onnx"), std::ios::binary);
        if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return 1;
    }
    return 0;
}
