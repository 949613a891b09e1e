#pragma once
// Winograd's minimal filtering F(m, r): m outputs of a filter with r taps from m + r - 1 multiplications (S. Winograd,
// "Arithmetic Complexity of Computations", 1980; A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2016, whose matrices these are but for signs), by polynomials at the points 0, 1, -1, 2, -2, infinity:
//
//     y = A^T ((G g) * (B^T d))        d: m + r - 1 inputs, g: r taps, *: element by element
//
// Nested for two dimensions F(m, 3) takes (m + 2)^2 multiplications for m^2 outputs, compared to 9 m^2 directly: 2.25
// times fewer for m = 2, 4 times fewer for m = 4; for three dimensions 3.4 times fewer for m = 2. Dimensions may have
// different m, and some dimensions of a window may stay direct: for 3x3x3 taps, F(4) in two dimensions takes 4 times
// fewer multiplications, with F(2) in the third 6 times fewer.
//
// Error. B^T and A^T add inputs and products of very different magnitude, and errors grow with their entries in each
// dimension. They are largest with more than three finite points, as in F(4, 3), F(4, 2) and F(2, 5). In f32, for
// uniform inputs in [-1, 1] and 64 channels, winograd_test.cpp measures the largest error of any output against f64,
// relative to the largest output. It checks bounds of 2e-6 if no dimension has more than three finite points, or if
// only one dimension is transformed; of 5e-6 if one of several has; of 1e-5 if two have. The direct sum, in order,
// stays below 2e-6 there. A third such dimension would make it 2.4e-5, and is not offered.
//
// Strides. A filter with stride s is decomposed into s filters with stride 1, each with every s-th tap over every
// s-th input. Their rows are stacked, and A^T adds them up. 3 taps with stride 2 are 2 taps over the even inputs and 1
// over the odd ones:
//     F(4, 2) and 4 multiplications, 9 in place of 12 for 4 outputs; in two dimensions 1.8 times fewer
//
// Dilation. Taps at distance s are s windows of adjacent taps, each over every s-th position: the same matrices, with
// tiles of m outputs at distance s. Filters may have different offsets: a transposed convolution with stride 2 is a
// convolution with stride 1 for each position modulo 2.

#include <vector>

namespace tilewright {

/// For one dimension of `taps` taps with stride `step`: y = A^T ((G g) * (B^T d)) for step * (m - 1) + taps inputs d.
struct WinogradMatrices {
    int tile = 2;  ///< m
    int taps = 3, step = 1;
    std::vector<std::vector<double>> a, g, b;  ///< A^T [m][rows], G [rows][taps], B^T [rows][inputs]
    bool rough = false;  ///< larger errors, with more than three finite points: F(4, 3), F(4, 2), F(2, 5)
    int rows() const { return static_cast<int>(g.size()); }
    int inputs() const { return static_cast<int>(b[0].size()); }
};
/// Null if five finite points (0, 1, -1, 2, -2) are not enough.
const WinogradMatrices* winograd_matrices(int tile, int taps = 3, int step = 1);

}  // namespace tilewright
