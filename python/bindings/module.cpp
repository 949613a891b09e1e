// The extension module tilewright._tilewright, over the C++ interface.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "operators.h"
#include "session.h"

namespace tilewright_python {

namespace {

/// tw::Options, and a Python function that receives messages.
struct CompileOptions {
    tw::Options options;
    nb::object log = nb::none();
};

/// For the time of a compilation without the GIL: passes messages to `log`, and ends the compilation when a signal
/// handler has raised an exception (Ctrl-C) or `log` has.
class Connected {
  public:
    explicit Connected(const CompileOptions& given) : options_(given.options) {
        if (!given.log.is_none())
            options_.log = [log = nb::handle(given.log), this](tilewright_severity severity, const std::string& text) {
                const nb::gil_scoped_acquire gil;
                if (raised_) return;
                try {
                    log(static_cast<int>(severity), text);
                } catch (nb::python_error& e) {
                    keep(e);
                }
            };
        options_.cancelled = [this] {
            const nb::gil_scoped_acquire gil;
            if (!raised_ && PyErr_CheckSignals() != 0) {
                nb::python_error e;
                keep(e);
            }
            return raised_ != nullptr;
        };
    }
    const tw::Options& options() const { return options_; }

    /// Calls `compile` without the GIL. Throws what a signal handler or `log` raised, else what `compile` throws.
    template <class F>
    auto run(F&& compile) -> decltype(compile()) {
        try {
            auto made = [&] {
                const nb::gil_scoped_release release;
                return compile();
            }();
            if (raised_) std::rethrow_exception(raised_);
            return made;
        } catch (const tw::Error&) {
            if (raised_) std::rethrow_exception(raised_);
            throw;
        }
    }

  private:
    void keep(const nb::python_error& e) { raised_ = std::make_exception_ptr(e); }

