#include "tune/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "program/transform/substitute.h"
#include "program/transform/tidy.h"
#include "runtime/float_mode.h"
#include "runtime/memory_limit.h"

namespace tilewright {
namespace {

constexpr int64_t kGuard = 2 * kBufferAlignment;
constexpr unsigned char kGuardByte = 0xA5;

/// Whether something was written between guard bytes.
bool overwritten(const std::byte* from, const std::byte* to) {
    return std::any_of(from, to, [](std::byte b) { return b != std::byte{kGuardByte}; });
}

int64_t rounded(int64_t bytes) { return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment; }

/// True if, with every load in [0, most], all indices that use one stay inside their dimension.
bool loads_fit(const Program& stages, int64_t most) {
    for (const Primitive& p : stages.primitives) {
        const TensorExpr& e = *p.expr();
        Ranges ranges = e.ranges();
        ranges.loads.assign(e.accesses.size(), Interval{Expr(0), Expr(most)});
        for (const Access& a : e.accesses)
            for (size_t d = 0; d < a.index.size(); ++d) {
                bool mentions = false;
                for (const Var v : variables(a.index[d])) mentions = mentions || v.kind == VarKind::Load;
                if (mentions && !(prove_nonnegative(a.index[d], ranges) &&
                                  prove_less(a.index[d], stages.values[a.value].shape[d], ranges)))
                    return false;
            }
    }
    return true;
}

/// The largest value of an integer input for which all indices are in bounds; none if inputs are not used as indices.
std::optional<int64_t> largest_index(const Program& stages) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Primitive& p : stages.primitives)
        for (const Access& a : p.expr()->accesses)
            for (size_t d = 0; d < a.index.size(); ++d)
                for (const Var v : variables(a.index[d]))
                    if (v.kind == VarKind::Load) least = std::min(least, stages.values[a.value].shape[d].constant());
    if (least == std::numeric_limits<int64_t>::max()) return std::nullopt;
    int64_t most = std::max<int64_t>(least - 1, 0);
    while (most > 0 && !loads_fit(stages, most)) most /= 2;
    return most;
}

}  // namespace

Program with_sizes(const Program& stages, const Bindings& bindings) {
    std::map<Var, Expr> by;
    for (const Var v : names_of(stages)) {
        const auto it = bindings.find(v);
        TW_CHECK(it != bindings.end(), "no value for '{}' of kernel '{}'", var_name(v), stages.name);
        by.emplace(v, Expr(it->second));
    }
    return substitute_names(stages, by);
}

std::optional<Bindings> assumed_sizes(const Program& stages, int64_t size) {
    Bindings sizes;
    for (const Var v : names_of(stages)) {
        if (v.kind == VarKind::Scalar) return std::nullopt;
        const auto it = stages.assumed.find(v);
        sizes.emplace(v, it == stages.assumed.end() ? size : it->second);
    }
    for (const Value& v : stages.values)
        for (const int64_t d : evaluate(v.shape, sizes))
            if (d < 0) return std::nullopt;
    return sizes;
}

namespace {
/// The period of the random numbers: a prime, so that rows of a tensor differ.
constexpr size_t kPeriod = 65521;
}  // namespace

std::vector<Tensor> kernel_inputs(const Program& stages, uint64_t seed, Spread spread) {
    std::mt19937_64 rng(seed * 0x9E3779B97F4A7C15ull + 11);
    const std::optional<int64_t> index = largest_index(stages);
    const auto real = [&] {
        const uint64_t bits = rng();
        const double centred = static_cast<double>(bits >> 11) * 0x1p-53 - 0.5;
        const uint64_t kind = bits % 64;
        return kind == 0 ? 0.0 : (kind == 1 && spread == Spread::Wide ? 60 : 2) * centred;
    };
    const auto integer = [&](DType t) {
        const uint64_t bits = rng();
        if (t == DType::Bool) return static_cast<int64_t>(bits % 2);
        if (index) return static_cast<int64_t>(bits % static_cast<uint64_t>(*index + 1));
        const auto magnitude = static_cast<int64_t>(bits / 2 % 101);
        return is_signed(t) && bits % 2 == 0 ? -magnitude : magnitude;
    };
    std::vector<Tensor> inputs;
    for (const ValueId v : stages.inputs) {
        const Value& value = stages.values[v];
        Tensor t(value.dtype, evaluate(value.shape, Bindings{}), false);
        if (value.dtype == DType::F32) {  // may have many millions of elements
            const auto all = t.as_mutable<float>();
            for (size_t i = 0; i < all.size(); ++i)
                all[i] = i < kPeriod ? static_cast<float>(real()) : all[i - kPeriod];
        } else {
            for (int64_t i = 0; i < t.count(); ++i)
                is_float(value.dtype) ? t.set(i, real()) : t.set(i, integer(value.dtype));
        }
        inputs.push_back(std::move(t));
    }
    return inputs;
}

