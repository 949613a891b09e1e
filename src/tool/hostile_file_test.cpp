// Hostile files: whatever a model declares about other files, sizes and itself, the tool ends in time with one error
// line, and no file outside the model's folder is read or written.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "driver/npy.h"
#include "driver/npz.h"
#include "onnx/onnx_pb.h"
#include "tilewright/tilewright.hpp"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

using Entries = std::vector<std::pair<std::string, std::string>>;

const std::string kSecret("\0\0\xe0\x40\0\0\xe0\x40\0\0\xe0\x40\0\0\xe0\x40", 16);  // 7, 7, 7, 7

/// Makes `w` a float[4] whose data is external.
void make_external(onnx::TensorProto& w, const Entries& entries) {
    w.set_name("w");
    w.set_data_type(1);
    w.add_dims(4);
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : entries) {
        onnx::StringStringEntryProto& e = *w.add_external_data();
        e.set_key(key);
        e.set_value(value);
    }
}

/// y = x + w, both float[4], where w is not defined yet.
onnx::ModelProto add_model() {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {4});
    add_node(g, "Add", {"x", "w"}, {"y"}, "add");
    add_output(g, "y", {4});
    return m;
}

/// The same model with external data for w.
onnx::ModelProto external_model(const Entries& entries) {
    onnx::ModelProto m = add_model();
    make_external(*m.mutable_graph()->add_initializer(), entries);
    return m;
}

/// A model below m/, and beside that folder a file that it must not read.
class HostileFile : public testing::Test {
  protected:
    HostileFile() {
        fs::create_directories(place / "m/sub");
        place.folder.write("secret.bin", kSecret);
        place.folder.write("m/data.bin", std::string(16, '\0'));
    }

    Result run(const Entries& entries, const Limits& limits = {20}) {
        place.write("m/model.onnx", external_model(entries));
        return place.run({"run", "m/model.onnx", "--output-dir", "out"}, limits);
    }

    Workplace place;
};

TEST_F(HostileFile, ExternalDataBesideTheModelIsRead) {
    const Result r = run({{"location", "data.bin"}});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(place.exists("out/y.npy"));
}

TEST_F(HostileFile, PathsThatLeaveTheModelsFolderAreRefused) {
    for (const std::string& location :
         {std::string("../secret.bin"), std::string("sub/../../secret.bin"), std::string("a/../../secret.bin"),
          std::string("./../secret.bin"), place / "secret.bin", std::string("//server/share/x"),
          std::string("\\\\server\\share\\x"), std::string("..\\secret.bin"), std::string("C:\\x"), std::string(""),
          std::string("."), std::string("/"), std::string("/dev/zero"), std::string("/proc/self/environ"),
          std::string("secret.bin\0/../../secret.bin", 28)}) {
        SCOPED_TRACE(location);
        const Result r = run({{"location", location}});
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr("'w'"));
        EXPECT_FALSE(place.exists("out")) << "an artefact is left";
    }
}

TEST_F(HostileFile, NamesAreComparedBytewise) {
    const Result r = run({{"location", "DATA.BIN"}});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("does not exist"));
}

TEST_F(HostileFile, EveryCommandChecksPathsAlike) {
    place.write("m/model.onnx", external_model({{"location", "../secret.bin"}}));
    for (const char* command : {"run", "bench", "verify", "check", "dump"}) {
        SCOPED_TRACE(command);
        const Result r = place.run({command, "m/model.onnx"});
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr("leaves the model's folder by '..'"));
    }
    const Result r = place.run({"conformance", "m"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.out, HasSubstr("FAIL m: m/model.onnx: "));
    EXPECT_THAT(r.out, HasSubstr("leaves the model's folder by '..'"));
}

