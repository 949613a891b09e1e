#pragma once
// Small matrix expressions, the language of the enumerated rules: as text, as programs, and matched in programs.
//
//     matmul(A, transpose(B))          add(top(A), relu(B))          div(exp(A), sum(exp(A)))
//
// A, B, C are values of rank 2 or more. Operators act on the last two dimensions and are applied for each index of the
// leading (batch) dimensions, in which operands are broadcast: x[b, s, k] w[k, n] is matmul(A, B).

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
    Scale,   ///< times a constant, the same at every occurrence
    Sum,     ///< of each row: [m, n] -> [m, 1]
    Top,     ///< the first half of the rows
    Bottom,  ///< the second half of the rows
    Left,    ///< the first half of the columns
    Right,
    MatMul,
    Add,  ///< elementwise, [m, n] with [m, n] or with row sums, like the operators below
    Sub,
    Mul,
    Div,
    Above,   ///< row concatenation
    Beside,  ///< column concatenation
};
std::string_view to_string(TermOp op);
int arity(TermOp op);

struct MatrixTerm {
    TermOp op = TermOp::Variable;
    int variable = 0;  ///< for Variable: 0 is A
    std::vector<MatrixTerm> args;
    friend bool operator==(const MatrixTerm&, const MatrixTerm&) = default;
};
std::string print(const MatrixTerm& term);
/// Reads print()'s text. Throws ModelError.
MatrixTerm parse_term(std::string_view text);
int operations(const MatrixTerm& term);  ///< number of operators
/// Its variables, in order of first appearance.
std::vector<int> term_variables(const MatrixTerm& term);

/// Rows and columns.
using MatrixShape = std::pair<int64_t, int64_t>;
/// Shape of the result; none if the operands do not fit.
std::optional<MatrixShape> shape_of(const MatrixTerm& term, const std::map<int, MatrixShape>& variables);

/// Writes the term; `variables` are the operands. `scale` is Scale's number.
ValueId write_term(Builder& b, const MatrixTerm& term, const std::map<int, ValueId>& variables, double scale);

/// left = right, for all values of the variables for which both sides are defined and have the same shape.
struct TermLaw {
    MatrixTerm left, right;
};
/// The laws of enumerated.txt, one a line: "transpose(transpose(A)) = A". `#` begins a comment.
std::vector<TermLaw> parse_laws(std::string_view text);
/// The laws of the compiled-in table.
const std::vector<TermLaw>& enumerated_laws();
std::string_view enumerated_text();

/// How a proved law is used.
enum class LawUse : uint8_t {
    Rule,           ///< a rewrite rule, from the side with more operators
    EqualSides,     ///< both sides have equally many operators (A + B = B + A): not used, because it saves nothing by
                    ///< itself
    Concatenation,  ///< contains a concatenation: not used, because the layout rules (layouts.cpp) handle
                    ///< concatenations
};
LawUse use_of(const TermLaw& law);

/// A match of `term` whose root the primitive `at` computes: the values of its variables, and Scale's number.
struct TermMatch {
    std::map<int, ValueId> variables;
    std::optional<double> scale;
};
std::optional<TermMatch> match_term(const RewriteContext& context, const MatrixTerm& term, PrimitiveId at);
/// Writes the term into the patch as the definition of `out`; false if the operands do not fit.
bool define_term(const RewriteContext& context, PatchWriter& patch, const MatrixTerm& term, const TermMatch& match,
                 ValueId out);

}  // namespace tilewright
