// The part of the C interface that defines operators (opaque/custom.h). It needs no compiler.

#include "driver/api_operator.h"

#include <array>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quoted_name.h"
#include "base/shared_library.h"
#include "driver/api_call.h"

using namespace tilewright;
using namespace tilewright::api;

struct tilewright_operator {
    std::shared_ptr<const CustomOperator> made;
};

namespace {

constexpr tilewright_call_functions kCallFunctions = {sizeof(tilewright_call_functions),
                                                      tilewright_call_node,
                                                      tilewright_call_input_count,
                                                      tilewright_call_output_count,
                                                      tilewright_call_fail,
                                                      tilewright_call_attribute,
                                                      tilewright_call_int,
                                                      tilewright_call_float,
                                                      tilewright_call_string,
                                                      tilewright_call_ints,
                                                      tilewright_call_floats,
                                                      tilewright_call_tensor,
                                                      tilewright_call_set_output,
                                                      tilewright_call_add,
                                                      tilewright_call_sub,
                                                      tilewright_call_mul,
                                                      tilewright_call_div,
                                                      tilewright_call_min,
                                                      tilewright_call_max,
                                                      tilewright_call_allocate};

}  // namespace

struct tilewright_call {
    explicit tilewright_call(CustomCall& of) : call(of) {}

    const tilewright_call_functions* functions = &kCallFunctions;  ///< first: operator_library.h reads it here
    CustomCall& call;
    std::exception_ptr failure = nullptr;         ///< the first
    std::vector<tilewright_tensor> tensors = {};  ///< by operand
    std::vector<const tilewright_tensor*> inputs = {};

    /// The result of `f`, or `otherwise` where it fails: exceptions do not pass through the caller's function.
    template <class T, class F>
    T guard(T otherwise, F&& f) noexcept {
        try {
            return f();
        } catch (...) {
            if (!failure) failure = std::current_exception();
            return otherwise;
        }
    }
};

