#pragma once
// Options and reports of optimal orchestration.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// The cost of a kernel that does not exist.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The method by which primitives are grouped into kernels.
enum class Orchestrator : uint8_t {
    Greedy,  ///< by heuristics
    Optimal  ///< the cheapest set of candidates (orchestrate.h); requires estimates
};

std::string_view to_string(Orchestrator o);
std::optional<Orchestrator> orchestrator_from_string(std::string_view name);

/// The source of candidates' costs (lazy.h).
enum class Profile : uint8_t {
    None,  ///< estimates
    Lazy,  ///< measured costs of each solution's kernels, until a plan is proven to be the best
    Full   ///< measured costs of all candidates, then one solution
};
std::string_view to_string(Profile p);
std::optional<Profile> profile_from_string(std::string_view name);

struct OptimalOptions {
    Profile profile = Profile::None;
    /// The maximum share of distinct candidates (OrchestrationReport::distinct_candidates) that is measured lazily.
    /// Greedy kernels are always measured, and count. At the limit, the best plan of measured kernels is taken.
    double most_measured = 0.1;
    bool chains = true;           ///< chains of products as candidates besides those of greedy orchestration
    size_t piece_nodes = 40;      ///< maximum primitives of a piece, which is solved separately
    size_t kernel_nodes = 12;     ///< maximum primitives of a kernel; greedy kernels may have more
    size_t most_sets = 1500;      ///< maximum convex sets of a piece; the largest are dropped
    size_t most_outputs = 4;      ///< maximum output sets of a convex set
    double seconds = 20;          ///< processor time for each piece's program
    bool published_form = false;  ///< solve the paper's binary program instead of the stronger one (blp.h)
    /// Also solve the relaxations of both binary programs, for the report: PieceReport::strong and published.
    bool compare_forms = false;
};

/// Progress, for display.
struct OrchestrationProgress {
    std::string what;            ///< "measuring a kernel of 2 stages, estimated 31 us"
    size_t done = 0, total = 0;  ///< pieces, or kernels measured and to be measured so far (more may follow)
    double seconds_left = 0;     ///< estimated for the rest; 0: unknown
    size_t measured = 0;         ///< kernels that were run, without recalled times
};
/// May throw, which ends the compilation. Measured times are in the database by then.
using WatchOrchestration = std::function<void(const OrchestrationProgress&)>;

/// A piece of the graph, solved separately (of the program, or of a body of its control flow).
struct PieceReport {
    size_t primitives = 0;
    /// An earlier piece that differs only in weights and names. It was solved, and its plan is used here.
    std::optional<size_t> like;
    /// Execution states (Definition 2) up to a limit, and whether there are more.
    size_t states = 0;
    bool more_states = false;
    size_t sets = 0;               ///< listed convex sets
    bool capped = false;           ///< there are more sets than OptimalOptions::most_sets
    size_t candidates = 0;         ///< possible kernels, one for each set, outputs and layouts
    size_t conversions = 0;        ///< kernels that copy a tensor into another layout; not among `candidates`
    size_t chains = 0;             ///< chains of products among the candidates
    size_t dropped = 0;            ///< candidates pruned because no optimal plan needs them
    size_t measured = 0;           ///< candidates and conversions
    size_t columns = 0, rows = 0;  ///< of its last binary program
    size_t rounds = 0;             ///< programs solved, for lazy profiling and lazy rows together
    bool optimal = false;          ///< proven; false: the time limit was reached, and the plan is the best found
    /// Cost of its plan: measured times where known, else estimates. Estimates of kernels that are not greedy ones
    /// include the margin that they must gain.
    double seconds = 0;
    double bound = 0;           ///< a lower bound of every plan of these candidates
    bool kept_greedy = false;   ///< greedy kernels replaced its plan after whole runs
    double emitted = 0;         ///< cost of the emitted kernels, by the same costs as `seconds`
    double root = 0;            ///< objective of the first program's linear relaxation
    double greedy_seconds = 0;  ///< cost of the greedy kernels; 0 if one of them is no candidate
    double solve_ms = 0;        ///< processor time of its programs
    /// The linear relaxations of both forms with the initial costs, if OptimalOptions::compare_forms is set.
    struct Relaxed {
        double root = 0;  ///< a lower bound of the seconds of every plan of these candidates
        double ms = 0;    ///< processor time
    };
    std::optional<Relaxed> strong, published;
};

