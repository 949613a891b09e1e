// Winograd convolutions: the form of the rewrite, and its rounding errors.

#include "program/rewrite/winograd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>

#include "program/rewrite/cost.h"
#include "program/rewrite/rewrite.h"
#include "program/rewrite/rewrite_test.h"
#include "program/rewrite/search.h"
#include "program/transform/fold.h"

namespace tilewright {
namespace {

/// 3 channels to 4, with the window's taps and steps per dimension.
Program convolution(const Shape& sizes, const Shape& taps, const std::vector<WindowSteps>& steps) {
    PatternWriter w(3);
    Dims x = {1, 3}, window = {4, 3};
    x.insert(x.end(), sizes.begin(), sizes.end());
    window.insert(window.end(), taps.begin(), taps.end());
    w.outputs = {w.convolution(w.input(x), w.weights(window), steps)};
    return w.take();
}

/// Multiplications of the channel products of each form, ascending.
std::vector<int64_t> products(const Program& p) {
    std::vector<int64_t> out;
    for (const Patch& patch : find_all(RewriteContext(p), *rewrite_rule("winograd"))) {
        const Program q = fold_constants(apply(p, patch));
        EXPECT_EQ(q.primitives.size(), 3u) << print(q);
        for (const Primitive& primitive : q.primitives) EXPECT_EQ(category(q, primitive), Category::Linear);
        out.push_back(product(q.primitives[PrimitiveId(size_t{1})].expr()->extents).constant());
    }
    std::sort(out.begin(), out.end());
    return out;
}

TEST(Winograd, is_three_products_once_the_weights_are_folded) {
    const WindowSteps plain = {1, 1, 1};
    const int64_t c = 3 * 4;
    EXPECT_EQ(products(convolution({8}, {3}, {plain})), (std::vector<int64_t>{12 * c, 16 * c}));
    // A dimension of 8 outputs takes 12 multiplications with F(4), 16 with F(2), 24 directly.
    EXPECT_EQ(products(convolution({8, 8}, {3, 3}, {plain, plain})),
              (std::vector<int64_t>{12 * 12 * c, 12 * 16 * c, 12 * 16 * c, 16 * 16 * c, 12 * 24 * c, 12 * 24 * c,
                                    16 * 24 * c, 16 * 24 * c}));
    // Of three dimensions at most two use F(4).
    const std::vector<int64_t> volume = products(convolution({8, 8, 8}, {3, 3, 3}, {plain, plain, plain}));
    EXPECT_EQ(volume.size(), 25u);
    EXPECT_EQ(volume.front(), 12 * 12 * 16 * c);
}

TEST(Winograd, uses_tiles_that_save_multiplications) {
    const WindowSteps plain = {1, 1, 1};
    EXPECT_EQ(products(convolution({1}, {3}, {plain})), std::vector<int64_t>());
    EXPECT_EQ(products(convolution({2}, {3}, {plain})), std::vector<int64_t>{4 * 12});
    EXPECT_EQ(products(convolution({3}, {3}, {plain})), (std::vector<int64_t>{6 * 12, 8 * 12}));
    EXPECT_EQ(products(convolution({5}, {3}, {plain})),
              (std::vector<int64_t>{12 * 12}));  // with F(4): 2 tiles, 3 with F(2)
}

TEST(Winograd, decomposes_stride_two_into_even_and_odd_inputs) {
    // 8 outputs of 3 taps: 24 multiplications directly; F(2, 2) and 2 for two of them, F(4, 2) and 4 for four.
    EXPECT_EQ(products(convolution({16}, {3}, {{1, 2, 1}})), (std::vector<int64_t>{18 * 12, 20 * 12}));
    EXPECT_EQ(products(convolution({16, 8}, {3, 3}, {{1, 2, 1}, {1, 1, 1}})).front(), 18 * 12 * 12);
    EXPECT_EQ(products(convolution({9}, {3}, {{1, 2, 1}})), std::vector<int64_t>());   // 5 outputs are not whole tiles
    EXPECT_EQ(products(convolution({16}, {2}, {{0, 2, 1}})), std::vector<int64_t>());  // every input is read once
}

TEST(Winograd, decomposes_dilation_into_strided_convolutions) {
    // 24 outputs, taps 2 apart: tiles of 4 are whole, also with taps 3 apart; of 12 outputs only tiles of 2 are whole.
    for (const int spacing : {2, 3})
        EXPECT_EQ(products(convolution({24}, {3}, {{spacing, 1, spacing}})), (std::vector<int64_t>{36 * 12, 48 * 12}));
    EXPECT_EQ(products(convolution({12}, {3}, {{2, 1, 2}})), std::vector<int64_t>{24 * 12});
    EXPECT_EQ(products(convolution({14}, {3}, {{3, 1, 3}})), std::vector<int64_t>());
    // The dimensions are independent: 8 x 2 outputs of 9 taps with F(2x2); the second dimension's taps are too far
    // apart for F(4).
    EXPECT_EQ(products(convolution({8, 12}, {3, 3}, {{1, 1, 1}, {2, 1, 2}})).front(), 12 * 24 * 12);
}

/// Two sets of four filters of 2 taps. `shift`: the offset of the second set.
Program two_sets(const std::string& filters, const std::string& filter, const std::string& shift) {
    Program p = parse_program(
        "program sets {\n  input x: f32[3, 10]\n  input w: f32[" + filters +
        ", 3, 2]\n  y: f32[2, 4, 8] = [2, 4, 8] sum(i3 < 3, i4 < 2) mul(@0, @1) where @0 = x[i3, " + shift +
        "i2 + i4 - 1] when " + shift + "i2 + i4 - 1 >= 0 else 0, @1 = w[" + filter + ", i3, i4]\n  output y\n}");
    const ValueId w = p.inputs.back();
    p.inputs.pop_back();
    Tensor numbers(DType::F32, evaluate(p.values[w].shape, {}));
    for (int64_t i = 0; i < numbers.count(); ++i) numbers.set(i, static_cast<double>(i % 7) - 2.5);
    p.constants.emplace(w, std::move(numbers));
    return p;
}

TEST(Winograd, supports_filters_with_different_offsets) {
    // A transposed convolution of 4 taps with stride two is two convolutions of 2 taps, the second one shifted by one.
    EXPECT_EQ(products(two_sets("2, 4", "i0, i1", "i0 + ")), (std::vector<int64_t>{2 * 10 * 12, 2 * 12 * 12}));
    EXPECT_EQ(products(two_sets("2, 4", "i0, i1", "")), (std::vector<int64_t>{2 * 10 * 12, 2 * 12 * 12}));
    // If the weights use neither of the two axes, the window's axis is ambiguous.
    EXPECT_EQ(products(two_sets("4", "i1", "i0 + ")), std::vector<int64_t>());
}

TEST(Winograd, applies_to_few_taps) {
    // 8 outputs: with 2 taps F(4, 2) takes 10 multiplications, with 5 taps F(2, 5) 24.
    EXPECT_EQ(products(convolution({9}, {2}, {{0, 1, 1}})), (std::vector<int64_t>{10 * 12, 12 * 12}));
    EXPECT_EQ(products(convolution({8}, {5}, {{2, 1, 1}})), (std::vector<int64_t>{24 * 12}));
    EXPECT_EQ(products(convolution({16}, {8}, {{4, 1, 1}})), std::vector<int64_t>());
    for (const WindowSteps& s : std::vector<WindowSteps>{{5, 1, 5}, {1, 2, 2}, {1, 3, 1}})
        EXPECT_EQ(products(convolution({24, 24}, {3, 3}, {s, s})), std::vector<int64_t>());
    // The other dimension stays direct, whatever its window: 1 tap, 5 with dilation.
    EXPECT_EQ(products(convolution({4, 8}, {1, 3}, {{0, 1, 1}, {1, 1, 1}})),
              (std::vector<int64_t>{4 * 12 * 12, 4 * 16 * 12}));
    EXPECT_EQ(products(convolution({8, 9}, {3, 5}, {{1, 1, 1}, {0, 1, 2}})),
              (std::vector<int64_t>{12 * 5 * 12, 16 * 5 * 12}));
}

TEST(Winograd, rejects_padding_conditions_on_unused_taps) {
    // A 5 x 5 window over one row: only the middle row of the window is not padding.
    const Program p = parse_program(R"(program row {
  input x: f32[4, 16]
  input w: f32[4, 5, 5]
  y: f32[4, 16] = [4, 16] sum(i2 < 5, i3 < 5) mul(@0, @1) where @0 = x[i0, i1 + i3 - 2] when i2 - 2 >= 0 and -i2 + 2 >= 0 and i1 + i3 - 2 >= 0 and -i1 - i3 + 17 >= 0 else 0, @1 = w[i0, i2, i3]  ; y ""
  output y
}
)");
    EXPECT_TRUE(find_all(RewriteContext(p), *rewrite_rule("winograd")).empty());
}

/// Equally many input and output channels, a 3 x 3 window over square images; weights are a constant, or an input.
Program square_convolution(int64_t channels, bool constant, int64_t size = 8) {
    Program p = parse_program(fmt::format(R"(program square {{
  input x: f32[{0}, {1}, {1}]
  input w: f32[{0}, {0}, 3, 3]
  y: f32[{0}, {1}, {1}] = [{0}, {1}, {1}] sum(i3 < {0}, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i3, i1 + i4 - 1, i2 + i5 - 1] when i1 + i4 - 1 >= 0 and -i1 - i4 + {1} >= 0 and i2 + i5 - 1 >= 0 and -i2 - i5 + {1} >= 0 else 0, @1 = w[i0, i3, i4, i5]  ; y ""
  output y
}}
)",
                                          channels, size));
    if (constant) {
        p.constants.emplace(p.inputs[1], Tensor(DType::F32, {channels, channels, 3, 3}));
        p.inputs.pop_back();
    }
    return p;
}

