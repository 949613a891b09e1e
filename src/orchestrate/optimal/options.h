#pragma once
// What optimal orchestration may do, and what it did.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
    /// Also solve the relaxation of the paper's binary program, for the report: PieceReport::published_root.
    bool compare_forms = false;
};

/// A piece of the graph, solved by itself (of the program, or of a body of its control flow).
struct PieceReport {
    size_t primitives = 0;
    /// Execution states (Definition 2), and whether there are more than that, which are not counted.
    size_t states = 0;
    bool more_states = false;
    size_t sets = 0;  ///< convex ones listed
    bool capped = false;
    size_t candidates = 0;  ///< that can be made, each set once for every choice of its outputs
    size_t dropped = 0;     ///< of those: no optimal plan needs them
    size_t measured = 0;
    size_t columns = 0, rows = 0;          ///< of its binary program, the last one where rows were added
    size_t rounds = 0;                     ///< programs solved, those of lazy profiling and of lazy rows together
    bool optimal = false;                  ///< proven; false: time was up, and the plan is the best that was found
    double seconds = 0;                    ///< of its plan: measured where it is, else by the model
    double bound = 0;                      ///< no plan of these candidates takes less
    double root = 0;                       ///< of the first program's linear relaxation
    std::optional<double> published_root;  ///< of the paper's form; where OptimalOptions::compare_forms
    double greedy_seconds = 0;             ///< of the greedy rule's kernels; 0 where some are no kernels here
    double solve_ms = 0;                   ///< processor time of its programs
    double published_ms = 0;               ///< of the paper's relaxation
};

/// A kernel as it was chosen. The layouts may take it apart afterwards: KernelCall::chosen says what became of it.
struct KernelReport {
    struct Primitive {
        std::string name, source;  ///< of the program that was orchestrated, which nobody has fused yet
        bool again = false;        ///< an earlier kernel computes it too
    };
    std::vector<Primitive> primitives;       ///< in order
    std::vector<std::string> reads, writes;  ///< values
    size_t piece = 0;
    double estimate = 0;             ///< seconds by the model, a launch included
    double at_least = 0;             ///< no schedule takes less: the machine's limit, and a launch
    std::optional<double> measured;  ///< seconds, a launch included
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
    size_t repeated = 0;                    ///< primitives that several kernels compute, once for each more
    size_t relaid = 0;                      ///< kernels that the layouts chosen afterwards took apart
    double ms = 0;                          ///< that all this took

    // Sums over the pieces.
    size_t states() const;
    size_t sets() const;
    size_t candidates() const;
    size_t dropped() const;
    size_t measured() const;
    size_t columns() const;
    size_t rows() const;
    size_t proven_pieces() const;
    bool optimal() const { return proven_pieces() == pieces.size(); }
    double seconds() const;
    double bound() const;
    double gap() const;  ///< what a better plan could save at most, as a share
    double root() const;
    double solve_ms() const;
    double greedy_seconds() const;  ///< 0 where some of the greedy rule's kernels are no kernels here
    /// One line.
    std::string print() const;
};

}  // namespace tilewright
