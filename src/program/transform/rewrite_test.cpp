// Dead code elimination, common subexpressions, constant folding: on texts, and on random programs against the
// interpreter.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "program/random_program.h"
#include "program/transform/common_subexpressions.h"
#include "program/transform/dead_code.h"
#include "program/transform/fold.h"
#include "program/transform/substitute.h"

namespace tilewright {
namespace {

/// The non-zero elements of a vector, in order: the length is data-dependent.
class NotZero final : public OpaqueOp {
  public:
    std::string print() const override { return "NotZero"; }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        std::vector<int64_t> kept;
        for (int64_t i = 0; i < inputs[0].count(); ++i)
            if (inputs[0].as<int64_t>()[i] != 0) kept.push_back(inputs[0].as<int64_t>()[i]);
        const int64_t shape[] = {static_cast<int64_t>(kept.size())};
        const TensorView out = outputs.allocate(0, shape);
        std::copy(kept.begin(), kept.end(), out.as<int64_t>());
    }
};

/// The quotients and the remainders of a vector's elements by 10.
class ByTen final : public OpaqueOp {
  public:
    std::string print() const override { return "ByTen"; }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const int64_t shape[] = {inputs[0].count()};
        const TensorView quotients = outputs.allocate(0, shape), remainders = outputs.allocate(1, shape);
        for (int64_t i = 0; i < shape[0]; ++i) {
            quotients.as<int64_t>()[i] = inputs[0].as<int64_t>()[i] / 10;
            remainders.as<int64_t>()[i] = inputs[0].as<int64_t>()[i] % 10;
        }
    }
};

class Dice final : public OpaqueOp {
  public:
    std::string print() const override { return "Dice"; }
    void run(std::span<const TensorView>, OpaqueOutputs& outputs) const override {
        outputs.allocate(0, std::span<const int64_t>()).as<float>()[0] = 4;
    }
    bool deterministic() const override { return false; }
};

Program parse_dice(std::string_view text) {
    const Program p = parse_program(text, [](std::string_view name) -> std::shared_ptr<const OpaqueOp> {
        if (name == "NotZero") return std::make_shared<NotZero>();
        if (name == "Dice") return std::make_shared<Dice>();
        if (name == "ByTen") return std::make_shared<ByTen>();
        return nullptr;
    });
    EXPECT_EQ(verify(p), std::vector<std::string>()) << text;
    return p;
}

TEST(DeadCode, keeps_live_primitives) {
    const Program p = parse_dice(R"(program t {
  input a: f32[4]
  input unused: f32[2]
  const k: f32[] = {2}
  const l: f32[] = {3}
  x: f32[4] = [4] mul(@0, @1) where @0 = a[i0], @1 = k[]
  y: f32[4] = [4] mul(@0, @1) where @0 = a[i0], @1 = l[]
  z: f32[4] = [4] neg(@0) where @0 = y[i0]
  output x
})");
    EXPECT_EQ(print(eliminate_dead_code(p)), R"(program t {
  input a: f32[4]
  input unused: f32[2]
  const k: f32[] = {2}
  x: f32[4] = [4] mul(@0, @1) where @0 = a[i0], @1 = k[]
  output x
}
)");
}

TEST(DeadCode, a_scalar_read_stays_while_its_name_is_used) {
    const Program p = parse_dice(R"(program t {
  input a: f32[9]
  input where: i64[2]
  ?start = read where[0]
  ?other = read where[1]
  x: f32[4] = [4] @0 where @0 = a[min(max(i0 + ?start, 0), 8)]
  output x
})");
    EXPECT_EQ(print(eliminate_dead_code(p)), R"(program t {
  input a: f32[9]
  input where: i64[2]
  ?start = read where[0]
  x: f32[4] = [4] @0 where @0 = a[min(8, max(0, ?start + i0))]
  output x
}
)");
}

TEST(DeadCode, requirements_stay_if_their_names_are_used_or_free) {
    const Program p = parse_dice(R"(program t {
  input a: f32[$n]
  input where: i64[2]
  require equal [$n, ?start]  ; dimensions kept
  require equal [$n, ?other]  ; dimensions kept
  require equal [$n, 4]  ; dimensions kept
  require equal [$k, 4]  ; dimensions gone
  require equal [?computed, 4]  ; dimensions gone
  require equal [?asked, 4] always  ; dimensions kept
  ?start = read where[0]
  ?other = read where[1]
  b: i64[$k] = opaque NotZero(where)
  twice: i64[2] = [2] add(@0, @0) where @0 = where[i0]
  ?computed = read twice[0]
  ?asked = read twice[1]
  x: f32[4] = [4] @0 where @0 = a[min(max(i0 + ?start, 0), 8)]
  output x
})");
    EXPECT_EQ(print(eliminate_dead_code(p)), R"(program t {
  input a: f32[$n]
  input where: i64[2]
  require equal [$n, ?start]  ; dimensions kept
  require equal [$n, ?other]  ; dimensions kept
  require equal [$n, 4]  ; dimensions kept
  require equal [?asked, 4] always  ; dimensions kept
  ?start = read where[0]
  ?other = read where[1]
  twice: i64[2] = [2] add(@0, @0) where @0 = where[i0]
  ?asked = read twice[1]
  x: f32[4] = [4] @0 where @0 = a[min(8, max(0, ?start + i0))]
  output x
}
)");
}