TEST(Winograd, needs_constant_weights_within_the_folding_budget) {
    const auto offered = [](int64_t channels) {
        const Program p = square_convolution(channels, true);
        const std::vector<Patch> all = find_all(RewriteContext(p), *rewrite_rule("winograd"));
        for (const Patch& patch : all) {
            const Program q = fold_constants(apply(p, patch), {.contents = false});
            EXPECT_EQ(q.primitives.size(), 3u) << channels << " channels\n" << print(q);
        }
        return all.size();
    };
    const size_t every = offered(64);
    EXPECT_EQ(every, 8u);
    EXPECT_EQ(offered(512), every - 1);  // all except F(4) in both dimensions
    EXPECT_EQ(offered(1024), 0u);
    // A larger folding budget allows more of it.
    FoldOptions more;
    more.work = int64_t{1} << 29;
    const Program p = square_convolution(1024, true);
    EXPECT_EQ(find_all(RewriteContext(p, more), *rewrite_rule("winograd")).size(), every);
}

TEST(Winograd, is_found_for_a_single_convolution) {
    // Three primitives for one exceed the factor of two.
    const Program known = square_convolution(64, true, 16);
    const Program q = fold_constants(rewrite(known, {.rules = {.winograd = true}}), {.contents = false});
    EXPECT_EQ(q.primitives.size(), 3u) << print(q);
}

