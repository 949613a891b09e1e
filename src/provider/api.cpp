#include "provider/api.h"

#include <fmt/format.h>

#include <cstdio>

namespace tilewright::provider {

namespace {

/// Sets functions from a table of their addresses.
class Table {
  public:
    explicit Table(const void* table) : table_(static_cast<const void* const*>(table)) {}
    template <class F>
    void load(F*& function, size_t place) const {
        function = reinterpret_cast<F*>(const_cast<void*>(table_[place]));
    }

  private:
    const void* const* table_;
};

void load_types_and_values(Api& a, const Table& t) {
    t.load(a.get_tensor_mutable_data, 51);
    t.load(a.cast_to_tensor_info, 55);
    t.load(a.get_onnx_type, 56);
    t.load(a.get_element_type, 60);
    t.load(a.get_dimension_count, 61);
    t.load(a.get_dimensions, 62);
    t.load(a.get_symbolic_dimensions, 63);
    t.load(a.get_tensor_info, 65);
    t.load(a.release_value, 96);
    t.load(a.release_tensor_info, 99);
    t.load(a.get_tensor_bytes, 318);
    t.load(a.get_tensor_data, 378);
}

void load_graphs(Api& a, const Table& t) {
    t.load(a.read_attribute, 272);
    t.load(a.value_name, 289);
    t.load(a.value_type, 290);
    t.load(a.value_initializer, 326);
    t.load(a.value_is_required_input, 328);
    t.load(a.value_is_constant_initializer, 331);
    t.load(a.value_is_from_outer_scope, 332);
    t.load(a.graph_model_path, 334);
    t.load(a.graph_ir_version, 335);
    t.load(a.graph_opset_count, 336);
    t.load(a.graph_opsets, 337);
    t.load(a.graph_input_count, 338);
    t.load(a.graph_inputs, 339);
    t.load(a.graph_output_count, 340);
    t.load(a.graph_outputs, 341);
    t.load(a.graph_node_count, 344);
    t.load(a.graph_nodes, 345);
    t.load(a.graph_parent_node, 346);
    t.load(a.node_id, 348);
    t.load(a.node_name, 349);
    t.load(a.node_operator, 350);
    t.load(a.node_domain, 351);
    t.load(a.node_since_version, 352);
    t.load(a.node_input_count, 353);
    t.load(a.node_inputs, 354);
    t.load(a.node_output_count, 355);
    t.load(a.node_outputs, 356);
    t.load(a.node_implicit_input_count, 357);
    t.load(a.node_implicit_inputs, 358);
    t.load(a.node_attribute_count, 359);
    t.load(a.node_attributes, 360);
    t.load(a.attribute_tensor, 362);
    t.load(a.attribute_type, 363);
    t.load(a.attribute_name, 364);
    t.load(a.node_subgraph_count, 365);
    t.load(a.node_subgraphs, 366);
}

void load_new_nodes(Api& a, const Table& t) {
    t.load(a.create_op_attr, 211);
    t.load(a.release_op_attr, 212);
    t.load(a.release_node, 286);
    const void* (*get_model_editor_api)() = nullptr;
    t.load(get_model_editor_api, 291);
    const void* editor = get_model_editor_api();
    if (editor == nullptr) throw ApiError("a minimal build of ONNX Runtime has no execution providers that compile");
    Table(editor).load(a.create_node, 6);
}

void load_runs(Api& a, const Table& t) {
    t.load(a.context_input_count, 88);
    t.load(a.context_input, 90);
    t.load(a.context_output, 91);
    t.load(a.context_parallel_for, 274);
}

}  // namespace

Api::Api(const OrtApiBase& base) {
    const void* functions = base.get_api(kVersion);
    if (functions == nullptr)
        throw ApiError(fmt::format("ONNX Runtime {} has no execution providers that compile: expected 1.23 or later",
                                   base.get_version()));
    const Table t(functions);
    t.load(create_status, 0);
    t.load(get_error_message, 2);
    t.load(release_status, 93);
    t.load(get_key_value_pairs, 298);
    t.load(release_key_value_pairs, 300);
    t.load(get_session_config_entries, 379);
    t.load(log_message, 247);
    t.load(hardware_device_type, 307);
    load_types_and_values(*this, t);
    load_graphs(*this, t);
    load_new_nodes(*this, t);
    load_runs(*this, t);
    // An ONNX Runtime prints an error if it is asked for a later version than its own, so it is asked for its own.
    int major = 0, minor = 0;
    std::sscanf(base.get_version(), "%d.%d", &major, &minor);
    has_shape = nullptr;
    has_subgraphs = major > 1 || minor >= 24;
    if (has_subgraphs) Table(base.get_api(24)).load(has_shape, 390);

    const void* (*get_ep_api)() = nullptr;
    t.load(get_ep_api, 317);
    const Table ep(get_ep_api());
    ep.load(create_ep_device, 0);
    ep.load(add_nodes_to_fuse, 2);
}

void Api::check(OrtStatus* status) const {
    if (status == nullptr) return;
    const std::string message = get_error_message(status);
    release_status(status);
    throw ApiError(message);
}

}  // namespace tilewright::provider