TEST(CommonSubexpressions, requirements_use_the_remaining_name) {
    const Program p = parse_dice(R"(program t {
  input a: f32[$n]
  input where: i64[1]
  require equal [$n, ?p]  ; dimensions x
  require equal [$n, ?q]  ; dimensions x
  require broadcast [?p, ?q]  ; dimensions x
  ?p = read where[0]
  ?q = read where[0]
  x: f32[?p] = [?p] @0 where @0 = a[i0]
  y: f32[?q] = [?q] neg(@0) where @0 = a[i0]
  output x, y
})");
    const Program q = merge_common_subexpressions(p);
    ASSERT_EQ(q.requirements.size(), 1u) << print(q);
    EXPECT_EQ(q.requirements[0].b, scalar("p"));
}

TEST(FoldConstants, requirements_are_substituted_and_dropped_if_they_hold) {
    const Program p = parse_dice(R"(program t {
  input a: f32[$n]
  const where: i64[2] = {3, 4}
  require equal [$n, ?start]  ; dimensions x
  require at_least [?count, ?start]  ; dimensions x
  ?start = read where[0]
  ?count = read where[1]
  x: f32[?count] = [?count] @0 where @0 = a[i0 % ?start]
  output x
})");
    EXPECT_EQ(print(fold_constants(p)), R"(program t {
  input a: f32[$n]
  require equal [$n, 3]  ; dimensions x
  x: f32[4] = [4] @0 where @0 = a[i0 % 3]
  output x
}
)");
}

TEST(CommonSubexpressions, equal_primitives_copies_and_constants_become_one) {
    const Program p = parse_dice(R"(program t {
  input a: f32[4]
  const k: f32[2] = {2, 5}
  const l: f32[2] = {2, 5}
  x: f32[4] = [4] mul(@0, @1) where @0 = a[i0], @1 = k[0]
  y: f32[4] = [4] mul(@0, @1) where @0 = a[i0], @1 = l[0]
  c: f32[4] = [4] @0 where @0 = y[i0]
  u: f32[4] = [4] neg(@0) where @0 = x[i0]
  v: f32[4] = [4] neg(@0) where @0 = c[i0]
  out: f32[4] = [4] add(@0, @1) where @0 = u[i0], @1 = v[i0]
  output out
})");
    EXPECT_EQ(print(merge_common_subexpressions(p)), R"(program t {
  input a: f32[4]
  const k: f32[2] = {2, 5}
  x: f32[4] = [4] mul(@0, @1) where @0 = a[i0], @1 = k[0]
  u: f32[4] = [4] neg(@0) where @0 = x[i0]
  out: f32[4] = [4] add(@0, @1) where @0 = u[i0], @1 = u[i0]
  output out
}
)");
}

TEST(CommonSubexpressions, outputs_keep_their_own_values) {
    const Program p = parse_dice(R"(program t {
  input a: f32[4]
  x: f32[4] = [4] neg(@0) where @0 = a[i0]
  y: f32[4] = [4] neg(@0) where @0 = a[i0]
  z: f32[4] = [4] @0 where @0 = x[i0]
  output x, y, z
})");
    EXPECT_EQ(print(merge_common_subexpressions(p)), print(p));
}

TEST(CommonSubexpressions, symbols_that_only_the_second_operator_binds_are_replaced) {
    const Program p = parse_dice(R"(program t {
  input a: i64[6]
  b: i64[$n] = opaque NotZero(a)
  c: i64[$m] = opaque NotZero(a)
  x: i64[$n] = [$n] add(@0, 1) where @0 = b[i0]
  y: i64[$m] = [$m] neg(@0) where @0 = c[i0]
  output x, y
})");
    EXPECT_EQ(print(merge_common_subexpressions(p)), R"(program t {
  input a: i64[6]
  b: i64[$n] = opaque NotZero(a)
  x: i64[$n] = [$n] add(@0, 1) where @0 = b[i0]
  y: i64[$n] = [$n] neg(@0) where @0 = b[i0]
  output x, y
}
)");
}

