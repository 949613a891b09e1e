#pragma once
// Program: a model as primitives, each one tensor expression.
//
//     c[i0, i1] = sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
//
// Korch's categories (elementwise, broadcast, reduce, layout, linear, opaque; Korch §3) are derived from a primitive by
// `category`, never stored beside it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/tensor.h"
#include "index/expr.h"
#include "program/scalar.h"
#include "runtime/opaque.h"

namespace tilewright {

struct ValueTag;
struct PrimitiveTag;
using ValueId = Id<ValueTag>;
using PrimitiveId = Id<PrimitiveTag>;

/// A tensor. Dimensions are over symbols and scalars. A dimension that is a bare, otherwise unbound symbol is bound
/// from the tensor's shape when the tensor is produced (as a program input, or as an output of an opaque primitive or
/// of control flow).
struct Value {
    std::string name;  ///< the ONNX name if there is one, else derived from the node's; unique in the program
    DType dtype = DType::F32;
    std::vector<Expr> shape;
};

enum class Reducer : uint8_t { None, Sum, Prod, Max, Min };  ///< Max and Min propagate NaN; on Bool: or, and
std::string_view to_string(Reducer r);

/// One read of an operand. If any condition is false, nothing is read and the element is `fill`.
struct Access {
    ValueId value;
    std::vector<Expr> index;  ///< one per dimension, over the expression's axes, symbols, scalars, earlier loads
    std::vector<Expr> valid;  ///< conditions, each meaning "expression >= 0"; all must hold. Empty: always valid
    double fill = 0;          ///< exact for the integers it is used with (|fill| <= 2^53) and for +-infinity
    friend bool operator==(const Access&, const Access&) = default;
};

/// out[output_index] = epilogue(reduce over the reduction axes of body). Iteration axes: `spatial` ones first, in the
/// order of the output's dimensions unless `output_index` says otherwise, then the reduction axes. A load() in an index
/// refers to an access of smaller position, of integer type; its value must lie inside the dimension it indexes
/// (operators that allow negative or out-of-range indices wrap or clamp them in the body of an earlier primitive, or by
/// min/max in the index). Reductions of an empty space give the reducer's identity (0, 1, -infinity or lowest,
/// +infinity or highest). Accumulation: compute_type of the body in a backend, in any order; double in the interpreter.
struct TensorExpr {
    std::vector<Expr> extents;  ///< of all axes: spatial, then reduction
    size_t spatial = 0;         ///< number of spatial axes
    std::vector<Access> accesses;
    ScalarBody body;                  ///< over all axes; never empty
    Reducer reducer = Reducer::None;  ///< None exactly when spatial == extents.size()
    ScalarBody epilogue;  ///< over Acc and spatial axes; empty means Acc. Lowered operators have none; fusion creates
                          ///< them (a matrix product with bias and GELU is one expression)
    std::vector<Expr> output_index;  ///< empty: axis k is dimension k. Else one per output dimension, over the spatial
                                     ///< axes, injective; must reach every element of the output
    Ranges ranges() const { return Ranges::of_extents(extents); }
};
/// The index of the result per output dimension: `output_index`, or the spatial axes themselves.
std::vector<Expr> result_index(const TensorExpr& e);
/// Whether the expression refers to a symbol or a scalar.
bool has_names(const TensorExpr& e);

/// An operator that no tensor expression describes (TopK, NonZero, ...): a C++ implementation.
struct Opaque {
    std::shared_ptr<const OpaqueOp> op;
    std::vector<ValueId> inputs;
};

/// Binds scalar `name` to element `position` (row-major) of an integer or bool tensor.
struct ReadScalar {
    ValueId value;
    int64_t position = 0;
    std::string name;
};

struct Program;

/// ONNX If. Both branches take `captures` as inputs, in this order, and return the outputs.
struct If {
    ValueId condition;  ///< Bool, one element
    std::vector<ValueId> captures;
    std::shared_ptr<const Program> then_branch, else_branch;
};

/// ONNX Loop and Scan, and the recurrences of LSTM, GRU and RNN.
/// Body inputs:  iteration number (I64 scalar), [condition (Bool scalar) if has_condition], carried..., one slice per
/// scan
///               input (its axis removed), captures...
/// Body outputs: [condition if has_condition], carried..., one slice per scan output.
/// Outputs of the primitive: carried (final)..., scan outputs, stacked along their axis.
/// Runs while iteration < trip count (if any) and condition (if any) holds.
struct Loop {
    struct ScanInput {
        ValueId value;
        int64_t axis = 0;
        bool reverse = false;  ///< last slice first
    };
    struct ScanOutput {
        int64_t axis = 0;      ///< of the stacked output
        bool reverse = false;  ///< first slice last
    };
    std::optional<Expr> trip_count;  ///< over symbols and scalars; none: only the condition ends the loop
    std::optional<ValueId> condition;
    bool has_condition = false;  ///< the body takes and returns a condition
    std::vector<ValueId> carried;
    std::vector<ScanInput> scan_inputs;
    std::vector<ScanOutput> scan_outputs;
    std::vector<ValueId> captures;
    std::shared_ptr<const Program> body;
};

/// A node of the model.
struct SourceNode {
    std::string name, op;
};

/// The source of a primitive. A pass that replaces primitives passes their origins on.
struct Origin {
    std::vector<uint32_t> nodes;  ///< of the model: positions in Program::nodes, ascending
    std::vector<uint32_t> parts;  ///< for a stage of a plan: the primitives before fusion that it computes, ascending
    void add(const Origin& other);
};

struct Primitive {
    std::string name;              ///< "conv1/products": source node and role
    std::string source;            ///< source operator type ("Conv"), for explanations
    std::vector<ValueId> outputs;  ///< exactly one for a TensorExpr, none for ReadScalar
    std::variant<TensorExpr, Opaque, ReadScalar, If, Loop> kind;
    Origin origin = {};  ///< not part of the printed text or of the semantics

