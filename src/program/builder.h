#pragma once
// Builder: how fission rules write primitives. Every function appends to one Program and returns the new value.
//
// Shapes are inferred as the primitives are written: there is no second place where an operator's shape is computed.
// What is known of contents at compile time is folded at once: an expression over known tensors becomes a constant, and
// integer expressions over dimensions (the Shape/Gather/Concat/Reshape arithmetic of exporters) are carried as Exprs
// and never reach the program that runs.

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

/// Elements of a tensor whose contents are followed at compile time.
inline constexpr int64_t kMaxKnownElements = 4096;

class Builder {
  public:
    explicit Builder(Program& program) : program_(program), symbols_(std::make_shared<std::set<std::string>>()) {}
    /// For the body of a control-flow primitive: fresh symbols and scalars are new in `outer`'s program too.
    Builder(Program& program, const Builder& outer)
        : check_values(outer.check_values), program_(program), described_(outer.described_), symbols_(outer.symbols_) {}
    Program& program() { return program_; }
    /// Declares the program's outputs, materialising those that are known contents only. Call once, last.
    void set_outputs(std::vector<ValueId> outputs);

    /// Names for what follows: primitives are called "<node>/<role>", values likewise. `described` is how `fail` names
    /// the node; empty: "node 'x' (Conv)".
    void set_source(std::string node, std::string op, std::string described = {});
    const std::string& source_node() const { return node_; }

    // --- values and what is known of them
    ValueId input(const std::string& name, DType dtype, Dims shape);
    ValueId constant(Tensor value, std::string_view name = "constant");
    /// A known integer tensor whose elements are expressions (contents of Shape and what is computed from it).
    ValueId int_values(std::vector<Expr> elements, Dims shape, DType dtype = DType::I64);
    template <class T>
    ValueId scalar_constant(DType t, T v) {
        return constant(Tensor::of<T>(t, {}, {v}));
    }

    DType dtype(ValueId v) const { return program_.values[v].dtype; }
    /// By value: writing primitives moves the values around.
    Dims shape(ValueId v) const { return program_.values[v].shape; }
    size_t rank(ValueId v) const { return shape(v).size(); }
    Expr count(ValueId v) const { return product(shape(v)); }

    /// The contents, when they are numbers; else null.
    const Tensor* contents(ValueId v) const;
    /// The contents of an integer or bool tensor as expressions, row-major, when known at compile time (at most 4096
    /// elements).
    std::optional<std::vector<Expr>> int_contents(ValueId v) const;
    /// The same, never failing for an integer tensor of constant element count: what is not known at compile time is
    /// read when the model runs (ReadScalar; the result holds fresh scalars, which may be negative or zero).
    /// Throws ModelError when the element count is not constant, or the elements are no integers.
    std::vector<Expr> read_ints(ValueId v);
    /// The same for the number that a tensor of one element holds. Throws ModelError when it has none, or more.
    Expr read_int(ValueId v);
    /// Makes a value that is known contents only (int_values) one that the running program computes. Appending a
    /// primitive that reads it does so by itself.
    void materialize(ValueId v);
    /// Gives a value its ONNX name (made unique).
    void rename(ValueId v, const std::string& name);
    /// True when int_contents would give something.
    bool known(ValueId v) const { return int_contents(v).has_value(); }
    /// A fresh, unbound symbol, for a dimension that only the data decides (NonZero); bound when the value comes to be.
    Expr fresh_symbol(std::string_view hint);
    /// A dimension, start or step as a short expression. One that has grown long (most of all from numbers that the
    /// data gives) is computed once when the model runs, and stands for a scalar from here on; equal ones for the same.
    Expr settled(Expr e);
    /// A fresh scalar bound to element `position` of `v` by a ReadScalar.
    Expr read_scalar(ValueId v, int64_t position);

    // --- primitives
    /// Appends out = expr. The output's shape is expr's spatial extents (output_index must be empty). Index expressions
    /// and conditions are simplified; conditions that always hold are dropped.
    ValueId emit(TensorExpr expr, DType dtype, std::string_view role);
    std::vector<ValueId> emit_opaque(std::shared_ptr<const OpaqueOp> op, std::vector<ValueId> inputs,
                                     std::vector<std::pair<DType, Dims>> outputs, std::string_view role);
    /// For control flow: appends a primitive whose outputs are declared as given.
    std::vector<ValueId> emit_control(std::variant<TensorExpr, Opaque, ReadScalar, If, Loop> kind,
                                      std::vector<std::pair<DType, Dims>> outputs, std::string_view role);

