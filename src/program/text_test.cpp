// The text of programs: format, round trips, and error messages.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "program/program.h"
#include "program/text.h"

namespace tilewright {
namespace {

class Named : public OpaqueOp {
  public:
    explicit Named(std::string text) : text_(std::move(text)) {}
    std::string print() const override { return text_; }
    void run(std::span<const TensorView>, OpaqueOutputs&) const override {}

  private:
    std::string text_;
};

std::shared_ptr<const OpaqueOp> any_operator(std::string_view text) {
    return std::make_shared<Named>(std::string(text));
}

std::string program_again(std::string_view text) { return print(parse_program(text, any_operator)); }

std::string program_failure(std::string_view text) {
    try {
        return "read as " + print(parse_program(text));
    } catch (const ModelError& e) {
        return e.what();
    }
}

Primitive primitive(std::string name, std::string source, std::vector<ValueId> outputs,
                    decltype(Primitive::kind) kind) {
    return {std::move(name), std::move(source), std::move(outputs), std::move(kind)};
}

TEST(ProgramText, APaddedConvolutionWithBiasAndRelu) {
    Program p;
    p.name = "conv";
    const Expr n = symbol("batch");
    const ValueId x = p.values.push_back({"x", DType::F32, {n, 3, 224, 224}});
    const ValueId w = p.values.push_back({"conv1.weight", DType::F32, {64, 3, 7, 7}});
    const ValueId b = p.values.push_back({"onnx::bias", DType::F32, {2}});
    const ValueId y = p.values.push_back({"/conv1/Conv_output_0", DType::F32, {n, 64, 112, 112}});
    p.inputs = {x};
    p.outputs = {y};
    p.constants.emplace(w, Tensor(DType::F32, {64, 3, 7, 7}));
    p.constants.emplace(b, Tensor::of<float>(DType::F32, {2}, {0.1f, -2}));
    TensorExpr e;
    e.extents = {n, 64, 112, 112, 3, 7, 7};
    e.spatial = 4;
    e.reducer = Reducer::Sum;
    const Expr row = axis(2) * 2 + axis(5) - 3, column = axis(3) * 2 + axis(6) - 3;
    e.accesses = {{x, {axis(0), axis(4), row, column}, {row, Expr(223) - row, column, Expr(223) - column}, 0},
                  {w, {axis(1), axis(4), axis(5), axis(6)}, {}, 0},
                  {b, {mod(axis(1), 2)}, {}, 0}};
    e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, DType::F32), e.body.access(1, DType::F32)));
    const ScalarId sum = e.epilogue.binary(ScalarOp::Add, e.epilogue.acc(DType::F32), e.epilogue.access(2, DType::F32));
    e.epilogue.set_root(e.epilogue.binary(ScalarOp::Max, sum, e.epilogue.constant(DType::F32, 0)));
    p.primitives.push_back(primitive("/conv1/Conv/products", "Conv", {y}, e));

    const std::string text = print(p);
    EXPECT_EQ(text,
              "program conv {\n"
              "  input x: f32[$batch, 3, 224, 224]\n"
              "  const conv1.weight: f32[64, 3, 7, 7] = #bb3fccdb43914a79\n"
              "  const \"onnx::bias\": f32[2] = {0.1, -2}\n"
              "  /conv1/Conv_output_0: f32[$batch, 64, 112, 112] = [$batch, 64, 112, 112]"
              " sum(i4 < 3, i5 < 7, i6 < 7) mul(@0, @1) then max(add(acc, @2), 0.0)"
              " where @0 = x[i0, i4, 2*i2 + i5 - 3, 2*i3 + i6 - 3] when 2*i2 + i5 - 3 >= 0 and -2*i2 - i5 + 226 >= 0"
              " and 2*i3 + i6 - 3 >= 0 and -2*i3 - i6 + 226 >= 0 else 0,"
              " @1 = conv1.weight[i1, i4, i5, i6], @2 = \"onnx::bias\"[i1 % 2]"
              "  ; /conv1/Conv/products Conv\n"
              "  output /conv1/Conv_output_0\n"
              "}\n");
    EXPECT_EQ(program_again(text), text);
    EXPECT_TRUE(verify(parse_program(text)).empty());
    EXPECT_EQ(print(p, e), text.substr(text.find("= [$batch") + 2, text.find("  ; ") - text.find("= [$batch") - 2));
}

