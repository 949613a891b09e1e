#pragma once
// What optimal orchestration may do, and what it did.

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

/// The cost of what there is not.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// How the primitives that share a kernel are selected.
enum class Orchestrator : uint8_t {
    Greedy,  ///< what is plainly better fused
    Optimal  ///< the choice that costs least of all candidates (orchestrate.h); needs Scheduling::machine
};

std::string_view to_string(Orchestrator o);
std::optional<Orchestrator> orchestrator_from_string(std::string_view name);

/// What candidates' costs are (lazy.h).
enum class Profile : uint8_t {
    None,  ///< the model's; nothing is measured
    Lazy,  ///< measured where it matters: the kernels of each solution, until some plan is known to be the best
    Full   ///< every candidate's is measured, then there is one solution
};
std::string_view to_string(Profile p);
std::optional<Profile> profile_from_string(std::string_view name);

struct OptimalOptions {
    Profile profile = Profile::None;
    /// At most this share of the distinct candidates (OrchestrationReport::distinct_candidates) is measured lazily. The
    /// greedy rule's kernels are always measured, and count. After that the best plan of measured kernels is taken.
    double most_measured = 0.1;
    bool chains = true;           ///< several products in a kernel, beyond what the greedy rule makes of them
    size_t piece_nodes = 40;      ///< primitives of a piece of the graph that is solved by itself
    size_t kernel_nodes = 12;     ///< primitives of a kernel; those that the greedy rule makes may have more
    size_t most_sets = 1500;      ///< convex sets of a piece; where there are more, the largest are left out
    size_t most_outputs = 4;      ///< output sets of one convex set
    double seconds = 20;          ///< of processor time, for each piece's program
    bool published_form = false;  ///< solve the paper's binary program instead of the stronger one (blp.h)
    /// Also solve the relaxations of both binary programs, for the report: PieceReport::strong and published.
    bool compare_forms = false;
};

/// Progress, for display.
struct OrchestrationProgress {
    std::string what;            ///< "measuring a kernel of 2 stages, 31 us by the model"
    size_t done = 0, total = 0;  ///< pieces; or kernels measured, and known to be measured yet (more may come)
    double seconds_left = 0;     ///< for those; 0: unknown
    size_t measured = 0;         ///< kernels that were run, and not found in the database
};
/// May throw, which ends the compilation; what was measured is in the database then.
using WatchOrchestration = std::function<void(const OrchestrationProgress&)>;

/// A piece of the graph, solved by itself (of the program, or of a body of its control flow).
struct PieceReport {
    size_t primitives = 0;
    /// An earlier piece that differs in weights and names alone: it was solved, and its plan is this one's.
    std::optional<size_t> like;
    /// Execution states (Definition 2), and whether there are more than that, which are not counted.
    size_t states = 0;
    bool more_states = false;
    size_t sets = 0;               ///< convex ones listed
    bool capped = false;           ///< there are more of them than OptimalOptions::most_sets
    size_t candidates = 0;         ///< that can be made, each set once for every choice of its outputs and layouts
    size_t conversions = 0;        ///< kernels that copy a tensor into another layout, apart from those
    size_t chains = 0;             ///< of the candidates: of several products
    size_t dropped = 0;            ///< of those: no optimal plan needs them
    size_t measured = 0;           ///< of those, and of conversions
    size_t columns = 0, rows = 0;  ///< of its binary program, the last one where rows were added
    size_t rounds = 0;             ///< programs solved, those of lazy profiling and of lazy rows together
    bool optimal = false;          ///< proven; false: time was up, and the plan is the best that was found
    /// Of its plan: measured where it is, else by the model, and then kernels that the greedy rule does not have with
    /// the margin that they must gain by.
    double seconds = 0;
    double bound = 0;           ///< no plan of these candidates takes less
    bool kept_greedy = false;   ///< whole runs kept the greedy rule's kernels in place of its plan
    double emitted = 0;         ///< of the kernels that were emitted, by the same costs as `seconds`
    double root = 0;            ///< of the first program's linear relaxation
    double greedy_seconds = 0;  ///< of the greedy rule's kernels; 0 where some are no kernels here
    double solve_ms = 0;        ///< processor time of its programs
    /// The linear relaxations of both forms, with the costs at first; where OptimalOptions::compare_forms.
    struct Relaxed {
        double root = 0;  ///< seconds of a plan: no plan of these candidates takes less
        double ms = 0;    ///< processor time
    };
    std::optional<Relaxed> strong, published;
};

