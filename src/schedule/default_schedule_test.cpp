// The default heuristic's tile programs are legal and compute their stages, for every shape and target.

#include "schedule/default_schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "cost/host_probe.h"
#include "cost/target_with_test.h"
#include "program/random_program.h"
#include "program/text.h"

namespace tilewright {
namespace {

using test::target_with;

std::vector<Target> targets() {
    return {target_with(), target_with({.lanes = 8, .vector_registers = 16}), target_with({.workers = 8}),
            target_with({.workers = 3, .l2_bytes = 256})};  // an L2 for which every stage must be cut
}

/// One primitive of a program as a kernel.
Program kernel_of(const Program& program, PrimitiveId id) {
    Program k;
    k.name = program.primitives[id].name;
    Primitive p = program.primitives[id];
    std::map<ValueId, ValueId> local;
    for (const ValueId v : p.inputs()) local[v] = k.values.push_back(program.values[v]);
    // Binds the program's symbol, even if no operand has it.
    k.inputs = {k.values.push_back({"sizes", DType::I64, {symbol("n")}})};
    for (const auto& [v, mine] : local) k.inputs.push_back(mine);
    k.outputs = {k.values.push_back(program.values[p.outputs[0]])};
    p.outputs = k.outputs;
    for (Access& a : p.expr()->accesses) a.value = local.at(a.value);
    k.primitives.push_back(std::move(p));
    return k;
}

/// The schedule passes `verify`, survives printing and parsing, and computes the stages. Its tensors may be flattened.
void legal(const TileProgram& t, const Program& stages, const std::string& what) {
    ASSERT_EQ(verify(t), std::vector<std::string>()) << what << "\n" << print(t);
    EXPECT_EQ(print(parse_tile_program(print(t))), print(t)) << what;
    const std::vector<Tensor> inputs = random_inputs(stages, 7);
    Bindings bindings;
    std::vector<Tensor> flat;
    for (size_t k = 0; k < inputs.size(); ++k) {
        const ValueId v = stages.inputs[k];
        bind_shape(bindings, stages.values[v].shape, inputs[k].shape(), stages.values[v].name);
        flat.push_back(inputs[k].reshaped(evaluate(t.stages.values[t.stages.inputs[k]].shape, bindings)));
    }
    const std::vector<Tensor> expected = interpret(stages, inputs);
    std::vector<Tensor> actual = interpret(t, flat, bindings);
    for (size_t k = 0; k < actual.size(); ++k) actual[k] = actual[k].reshaped(expected[k].shape());
    ASSERT_LE(largest_difference(expected, actual), 1e-6) << what << "\n" << print(t);
}

TEST(DefaultSchedule, multiplies_bf16_by_dot_products_where_the_target_has_them) {
    Target target = generic_target(VectorIsa::avx512);
    target.native = true;
    for (const char* k : {"32", "33"}) {
        const Program stages = parse_program(fmt::format(R"(program product {{
  input a: bf16[40, {0}]
  input b: bf16[{1}, 48, 2]
  c: f32[40, 48] = [40, 48] sum(i2 < {0}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2 // 2, i1, i2 % 2]  ; c ""
  output c
}})",
                                                         k, (std::stoi(k) + 1) / 2));
        const auto uses_dots = [&] {
            const TileProgram t = default_schedule(stages, target);
            legal(t, stages, k);
            return print(t).find("matrix bf16 dot [") != std::string::npos;
        };
        target.features = {};
        EXPECT_FALSE(uses_dots());
        target.features = {"avx512bf16"};
        assume_unit_rates(target);
        EXPECT_EQ(uses_dots(), std::string(k) == "32");  // pairs need an even sum
        target.dot_gflops_1.value = target.fma_gflops_1.value / 2;
        EXPECT_FALSE(uses_dots()) << "slower than multiply-adds";
        target.dot_gflops_1.value = 0;
    }
}

TEST(DefaultSchedule, sums_products_of_f16_in_f16_where_the_target_may) {
    Target target = generic_target(VectorIsa::avx512);
    target.native = true;
    target.features = {"avx512fp16"};
    assume_unit_rates(target);
    const auto text = [&](int k) {
        const Program stages = parse_program(fmt::format(R"(program product {{
  input a: f16[40, {0}]
  input b: f16[{1}, 48, 2]
  c: f32[40, 48] = [40, 48] sum(i2 < {0}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2 // 2, i1, i2 % 2]  ; c ""
  output c
}})",
                                                         k, (k + 1) / 2));
        const TileProgram t = default_schedule(stages, target);
        legal(t, stages, std::to_string(k));
        return print(t);
    };
    EXPECT_THAT(text(128), testing::Not(testing::HasSubstr("matrix"))) << "--precision f32";
    target.sums_in_f16 = true;
    EXPECT_THAT(text(128), testing::HasSubstr("matrix f16 dot ["));
    EXPECT_THAT(text(128), testing::HasSubstr("r2=64]")) << "32 sums of a lane, and then one in f32";
    EXPECT_THAT(text(96), testing::HasSubstr("r2=48]"));
    EXPECT_THAT(text(33), testing::Not(testing::HasSubstr("matrix"))) << "pairs need an even sum";
    target.f16_gflops_1.value = target.fma_gflops_1.value;
    EXPECT_THAT(text(128), testing::Not(testing::HasSubstr("matrix"))) << "no faster than multiply-adds of f32";
}