TEST(ProgramText, EveryKindOfPrimitiveRoundTrips) {
    const std::string text =
        "program \"all kinds\" {\n"
        "  input x: f32[$n, 3]\n"
        "  input go: bool[]\n"
        "  require equal [$n, ?count]  ; \"element counts\" \"node 'a b' (Reshape)\"\n"
        "  require broadcast [$n, max($k, 3)]  ; dimensions \"\"\n"
        "  require spread [$n, 7]  ; dimensions x\n"
        "  require at_least [2*$n, $k]  ; \"\" x\n"
        "  iota: i64[4] = [4] index(i0)\n"
        "  flat: f32[3*$n] = [$n, 3] -> [3*i0 + i1] @0 where @0 = x[i0, i1]  ; reshape Reshape\n"
        "  picked: f32[4] = [4] @1 where @0 = iota[i0], @1 = flat[min(2, @0)]\n"
        "  top: f32[$k], places: i64[$k] = opaque \"TopK(axis=0, largest=1)\"(flat, -, iota)  ; topk TopK\n"
        "  ?count = read places[0]  ; \"\" Reshape\n"
        "  () = opaque Trace(top)\n"
        "  chosen: f32[3] = if go(x, iota)  ; if If\n"
        "    then yes {\n"
        "      input a: f32[$n, 3]\n"
        "      input b: i64[4]\n"
        "      require equal [$n, 5]  ; dimensions inner\n"
        "      r: f32[3] = [3] max(i1 < $n) @0 where @0 = a[i1, i0]\n"
        "      output r\n"
        "    }\n"
        "    else \"\" {\n"
        "      input a: f32[$n, 3]\n"
        "      input b: i64[4]\n"
        "      const r: f32[3] = {1, 2, 3}\n"
        "      output r\n"
        "    }\n"
        "  last: f32[3], all: f32[3, $n] = loop trip($n) while(go) conditional carried(chosen) scan(x axis 0 reverse)"
        " stack(axis 1 reverse) captures(iota)  ; loop Loop\n"
        "    body step {\n"
        "      input t: i64[]\n"
        "      input go: bool[]\n"
        "      input h: f32[3]\n"
        "      input row: f32[3]\n"
        "      input iota: i64[4]\n"
        "      g: f32[3] = [3] add(@0, @1) where @0 = h[i0], @1 = row[i0]\n"
        "      output go, g, g\n"
        "    }\n"
        "  output last, all, top, picked\n"
        "}\n";
    EXPECT_EQ(program_again(text), text);
    EXPECT_EQ(verify(parse_program(text, any_operator)), std::vector<std::string>{});
}

TEST(ProgramText, ConstantsKeepEveryElement) {
    const std::string text =
        "program constants {\n"
        "  const a: f32[5] = {0.1, -0, inf, -inf, nan}\n"
        "  const b: f64[2] = {0.1, 1e-320}\n"
        "  const c: u64[2] = {18446744073709551615, 0}\n"
        "  const d: bool[2] = {true, false}\n"
        "  const e: i8[1, 2] = {-128, 127}\n"
        "  const f: f16[2] = {0.099975586, 65504}\n"
        "  const g: f32[] = {2.5}\n"
        "  const h: f32[0, 4] = {}\n"
        "  const i: i4[2] = {-8, 7}\n"
        "}\n";
    EXPECT_EQ(program_again(text), text);
    const Program p = parse_program(text);
    EXPECT_EQ(p.constants.at(ValueId(size_t{0})).get(0), static_cast<double>(0.1f));
    EXPECT_EQ(p.constants.at(ValueId(size_t{2})).get_int(0), -1);
}

