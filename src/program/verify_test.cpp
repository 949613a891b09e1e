// Programs that verify accepts, and the message for each fault.

#include <gtest/gtest.h>

#include "base/error.h"
#include "program/program.h"
#include "program/statements_test.h"
#include "program/verify_index.h"

namespace tilewright {
namespace {

using test::program;

/// The faults, one a line.
std::string faults(const Program& p) {
    std::string all;
    for (const std::string& f : verify(p)) all += (all.empty() ? "" : "\n") + f;
    return all;
}
std::string faults(std::string_view statements) { return faults(program(statements)); }

/// Fault of the expression `y: <type> = <text>`, given x: f32[8, 8], t: i64[8], s: f32[$n] and c: bool[], without its
/// "primitive 'p' (value 'y'): ".
std::string expression_fault(std::string_view declared, std::string_view text) {
    const std::string all = faults("input x: f32[8, 8]\n input t: i64[8]\n input s: f32[$n]\n input c: bool[]\n y: " +
                                   std::string(declared) + " = " + std::string(text) + " ; p Op\n output y");
    const std::string prefix = "primitive 'p' (value 'y'): ";
    return all.substr(0, prefix.size()) == prefix ? all.substr(prefix.size()) : all;
}

TEST(Verify, AcceptsIndicesBoundedByConditionsAndRanges) {
    for (const auto& [declared, text] : std::vector<std::pair<std::string, std::string>>{
             {"f32[8]", "[8] @0 where @0 = x[i0, 7]"},
             {"f32[8]", "[8] sum(i1 < 8) @0 where @0 = x[i0, i1]"},
             {"f32[64]", "[64] @0 where @0 = x[i0 // 8, i0 % 8]"},
             {"f32[10]", "[10] @0 where @0 = x[i0 - 1, 0] when i0 - 1 >= 0 and 8 - i0 >= 0 else -inf"},
             {"f32[10]", "[10] @0 where @0 = x[i0 - 1, 0] when i0 - 2 >= 0 and 5 - i0 >= 0 else 0"},
             {"f32[16]",
              "[16] sum(i1 < 3) @0 where @0 = x[(i0 - i1) // 2, 0]"
              " when i0 - i1 >= 0 and -((i0 - i1) % 2) >= 0 else 0"},
             {"f32[$n]", "[$n] @0 where @0 = s[$n - 1 - i0]"},
             {"f32[2*$n]", "[2*$n] @0 where @0 = s[i0 // 2]"},
             {"f32[$n + 2]", "[$n + 2] @0 where @0 = s[i0 - 1] when i0 - 1 >= 0 and $n - i0 >= 0 else 0"},
             {"f32[8]", "[8] @1 where @0 = t[i0], @1 = x[@0, 0]"},
             {"f32[8]", "[8] @1 where @0 = t[i0], @1 = x[@0 + 100, 0]"},  // data-dependent
             {"f32[8, 8]", "[4, 2, 8] -> [2*i0 + i1, i2] @0 where @0 = x[i0, i2]"},
             {"f32[8]", "[8] sum(i1 < 8) @0 then add(acc, @1) where @0 = x[i0, i1], @1 = x[i0, 0]"},
             {"f16[8]", "[8] f16(@0) where @0 = x[i0, 0]"},
             {"bool[8]", "[8] gt(index(i0), 3)"}})
        EXPECT_EQ(expression_fault(declared, text), "") << text;
}

TEST(Verify, ReportsACounterexampleForAnIndexOutOfBounds) {
    EXPECT_EQ(expression_fault("f32[8]", "[8] @0 where @0 = x[i0 + 1, 0]"),
              "access @0 leaves dimension 0 of 'x', which is 8: index i0 + 1: i0 = 7 gives 8");
    EXPECT_EQ(expression_fault("f32[8]", "[8] @0 where @0 = x[0, 3 - i0]"),
              "access @0 leaves dimension 1 of 'x', which is 8: index -i0 + 3: i0 = 4 gives -1");
    EXPECT_EQ(expression_fault("f32[8]", "[8] @0 where @0 = x[i0, 8]"),
              "access @0 leaves dimension 1 of 'x', which is 8: index 8: it gives 8");
    EXPECT_EQ(expression_fault("f32[10]", "[10] @0 where @0 = x[i0 - 1, 0] when i0 - 1 >= 0 else 0"),
              "access @0 leaves dimension 0 of 'x', which is 8: index i0 - 1: i0 = 9 gives 8");
    EXPECT_EQ(expression_fault("f32[4]", "[4] sum(i1 < 1000000) @0 where @0 = x[i0, i1 // 100000]"),
              "access @0 leaves dimension 1 of 'x', which is 8: index i1 // 100000: i1 = 900000 gives 9");
}

TEST(Verify, SymbolicIndicesAreFaultyOnlyIfTheyAlwaysAre) {
    EXPECT_EQ(expression_fault("f32[$n]", "[$n] @0 where @0 = s[i0 + 1]"),
              "access @0 leaves dimension 0 of 's', which is $n: index i0 + 1: with $n = 1: i0 = 0 gives 1");
    EXPECT_EQ(expression_fault("f32[$n]", "[$n] @0 where @0 = x[i0, 0]"),
              "");  // the program does not state whether $n <= 8
    EXPECT_EQ(find_outside(axis(0) + symbol("past"), symbol("total"), {}, std::vector<Expr>{symbol("new")}),
              std::nullopt);  // past + new = total
}

TEST(Verify, ExpressionsMatchTheirValue) {
    EXPECT_EQ(expression_fault("f32[7]", "[8] @0 where @0 = x[i0, 0]"),
              "has spatial extents [8] where the value's shape is [7]");
    EXPECT_EQ(expression_fault("f32[8, 1]", "[8] @0 where @0 = x[i0, 0]"),
              "has spatial extents [8] where the value's shape is [8, 1]");
    EXPECT_EQ(expression_fault("f64[8]", "[8] @0 where @0 = x[i0, 0]"), "gives f32 where the value is f64");
    EXPECT_EQ(expression_fault("bool[]", "[] sum(i0 < 8) gt(index(i0), 2)"), "reducer 'sum' of booleans");
    EXPECT_EQ(expression_fault("f32[8]", "[8] @0 where @0 = x[i0]"),
              "access @0 has 1 indices into 'x', which has 2 dimensions");
    EXPECT_EQ(expression_fault("f32[8]", "[8] @0 where @0 = x[i0, i1]"), "an index of access @0 uses axis i1 of 1");
    EXPECT_EQ(expression_fault("f32[8]", "[8] @0 where @0 = x[@0, 0]"),
              "an index of access @0 uses @0, which is not an earlier access");
    EXPECT_EQ(expression_fault("f32[8]", "[8] @1 where @0 = x[i0, 0], @1 = x[@0, 0]"),
              "an index of access @1 uses @0, which reads f32: an integer was expected");
    EXPECT_EQ(expression_fault("f32[8]", "[8] @0 where @0 = x[?at, 0]"),
              "an index of access @0 uses ?at, which no primitive has read yet");
    EXPECT_EQ(expression_fault("f32[8]", "[8] @0 where @0 = x[0, i0] when $m - 8 >= 0 else 0"),
              "a condition of access @0 uses $m, which is not a dimension of an earlier tensor");
    EXPECT_EQ(expression_fault("i64[9]", "[9] @0 where @0 = t[i0] when 7 - i0 >= 0 else 0.5"),
              "access @0 fills i64 with 0.5");
    EXPECT_EQ(expression_fault("f32[8]", "[8] sum(i1 < 8) @0 then add(acc, @0) where @0 = x[i0, i1]"),
              "the epilogue uses access @0, whose index uses the reduction axis i1");
    EXPECT_EQ(expression_fault("i64[8]", "[8] index(i1)"), "the body uses axis i1 of 1");
    EXPECT_EQ(expression_fault("f32[8]", "[8] none(i1 < 2) @0 where @0 = x[i0, i1]"),
              "reducer 'none' with 1 reduction axes");
    EXPECT_EQ(expression_fault("f32[i0]", "[i0] 1.0").substr(0, 49),
              "value 'y': dimension i0 uses an axis or a load\npr");
}

TEST(Verify, OutputIndicesReachEveryElementOnce) {
    EXPECT_EQ(expression_fault("f32[8]", "[4, 2] -> [i0 + 4*i1] @0 where @0 = x[i0, i1]"), "");
    EXPECT_EQ(expression_fault("f32[8]", "[4, 2] -> [i0 + 3*i1] @0 where @0 = x[i0, i1]"),
              "the output index reaches element [3] twice");
    EXPECT_EQ(expression_fault("f32[4]", "[4, 2] -> [i0] @0 where @0 = x[i0, i1]"),
              "the output index maps 8 points to 4 elements");
    EXPECT_EQ(expression_fault("f32[8]", "[8] -> [i0 + 1] @0 where @0 = x[i0, 0]"),
              "the output index leaves dimension 0, which is 8: index i0 + 1: i0 = 7 gives 8");
    EXPECT_EQ(expression_fault("f32[8]", "[8] -> [i0, 0] @0 where @0 = x[i0, 0]"),
              "has 2 output indices where the value has 1 dimensions");
}

TEST(Verify, ValuesAreDefinedOnceBeforeUse) {
    Program p = program(
        "input x: f32[4]\n y: f32[4] = [4] exp(@0) where @0 = x[i0] ; a Exp\n"
        "z: f32[4] = [4] exp(@0) where @0 = y[i0] ; b Exp\n output z");
    EXPECT_EQ(faults(p), "");
    Program swapped = p;
    std::swap(swapped.primitives[PrimitiveId(size_t{0})], swapped.primitives[PrimitiveId(size_t{1})]);
    EXPECT_EQ(faults(swapped), "primitive 'b' (value 'z'): value 'y' is read before it is computed");
    Program twice = p;
    twice.primitives.push_back(p.primitives[PrimitiveId(size_t{1})]);
    EXPECT_EQ(faults(twice), "primitive 'b' (value 'z'): value 'z' is defined twice");
    Program missing = p;
    missing.outputs.push_back(missing.values.push_back({"w", DType::F32, {}}));
    EXPECT_EQ(faults(missing), "program output: value 'w' is read before it is computed");
    Program named_alike = p;
    named_alike.values[ValueId(size_t{2})].name = "y";
    EXPECT_EQ(faults(named_alike), "value 'y': another value has the same name");
    Program nowhere = p;
    nowhere.primitives[PrimitiveId(size_t{0})].expr()->accesses[0].value = ValueId(size_t{77});
    EXPECT_EQ(faults(nowhere),
              "primitive 'a' (value 'y'): value number 77 does not exist\n"
              "primitive 'a' (value 'y'): access @0 reads no value");
}

TEST(Verify, ConstantsMatchTheirDeclaration) {
    Program p = program("const w: f32[2] = {1, 2}\n output w");
    EXPECT_EQ(faults(p), "");
    p.constants.begin()->second = Tensor(DType::F64, {3});
    EXPECT_EQ(faults(p),
              "constant 'w': is declared f32, but holds f64\n"
              "constant 'w': is declared [2], but holds [3]");
}

TEST(Verify, ScalarsAreIntegersReadOnce) {
    EXPECT_EQ(faults("input t: i64[2]\n ?n = read t[1] ; r Op\n y: f32[?n] = [?n] 1.0 ; p Op\n output y"), "");
    EXPECT_EQ(faults("input t: i64[2]\n ?n = read t[2] ; r Op"), "primitive 'r': element 2 of 2 elements is read");
    EXPECT_EQ(faults("input t: f32[2]\n ?n = read t[0] ; r Op"),
              "primitive 'r': a scalar is read from f32, an integer was expected");
    EXPECT_EQ(faults("input t: i64[2]\n ?n = read t[0]\n ?n = read t[1] ; r Op"),
              "primitive 'r': scalar ?n is read twice");
}

TEST(Verify, SymbolsAreBoundBeforeUse) {
    EXPECT_EQ(faults("input x: f32[2*$n]"),
              "input 'x': the shape uses $n, which is not a dimension of an earlier tensor");
    EXPECT_EQ(faults("input x: f32[2*$n, $n]"), "");
    EXPECT_EQ(faults("y: f32[$k] = opaque \"NonZero()\"()\n z: f32[$k] = [$k] 1.0"), "");
    EXPECT_EQ(faults("z: f32[$k] = [$k] 1.0 ; p Op"),
              "primitive 'p' (value 'z'): an extent uses $k, which is not a dimension of an earlier tensor");
}

TEST(Verify, RequirementsUseBoundNames) {
    EXPECT_EQ(faults("input x: f32[$n]\n require equal [$n, ?k] ; dimensions me\n input t: i64[1]\n ?k = read t[0]"),
              "");
    EXPECT_EQ(faults("input x: f32[$n]\n require equal [$n, $m] ; dimensions me"),
              "requirement of me: dimensions uses $m, which is not a dimension of an earlier tensor");
    EXPECT_EQ(faults("input x: f32[$n]\n require equal [$n, i0] ; dimensions me"),
              "requirement of me: dimensions uses i0");
    const std::string beyond = "input x: f32[$n]\n y: f32[2*$n] = [2*$n] @0 where @0 = x[i0] ; p Op\n output y";
    EXPECT_NE(faults(beyond), "");
    EXPECT_EQ(faults(beyond + "\n require equal [$n, 2*$n] ; dimensions me"), "") << "no run comes to it";
    EXPECT_NE(faults(beyond + "\n require equal [$n, 5] ; dimensions me"), "");
}

TEST(Verify, BranchesMatchCapturesAndOutputs) {
    const std::string branch = "{ input a: f32[4]\n output a }";
    EXPECT_EQ(
        faults("input c: bool[]\n input x: f32[4]\n y: f32[4] = if c(x)\n then t " + branch + " else e " + branch), "");
    EXPECT_EQ(faults("input c: i64[]\n input x: f32[4]\n y: f32[4] = if c(x) ; p If\n then t " + branch +
                     " else e { input a: f32[2, 2]\n input b: f32[4]\n const d: f64[4] = {1, 2, 3, 4}\n output d, d }"),
              "primitive 'p' (value 'y'): its condition is i64[], one boolean was expected\n"
              "primitive 'p' (value 'y'): inputs of the 'else' branch: expected 1, found 2\n"
              "primitive 'p' (value 'y'): outputs of the 'else' branch: expected 1, found 2\n"
              "primitive 'p' (value 'y'): input 0 of 'else': 'x' has 1 dimensions, but 'a' has 2\n"
              "primitive 'p' (value 'y'): output 0 of 'else': 'y' is f32, but 'd' is f64");
}

TEST(Verify, LoopsMatchTheirBody) {
    const auto loop = [](std::string_view body) {
        return faults(
            "input x: f32[3, 4]\n input h: f32[4]\n l: f32[4], s: f32[4, 3] = loop trip(3) carried(h) "
            "scan(x axis 0) stack(axis 1) ; p Loop\n body b {" +
            std::string(body) + "}\n output l, s");
    };
    EXPECT_EQ(loop("input i: i64[]\n input h: f32[4]\n input x: f32[4]\n output h, x"), "");
    EXPECT_EQ(loop("input i: i64[]\n input h: f32[4]\n output h, h"),
              "primitive 'p' (value 'l'): inputs of the body: expected 3, found 2");
    EXPECT_EQ(loop("input i: f32[]\n input h: f32[4]\n input x: f32[4]\n output h, x"),
              "primitive 'p' (value 'l'): the body's iteration number 'i' is f32[], one i64 was expected");
    EXPECT_EQ(loop("input i: i64[]\n input h: f64[4]\n input x: f32[4, 1]\n output x, x"),
              "primitive 'p' (value 'l'): carried value 0: 'h' is f32, but 'h' is f64\n"
              "primitive 'p' (value 'l'): carried value 0: 'l' has 1 dimensions, but 'x' has 2\n"
              "primitive 'p' (value 'l'): scan input 0: 'x' has 2 dimensions, but 'x' has 2\n"
              "primitive 'p' (value 'l'): scan output 0: 's' has 2 dimensions, but 'x' has 2");
    EXPECT_EQ(
        loop("input i: i64[]\n input h: f32[4]\n input x: f32[4]\n"
             "y: f32[4] = [4] @0 where @0 = x[i0 + 1] ; q Op\n output h, y"),
        "primitive 'p' (value 'l'), body: primitive 'q' (value 'y'): access @0 leaves dimension 0 of 'x', which is "
        "4: index i0 + 1: i0 = 3 gives 4");
}

}  // namespace
}  // namespace tilewright
