// A C++17 wrapper of the C interface (tilewright.h), with RAII and exceptions.
//
//     tw::Model model = tw::Model::from_file("model.onnx");
//     tw::Session session(model);
//     std::vector<float> pixels(3 * 224 * 224);
//     tw::Tensor logits = session.run({tw::tensor(pixels, {1, 3, 224, 224})}).at(0);
//     use(logits.as<float>(), logits.count());
//
// Ownership and threads are as in tilewright.h: threads may share a Model, a Session is for one thread at a time.
#ifndef TILEWRIGHT_TILEWRIGHT_HPP
#define TILEWRIGHT_TILEWRIGHT_HPP

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tilewright/tilewright.h"

namespace tw {

/// Any failure. what() names the file, node or input; hint() is the remedy, or empty.
class Error : public std::runtime_error {
  public:
    Error(tilewright_status status, const std::string& message, std::string hint)
        : std::runtime_error(message), status_(status), hint_(std::move(hint)) {}
    tilewright_status status() const { return status_; }
    const std::string& hint() const { return hint_; }

  private:
    tilewright_status status_;
    std::string hint_;
};

namespace detail {

/// Converts `status` and `error` to an exception, and frees the error.
inline void check(tilewright_status status, tilewright_error* error) {
    if (status == TILEWRIGHT_OK) return;
    const std::unique_ptr<tilewright_error, decltype(&tilewright_error_free)> owned(error, tilewright_error_free);
    throw Error(status, error != nullptr ? tilewright_error_message(error) : "not enough memory for an error message",
                tilewright_error_hint(error));
}

/// Calls a function of the C interface; throws its error.
template <class Function>
void call(Function&& function) {
    tilewright_error* error = nullptr;
    const tilewright_status status = function(&error);
    check(status, error);
}

}  // namespace detail

/// The element type of tensors of T: an integer, float, double or bool.
template <class T>
constexpr tilewright_dtype dtype_of() {
    static_assert(std::is_arithmetic<T>::value && sizeof(T) <= 8, "no element type");
    if (std::is_same<T, bool>::value) return TILEWRIGHT_BOOL;
    if (std::is_floating_point<T>::value) return sizeof(T) == 4 ? TILEWRIGHT_F32 : TILEWRIGHT_F64;
    const int size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<tilewright_dtype>((std::is_signed<T>::value ? TILEWRIGHT_I8 : TILEWRIGHT_U8) + size);
}

/// A non-owning view of a dense row-major tensor.
struct Tensor {
    tilewright_dtype dtype = TILEWRIGHT_F32;
    std::vector<std::int64_t> shape;
    const void* data = nullptr;
    std::size_t bytes = 0;

    std::size_t count() const { return bytes / tilewright_dtype_size(dtype); }
    /// Throws Error if the elements are not of type T.
    template <class T>
    const T* as() const {
        if (dtype != dtype_of<T>())
            throw Error(TILEWRIGHT_INVALID_ARGUMENT,
                        std::string("the tensor's elements are ") + tilewright_dtype_name(dtype) + ", not " +
                            tilewright_dtype_name(dtype_of<T>()),
                        "");
        return static_cast<const T*>(data);
    }
};

namespace detail {

inline Tensor viewed(const tilewright_tensor& t) {
    return {t.dtype, std::vector<std::int64_t>(t.shape, t.shape + t.rank), t.data, t.bytes};
}

}  // namespace detail

/// A view of `values`, which must outlive it.
template <class T>
Tensor tensor(const std::vector<T>& values, std::vector<std::int64_t> shape) {
    static_assert(!std::is_same<T, bool>::value, "std::vector<bool> packs its elements; use unsigned char and BOOL");
    return {dtype_of<T>(), std::move(shape), values.data(), values.size() * sizeof(T)};
}

/// The declaration of an input or output. Dynamic dimensions are -1 and have a name.
struct Io {
    std::string name;
    tilewright_dtype dtype = TILEWRIGHT_F32;
    std::vector<std::int64_t> dims;
    std::vector<std::string> dim_names;  ///< "" for a fixed dimension
};

/// One call of a custom operator's functions; valid until they return. See tilewright_operator_definition.
class Call {
  public:
    Call(tilewright_call* call, const tilewright_tensor* const* inputs, const tilewright_tensor* const* outputs)
        : call_(call), inputs_(inputs), outputs_(outputs) {}

