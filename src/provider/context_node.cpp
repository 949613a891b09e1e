#include "provider/context_node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "artifact/model_file.h"
#include "base/error.h"
#include "base/private_folder.h"
#include "graph/import_external.h"
#include "provider/read_graph.h"
#include "runtime/missing_features.h"
#include "tilewright/tilewright.h"

namespace tilewright::provider {

namespace {

constexpr const char* kContextDomain = "com.microsoft";

/// The names of a node's inputs or outputs.
std::vector<std::string> names_of(const Api& api, const std::vector<const OrtValueInfo*>& values) {
    std::vector<std::string> out;
    for (const OrtValueInfo* v : values) out.push_back(v == nullptr ? "" : api.name(v));
    return out;
}

/// "" for a model in memory.
std::string path_of(const Api& api, const OrtGraph* graph) {
    const auto* path = api.get<const char*>(api.graph_model_path, graph);
    return path == nullptr ? "" : path;
}

/// Attributes of a node that is being made.
class Attributes {
  public:
    explicit Attributes(const Api& api) : api_(api) {}
    ~Attributes() {
        for (OrtOpAttr* a : all_) api_.release_op_attr(a);
    }
    Attributes(const Attributes&) = delete;
    Attributes& operator=(const Attributes&) = delete;

    void add(const char* name, int64_t value) { add(name, &value, 1, AttributeKind::Int); }
    void add(const char* name, std::string_view value) {
        add(name, value.data(), static_cast<int>(value.size()), AttributeKind::String);
    }
    std::vector<OrtOpAttr*>& all() { return all_; }

  private:
    void add(const char* name, const void* data, int count, AttributeKind kind) {
        OrtOpAttr* made = nullptr;
        api_.check(api_.create_op_attr(name, data, count, static_cast<int>(kind), &made));
        all_.push_back(made);
    }