    const TensorExpr* expr() const { return std::get_if<TensorExpr>(&kind); }
    TensorExpr* expr() { return std::get_if<TensorExpr>(&kind); }
    std::vector<ValueId> inputs() const;  ///< each operand once, in order of first use
};

/// A relation between two dimensions, without which the program would read out of bounds. The kinds are the ways in
/// which operators compare dimensions that are unknown at compile time. A requirement is checked as soon as its sides
/// have numbers, before any primitive that relies on it. Kernels extracted from a program have none: the executor of
/// the program has checked them.
struct Requirement {
    enum class Kind : uint8_t {
        Equal,      ///< a == b
        Broadcast,  ///< a == b, or one of them is 1 (the result has the other)
        Spread,     ///< a == b, or a is 1: a is repeated along b
        AtLeast,    ///< a >= b
        Declared,   ///< a >= b, for the range `what` that the user has declared of a symbol; the other side is a number
    };
    Kind kind = Kind::Equal;
    Expr a, b;           ///< over symbols and scalars
    std::string what;    ///< what both sides are, for messages: "dimensions", "element counts"
    std::string source;  ///< origin of the requirement: "node 'x' (Add)"
    /// When it is checked, and what happens if it does not hold.
    enum class Check : uint8_t {
        Free,      ///< dropped with the primitives that compute its sides, unless they only read the program's inputs
        Always,    ///< its sides are computed for the check if nothing else needs them
        Fallback,  ///< as Always; if it does not hold, check() throws NeedsFallback: the fallback program runs instead
    };
    Check when = Check::Free;
    bool holds(int64_t a_is, int64_t b_is) const;
    bool is_about(const Requirement& other) const { return kind == other.kind && a == other.a && b == other.b; }
    /// "node 'x' (Add): dimensions N = 3 and M = 2 do not broadcast"
    std::string violated(int64_t a_is, int64_t b_is) const;
};
std::string_view to_string(Requirement::Kind kind);
std::string_view to_string(Requirement::Check check);

/// A requirement of Check::Fallback does not hold.
class NeedsFallback : public ModelError {
  public:
    using ModelError::ModelError;
};

/// Values of symbols and scalars.
using Bindings = std::map<Var, int64_t>;

/// Where tensors are when a kernel starts: where the kernels before it have left them, in a near cache; in the last
/// cache, as the nearer ones have been filled with others since; or in memory.
enum class Residence : uint8_t { Near, LastCache, Memory };

/// Primitives in topological order. `constants` are the values whose contents are known (weights, folded results).
struct Program {
    std::string name;
    IndexVector<ValueId, Value> values;
    IndexVector<PrimitiveId, Primitive> primitives;
    std::vector<ValueId> inputs, outputs;
    std::map<ValueId, Tensor> constants;
    /// Constants parsed from text without their contents: `constants` holds zeros, this map the hash of the original
    /// contents, which is printed again.
    std::map<ValueId, uint64_t> unread;
    std::vector<SourceNode> nodes;          ///< the model nodes that became primitives; origins refer to them
    std::vector<Requirement> requirements;  ///< without duplicates
    /// The largest values of symbols that the program is for, printed as "bound 512 [$seq]"; other symbols are
    /// unbounded. They are checked before it runs: by requirements of a declared range (program/sizes.h), or by the
    /// dispatch among ways (program/dispatch.h).
    std::map<Var, int64_t> at_most;
    // What heuristics and estimates assume. Neither printed nor semantics.
    Bindings assumed;                          ///< sizes (program/analysis/dynamic.h)
    Residence constants_at = Residence::Near;  ///< the nearest cache that holds all constants has them
    /// Of a kernel's stages: inputs that are such constants, or rows of a KV cache. Others are near.
    std::map<ValueId, Residence> far = {};