    std::string node() const { return tilewright_call_node(call_); }
    std::size_t input_count() const { return tilewright_call_input_count(call_); }
    std::size_t output_count() const { return tilewright_call_output_count(call_); }
    /// False for an optional input that the node leaves out.
    bool has_input(std::size_t index) const { return index < input_count() && inputs_[index] != nullptr; }
    /// In infer, the shape may have sizes below -1, and data may be null.
    Tensor input(std::size_t index) const {
        if (!has_input(index)) throw std::out_of_range("input " + std::to_string(index) + " is missing");
        return detail::viewed(*inputs_[index]);
    }

    // Attributes of the node; the fallback, or an empty list or tensor, where it does not have them.
    tilewright_attribute kind(const std::string& name) const { return tilewright_call_attribute(call_, name.c_str()); }
    bool has(const std::string& name) const { return kind(name) != TILEWRIGHT_NO_ATTRIBUTE; }
    std::int64_t integer(const std::string& name, std::int64_t fallback = 0) const {
        return tilewright_call_int(call_, name.c_str(), fallback);
    }
    float number(const std::string& name, float fallback = 0) const {
        return tilewright_call_float(call_, name.c_str(), fallback);
    }
    std::string text(const std::string& name, const std::string& fallback = "") const {
        return tilewright_call_string(call_, name.c_str(), fallback.c_str());
    }
    std::vector<std::int64_t> integers(const std::string& name) const {
        std::size_t count = 0;
        const std::int64_t* all = tilewright_call_ints(call_, name.c_str(), &count);
        return std::vector<std::int64_t>(all, all + count);
    }
    std::vector<float> numbers(const std::string& name) const {
        std::size_t count = 0;
        const float* all = tilewright_call_floats(call_, name.c_str(), &count);
        return std::vector<float>(all, all + count);
    }
    Tensor tensor(const std::string& name) const {
        const tilewright_tensor* t = tilewright_call_tensor(call_, name.c_str());
        return t != nullptr ? detail::viewed(*t) : Tensor();
    }

    // In infer.
    void set_output(std::size_t index, tilewright_dtype dtype, const std::vector<std::int64_t>& sizes) {
        tilewright_call_set_output(call_, index, dtype, sizes.size(), sizes.data());
    }
    std::int64_t add(std::int64_t a, std::int64_t b) { return tilewright_call_add(call_, a, b); }
    std::int64_t sub(std::int64_t a, std::int64_t b) { return tilewright_call_sub(call_, a, b); }
    std::int64_t mul(std::int64_t a, std::int64_t b) { return tilewright_call_mul(call_, a, b); }
    std::int64_t div(std::int64_t a, std::int64_t b) { return tilewright_call_div(call_, a, b); }
    std::int64_t min(std::int64_t a, std::int64_t b) { return tilewright_call_min(call_, a, b); }
    std::int64_t max(std::int64_t a, std::int64_t b) { return tilewright_call_max(call_, a, b); }

    // In compute.
    /// False where infer has left a size unknown.
    bool has_output(std::size_t index) const {
        return outputs_ != nullptr && index < output_count() && outputs_[index] != nullptr;
    }
    Tensor output(std::size_t index) const {
        if (!has_output(index)) throw std::out_of_range("output " + std::to_string(index) + " has no memory");
        return detail::viewed(*outputs_[index]);
    }
    /// Its elements. Throws Error if they are not of type T.
    template <class T>
    T* output_as(std::size_t index) const {
        return const_cast<T*>(output(index).as<T>());
    }
    /// Memory for an output of which infer left a size unknown.
    template <class T>
    T* allocate(std::size_t index, const std::vector<std::int64_t>& sizes) {
        void* data = tilewright_call_allocate(call_, index, sizes.size(), sizes.data());
        if (data == nullptr) throw std::bad_alloc();  // the library has the reason
        return static_cast<T*>(data);
    }