Target with_amx() {
    Target target = generic_target(VectorIsa::avx512);
    target.native = true;
    target.features = {"amx-bf16", "amx-tile", "avx512bf16"};
    return target;
}

TEST(DefaultSchedule, blocks_reductions_on_tile_registers_so_that_a_panel_fits_in_L1) {
    const Target target = with_amx();
    const auto line = [&](const std::string& m, int n, int k) {
        const Program stages = parse_program(fmt::format(R"(program product {{
  input a: bf16[{0}, {2}]
  input b: bf16[{3}, {4}, 32, 2]
  c: bf16[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 32, i2 // 2, i1 % 32, i2 % 2]
  output c
}})",
                                                         m, n, k, n / 32, k / 2));
        const TileProgram t = default_schedule(stages, target);
        EXPECT_EQ(verify(t), std::vector<std::string>()) << print(t);
        return tiling_expression(t);
    };
    EXPECT_EQ(line("128", 768, 768), "s1r2(C0)") << "48 KB in halves";
    EXPECT_EQ(line("128", 768, 256), "C0") << "16 KB";
    EXPECT_EQ(line("16", 768, 768), "C0") << "no other tile of rows uses the panel";
    EXPECT_EQ(line("2048", 64, 768), "s0s1r2(C0)") << "partial sums of 512 rows";
    EXPECT_EQ(line("$m", 768, 768), "s1s0s0s1r2(C0)") << "tasks, then blocks of rows";
}

TEST(DefaultSchedule, does_not_block_windows_whose_reads_hit_L1) {
    const Target target = with_amx();
    const auto line = [&](int channels, int size) {
        const Program stages = parse_program(fmt::format(R"(program convolution {{
  input x: bf16[{2}, {2}, {0}]
  input w: bf16[{1}, 3, 3, {3}, 32, 2]
  y: bf16[{4}, {4}, {0}] = [{4}, {4}, {0}] sum(i3 < {0}, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i0 + i4, i1 + i5, i3], @1 = w[i2 // 32, i4, i5, i3 // 2, i2 % 32, i3 % 2]
  output y
}})",
                                                         channels, channels / 32, size + 2, channels / 2, size));
        const TileProgram t = default_schedule(stages, target);
        EXPECT_EQ(verify(t), std::vector<std::string>()) << print(t);
        return tiling_expression(t);
    };
    EXPECT_EQ(line(64, 56), "C0") << "36 KB, but a pixel is read nine times";
}

TEST(DefaultSchedule, keeps_rows_whole_that_exceed_L2_by_less_than_blocks_would_read_again) {
    // The rows are 1.5 MB, the weights 9.4 MB in panels of 384 KB.
    const Program stages = parse_program(R"(program product {
  input a: f32[128, 3072]
  input b: f32[24, 3072, 32]
  c: f32[128, 768] = [128, 768] sum(i2 < 3072) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 32, i2, i1 % 32]
  output c
})");
    const auto line = [&](int64_t l2) {
        Target target = generic_target(VectorIsa::avx512);
        target.caches.at(1).bytes = l2;
        return tiling_expression(default_schedule(stages, target));
    };
    EXPECT_THAT(line(2 << 20), testing::Not(testing::HasSubstr("s0")));
    EXPECT_THAT(line(1 << 20), testing::HasSubstr("s0"));
}

TEST(DefaultSchedule, multiplies_bytes_by_the_fastest_instructions_that_the_target_has) {
    Target target = generic_target(VectorIsa::neon);
    target.native = true;
    const auto text = [&](int k) {
        const Program stages = parse_program(fmt::format(R"(program product {{
  input a: u8[40, {0}]
  input b: i8[{1}, 48, 4]
  c: i32[40, 48] = [40, 48] sum(i2 < {0}) mul(i32(@0), i32(@1)) where @0 = a[i0, i2], @1 = b[i2 // 4, i1, i2 % 4]  ; c ""
  output c
}})",
                                                         k, (k + 3) / 4));
        const TileProgram t = default_schedule(stages, target);
        legal(t, stages, fmt::format("k {}", k));
        return print(t);
    };
    EXPECT_THAT(text(64), testing::Not(testing::HasSubstr("matrix")));
    target = generic_target(VectorIsa::avx512);
    target.native = true;
    EXPECT_THAT(text(64), testing::HasSubstr("matrix i8 dot [")) << "by 16-bit pairs";
    target.features = {"avx512vnni"};
    EXPECT_THAT(text(64), testing::HasSubstr("matrix i8 dot ["));
    EXPECT_THAT(text(62), testing::Not(testing::HasSubstr("matrix")));
    target.features = {"amx-int8", "amx-tile", "avx512vnni"};
    EXPECT_THAT(text(64), testing::HasSubstr("matrix i8 tile ["));
    EXPECT_THAT(text(12), testing::HasSubstr("matrix i8 dot ["));  // too few for a row of a tile register
}