TEST(Winograd, of_dynamic_weights_includes_the_cost_of_their_transform) {
    // 64 channels to 64 over 8 x 8 positions: F(4) in both dimensions would take a quarter of the multiplications, but
    // transforming the weights in every run takes more than is saved.
    RewriteSearch winograd = {.rules = {.winograd = true}};
    winograd.cost = [](const RewriteContext& c) { return analytic_cost(c, {.memory = 1e12}); };
    const Program known = square_convolution(64, true), unknown = square_convolution(64, false);
    EXPECT_NE(structure_hash(rewrite(known, winograd)), structure_hash(known));
    EXPECT_EQ(structure_hash(rewrite(unknown, winograd)), structure_hash(unknown)) << print(rewrite(unknown, winograd));
}

TEST(Winograd, is_not_applied_where_reading_its_weights_takes_longer) {
    // 512 channels over 16 x 16 positions: the weights are 9 MB; F(4) reads 38 MB for 4 times fewer multiplications,
    // F(2) in one of the dimensions 25 MB for 3 times fewer.
    const auto weights = [](const Program& p, double memory) {
        RewriteSearch options = {.rules = {.winograd = true}};
        options.rules.folding.work = int64_t{1} << 29;
        options.cost = [=](const RewriteContext& c) { return analytic_cost(c, {.memory = memory}); };
        const Program q = fold_constants(rewrite(p, options), {.work = int64_t{1} << 29, .contents = false});
        size_t bytes = 0;
        for (const auto& [v, tensor] : q.constants) bytes += tensor.bytes();
        return bytes / 1000000;
    };
    const Program p = square_convolution(512, true, 16);
    EXPECT_EQ(weights(p, 1e12), 37u);
    EXPECT_EQ(weights(p, 1e10), 25u);
    EXPECT_EQ(weights(p, 2e8), 9u);
}

