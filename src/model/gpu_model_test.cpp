// Models on a GPU that is fake: its kernels are run by the tile interpreter, everything around them as on a real
// one. (That the kernels' text says what their tiles do is what backend/cuda tests.)

#include "model/gpu_model.h"
#include "compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "model/gpu_machine_test.h"
#include "program/builder.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using test::Machine;
using testing::AllOf;
using testing::HasSubstr;

template <class F>
std::string error_of(const F& f) {
    try {
        f();
    } catch (const RuntimeError& e) {
        return e.what();
    }
    return "nothing was refused";
}

/// Two products with weights and what is between them, several kernels.
Program network() {
    Program p;
    p.name = "network";
    Builder b(p);
    b.set_source("net", "Net");
    const ValueId x = b.input("x", DType::F32, {symbol("rows"), 48});
    const auto weight = [&](int64_t k, int64_t n) {
        Tensor w(DType::F32, {k, n});
        for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>((i * 37) % 19 - 9) * 0.05);
        return b.constant(w);
    };
    const ValueId y = b.unary(ScalarOp::Tanh, b.matmul(x, weight(48, 80)));
    const ValueId m = b.reduce(Reducer::Max, y, {1}, true, "max");
    p.outputs = {b.matmul(b.binary(ScalarOp::Sub, y, m), weight(80, 16)), m};
    return p;
}

std::vector<Tensor> seeded_rows(int64_t n, int64_t seed = 0) {
    Tensor x(DType::F32, {n, 48});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>((i * 7919 + seed) % 101 - 50) * 0.02);
    return {x};
}

TEST(GpuSession, RunsKernelsOneBehindTheOtherAndFetchesWhatIsAskedFor) {
    const Program program = network();
    Machine machine(program);
    {
        Session session(machine.load());
        for (const int64_t n : {3, 40, 1, 200, 3}) {
            machine.gpu().launches = 0;
            EXPECT_LE(largest_difference(interpret(program, seeded_rows(n)), session.run(seeded_rows(n))), 1e-5)
                << n << " rows";
            EXPECT_EQ(machine.gpu().launches, static_cast<int>(machine.compiled().plan().steps.size()));
        }
        EXPECT_GT(machine.compiled().plan().steps.size(), 1u);
    }
    EXPECT_EQ(machine.gpu().wrong, "");
    EXPECT_EQ(machine.gpu().used, 0u);
    EXPECT_EQ(machine.gpu().pinned + machine.gpu().streams + machine.gpu().graphs + machine.gpu().modules, 0);
}

TEST(GpuSession, IsAGraphTheSecondTimeThatShapesCome) {
    const Program program = network();
    Machine machine(program);
    Session session(machine.load());
    const auto graphs = [&] { return machine.gpu().graph_launches; };
    const auto check = [&](int64_t n, int64_t seed) {
        EXPECT_LE(largest_difference(interpret(program, seeded_rows(n, seed)), session.run(seeded_rows(n, seed))),
                  1e-5);
    };
    check(8, 0);
    EXPECT_EQ(graphs(), 0);
    const int allocations = machine.gpu().allocations, pinned = machine.gpu().pinned;
    for (int64_t k = 1; k < 5; ++k) check(8, k);
    EXPECT_EQ(graphs(), 4);
    EXPECT_EQ(machine.gpu().graphs, 1);
    EXPECT_EQ(machine.gpu().allocations, allocations);  // nothing is allocated once shapes repeat
    EXPECT_EQ(machine.gpu().pinned, pinned);
    // Larger shapes move everything: what was captured before is captured anew.
    check(100, 0);
    EXPECT_EQ(graphs(), 4);
    check(8, 9);
    check(100, 1);
    check(8, 10);
    EXPECT_EQ(graphs(), 7);
    // Each shape has its own; of many only those that came last are kept.
    for (int64_t n = 1; n < 40; ++n) {
        check(n, 0);
        check(n, 1);
    }
    EXPECT_LE(machine.gpu().graphs, 33);
    EXPECT_EQ(machine.gpu().wrong, "");
}

