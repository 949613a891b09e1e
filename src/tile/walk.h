#pragma once
// The tree of a tile program laid out flat: what stands where, under which loops. Shared by the files of this folder.

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tile/tile.h"

namespace tilewright {

/// Position of a statement: the index in every body from the root on. A loop's path is also the scope of its body.
using TreePath = std::vector<size_t>;

struct Walk {
    std::map<TreePath, std::vector<Expr>> extents;  ///< per scope: the largest extent every axis can have inside it
    std::map<TreePath, const TileLoop*> loops;
    std::vector<std::pair<TreePath, const Load*>> loads;
    std::vector<std::pair<TreePath, const Compute*>> computes;
    std::vector<std::pair<TreePath, const Store*>> stores;

    /// Axes whose range is less than whole under `scope`.
    std::set<size_t> narrowed(const TreePath& scope) const;
    /// The loops on the way to a statement that are deeper than `scope`, outermost first.
    std::vector<const TileLoop*> loops_below(const TreePath& scope, const TreePath& statement) const;
    /// Whether the loop at that path has one step at most, as far as its extents say.
    bool runs_once(const TreePath& loop) const;
    /// Whether loops cut what the stage reduces.
    bool sums_in_parts(const TileProgram& program, PrimitiveId stage) const;
};

/// The axes that loops name must exist.
Walk walk(const TileProgram& program);

inline TreePath scope_of(const TreePath& statement) { return {statement.begin(), statement.end() - 1}; }
/// The innermost scope around all of the statements.
TreePath common_scope(const std::vector<TreePath>& statements);
/// Under which loops a value's buffer lives: those around all of its statements; of an online maximum, which is still
/// needed when they are through, those outside the first loop that cuts its reduction.
TreePath home_of(const TileProgram& program, const Walk& walk, ValueId value);
/// Whether the statement stands inside a loop that cuts the reduction of stage `s`, whose Compute stands at `at`: there
/// it meets what was reduced so far.
bool inside_reduction(const TileProgram& program, const Walk& walk, PrimitiveId s, const TreePath& at,
                      const TreePath& statement);
/// Where a value's statements stand: its Compute, its Store if it has one, the Computes that read it without a Load.
std::vector<TreePath> statements_of(const TileProgram& program, const Walk& walk, ValueId value);

/// Symbols and scalars that the kernel's code can mention, in a stable order: the numbers that a run passes to it.
std::vector<Var> dynamic_names(const TileProgram& program);

bool is_output(const TileProgram& program, ValueId value);
bool is_input(const TileProgram& program, ValueId value);
/// The dimension and sign for which condition - sign * index[dimension] uses no axis: a Load can decide such a
/// condition for each element by itself.
struct IndexCondition {
    size_t dimension = 0;
    int sign = 1;
    Expr rest;
};
std::optional<IndexCondition> condition_on_index(const Access& access, Expr condition);
/// How a load reads the elements of `access` that it copies: the element of `box` at box.index, with the lower corner
/// `origin` in a tensor of `shape`. What lies outside of the tensor, unless `inside`, or where a condition of the
/// access fails is its fill.
Access copied_access(const Access& access, const LogicalIndex& box, std::span<const Expr> origin,
                     std::span<const Expr> shape, bool inside);

}  // namespace tilewright
