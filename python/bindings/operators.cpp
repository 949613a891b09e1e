#include "operators.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace tilewright_python {

namespace {

/// A call as Python sees it, which may keep it for longer than it lasts.
struct Call {
    tw::Call* call;
    tw::Call& get() const {
        if (call == nullptr) throw std::runtime_error("the operator's call is over");
        return *call;
    }
};

/// A Python object that is freed on any thread.
using Held = std::shared_ptr<nb::object>;
Held held(nb::object object) {
    return {new nb::object(std::move(object)), [](nb::object* o) {
                if (Py_IsInitialized() == 0) return;  // the process ends
                const nb::gil_scoped_acquire gil;
                delete o;
            }};
}

/// A new array with the elements of a tensor, which is gone when the call is over; None without elements.
nb::object copied(const tw::Tensor& t) {
    if (t.data == nullptr) return nb::none();
    Memory memory = aligned_memory(t.bytes);
    if (t.bytes > 0) std::memcpy(memory.get(), t.data, t.bytes);
    return numpy_array(std::move(memory), t.dtype, t.shape);
}

/// Calls `f(call)` with the GIL. An exception of Python's becomes one with its text.
template <class F>
void with_python(tw::Call& call, F&& f) {
    const nb::gil_scoped_acquire gil;
    const nb::object object = nb::cast(Call{&call});
    Call& view = nb::cast<Call&>(object);
    try {
        f(object);
        view.call = nullptr;
    } catch (nb::python_error& e) {
        view.call = nullptr;
        const std::string type = nb::cast<std::string>(e.type().attr("__name__"));
        throw std::runtime_error(type + ": " + nb::cast<std::string>(nb::str(e.value())));
    } catch (...) {
        view.call = nullptr;
        throw;
    }
}

/// (element type, sizes, contents or None) of each input; None for one that is left out.
nb::list inputs_of(const tw::Call& call) {
    nb::list inputs;
    for (std::size_t i = 0; i < call.input_count(); ++i) {
        if (!call.has_input(i)) {
            inputs.append(nb::none());
            continue;
        }
        const tw::Tensor t = call.input(i);
        inputs.append(nb::make_tuple(static_cast<int>(t.dtype), t.shape, copied(t)));
    }
    return inputs;
}

/// `function(call, inputs)` returns (element type, sizes) of each output.
void infer(tw::Call& call, const nb::object& function) {
    with_python(call, [&](const nb::object& object) {
        const auto outputs = nb::cast<nb::list>(function(object, inputs_of(call)));
        for (std::size_t k = 0; k < nb::len(outputs); ++k) {
            const auto type = nb::cast<nb::tuple>(outputs[k]);
            call.set_output(k, static_cast<tilewright_dtype>(nb::cast<int>(type[0])),
                            nb::cast<std::vector<std::int64_t>>(type[1]));
        }
    });
}

/// `function(call, inputs, types)` returns (element type, dense array) of each output. `types`: of the outputs; None
/// where infer has left a size unknown.
void compute(tw::Call& call, const nb::object& function) {
    with_python(call, [&](const nb::object& object) {
        nb::list types;
        for (std::size_t k = 0; k < call.output_count(); ++k) {
            if (call.has_output(k))
                types.append(static_cast<int>(call.output(k).dtype));
            else
                types.append(nb::none());
        }
        const auto outputs = nb::cast<nb::list>(function(object, inputs_of(call), types));
        if (nb::len(outputs) != call.output_count())
            throw std::runtime_error(std::to_string(nb::len(outputs)) + " arrays are returned for " +
                                     std::to_string(call.output_count()) + " outputs");
        for (std::size_t k = 0; k < nb::len(outputs); ++k) {
            const auto result = nb::cast<nb::tuple>(outputs[k]);
            const auto array = nb::cast<InputArray>(result[1], false);
            const tw::Tensor from = tensor_of(array, static_cast<tilewright_dtype>(nb::cast<int>(result[0])));
            void* to = nullptr;
            if (call.has_output(k)) {
                const tw::Tensor output = call.output(k);
                if (output.dtype != from.dtype || output.shape != from.shape)
                    throw std::runtime_error("the array of output " + std::to_string(k) +
                                             " does not have the type and sizes that infer gave");
                to = const_cast<void*>(output.data);
            } else {
                to = call.allocate<void>(k, from.shape);
            }
            if (from.bytes > 0) std::memcpy(to, from.data, from.bytes);
        }
    });
}

nb::object attribute(const Call& c, const std::string& name) {
    const tw::Call& call = c.get();
    switch (call.kind(name)) {
        case TILEWRIGHT_INT_ATTRIBUTE:
            return nb::cast(call.integer(name));
        case TILEWRIGHT_FLOAT_ATTRIBUTE:
            return nb::cast(call.number(name));
        case TILEWRIGHT_STRING_ATTRIBUTE: {
            const std::string text = call.text(name);
            return nb::bytes(text.data(), text.size());
        }
        case TILEWRIGHT_INTS_ATTRIBUTE:
            return nb::cast(call.integers(name));
        case TILEWRIGHT_FLOATS_ATTRIBUTE:
            return nb::cast(call.numbers(name));
        case TILEWRIGHT_TENSOR_ATTRIBUTE: {
            const tw::Tensor t = call.tensor(name);
            return nb::make_tuple(static_cast<int>(t.dtype), copied(t));
        }
        default:
            return nb::none();
    }
}

std::unique_ptr<tw::Operator> make(const std::string& domain, const std::string& name, std::int64_t version,
                                   std::size_t least_inputs, std::size_t most_inputs, std::size_t most_outputs,
                                   bool varies, const nb::object& infer_function, const nb::object& compute_function) {
    tw::OperatorDefinition d;
    d.domain = domain;
    d.name = name;
    d.version = version;
    d.least_inputs = least_inputs;
    d.most_inputs = most_inputs;
    d.most_outputs = most_outputs;
    d.varies = varies;
    if (!infer_function.is_none()) d.infer = [f = held(infer_function)](tw::Call& call) { infer(call, *f); };
    d.compute = [f = held(compute_function)](tw::Call& call) { compute(call, *f); };
    return std::make_unique<tw::Operator>(std::move(d));
}

}  // namespace

