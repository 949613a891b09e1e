#pragma once
// The kernels of a plan (program/plan.h) as tile programs.

#include <string>
#include <unordered_map>
#include <vector>

#include "orchestrate/fusion_limits.h"
#include "orchestrate/optimal/options.h"
#include "program/plan.h"
#include "tile/tile.h"

namespace tilewright {

/// The different kernels of a model: those with equal text are one.
class KernelSet {
  public:
    /// Position of `kernel`, adding it when no equal one is there. The kernel's name is no part of its text.
    /// With another `provider` (KernelCall::provider) an equal kernel is a different one; likewise with other
    /// `weights`, whether the inputs are constants, which only library kernels depend on.
    size_t add(TileProgram kernel, const std::string& provider = "", const std::vector<bool>& weights = {});
    const std::vector<TileProgram>& kernels() const { return kernels_; }
    /// The library that computes each of them; empty: generated code.
    struct Provided {
        std::string provider;
        std::vector<bool> weights;
    };
    const std::vector<Provided>& provided() const { return provided_; }

  private:
    std::vector<TileProgram> kernels_;
    std::vector<Provided> provided_;
    std::unordered_map<std::string, size_t> by_text_;
};

}  // namespace tilewright
