#include "driver/decode.h"

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/option_error.h"
#include "compile/random_inputs.h"
#include "cost/probe.h"
#include "model/kv_cache.h"
#include "runtime/arena.h"
#include "runtime/thread_pool.h"

namespace tilewright {

namespace {

bool is_mask(const ModelIo& io) { return io.name.find("mask") != std::string::npos; }

/// 1e9 bytes a second that the threads load from memory together: the best of several passes.
double read_gbps(VectorIsa isa, int threads) {
    constexpr int64_t kBytes = int64_t{256} << 20;
    constexpr int kPasses = 5;
    const int64_t part = kBytes / threads / 4096 * 4096;
    Arena block;
    block.reserve(kBytes);
    std::fill_n(block.data(), kBytes, std::byte{1});
    ThreadPool pool(threads);
    const ProbeKernels probe = probe_kernels(isa);
    double best = 0;
    for (int pass = 0; pass < kPasses; ++pass) {
        const double start = now_ms();
        parallel_for(pool, threads, [&](int64_t begin, int64_t end, int) {
            for (int64_t t = begin; t < end; ++t) probe.load(block.data() + t * part, part, 1);
        });
        best = std::max(best, static_cast<double>(part * threads) / (now_ms() - start) * 1e-6);
    }
    return best;
}

}  // namespace

DecoderInputs::DecoderInputs(const CompiledModel& model, std::map<std::string, int64_t> sizes)
    : inputs_(model.inputs()), held_(inputs_.size(), false), sizes_(std::move(sizes)) {
    const std::vector<Append>& appends = model.appends();
    if (appends.empty()) throw ModelError("the model has no KV cache", "compile it with --kv-cache");
    for (const Append& a : appends) held_[a.input] = true;
    const Append& first = appends[0];
    const auto rows = inputs_[first.input].shape[first.axis].as_var();
    TW_CHECK(rows.has_value());
    rows_ = *rows;
    std::vector<Var> others = variables(model.outputs()[first.output].shape[first.axis]);
    std::erase(others, rows_);
    if (others.size() != 1)
        throw ModelError(fmt::format("the rows that a run adds to input '{}' are not one dimension of the inputs",
                                     inputs_[first.input].name));
    step_ = others[0];
    if (const auto [name, step] = size_name(step_); step != 1)
        throw ModelError(fmt::format("dimension {} is declared in steps of {}, and a run adds one token", name, step),
                         "declare it without steps");
}

int64_t DecoderInputs::size_of(Expr dimension, bool mask, int64_t tokens, int64_t past) const {
    Bindings sizes{{rows_, past}, {step_, tokens}};
    for (const Var v : variables(dimension)) {
        if (sizes.count(v) != 0) continue;
        const auto [name, step] = size_name(v);
        const auto given = sizes_.find(name);
        sizes[v] = (given != sizes_.end() ? given->second : mask ? past + tokens : step) / step;
    }
    return evaluate(dimension, sizes);
}

std::vector<Tensor> DecoderInputs::step(const std::vector<int64_t>& tokens, int64_t past) const {
    std::vector<Tensor> out(inputs_.size());
    const auto count = static_cast<int64_t>(tokens.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
        if (held_[i]) continue;
        const ModelIo& io = inputs_[i];
        Shape shape;
        for (size_t d = 0; d < io.shape.size(); ++d)
            shape.push_back(size_of(io.shape[d], is_mask(io) && d > 0 && d + 1 == io.shape.size(), count, past));
        if (is_mask(io) || is_float(io.dtype) || io.dtype == DType::Bool) {
            out[i] = random_tensor(is_mask(io) ? "mask" : io.name, io.dtype, shape, 1);
            if (is_mask(io))
                for (int64_t k = 0; k < out[i].count(); ++k) out[i].set(k, 1);
            continue;
        }
        const bool positions = io.name.find("position") != std::string::npos;
        out[i] = Tensor(io.dtype, shape);
        for (int64_t k = 0; k < out[i].count(); ++k)
            out[i].set(k, positions ? past + k % count : tokens[static_cast<size_t>(k % count)]);
    }
    return out;
}

size_t logits_of(const CompiledModel& model) {
    for (size_t i = 0; i < model.outputs().size(); ++i) {
        const ModelIo& io = model.outputs()[i];
        if (is_float(io.dtype) && byte_size(io.dtype) >= 2 && io.shape.size() >= 2 && io.shape.back().is_constant() &&
            std::none_of(model.appends().begin(), model.appends().end(),
                         [&](const Append& a) { return a.output == i; }))
            return i;
    }
    throw ModelError("no output has scores of tokens: floats [..., tokens, vocabulary]");
}

int64_t likeliest(const Tensor& logits) {
    const auto vocabulary = static_cast<size_t>(logits.shape().back());
    const auto rows =
        logits.rank() >= 2 ? static_cast<size_t>(logits.shape()[static_cast<size_t>(logits.rank()) - 2]) : 1;
    const auto first = static_cast<int64_t>((rows - 1) * vocabulary);
    std::vector<double> last(vocabulary);
    for (size_t k = 0; k < vocabulary; ++k) last[k] = logits.get(first + static_cast<int64_t>(k));
    return std::max_element(last.begin(), last.end()) - last.begin();
}

DecodeTimes time_decoding(const std::shared_ptr<const CompiledModel>& model,
                          const std::map<std::string, int64_t>& sizes, int threads, int64_t prompt, int tokens) {
    const DecoderInputs inputs(*model, sizes);
    const size_t logits = logits_of(*model);
    const int64_t vocabulary = model->outputs()[logits].shape.back().constant();
    std::vector<int64_t> read;
    for (int64_t k = 0; k < prompt; ++k) read.push_back((k * 7919 + 13) % vocabulary);
    Session session(model, threads);
    DecodeTimes out;
    for (const bool timed : {false, true}) {
        KvCache cache(model, prompt + tokens);
        RunControl control;
        control.cache = &cache;
        out.tokens.clear();
        const auto run = [&](const std::vector<int64_t>& next) {
            const double start = now_ms();
            out.tokens.push_back(likeliest(session.run_in_place(inputs.step(next, cache.rows()), control)[logits]));
            return now_ms() - start;
        };
        out.prompt_ms = run(read);
        const int generated = timed ? tokens : std::min(tokens, 3);
        for (int k = 1; k < generated; ++k) {
            const double ms = run({out.tokens.back()});
            if (timed) out.token_ms.push_back(ms);
        }
        out.cache_bytes = cache.bytes();
        if (!timed) continue;
        const std::vector<int64_t> generated_tokens = out.tokens;
        constexpr int kProfiled = 9;
        for (int k = 0; k < kProfiled; ++k) {
            session.set_profile(&out.profiled.emplace_back());
            run({out.tokens.back()});
        }
        out.tokens = generated_tokens;
        session.set_profile(nullptr);
    }
    // A table of which a product reads some rows is among its tensors: no more than an element for each multiply-add.
    for (const StepTime& s : out.profiled.front()) out.bytes += std::min(s.bytes, sizeof(float) * s.flops / 2);
    out.counts = session.counts();
    out.read_gbps = read_gbps(model->impl().platform.isa, threads);
    return out;
}

}  // namespace tilewright
