#pragma once
// Builder: the interface with which ONNX operators are lowered to primitives. Every function appends to one Program
// and returns the new value.
//
// Shapes are inferred while the primitives are written, so an operator's shape is computed in one place. Contents that
// are known at compile time are folded at once: an expression over constant tensors becomes a constant. Integer
// expressions over dimensions (the Shape/Gather/Concat/Reshape arithmetic of exporters) are carried as Exprs and never
// reach the compiled program.

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "program/program.h"

namespace tilewright {

using Dims = std::vector<Expr>;

/// Elements of a tensor whose contents are evaluated at compile time.
inline constexpr int64_t kMaxKnownElements = 4096;

class Builder {
  public:
    explicit Builder(Program& program) : program_(program), symbols_(std::make_shared<std::set<std::string>>()) {}
    /// For the body of a control-flow primitive: fresh symbols and scalars do not occur in `outer`'s program.
    Builder(Program& program, const Builder& outer)
        : check_values(outer.check_values), program_(program), described_(outer.described_), symbols_(outer.symbols_) {}
    Program& program() { return program_; }
    /// Declares the program's outputs; values that exist only as known contents are materialised. Call once, last.
    void set_outputs(std::vector<ValueId> outputs);

    /// Names for the primitives that follow: "<node>/<role>", values likewise. `described` is the node's name in
    /// messages of `fail`; empty: "node 'x' (Conv)".
    void set_source(std::string node, std::string op, std::string described = {});
    const std::string& source_node() const { return node_; }

    // --- values and their known contents
    ValueId input(const std::string& name, DType dtype, Dims shape);
    ValueId constant(Tensor value, std::string_view name = "constant");
    /// A known integer tensor whose elements are expressions (the contents of Shape and values computed from it).
    ValueId int_values(std::vector<Expr> elements, Dims shape, DType dtype = DType::I64);
    template <class T>
    ValueId scalar_constant(DType t, T v) {
        return constant(Tensor::of<T>(t, {}, {v}));
    }

    DType dtype(ValueId v) const { return program_.values[v].dtype; }
    /// Returned by value, because appending primitives reallocates the values.
    Dims shape(ValueId v) const { return program_.values[v].shape; }
    size_t rank(ValueId v) const { return shape(v).size(); }
    Expr count(ValueId v) const { return product(shape(v)); }

    /// The contents if they are numbers; else null.
    const Tensor* contents(ValueId v) const;
    /// The contents of an integer or bool tensor as expressions, row-major, when known at compile time (at most 4096
    /// elements).
    std::optional<std::vector<Expr>> int_contents(ValueId v) const;
    /// As above, but succeeds for every integer tensor of constant element count: elements unknown at compile time are
    /// read at run time (ReadScalar; the result holds fresh scalars, which may be negative or zero). Throws ModelError
    /// when the element count is not constant or the elements are not integers.
    std::vector<Expr> read_ints(ValueId v);
    /// The contents of a one-element tensor. Throws ModelError for any other tensor.
    Expr read_int(ValueId v);
    /// Emits a primitive for a value that exists only as known contents (int_values). Appending a primitive that reads
    /// the value does so automatically.
    void materialize(ValueId v);
    /// Gives a value its ONNX name, made unique.
    void rename(ValueId v, const std::string& name);
    /// True when int_contents returns a result.
    bool known(ValueId v) const { return int_contents(v).has_value(); }
    /// A fresh, unbound symbol for a data-dependent dimension (NonZero); bound when the value is produced.
    Expr fresh_symbol(std::string_view hint);
    /// A dimension, start or step as a short expression. A long expression (usually of scalars read at run time) is
    /// computed once at run time and replaced by a scalar; equal expressions share the scalar.
    Expr settled(Expr e);
    /// A fresh scalar bound to element `position` of `v` by a ReadScalar.
    Expr read_scalar(ValueId v, int64_t position);

    // --- primitives
    /// Appends out = expr. The output's shape is expr's spatial extents (output_index must be empty). Index expressions
    /// and conditions are simplified; conditions that always hold are dropped.
    ValueId emit(TensorExpr expr, DType dtype, std::string_view role);
    std::vector<ValueId> emit_opaque(std::shared_ptr<const OpaqueOp> op, std::vector<ValueId> inputs,
                                     std::vector<std::pair<DType, Dims>> outputs, std::string_view role);
    /// For control flow: appends a primitive with the given outputs.
    std::vector<ValueId> emit_control(std::variant<TensorExpr, Opaque, ReadScalar, If, Loop> kind,
                                      std::vector<std::pair<DType, Dims>> outputs, std::string_view role);