PreparedInputs prepared_inputs(Program stages, std::vector<Tensor> inputs, const cpu::LibraryCall& call) {
    const std::vector<cpu::LibraryCall::Prepared> all = call.prepared();
    for (size_t k = 0; k < all.size(); ++k) {
        constexpr auto kElement = static_cast<int64_t>(sizeof(float));
        Arena there;
        there.reserve(all[k].bytes + 2 * kGuard);
        std::memset(there.data(), kGuardByte, static_cast<size_t>(all[k].bytes + 2 * kGuard));
        std::byte* const begin = there.data() + kGuard;
        call.prepare(k, inputs.at(all[k].input).data(), begin);
        std::byte* const end = begin + all[k].bytes;
        if (overwritten(begin - kGuard, begin) || overwritten(end, end + kGuard))
            throw RuntimeError(fmt::format("it writes outside the memory of its prepared input {}", all[k].input));
        Tensor prepared(DType::F32, {(all[k].bytes + kElement - 1) / kElement}, false);
        std::memcpy(prepared.mutable_data(), begin, static_cast<size_t>(all[k].bytes));
        Value& value = stages.values[stages.inputs[all[k].input]];
        value.dtype = DType::F32;
        value.shape = {Expr(prepared.count())};
        inputs[all[k].input] = std::move(prepared);
    }
    return {std::move(stages), std::move(inputs)};
}

// --- Operands

Operands::Operands(const Program& stages, const std::vector<Tensor>& inputs, const OperandOptions& options)
    : inputs_(inputs.size()) {
    TW_CHECK(inputs.size() == stages.inputs.size(), "{} inputs for {}", inputs.size(), stages.inputs.size());
    TW_CHECK(!options.guarded || options.warmth == Warmth::warm, "guarded operands must not be timed");
    TW_CHECK(options.weights.empty() || options.weights.size() == inputs.size(), "{} flags for {} inputs",
             options.weights.size(), inputs.size());
    const int64_t guard = options.guarded ? kGuard : 0;
    int64_t bytes = guard, weight_bytes = guard;
    std::vector<bool> is_weight;
    const auto place = [&](ValueId v, bool weight) {
        const Value& value = stages.values[v];
        Place p{value.name, value.dtype, evaluate(value.shape, Bindings{}), 0, 0};
        p.bytes = element_count(p.shape) * static_cast<int64_t>(byte_size(p.dtype));
        int64_t& end = weight ? weight_bytes : bytes;
        p.offset = end;
        end += rounded(p.bytes) + guard;
        places_.push_back(std::move(p));
        is_weight.push_back(weight);
    };
    for (size_t i = 0; i < inputs.size(); ++i)
        place(stages.inputs[i],
              options.warmth == Warmth::cold_weights && !options.weights.empty() && options.weights[i]);
    for (const ValueId v : stages.outputs) place(v, false);

    if (std::find(is_weight.begin(), is_weight.end(), true) != is_weight.end() && weight_bytes > 0) {
        const auto room = static_cast<int64_t>(std::min<uint64_t>(available_memory() / 4, uint64_t{1} << 40));
        const int64_t wanted = (2 * options.cache_bytes + weight_bytes - 1) / weight_bytes;
        copies_ = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(room / weight_bytes, 1));
        // Copies are not used in sequence: the next copy's first lines would be prefetched with this one's last.
        step_ = std::max<int64_t>(copies_ * 5 / 8, 1);
        while (std::gcd(step_, copies_) != 1) ++step_;
    }
    memory_.reserve(bytes);
    weights_.reserve(weight_bytes * copies_);
    for (const auto& [arena, size] : {std::pair(&memory_, bytes), std::pair(&weights_, weight_bytes * copies_)})
        if (size > 0) std::memset(arena->data(), options.guarded ? kGuardByte : 0, static_cast<size_t>(size));
    for (int64_t copy = 0; copy < copies_; ++copy)
        for (size_t i = 0; i < places_.size(); ++i) {
            const Place& p = places_[i];
            std::byte* data = is_weight[i] ? weights_.data() + copy * weight_bytes : memory_.data();
            addresses_.push_back(data == nullptr ? nullptr : data + p.offset);
            if (i >= inputs.size() || p.bytes == 0 || (copy > 0 && !is_weight[i])) continue;
            TW_CHECK(inputs[i].dtype() == p.dtype && inputs[i].shape() == p.shape, "input {}: {}{}, expected {}{}",
                     p.name, to_string(inputs[i].dtype()), to_string(inputs[i].shape()), to_string(p.dtype),
                     to_string(p.shape));
            std::memcpy(addresses_.back(), inputs[i].data(), static_cast<size_t>(p.bytes));
        }
    guarded_ = options.guarded;
    if (guarded_) given_ = inputs;
}