TEST_F(HostileFile, TensorsAreCheckedInEveryPlace) {
    const Entries secret = {{"location", "../secret.bin"}};
    const auto constant = [&](onnx::NodeProto& n) {
        onnx::AttributeProto& a = add_attribute(n, "value");
        a.set_type(onnx::AttributeProto::TENSOR);
        make_external(*a.mutable_t(), secret);
    };
    const auto expect_refused = [&](const char* where, const onnx::ModelProto& model) {
        SCOPED_TRACE(where);
        place.write("m/model.onnx", model);
        const Result r = place.run({"run", "m/model.onnx"}, {20});
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr("leaves the model's folder by '..'"));
    };
    onnx::ModelProto attribute = add_model();
    constant(add_node(*attribute.mutable_graph(), "Constant", {}, {"w"}));
    expect_refused("an attribute", attribute);

    onnx::ModelProto sparse = add_model();
    onnx::SparseTensorProto& t = *sparse.mutable_graph()->add_sparse_initializer();
    t.add_dims(4);
    make_external(*t.mutable_values(), secret);
    t.mutable_indices()->set_data_type(onnx::TensorProto::INT64);
    t.mutable_indices()->add_dims(4);
    for (int i = 0; i < 4; ++i) t.mutable_indices()->add_int64_data(i);
    expect_refused("a sparse tensor's values", sparse);
    t.mutable_indices()->clear_int64_data();
    t.mutable_indices()->clear_dims();
    make_external(*t.mutable_indices(), secret);
    t.mutable_values()->clear_data_location();
    t.mutable_values()->clear_external_data();
    t.mutable_values()->set_raw_data(std::string(16, '\0'));
    expect_refused("a sparse tensor's indices", sparse);

    onnx::ModelProto branch = new_model();
    onnx::GraphProto& g = *branch.mutable_graph();
    add_input(g, "c", {}, onnx::TensorProto::BOOL);
    onnx::NodeProto& choose = add_node(g, "If", {"c"}, {"y"});
    add_output(g, "y", {4});
    for (const char* name : {"then_branch", "else_branch"}) {
        onnx::AttributeProto& a = add_attribute(choose, name);
        a.set_type(onnx::AttributeProto::GRAPH);
        make_external(*a.mutable_g()->add_initializer(), secret);
        a.mutable_g()->set_name(name);
        add_node(*a.mutable_g(), "Neg", {"w"}, {"z"});
        add_output(*a.mutable_g(), "z", {4});
    }
    expect_refused("a branch", branch);

    onnx::ModelProto function = add_model();
    onnx::OperatorSetIdProto& import = *function.add_opset_import();
    import.set_domain("l");
    import.set_version(1);
    constant(add_node(add_function(function, "l", "F", {}, {"v"}), "Constant", {}, {"v"}));
    add_node(*function.mutable_graph(), "F", {}, {"w"}).set_domain("l");
    expect_refused("a function", function);
}

TEST_F(HostileFile, TheLibraryChecksPathsAlike) {
    const auto error = [](const std::function<void()>& f) -> std::string {
        try {
            f();
        } catch (const tw::Error& e) {
            return e.status() == TILEWRIGHT_INVALID_MODEL ? e.what() : "another status";
        }
        return "nothing was refused";
    };
    place.write("m/model.onnx", external_model({{"location", "../secret.bin"}}));
    EXPECT_THAT(error([&] { tw::Model::from_file(place / "m/model.onnx"); }),
                HasSubstr("leaves the model's folder by '..'"));
    const std::string bytes = to_bytes(external_model({{"location", "data.bin"}}));
    EXPECT_THAT(error([&] { tw::Model::from_memory(bytes.data(), bytes.size()); }), HasSubstr("'w'"))
        << "a model from memory has no folder";
}

TEST_F(HostileFile, TensorsOfDataSetsHoldTheirOwnData) {
    place.write("m/model.onnx", external_model({{"location", "data.bin"}}));
    onnx::TensorProto x;
    make_external(x, {{"location", "data.bin"}});
    fs::create_directories(place / "m/test_data_set_0");
    for (const char* path : {"m/x.pb", "m/test_data_set_0/input_0.pb", "m/test_data_set_0/output_0.pb"})
        place.folder.write(path, x.SerializeAsString());
    place.folder.write("m/test_data_set_0/data.bin", kSecret);
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{"--input", "x=m/x.pb"}, {"--data", "m/test_data_set_0"}}) {
        SCOPED_TRACE(more[0]);
        EXPECT_TRUE(refused(place.run({"run", "m/model.onnx", more[0], more[1]})));
    }
    const Result r = place.run({"conformance", "m"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.out, HasSubstr("FAIL m: "));
}

