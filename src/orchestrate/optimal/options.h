#pragma once
// What optimal orchestration may do, and what it did.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright {

/// Who decides which primitives share a kernel.
enum class Orchestrator : uint8_t {
    Greedy,  ///< what is plainly better fused
    Optimal  ///< the choice that costs least of all candidates (orchestrate.h); needs Scheduling::machine
};

std::string_view to_string(Orchestrator o);
std::optional<Orchestrator> orchestrator_from_string(std::string_view name);

struct OptimalOptions {
    size_t piece_nodes = 40;   ///< primitives of a piece of the graph that is solved by itself
    size_t kernel_nodes = 12;  ///< primitives of a kernel; those that the greedy rule makes may have more
    size_t most_sets = 1500;   ///< convex sets of a piece; where there are more, the largest are left out
    size_t most_outputs = 4;   ///< output sets of one convex set
    double seconds = 20;       ///< of processor time, for each piece's program
};

/// Of a program and the bodies of its control flow together.
struct OptimalStats {
    size_t primitives = 0, pieces = 0, cuts = 0,
           cut_kernels = 0;  ///< kernels of the greedy rule that a cut goes through
    double cut_bytes = 0;    ///< of the values that cross cuts
    size_t sets = 0, capped_pieces = 0;
    size_t candidates = 0, dropped = 0, measured = 0;
    std::map<std::string, size_t> refused;  ///< why a set is no kernel, and how many were not
    size_t proven_pieces = 0;               ///< solved to the optimum
    size_t kernels = 0, repeated = 0;       ///< primitives that several kernels compute, once for each more
    size_t relaid = 0;                      ///< kernels that the layouts chosen afterwards took apart
    double seconds = 0, bound = 0;          ///< of the plan, by the model (or measured)
    /// Of the greedy rule's kernels in the same pieces; 0 where some are no kernels here.
    double greedy_seconds = 0;
    size_t started_pieces = 0;  ///< that began with the greedy rule's kernels
    double ms = 0;              ///< that all this took
    /// One line.
    std::string print() const;
};

}  // namespace tilewright
