#pragma once
// Gensor's states and actions (§IV-A, B): the nodes and edges of the construction graph.
//
// Levels are counted from the core: 0 is the register tile. On a CPU, level 1 is the tile that stays in L1. Level 2 is
// the tile that stays in L2 and is one task of the thread pool (the paper's thread block; its shared memory is the
// core's L2). On a GPU, level 1 is the block's tile in shared memory (along a reduction: one step of its copies), and
// the register tile is a thread's, or a warp's on matrix instructions. Construction begins at the outermost level with
// tiles of one point. Every `cache` action moves it one level closer to the core, never back (§IV-A, "the next level").
// Tile and inverse tile move an axis to the next larger or smaller candidate size, so the graph is irreducible within a
// level.
//
// A virtual thread is an interleaved register sub-tile: with V of them along an axis, the points of a register tile
// form V groups, each in a V-th of the axis' range, instead of being contiguous. Formula 3 counts the bank conflicts
// that this avoids: ceil(x / W) over ceil(x / (V W)) for a tile of x points, W of which lie in different banks. On a
// GPU the banks are those of shared memory, and the addresses of a warp are enumerated (cost/gpu_copy.h), which equals
// the paper's formula where x is a power of two. On a CPU the bank is a set of L1: W neighbours along the axis lie in
// different sets (W is 4 KiB divided by their distance).

#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "cost/estimate.h"
#include "schedule/default_schedule.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright::construct {

class StateModel;

/// The construction of a schedule for one stage on one machine, with those parts of the innermost level that do not
/// depend on the tiles.
struct Problem {
    StageModel stage;
    Micro micro;                ///< vector axis, lanes, loop order, unrolled reductions
    std::vector<size_t> loads;  ///< accesses that are copied for a block or task
    bool contraction = false;
    bool virtual_threads = false;  ///< whether its register tiles can have virtual threads
    std::vector<bool> dynamic;     ///< extents that are unknown at compile time
    std::vector<int64_t> units;    ///< per axis: register tiles are multiples of it
    /// Per level and axis: the candidate sizes of a tile, ascending. Where the layout of operands determines the
    /// register tile (packed weights; kernels that reuse nothing across rows), only the default heuristic's size.
    std::vector<std::vector<std::vector<int64_t>>> tile_sizes;
    std::vector<double> smallest;  ///< footprint of the smallest tile of each level
    std::shared_ptr<const StateModel> model;

    size_t levels() const { return tile_sizes.size(); }
};

/// The problem of a kernel of one stage on a CPU. Without a vector axis construction gains little (see make_schedule).
Problem make_problem(const Program& stages, const Target& target, const Bindings& bindings = {});
/// The problem on a GPU. Nothing where even the copies of the smallest tiles exceed a block. `group`: on WGMMA; nothing
/// where the product does not fit its instructions. The model decides between the two spaces.
std::optional<Problem> make_gpu_problem(const Program& stages, const Target& target, Precision precision,
                                        bool group = false);

struct Etir {
    std::vector<std::vector<int64_t>> tiles;  ///< [level][axis], points
    std::vector<int64_t> virtual_threads;     ///< per axis
    size_t level = 0;                         ///< the level being scheduled
    friend auto operator<=>(const Etir&, const Etir&) = default;
};
Etir initial(const Problem& problem);

struct Action {
    enum class Kind : uint8_t { Tile, InverseTile, Cache, SetVThread };
    Kind kind = Kind::Tile;
    size_t axis = 0;
};
/// Nothing where the action does not exist in this state: the largest or smallest size, the last level, or a tile
/// larger than its outer tile. (With `nested` false the last is allowed; rounding then enlarges the outer tile.)
std::optional<Etir> apply(const Problem& problem, const Etir& e, Action action, bool nested = true);
/// The same in place: false, and the state unchanged, where apply() returns nothing.
bool advance(const Problem& problem, Etir& e, Action action, bool nested = true);

