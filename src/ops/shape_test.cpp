// Operators that compute shapes, move elements, slice, pad, gather and scatter: index maps, older opsets, dynamic
// shapes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace test;

std::string lowered(const std::string& op, const std::vector<In>& inputs, const std::map<std::string, Tensor>& known,
                    std::map<std::string, Attribute> attributes = {}, int64_t opset = 17,
                    const std::vector<std::string>& outputs = {"y"}) {
    std::vector<std::string> names;
    for (const In& i : inputs) names.push_back(i.name);
    for (const auto& [name, t] : known) names.push_back(name);
    return primitives(
        lower(model(graph(inputs, {node(op, names, outputs, std::move(attributes))}, outputs, known), opset)));
}

Tensor counted(Shape shape) {
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, i);
    return t;
}

std::string refusal(const std::function<void()>& f) {
    try {
        f();
    } catch (const ModelError& e) {
        return e.what();
    }
    return "nothing was refused";
}

// --- Reshape and related operators

TEST(ReshapeLowering, CopiesAndInfersDimensions) {
    const In x{"x", DType::F32, {"n", 6, 4}};
    EXPECT_EQ(lowered("Reshape", {x}, {{"z", Tensor::of_i64({0, -1})}}),
              "y = [$n, 24] @0 where @0 = x[i0, i1 // 4, i1 % 4]\n");
    EXPECT_EQ(lowered("Reshape", {x}, {}, {{"shape", ints({-1, 4})}}, 1),
              "y = [6*$n, 4] @0 where @0 = x[i0 // 6, i0 % 6, i1]\n");
}

TEST(ReshapeLowering, RejectsMismatchedShapes) {
    const Tensor x = counted({2, 3});
    EXPECT_THAT(refusal([&] {
                    run("Reshape", {x, Tensor::of_i64({4, -1})}, {}, 17, {1});
                }),
                HasSubstr("6 elements of shape [2, 3] do not make a tensor of shape [4, -1]"));
    EXPECT_THAT(refusal([&] {
                    run("Reshape", {x, Tensor::of_i64({-1, -1})}, {}, 17, {1});
                }),
                HasSubstr("holds -1 twice"));
    EXPECT_THAT(refusal([&] {
                    run("Reshape", {x, Tensor::of_i64({6, 1, 0})}, {}, 17, {1});
                }),
                HasSubstr("copies dimension 2 of an input of shape [2, 3]"));
}

