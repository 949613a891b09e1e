#include "graph/import.h"

#include <fcntl.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>

#include "base/error.h"
#include "graph/import_external.h"
#include "graph/import_graph.h"
#include "graph/import_tensor.h"
#include "graph/import_wire.h"
#include "onnx/onnx_pb.h"

namespace tilewright {

namespace {

using namespace import_detail;
namespace io = google::protobuf::io;

std::map<std::string, int64_t> read_opsets(const onnx::ModelProto& model) {
    std::map<std::string, int64_t> opsets;
    for (const auto& import : model.opset_import()) {
        const std::string domain = normalised_domain(import.domain());
        const auto [it, is_new] = opsets.emplace(domain, import.version());
        if (!is_new && it->second != import.version())
            model_error("the model imports the operator set {} in the versions {} and {}",
                        quoted_name(domain.empty() ? "ai.onnx" : domain), it->second, import.version());
    }
    constexpr int64_t kFirstWithOpsets = 3;
    if (model.ir_version() < kFirstWithOpsets) opsets.emplace("", 1);
    return opsets;
}

ModelInfo read_info(const onnx::ModelProto& proto) {
    ModelInfo info;
    info.producer = proto.producer_name();
    info.graph_name = proto.graph().name();
    info.domain = proto.domain();
    info.description = proto.doc_string();
    info.graph_description = proto.graph().doc_string();
    info.version = proto.model_version();
    for (const onnx::StringStringEntryProto& entry : proto.metadata_props()) info.metadata[entry.key()] = entry.value();
    return info;
}

/// Runs `read`, and prefixes its errors with the path of the file.
template <class F>
auto naming_file(const std::string& path, F&& read) {
    try {
        return read();
    } catch (const ModelError& e) {
        throw ModelError(fmt::format("{}: {}", path, e.what()), e.hint());
    } catch (const std::bad_alloc&) {
        throw RuntimeError(fmt::format("out of memory while reading {}", path));
    }
}

constexpr size_t kBeginning = 64;  // bytes

/// Rejects common files that are stored under the name of a model but are not one. `text`: the first kBeginning bytes.
void check_beginning(std::string_view text) {
    if (text.empty()) throw ModelError("the file is empty");
    if (text.substr(0, 30) == "version https://git-lfs.github")
        throw ModelError("the file is a Git LFS pointer, not the model itself",
                         "run `git lfs pull` where the model comes from");
    if (text.substr(0, 2) == "PK")
        throw ModelError("the file is a ZIP archive, not an ONNX model",
                         "PyTorch's own files must be exported with torch.onnx.export");
    if (text.size() >= 8 && text.substr(4, 4) == "ORTM")
        throw ModelError("the file is in ONNX Runtime's own format, not ONNX",
                         "use the .onnx file from which it was made");
}

/// Calls `read(stream)` with bytes that begin as a model does and are not too many.
template <class F>
auto with_bytes(const void* bytes, size_t size, F&& read) {
    check_beginning({static_cast<const char*>(bytes), std::min(size, kBeginning)});
    if (size > INT32_MAX) model_error("the model has {} bytes, and the format ends at 2 GiB", size);
    io::ArrayInputStream stream(bytes, static_cast<int>(size));
    return read(stream);
}

/// Function libraries, as messages.
class Libraries {
  public:
    Libraries(const std::vector<FunctionLibrary>& given, Budget& budget) {
        for (const FunctionLibrary& library : given) naming_file(library.name, [&] { add(library, budget); });
    }
    std::vector<ReadFile>& files() { return files_; }
    bool external_data() const {
        return std::any_of(parts_.begin(), parts_.end(), [](const Parts& p) { return p.external.used(); });
    }

  private:
    struct Parts {
        onnx::ModelProto proto;
        ExternalFiles external;
        TensorReader tensors;
        Parts(const std::string& folder, Budget& budget) : external(folder), tensors(budget, external) {}
    };

    void add(const FunctionLibrary& library, Budget& budget) {
        Parts& parts = parts_.emplace_back(library.folder, budget);
        with_bytes(library.bytes.data(), library.bytes.size(), [&](io::ZeroCopyInputStream& stream) {
            parse_model(stream, static_cast<int64_t>(library.bytes.size()), budget, parts.proto,
                        [](onnx::TensorProto&, const Tensor*) {});
        });
        if (parts.proto.functions_size() == 0) throw ModelError("the file defines no functions");
        files_.push_back({parts.proto, read_opsets(parts.proto), parts.tensors, library.name});
    }

