// The language of the enumerated rules, and each of its laws: proved, and found again in programs.

#include "program/rewrite/terms.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "program/random_program.h"
#include "program/rewrite/prover_test.h"

namespace tilewright {
namespace {

Program program_of(const MatrixTerm& term, const std::map<int, MatrixShape>& shapes, const Dims& batch = {}) {
    Program p;
    Builder b(p);
    std::map<int, ValueId> inputs;
    for (const auto& [v, s] : shapes) {
        Dims d = batch;
        d.insert(d.end(), {s.first, s.second});
        inputs[v] = b.input(std::string(1, static_cast<char>('A' + v)), DType::F32, d);
    }
    ValueId out = write_term(b, term, inputs, 3);
    if (term.op == TermOp::Variable) out = b.copy(out);
    b.set_outputs({out});
    return p;
}

/// Shapes that fit both sides; not square where there are such.
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

TEST(Terms, read_what_they_print) {
    for (const std::string_view text :
         {"A", "transpose(B)", "div(exp(A), sum(exp(A)))", "matmul(A, beside(left(B), C))"})
        EXPECT_EQ(print(parse_term(text)), text);
    EXPECT_EQ(operations(parse_term("div(exp(A), sum(exp(A)))")), 4);
}

TEST(Terms, say_what_is_wrong_with_a_text) {
    EXPECT_THROW(parse_term("matmul(A)"), ModelError);
    EXPECT_THROW(parse_term("cosine(A)"), ModelError);
    EXPECT_THROW(parse_term("add(A, B) C"), ModelError);
    EXPECT_THROW(parse_laws("add(A, B)"), ModelError);
}

TEST(Terms, know_their_shapes) {
    const std::map<int, MatrixShape> s = {{0, {2, 4}}, {1, {4, 6}}};
    EXPECT_EQ(shape_of(parse_term("matmul(A, B)"), s), MatrixShape(2, 6));
    EXPECT_EQ(shape_of(parse_term("div(A, sum(A))"), s), MatrixShape(2, 4));
    EXPECT_EQ(shape_of(parse_term("beside(A, left(A))"), s), MatrixShape(2, 6));
    EXPECT_EQ(shape_of(parse_term("add(A, B)"), s), std::nullopt);
    EXPECT_EQ(shape_of(parse_term("above(A, B)"), s), std::nullopt);
}

TEST(EnumeratedLaws, hold) {
    ASSERT_GT(enumerated_laws().size(), 50u);
    for (const TermLaw& law : enumerated_laws()) {
        const auto shapes = shapes_for(law);
        ASSERT_FALSE(shapes.empty()) << print(law.left);
        const Program l = program_of(law.left, shapes), r = program_of(law.right, shapes);
        EXPECT_EQ(prove_equal(l, r, {.elements = 2}), Verdict::Proven) << print(law.left) << " = " << print(law.right);
    }
}

TEST(EnumeratedLaws, are_found_in_programs_and_keep_what_they_compute) {
    size_t applied = 0, concatenations = 0;
    for (const TermLaw& law : enumerated_laws()) {
        const auto shapes = shapes_for(law);
        const Program p = program_of(law.left, shapes, {2});
        const RewriteContext context(p);
        const PrimitiveId last(p.primitives.size() - 1);
        const auto match = match_term(context, law.left, last);
        if (!match) {  // those with concatenations are left to the layout rules
            ++concatenations;
            EXPECT_NE(print(law.left).find("beside"), std::string::npos) << print(law.left);
            continue;
        }
        PatchWriter patch(context, last);
        if (!define_term(context, patch, law.right, *match, p.outputs[0])) continue;
        const Program q = apply(p, patch.take());
        ASSERT_EQ(verify(q), std::vector<std::string>()) << print(law.left) << "\n" << print(q);
        const std::vector<Tensor> inputs = random_inputs(p, 5);
        EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(q, inputs, {.exact = true})),
                  1e-6)
            << print(law.left) << " = " << print(law.right) << "\n"
            << print(p) << print(q);
        ++applied;
    }
    printf("%zu laws, %zu applied, %zu with concatenations\n", enumerated_laws().size(), applied, concatenations);
    EXPECT_GT(applied, enumerated_laws().size() / 2);
}

}  // namespace
}  // namespace tilewright
