#pragma once
// Algebraic rewrites of a Program's primitives (Korch §3, after TASO): equivalent programs with other primitives.
//
// A rule matches an algebraic form, never an operator's name: "a sum of products, one factor of which is invariant
// along the reduction axis". A match is a Patch, the few primitives that change; `apply` inserts it into a program.
// The search decides whether a patch pays off (search.h).
//
// The laws hold for real numbers. In floating point a rewrite changes rounding, and results may differ where an
// intermediate becomes infinite or NaN. Rules therefore apply to f32 and f64 values only, never to integers or half
// precision, whose rounding is part of the model's semantics.

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "program/program.h"
#include "program/transform/fold.h"

namespace tilewright {

/// A local change: values and constants to add, and primitives that define them or redefine a value of the program.
/// New values are numbered from program.values.size().
struct Patch {
    std::vector<Value> values;
    std::map<ValueId, Tensor> constants;
    std::vector<Primitive> primitives;  ///< operands before their readers
};

/// A property of a value that a rule read: its form and producer, or its readers.
struct RuleDependency {
    ValueId value;
    bool readers = false;
    friend auto operator<=>(const RuleDependency&, const RuleDependency&) = default;
};

/// A program with the analyses that rules use. The program must outlive it.
///
/// Rules access values and primitives only through this class, except for the primitive that they match. It can
/// therefore record the properties that a rule read. If they are equal in another program, the rule's matches are too
/// (match_cache.h).
class RewriteContext {
  public:
    explicit RewriteContext(const Program& program, const FoldOptions& folding = {});

    const Program& program() const { return program_; }
    /// The options with which constants will be folded after rewriting.
    const FoldOptions& folding() const { return folding_; }
    const Value& value(ValueId v) const { return program_.values[recorded(v)]; }
    /// The expression that defines `v`; null for inputs, constants, and outputs of other primitives.
    const TensorExpr* producer(ValueId v) const;
    PrimitiveId producer_id(ValueId v) const { return producers_[recorded(v)]; }
    /// In program order.
    const std::vector<PrimitiveId>& consumers(ValueId v) const { return consumers_[recorded(v, true)]; }
    /// Read by exactly one primitive and not an output of the program: redefining its reader makes it dead.
    bool read_once(ValueId v) const { return consumers(v).size() == 1 && !is_output(v); }
    bool is_output(ValueId v) const { return is_output_[recorded(v)]; }
    /// Depends only on constants, by work that `folding` allows: it will be folded and costs nothing at run time.
    bool foldable(ValueId v) const { return foldable_[recorded(v)]; }
    /// The number that every element of `v` equals, if a constant (of at most 65536 elements: larger ones are not
    /// inspected) or a fill defines it. Rules know nothing else about contents.
    std::optional<double> fill(ValueId v) const;
    /// Whether `later` depends on `earlier`, directly or transitively.
    bool depends(PrimitiveId later, PrimitiveId earlier) const;

    /// Records the properties read from now on in `dependencies`; null: stops recording.
    void record(std::vector<RuleDependency>* dependencies) const { dependencies_ = dependencies; }

  private:
    ValueId recorded(ValueId v, bool readers = false) const {
        if (dependencies_ != nullptr) dependencies_->push_back({v, readers});
        return v;
    }

    const Program& program_;
    FoldOptions folding_;
    IndexVector<ValueId, PrimitiveId> producers_;
    IndexVector<ValueId, std::vector<PrimitiveId>> consumers_;
    IndexVector<ValueId, char> is_output_, foldable_;
    mutable std::vector<RuleDependency>* dependencies_ = nullptr;
};

struct RewriteRule {
    std::string_view name;
    std::string_view law;  ///< the identity, in one line
    /// Appends the patches for a match whose last primitive is `at`, one patch for each rewrite.
    void (*find)(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found);
    bool inexact =
        false;  ///< the rewrite increases rounding errors beyond reassociation, so it must gain more to be applied
};

struct RewriteOptions {
    FoldOptions folding = {};  ///< the options with which constants will be folded afterwards
    /// Convolutions with few taps per dimension by Winograd's F(2) and F(4) in some dimensions: down to a sixth of the
    /// multiplications, with larger rounding errors (bounds in winograd.h).
    bool winograd = false;
};

/// Every rule of the folder that the options enable, in a fixed order.
std::vector<const RewriteRule*> rewrite_rules(const RewriteOptions& options = {});
/// The rule of that name, independent of the options; null if there is none.
const RewriteRule* rewrite_rule(std::string_view name);

/// Primitives with more accesses or a larger body are not rewritten: a rule's time grows with the number of operands
/// times the time of a patch, and a patch's time with the square of the sizes.
constexpr size_t kMaxAccesses = 64, kMaxNodes = 256;
bool too_large(const TensorExpr& e);

/// The matches of one rule in a whole program, in program order.
std::vector<Patch> find_all(const RewriteContext& context, const RewriteRule& rule);

/// The program with the patch applied: primitives in topological order (stable where possible), dead primitives
/// removed, new values renamed to be unique. ValueIds keep their meaning.
Program apply(Program program, const Patch& patch);

/// Applies a patch found in a program of `known` values to a program derived from it: values of the patch are
/// renumbered after the latter's values. None if the patch reads or redefines a removed value, or if the result would
/// be cyclic. (The values that remain after a patch keep their meaning, so a patch that can be applied is still
/// correct.) New values keep the patch's names, which may be taken.
std::optional<Program> apply_later(const Program& program, const Patch& patch, size_t known);
/// Renames values that share a name; the first one keeps it.
Program with_unique_names(Program program);

}  // namespace tilewright
