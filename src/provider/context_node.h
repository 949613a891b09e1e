#pragma once
// EPContext nodes: compiled regions in ONNX models. ONNX Runtime writes such a model where a session has the entry
// ep.context_enable=1; a session of that model compiles nothing.

#include <map>
#include <memory>
#include <string>

#include "model/compiled_model.h"
#include "provider/api.h"
#include "runtime/cpu_features.h"

namespace tilewright::provider {

inline constexpr const char* kName = "TilewrightExecutionProvider";
inline constexpr const char* kContextOperator = "EPContext";

/// A session's entries "ep.context_...".
struct ContextSettings {
    bool enabled = false;  ///< an EPContext model is written
    bool embed = false;    ///< compiled regions are in the model; else in files beside it
    std::string path;      ///< of the EPContext model; "": beside the original, with ONNX Runtime's name
    std::string prefix;    ///< of the names of its nodes
};
ContextSettings context_settings(const std::map<std::string, std::string>& entries);

/// Whether the node is an EPContext node of this provider.
bool is_context_node(const Api& api, const OrtNode* node);

/// The node that stands for `fused` in the EPContext model, whose number `index` no other region of the session has.
/// The model was compiled with CompileOptions::keep_objects. The result is released by Api::release_node. Throws
/// ApiError, and as artifact::write_model_file does.
OrtNode* make_context_node(const Api& api, const ContextSettings& settings, const OrtGraph* graph, const OrtNode* fused,
                           const std::shared_ptr<const CompiledModel>& model, size_t index);

/// The compiled region of such a node, whose place `fused` takes. A file beside the model is opened below the model's
/// folder only, without following a link. Machine code will run: load models of trusted origin only. Throws ApiError
/// where the node does not have the region's inputs and outputs, and as artifact::load_model_file does.
std::shared_ptr<const CompiledModel> load_context_node(const Api& api, const ContextSettings& settings,
                                                       const OrtGraph* graph, const OrtNode* node,
                                                       const OrtNode* fused);

/// What ONNX Runtime keeps in an EPContext model, to find out whether it can be loaded elsewhere.
std::string compatibility_text(const Platform& platform);
Compatibility compatibility_of(const std::string& text);

}  // namespace tilewright::provider