TEST(DefaultSchedule, reads_what_no_cache_has_in_the_order_in_which_it_lies) {
    // Scores of one query for each of three heads, with keys [tokens, heads, 64].
    Program keys = parse_program(R"(program keys {
  input q: f32[3, 64]
  input k: f32[1024, 3, 64]
  s: f32[3, 1024] = [3, 1024] sum(i2 < 64) mul(@0, @1) where @0 = q[i0, i2], @1 = k[i1, i0, i2]
  output s
})");
    const auto order = [&] {
        const TileProgram t = default_schedule(keys, {}, target_with());
        for (const Stmt& s : t.body)
            if (const auto* c = std::get_if<Compute>(&s.kind)) return c->micro.order;
        return std::vector<size_t>();
    };
    const std::vector<size_t> heads_first = order();
    keys.far.emplace(keys.inputs[1], Residence::Memory);
    EXPECT_EQ(order(), (std::vector<size_t>{1, 0, 2})) << "token after token";
    EXPECT_EQ(heads_first, (std::vector<size_t>{0, 1, 2}));
}

TEST(DefaultSchedule, is_legal_and_computes_its_stage) {
    int several_tasks = 0, vectors = 0;
    for (uint64_t seed = 0; seed < 600; ++seed) {
        const Program program = random_program(seed, 1 + static_cast<int>(seed % 6));
        const Target target = targets()[seed % targets().size()];
        for (const PrimitiveId id : program.primitives.ids()) {
            const Program stages = kernel_of(program, id);
            const TileProgram t = default_schedule(stages, target);
            legal(t, stages, fmt::format("seed {}", seed));
            if (HasFatalFailure()) return;
            const std::string text = print(t);
            several_tasks += text.find("parallel") != std::string::npos ? 1 : 0;
            vectors += text.find("vector") != std::string::npos ? 1 : 0;
        }
    }
    EXPECT_GT(several_tasks, 10);
    EXPECT_GT(vectors, 200);
}

TEST(DefaultSchedule, is_legal_for_empty_extents) {
    const Program sums = parse_program(R"TW(program empty {
  input x: f32[6, 0]
  y: f32[6] = [6] sum(i1 < 0) @0 where @0 = x[i0, i1]  ; y ""
  output y
})TW");
    const Program copies = parse_program(R"TW(program empty {
  input x: f32[0, 6]
  y: f32[0, 6] = [0, 6] exp(@0) where @0 = x[i0, i1]  ; y ""
  output y
})TW");
    for (const Program& stages : {sums, copies})
        for (const Target& target : targets())
            EXPECT_EQ(verify(default_schedule(stages, target)), std::vector<std::string>());
}

TEST(DefaultSchedule, of_a_product_blocks_registers_and_packs_what_is_badly_strided) {
    const Program stages = parse_program(R"TW(program product {
  input a: f32[100, 64]
  input b: f32[96, 64]
  c: f32[100, 96] = [100, 96] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1, i2]  ; c ""
  output c
})TW");
    const TileProgram t = default_schedule(stages, target_with());
    legal(t, stages, "product");
    const std::string text = print(t);
    EXPECT_NE(text.find("load 0 access 1 layout \"split(0, "), std::string::npos) << text;
    EXPECT_NE(text.find("vector s1 lanes 16 registers ["), std::string::npos) << text;
}

TEST(DefaultSchedule, of_dynamic_rows_has_tasks_of_weights_on_one_thread_too) {
    // 1 MiB of weights, which a recurrence reads task by task, in reverse order every other step.
    const Program stages = parse_program(R"TW(program step {
  input h: f32[$batch, 256]
  input w: f32[256, 1024]
  y: f32[$batch, 1024] = [$batch, 1024] sum(i2 < 256) mul(@0, @1) where @0 = h[i0, i2], @1 = w[i2, i1]  ; y ""
  output y
})TW");
    const auto tasks = [&](int64_t l2_bytes) {
        const Target target = target_with({.l2_bytes = l2_bytes});
        const TileProgram t = default_schedule(stages, target);
        legal(t, stages, "step");
        int64_t n = 1;
        for (const std::vector<Stmt>* body = &t.body; body->size() == 1;) {
            const auto* loop = std::get_if<TileLoop>(&body->front().kind);
            if (loop == nullptr || !loop->parallel) break;
            if (const Expr extent = t.axes[loop->axis].extent; extent.is_constant())
                n *= (extent.constant() + loop->step - 1) / loop->step;
            body = &loop->body;
        }
        return n;
    };
    EXPECT_EQ(tasks(1 << 20), 4);
    EXPECT_EQ(tasks(4 << 20), 1);
}

