// The language of the enumerated rules, and each law: proved, and matched in programs.

#include "program/rewrite/terms.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "program/random_program.h"
#include "program/rewrite/prover_test.h"

namespace tilewright {
namespace {

/// `alone`: the variable without batch dimensions.
Program program_of(const MatrixTerm& term, const std::map<int, MatrixShape>& shapes, const Dims& batch = {},
                   int alone = -1) {
    Program p;
    Builder b(p);
    std::map<int, ValueId> inputs;
    for (const auto& [v, s] : shapes) {
        Dims d = v == alone ? Dims{} : batch;
        d.insert(d.end(), {s.first, s.second});
        inputs[v] = b.input(std::string(1, static_cast<char>('A' + v)), DType::F32, d);
    }
    ValueId out = write_term(b, term, inputs, 3);
    if (term.op == TermOp::Variable) out = b.copy(out);
    b.set_outputs({out});
    return p;
}

/// Shapes that fit both sides; not square if such shapes exist.
std::map<int, MatrixShape> shapes_for(const TermLaw& law) {
    std::set<int> variables;
    for (const MatrixTerm* t : {&law.left, &law.right})
        for (const int v : term_variables(*t)) variables.insert(v);
    const std::vector<int> names(variables.begin(), variables.end());
    static constexpr int64_t kSizes[] = {4, 2, 8};
    std::map<int, MatrixShape> found;
    int64_t combinations = 1;
    for (size_t k = 0; k < names.size(); ++k) combinations *= 9;
    for (int64_t n = 0; n < combinations; ++n) {
        std::map<int, MatrixShape> s;
        int64_t rest = n;
        bool square = true;
        for (const int v : names) {
            s[v] = {kSizes[rest % 3], kSizes[rest / 3 % 3]};
            square = square && s[v].first == s[v].second;
            rest /= 9;
        }
        const auto l = shape_of(law.left, s), r = shape_of(law.right, s);
        if (!l || l != r) continue;
        if (!square) return s;
        if (found.empty()) found = s;
    }
    return found;
}

TEST(Terms, round_trip_through_text) {
    for (const std::string_view text :
         {"A", "transpose(B)", "div(exp(A), sum(exp(A)))", "matmul(A, beside(left(B), C))"})
        EXPECT_EQ(print(parse_term(text)), text);
    EXPECT_EQ(operations(parse_term("div(exp(A), sum(exp(A)))")), 4);
}

TEST(Terms, report_syntax_errors) {
    EXPECT_THROW(parse_term("matmul(A)"), ModelError);
    EXPECT_THROW(parse_term("cosine(A)"), ModelError);
    EXPECT_THROW(parse_term("add(A, B) C"), ModelError);
    EXPECT_THROW(parse_laws("add(A, B)"), ModelError);
}

TEST(Terms, have_inferred_shapes) {
    const std::map<int, MatrixShape> s = {{0, {2, 4}}, {1, {4, 6}}};
    EXPECT_EQ(shape_of(parse_term("matmul(A, B)"), s), MatrixShape(2, 6));
    EXPECT_EQ(shape_of(parse_term("div(A, sum(A))"), s), MatrixShape(2, 4));
    EXPECT_EQ(shape_of(parse_term("beside(A, left(A))"), s), MatrixShape(2, 6));
    EXPECT_EQ(shape_of(parse_term("add(A, B)"), s), std::nullopt);
    EXPECT_EQ(shape_of(parse_term("above(A, B)"), s), std::nullopt);
}

/// All elements of the output, for shapes that are not square if the law allows it.
TEST(EnumeratedLaws, hold) {
    ASSERT_EQ(enumerated_laws().size(), 156u);
    for (const TermLaw& law : enumerated_laws()) {
        const auto shapes = shapes_for(law);
        ASSERT_FALSE(shapes.empty()) << print(law.left);
        const Program l = program_of(law.left, shapes), r = program_of(law.right, shapes);
        EXPECT_EQ(prove_equal(l, r, {.elements = SIZE_MAX}), Verdict::Proven)
            << print(law.left) << " = " << print(law.right);
    }
}

/// The proof can fail: laws with one wrong element or operator.
TEST(EnumeratedLaws, wrong_ones_are_refuted) {
    for (const std::string_view wrong : {"sub(A, B) = sub(B, A)", "sum(mul(A, B)) = mul(sum(A), sum(B))",
                                         "matmul(A, B) = matmul(B, A)", "left(add(A, B)) = add(left(A), right(B))"}) {
        const TermLaw law = parse_laws(wrong).at(0);
        const std::map<int, MatrixShape> shapes = {{0, {2, 2}}, {1, {2, 2}}};
        EXPECT_EQ(prove_equal(program_of(law.left, shapes), program_of(law.right, shapes), {.elements = SIZE_MAX}),
                  Verdict::Refuted)
            << wrong;
    }
}

struct Sides {
    const MatrixTerm &from, &to;
};
Sides sides(const TermLaw& law) {
    const bool left = operations(law.left) > operations(law.right);
    return {left ? law.left : law.right, left ? law.right : law.left};
}

/// Whether the rule rewrites the program's last primitive to `to`; the results must be equal.
bool rewritten(const Program& p, const TermLaw& law) {
    const RewriteContext context(p);
    const PrimitiveId last(p.primitives.size() - 1);
    const auto match = match_term(context, sides(law).from, last);
    if (!match) return false;
    PatchWriter patch(context, last);
    if (!define_term(context, patch, sides(law).to, *match, p.outputs[0])) return false;
    const Program q = apply(p, patch.take());
    EXPECT_EQ(verify(q), std::vector<std::string>()) << print(law.left) << "\n" << print(q);
    const std::vector<Tensor> inputs = random_inputs(p, 5);
    EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(q, inputs, {.exact = true})), 1e-6)
        << print(law.left) << " = " << print(law.right) << "\n"
        << print(p) << print(q);
    return true;
}

