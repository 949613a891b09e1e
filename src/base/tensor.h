#pragma once
// A dense tensor in host memory.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace tilewright {

using Shape = std::vector<int64_t>;

int64_t element_count(std::span<const int64_t> shape);  ///< product; checked against overflow (throws ModelError)
std::string to_string(std::span<const int64_t> shape);  ///< "[2, 3]"

/// Row-major dense tensor. Copies share the bytes, which are immutable by convention once shared; `mutable_data` is for
/// the code that creates the tensor. 64-byte aligned unless the tensor views external memory.
class Tensor {
  public:
    Tensor() = default;
    /// Zero-filled unless `zero` is false. Throws RuntimeError when out of memory.
    Tensor(DType dtype, Shape shape, bool zero = true);
    /// A view of `bytes`, kept alive by `owner`.
    Tensor(DType dtype, Shape shape, const void* bytes, std::shared_ptr<const void> owner);

    template <class T>
    static Tensor of(DType dtype, Shape shape, const std::vector<T>& values) {
        Tensor t(dtype, std::move(shape));
        for (size_t i = 0; i < values.size(); ++i) t.set(static_cast<int64_t>(i), values[i]);
        return t;
    }
    static Tensor of_i64(const std::vector<int64_t>& values) {
        return of(DType::I64, {static_cast<int64_t>(values.size())}, values);
    }

    bool defined() const { return data_ != nullptr || count_ == 0; }
    DType dtype() const { return dtype_; }
    const Shape& shape() const { return shape_; }
    int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
    int64_t count() const { return count_; }
    size_t bytes() const { return static_cast<size_t>(count_) * byte_size(dtype_); }
    const void* data() const { return data_.get(); }
    void* mutable_data() { return const_cast<void*>(data_.get()); }
    template <class T>
    std::span<const T> as() const {
        return {static_cast<const T*>(data()), static_cast<size_t>(count_)};
    }
    template <class T>
    std::span<T> as_mutable() {
        return {static_cast<T*>(mutable_data()), static_cast<size_t>(count_)};
    }

    /// Element i (row-major) as a number; `set` rounds to the element type (integers wrap, as a cast would).
    double get(int64_t i) const;
    int64_t get_int(int64_t i) const;  ///< exact for 64-bit integers; truncates floats
    void set(int64_t i, double v);
    void set(int64_t i, int64_t v);
    void set(int64_t i, int v) { set(i, static_cast<int64_t>(v)); }
    void set(int64_t i, float v) { set(i, static_cast<double>(v)); }
    void set(int64_t i, bool v) { set(i, static_cast<int64_t>(v)); }

    /// All elements as 64-bit integers.
    std::vector<int64_t> to_ints() const;
    /// The same bytes under another shape of equal element count.
    Tensor reshaped(Shape shape) const;
    /// Same type, shape and bytes (NaNs equal where their bits are).
    friend bool operator==(const Tensor& a, const Tensor& b);

  private:
    DType dtype_ = DType::F32;
    Shape shape_;
    int64_t count_ = 0;
    std::shared_ptr<const void> data_;
};

/// While one exists, blocks of 1 MiB and more that tensors free, up to 256 MiB of them, are used for new tensors of the
/// same size: the system clears pages that it gives out, which takes longer than writing them once.
class ReuseTensorMemory {
  public:
    ReuseTensorMemory();
    ~ReuseTensorMemory();
    ReuseTensorMemory(const ReuseTensorMemory&) = delete;
    ReuseTensorMemory& operator=(const ReuseTensorMemory&) = delete;
};

/// Whether at least 7/8 of the bytes are in huge pages of the tensor's own, where the system has them.
bool has_huge_pages(const Tensor& t);

}  // namespace tilewright