TEST(ReshapeLowering, AxesMayBeDataDependent) {
    const Tensor x = counted({2, 1, 3, 1});
    EXPECT_EQ(run("Squeeze", {x, Tensor::of_i64({-1, 1})})[0].shape(), (Shape{2, 3}));
    const Tensor y = run("Unsqueeze", {counted({2, 3}), Tensor::of_i64({0, -1})})[0];
    EXPECT_EQ(y.shape(), (Shape{1, 2, 3, 1}));
    EXPECT_THAT(numbers(y), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(ShapeLowering, ReturnsASliceOfTheShape) {
    const Tensor x = counted({2, 3, 4});
    EXPECT_THAT(numbers(run("Shape", {x}, {{"start", int64_t{-2}}})[0]), ElementsAre(3, 4));
    EXPECT_THAT(numbers(run("Shape", {x}, {{"end", int64_t{-1}}})[0]), ElementsAre(2, 3));
    EXPECT_THAT(numbers(run("Size", {x})[0]), ElementsAre(24));
}

TEST(RangeLowering, HasADataDependentLength) {
    const auto range = [](int64_t a, int64_t b, int64_t d) {
        return numbers(run("Range", {whole({}, {a}), whole({}, {b}), whole({}, {d})})[0]);
    };
    EXPECT_THAT(range(2, 9, 3), ElementsAre(2, 5, 8));
    EXPECT_THAT(range(5, 0, -2), ElementsAre(5, 3, 1));
    EXPECT_THAT(range(5, 0, 2), ElementsAre());
    EXPECT_THAT(numbers(run("Range", {floats({}, {0}), floats({}, {1}), floats({}, {0.25f})})[0]),
                ElementsAre(0, 0.25, 0.5, 0.75));
}

TEST(RangeLowering, OverADimensionIsAnIndex) {
    const Program p = lower(model(graph({{"x", DType::F32, {"n"}}},
                                        {node("Size", {"x"}, {"s"}), node("Range", {"zero", "s", "one"}, {"y"})}, {"y"},
                                        {{"zero", whole({}, {0})}, {"one", whole({}, {1})}})));
    EXPECT_EQ(primitives(p), "y = [$n] index(i0)\n");
}

TEST(ConstantLowering, TakesEveryFormOfValue) {
    const auto constant = [](const std::string& name, const Attribute& a) {
        return numbers(run("Constant", {}, {{name, a}})[0]);
    };
    EXPECT_THAT(constant("value_float", 1.5f), ElementsAre(1.5));
    EXPECT_THAT(constant("value_ints", ints({3, 4})), ElementsAre(3, 4));
    EXPECT_THAT(constant("value_floats", std::vector<float>{1, 2}), ElementsAre(1, 2));
    EXPECT_THAT(constant("value", floats({2}, {5, 6})), ElementsAre(5, 6));
    EXPECT_THROW(run("Constant", {}, {{"value_string", std::string("s")}}), Unsupported);
}

// --- layout

TEST(LayoutLowering, AreIndexMaps) {
    EXPECT_EQ(lowered("Transpose", {{"x", DType::F32, {2, "n", 3}}}, {}, {{"perm", ints({1, 2, 0})}}),
              "y = [$n, 3, 2] @0 where @0 = x[i2, i0, i1]\n");
    EXPECT_EQ(lowered("DepthToSpace", {{"x", DType::F32, {"n", 8, 3, 5}}}, {}, {{"blocksize", int64_t{2}}}),
              "y = [$n, 2, 6, 10] @0 where @0 = x[i0, 4*(i2 % 2) + 2*(i3 % 2) + i1, i2 // 2, i3 // 2]\n");
    EXPECT_EQ(lowered("Tile", {{"x", DType::F32, {4}}}, {{"z", Tensor::of_i64({3})}}),
              "y = [12] @0 where @0 = x[i0 % 4]\n");
    EXPECT_EQ(lowered("Expand", {{"x", DType::F32, {3, 1}}}, {{"z", Tensor::of_i64({2, 1, 4})}}),
              "y = [2, 3, 4] @0 where @0 = x[i1, 0]\n");
    EXPECT_EQ(lowered("Trilu", {{"x", DType::F32, {3, 3}}}, {}, {{"upper", int64_t{0}}}),
              "y = [3, 3] @0 where @0 = x[i0, i1] when i0 - i1 >= 0 else 0\n");
}

TEST(LayoutLowering, ReverseEachSequenceUpToItsLength) {
    EXPECT_THAT(numbers(run("ReverseSequence", {counted({3, 2}), whole({2}, {2, 3})})[0]),
                ElementsAre(2, 5, 0, 3, 4, 1));
}

// --- slices

TEST(SliceLowering, ClampsItsBounds) {
    EXPECT_EQ(
        lowered("Slice", {{"x", DType::F32, {"n", 8}}}, {}, {{"starts", ints({1, -3})}, {"ends", ints({1000, -1})}}, 9),
        "y = [min($n, 1000) - 1, 2] @0 where @0 = x[i0 + 1, i1 + 5]\n");
}

TEST(SliceLowering, ReadsBackwards) {
    const Tensor x = counted({5});
    const auto slice = [&](int64_t a, int64_t b, int64_t s, const std::vector<size_t>& known) {
        return numbers(run("Slice",
                           {x, Tensor::of_i64({a}), Tensor::of_i64({b}), Tensor::of_i64({0}), Tensor::of_i64({s})}, {},
                           17, known)[0]);
    };
    for (const std::vector<size_t>& known : {std::vector<size_t>{1, 2, 3, 4}, {3, 4}, {}}) {
        EXPECT_THAT(slice(-1, -6, -1, known), ElementsAre(4, 3, 2, 1, 0));
        EXPECT_THAT(slice(4, INT64_MIN + 1, -2, known), ElementsAre(4, 2, 0));
        EXPECT_THAT(slice(1, INT64_MAX, 2, known), ElementsAre(1, 3));
        EXPECT_THAT(slice(3, 1, 1, known), ElementsAre());
    }
}

TEST(SplitLowering, DividesEvenlyOrBySizes) {
    const In x{"x", DType::F32, {7}};
    EXPECT_EQ(lowered("Split", {x}, {}, {{"num_outputs", int64_t{2}}}, 18, {"a", "b"}),
              "a = [4] @0 where @0 = x[i0]\nb = [3] @0 where @0 = x[i0 + 4]\n");
    EXPECT_THAT(lowered("Split", {{"x", DType::F32, {"n", 6}}}, {}, {{"axis", int64_t{1}}, {"split", ints({2, 4})}}, 2,
                        {"a", "b"}),
                HasSubstr("b = [$n, 4] @0 where @0 = x[i0, i1 + 2]"));
    EXPECT_THAT(refusal([&] {
                    lowered("Split", {x}, {}, {}, 13, {"a", "b"});
                }),
                HasSubstr("does not split into 2 equal parts"));
}

TEST(PadLowering, MirrorsRepeatsAndWraps) {
    const auto pad = [](const std::string& mode, const std::vector<int64_t>& pads, int64_t opset) {
        return numbers(run("Pad", {counted({3}), Tensor::of_i64(pads)}, {{"mode", mode}}, opset)[0]);
    };
    EXPECT_THAT(pad("reflect", {2, 1}, 13), ElementsAre(2, 1, 0, 1, 2, 1));
    EXPECT_THAT(pad("edge", {2, 1}, 13), ElementsAre(0, 0, 0, 1, 2, 2));
    EXPECT_THAT(pad("wrap", {2, 4}, 19), ElementsAre(1, 2, 0, 1, 2, 0, 1, 2, 0));
    EXPECT_THAT(pad("constant", {-1, 2}, 13), ElementsAre(1, 2, 0, 0));
    EXPECT_THAT(pad("reflect", {-1, 1}, 13), ElementsAre(1, 2, 1));
}

TEST(PadLowering, SupportsDataDependentValueAndAxes) {
    const Tensor y =
        run("Pad", {counted({1, 2}), Tensor::of_i64({1, 0}), floats({}, {9}), Tensor::of_i64({-1})}, {}, 18)[0];
    EXPECT_THAT(numbers(y), ElementsAre(9, 0, 1));
    EXPECT_EQ(lowered("Pad", {{"x", DType::F32, {2}}}, {}, {{"pads", ints({1, 1})}, {"value", 4.0f}}, 2),
              "y = [4] @0 where @0 = x[i0 - 1] when i0 - 1 >= 0 and -i0 + 2 >= 0 else 4\n");
}

TEST(CenterCropPadLowering, PutsTheOddElementLast) {
    EXPECT_THAT(numbers(run("CenterCropPad", {counted({4}), Tensor::of_i64({7})}, {}, 18)[0]),
                ElementsAre(0, 0, 1, 2, 3, 0, 0));
}

// --- gather and scatter

TEST(GatherLowering, LoadTheirIndices) {
    EXPECT_EQ(lowered("Gather", {{"x", DType::F32, {30, 4}}, {"i", DType::I64, {"n"}}}, {}),
              "y = [$n, 4] @1 where @0 = i[i0], @1 = x[@0 % 30, i1]\n");
    EXPECT_EQ(lowered("GatherElements", {{"x", DType::F32, {5, 400}}, {"i", DType::I64, {2, 400}}}, {}),
              "y = [2, 400] @1 where @0 = i[i0, i1], @1 = x[@0 % 5, i1]\n");
    EXPECT_EQ(lowered("GatherND", {{"x", DType::F32, {2, 5, 4}}, {"i", DType::I64, {2, 300, 1}}}, {},
                      {{"batch_dims", int64_t{1}}}),
              "y = [2, 300, 4] @1 where @0 = i[i0, i1, 0], @1 = x[i0, @0 % 5, i2]\n");
}

TEST(GatherLowering, OneHotCountsFromTheEndAndIgnoresInvalidIndices) {
    const Tensor y = run("OneHot", {whole({3}, {1, -1, 7}), whole({}, {3}), floats({2}, {0, 1})})[0];
    EXPECT_EQ(y.shape(), (Shape{3, 3}));
    EXPECT_THAT(numbers(y), ElementsAre(0, 1, 0, 0, 0, 1, 0, 0, 0));
}

TEST(ScatterLowering, CombineInOrder) {
    const Tensor x = floats({3}, {1, 1, 1}), i = whole({3}, {0, 0, -1}), u = floats({3}, {5, 7, 3});
    const auto scatter = [&](const std::string& how) {
        return numbers(run("ScatterElements", {x, i, u}, {{"reduction", how}}, 18)[0]);
    };
    EXPECT_THAT(scatter("none"), ElementsAre(7, 1, 3));
    EXPECT_THAT(scatter("add"), ElementsAre(13, 1, 4));
    EXPECT_THAT(scatter("mul"), ElementsAre(35, 1, 3));
    EXPECT_THAT(scatter("max"), ElementsAre(7, 1, 3));
    EXPECT_THAT(scatter("min"), ElementsAre(1, 1, 1));
    EXPECT_THAT(numbers(run("ScatterND", {x, whole({1, 1}, {2}), floats({1}, {9})})[0]), ElementsAre(1, 1, 9));
}

TEST(ScatterLowering, RejectMismatchedIndicesAndShapes) {
    const Tensor x = floats({3}, {1, 1, 1});
    EXPECT_THAT(refusal([&] {
                    run("ScatterElements", {x, whole({1}, {3}), floats({1}, {0})});
                }),
                HasSubstr("ScatterElements: index 3 is outside a dimension of 3"));
    EXPECT_THAT(refusal([&] {
                    run("ScatterND", {x, whole({1, 1}, {0}), floats({2}, {0, 0})});
                }),
                HasSubstr("updates of [2]"));
}

TEST(TensorScatterLowering, WritesFromAPositionOn) {
    const Tensor cache(DType::F32, {1, 4, 1}), update = floats({1, 2, 1}, {1, 2});
    EXPECT_THAT(numbers(run("TensorScatter", {cache, update, whole({1}, {1})}, {}, 24)[0]), ElementsAre(0, 1, 2, 0));
    EXPECT_THAT(
        numbers(run("TensorScatter", {cache, update, whole({1}, {3})}, {{"mode", std::string("circular")}}, 24)[0]),
        ElementsAre(2, 0, 0, 1));
}

}  // namespace
}  // namespace tilewright