namespace {

/// What the caller's functions get first; released with the last copy of the functions.
struct User {
    void* user;
    void (*release)(void*);
    User(void* u, void (*r)(void*)) : user(u), release(r) {}
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    ~User() {
        if (release != nullptr) release(user);
    }
};

tilewright_tensor view_of(DType dtype, const int64_t* shape, size_t rank, void* data) {
    tilewright_tensor t = {static_cast<tilewright_dtype>(dtype), rank, shape, data, 0};
    if (data != nullptr) t.bytes = static_cast<size_t>(element_count({shape, rank})) * byte_size(dtype);
    return t;
}

void begin(tilewright_call& c) {
    const std::vector<CustomCall::Operand>& operands = c.call.operands;
    c.tensors.reserve(operands.size());
    for (const CustomCall::Operand& o : operands) {
        c.tensors.push_back(view_of(o.dtype, o.sizes.data(), o.sizes.size(), const_cast<void*>(o.data)));
        c.inputs.push_back(o.given ? &c.tensors.back() : nullptr);
    }
}

void end(const tilewright_call& c, int32_t status) {
    if (c.failure) std::rethrow_exception(c.failure);
    if (status != 0) model_error("the operator's function returned {}", status);
}

void infer_as_first_input(CustomCall& call) {
    if (call.node.inputs == 0 || !call.operands[0].given)
        throw ModelError("input 0, whose type and sizes the outputs have, is missing");
    for (size_t k = 0; k < call.node.outputs; ++k) call.set_output(k, call.operands[0].dtype, call.operands[0].sizes);
}

std::shared_ptr<CustomOperator> operator_of(const tilewright_operator_definition& given) {
    tilewright_operator_definition d = tilewright_default_operator_definition();
    copy_known_fields(&given, given.struct_size, sizeof d, &d, sizeof d, "tilewright_operator_definition");
    require_pointer(d.domain, "definition->domain");
    require_pointer(d.name, "definition->name");
    if (d.name[0] == '\0') invalid("definition->name is empty");
    if (d.compute == nullptr) invalid("definition->compute is NULL");
    if (d.version < 0) invalid("definition->version is {}: expected at least 0", d.version);
    if (d.most_inputs != 0 && d.most_inputs < d.least_inputs)
        invalid("definition->most_inputs is {}, and least_inputs {}", d.most_inputs, d.least_inputs);
    auto op = std::make_shared<CustomOperator>();
    op->domain = d.domain == std::string_view("ai.onnx") ? "" : d.domain;
    op->name = d.name;
    if (d.version != 0) op->version = d.version;
    op->least_inputs = d.least_inputs;
    if (d.most_inputs != 0) op->most_inputs = d.most_inputs;
    if (d.most_outputs != 0) op->most_outputs = d.most_outputs;
    op->varies = d.varies != 0;
    const auto user = std::make_shared<const User>(d.user, d.release);
    op->infer = [user, infer = d.infer](CustomCall& call) {
        if (infer == nullptr) return infer_as_first_input(call);
        tilewright_call c(call);
        begin(c);
        end(c, infer(user->user, &c, c.inputs.data()));
    };
    op->compute = [user, compute = d.compute](CustomCall& call) {
        tilewright_call c(call);
        begin(c);
        std::vector<tilewright_tensor> tensors(call.results.size());
        std::vector<const tilewright_tensor*> outputs(call.results.size(), nullptr);
        for (size_t k = 0; k < tensors.size(); ++k) {
            const std::optional<TensorView>& t = call.results[k].tensor;
            if (!t) continue;
            tensors[k] = view_of(t->dtype, t->shape.data(), t->shape.size(), t->data);
            outputs[k] = &tensors[k];
        }
        end(c, compute(user->user, &c, c.inputs.data(), outputs.data()));
    };
    return op;
}

constexpr std::array<const char*, 6> kKinds = {"an integer",         "a float",          "a string",
                                               "a list of integers", "a list of floats", "a tensor"};

const CustomAttribute* find(const tilewright_call& c, const char* name) {
    const auto& all = c.call.node.attributes;
    const auto it = all.find(name != nullptr ? name : "");
    return it != all.end() ? &it->second : nullptr;
}

/// The attribute; null where the node has none, or one of another kind, which fails.
template <class T>
const T* attribute(tilewright_call& c, const char* name) {
    return c.guard<const T*>(nullptr, [&]() -> const T* {
        const CustomAttribute* a = find(c, name);
        if (a == nullptr) return nullptr;
        const T* value = std::get_if<T>(a);
        if (value == nullptr)
            model_error("attribute {} is {}, and {} was requested", quoted_name(name), kKinds.at(a->index()),
                        kKinds.at(CustomAttribute(T()).index()));
        return value;
    });
}

template <class T>
const T* list(tilewright_call& c, const char* name, size_t* count) {
    const auto* all = attribute<std::vector<T>>(c, name);
    if (count != nullptr) *count = all != nullptr ? all->size() : 0;
    return all != nullptr ? all->data() : nullptr;
}

int64_t combined(tilewright_call* c, int64_t a, int64_t b, CustomCall::Arithmetic f) {
    return c->guard<int64_t>(0, [&] { return c->call.combine(a, b, f); });
}

Shape sizes_of(size_t rank, const int64_t* sizes) {
    if (rank > 0 && sizes == nullptr) model_error("an output's sizes are NULL");
    return {sizes, sizes + rank};
}

}  // namespace

namespace tilewright::api {

void add_library(const std::string& path, CustomOperators& to) {
    std::error_code failed;
    const std::string file = std::filesystem::absolute(path, failed).string();
    if (!std::filesystem::is_regular_file(file, failed))
        throw RuntimeError(fmt::format("{}: no such library of operators", path));
    const SharedLibrary library(fmt::format("operators of {}", path), {file}, "see docs/custom-operators.md");
    const tilewright_operator_definition* (*definitions)(size_t, size_t*) = nullptr;
    library.find_if_there(definitions, "tilewright_operator_library");
    if (definitions == nullptr)
        throw RuntimeError(
            fmt::format("{}: no library of operators: it has no function tilewright_operator_library", path));
    size_t count = 0;
    const auto* first = reinterpret_cast<const std::byte*>(definitions(sizeof(tilewright_call_functions), &count));
    if (first == nullptr)
        throw RuntimeError(fmt::format("{}: it was compiled for a newer version of Tilewright", path));
    const size_t bytes = reinterpret_cast<const tilewright_operator_definition*>(first)->struct_size;
    for (size_t i = 0; i < count; ++i) try {
            to.add(operator_of(*reinterpret_cast<const tilewright_operator_definition*>(first + i * bytes)));
        } catch (const InvalidArgument& e) {
            throw RuntimeError(fmt::format("{}: operator {} of {}: {}", path, i, count, e.what()));
        }
}

std::shared_ptr<const CustomOperators> operators_of(const GivenOperators& given) {
    if (given.count == 0 && given.library_count == 0) return nullptr;
    auto all = std::make_shared<CustomOperators>();
    if (given.count > 0) require_pointer(given.operators, "options->operators");
    for (size_t i = 0; i < given.count; ++i) {
        require_pointer(given.operators[i], "options->operators[i]");
        all->add(given.operators[i]->made);
    }
    if (given.library_count > 0) require_pointer(given.libraries, "options->operator_libraries");
    for (size_t i = 0; i < given.library_count; ++i) {
        require_pointer(given.libraries[i], "options->operator_libraries[i]");
        add_library(given.libraries[i], *all);
    }
    return all;
}

}  // namespace tilewright::api

