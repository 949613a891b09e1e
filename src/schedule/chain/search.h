#pragma once
// MCFuser's heuristic search (§IV-B, algorithm 1) over the pruned space.
//
// Choices that the paper does not specify: The population has 64 candidates. The search stops when the best measured
// time of a generation is within 2 % of the best so far, and after at most eight generations, three where generations
// are measured. The limit is a count, not a time, so that a second compilation, which recalls every measurement, visits
// the same candidates. Mutation draws candidates with weight 1 / estimate and changes one tile size or the expression.
// Before any measurement the population evolves by estimates alone, until they no longer improve: a measurement costs a
// thousand times as much.

#include <functional>
#include <limits>

#include "schedule/chain/realise.h"
#include "schedule/kernel_costs.h"

namespace tilewright::chain {

struct SearchOptions {
    uint64_t seed = 1;
    size_t population = 64;
    size_t top = 8;  ///< measured in each generation
    double epsilon = 0.02;
    int generations = 8;           ///< maximum, by estimates
    int measured_generations = 3;  ///< maximum
    /// Seconds of the kernels that the chain would replace. Where the first sixteen candidates (`kLook`) all take more
    /// than twice as long by estimates, the search ends without a result.
    double replaces = std::numeric_limits<double>::infinity();
    /// Measures the best of each generation if it can measure schedules. Null: estimates decide.
    const KernelCosts* costs = nullptr;
    Ablation without = Ablation::None;
};

struct Found {
    TileProgram program;
    Candidate candidate;
    double estimate = 0;  ///< seconds
    double seconds = 0;   ///< measured, or the estimate
};

struct SearchResult {
    std::vector<Found> top;  ///< best first; empty where no candidate is legal
    size_t estimated = 0, measured = 0;
    int generations = 0;  ///< until no further gain; measured ones if there are any
};

/// The parameters of the search that depend on the machine.
struct Ways {
    double capacity = 0;  ///< bytes for the tiles of a block: rule 4 allows 1.2 times that
    /// The bytes of a candidate that count against `capacity`; empty: every tile once (TileBytes).
    std::function<double(const Candidate&)> bytes;
    int64_t row_unit = 0;  ///< tile sizes of rows include small multiples of it; 0: only the sizes of rule 3
    /// Further tile sizes of every axis, whether they divide it or not.
    std::vector<int64_t> also;
    int64_t halves = 0;  ///< and half of every axis, rounded up to a multiple of this; 0: not so
    /// Threads that share the blocks. Sizes include multiples of row_unit that divide rows evenly among them.
    int threads = 1;
    /// Nothing: the candidate is illegal. Called by several threads.
    std::function<std::optional<TileProgram>(const Candidate&)> realise;
    const KernelCosts* costs = nullptr;  ///< estimates, and measures where it can
};
/// Runs the search. It is deterministic in the seed where nothing is measured.
SearchResult search(const Chain& chain, const Ways& ways, const SearchOptions& options = {});
/// On a CPU.
SearchResult search(const Chain& chain, const Target& target, const SearchOptions& options = {});

/// Distinct programs of the pruned space, ascending by estimate: all of them if there are at most `most`, else `most`
/// random ones (fewer only where most choices are illegal).
std::vector<Found> sample(const Chain& chain, const Target& target, size_t most, uint64_t seed = 1,
                          Ablation without = Ablation::None);

}  // namespace tilewright::chain