  private:
    tilewright_call* call_;
    const tilewright_tensor* const* inputs_;
    const tilewright_tensor* const* outputs_;
};

/// See tilewright_operator_definition. What a function throws is the error of the compilation or run.
struct OperatorDefinition {
    std::string domain, name;
    std::int64_t version = 1;
    std::size_t least_inputs = 0, most_inputs = 0, most_outputs = 0;  ///< at most: 0 is no limit
    bool varies = false;                                              ///< equal inputs may give different outputs
    std::function<void(Call&)> infer;  ///< empty: outputs have the type and sizes of input 0
    std::function<void(Call&)> compute;
};

/// An operator of the caller. Models and sessions keep what its functions hold.
class Operator {
  public:
    explicit Operator(OperatorDefinition definition) {
        auto kept = std::make_unique<OperatorDefinition>(std::move(definition));
        tilewright_operator_definition d = tilewright_default_operator_definition();
        d.domain = kept->domain.c_str();
        d.name = kept->name.c_str();
        d.version = kept->version;
        d.least_inputs = kept->least_inputs;
        d.most_inputs = kept->most_inputs;
        d.most_outputs = kept->most_outputs;
        d.varies = kept->varies ? 1 : 0;
        d.user = kept.get();
        if (kept->infer)
            d.infer = [](void* user, tilewright_call* call, const tilewright_tensor* const* inputs) noexcept {
                return called(static_cast<OperatorDefinition*>(user)->infer, call, inputs, nullptr);
            };
        if (kept->compute)
            d.compute = [](void* user, tilewright_call* call, const tilewright_tensor* const* inputs,
                           const tilewright_tensor* const* outputs) noexcept {
                return called(static_cast<OperatorDefinition*>(user)->compute, call, inputs, outputs);
            };
        d.release = [](void* user) { delete static_cast<OperatorDefinition*>(user); };
        tilewright_operator* made = nullptr;
        detail::call([&](tilewright_error** error) { return tilewright_operator_create(&d, &made, error); });
        static_cast<void>(kept.release());  // `made` owns it
        handle_.reset(made, tilewright_operator_free);
    }
    const tilewright_operator* handle() const { return handle_.get(); }

  private:
    static std::int32_t called(const std::function<void(Call&)>& function, tilewright_call* call,
                               const tilewright_tensor* const* inputs, const tilewright_tensor* const* outputs) {
        try {
            Call c(call, inputs, outputs);
            function(c);
            return 0;
        } catch (const std::exception& e) {
            return tilewright_call_fail(call, e.what());
        } catch (...) {
            return tilewright_call_fail(call, "an exception of unknown type");
        }
    }