/// A chosen kernel. KernelCall::chosen links its calls to it: one, unless it was emitted as several kernels.
struct KernelReport {
    struct Primitive {
        std::string name, source;  ///< of the program before fusion
        bool again = false;        ///< an earlier kernel computes it as well
    };
    std::vector<Primitive> primitives;       ///< in order; empty: it copies a value into another layout
    std::vector<std::string> reads, writes;  ///< values, "x" or "x (split 0 16, reorder 0 2 1)" where not row-major
    size_t piece = 0;
    double cost = 0;                 ///< seconds in the objective (PieceReport::seconds)
    double estimate = 0;             ///< estimated seconds, including a launch
    double at_least = 0;             ///< lower bound of every schedule in seconds: the machine's limit and a launch
    std::optional<double> measured;  ///< seconds, including a launch
};

/// Comparison of the plan with the greedy kernels in whole runs.
struct InModelReport {
    size_t pieces = 0;          ///< distinct pieces whose kernels differ
    size_t greedy = 0;          ///< of those: pieces that kept greedy kernels
    double seconds = 0;         ///< of a run with the plan; 0: recalled from an earlier compilation
    double greedy_seconds = 0;  ///< of a run with greedy kernels, in turns with the plan; 0: likewise
    std::string print() const;
};

/// Comparison of a vendor's library with generated code over distinct kernels.
struct ProviderReport {
    std::string name;         ///< "oneDNN 2.6.3"
    size_t measured = 0;      ///< kernels that both compute
    size_t faster = 0;        ///< of those: the library is faster when measured alone
    size_t in_model = 0;      ///< of those in a plan: number compared in whole runs
    size_t kept = 0;          ///< of those: computed by the library in the end
    size_t solved_again = 0;  ///< times that the programs were solved again without refused kernels
    /// Of a run with the library; 0: recalled from an earlier compilation, or no run.
    double seconds = 0;
    double generated_seconds = 0;           ///< of a run of the same plan without it, in turns; 0: likewise
    std::map<std::string, size_t> refused;  ///< reasons why it does not compute measured kernels
    std::string print() const;
};

/// Statistics and result of optimal orchestration, of a program and the bodies of its control flow together.
struct OrchestrationReport {
    std::vector<PieceReport> pieces;
    std::vector<KernelReport> kernels;      ///< in an order that can run
    size_t primitives = 0;                  ///< of the program, unfused
    size_t cuts = 0;                        ///< between pieces
    size_t cut_kernels = 0;                 ///< greedy kernels that a cut splits
    double cut_bytes = 0;                   ///< of the values that cross cuts
    std::map<std::string, size_t> refused;  ///< reason why a set is no kernel -> number of sets
    /// Why two of `kernels`, the second of which reads a result of the first, are not one kernel. For kernels of the
    /// same piece, if GroupingOptions::keep_refusals is set.
    std::map<std::pair<size_t, size_t>, std::string> not_fused;
    size_t repeated = 0;     ///< repeated computations of primitives, over all kernels
    size_t taken_apart = 0;  ///< kernels that had to be emitted as several
    /// Distinct kernels among all candidates and conversions: those of equal text and weights are one.
    size_t distinct_candidates = 0;
    size_t measured = 0;          ///< of those: measured or recalled
    size_t remembered = 0;        ///< of those: recalled from the database
    size_t undercut = 0;          ///< of those: faster than the assumed lower bound
    bool measured_enough = true;  ///< false: OptimalOptions::most_measured ended the measurements
    double measure_ms = 0;
    std::optional<InModelReport> in_model;   ///< if whole runs were compared and the plans differ
    std::optional<ProviderReport> provider;  ///< if a library was compared
    double ms = 0;                           ///< of optimal orchestration as a whole

    // Sums over the pieces.
    size_t states() const;
    size_t sets() const;
    size_t candidates() const;
    size_t dropped() const;
    size_t columns() const;
    size_t rows() const;
    size_t proven_pieces() const;
    bool optimal() const { return proven_pieces() == pieces.size(); }
    size_t greedy_pieces() const;  ///< that kept greedy kernels instead of their plans
    size_t capped_pieces() const;  ///< with more convex sets than listed
    double seconds() const;        ///< cost of the plan
    double emitted() const;        ///< cost of the emitted kernels
    double bound() const;
    /// (seconds() - bound()) / bound(); nothing if no program was solved or no bound was proven.
    std::optional<double> gap() const;
    /// (emitted() - bound()) / bound(): the gap of the emitted kernels, after pieces kept greedy ones.
    std::optional<double> emitted_gap() const;
    std::optional<double> measured_share() const;  ///< of the distinct candidates; nothing if there are none
    double root() const;
    double solve_ms() const;
    /// Sums over the pieces; nothing without OptimalOptions::compare_forms.
    std::optional<PieceReport::Relaxed> strong() const;
    std::optional<PieceReport::Relaxed> published() const;
    double greedy_seconds() const;  ///< 0 if one of the greedy kernels is no candidate
    /// One line.
    std::string print() const;
};

}  // namespace tilewright
