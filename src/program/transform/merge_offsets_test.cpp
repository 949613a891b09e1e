#include "program/transform/merge_offsets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "program/text.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The program, whose inputs with names that start with "w" become constants of integers, or of halves ("wh").
Program parsed(const std::string& text) {
    Program p = parse_program("program p {\n" + text + "  output y\n}\n");
    std::vector<ValueId> inputs;
    for (const ValueId v : p.inputs) {
        const std::string& name = p.values[v].name;
        if (!name.starts_with('w')) {
            inputs.push_back(v);
            continue;
        }
        Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
        for (int64_t i = 0; i < t.count(); ++i)
            t.set(i, static_cast<double>(i * 37 % 101 - name.back()) * (name.starts_with("wh") ? 0.5 : 1));
        p.constants.emplace(v, std::move(t));
    }
    p.inputs = std::move(inputs);
    return p;
}

/// The text of the program with merged offsets, which computes the same.
std::string merged(const std::string& text) {
    const Program p = parsed(text), q = merge_offsets(p);
    EXPECT_EQ(verify(q), std::vector<std::string>()) << print(q);
    std::vector<Tensor> inputs;
    for (const ValueId v : p.inputs) {
        Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(i * 37 % 256));
        inputs.push_back(std::move(t));
    }
    const Tensor x = interpret(p, inputs)[0], y = interpret(q, inputs)[0];
    for (int64_t i = 0; i < x.count(); ++i) EXPECT_EQ(x.get(i), y.get(i)) << i;
    return print(q);
}

TEST(MergeOffsets, OfASumOfIntegersAreOneConstant) {
    const std::string text = merged(R"TW(  input x: u8[40, 8]
  input w: i8[8, 16]
  input wc: i32[16]
  input wb: i32[16, 1]
  y: f32[40, 16] = [40, 16] sum(i2 < 8) mul(i32(@0), i32(@1)) then mul(f32(add(sub(acc, @2), @3)), 0.5) where @0 = x[i0, i2], @1 = w[i2, i1], @2 = wc[i1], @3 = wb[i1, 0]  ; y Op
)TW");
    EXPECT_THAT(text, HasSubstr("then mul(f32(add(acc, @2)), 0.5)"));
    EXPECT_THAT(text, Not(HasSubstr("const wb:")));
}

TEST(MergeOffsets, OfASumOfFloatsThatAreIntegersAreAddedInFloats) {
    const auto of = [](const std::string& weights) {
        return merged(R"TW(  input x: u8[40, 8]
  input )TW" + weights +
                      R"TW(: f32[8, 16]
  input wc: f32[16]
  input wb: i32[16]
  y: f32[40, 16] = [40, 16] sum(i2 < 8) mul(f32(@0), @1) then f32(add(i32(sub(acc, @2)), @3)) where @0 = x[i0, i2], @1 = )TW" +
                      weights + R"TW([i2, i1], @2 = wc[i1], @3 = wb[i1]  ; y Op
)TW");
    };
    EXPECT_THAT(of("w"), HasSubstr("then add(acc, @2)"));
    EXPECT_THAT(of("wh"), HasSubstr("then f32(add(i32(sub(acc, @2)), @3))"));  // sums of halves: i32() truncates
}

TEST(MergeOffsets, LeaveThoseAtOtherPositionsAndSingleOnes) {
    for (const auto& [end, reads] :
         {std::pair("f32(add(sub(acc, @2), @3))", "@2 = wc[i1], @3 = wb[(i1 + 1) % 16]"),
          std::pair("f32(add(acc, @2))", "@2 = wc[i1]"), std::pair("f32(sub(@2, acc))", "@2 = wc[i1]")}) {
        const std::string text = fmt::format(R"TW(  input x: u8[40, 8]
  input w: i8[8, 16]
  input wc: i32[16]
  input wb: i32[16]
  y: f32[40, 16] = [40, 16] sum(i2 < 8) mul(i32(@0), i32(@1)) then {} where @0 = x[i0, i2], @1 = w[i2, i1], {}  ; y Op
)TW",
                                             end, reads);
        EXPECT_EQ(merged(text), print(parsed(text)));
    }
}

}  // namespace
}  // namespace tilewright
