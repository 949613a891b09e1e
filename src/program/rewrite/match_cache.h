#pragma once
// A cache of rule matches. A match is reused while the properties that the rule read are unchanged.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "program/rewrite/rewrite.h"

namespace tilewright {

/// A patch of a program that had `known` values; apply_later inserts it into another program.
struct RuleMatch {
    const RewriteRule* rule;
    const Patch* patch;
    size_t known;
};

/// The properties of a value that a rule can read: name, type, shape, roles, and the expression that defines it, over
/// ValueIds.
struct ValueForm {
    enum class Maker : uint8_t { None, Constant, Expression, Other };
    std::string name;
    DType dtype = DType::F32;
    std::vector<Expr> shape;
    bool is_output = false, foldable = false;
    Maker maker = Maker::None;  ///< Other: a primitive that is not an expression, opaque to rules
    const TensorExpr* expression = nullptr;
    std::optional<double> fill;  ///< of a constant
};
/// Floating-point numbers are compared by their bits.
bool same_form(const ValueForm& a, const ValueForm& b);

/// Numbers distinct forms. The hash selects candidates; the forms themselves are compared.
class ValueForms {
  public:
    /// Counts from 1; two numbers are equal exactly if same_form is true. Keeps a copy of the expression.
    uint32_t number(uint64_t hash, ValueForm form);

  private:
    std::vector<ValueForm> forms_;
    std::deque<TensorExpr> expressions_;  ///< the expressions of `forms_`
    std::unordered_map<uint64_t, std::vector<uint32_t>> by_hash_;
};

/// The search expands thousands of programs that differ from each other in a few primitives. A rule therefore runs
/// again on a primitive only if a property that it read in the previous run has changed (a verifying trace, as in build
/// systems). ValueIds have the same meaning in all programs derived from one.
class MatchCache {
  public:
    explicit MatchCache(std::vector<const RewriteRule*> rules) : rules_(std::move(rules)) {}

    /// The matches of all rules, in the order of rules and primitives. Valid until the next call.
    const std::vector<RuleMatch>& find(const RewriteContext& context);
    size_t rule_runs() const { return rule_runs_; }

  private:
    struct Trace {
        std::vector<RuleDependency> dependencies;
        std::vector<uint32_t> properties;  ///< of all dependencies, concatenated
        std::vector<Patch> patches;
        size_t known;
    };
    const Trace& trace(const RewriteContext& context, const RewriteRule& rule, PrimitiveId at,
                       std::vector<Trace>& known);
    /// Appends the form of the value, or of its readers: their count, and of each the value and its form.
    void append_properties(const RewriteContext& context, const RuleDependency& dependency, std::vector<uint32_t>& out);
    bool unchanged(const RewriteContext& context, const Trace& trace);
    uint32_t form(const RewriteContext& context, ValueId v);

    std::vector<const RewriteRule*> rules_;
    std::vector<std::unordered_map<uint32_t, std::vector<Trace>>>
        traces_;  ///< by rule, by the value that `at` computes
    std::vector<RuleMatch> found_;
    ValueForms forms_;
    std::vector<uint32_t> value_forms_;  ///< indexed by value of the current program, 0: not computed yet
    std::vector<uint32_t> current_;      ///< properties being compared
    size_t rule_runs_ = 0;
};

}  // namespace tilewright
