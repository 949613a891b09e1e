#pragma once
// A cache of fused and simplified expressions: an enumeration of thousands of kernels repeats the same few.

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Caches results by request. The key contains which accesses read the same value, but not which values those are.
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
    /// The two expressions' values in the order of the request.
    std::optional<TensorExpr> fused(bool inlined, TensorExpr first, TensorExpr second, size_t access,
                                    const Value& made);

    std::unordered_map<Words, std::optional<TensorExpr>, Hash> known_;  ///< by the complete request
};

}  // namespace tilewright