    tw::Options options_;
    std::exception_ptr raised_;
};

std::unique_ptr<Runner> compile_file(const std::string& path, const CompileOptions& given, int threads) {
    Connected connected(given);
    tw::Model model = connected.run([&] { return tw::Model::from_file(path, connected.options()); });
    return std::make_unique<Runner>(std::move(model), threads);
}

std::unique_ptr<Runner> compile_memory(nb::bytes bytes, const CompileOptions& given, int threads) {
    Connected connected(given);
    tw::Model model =
        connected.run([&] { return tw::Model::from_memory(bytes.data(), bytes.size(), connected.options()); });
    return std::make_unique<Runner>(std::move(model), threads);
}

/// A file of `tilewright compile`.
std::unique_ptr<Runner> load_file(const std::string& path, const CompileOptions& given, int threads,
                                  bool copy_weights) {
    Connected connected(given);
    tw::Model model = connected.run([&] {
        return tw::Model::load(path, connected.options().operators, connected.options().operator_libraries,
                               copy_weights);
    });
    return std::make_unique<Runner>(std::move(model), threads);
}

nb::tuple texts_of(const tw::Explanation& e) { return nb::make_tuple(e.text, e.json, e.html); }

nb::tuple explain_file(const std::string& path, const CompileOptions& given, double seconds) {
    Connected connected(given);
    return texts_of(connected.run([&] { return tw::Explanation::of_file(path, connected.options(), seconds); }));
}

nb::tuple explain_memory(nb::bytes bytes, const CompileOptions& given, double seconds) {
    Connected connected(given);
    return texts_of(connected.run(
        [&] { return tw::Explanation::of_memory(bytes.data(), bytes.size(), connected.options(), seconds); }));
}

nb::tuple values_of(const tw::Tuning& t) { return nb::make_tuple(t.default_ms, t.tuned_ms, t.kept, t.text, t.json); }

nb::tuple tune_file(const std::string& path, const CompileOptions& given, const std::string& budget) {
    Connected connected(given);
    return values_of(connected.run([&] { return tw::Tuning::of_file(path, budget, connected.options()); }));
}

nb::tuple tune_memory(nb::bytes bytes, const CompileOptions& given, const std::string& budget) {
    Connected connected(given);
    return values_of(
        connected.run([&] { return tw::Tuning::of_memory(bytes.data(), bytes.size(), budget, connected.options()); }));
}

nb::list describe(const std::vector<tw::Io>& all) {
    nb::list list;
    for (const tw::Io& io : all)
        list.append(nb::make_tuple(io.name, static_cast<int>(io.dtype), io.dims, io.dim_names));
    return list;
}

nb::dict info_of(const tw::Model& model) {
    const tw::Info info = model.info();
    nb::dict d;
    d["producer_name"] = info.producer_name;
    d["graph_name"] = info.graph_name;
    d["domain"] = info.domain;
    d["description"] = info.description;
    d["graph_description"] = info.graph_description;
    d["version"] = info.version;
    d["custom_metadata_map"] = info.metadata;
    return d;
}

/// A writable numpy array of uninitialised, 64-byte aligned memory.
nb::object empty_array(const std::vector<std::int64_t>& shape, int type) {
    const auto dtype = static_cast<tilewright_dtype>(type);
    std::uint64_t bytes = tilewright_dtype_size(dtype);
    if (bytes == 0) throw nb::value_error("no element type");
    for (const std::int64_t d : shape)
        if (d < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(d), &bytes))
            throw nb::value_error("a dimension is negative, or the array is too large");
    return numpy_array(aligned_memory(bytes), dtype, shape);
}

/// Raises the exception that tilewright._errors makes of a status, a message and a hint.
void translate(const std::exception_ptr& thrown, void* /*unused*/) {
    try {
        std::rethrow_exception(thrown);
    } catch (const tw::Error& e) {
        const nb::object made = nb::module_::import_("tilewright._errors")
                                    .attr("make")(static_cast<int>(e.status()), nb::str(e.what()), e.hint());
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    }
}

void bind_options(nb::module_& m) {
    nb::class_<CompileOptions>(m, "CompileOptions")
        .def(nb::init<>())
        .def_rw("log", &CompileOptions::log, nb::arg().none())
#define TW_FIELD(name)                                                 \
    .def_prop_rw(                                                      \
        #name, [](const CompileOptions& o) { return o.options.name; }, \
        [](CompileOptions& o, decltype(tw::Options::name) v) { o.options.name = std::move(v); })
            TW_FIELD(threads) TW_FIELD(isa) TW_FIELD(dims) TW_FIELD(ranges) TW_FIELD(keep_subnormals)
                TW_FIELD(check_values) TW_FIELD(kv_cache) TW_FIELD(measure) TW_FIELD(measure_seconds) TW_FIELD(keep_f32)
                    TW_FIELD(max_error) TW_FIELD(sample_sizes) TW_FIELD(cache) TW_FIELD(cache_folder)
                        TW_FIELD(operator_libraries) TW_FIELD(output_file) TW_FIELD(tuned) TW_FIELD(layout_seconds)
#undef TW_FIELD
        .def("set_operators", [](CompileOptions& o, const nb::list& all) { o.options.operators = operators_of(all); })
        .def("add_functions",
             [](CompileOptions& o, const std::string& path, const nb::bytes& bytes) {
                 o.options.function_libraries.push_back({path, std::string(bytes.c_str(), bytes.size())});
             })
        .def_prop_rw(
            "numerics", [](const CompileOptions& o) { return static_cast<int>(o.options.numerics); },
            [](CompileOptions& o, int v) { o.options.numerics = static_cast<tilewright_numerics>(v); })
        .def_prop_rw(
            "precision", [](const CompileOptions& o) { return static_cast<int>(o.options.precision); },
            [](CompileOptions& o, int v) { o.options.precision = static_cast<tilewright_precision>(v); })
        .def_prop_rw(
            "layouts", [](const CompileOptions& o) { return static_cast<int>(o.options.layouts); },
            [](CompileOptions& o, int v) { o.options.layouts = static_cast<tilewright_layouts>(v); })
        .def_prop_rw(
            "orchestrator", [](const CompileOptions& o) { return static_cast<int>(o.options.orchestrator); },
            [](CompileOptions& o, int v) { o.options.orchestrator = static_cast<tilewright_orchestrator>(v); });
}

void bind_runner(nb::module_& m) {
    nb::class_<Flag>(m, "Flag")
        .def(nb::init<>())
        .def_prop_rw(
            "value", [](const Flag& f) { return f.set.load(); }, [](Flag& f, bool v) { f.set = v; });
    nb::class_<Cache>(
        m, "KvCache",
        "The past keys and values of a decoder, or whatever outputs extend, from run to run. A run appends "
        "to them in place. One run at a time.")
        .def_prop_ro("rows", &Cache::rows, "how many each input has")
        .def("__len__", &Cache::rows)
        .def("truncate", &Cache::truncate, nb::arg("rows") = 0, "Keeps the first `rows` rows; 0 begins a new sequence.")
        .def("read", &Cache::read, "The rows by input name, as arrays.");
    nb::class_<Runner>(m, "Runner")
        .def("inputs", [](const Runner& r) { return describe(r.model().inputs()); })
        .def("outputs", [](const Runner& r) { return describe(r.model().outputs()); })
        .def("info", [](const Runner& r) { return info_of(r.model()); })
        .def("run", nb::overload_cast<nb::handle, const nb::dict&, const Flag*, Cache*>(&Runner::run),
             nb::arg("output_names").none(), nb::arg("feeds"), nb::arg("terminate").none() = nb::none(),
             nb::arg("kv_cache").none() = nb::none())
        .def("cached_outputs", &Runner::cached_outputs)
        .def("new_kv_cache", &Runner::new_cache, nb::arg("rows"))
        .def("run_bound", &Runner::run_bound, nb::arg("inputs"), nb::arg("targets"),
             nb::arg("terminate").none() = nb::none())
        .def("run_addresses", &Runner::run_addresses, nb::arg("inputs"), nb::arg("input_shapes").none(),
             nb::arg("outputs"), nb::arg("output_shapes"))
        .def("record", &Runner::record)
        .def("recorded", &Runner::recorded)
        .def("time", &Runner::time, nb::arg("feeds"), nb::arg("warmup"), nb::arg("iterations"));
}

}  // namespace

