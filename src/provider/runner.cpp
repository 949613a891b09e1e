#include "provider/runner.h"

#include <fmt/format.h>

#include <utility>

#include "driver/api_model.h"
#include "graph/import_tensor.h"
#include "runtime/model_info.h"

namespace tilewright::provider {

namespace {

/// Throws what a call of the C interface reports.
void check(tilewright_status status, tilewright_error* error) {
    if (status == TILEWRIGHT_OK) return;
    const std::unique_ptr<tilewright_error, void (*)(tilewright_error*)> release(error, tilewright_error_free);
    const std::string hint = tilewright_error_hint(error);
    throw ApiError(hint.empty() ? tilewright_error_message(error)
                                : fmt::format("{} ({})", tilewright_error_message(error), hint));
}

}  // namespace

/// A session and the run that it is in.
struct Runner::Lane {
    const Api& api;
    OrtKernelContext* context = nullptr;
    std::string failure;  ///< of ONNX Runtime's functions during the run
    std::vector<tilewright_tensor> inputs;
    std::vector<std::vector<int64_t>> shapes;  ///< of the inputs
    std::unique_ptr<tilewright_session, void (*)(tilewright_session*)> session{nullptr, tilewright_session_free};

    Lane(const Api& a, const tilewright_model* model, int threads) : api(a) {
        tilewright_session_options options = tilewright_default_session_options();
        options.threads = threads;
        options.user = this;
        options.parallel_for = [](void* user, size_t count, void (*task)(void*, size_t), void* argument) {
            static_cast<Lane*>(user)->parallel_for(count, task, argument);
        };
        tilewright_session* made = nullptr;
        tilewright_error* error = nullptr;
        check(tilewright_session_create_with(model, &options, &made, &error), error);
        session.reset(made);
    }

    void parallel_for(size_t count, void (*task)(void*, size_t), void* argument) const {
        OrtStatus* failed = api.context_parallel_for(context, task, count, 0, argument);
        if (failed == nullptr) return;
        api.release_status(failed);  // refused before it began
        for (size_t i = 0; i < count; ++i) task(argument, i);
    }

    void read_inputs(size_t count) {
        inputs.resize(count);
        shapes.resize(count);
        for (size_t i = 0; i < count; ++i) {
            const OrtValue* value = nullptr;
            api.check(api.context_input(context, i, &value));
            if (value == nullptr) throw ApiError(fmt::format("input {} is missing", i));
            read_input(value, shapes[i], inputs[i]);
        }
    }

    void read_input(const OrtValue* value, std::vector<int64_t>& shape, tilewright_tensor& out) const {
        const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> info(
            api.get<OrtTensorTypeAndShapeInfo*>(api.get_tensor_info, value), api.release_tensor_info);
        const OrtTensorTypeAndShapeInfo* read = info.get();
        const int type = api.get<int>(api.get_element_type, read);
        const std::optional<DType> dtype = import_detail::dtype_from_onnx(type);
        if (!dtype) throw ApiError(fmt::format("an input has elements of type {}", type));
        shape.resize(api.get<size_t>(api.get_dimension_count, read));
        if (!shape.empty()) api.check(api.get_dimensions(read, shape.data(), shape.size()));
        const auto* data = api.get<const void*>(api.get_tensor_data, value);
        out = {static_cast<tilewright_dtype>(*dtype), shape.size(), shape.data(), const_cast<void*>(data),
               static_cast<size_t>(element_count(shape)) * byte_size(*dtype)};
    }

    /// Null if ONNX Runtime has no memory, which `failure` then says.
    void* output_memory(size_t index, const tilewright_tensor& output) {
        OrtValue* value = nullptr;
        void* data = nullptr;
        try {
            api.check(api.context_output(context, index, output.shape, output.rank, &value));
            api.check(api.get_tensor_mutable_data(value, &data));
        } catch (const ApiError& e) {
            failure = e.what();
        }
        return data;
    }
};

Runner::Runner(const Api& api, std::shared_ptr<const CompiledModel> model, int threads)
    : api_(api), model_(new tilewright_model(std::move(model), ModelInfo()), tilewright_model_free), threads_(threads) {
    idle_.push_back(take());  // what a session needs is found missing now, and not in the first run
}

Runner::~Runner() = default;

std::unique_ptr<Runner::Lane> Runner::take() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            std::unique_ptr<Lane> lane = std::move(idle_.back());
            idle_.pop_back();
            return lane;
        }
    }
    return std::make_unique<Lane>(api_, model_.get(), threads_);
}

void Runner::run(OrtKernelContext* context) {
    std::unique_ptr<Lane> lane = take();
    lane->context = context;
    lane->failure.clear();
    const OrtKernelContext* read = context;
    lane->read_inputs(api_.get<size_t>(api_.context_input_count, read));
    tilewright_run_options options = tilewright_default_run_options();
    options.user = lane.get();
    options.output_memory = [](void* user, size_t index, const tilewright_tensor* output) {
        return static_cast<Lane*>(user)->output_memory(index, *output);
    };
    tilewright_error* error = nullptr;
    const tilewright_status status =
        tilewright_run_with(lane->session.get(), lane->inputs.data(), lane->inputs.size(), &options, &error);
    check(status, error);
    if (!lane->failure.empty()) throw ApiError(lane->failure);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(lane));
}

}  // namespace tilewright::provider
