#pragma once
// Measuring: candidates against each other, one round after another, until the medians stand.

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cost/sampling.h"
#include "cost/target.h"

namespace tilewright {

/// Something to time: a kernel on its operands (src/tune/operands.h), a whole model, a library's function.
struct Runnable {
    std::string name;
    std::function<void()> run;  ///< the same work each time
};

struct MeasureOptions {
    double seconds = 0.3;  ///< budget of one candidate; all of them together may use that times their number
    int enough = 31;       ///< undisturbed readings after which no more are needed
    int few = 5;           ///< up to so many are waited for beyond the budget, until twice the budget is spent
    /// A candidate whose fastest reading of at least 3 is so many times the best median is given up. 0: never.
    double give_up = 2;
    /// Seconds of the best candidate there is elsewhere: who is slower than give_up times that is given up as well.
    double known_best = std::numeric_limits<double>::infinity();
    /// Seconds that one reading should take at least: shorter work is repeated within a reading, so that the clock and
    /// a cold start of the thread do not count.
    double shortest = 50e-6;
    /// Takes a reading; for tests, which have a clock of their own.
    std::function<Reading(const std::function<void()>&)> take = time_once;
};

struct Timing {
    /// Of one run: median and spread of the undisturbed readings, or of all where there is none.
    Measure seconds;
    int disturbed = 0;      ///< readings during which the system took the CPU away; not in `seconds`
    bool given_up = false;  ///< clearly slower than the best; `seconds` is of the few readings there were
};

/// Times the candidates, in their order. Each runs once to warm up (one that is slower there than 4 * give_up times the
/// fastest so far is given up at once; of work of a millisecond or more this run is a reading like the later ones);
/// then they take turns, one reading each a round, each round beginning with another, so that what disturbs the machine
/// for a while disturbs all of them alike.
///
/// Who calls sees to the machine: a pool pinned to its CPUs (Pinning::on), nothing else of this process at work.
/// Whether a reading was disturbed is known of the calling thread alone.
std::vector<Timing> measure(const std::vector<Runnable>& candidates, const MeasureOptions& options = {});
Timing measure(const Runnable& candidate, const MeasureOptions& options = {});

/// In which state a kernel finds its operands.
enum class Warmth : uint8_t {
    warm,          ///< all in the cache as far as they fit: run again and again on the same memory
    cold_weights,  ///< weights come from memory, activations are as the run before left them
};
std::string_view to_string(Warmth w);  ///< "warm", "cold-weights"

/// The largest data cache, bytes.
int64_t last_cache_bytes(const Target& target);
/// How a model with so many bytes of weights has them: between two runs of one kernel all others' weights pass through
/// the caches, so that its own stay there only where all fit.
Warmth warmth_in_model(const Target& target, int64_t weight_bytes);

/// The database's text of how a kernel was run: "threads=2 warmth=cold-weights s0=128". `sizes`: canonical_sizes.
std::string settings_text(int threads, Warmth warmth, const std::string& sizes);

}  // namespace tilewright
