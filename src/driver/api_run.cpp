// The part of the C interface (tilewright/tilewright.h) that needs no compiler: compiled models and their sessions. It
// is all of the runtime library.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "artifact/model_file.h"
#include "base/quoted_name.h"
#include "driver/api_call.h"
#include "driver/api_model.h"
#include "driver/api_operator.h"
#include "model/session.h"
#include "model/trace.h"
#include "runtime/memory_limit.h"
#include "runtime/opaque.h"
#include "runtime/thread_count.h"
#include "runtime/thread_pool.h"

using namespace tilewright;
using namespace tilewright::api;

struct tilewright_session {
    std::shared_ptr<const CompiledModel> compiled;
    Session session;
    std::vector<Tensor> inputs;                    ///< of the current call: views
    const std::vector<Tensor>* outputs = nullptr;  ///< null until a run succeeds
    std::optional<Trace> recorded = {};            ///< since recording was last turned on
    bool records = false;
    std::string trace = {};                  ///< what the last call of tilewright_session_trace has written
    mutable std::atomic<bool> used = false;  ///< a call is using the session
    Use use() const { return {used, "the session is used by another thread: give each thread a session of its own"}; }
};

namespace {

void copy_output(tilewright_session& session, void* to, const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    session.session.note_copied(bytes);
}

tilewright_status describe(const tilewright_model* model, Interface tilewright_model::*side, size_t index,
                           tilewright_io* io, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(model, "model");
        require_pointer(io, "io");
        const auto& entries = (model->*side).entries;
        if (index >= entries.size()) invalid("index {}: the model has {}", index, entries.size());
        const Interface::Entry& e = entries[index];
        *io = {e.name.c_str(), static_cast<tilewright_dtype>(e.dtype), e.dims.size(), e.dims.data(),
               e.name_pointers.data()};
    });
}

bool is_type(tilewright_dtype t) { return t >= TILEWRIGHT_F32 && t <= TILEWRIGHT_U2; }

/// A caller's tensor as a Tensor: a view, or a copy if its elements are not aligned.
Tensor view(const tilewright_tensor& t, const std::string& name) {
    if (!is_type(t.dtype)) invalid("input {}: {} is not an element type", name, static_cast<int>(t.dtype));
    if (t.rank > 0) require_pointer(t.shape, "inputs[i].shape");
    Shape shape(t.shape, t.shape + t.rank);
    for (const int64_t d : shape)
        if (d < 0) invalid("input {} has shape {}", name, to_string(shape));
    const auto dtype = static_cast<DType>(t.dtype);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(element_count(shape)), byte_size(dtype), &bytes))
        invalid("input {} has shape {}, which exceeds the address space", name, to_string(shape));
    if (t.bytes != bytes)
        invalid("input {} of type {} and shape {} has {} bytes, and {} were given", name, to_string(dtype),
                to_string(shape), bytes, t.bytes);
    if (bytes > 0) require_pointer(t.data, "inputs[i].data");
    if (bytes == 0 || reinterpret_cast<uintptr_t>(t.data) % byte_size(dtype) == 0)
        return Tensor(dtype, std::move(shape), t.data, nullptr);
    require_memory(bytes, fmt::format("the copy of input {}, which is not aligned", name));
    Tensor aligned(dtype, std::move(shape), false);
    std::memcpy(aligned.mutable_data(), t.data, bytes);
    return aligned;
}

tilewright_tensor view(const Tensor& t) {
    return {static_cast<tilewright_dtype>(t.dtype()), t.shape().size(), t.shape().data(), const_cast<void*>(t.data()),
            t.bytes()};
}

