// Resize: tables, cases without tables, and sizes unknown at compile time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "opaque/resize_table.h"
#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using namespace test;

ResizeOptions random_options() {
    ResizeOptions o;
    o.mode = *rc::gen::element(ResizeMode::Nearest, ResizeMode::Linear, ResizeMode::Cubic);
    o.coordinates = *rc::gen::element(ResizeCoordinates::HalfPixel, ResizeCoordinates::HalfPixelSymmetric,
                                      ResizeCoordinates::PytorchHalfPixel, ResizeCoordinates::AlignCorners,
                                      ResizeCoordinates::Asymmetric, ResizeCoordinates::TfHalfPixelForNn,
                                      ResizeCoordinates::TfCropAndResize);
    o.nearest = *rc::gen::element(NearestMode::RoundPreferFloor, NearestMode::RoundPreferCeil, NearestMode::Floor,
                                  NearestMode::Ceil, NearestMode::CeilToShrink);
    o.exclude_outside = *rc::gen::arbitrary<bool>();
    o.antialias = *rc::gen::arbitrary<bool>();
    return o;
}

RC_GTEST_PROP(ResizeTable, reads_in_bounds_with_weights_that_sum_to_one, ()) {
    const ResizeOptions o = random_options();
    const int64_t in = *rc::gen::inRange<int64_t>(1, 12), out = *rc::gen::inRange<int64_t>(1, 25);
    const double scale = static_cast<double>(out) / static_cast<double>(in);
    const ResizeTable t = resize_table(o, in, out, scale);
    RC_ASSERT(t.index.size() == static_cast<size_t>(out * t.taps));
    RC_ASSERT(fixed_taps(o) == 0 || fixed_taps(o) == t.taps);
    for (const int64_t i : t.index) RC_ASSERT(i >= 0 && i < in);
    for (int64_t x = 0; x < out; ++x) {
        const auto first = t.weight.begin() + x * t.taps;
        RC_ASSERT(std::abs(std::accumulate(first, first + t.taps, 0.0) - 1) < 1e-9);
    }
}

RC_GTEST_PROP(ResizeTable, at_scale_one_is_the_identity, ()) {
    const ResizeOptions o = random_options();
    RC_PRE(o.coordinates != ResizeCoordinates::TfHalfPixelForNn);
    const int64_t n = *rc::gen::inRange<int64_t>(2, 12);
    const ResizeTable t = resize_table(o, n, n, 1);
    for (int64_t x = 0; x < n; ++x) {
        double at = 0;  // sum of weight * position
        for (int64_t k = 0; k < t.taps; ++k)
            at += t.weight[static_cast<size_t>(x * t.taps + k)] *
                  static_cast<double>(t.index[static_cast<size_t>(x * t.taps + k)]);
        RC_ASSERT(std::abs(at - static_cast<double>(x)) < 1e-9);
    }
}

Tensor every_fifth(Shape shape) {
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>((i * 5) % 13));
    return t;
}

/// Resize(x, scales) with constant scales, as text.
std::string resized(std::vector<DeclaredDim> x, const std::vector<float>& scales,
                    const std::map<std::string, Attribute>& attrs) {
    const Program p =
        lower(model(graph({{"x", DType::F32, std::move(x)}}, {node("Resize", {"x", "", "s"}, {"y"}, attrs)}, {"y"},
                          {{"s", floats({static_cast<int64_t>(scales.size())}, scales)}})));
    if (const auto faults = verify(p); !faults.empty()) return faults.front();
    return primitives(p);
}

const std::map<std::string, Attribute> kFloor = {{"coordinate_transformation_mode", std::string("asymmetric")},
                                                 {"nearest_mode", std::string("floor")}};

TEST(Resize, by_a_whole_number_repeats_elements_whatever_the_extent) {
    EXPECT_THAT(resized({2, 3, 4, 4}, {1, 1, 1, 2}, kFloor), HasSubstr("x[i0, i1, i2, i3 // 2]"));
    EXPECT_THAT(resized({2, 3, "h", "w"}, {1, 1, 2, 3}, kFloor),
                AllOf(HasSubstr("x[i0, i1, i2 // 2, i3]"), HasSubstr("[i0, i1, i2, i3 // 3]")));
    EXPECT_THAT(resized({1, 1, "h", "w"}, {1, 1, 2, 2}, {}), Not(HasSubstr("ResizeTable")));  // half_pixel, rounding
}