    std::shared_ptr<tilewright_operator> handle_;
};

/// See tilewright_function_library.
struct FunctionLibrary {
    std::string path;  ///< empty: the bytes
    std::string bytes;
};

struct Options {
    int threads = 0;                           ///< threads that the code is planned for; 0: the CPUs of this process
    std::string isa;                           ///< "avx2", "avx512", or "" for the best one of this machine
    std::map<std::string, std::int64_t> dims;  ///< fixes named dimensions of inputs; other names throw
    /// Declares ranges of dimensions that stay dynamic: "1..512:8,64,128@3". See tilewright_options::ranges.
    std::map<std::string, std::string> ranges;
    bool keep_subnormals = false;  ///< compute with subnormal numbers, which are flushed to 0 otherwise
    tilewright_numerics numerics = TILEWRIGHT_NUMERICS_DEFAULT;
    tilewright_precision precision = TILEWRIGHT_F32_PRODUCTS;
    std::vector<std::string> keep_f32;  ///< patterns of names; see tilewright_options::keep_f32
    double max_error = 0;               ///< of bf16, f16; see tilewright_options::max_error
    bool check_values = false;          ///< check all data-dependent indices, lengths and shapes
    bool kv_cache = false;  ///< inputs that outputs extend can stay in a KvCache; see tilewright_options::kv_cache
    tilewright_orchestrator orchestrator = TILEWRIGHT_GREEDY;
    bool measure = false;         ///< choose between kernels by measurements on this machine
    double measure_seconds = 60;  ///< time for these measurements
    bool tuned = false;           ///< use the plan that a Tuning has kept for this model, options and machine
    tilewright_layouts layouts = TILEWRIGHT_RULE_LAYOUTS;
    double layout_seconds = 0;                         ///< time for measuring kernels with TILEWRIGHT_JOINT_LAYOUTS
    std::map<std::string, std::int64_t> sample_sizes;  ///< of dynamic dimensions, for measurements and explanations
    bool cache = false;                                ///< keep machine code for later compilations
    std::string cache_folder;                          ///< where; "": the command-line tool's cache folder
    std::vector<FunctionLibrary> function_libraries;   ///< operators that functions of ONNX files define
    std::vector<Operator> operators;                   ///< operators of the caller
    std::vector<std::string> operator_libraries;       ///< shared libraries with operators (operator_library.h)
    std::string output_file;                           ///< not empty: the compiled model is also written there
    /// Both may be called from any thread. They must not throw: that ends the process.
    std::function<void(tilewright_severity, const std::string&)> log;
    std::function<bool()> cancelled;  ///< called before each pass; true: the compilation ends, TILEWRIGHT_CANCELLED
};

/// What the file says about the model.
struct Info {
    std::string producer_name, graph_name, domain, description, graph_description;
    std::int64_t version = 0;
    std::map<std::string, std::string> metadata;
};

class KvCache;
/// An input that an output extends along dimension `axis`.
struct Append {
    std::size_t input = 0, output = 0, axis = 0;
};

/// What the caller of one run controls. See tilewright_run_options.
struct RunOptions {
    /// Memory for output `index`, whose type, shape and size are given; null: the session's own.
    std::function<void*(std::size_t index, const Tensor& output)> output_memory;
    /// May be called from any thread, and must not throw: that ends the process.
    std::function<bool()> cancelled;
    /// Holds the inputs of Model::appends, whose tensors may be empty, and takes their outputs, which are then empty.
    KvCache* kv_cache = nullptr;
};

namespace detail {

inline std::vector<const tilewright_operator*> handles(const std::vector<Operator>& operators) {
    std::vector<const tilewright_operator*> all;
    for (const Operator& op : operators) all.push_back(op.handle());
    return all;
}

inline std::vector<const char*> c_strings(const std::vector<std::string>& strings) {
    std::vector<const char*> all;
    for (const std::string& s : strings) all.push_back(s.c_str());
    return all;
}

/// The C interface's options; they point into `options`, which must outlive them.
class COptions {
  public:
    explicit COptions(const Options& options) : c_(tilewright_default_options()) {
        fill(options.dims, dim_names_, dim_sizes_);
        fill(options.sample_sizes, sample_names_, sample_sizes_);
        c_.threads = options.threads;
        c_.isa = options.isa.empty() ? nullptr : options.isa.c_str();
        c_.dim_count = dim_names_.size();
        c_.dim_names = dim_names_.data();
        c_.dim_sizes = dim_sizes_.data();
        for (const auto& range : options.ranges) {
            range_names_.push_back(range.first.c_str());
            ranges_.push_back(range.second.c_str());
        }
        c_.range_count = ranges_.size();
        c_.range_names = range_names_.data();
        c_.ranges = ranges_.data();
        c_.keep_subnormals = options.keep_subnormals ? 1 : 0;
        c_.numerics = options.numerics;
        c_.precision = options.precision;
        keep_f32_ = c_strings(options.keep_f32);
        c_.keep_f32_count = keep_f32_.size();
        c_.keep_f32 = keep_f32_.data();
        c_.max_error = options.max_error;
        c_.check_values = options.check_values ? 1 : 0;
        c_.kv_cache = options.kv_cache ? 1 : 0;
        c_.orchestrator = options.orchestrator;
        c_.measure = options.measure ? 1 : 0;
        c_.measure_seconds = options.measure_seconds;
        c_.tuned = options.tuned ? 1 : 0;
        c_.layouts = options.layouts;
        c_.layout_seconds = options.layout_seconds;
        c_.sample_count = sample_names_.size();
        c_.sample_names = sample_names_.data();
        c_.sample_sizes = sample_sizes_.data();
        c_.cache_folder = options.cache ? options.cache_folder.c_str() : nullptr;
        for (const FunctionLibrary& f : options.function_libraries)
            libraries_.push_back({f.path.empty() ? nullptr : f.path.c_str(), f.bytes.data(), f.bytes.size()});
        c_.function_library_count = libraries_.size();
        c_.function_libraries = libraries_.data();
        operators_ = handles(options.operators);
        c_.operator_count = operators_.size();
        c_.operators = operators_.data();
        library_paths_ = c_strings(options.operator_libraries);
        c_.operator_library_count = library_paths_.size();
        c_.operator_libraries = library_paths_.data();
        c_.output_file = options.output_file.empty() ? nullptr : options.output_file.c_str();
        c_.user = const_cast<Options*>(&options);
        if (options.log)
            c_.log = [](void* user, tilewright_severity severity, const char* message) noexcept {
                static_cast<const Options*>(user)->log(severity, message);
            };
        if (options.cancelled)
            c_.cancelled = [](void* user) noexcept -> std::int32_t {
                return static_cast<const Options*>(user)->cancelled() ? 1 : 0;
            };
    }
    const tilewright_options* get() const { return &c_; }