TEST(DefaultSchedule, of_a_convolution_fetches_the_padding) {
    const Program stages = parse_program(R"TW(program convolution {
  input x: f32[2, 3, 14, 14]
  input w: f32[32, 3, 3, 3]
  y: f32[2, 32, 14, 14] = [2, 32, 14, 14] sum(i4 < 3, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and -i2 - i5 + 14 >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + 14 >= 0 else 0, @1 = w[i1, i4, i5, i6]  ; y ""
  output y
})TW");
    for (const Target& target : targets()) {
        const TileProgram t = default_schedule(stages, target);
        legal(t, stages, "convolution");
    }
    EXPECT_NE(print(default_schedule(stages, target_with())).find("load 0 access 0"), std::string::npos);
}

TEST(DefaultSchedule, packs_no_operand_that_nobody_reads_again) {
    // Attention scores of `queries` rows per head: their keys are contiguous along the reduction.
    const auto vectors_along_the_sum = [](int64_t queries) {
        const Program p = parse_program(fmt::format(R"(program scores {{
  input q: f32[12, {0}, 64]
  input k: f32[12, 128, 64]
  s: f32[12, {0}, 128] = [12, {0}, 128] sum(i3 < 64) mul(@0, @1) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]
  output s
}})",
                                                    queries));
        legal(default_schedule(p, target_with()), p, "scores");
        const TensorExpr& e = *p.primitives[PrimitiveId(0)].expr();
        return choose_micro(p, e, DType::F32, target_with()).micro.vector_axis == e.spatial;
    };
    EXPECT_TRUE(vectors_along_the_sum(1));
    EXPECT_FALSE(vectors_along_the_sum(32));
}

TEST(DefaultSchedule, blocks_sums_whose_panels_of_weights_are_too_large_to_be_prefetched) {
    const auto block = [](const char* m, int64_t terms, const char* out = "f32") {
        const Program p = parse_program(fmt::format(R"(program product {{
  input x: f32[{0}, {1}]
  input w: f32[24, {1}, 32]
  y: {2}[{0}, 768] = [{0}, 768] sum(i2 < {1}) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i2], @1 = w[i1 // 32, i2, i1 % 32]
  output y
}})",
                                                    m, terms, out));
        const TileProgram t = default_schedule(p, target_with());
        EXPECT_EQ(verify(t), std::vector<std::string>());
        for (const std::vector<Stmt>* body = &t.body; body->size() == 1;) {
            const auto* loop = std::get_if<TileLoop>(&body->at(0).kind);
            if (loop == nullptr) break;
            if (t.axes[loop->axis].name == "r2") return loop->step;
            body = &loop->body;
        }
        return terms;
    };
    EXPECT_EQ(block("128", 3072), 1024);  // 128 KB of 32 columns
    EXPECT_EQ(block("$m", 3072), 1024);
    EXPECT_EQ(block("128", 2500), 625);
    EXPECT_EQ(block("128", 512), 512);            // small enough
    EXPECT_EQ(block("2", 3072), 3072);            // one tile of rows reads each panel once
    EXPECT_EQ(block("128", 3079), 3079);          // a prime number
    EXPECT_EQ(block("128", 3072, "bf16"), 3072);  // the result keeps no partial sums
}

TEST(DefaultSchedule, blocks_windows_whose_panels_of_weights_are_too_large_to_be_prefetched) {
    const auto line = [](int channels, int columns, int size) {
        const Program p = parse_program(fmt::format(R"(program convolution {{
  input x: f32[{2}, {2}, {0}]
  input w: f32[{1}, 3, 3, {0}, 32]
  y: f32[{3}, {3}, {4}] = [{4}, {3}, {3}] -> [i1, i2, i0] sum(i3 < {0}, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i1 + i4, i2 + i5, i3], @1 = w[i0 // 32, i4, i5, i3, i0 % 32]
  output y
}})",
                                                    channels, columns / 32, size + 2, size, columns));
        const TileProgram t = default_schedule(p, target_with());
        EXPECT_EQ(verify(t), std::vector<std::string>());
        return tiling_expression(t);
    };
    EXPECT_EQ(line(512, 512, 7), "s0r4r5(C0)") << "64 KB of a pixel of the window";
    EXPECT_EQ(line(256, 512, 7), "s0r4(C0)") << "96 KB of a row of it";
    EXPECT_EQ(line(64, 512, 7), "C0") << "72 KB";
}

/// The loops and copies of the schedule of a product x y of so many terms.
std::string packed_product(const char* x, const char* y, const char* z, const char* terms, int workers = 1) {
    const std::string accesses =
        std::count(x, x + std::strlen(x), ',') == 2
            ? fmt::format("sum(i3 < {}) mul(@0, @1) where @0 = x[i0, i1, i3], @1 = y[i0, i3, i2]", terms)
            : fmt::format("sum(i2 < {}) mul(@0, @1) where @0 = x[i0, i2], @1 = y[i2, i1]", terms);
    const Program p = parse_program(fmt::format(R"(program product {{
  input x: f32[{0}]
  input y: f32[{1}]
  z: f32[{2}] = [{2}] {3}
  output z
}})",
                                                x, y, z, accesses));
    const TileProgram t = default_schedule(p, target_with({.lanes = 8, .vector_registers = 16, .workers = workers}));
    EXPECT_EQ(verify(t), std::vector<std::string>());
    if (terms[0] == '$') legal(t, p, "packed product");  // for small sizes
    return tiling_expression(t);
}

