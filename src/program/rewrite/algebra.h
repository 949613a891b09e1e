#pragma once
// What rules see in a tensor expression, and how they write new ones.

#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "program/analysis/access.h"
#include "program/rewrite/rewrite.h"

namespace tilewright {

/// f32 and f64: the types in which rules may change the order of operations.
bool is_real(DType t);
/// A sum, over at least one axis, of reals, without epilogue or output index.
bool is_sum(const TensorExpr& e, DType made);
/// One point of the result from one point of each operand: no reduction, no epilogue, no output index, real.
bool is_map(const TensorExpr& e, DType made);
/// A map that only moves elements of one operand: its body is that access.
bool is_view(const TensorExpr& e);
/// The view reads dimension k at axis k, and all of it: a copy.
bool is_identity(const RewriteContext& context, const TensorExpr& e);

/// Whether the access reads, without conditions, the very point that the expression computes: dimension k at axis k.
bool at_own_point(const TensorExpr& e, const Access& a);
/// The index is `expected`; where an axis has one point, 0 stands for it.
bool same_index(std::span<const Expr> extents, const std::vector<Expr>& index, const std::vector<Expr>& expected);

/// Axes that the node depends on, through indices, conditions, loads and Index nodes.
std::set<uint32_t> axes_below(const TensorExpr& e, ScalarId node);
/// Slots below a node.
std::set<uint32_t> slots_below(const ScalarBody& body, ScalarId node);

/// node = product of the factors, those `under` the line divided by.
///     div(mul(@0, @1), @2)   ->   @0, @1, under @2
struct Factor {
    ScalarId node;
    bool under = false;
};
std::vector<Factor> factors(const ScalarBody& body, ScalarId node);

/// The access whose element the node is, itself; none for anything else.
std::optional<uint32_t> bare_slot(const ScalarBody& body, ScalarId node);

/// Dimension of the access that is exactly `axis(a)` and as long; none where there is no such, or it occurs twice.
std::optional<size_t> bare_dim(const RewriteContext& context, const TensorExpr& e, const Access& access, uint32_t a);

/// Writes one tensor expression.
class ExprWriter {
  public:
    ExprWriter(std::vector<Expr> extents, size_t spatial, Reducer reducer = Reducer::None) {
        expr_.extents = std::move(extents);
        expr_.spatial = spatial;
        expr_.reducer = reducer;
    }

    /// The element of `value` at `index`.
    ScalarId read(const RewriteContext& context, ValueId value, std::vector<Expr> index);
    ScalarId read(ValueId value, DType stored, std::vector<Expr> index, std::vector<Expr> valid = {}, double fill = 0);
    /// A node of another expression's body with all it reads, that expression's axis k replaced by axes[k]. Reads that
    /// are equal share an access, so that equal nodes are one ScalarId.
    ScalarId copy(const TensorExpr& from, ScalarId node, std::span<const Expr> axes);
    /// The same for a body of its own (scale and shift of AffineForm) over the expression's accesses.
    ScalarId copy(const TensorExpr& from, const ScalarBody& body, std::span<const Expr> axes);
    /// first * rest..., divided by those under the line; 1 where there are none.
    ScalarId multiply(DType t, std::span<const std::pair<ScalarId, bool>> factors);
    ScalarBody& body() { return expr_.body; }
    /// With the body's result; tidied.
    TensorExpr finish(ScalarId root);

  private:
    uint32_t slot(const Access& access);
    TensorExpr expr_;
};

/// How a map depends on what access `slot` reads:   body = scale * @slot + shift, neither of which reads it.
/// Nothing where it does not depend on it like that.
struct AffineForm {
    ScalarBody scale, shift;  ///< over the accesses of the expression; `shift` is empty where it is 0
    bool scales = true;       ///< the scale is not 1
};
std::optional<AffineForm> affine_in(const TensorExpr& e, uint32_t slot);

/// Writes a patch.
class PatchWriter {
  public:
    /// New values and primitives are named after what the primitive `at` computes.
    PatchWriter(const RewriteContext& context, PrimitiveId at) : context_(context), at_(at) {}

    ValueId make(TensorExpr expr, DType dtype, std::string_view role);
    ValueId constant(Tensor tensor, std::string_view role);
    /// From now on `expr` computes `value`, a value of the program.
    void define(ValueId value, TensorExpr expr);
    const Value& value(ValueId v) const;
    /// The expression that computes a value of this patch; null for other values.
    const TensorExpr* made(ValueId v) const;
    Patch take() { return std::move(patch_); }

  private:
    const RewriteContext& context_;
    PrimitiveId at_;
    Patch patch_;
};

/// `e` with access `slot` reading `value` instead, at the same place. Where `value` is a view (of this patch) it is
/// read through: then the access reads what the view does.
TensorExpr with_operand(const PatchWriter& patch, const TensorExpr& e, uint32_t slot, ValueId value);

/// `e` with the number itself in place of access `slot`, which reads a value filled with it (RewriteContext::fill). Of
/// an access with conditions, only where they hold: it must be read nowhere else.
TensorExpr with_number(const TensorExpr& e, uint32_t slot, double number);

}  // namespace tilewright