TEST_F(HostileFile, LinksPipesAndFoldersAreRefused) {
    fs::create_symlink("../secret.bin", place / "m/link");
    fs::create_symlink("..", place / "m/up");
    fs::create_hard_link(place / "secret.bin", place / "m/hard");
    ASSERT_EQ(mkfifo((place / "m/pipe").c_str(), 0600), 0);
    for (const auto& [location, reason] :
         {std::pair("link", "symbolic link"), std::pair("up/secret.bin", "symbolic link"),
          std::pair("hard", "hard links"), std::pair("pipe", "not a regular file"), std::pair("sub", "regular file")}) {
        SCOPED_TRACE(location);
        const Result r = run({{"location", location}});
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr(reason));
    }
}

TEST_F(HostileFile, ASwappedFileNeverLeaksTheSecret) {
    place.write("m/model.onnx", external_model({{"location", "swap"}}));
    place.folder.write("inner.bin", std::string(16, '\0'));
    std::atomic<bool> stop = false;
    std::thread swapper([&] {
        for (int i = 0; !stop; ++i) {
            const std::string next = place / fmt::format("next{}", i % 2);
            std::error_code ignored;
            fs::remove(next, ignored);
            if (i % 2 == 0)
                fs::create_symlink("../secret.bin", next, ignored);
            else
                fs::copy_file(place / "inner.bin", next, ignored);
            fs::rename(next, place / "m/swap", ignored);
        }
    });
    save_npy(place / "zeros.npy", Tensor(DType::F32, {4}));
    for (int i = 0; i < 12; ++i) {
        fs::remove_all(place / "out");
        const Result r = place.run({"run", "m/model.onnx", "--input", "x=zeros.npy", "--output-dir", "out"});
        if (r.status == 0)
            EXPECT_EQ(load_npy(place / "out/y.npy"), Tensor(DType::F32, {4})) << "the secret was read";
        else
            EXPECT_TRUE(refused(r));
    }
    stop = true;
    swapper.join();
}

TEST_F(HostileFile, MarkersOfMemoryAddressesAreOrdinaryFileNames) {
    const Result r = run({{"location", "*/_ORT_MEM_ADDR_/*"}, {"offset", "4096"}, {"length", "16"}});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("does not exist"));
}

TEST_F(HostileFile, RangesMustLieInTheFile) {
    for (const auto& [offset, length] :
         {std::pair("-1", "16"), std::pair("0", "-16"), std::pair("1", "16"), std::pair("16", "16"),
          std::pair("9223372036854775807", "16"), std::pair("9223372036854775808", "16"),
          std::pair("0", "1125899906842624"), std::pair("0", "8"), std::pair("0x0", "16"), std::pair("", "16")}) {
        SCOPED_TRACE(std::string(offset) + " " + length);
        const Result r = run({{"location", "data.bin"}, {"offset", offset}, {"length", length}});
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr("'w'"));
    }
}

TEST_F(HostileFile, OutputsAreWrittenBelowTheirFolderWhateverTheirNames) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {2});
    const std::vector<std::string> names = {"../../escaped",       "/escaped", "a/b", "a_b", "..", "y\n\x1b[2J",
                                            std::string(5000, 'n')};
    for (const std::string& name : names) {
        add_node(g, "Neg", {"x"}, {name});
        add_output(g, name, {2});
    }
    place.write("m/model.onnx", m);
    const Result r = place.run({"run", "m/model.onnx", "--output-dir", "deep/out", "--output-npz", "all.npz"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, Not(HasSubstr("\x1b"))) << "a name reaches the terminal unescaped";
    size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(place / "deep")) files += entry.is_regular_file() ? 1 : 0;
    EXPECT_EQ(files, names.size()) << "a file overwrites another, or is outside of the folder";
    EXPECT_FALSE(fs::exists(place / "escaped.npy"));
    EXPECT_FALSE(fs::exists("/escaped.npy"));
    EXPECT_THAT(place.read("all.npz"), Not(HasSubstr("../")));
}

TEST_F(HostileFile, NothingIsUnpackedFromAnArchive) {
    const auto files = [&] {
        std::set<std::string> all;
        for (const auto& entry : fs::recursive_directory_iterator(place.folder.path())) all.insert(entry.path());
        return all;
    };
    place.write("m/model.onnx", external_model({{"location", "data.bin"}}));
    save_npz(place / "in.npz", {{"x", Tensor(DType::F32, {4})}, {"climbs_out", Tensor(DType::F32, {4})}});
    std::string bytes = place.read("in.npz");
    const std::string name = "climbs_out", leaving = "../../away";
    int replaced = 0;
    for (size_t at = 0; (at = bytes.find(name, at)) != std::string::npos; ++replaced)
        bytes.replace(at, name.size(), leaving);
    ASSERT_EQ(replaced, 2) << "the member's header and the directory's entry";
    place.folder.write("in.npz", bytes);
    const std::set<std::string> before = files();
    EXPECT_TRUE(refused(place.run({"run", "m/model.onnx", "--input", "in.npz"})));
    EXPECT_EQ(files(), before);
}

