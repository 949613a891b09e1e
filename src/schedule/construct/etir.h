#pragma once
// Gensor's state and its actions (§IV-A, B): a node of the construction graph and the edges that leave it.
//
// Levels are counted from the core: 0 is the register tile. On a CPU 1 is what stays in the first-level cache and 2
// what stays in the second-level cache and is one task of the thread pool (the paper's thread block; its shared memory
// is the per-core cache). On a GPU 1 is the block's tile in shared memory (along sums: a step of its copies), and the
// register tile a thread's, or a warp's on matrix instructions. Construction begins at the outermost level with tiles
// of one point, and every `cache` action moves it one level closer to the core, never back (§IV-A, "the next level").
// Tile and inverse tile move an axis to the next larger or smaller candidate size, so the graph is irreducible inside a
// level.
//
// A virtual thread is an interleaved register sub-tile: with V of them along an axis, a register tile's points lie in V
// groups, each in a V-th of the axis' range, instead of side by side. Formula 3 counts the bank conflicts that this
// avoids: ceil(x / W) over ceil(x / (V W)) for a tile of x points of which W lie in different banks. On a GPU the banks
// are the shared memory's, and a warp's addresses are counted one by one (cost/gpu_copy.h): the paper's formula where x
// is a power of two. On a CPU the bank is a set of the first-level cache: W neighbours along the axis lie in different
// sets (the distance between them divides 4 KiB that often).

#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "cost/estimate.h"
#include "schedule/default_schedule.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright::construct {

class StateModel;

/// What is constructed: one stage on one machine, and what its innermost level looks like whatever the tiles.
struct Problem {
    StageModel stage;
    Micro micro;                ///< vector axis, lanes, loop order, unrolled reductions
    std::vector<size_t> loads;  ///< accesses that are copied for a block or task
    bool contraction = false;
    bool virtual_threads = false;  ///< whether its register tiles can have them
    std::vector<bool> dynamic;     ///< extents that are unknown at compile time
    std::vector<int64_t> units;    ///< per axis: register tiles come in multiples of it
    /// Per level and axis: the sizes a tile can have, ascending. Where the operands' layout decides the register tile
    /// (panels of packed weights; kernels that reuse nothing across rows) only the default heuristic's.
    std::vector<std::vector<std::vector<int64_t>>> tile_sizes;
    std::vector<double> smallest;  ///< footprint of the smallest tile of each level
    std::shared_ptr<const StateModel> model;

    size_t levels() const { return tile_sizes.size(); }
};

/// Of a kernel with one stage. Where its micro-kernel has no vector axis there is little to gain (see make_schedule).
Problem make_problem(const Program& stages, const Target& target, const Bindings& bindings = {});
/// On a GPU. Nothing where not even the smallest tiles' copies fit a block. `group`: on WGMMA; nothing where its
/// instructions do not fit the product. The model decides between the two spaces.
std::optional<Problem> make_gpu_problem(const Program& stages, const Target& target, Precision precision,
                                        bool group = false);

struct Etir {
    std::vector<std::vector<int64_t>> tiles;  ///< [level][axis], points
    std::vector<int64_t> virtual_threads;     ///< per axis
    size_t level = 0;                         ///< the one being scheduled
    friend auto operator<=>(const Etir&, const Etir&) = default;
};
Etir initial(const Problem& problem);

struct Action {
    enum class Kind : uint8_t { Tile, InverseTile, Cache, SetVThread };
    Kind kind = Kind::Tile;
    size_t axis = 0;
};
/// Nothing where the action does not exist in this state: the largest or smallest size, the last level, a tile larger
/// than the one around it. (With `nested` false it may be: rounding then enlarges that.)
std::optional<Etir> apply(const Problem& problem, const Etir& e, Action action, bool nested = true);

/// F(T), bytes of the operands' tiles at a level; at level 0 the registers they take, in bytes.
double footprint(const Problem& problem, const Etir& e, size_t level);
/// Q(T), bytes moved into a level while the whole stage runs (at level 0: loaded into registers).
double traffic(const Problem& problem, const Etir& e, size_t level);
/// Whether the tiles at `level` fit in it. A level in which not even the smallest tile fits (sums that are not cut, all
/// of whose operands pass through) holds nothing back.
bool fits(const Problem& problem, const Etir& e, size_t level);

/// Formulas 1, 2 and 3, the cache action annealed by 3 / (1 + exp(-ln(5) / 10 (t - 10))) with t the number of the step;
/// 0 where the result would exceed the level's capacity, or the action does not exist. Formula 1 is taken as printed:
/// Q(T) F(T') / (Q(T') F(T)), which rewards a tile both for what it saves and for what it fills; capacity stops it.
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

/// A state at the last level, chosen at random among those that fit; half of them with virtual threads, where there can
/// be any.
Etir random_state(const Problem& problem, std::mt19937_64& rng);
/// One to three random actions away from `e`, at any level; the registers hold it.
Etir mutated(const Problem& problem, Etir e, std::mt19937_64& rng);

/// The state that a schedule of the kernel is, as far as it is one: tiles rounded up to candidate sizes.
Etir state_of(const Problem& problem, const TileProgram& schedule);

/// The state as loops: tiles rounded to whole register tiles and to what the machine can run, the better of the loop
/// orders.
struct Realised {
    Etir state;  ///< rounded
    Micro micro;
    std::vector<Nest::Loop> loops;
    size_t parallel = 0;   ///< how many of them are the grid
    size_t copies_at = 0;  ///< inside how many of them the copies stand
    int ahead = 1;         ///< TileLoop::stages of the innermost
    bool stored = false;   ///< the result is kept until all sums are complete, and then written
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
/// The schedule of `stages`, the kernel the problem was made of.
TileProgram to_tile_program(Program stages, const Problem& problem, const Realised& realised);

/// What states mean on a kind of machine: the numbers in the formulas, and the loops that a state becomes.
class StateModel {
  public:
    virtual ~StateModel() = default;
    /// F(T).
    virtual double footprint(const Problem& p, const Etir& e, size_t level) const = 0;
    /// Bytes of F(T) that a level has room for.
    virtual double capacity(const Problem& p, size_t level) const = 0;
    /// How long so many bytes take from a level (not 0), or, beyond the last, from memory: latency and transfer, in any
    /// unit.
    virtual double transfer(size_t level, double bytes) const = 0;
    /// Formula 3: bank conflicts before over those after the virtual threads of an axis have doubled, of the operand
    /// that gains most.
    virtual double interleaving(const Problem& p, const Etir& before, const Etir& after, size_t axis) const = 0;
    virtual Realised realise(const Problem& p, const Etir& e) const = 0;
    virtual std::vector<Stmt> copies(const Program& stages, const Problem& p, const Realised& r) const = 0;
};

/// Sizes for tiles of an axis of `extent` points in units: divisors, powers of two, the whole; about three an octave.
std::vector<int64_t> candidate_sizes(int64_t extent, int64_t unit);
/// Completes a problem whose tile sizes and model are set.
void measure_smallest(Problem& problem);

}  // namespace tilewright::construct
