// For any tiles, machine code gives the results of the tile interpreter and of the stages.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "backend/cpu/run_kernel_test.h"
#include "base/temporary_folder_test.h"
#include "tile/random_case_test.h"

namespace tilewright::cpu {
namespace {

using namespace test;

/// Parameters of a batch of random kernels, and the tolerance of their results.
struct Family {
    Target isa;
    int64_t lanes = 16;
    int64_t registers = 16;
    bool doubles = false;
    double tolerance = 1e-3;
    int size = 3;
};

/// AVX2, with caches that keep a result of so many bytes, rounded down to a multiple of 5 (annotate_options).
Target with_cache(int64_t bytes) {
    Target target = avx2();
    for (CacheLevel& c : target.caches) c.bytes = bytes / 5 * 8;
    return target;
}

ScalarBody in_doubles(const ScalarBody& body) {
    ScalarBody out;
    std::vector<ScalarId> at;
    for (ScalarNode n : body.nodes()) {
        if (n.dtype == DType::F32) n.dtype = DType::F64;
        for (ScalarId* operand : {&n.a, &n.b, &n.c})
            if (*operand) *operand = at[operand->index()];
        at.push_back(out.add(n));
    }
    if (!body.empty()) out.set_root(at[body.root().index()]);
    return out;
}

/// The same kernel and inputs with f64 instead of f32.
void turn_to_doubles(ScheduledCase& c) {
    Program& stages = c.program.stages;
    for (Value& v : stages.values)
        if (v.dtype == DType::F32) v.dtype = DType::F64;
    for (Primitive& p : stages.primitives) {
        p.expr()->body = in_doubles(p.expr()->body);
        p.expr()->epilogue = in_doubles(p.expr()->epilogue);
    }
    for (Tensor& t : c.given.inputs) {
        if (t.dtype() != DType::F32) continue;
        Tensor wide(DType::F64, t.shape());
        for (int64_t i = 0; i < t.count(); ++i) wide.set(i, t.get(i));
        t = wide;
    }
}

ScheduledCase made(uint64_t seed, const Family& family) {
    RandomScheduleOptions schedule;
    schedule.most_lanes = family.lanes;
    schedule.most_registers = family.registers;
    RandomProgramOptions options;
    options.other_types = !family.doubles;
    const int size = 1 + static_cast<int>(seed % static_cast<uint64_t>(family.size));
    ScheduledCase made = random_scheduled_case(seed, size, schedule, options);
    if (family.doubles) turn_to_doubles(made);
    return made;
}

/// Compiles `many` kernels at a time, as for a model, and compares each of them.
void agree(uint64_t from, uint64_t to, const Family& family) {
    constexpr uint64_t kMany = 32;
    int failures = 0;
    for (uint64_t begin = from; begin < to && failures < 3; begin += kMany) {
        std::vector<ScheduledCase> cases;
        for (uint64_t seed = begin; seed < std::min(begin + kMany, to); ++seed) cases.push_back(made(seed, family));
        std::vector<const TileProgram*> programs;
        for (const ScheduledCase& c : cases) programs.push_back(&c.program);
        std::vector<CompiledKernel> kernels;
        try {
            kernels = compile(programs, family.isa);
        } catch (const std::exception&) {  // one by one, to name the failing one
        }
        for (size_t i = 0; i < cases.size(); ++i) {
            const TileProgram& t = cases[i].program;
            const std::vector<Tensor>& inputs = cases[i].given.inputs;
            const std::string together =
                kernels.empty() ? "not compiled" : disagreement(kernels[i], t, inputs, family.tolerance);
            if (together.empty()) continue;
            const std::string alone = explained(t, inputs, family.tolerance, family.isa);
            if (alone.empty() && kernels.empty()) continue;
            ++failures;
            ADD_FAILURE() << "seed " << begin + i << ": " << alone << "\ncompiled with others: " << together;
        }
    }
}

TEST(Codegen, writes_outputs_larger_than_the_caches_past_them) {
    if (!runs_here(avx2())) GTEST_SKIP() << "this machine has no AVX2";
    const TileProgram t = parse_tile_program(R"(tile relu {
stages {
program relu {
  input x: f32[300, 64]
  y: f32[300, 64] = [300, 64] max(@0, 0.0) where @0 = x[i0, i1]  ; y ""
  output y
}
}
axes s0="300" s1="64"
stage 0 over [s0 s1]
compute 0 vector s1 lanes 8 registers [s1=16] order [s0 s1] padding partition
}
)");
    const Target far = with_cache(300 * 64 * 4 - 1), near = with_cache(300 * 64 * 4);
    EXPECT_NE(print_assembly(t, far).find("vmovntps"), std::string::npos);
    EXPECT_NE(print_assembly(t, far).find("sfence"), std::string::npos);
    EXPECT_EQ(print_assembly(t, near).find("vmovntps"), std::string::npos);
    Tensor x(DType::F32, {300, 64}), y(DType::F32, {300, 64});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i % 7 - 3));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(y.data()) % 64, 0u);
    const CompiledKernel k = compile(t, far);
    void* tensors[] = {x.mutable_data(), y.mutable_data()};
    int64_t tasks = 1;
    for (const Expr& g : k.grid) tasks *= g.constant();
    k.run(tensors, nullptr, 0, tasks, nullptr);
    for (int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(y.get(i), std::max(0.0, x.get(i))) << i;
}