TEST(GpuSession, AgreesWithTheInterpreterOnRandomPrograms) {
    for (uint64_t seed = 100; seed < 130; ++seed) {
        const Program program = random_program(seed, 4 + static_cast<int>(seed % 8));
        const std::vector<Tensor> inputs = random_inputs(program, seed), expected = interpret(program, inputs);
        Machine machine(program);
        Session session(machine.load());
        for (int k = 0; k < 3; ++k)
            EXPECT_LE(largest_difference(expected, session.run(inputs)), 2e-3) << "seed " << seed << "\n"
                                                                               << print(program);
        EXPECT_EQ(machine.gpu().wrong, "") << "seed " << seed;
    }
}

TEST(GpuSession, RefusesDimensionsThatDoNotFitBeforeAnyKernelRuns) {
    Program p;
    Builder b(p);
    const ValueId x = b.input("x", DType::F32, {symbol("n"), symbol("k")});
    const ValueId y = b.input("y", DType::F32, {symbol("l"), symbol("m")});
    b.set_source("product", "MatMul");
    b.set_outputs({b.matmul(x, y)});
    Machine machine(p);
    Session session(machine.load());
    const auto inputs = [](int64_t k, int64_t l) {
        return std::vector<Tensor>{Tensor(DType::F32, {4, k}), Tensor(DType::F32, {l, 5})};
    };
    for (int round = 0; round < 2; ++round) {
        try {
            session.run(inputs(7, 3));
            ADD_FAILURE() << "nothing was refused";
        } catch (const ModelError& e) {
            EXPECT_STREQ(e.what(), "node 'product' (MatMul): dimensions k = 7 and l = 3 differ");
        }
        EXPECT_EQ(session.run(inputs(3, 3)).at(0).shape(), (Shape{4, 5}));
    }
    EXPECT_EQ(machine.gpu().wrong, "");
}

/// for k in 0..n: y = relu(y - x), and collects the rows; what the host steps between kernels.
Program loop() {
    auto step = std::make_shared<Program>();
    Builder s(*step);
    s.input("iteration", DType::I64, {});
    const ValueId y = s.input("y", DType::F32, {6, 4}), x = s.input("x", DType::F32, {6, 4});
    const ValueId next =
        s.binary(ScalarOp::Max, s.binary(ScalarOp::Sub, y, x), s.scalar_constant<float>(DType::F32, 0));
    s.set_outputs({next, s.reduce(Reducer::Sum, next, {0}, false, "sum")});
    Program p;
    p.name = "loop";
    Builder b(p);
    const ValueId n = b.input("n", DType::I64, {}), in = b.input("x", DType::F32, {6, 4});
    const ValueId start = b.unary(ScalarOp::Exp, in);
    Loop loop;
    loop.trip_count = max(b.read_int(n), 0);
    loop.carried = {start};
    loop.captures = {in};
    loop.scan_outputs = {{0, false}};
    loop.body = step;
    const Expr trips = *loop.trip_count;
    b.set_source("loop", "Loop");
    const std::vector<ValueId> out =
        b.emit_control(std::move(loop), {{DType::F32, {6, 4}}, {DType::F32, {trips, 4}}}, "loop");
    b.set_outputs({b.unary(ScalarOp::Neg, out[0]), b.unary(ScalarOp::Neg, out[1]), start});
    return p;
}

TEST(GpuSession, LeavesControlFlowToTheHost) {
    const Program program = loop();
    Machine machine(program);
    Session session(machine.load());
    Tensor x(DType::F32, {6, 4});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, 0.125 * static_cast<double>(i % 7));
    for (const int64_t n : {3, 0, 5, 5}) {
        const std::vector<Tensor> inputs = {Tensor::of<int64_t>(DType::I64, {}, {n}), x};
        EXPECT_LE(largest_difference(interpret(program, inputs), session.run(inputs)), 1e-5) << n << " rounds";
    }
    EXPECT_GT(machine.gpu().graph_launches, 5);  // the body is a graph as well
    EXPECT_EQ(machine.gpu().wrong, "");
}