    // --- elementwise, numpy broadcasting
    using Fn = std::function<ScalarId(ScalarBody&, std::span<const ScalarId>)>;
    /// out = f(inputs...), each operand broadcast to the common shape. f receives operands in compute_type of their
    /// storage and must return compute_type(out) (Bool for Bool).
    ValueId map(std::initializer_list<ValueId> inputs, DType out, const Fn& f, std::string_view role) {
        return map(std::span<const ValueId>(inputs.begin(), inputs.size()), out, f, role);
    }
    ValueId map(std::span<const ValueId> inputs, DType out, const Fn& f, std::string_view role);
    ValueId unary(ScalarOp op, ValueId a);              ///< same type; predicates give Bool
    ValueId binary(ScalarOp op, ValueId a, ValueId b);  ///< same type; comparisons give Bool
    ValueId select(ValueId condition, ValueId a, ValueId b);
    ValueId cast(ValueId a, DType to);
    /// a op constant, the constant in a's type.
    ValueId binary(ScalarOp op, ValueId a, double constant);
    ValueId full(Dims shape, DType dtype, double value);

    // --- reductions. Axes may be negative; empty `axes` means none (the caller decides what an absent list means).
    ValueId reduce(Reducer reducer, ValueId a, const std::vector<int64_t>& axes, bool keep_dims, std::string_view role);
    /// Reduction over body(a), e.g. sums of squares; body returns compute_type(out).
    ValueId reduce_map(Reducer reducer, std::initializer_list<ValueId> inputs, DType out, const Fn& body,
                       const std::vector<int64_t>& axes, bool keep_dims, std::string_view role);
    /// Mean = sum / count (count may be symbolic). Integers divide with truncation.
    ValueId mean(ValueId a, const std::vector<int64_t>& axes, bool keep_dims);

    // --- products: numpy.matmul semantics with broadcasting batch dimensions; integers allowed (out type given)
    ValueId matmul(ValueId a, ValueId b, std::string_view role = "product");
    /// General: `subscripts` as in einsum ("bij,bjk->bik"), one or two operands, no repeated labels inside one operand.
    ValueId contract(std::string_view subscripts, ValueId a, ValueId b, DType out, std::string_view role);

    // --- layout: elements move, nothing is computed
    ValueId transpose(ValueId a, const std::vector<int64_t>& permutation);
    /// The element counts must agree.
    ValueId reshape(ValueId a, Dims shape);
    ValueId expand(ValueId a, const Dims& shape);  ///< two-way broadcast of a's shape with `shape` (ONNX Expand)
    ValueId unsqueeze(ValueId a, std::vector<int64_t> axes);  ///< positions in the result
    ValueId squeeze(ValueId a, std::vector<int64_t> axes);
    /// out[.., i, ..] = a[.., start + i * step, ..], `count` elements, along one axis; all inside bounds.
    ValueId slice(ValueId a, int64_t axis, Expr start, Expr count, Expr step = 1);
    ValueId concat(std::span<const ValueId> parts, int64_t axis);
    /// Constant padding: `before` and `after` per axis (negative: crop).
    ValueId pad(ValueId a, const Dims& before, const Dims& after, double fill);
    /// out = a[index expressions over the output's axes]: the general layout primitive. Where `valid` fails: fill.
    ValueId view(ValueId a, Dims out_shape, std::vector<Expr> index, std::string_view role,
                 std::vector<Expr> valid = {}, double fill = 0);
    /// numpy.take along one axis; indices (I64 or I32) may be negative. Output: a.shape[:axis] + indices.shape +
    /// a.shape[axis+1:]
    ValueId gather(ValueId a, ValueId indices, int64_t axis);
    /// How an access uses the value that access `slot` loads from `indices` as a position in a dimension of `extent`:
    /// negative positions count from the end. Indices known to be in bounds are unchanged; others are clamped. If
    /// `indices` are tuples (GatherND), this is member `k` of each `n`.
    Expr wrapped_index(size_t slot, ValueId indices, Expr extent, size_t k = 0, size_t n = 1);
    /// Identity: the same value under a new name (for graph outputs that are inputs or constants).
    ValueId copy(ValueId a, std::string_view role = "copy");