/// relu(x[rows, sum] w[sum, 16]) in register tiles of 6 rows.
TileProgram product_of_rows(const std::string& rows, int sum) {
    return parse_tile_program(fmt::format(R"(tile product {{
stages {{
program product {{
  input x: f32[{0}, {1}]
  input w: f32[{1}, 16]
  y: f32[{0}, 16] = [{0}, 16] sum(i2 < {1}) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y ""
  output y
}}
}}
axes s0="{0}" s1="16" r2="{1}"
stage 0 over [s0 s1 r2]
compute 0 vector s1 lanes 8 registers [s0=6 s1=16] order [s1 s0 r2] padding partition
}}
)",
                                          rows, sum));
}

TEST(Codegen, writes_past_the_caches_what_only_the_run_knows_to_be_larger) {
    if (!runs_here(avx2())) GTEST_SKIP() << "this machine has no AVX2";
    const TileProgram t = product_of_rows("$rows", 64);
    const Target target = with_cache(100 * 16 * 4);
    const std::string code = print_llvm(t, target);
    EXPECT_NE(code.find("!nontemporal"), std::string::npos);
    EXPECT_NE(print_assembly(t, target).find("vmovntps"), std::string::npos);
    EXPECT_NE(print_assembly(t, target).find("sfence"), std::string::npos);
    // No test of the size if it is known at compile time.
    EXPECT_EQ(print_assembly(product_of_rows("100", 64), target).find("vmovntps"), std::string::npos);
    EXPECT_NE(print_assembly(product_of_rows("101", 64), target).find("vmovntps"), std::string::npos);
    const CompiledKernel k = compile(t, target);
    for (const int64_t rows : {1, 5, 50, 100, 101, 305}) {
        Tensor x(DType::F32, {rows, 64}), w(DType::F32, {64, 16}), y(DType::F32, {rows, 16});
        for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i % 7 - 3));
        for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>(i % 5 - 2));
        void* tensors[] = {x.mutable_data(), w.mutable_data(), y.mutable_data()};
        ASSERT_EQ(k.names.size(), 1u);
        k.run(tensors, &rows, 0, 1, nullptr);
        const Tensor expected = interpret(t.stages, {x, w}).at(0);
        for (int64_t i = 0; i < y.count(); ++i) ASSERT_EQ(y.get(i), expected.get(i)) << rows << " rows, " << i;
    }
}

TEST(Codegen, writes_into_a_cache_what_is_near_however_large_it_is) {
    if (!runs_here(avx2())) GTEST_SKIP() << "this machine has no AVX2";
    TileProgram t = product_of_rows("4096", 64);
    const Target target = with_cache(100 * 16 * 4);
    EXPECT_NE(print_assembly(t, target).find("vmovntps"), std::string::npos);
    EXPECT_NE(print_llvm(t, target).find("llvm.prefetch"), std::string::npos);
    t.near = {t.stages.inputs[0], t.stages.outputs[0]};
    EXPECT_EQ(print_assembly(t, target).find("vmovntps"), std::string::npos);
    EXPECT_EQ(print_llvm(t, target).find("llvm.prefetch"), std::string::npos);
}

