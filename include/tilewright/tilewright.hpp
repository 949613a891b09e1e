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
#include <map>
#include <memory>
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

struct Options {
    int threads = 0;                           ///< threads that the code is planned for; 0: the CPUs of this process
    std::string isa;                           ///< "avx2", "avx512", or "" for the best one of this machine
    std::map<std::string, std::int64_t> dims;  ///< fixes named dimensions of inputs; other names throw
    bool keep_subnormals = false;              ///< compute with subnormal numbers, which are flushed to 0 otherwise
    tilewright_numerics numerics = TILEWRIGHT_NUMERICS_DEFAULT;
    bool check_values = false;  ///< check all data-dependent indices, lengths and shapes
};

class Model {
  public:
    static Model from_file(const std::string& path, const Options& options = Options()) {
        return compiled(options, [&](const tilewright_options* o, tilewright_model** m, tilewright_error** e) {
            return tilewright_compile_file(path.c_str(), o, m, e);
        });
    }
    static Model from_memory(const void* bytes, std::size_t size, const Options& options = Options()) {
        return compiled(options, [&](const tilewright_options* o, tilewright_model** m, tilewright_error** e) {
            return tilewright_compile_memory(bytes, size, o, m, e);
        });
    }

    std::vector<Io> inputs() const { return describe(tilewright_input_count(handle()), tilewright_input); }
    std::vector<Io> outputs() const { return describe(tilewright_output_count(handle()), tilewright_output); }
    const tilewright_model* handle() const { return handle_.get(); }

  private:
    explicit Model(tilewright_model* m) : handle_(m, tilewright_model_free) {}

    template <class Compile>
    static Model compiled(const Options& options, Compile&& compile) {
        std::vector<const char*> names;
        std::vector<std::int64_t> sizes;
        for (const auto& dim : options.dims) {
            names.push_back(dim.first.c_str());
            sizes.push_back(dim.second);
        }
        tilewright_options o = tilewright_default_options();
        o.threads = options.threads;
        o.isa = options.isa.empty() ? nullptr : options.isa.c_str();
        o.dim_count = names.size();
        o.dim_names = names.data();
        o.dim_sizes = sizes.data();
        o.keep_subnormals = options.keep_subnormals ? 1 : 0;
        o.numerics = options.numerics;
        o.check_values = options.check_values ? 1 : 0;
        tilewright_model* model = nullptr;
        tilewright_error* error = nullptr;
        const tilewright_status status = compile(&o, &model, &error);
        detail::check(status, error);
        return Model(model);
    }

    template <class Get>
    std::vector<Io> describe(std::size_t count, Get&& get) const {
        std::vector<Io> all(count);
        for (std::size_t i = 0; i < count; ++i) {
            tilewright_io io;
            tilewright_error* error = nullptr;
            const tilewright_status status = get(handle(), i, &io, &error);
            detail::check(status, error);
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

class Session {
  public:
    /// `threads` 0: the CPUs that this process may use.
    explicit Session(const Model& model, int threads = 0)
        : outputs_(tilewright_output_count(model.handle())), handle_(nullptr, tilewright_session_free) {
        tilewright_session* session = nullptr;
        tilewright_error* error = nullptr;
        const tilewright_status status = tilewright_session_create(model.handle(), threads, &session, &error);
        detail::check(status, error);
        handle_.reset(session);
    }

    /// Inputs by position. The outputs are views of the session's memory, valid until its next run.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
        std::vector<tilewright_tensor> given;
        for (const Tensor& t : inputs)
            given.push_back({t.dtype, t.shape.size(), t.shape.data(), const_cast<void*>(t.data), t.bytes});
        tilewright_error* error = nullptr;
        const tilewright_status status = tilewright_run(handle_.get(), given.data(), given.size(), &error);
        detail::check(status, error);
        std::vector<Tensor> outputs;
        for (std::size_t i = 0; i < outputs_; ++i) {
            tilewright_tensor t;
            const tilewright_status got = tilewright_session_output(handle_.get(), i, &t, &error);
            detail::check(got, error);
            outputs.push_back({t.dtype, std::vector<std::int64_t>(t.shape, t.shape + t.rank), t.data, t.bytes});
        }
        return outputs;
    }

  private:
    std::size_t outputs_;
    std::unique_ptr<tilewright_session, decltype(&tilewright_session_free)> handle_;
};

}  // namespace tw

#endif
