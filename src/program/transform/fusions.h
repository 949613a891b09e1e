#pragma once
// Fused and simplified expressions, each made once: who lists thousands of kernels meets the same few over and over.

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Remembers what it was asked. Which values expressions read plays no part, only which of their accesses read the
/// same.
class Fusions {
  public:
    /// normalize_axes(tidy(e)).
    TensorExpr clean(TensorExpr e);
    /// fuse_epilogue (inline.h), clean.
    std::optional<TensorExpr> epilogue(TensorExpr producer, TensorExpr consumer, size_t access, const Value& made);
    /// inline_producer, clean.
    std::optional<TensorExpr> inlined(TensorExpr consumer, size_t access, TensorExpr producer, const Value& made);

  private:
    using Words = std::vector<uint64_t>;
    struct Hash {
        size_t operator()(const Words& words) const;
    };
    using Make = std::function<std::optional<TensorExpr>()>;
    const std::optional<TensorExpr>& known_or(Words words, const Make& make);
    /// Of the two in the order in which they are asked about.
    std::optional<TensorExpr> fused(bool inlined, TensorExpr first, TensorExpr second, size_t access,
                                    const Value& made);

    std::unordered_map<Words, std::optional<TensorExpr>, Hash> known_;  ///< by all that a question says
};

}  // namespace tilewright