void* const* Operands::next() {
    copy_ = (copy_ + step_) % copies_;
    return addresses_.data() + static_cast<size_t>(copy_) * places_.size();
}

Tensor Operands::output(size_t i) const {
    const Place& p = places_.at(inputs_ + i);
    Tensor t(p.dtype, p.shape, false);
    if (p.bytes > 0) std::memcpy(t.mutable_data(), addresses_[inputs_ + i], static_cast<size_t>(p.bytes));
    return t;
}

const void* Operands::output_data(size_t i) const { return addresses_.at(inputs_ + i); }

void Operands::fill_outputs(unsigned char byte) {
    for (size_t i = inputs_; i < places_.size(); ++i)
        if (places_[i].bytes > 0) std::memset(addresses_[i], byte, static_cast<size_t>(places_[i].bytes));
}

std::string Operands::intact() const {
    for (size_t i = 0; i < places_.size(); ++i) {
        const Place& p = places_[i];
        const auto* begin = static_cast<const std::byte*>(addresses_[i]);
        if (i < inputs_ && p.bytes > 0 && std::memcmp(begin, given_[i].data(), static_cast<size_t>(p.bytes)) != 0)
            return fmt::format("input {} was overwritten", p.name);
        const std::byte* around[][2] = {{begin - kGuard, begin}, {begin + p.bytes, begin + rounded(p.bytes) + kGuard}};
        for (const auto& [from, to] : around)
            if (overwritten(from, to))
                return fmt::format("memory {} {} was overwritten", from < begin ? "before" : "after", p.name);
    }
    return "";
}

// --- KernelRun

KernelRun::KernelRun(const cpu::CompiledKernel& kernel, const Bindings& bindings, Operands& operands, ThreadPool& pool)
    : kernel_(kernel), operands_(&operands), pool_(&pool), scratch_(std::make_shared<Arena>()) {
    for (const Var v : kernel.names) {
        const auto it = bindings.find(v);
        TW_CHECK(it != bindings.end(), "no value for '{}' of kernel '{}'", var_name(v), kernel.name);
        names_.push_back(it->second);
    }
    for (const Expr& g : kernel.grid) tasks_ *= std::max<int64_t>(evaluate(g, bindings), 0);
    guard_ = operands.guarded() ? kGuard : 0;
    parts_ = pool.size();
    scratch_bytes_ = kernel.scratch_bytes;
    if (kernel.library) {
        library_ = kernel.library->runs(pool.size());
        parts_ = 1;
        scratch_bytes_ = kernel.library->scratch_bytes(pool.size());
    }
    stride_ = rounded(scratch_bytes_) + guard_;
    scratch_->reserve(guard_ + stride_ * parts_);
    fill_scratch(0);  // page faults before the timing
}

void KernelRun::operator()() {
    if (tasks_ == 0) return;
    const ScopedFloatMode mode(FloatMode::of_kernels(false));  // as in a model
    void* const* tensors = operands_->next();
    if (library_) {
        library_->run(tensors, scratch_->data() + guard_);
        return;
    }
    const auto body = [&](int64_t begin, int64_t end, int worker) {
        kernel_.run(tensors, names_.data(), begin, end, scratch_->data() + guard_ + worker * stride_);
    };
    if (tasks_ == 1)
        body(0, 1, 0);
    else
        parallel_for(*pool_, tasks_, body);
}

void KernelRun::fill_scratch(unsigned char byte) {
    const int64_t bytes = guard_ + stride_ * parts_;
    if (bytes > 0) std::memset(scratch_->data(), guard_ > 0 ? kGuardByte : byte, static_cast<size_t>(bytes));
    if (guard_ > 0)
        for (int64_t part = 0; part < parts_; ++part)
            std::memset(scratch_->data() + guard_ + part * stride_, byte, static_cast<size_t>(scratch_bytes_));
}

std::string KernelRun::intact() const {
    if (guard_ == 0) return "";
    const std::byte* part = scratch_->data() + guard_;
    if (overwritten(part - guard_, part)) return "memory before its scratch memory was overwritten";
    for (int64_t k = 0; k < parts_; ++k, part += stride_)
        if (overwritten(part + scratch_bytes_, part + stride_))
            return "memory after its scratch memory was overwritten";
    return "";
}

}  // namespace tilewright