    std::deque<Parts> parts_;
    std::vector<ReadFile> files_;
};

Model read_model(io::ZeroCopyInputStream& stream, int64_t size, const std::string& folder, Budget& budget,
                 Libraries& libraries) {
    ExternalFiles files(folder);
    TensorReader tensors(budget, files);
    onnx::ModelProto proto;
    std::vector<NamedInitializer> initializers;
    parse_model(stream, size, budget, proto, [&](onnx::TensorProto& t, const Tensor* raw) {
        const auto describe = [&] { return "initialiser " + quoted_name(t.name()); };
        initializers.push_back({t.name(), tensors.read(t, raw, true, describe)});
    });
    if (!proto.has_ir_version() || !proto.has_graph())
        model_error("the file is not an ONNX model: it has no {}", proto.has_graph() ? "IR version" : "graph");
    Model model;
    model.path = "<memory>";
    model.producer = proto.producer_name();
    if (!proto.producer_version().empty()) model.producer += " " + proto.producer_version();
    model.info = read_info(proto);
    model.ir_version = proto.ir_version();
    model.opsets = read_opsets(proto);
    ReadFile file{proto, model.opsets, tensors, {}};
    model.graph = convert_main_graph(file, std::move(initializers), libraries.files(), budget);
    model.external_data = files.used() || libraries.external_data();
    return model;
}

/// Opens `path` and passes its bytes to `read(stream, size)`; size is -1 for a pipe, whose size is unknown.
template <class F>
auto with_file(const std::string& path, F&& read) {
    const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) throw RuntimeError(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
    struct stat status {};
    if (fstat(file.get(), &status) != 0)
        throw RuntimeError(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
    if (S_ISDIR(status.st_mode)) throw RuntimeError(fmt::format("cannot read {}: it is a folder", path));
    return naming_file(path, [&] {
        int64_t size = -1;
        if (S_ISREG(status.st_mode)) {
            size = status.st_size;
            char start[kBeginning] = {};
            const ssize_t n = pread(file.get(), start, sizeof(start), 0);
            check_beginning({start, n > 0 ? static_cast<size_t>(n) : 0});
            if (size > INT32_MAX)
                throw ModelError(fmt::format("the file has {} bytes, and the format ends at 2 GiB", size),
                                 "export the model with its weights as external data");
        }
        constexpr int kBlock = 1 << 18;
        io::FileInputStream stream(file.get(), kBlock);
        const auto check_read = [&] {
            if (stream.GetErrno() != 0)
                throw RuntimeError(fmt::format("cannot read {}: {}", path, std::strerror(stream.GetErrno())));
        };
        try {
            auto result = read(stream, size);
            check_read();
            return result;
        } catch (const ModelError&) {
            check_read();  // a read error otherwise looks like a truncated file
            throw;
        }
    });
}

/// Below which a model's external data lies.
std::string folder_of(const std::string& path) {
    const std::string parent = std::filesystem::path(path).parent_path().string();
    return parent.empty() ? "." : parent;
}

}  // namespace

FunctionLibrary read_function_library(const std::string& path) {
    FunctionLibrary library{path, {}, folder_of(path)};
    library.bytes = with_file(path, [](io::ZeroCopyInputStream& stream, int64_t) {
        std::string bytes;
        const void* block = nullptr;
        for (int size = 0; stream.Next(&block, &size); bytes.append(static_cast<const char*>(block), size))
            if (bytes.size() + static_cast<size_t>(size) > INT32_MAX)
                throw ModelError("the file has more than 2 GiB, where the format ends");
        return bytes;
    });
    return library;
}

Model load_model(const std::string& path, const ImportLimits& limits, const std::vector<FunctionLibrary>& libraries) {
    Budget budget(limits);
    Libraries functions(libraries, budget);
    Model model = with_file(path, [&](io::ZeroCopyInputStream& stream, int64_t size) {
        return read_model(stream, size, folder_of(path), budget, functions);
    });
    model.path = path;
    return model;
}

Model load_model_from_bytes(const void* bytes, size_t size, const std::string& folder, const ImportLimits& limits,
                            const std::vector<FunctionLibrary>& libraries) {
    Budget budget(limits);
    Libraries functions(libraries, budget);
    return naming_file("<memory>", [&] {
        return with_bytes(bytes, size, [&](io::ZeroCopyInputStream& stream) {
            return read_model(stream, static_cast<int64_t>(size), folder, budget, functions);
        });
    });
}

NamedTensor load_tensor_pb(const std::string& path) {
    return with_file(path, [&](io::ZeroCopyInputStream& stream, int64_t size) {
        Budget budget{ImportLimits()};
        ExternalFiles no_files{""};
        TensorReader tensors(budget, no_files);
        NamedTensor result;
        parse_tensor(stream, size, [&](onnx::TensorProto& t, const Tensor* raw) {
            const auto describe = [&] { return "tensor " + quoted_name(t.name()); };
            ImportedTensor read = tensors.read(t, raw, true, describe);
            if (!read.unsupported.empty())
                model_error("{} is of type {}, which is not supported", describe(), read.unsupported);
            result = {t.name(), std::move(read.value)};
        });
        return result;
    });
}

void save_tensor_pb(const std::string& path, const NamedTensor& tensor) {
    onnx::TensorProto proto;
    tensor_to_proto(tensor.value, tensor.name, proto);
    std::string bytes;
    if (!proto.SerializeToString(&bytes))
        throw RuntimeError(fmt::format("cannot write {}: a file of this format holds at most 2 GiB", path));
    const FileHandle file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    bool ok = static_cast<bool>(file);
    for (size_t done = 0; ok && done < bytes.size();) {
        const ssize_t n = write(file.get(), bytes.data() + done, bytes.size() - done);
        if (n > 0) done += static_cast<size_t>(n);
        ok = n > 0 || (n < 0 && errno == EINTR);
    }
    if (!ok) throw RuntimeError(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace tilewright