  private:
    static void fill(const std::map<std::string, std::int64_t>& sizes, std::vector<const char*>& names,
                     std::vector<std::int64_t>& numbers) {
        for (const auto& size : sizes) {
            names.push_back(size.first.c_str());
            numbers.push_back(size.second);
        }
    }

    std::vector<const char*> dim_names_, sample_names_, range_names_, ranges_, keep_f32_, library_paths_;
    std::vector<std::int64_t> dim_sizes_, sample_sizes_;
    std::vector<tilewright_function_library> libraries_;
    std::vector<const tilewright_operator*> operators_;
    tilewright_options c_;
};

/// tilewright_run_options::user: the options, and an exception that their functions threw.
struct RunCalls {
    const RunOptions* options;
    std::exception_ptr thrown;

    static void* output_memory(void* user, std::size_t index, const tilewright_tensor* output) noexcept {
        auto& calls = *static_cast<RunCalls*>(user);
        try {
            return calls.thrown ? nullptr : calls.options->output_memory(index, viewed(*output));
        } catch (...) {
            calls.thrown = std::current_exception();
            return nullptr;
        }
    }
    static std::int32_t cancelled(void* user) noexcept {
        const auto& calls = *static_cast<RunCalls*>(user);
        return calls.thrown || (calls.options->cancelled && calls.options->cancelled()) ? 1 : 0;
    }
};

}  // namespace detail

class Model {
  public:
    static Model from_file(const std::string& path, const Options& options = Options()) {
        return compiled(options,
                        [&](auto o, auto m, auto e) { return tilewright_compile_file(path.c_str(), o, m, e); });
    }
    /// A file that `tilewright compile` wrote; see tilewright_load_with.
    static Model load(const std::string& path, const std::vector<Operator>& operators = {},
                      const std::vector<std::string>& operator_libraries = {}, bool copy_weights = false) {
        return loaded(operators, operator_libraries, [&](auto o, auto m, auto e) {
            o->copy_weights = copy_weights ? 1 : 0;
            return tilewright_load_with(path.c_str(), o, m, e);
        });
    }
    /// A model that is linked into the program.
    static Model load(const tilewright_linked_model& linked, const std::vector<Operator>& operators = {},
                      const std::vector<std::string>& operator_libraries = {}) {
        return loaded(operators, operator_libraries,
                      [&](auto o, auto m, auto e) { return tilewright_load_linked_with(&linked, o, m, e); });
    }
    static Model from_memory(const void* bytes, std::size_t size, const Options& options = Options()) {
        return compiled(options,
                        [&](auto o, auto m, auto e) { return tilewright_compile_memory(bytes, size, o, m, e); });
    }

