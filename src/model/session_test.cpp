// Machine code does what the interpreter does: on random programs under several configurations, from several threads.

#include "model/session.h"
#include "compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "program/builder.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Configuration {
    const char* name;
    CompileOptions options;
};

std::vector<Configuration> configurations() {
    std::vector<Configuration> out;
    out.push_back({"fused", {}});
    out.push_back({"one kernel a primitive", {}});
    out.back().options.fuse = false;
    out.push_back({"row-major", {}});
    out.back().options.layouts = false;
    out.push_back({"avx2", {}});
    out.back().options.isa = "avx2";
    out.push_back({"scheduler auto", {}});
    out.back().options.scheduler = SchedulerKind::Auto;
    for (Configuration& c : out) c.options.threads = 2;
    return out;
}

/// Empty when they agree, else why not.
std::string disagreement(uint64_t seed, int size, const CompileOptions& options) {
    const Program program = random_program(seed, size);
    const std::vector<Tensor> inputs = random_inputs(program, seed);
    std::vector<Tensor> expected, actual;
    try {
        expected = interpret(program, inputs);
        Session session(compile_program(program, options), 2);
        actual = session.run(inputs);
        const std::vector<Tensor> again = session.run(inputs);
        if (!(again.size() == actual.size())) return "the second run gave other outputs";
        for (size_t i = 0; i < again.size(); ++i)
            if (!(again[i] == actual[i])) return "the second run gave other numbers";
    } catch (const std::exception& e) {
        return e.what();
    }
    const double difference = largest_difference(expected, actual);
    // Rounding alone reaches this where a square root follows a cancellation, or where f16 rounds to the other side.
    if (difference <= 2e-3) return {};
    return "largest difference " + std::to_string(difference);
}

/// Lowers the size while the program still fails, and prints what is left.
std::string shrunk(uint64_t seed, int size, const CompileOptions& options) {
    int smallest = size;
    for (int s = 1; s < size; ++s)
        if (!disagreement(seed, s, options).empty()) {
            smallest = s;
            break;
        }
    return "seed " + std::to_string(seed) + " size " + std::to_string(smallest) + ": " +
           disagreement(seed, smallest, options) + "\n" + print(random_program(seed, smallest));
}

int count_from_environment(int fallback) {
    const char* text = std::getenv("TILEWRIGHT_RANDOM_PROGRAMS");
    return text != nullptr ? std::atoi(text) : fallback;
}

TEST(Session, AgreesWithTheInterpreterOnRandomPrograms) {
    const std::vector<Configuration> all = configurations();
    const int count = count_from_environment(600);
    int failures = 0;
    for (int seed = 0; seed < count && failures < 5; ++seed) {
        const Configuration& c = all[static_cast<size_t>(seed) % all.size()];
        const int size = 4 + seed % 12;
        if (disagreement(static_cast<uint64_t>(seed), size, c.options).empty()) continue;
        ++failures;
        ADD_FAILURE() << c.name << ": " << shrunk(static_cast<uint64_t>(seed), size, c.options);
    }
}

Program small_network() {
    Program p;
    p.name = "small";
    Builder b(p);
    b.set_source("net", "Net");
    const ValueId x = b.input("x", DType::F32, {symbol("rows"), 48});
    Tensor w(DType::F32, {48, 80});
    for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>((i * 37) % 19 - 9) * 0.05);
    const ValueId y = b.matmul(x, b.constant(w));
    const ValueId z = b.unary(ScalarOp::Tanh, y);
    const ValueId m = b.reduce(Reducer::Max, z, {1}, true, "max");
    p.outputs = {b.binary(ScalarOp::Sub, z, m)};
    return p;
}

std::vector<Tensor> rows(int64_t n) {
    Tensor x(DType::F32, {n, 48});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>((i * 7919) % 101 - 50) * 0.02);
    return {x};
}

TEST(Session, ServesEveryShapeWithoutCompilingAgain) {
    const Program program = small_network();
    Session session(compile_program(program, {}), 2);
    for (const int64_t n : {1, 2, 5, 12, 13, 40, 7, 1}) {
        const double difference = largest_difference(interpret(program, rows(n)), session.run(rows(n)));
        EXPECT_LE(difference, 1e-5) << n << " rows";
    }
}

