#include "session.h"

#include <chrono>
#include <string>

namespace tilewright_python {

namespace {

std::string quoted(const std::string& name) { return "'" + name + "'"; }

[[noreturn]] void refuse(const std::string& message, const std::string& hint = {}) {
    throw tw::Error(TILEWRIGHT_INVALID_ARGUMENT, message, hint);
}

std::string names_of(const std::vector<tw::Io>& all) {
    std::string text;
    for (const tw::Io& io : all) text += (text.empty() ? "" : ", ") + quoted(io.name);
    return text;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
    std::string text;
    for (const std::int64_t d : shape) text += (text.empty() ? "" : ", ") + std::to_string(d);
    return "[" + text + "]";
}

std::int64_t integer_of(PyObject* number) {
    const long long value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return value;
}

std::vector<std::int64_t> shape_of(nb::handle given) {
    if (!PyTuple_Check(given.ptr())) throw nb::type_error("a shape is not a tuple");
    std::vector<std::int64_t> shape(static_cast<std::size_t>(PyTuple_GET_SIZE(given.ptr())));
    for (std::size_t d = 0; d < shape.size(); ++d)
        shape[d] = integer_of(PyTuple_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(d)));
    return shape;
}

/// Memory of the caller as a tensor.
tw::Tensor tensor_at(nb::handle address, tilewright_dtype dtype, std::vector<std::int64_t> shape) {
    tw::Tensor t;
    t.dtype = dtype;
    t.shape = std::move(shape);
    t.bytes = tilewright_dtype_size(dtype);
    for (const std::int64_t d : t.shape) t.bytes *= static_cast<std::size_t>(d);
    t.data = reinterpret_cast<void*>(integer_of(address.ptr()));
    return t;
}

}  // namespace

/// The use of a session by one run.
class Runner::Use {
  public:
    explicit Use(Runner& runner) : runner_(runner), session_(runner.take()) {}
    ~Use() { runner_.give_back(std::move(session_)); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    tw::Session* operator->() { return session_.get(); }

  private:
    Runner& runner_;
    std::unique_ptr<tw::Session> session_;
};

Runner::Runner(tw::Model model, int threads)
    : model_(std::move(model)), threads_(threads), inputs_(model_.inputs()), outputs_(model_.outputs()) {
    for (const tw::Io& io : inputs_) input_names_.emplace_back(io.name.c_str(), io.name.size());
    cached_inputs_.resize(inputs_.size());
    cached_outputs_.resize(outputs_.size());
    for (const tw::Append& a : model_.appends()) cached_inputs_[a.input] = cached_outputs_[a.output] = true;
    idle_.push_back(std::make_unique<tw::Session>(model_, threads_));
}

Cache::Cache(const tw::Model& model, std::int64_t rows) : cache_(model, rows) {
    const std::vector<tw::Io> inputs = model.inputs();
    for (const tw::Append& a : model.appends()) names_.push_back(inputs[a.input].name);
}

nb::dict Cache::read() const {
    nb::dict all;
    for (std::size_t k = 0; k < names_.size(); ++k) {
        std::vector<unsigned char> bytes;
        const tw::Tensor t = cache_.read(k, bytes);
        Memory memory = aligned_memory(t.bytes);
        std::copy(bytes.begin(), bytes.end(), static_cast<unsigned char*>(memory.get()));
        all[names_[k].c_str()] = numpy_array(std::move(memory), t.dtype, t.shape);
    }
    return all;
}

std::unique_ptr<Cache> Runner::new_cache(std::int64_t rows) const { return std::make_unique<Cache>(model_, rows); }

std::vector<std::string> Runner::cached_outputs() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < outputs_.size(); ++i)
        if (cached_outputs_[i]) names.push_back(outputs_[i].name);
    return names;
}

std::unique_ptr<tw::Session> Runner::take() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            std::unique_ptr<tw::Session> session = std::move(idle_.back());
            idle_.pop_back();
            return session;
        }
    }
    auto session = std::make_unique<tw::Session>(model_, threads_);
    const std::lock_guard lock(mutex_);
    if (records_) session->record(true);
    return session;
}

void Runner::give_back(std::unique_ptr<tw::Session> session) {
    const std::lock_guard lock(mutex_);
    if (!records_) session->record(false);
    idle_.push_back(std::move(session));
}

void Runner::record() {
    const std::lock_guard lock(mutex_);
    records_ = true;
    for (const auto& session : idle_) session->record(true);
}