NB_MODULE(_tilewright, m) {
    nb::set_leak_warnings(false);  // what caches of torch hold lives until the process ends
    m.doc() = "Tilewright's C++ interface. Use the package tilewright, which wraps it.";
    nb::register_exception_translator(translate);
    bind_operators(m);
    bind_options(m);
    bind_runner(m);
    m.def("version", [] { return tilewright_version(); });
    m.def("dtype_name", [](int type) { return tilewright_dtype_name(static_cast<tilewright_dtype>(type)); });
    m.def("compile_file", &compile_file, nb::arg("path"), nb::arg("options"), nb::arg("threads"));
    m.def("compile_memory", &compile_memory, nb::arg("data"), nb::arg("options"), nb::arg("threads"));
    m.def("load_file", &load_file, nb::arg("path"), nb::arg("options"), nb::arg("threads"), nb::arg("copy_weights"));
    m.def("explain_file", &explain_file, nb::arg("path"), nb::arg("options"), nb::arg("seconds"));
    m.def("explain_memory", &explain_memory, nb::arg("data"), nb::arg("options"), nb::arg("seconds"));
    m.def("tune_file", &tune_file, nb::arg("path"), nb::arg("options"), nb::arg("budget"));
    m.def("tune_memory", &tune_memory, nb::arg("data"), nb::arg("options"), nb::arg("budget"));
    m.def("empty_array", &empty_array, nb::arg("shape"), nb::arg("dtype"));
    m.def("import_array", &import_array, nb::arg("array"));
}

}  // namespace tilewright_python