TEST(DefaultSchedule, of_a_product_packs_blocks_of_run_time_factors_whose_rows_are_far_apart) {
    // Both sizes of the right factor are dynamic: blocks of rows, each for all blocks of columns.
    EXPECT_EQ(packed_product("256, $k", "$k, $n", "256, $n", "$k"), "r2(Lx,s1(Ly,C0))");
    EXPECT_EQ(packed_product("64, 528", "528, 512", "64, 512", "528"), "r2(Lx,s1(Ly,C0))");
    EXPECT_EQ(packed_product("2, 64, 528", "2, 528, 512", "2, 64, 512", "528"), "s0r3(Lx,s2(Ly,C0))");
    // Not where a panel stays in L1 by itself, rows are near, or few results use what is copied.
    EXPECT_EQ(packed_product("256, 64", "64, $n", "256, $n", "64").find('L'), std::string::npos);
    EXPECT_EQ(packed_product("64, 528", "528, 448", "64, 448", "528").find("Lx"), std::string::npos);
    EXPECT_EQ(packed_product("8, 528", "528, 512", "8, 512", "528").find('L'), std::string::npos);
}

TEST(DefaultSchedule, of_a_packed_product_shares_rows_between_threads_and_then_columns) {
    EXPECT_EQ(packed_product("256, $k", "$k, $n", "256, $n", "$k", 2), "s0r2(Lx,s1(Ly,C0))");
    EXPECT_EQ(packed_product("128, $k", "$k, $n", "128, $n", "$k", 2), "s1r2(Lx,s1(Ly,C0))");
    EXPECT_EQ(packed_product("192, 528", "528, 512", "192, 512", "528", 8), "s0s1r2(Lx,s1(Ly,C0))");
}

TEST(DefaultSchedule, of_a_sum_down_columns_reads_memory_row_by_row) {
    const auto sum = [](int64_t rows, int64_t columns, const char* then) {
        return parse_program(fmt::format(R"(program sum {{
  input x: f32[{0}, {1}]
  s: f32[{1}] = [{1}] sum(i1 < {0}) @0{2} where @0 = x[i1, i0]
  output s
}})",
                                         rows, columns, then));
    };
    Target target = target_with({.l2_bytes = 1 << 16});
    const auto outermost = [&](const Program& p) {
        const TileProgram t = default_schedule(p, target);
        const auto* loop = std::get_if<TileLoop>(&t.body.at(0).kind);
        return loop == nullptr ? std::string("none") : fmt::format("{} by {}", t.axes[loop->axis].name, loop->step);
    };
    EXPECT_EQ(outermost(sum(200, 1024, "")), "r1 by 1");
    EXPECT_EQ(outermost(sum(200, 1000, "")), "r1 by 1");
    EXPECT_EQ(outermost(sum(200, 9000, "")), "s0 by 2304");  // so that the partial sums stay in L1
    EXPECT_EQ(outermost(sum(8, 4096, "")), "none");          // few rows
    EXPECT_EQ(outermost(sum(400, 64, "")), "none");          // a register tile reads whole rows
    const auto panels = [&](int64_t columns) {               // m = 1, weights packed
        return outermost(parse_program(fmt::format(R"(program product {{
  input x: f32[200]
  input w: f32[{0}, 200, {1}]
  y: f32[1024] = [1024] sum(i1 < 200) mul(@0, @1) where @0 = x[i1], @1 = w[i0 // {1}, i1, i0 % {1}]
  output y
}})",
                                                   1024 / columns, columns)));
    };
    EXPECT_EQ(panels(8 * target.micro_lanes()), "none");  // a register tile reads a whole panel
    EXPECT_EQ(panels(512), "r1 by 1");
    target = target_with();
    EXPECT_EQ(outermost(sum(200, 1024, "")), "none");  // close enough
    target = target_with({.l2_bytes = 1 << 16});
    for (const int64_t rows : {200, 203})
        for (const char* then : {"", " then sqrt(div(acc, 200.0))"})
            legal(default_schedule(sum(rows, 1000, then), target), sum(rows, 1000, then), then);
}

TEST(DefaultSchedule, of_windows_that_go_by_twos_has_vectors_along_their_rows) {
    const auto vectors_along = [](int stride) {
        const Program p = parse_program(fmt::format(R"(program pool {{
  input x: f32[24, {1}, {1}]
  y: f32[24, 40, 40] = [24, 40, 40] max(i3 < 2, i4 < 2) @0 where @0 = x[i0, {0} * i1 + i3, {0} * i2 + i4]
  output y
}})",
                                                    stride, 40 * stride));
        const TensorExpr& e = *p.primitives[PrimitiveId(0)].expr();
        legal(default_schedule(p, target_with()), p, "pool");
        return choose_micro(p, e, DType::F32, target_with()).micro.vector_axis;
    };
    EXPECT_EQ(vectors_along(2), 2u);
    EXPECT_EQ(vectors_along(4), 2u);
    EXPECT_NE(vectors_along(5), 2u);  // one load per lane
}

