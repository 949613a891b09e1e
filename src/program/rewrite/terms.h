#pragma once
// Small expressions of matrices, as text, as programs, and found in programs: the language of the enumerated rules.
//
//     matmul(A, transpose(B))          add(top(A), relu(B))          div(exp(A), sum(exp(A)))
//
// A, B, C are any values of rank 2 or more; operators work on the last two dimensions, for every index of the others,
// in which operands of two are broadcast: x[b, s, k] w[k, n] is matmul(A, B).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/builder.h"
#include "program/rewrite/algebra.h"

namespace tilewright {

enum class TermOp : uint8_t {
    Variable,
    Transpose,
    Exp,
    Relu,
    Scale,   ///< times a number, the same wherever it stands
    Sum,     ///< of each row: [m, n] -> [m, 1]
    Top,     ///< the first half of the rows
    Bottom,  ///< the second
    Left,    ///< the first half of the columns
    Right,
    MatMul,
    Add,  ///< element by element, [m, n] with [m, n] or with the sums of rows, as the others here
    Sub,
    Mul,
    Div,
    Above,   ///< one on top of the other
    Beside,  ///< side by side
};
std::string_view to_string(TermOp op);
int arity(TermOp op);

struct MatrixTerm {
    TermOp op = TermOp::Variable;
    int variable = 0;  ///< of Variable: 0 is A
    std::vector<MatrixTerm> args;
    friend bool operator==(const MatrixTerm&, const MatrixTerm&) = default;
};
std::string print(const MatrixTerm& term);
/// Reads print()'s text. Throws ModelError.
MatrixTerm parse_term(std::string_view text);
int operations(const MatrixTerm& term);  ///< operators in it
/// Its variables, in order of first appearance.
std::vector<int> term_variables(const MatrixTerm& term);

/// Rows and columns.
using MatrixShape = std::pair<int64_t, int64_t>;
/// Of the result; nothing where the operands do not fit.
std::optional<MatrixShape> shape_of(const MatrixTerm& term, const std::map<int, MatrixShape>& variables);

/// Writes the term; the builder's current values stand for the variables. `scale` is Scale's number.
ValueId write_term(Builder& b, const MatrixTerm& term, const std::map<int, ValueId>& variables, double scale);

/// left = right, for all values of the variables for which both are defined and of one shape.
struct TermLaw {
    MatrixTerm left, right;
};
/// The laws of enumerated.txt, one a line: "transpose(transpose(A)) = A". `#` begins a comment.
std::vector<TermLaw> parse_laws(std::string_view text);
/// Those of the table that is compiled in.
const std::vector<TermLaw>& enumerated_laws();
std::string_view enumerated_text();

/// What becomes of a law that was found and proved.
enum class LawUse : uint8_t {
    Rule,           ///< programs are rewritten by it, from the side with more operators
    EqualSides,     ///< both sides have as many operators (A + B = B + A): not used, as it saves nothing by itself
    Concatenation,  ///< it concatenates: not used, as the layout rules (layouts.cpp) are for programs' concatenations
};
LawUse use_of(const TermLaw& law);

/// What `term` is in the program, its root computed by `at`: the values of its variables, and Scale's number.
struct TermMatch {
    std::map<int, ValueId> variables;
    std::optional<double> scale;
};
std::optional<TermMatch> match_term(const RewriteContext& context, const MatrixTerm& term, PrimitiveId at);
/// Writes the term into the patch and makes it the definition of `out`; false where the operands do not fit.
bool define_term(const RewriteContext& context, PatchWriter& patch, const MatrixTerm& term, const TermMatch& match,
                 ValueId out);

}  // namespace tilewright