extern "C" {

tilewright_status tilewright_operator_create(const tilewright_operator_definition* definition,
                                             tilewright_operator** created, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(definition, "definition");
        require_pointer(created, "created");
        *created = new tilewright_operator{operator_of(*definition)};
    });
}

void tilewright_operator_free(tilewright_operator* created) { delete created; }

const char* tilewright_call_node(const tilewright_call* call) { return call->call.node.name.c_str(); }
size_t tilewright_call_input_count(const tilewright_call* call) { return call->call.node.inputs; }
size_t tilewright_call_output_count(const tilewright_call* call) { return call->call.node.outputs; }

int32_t tilewright_call_fail(tilewright_call* call, const char* message) {
    return call->guard(1, [&]() -> int32_t { throw ModelError(message != nullptr ? message : ""); });
}

tilewright_attribute tilewright_call_attribute(const tilewright_call* call, const char* name) {
    const CustomAttribute* a = find(*call, name);
    return a != nullptr ? static_cast<tilewright_attribute>(a->index() + 1) : TILEWRIGHT_NO_ATTRIBUTE;
}

int64_t tilewright_call_int(tilewright_call* call, const char* name, int64_t fallback) {
    const auto* value = attribute<int64_t>(*call, name);
    return value != nullptr ? *value : fallback;
}

float tilewright_call_float(tilewright_call* call, const char* name, float fallback) {
    const auto* value = attribute<float>(*call, name);
    return value != nullptr ? *value : fallback;
}

const char* tilewright_call_string(tilewright_call* call, const char* name, const char* fallback) {
    const auto* value = attribute<std::string>(*call, name);
    return value != nullptr ? value->c_str() : fallback;
}

const int64_t* tilewright_call_ints(tilewright_call* call, const char* name, size_t* count) {
    return list<int64_t>(*call, name, count);
}

const float* tilewright_call_floats(tilewright_call* call, const char* name, size_t* count) {
    return list<float>(*call, name, count);
}

const tilewright_tensor* tilewright_call_tensor(tilewright_call* call, const char* name) {
    const auto* value = attribute<TensorOperand>(*call, name);
    return value != nullptr ? &call->tensors.at(value->operand) : nullptr;
}

void tilewright_call_set_output(tilewright_call* call, size_t index, tilewright_dtype dtype, size_t rank,
                                const int64_t* sizes) {
    call->guard(0, [&] {
        if (tilewright_dtype_size(dtype) == 0)
            model_error("output {} is given the type {}, which is none", index, static_cast<int>(dtype));
        call->call.set_output(index, static_cast<DType>(dtype), sizes_of(rank, sizes));
        return 0;
    });
}

int64_t tilewright_call_add(tilewright_call* call, int64_t a, int64_t b) {
    return combined(call, a, b, [](Expr x, Expr y) { return x + y; });
}
int64_t tilewright_call_sub(tilewright_call* call, int64_t a, int64_t b) {
    return combined(call, a, b, [](Expr x, Expr y) { return x - y; });
}
int64_t tilewright_call_mul(tilewright_call* call, int64_t a, int64_t b) {
    return combined(call, a, b, [](Expr x, Expr y) { return x * y; });
}
int64_t tilewright_call_div(tilewright_call* call, int64_t a, int64_t b) {
    return combined(call, a, b, [](Expr x, Expr y) { return floor_div(x, y); });
}
int64_t tilewright_call_min(tilewright_call* call, int64_t a, int64_t b) {
    return combined(call, a, b, [](Expr x, Expr y) { return min(x, y); });
}
int64_t tilewright_call_max(tilewright_call* call, int64_t a, int64_t b) {
    return combined(call, a, b, [](Expr x, Expr y) { return max(x, y); });
}

void* tilewright_call_allocate(tilewright_call* call, size_t index, size_t rank, const int64_t* sizes) {
    return call->guard<void*>(nullptr, [&] { return call->call.allocate(index, sizes_of(rank, sizes)); });
}

}  // extern "C"