TEST(DefaultSchedule, of_windows_over_what_comes_from_memory_follows_few_rows_at_a_time) {
    const auto rows = [](int stride, int64_t cache_bytes) {
        const Program p = parse_program(fmt::format(R"(program pool {{
  input x: f32[24, {1}, {1}]
  y: f32[24, 40, 40] = [24, 40, 40] max(i3 < 3, i4 < 3) @0 where @0 = x[i0, {0} * i1 + i3, {0} * i2 + i4]
  output y
}})",
                                                    stride, 40 * stride + 2));
        const Target target = target_with({.l2_bytes = cache_bytes, .last_cache_bytes = cache_bytes});
        legal(default_schedule(p, target), p, "pool");
        return choose_micro(p, *p.primitives[PrimitiveId(0)].expr(), DType::F32, target).micro.registers[1];
    };
    EXPECT_EQ(rows(2, 1 << 20), 4);  // nine rows of the operand, in a cache
    EXPECT_EQ(rows(2, 1 << 16), 1);  // three rows of the operand
    EXPECT_EQ(rows(1, 1 << 16), 2);  // four
    // The same after axes are merged: planes are contiguous, but no window slides from one plane to the next.
    const Program merged = parse_program(R"(program pool {
  input x: f32[12845056]
  y: f32[3211264] = [1024, 56, 56] -> [3136*i0 + 56*i1 + i2] max(i3 < 3, i4 < 3) @0 where @0 = x[12544*i0 + 224*i1 + 2*i2 + 112*i3 + i4 - 113] when 2*i1 + i3 - 1 >= 0 and 2*i2 + i4 - 1 >= 0 else -inf
  output y
})");
    const Micro flat = choose_micro(merged, *merged.primitives[PrimitiveId(0)].expr(), DType::F32, target_with()).micro;
    EXPECT_EQ(flat.registers[0], 1);
    EXPECT_EQ(flat.registers[1], 1);
}

TEST(DefaultSchedule, of_a_transposition_writes_several_lines_of_a_row_in_turn) {
    const Program p = parse_program(R"TW(program turn {
  input x: f32[300, 1040]
  y: f32[1040, 300] = [1040, 300] @0 where @0 = x[i1, i0]
  output y
})TW");
    const auto tree = [&](const Program& stages) { return tiling_expression(default_schedule(stages, target_with())); };
    EXPECT_EQ(tree(p), "C0");  // rows shorter than a page
    const Program far = parse_program(R"TW(program turn {
  input x: f32[1040, 300]
  y: f32[300, 1040] = [300, 1040] @0 where @0 = x[i1, i0]
  output y
})TW");
    EXPECT_EQ(tree(far), "s1(C0)");
    const TileProgram t = default_schedule(far, target_with());
    const auto& loop = std::get<TileLoop>(t.body.at(0).kind);
    EXPECT_EQ(loop.step, 128);
    EXPECT_EQ(std::get<Compute>(loop.body.at(0).kind).micro.order, (std::vector<size_t>{0, 1}));
    legal(t, far, "transposition");
}

Micro micro_of(const std::string& text) {
    const Program p = parse_program(text);
    const TensorExpr& e = *p.primitives[PrimitiveId(0)].expr();
    return choose_micro(p, e, DType::F32, target_with()).micro;
}

std::vector<size_t> spatial_order(const Micro& m, size_t spatial) {
    std::vector<size_t> out;
    for (const size_t a : m.order)
        if (a < spatial) out.push_back(a);
    return out;
}

Program depthwise_program(const std::string& height, const std::string& width, int channels) {
    return parse_program(fmt::format(R"(program depthwise {{
  input x: f32[1, {0}, {1}, {2}]
  input w: f32[1, {3}, 3, 3, 16]
  y: f32[1, {0}, {1}, {2}] = [{2}, {0}, {1}] -> [0, i1, i2, i0] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = x[0, i1 + i3 - 1, i2 + i4 - 1, i0] when i1 + i3 - 1 >= 0 and {0} - i1 - i3 >= 0 and i2 + i4 - 1 >= 0 and {1} - i2 - i4 >= 0 else 0, @1 = w[0, i0 // 16, i3, i4, i0 % 16]  ; y ""
  output y
}}
)",
                                     height, width, channels, channels / 16));
}