TEST(Winograd, is_not_enabled_by_default) {
    for (const RewriteRule* r : rewrite_rules()) EXPECT_EQ(r->name.find("winograd"), std::string_view::npos);
}

TEST(Winograd, is_not_applied_to_its_own_products) {
    // The direct dimension would be a third one with F(4).
    const Program p = convolution({8, 8, 8}, {3, 3, 3}, std::vector<WindowSteps>(3, {1, 1, 1}));
    for (const Patch& patch : find_all(RewriteContext(p), *rewrite_rule("winograd"))) {
        const Program q = apply(p, patch);
        EXPECT_TRUE(find_all(RewriteContext(q), *rewrite_rule("winograd")).empty()) << print(q);
    }
}

/// A window with the given taps and stride in each dimension, in tiles of that many outputs, with the combined matrices
/// of all dimensions in f32.
struct TiledWindow {
    TiledWindow(const std::vector<int>& outputs, int taps_each, int step_each)
        : m(outputs), taps(outputs.size(), taps_each), step(step_each) {
        for (const int d : m) n.push_back(winograd_matrices(d, taps_each, step)->inputs());
        a = together(&WinogradMatrices::a, m, n);
        b = together(&WinogradMatrices::b, n, n);
        g = together(&WinogradMatrices::g, n, taps);
        for (int at = 0; at < points(m); ++at)
            for (int tap = 0; tap < points(taps); ++tap) {
                int place = 0;
                for (size_t d = 0; d < m.size(); ++d)
                    place = place * n[d] + step * digits(at, m)[d] + digits(tap, taps)[d];
                reads.push_back(place);
            }
    }

    static int points(const std::vector<int>& extents) {
        return std::accumulate(extents.begin(), extents.end(), 1, std::multiplies<>());
    }

    std::vector<int> m, taps, n;  ///< extents of outputs, taps, inputs (and multiplications)
    int step;
    std::vector<float> a, b, g;
    std::vector<int> reads;  ///< by output and tap: the input

  private:
    static std::vector<int> digits(int at, const std::vector<int>& extents) {
        std::vector<int> out(extents.size());
        for (size_t d = extents.size(); d-- > 0; at /= extents[d]) out[d] = at % extents[d];
        return out;
    }
    std::vector<float> together(std::vector<std::vector<double>> WinogradMatrices::*which, const std::vector<int>& rows,
                                const std::vector<int>& columns) const {
        std::vector<float> out;
        for (int r = 0; r < points(rows); ++r)
            for (int c = 0; c < points(columns); ++c) {
                double x = 1;
                for (size_t d = 0; d < m.size(); ++d)
                    x *= (winograd_matrices(m[d], taps[d], step)->*which)[static_cast<size_t>(digits(r, rows)[d])]
                                                                         [static_cast<size_t>(digits(c, columns)[d])];
                out.push_back(static_cast<float>(x));
            }
        return out;
    }
};

/// One tile of outputs over all channels, in the precision of T: sums in order, each operation rounded. x[c][inputs],
/// w[c][taps].
template <class T>
class Tile {
  public:
    Tile(const TiledWindow& window, const std::vector<float>& x, const std::vector<float>& w, int channels)
        : k_(window),
          inputs_(TiledWindow::points(window.n)),
          taps_(TiledWindow::points(window.taps)),
          outputs_(TiledWindow::points(window.m)),
          channels_(channels),
          x_(x.begin(), x.end()),
          w_(w.begin(), w.end()) {}

    std::vector<double> direct() const {
        std::vector<double> out;
        for (int at = 0; at < outputs_; ++at) {
            T sum = 0;
            for (int c = 0; c < channels_; ++c)
                for (int tap = 0; tap < taps_; ++tap)
                    sum += x_[at2(c, inputs_, k_.reads[at2(at, taps_, tap)])] * w_[at2(c, taps_, tap)];
            out.push_back(static_cast<double>(sum));
        }
        return out;
    }

