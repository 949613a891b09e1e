#pragma once
// The analyses of tensor expressions that rewrite rules match on, and helpers that write new expressions.

#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "program/analysis/access.h"
#include "program/rewrite/rewrite.h"

namespace tilewright {

/// f32 and f64: the types in which rules may reassociate.
bool is_real(DType t);
/// A sum, over at least one axis, of reals, without epilogue or output index.
bool is_sum(const TensorExpr& e, DType made);
/// One point of the result from one point of each operand: no reduction, epilogue or output index, real type.
bool is_map(const TensorExpr& e, DType made);
/// A map that only moves the elements of one operand: its body is that access.
bool is_view(const TensorExpr& e);
/// The view reads dimension k at axis k over its whole extent: a copy.
bool is_identity(const RewriteContext& context, const TensorExpr& e);

/// Whether the access reads, without conditions, the point that the expression computes: dimension k at axis k.
bool at_own_point(const TensorExpr& e, const Access& a);
/// The index equals `expected`; along a unit axis 0 is also accepted.
bool same_index(std::span<const Expr> extents, const std::vector<Expr>& index, const std::vector<Expr>& expected);

/// Axes that the node depends on, through indices, conditions, loads and Index nodes.
std::set<uint32_t> axes_below(const TensorExpr& e, ScalarId node);
/// Slots below a node.
std::set<uint32_t> slots_below(const ScalarBody& body, ScalarId node);

/// node = product of the factors; factors with `under` are divisors.
///     div(mul(@0, @1), @2)   ->   @0, @1, under @2
struct Factor {
    ScalarId node;
    bool under = false;
};
std::vector<Factor> factors(const ScalarBody& body, ScalarId node);

/// The slot of the access if the node is that access itself; none for other nodes.
std::optional<uint32_t> bare_slot(const ScalarBody& body, ScalarId node);

/// The dimension of the access indexed by exactly `axis(a)` and of the same extent; none if there is no such dimension,
/// or if the axis occurs in two.
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
    /// A node of another expression's body with its operands, that expression's axis k replaced by axes[k]. Equal reads
    /// share an access, so equal nodes become one ScalarId.
    ScalarId copy(const TensorExpr& from, ScalarId node, std::span<const Expr> axes);
    /// The same for a separate body (scale and shift of AffineForm) over the expression's accesses.
    ScalarId copy(const TensorExpr& from, const ScalarBody& body, std::span<const Expr> axes);
    /// first * rest..., with `under` factors as divisors; 1 if there are no factors.
    ScalarId multiply(DType t, std::span<const std::pair<ScalarId, bool>> factors);
    ScalarBody& body() { return expr_.body; }
    /// Sets the body's root; the result is tidied.
    TensorExpr finish(ScalarId root);

  private:
    uint32_t slot(const Access& access);
    TensorExpr expr_;
};

/// A map as an affine function of access `slot`:   body = scale * @slot + shift, neither of which reads the access.
/// None if the map does not have this form.
struct AffineForm {
    ScalarBody scale, shift;  ///< over the accesses of the expression; `shift` is empty where it is 0
    bool scales = true;       ///< the scale is not 1
};
std::optional<AffineForm> affine_in(const TensorExpr& e, uint32_t slot);

/// Builds a patch.
class PatchWriter {
  public:
    /// New values and primitives get names derived from the value that the primitive `at` computes.
    PatchWriter(const RewriteContext& context, PrimitiveId at) : context_(context), at_(at) {}

    ValueId make(TensorExpr expr, DType dtype, std::string_view role);
    ValueId constant(Tensor tensor, std::string_view role);
    /// Makes `expr` the new definition of `value`, a value of the program.
    void define(ValueId value, TensorExpr expr);
    const Value& value(ValueId v) const;
    /// The expression that defines a value in this patch; null for other values.
    const TensorExpr* made(ValueId v) const;
    Patch take() { return std::move(patch_); }

  private:
    const RewriteContext& context_;
    PrimitiveId at_;
    Patch patch_;
};

/// `e` with access `slot` reading `value` instead, at the same index. If `value` is a view defined in this patch, the
/// access reads the view's source.
TensorExpr with_operand(const PatchWriter& patch, const TensorExpr& e, uint32_t slot, ValueId value);

/// `e` with the constant `number` in place of access `slot`, which reads a value filled with it
/// (RewriteContext::fill). An access with conditions is replaced only where they hold; the slot must not be read
/// elsewhere.
TensorExpr with_number(const TensorExpr& e, uint32_t slot, double number);

}  // namespace tilewright