/// Two products of known size, the first turned and with a bias and relu.
Program products() {
    Program p;
    p.name = "products";
    Builder b(p);
    b.set_source("net", "Net");
    const auto weight = [&](const Shape& shape) {
        Tensor w(DType::F32, shape);
        for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>((i * 37) % 19 - 9) * 0.05);
        return b.constant(w);
    };
    const ValueId x = b.input("x", DType::F32, {33, 48});
    const ValueId y = b.binary(ScalarOp::Max, b.binary(ScalarOp::Add, b.matmul(x, weight({48, 80})), weight({80})),
                               b.scalar_constant<float>(DType::F32, 0));
    p.outputs = {b.matmul(y, weight({80, 16})), b.reduce(Reducer::Max, y, {1}, true, "max")};
    return p;
}

TEST(GpuSession, TakesALibrarysProductsWhereTheyAreFaster) {
    const Program program = products();
    const std::vector<Tensor> inputs = random_inputs(program, 3), expected = interpret(program, inputs);
    for (const double seconds : {0.5, 2.0}) {
        Machine machine(program);
        {
            const auto model = machine.load_with_library(seconds);
            EXPECT_EQ(model->library_kernels(), seconds < 1 ? 2 : 0);
            Session session(model);
            const int before = machine.gpu().library_products;
            for (int k = 0; k < 4; ++k) EXPECT_LE(largest_difference(expected, session.run(inputs)), 1e-4);
            EXPECT_EQ(machine.gpu().library_products - before, seconds < 1 ? 8 : 0);
            EXPECT_GT(machine.gpu().graph_launches, 0);  // captured like kernels of ours
        }
        EXPECT_EQ(machine.gpu().wrong, "");
        EXPECT_EQ(machine.gpu().used, 0u);
    }
}

/// A product whose result is cut into heads behind a function that no library has, and a convolution whose result is
/// turned behind such a one. The product's operand is the difference of two tensors.
Program sums_with_rests() {
    return parse_program(R"(program p {
  input x: f32[33, 48]
  input z: f32[48]
  input w: f32[80, 48]
  input b: f32[80]
  input i: f32[1, 4, 9, 9]
  input f: f32[8, 4, 3, 3]
  y: f32[5, 33, 16] = [5, 33, 16] sum(i3 < 48) mul(sub(@0, @3), @1) then tanh(add(acc, @2)) where @0 = x[i1, i3], @1 = w[16*i0 + i2, i3], @2 = b[16*i0 + i2], @3 = z[i3]
  c: f32[49, 8] = [8, 7, 7] -> [7*i1 + i2, i0] sum(i3 < 4, i4 < 3, i5 < 3) mul(@0, @1) then exp(mul(acc, 0.25)) where @0 = i[0, i3, i1 + i4, i2 + i5], @1 = f[i0, i3, i4, i5]
  output y
  output c
})");
}

TEST(GpuSession, TakesALibrarysSumsWithGeneratedKernelsForTheRest) {
    const Program program = sums_with_rests();
    const std::vector<Tensor> inputs = random_inputs(program, 3), expected = interpret(program, inputs);
    for (const double seconds : {0.5, 2.0}) {
        Machine machine(program, 1 << 24, true);
        {
            const auto model = machine.load_with_library(seconds);
            const bool faster = seconds < 1;
            EXPECT_EQ(model->library_kernels(), faster ? 2 : 0);
            EXPECT_THAT(model->library_notes(),
                        testing::Contains(HasSubstr("cuBLASLt, algorithm 0, and 2 generated kernels: ")));
            EXPECT_THAT(model->library_notes(),
                        testing::Contains(HasSubstr("cuDNN, engine 1, and 1 generated kernel: ")));
            Session session(model);
            machine.gpu().launches = 0;
            const int products = machine.gpu().library_products, graphs = machine.gpu().cudnn.graphs;
            for (int k = 0; k < 4; ++k) EXPECT_LE(largest_difference(expected, session.run(inputs)), 1e-4);
            EXPECT_EQ(machine.gpu().library_products - products, faster ? 4 : 0);
            EXPECT_EQ(machine.gpu().cudnn.graphs - graphs, faster ? 4 : 0);
            // The difference and what follows the product; what follows the convolution.
            const int steps = static_cast<int>(machine.compiled().plan().steps.size());
            EXPECT_EQ(machine.gpu().launches, 4 * (faster ? steps - 2 + 3 : steps));
            EXPECT_GT(machine.gpu().graph_launches, 0);
        }
        EXPECT_EQ(machine.gpu().wrong, "");
        EXPECT_EQ(machine.gpu().used, 0u);
    }
    // The model has as many kernels as its plan calls; the others are parts of those.
    Machine machine(program, 1 << 24, true);
    EXPECT_EQ(machine.compiled().stats().kernels, 2);
    EXPECT_EQ(machine.compiled().kernels().size(), 5u);
    EXPECT_EQ(machine.compiled().gpu_kernels().size(), 5u);
    EXPECT_EQ(Machine(program).compiled().kernels().size(), 2u) << "without libraries";
}