TEST(Session, ResultsDoNotDependOnTheNumberOfThreads) {
    const Program program = small_network();
    CompileOptions options;
    options.threads = 4;
    const auto model = compile_program(program, options);
    Session one(model, 1), four(model, 4);
    EXPECT_EQ(one.run(rows(64))[0], four.run(rows(64))[0]);
}

TEST(Session, ConcurrentRunsAreBitEqualToSerialOnes) {
    const auto model = compile_program(small_network(), {});
    Session serial(model, 2);
    const Tensor expected = serial.run(rows(33))[0];
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&] {
            Session mine(model, 2);
            for (int i = 0; i < 20; ++i)
                if (!(mine.run(rows(33))[0] == expected)) ++wrong;
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
}

TEST(Session, TakesSubnormalsForZeroUnlessTheyAreKept) {
    Program p;
    Builder b(p);
    p.outputs = {b.binary(ScalarOp::Mul, b.input("x", DType::F32, {Expr(100)}), b.input("y", DType::F32, {Expr(100)}))};
    Tensor x(DType::F32, {100}), y(DType::F32, {100});
    for (int64_t i = 0; i < 100; ++i) {
        x.set(i, 0x1p-120);
        y.set(i, i % 2 == 0 ? 0x1p-10 : 0x1p-5);
    }
    for (const bool keep : {false, true}) {
        CompileOptions options;
        options.keep_subnormals = keep;
        Session session(compile_program(p, options), 2);
        const Tensor z = session.run({x, y})[0];
        for (int64_t i = 0; i < 100; ++i)
            ASSERT_EQ(z.get(i), i % 2 != 0 ? 0x1p-125 : keep ? 0x1p-130 : 0) << "keep_subnormals " << keep;
    }
    volatile float tiny = 0x1p-120F;
    EXPECT_GT(tiny * 0x1p-10F, 0.0F) << "the caller's mode was left changed";
}

TEST(Session, NamesTheInputThatDoesNotFit) {
    Session session(compile_program(small_network(), {}), 1);
    try {
        session.run({Tensor(DType::F32, {4, 47})});
        FAIL() << "accepted";
    } catch (const std::exception& e) {
        EXPECT_STREQ(e.what(), "input 'x' has 47 elements in dimension 1, expected 48");
    }
}

/// y = go ? x : x, and z = the rows of x: both have elements where n is not 0.
std::shared_ptr<const CompiledModel> passed_through_control() {
    const Expr n = symbol("n");
    auto same = std::make_shared<Program>();
    Builder s(*same);
    s.set_outputs({s.input("x", DType::F32, {2, 3, n})});
    auto row = std::make_shared<Program>();
    Builder r(*row);
    r.input("iteration", DType::I64, {});
    const ValueId carried = r.input("carried", DType::F32, {2, 3, n});
    r.set_outputs({carried, r.input("column", DType::F32, {2, n})});
    Program p;
    p.name = "control";
    Builder b(p);
    const ValueId go = b.input("go", DType::Bool, {}), x = b.input("x", DType::F32, {2, 3, n});
    const std::pair<DType, Dims> like_x = {DType::F32, {2, 3, n}};
    const ValueId y = b.emit_control(If{go, {x}, same, same}, {like_x}, "if")[0];
    Loop loop;
    loop.trip_count = 3;
    loop.carried = {x};
    loop.scan_inputs = {{x, 1, false}};
    loop.scan_outputs = {{1, true}};
    loop.body = row;
    const std::vector<ValueId> z = b.emit_control(std::move(loop), {like_x, like_x}, "loop");
    b.set_outputs({y, z[0], z[1]});
    return compile_program(p, {});
}

