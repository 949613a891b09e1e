// Runs that write to the caller's memory, and runs that are cancelled.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/cancelled.h"
#include "base/error.h"
#include "compile/pipeline.h"
#include "model/session.h"
#include "program/builder.h"
#include "runtime/opaque.h"

namespace tilewright {
namespace {

/// Memory for outputs; counts the requests.
class GivenBuffers {
  public:
    explicit GivenBuffers(size_t outputs, size_t offset = 0) : offset_(offset), buffers_(outputs) {}

    RunControl control() {
        RunControl c;
        c.output_memory = [this](size_t i, const TensorView& output) -> void* {
            ++requests;
            EXPECT_EQ(output.data, nullptr);
            std::vector<std::byte>& b = buffers_.at(i);
            b.assign(static_cast<size_t>(output.count()) * byte_size(output.dtype) + 128, std::byte{0xAB});
            return b.data() + (64 - reinterpret_cast<uintptr_t>(b.data()) % 64) % 64 + offset_;
        };
        return c;
    }
    bool holds(size_t i, const void* p) const {
        const std::vector<std::byte>& b = buffers_.at(i);
        return p >= b.data() && p < b.data() + b.size();
    }

    int requests = 0;

  private:
    size_t offset_;
    std::vector<std::vector<std::byte>> buffers_;
};

/// A product that other outputs read; an output twice; an input and a constant as outputs.
std::shared_ptr<const CompiledModel> five_outputs() {
    Program p;
    p.name = "five";
    Builder b(p);
    const ValueId x = b.input("x", DType::F32, {symbol("rows"), 32});
    Tensor w(DType::F32, {32, 48});
    for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>((i * 31) % 17 - 8) * 0.1);
    const ValueId y = b.matmul(x, b.constant(w)), z = b.unary(ScalarOp::Tanh, y);
    const ValueId sum = b.reduce(Reducer::Max, z, {0}, false, "max");
    b.set_outputs({y, z, sum, x, b.constant(Tensor::of<float>(DType::F32, {2}, {3, 4}))});
    return compile_program(p, {});
}

std::vector<Tensor> some_rows(int64_t n, int64_t columns = 32) {
    Tensor x(DType::F32, {n, columns});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>((i * 7919) % 101 - 50) * 0.02);
    return {x};
}

void expect_equal(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected, const std::string& where) {
    ASSERT_EQ(actual.size(), expected.size()) << where;
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_EQ(actual[i], expected[i]) << where << ", output " << i;
}

TEST(RunControl, WritesOutputsToTheCallersMemory) {
    const auto model = five_outputs();
    for (const size_t offset : {0, 4}) {  // aligned, and not
        Session plain(model, 2), given(model, 2);
        for (const int64_t n : {5, 5, 64, 1, 0, 64}) {
            GivenBuffers buffers(5, offset);
            const std::vector<Tensor> expected = plain.run(some_rows(n)), x = some_rows(n);
            const std::vector<Tensor>& actual = given.run_in_place(x, buffers.control());
            const std::string where = std::to_string(n) + " rows at offset " + std::to_string(offset);
            expect_equal(actual, expected, where);
            EXPECT_EQ(buffers.requests, 5) << where;
            for (size_t i = 0; i < actual.size(); ++i)
                EXPECT_TRUE(actual[i].bytes() == 0 || buffers.holds(i, actual[i].data())) << where << ", output " << i;
            expect_equal(given.run(x), expected, "the session's own memory after " + where);
        }
    }
}

TEST(RunControl, TakesNoMemoryForOutputsThatLieElsewhere) {
    const auto model = five_outputs();
    Session plain(model, 1), given(model, 1);
    GivenBuffers buffers(5);
    plain.run(some_rows(512));
    given.run_in_place(some_rows(512), buffers.control());
    EXPECT_LE(given.arena_bytes() + int64_t{2} * 512 * 48 * 4, plain.arena_bytes());
}

