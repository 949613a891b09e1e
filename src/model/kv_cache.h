#pragma once
// KvCache: the memory of inputs that a model's outputs extend (CompiledModel::appends), from one run to the next.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/tensor.h"
#include "model/compiled_model.h"
#include "runtime/arena.h"

namespace tilewright {

/// The keys and values that a decoder has seen, of one sequence or of a batch of them. A run with a cache
/// (RunControl::cache) reads them in place of the inputs, and appends its own; the rows before are neither copied nor
/// changed. One run at a time; any session of the model may use it.
class KvCache {
  public:
    /// Empty. `rows`: how many it has room for at first; more rows make it grow, at least to twice its size, which
    /// copies it. Throws ModelError where the model was compiled without CompileOptions::kv_cache, OptionError where
    /// `rows` is negative.
    explicit KvCache(std::shared_ptr<const CompiledModel> model, int64_t rows = 0);

    int64_t rows() const { return rows_; }
    int64_t bytes() const;  ///< of its memory
    const CompiledModel& model() const { return *model_; }
    /// Forgets all rows but the first ones: to generate again from there, or for a new sequence. Throws ModelError
    /// where there are fewer.
    void truncate(int64_t rows);
    /// The rows as the input's tensor, row-major as the model declares it; `k`: position among the model's appends.
    /// Throws ModelError before the first run.
    Tensor read(size_t k) const;

  private:
    friend class Session;

    /// Prepares for a run that extends append `k` to the shape (rows first): memory for it, which holds the rows so
    /// far. Throws ModelError where another dimension is not that of the rows so far, RuntimeError without memory. Adds
    /// the bytes that it copies.
    std::byte* extend(size_t k, const Shape& shape, uint64_t& copied);
    /// The tensors in place of the rows so far.
    void write(size_t k, const Tensor& row_major);
    void finish(int64_t rows) { rows_ = rows; }

    struct Memory {
        Arena block;
        Shape row;  ///< the dimensions of a row; empty before the first run
        bool known = false;
        int64_t row_bytes = 0;
    };
    std::shared_ptr<const CompiledModel> model_;
    std::vector<Memory> memory_;  ///< by append
    int64_t rows_ = 0, reserved_;
};

/// Copies a tensor between row-major order and rows first (Append). `from` and `to` do not overlap.
void copy_rows_first(const TensorView& row_major, size_t axis, void* to);
void copy_rows_back(const void* from, const TensorView& row_major, size_t axis);

}  // namespace tilewright