    bool is_constant(ValueId v) const { return constants.count(v) != 0; }
    Residence residence(ValueId v) const {
        const auto at = far.find(v);
        return at == far.end() ? Residence::Near : at->second;
    }
    /// Per value: the primitive that computes it (none for inputs and constants), and those that read it.
    IndexVector<ValueId, PrimitiveId> producers() const;
    IndexVector<ValueId, std::vector<PrimitiveId>> consumers() const;
};

enum class Category : uint8_t { Elementwise, Broadcast, Reduce, Layout, Linear, Opaque, Control };
/// Korch §3's category of a primitive, derived from its form: Layout moves elements unchanged; Broadcast repeats some;
/// Linear is a sum of products over a reduction axis that both operands use, or a constant-coefficient linear transform
/// of one operand (constant_transform.h); Reduce is any other reduction; Elementwise is everything else.
Category category(const Program& program, const Primitive& primitive);
std::string_view to_string(Category c);

/// Empty for a valid program, else one sentence per fault, naming primitive and value: topological order, single
/// definition, types, ranks, indices provably inside their dimension wherever the access is valid, shapes equal to
/// extents (or reached through output_index), roots and slots in range, no Acc outside an epilogue, subprogram arity,
/// names of requirements bound by some value or scalar.
std::vector<std::string> verify(const Program& program);
/// Stable text. Constants print as their type and shape with a hash, small ones (up to 64 elements) in full, so that
/// parse(print(p)) prints the same; large constants parse as zeros marked with their hash.
std::string print(const Program& program);
/// Reads `print`'s text; the grammar is in parse.cpp. `opaque` returns the operator whose OpaqueOp::print() is the
/// text, null for an unknown one. Throws ModelError naming the line.
using OpaqueFactory = std::function<std::shared_ptr<const OpaqueOp>(std::string_view text)>;
Program parse_program(std::string_view text, const OpaqueFactory& opaque = {});
/// Hash of type, shape and bytes; the same on every machine and in every process.
uint64_t contents_hash(const Tensor& tensor);
/// The expression alone, as printed after "name = " in print().
std::string print(const Program& program, const TensorExpr& expr);

/// Throws ModelError if a requirement of the program does not hold; `number` evaluates its sides. The hint names the
/// dimensions of the program's inputs that are involved: "give inputs whose sizes fit: N is dimension 0 of 'a'".
void check(const Requirement& requirement, const Program& program, const std::function<int64_t(Expr)>& number);

/// Binds the symbols of `shape` from `actual`: bare symbols are set (or compared if already set), other dimensions
/// are evaluated and compared. Throws ModelError naming `what` and the dimension when they disagree.
void bind_shape(Bindings& bindings, std::span<const Expr> shape, std::span<const int64_t> actual,
                std::string_view what);
/// The positions of the program's inputs, those first whose dimensions are numbers and bare symbols: they bind what the
/// others' dimensions ("$past + $seq") are computed from.
std::vector<size_t> binding_order(const Program& program);
int64_t evaluate(Expr e, const Bindings& bindings);
Shape evaluate(std::span<const Expr> shape, const Bindings& bindings);

/// Reference execution: double precision, every intermediate rounded once to its element type when stored. The
/// bounds of every read are checked (InternalError naming the access), and every requirement (ModelError) as soon as
/// its names have numbers.
struct InterpretOptions {
    /// Keep f32 values in double between primitives, outputs included: their storage is F64. Narrower floats are still
    /// rounded, because the model's semantics include that rounding.
    bool exact = false;
};
std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs,
                              const InterpretOptions& options = {});
/// One expression on given operands (in the order of `accesses`; a value read twice is given twice).
Tensor interpret(const TensorExpr& expr, std::span<const Tensor> operands, DType out,
                 std::span<const int64_t> out_shape, const Bindings& bindings, const InterpretOptions& options = {});

}  // namespace tilewright