size_t prefetches(const std::string& code) {
    size_t calls = 0;
    for (size_t at = 0; (at = code.find("call void @llvm.prefetch", at)) != std::string::npos; ++at) ++calls;
    return calls;
}

/// F(2, 3) along rows of pixels with 16 channels: the current tile has already read two of the next tile's four pixels.
TEST(Codegen, prefetches_only_the_new_pixels_of_a_transform_s_next_tile) {
    const auto fetches = [](int rows) {
        const std::string code = print_llvm(parse_tile_program(fmt::format(R"(tile map {{
stages {{
program map {{
  input x: f32[{0}, 66, 16]
  y: f32[4, {0}, 32, 16] = [4, {0}, 32, 16] sum(i4 < 4) weigh(table{{1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1}}(index(4*i0 + i4)), @0) where @0 = x[i1, 2*i2 + i4, i3]  ; y ""
  output y
}}
}}
axes s0="4" s1="{0}" s2="32" s3="16" r4="4"
stage 0 over [s0 s1 s2 s3 r4]
compute 0 vector s3 lanes 8 registers [s0=4 s3=8 r4=4] order [s0 s1 s2 s3 r4] padding partition
}}
)",
                                                                           rows)),
                                            host());
        return prefetches(code);
    };
    EXPECT_EQ(fetches(400), 2u);
    EXPECT_EQ(fetches(40), 0u);  // the L2 cache holds all of it
}

/// 6 rows of 64 floats are 24 lines; each step of the reduction prefetches its share, 6 floats further on.
TEST(Codegen, fetches_the_rows_of_a_product_s_next_tile) {
    const auto fetches = [](const std::string& rows, int sum) {
        const std::string code = print_llvm(product_of_rows(rows, sum), host());
        return code.find("llvm.prefetch") != std::string::npos;
    };
    EXPECT_TRUE(fetches("$rows", 64));
    EXPECT_TRUE(fetches("4096", 64));
    EXPECT_FALSE(fetches("600", 64));  // the L2 cache holds all of it
}

/// 6 x 16 sums plus another operand: its 12 vectors are prefetched before the reduction.
TEST(Codegen, fetches_what_is_added_to_a_tile_before_its_sum) {
    const auto fetches = [](int rows) {
        const std::string code = print_llvm(parse_tile_program(fmt::format(R"(tile sum {{
stages {{
program sum {{
  input x: f32[{0}, 16]
  input w: f32[16, 128]
  input z: f32[{0}, 128]
  y: f32[{0}, 128] = [{0}, 128] sum(i2 < 16) mul(@0, @1) then add(acc, @2) where @0 = x[i0, i2], @1 = w[i2, i1], @2 = z[i0, i1]  ; y ""
  output y
}}
}}
axes s0="{0}" s1="128" r2="16"
stage 0 over [s0 s1 r2]
compute 0 vector s1 lanes 8 registers [s0=6 s1=16] order [s1 s0 r2] padding partition
}}
)",
                                                                           rows)),
                                            host());
        return prefetches(code);
    };
    EXPECT_EQ(fetches(1200), 12u);
    EXPECT_EQ(fetches(600), 0u);  // the L2 cache holds all of it
}

TEST(Codegen, fetches_the_next_row_while_it_computes_one) {
    const auto fetches = [&](int rows) {
        const std::string code = print_llvm(parse_tile_program(fmt::format(R"(tile stages {{
stages {{
program stages {{
  input x: f32[{0}, 1024]
  m: f32[{0}] = [{0}] max(i1 < 1024) @0 where @0 = x[i0, i1]  ; m ""
  y: f32[{0}, 1024] = [{0}, 1024] exp(sub(@0, @1)) where @0 = x[i0, i1], @1 = m[i0]  ; y ""
  output y
}}
}}
axes s0="{0}" r0="1024" s1="1024"
stage 0 over [s0 r0]
stage 1 over [s0 s1]
parallel s0 by 1 {{
  compute 0 vector r0 lanes 8 registers [r0=32] order [s0 r0] padding partition
  compute 1 vector s1 lanes 8 registers [s1=16] order [s0 s1] padding partition
}}
}}
)",
                                                                           rows)),
                                            host());
        return code.find("i64 4096") != std::string::npos && code.find("llvm.prefetch") != std::string::npos;
    };
    EXPECT_TRUE(fetches(4096));
    EXPECT_FALSE(fetches(16));  // the L2 cache holds all of it
}