/// The threads of a new session: those of its caller where the options say so, else a pool that sessions share.
Session session_of(const tilewright_model& model, const tilewright_session_options& o) {
    if (o.threads < 0 || o.threads > kMaxThreads) invalid("{} threads: expected 0 to {}", o.threads, kMaxThreads);
    if (o.parallel_for == nullptr) return Session(model.compiled, o.threads);
    return Session(model.compiled,
                   std::make_shared<ThreadPool>(
                       o.threads, [run = o.parallel_for, user = o.user](size_t count, auto task, void* argument) {
                           run(user, count, task, argument);
                       }));
}

RunControl control_of(const tilewright_run_options* given) {
    RunControl control;
    if (given == nullptr) return control;
    constexpr size_t kFirst = offsetof(tilewright_run_options, cancelled) + sizeof given->cancelled;
    tilewright_run_options o = tilewright_default_run_options();
    copy_known_fields(given, given->struct_size, kFirst, &o, sizeof o, "tilewright_run_options");
    if (o.output_memory != nullptr)
        control.output_memory = [user = o.user, memory = o.output_memory](size_t i, const TensorView& output) {
            const tilewright_tensor t = {static_cast<tilewright_dtype>(output.dtype), output.shape.size(),
                                         output.shape.data(), nullptr,
                                         static_cast<size_t>(output.count()) * byte_size(output.dtype)};
            return memory(user, i, &t);
        };
    if (o.cancelled != nullptr)
        control.cancelled = [user = o.user, cancelled = o.cancelled] { return cancelled(user) != 0; };
    if (o.kv_cache != nullptr) control.cache = &o.kv_cache->cache;
    return control;
}

/// Fields that the caller does not have are zero.
tilewright_load_options known(const tilewright_load_options* given) {
    constexpr size_t kFirst = offsetof(tilewright_load_options, operator_library_count);
    tilewright_load_options o = tilewright_default_load_options();
    if (given != nullptr) copy_known_fields(given, given->struct_size, kFirst, &o, sizeof o, "tilewright_load_options");
    return o;
}

std::shared_ptr<const CustomOperators> operators_of(const tilewright_load_options& o) {
    return api::operators_of({o.operator_count, o.operators, o.operator_library_count, o.operator_libraries});
}

tilewright_model* finished(artifact::ModelFileInfo loaded) {
    return new tilewright_model(std::move(loaded.model), std::move(loaded.about.origin.info));
}

/// Whether the cache holds the input.
bool is_held(const tilewright_session& s, size_t input) {
    const std::vector<Append>& all = s.compiled->appends();
    return std::any_of(all.begin(), all.end(), [&](const Append& a) { return a.input == input; });
}

/// The recording of one run; failed runs have their steps up to the error.
class Recording {
  public:
    explicit Recording(tilewright_session& s) : s_(s) {
        if (s_.records) s_.session.set_profile(s_.recorded->begin());
    }
    ~Recording() {
        if (!s_.records) return;
        s_.session.set_profile(nullptr);
        s_.recorded->end(s_.inputs);
    }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

  private:
    tilewright_session& s_;
};

void run(tilewright_session& s, const tilewright_tensor* inputs, size_t count, const RunControl& control = {}) {
    const std::vector<ModelIo>& declared = s.compiled->inputs();
    if (count != declared.size()) invalid("the model has {} inputs, and {} were given", declared.size(), count);
    if (count > 0) require_pointer(inputs, "inputs");
    s.outputs = nullptr;
    s.inputs.clear();
    for (size_t i = 0; i < count; ++i)
        s.inputs.push_back(control.cache != nullptr && is_held(s, i) ? Tensor()
                                                                     : view(inputs[i], quoted_name(declared[i].name)));
    const Recording recording(s);
    s.outputs = &s.session.run_in_place(s.inputs, control);
}

