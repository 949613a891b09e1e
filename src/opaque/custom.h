#pragma once
// Operators that a caller of the library defines as functions (tilewright.h, "Custom operators").
//
// CustomOperator has the functions. A node of it is an opaque operator, whose text has the operator's name and the
// node's attributes but no pointer: a compiled model in a file finds its operators again by name.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/tensor.h"
#include "index/expr.h"
#include "opaque/operators.h"
#include "runtime/opaque.h"

namespace tilewright {

/// A tensor attribute: an operand of the node behind its inputs, so that its elements are a constant like others.
struct TensorOperand {
    size_t operand = 0;
};
using CustomAttribute =
    std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>, TensorOperand>;

/// A node of a custom operator.
struct CustomNode {
    std::string name;     ///< in the model, for messages
    int64_t version = 1;  ///< of the operator's domain that the node's model imports
    std::map<std::string, CustomAttribute> attributes;
    size_t inputs = 0, outputs = 0;
};

/// An output whose size is only known once the operator has computed it.
inline constexpr int64_t kUnknownSize = -1;

/// Sizes of tensors as 64-bit integers: numbers, or codes below kUnknownSize for expressions of dynamic sizes. Equal
/// expressions have equal codes. Codes are far apart, so that arithmetic on them yields none.
class SizeCodes {
  public:
    int64_t code(Expr e);
    /// The expression of a number or code; none for other integers.
    std::optional<Expr> size(int64_t code) const;

  private:
    std::vector<Expr> expressions_;
};

/// One call of a custom operator's functions.
class CustomCall {
  public:
    struct Operand {
        bool given = false;  ///< false: an optional input that the node leaves out
        DType dtype = DType::F32;
        Shape sizes;
        const void* data = nullptr;  ///< null where the contents are not known
    };
    struct Result {
        std::optional<DType> dtype;  ///< once infer has said it
        Shape sizes;
        std::optional<TensorView> tensor;  ///< once it has memory
    };

    CustomCall(const CustomNode& of, std::vector<Operand> given)
        : node(of), operands(std::move(given)), results(of.outputs) {}

    const CustomNode& node;
    std::vector<Operand> operands;  ///< inputs, then tensors of attributes
    std::vector<Result> results;

    /// infer: the type and the sizes of an output.
    void set_output(size_t k, DType dtype, Shape sizes);
    /// compute: memory for an output of which infer left a size unknown.
    void* allocate(size_t k, const Shape& sizes);
    /// Arithmetic on sizes, in infer.
    using Arithmetic = Expr (*)(Expr, Expr);
    int64_t combine(int64_t a, int64_t b, Arithmetic f);

    SizeCodes codes;
    OpaqueOutputs* memory = nullptr;  ///< in compute
};

struct CustomOperator {
    std::string domain, name;
    int64_t version = 1;      ///< first version of the domain's operator set that has it
    size_t least_inputs = 0;  ///< those behind them may be left out
    size_t most_inputs = SIZE_MAX, most_outputs = SIZE_MAX;
    bool varies = false;  ///< equal inputs may give different outputs
    /// Both throw ModelError with what is wrong. Called by any thread, by several at the same time.
    std::function<void(CustomCall&)> infer, compute;
};

/// "com.example.Filter"
std::string operator_title(std::string_view domain, std::string_view name);

/// Operators by name. Immutable once it is used.
class CustomOperators {
  public:
    /// Stand-ins for all names, whose functions throw: for models that are not run.
    static CustomOperators any();
    /// Throws ModelError where it has an equal one.
    void add(std::shared_ptr<const CustomOperator> op);
    bool empty() const { return by_name_.empty() && !any_; }
    /// Whether any version has the name.
    bool has(const std::string& domain, const std::string& name) const;
    /// The newest with version <= `version`. Throws ModelError where there is none.
    std::shared_ptr<const CustomOperator> find(const std::string& domain, const std::string& name,
                                               int64_t version) const;

  private:
    std::map<std::pair<std::string, std::string>, std::map<int64_t, std::shared_ptr<const CustomOperator>>> by_name_;
    bool any_ = false;
};

/// What infer says of an output while the model is compiled; nothing for an unknown size.
struct InferredOutput {
    DType dtype = DType::F32;
    std::vector<std::optional<Expr>> shape;
};
/// An operand while the model is compiled; `contents`: null where they are not known.
struct KnownOperand {
    bool given = false;
    DType dtype = DType::F32;
    std::vector<Expr> shape;
    const void* contents = nullptr;
};
std::vector<InferredOutput> infer_outputs(const CustomOperator& op, const CustomNode& node,
                                          const std::vector<KnownOperand>& operands);

namespace opaque {
/// (inputs, tensors of attributes) -> outputs
Operator custom(std::shared_ptr<const CustomOperator> op, CustomNode node);
}  // namespace opaque

/// The operator that a node made by opaque::custom calls; null for other operators.
std::shared_ptr<const CustomOperator> custom_operator_of(const OpaqueOp& op);

}  // namespace tilewright