TEST(CommonSubexpressions, equal_reads_of_scalars_become_one_name) {
    const Program p = parse_dice(R"(program t {
  input a: f32[9]
  input where: i64[1]
  ?p = read where[0]
  ?q = read where[0]
  x: f32[4] = [4] @0 where @0 = a[(i0 + ?p) % 9]
  y: f32[4] = [4] neg(@0) where @0 = a[(i0 + ?q) % 9]
  output x, y
})");
    EXPECT_EQ(print(merge_common_subexpressions(p)), R"(program t {
  input a: f32[9]
  input where: i64[1]
  ?p = read where[0]
  x: f32[4] = [4] @0 where @0 = a[(?p + i0) % 9]
  y: f32[4] = [4] neg(@0) where @0 = a[(?p + i0) % 9]
  output x, y
}
)");
}

TEST(CommonSubexpressions, random_operators_are_not_merged) {
    const Program p = parse_dice(R"(program t {
  b: f32[] = opaque Dice()
  c: f32[] = opaque Dice()
  x: f32[] = [] add(@0, @1) where @0 = b[], @1 = c[]
  output x
})");
    EXPECT_EQ(print(merge_common_subexpressions(p)), print(p));
    EXPECT_EQ(print(fold_constants(p)), print(p));
}

TEST(FoldConstants, chains_of_constants_become_one_constant) {
    const Program p = parse_dice(R"(program t {
  input a: f32[2]
  const k: f32[2] = {1, 2}
  x: f32[2] = [2] mul(@0, 3.0) where @0 = k[i0]
  y: f32[2] = [2] add(@0, @1) where @0 = x[i0], @1 = x[1 - i0]
  z: f32[2] = [2] mul(@0, @1) where @0 = a[i0], @1 = y[i0]
  output z
})");
    EXPECT_EQ(print(fold_constants(p)), R"(program t {
  input a: f32[2]
  const y: f32[2] = {9, 9}
  z: f32[2] = [2] mul(@0, @1) where @0 = a[i0], @1 = y[i0]
  output z
}
)");
}

TEST(FoldConstants, broadcasts_of_constants_stay) {
    Program p = parse_dice(R"(program t {
  input a: f32[100, 200]
  const k: f32[50, 2] = #0000000000000000
  x: f32[100] = [100] exp(@0) where @0 = k[i0 // 2, i0 % 2]
  y: f32[100, 200] = [100, 200] @0 where @0 = x[i0]
  z: f32[100, 200] = [100, 200] add(@0, @1) where @0 = a[i0, i1], @1 = y[i0, i1]
  output z
})");
    EXPECT_EQ(print(fold_constants(p)), print(p)) << "what was not read is not known";
    p.unread.clear();
    const Program q = fold_constants(p);
    ASSERT_EQ(q.primitives.size(), 2u) << print(q);
    EXPECT_EQ(q.constants.size(), 1u);
    EXPECT_EQ(q.values[q.constants.begin()->first].name, "x");
}

TEST(FoldConstants, what_primitives_that_stay_read_is_kept_when_others_are_folded) {
    const Program p = parse_dice(R"(program t {
  input a: f32[4, 1000]
  const k: f32[4] = {1, 2, 3, 4}
  x: f32[4, 1000] = [4, 1000] @0 where @0 = k[i0]
  y: f32[4, 1000] = [4, 1000] add(@0, @1) where @0 = a[i0, i1], @1 = x[i0, i1]
  z: f32[4] = [4] sum(i1 < 1000) @0 where @0 = x[i0, i1]
  output y
  output z
})");
    const Program folded = fold_constants(p);
    EXPECT_EQ(verify(folded), std::vector<std::string>());
    ASSERT_EQ(folded.primitives.size(), 2u) << print(folded);  // the broadcast and the addition
    const std::vector<Tensor> inputs = {Tensor(DType::F32, {4, 1000})};
    EXPECT_EQ(interpret(folded, inputs), interpret(p, inputs));
}

TEST(FoldConstants, scalars_read_from_constants_become_numbers) {
    const Program p = parse_dice(R"(program t {
  input a: f32[9]
  const where: i64[2] = {3, 4}
  ?start = read where[0]
  ?count = read where[1]
  x: f32[?count] = [?count] @0 where @0 = a[i0 + ?start]
  output x
})");
    EXPECT_EQ(print(fold_constants(p)), R"(program t {
  input a: f32[9]
  x: f32[4] = [4] @0 where @0 = a[i0 + 3]
  output x
}
)");
}

