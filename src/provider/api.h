#pragma once
// The part of ONNX Runtime's C interface that an execution provider needs (ONNX Runtime 1.23 and later).
//
// Neither ONNX Runtime's wheels nor Debian have its header. The interface is two tables of functions, OrtApi and
// OrtEpApi, to which versions only append, so a function is declared by its place in its table (api.cpp), and a library
// built this way works with all later versions.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct OrtEpDevice;
struct OrtEpGraphSupportInfo;
struct OrtGraph;
struct OrtHardwareDevice;
struct OrtKernelContext;
struct OrtKeyValuePairs;
struct OrtLogger;
struct OrtNode;
struct OrtNodeComputeContext;
struct OrtOpAttr;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;
struct OrtValueInfo;

struct OrtApiBase {
    const void* (*get_api)(uint32_t version);  ///< null for versions that the library does not have
    const char* (*get_version)();
};

namespace tilewright::provider {

/// The version of the interface: 23 is ONNX Runtime 1.23, the first with execution providers that compile.
inline constexpr uint32_t kVersion = 23;

// Numbers of ONNX Runtime's enumerations.
inline constexpr int kTensorType = 1;  ///< ONNXType
inline constexpr int kCpuDevice = 0;   ///< OrtHardwareDeviceType
inline constexpr int kInfo = 1;        ///< OrtLoggingLevel
inline constexpr int kWarning = 2;     ///< likewise
inline constexpr int kEpFailed = 11;   ///< OrtErrorCode
enum class AttributeKind : int {
    Int = 1,
    Ints = 2,
    Float = 3,
    Floats = 4,
    String = 5,
    Strings = 6,
    Graph = 7,
    Tensor = 8
};

/// OrtCompiledModelCompatibility
enum class Compatibility : int { Optimal = 1, Unsupported = 3 };

/// Which nodes become one node.
struct FusionOptions {
    uint32_t version = kVersion;
    bool drop_constant_initializers = true;  ///< they are no inputs of the fused node
};

struct Factory;

/// A failure of one of the functions below: its message.
class ApiError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// ONNX Runtime's functions. Those that return a status return null on success (`check`). What they return belongs to
/// ONNX Runtime unless there is a function that releases it.
struct Api {
    /// Throws ApiError if this ONNX Runtime is older than 1.23.
    explicit Api(const OrtApiBase& base);

    /// ONNX Runtime 1.23 does not distinguish subgraphs: they have no parent, and its names for regions of two graphs
    /// are the same.
    bool has_subgraphs = false;

    OrtStatus* (*create_status)(int code, const char* message);
    const char* (*get_error_message)(const OrtStatus*);
    void (*release_status)(OrtStatus*);
    OrtStatus* (*log_message)(const OrtLogger*, int level, const char* message, const char* file, int line,
                              const char* function);
    OrtStatus* (*get_session_config_entries)(const OrtSessionOptions*, OrtKeyValuePairs**);
    void (*get_key_value_pairs)(const OrtKeyValuePairs*, const char* const** keys, const char* const** values,
                                size_t* count);
    void (*release_key_value_pairs)(OrtKeyValuePairs*);
    int (*hardware_device_type)(const OrtHardwareDevice*);

    // Types and values.
    OrtStatus* (*get_onnx_type)(const OrtTypeInfo*, int* type);
    OrtStatus* (*cast_to_tensor_info)(const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**);
    OrtStatus* (*get_element_type)(const OrtTensorTypeAndShapeInfo*, int* type);
    OrtStatus* (*get_dimension_count)(const OrtTensorTypeAndShapeInfo*, size_t* count);
    OrtStatus* (*get_dimensions)(const OrtTensorTypeAndShapeInfo*, int64_t* dims, size_t count);
    OrtStatus* (*get_symbolic_dimensions)(const OrtTensorTypeAndShapeInfo*, const char** names, size_t count);
    bool (*has_shape)(const OrtTensorTypeAndShapeInfo*);  ///< null before ONNX Runtime 1.24
    OrtStatus* (*get_tensor_info)(const OrtValue*, OrtTensorTypeAndShapeInfo**);
    void (*release_tensor_info)(OrtTensorTypeAndShapeInfo*);
    OrtStatus* (*get_tensor_data)(const OrtValue*, const void** data);
    OrtStatus* (*get_tensor_mutable_data)(OrtValue*, void** data);
    OrtStatus* (*get_tensor_bytes)(const OrtValue*, size_t* bytes);
    void (*release_value)(OrtValue*);

