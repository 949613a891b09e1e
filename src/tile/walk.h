#pragma once
// The tree of a tile program in flat form: the position and the enclosing loops of every statement. Shared by this
// folder.

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tile/tile.h"

namespace tilewright {

/// Position of a statement: its index in each enclosing body, from the root. The path of a loop also names its body's
/// scope.
using TreePath = std::vector<size_t>;

struct Walk {
    std::map<TreePath, std::vector<Expr>> extents;  ///< per scope: the largest extent of each axis inside it
    std::map<TreePath, const TileLoop*> loops;
    std::vector<std::pair<TreePath, const Load*>> loads;
    std::vector<std::pair<TreePath, const Compute*>> computes;
    std::vector<std::pair<TreePath, const Store*>> stores;
    std::optional<TreePath> split;  ///< the parallel loop that cuts a reduction: its tasks have parts of sums (split-K)

    /// Axes whose range under `scope` is shorter than their extent, or than the task's part of a sum.
    std::set<size_t> narrowed(const TreePath& scope) const;
    /// The loops around a statement that are inside `scope`, outermost first.
    std::vector<const TileLoop*> loops_below(const TreePath& scope, const TreePath& statement) const;
    /// Whether the loop at that path has at most one step, according to its extents.
    bool runs_once(const TreePath& loop) const;
    /// Whether loops in a task cut the reduction of the stage.
    bool has_partial_sums(const TileProgram& program, PrimitiveId stage) const;
};

/// The axes that loops name must exist.
Walk walk(const TileProgram& program);

inline TreePath scope_of(const TreePath& statement) { return {statement.begin(), statement.end() - 1}; }
/// The innermost scope around all of the statements.
TreePath common_scope(const std::vector<TreePath>& statements);
/// The scope of a value's buffer: the innermost scope around all of its statements. For an online maximum, which is
/// still needed after them, the scope outside the first loop that cuts its reduction.
TreePath home_of(const TileProgram& program, const Walk& walk, ValueId value);
/// Whether the statement lies inside a loop of its task that cuts the reduction of stage `s`, whose Compute is at `at`,
/// and so sees partial results.
bool inside_reduction(const TileProgram& program, const Walk& walk, PrimitiveId s, const TreePath& at,
                      const TreePath& statement);
/// The Compute whose partial sums are kept in a buffer of the task, though it writes the output `value` to memory
/// (Buffer::partial), and the scope of that buffer: outside of the first loop that cuts the reduction.
struct PartialSums {
    TreePath scope;
    const Compute* compute = nullptr;
};
std::optional<PartialSums> partial_sums_of(const TileProgram& program, const Walk& walk, ValueId value);
/// The axes of the stage by which its partial sums are addressed: the spatial ones, columns last.
std::vector<size_t> partial_sum_axes(const TensorExpr& expr, const MatrixUnit& unit);
/// The statements of a value: its Compute, its Store if it has one, the Computes that read it without a Load.
std::vector<TreePath> statements_of(const TileProgram& program, const Walk& walk, ValueId value);

/// The symbols and scalars of the kernel's code, in a stable order: its dynamic arguments.
std::vector<Var> dynamic_names(const TileProgram& program);

bool is_output(const TileProgram& program, ValueId value);
bool is_input(const TileProgram& program, ValueId value);
/// The dimension and sign for which condition - sign * index[dimension] uses no axis: a Load can evaluate such a
/// condition per element.
struct IndexCondition {
    size_t dimension = 0;
    int sign = 1;
    Expr rest;
};
std::optional<IndexCondition> condition_on_index(const Access& access, Expr condition);
/// The access with which a Load copies elements of `access`: the element of `box` at box.index, with the lower corner
/// `origin` in a tensor of `shape`. Elements outside the tensor (unless `inside`), or where a condition of the access
/// fails, are its fill.
Access copied_access(const Access& access, const LogicalIndex& box, std::span<const Expr> origin,
                     std::span<const Expr> shape, bool inside);

}  // namespace tilewright
