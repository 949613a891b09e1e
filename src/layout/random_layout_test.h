#pragma once
// Random layouts and tensors for property tests.

#include <algorithm>
#include <numeric>
#include <random>

#include "layout/layout.h"

namespace tilewright {

class LayoutChoice {
  public:
    explicit LayoutChoice(uint64_t seed) : rng_(seed * 0x9E3779B97F4A7C15ull + 5) {}

    int64_t upto(int64_t lo, int64_t hi) {
        return lo + static_cast<int64_t>(rng_() % static_cast<uint64_t>(hi - lo + 1));
    }

    Shape shape() {
        Shape s;
        for (int64_t k = upto(0, 4); k > 0; --k) s.push_back(upto(1, 6));
        return s;
    }

    /// A random layout for a tensor of this rank; `basic`: split, reorder and fuse only (a split may still pad).
    Layout layout(size_t rank, bool basic) {
        Layout out;
        for (int64_t k = upto(0, 4); k > 0 && rank > 0; --k) {
            const auto dim = static_cast<size_t>(upto(0, static_cast<int64_t>(rank) - 1));
            switch (upto(0, basic ? 2 : 5)) {
                case 0:
                    out.primitives.emplace_back(layout::Split{dim, upto(1, 4)});
                    ++rank;
                    break;
                case 1: {
                    layout::Reorder r;
                    r.permutation.resize(rank);
                    std::iota(r.permutation.begin(), r.permutation.end(), size_t{0});
                    std::shuffle(r.permutation.begin(), r.permutation.end(), rng_);
                    out.primitives.emplace_back(std::move(r));
                    break;
                }
                case 2: {
                    const auto count = static_cast<size_t>(upto(1, static_cast<int64_t>(rank - dim)));
                    out.primitives.emplace_back(layout::Fuse{dim, count});
                    rank -= count - 1;
                    break;
                }
                case 3: {
                    const int64_t tile = upto(1, 4);
                    out.primitives.emplace_back(layout::Unfold{dim, tile, upto(1, tile)});
                    ++rank;
                    break;
                }
                case 4:
                    out.primitives.emplace_back(layout::Pad{dim, upto(0, 2), upto(0, 2)});
                    break;
                default: {
                    const int64_t offset = upto(0, 3);
                    out.primitives.emplace_back(layout::StoreAt{"host", dim, offset, offset + 200});
                    return out;  // large: last
                }
            }
        }
        return out;
    }

  private:
    std::mt19937_64 rng_;
};

/// 1, 2, 3, ...: no element is zero, so that padding differs from all elements.
inline Tensor counted(const Shape& shape) {
    Tensor t(DType::I64, shape);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, i + 1);
    return t;
}

}  // namespace tilewright
