// Runs with a KV cache compute what runs with the same rows as inputs do, without copying them.

#include "model/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/pipeline.h"
#include "model/session.h"
#include "orchestrate/append_in_place.h"
#include "program/builder.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

Tensor numbers(const Shape& shape, int seed) {
    Tensor t(DType::F32, shape);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>((i * 61 + seed * 29) % 97) / 97 - 0.5);
    return t;
}

/// Rows x [b, m, width] attend to all rows so far, past [b, n, width] and their own: y = softmax(x all^T) all.
Program decoder(int64_t width) {
    Program p;
    Builder b(p);
    const ValueId x = b.input("x", DType::F32, {symbol("b"), symbol("m"), width});
    const ValueId past = b.input("past", DType::F32, {symbol("b"), symbol("n"), width});
    const ValueId keys = b.binary(ScalarOp::Mul, x, 0.5);
    const ValueId all = b.concat(std::vector{past, keys}, 1);
    const ValueId scores = b.matmul(x, b.transpose(all, {0, 2, 1}));
    const ValueId e = b.unary(ScalarOp::Exp, scores);
    const ValueId share = b.binary(ScalarOp::Div, e, b.reduce(Reducer::Sum, e, {2}, true, "sum"));
    b.set_outputs({b.matmul(share, all), all});
    return p;
}

/// With the append in place: inputs x and past, outputs y and present.
std::shared_ptr<const CompiledModel> with_cache(Program program, const CompileOptions& options,
                                                std::function<std::shared_ptr<const CompiledModel>()> strict = {}) {
    const std::shared_ptr<const CompiledModel> plain = compile_program(program, options);
    auto out = std::make_unique<CompiledModel::Impl>();
    out->inputs = plain->inputs();
    out->outputs = plain->outputs();
    out->appends = append_in_place(program);
    const std::shared_ptr<const CompiledModel> in_place = compile_program(std::move(program), options);
    out->plan = in_place->plan();
    out->code = in_place->impl().code;
    out->make_fallback = std::move(strict);
    return std::make_shared<CompiledModel>(std::move(out));
}

CompileOptions two_threads() {
    CompileOptions o;
    o.threads = 2;
    return o;
}

std::vector<Tensor> run(Session& session, const std::vector<Tensor>& inputs, KvCache* cache = nullptr) {
    RunControl control;
    control.cache = cache;
    std::vector<Tensor> out;
    for (const Tensor& t : session.run_in_place(inputs, control)) {
        Tensor copy(t.dtype(), t.shape());
        if (t.bytes() > 0) std::memcpy(copy.mutable_data(), t.data(), t.bytes());
        out.push_back(std::move(copy));
    }
    return out;
}

/// The steps of a sequence with a cache, beside those with all rows as an input.
void expect_same_steps(int64_t width, int64_t batch, const std::vector<int64_t>& steps, int64_t reserved) {
    const Program program = decoder(width);
    const auto model = with_cache(program, two_threads());
    Session plain(compile_program(program, two_threads()), 2), session(model, 2);
    KvCache cache(model, reserved);
    Tensor past(DType::F32, {batch, 0, width});
    for (size_t k = 0; k < steps.size(); ++k) {
        const Tensor x = numbers({batch, steps[k], width}, static_cast<int>(k));
        const std::vector<Tensor> expected = run(plain, {x, past});
        const std::vector<Tensor> actual = run(session, {x, Tensor()}, &cache);
        ASSERT_EQ(actual[0].shape(), expected[0].shape());
        for (int64_t i = 0; i < actual[0].count(); ++i)
            ASSERT_NEAR(actual[0].get(i), expected[0].get(i), 1e-5) << "step " << k;
        EXPECT_EQ(actual[1].shape(), (Shape{batch, 0, width})) << "the cache has taken it";
        EXPECT_EQ(cache.read(0), expected[1]) << "step " << k;
        past = expected[1];
    }
    EXPECT_EQ(cache.rows(), past.shape()[1]);
}

TEST(KvCache, HasWhatInputsWouldHave) { expect_same_steps(16, 1, {5, 1, 1, 3, 1, 1}, 64); }
TEST(KvCache, GrowsBeyondWhatWasReserved) { expect_same_steps(16, 2, {2, 1, 30, 1, 1, 200, 1}, 0); }
TEST(KvCache, TakesRowsThatDoNotBeginAtCacheLines) { expect_same_steps(5, 3, {3, 1, 2, 1, 1}, 4); }

TEST(KvCache, IsNotNeeded) {
    const Program program = decoder(16);
    Session plain(compile_program(program, two_threads()), 2), session(with_cache(program, two_threads()), 2);
    for (const int64_t n : {0, 3, 20}) {
        const std::vector<Tensor> inputs = {numbers({2, 4, 16}, 1), numbers({2, n, 16}, 2)};
        const std::vector<Tensor> expected = run(plain, inputs), actual = run(session, inputs);
        EXPECT_EQ(actual[1], expected[1]) << n;
        for (int64_t i = 0; i < actual[0].count(); ++i) ASSERT_NEAR(actual[0].get(i), expected[0].get(i), 1e-5) << n;
        EXPECT_THROW(run(session, {inputs[0], Tensor(DType::F32, {2, 16})}), ModelError) << "another rank";
    }
}

