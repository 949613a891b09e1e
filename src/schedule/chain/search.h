#pragma once
// MCFuser's heuristic search (§IV-B, algorithm 1) over the pruned space.
//
// What the paper leaves open: the population has 64 candidates, the search stops when the best measured time of a
// generation is within 2 % of the best so far, and after eight generations in any case, three where generations are
// measured. The limit is a count, not a time: a second compilation, which recalls every measurement, then visits the
// same candidates. Mutation draws candidates with weight 1 / estimate and changes one tile size, or the expression.
// Before anything is measured the population goes through generations by the estimate alone, until that no longer
// improves: measuring costs a thousand times more.

#include <functional>

#include "schedule/chain/realise.h"
#include "schedule/kernel_costs.h"

namespace tilewright::chain {

struct SearchOptions {
    uint64_t seed = 1;
    size_t population = 64;
    size_t top = 8;  ///< measured in each generation
    double epsilon = 0.02;
    int generations = 8;           ///< at most, by estimates
    int measured_generations = 3;  ///< at most
    /// Measures the best of each generation, where it measures schedules. Null: the machine's estimates decide.
    const KernelCosts* costs = nullptr;
};

struct Found {
    TileProgram program;
    Candidate candidate;
    double estimate = 0;  ///< seconds
    double seconds = 0;   ///< measured, or the estimate
};

struct SearchResult {
    std::vector<Found> top;  ///< best first; empty where no candidate is legal
    SpaceCounts counts;
    size_t estimated = 0, measured = 0;
    int generations = 0;  ///< until none gained any more: measured ones, where there are such
};

/// The machine as the search uses it.
struct Ways {
    double capacity = 0;  ///< bytes for the tiles of a block: rule 4 allows 1.2 times that
    /// What a candidate takes of that; empty: every tile once (TileBytes).
    std::function<double(const Candidate&)> bytes;
    int64_t row_unit = 0;  ///< rows also come in small multiples of it; 0: in what rule 3 leaves alone
    int threads = 1;       ///< that share the blocks out; of rows in such multiples also those that they share evenly
    std::function<std::optional<TileProgram>(const Candidate&)> realise;  ///< nothing: the candidate is not legal
    const KernelCosts* costs = nullptr;                                   ///< estimates, and measures if it can
};
/// Deterministic in the seed where nothing is measured.
SearchResult search(const Chain& chain, const Ways& ways, const SearchOptions& options = {});
/// On a CPU.
SearchResult search(const Chain& chain, const Target& target, const SearchOptions& options = {});

/// Programs of the pruned space, each once, in the model's order: all of them where there are at most `most`, else so
/// many chosen at random (fewer only where most choices are illegal).
std::vector<Found> sample(const Chain& chain, const Target& target, size_t most, uint64_t seed = 1);

}  // namespace tilewright::chain