TEST(ProgramText, LargeConstantsPrintAsAHash) {
    Program p;
    const ValueId v = p.values.push_back({"w", DType::F32, {65}});
    Tensor t(DType::F32, {65});
    t.set(64, 1.0);
    p.constants.emplace(v, t);
    const std::string text = print(p);
    EXPECT_EQ(program_again(text), text);
    const Program read = parse_program(text);
    EXPECT_EQ(read.constants.at(v).get(64), 0);  // unknown contents: zeros, marked
    EXPECT_EQ(read.unread.count(v), 1u);
    Tensor other(DType::F32, {65});
    p.constants[v] = other;
    EXPECT_NE(print(p), text);
    EXPECT_NE(contents_hash(t), contents_hash(t.reshaped({5, 13})));
}

TEST(ProgramText, CommentsAndLineBreaksAreSkipped) {
    EXPECT_EQ(program_again("# a test\nprogram p {\n  # inputs\n  input\n    x: f32[4]\n"
                            "y: f32[4] = [4] exp(@0) where\n @0 = x[i0] ; a\n b\n output\n y }"
                            "\n# end"),
              "program p {\n  input x: f32[4]\n  y: f32[4] = [4] exp(@0) where @0 = x[i0]  ; a b\n  output y\n}\n");
}

TEST(ProgramText, KeywordsAreNamesToo) {
    const std::string text =
        "program program {\n"
        "  input input: f32[4]\n"
        "  output: f32[4] = [4] @0 where @0 = input[i0]  ; where Where\n"
        "  const: f32[] = [] max(i0 < 4) max(@0, @0) where @0 = output[i0]  ; \"a where b\" \"\"\n"
        "  output output, const\n"
        "}\n";
    EXPECT_EQ(program_again(text), text);
}

TEST(ProgramText, SyntaxErrorsStateTheirPosition) {
    const auto line = [](std::string_view statement) {
        std::string message = program_failure("program p {\n  input x: f32[4]\n  " + std::string(statement) + "\n}\n");
        const std::string prefix = "program text, line ";
        return message.substr(0, prefix.size()) == prefix ? message.substr(prefix.size()) : message;
    };
    EXPECT_EQ(program_failure(""), "program text, line 1, column 1: expected 'program', found the end of the text");
    EXPECT_EQ(program_failure("program p {"),
              "program text, line 1, column 12: expected a name, found the end of the text");
    EXPECT_EQ(program_failure("program p { } }"),
              "program text, line 1, column 15: expected the end of the text, found '}'");
    EXPECT_EQ(line("input y: f31[4]"), "3, column 12: expected an element type, found 'f31[4]'");
    EXPECT_EQ(line("input x: f32[4]"), "3, column 18: value 'x' is defined twice");
    EXPECT_EQ(line("input y: f32[4"), "4, column 1: expected ']', found '}'");
    EXPECT_EQ(line("y: f32[4] = [4] exp(@0) where @0 = z[i0]"),
              "3, column 38: value 'z' is not defined before its use");
    EXPECT_EQ(line("y: f32[4] = [4] exp(@0)"), "3, column 24: there is no access @0");
    EXPECT_EQ(line("y: f32[4] = [4] exp(@1) where @0 = x[i0]"), "3, column 24: there is no access @1");
    EXPECT_EQ(line("y: f32[4] = [4] exp(@0) where @1 = x[i0]"), "3, column 33: expected '@0', found '@1 = x[i0]'");
    EXPECT_EQ(line("y: f32[4] = [4] exp(@0) + 1 where @0 = x[i0]"),
              "3, column 27: expected 'where', found '+ 1 where @0 = x[i0]'");
    EXPECT_EQ(line("y: f32[4], z: f32[4] = [4] 1.0"), "3, column 26: an expression gives one value, found 2");
    EXPECT_EQ(line("y: f32[4] = [4] sum(i2 < 3) @0 where @0 = x[i0]"),
              "3, column 19: expected a scalar operator, constant or access, found 'sum(i2 < 3) @0 where'");
    EXPECT_EQ(line("y: f32[4] = [4] @0 where @0 = x[i0] when i0 > 0 else 0"),
              "3, column 47: expected '>= 0', found '> 0 else 0'");
    EXPECT_EQ(line("y: f32[4] = frob(x)"), "3, column 15: expected '[', 'opaque', 'if' or 'loop', found 'frob(x)'");
    EXPECT_EQ(line("y: f32[4] = opaque \"Frob(a=1)\"(x)"), "3, column 22: there is no opaque operator 'Frob(a=1)'");
    EXPECT_EQ(line("const c: f32[$n] = {1}"), "3, column 19: constant 'c' has dimension $n, which is not a number");
    EXPECT_EQ(line("const c: f32[2] = {1}"), "3, column 23: expected ',', found '}'");
    EXPECT_EQ(line("const c: f32[2] = {1, x}"), "3, column 25: expected a number, found 'x}'");
    EXPECT_EQ(line("const c: i64[1] = {99999999999999999999}"),
              "3, column 22: expected a 64-bit integer, found '99999999999999999999'");
    EXPECT_EQ(line("const c: f32[99] = {1}"),
              "3, column 23: constant 'c' has 99 elements: more than 64 are written as a hash");
    EXPECT_EQ(line("const c: f32[99] = #12"), "3, column 23: expected a hash of 16 hexadecimal digits, found '12'");
    EXPECT_EQ(line("?n = read x[a]"), "3, column 15: expected a 64-bit integer, found 'a]'");
    EXPECT_EQ(line("y: f32[4] = if x() then a { }"), "4, column 1: expected 'else', found '}'");
    EXPECT_EQ(line("require same [$n, 2]"),
              "3, column 11: expected equal, broadcast, spread, at_least or declared, found 'same [$n, 2]'");
    EXPECT_EQ(line("require equal [$n]"), "3, column 21: a requirement is about two expressions, found 1");
    EXPECT_EQ(line("output \"x"), "3, column 12: a quoted name does not end on its line");
    EXPECT_EQ(line("output \"\\q\""), "3, column 12: '\\q' is not an escape in a quoted name");
}

