#include "program/transform/byte_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "program/text.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

Program parsed(const std::string& type, const std::string& body) {
    return parse_program("program p {\n  input x: " + type + "[300]\n  y: f32[300] = [300] " + body +
                         " where @0 = x[i0]  ; y Op\n  output y\n}\n");
}

/// The text with tables, which computes the same.
std::string tabulated(const std::string& type, const std::string& body) {
    const Program p = parsed(type, body), q = tabulate_bytes(p);
    EXPECT_EQ(verify(q), std::vector<std::string>()) << print(q);
    Tensor x(p.values[p.inputs[0]].dtype, {300});
    for (int64_t i = 0; i < x.count(); ++i)
        x.set(i, is_float(x.dtype()) ? std::sin(static_cast<double>(i)) * 4
                                     : static_cast<double>(i % 256 - (x.dtype() == DType::I8 ? 128 : 0)));
    const Tensor a = interpret(p, {x})[0], b = interpret(q, {x})[0];
    for (int64_t i = 0; i < a.count(); ++i) EXPECT_NEAR(a.get(i), b.get(i), 1e-6 * (1 + std::abs(a.get(i)))) << i;
    return print(q);
}

const std::string kSilu =
    "mul(mul(f32(sub(i32(@0), 9:i32)), 0.1f), div(1.0, add(1.0, exp(neg(mul(f32(sub(i32(@0), 9:i32)), 0.1f))))))";

TEST(ByteTables, HoldLongFunctionsOfAByte) {
    const std::string twice = "tanh(" + kSilu + ")";
    EXPECT_THAT(tabulated("u8", twice), HasSubstr("table{"));
    EXPECT_THAT(tabulated("i8", twice), HasSubstr("table{"));
    EXPECT_THAT(tabulated("u8", twice), Not(HasSubstr("exp(")));
}

TEST(ByteTables, BeginAtAQuantisationInTheBody) {
    const std::string quantised = "u8(round(mul(@0, 30.0)))";
    std::string body = "add(@0, tanh(tanh(" + kSilu + ")))";
    const auto replace = [&](const std::string& what, const std::string& by) {
        for (size_t at = body.find(what); at != std::string::npos; at = body.find(what, at + by.size()))
            body.replace(at, what.size(), by);
    };
    replace("i32(@0)", "i32(" + quantised + ")");
    const std::string text = tabulated("f32", body);
    EXPECT_THAT(text, HasSubstr("add(@0, table{"));
    EXPECT_THAT(text, HasSubstr("u8(round(mul(@0, 30.0)))"));
}

TEST(ByteTables, LeaveShortFunctionsAndThoseOfMore) {
    for (const char* body : {"mul(f32(sub(i32(@0), 9:i32)), 0.1f)", "tanh(tanh(mul(f32(i32(@0)), f32(index(i0)))))"})
        EXPECT_THAT(tabulated("u8", body), Not(HasSubstr("table{")));
}

}  // namespace
}  // namespace tilewright