    std::vector<Io> inputs() const { return describe(tilewright_input_count(handle()), tilewright_input); }
    std::vector<Io> outputs() const { return describe(tilewright_output_count(handle()), tilewright_output); }
    Info info() const {
        tilewright_model_info c;
        detail::call([&](tilewright_error** error) { return tilewright_info(handle(), &c, error); });
        Info all{c.producer_name, c.graph_name, c.domain, c.description, c.graph_description, c.version, {}};
        for (std::size_t i = 0; i < c.metadata_count; ++i) all.metadata[c.metadata_keys[i]] = c.metadata_values[i];
        return all;
    }
    /// Of a model compiled with Options::kv_cache; else none.
    std::vector<Append> appends() const {
        std::vector<Append> all(tilewright_append_count(handle()));
        for (std::size_t i = 0; i < all.size(); ++i) {
            tilewright_append c;
            detail::call([&](tilewright_error** error) { return tilewright_append_at(handle(), i, &c, error); });
            all[i] = {c.input, c.output, c.axis};
        }
        return all;
    }
    const tilewright_model* handle() const { return handle_.get(); }

  private:
    explicit Model(tilewright_model* m) : handle_(m, tilewright_model_free) {}

    template <class Load>
    static Model loaded(const std::vector<Operator>& operators, const std::vector<std::string>& libraries,
                        Load&& load) {
        const std::vector<const tilewright_operator*> handles = detail::handles(operators);
        const std::vector<const char*> paths = detail::c_strings(libraries);
        tilewright_load_options o = tilewright_default_load_options();
        o.operator_count = handles.size();
        o.operators = handles.data();
        o.operator_library_count = paths.size();
        o.operator_libraries = paths.data();
        tilewright_model* model = nullptr;
        detail::call([&](tilewright_error** error) { return load(&o, &model, error); });
        return Model(model);
    }

    template <class Compile>
    static Model compiled(const Options& options, Compile&& compile) {
        const detail::COptions o(options);
        tilewright_model* model = nullptr;
        detail::call([&](tilewright_error** error) { return compile(o.get(), &model, error); });
        return Model(model);
    }

    template <class Get>
    std::vector<Io> describe(std::size_t count, Get&& get) const {
        std::vector<Io> all(count);
        for (std::size_t i = 0; i < count; ++i) {
            tilewright_io io;
            detail::call([&](tilewright_error** error) { return get(handle(), i, &io, error); });
            all[i].name = io.name;
            all[i].dtype = io.dtype;
            all[i].dims.assign(io.dims, io.dims + io.rank);
            for (std::size_t d = 0; d < io.rank; ++d)
                all[i].dim_names.emplace_back(io.dim_names[d] != nullptr ? io.dim_names[d] : "");
        }
        return all;
    }

    std::shared_ptr<tilewright_model> handle_;
};

/// The rows of all inputs of Model::appends from run to run. See tilewright_kv_cache_create.
class KvCache {
  public:
    explicit KvCache(const Model& model, std::int64_t rows = 0) : handle_(nullptr, tilewright_kv_cache_free) {
        tilewright_kv_cache* cache = nullptr;
        detail::call(
            [&](tilewright_error** error) { return tilewright_kv_cache_create(model.handle(), rows, &cache, error); });
        handle_.reset(cache);
    }