std::vector<std::string> Runner::recorded() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> traces;
    if (records_)
        for (const auto& session : idle_) {
            traces.push_back(session->trace());
            session->record(false);
        }
    records_ = false;
    return traces;
}

void Runner::add(Feeds& feeds, std::size_t input, nb::handle given) const {
    const tw::Io& io = inputs_[input];
    const std::string what = "input " + quoted(io.name);
    InputArray array;
    int type = -1;
    if (!nb::try_cast(given, array, false) || type_of(array.dtype(), what) != io.dtype) {
        // Lists, arrays that are not dense, arrays of types that NumPy lacks, or of their bits.
        const nb::tuple converted =
            nb::cast<nb::tuple>(nb::module_::import_("tilewright._arrays").attr("as_input")(given, int(io.dtype)));
        feeds.held.push_back(nb::borrow(converted[0]));
        array = nb::cast<InputArray>(feeds.held.back(), false);
        type = nb::cast<int>(converted[1]);
    }
    const tilewright_dtype dtype = type >= 0 ? static_cast<tilewright_dtype>(type) : type_of(array.dtype(), what);
    if (dtype != io.dtype)
        refuse(what + " has elements of type " + tilewright_dtype_name(dtype) + ", expected " +
                   tilewright_dtype_name(io.dtype),
               "convert the array with astype()");
    feeds.tensors.push_back(tensor_of(array, dtype));
    feeds.arrays.push_back(std::move(array));
}

Runner::Feeds Runner::feeds_of(const nb::dict& by_name, bool cached) const {
    Feeds feeds;
    std::size_t held = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        if (cached && cached_inputs_[i]) {
            feeds.tensors.emplace_back();
            ++held;
            continue;
        }
        PyObject* value = PyDict_GetItemWithError(by_name.ptr(), input_names_[i].ptr());
        if (value == nullptr) {
            if (PyErr_Occurred() != nullptr) throw nb::python_error();
            refuse("no array was given for input " + quoted(inputs_[i].name), "the inputs: " + names_of(inputs_));
        }
        add(feeds, i, value);
    }
    if (nb::len(by_name) == inputs_.size() - held) return feeds;
    for (const auto& [key, value] : by_name) {
        const std::string name = nb::cast<std::string>(nb::str(key));
        bool known = false;
        for (const tw::Io& io : inputs_) known = known || io.name == name;
        if (!known) refuse("the model has no input " + quoted(name), "the inputs: " + names_of(inputs_));
    }
    return feeds;
}

std::size_t Runner::output_index(nb::handle given) const {
    const nb::str text(given);
    const std::string name = text.c_str();
    for (std::size_t i = 0; i < outputs_.size(); ++i)
        if (outputs_[i].name == name) return i;
    refuse("the model has no output " + quoted(name), "the outputs: " + names_of(outputs_));
}

Runner::Outputs Runner::run(const Feeds& feeds, const std::vector<Target>& targets, const Flag* terminate,
                            Cache* cache) {
    Outputs out;
    out.memory.resize(outputs_.size());
    tw::RunOptions options;
    options.output_memory = [&](std::size_t i, const tw::Tensor& output) -> void* {
        const Target& target = targets[i];
        if (!target.requested) return nullptr;
        if (target.bound) {
            if (target.array.shape != output.shape)
                refuse("the array bound to output " + quoted(outputs_[i].name) + " has shape " +
                           text_of(target.array.shape) + ", and the output has shape " + text_of(output.shape),
                       "bind an array of this shape, or bind_output(name) without an array");
            return const_cast<void*>(target.array.data);
        }
        out.memory[i] = aligned_memory(output.bytes);
        return out.memory[i].get();
    };
    if (terminate != nullptr)
        options.cancelled = [terminate] { return terminate->set.load(std::memory_order_relaxed); };
    if (cache != nullptr) options.kv_cache = &cache->get();
    const nb::gil_scoped_release release;
    Use session(*this);
    out.tensors = session->run(feeds.tensors, options);
    return out;
}

