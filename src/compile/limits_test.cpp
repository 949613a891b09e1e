#include "compile/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "program/builder.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

std::string error_for(const Program& p, const Bindings& names = {}) {
    try {
        check_limits(p, names);
    } catch (const RuntimeError& e) {
        return e.what();
    } catch (const ModelError& e) {
        return e.what();
    }
    return "";
}

/// y[d] = -x[d]
Program negation(Expr d) {
    Program p;
    Builder b(p);
    const ValueId x = b.input("x", DType::F32, {d});
    b.set_outputs({b.unary(ScalarOp::Neg, x)});
    return p;
}

TEST(Limits, AnInputMustFitInMemory) {
    EXPECT_EQ(error_for(negation(1000)), "");
    EXPECT_THAT(error_for(negation(int64_t{1} << 50)),
                HasSubstr("not enough memory: input 'x' of shape [1125899906842624] needs 4503599627370496 bytes, and "
                          "this process may use "));
    EXPECT_THAT(error_for(negation(INT64_MAX)), HasSubstr("needs more than 18446744073709551615 bytes"));
}

TEST(Limits, InputsAndOutputsMustFitTogether) {
    const auto most = static_cast<int64_t>(usable_memory() / sizeof(float));
    EXPECT_THAT(error_for(negation(most / 4 * 3)), HasSubstr("inputs, outputs and weights together needs "));
}

TEST(Limits, OpenDimensionsAreCheckedOnceTheyAreKnown) {
    const Program p = negation(symbol("n"));
    EXPECT_EQ(error_for(p), "");
    EXPECT_EQ(error_for(p, {{*symbol("n").as_var(), 1000}}), "");
    EXPECT_THAT(error_for(p, {{*symbol("n").as_var(), int64_t{1} << 50}}), HasSubstr("input 'x' of shape [$n]"));
    EXPECT_EQ(bind_inputs(p, {Tensor(DType::F32, {7})}).at(*symbol("n").as_var()), 7);
}

/// A loop with trip count `trips`, optionally with a condition.
Program loop(Expr trips, bool with_condition) {
    auto body = std::make_shared<Program>();
    Builder inner(*body);
    inner.input("i", DType::I64, {});
    const ValueId go = with_condition ? inner.input("go", DType::Bool, {}) : ValueId();
    const ValueId v = inner.input("v", DType::F32, {1});
    const ValueId next = inner.unary(ScalarOp::Neg, v);
    inner.set_outputs(with_condition ? std::vector<ValueId>{inner.copy(go), next} : std::vector<ValueId>{next});
    Program p;
    Builder b(p);
    const ValueId x = b.input("x", DType::F32, {1});
    Loop l;
    l.trip_count = trips;
    l.has_condition = with_condition;
    if (with_condition) l.condition = b.input("start", DType::Bool, {});
    l.carried = {x};
    l.body = body;
    b.set_outputs(b.emit_control(std::move(l), {{DType::F32, {1}}}, "loop"));
    return p;
}

TEST(Limits, ALoopThatOnlyItsCountEndsMustEnd) {
    EXPECT_EQ(error_for(loop(1'000'000, false)), "");
    EXPECT_THAT(error_for(loop(int64_t{1} << 62, false)),
                HasSubstr("would run 4611686018427387904 times, and only that number ends it"));
    EXPECT_EQ(error_for(loop(INT64_MAX, true)), "") << "exporters write a while loop like this";
    EXPECT_EQ(error_for(loop(symbol("n"), false)), "");
    EXPECT_NE(error_for(loop(symbol("n"), false), {{*symbol("n").as_var(), int64_t{1} << 50}}), "");
}

}  // namespace
}  // namespace tilewright
