// Winograd's convolutions: the form of the rewrite, and what they cost in precision.

#include "program/rewrite/winograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "program/rewrite/rewrite.h"
#include "program/rewrite/rewrite_test.h"
#include "program/transform/fold.h"

namespace tilewright {
namespace {

Program convolution(int64_t channels, int64_t outs, int64_t size, int64_t pad, int64_t stride, int64_t dilation) {
    PatternWriter w(3);
    const ValueId x = w.input({1, channels, size, size});
    w.outputs = {w.convolution(x, w.weights({outs, channels, 3, 3}), pad, stride, dilation)};
    return w.take();
}

TEST(Winograd, is_three_products_once_the_weights_are_folded) {
    const Program p = convolution(3, 4, 8, 1, 1, 1);
    const RewriteContext context(p);
    for (const int tile : {2, 4}) {
        const std::vector<Patch> found = find_all(context, *rewrite_rule(tile == 2 ? "winograd_2x2" : "winograd_4x4"));
        ASSERT_EQ(found.size(), 1u);
        const Program q = fold_constants(apply(p, found[0]));
        ASSERT_EQ(q.primitives.size(), 3u) << print(q);
        for (const Primitive& primitive : q.primitives) EXPECT_EQ(category(q, primitive), Category::Linear);
        const Expr products = product(q.primitives[PrimitiveId(size_t{1})].expr()->extents);
        EXPECT_EQ(products, Expr((tile + 2) * (tile + 2) * 3 * 4 * (8 / tile) * (8 / tile)));
    }
}

TEST(Winograd, is_for_stride_and_dilation_of_one) {
    for (const auto& [stride, dilation] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
        const Program p = convolution(3, 4, 9, 1, stride, dilation);
        EXPECT_TRUE(find_all(RewriteContext(p), *rewrite_rule("winograd_2x2")).empty()) << stride << " " << dilation;
    }
}

TEST(Winograd, is_not_among_the_rules_unless_asked_for) {
    for (const RewriteRule* r : rewrite_rules()) EXPECT_EQ(r->name.find("winograd"), std::string_view::npos);
}

/// One tile of m x m outputs over all channels, in the precision of T: sums in order, each operation rounded.
template <class T>
class Tile {
  public:
    Tile(int m, const std::vector<double>& x, const std::vector<double>& w, int channels)
        : m_(m), x_(x), w_(w), channels_(channels) {}

    std::vector<double> direct() const {
        std::vector<double> out;
        for (int i = 0; i < m_; ++i)
            for (int j = 0; j < m_; ++j) {
                T sum = 0;
                for (int c = 0; c < channels_; ++c)
                    for (int p = 0; p < 3; ++p)
                        for (int q = 0; q < 3; ++q) sum += in(c, i + p, j + q) * tap(c, p, q);
                out.push_back(static_cast<double>(sum));
            }
        return out;
    }

    std::vector<double> winograd() const {
        const WinogradMatrices& k = winograd_matrices(m_);
        const int n = m_ + 2;
        std::vector<T> products(static_cast<size_t>(n * n), T(0));
        for (int c = 0; c < channels_; ++c)
            for (int a = 0; a < n; ++a)
                for (int b = 0; b < n; ++b) {
                    T u = 0, v = 0;
                    for (int i = 0; i < n; ++i)
                        for (int j = 0; j < n; ++j) v += number(k.b, a, i) * number(k.b, b, j) * in(c, i, j);
                    for (int p = 0; p < 3; ++p)
                        for (int q = 0; q < 3; ++q)
                            u += static_cast<T>(static_cast<float>(k.g[at(a)][at(p)] * k.g[at(b)][at(q)])) *
                                 tap(c, p, q);
                    products[at(a * n + b)] += u * v;
                }
        std::vector<double> out;
        for (int i = 0; i < m_; ++i)
            for (int j = 0; j < m_; ++j) {
                T sum = 0;
                for (int a = 0; a < n; ++a)
                    for (int b = 0; b < n; ++b) sum += number(k.a, i, a) * number(k.a, j, b) * products[at(a * n + b)];
                out.push_back(static_cast<double>(sum));
            }
        return out;
    }

  private:
    static size_t at(int k) { return static_cast<size_t>(k); }
    static T number(const std::vector<std::vector<double>>& matrix, int i, int j) {
        return static_cast<T>(matrix[at(i)][at(j)]);
    }
    T in(int c, int i, int j) const { return static_cast<T>(x_[at((c * (m_ + 2) + i) * (m_ + 2) + j)]); }
    T tap(int c, int p, int q) const { return static_cast<T>(w_[at((c * 3 + p) * 3 + q)]); }

    int m_;
    const std::vector<double>&x_, &w_;
    int channels_;
};

TEST(Winograd, errors_in_f32_stay_below_what_the_header_states) {
    std::mt19937 rng(5);
    std::uniform_real_distribution<float> uniform(-1, 1);
    constexpr int kChannels = 64, kTiles = 200;
    for (const auto& [m, bound] : {std::pair(2, 1e-6), std::pair(4, 1e-5)}) {
        double largest = 0, error = 0, direct_error = 0;
        for (int tile = 0; tile < kTiles; ++tile) {
            std::vector<double> x(static_cast<size_t>(kChannels * (m + 2) * (m + 2))), w(kChannels * 9);
            for (double& v : x) v = static_cast<double>(uniform(rng));
            for (double& v : w) v = static_cast<double>(uniform(rng));
            const std::vector<double> exact = Tile<double>(m, x, w, kChannels).direct();
            const std::vector<double> fast = Tile<float>(m, x, w, kChannels).winograd();
            const std::vector<double> plain = Tile<float>(m, x, w, kChannels).direct();
            for (size_t k = 0; k < exact.size(); ++k) {
                largest = std::max(largest, std::fabs(exact[k]));
                error = std::max(error, std::fabs(exact[k] - fast[k]));
                direct_error = std::max(direct_error, std::fabs(exact[k] - plain[k]));
            }
        }
        printf("F(%dx%d): %.2g of the largest output; the direct sum %.2g\n", m, m, error / largest,
               direct_error / largest);
        EXPECT_LT(error / largest, bound) << m;
        EXPECT_GT(error / largest, direct_error / largest / 4) << "suspiciously exact";
        EXPECT_LT(direct_error / largest, 1e-6) << m;
    }
}

}  // namespace
}  // namespace tilewright
