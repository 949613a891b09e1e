// ONNX Runtime's execution provider "TilewrightExecutionProvider": the two functions that it looks up in this library
// (onnxruntime_ep_c_api.h, ONNX Runtime 1.23), and the structures of functions that it calls.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "compile/kept_models.h"
#include "ops/lowering.h"
#include "provider/api.h"
#include "provider/capability.h"
#include "provider/read_graph.h"
#include "provider/runner.h"
#include "provider/settings.h"
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
    /// Preferred layout, dynamic options, begin and end of runs, allocators, streams, compatibility.
    void* optional[8] = {};
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
    void* compatibility = nullptr;
    void* create_allocator = nullptr;
    void* release_allocator = nullptr;
    /// Optional by its documentation, but ONNX Runtime 1.32 calls both.
    OrtStatus* (*create_data_transfer)(Factory*, void** transfer) = nullptr;
    bool (*is_stream_aware)(const Factory*) = nullptr;
    void* create_stream = nullptr;
};

namespace {

constexpr const char* kName = "TilewrightExecutionProvider";

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

/// The session's entries "ep.tilewrightexecutionprovider.NAME", by NAME.
std::map<std::string, std::string> options_of(const Api& api, const OrtSessionOptions* session) {
    std::string prefix = fmt::format("ep.{}.", kName);
    std::transform(prefix.begin(), prefix.end(), prefix.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::unique_ptr<OrtKeyValuePairs, void (*)(OrtKeyValuePairs*)> pairs(
        api.get<OrtKeyValuePairs*>(api.get_session_config_entries, session), api.release_key_value_pairs);
    const char* const* keys = nullptr;
    const char* const* values = nullptr;
    size_t count = 0;
    api.get_key_value_pairs(pairs.get(), &keys, &values, &count);
    std::map<std::string, std::string> out;
    for (size_t i = 0; i < count; ++i)
        if (std::string_view(keys[i]).starts_with(prefix)) out[keys[i] + prefix.size()] = values[i];
    return out;
}

struct RegionInfo : ComputeInfo {
    const Api& api;
    Runner runner;

    RegionInfo(const Api& a, std::shared_ptr<const CompiledModel> model, int threads)
        : api(a), runner(a, std::move(model), threads) {
        create_state = [](ComputeInfo*, OrtNodeComputeContext*, void** state) -> OrtStatus* {
            *state = nullptr;
            return nullptr;
        };
        compute = [](ComputeInfo* self, void*, OrtKernelContext* context) {
            auto& r = *static_cast<RegionInfo*>(self);
            return guarded(r.api, [&] { r.runner.run(context); });
        };
        release_state = [](ComputeInfo*, void*) {};
    }
};

struct Provider : Ep {
    const Api& api;
    const OrtLogger* logger;
    Settings settings;

    Provider(const Api& a, const OrtLogger* l, Settings s) : api(a), logger(l), settings(std::move(s)) {
        get_name = [](const Ep*) { return kName; };
        get_capability = [](Ep* self, const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
            auto& p = *static_cast<Provider*>(self);
            return guarded(p.api, [&] { p.report_capability(graph, support); });
        };
        compile = [](Ep* self, const OrtGraph** graphs, const OrtNode** fused, size_t count, ComputeInfo** infos,
                     OrtNode**) {
            auto& p = *static_cast<Provider*>(self);
            return guarded(p.api, [&] {
                std::vector<std::unique_ptr<RegionInfo>> made;
                for (size_t i = 0; i < count; ++i) made.push_back(p.compiled(graphs[i], fused[i]));
                for (size_t i = 0; i < count; ++i) infos[i] = made[i].release();
            });
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

    /// Subgraphs of control flow are taken with their node or not at all.
    void report_capability(const OrtGraph* graph, OrtEpGraphSupportInfo* support) const {
        if (api.get<const OrtNode*>(api.graph_parent_node, graph) != nullptr) return;
        const Capability c = capability_of(api, graph, settings);
        const FusionOptions fusion;
        for (const Region& r : c.regions)
            api.check(api.add_nodes_to_fuse(support, r.nodes.data(), r.nodes.size(), &fusion));
        for (const std::string& text : c.refused) log(kInfo, fmt::format("left to ONNX Runtime: {}", text));
        log(kInfo, fmt::format("{} of {} nodes in {} regions", c.nodes - c.refused.size(), c.nodes, c.regions.size()));
    }

    std::unique_ptr<RegionInfo> compiled(const OrtGraph* graph, const OrtNode* fused) const {
        Region region;
        region.nodes = api.list(api.graph_node_count, api.graph_nodes, graph);
        region.inputs = api.list(api.node_input_count, api.node_inputs, fused);
        region.outputs = api.list(api.node_output_count, api.node_outputs, fused);
        for (const auto* border : {&region.inputs, &region.outputs})
            if (std::find(border->begin(), border->end(), nullptr) != border->end())
                throw ApiError("a fused node has an input or output that does not exist");
        const Model model = read_region(api, graph, region, Constants::Copy);
        return std::make_unique<RegionInfo>(api, compile_or_load(model, options_for(model)).model, settings.threads);
    }

    /// A region may lack dimensions of the whole model.
    PipelineOptions options_for(const Model& model) const {
        PipelineOptions o = settings.pipeline;
        const std::vector<std::string> names = dimension_names(model);
        const auto is_missing = [&](const auto& entry) {
            return std::find(names.begin(), names.end(), entry.first) == names.end();
        };
        std::erase_if(o.compile.dims, is_missing);
        std::erase_if(o.compile.ranges, is_missing);
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
            return guarded(a, [&] { *ep = new Provider(a, logger, settings_of(options_of(a, session))); });
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