/// Two sessions of one model have what lies between parts in memory of their own.
TEST(GpuSession, HasRoomForWhatLiesBetweenParts) {
    const Program program = sums_with_rests();
    const std::vector<Tensor> inputs = random_inputs(program, 3), others = random_inputs(program, 4);
    Machine machine(program, 1 << 24, true);
    {
        const auto model = machine.load_with_library(0.5);
        Session one(model), other(model);
        for (int k = 0; k < 3; ++k) {
            EXPECT_LE(largest_difference(interpret(program, inputs), one.run(inputs)), 1e-4);
            EXPECT_LE(largest_difference(interpret(program, others), other.run(others)), 1e-4);
        }
        const int64_t operand = 33 * 48 * 4, sums = 33 * 80 * 4, workspace = 1000;
        EXPECT_GE(one.arena_bytes(), operand + sums + workspace);
    }
    EXPECT_EQ(machine.gpu().wrong, "");
    // Too little memory to try them leaves the kernels that there are.
    Machine small(program, 48'000, true);
    const auto model = small.load_with_library(0.5);
    EXPECT_EQ(model->library_kernels(), 1) << "the convolution";
    EXPECT_THAT(model->library_notes(), testing::Contains(HasSubstr("out of memory")));
}

/// All kernels that libraries have, or have parts of, run so.
TEST(GpuSession, AgreesWithTheInterpreterOnRandomProgramsWithLibraries) {
    int libraries = 0;
    for (uint64_t seed = 300; seed < 340; ++seed) {
        const Program program = random_program(seed, 4 + static_cast<int>(seed % 8));
        const std::vector<Tensor> inputs = random_inputs(program, seed), expected = interpret(program, inputs);
        Machine machine(program, 1 << 24, true, {{"n", parse_dim_range("1..8:3")}});
        const auto model = machine.load_with_library(0.5);
        libraries += model->library_kernels();
        Session session(model);
        for (int k = 0; k < 2; ++k)
            EXPECT_LE(largest_difference(expected, session.run(inputs)), 2e-3) << "seed " << seed << "\n"
                                                                               << print(program);
        EXPECT_EQ(machine.gpu().wrong, "") << "seed " << seed;
    }
    EXPECT_GT(libraries, 5);
}

/// A relu that gives 0 for a NaN is not the model's.
TEST(GpuSession, TakesNoLibraryKernelThatLosesNaN) {
    for (const bool propagates : {true, false}) {
        Machine machine(products());
        machine.gpu().products_propagate_nan = propagates;
        const auto model = machine.load_with_library(0.5);
        const auto refused = testing::Contains(HasSubstr("cuBLASLt, algorithm 0: its results are others (inf times"));
        if (propagates)
            EXPECT_THAT(model->library_notes(), testing::Not(refused));
        else
            EXPECT_THAT(model->library_notes(), refused);
        EXPECT_EQ(model->library_kernels(), 2) << "cuDNN has the product as well";
        EXPECT_EQ(machine.gpu().wrong, "");
    }
}

/// A library whose kernels run for no operation: one fails, one needs more memory than there is.
class Failing : public cuda::KernelLibrary {
  public:
    std::string name() const override { return "a library"; }
    std::optional<Refusal> refusal(const LibraryKernel&) const override { return std::nullopt; }
    std::variant<std::vector<Candidate>, Refusal> candidates(const LibraryKernel&, const LibraryConditions&,
                                                             size_t) const override {
        const auto plan = [](int64_t bytes) { return [bytes] { return std::make_shared<const Plan>(bytes); }; };
        return std::vector<Candidate>{{"kernel 0", plan(16)}, {"kernel 1", plan(int64_t{1} << 40)}};
    }

  private:
    struct Plan : cuda::LibraryPlan {
        explicit Plan(int64_t n) : bytes(n) {}
        int64_t workspace_bytes() const override { return bytes; }
        void run(const cuda::Gpu::Stream&, const std::vector<void*>&, void*) const override {
            throw RuntimeError("it cannot run: status 14");
        }
        int64_t bytes;
    };
};

TEST(GpuSession, TakesTheFastestOfTheCandidatesThatRun) {
    const Program program = products();
    Machine machine(program);
    {
        const auto model = machine.load_with_library(0.5, {std::make_shared<Failing>()});
        EXPECT_EQ(model->library_kernels(), 2) << "a candidate that fails leaves the others as they are";
        EXPECT_THAT(model->library_notes(),
                    testing::Contains(HasSubstr("a library, kernel 0: it cannot run: status 14")));
        EXPECT_THAT(model->library_notes(), testing::Contains(HasSubstr("a library, kernel 1: out of memory")));
        const std::vector<Tensor> inputs = random_inputs(program, 3);
        EXPECT_LE(largest_difference(interpret(program, inputs), Session(model).run(inputs)), 1e-4);
    }
    EXPECT_EQ(machine.gpu().wrong, "");
    EXPECT_EQ(machine.gpu().used, 0u);
}

/// Sessions run a graph: what a library does on the host before each of its kernels is no part of a run.
TEST(GpuSession, TimesCandidatesAsTheGraphsThatSessionsRun) {
    Machine machine(products());
    const auto model = machine.load_and_measure();
    EXPECT_GT(machine.gpu().graph_launches, 0);
    EXPECT_THAT(model->library_notes(), testing::Contains(HasSubstr(" ms, the best else ")));
    EXPECT_EQ(machine.gpu().wrong, "");
}

/// A convolution with bias and relu, and an attention with a mask, of halves.
Program convolution_and_attention() {
    return parse_program(R"(program p {
  input x: f32[1, 4, 9, 9]
  input w: f32[8, 4, 3, 3]
  input b: f32[8, 1, 1]
  input q: f16[2, 16, 16]
  input k: f16[2, 24, 16]
  input v: f16[2, 24, 16]
  input m: f16[16, 24]
  c: f32[1, 8, 9, 9] = [8, 9, 9] -> [0, i0, i1, i2] sum(i3 < 4, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[0, i3, i1 + i4 - 1, i2 + i5 - 1] when i1 + i4 - 1 >= 0 and -i1 - i4 + 9 >= 0 and i2 + i5 - 1 >= 0 and -i2 - i5 + 9 >= 0 else 0, @1 = w[i0, i3, i4, i5]
  a: f32[1, 8, 9, 9] = [8, 9, 9] -> [0, i0, i1, i2] max(add(@0, @1), 0.0) where @0 = c[0, i0, i1, i2], @1 = b[i0, 0, 0]
  p: f16[2, 16, 24] = [2, 16, 24] sum(i3 < 16) mul(@0, @1) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]
  s: f32[2, 16, 24] = [2, 16, 24] add(mul(@0, 0.25), @1) where @0 = p[i0, i1, i2], @1 = m[i1, i2]
  t: f32[2, 16] = [2, 16] max(i2 < 24) @0 where @0 = s[i0, i1, i2]
  e: f32[2, 16, 24] = [2, 16, 24] exp(sub(@0, @1)) where @0 = s[i0, i1, i2], @1 = t[i0, i1]
  d: f32[2, 16] = [2, 16] sum(i2 < 24) @0 where @0 = e[i0, i1, i2]
  f: f16[2, 16, 24] = [2, 16, 24] div(@0, @1) where @0 = e[i0, i1, i2], @1 = d[i0, i1]
  o: f16[2, 16, 16] = [2, 16, 16] sum(i3 < 24) mul(@0, @1) where @0 = f[i0, i1, i3], @1 = v[i0, i3, i2]
  output a
  output o
})");
}