TEST(DefaultSchedule, of_windows_over_two_axes_has_two_rows_and_takes_all_channels_of_them_where_memory_is_far) {
    const auto depthwise = [](const std::string& height, const std::string& width, int channels) {
        const Program p = depthwise_program(height, width, channels);
        return choose_micro(p, *p.primitives[PrimitiveId(0)].expr(), DType::F32, target_with()).micro;
    };
    for (const Micro& m : {depthwise("28", "28", 192), depthwise("256", "256", 256), depthwise("$h", "$w", 256)}) {
        EXPECT_EQ(m.vector_axis, 0u);
        EXPECT_EQ(m.registers, (std::vector<int64_t>{16, 2, 4, 3, 3}));
    }
    EXPECT_EQ(spatial_order(depthwise("28", "28", 192), 3), (std::vector<size_t>{0, 1, 2}));
    for (const auto& [size, channels] : {std::pair("112", 32), std::pair("256", 256)})
        EXPECT_EQ(spatial_order(depthwise(size, size, channels), 3), (std::vector<size_t>{1, 2, 0}));
    EXPECT_EQ(spatial_order(depthwise("$h", "$w", 256), 3), (std::vector<size_t>{1, 2, 0}));
    // Threads split the rows, not the channels of each row.
    const Target two = target_with({.workers = 2});
    for (const std::string& height : {std::string("256"), std::string("$h")}) {
        const TileProgram t = default_schedule(depthwise_program(height, "256", 256), two);
        const auto& grid = std::get<TileLoop>(t.body.at(0).kind);
        EXPECT_TRUE(grid.parallel);
        EXPECT_EQ(grid.axis, 1u) << print(t);
        EXPECT_TRUE(std::holds_alternative<Compute>(grid.body.at(0).kind)) << print(t);
    }
    // Here rows are one reduction: no window slides.
    const Micro sum = micro_of(R"(program sum {
  input x: f32[64, 9, 256]
  y: f32[64, 256] = [64, 256] sum(i2 < 9) @0 where @0 = x[i0, i2, i1]  ; y ""
  output y
}
)");
    EXPECT_EQ(sum.registers[0], 4);
}

TEST(DefaultSchedule, of_products_has_batches_outside_of_panels_and_groups_inside_of_rows) {
    // Heads: independent matrices.
    const Micro heads = micro_of(R"(program heads {
  input a: f32[16, 17, 16]
  input b: f32[16, 16, $n]
  y: f32[16, 17, $n] = [16, 17, $n] sum(i3 < 16) mul(@0, @1) where @0 = a[i0, i1, i3], @1 = b[i0, i3, i2]  ; y ""
  output y
}
)");
    EXPECT_EQ(spatial_order(heads, 3), (std::vector<size_t>{0, 2, 1}));
    // Channel groups of each pixel.
    const Micro groups = micro_of(R"(program groups {
  input a: f32[$n, 24, 16]
  input b: f32[24, 16, 16]
  y: f32[$n, 24, 16] = [24, $n, 16] -> [i1, i0, i2] sum(i3 < 16) mul(@0, @1) where @0 = a[i1, i0, i3], @1 = b[i0, i3, i2]  ; y ""
  output y
}
)");
    EXPECT_EQ(spatial_order(groups, 3), (std::vector<size_t>{2, 1, 0}));
    // Their weights exceed L2: those of each group serve all rows.
    const Micro many = micro_of(R"(program many {
  input a: f32[$n, 24, 128]
  input b: f32[24, 128, 128]
  y: f32[$n, 24, 128] = [24, $n, 128] -> [i1, i0, i2] sum(i3 < 128) mul(@0, @1) where @0 = a[i1, i0, i3], @1 = b[i0, i3, i2]  ; y ""
  output y
}
)");
    EXPECT_EQ(spatial_order(many, 3), (std::vector<size_t>{0, 2, 1}));
}

TEST(DefaultSchedule, of_a_transposed_concatenation_counts_the_part_that_is_read) {
    // Two transposed operands would cost more than scalar code. An element reads one of them.
    const Micro m = micro_of(R"TW(program concat {
  input x: f32[1024, 384]
  input z: f32[1024, 384]
  y: f32[16, 48, 1024] = [16, 48, 1024] select(lt(index(48*i0 + i1 - 384), 0), @0, @1) where @0 = x[i2, 48*i0 + i1] when -48*i0 - i1 + 383 >= 0 else 0, @1 = z[i2, 48*i0 + i1 - 384] when 48*i0 + i1 - 384 >= 0 else 0
  output y
})TW");
    EXPECT_EQ(m.vector_axis, 2u);
    EXPECT_EQ(m.registers.at(1), m.lanes) << "blocks that are transposed in registers";
}