    // --- requirements of operators on dimensions. Constants that violate one fail with `message`; for dimensions
    // unknown at compile time the requirement is added once to Program::requirements.
    void require_equal(Expr a, Expr b, const std::string& message, std::string_view what = "dimensions") {
        require(
            Requirement::Kind::Equal, a, b, [&] { return message; }, what);
    }
    /// a == b, or a is 1 and is broadcast.
    void require_spread(Expr a, Expr b, const std::string& message, std::string_view what = "dimensions") {
        require(
            Requirement::Kind::Spread, a, b, [&] { return message; }, what);
    }
    void require_at_least(Expr a, Expr b, const std::string& message, std::string_view what = "dimensions") {
        require(
            Requirement::Kind::AtLeast, a, b, [&] { return message; }, what);
    }
    /// `a` is a multiple of `n`.
    void require_multiple(Expr a, Expr n, const std::string& message, std::string_view what = "dimensions") {
        require_equal(a, floor_div(a, n) * n, message, what);
    }

    // --- helpers
    /// Common numpy shape of several. Equal expressions are unchanged; 1 broadcasts; two unequal unknown dimensions
    /// become max(a, b), with a requirement that they broadcast.
    Dims broadcast(std::span<const Dims> shapes);
    /// Index of a into an output of shape `out` over axes 0..out.size()-1, following numpy broadcasting.
    std::vector<Expr> broadcast_index(const Dims& a, const Dims& out) const;
    /// -rank..rank-1 to 0..rank-1; throws ModelError naming the node.
    int64_t normalize_axis(int64_t axis, size_t rank) const;
    std::vector<int64_t> normalize_axes(const std::vector<int64_t>& axes, size_t rank) const;
    [[noreturn]] void fail(const std::string& message) const;  ///< ModelError: "node 'x' (Conv): message"

    /// Every requirement on run-time values is checked, whatever its cost (Requirement::Check::Always).
    bool check_values = false;
    size_t fold_limit = 1 << 20;  ///< maximum elements of one output folded at once; fold_constants folds larger ones

  private:
    void require(Requirement::Kind kind, Expr a, Expr b, const std::function<std::string()>& message,
                 std::string_view what);
    void require_inside(const TensorExpr& e);
    Expr common_dimension(Expr d, Expr other);
    bool spans_whole(Expr d, Expr whole) const;
    /// The elements in another shape; the caller has checked that the element counts agree.
    ValueId reshaped(ValueId a, Dims shape);
    std::string unique_name(std::string_view role);
    Origin origin();
    std::string unique_symbol(std::string_view hint);
    ValueId new_value(std::string name, DType dtype, Dims shape);
    ValueId append(TensorExpr expr, DType dtype, std::string_view role);
    std::vector<ValueId> append(decltype(Primitive::kind) kind, std::vector<std::pair<DType, Dims>> outputs,
                                std::string_view role);
    TensorExpr normalized(TensorExpr expr) const;
    std::optional<Expr> one_integer(ValueId v) const;
    bool try_fold(const TensorExpr& expr, DType dtype, const Dims& shape, std::string_view role, ValueId& out);
    std::optional<std::vector<ValueId>> try_fold(const OpaqueOp& op, std::span<const ValueId> inputs,
                                                 std::span<const std::pair<DType, Dims>> outputs,
                                                 std::string_view role);

    Program& program_;
    std::string node_, op_, described_;
    std::optional<uint32_t> source_;  ///< node_ and op_ in program_.nodes, set once the node has emitted a primitive
    std::map<std::pair<std::string, std::string>, uint32_t> sources_;
    std::unordered_map<ValueId, std::vector<Expr>> int_values_;
    std::unordered_set<ValueId> pending_;  ///< values with known contents that no primitive computes yet
    std::unordered_map<std::string, int> used_names_;
    std::unordered_map<Expr, Expr> settled_;
    /// For the common dimension of a broadcast: the dimensions required to agree, including itself. Of many dimensions
    /// only the last two, because each common dimension on the way has its own entry.
    std::unordered_map<Expr, std::set<Expr>> made_of_;
    std::set<Var> of_inputs_;                         ///< symbols that are dimensions of the program's inputs
    std::shared_ptr<std::set<std::string>> symbols_;  ///< names of symbols and scalars, shared with nested builders
};

}  // namespace tilewright
