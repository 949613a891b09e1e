#pragma once
// Columns: one scalar operator on a run of points. Floats are doubles, integers and Bool are int64_t (U64 as its bits).
// Internal to the interpreter.

#include <cstdint>
#include <memory>
#include <new>

#include "base/tensor.h"
#include "program/interpret_index.h"
#include "program/scalar_eval.h"

namespace tilewright::interp {

/// The numbers of up to kLanes points; the type of the writing node determines the active view.
struct Column {
    void* data = nullptr;
    double* f() const { return static_cast<double*>(data); }
    int64_t* i() const { return static_cast<int64_t*>(data); }
};

/// Storage for `count` columns.
class ColumnStore {
  public:
    explicit ColumnStore(size_t count)
        : bytes_(static_cast<std::byte*>(::operator new (count* kBytes + 64, std::align_val_t{64}))) {}
    Column operator[](size_t k) const { return {bytes_.get() + k * kBytes}; }

  private:
    static constexpr size_t kBytes = static_cast<size_t>(kLanes) * 8;
    struct Free {
        void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
    };
    std::unique_ptr<std::byte[], Free> bytes_;
};

/// out[l] = node's operator on a[l], b[l], c[l], with the semantics of eval_scalar. `operand` is the type of `a` (of
/// `b` for Select).
void eval_lanes(const ScalarNode& node, DType operand, Column a, Column b, Column c, Column out, int64_t n);

/// Reduces integers modulo 2^bits of `t`, in place; floats are unchanged.
void wrap_lanes(DType t, Column out, int64_t n);
void fill_lanes(DType dtype, ScalarValue v, Column out, int64_t begin, int64_t end);
ScalarValue lane(DType dtype, Column column, int64_t l);

/// out[l] = element start + step * l of the tensor, for l in [begin, end). Unchecked.
void load_lanes(const Tensor& tensor, int64_t start, int64_t step, Column out, int64_t begin, int64_t end);
/// Rounds once to the tensor's type.
void store_lanes(Tensor& tensor, int64_t start, int64_t step, Column in, int64_t n);
void store_lane(Tensor& tensor, int64_t position, DType dtype, ScalarValue v);

/// The reducer's identity: 0, 1, -infinity or lowest, +infinity or highest.
ScalarValue reducer_identity(Reducer reducer, DType dtype);
/// acc[l] = reducer(acc[l], in[l])
void reduce_lanes(Reducer reducer, DType dtype, Column acc, Column in, int64_t n);
/// reducer(acc, in[0], ..., in[n-1])
ScalarValue reduce_run(Reducer reducer, DType dtype, ScalarValue acc, Column in, int64_t n);

/// Float operand of the sum-of-products path: element l is data[step * l].
struct Strided {
    const void* data = nullptr;  ///< float or double, by `wide`
    int64_t step = 0;
    bool wide = false;
};
/// acc[l] += a[l] * b[l]
void add_products(double* acc, Strided a, Strided b, int64_t n);
/// sum of a[l] * b[l]
double dot_product(Strided a, Strided b, int64_t n);

}  // namespace tilewright::interp