    // Graphs. Functions that fill an array take its size, which the function `..._count` returns.
    OrtStatus* (*graph_model_path)(const OrtGraph*, const char** path);
    OrtStatus* (*graph_ir_version)(const OrtGraph*, int64_t* version);
    OrtStatus* (*graph_opset_count)(const OrtGraph*, size_t* count);
    OrtStatus* (*graph_opsets)(const OrtGraph*, const char** domains, int64_t* versions, size_t count);
    OrtStatus* (*graph_input_count)(const OrtGraph*, size_t* count);
    OrtStatus* (*graph_inputs)(const OrtGraph*, const OrtValueInfo** inputs, size_t count);
    OrtStatus* (*graph_output_count)(const OrtGraph*, size_t* count);
    OrtStatus* (*graph_outputs)(const OrtGraph*, const OrtValueInfo** outputs, size_t count);
    OrtStatus* (*graph_node_count)(const OrtGraph*, size_t* count);
    OrtStatus* (*graph_nodes)(const OrtGraph*, const OrtNode** nodes, size_t count);
    OrtStatus* (*graph_parent_node)(const OrtGraph*, const OrtNode** node);  ///< null for a model's graph
    OrtStatus* (*node_id)(const OrtNode*, size_t* id);  ///< of its graph; in the order of a file's nodes
    OrtStatus* (*node_name)(const OrtNode*, const char** name);
    OrtStatus* (*node_operator)(const OrtNode*, const char** name);
    OrtStatus* (*node_domain)(const OrtNode*, const char** domain);
    OrtStatus* (*node_since_version)(const OrtNode*, int* version);
    OrtStatus* (*node_input_count)(const OrtNode*, size_t* count);
    OrtStatus* (*node_inputs)(const OrtNode*, const OrtValueInfo** inputs, size_t count);  ///< null: not given
    OrtStatus* (*node_output_count)(const OrtNode*, size_t* count);
    OrtStatus* (*node_outputs)(const OrtNode*, const OrtValueInfo** outputs, size_t count);
    OrtStatus* (*node_implicit_input_count)(const OrtNode*, size_t* count);
    OrtStatus* (*node_implicit_inputs)(const OrtNode*, const OrtValueInfo** inputs, size_t count);
    OrtStatus* (*node_attribute_count)(const OrtNode*, size_t* count);
    OrtStatus* (*node_attributes)(const OrtNode*, const OrtOpAttr** attributes, size_t count);
    OrtStatus* (*node_subgraph_count)(const OrtNode*, size_t* count);
    OrtStatus* (*node_subgraphs)(const OrtNode*, const OrtGraph** graphs, size_t count, const char** attributes);
    OrtStatus* (*attribute_name)(const OrtOpAttr*, const char** name);
    OrtStatus* (*attribute_type)(const OrtOpAttr*, int* type);
    OrtStatus* (*attribute_tensor)(const OrtOpAttr*, OrtValue** tensor);  ///< released by release_value
    OrtStatus* (*read_attribute)(const OrtOpAttr*, int type, void* data, size_t bytes, size_t* needed);
    OrtStatus* (*value_name)(const OrtValueInfo*, const char** name);
    OrtStatus* (*value_type)(const OrtValueInfo*, const OrtTypeInfo** type);
    OrtStatus* (*value_initializer)(const OrtValueInfo*, const OrtValue** value);
    OrtStatus* (*value_is_constant_initializer)(const OrtValueInfo*, bool* is);
    OrtStatus* (*value_is_required_input)(const OrtValueInfo*, bool* is);  ///< of the model
    OrtStatus* (*value_is_from_outer_scope)(const OrtValueInfo*, bool* is);

    // New nodes.
    OrtStatus* (*create_op_attr)(const char* name, const void* data, int count, int type, OrtOpAttr**);
    void (*release_op_attr)(OrtOpAttr*);
    /// Copies the attributes.
    OrtStatus* (*create_node)(const char* op, const char* domain, const char* name, const char* const* inputs,
                              size_t input_count, const char* const* outputs, size_t output_count,
                              OrtOpAttr** attributes, size_t attribute_count, OrtNode**);
    void (*release_node)(OrtNode*);

    // A run.
    OrtStatus* (*context_input_count)(const OrtKernelContext*, size_t* count);
    OrtStatus* (*context_input)(const OrtKernelContext*, size_t index, const OrtValue** value);
    OrtStatus* (*context_output)(OrtKernelContext*, size_t index, const int64_t* dims, size_t rank, OrtValue** value);
    /// Calls task(argument, i) for all i < count, on ONNX Runtime's threads, and returns when all are done.
    OrtStatus* (*context_parallel_for)(const OrtKernelContext*, void (*task)(void* argument, size_t i), size_t count,
                                       size_t batches, void* argument);

    // OrtEpApi.
    OrtStatus* (*create_ep_device)(Factory*, const OrtHardwareDevice*, const OrtKeyValuePairs* metadata,
                                   const OrtKeyValuePairs* options, OrtEpDevice**);
    OrtStatus* (*add_nodes_to_fuse)(OrtEpGraphSupportInfo*, const OrtNode* const* nodes, size_t count,
                                    const FusionOptions*);

    /// Throws ApiError for a status that is not null, and releases it.
    void check(OrtStatus* status) const;
    /// The result of a function with one.
    template <class T, class Object>
    T get(OrtStatus* (*function)(const Object*, T*), const Object* object) const {
        T result{};
        check(function(object, &result));
        return result;
    }
    /// All elements of a list.
    template <class T, class Object>
    std::vector<T> list(OrtStatus* (*count)(const Object*, size_t*), OrtStatus* (*fill)(const Object*, T*, size_t),
                        const Object* object) const {
        std::vector<T> all(get<size_t>(count, object));
        if (!all.empty()) check(fill(object, all.data(), all.size()));
        return all;
    }
    std::string name(const OrtValueInfo* value) const { return get<const char*>(value_name, value); }
};

}  // namespace tilewright::provider