/// F(T), bytes of the operands' tiles at a level; at level 0, of their registers.
double footprint(const Problem& problem, const Etir& e, size_t level);
/// Q(T), bytes moved into a level over the whole stage (at level 0: loaded into registers).
double traffic(const Problem& problem, const Etir& e, size_t level);
/// Whether the tiles at `level` fit in it. A level that even the smallest tile exceeds (uncut reductions, whose
/// operands are streamed) is no constraint.
bool fits(const Problem& problem, const Etir& e, size_t level);

/// Formulas 1, 2 and 3. The cache action is annealed by 3 / (1 + exp(-ln(5) / 10 (t - 10))) with the step number t. 0
/// where the result would exceed the level's capacity, or the action does not exist. Formula 1 is used as printed: Q(T)
/// F(T') / (Q(T') F(T)). It rewards a tile both for the traffic it saves and for the memory it fills, up to the
/// capacity.
double benefit(const Problem& problem, const Etir& e, Action action, int step);
/// All actions with positive benefit.
struct Weighted {
    Action action;
    double weight = 0;
    Etir next;
};
std::vector<Weighted> transitions(const Problem& problem, const Etir& e, int step, bool virtual_threads);

/// Rounds tiles up to candidate sizes.
void round_to_sizes(const Problem& problem, Etir& e);

/// A random state at the last level among those that fit. Half of them have virtual threads where possible.
Etir random_state(const Problem& problem, std::mt19937_64& rng);
/// The state after one to three random actions from `e`, at any level. Its register tile fits the registers.
Etir mutated(const Problem& problem, Etir e, std::mt19937_64& rng);

/// The state that corresponds to a schedule of the kernel, with tiles rounded up to candidate sizes.
Etir state_of(const Problem& problem, const TileProgram& schedule);

/// The state as loops: tiles rounded to whole register tiles and to the machine's limits, in the cheapest loop order.
struct Realised {
    Etir state;  ///< rounded
    Micro micro;
    std::vector<Nest::Loop> loops;
    size_t parallel = 0;   ///< the number of outer loops that form the grid
    size_t copies_at = 0;  ///< the number of loops around the copies
    int ahead = 1;         ///< TileLoop::stages of the innermost
    bool stored = false;   ///< the result is kept until all reductions are complete, and stored then
    double seconds = 0;

    /// Equal for equal programs.
    struct Key {
        std::vector<std::vector<int64_t>> tiles;
        std::vector<int64_t> virtual_threads;
        std::vector<size_t> order;
        friend auto operator<=>(const Key&, const Key&) = default;
    };
    Key key() const;
};
Realised realise(const Problem& problem, const Etir& e);
/// The tile program of a realised state. `stages`: the kernel of the problem.
TileProgram to_tile_program(Program stages, const Problem& problem, const Realised& realised);

/// The machine-dependent part of states: the numbers in the formulas, and the loops of a state.
class StateModel {
  public:
    virtual ~StateModel() = default;
    /// F(T).
    virtual double footprint(const Problem& p, const Etir& e, size_t level) const = 0;
    /// The maximum of F(T) for a level, in bytes.
    virtual double capacity(const Problem& p, size_t level) const = 0;
    /// The time to read so many bytes from a level (not 0) or, beyond the last one, from memory: latency and transfer,
    /// in any unit.
    virtual double transfer(size_t level, double bytes) const = 0;
    /// Formula 3: the ratio of bank conflicts before and after the virtual threads of an axis double, of the operand
    /// that gains most.
    virtual double interleaving(const Problem& p, const Etir& before, const Etir& after, size_t axis) const = 0;
    virtual Realised realise(const Problem& p, const Etir& e) const = 0;
    virtual std::vector<Stmt> copies(const Program& stages, const Problem& p, const Realised& r) const = 0;
};

/// Candidate sizes of an axis of `extent` points, in multiples of `unit`: divisors, powers of two and the whole extent,
/// about three per octave.
std::vector<int64_t> candidate_sizes(int64_t extent, int64_t unit);
/// Sets Problem::smallest. Requires tile sizes and model.
void measure_smallest(Problem& problem);

}  // namespace tilewright::construct