TEST(GpuSession, TakesALibrarysConvolutionsAndAttentionsWhereTheyAreFaster) {
    const Program program = convolution_and_attention();
    const std::vector<Tensor> inputs = random_inputs(program, 3), expected = interpret(program, inputs);
    for (const double seconds : {0.5, 2.0}) {
        Machine machine(program);
        {
            const auto model = machine.load_with_library(seconds);
            const int kernels = static_cast<int>(model->model()->kernels().size());
            EXPECT_EQ(kernels, 2) << "an attention is one kernel";
            EXPECT_EQ(model->library_kernels(), seconds < 1 ? kernels : 0);
            EXPECT_THAT(model->library_notes(), testing::Contains(HasSubstr("cuBLASLt: it multiplies matrices")));
            EXPECT_THAT(model->library_notes(), testing::Contains(HasSubstr(" ms, the best else 1000 ms")));
            Session session(model);
            const int before = machine.gpu().cudnn.graphs;
            for (int k = 0; k < 4; ++k) EXPECT_LE(largest_difference(expected, session.run(inputs)), 2e-2);
            EXPECT_EQ(machine.gpu().cudnn.graphs - before, seconds < 1 ? 4 * kernels : 0);
            EXPECT_GT(machine.gpu().graph_launches, 0);  // captured like kernels of ours
        }
        EXPECT_EQ(machine.gpu().wrong, "");
        EXPECT_EQ(machine.gpu().used, 0u);
        EXPECT_FALSE(machine.gpu().cudnn.has_descriptors());
    }
    // A fast kernel with another result is not taken.
    Machine machine(program);
    machine.gpu().cudnn.error = 0.1;
    const auto model = machine.load_with_library(0.5);
    EXPECT_EQ(model->library_kernels(), 0);
    EXPECT_THAT(model->library_notes(), testing::Contains(HasSubstr("cuDNN, engine 1: its results are others")));
}