TEST(FoldConstants, opaque_operators_run_and_bind_their_symbols) {
    const Program p = parse_dice(R"(program t {
  input a: f32[9]
  const k: i64[4] = {3, 0, 0, 2}
  b: i64[$n] = opaque NotZero(k)
  x: f32[$n] = [$n] @1 where @0 = b[i0], @1 = a[@0 % 9]
  output x
})");
    EXPECT_EQ(print(fold_constants(p)), R"(program t {
  input a: f32[9]
  const b: i64[2] = {3, 2}
  x: f32[2] = [2] @1 where @0 = b[i0], @1 = a[@0 % 9]
  output x
}
)");
}

TEST(FoldConstants, an_output_of_two_that_nothing_reads_is_no_constant) {
    const auto folded = [](const char* read) {
        return print(fold_constants(parse_dice(fmt::format(R"(program t {{
  input a: i64[2]
  const k: i64[2] = {{37, 25}}
  q: i64[2], r: i64[2] = opaque ByTen(k)
  x: i64[2] = [2] add(@0, @1) where @0 = a[i0], @1 = {}[i0]
  output x
}})",
                                                           read))));
    };
    EXPECT_EQ(folded("r"), R"(program t {
  input a: i64[2]
  const r: i64[2] = {7, 5}
  x: i64[2] = [2] add(@0, @1) where @0 = a[i0], @1 = r[i0]
  output x
}
)");
    EXPECT_EQ(folded("q"), R"(program t {
  input a: i64[2]
  const q: i64[2] = {3, 2}
  x: i64[2] = [2] add(@0, @1) where @0 = a[i0], @1 = q[i0]
  output x
}
)");
}

TEST(FoldConstants, the_budget_is_kept) {
    const Program p = parse_dice(R"(program t {
  input a: f32[2]
  const k: f32[2] = {1, 2}
  x: f32[2] = [2] mul(@0, 3.0) where @0 = k[i0]
  z: f32[2] = [2] mul(@0, @1) where @0 = a[i0], @1 = x[i0]
  output z
})");
    EXPECT_EQ(print(fold_constants(p, {.work = 3})), print(p));
    EXPECT_EQ(print(fold_constants(p, {.total_work = 3})), print(p));
}

TEST(SubstituteNames, substitutes_a_dimension) {
    const Program p = parse_dice(R"(program t {
  input a: f32[$b, 4]
  x: f32[$b*4] = [$b*4] @0 where @0 = a[i0 // 4, i0 % 4]
  output x
})");
    EXPECT_EQ(print(substitute_names(p, {{*symbol("b").as_var(), Expr(3)}})), R"(program t {
  input a: f32[3, 4]
  x: f32[12] = [12] @0 where @0 = a[i0 // 4, i0 % 4]
  output x
}
)");
}

/// The program with half of its inputs made constants, so that there is work to fold.
Program with_constants(const Program& program, const std::vector<Tensor>& inputs, std::vector<Tensor>& rest) {
    Program p = program;
    p.inputs.clear();
    std::map<Var, Expr> names;
    for (size_t k = 0; k < inputs.size(); ++k) {
        const ValueId v = program.inputs[k];
        if (k % 2 == 0) {
            p.inputs.push_back(v);
            rest.push_back(inputs[k]);
            continue;
        }
        p.constants[v] = inputs[k];
        for (size_t d = 0; d < p.values[v].shape.size(); ++d)
            if (const auto name = p.values[v].shape[d].as_var()) names[*name] = inputs[k].shape()[d];
    }
    return substitute_names(p, names);
}

TEST(Rewrites, random_programs_compute_the_same) {
    size_t before = 0, after = 0;
    for (uint64_t seed = 0; seed < 600; ++seed) {
        const Program original = random_program(seed, 14);
        const std::vector<Tensor> all = random_inputs(original, seed);
        std::vector<Tensor> inputs;
        Program p = with_constants(original, all, inputs);
        p.outputs.resize(1 + seed % p.outputs.size());  // part of it is dead
        ASSERT_EQ(verify(p), std::vector<std::string>()) << "seed " << seed << "\n" << print(p);
        const std::vector<Tensor> expected = interpret(p, inputs);
        Program q = p;
        const auto step = [&](const char* name, const auto& transform) {
            q = transform(q);
            ASSERT_EQ(verify(q), std::vector<std::string>()) << name << " seed " << seed << "\n" << print(q);
            EXPECT_EQ(largest_difference(expected, interpret(q, inputs)), 0) << name << " seed " << seed << "\n"
                                                                             << print(p) << print(q);
        };
        step("dead code", eliminate_dead_code);
        before += q.primitives.size();
        step("common subexpressions", merge_common_subexpressions);
        step("constants", [](const Program& r) { return fold_constants(r); });
        after += q.primitives.size();
        if (HasFailure()) break;
    }
    EXPECT_LT(after, before * 9 / 10);
}

}  // namespace
}  // namespace tilewright
