#include "program/transform/widen_storage.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "program/random_program.h"
#include "program/text.h"

namespace tilewright {
namespace {

/// The program; inputs whose names begin with "w" become constants.
Program parsed(const std::string& text) {
    Program p = parse_program("program p {\n" + text + "}\n");
    std::vector<ValueId> inputs;
    for (const ValueId v : p.inputs) {
        if (!p.values[v].name.starts_with('w')) {
            inputs.push_back(v);
            continue;
        }
        Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, 0.01 * static_cast<double>(i * 7 % 31 - 12));
        p.constants.emplace(v, std::move(t));
    }
    p.inputs = std::move(inputs);
    return p;
}

/// What becomes of the program, which computes the same but for roundings to f16.
Program widened(const std::string& text) {
    const Program p = parsed(text);
    const Program q = widen_storage(p, {DType::F16});
    EXPECT_EQ(verify(q), std::vector<std::string>()) << print(q);
    const std::vector<Tensor> inputs = random_inputs(p, 3);
    EXPECT_LE(largest_difference(interpret(p, inputs), interpret(q, inputs)), 4e-3) << print(q);
    return q;
}

DType type_of(const Program& p, const std::string& name) {
    for (const Value& v : p.values)
        if (v.name == name) return v.dtype;
    ADD_FAILURE() << name;
    return DType::Bool;
}

TEST(WidenStorage, ofComputedTensorsAndConstantsButNotOfInputsAndOutputs) {
    const Program p = widened(R"TW(  input x: f16[20, 24]
  input w: f16[24, 16]
  a: f16[20, 24] = [20, 24] max(@0, 0.0) where @0 = x[i0, i1]  ; a Relu
  b: f16[20, 16] = [20, 16] sum(i2 < 24) mul(@0, @1) where @0 = a[i0, i2], @1 = w[i2, i1]  ; b MatMul
  y: f16[20, 16] = [20, 16] max(@0, 0.0) where @0 = b[i0, i1]  ; y Relu
  output y
)TW");
    for (const char* name : {"a", "b", "w"}) EXPECT_EQ(type_of(p, name), DType::F32) << name;
    for (const char* name : {"x", "y"}) EXPECT_EQ(type_of(p, name), DType::F16) << name;
}

/// A product with `rows` rows and a quarter of a million weights.
DType of_weights(const std::string& rows) {
    Program p = parsed(fmt::format(R"TW(  input x: f16[{0}, 512]
  input w: f16[512, 512]
  y: f16[{0}, 512] = [{0}, 512] sum(i2 < 512) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y MatMul
  output y
)TW",
                                   rows));
    return type_of(widen_storage(std::move(p), {DType::F16}), "w");
}

TEST(WidenStorage, leavesWeightsThatAreReadForFewRows) {
    EXPECT_EQ(of_weights("1"), DType::F16);
    EXPECT_EQ(of_weights("15"), DType::F16);
    EXPECT_EQ(of_weights("$rows"), DType::F16);
    EXPECT_EQ(of_weights("16"), DType::F32);
}

TEST(WidenStorage, isOfTheGivenTypes) {
    const Program p = widened(R"TW(  input x: f32[8]
  a: bf16[8] = [8] @0 where @0 = x[i0]  ; a Cast
  y: f32[8] = [8] exp(@0) where @0 = a[i0]  ; y Exp
  output y
)TW");
    EXPECT_EQ(type_of(p, "a"), DType::BF16);
}

}  // namespace
}  // namespace tilewright