/// A depthwise convolution: where a whole row of a window is padding, a load under an empty mask is many times slower
/// than a load from another address.
TEST(Codegen, reads_padded_windows_without_masks) {
    const std::string code = print_llvm(parse_tile_program(R"(tile stages {
stages {
program stages {
  input x: f32[64, 64, 64]
  input w: f32[5, 5, 64]
  y: f32[64, 64, 64] = [64, 64, 64] sum(i3 < 5, i4 < 5) mul(@0, @1) where @0 = x[i0 + i3 - 2, i1 + i4 - 2, i2] when i0 + i3 - 2 >= 0 and -i0 - i3 + 65 >= 0 and i1 + i4 - 2 >= 0 and -i1 - i4 + 65 >= 0 else 0, @1 = w[i3, i4, i2]  ; y ""
  output y
}
}
axes s0="64" s1="64" s2="64" r3="5" r4="5"
stage 0 over [s0 s1 s2 r3 r4]
compute 0 vector s2 lanes 8 registers [s1=4 s2=8 r4=5] order [s0 s1 s2 r3 r4] padding partition
}
)"),
                                        host());
    EXPECT_EQ(code.find("llvm.masked.load"), std::string::npos);
}

/// Rows times weights packed in panels of 32 columns, in tiles of 13 x 32.
TileProgram product_with_panels(const std::string& rows, int64_t k, int64_t columns) {
    return parse_tile_program(fmt::format(R"(tile stages {{
stages {{
program stages {{
  input x: f32[{0}, {1}]
  input w: f32[{2}, {1}, 32]
  y: f32[{0}, {3}] = [{0}, {3}] sum(i2 < {1}) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1 // 32, i2, i1 % 32]  ; y ""
  output y
}}
}}
axes s0="{0}" s1="{3}" r2="{1}"
stage 0 over [s0 s1 r2]
compute 0 vector s1 lanes 16 registers [s0=13 s1=32] order [s1 s0 r2] padding partition
}}
)",
                                          rows, k, columns / 32, columns));
}

int occurrences(const std::string& text, const std::string& of) {
    int n = 0;
    for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++n;
    return n;
}

TEST(Codegen, computes_any_number_of_rows_that_only_the_run_counts) {
    if (!runs_here(avx2())) GTEST_SKIP() << "this machine has no AVX2";
    for (const int64_t k : {5, 16, 19}) {  // one step at a time; four; four and a tail of three
        const TileProgram t = product_with_panels("$m", k, 64);
        for (const Target* isa : {&avx2(), &avx512()}) {
            if (!runs_here(*isa)) continue;
            const CompiledKernel code = compile(t, *isa);
            for (int64_t m = 1; m <= 28; ++m) {
                std::vector<Tensor> inputs;
                for (const Shape& shape : {Shape{m, k}, Shape{2, k, 32}}) {
                    inputs.emplace_back(DType::F32, shape);
                    for (int64_t i = 0; i < inputs.back().count(); ++i)
                        inputs.back().set(i, static_cast<double>((i * 7 + m) % 11 - 5));
                }
                ASSERT_EQ(disagreement(code, t, inputs, 0), "")
                    << m << " rows, " << k << " steps, " << to_string(isa->isa);
            }
        }
    }
}

