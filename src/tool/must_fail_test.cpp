// must_fail/CASE.txt: a model as text, a command line, and the exact message with which the tool refuses them.

#include <gtest/gtest.h>
#include <onnx/defs/parser.h>

#include <fstream>
#include <sstream>

#include "base/golden_test.h"
#include "onnx/onnx_pb.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

const std::string kMustFailFolder = TW_SOURCE_DIR "/src/tool/must_fail";

/// The model of the lines that do not begin with '#', in the text format of ONNX's parser; none: no file is written.
std::string model_bytes(const test::Golden& golden) {
    std::istringstream in(golden.input);
    std::string text;
    for (std::string line; std::getline(in, line);)
        if (!line.starts_with('#')) text += line + "\n";
    if (text.find_first_not_of(" \n") == std::string::npos) return "";
    onnx::ModelProto model;
    const auto status = onnx::OnnxParser::Parse(model, text.c_str());
    EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
    const std::string location = test::golden_setting(golden, "external data of the first initializer");
    if (!location.empty()) {
        onnx::TensorProto& t = *model.mutable_graph()->mutable_initializer(0);
        t.clear_float_data();
        t.set_data_location(onnx::TensorProto::EXTERNAL);
        auto& entry = *t.add_external_data();
        entry.set_key("location");
        entry.set_value(location);
    }
    const std::string drop = test::golden_setting(golden, "bytes left out at the end");
    std::string bytes = import_test::to_bytes(model);
    if (!drop.empty()) bytes.resize(bytes.size() - std::stoul(drop));
    return bytes;
}

std::vector<std::string> arguments_of(const test::Golden& golden) {
    std::istringstream in(test::golden_setting(golden, "tilewright"));
    std::vector<std::string> out;
    for (std::string word; in >> word;) out.push_back(word);
    return out;
}

class MustFail : public testing::TestWithParam<test::Golden> {};

TEST_P(MustFail, WithTheMessageOfTheFile) {
    const test::Golden& golden = GetParam();
    const Workplace place;
    const std::string bytes = model_bytes(golden);
    if (!bytes.empty()) std::ofstream(place / "model.onnx", std::ios::binary) << bytes;
    const Result r = place.run(arguments_of(golden));
    EXPECT_EQ(r.status, 1) << r.err;
    test::expect_golden(golden, r.out + r.err);
}

INSTANTIATE_TEST_SUITE_P(Messages, MustFail, testing::ValuesIn(test::golden_files(kMustFailFolder)),
                         [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace tilewright::tool_test