TEST(ProgramText, NestingIsBounded) {
    std::string deep = "program p {\n";
    for (int k = 0; k < 1000; ++k) deep += "input x: bool[]\ny: f32[] = if x()\nthen p {\n";
    EXPECT_NE(program_failure(deep).find("programs nested this deep"), std::string::npos);
}

TEST(ProgramText, AnyNameRoundTrips) {
    EXPECT_TRUE(rc::check([](const std::string& name) {
        TextCursor cursor(name_text(name), "name");
        const std::string copy = name_text(name);
        TextCursor text(copy, "name");
        RC_ASSERT(text.name() == name);
        RC_ASSERT(text.at_end());
    }));
    for (const std::string_view name : {"", "-", "a b", "\"", "\\", "\n\t\x01", ".5", "12", "a/b.c-d", "größe"}) {
        const std::string quoted = name_text(name);
        TextCursor text(quoted, "name");
        EXPECT_EQ(text.name(), name);
    }
}

TEST(ProgramText, AnyNumberRoundTrips) {
    EXPECT_TRUE(rc::check([](uint64_t bits) {
        double v = 0;
        std::memcpy(&v, &bits, sizeof(v));
        const std::string text = double_text(v), single = float_text(static_cast<float>(v));
        TextCursor cursor(text, "number");
        const double read = cursor.number();
        RC_ASSERT((v != v && read != read) || v == read);
        TextCursor single_cursor(single, "number");
        const float f = static_cast<float>(v), g = single_cursor.single();
        RC_ASSERT((f != f && g != g) || f == g);
    }));
    const auto number = [](std::string_view s) { return TextCursor(s, "number").number(); };
    EXPECT_EQ(number("1e400"), std::numeric_limits<double>::infinity());
    EXPECT_EQ(number("-1e400"), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(number("1e-400"), 0);
    EXPECT_THROW(number("1.2.3"), ModelError);
    EXPECT_THROW(number("."), ModelError);
}

}  // namespace
}  // namespace tilewright
