#pragma once
// Products that stay in f32 where others are rounded (orchestrate/precision.h).

#include <functional>
#include <set>
#include <string>

#include "program/program.h"

namespace tilewright {

/// Chosen by name. A product that several nodes became is chosen if one of them is.
struct F32Products {
    std::set<std::string> nodes;    ///< of the model
    std::set<std::string> results;  ///< names of the values that products compute, before they are rounded

    bool empty() const { return nodes.empty() && results.empty(); }
    bool contains(const Program& program, const Primitive& product) const;
};

/// Which products a transformation may change; empty: all.
using ProductFilter = std::function<bool(const Program&, const Primitive&)>;

}  // namespace tilewright
