// ONNX Runtime's execution provider "TilewrightExecutionProvider": the two functions that it looks up in this library
// (onnxruntime_ep_c_api.h, ONNX Runtime 1.23), and the structures of functions that it calls.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "artifact/model_file.h"
#include "base/error.h"
#include "compile/f32_nodes.h"
#include "compile/kept_models.h"
#include "ops/lowering.h"
#include "provider/api.h"
#include "provider/capability.h"
#include "provider/context_node.h"
#include "provider/read_graph.h"
#include "provider/runner.h"
#include "provider/settings.h"
#include "runtime/missing_features.h"
#include "tilewright/tilewright.h"

namespace tilewright::provider {

// The structures are ONNX Runtime's: functions in its order, those that are optional at the end.

/// OrtNodeComputeInfo: runs of one fused node.
struct ComputeInfo {
    uint32_t version = kVersion;
    OrtStatus* (*create_state)(ComputeInfo*, OrtNodeComputeContext*, void** state) = nullptr;
    OrtStatus* (*compute)(ComputeInfo*, void* state, OrtKernelContext*) = nullptr;
    void (*release_state)(ComputeInfo*, void* state) = nullptr;
};

/// OrtEp: the provider of one session.
struct Ep {
    uint32_t version = kVersion;
    const char* (*get_name)(const Ep*) = nullptr;
    OrtStatus* (*get_capability)(Ep*, const OrtGraph*, OrtEpGraphSupportInfo*) = nullptr;
    OrtStatus* (*compile)(Ep*, const OrtGraph** graphs, const OrtNode** fused, size_t count, ComputeInfo** infos,
                          OrtNode** context_nodes) = nullptr;
    void (*release_compute_infos)(Ep*, ComputeInfo**, size_t count) = nullptr;
    /// Preferred layout, dynamic options, begin and end of runs, allocators, streams.
    void* optional[7] = {};
    const char* (*get_compatibility)(Ep*, const OrtGraph*) = nullptr;
};

/// OrtEpFactory: makes providers.
struct Factory {
    uint32_t version = kVersion;
    const char* (*get_name)(const Factory*) = nullptr;
    const char* (*get_vendor)(const Factory*) = nullptr;
    OrtStatus* (*get_supported_devices)(Factory*, const OrtHardwareDevice* const* devices, size_t count,
                                        OrtEpDevice** supported, size_t most, size_t* supported_count) = nullptr;
    OrtStatus* (*create_ep)(Factory*, const OrtHardwareDevice* const* devices, const OrtKeyValuePairs* const* metadata,
                            size_t count, const OrtSessionOptions*, const OrtLogger*, Ep**) = nullptr;
    void (*release_ep)(Factory*, Ep*) = nullptr;
    uint32_t (*get_vendor_id)(const Factory*) = nullptr;
    const char* (*get_version)(const Factory*) = nullptr;
    OrtStatus* (*validate_compatibility)(Factory*, const OrtHardwareDevice* const* devices, size_t count,
                                         const char* text, int* compatibility) = nullptr;
    void* create_allocator = nullptr;
    void* release_allocator = nullptr;
    /// Optional by its documentation, but ONNX Runtime 1.32 calls both.
    OrtStatus* (*create_data_transfer)(Factory*, void** transfer) = nullptr;
    bool (*is_stream_aware)(const Factory*) = nullptr;
    void* create_stream = nullptr;
};

namespace {

/// Runs `body`, and returns what it throws as a status.
template <class F>
OrtStatus* guarded(const Api& api, F&& body) noexcept {
    try {
        body();
        return nullptr;
    } catch (const ModelError& e) {
        const std::string text = e.hint().empty() ? e.what() : fmt::format("{} ({})", e.what(), e.hint());
        return api.create_status(kEpFailed, text.c_str());
    } catch (const std::exception& e) {
        return api.create_status(kEpFailed, e.what());
    } catch (...) {
        return api.create_status(kEpFailed, "an exception of unknown type");
    }
}

/// The session's configuration entries.
std::map<std::string, std::string> entries_of(const Api& api, const OrtSessionOptions* session) {
    const std::unique_ptr<OrtKeyValuePairs, void (*)(OrtKeyValuePairs*)> pairs(
        api.get<OrtKeyValuePairs*>(api.get_session_config_entries, session), api.release_key_value_pairs);
    const char* const* keys = nullptr;
    const char* const* values = nullptr;
    size_t count = 0;
    api.get_key_value_pairs(pairs.get(), &keys, &values, &count);
    std::map<std::string, std::string> out;
    for (size_t i = 0; i < count; ++i) out[keys[i]] = values[i];
    return out;
}

/// The entries "ep.tilewrightexecutionprovider.NAME", by NAME.
std::map<std::string, std::string> options_in(const std::map<std::string, std::string>& entries) {
    std::string prefix = fmt::format("ep.{}.", kName);
    std::transform(prefix.begin(), prefix.end(), prefix.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::map<std::string, std::string> out;
    for (const auto& [name, value] : entries)
        if (name.starts_with(prefix)) out[name.substr(prefix.size())] = value;
    return out;
}

struct RegionInfo : ComputeInfo {
    const Api& api;
    std::unique_ptr<Runner> runner;  ///< null: compiled for other CPUs (the option isa)

    RegionInfo(const Api& a, const std::shared_ptr<const CompiledModel>& model, int threads, bool runs_here)
        : api(a), runner(runs_here ? std::make_unique<Runner>(a, model, threads) : nullptr) {
        create_state = [](ComputeInfo*, OrtNodeComputeContext*, void** state) -> OrtStatus* {
            *state = nullptr;
            return nullptr;
        };
        compute = [](ComputeInfo* self, void*, OrtKernelContext* context) {
            auto& r = *static_cast<RegionInfo*>(self);
            return guarded(r.api, [&] {
                if (!r.runner) throw ApiError("the region is compiled for instructions that this CPU does not have");
                r.runner->run(context);
            });
        };
        release_state = [](ComputeInfo*, void*) {};
    }
};

/// A region, and the EPContext node for it if there is to be one.
struct Compiled {
    std::unique_ptr<RegionInfo> info;
    std::unique_ptr<OrtNode, void (*)(OrtNode*)> node;
};

bool reads_outer_values(const Api& api, const OrtGraph* graph) {
    for (const OrtNode* n : api.list(api.graph_node_count, api.graph_nodes, graph))
        for (const OrtValueInfo* v : api.list(api.node_input_count, api.node_inputs, n))
            if (v != nullptr && api.get<bool>(api.value_is_from_outer_scope, v)) return true;
    return false;
}

struct Provider : Ep {
    const Api& api;
    const OrtLogger* logger;
    Settings settings;
    ContextSettings context;
    std::string compatibility;  ///< of the regions that were compiled
    bool has_regions = false;   ///< one is taken
    size_t compiled_count = 0;  ///< regions

    Provider(const Api& a, const OrtLogger* l, Settings s, ContextSettings c)
        : api(a), logger(l), settings(std::move(s)), context(std::move(c)) {
        get_name = [](const Ep*) { return kName; };
        get_capability = [](Ep* self, const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
            auto& p = *static_cast<Provider*>(self);
            return guarded(p.api, [&] { p.report_capability(graph, support); });
        };
        compile = [](Ep* self, const OrtGraph** graphs, const OrtNode** fused, size_t count, ComputeInfo** infos,
                     OrtNode** context_nodes) {
            auto& p = *static_cast<Provider*>(self);
            return guarded(p.api, [&] {
                std::vector<Compiled> made;
                for (size_t i = 0; i < count; ++i) made.push_back(p.compiled(graphs[i], fused[i]));
                for (size_t i = 0; i < count; ++i) {
                    infos[i] = made[i].info.release();
                    if (made[i].node) context_nodes[i] = made[i].node.release();
                }
            });
        };
        get_compatibility = [](Ep* self, const OrtGraph*) -> const char* {
            return static_cast<Provider*>(self)->compatibility.c_str();
        };
        release_compute_infos = [](Ep*, ComputeInfo** infos, size_t count) {
            for (size_t i = 0; i < count; ++i) delete static_cast<RegionInfo*>(infos[i]);
        };
        settings.pipeline.compile.warn = [this](const std::string& text) { log(kWarning, text); };
        settings.pipeline.compile.note = [this](const std::string& text) { log(kInfo, text); };
    }

    void log(int level, const std::string& text) const {
        if (OrtStatus* failed = api.log_message(logger, level, text.c_str(), kName, 0, kName))
            api.release_status(failed);
    }

    /// Subgraphs of control flow are taken with their node or not at all. Where they are not distinguished, one graph
    /// is taken, which may be a subgraph.
    void report_capability(const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
        if (api.get<const OrtNode*>(api.graph_parent_node, graph) != nullptr) return;
        if (!api.has_subgraphs && (has_regions || reads_outer_values(api, graph))) return;
        const Capability c = capability_of(api, graph, settings);
        for (const Region& r : c.regions) {
            const FusionOptions fusion{kVersion, !r.compiled};
            api.check(api.add_nodes_to_fuse(support, r.nodes.data(), r.nodes.size(), &fusion));
            has_regions = true;
        }
        for (const std::string& text : c.refused) log(kInfo, fmt::format("left to ONNX Runtime: {}", text));
        log(kInfo, fmt::format("{} of {} nodes in {} regions", c.nodes - c.refused.size(), c.nodes, c.regions.size()));
    }

    Compiled compiled(const OrtGraph* graph, const OrtNode* fused) {
        Region region;
        region.nodes = nodes_of(api, graph);
        region.inputs = api.list(api.node_input_count, api.node_inputs, fused);
        region.outputs = api.list(api.node_output_count, api.node_outputs, fused);
        for (const auto* border : {&region.inputs, &region.outputs})
            if (std::find(border->begin(), border->end(), nullptr) != border->end())
                throw ApiError("a fused node has an input or output that does not exist");
        std::shared_ptr<const CompiledModel> model;
        if (region.nodes.size() == 1 && is_context_node(api, region.nodes[0])) {
            if (context.enabled) throw ApiError("ep.context_enable=1 is for models that are not compiled yet");
            model = load_context_node(api, context, graph, region.nodes[0], fused);
        } else {
            const Model read = read_region(api, graph, region, Constants::Copy);
            model = compile_or_load(read, options_for(read)).model;
        }
        const bool runs_here =
            settings.pipeline.compile.isa.empty() || missing_features(model->impl().platform, host_features()).empty();
        Compiled out{std::make_unique<RegionInfo>(api, model, settings.threads, runs_here),
                     {nullptr, api.release_node}};
        if (context.enabled) {
            out.node.reset(make_context_node(api, context, graph, fused, model, compiled_count++));
            compatibility = compatibility_text(model->impl().platform);
        }
        return out;
    }

    /// A region may lack dimensions and nodes of the whole model.
    PipelineOptions options_for(const Model& model) const {
        PipelineOptions o = settings.pipeline;
        o.compile.keep_objects = context.enabled;
        const std::vector<std::string> names = dimension_names(model);
        const auto is_missing = [&](const auto& entry) {
            return std::find(names.begin(), names.end(), entry.first) == names.end();
        };
        std::erase_if(o.compile.dims, is_missing);
        std::erase_if(o.compile.ranges, is_missing);
        std::erase_if(o.compile.keep_f32, [&](const std::string& pattern) {
            const bool missing = !has_f32_node(model.graph, pattern);
            if (missing) log(kWarning, fmt::format("option keep_f32: '{}' matches no node of a region", pattern));
            return missing;
        });
        return o;
    }
};

struct ProviderFactory : Factory {
    Api api;

    explicit ProviderFactory(const OrtApiBase& base) : api(base) {
        get_name = [](const Factory*) { return kName; };
        get_vendor = [](const Factory*) { return "Tilewright"; };
        get_vendor_id = [](const Factory*) { return uint32_t{0}; };
        get_version = [](const Factory*) { return TILEWRIGHT_VERSION; };
        get_supported_devices = [](Factory* self, const OrtHardwareDevice* const* devices, size_t count,
                                   OrtEpDevice** supported, size_t most, size_t* supported_count) {
            const Api& a = static_cast<ProviderFactory*>(self)->api;
            *supported_count = 0;
            return guarded(a, [&] {
                for (size_t i = 0; i < count && *supported_count < most; ++i) {
                    if (a.hardware_device_type(devices[i]) != kCpuDevice) continue;
                    a.check(a.create_ep_device(self, devices[i], nullptr, nullptr, &supported[*supported_count]));
                    ++*supported_count;
                }
            });
        };
        create_ep = [](Factory* self, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*, size_t,
                       const OrtSessionOptions* session, const OrtLogger* logger, Ep** ep) {
            const Api& a = static_cast<ProviderFactory*>(self)->api;
            return guarded(a, [&] {
                const std::map<std::string, std::string> entries = entries_of(a, session);
                *ep = new Provider(a, logger, settings_of(options_in(entries)), context_settings(entries));
            });
        };
        validate_compatibility = [](Factory* self, const OrtHardwareDevice* const*, size_t, const char* text,
                                    int* result) {
            return guarded(static_cast<ProviderFactory*>(self)->api,
                           [&] { *result = static_cast<int>(compatibility_of(text)); });
        };
        release_ep = [](Factory*, Ep* ep) { delete static_cast<Provider*>(ep); };
        create_data_transfer = [](Factory*, void** transfer) -> OrtStatus* {
            *transfer = nullptr;
            return nullptr;
        };
        is_stream_aware = [](const Factory*) { return false; };
    }
};

}  // namespace

}  // namespace tilewright::provider

using tilewright::provider::Factory;

// NOLINTBEGIN(readability-identifier-naming): the names are ONNX Runtime's
extern "C" {

TILEWRIGHT_API OrtStatus* CreateEpFactories(const char* registered_name, const OrtApiBase* base,
                                            const OrtLogger* logger, Factory** factories, size_t most, size_t* count);
TILEWRIGHT_API OrtStatus* ReleaseEpFactory(Factory* factory);

OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*, Factory** factories, size_t most,
                             size_t* count) {
    *count = 0;
    if (most == 0) return nullptr;
    try {
        factories[0] = new tilewright::provider::ProviderFactory(*base);
        *count = 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "TilewrightExecutionProvider: %s\n", e.what());  // no table of functions, so no status
    }
    return nullptr;
}

OrtStatus* ReleaseEpFactory(Factory* factory) {
    delete static_cast<tilewright::provider::ProviderFactory*>(factory);
    return nullptr;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