/// A kernel as it was chosen. KernelCall::chosen says which calls it became: one, unless it was taken apart.
struct KernelReport {
    struct Primitive {
        std::string name, source;  ///< of the program before fusion
        bool again = false;        ///< an earlier kernel computes it too
    };
    std::vector<Primitive> primitives;       ///< in order; none: it copies a value into another layout
    std::vector<std::string> reads, writes;  ///< values, "x" or "x (split 0 16, reorder 0 2 1)" where not row-major
    size_t piece = 0;
    double cost = 0;                 ///< seconds that the choice counted for it (PieceReport::seconds)
    double estimate = 0;             ///< seconds by the model, a launch included
    double at_least = 0;             ///< no schedule takes less: the machine's limit, and a launch
    std::optional<double> measured;  ///< seconds, a launch included
};

/// The plan beside the greedy rule's kernels, in whole runs.
struct InModelReport {
    size_t pieces = 0;          ///< different ones whose kernels differ
    size_t greedy = 0;          ///< of those: kept the greedy rule's
    double seconds = 0;         ///< of a run as planned; 0: remembered from an earlier compile
    double greedy_seconds = 0;  ///< of a run of the greedy rule's kernels, in turns with that; likewise
    std::string print() const;
};

/// A vendor's library beside generated code, over different kernels.
struct ProviderReport {
    std::string name;                       ///< "oneDNN 2.6.3"
    size_t measured = 0;                    ///< that both compute
    size_t faster = 0;                      ///< of those: the library alone takes less time
    size_t in_model = 0;                    ///< of those in a plan: as many were to be compared in whole runs
    size_t kept = 0;                        ///< of those: computed by the library
    size_t solved_again = 0;                ///< times that the programs were solved again, without refused kernels
    double seconds = 0;                     ///< of a run with it; 0: remembered from an earlier compile, or none was
    double generated_seconds = 0;           ///< of a run of the same plan without it, in turns with that; likewise
    std::map<std::string, size_t> refused;  ///< why it does not compute a kernel that was measured
    std::string print() const;
};

/// What was looked at and chosen, of a program and the bodies of its control flow together.
struct OrchestrationReport {
    std::vector<PieceReport> pieces;
    std::vector<KernelReport> kernels;      ///< in an order that runs
    size_t primitives = 0;                  ///< of the program, unfused
    size_t cuts = 0;                        ///< between pieces
    size_t cut_kernels = 0;                 ///< kernels of the greedy rule that a cut goes through
    double cut_bytes = 0;                   ///< of the values that cross cuts
    std::map<std::string, size_t> refused;  ///< why a set is no kernel, and how many were not
    /// Why two of `kernels`, of which the second reads what the first writes, are not one kernel. Of kernels of one
    /// piece, where GroupingOptions::keep_refusals is set.
    std::map<std::pair<size_t, size_t>, std::string> not_fused;
    size_t repeated = 0;     ///< primitives that several kernels compute, once for each more
    size_t taken_apart = 0;  ///< kernels that were not one in the whole program
    /// Different kernels among all candidates and conversions: those of equal text and weights are one.
    size_t distinct_candidates = 0;
    size_t measured = 0;          ///< of those: their time was asked for
    size_t remembered = 0;        ///< of those: the database knew
    size_t undercut = 0;          ///< of those: took less than what was thought the least
    bool measured_enough = true;  ///< false: OptimalOptions::most_measured ended it
    double measure_ms = 0;
    std::optional<InModelReport> in_model;   ///< where that was asked for and the plans differ
    std::optional<ProviderReport> provider;  ///< where a library was asked as well
    double ms = 0;                           ///< that all this took

    // Sums over the pieces.
    size_t states() const;
    size_t sets() const;
    size_t candidates() const;
    size_t dropped() const;
    size_t columns() const;
    size_t rows() const;
    size_t proven_pieces() const;
    bool optimal() const { return proven_pieces() == pieces.size(); }
    size_t greedy_pieces() const;  ///< that kept the greedy rule's kernels in place of their plans
    size_t capped_pieces() const;  ///< that have more convex sets than were listed
    double seconds() const;        ///< of the solver's plan
    double emitted() const;        ///< of the kernels that were emitted
    double bound() const;
    /// (seconds() - bound()) / bound(); nothing where no program was solved, or no bound was proven.
    std::optional<double> gap() const;
    /// (emitted() - bound()) / bound(): the same of what was emitted, after pieces kept the greedy rule's kernels.
    std::optional<double> emitted_gap() const;
    std::optional<double> measured_share() const;  ///< of the distinct candidates; nothing where there are none
    double root() const;
    double solve_ms() const;
    /// Sums over the pieces; nothing without OptimalOptions::compare_forms.
    std::optional<PieceReport::Relaxed> strong() const;
    std::optional<PieceReport::Relaxed> published() const;
    double greedy_seconds() const;  ///< 0 where some of the greedy rule's kernels are no kernels here
    /// One line.
    std::string print() const;
};

}  // namespace tilewright