    std::int64_t rows() const { return tilewright_kv_cache_rows(handle_.get()); }
    /// Keeps the first `rows` rows; 0 begins a new sequence.
    void truncate(std::int64_t rows) {
        detail::call(
            [&](tilewright_error** error) { return tilewright_kv_cache_truncate(handle_.get(), rows, error); });
    }
    /// The rows as the input of Model::appends()[index] would have them. The tensor views `data`.
    Tensor read(std::size_t index, std::vector<unsigned char>& data) const {
        tilewright_tensor t = {TILEWRIGHT_F32, 0, nullptr, nullptr, 0};
        tilewright_error* error = nullptr;
        if (tilewright_kv_cache_read(handle_.get(), index, &t, nullptr) != TILEWRIGHT_OK) data.resize(t.bytes);
        t.data = data.data();
        t.bytes = data.size();
        const tilewright_status status = tilewright_kv_cache_read(handle_.get(), index, &t, &error);
        detail::check(status, error);
        return detail::viewed(t);
    }
    tilewright_kv_cache* handle() const { return handle_.get(); }

  private:
    std::unique_ptr<tilewright_kv_cache, decltype(&tilewright_kv_cache_free)> handle_;
};

/// The caller's threads: calls task(i) once for every i < count, and returns when all are done. Must not throw.
using ParallelFor = std::function<void(std::size_t count, const std::function<void(std::size_t)>& task)>;

class Session {
  public:
    /// `threads` 0: the CPUs that this process may use.
    explicit Session(const Model& model, int threads = 0) : Session(model, threads, ParallelFor()) {}
    /// With the caller's threads, at most `threads` tasks at a time, in place of a pool of the library.
    Session(const Model& model, int threads, ParallelFor parallel_for)
        : parallel_for_(parallel_for ? std::make_unique<ParallelFor>(std::move(parallel_for)) : nullptr),
          outputs_(tilewright_output_count(model.handle())),
          handle_(nullptr, tilewright_session_free) {
        tilewright_session_options o = tilewright_default_session_options();
        o.threads = threads;
        o.user = parallel_for_.get();
        if (parallel_for_)
            o.parallel_for = [](void* user, std::size_t count, void (*task)(void*, std::size_t), void* argument) {
                (*static_cast<ParallelFor*>(user))(count, [&](std::size_t i) { task(argument, i); });
            };
        tilewright_session* session = nullptr;
        detail::call([&](tilewright_error** error) {
            return tilewright_session_create_with(model.handle(), &o, &session, error);
        });
        handle_.reset(session);
    }

    /// Inputs by position. The outputs are views, valid until the next run, of the session's memory or of what
    /// `options.output_memory` returned.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs, const RunOptions& options = RunOptions()) {
        std::vector<tilewright_tensor> given;
        for (const Tensor& t : inputs)
            given.push_back({t.dtype, t.shape.size(), t.shape.data(), const_cast<void*>(t.data), t.bytes});
        detail::RunCalls calls{&options, nullptr};
        tilewright_run_options o = tilewright_default_run_options();
        o.user = &calls;
        if (options.output_memory) o.output_memory = detail::RunCalls::output_memory;
        if (options.cancelled || options.output_memory) o.cancelled = detail::RunCalls::cancelled;
        if (options.kv_cache != nullptr) o.kv_cache = options.kv_cache->handle();
        tilewright_error* error = nullptr;
        const tilewright_status status = tilewright_run_with(handle_.get(), given.data(), given.size(), &o, &error);
        if (calls.thrown) {
            tilewright_error_free(error);
            std::rethrow_exception(calls.thrown);
        }
        detail::check(status, error);
        std::vector<Tensor> outputs;
        for (std::size_t i = 0; i < outputs_; ++i) {
            tilewright_tensor t;
            const tilewright_status got = tilewright_session_output(handle_.get(), i, &t, &error);
            detail::check(got, error);
            outputs.push_back(detail::viewed(t));
        }
        return outputs;
    }

