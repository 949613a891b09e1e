#pragma once
// What rules found, for as long as what they looked at stays as it was.

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

/// The search looks at thousands of programs that differ from each other in a few primitives. So a rule is asked again
/// about a primitive only where it would get another answer to one of the questions that it asked last time: the
/// questions are repeated in its place (a verifying trace, as build systems have them). ValueIds mean the same in all
/// programs that descend from one.
class Findings {
  public:
    explicit Findings(std::vector<const RewriteRule*> rules) : rules_(std::move(rules)) {}

    /// What all rules find, in the order of rules and primitives. Valid until the next call.
    const std::vector<Finding>& find(const RewriteContext& context);
    size_t asked() const { return asked_; }  ///< rules that were asked

  private:
    struct Trace {
        std::vector<Asked> questions;
        uint64_t answers;
        std::vector<Patch> patches;
        size_t known;
    };
    const Trace& trace(const RewriteContext& context, const RewriteRule& rule, PrimitiveId at,
                       std::vector<Trace>& known);

    std::vector<const RewriteRule*> rules_;
    std::vector<std::unordered_map<uint32_t, std::vector<Trace>>> traces_;  ///< by rule, by what `at` computes
    std::vector<Finding> found_;
    size_t asked_ = 0;
};

}  // namespace tilewright