/// A 3 x 3 window over a padded image of dynamic size, 2 x 4 points per tile. The padded subranges at both ends of each
/// axis have one point: code for more points would be unreachable.
TEST(Codegen, has_no_code_for_tiles_that_a_padded_end_cannot_hold) {
    const TileProgram t = parse_tile_program(R"(tile stages {
stages {
program stages {
  input x: f32[$h, $w, 8]
  input w: f32[3, 3, 8]
  y: f32[$h, $w, 8] = [$h, $w, 8] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = x[i0 + i3 - 1, i1 + i4 - 1, i2] when i0 + i3 - 1 >= 0 and $h - i0 - i3 >= 0 and i1 + i4 - 1 >= 0 and $w - i1 - i4 >= 0 else 0, @1 = w[i3, i4, i2]  ; y ""
  output y
}
}
axes s0="$h" s1="$w" s2="8" r3="3" r4="3"
stage 0 over [s0 s1 s2 r3 r4]
compute 0 vector s2 lanes 8 registers [s0=2 s1=4 s2=8 r3=3 r4=3] order [s0 s1 s2 r3 r4] padding partition
}
)");
    // Inside, tiles of 2 and 1 rows of 4, 3, 2 and 1 points; tiles of 1 at the ends. Nine multiply-adds per point.
    constexpr int kRows = 2 + 1 + 1 + 1, kColumns = 4 + 3 + 2 + 1 + 1 + 1;
    EXPECT_LE(occurrences(print_llvm(t, avx2()), "call <8 x float> @llvm.fma"), kRows * kColumns * 9);
    if (!runs_here(avx2())) GTEST_SKIP() << "this machine has no AVX2";
    const CompiledKernel code = compile(t, avx2());
    for (int64_t h = 1; h <= 6; ++h)
        for (int64_t w = 1; w <= 11; ++w) {
            std::vector<Tensor> inputs;
            for (const Shape& shape : {Shape{h, w, 8}, Shape{3, 3, 8}}) {
                inputs.emplace_back(DType::F32, shape);
                for (int64_t i = 0; i < inputs.back().count(); ++i)
                    inputs.back().set(i, static_cast<double>((i * 7 + w) % 11 - 5));
            }
            ASSERT_EQ(disagreement(code, t, inputs, 0), "") << h << " x " << w;
        }
}

/// The instructions of the shortest loop that has `count` of `what`; 0: there is none.
size_t loop_with(size_t count, std::string_view what, const std::string& assembly) {
    std::vector<std::string> lines;
    std::map<std::string, size_t> labels;
    size_t shortest = 0;
    std::istringstream in(assembly);
    for (std::string line; std::getline(in, line);) {
        if (line.rfind(".L", 0) == 0) {
            labels[line.substr(0, line.find(':'))] = lines.size();
        } else if (line.rfind("\tj", 0) == 0) {
            const auto label = labels.find(line.substr(line.find_last_of('\t') + 1));
            if (label == labels.end()) continue;  // a forward jump
            const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(label->second);
            const auto found = std::count_if(begin, lines.end(),
                                             [&](const std::string& l) { return l.find(what) != std::string::npos; });
            const auto length = static_cast<size_t>(lines.end() - begin) + 1;
            if (static_cast<size_t>(found) == count && (shortest == 0 || length < shortest)) shortest = length;
        }
        lines.push_back(line);
    }
    return shortest;
}

TEST(Codegen, addresses_of_a_dynamic_product_advance_with_its_inner_loop) {
    const TileProgram t = parse_tile_program(R"TW(tile product {
stages {
program product {
  input a: f32[$rows, 96]
  input b: f32[4, 96, 16]
  c: f32[$rows, 64] = [$rows, 64] sum(i2 < 96) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 16, i2, i1 % 16]
  output c
}
}
axes m="$rows" n="64" k="96"
stage 0 over [m n k]
parallel n by 32 {
  parallel m by 12 {
    compute 0 vector n lanes 8 registers [m=6 n=16] order [n m k] padding partition prefetch 0 rows bytes 2304 prefetch 1 next bytes 6144
  }
}
}
)TW");
    ASSERT_EQ(verify(t), std::vector<std::string>());
    // 12 multiply-adds, 6 broadcasts, 2 loads, 2 prefetches, and at most 4 addresses, a comparison and a jump. With a
    // division in the addresses of a task, each was computed from the number of the step: 34 instructions.
    const size_t length = loop_with(12, "vfmadd", print_assembly(t, avx2()));
    EXPECT_GE(length, 24u);
    EXPECT_LE(length, 29u);
    for (const int64_t rows : {0, 1, 6, 11, 12, 13, 40}) {
        std::vector<Tensor> inputs;
        for (const Shape& shape : {Shape{rows, 96}, Shape{4, 96, 16}}) {
            inputs.emplace_back(DType::F32, shape);
            for (int64_t i = 0; i < inputs.back().count(); ++i) inputs.back().set(i, static_cast<double>(i % 9 - 4));
        }
        if (!runs_here(avx2())) continue;
        EXPECT_EQ(disagreement(t, inputs, 1e-5, avx2()), "") << rows;
    }
}

