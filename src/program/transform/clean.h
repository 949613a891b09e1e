#pragma once
// Simplified expressions, each made once: who lists thousands of kernels meets the same few over and over.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// normalize_axes(tidy(e)). Which values an expression reads plays no part, only which of its accesses read the same.
class Cleaner {
  public:
    TensorExpr operator()(TensorExpr e);

  private:
    struct Hash {
        size_t operator()(const std::vector<uint64_t>& words) const;
    };
    std::unordered_map<std::vector<uint64_t>, TensorExpr, Hash> known_;  ///< by all that they say
};

}  // namespace tilewright