TEST_F(HostileFile, ADamagedTuningDatabaseCausesNoWrongResult) {
    const std::vector<std::string> tune = {
        "op", "gemm m=6 n=16 k=8", "--scheduler", "search",        "--trials", "3", "--iterations",
        "1",  "--database",        "tuning.db",   "--no-calibrate"};
    ASSERT_EQ(place.run(tune).status, 0);
    const std::string good = place.read("tuning.db");
    ASSERT_GT(good.size(), 4096u);
    std::mt19937_64 random(1);
    for (int i = 0; i < 12; ++i) {
        SCOPED_TRACE(i);
        std::string bad = good;
        if (i < 3)
            bad.resize(random() % bad.size());
        else
            for (int changes = 0; changes < 1 << i; ++changes) bad[random() % bad.size()] = static_cast<char>(random());
        for (const char* beside : {"tuning.db-wal", "tuning.db-shm"}) fs::remove(place / beside);
        place.folder.write("tuning.db", bad);
        const Result r = place.run(tune);  // checks the result as well
        EXPECT_TRUE(r.status == 0 ? testing::AssertionSuccess() : refused(r));
    }
}

TEST_F(HostileFile, FilesOfOtherFormatsAreRecognised) {
    const auto error = [&](const std::string& bytes) {
        place.folder.write("f.onnx", bytes);
        const Result r = place.run({"run", "f.onnx"});
        EXPECT_TRUE(refused(r)) << bytes.substr(0, 20);
        EXPECT_THAT(r.err, HasSubstr("f.onnx"));
        return r.err;
    };
    EXPECT_THAT(error(""), HasSubstr("empty"));
    EXPECT_THAT(error("PK\3\4"), HasSubstr("ZIP archive"));
    EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
    EXPECT_THAT(error(std::string(100'000, '\xff')), HasSubstr("damaged"));
    EXPECT_THAT(error("\x7f"
                      "ELF no model"),
                HasSubstr("is no compiled model, or is cut off"));
    for (const char* path : {"none.onnx", ".", "/dev/null"}) EXPECT_TRUE(refused(place.run({"run", path}))) << path;
}

TEST_F(HostileFile, InputFilesOfAnyBytesAreRefusedByName) {
    place.write("model.onnx", relu_model());
    const std::string npy = npy_header(Tensor(DType::F32, {1})) + "1234";
    std::string lying = npy;
    lying.replace(lying.find("(1,)"), 4, "(9999999999,)");
    for (const auto& [name, bytes] :
         std::vector<std::pair<std::string, std::string>>{{"x.npy", ""},
                                                          {"x.npy", "\x93NUMPY"},
                                                          {"x.npy", lying},
                                                          {"x.npy", npy},
                                                          {"x.pb", "\xff\xff\xff"},
                                                          {"x.pb", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x7f\x10\x01"},
                                                          {"x.txt", "1 2 3"}}) {
        place.folder.write(name, bytes);
        const Result r = place.run({"run", "model.onnx", "--input", "x=" + name});
        EXPECT_TRUE(refused(r)) << name;
        EXPECT_THAT(r.err, HasSubstr(name));
    }
    place.folder.write("all.npz", "PK\5\6 and no directory");
    EXPECT_TRUE(refused(place.run({"run", "model.onnx", "--input", "all.npz"})));
    fs::create_directories(place / "set");
    place.folder.write("set/input_0.pb", "\xff");
    EXPECT_TRUE(refused(place.run({"run", "model.onnx", "--data", "set"})));
    ASSERT_EQ(mkfifo((place / "p.npy").c_str(), 0600), 0);
    EXPECT_TRUE(refused(place.run({"run", "model.onnx", "--input", "x=p.npy"}, {10}))) << "waits for a pipe";
}

}  // namespace
}  // namespace tilewright::tool_test