TEST(Codegen, sums_few_rows_with_multiple_accumulators) {
    const auto multiply_adds = [](const char* rows) {
        return occurrences(print_llvm(product_with_panels(rows, 64, 64), avx512()), "call <16 x float> @llvm.fma");
    };
    EXPECT_EQ(multiply_adds("1"), 8);   // four steps of two vectors
    EXPECT_EQ(multiply_adds("2"), 8);   // two steps of four
    EXPECT_EQ(multiply_adds("5"), 10);  // ten independent sums suffice
}

TEST(Codegen, prefetches_weights_where_the_hardware_prefetcher_is_too_late) {
    const auto fetches = [](const char* rows, int64_t columns) {
        return print_llvm(product_with_panels(rows, 256, columns), host()).find("llvm.prefetch") != std::string::npos;
    };
    EXPECT_TRUE(fetches("8", 1024));
    EXPECT_FALSE(fetches("3", 1024));  // with so few rows the kernel is bound by the bandwidth of the weights
    EXPECT_FALSE(fetches("8", 256));   // they stay in the L2 cache
}

TEST(Codegen, asks_for_the_pixels_of_the_next_windows_once) {
    const auto fetches = [](const char* size, int stride, const char* order, const char* registers) {
        return occurrences(print_llvm(parse_tile_program(fmt::format(
                                          R"(tile stages {{
stages {{
program stages {{
  input x: f32[{0}, {0}, 64]
  input w: f32[3, 3, 64]
  y: f32[16, 16, 64] = [64, 16, 16] -> [i1, i2, i0] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = x[{1}*i1 + i3, {1}*i2 + i4, i0], @1 = w[i3, i4, i0]  ; y ""
  output y
}}
}}
axes s0="64" s1="16" s2="16" r3="3" r4="3"
stage 0 over [s0 s1 s2 r3 r4]
compute 0 vector s0 lanes 16 registers [s0=16 s1=2 s2=4 {3}] order [{2} r3 r4] padding partition
}}
)",
                                          size, stride, order, registers)),
                                      host()),
                           "call void @llvm.prefetch");
    };
    EXPECT_EQ(fetches("257", 1, "s1 s2 s0", "r3=3 r4=3"), 8);   // of 4 x 6 pixels two rows of four
    EXPECT_EQ(fetches("257", 2, "s1 s2 s0", "r3=3 r4=3"), 32);  // of 5 x 9 pixels four rows of eight
    EXPECT_EQ(fetches("257", 1, "s1 s2 s0", "r4=3"), 4);        // the second row of windows, once per row of taps
    EXPECT_EQ(fetches("257", 1, "s0 s1 s2", "r3=3 r4=3"), 0);   // a step along the row is another stream
    EXPECT_EQ(fetches("$h", 1, "s1 s2 s0", "r3=3 r4=3"), 8);    // its size is dynamic
}

TEST(Codegen, turns_blocks_around_whose_rows_are_as_far_apart_as_the_run_says) {
    const TileProgram t = parse_tile_program(R"(tile stages {
stages {
program stages {
  input x: f32[32, $n]
  y: f32[$n, 32] = [32, $n] -> [i1, i0] @0 where @0 = x[i0, i1]  ; y ""
  output y
}
}
axes s0="32" s1="$n"
stage 0 over [s0 s1]
compute 0 vector s0 lanes 8 registers [s0=8 s1=8] order [s0 s1] padding partition
}
)");
    // Up to seven columns after the whole blocks are gathered, up to four at a time: 1 + 2 + 3 + 4 vectors.
    EXPECT_EQ(occurrences(print_llvm(t, host()), "call <8 x float> @llvm.masked.gather"), 10);
    if (!runs_here(avx2())) GTEST_SKIP() << "this machine has no AVX2";
    const CompiledKernel code = compile(t, avx2());
    for (const int64_t n : {1, 8, 21, 40}) {
        std::vector<Tensor> x{Tensor(DType::F32, {32, n})};
        for (int64_t i = 0; i < x[0].count(); ++i) x[0].set(i, static_cast<double>(i));
        ASSERT_EQ(disagreement(code, t, x, 0), "") << n << " columns";
    }
}

