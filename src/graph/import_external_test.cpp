// External data: allowed locations, and attempts to escape from the model's folder.

#include "graph/import_external.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "graph/import_models_test.h"
#include "onnx/onnx_pb.h"

namespace tilewright::import_detail {
namespace {

using namespace import_test;
using testing::ElementsAre;
namespace fs = std::filesystem;

using Entries = std::vector<std::pair<std::string, std::string>>;

/// A model whose initialiser 'w', four floats, has the given external data.
onnx::ModelProto external(const Entries& entries) {
    onnx::ModelProto m = relu_model();
    onnx::TensorProto& w = *m.mutable_graph()->add_initializer();
    w.set_name("w");
    w.set_data_type(1);
    w.add_dims(4);
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : entries) {
        auto& entry = *w.add_external_data();
        entry.set_key(key);
        entry.set_value(value);
    }
    return m;
}

const std::string kFour("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40", 16);  // 1, 2, 3, 4

class ExternalData : public testing::Test {
  protected:
    /// The text after "initialiser 'w'" in the error.
    std::string import_message(const Entries& entries) const {
        const std::string message = import_error(external(entries), {}, folder_.path());
        const std::string start = "<memory>: initialiser 'w'";
        EXPECT_EQ(message.substr(0, start.size()), start);
        return message.size() < start.size() ? message : message.substr(start.size());
    }
    std::string import_message_at(const std::string& location) const {
        return import_message({{"location", location}});
    }
    Tensor read(const Entries& entries) const {
        return import_model(external(entries), {}, folder_.path()).graph.initializers.at("w");
    }

