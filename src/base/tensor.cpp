#include "base/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"

namespace tilewright {

int64_t element_count(std::span<const int64_t> shape) {
    int64_t n = 1;
    for (int64_t d : shape) {
        if (d < 0) model_error("negative dimension in shape {}", to_string(shape));
        if (__builtin_mul_overflow(n, d, &n)) model_error("shape {} has more than 2^63 elements", to_string(shape));
    }
    return n;
}

std::string to_string(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kWholeHugePages = size_t{4} << 20;  ///< size from which on a tensor is aligned to a huge page

/// Requests pages of 2 MiB for the part of the tensor that covers such: a page fault per 4 KiB takes longer than
/// filling it.
void advise_huge_pages(std::byte* begin, size_t bytes) {
    if (bytes < 2 * kHugePage) return;
    const uintptr_t from = (reinterpret_cast<uintptr_t>(begin) + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t to = (reinterpret_cast<uintptr_t>(begin) + bytes) / kHugePage * kHugePage;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);  // a failure only costs speed
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kMapped = SIZE_MAX;  // memory outside of the heap is not tracked
#else
constexpr size_t kMapped = size_t{1} << 20;
#endif

/// Mapped blocks that tensors have freed, by their size.
class FreedBlocks {
  public:
    static FreedBlocks& instance() {
        static auto* const blocks = new FreedBlocks;  // tensors may be freed at the end of the process
        return *blocks;
    }

    void begin() {
        const std::lock_guard lock(mutex_);
        ++users_;
    }
    void end() {
        const std::lock_guard lock(mutex_);
        if (--users_ > 0) return;
        for (const auto& [size, block] : blocks_) munmap(block, size);
        blocks_.clear();
        bytes_ = 0;
    }
    /// Null: there is none of this size.
    void* take(size_t size) {
        const std::lock_guard lock(mutex_);
        const auto found = blocks_.find(size);
        if (found == blocks_.end()) return nullptr;
        bytes_ -= size;
        return blocks_.extract(found).mapped();
    }
    void put(void* block, size_t size) {
        constexpr size_t kMostBytes = size_t{256} << 20;
        const std::lock_guard lock(mutex_);
        if (users_ == 0 || bytes_ + size > kMostBytes) {
            munmap(block, size);
            return;
        }
        blocks_.emplace(size, block);
        bytes_ += size;
    }

  private:
    std::mutex mutex_;
    int users_ = 0;
    size_t bytes_ = 0;
    std::multimap<size_t, void*> blocks_;
};

/// A block of zeros, or uninitialised. Large blocks are mapped directly, so that they return to the system when they
/// are freed: malloc keeps freed memory in fragments.
std::shared_ptr<std::byte> block_of(size_t bytes, bool zero) {
    if (bytes < kMapped) {
        void* p = zero ? std::calloc(1, bytes) : std::malloc(bytes);
        return {static_cast<std::byte*>(p), [](std::byte* b) { std::free(b); }};
    }
    const size_t room = bytes < kWholeHugePages ? bytes : bytes + kHugePage;
    void* p = zero ? nullptr : FreedBlocks::instance().take(room);
    if (p == nullptr) p = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    auto* begin = static_cast<std::byte*>(p);
    std::byte* from = begin;
    if (room > bytes) from += (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
    return {from, [begin, room](std::byte*) { FreedBlocks::instance().put(begin, room); }};
}

}  // namespace

ReuseTensorMemory::ReuseTensorMemory() { FreedBlocks::instance().begin(); }
ReuseTensorMemory::~ReuseTensorMemory() { FreedBlocks::instance().end(); }

Tensor::Tensor(DType dtype, Shape shape, bool zero)
    : dtype_(dtype), shape_(std::move(shape)), count_(element_count(shape_)) {
    size_t size = 0;
    if (__builtin_mul_overflow(static_cast<size_t>(count_), byte_size(dtype), &size) || size > (size_t{1} << 46))
        throw RuntimeError(fmt::format("a tensor of shape {} is too large", to_string(shape_)));
    const size_t rounded = (size + 63) / 64 * 64 + 64;
    std::shared_ptr<std::byte> block = block_of(rounded + 64, zero);
    if (block == nullptr)
        throw RuntimeError(fmt::format("out of memory: a tensor of shape {} needs {} bytes", to_string(shape_), size));
    auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(block.get()) + 63) / 64 * 64);
    advise_huge_pages(aligned, size);
    data_ = std::shared_ptr<const void>(std::move(block), aligned);
}

Tensor::Tensor(DType dtype, Shape shape, const void* bytes, std::shared_ptr<const void> owner)
    : dtype_(dtype), shape_(std::move(shape)), count_(element_count(shape_)), data_(std::move(owner), bytes) {}

bool has_huge_pages(const Tensor& t) {
    return t.bytes() >= kWholeHugePages && reinterpret_cast<uintptr_t>(t.data()) % kHugePage == 0 &&
           t.bytes() % kHugePage <= t.bytes() / 8;
}

namespace {

template <class T>
T load(const void* p, int64_t i) {
    T v;
    std::memcpy(&v, static_cast<const char*>(p) + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return v;
}

template <class T>
void store(void* p, int64_t i, T v) {
    std::memcpy(static_cast<char*>(p) + static_cast<size_t>(i) * sizeof(T), &v, sizeof(T));
}

/// A cast that is defined for every double: NaN becomes 0, values out of range wrap through 64 bits where possible.
int64_t double_to_int(double v) {
    if (v != v) return 0;
    if (v >= 9223372036854775808.0) {
        if (v < 18446744073709551616.0) return static_cast<int64_t>(static_cast<uint64_t>(v));
        return INT64_MAX;
    }
    if (v < -9223372036854775808.0) return INT64_MIN;
    return static_cast<int64_t>(v);
}

}  // namespace

double Tensor::get(int64_t i) const {
    const void* p = data_.get();
    switch (dtype_) {
        case DType::F32:
            return load<float>(p, i);
        case DType::F64:
            return load<double>(p, i);
        case DType::F16:
            return half_to_float(load<uint16_t>(p, i));
        case DType::BF16:
            return bfloat16_to_float(load<uint16_t>(p, i));
        case DType::U64:
            return static_cast<double>(load<uint64_t>(p, i));
        default:
            break;
    }
    if (is_float(dtype_)) return small_float_to_float(dtype_, load<uint8_t>(p, i));
    return static_cast<double>(get_int(i));
}

int64_t Tensor::get_int(int64_t i) const {
    const void* p = data_.get();
    switch (dtype_) {
        case DType::I8:
        case DType::I4:
        case DType::I2:
            return load<int8_t>(p, i);
        case DType::I16:
            return load<int16_t>(p, i);
        case DType::I32:
            return load<int32_t>(p, i);
        case DType::I64:
            return load<int64_t>(p, i);
        case DType::U8:
        case DType::U4:
        case DType::U2:
        case DType::Bool:
            return load<uint8_t>(p, i);
        case DType::U16:
            return load<uint16_t>(p, i);
        case DType::U32:
            return load<uint32_t>(p, i);
        case DType::U64:
            return static_cast<int64_t>(load<uint64_t>(p, i));
        default:
            return double_to_int(get(i));
    }
}

void Tensor::set(int64_t i, double v) {
    void* p = mutable_data();
    switch (dtype_) {
        case DType::F32:
            return store<float>(p, i, static_cast<float>(v));
        case DType::F64:
            return store<double>(p, i, v);
        case DType::F16:
            return store<uint16_t>(p, i, float_to_half(static_cast<float>(v)));
        case DType::BF16:
            return store<uint16_t>(p, i, float_to_bfloat16(static_cast<float>(v)));
        case DType::Bool:
            return store<uint8_t>(p, i, v != 0 ? 1 : 0);
        default:
            break;
    }
    if (is_float(dtype_)) return store<uint8_t>(p, i, float_to_small_float(dtype_, static_cast<float>(v), true));
    set(i, double_to_int(v));
}

void Tensor::set(int64_t i, int64_t v) {
    void* p = mutable_data();
    switch (dtype_) {
        case DType::I8:
        case DType::U8:
            return store<uint8_t>(p, i, static_cast<uint8_t>(v));
        case DType::I4:
            return store<int8_t>(p, i, static_cast<int8_t>(static_cast<int8_t>((v & 15) << 4) >> 4));
        case DType::U4:
            return store<uint8_t>(p, i, static_cast<uint8_t>(v & 15));
        case DType::I2:
            return store<int8_t>(p, i, static_cast<int8_t>(static_cast<int8_t>((v & 3) << 6) >> 6));
        case DType::U2:
            return store<uint8_t>(p, i, static_cast<uint8_t>(v & 3));
        case DType::I16:
        case DType::U16:
            return store<uint16_t>(p, i, static_cast<uint16_t>(v));
        case DType::I32:
        case DType::U32:
            return store<uint32_t>(p, i, static_cast<uint32_t>(v));
        case DType::I64:
        case DType::U64:
            return store<int64_t>(p, i, v);
        case DType::Bool:
            return store<uint8_t>(p, i, v != 0 ? 1 : 0);
        default:
            return set(i, static_cast<double>(v));
    }
}

std::vector<int64_t> Tensor::to_ints() const {
    std::vector<int64_t> out(static_cast<size_t>(count_));
    for (int64_t i = 0; i < count_; ++i) out[static_cast<size_t>(i)] = get_int(i);
    return out;
}

Tensor Tensor::reshaped(Shape shape) const {
    TW_CHECK(element_count(shape) == count_, "{} -> {}", to_string(shape_), to_string(shape));
    Tensor t = *this;
    t.shape_ = std::move(shape);
    return t;
}

bool operator==(const Tensor& a, const Tensor& b) {
    return a.dtype_ == b.dtype_ && a.shape_ == b.shape_ &&
           (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

}  // namespace tilewright
