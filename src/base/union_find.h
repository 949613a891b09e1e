#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

namespace tilewright {

/// Disjoint sets of the numbers below a size, with path halving.
class UnionFind {
  public:
    explicit UnionFind(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
    /// Adds a set of one new number and returns it.
    size_t add() {
        parent_.push_back(parent_.size());
        return parent_.size() - 1;
    }
    /// The representative of the set.
    size_t find(size_t x) {
        while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
        return x;
    }
    void join(size_t a, size_t b) { parent_[find(a)] = find(b); }

  private:
    std::vector<size_t> parent_;
};

}  // namespace tilewright