TEST(Codegen, that_was_kept_is_the_same_code) {
    const TemporaryFolder folder;
    const auto known = std::make_shared<const CodeCache>(folder.path());
    const auto kept = [&] {  // without the cache's key
        std::vector<std::filesystem::path> files = folder.files();
        files.erase(std::remove(files.begin(), files.end(), std::filesystem::path(folder / "key")), files.end());
        return files;
    };
    const auto scaled = [](const char* factor) { return of_forty_elements(fmt::format("mul(@0, {})", factor)); };
    const TileProgram twice = scaled("2.0"), thrice = scaled("3.0");
    std::vector<Tensor> x{Tensor(DType::F32, {40})};
    for (int64_t i = 0; i < 40; ++i) x[0].set(i, static_cast<double>(i));
    // The second time both are in the cache, in the other order and under other numbers.
    for (const auto& order : {std::vector{&twice, &thrice}, std::vector{&thrice, &twice}}) {
        const std::vector<CompiledKernel> code = compile(order, host(), known);
        EXPECT_EQ(kept().size(), 4u) << "of each kernel the code, and where the code of its tile program is";
        for (size_t k = 0; k < 2; ++k) {
            const Tensor y = run_kernel(code[k], *order[k], x).at(0);
            for (int64_t i = 0; i < 40; ++i) ASSERT_EQ(y.get(i), static_cast<double>(i) * (order[k] == &twice ? 2 : 3));
        }
    }
    // Other code: for another machine, or of another kernel.
    compile(twice, avx2(), known);
    EXPECT_EQ(kept().size(), 6u);
    compile(scaled("4.0"), avx2(), known);
    EXPECT_EQ(kept().size(), 8u);
    // An invalid cache entry is compiled again.
    for (const auto& file : kept()) std::ofstream(file) << "nothing";
    EXPECT_EQ(run_kernel(compile(twice, avx2(), known), twice, x).at(0).get(39), 78);
}

TEST(Codegen, that_was_kept_has_the_same_interface) {
    const TemporaryFolder folder;
    const auto known = std::make_shared<const CodeCache>(folder.path());
    const TileProgram t = parse_tile_program(R"(tile stages {
stages {
program stages {
  input x: f32[$rows, $columns]
  y: f32[$rows, $columns] = [$rows, $columns] mul(@0, 2.0) where @0 = x[i0, i1]  ; y ""
  output y
}
}
axes s0="$rows" s1="$columns"
stage 0 over [s0 s1]
parallel s0 by 4 {
  compute 0 vector s1 lanes 8 registers [s1=16] order [s0 s1] padding partition
}
}
)");
    const CompiledKernel made = compile(t, host(), known), found = compile(t, host(), known);
    EXPECT_FALSE(made.names.empty());
    EXPECT_FALSE(made.grid.empty());
    EXPECT_EQ(found.names, made.names);
    EXPECT_EQ(found.grid, made.grid);
    EXPECT_EQ(found.scratch_bytes, made.scratch_bytes);
    std::vector<Tensor> x{Tensor(DType::F32, {5, 19})};
    for (int64_t i = 0; i < x[0].count(); ++i) x[0].set(i, static_cast<double>(i));
    EXPECT_EQ(disagreement(found, t, x, 0), "");
}

TEST(Codegen, of_random_schedules_computes_what_they_say_on_avx2) {
    if (!runs_here(avx2())) GTEST_SKIP() << "this machine has no AVX2";
    agree(0, 800, {.isa = avx2(), .lanes = 8});
    agree(1500, 1650, {.isa = avx2(), .lanes = 16});
}

TEST(Codegen, of_random_schedules_computes_what_they_say_in_doubles) {
    if (!runs_here(avx2())) GTEST_SKIP() << "this machine has no AVX2";
    agree(5000, 5200, {.isa = avx2(), .lanes = 8, .doubles = true, .tolerance = 1e-9});
}

TEST(Codegen, of_random_schedules_computes_what_they_say_on_avx512) {
    if (!runs_here(avx512())) GTEST_SKIP() << "this machine has no AVX-512";
    agree(0, 800, {.isa = avx512(), .lanes = 16});
    agree(5000, 5200, {.isa = avx512(), .lanes = 8, .doubles = true, .tolerance = 1e-9});
}

}  // namespace
}  // namespace tilewright::cpu