/// exp(x w) and its loop, then what the loop gave and x w once more: x w stays where it is while the host works.
TEST(GpuSession, LeavesOnTheDeviceWhatLaterKernelsRead) {
    Program p = loop();
    Builder b(p);
    const ValueId looped = p.primitives[p.producers()[p.outputs[0]]].inputs().at(0), start = p.outputs[2];
    Tensor w(DType::F32, {4, 4});
    for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>(i % 5) * 0.25);
    const ValueId weight = b.constant(w);
    p.outputs = {b.matmul(b.binary(ScalarOp::Add, looped, b.matmul(start, weight)), weight)};
    Machine machine(p);
    Session session(machine.load());
    Tensor x(DType::F32, {6, 4});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, 0.125 * static_cast<double>(i % 7));
    for (const int64_t n : {3, 0, 5, 5, 0}) {
        const std::vector<Tensor> inputs = {Tensor::of<int64_t>(DType::I64, {}, {n}), x};
        machine.gpu().brought = 0;
        EXPECT_LE(largest_difference(interpret(p, inputs), session.run(inputs)), 1e-5) << n << " rounds";
        // x, and what the loop gave.
        if (n == 0) {
            EXPECT_EQ(machine.gpu().brought, 2 * x.bytes());
        }
    }
    EXPECT_EQ(machine.gpu().wrong, "");
}

TEST(GpuSession, SharesKernelsAndWeightsWithOthersOnTheDevice) {
    const Program program = network();
    Machine machine(program);
    const auto model = machine.load();
    const int64_t weights = (48 * 80 + 80 * 16) * 4;
    EXPECT_EQ(model->weight_bytes(), weights);
    EXPECT_EQ(machine.gpu().used, static_cast<uint64_t>(weights));
    const Tensor expected = Session(model).run(seeded_rows(33))[0];
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            Session mine(model);
            for (int i = 0; i < 8; ++i)
                if (!(mine.run(seeded_rows(33))[0] == expected)) ++wrong;
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(machine.gpu().used, static_cast<uint64_t>(weights));  // each session's own is gone with it
    EXPECT_EQ(machine.gpu().wrong, "");
}