TEST(RunControl, RequestsMemoryOfDataDependentOutputsAfterTheRun) {
    auto step = std::make_shared<Program>();
    Builder s(*step);
    s.input("iteration", DType::I64, {});
    s.set_outputs({s.unary(ScalarOp::Neg, s.input("x", DType::F32, {10}))});
    Program p;
    Builder b(p);
    Loop loop;
    const ValueId n = b.input("n", DType::I64, {});
    loop.captures = {b.input("x", DType::F32, {10})};
    loop.trip_count = max(b.read_int(n), 0);
    loop.scan_outputs = {{0, false}};
    loop.body = step;
    const Expr trips = *loop.trip_count;
    b.set_source("collect", "Loop");
    b.set_outputs(b.emit_control(std::move(loop), {{DType::F32, {trips, 10}}}, "loop"));
    Session session(compile_program(p, {}), 1);
    const Tensor x = Tensor::of<float>(DType::F32, {10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    for (const int64_t count : {3, 7, 0}) {
        GivenBuffers buffers(1);
        const Tensor y = session.run_in_place({Tensor::of<int64_t>(DType::I64, {}, {count}), x}, buffers.control())[0];
        EXPECT_EQ(y.shape(), (Shape{count, 10}));
        EXPECT_EQ(buffers.requests, 1);
        EXPECT_TRUE(count == 0 || buffers.holds(0, y.data()));
        for (int64_t i = 0; i < y.count(); ++i) ASSERT_EQ(y.get(i), -static_cast<double>(i % 10));
    }
}

TEST(RunControl, AnOutputMayReplaceAnInput) {
    Program p;
    Builder b(p);
    const ValueId x = b.input("x", DType::F32, {64, 64}), y = b.input("y", DType::F32, {64, 64});
    b.set_outputs({b.transpose(x, {1, 0}), b.binary(ScalarOp::Sub, b.transpose(x, {1, 0}), y)});
    const auto model = compile_program(p, {});
    const std::vector<Tensor> inputs = {some_rows(64, 64)[0], some_rows(64, 64)[0]};
    Session session(model, 2);
    const std::vector<Tensor> expected = session.run(inputs);
    std::vector<Tensor> own;
    for (const Tensor& t : inputs) {
        own.emplace_back(t.dtype(), t.shape());
        std::memcpy(own.back().mutable_data(), t.data(), t.bytes());
    }
    RunControl control;
    control.output_memory = [&](size_t i, const TensorView&) { return own[i].mutable_data(); };
    session.run_in_place(own, control);
    expect_equal(own, expected, "in place");
}

TEST(RunControl, TwoOutputsInOneMemoryDoNotDisturbTheRun) {
    Session session(five_outputs(), 2);
    const std::vector<Tensor> expected = session.run(some_rows(40));
    Tensor memory(DType::F32, {40, 48});
    RunControl control;
    control.output_memory = [&](size_t i, const TensorView&) { return i < 2 ? memory.mutable_data() : nullptr; };
    const std::vector<Tensor>& actual = session.run_in_place(some_rows(40), control);
    EXPECT_EQ(memory, expected[1]) << "the second output is written last";
    EXPECT_EQ(actual[2], expected[2]);
}

TEST(RunControl, ACancelledRunEndsAndTheNextOneWorks) {
    const auto model = five_outputs();
    Session session(model, 2);
    const std::vector<Tensor> expected = Session(model, 2).run(some_rows(9));
    std::atomic<int> calls = 0;
    RunControl control;
    control.cancelled = [&] { return ++calls > 1; };
    EXPECT_THROW(session.run_in_place(some_rows(9), control), Cancelled);
    EXPECT_EQ(calls, 2);
    expect_equal(session.run(some_rows(9)), expected, "after a cancelled run");
    control.cancelled = [&] { return false; };
    session.run_in_place(some_rows(9), control);
}

}  // namespace
}  // namespace tilewright
