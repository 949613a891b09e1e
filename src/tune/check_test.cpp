#include "tune/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "program/random_program.h"
#include "program/scalar_ops.h"
#include "schedule/default_schedule.h"
#include "tile/examples_test.h"
#include "tile/matrix.h"
#include "tile/random_case_test.h"
#include "tune/error_bound.h"
#include "tune/operands.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

Bindings some_sizes(const Program& stages, int64_t size) {
    Bindings b;
    for (const Value& v : stages.values)
        for (const Expr d : v.shape)
            for (const Var name : variables(d)) b.emplace(name, size);
    return b;
}

std::string text_of(const CheckResult& r) { return r.ok ? "ok" : r.reason; }

/// A product with sums of `k` terms and other stages around it.
std::string product(int64_t m, int64_t n, int64_t k, const std::string& body = "mul(@0, @1)", int64_t terms = 0) {
    return fmt::format(
        "program p {{\n  input a: f32[{0}, {2}]\n  input b: f32[{2}, {1}]\n"
        "  c: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {3}) {4} where @0 = a[i0, i2], @1 = b[i2, i1]\n  output c\n}}\n",
        m, n, k, terms == 0 ? k : terms, body);
}

class Check : public testing::Test {
  protected:
    CheckResult check(const TileProgram& program, const Program& stages, const CheckOptions& options = {}) {
        return check_kernel(cpu::compile(program, host_target()), stages, pool_, options);
    }
    /// Checks the code for `made` against the stages of `meant`.
    CheckResult check_texts(const std::string& made, const std::string& meant, const CheckOptions& options = {}) {
        return check(default_schedule(parse_program(made), {}), parse_program(meant), options);
    }
    /// A handwritten kernel for kGemm's stages.
    CheckResult check_code(cpu::KernelFn run) {
        cpu::CompiledKernel kernel;
        kernel.name = "by hand";
        kernel.run = run;
        kernel.grid = {Expr(10)};
        kernel.scratch_bytes = 64;
        return check_kernel(kernel, parse_tile_program(kGemm).stages, pool_);
    }

    ThreadPool pool_{2};
};

TEST_F(Check, correct_kernels_pass) {
    for (const std::string& text : {kGemm, kChain, kSoftmax, kConvolution}) {
        const TileProgram p = parse_tile_program(text);
        const CheckResult r = check(p, p.stages, {.bindings = some_sizes(p.stages, 7)});
        EXPECT_TRUE(r.ok) << r.reason;
        EXPECT_GT(r.compared, 20);
        EXPECT_EQ(r.undecided, 0);
        EXPECT_LE(r.worst, 1);
    }
}

TEST_F(Check, random_kernels_with_random_schedules_pass) {
    int64_t compared = 0, undecided = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const TileProgram p = random_scheduled_case(seed, 1 + static_cast<int>(seed % 6)).program;
        const CheckResult r = check(p, p.stages, {.bindings = some_sizes(p.stages, 3), .seed = seed});
        EXPECT_THAT(text_of(r), testing::AnyOf("ok", HasSubstr("none could be compared")))
            << seed << ": " << r.reason << "\n"
            << print(p.stages);
        compared += r.compared;
        undecided += r.undecided;
    }
    EXPECT_GT(compared, 10 * undecided);
}

TEST_F(Check, large_kernels_are_compared_in_windows) {
    const CheckOptions little{.work = 1 << 18};
    const CheckResult right = check_texts(product(200, 300, 128), product(200, 300, 128), little);
    EXPECT_TRUE(right.ok) << right.reason;
    EXPECT_GT(right.compared, 100);
    EXPECT_LT(right.compared, 200 * 300 / 10);
    const CheckResult wrong = check_texts(product(200, 300, 128, "mul(@0, @1)", 127), product(200, 300, 128), little);
    EXPECT_THAT(text_of(wrong), HasSubstr("output c, element ["));
}

/// The bound must stay below the size of one term of a long sum.
TEST_F(Check, one_missing_term_of_four_thousand_is_found) {
    EXPECT_TRUE(check_texts(product(8, 32, 4608), product(8, 32, 4608)).ok);
    EXPECT_FALSE(check_texts(product(8, 32, 4608, "mul(@0, @1)", 4607), product(8, 32, 4608)).ok);
}