    TemporaryFolder folder_;
    TemporaryFolder outside_;
};

TEST_F(ExternalData, IsReadFromTheModelsFolder) {
    folder_.write("data.bin", kFour);
    folder_.write("sub/folder/more.bin", "skip" + kFour + "tail");
    EXPECT_THAT(read({{"location", "data.bin"}}).as<float>(), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(read({{"location", "./sub//folder/more.bin"}, {"offset", "4"}, {"length", "16"}, {"checksum", "?"}})
                    .as<float>(),
                ElementsAre(1, 2, 3, 4));
    const std::string path = folder_.write("m.onnx", to_bytes(external({{"location", "data.bin"}})));
    EXPECT_THAT(load_model(path).graph.initializers.at("w").as<float>(), ElementsAre(1, 2, 3, 4));
}

TEST_F(ExternalData, IsFoundBesideAModelOfTheWorkingFolder) {
    folder_.write("data.bin", kFour);
    folder_.write("m.onnx", to_bytes(external({{"location", "data.bin"}})));
    const fs::path before = fs::current_path();
    fs::current_path(folder_.path());
    EXPECT_THAT(load_model("m.onnx").graph.initializers.at("w").as<float>(), ElementsAre(1, 2, 3, 4));
    fs::current_path(before);
}

TEST_F(ExternalData, MayBePackedOrServeSeveralTensors) {
    folder_.write("data.bin", kFour);
    onnx::ModelProto m = external({{"location", "data.bin"}});
    onnx::TensorProto& packed = *m.mutable_graph()->add_initializer();
    packed = m.graph().initializer(0);
    packed.set_name("packed");
    packed.set_data_type(22);
    packed.set_dims(0, 3);
    packed.mutable_external_data(0)->set_value("data.bin");
    const Graph g = import_model(m, {}, folder_.path()).graph;
    EXPECT_THAT(g.initializers.at("packed").as<int8_t>(), ElementsAre(0, 0, 0));
    EXPECT_THAT(g.initializers.at("w").as<float>(), ElementsAre(1, 2, 3, 4));
}

TEST_F(ExternalData, IsRefusedForAModelFromMemory) {
    EXPECT_EQ(
        import_error(external({{"location", "data.bin"}})),
        "<memory>: initialiser 'w': its data is in the file 'data.bin', but no folder for external data is given");
}

TEST_F(ExternalData, IsAlsoCheckedInAttributesAndSubgraphs) {
    onnx::ModelProto m = relu_model();
    onnx::AttributeProto& a = add_attribute(*m.mutable_graph()->mutable_node(0), "body");
    a.set_type(onnx::AttributeProto::GRAPH);
    *a.mutable_g()->add_initializer() = external({{"location", "../x"}}).graph().initializer(0);
    EXPECT_EQ(import_error(m, {}, folder_.path()),
              "<memory>: initialiser 'w': the path '../x' of its external data leaves the model's folder by '..'");
    a.set_type(onnx::AttributeProto::TENSOR);
    *a.mutable_t() = a.g().initializer(0);
    a.clear_g();
    EXPECT_EQ(
        import_error(m, {}, folder_.path()),
        "<memory>: attribute 'body' of node 'act' (Relu, opset 13): the path '../x' of its external data leaves the "
        "model's folder by '..'");
}

TEST_F(ExternalData, PathsMustStayInTheFolder) {
    outside_.write("data.bin", kFour);
    folder_.write("sub/data.bin", kFour);
    const std::string up = " of its external data leaves the model's folder by '..'";
    const std::string beside = "../" + fs::path(outside_.path()).filename().string() + "/data.bin";
    EXPECT_EQ(import_message_at(beside), ": the path '" + beside + "'" + up);
    EXPECT_EQ(import_message_at("sub/../sub/data.bin"), ": the path 'sub/../sub/data.bin'" + up);
    EXPECT_EQ(import_message_at("a/../../x"), ": the path 'a/../../x'" + up);
    EXPECT_EQ(import_message_at(".."), ": the path '..'" + up);
    EXPECT_EQ(import_message_at(outside_ / "data.bin"),
              ": the path '" + outside_ / "data.bin" + "' of its external data is absolute");
    EXPECT_EQ(import_message_at("//host/share"), ": the path '//host/share' of its external data is absolute");
    EXPECT_EQ(import_message_at("\\\\host\\share"),
              ": the path '\\\\\\\\host\\\\share' of its external data has a backslash");
    EXPECT_EQ(import_message_at("..\\x"), ": the path '..\\\\x' of its external data has a backslash");
    EXPECT_EQ(import_message_at("C:/x"), ": the path 'C:/x' of its external data names a drive");
    EXPECT_EQ(import_message_at(""), ": the path '' of its external data is empty");
    EXPECT_EQ(import_message_at("."), ": the path '.' of its external data names a folder");
    EXPECT_EQ(import_message_at("sub/"), ": the path 'sub/' of its external data names a folder");
    EXPECT_EQ(import_message_at(std::string("data\0.bin", 9)),
              ": the path 'data\\u{0}.bin' of its external data has a control character");
}

TEST_F(ExternalData, LinksAreRefused) {
    outside_.write("data.bin", kFour);
    folder_.write("real/data.bin", kFour);
    fs::create_symlink(outside_ / "data.bin", folder_ / "link");
    fs::create_symlink("real/data.bin", folder_ / "inner_link");  // even one that stays inside
    fs::create_directory_symlink(outside_.path(), folder_ / "linked_folder");
    fs::create_directory_symlink("/proc/self", folder_ / "proc");
    const auto link = [](const std::string& name) {
        return ": its data file '" + name + "' is, or is reached through, a symbolic link";
    };
    for (const char* name : {"link", "inner_link", "linked_folder/data.bin", "proc/root/etc/passwd"})
        EXPECT_EQ(import_message_at(name), link(name));
    fs::create_hard_link(outside_ / "data.bin", folder_ / "hard");
    EXPECT_EQ(import_message_at("hard"), ": its data file 'hard' has 2 hard links, where only one is accepted");
}

TEST_F(ExternalData, MustBeARegularFile) {
    fs::create_directory(folder_ / "folder");
    EXPECT_EQ(import_message_at("folder"), ": its data file 'folder' is not a regular file");
    ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(import_message_at("pipe"), ": its data file 'pipe' is not a regular file");  // and does not block
    EXPECT_EQ(import_message_at("none"), ": its data file 'none' does not exist in '" + folder_.path() + "'");
    folder_.write("Data.bin", kFour);
    EXPECT_EQ(import_message_at("data.bin"), ": its data file 'data.bin' does not exist in '" + folder_.path() + "'");
    EXPECT_EQ(import_message_at("Data.bin/x"), ": its data file 'Data.bin/x' cannot be opened: Not a directory");
}

TEST_F(ExternalData, RangeMustLieInTheFileAndFitTheShape) {
    folder_.write("data.bin", kFour);
    const auto range = [&](const std::string& offset, const std::string& length) {
        return import_message({{"location", "data.bin"}, {"offset", offset}, {"length", length}});
    };
    EXPECT_EQ(range("1", "16"), ": its data is 16 bytes at offset 1 of 'data.bin', which has 16 bytes");
    EXPECT_EQ(range("9223372036854775807", "16"),
              ": its data is 16 bytes at offset 9223372036854775807 of 'data.bin', which has 16 bytes");
    const std::string no_number = ", not a number from 0 to 2^63 - 1";
    EXPECT_EQ(range("9223372036854775808", "16"),
              ": the offset of its external data is '9223372036854775808'" + no_number);
    EXPECT_EQ(range("18446744073709551616", "16"),
              ": the offset of its external data is '18446744073709551616'" + no_number);
    for (const char* bad : {"-1", "+1", " 1", "1 ", "0x10", "1e3", ""}) {
        EXPECT_EQ(range(bad, "16"), ": the offset of its external data is '" + std::string(bad) + "'" + no_number);
        EXPECT_EQ(range("0", bad), ": the length of its external data is '" + std::string(bad) + "'" + no_number);
    }
    EXPECT_EQ(range("0", "15"), ": its external data is 15 bytes long, and its shape and type need 16");
    EXPECT_EQ(range("0", "1125899906842624"),
              ": its external data is 1125899906842624 bytes long, and its shape and type need 16");
    EXPECT_EQ(import_message({{"offset", "0"}}), ": its external data has no location");
    EXPECT_EQ(import_message({{"location", "a"}, {"location", "data.bin"}}),
              ": its external data gives the location twice");
}

TEST_F(ExternalData, HugeShapeIsRefusedBeforeAllocation) {
    folder_.write("data.bin", kFour);
    onnx::ModelProto m = external({{"location", "data.bin"}});
    m.mutable_graph()->mutable_initializer(0)->set_dims(0, int64_t{1} << 31);
    EXPECT_EQ(import_error(m, {}, folder_.path()),
              "<memory>: initialiser 'w': its data is 8589934592 bytes at offset 0 of 'data.bin', which has 16 bytes");
}

TEST_F(ExternalData, MoreThanTheMachinesMemoryIsRefusedBeforeReading) {
    // The check does not need the file.
    folder_.write("data.bin", "");
    ImportLimits limits;
    limits.max_tensor_bytes = int64_t{1} << 50;
    limits.max_total_bytes = int64_t{1} << 50;
    onnx::ModelProto m = external({{"location", "data.bin"}});
    m.mutable_graph()->mutable_initializer(0)->set_dims(0, int64_t{1} << 40);
    const std::string bytes = to_bytes(m);
    EXPECT_THROW(load_model_from_bytes(bytes.data(), bytes.size(), folder_.path(), limits), RuntimeError);
}

TEST_F(ExternalData, PathsOfAddressesAreOrdinaryPaths) {
    // One runtime uses a special path for "the offset is an address"; here it is a path like any other.
    EXPECT_EQ(import_message({{"location", "*/_ORT_MEM_ADDR_/*"}, {"offset", "4096"}}),
              ": its data file '*/_ORT_MEM_ADDR_/*' does not exist in '" + folder_.path() + "'");
}

TEST_F(ExternalData, IsNotMixedWithDataInTheModel) {
    folder_.write("data.bin", kFour);
    onnx::ModelProto m = external({{"location", "data.bin"}});
    m.mutable_graph()->mutable_initializer(0)->set_raw_data(kFour);
    EXPECT_EQ(import_error(m, {}, folder_.path()), "<memory>: initialiser 'w' holds its data in more than one way");
}

/// Both implementations must refuse the same paths; the second one serves old kernels.
class OpenBeneath : public testing::TestWithParam<Beneath> {};

TEST_P(OpenBeneath, FollowsNoLink) {
    const TemporaryFolder folder;
    const TemporaryFolder outside;
    outside.write("f", "x");
    folder.write("real/f", "x");
    fs::create_symlink(outside / "f", folder / "link");
    fs::create_directory_symlink(outside.path(), folder / "linked");
    const FileHandle at(open(folder.path().c_str(), O_PATH | O_DIRECTORY));
    const auto error_of = [&](const std::vector<std::string>& path) {
        errno = 0;
        return open_beneath(at.get(), path, GetParam()) ? 0 : errno;
    };
    if (GetParam() == Beneath::OneCall && error_of({"real", "f"}) != 0) GTEST_SKIP() << "this kernel has no openat2";
    EXPECT_EQ(error_of({"real", "f"}), 0);
    EXPECT_EQ(error_of({"link"}), ELOOP);
    EXPECT_EQ(error_of({"linked", "f"}), ELOOP);
    EXPECT_EQ(error_of({"real", "none"}), ENOENT);
    EXPECT_EQ(error_of({"none", "f"}), ENOENT);
    EXPECT_EQ(error_of({"real", "f", "g"}), ENOTDIR);
}

INSTANTIATE_TEST_SUITE_P(Ways, OpenBeneath,
                         testing::Values(Beneath::Automatic, Beneath::OneCall, Beneath::ComponentWise));

}  // namespace
}  // namespace tilewright::import_detail