/// Every law that is used as a rule is matched in a program and rewrites it.
TEST(EnumeratedLaws, are_matched_in_programs_and_preserve_results) {
    std::map<LawUse, size_t> uses;
    for (const TermLaw& law : enumerated_laws()) {
        ++uses[use_of(law)];
        if (use_of(law) != LawUse::Rule) continue;
        const Program p = program_of(sides(law).from, shapes_for(law), {2});
        EXPECT_TRUE(rewritten(p, law)) << print(law.left) << " = " << print(law.right) << "\n" << print(p);
        EXPECT_FALSE(find_all(RewriteContext(p), *rewrite_rule("enumerated")).empty()) << print(p);
    }
    EXPECT_EQ(uses[LawUse::Rule], 99u);
    EXPECT_EQ(uses[LawUse::EqualSides], 34u);
    EXPECT_EQ(uses[LawUse::Concatenation], 23u);
}

/// One operand, as the weights of a linear layer, has no batch dimensions: x[b, s, k] w[k, n].
TEST(EnumeratedLaws, match_operands_of_lower_rank) {
    size_t products = 0, others = 0;
    for (const TermLaw& law : enumerated_laws()) {
        if (use_of(law) != LawUse::Rule) continue;
        const auto shapes = shapes_for(law);
        const std::string text = print(sides(law).from);
        for (const auto& [v, shape] : shapes) {
            const Program p = program_of(sides(law).from, shapes, {2}, v);
            // A side without the other operands has no batch dimensions.
            if (p.values[p.outputs[0]].shape.size() != 3) continue;
            (text.find("matmul") != std::string::npos ? products : others) += rewritten(p, law) ? 1 : 0;
        }
    }
    EXPECT_GE(products, 14u);
    EXPECT_GT(others, 200u);
}

}  // namespace
}  // namespace tilewright
