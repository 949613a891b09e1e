#include "tune/canonical.h"

#include <gtest/gtest.h>

#include <random>

#include "program/transform/substitute.h"
#include "tile/examples_test.h"
#include "tile/random_case_test.h"

namespace tilewright {
namespace {

/// The same kernel with other names: values, primitives, symbols, axes and the kernel itself.
Program renamed(Program p, uint64_t seed) {
    std::mt19937_64 rng(seed);
    const auto name = [&](const std::string& role, size_t n) {
        return std::string(1, static_cast<char>('a' + rng() % 26)) + role + std::to_string(n);
    };
    std::map<Var, Expr> by;
    std::set<Var> names;
    for (const Value& v : p.values)
        for (const Expr d : v.shape) add_names(d, names);
    for (const Primitive& primitive : p.primitives)
        for (const Var v : names_used(primitive)) names.insert(v);
    for (const Var v : names)
        by.emplace(v, v.kind == VarKind::Symbol ? symbol(name("dim", by.size())) : scalar(name("dim", by.size())));
    p = substitute_names(p, by);
    p.name = name("kernel", 0);
    for (const ValueId v : p.values.ids()) p.values[v].name = name("value ", v.index());
    for (const PrimitiveId id : p.primitives.ids()) {
        p.primitives[id].name = name("primitive", id.index());
        p.primitives[id].source = name("Op", 0);
    }
    return p;
}

TEST(Canonical, does_not_depend_on_names) {
    const TileProgram gemm = parse_tile_program(kGemm);
    std::string text = kGemm;
    for (const auto& [from, to] :
         std::vector<std::pair<std::string, std::string>>{{"tile gemm", "tile product"},
                                                          {"input bias", "input offsets"},
                                                          {"@2 = bias[i1]", "@2 = offsets[i1]"},
                                                          {"axes m=", "axes rows="},
                                                          {"over [m n k]", "over [rows n k]"},
                                                          {"parallel m", "parallel rows"},
                                                          {"registers [m=2", "registers [rows=2"},
                                                          {"order [n m k]", "order [n rows k]"},
                                                          {"vthreads [m=2]", "vthreads [rows=2]"}})
        text = changed(text, from, to);
    const TileProgram product = parse_tile_program(text);
    EXPECT_NE(print(gemm), print(product));
    EXPECT_EQ(canonical_text(gemm), canonical_text(product));
    EXPECT_EQ(canonical_text(gemm.stages), canonical_text(product.stages));
    EXPECT_EQ(schedule_text(gemm), schedule_text(product));
}

TEST(Canonical, depends_on_everything_else_of_a_kernel) {
    const std::string gemm = canonical_text(parse_tile_program(kGemm).stages);
    const auto other = [](std::string text, const std::string& from, const std::string& to) {
        return canonical_text(parse_tile_program(changed(std::move(text), from, to)).stages);
    };
    EXPECT_NE(gemm, other(kGemm, "input bias: f32", "input bias: f16"));                // type
    EXPECT_NE(gemm, other(kGemm, "input bias: f32[8]", "input bias: f32[9]"));          // shape
    EXPECT_NE(gemm, other(kGemm, "max(add(acc, @2), 0.0)", "max(add(acc, @2), 1.0)"));  // epilogue
    EXPECT_NE(gemm, other(kGemm, "mul(@0, @1)", "add(@0, @1)"));                        // body
    EXPECT_NE(gemm, other(kGemm, "@1 = b[i2, i1]", "@1 = b[i2, -i1 + 7]"));             // index map
    EXPECT_NE(gemm, other(kGemm, "sum(i2 < 7)", "max(i2 < 7)"));                        // reducer
    const std::string convolution = canonical_text(parse_tile_program(kConvolution).stages);
    EXPECT_NE(convolution, other(kConvolution, "else 0", "else 1"));                                // fill
    EXPECT_NE(convolution, other(kConvolution, "when i1 + i4 - 1 >= 0", "when i1 + i4 - 2 >= 0"));  // condition
}

TEST(Canonical, depends_on_the_schedule) {
    const TileProgram gemm = parse_tile_program(kGemm);
    for (const auto& [from, to] :
         std::vector<std::pair<std::string, std::string>>{{"parallel m by 4", "parallel m by 5"},
                                                          {"vector n lanes 2", "vector n lanes 4"},
                                                          {"registers [m=2 n=2]", "registers [m=4 n=2]"},
                                                          {"order [n m k]", "order [m n k]"},
                                                          {"vthreads [m=2] ", ""},
                                                          {"store c padding local", "store c padding partition"},
                                                          {"buffer c layout \"reorder(1, 0)\"", "buffer c layout \"\""},
                                                          {"layout \"split(1, 2) reorder(1, 0, 2)\"", "layout \"\""}}) {
        const TileProgram other = parse_tile_program(changed(kGemm, from, to));
        EXPECT_NE(schedule_text(gemm), schedule_text(other)) << from;
        EXPECT_EQ(canonical_text(gemm.stages), canonical_text(other.stages)) << from;
    }
}

/// Polynomials are printed in the order of their names; canonical numbers must not depend on it.
TEST(Canonical, order_of_symbols_comes_from_their_use) {
    const auto text = [](const std::string& a, const std::string& b) {
        return canonical_text(parse_program("program p {\n  input x: f32[$" + a + " + 2*$" + b + ", $" + b +
                                            "]\n  y: f32[$" + a + " + 2*$" + b + "] = [$" + a + " + 2*$" + b +
                                            "] sum(i1 < $" + b + ") @0 where @0 = x[i0, i1]\n  output y\n}\n"));
    };
    EXPECT_EQ(text("a", "b"), text("b", "a"));
    EXPECT_EQ(text("a", "b"), text("s1", "s0"));
}

TEST(Canonical, equal_and_different_symbols_give_different_kernels) {
    const auto text = [](const std::string& rows, const std::string& columns) {
        return canonical_text(parse_program("program p {\n  input x: f32[$" + rows + ", $" + columns + "]\n  y: f32[$" +
                                            rows + ", $" + columns + "] = [$" + rows + ", $" + columns +
                                            "] neg(@0) where @0 = x[i0, i1]\n  output y\n}\n"));
    };
    EXPECT_EQ(text("n", "m"), text("m", "n"));
    EXPECT_NE(text("n", "m"), text("n", "n"));
}

TEST(Canonical, random_kernels_keep_their_text_under_other_names) {
    std::set<std::string> texts, prints;
    for (uint64_t seed = 0; seed < 150; ++seed) {
        const Program stages = random_case(seed, 1 + static_cast<int>(seed % 8), true).stages;
        const std::string text = canonical_text(stages);
        const Program other = renamed(stages, seed + 1);
        EXPECT_EQ(text, canonical_text(other)) << print(stages) << print(other);
        EXPECT_EQ(text, canonical_text(parse_program(text)));
        texts.insert(text);
        Program plain = stages;  // kernels may share a text only if they are equal without names
        plain.name = "k";
        prints.insert(print(plain));
    }
    EXPECT_GT(texts.size(), 100u);
    EXPECT_LE(texts.size(), prints.size());
}

TEST(Canonical, a_changed_constant_in_a_body_or_a_changed_extent_changes_a_random_kernel) {
    int extents = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const Program stages = random_case(seed, 4, true).stages;
        Program other = stages;
        for (Value& v : other.values) {
            if (v.shape.empty()) continue;
            v.shape[0] = v.shape[0] + 1;
            break;
        }
        if (print(other) == print(stages)) continue;  // an unused value
        ++extents;
        EXPECT_NE(canonical_text(stages), canonical_text(other)) << print(stages);
    }
    EXPECT_GT(extents, 30);
}

TEST(Canonical, a_schedule_applies_to_a_kernel_of_other_names) {
    int scheduled = 0;
    for (uint64_t seed = 0; seed < 80; ++seed) {
        const TileProgram program = random_scheduled_case(seed, 1 + static_cast<int>(seed % 6)).program;
        const Program other = renamed(program.stages, seed);
        const TileProgram back = with_schedule(other, schedule_text(program));
        EXPECT_EQ(canonical_text(back), canonical_text(program));
        EXPECT_EQ(back.name, other.name);
        EXPECT_EQ(print(back.stages), print(other));
        scheduled += program.body.empty() ? 0 : 1;
    }
    EXPECT_GT(scheduled, 60);
    for (const std::string& text : {kGemm, kChain, kSoftmax, kConvolution}) {
        const TileProgram program = parse_tile_program(text);
        EXPECT_FALSE(print(with_schedule(program.stages, schedule_text(program))).empty());
        EXPECT_EQ(canonical_text(with_schedule(program.stages, schedule_text(program))), canonical_text(program));
    }
}

TEST(Canonical, a_schedule_that_does_not_fit_is_refused) {
    const TileProgram gemm = parse_tile_program(kGemm), chain = parse_tile_program(kChain);
    EXPECT_THROW(with_schedule(chain.stages, schedule_text(gemm)), ModelError);
    EXPECT_THROW(with_schedule(gemm.stages, "tile k {\nnonsense\n}\n"), ModelError);
    EXPECT_THROW(with_schedule(gemm.stages, ""), ModelError);
}

TEST(Canonical, sizes_are_in_canonical_order) {
    const Program stages = parse_tile_program(kSoftmax).stages;
    const Bindings rows{{*symbol("rows").as_var(), 128}};
    EXPECT_EQ(canonical_sizes(stages, rows), "s0=128");
    EXPECT_EQ(canonical_sizes(parse_tile_program(kGemm).stages, {}), "");
    EXPECT_THROW(canonical_sizes(stages, {}), InternalError);
}

}  // namespace
}  // namespace tilewright