void bind_operators(nb::module_& m) {
    nb::class_<Call> call(m, "Call");
    call.def_prop_ro("node", [](const Call& c) { return c.get().node(); })
        .def_prop_ro("output_count", [](const Call& c) { return c.get().output_count(); })
        .def("attribute", &attribute);
    const auto arithmetic = [&call](const char* name, std::int64_t (tw::Call::*f)(std::int64_t, std::int64_t)) {
        call.def(name, [f](const Call& c, std::int64_t a, std::int64_t b) { return (c.get().*f)(a, b); });
    };
    arithmetic("add", &tw::Call::add);
    arithmetic("sub", &tw::Call::sub);
    arithmetic("mul", &tw::Call::mul);
    arithmetic("div", &tw::Call::div);
    arithmetic("min", &tw::Call::min);
    arithmetic("max", &tw::Call::max);
    nb::class_<tw::Operator>(m, "Operator");  // NOLINT(bugprone-unused-raii): the constructor adds it to the module
    m.def("make_operator", &make, nb::arg("domain"), nb::arg("name"), nb::arg("version"), nb::arg("least_inputs"),
          nb::arg("most_inputs"), nb::arg("most_outputs"), nb::arg("varies"), nb::arg("infer").none(),
          nb::arg("compute"));
}

std::vector<tw::Operator> operators_of(const nb::list& all) {
    std::vector<tw::Operator> operators;
    for (const nb::handle op : all) operators.push_back(nb::cast<const tw::Operator&>(op));
    return operators;
}

}  // namespace tilewright_python