TEST_F(Check, wrong_kernels_fail) {
    const std::string right = product(9, 17, 5);
    EXPECT_FALSE(check_texts(product(9, 17, 5, "add(@0, @1)"), right).ok);
    EXPECT_FALSE(check_texts(product(9, 17, 5, "mul(@0, add(@1, 0.00001))"), right).ok);
    EXPECT_TRUE(check_texts(product(9, 17, 5, "mul(@1, @0)"), right).ok);
    std::string shifted = right;
    shifted.replace(shifted.find("a[i0, i2]"), 9, "a[-i0 + 8, i2]");
    EXPECT_FALSE(check_texts(shifted, right).ok);
}

TEST_F(Check, exact_types_must_be_exact) {
    const auto text = [](const char* body) {
        return std::string("program p {\n  input x: i64[40]\n  y: i64[40] = [40] ") + body +
               " where @0 = x[i0]\n  output y\n}\n";
    };
    EXPECT_TRUE(check_texts(text("mul(@0, 3)"), text("add(add(@0, @0), @0)")).ok);
    EXPECT_FALSE(check_texts(text("mul(@0, 3)"), text("add(mul(@0, 3), 1)")).ok);
}

/// Each computes one row per task of c[10, 8]; inputs are a[10, 7], b, bias.
TEST_F(Check, incomplete_and_out_of_bounds_writes_fail) {
    EXPECT_THAT(text_of(check_code([](void* const*, const int64_t*, int64_t, int64_t, void*) {})),
                HasSubstr("in one run and"));
    EXPECT_THAT(text_of(check_code([](void* const* t, const int64_t*, int64_t begin, int64_t end, void*) {
                    for (int64_t i = 8 * begin; i < 8 * end; ++i) static_cast<float*>(t[3])[i] = 1;
                })),
                HasSubstr("expected"));
    EXPECT_THAT(text_of(check_code([](void* const* t, const int64_t*, int64_t begin, int64_t end, void*) {
                    for (int64_t i = 8 * begin; i < 8 * end + 1; ++i) static_cast<float*>(t[3])[i] = 1;
                })),
                HasSubstr("memory after c was overwritten"));
    EXPECT_THAT(text_of(check_code(
                    [](void* const* t, const int64_t*, int64_t, int64_t, void*) { static_cast<float*>(t[0])[0] = 1; })),
                HasSubstr("input a was overwritten"));
    EXPECT_THAT(text_of(check_code([](void* const* t, const int64_t*, int64_t begin, int64_t end, void* scratch) {
                    for (int64_t i = 8 * begin; i < 8 * end; ++i)
                        static_cast<float*>(t[3])[i] = *static_cast<float*>(scratch);
                })),
                HasSubstr("in one run and"));
    EXPECT_THAT(text_of(check_code([](void* const* t, const int64_t*, int64_t begin, int64_t end, void*) {
                    for (int64_t i = 8 * begin; i < 8 * end; ++i)
                        static_cast<float*>(t[3])[i] = static_cast<float>(end);
                })),
                HasSubstr("in one run and"))
        << "the result depends on how tasks are shared out";
    // In front of a task's scratch memory there may be that of another thread.
    for (const int64_t at : {64, -1}) {
        static int64_t written;
        written = at;
        EXPECT_THAT(text_of(check_code([](void* const* t, const int64_t*, int64_t begin, int64_t end, void* scratch) {
                        for (int64_t i = 8 * begin; i < 8 * end; ++i) static_cast<float*>(t[3])[i] = 1;
                        if (begin == 0) static_cast<char*>(scratch)[written] = 1;
                    })),
                    at > 0 ? HasSubstr("memory after its scratch") : HasSubstr(" its scratch"));
    }
}

/// A kernel that corrupts the operands does not affect the check of the next kernel.
TEST_F(Check, kernels_of_the_same_stages_share_inputs_and_reference) {
    const TileProgram gemm = parse_tile_program(kGemm);
    const cpu::CompiledKernel right = cpu::compile(gemm, host_target());
    cpu::CompiledKernel harmful = right, idle = right;
    harmful.run = [](void* const* t, const int64_t*, int64_t, int64_t, void*) { static_cast<float*>(t[0])[0] = 1; };
    idle.run = [](void* const*, const int64_t*, int64_t, int64_t, void*) {};
    KernelChecker checker(gemm.stages);
    const CheckResult first = checker.check(right, pool_);
    EXPECT_TRUE(first.ok);
    EXPECT_FALSE(checker.check(harmful, pool_).ok);
    EXPECT_FALSE(checker.check(idle, pool_).ok);
    const CheckResult again = checker.check(right, pool_);
    EXPECT_TRUE(again.ok) << again.reason;
    EXPECT_EQ(again.compared, first.compared);
    EXPECT_EQ(again.worst, first.worst);
}