    std::vector<double> winograd() const {
        std::vector<T> products(static_cast<size_t>(inputs_), T(0));
        for (int c = 0; c < channels_; ++c) {
            const std::vector<T> v = times(k_.b, &x_[at2(c, inputs_, 0)], inputs_, inputs_);
            const std::vector<T> u = times(k_.g, &w_[at2(c, taps_, 0)], inputs_, taps_);
            for (size_t a = 0; a < products.size(); ++a) products[a] += u[a] * v[a];
        }
        const std::vector<T> y = times(k_.a, products.data(), outputs_, inputs_);
        return std::vector<double>(y.begin(), y.end());
    }

  private:
    static size_t at2(int row, int columns, int column) {
        return static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(column);
    }
    static std::vector<T> times(const std::vector<float>& matrix, const T* x, int rows, int columns) {
        std::vector<T> out;
        for (int r = 0; r < rows; ++r) {
            T sum = 0;
            for (int c = 0; c < columns; ++c) sum += static_cast<T>(matrix[at2(r, columns, c)]) * x[c];
            out.push_back(sum);
        }
        return out;
    }

    const TiledWindow& k_;
    int inputs_, taps_, outputs_, channels_;
    std::vector<T> x_, w_;
};

struct Form {
    std::vector<int> outputs;
    double bound;
    int taps = 3, step = 1;
};

TEST(Winograd, errors_in_f32_stay_below_what_the_header_states) {
    std::mt19937 rng(5);
    std::uniform_real_distribution<float> uniform(-1, 1);
    constexpr int kChannels = 64;
    const std::vector<Form> forms = {
        {{2}, 2e-6},          {{4}, 2e-6},          {{2, 2}, 2e-6},       {{2, 4}, 5e-6},       {{4, 4}, 1e-5},
        {{2, 2, 2}, 2e-6},    {{2, 2, 4}, 5e-6},    {{2, 4, 4}, 1e-5},    {{2, 2}, 2e-6, 3, 2}, {{4, 4}, 1e-5, 3, 2},
        {{4, 4}, 1e-5, 2, 1}, {{2, 2}, 1e-5, 5, 1}, {{2, 2}, 2e-6, 5, 2}, {{4, 4}, 1e-5, 5, 2}, {{2, 2}, 1e-5, 7, 2}};
    for (const auto& [m, bound, each, step] : forms) {
        const TiledWindow window(m, each, step);
        const int inputs = TiledWindow::points(window.n), taps = TiledWindow::points(window.taps);
        double largest = 0, error = 0, direct_error = 0;
        for (int tile = 0; tile < 3200 / TiledWindow::points(m); ++tile) {
            std::vector<float> x(static_cast<size_t>(kChannels * inputs)), w(static_cast<size_t>(kChannels * taps));
            for (float& v : x) v = uniform(rng);
            for (float& v : w) v = uniform(rng);
            const std::vector<double> exact = Tile<double>(window, x, w, kChannels).direct();
            const std::vector<double> fast = Tile<float>(window, x, w, kChannels).winograd();
            const std::vector<double> plain = Tile<float>(window, x, w, kChannels).direct();
            for (size_t k = 0; k < exact.size(); ++k) {
                largest = std::max(largest, std::fabs(exact[k]));
                error = std::max(error, std::fabs(exact[k] - fast[k]));
                direct_error = std::max(direct_error, std::fabs(exact[k] - plain[k]));
            }
        }
        std::string name;
        for (const int d : m) name += (name.empty() ? "" : "x") + std::to_string(d);
        name += " of " + std::to_string(each) + " taps, step " + std::to_string(step);
        printf("F(%s): %.2g of the largest output; the direct sum %.2g\n", name.c_str(), error / largest,
               direct_error / largest);
        EXPECT_LT(error / largest, bound) << name;
        EXPECT_GT(error / largest, direct_error / largest / 8) << "suspiciously exact";
        EXPECT_LT(direct_error / largest, 2e-6) << name;
    }
}

}  // namespace
}  // namespace tilewright
