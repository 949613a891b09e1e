#pragma once
// Random choices that are the same on every machine, unlike the standard library's distributions.

#include <cstddef>
#include <random>

namespace tilewright {

/// In [0, 1).
inline double uniform(std::mt19937_64& rng) { return static_cast<double>(rng() >> 11) * 0x1p-53; }

/// Roulette-wheel selection: the position of an element, with probability weight(element) / sum of all weights. `items`
/// is not empty and weights are positive. Draws one number.
template <class Items, class Weight>
size_t roulette(std::mt19937_64& rng, const Items& items, const Weight& weight) {
    double sum = 0;
    for (const auto& x : items) sum += weight(x);
    double draw = uniform(rng) * sum;
    for (size_t k = 0; k + 1 < items.size(); ++k) {
        if (draw < weight(items[k])) return k;
        draw -= weight(items[k]);
    }
    return items.size() - 1;
}

}  // namespace tilewright
