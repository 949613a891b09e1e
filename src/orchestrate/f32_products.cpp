#include "orchestrate/f32_products.h"

#include <algorithm>

namespace tilewright {

bool F32Products::contains(const Program& program, const Primitive& product) const {
    const auto named = [&](uint32_t node) { return nodes.count(program.nodes.at(node).name) != 0; };
    return std::any_of(product.origin.nodes.begin(), product.origin.nodes.end(), named) ||
           std::any_of(product.outputs.begin(), product.outputs.end(),
                       [&](ValueId v) { return results.count(program.values[v].name) != 0; });
}

}  // namespace tilewright