// --- sums in f16

/// c = sum(k < 256) a b, by a lane for every column, in steps of 64 products.
TileProgram product_in_f16() {
    return parse_tile_program(R"TW(tile product {
stages {
program product {
  input a: f16[24, 256]
  input b: f16[1, 128, 32, 2]
  c: f32[24, 32] = [24, 32] sum(i2 < 256) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 32, i2 // 2, i1 % 32, i2 % 2]  ; c ""
  output c
}
}
axes m="24" n="32" k="256"
stage 0 over [m n k]
compute 0 vector n lanes 16 matrix f16 dot [m n k] registers [m=6 n=32 k=64] order [n m k] padding partition
})TW");
}

TEST_F(Check, of_sums_in_f16_needs_bounds_that_allow_them) {
    const TileProgram t = product_in_f16();
    ASSERT_TRUE(sums_in_f16(t));
    EXPECT_FALSE(check(t, t.stages).ok) << "f32's bounds";
    const CheckResult r = check(t, t.stages, {.f16_sums = true});
    EXPECT_TRUE(r.ok) << r.reason;
    EXPECT_GT(r.compared, 700);
    EXPECT_GT(r.worst, 0.01) << "the bounds are not far off";
}

TEST(ErrorBound, of_sums_in_f16_is_unknown_where_they_may_overflow) {
    const TileProgram t = product_in_f16();
    Tensor a(DType::F16, {24, 256}), b(DType::F16, {1, 128, 32, 2});
    for (int64_t i = 0; i < a.count(); ++i) a.set(i, i < 256 ? 100 : 1);
    for (int64_t i = 0; i < b.count(); ++i) b.set(i, i % 2 == 0 ? 4 : -4);
    const Tensor bounds = interpret(with_error_bounds(t.stages, true), {a, b}, {.exact = true}).at(1);
    EXPECT_FALSE(std::isfinite(bounds.get(0))) << "256 x 400 in magnitude, whatever the sum";
    EXPECT_NEAR(bounds.get(32), 33.0 / 2048 * 1024, 1);
}

// --- the bounds themselves

/// The bound of y's elements, given x.
std::vector<double> bounds_of(const std::string& body, const std::vector<double>& x, const char* type = "f32") {
    const auto n = static_cast<int64_t>(x.size());
    const Program p = parse_program(
        fmt::format("program p {{\n  input x: f32[{0}]\n  m: f32[{0}] = [{0}] mul(@0, 3.0) where @0 = x[i0]\n"
                    "  y: {1}[{0}] = [{0}] {2} where @0 = m[i0]\n  output y\n}}\n",
                    n, type, body));
    const auto out = interpret(with_error_bounds(p), {Tensor::of(DType::F32, {n}, x)}, {.exact = true});
    std::vector<double> bounds;
    for (int64_t i = 0; i < n; ++i) bounds.push_back(out.at(1).get(i));
    return bounds;
}

TEST(ErrorBound, grows_with_the_magnitude_and_the_operators) {
    const auto once = bounds_of("neg(@0)", {1, 1000});
    EXPECT_GT(once[0], 1e-7);
    EXPECT_LT(once[0], 2e-6);
    EXPECT_NEAR(once[1] / once[0], 1000, 1);
    const auto exponential = bounds_of("exp(@0)", {1, 10});
    EXPECT_GT(exponential[0], 3e-6 * std::exp(3) * 0.1);
    EXPECT_LT(exponential[0], 1e-5 * std::exp(3));
    EXPECT_GT(exponential[1] / std::exp(30), exponential[0] / std::exp(3))
        << "a large argument's error counts for more";
}

/// m = 3 x is off by an error of f32, and the function by its own error.
TEST(ErrorBound, of_each_function_holds_for_its_own_error_and_that_of_its_operand) {
    for (const ScalarFunction& f : scalar_functions()) {
        const std::vector<double> x = {0.0625, 0.25, 0.3125, 0.5625, 1.0625, 2.1875, -0.25, -0.5625, -2.1875};
        const auto bounds = bounds_of(fmt::format("{}(@0)", to_string(f.op)), x);
        int checked = 0;
        for (size_t k = 0; k < x.size(); ++k) {
            const double m = 3 * x[k], y = f.reference(m);
            if (!std::isfinite(y)) continue;
            ++checked;
            for (const double off : {m * (1 - 0x1p-24), m * (1 + 0x1p-24)})
                EXPECT_GE(bounds[k], std::fabs(f.reference(off) - y) + f.ulp * 0x1p-23 * std::fabs(y))
                    << to_string(f.op) << " at " << m;
            EXPECT_LT(bounds[k], 1e-4 * (1 + std::fabs(y))) << to_string(f.op) << " at " << m;
        }
        EXPECT_GE(checked, 3) << to_string(f.op);
    }
}

