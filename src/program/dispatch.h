#pragma once
// The choice among several ways to compute the same values, by the sizes of a run (DietCode §4.3's dispatcher).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "index/expr.h"

namespace tilewright {

/// A table over the sizes of a few names. It is total: every combination of sizes has a way. Whether a way is legal is
/// decided by arithmetic, never by the table.
///
///     keys [$seq], cuts [[48, 400]], table [1, 0, 2]:  seq < 48 -> way 1, seq < 400 -> way 0, else way 2
struct Dispatch {
    std::vector<Expr> keys;                  ///< over names that are known when the plan starts
    std::vector<std::vector<int64_t>> cuts;  ///< by key, ascending: cell k has the sizes from cut k - 1 to below cut k
    std::vector<uint32_t> table;             ///< way by cell; the cells of the last key are neighbours
    /// By way: expressions that must be at least 0, or the way is illegal and `otherwise` runs.
    std::vector<std::vector<Expr>> needs;
    uint32_t otherwise = 0;  ///< a way without needs

    size_t ways() const { return needs.size(); }
    /// Of the cuts; at most as many as the table has, and one more.
    size_t cells() const;
    uint32_t choose(const std::function<int64_t(Expr)>& value) const;
    /// One line: the sizes of each way, and what it needs.
    std::string print() const;
    /// Sentences about malformed tables; empty: none.
    std::vector<std::string> faults() const;
};

/// What a kernel call is part of: a way of a region (Plan::regions).
struct WayOf {
    size_t region = 0;
    uint32_t way = 0;
    friend bool operator==(const WayOf&, const WayOf&) = default;
};

}  // namespace tilewright