TEST(Session, TakesAnEmptyTensorThatLiesNowhere) {
    Session session(passed_through_control(), 1);
    const Tensor go = Tensor::of<int>(DType::Bool, {}, {1});
    for (const Tensor& t : session.run({go, Tensor(DType::F32, {2, 3, 0}, nullptr, nullptr)}))
        EXPECT_EQ(t.shape(), (Shape{2, 3, 0}));
    const Tensor x = Tensor::of<float>(DType::F32, {2, 3, 1}, {0, 1, 2, 3, 4, 5});
    EXPECT_EQ(session.run({go, x}),
              (std::vector<Tensor>{x, x, Tensor::of<float>(DType::F32, {2, 3, 1}, {2, 1, 0, 5, 4, 3})}));
}

// --- memory

constexpr uint64_t kSomeMemory = uint64_t{1} << 20;

std::string runtime_error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const RuntimeError& e) {
        return e.what();
    }
    return "nothing was refused";
}

/// for k in 0..n (while go): collect x, of 1000 floats; with a condition, only `go` ends it, which never does.
std::shared_ptr<const CompiledModel> collecting_loop(bool has_condition) {
    auto step = std::make_shared<Program>();
    Builder s(*step);
    s.input("iteration", DType::I64, {});
    ValueId go = has_condition ? s.input("go", DType::Bool, {}) : ValueId();
    const ValueId slice = s.unary(ScalarOp::Neg, s.input("x", DType::F32, {1000}));
    if (has_condition)
        s.set_outputs({s.copy(go), slice});
    else
        s.set_outputs({slice});
    Program p;
    p.name = "collecting";
    Builder b(p);
    const ValueId n = b.input("n", DType::I64, {}), x = b.input("x", DType::F32, {1000});
    Loop loop;
    loop.has_condition = has_condition;
    if (has_condition)
        loop.condition = b.input("go", DType::Bool, {});
    else
        loop.trip_count = max(b.read_int(n), 0);
    loop.captures = {x};
    loop.scan_outputs = {{0, false}};
    loop.body = step;
    const Expr trips = loop.trip_count ? *loop.trip_count : b.fresh_symbol("trips");
    b.set_source("collect", "Loop");
    b.set_outputs(b.emit_control(std::move(loop), {{DType::F32, {trips, 1000}}}, "loop"));
    return compile_program(p, {});
}

Tensor count(int64_t n) { return Tensor::of<int64_t>(DType::I64, {}, {n}); }

TEST(SessionMemory, ALoopThatCollectsWithoutEndStopsWhereTheMemoryDoes) {
    Session session(collecting_loop(true), 1, kSomeMemory);
    EXPECT_THAT(runtime_error_of([&] {
                    session.run({count(0), Tensor(DType::F32, {1000}), Tensor::of<int>(DType::Bool, {}, {1})});
                }),
                AllOf(HasSubstr("not enough memory: loop 'collect/loop', after "), HasSubstr(" iterations, needs "),
                      HasSubstr("this process may use 1048576")));
}

TEST(SessionMemory, ALoopThatCountsFailsInItsFirstIteration) {
    Session session(collecting_loop(false), 1, kSomeMemory);
    const Tensor x(DType::F32, {1000});
    EXPECT_EQ(session.run({count(50), x})[0].shape(), (Shape{50, 1000}));
    for (const int64_t n : {int64_t{1000}, int64_t{1} << 39, int64_t{1} << 62})
        EXPECT_THAT(runtime_error_of([&] { session.run({count(n), x}); }), HasSubstr("after 0 iterations, needs"));
    EXPECT_EQ(session.run({count(50), x})[0].shape(), (Shape{50, 1000})) << "the session is as good as before";
}

TEST(SessionMemory, WhatIsComputedOnTheWayMustFit) {
    const auto model = compile_program(small_network(), {});
    EXPECT_EQ(Session(model, 1, kSomeMemory).run(rows(8))[0].shape()[0], 8);
    EXPECT_THAT(runtime_error_of([&] { Session(model, 1, kSomeMemory).run(rows(100'000)); }),
                AllOf(HasSubstr("not enough memory: what the model computes on the way needs "),
                      HasSubstr("this process may use 1048576")));
    EXPECT_THAT(runtime_error_of([&] { Session(model, 1, 100); }), HasSubstr("the model's weights needs "));
}

}  // namespace
}  // namespace tilewright
