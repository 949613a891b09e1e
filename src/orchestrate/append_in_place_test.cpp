// Outputs that extend inputs get rows first, and compute what they computed before.

#include "orchestrate/append_in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "opaque/operators.h"
#include "program/builder.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// present = past [b, 2, n, 4] with x [b, 2, m, 4] behind it. y is the sum of present's rows, z a part of past.
struct Decoder {
    Program program;
    Builder b{program};
    ValueId x = b.input("x", DType::F32, {symbol("b"), 2, symbol("m"), 4});
    ValueId past, present, y, z;

    explicit Decoder(Expr rows = symbol("n")) {
        past = b.input("past", DType::F32, {symbol("b"), 2, rows, 4});
        present = b.concat(std::vector{past, x}, 2);
        y = b.reduce(Reducer::Sum, present, {2}, false, "y");
        z = b.view(past, {symbol("b"), rows}, {axis(0), 1, axis(1), 3}, "z");
    }
    std::vector<Append> rewritten(std::vector<ValueId> outputs) {
        b.set_outputs(std::move(outputs));
        return append_in_place(program);
    }
};

TEST(AppendInPlace, PutsTheRowsFirst) {
    Decoder d;
    EXPECT_THAT(d.rewritten({d.y, d.present, d.z}), ElementsAre(Append{1, 1, 2}));
    EXPECT_THAT(verify(d.program), IsEmpty());
    const std::string text = print(d.program);
    EXPECT_THAT(text, HasSubstr("input past: f32[$n, $b, 2, 4]"));
    EXPECT_THAT(text, HasSubstr("x[i1, i2, i0, i3]"));
    EXPECT_THAT(text, HasSubstr("f32[$m + $n, $b, 2, 4] = opaque \"Append()\"(past, "));
    EXPECT_THAT(text, HasSubstr("past[i1, i0, 1, 3]"));
}

Tensor permuted(const Tensor& t, bool back) {
    const Shape shape =
        back ? rows_back(std::span<const int64_t>(t.shape()), 2) : rows_first(std::span<const int64_t>(t.shape()), 2);
    Tensor out(t.dtype(), shape);
    const Shape& s = back ? shape : t.shape();  // [b, h, n, d]
    for (int64_t b = 0, at = 0; b < s[0]; ++b)
        for (int64_t h = 0; h < s[1]; ++h)
            for (int64_t n = 0; n < s[2]; ++n)
                for (int64_t d = 0; d < s[3]; ++d, ++at) {
                    const int64_t first = ((n * s[0] + b) * s[1] + h) * s[3] + d;
                    out.set(back ? at : first, t.get(back ? first : at));
                }
    return out;
}

TEST(AppendInPlace, ComputesTheSame) {
    Decoder d;
    d.b.set_outputs({d.present, d.y, d.z});
    const Program before = d.program;
    append_in_place(d.program);
    for (const int64_t n : {0, 1, 5})
        for (const int64_t m : {1, 3}) {
            std::vector<Tensor> inputs = {Tensor(DType::F32, {3, 2, m, 4}), Tensor(DType::F32, {3, 2, n, 4})};
            for (Tensor& t : inputs)
                for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>((i * 37 + n) % 101) / 16);
            const std::vector<Tensor> expected = interpret(before, inputs);
            inputs[1] = permuted(inputs[1], false);
            std::vector<Tensor> actual = interpret(d.program, inputs);
            actual[0] = permuted(actual[0], true);
            EXPECT_EQ(actual, expected) << n << " rows and " << m;
        }
}

TEST(AppendInPlace, KnowsTheRowsBeforeAndThoseThatARunAdds) {
    Decoder d;
    const auto rows = appended_rows(d.program, d.rewritten({d.present, d.y}));
    ASSERT_TRUE(rows);
    EXPECT_EQ(var_name(rows->before), "n");
    EXPECT_EQ(var_name(rows->added), "m");
}

TEST(AppendInPlace, LeavesOutputsAloneThatAreMoreThanTheInputAndRowsBehindIt) {
    const auto untouched = [](Decoder& d, const std::vector<ValueId>& outputs, const char* why) {
        d.b.set_outputs(outputs);
        const std::string before = print(d.program);
        EXPECT_THAT(d.rewritten(outputs), IsEmpty()) << why;
        EXPECT_EQ(print(d.program), before) << why;
    };
    Decoder d;
    untouched(d, {d.y}, "no output has the rows");
    untouched(d, {d.present, d.past}, "the input is an output as well");
    untouched(d, {d.present, d.present}, "two outputs have the rows");
    const ValueId double_rows = d.b.binary(ScalarOp::Add, d.present, d.present);
    untouched(d, {double_rows}, "the output is computed from the rows");
    const ValueId places =
        d.b.emit_opaque(opaque::non_zero(), {d.present}, {{DType::I64, {4, d.b.fresh_symbol("k")}}}, "k")[0];
    untouched(d, {d.present, places}, "an operator that is no tensor expression reads it");
    Decoder fixed(8);
    untouched(fixed, {fixed.present}, "as many rows are there in every run");
}

TEST(AppendInPlace, NeedsTheSizesOfARowFromOtherInputs) {
    Program program;
    Builder b(program);
    const ValueId x = b.input("x", DType::F32, {1, symbol("m")});
    const ValueId past = b.input("past", DType::F32, {symbol("c"), symbol("n")});
    const ValueId rows = b.view(x, {symbol("c"), symbol("m")}, {0, axis(1)}, "rows");
    b.set_outputs({b.concat(std::vector{past, rows}, 1)});
    EXPECT_THAT(append_in_place(program), IsEmpty());
    b.input("c", DType::F32, {symbol("c")});
    EXPECT_THAT(append_in_place(program), ElementsAre(Append{1, 0, 1}));
}

}  // namespace
}  // namespace tilewright