/// Channels last: vectors along a row, or scalars, write parts of lines.
TEST(DefaultSchedule, of_planes_written_channels_last_finishes_rows_in_one_task) {
    const auto schedule = [](const char* text, int64_t width) {
        const Program p = parse_program(fmt::format(fmt::runtime(text), width, 2 * width));
        return print(default_schedule(p, target_with({.lanes = 8, .workers = 2})));
    };
    // YOLOX' first layer: four parts, each of every second pixel.
    const char* focus = R"TW(program focus {{
  input x: f32[3, 416, {1}]
  y: f32[1, 208, {0}, 12] = [12, 208, {0}] -> [0, i1, i2, i0] select(lt(index(i0 - 3), 0), @0, select(lt(index(i0 - 6), 0), @1, select(lt(index(i0 - 9), 0), @2, @3))) where @0 = x[i0, 2*i1, 2*i2] when -i0 + 2 >= 0 else 0, @1 = x[i0 - 3, 2*i1 + 1, 2*i2] when i0 - 3 >= 0 and -i0 + 5 >= 0 else 0, @2 = x[i0 - 6, 2*i1, 2*i2 + 1] when i0 - 6 >= 0 and -i0 + 8 >= 0 else 0, @3 = x[i0 - 9, 2*i1 + 1, 2*i2 + 1] when i0 - 9 >= 0 else 0
  output y
}})TW";
    const std::string narrow = schedule(focus, 208);  // 9,984 bytes a row
    EXPECT_NE(narrow.find("vector s2"), std::string::npos) << narrow;
    EXPECT_NE(narrow.find("parallel s1"), std::string::npos) << narrow;
    EXPECT_NE(narrow.find("order [s1 s0 s2]"), std::string::npos) << narrow;
    EXPECT_NE(schedule(focus, 2048).find("order [s1 s2 s0]"), std::string::npos) << "a row exceeds L1";
    const std::string scalars = schedule(R"TW(program planes {{
  input x: f32[24, 416, {1}]
  y: f32[1, 208, {0}, 24] = [24, 208, {0}] -> [0, i1, i2, i0] @0 where @0 = x[i0, 2*i1, 2*i2]
  output y
}})TW",
                                         100);
    EXPECT_EQ(scalars.find("vector"), std::string::npos) << scalars;
    EXPECT_NE(scalars.find("order [s1 s2 s0]"), std::string::npos) << scalars;
}

/// Channels are the first axis and lie last: not all pixels of a vector of channels, which are a pixel's size apart.
TEST(DefaultSchedule, of_elementwise_stages_writes_results_in_their_order_in_memory) {
    const std::string text = print(default_schedule(parse_program(R"TW(program scaled {
  input x: f32[128, 64, 256]
  input s: f32[256]
  y: f32[64, 32, 256] = [256, 64, 32] -> [i1, i2, i0] mul(@0, @1) where @0 = x[2*i1, 2*i2, i0], @1 = s[i0]
  output y
})TW"),
                                                    target_with({.lanes = 8})));
    EXPECT_NE(text.find("vector s0"), std::string::npos) << text;
    EXPECT_NE(text.find("order [s1 s2 s0]"), std::string::npos) << text;
}

TEST(DefaultSchedule, of_values_that_are_used_twice_looks_at_each_once) {
    Program p = parse_program(R"TW(program power {
  input x: f32[64]
  y: f32[64] = [64] @0 where @0 = x[i0]
  output y
})TW");
    TensorExpr& e = *p.primitives[PrimitiveId(0)].expr();
    ScalarBody body;
    ScalarId power = body.access(0, DType::F32);
    for (int k = 0; k < 50; ++k) power = body.binary(ScalarOp::Mul, power, power);  // 2^50 paths to x
    body.set_root(power);
    e.body = body;
    EXPECT_EQ(choose_micro(p, e, DType::F32, target_with()).micro.vector_axis, 0u);
}

/// The cost of scalar code grows with the number of operands as well: 24 operands of a concatenation must not rule out
/// vectors.
TEST(DefaultSchedule, of_a_concatenation_has_vectors_however_many_operands_there_are) {
    for (const size_t n : {2, 24, 40}) {
        std::string inputs, body = fmt::format("@{}", n - 1), reads;
        for (size_t k = 0; k < n; ++k) {
            inputs += fmt::format("  input x{}: f32[6, 32]\n", k);
            reads += fmt::format("{0}@{1} = x{1}[i0, i1 - {2}] when i1 - {2} >= 0 and {3} - i1 >= 0 else 0",
                                 k > 0 ? ", " : "", k, 32 * k, 32 * k + 31);
        }
        for (size_t k = n - 1; k-- > 0;)
            body = fmt::format("select(lt(index(i1 - {}), 0), @{}, {})", 32 * k + 32, k, body);
        const Program stages = parse_program(fmt::format(
            "program c {{\n{0}  y: f32[6, {1}] = [6, {1}] {2} where {3}\n  output y\n}}", inputs, 32 * n, body, reads));
        const TileProgram t = default_schedule(stages, targets()[0]);
        legal(t, stages, fmt::format("{} operands", n));
        EXPECT_NE(print(t).find("vector "), std::string::npos) << n << "\n" << print(t);
    }
}

TEST(DefaultSchedule, of_stages_that_share_rows_runs_them_row_by_row) {
    const Program stages = parse_program(R"TW(program softmax {
  input x: f32[$rows, 40]
  m: f32[$rows] = [$rows] max(i1 < 40) @0 where @0 = x[i0, i1]  ; m ""
  e: f32[$rows, 40] = [$rows, 40] exp(sub(@0, @1)) where @0 = x[i0, i1], @1 = m[i0]  ; e ""
  s: f32[$rows] = [$rows] sum(i1 < 40) @0 where @0 = e[i0, i1]  ; s ""
  y: f32[$rows, 40] = [$rows, 40] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0]  ; y ""
  output y
})TW");
    IndexVector<PrimitiveId, std::vector<size_t>> rows(4, {0});
    const TileProgram t = default_schedule(stages, rows, target_with());
    legal(t, stages, "softmax");
    EXPECT_EQ(tiling_expression(t), "s0(C0,C1,C2,C3)");
}

}  // namespace
}  // namespace tilewright