// The numbers in the header equal the enumerations.
static_assert(static_cast<int>(DType::F32) == TILEWRIGHT_F32 && static_cast<int>(DType::BF16) == TILEWRIGHT_BF16 &&
              static_cast<int>(DType::I64) == TILEWRIGHT_I64 && static_cast<int>(DType::U64) == TILEWRIGHT_U64 &&
              static_cast<int>(DType::Bool) == TILEWRIGHT_BOOL && static_cast<int>(DType::F8E4M3FN) == 13 &&
              static_cast<int>(DType::F8E8M0) == TILEWRIGHT_F8E8M0 && static_cast<int>(DType::I4) == TILEWRIGHT_I4 &&
              static_cast<int>(DType::F4E2M1) == TILEWRIGHT_F4E2M1 && static_cast<int>(DType::U2) == TILEWRIGHT_U2);

}  // namespace

extern "C" {

const char* tilewright_version(void) { return TILEWRIGHT_VERSION; }

size_t tilewright_dtype_size(tilewright_dtype type) { return is_type(type) ? byte_size(static_cast<DType>(type)) : 0; }

const char* tilewright_dtype_name(tilewright_dtype type) {
    return is_type(type) ? to_string(static_cast<DType>(type)).data() : "?";
}

tilewright_status tilewright_load(const char* path, tilewright_model** model, tilewright_error** error) {
    return tilewright_load_with(path, nullptr, model, error);
}

tilewright_status tilewright_load_with(const char* path, const tilewright_load_options* options,
                                       tilewright_model** model, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(path, "path");
        require_pointer(model, "model");
        const tilewright_load_options o = known(options);
        *model = finished(artifact::load_model_file(path, operators_of(o).get(), o.copy_weights != 0));
    });
}

tilewright_status tilewright_load_linked(const tilewright_linked_model* linked, tilewright_model** model,
                                         tilewright_error** error) {
    return tilewright_load_linked_with(linked, nullptr, model, error);
}

tilewright_status tilewright_load_linked_with(const tilewright_linked_model* linked,
                                              const tilewright_load_options* options, tilewright_model** model,
                                              tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(linked, "linked");
        require_pointer(model, "model");
        *model = finished(artifact::load_linked_model(*reinterpret_cast<const artifact::ModelTable*>(linked),
                                                      operators_of(known(options)).get()));
    });
}

void tilewright_model_free(tilewright_model* model) { delete model; }

size_t tilewright_input_count(const tilewright_model* model) {
    return model != nullptr ? model->inputs.entries.size() : 0;
}

size_t tilewright_output_count(const tilewright_model* model) {
    return model != nullptr ? model->outputs.entries.size() : 0;
}

tilewright_status tilewright_input(const tilewright_model* model, size_t index, tilewright_io* io,
                                   tilewright_error** error) {
    return describe(model, &tilewright_model::inputs, index, io, error);
}

tilewright_status tilewright_output(const tilewright_model* model, size_t index, tilewright_io* io,
                                    tilewright_error** error) {
    return describe(model, &tilewright_model::outputs, index, io, error);
}

tilewright_status tilewright_info(const tilewright_model* model, tilewright_model_info* info,
                                  tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(model, "model");
        require_pointer(info, "info");
        const ModelInfo& i = model->info.info;
        *info = {i.producer.c_str(),      i.graph_name.c_str(),        i.domain.c_str(),
                 i.description.c_str(),   i.graph_description.c_str(), i.version,
                 model->info.keys.size(), model->info.keys.data(),     model->info.values.data()};
    });
}

tilewright_status tilewright_session_create(const tilewright_model* model, int32_t threads,
                                            tilewright_session** session, tilewright_error** error) {
    tilewright_session_options options = tilewright_default_session_options();
    options.threads = threads;
    return tilewright_session_create_with(model, &options, session, error);
}

tilewright_status tilewright_session_create_with(const tilewright_model* model,
                                                 const tilewright_session_options* options,
                                                 tilewright_session** session, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(model, "model");
        require_pointer(session, "session");
        constexpr size_t kFirst = sizeof(tilewright_session_options);
        tilewright_session_options o = tilewright_default_session_options();
        if (options != nullptr)
            copy_known_fields(options, options->struct_size, kFirst, &o, sizeof o, "tilewright_session_options");
        *session = new tilewright_session{model->compiled, session_of(*model, o), {}, nullptr};
    });
}