TEST(GpuSession, PacksWhatLiesBetweenKernelsByItsLife) {
    // A chain of eight rows' sums and their uses: of all that is in between two values live at a time.
    Program p;
    p.name = "long";
    Builder b(p);
    ValueId x = b.input("x", DType::F32, {64, 64});
    int64_t all = 64 * 64 * 4;
    for (int k = 0; k < 8; ++k) {
        Tensor w(DType::F32, {64, 64});
        for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>((i * 31 + k) % 17 - 8) * 0.03);
        x = b.matmul(x, b.constant(w));
        all += 64 * 64 * 4;
    }
    p.outputs = {x};
    Machine machine(p);
    Session session(machine.load());
    const std::vector<Tensor> inputs = random_inputs(p, 1);
    EXPECT_LE(largest_difference(interpret(p, inputs), session.run(inputs)), 1e-4);
    // Kernels with parts of sums (split-K) share their memory as well.
    EXPECT_LT(session.arena_bytes(), all);
}

TEST(GpuSession, SaysWhatDoesNotFitTheDevice) {
    const Program program = network();
    const uint64_t weights = (48 * 80 + 80 * 16) * 4;
    Machine small(program, 1000);
    EXPECT_THAT(
        error_of([&] { small.load(); }),
        HasSubstr(fmt::format("out of memory on 'FakeDriver': the model's weights needs {} bytes, and 1000 of its "
                              "1000 are free",
                              weights)));
    Machine machine(program, weights + 40000);
    Session session(machine.load());
    EXPECT_THAT(error_of([&] { session.run(seeded_rows(5000)); }),
                AllOf(HasSubstr("what the model computes on the way needs"), HasSubstr("and 40000 of its"),
                      HasSubstr("a smaller batch may fit")));
    // A smaller batch does.
    EXPECT_LE(largest_difference(interpret(program, seeded_rows(4)), session.run(seeded_rows(4))), 1e-5);
    EXPECT_EQ(machine.gpu().wrong, "");
}

TEST(GpuSession, RefusesAModelThatIsNotForThisDevice) {
    const Program program = network();
    Machine machine(program);
    const cuda::Gpu gpu(0, machine.gpu().driver());
    EXPECT_THAT(error_of([&] { GpuModel(compile_program(program, {}), gpu, {}); }),
                HasSubstr("the model was compiled for a CPU"));
    machine.gpu().shared_bytes = 1000;
    EXPECT_THAT(error_of([&] { machine.load(); }),
                HasSubstr("the model was compiled for a GPU with more shared memory: kernel 0 needs"));
    // Instructions of four warps are of one architecture, not of what is newer.
    Program large;
    large.name = "large";
    Builder b(large);
    large.outputs = {b.matmul(b.input("x", DType::F16, {1024, 1024}), b.input("y", DType::F16, {1024, 1024}))};
    CompileOptions o;
    o.gpu = h200();
    o.precision = Precision::F16;
    const auto model = compile_program(large, o);
    GpuTarget other = h200();
    EXPECT_NO_THROW(check_fits(*model, other));
    for (const int major : {8, 10}) {
        other.major = major;
        EXPECT_THAT(error_of([&] { check_fits(*model, other); }),
                    AllOf(HasSubstr("compiled for sm_90a: kernel 0 has instructions of four warps"),
                          HasSubstr("compile it for that GPU")));
    }
}

TEST(GpuSession, ReportsAKernelThatFails) {
    Machine machine(network());
    Session session(machine.load());
    session.run(seeded_rows(4));
    machine.gpu().failure = 700;
    EXPECT_THAT(error_of([&] { session.run(seeded_rows(4)); }), HasSubstr("an illegal memory access"));
}

TEST(GpuSession, TimesEachKernelWhereAsked) {
    Machine machine(network());
    Session session(machine.load());
    const std::vector<Tensor> expected = session.run(seeded_rows(9));
    std::vector<StepTime> steps;
    session.set_profile(&steps);
    EXPECT_EQ(session.run(seeded_rows(9)), expected);
    session.set_profile(nullptr);
    const auto kernels = std::count_if(steps.begin(), steps.end(), [](const StepTime& s) { return s.kernel >= 0; });
    EXPECT_EQ(kernels, static_cast<int64_t>(machine.compiled().plan().steps.size()));
    double flops = 0;
    for (const StepTime& s : steps) flops += s.flops;
    EXPECT_EQ(flops, 2.0 * 9 * 80 * (48 + 16));
    EXPECT_EQ(session.last_flops(), flops);
    EXPECT_EQ(session.run(seeded_rows(9)), expected);
}

}  // namespace
}  // namespace tilewright