    // --- elementwise, numpy broadcasting
    using Fn = std::function<ScalarId(ScalarBody&, std::span<const ScalarId>)>;
    /// out = f(inputs...), each operand broadcast to the common shape. f sees operands in compute_type of their storage
    /// and must give compute_type(out) (Bool for Bool).
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
    /// reduce over body(a), e.g. sums of squares; body gives compute_type(out).
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
    /// numpy.take along one axis; indices (I64 or I32) may be negative. Out: a.shape[:axis] + indices.shape +
    /// a.shape[axis+1:]
    ValueId gather(ValueId a, ValueId indices, int64_t axis);
    /// How an access uses what access `slot` loads from `indices` as a position in a dimension of `extent`: negative
    /// ones count from the end. Indices known to be inside stay as they are; any other is made to lie inside. Where
    /// `indices` are tuples (GatherND), member `k` of each `n` is meant.
    Expr wrapped_index(size_t slot, ValueId indices, Expr extent, size_t k = 0, size_t n = 1);
    /// Removes nothing, adds nothing: the same value under a new name (for graph outputs that are inputs or constants).
    ValueId copy(ValueId a, std::string_view role = "copy");

    // --- what operators ask of dimensions. Known numbers that do not fit fail with `message`; where a number is not
    // known, what must hold is written down in Program::requirements, once.
    void require_equal(Expr a, Expr b, const std::string& message, std::string_view what = "dimensions") {
        require(
            Requirement::Kind::Equal, a, b, [&] { return message; }, what);
    }
    /// a == b, or a is 1 and repeated.
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
    /// Common numpy shape of several. Equal expressions stay; 1 gives way; two unequal unknown dimensions become max(a,
    /// b), and it is required that they broadcast.
    Dims broadcast(std::span<const Dims> shapes);
    /// Index of a into an output of shape `out` over axes 0..out.size()-1, following numpy broadcasting.
    std::vector<Expr> broadcast_index(const Dims& a, const Dims& out) const;
    /// -rank..rank-1 to 0..rank-1; throws ModelError naming the node.
    int64_t normalize_axis(int64_t axis, size_t rank) const;
    std::vector<int64_t> normalize_axes(const std::vector<int64_t>& axes, size_t rank) const;
    [[noreturn]] void fail(const std::string& message) const;  ///< ModelError: "node 'x' (Conv): message"

    /// Everything that a run's values must satisfy is checked, whatever that costs (Requirement::Check::Always).
    bool check_values = false;
    size_t fold_limit = 1 << 20;  ///< elements of one output folded at once; larger ones are left to fold_constants

  private:
    void require(Requirement::Kind kind, Expr a, Expr b, const std::function<std::string()>& message,
                 std::string_view what);
    void require_inside(const TensorExpr& e);
    Expr common_dimension(Expr d, Expr other);
    bool spans_whole(Expr d, Expr whole) const;
    /// The elements in another shape; who calls this has made sure that there are as many.
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
    std::optional<uint32_t> source_;  ///< node_ and op_ in program_.nodes, once something came of them
    std::map<std::pair<std::string, std::string>, uint32_t> sources_;
    std::unordered_map<ValueId, std::vector<Expr>> int_values_;
    std::unordered_set<ValueId> pending_;  ///< known contents that no primitive computes yet
    std::unordered_map<std::string, int> used_names_;
    std::unordered_map<Expr, Expr> settled_;
    /// Of a broadcast's common dimension, the dimensions that were required to fit each other, itself included. Of
    /// many, the last two alone: each common dimension on the way is one.
    std::unordered_map<Expr, std::set<Expr>> made_of_;
    std::set<Var> of_inputs_;                         ///< symbols that are dimensions of the program's inputs
    std::shared_ptr<std::set<std::string>> symbols_;  ///< names of symbols and scalars, shared with nested builders
};

}  // namespace tilewright
