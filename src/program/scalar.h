#pragma once
// Scalar expressions: the computation of a primitive at one point of its iteration space.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "index/expr.h"

namespace tilewright {

/// Semantics of every operator: floating-point arithmetic is IEEE 754 without reassociation inside one body (a
/// backend may contract a*b+c into a fused multiply-add, and approximates transcendentals within the error that its
/// documentation states); integers wrap modulo 2^bits; nothing traps: integer division and remainder by zero give 0.
///
/// The operators, and what each computes, are the rows of scalar_ops.def; scalar_ops.h has their properties.
enum class ScalarOp : uint8_t {
#define TW_SCALAR_OP(op, ...) op,
#define TW_SCALAR_FUNCTION(op, ...) op,
#include "program/scalar_ops.def"
};

inline bool is_comparison(ScalarOp op) { return op >= ScalarOp::Eq && op <= ScalarOp::Ge; }

std::string_view to_string(ScalarOp op);  ///< "add", "floormod", ...
int arity(ScalarOp op);
std::optional<ScalarOp> scalar_op_from_string(std::string_view name);  ///< inner operators only, no leaves

struct ScalarTag;
using ScalarId = Id<ScalarTag>;

struct ScalarNode {
    ScalarOp op = ScalarOp::Const;
    DType dtype = DType::F32;  ///< type of the result; Cast is the only operator for which it may be F16 or BF16
    ScalarId a, b, c;
    double value = 0;                                                        ///< Const, floats
    int64_t int_value = 0;                                                   ///< Const, integers and bool
    uint32_t slot = 0;                                                       ///< Access
    Expr index;                                                              ///< Index
    std::shared_ptr<const std::vector<double>> table = nullptr;              ///< Table
    friend bool operator==(const ScalarNode&, const ScalarNode&) = default;  // `add` compares floats by bits instead
};

/// A small immutable DAG of scalar nodes in topological order; the last root is the result. Nodes are hash-consed
/// by `add`, which also folds constants and removes identities that hold for every operand (x * 1, x + 0 on integers,
/// select with a constant condition, cast to the same type; not x * 0, not x + 0 on floats: -0 + 0 is 0).
class ScalarBody {
  public:
    ScalarId add(ScalarNode node);
    ScalarId constant(DType t, double v);
    ScalarId int_constant(DType t, int64_t v);
    ScalarId access(uint32_t slot, DType storage);
    ScalarId index(Expr e);
    ScalarId acc(DType t);
    ScalarId unary(ScalarOp op, ScalarId a);
    ScalarId binary(ScalarOp op, ScalarId a, ScalarId b);
    ScalarId select(ScalarId condition, ScalarId a, ScalarId b);
    ScalarId cast(DType t, ScalarId a);
    ScalarId bitcast(DType t, ScalarId a);
    /// F32 or F64; `position` is I64. The numbers must be representable in the type.
    ScalarId table(DType t, std::shared_ptr<const std::vector<double>> numbers, ScalarId position);

    void set_root(ScalarId root) { root_ = root; }
    ScalarId root() const { return root_; }
    bool empty() const { return nodes_.empty(); }
    const IndexVector<ScalarId, ScalarNode>& nodes() const { return nodes_; }
    const ScalarNode& operator[](ScalarId id) const { return nodes_[id]; }
    DType dtype() const { return nodes_[root_].dtype; }

    /// Copies `other` into this body and returns the copy of its root. `map_leaf` may replace a leaf (Access, Acc,
    /// Index) by a node of this body; if it returns none, the leaf is copied.
    ScalarId inline_body(const ScalarBody& other,
                         const std::function<ScalarId(ScalarBody&, const ScalarNode&)>& map_leaf);
    /// The same body without dead nodes.
    ScalarBody pruned() const;
    /// Slots of live accesses, ascending.
    std::vector<uint32_t> slots() const;
    bool uses_acc() const;

    /// One line: "mul(@0, add(@1, 1.0))"; common subexpressions are repeated in the text (past some length they get
    /// names: "let t0 = exp(@0) in ..."). Floats print so that they read back exactly. `parse_scalar` (scalar_text.h)
    /// needs the storage types of the accesses and the type of Acc.
    std::string print() const;

    friend bool operator==(const ScalarBody&, const ScalarBody&);

  private:
    /// The existing equal node, if any.
    ScalarId find(const ScalarNode& node);

    IndexVector<ScalarId, ScalarNode> nodes_;
    ScalarId root_;
    /// Hash table over the nodes of a large body, with open addressing: node number + 1, or 0 for an empty slot.
    std::vector<uint32_t> table_;
};

}  // namespace tilewright
