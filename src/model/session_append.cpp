#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "model/kv_cache.h"
#include "model/session_impl.h"

namespace tilewright {

const Append* Session::Impl::append_to(size_t input) const {
    const std::vector<Append>& all = model->appends();
    const auto it = std::find_if(all.begin(), all.end(), [&](const Append& a) { return a.input == input; });
    return it == all.end() ? nullptr : &*it;
}

const Append* Session::Impl::append_from(size_t output) const {
    const std::vector<Append>& all = model->appends();
    const auto it = std::find_if(all.begin(), all.end(), [&](const Append& a) { return a.output == output; });
    return it == all.end() ? nullptr : &*it;
}

void Session::Impl::set_appended(const Append& a, const Tensor& tensor, const KvCache* cache) {
    if (cache != nullptr) {
        executor->set_rows(a.input, cache->rows());
        return;
    }
    const ModelIo& io = model->inputs()[a.input];
    if (tensor.shape().size() != io.shape.size())
        model_error("input '{}' has rank {}, expected {} {}", io.name, tensor.shape().size(), io.shape.size(),
                    to_string(std::span<const Expr>(io.shape)));
    rearranged_inputs.resize(model->appends().size());
    std::vector<std::byte>& to = rearranged_inputs[static_cast<size_t>(&a - model->appends().data())];
    memory.grow(to, tensor.bytes() + 128, [&] { return fmt::format("the rows of input '{}'", io.name); });
    std::byte* aligned = to.data() + (64 - reinterpret_cast<uintptr_t>(to.data()) % 64) % 64;
    copy_rows_first({tensor.dtype(), tensor.shape(), const_cast<void*>(tensor.data())}, a.axis, aligned);
    counters.bytes_copied += tensor.bytes();
    executor->set_input(a.input, aligned, rows_first(std::span<const int64_t>(tensor.shape()), a.axis));
}

void Session::Impl::bind_cache(KvCache* cache) {
    const std::vector<Append>& all = model->appends();
    uint64_t copied = 0;
    for (size_t k = 0; k < all.size(); ++k)
        executor->bind(all[k].input, all[k].output,
                       cache == nullptr ? nullptr : cache->extend(k, executor->appended_shape(all[k].output), copied));
    counters.bytes_copied += copied;
}

void Session::Impl::take_appended(const Append& a, KvCache* cache, const OutputMemory& requested) {
    const TensorView v = executor->output(a.output);
    Shape shape = rows_back(v.shape, a.axis);
    if (cache != nullptr) {
        cache->finish(v.shape[0]);
        shape[a.axis] = 0;
        outputs[a.output] = Tensor(v.dtype, std::move(shape), nullptr, nullptr);
        return;
    }
    const auto bytes = static_cast<size_t>(v.count()) * byte_size(v.dtype);
    void* to = requested ? requested(a.output, {v.dtype, shape, nullptr}) : nullptr;
    if (to == nullptr) {
        const size_t k = static_cast<size_t>(&a - model->appends().data());
        rearranged_outputs.resize(model->appends().size());
        memory.grow(rearranged_outputs[k], bytes + 128,
                    [&] { return fmt::format("output '{}'", model->outputs()[a.output].name); });
        std::vector<std::byte>& own = rearranged_outputs[k];
        to = own.data() + (64 - reinterpret_cast<uintptr_t>(own.data()) % 64) % 64;
    }
    copy_rows_back(v.data, {v.dtype, shape, to}, a.axis);
    counters.bytes_copied += bytes;
    outputs[a.output] = Tensor(v.dtype, std::move(shape), to, nullptr);
}

void Session::Impl::run_fallback_with(KvCache& cache, std::vector<Tensor> inputs, const RunControl& options) {
    const std::vector<Append>& all = model->appends();
    for (size_t k = 0; k < all.size(); ++k) inputs[all[k].input] = cache.read(k);
    RunControl plain = options;
    plain.cache = nullptr;
    if (options.output_memory)
        plain.output_memory = [&](size_t i, const TensorView& output) -> void* {
            return append_from(i) != nullptr ? nullptr : options.output_memory(i, output);
        };
    run_fallback(inputs, plain);
    for (size_t k = 0; k < all.size(); ++k) {
        const Append& a = all[k];
        Tensor& made = outputs[a.output];
        cache.write(k, made);
        Shape empty = made.shape();
        const int64_t rows = empty[a.axis];
        empty[a.axis] = 0;
        made = Tensor(made.dtype(), std::move(empty), nullptr, nullptr);
        if (k + 1 == all.size()) cache.finish(rows);
    }
}

}  // namespace tilewright