void tilewright_session_free(tilewright_session* session) { delete session; }

tilewright_status tilewright_run(tilewright_session* session, const tilewright_tensor* inputs, size_t input_count,
                                 tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(session, "session");
        const Use use = session->use();
        run(*session, inputs, input_count);
    });
}

tilewright_status tilewright_run_with(tilewright_session* session, const tilewright_tensor* inputs, size_t input_count,
                                      const tilewright_run_options* options, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(session, "session");
        const Use use = session->use();
        const RunControl control = control_of(options);
        std::optional<Use> cache;
        if (control.cache != nullptr) cache.emplace(options->kv_cache->used, kCacheIsUsed);
        run(*session, inputs, input_count, control);
    });
}

tilewright_status tilewright_session_output(const tilewright_session* session, size_t index, tilewright_tensor* output,
                                            tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(session, "session");
        require_pointer(output, "output");
        const Use use = session->use();
        if (session->outputs == nullptr) invalid("the session has no outputs: its last run failed, or there was none");
        if (index >= session->outputs->size())
            invalid("index {}: the model has {} outputs", index, session->outputs->size());
        *output = view((*session->outputs)[index]);
    });
}

tilewright_status tilewright_session_counts(const tilewright_session* session, tilewright_counts* counts,
                                            tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(session, "session");
        require_pointer(counts, "counts");
        constexpr size_t kFirst = sizeof(tilewright_counts);
        const size_t size = counts->struct_size;
        if (size < kFirst) invalid("counts->struct_size is {}: expected sizeof(tilewright_counts)", size);
        const Use use = session->use();
        const RunCounts c = session->session.counts();
        *counts = {size,       c.runs,         c.compilations, c.preparations,
                   c.recalled, c.memory_plans, c.dispatches,   c.bytes_copied};
    });
}

tilewright_status tilewright_session_record(tilewright_session* session, int32_t on, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(session, "session");
        const Use use = session->use();
        session->records = on != 0;
        if (session->records) session->recorded.emplace();
    });
}

tilewright_status tilewright_session_trace(tilewright_session* session, const char** trace, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(session, "session");
        require_pointer(trace, "trace");
        const Use use = session->use();
        if (!session->recorded) invalid("nothing was recorded: call tilewright_session_record before the runs");
        session->trace = session->recorded->json();
        *trace = session->trace.c_str();
    });
}

tilewright_status tilewright_run_into(tilewright_session* session, const tilewright_tensor* inputs, size_t input_count,
                                      tilewright_tensor* outputs, size_t output_count, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(session, "session");
        const Use use = session->use();
        const size_t expected = session->compiled->outputs().size();
        if (output_count != expected)
            invalid("the model has {} outputs, and room for {} was given", expected, output_count);
        if (output_count > 0) require_pointer(outputs, "outputs");
        for (size_t i = 0; i < output_count; ++i)
            if (outputs[i].bytes > 0) require_pointer(outputs[i].data, "outputs[i].data");
        run(*session, inputs, input_count);
        std::string too_small;
        for (size_t i = 0; i < output_count; ++i) {
            const Tensor& made = (*session->outputs)[i];
            tilewright_tensor result = view(made);
            if (result.bytes > outputs[i].bytes && too_small.empty())
                too_small =
                    fmt::format("output {} needs {} bytes, and there is room for {}",
                                quoted_name(session->compiled->outputs()[i].name), result.bytes, outputs[i].bytes);
            else if (result.bytes > 0 && result.bytes <= outputs[i].bytes)
                copy_output(*session, outputs[i].data, made.data(), result.bytes);
            result.data = outputs[i].data;
            outputs[i] = result;
        }
        if (!too_small.empty()) throw InvalidArgument(too_small);
    });
}

}  // extern "C"
