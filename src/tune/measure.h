#pragma once
// Measures candidates in turns until the medians are stable.

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cost/sampling.h"
#include "cost/target.h"

namespace tilewright {

/// The work to time: a kernel on its operands (src/tune/operands.h), a whole model, a library function.
struct Runnable {
    std::string name;
    std::function<void()> run;  ///< the same work each time
};

struct MeasureOptions {
    double seconds = 0.3;  ///< budget per candidate; all of them together may use this times their number
    int enough = 31;       ///< undisturbed readings that suffice
    int few = 5;           ///< the minimum of readings; the budget may be exceeded up to twice for them
    /// A candidate is given up if its fastest reading of at least 3 is this many times the best median. 0: never.
    double give_up = 2;
    /// Seconds of the best candidate known from elsewhere: those slower than give_up times that are given up too.
    double known_best = std::numeric_limits<double>::infinity();
    /// The minimum time of one reading, in seconds: shorter work is repeated within a reading, so that the resolution
    /// of the clock and a cold start of the thread do not matter.
    double shortest = 50e-6;
    /// Takes a reading; tests replace it by a simulated clock.
    std::function<Reading(const std::function<void()>&)> take = time_once;
};

struct Timing {
    /// The time of one run: median and spread of the undisturbed readings, or of all if there are none.
    Measure seconds;
    int disturbed = 0;      ///< readings during which the thread was preempted; not in `seconds`
    bool given_up = false;  ///< clearly slower than the best; `seconds` is of the few readings taken
};

/// Times the candidates, in their order. Each is warmed up by one run. A candidate that is slower there than 4 *
/// give_up times the fastest so far is given up at once; for work of a millisecond or more this run counts as a
/// reading. Then the candidates take turns, one reading each per round, and each round begins with another candidate,
/// so that temporary disturbances affect all of them alike.
///
/// The caller prepares the machine: a pool pinned to its CPUs (Pinning::on), no other work in this process. Only
/// disturbances of the calling thread are detected.
std::vector<Timing> measure(const std::vector<Runnable>& candidates, const MeasureOptions& options = {});
Timing measure(const Runnable& candidate, const MeasureOptions& options = {});

/// The cache state in which a kernel finds its operands.
enum class Warmth : uint8_t {
    warm,          ///< everything in the cache as far as it fits: repeated runs on the same memory
    cold_weights,  ///< weights come from memory, activations are as after the previous run
};
std::string_view to_string(Warmth w);  ///< "warm", "cold-weights"

/// The cache state of weights in a model with `weight_bytes` bytes of them: between two runs of a kernel the weights of
/// all other kernels pass through the caches, so its own stay cached only if all fit.
Warmth warmth_in_model(const Target& target, int64_t weight_bytes);

/// The database's text of how a kernel was run: "threads=2 warmth=cold-weights s0=128". `sizes`: canonical_sizes.
std::string settings_text(int threads, Warmth warmth, const std::string& sizes);

}  // namespace tilewright
