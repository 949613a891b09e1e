// If. A branch that is known to be taken is inlined. Otherwise both become separate programs. If their outputs differ
// in rank, all subsequent nodes are lowered in both, up to the end of the program.

#include <algorithm>
#include <array>

#include "base/error.h"
#include "opaque/operators.h"
#include "ops/control.h"

namespace tilewright::control {

const Graph& body_attr(NodeContext& c, const std::string& name) {
    const Graph* g = c.node.attr_graph(name);
    c.require(g != nullptr, fmt::format("attribute '{}' is missing", name));
    return *g;
}

std::set<Var> visible_names(const Program& p) {
    std::set<Var> out;
    for (const Value& v : p.values)
        for (const Expr d : v.shape)
            for (const Var name : variables(d)) out.insert(name);
    for (const Primitive& q : p.primitives)
        if (const auto* read = std::get_if<ReadScalar>(&q.kind)) out.insert(*scalar(read->name).as_var());
    return out;
}

bool is_visible(Expr d, const std::set<Var>& names) {
    const std::vector<Var> used = variables(d);
    return std::all_of(used.begin(), used.end(), [&](Var v) { return names.count(v) != 0; });
}

const Value& output(const NodeContext::Body& body, size_t k) {
    return body.program->values[body.program->outputs.at(k)];
}

namespace {

using Body = NodeContext::Body;

/// Gives both branches the same inputs: the union of their captures, in one order.
std::vector<ValueId> unite_captures(Body& a, Body& b) {
    std::vector<ValueId> all = a.captures;
    for (const ValueId v : b.captures)
        if (std::find(all.begin(), all.end(), v) == all.end()) all.push_back(v);
    const auto reorder = [&](Body& body, const Body& other) {
        std::vector<ValueId> inputs;
        for (const ValueId v : all) {
            const auto own = std::find(body.captures.begin(), body.captures.end(), v);
            if (own != body.captures.end()) {
                inputs.push_back(body.program->inputs[static_cast<size_t>(own - body.captures.begin())]);
                continue;
            }
            const auto theirs = std::find(other.captures.begin(), other.captures.end(), v) - other.captures.begin();
            Value unused = other.program->values[other.program->inputs[static_cast<size_t>(theirs)]];
            unused.name = fmt::format("unused{}", inputs.size());
            inputs.push_back(body.program->values.push_back(std::move(unused)));
        }
        return inputs;
    };
    std::vector<ValueId> inputs_a = reorder(a, b), inputs_b = reorder(b, a);
    a.program->inputs = std::move(inputs_a);
    b.program->inputs = std::move(inputs_b);
    return all;
}

/// The type of an output of both branches: dimensions that differ are bound at run time.
std::pair<DType, Dims> common_type(NodeContext& c, size_t k, const Value& a, const Value& b,
                                   const std::set<Var>& names) {
    c.require(a.dtype == b.dtype, fmt::format("output {} has type {} in one branch and {} in the other", k,
                                              to_string(a.dtype), to_string(b.dtype)));
    if (a.shape.size() != b.shape.size())
        c.unsupported(
            fmt::format("the rank of the graph's output {} depends on the branch taken: it has shape {} in one branch "
                        "and {} in the other",
                        quoted_name(a.name), to_string(a.shape), to_string(b.shape)));
    Dims shape;
    for (size_t d = 0; d < a.shape.size(); ++d) {
        const bool agreed = a.shape[d] == b.shape[d] && is_visible(a.shape[d], names);
        shape.push_back(agreed ? a.shape[d] : c.b.fresh_symbol(fmt::format("out{}_d{}", k, d)));
    }
    return {a.dtype, std::move(shape)};
}

std::vector<ValueId> emit_if(NodeContext& c, Body a, Body b) {
    If branch{c.in(0), unite_captures(a, b), a.program, b.program};
    const std::set<Var> names = visible_names(c.b.program());
    std::vector<std::pair<DType, Dims>> types;
    for (size_t k = 0; k < a.program->outputs.size(); ++k)
        types.push_back(common_type(c, k, output(a, k), output(b, k), names));
    return c.b.emit_control(std::move(branch), std::move(types), "if");
}

void inline_branch(NodeContext& c, const Graph& branch) {
    const std::vector<ValueId> out = c.inline_body(branch, {});
    for (size_t k = 0; k < out.size(); ++k) c.out(k, out[k]);
}

// --- branches whose outputs differ in rank

/// Lowers only `branch`: the other one is invalid, and taking it is a run-time error.
void lower_valid_branch(NodeContext& c, const Graph& branch, bool condition, const std::string& why_other_is_invalid) {
    auto require = opaque::require_condition(
        condition, fmt::format("{}: the condition is {}, and the branch for it is invalid: {}", c.node.describe(),
                               condition ? "false" : "true", why_other_is_invalid));
    std::vector<Requirement>& required = c.b.program().requirements;
    const size_t before = required.size();
    const std::vector<ValueId> given = c.inline_body(branch, {});
    // They are checked before the condition.
    for (size_t k = before; k < required.size(); ++k)
        required[k].source += fmt::format(", in the only valid branch of {} (the other one: {})", c.node.describe(),
                                          why_other_is_invalid);
    std::vector<ValueId> inputs = {c.in(0)};
    std::vector<std::pair<DType, Dims>> types;
    for (const ValueId v : given) {
        inputs.push_back(v);
        types.emplace_back(c.b.dtype(v), c.b.shape(v));
    }
    const std::vector<ValueId> out = c.b.emit_opaque(std::move(require), std::move(inputs), std::move(types), "taken");
    for (size_t k = 0; k < out.size(); ++k) c.out(k, out[k]);
}

/// torch's squeeze of a dynamic dimension becomes such an If, and usually only one of its branches is valid: the other
/// violates a requirement of a subsequent operator. So both branches are lowered to the end; if one of them is invalid,
/// the other is used.
void lower_both_branches(NodeContext& c, const Graph& then_graph, const Graph& else_graph) {
    struct BranchAttempt {
        const Graph& branch;
        std::optional<Body> body;
        std::optional<ModelError> error;
    };
    std::array<BranchAttempt, 2> attempts = {BranchAttempt{then_graph, {}, {}}, BranchAttempt{else_graph, {}, {}}};
    // First only up to the next such If, which usually suffices to reject a branch: otherwise a chain of such Ifs would
    // take exponential time.
    for (const bool to_next_split : {true, false}) {
        for (BranchAttempt& attempt : attempts) {
            if (attempt.body || attempt.error) continue;
            try {
                attempt.body = c.lower_to_end(attempt.branch, to_next_split);
            } catch (const Unsupported&) {
                throw;
            } catch (const ModelError& e) {
                attempt.error = e;
            }
        }
        if (attempts[0].error && attempts[1].error) throw ModelError(*attempts[0].error);
        if (attempts[1].error) return lower_valid_branch(c, then_graph, true, attempts[1].error->what());
        if (attempts[0].error) return lower_valid_branch(c, else_graph, false, attempts[0].error->what());
    }
    c.finish(emit_if(c, std::move(*attempts[0].body), std::move(*attempts[1].body)));
}

}  // namespace

void if_lowering(NodeContext& c) {
    const Graph &then_graph = body_attr(c, "then_branch"), &else_graph = body_attr(c, "else_branch");
    c.require(c.b.count(c.in(0)).is_constant(1) || !c.b.count(c.in(0)).is_constant(),
              fmt::format("the condition should have one element, and has shape {}", to_string(c.shape(0))));
    c.require(c.dtype(0) == DType::Bool, "the condition must be boolean");
    const size_t n = c.node.outputs.size();
    c.require(then_graph.outputs.size() == n && else_graph.outputs.size() == n,
              fmt::format("{} outputs are named, and the branches give {} and {}", n, then_graph.outputs.size(),
                          else_graph.outputs.size()));
    if (const auto known = c.b.int_contents(c.in(0)); known && known->size() == 1 && known->front().is_constant())
        return inline_branch(c, known->front().is_constant(0) ? else_graph : then_graph);
    Body a = c.lower_body(then_graph, {}), b = c.lower_body(else_graph, {});
    for (size_t k = 0; k < n; ++k)
        if (output(a, k).shape.size() != output(b, k).shape.size())
            return lower_both_branches(c, then_graph, else_graph);
    const std::vector<ValueId> out = emit_if(c, std::move(a), std::move(b));
    for (size_t k = 0; k < n; ++k) c.out(k, out[k]);
}

}  // namespace tilewright::control