nb::list Runner::run(nb::handle names, const nb::dict& by_name, const Flag* terminate, Cache* cache) {
    std::vector<std::size_t> wanted;
    if (!names.is_none())
        for (const nb::handle name : nb::list(names)) wanted.push_back(output_index(name));
    if (wanted.empty())
        for (std::size_t i = 0; i < outputs_.size(); ++i)
            if (cache == nullptr || !cached_outputs_[i]) wanted.push_back(i);
    std::vector<Target> targets(outputs_.size());
    for (const std::size_t i : wanted) {
        if (cache != nullptr && cached_outputs_[i])
            refuse("output " + quoted(outputs_[i].name) + " stays in the KV cache", "read it with KvCache.read()");
        targets[i].requested = true;
    }
    const Feeds feeds = feeds_of(by_name, cache != nullptr);
    Outputs out = run(feeds, targets, terminate, cache);
    std::vector<nb::object> arrays(outputs_.size());
    nb::list result;
    for (const std::size_t i : wanted) {
        if (!arrays[i].is_valid())
            arrays[i] = numpy_array(std::move(out.memory[i]), out.tensors[i].dtype, out.tensors[i].shape);
        result.append(arrays[i]);
    }
    return result;
}

Runner::Target Runner::bound_target(std::size_t output, nb::handle given) const {
    const tw::Io& io = outputs_[output];
    using Writable = nb::ndarray<nb::c_contig, nb::device::cpu>;
    Writable array;
    if (!nb::try_cast(given, array, false))
        refuse("the array bound to output " + quoted(io.name) + " is not a dense array that can be written");
    Target target{true, true, {}};
    target.array.dtype = io.dtype;
    for (std::size_t d = 0; d < array.ndim(); ++d)
        target.array.shape.push_back(static_cast<std::int64_t>(array.shape(d)));
    if (array.itemsize() != tilewright_dtype_size(io.dtype))
        refuse("the array bound to output " + quoted(io.name) + " has elements of " + std::to_string(array.itemsize()) +
               " bytes, and the output is " + tilewright_dtype_name(io.dtype));
    target.array.data = array.data();
    return target;
}

nb::list Runner::run_bound(const nb::sequence& inputs, const nb::sequence& given_targets, const Flag* terminate) {
    if (nb::len(inputs) != inputs_.size() || nb::len(given_targets) != outputs_.size())
        refuse("expected " + std::to_string(inputs_.size()) + " inputs and " + std::to_string(outputs_.size()) +
               " targets");
    Feeds feeds;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const nb::object array = inputs[i];
        if (array.is_none())
            refuse("nothing is bound to input " + quoted(inputs_[i].name), "the inputs: " + names_of(inputs_));
        feeds.held.push_back(array);
        add(feeds, i, array);
    }
    std::vector<Target> targets(outputs_.size());
    std::vector<nb::object> result(outputs_.size());
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const nb::object target = given_targets[i];
        if (target.is_none()) continue;
        targets[i].requested = true;
        if (target.is(nb::handle(Py_True))) continue;
        targets[i] = bound_target(i, target);
        result[i] = target;
    }
    Outputs out = run(feeds, targets, terminate);
    nb::list list;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        if (targets[i].requested && !targets[i].bound)
            result[i] = numpy_array(std::move(out.memory[i]), out.tensors[i].dtype, out.tensors[i].shape);
        list.append(result[i].is_valid() ? result[i] : nb::none());
    }
    return list;
}

void Runner::run_addresses(const nb::list& inputs, nb::handle input_shapes, const nb::list& outputs,
                           const nb::sequence& output_shapes) {
    if (nb::len(inputs) != inputs_.size() || nb::len(outputs) != outputs_.size())
        refuse("expected " + std::to_string(inputs_.size()) + " inputs and " + std::to_string(outputs_.size()) +
               " outputs");
    Feeds feeds;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const tw::Io& io = inputs_[i];
        std::vector<std::int64_t> shape = io.dims;
        if (!input_shapes.is_none()) shape = shape_of(input_shapes[i]);
        for (const std::int64_t d : shape)
            if (d < 0) refuse("the shape of input " + quoted(io.name) + " is not given");
        feeds.tensors.push_back(tensor_at(inputs[i], io.dtype, std::move(shape)));
    }
    std::vector<Target> targets(outputs_.size());
    for (std::size_t i = 0; i < outputs_.size(); ++i)
        targets[i] = {true, true, tensor_at(outputs[i], outputs_[i].dtype, shape_of(output_shapes[i]))};
    run(feeds, targets, nullptr);
}

std::vector<double> Runner::time(const nb::dict& by_name, int warmup, int iterations) {
    const Feeds feeds = feeds_of(by_name);
    std::vector<double> seconds;
    const nb::gil_scoped_release release;
    Use session(*this);
    for (int i = 0; i < warmup; ++i) session->run(feeds.tensors);
    for (int i = 0; i < iterations; ++i) {
        const auto start = std::chrono::steady_clock::now();
        session->run(feeds.tensors);
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return seconds;
}

}  // namespace tilewright_python
