#pragma once
// Rewrites of a Program's primitives by equivalences (Korch §3, after TASO): another way to compute the same values.
//
// A rule recognises algebraic form, never an operator's name: "a sum of products, one factor of which does not move
// along the sum". What it offers is a Patch, the few primitives that change; `apply` puts it into a program. Whether a
// patch pays is decided elsewhere (search.h).
//
// The laws hold for real numbers. In floating point a rewrite changes rounding, and where an intermediate becomes
// infinite or NaN the results may differ; so rules touch values of f32 and f64 alone, never integers or half precision,
// whose rounding is what a model means.

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "program/program.h"
#include "program/transform/fold.h"

namespace tilewright {

/// A local change: values and constants to add, and the primitives that compute these, or compute a value of the
/// program anew. New values are numbered on from program.values.size().
struct Patch {
    std::vector<Value> values;
    std::map<ValueId, Tensor> constants;
    std::vector<Primitive> primitives;  ///< operands before their readers
};

/// What a rule asked about a value: what it is and who computes it, or who reads it.
struct Asked {
    ValueId value;
    bool readers = false;
    friend auto operator<=>(const Asked&, const Asked&) = default;
};

/// A program, and what rules ask of it again and again. The program must outlive it.
///
/// Rules see values and primitives through it alone, but for the primitive they are called for. So it can note what
/// they asked, and whoever repeats the questions in another program knows whether they would find the same
/// (findings.h).
class RewriteContext {
  public:
    explicit RewriteContext(const Program& program, const FoldOptions& folding = {});

    const Program& program() const { return program_; }
    /// What constants will be folded with afterwards.
    const FoldOptions& folding() const { return folding_; }
    const Value& value(ValueId v) const { return program_.values[noted(v)]; }
    /// The expression that computes `v`; null for inputs, constants, and what no expression computes.
    const TensorExpr* producer(ValueId v) const;
    PrimitiveId producer_id(ValueId v) const { return producers_[noted(v)]; }
    /// In the order of the program.
    const std::vector<PrimitiveId>& consumers(ValueId v) const { return consumers_[noted(v, true)]; }
    /// Read by one primitive, and no output of the program: computing it otherwise leaves nothing of it behind.
    bool read_once(ValueId v) const { return consumers(v).size() == 1 && !is_output(v); }
    bool is_output(ValueId v) const { return is_output_[noted(v)]; }
    /// Depends on constants alone, by work that `folding` allows: it will be a constant, and costs nothing when the
    /// model runs.
    bool foldable(ValueId v) const { return foldable_[noted(v)]; }
    /// The number that every element of `v` is, where a constant (of at most 65536 elements: larger ones are not looked
    /// at) or a fill says so. All that rules know of contents.
    std::optional<double> fill(ValueId v) const;
    /// Whether `later` needs what `earlier` computes, directly or not.
    bool depends(PrimitiveId later, PrimitiveId earlier) const;

    /// From now on questions are added to `asked`; null: no longer.
    void note(std::vector<Asked>* asked) const { asked_ = asked; }

  private:
    ValueId noted(ValueId v, bool readers = false) const {
        if (asked_ != nullptr) asked_->push_back({v, readers});
        return v;
    }

    const Program& program_;
    FoldOptions folding_;
    IndexVector<ValueId, PrimitiveId> producers_;
    IndexVector<ValueId, std::vector<PrimitiveId>> consumers_;
    IndexVector<ValueId, char> is_output_, foldable_;
    mutable std::vector<Asked>* asked_ = nullptr;
};

struct RewriteRule {
    std::string_view name;
    std::string_view law;  ///< one line of mathematics
    /// Adds what the rule would make of the primitive `at` (the last one of its pattern), one patch for each way.
    void (*find)(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found);
    bool inexact = false;  ///< errors grow by more than another order of sums would make them: for clear gains only
};

struct RewriteOptions {
    FoldOptions folding = {};  ///< what constants will be folded with afterwards
    /// Convolutions of few taps a dimension by Winograd's F(2) and F(4) in some of the dimensions: down to a sixth of
    /// the multiplications, but errors that grow (winograd.h says by how much).
    bool winograd = false;
};

/// Every rule of the folder, in a fixed order; those the options leave out are not among them.
std::vector<const RewriteRule*> rewrite_rules(const RewriteOptions& options = {});
/// The rule of that name, whatever the options; null if there is none.
const RewriteRule* rewrite_rule(std::string_view name);

/// Primitives of more accesses, or with a body of more nodes, are left alone: rules take a patch's time for each of
/// their operands, and patches the square of their sizes.
constexpr size_t kMostAccesses = 64, kMostNodes = 256;
bool too_large(const TensorExpr& e);

/// What one rule finds in a whole program, in the order of its primitives.
std::vector<Patch> find_all(const RewriteContext& context, const RewriteRule& rule);

/// The program with the patch in place: primitives in topological order (they keep their order where they can), those
/// that nobody needs any more removed, new values under names of their own. ValueIds keep their meaning.
Program apply(Program program, const Patch& patch);

/// A patch found in a program of `known` values, in what has become of that program since: values of the patch are
/// numbered on from the latter. Nothing where it reads or replaces what is gone, or would now depend on itself. (What
/// is left of a program after a patch still means what it meant, so a patch stays right where it can be put at all.)
/// New values keep the patch's names, which may be taken.
std::optional<Program> apply_later(const Program& program, const Patch& patch, size_t known);
/// The program with values that share a name under names of their own, the first as it was.
Program with_unique_names(Program program);

}  // namespace tilewright