TEST(KvCache, ServesSessionsInTurns) {
    const auto model = with_cache(decoder(16), two_threads());
    KvCache cache(model);
    Session one(model, 1), two(model, 2);
    run(one, {numbers({1, 7, 16}, 1), Tensor()}, &cache);
    run(two, {numbers({1, 2, 16}, 2), Tensor()}, &cache);
    EXPECT_EQ(cache.rows(), 9);
    run(one, {numbers({1, 3, 16}, 3), numbers({1, 1, 16}, 4)});
    run(one, {numbers({1, 1, 16}, 5), Tensor()}, &cache);
    EXPECT_EQ(cache.rows(), 10) << "a run without it in between";
}

TEST(KvCache, ForgetsTheLastRows) {
    const auto model = with_cache(decoder(16), two_threads());
    Session session(model, 1);
    KvCache cache(model), other(model);
    run(session, {numbers({1, 4, 16}, 1), Tensor()}, &cache);
    run(session, {numbers({1, 6, 16}, 2), Tensor()}, &cache);
    cache.truncate(4);
    const std::vector<Tensor> again = run(session, {numbers({1, 2, 16}, 3), Tensor()}, &cache);
    run(session, {numbers({1, 4, 16}, 1), Tensor()}, &other);
    EXPECT_EQ(run(session, {numbers({1, 2, 16}, 3), Tensor()}, &other), again);
    EXPECT_THROW(cache.truncate(7), ModelError);
    cache.truncate(0);
    run(session, {numbers({3, 4, 16}, 1), Tensor()}, &cache);
    EXPECT_EQ(cache.rows(), 4) << "a new sequence may have another batch";
}

TEST(KvCache, IsNotCopied) {
    const auto model = with_cache(decoder(16), two_threads());
    Session session(model, 1);
    KvCache cache(model, 1000);
    run(session, {numbers({1, 500, 16}, 1), Tensor()}, &cache);
    const uint64_t before = session.counts().bytes_copied;
    for (int k = 0; k < 5; ++k) run(session, {numbers({1, 1, 16}, k), Tensor()}, &cache);
    EXPECT_EQ(session.counts().bytes_copied, before);
}

TEST(KvCache, PlansMemoryAheadOfItsRows) {
    const auto model = with_cache(decoder(16), two_threads());
    Session session(model, 1);
    KvCache cache(model, 1000);
    run(session, {numbers({1, 200, 16}, 1), Tensor()}, &cache);
    const RunCounts before = session.counts();
    for (int k = 0; k < 100; ++k) run(session, {numbers({1, 1, 16}, k), Tensor()}, &cache);
    const RunCounts after = session.counts();
    EXPECT_EQ(after.preparations - before.preparations, 100u) << "each has sizes of its own";
    EXPECT_LE(after.memory_plans - before.memory_plans, 8u) << "an eighth more rows have room";
}

std::string error_of(Session& session, const std::vector<Tensor>& inputs, KvCache& cache) {
    try {
        run(session, inputs, &cache);
        return "";
    } catch (const ModelError& e) {
        return e.what();
    }
}

TEST(KvCache, StaysAsItIsWhereARunFails) {
    const auto model = with_cache(decoder(16), two_threads()), other = with_cache(decoder(16), two_threads());
    Session session(model, 1), stranger(other, 1);
    KvCache cache(model);
    EXPECT_THROW(cache.read(0), ModelError) << "no run yet";
    run(session, {numbers({2, 4, 16}, 1), Tensor()}, &cache);
    EXPECT_THAT(error_of(stranger, {numbers({2, 4, 16}, 1), Tensor()}, cache), HasSubstr("another model's"));
    EXPECT_THAT(error_of(session, {numbers({3, 1, 16}, 1), Tensor()}, cache),
                HasSubstr("a row of the KV cache has shape [2, 16], and this run's have [3, 16]"));
    EXPECT_THAT(error_of(session, {numbers({2, 1, 15}, 1), Tensor()}, cache), HasSubstr("expected 16"));
    EXPECT_EQ(cache.rows(), 4);
    EXPECT_THROW(KvCache(compile_program(decoder(16), two_threads())), ModelError) << "compiled without one";
    EXPECT_THROW(KvCache(model, -1), ModelError);
}

TEST(KvCache, ServesTheStrictModelAsWell) {
    Program program = decoder(16);
    const auto strict = [program] { return compile_program(program, two_threads()); };
    program.requirements.push_back(
        {Requirement::Kind::AtLeast, 4, symbol("m"), "rows", "a test", Requirement::Check::Fallback});
    const auto model = with_cache(program, two_threads(), strict);
    Session session(model, 1), plain(strict(), 1);
    KvCache cache(model);
    run(session, {numbers({1, 3, 16}, 1), Tensor()}, &cache);
    const Tensor past = cache.read(0), x = numbers({1, 9, 16}, 2);
    const std::vector<Tensor> expected = run(plain, {x, past});
    EXPECT_EQ(run(session, {x, Tensor()}, &cache)[0], expected[0]);
    EXPECT_EQ(session.counts().compilations, 1u);
    EXPECT_EQ(cache.rows(), 12);
    EXPECT_EQ(cache.read(0), expected[1]);
}

}  // namespace
}  // namespace tilewright