TEST(Resize, to_half_the_size_reads_every_second_element) {
    EXPECT_THAT(resized({2, 3, 4, 4}, {1, 1, 1, 0.5f}, kFloor), HasSubstr("x[i0, i1, i2, 2*i3]"));
}

TEST(Resize, with_known_scales_has_its_tables_as_constants) {
    const std::string text = resized({1, 1, 4, 5}, {1, 1, 2, 2}, {{"mode", std::string("linear")}});
    EXPECT_THAT(text, Not(HasSubstr("ResizeTable")));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

RC_GTEST_PROP(Resize, to_dynamic_sizes_equals_constant_sizes, ()) {
    const std::map<std::string, Attribute> attrs = {
        {"mode", *rc::gen::element<std::string>("nearest", "linear", "cubic")},
        {"coordinate_transformation_mode",
         *rc::gen::element<std::string>("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")},
        {"antialias", *rc::gen::element(int64_t{0}, int64_t{1})},
        {"keep_aspect_ratio_policy", *rc::gen::element<std::string>("stretch", "not_larger", "not_smaller")},
        {"axes", ints({2, 1})}};
    const Tensor x = every_fifth({2, 3, 4});
    const Tensor sizes = whole({2}, {*rc::gen::inRange<int64_t>(1, 9), *rc::gen::inRange<int64_t>(1, 9)});
    const auto resized = [&](bool known) {
        std::vector<In> in = {{"x", DType::F32, {2, 3, 4}}};
        std::map<std::string, Tensor> held;
        std::vector<Tensor> passed = {x};
        if (known) {
            held["s"] = sizes;
        } else {
            in.push_back({"s", DType::I64, {2}});
            passed.push_back(sizes);
        }
        const Program p = lower(model(graph(in, {node("Resize", {"x", "", "", "s"}, {"y"}, attrs)}, {"y"}, held), 19));
        const auto faults = verify(p);
        RC_ASSERT(faults.empty());
        return interpret(p, passed).front();
    };
    RC_ASSERT(resized(true) == resized(false));
}

TEST(Resize, between_two_elements_returns_their_mean) {
    const Tensor y = run("Upsample", {floats({1, 1, 1, 2}, {1, 3}), floats({4}, {1, 1, 1, 2})},
                         {{"mode", std::string("linear")}}, 9, {1})
                         .front();
    EXPECT_THAT(numbers(y), ElementsAre(1, 2, 3, 3));
}

TEST(Resize, rejects_invalid_attributes) {
    const auto refusal = [](std::map<std::string, Attribute> attrs, const Tensor& scales) -> std::string {
        try {
            run("Resize", {every_fifth({1, 1, 2, 2}), scales}, std::move(attrs), 10, {1});
        } catch (const ModelError& e) {
            return e.what();
        }
        return "accepted";
    };
    EXPECT_THAT(refusal({}, floats({3}, {1, 1, 2})), HasSubstr("3 scales or sizes are given for 4 axes"));
    EXPECT_THAT(refusal({}, floats({4}, {1, 1, 0, 1})), HasSubstr("scale 0 of axis 2 is not positive"));
    EXPECT_THAT(refusal({{"mode", std::string("area")}}, floats({4}, {1, 1, 2, 2})), HasSubstr("unknown value 'area'"));
}

TEST(Resize, BeyondMemoryIsRejectedBeforeItsTableIsComputed) {
    const Tensor x(DType::F32, {1, 1, 4, 4});
    for (const char* mode : {"nearest", "linear", "cubic"})
        for (const float scale : {1e9F, 1e18F})
            EXPECT_THROW(
                run("Resize", {x, floats({0}, {}), floats({4}, {1, 1, scale, scale})}, {{"mode", std::string(mode)}}),
                std::runtime_error)
                << mode << " " << scale;
    EXPECT_THROW(run("Resize", {x, floats({0}, {}), floats({4}, {1, 1, -2, 1})}, {{"mode", std::string("nearest")}}),
                 ModelError);
}

}  // namespace
}  // namespace tilewright