    const Api& api_;
    std::vector<OrtOpAttr*> all_;
};

/// Writes the region beside the EPContext model. Returns the file's name.
std::string written_beside(const std::string& original, const ContextSettings& settings,
                           const std::shared_ptr<const CompiledModel>& model, size_t index) {
    std::filesystem::path context = settings.path;
    if (context.empty() && original.empty())
        throw ApiError(
            "the model is in memory, so there is no folder for its compiled regions (set ep.context_file_path, or "
            "ep.context_embed_mode=1)");
    if (context.empty()) context = std::filesystem::path(original).replace_extension() += "_ctx";
    const std::string name = fmt::format("{}_{}.so", context.stem().string(), index);
    artifact::write_model_file({model}, {}, (context.parent_path() / name).string());
    return name;
}

/// A file without a name that has these bytes.
Descriptor file_in_memory(std::string_view bytes) {
    Descriptor file(::memfd_create("tilewright-region", MFD_CLOEXEC));
    bool written = static_cast<bool>(file);
    for (size_t at = 0; written && at < bytes.size();) {
        const ssize_t n = ::write(file.get(), bytes.data() + at, bytes.size() - at);
        if (n > 0) at += static_cast<size_t>(n);
        written = n > 0 || (n < 0 && errno == EINTR);
    }
    if (!written) throw RuntimeError(fmt::format("cannot make a file in memory: {}", std::strerror(errno)));
    return file;
}

/// Throws ApiError unless a session's values of this type are what the model declares.
void check_type(const std::string& what, const ModelIo& io, const DeclaredType& declared) {
    if (declared.container != DeclaredType::Container::None || !declared.has_dtype || declared.dtype != io.dtype ||
        (declared.shape && declared.shape->size() != io.shape.size()))
        throw ApiError(fmt::format("{}: '{}' is not declared as the {} of rank {} that it was compiled with", what,
                                   io.name, to_string(io.dtype), io.shape.size()));
}

void check_border(const Api& api, const std::string& what, const std::vector<ModelIo>& compiled,
                  const std::vector<const OrtValueInfo*>& of_node, const std::vector<const OrtValueInfo*>& of_fused) {
    if (names_of(api, of_node) != names_of(api, of_fused))
        throw ApiError(fmt::format("{}: ONNX Runtime runs it with values {} instead of {}", what,
                                   names_of(api, of_fused), names_of(api, of_node)));
    if (of_node.size() != compiled.size())
        throw ApiError(
            fmt::format("{}: it has {} values, and was compiled with {}", what, of_node.size(), compiled.size()));
    for (size_t i = 0; i < compiled.size(); ++i) check_type(what, compiled[i], declared_type(api, of_node[i]));
}

/// "model=1;arch=x86_64" -> "x86_64" for "arch"
std::string_view field(std::string_view text, const std::string& name) {
    for (const std::string_view part : split(text, ';'))
        if (part.starts_with(name + "=")) return part.substr(name.size() + 1);
    return {};
}

/// Of what code and plan need to be read.
std::string version_text() { return fmt::format("{}.{}", artifact::kModelAbi, artifact::kFormatVersion); }

}  // namespace

ContextSettings context_settings(const std::map<std::string, std::string>& entries) {
    const auto entry = [&](const char* name) {
        const auto found = entries.find(name);
        return found == entries.end() ? std::string() : found->second;
    };
    return {entry("ep.context_enable") == "1", entry("ep.context_embed_mode") == "1", entry("ep.context_file_path"),
            entry("ep.context_node_name_prefix")};
}

bool is_context_node(const Api& api, const OrtNode* node) {
    if (std::string_view(api.get<const char*>(api.node_operator, node)) != kContextOperator ||
        std::string_view(api.get<const char*>(api.node_domain, node)) != kContextDomain)
        return false;
    return attribute_of<std::string>(api, node, "source") == kName;
}

OrtNode* make_context_node(const Api& api, const ContextSettings& settings, const OrtGraph* graph, const OrtNode* fused,
                           const std::shared_ptr<const CompiledModel>& model, size_t index) {
    const std::string name = settings.prefix + api.get<const char*>(api.node_name, fused);
    const std::string content = settings.embed ? artifact::model_file_bytes({model}, {})
                                               : written_beside(path_of(api, graph), settings, model, index);
    if (content.size() > INT_MAX)
        throw ApiError(
            fmt::format("a compiled region of {} bytes is too large to be embedded (set "
                        "ep.context_embed_mode=0)",
                        content.size()));
    const Platform& platform = model->impl().platform;
    Attributes attributes(api);
    attributes.add("main_context", 1);
    attributes.add("embed_mode", settings.embed ? 1 : 0);
    attributes.add("ep_cache_context", content);
    attributes.add("ep_sdk_version", TILEWRIGHT_VERSION);
    attributes.add("hardware_architecture", fmt::format("{} {}", platform.arch, to_string(platform.isa)));
    attributes.add("partition_name", name);
    attributes.add("source", kName);
    const auto inputs = names_of(api, api.list(api.node_input_count, api.node_inputs, fused));
    const auto outputs = names_of(api, api.list(api.node_output_count, api.node_outputs, fused));
    const auto pointers = [](const std::vector<std::string>& names) {
        std::vector<const char*> out;
        for (const std::string& n : names) out.push_back(n.c_str());
        return out;
    };
    OrtNode* node = nullptr;
    api.check(api.create_node(kContextOperator, kContextDomain, name.c_str(), pointers(inputs).data(), inputs.size(),
                              pointers(outputs).data(), outputs.size(), attributes.all().data(),
                              attributes.all().size(), &node));
    return node;
}

std::shared_ptr<const CompiledModel> load_context_node(const Api& api, const ContextSettings& settings,
                                                       const OrtGraph* graph, const OrtNode* node,
                                                       const OrtNode* fused) {
    const std::string what = fmt::format("node '{}' ({})", api.get<const char*>(api.node_name, node), kContextOperator);
    if (attribute_of<int64_t>(api, node, "main_context") == 0)
        throw ApiError(fmt::format("{}: its main_context is 0, and each region has its own code", what));
    const auto content = attribute_of<std::string>(api, node, "ep_cache_context");
    if (!content) throw ApiError(fmt::format("{}: it has no attribute ep_cache_context", what));
    std::shared_ptr<const CompiledModel> model;
    if (attribute_of<int64_t>(api, node, "embed_mode") != 0) {
        model = artifact::load_model_file(file_in_memory(*content).get(), what).model;
    } else {
        const std::string path = path_of(api, graph);
        const std::string folder = std::filesystem::path(path.empty() ? settings.path : path).parent_path().string();
        if (path.empty() && settings.path.empty())
            throw ApiError(
                fmt::format("{}: its file '{}' is beside the model, which is in memory (set "
                            "ep.context_file_path to a path in the folder of the file)",
                            what, *content));
        uint64_t bytes = 0;
        const auto file = import_detail::ModelFolder(folder.empty() ? "." : folder).open(*content, what, bytes);
        model = artifact::load_model_file(file.get(), *content).model;
    }
    check_border(api, what, model->inputs(), api.list(api.node_input_count, api.node_inputs, node),
                 api.list(api.node_input_count, api.node_inputs, fused));
    check_border(api, what, model->outputs(), api.list(api.node_output_count, api.node_outputs, node),
                 api.list(api.node_output_count, api.node_outputs, fused));
    return model;
}

std::string compatibility_text(const Platform& platform) {
    return fmt::format("version={};arch={};features={}", version_text(), platform.arch,
                       fmt::join(platform.features, ","));
}

Compatibility compatibility_of(const std::string& text) {
    Platform platform;
    platform.arch = field(text, "arch");
    for (const std::string_view feature : split(field(text, "features"), ','))
        if (!feature.empty()) platform.features.emplace_back(feature);
    const bool fits = field(text, "version") == version_text() && platform.arch == kHostArch &&
                      missing_features(platform, host_features()).empty();
    return fits ? Compatibility::Optimal : Compatibility::Unsupported;
}

}  // namespace tilewright::provider
