#pragma once
// What rules found, reused for as long as what they looked at stays as it was.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "program/rewrite/rewrite.h"

namespace tilewright {

/// A patch of a program of `known` values: apply_later puts it into another.
struct Finding {
    const RewriteRule* rule;
    const Patch* patch;
    size_t known;
};

/// What a rule can see of a value: its name, type, shape and roles, and the expression that computes it, over ValueIds.
struct ValueForm {
    enum class Maker : uint8_t { None, Constant, Expression, Other };
    std::string name;
    DType dtype = DType::F32;
    std::vector<Expr> shape;
    bool is_output = false, foldable = false;
    Maker maker = Maker::None;  ///< Other: a primitive that is no expression, of which rules see nothing
    const TensorExpr* expression = nullptr;
    std::optional<double> fill;  ///< of a constant
};
/// Floating-point numbers are compared by their bits.
bool same_form(const ValueForm& a, const ValueForm& b);

/// A number for each different form. The hash finds candidates; the forms themselves are compared.
class ValueForms {
  public:
    /// From 1 on; equal exactly where same_form is true. Keeps a copy of the expression.
    uint32_t number(uint64_t hash, ValueForm form);

  private:
    std::vector<ValueForm> forms_;
    std::deque<TensorExpr> expressions_;  ///< of these
    std::unordered_map<uint64_t, std::vector<uint32_t>> by_hash_;
};

/// The search looks at thousands of programs that differ from each other in a few primitives. So a rule runs again on a
/// primitive only where an answer to one of the questions that it asked last time is a different one (a verifying
/// trace, as build systems have them). ValueIds mean the same in all programs that descend from one.
class Findings {
  public:
    explicit Findings(std::vector<const RewriteRule*> rules) : rules_(std::move(rules)) {}

    /// What all rules find, in the order of rules and primitives. Valid until the next call.
    const std::vector<Finding>& find(const RewriteContext& context);
    size_t asked() const { return asked_; }  ///< rules that ran

  private:
    struct Trace {
        std::vector<Asked> questions;
        std::vector<uint32_t> answers;  ///< of all questions, one after the other
        std::vector<Patch> patches;
        size_t known;
    };
    const Trace& trace(const RewriteContext& context, const RewriteRule& rule, PrimitiveId at,
                       std::vector<Trace>& known);
    /// Appends the form of the value, or what its readers compute: how many, and of each the value and its form.
    void answer(const RewriteContext& context, const Asked& asked, std::vector<uint32_t>& out);
    bool same_answers(const RewriteContext& context, const Trace& trace);
    uint32_t form(const RewriteContext& context, ValueId v);

    std::vector<const RewriteRule*> rules_;
    std::vector<std::unordered_map<uint32_t, std::vector<Trace>>> traces_;  ///< by rule, by what `at` computes
    std::vector<Finding> found_;
    ValueForms forms_;
    std::vector<uint32_t> known_forms_, answers_;  ///< of the values of the current program, 0: not looked up yet
    size_t asked_ = 0;
};

}  // namespace tilewright
