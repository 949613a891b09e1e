#include "model/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/quoted_name.h"
#include "runtime/memory_limit.h"
#include "runtime/opaque.h"

namespace tilewright {

namespace {

constexpr int64_t kMostCacheBytes = int64_t{1} << 46;  ///< of one input: more than any machine has

/// Calls f(offset in row-major order, offset with rows first, bytes) for each contiguous part.
template <class F>
void each_part(std::span<const int64_t> shape, size_t axis, size_t element, const F& f) {
    size_t outer = 1, inner = element;
    for (size_t d = 0; d < axis; ++d) outer *= static_cast<size_t>(shape[d]);
    for (size_t d = axis + 1; d < shape.size(); ++d) inner *= static_cast<size_t>(shape[d]);
    const auto rows = static_cast<size_t>(shape[axis]);
    if (inner == 0) return;
    for (size_t o = 0; o < outer; ++o)
        for (size_t r = 0; r < rows; ++r) f((o * rows + r) * inner, (r * outer + o) * inner, inner);
}

}  // namespace

void copy_rows_first(const TensorView& row_major, size_t axis, void* to) {
    each_part(row_major.shape, axis, byte_size(row_major.dtype), [&](size_t at, size_t with_rows_first, size_t bytes) {
        std::memcpy(static_cast<std::byte*>(to) + with_rows_first, row_major.as<std::byte>() + at, bytes);
    });
}

void copy_rows_back(const void* from, const TensorView& row_major, size_t axis) {
    each_part(row_major.shape, axis, byte_size(row_major.dtype), [&](size_t at, size_t with_rows_first, size_t bytes) {
        std::memcpy(row_major.as<std::byte>() + at, static_cast<const std::byte*>(from) + with_rows_first, bytes);
    });
}

KvCache::KvCache(std::shared_ptr<const CompiledModel> model, int64_t rows)
    : model_(std::move(model)), memory_(model_->appends().size()), reserved_(rows) {
    if (memory_.empty())
        throw ModelError("the model was not compiled for a KV cache",
                         "compile it with --kv-cache, or with `kv_cache` among the options");
    if (rows < 0) model_error("a KV cache for {} rows: expected 0 or more", rows);
}

int64_t KvCache::bytes() const {
    int64_t bytes = 0;
    for (const Memory& m : memory_) bytes += m.block.capacity();
    return bytes;
}

void KvCache::truncate(int64_t rows) {
    if (rows < 0 || rows > rows_) model_error("the KV cache has {} rows, and {} were to stay", rows_, rows);
    rows_ = rows;
}

Tensor KvCache::read(size_t k) const {
    const Append& a = model_->appends().at(k);
    const ModelIo& io = model_->inputs()[a.input];
    const Memory& m = memory_.at(k);
    if (!m.known) model_error("the KV cache has no rows of '{}' yet", io.name);
    Shape shape = m.row;
    shape.insert(shape.begin(), rows_);
    Tensor out(io.dtype, rows_back(std::span<const int64_t>(shape), a.axis), false);
    copy_rows_back(m.block.data(), {out.dtype(), out.shape(), out.mutable_data()}, a.axis);
    return out;
}

std::byte* KvCache::extend(size_t k, const Shape& shape, uint64_t& copied) {
    const ModelIo& io = model_->inputs()[model_->appends().at(k).input];
    Memory& m = memory_.at(k);
    const Shape row(shape.begin() + 1, shape.end());
    if (m.known && rows_ > 0 && row != m.row)
        model_error("input '{}': a row of the KV cache has shape {}, and this run's have {}", io.name, to_string(m.row),
                    to_string(row));
    m.row = row;
    m.known = true;
    m.row_bytes = element_count(row) * static_cast<int64_t>(byte_size(io.dtype));
    int64_t needed = 0;
    if (__builtin_mul_overflow(shape[0], m.row_bytes, &needed) || needed > kMostCacheBytes)
        throw RuntimeError(fmt::format("not enough memory: a KV cache of {} rows of '{}'", shape[0], io.name));
    needed += kBufferAlignment;
    if (needed <= m.block.capacity()) return m.block.data();
    const int64_t ample = std::max(
        {needed, 2 * m.block.capacity(),
         std::min(reserved_, kMostCacheBytes / std::max<int64_t>(m.row_bytes, 1)) * m.row_bytes + kBufferAlignment});
    require_memory(static_cast<uint64_t>(ample), fmt::format("the KV cache of input {}", quoted_name(io.name)));
    Arena larger;
    larger.reserve(ample);
    const auto kept = static_cast<size_t>(rows_ * m.row_bytes);
    if (kept > 0) std::memcpy(larger.data(), m.block.data(), kept);
    copied += kept;
    m.block = std::move(larger);
    return m.block.data();
}

void KvCache::write(size_t k, const Tensor& row_major) {
    const size_t axis = model_->appends().at(k).axis;
    uint64_t copied = 0;
    const Shape shape = rows_first(std::span<const int64_t>(row_major.shape()), axis);
    copy_rows_first({row_major.dtype(), row_major.shape(), const_cast<void*>(row_major.data())}, axis,
                    extend(k, shape, copied));
}

}  // namespace tilewright
