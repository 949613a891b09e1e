#include "program/transform/merge_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "program/text.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The program, whose inputs with names that start with "w" become constants.
Program parsed(const std::string& text) {
    Program p = parse_program("program p {\n" + text + "}\n");
    std::vector<ValueId> inputs;
    for (const ValueId v : p.inputs) {
        if (!p.values[v].name.starts_with('w')) {
            inputs.push_back(v);
            continue;
        }
        Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, 0.01 * static_cast<double>(i * 7 % 11 + 1));
        p.constants.emplace(v, std::move(t));
    }
    p.inputs = std::move(inputs);
    return p;
}

/// The largest difference of the results.
double difference(const Program& a, const Program& b) {
    std::vector<Tensor> inputs;
    for (const ValueId v : a.inputs) {
        Tensor t(a.values[v].dtype, evaluate(a.values[v].shape, Bindings()));
        for (int64_t i = 0; i < t.count(); ++i)
            t.set(i, is_float(t.dtype()) ? std::sin(static_cast<double>(i)) * 90 : static_cast<double>(i * 37 % 256));
        if (is_float(t.dtype())) {
            t.set(0, std::numeric_limits<double>::quiet_NaN());
            t.set(1, std::numeric_limits<double>::infinity());
        }
        inputs.push_back(std::move(t));
    }
    const Tensor x = interpret(a, inputs)[0], y = interpret(b, inputs)[0];
    double largest = 0;
    for (int64_t i = 0; i < x.count(); ++i) largest = std::max(largest, std::abs(x.get(i) - y.get(i)));
    return largest;
}

TEST(MergeScales, DividesTheFactorsOfALinearFunctionOfIntegers) {
    const Program p = parsed(R"TW(  input x: u8[40, 8]
  input v: u8[8, 16]
  input ws: f32[16]
  input wb: f32[16]
  y: u8[40, 16] = [40, 16] sum(i2 < 8) mul(i32(@0), i32(@1)) then u8(add(round(div(max(add(mul(f32(acc), @2), @3), 0.0), 3.0)), 5.0)) where @0 = x[i0, i2], @1 = v[i2, i1], @2 = ws[i1], @3 = wb[i1]  ; y Op
  output y
)TW");
    const Program merged = merge_scales(p);
    EXPECT_EQ(verify(merged), std::vector<std::string>());
    EXPECT_THAT(print(merged), HasSubstr("then u8(add(round(max(add(mul(f32(acc), @2), @3), 0.0)), 5.0))"));
    EXPECT_LE(difference(p, merged), 1);
}

TEST(MergeScales, KeepsBytesThatAreDequantisedAtOnceAsFloats) {
    const Program p = parsed(R"TW(  input x: f32[100]
  input r: u8[100]
  y: u8[100] = [100] u8(round(div(add(mul(f32(sub(i32(u8(add(round(div(@0, 0.7f)), 3.0))), 3:i32)), 0.7f), mul(f32(i32(@1)), 0.5)), 2.0))) where @0 = x[i0], @1 = r[i0]  ; y Op
  output y
)TW");
    const Program merged = merge_scales(p);
    EXPECT_EQ(verify(merged), std::vector<std::string>());
    EXPECT_THAT(print(merged), Not(HasSubstr("i32(u8(")));
    EXPECT_THAT(print(merged), HasSubstr("round(div(@0, 0.7f))"));  // of another real number
    EXPECT_THAT(print(merged), HasSubstr("mul(f32(i32(@1)), 0.25)"));
    EXPECT_LE(difference(p, merged), 1);
}

TEST(MergeScales, DividesTheFactorsOfASumOfFloats) {
    const Program p = parsed(R"TW(  input x: u8[40, 8]
  input v: u8[8, 16]
  input ws: f32[16]
  y: u8[40, 16] = [40, 16] sum(i2 < 8) mul(f32(@0), f32(@1)) then u8(round(div(mul(sub(acc, 3.0), @2), 3.0))) where @0 = x[i0, i2], @1 = v[i2, i1], @2 = ws[i1]  ; y Op
  output y
)TW");
    EXPECT_THAT(print(merge_scales(p)), HasSubstr("then u8(round(mul(sub(acc, 3.0), @2)))"));
    EXPECT_LE(difference(p, merge_scales(p)), 1);
}

TEST(MergeScales, DividesTheIntegersThatAnyNumberMultiplies) {
    const Program p = parsed(R"TW(  input x: f32[100]
  input r: u8[100]
  y: u8[100] = [100] u8(round(div(mul(@0, mul(f32(sub(i32(@1), 3:i32)), 0.5)), 2.0))) where @0 = x[i0], @1 = r[i0]  ; y Op
  output y
)TW");
    EXPECT_THAT(print(merge_scales(p)), HasSubstr("u8(round(mul(@0, mul(f32(sub(i32(@1), 3:i32)), 0.25))))"));
    EXPECT_LE(difference(p, merge_scales(p)), 1);
}

TEST(MergeScales, LeaveOtherDivisions) {
    for (const char* body : {"u8(round(div(@0, 0.7f)))", "u8(round(div(mul(@0, @0), 0.7f)))",
                             "u8(div(mul(f32(@1), 0.3f), 0.7f))", "u8(round(div(mul(f32(@1), 0.3f), f32(@1))))"}) {
        const Program p = parsed(std::string("  input x: f32[8]\n  input r: u8[8]\n  y: u8[8] = [8] ") + body +
                                 " where @0 = x[i0], @1 = r[i0]  ; y Op\n  output y\n");
        EXPECT_EQ(print(merge_scales(p)), print(p));
    }
}

}  // namespace
}  // namespace tilewright