TEST(ErrorBound, of_discontinuous_functions_is_the_jump_near_it) {
    const auto compared = bounds_of("gt(@0, 3.0)", {1, 1.00001, 0.5}, "bool");
    EXPECT_EQ(compared, (std::vector<double>{1, 0, 0}));
    const auto selected = bounds_of("select(gt(@0, 3.0), 7.0, 5.0)", {1, 2});
    EXPECT_GE(selected[0], 2);
    EXPECT_LT(selected[1], 1e-5);
    const auto floored = bounds_of("floor(@0)", {1, 1.1});
    EXPECT_GE(floored[0], 1);
    EXPECT_LT(floored[1], 1e-5);
}

TEST(ErrorBound, is_infinite_where_a_divisor_may_be_zero_or_a_number_may_overflow) {
    EXPECT_EQ(bounds_of("div(1.0, sub(@0, 3.0))", {1})[0], std::numeric_limits<double>::infinity());
    EXPECT_LT(bounds_of("div(1.0, sub(@0, 3.0))", {2})[0], 1e-5);
    EXPECT_FALSE(std::isfinite(bounds_of("exp(@0)", {40})[0]));
    EXPECT_FALSE(std::isfinite(bounds_of("log(@0)", {-1})[0]));
}

/// x * sigmoid(x) at -100: in f32 the exponential is infinite and the result 0, which is not an error of the kernel.
TEST(ErrorBound, allows_underflow_when_a_divisor_overflows) {
    const double x = -33.5, bound = bounds_of("mul(@0, div(1.0, add(1.0, exp(neg(@0)))))", {x})[0];
    EXPECT_TRUE(!std::isfinite(bound) || bound > 101 * std::exp(3 * x));
    EXPECT_FALSE(bound < 1e-40);
    const double near = bounds_of("mul(@0, div(1.0, add(1.0, exp(neg(@0)))))", {-29.3})[0];
    EXPECT_GT(near, 1e-37) << "smaller than any float, and 0 in f32";
    EXPECT_LT(near, 1e-35);
}

/// Quantised numbers are exact, or off by one where rounding may go either way.
TEST(ErrorBound, of_quantised_numbers_is_finite) {
    const auto bounds = bounds_of("mul(0.5, f32(sub(i32(i8(round(mul(@0, 0.5)))), 3:i32)))", {1, 1.1, 20});
    EXPECT_GE(bounds[0], 0.5);  // 1.5 is halfway between 1 and 2
    EXPECT_LT(bounds[0], 0.51);
    EXPECT_LT(bounds[1], 1e-5);
    EXPECT_LT(bounds[2], 1e-5);
}

TEST(ErrorBound, of_exact_numbers_is_zero) {
    const Program p = parse_program(
        "program p {\n  input x: i32[6]\n  s: i32[] = [] sum(i0 < 6) @0 where @0 = x[i0]\n  output s\n}\n");
    const auto out =
        interpret(with_error_bounds(p), {Tensor::of<int>(DType::I32, {6}, {1, 2, 3, 4, 5, 6})}, {.exact = true});
    EXPECT_EQ(out.at(0).get_int(0), 21);
    EXPECT_EQ(out.at(1).get(0), 0);
}

TEST(ErrorBound, does_not_change_the_results) {
    for (uint64_t seed = 0; seed < 80; ++seed) {
        const Case c = random_case(seed, 1 + static_cast<int>(seed % 7), false, {.symbolic = false});
        const auto plain = interpret(c.stages, c.inputs, {.exact = true});
        auto with = interpret(with_error_bounds(c.stages), c.inputs, {.exact = true});
        ASSERT_EQ(with.size(), 2 * plain.size());
        for (size_t i = 0; i < plain.size(); ++i)
            for (int64_t e = 0; e < plain[i].count(); ++e)
                EXPECT_FALSE(with[i + plain.size()].get(e) < 0) << "a bound is not negative";
        with.resize(plain.size());
        EXPECT_LT(largest_difference(plain, with), 1e-12) << print(c.stages);
    }
}

}  // namespace
}  // namespace tilewright
