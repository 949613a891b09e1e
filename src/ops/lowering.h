#pragma once
// Fission: Graph of operators -> Program of primitives (Korch §3), one rule per operator, one file per family.
//
// A rule reads its node and writes the plainest mathematics through the Builder; shapes come out of that. Semantics
// follow the operator's version at the node's opset.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"
#include "program/builder.h"

namespace tilewright {

/// What a rule throws when it understands the node but has no implementation for what it asks. `check` lists these.
class Unsupported : public ModelError {
  public:
    using ModelError::ModelError;
};

class GraphLowering;

/// One node on its way into the program.
class NodeContext {
  public:
    NodeContext(const Node& n, Builder& builder, GraphLowering& graph) : node(n), b(builder), graph_(graph) {}

    const Node& node;
    Builder& b;

    size_t input_count() const { return node.inputs.size(); }
    bool has(size_t i) const { return i < node.inputs.size() && !node.inputs[i].empty(); }
    /// Input i; throws ModelError when it is missing.
    ValueId in(size_t i) const;
    DType dtype(size_t i) const { return b.dtype(in(i)); }
    Dims shape(size_t i) const { return b.shape(in(i)); }
    size_t rank(size_t i) const { return shape(i).size(); }
    /// Whether input i is one of the model's own, as the caller gives it, and those are to be checked.
    bool is_checked_input(size_t i) const;
    /// Whether anybody named output i.
    bool wants(size_t i) const { return i < node.outputs.size() && !node.outputs[i].empty(); }
    /// Defines output i.
    void out(size_t i, ValueId v);

    int64_t axis_attr(std::string_view name, int64_t fallback, size_t rank) const;  ///< normalised
    /// An element type given as TensorProto's number (or, in the oldest files, its name); nothing when absent.
    std::optional<DType> dtype_attr(const std::string& name) const;
    /// A list that older opsets give as an attribute and newer ones as an integer input; nothing when neither is there.
    std::optional<std::vector<int64_t>> ints(size_t input,
                                             const std::string& attribute) const;  ///< throws Unsupported if not known
    [[noreturn]] void fail(const std::string& message) const;        ///< the model is wrong: ModelError naming the node
    [[noreturn]] void unsupported(const std::string& reason) const;  ///< throws Unsupported naming the node
    /// Checks `condition`, else fail(message).
    void require(bool condition, const std::string& message) const {
        if (!condition) fail(message);
    }

    /// A body of If, Loop or Scan. `inputs` are the body's declared inputs (dtype and shape as the rule knows them);
    /// values of outer graphs that the body uses become further inputs of the Program, listed in `captures`.
    struct Body {
        std::shared_ptr<Program> program;
        std::vector<ValueId> captures;  ///< outer values, in the order of the Program's trailing inputs
        /// Per output of `body`: its contents, where they are known. Such an output is left out of the Program if the
        /// rule asks for that.
        std::vector<std::optional<Tensor>> known;
    };
    struct BodyInput {
        DType dtype = DType::F32;
        Dims shape;
        std::optional<Tensor> value = std::nullopt;  ///< known: a constant in the body, no input of the Program
        bool declared = true;                        ///< false: an input of the Program that `body` does not name
    };
    Body lower_body(const Graph& body, const std::vector<BodyInput>& inputs, bool drop_known_first = false) const;
    /// The nodes of a body written into this program, for a branch that is known to be taken. Returns its outputs;
    /// nothing where a node of the body has finished the program.
    std::vector<ValueId> inline_body(const Graph& body, const std::vector<ValueId>& inputs) const;
    /// `branch` in place of this node, and then every node that comes after it, as a program of its own. Its outputs
    /// are those that the program at hand still lacks. Throws ModelError where that way breaks an operator's rules,
    /// Unsupported where one has no implementation, or such splits are nested too deeply.
    /// With `to_next_split`, nothing where it comes to another node that would call this.
    std::optional<Body> lower_to_end(const Graph& branch, bool to_next_split) const;
    /// Gives the program the outputs it lacks, in lower_to_end's order: the nodes after this one are done with.
    void finish(const std::vector<ValueId>& outputs) const;
    /// A body written by the rule itself (recurrent operators): `write` gets a Builder on a fresh Program.
    static std::shared_ptr<Program> write_body(const std::string& name, const std::function<void(Builder&)>& write);

  private:
    GraphLowering& graph_;
};

using Rule = void (*)(NodeContext&);

/// Which rule lowers an operator. `since`: first opset version of the domain the rule is right for.
struct OpRule {
    std::string_view domain, op;
    int64_t since;
    Rule rule;
};
/// All rules; each family file contributes one table (ops/families.h).
const std::vector<OpRule>& op_rules();
/// The newest rule with since <= opset; null when there is none.
const OpRule* find_rule(std::string_view domain, std::string_view op, int64_t opset);

/// One node that cannot be compiled, for `tilewright check`.
struct Problem {
    std::string node, op, domain;
    int64_t opset = 0;
    std::string types;  ///< "f32[1, 3, $h, 224], i64[4]"
    std::string reason;
    bool unsupported = true;  ///< false: the model is wrong
};

struct LowerOptions {
    /// Fixes symbolic dimensions: name -> size ("batch" -> 8). Others stay symbolic.
    std::map<std::string, int64_t> dims;
    /// Check every value that operators rely on when the model runs, also where that takes time (checked_values.h,
    /// Requirement::Check).
    bool check_values = false;
    /// Check those of the model's inputs where that costs next to nothing.
    bool check_inputs = true;
};

/// Names of dimensions of the model's inputs that LowerOptions::dims may fix, each once.
std::vector<std::string> dimension_names(const Model& model);

/// Model -> Program. Throws ModelError (Unsupported) at the first problem; with `problems`, collects every one instead
/// and returns whatever could be lowered (not to be compiled if problems is not empty).
Program lower(const Model& model, const LowerOptions& options = {}, std::vector<Problem>* problems = nullptr);

}  // namespace tilewright