    /// What the session has done beside running kernels. See tilewright_counts.
    tilewright_counts counts() const {
        tilewright_counts c;
        c.struct_size = sizeof c;
        detail::call([&](tilewright_error** error) { return tilewright_session_counts(handle_.get(), &c, error); });
        return c;
    }

    /// Records later runs, or ends recording. See tilewright_session_record.
    void record(bool on) {
        detail::call(
            [&](tilewright_error** error) { return tilewright_session_record(handle_.get(), on ? 1 : 0, error); });
    }
    /// The recorded runs as a Chrome trace (JSON). See tilewright_session_trace.
    std::string trace() const {
        const char* text = nullptr;
        detail::call([&](tilewright_error** error) { return tilewright_session_trace(handle_.get(), &text, error); });
        return text;
    }

  private:
    std::unique_ptr<ParallelFor> parallel_for_;  // at an address that stays; null without one
    std::size_t outputs_;
    std::unique_ptr<tilewright_session, decltype(&tilewright_session_free)> handle_;
};

namespace detail {

/// What `make` creates with the C interface's options.
template <class Made, class Make>
std::unique_ptr<Made, void (*)(Made*)> made(const Options& options, void (*free)(Made*), Make&& make) {
    const COptions o(options);
    Made* created = nullptr;
    call([&](tilewright_error** error) { return make(o.get(), &created, error); });
    return {created, free};
}

}  // namespace detail

/// What `tilewright explain` prints. `seconds`: see tilewright_explain_file.
struct Explanation {
    std::string text, json, html;

    static Explanation of_file(const std::string& path, const Options& options = Options(), double seconds = 0) {
        return explained(options, [&](auto o, auto e, auto error) {
            return tilewright_explain_file(path.c_str(), o, seconds, e, error);
        });
    }
    static Explanation of_memory(const void* bytes, std::size_t size, const Options& options = Options(),
                                 double seconds = 0) {
        return explained(options, [&](auto o, auto e, auto error) {
            return tilewright_explain_memory(bytes, size, o, seconds, e, error);
        });
    }

  private:
    template <class Explain>
    static Explanation explained(const Options& options, Explain&& explain) {
        const auto made = detail::made<tilewright_explanation>(options, tilewright_explanation_free, explain);
        const tilewright_explanation* e = made.get();
        return {tilewright_explanation_text(e), tilewright_explanation_json(e), tilewright_explanation_html(e)};
    }
};

/// What a tuning has found; see tilewright_tune_file.
struct Tuning {
    double default_ms = 0, tuned_ms = 0;  ///< medians of whole runs; 0 where they were not compared
    bool kept = false;                    ///< Options::tuned uses the plan
    std::string text, json;

    static Tuning of_file(const std::string& path, const std::string& budget, const Options& options = Options()) {
        return tuned(options, [&](auto o, auto t, auto error) {
            return tilewright_tune_file(path.c_str(), o, budget.c_str(), t, error);
        });
    }
    static Tuning of_memory(const void* bytes, std::size_t size, const std::string& budget,
                            const Options& options = Options()) {
        return tuned(options, [&](auto o, auto t, auto error) {
            return tilewright_tune_memory(bytes, size, o, budget.c_str(), t, error);
        });
    }

  private:
    template <class Tune>
    static Tuning tuned(const Options& options, Tune&& tune) {
        const auto made = detail::made<tilewright_tuning>(options, tilewright_tuning_free, tune);
        const tilewright_tuning* t = made.get();
        return {tilewright_tuning_default_ms(t), tilewright_tuning_tuned_ms(t), tilewright_tuning_kept(t) != 0,
                tilewright_tuning_text(t), tilewright_tuning_json(t)};
    }
};

}  // namespace tw

#endif
