#pragma once
// Winograd's minimal filtering F(m, r): m outputs of a filter with r taps from m + r - 1 multiplications (S. Winograd,
// "Arithmetic Complexity of Computations", 1980; A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2016, whose matrices these are but for signs), by polynomials at the points 0, 1, -1, 2, -2, infinity:
//
//     y = A^T ((G g) * (B^T d))        d: m + r - 1 inputs, g: r taps, *: element by element
//
// Nested for two dimensions F(m, 3) takes (m + 2)^2 multiplications for m^2 outputs, 9 m^2 without it: 2.25 times fewer
// for m = 2, 4 times fewer for m = 4; for three dimensions 3.4 times fewer for m = 2. Dimensions need not have one m,
// and of a window some may stay as they are: of 3x3x3 taps F(4) in two dimensions takes 4 times fewer multiplications,
// with F(2) in the third 6 times fewer.
//
// Error. B^T and A^T add inputs and products of very different size, and errors grow with their entries, dimension by
// dimension: most where there are more than three finite points, as F(4, 3), F(4, 2) and F(2, 5) have. In f32, for
// uniform inputs in [-1, 1] and 64 channels, winograd_test.cpp measures the largest error of any output against f64,
// relative to the largest output, and holds it below 2e-6 where no dimension is such, or one dimension alone is taken;
// below 5e-6 where one of several is; below 1e-5 where two are; the direct sum, in order, stays below 2e-6 there. A
// third such dimension would make it 2.4e-5, and is not offered.
//
// Steps. What is moved by s at a time is s filters, each of every s-th tap over every s-th input, moved by one: their
// rows stand one below the other, A^T adds them up. 3 taps moved by 2 are 2 taps over the even inputs and 1 over the
// odd ones:
//     F(4, 2) and 4 multiplications, 9 in place of 12 for 4 outputs; in two dimensions 1.8 times fewer
//
// Taps that lie s apart are s windows of taps side by side, each over every s-th place: the same matrices, and tiles of m
// outputs that lie s apart. Filters may begin at places of their own: a transposed convolution in steps of two is a
// convolution without steps for each place modulo two.

#include <vector>

namespace tilewright {

/// Of one dimension, `taps` moved by `step`: y = A^T ((G g) * (B^T d)) for step * (m - 1) + taps inputs d.
struct WinogradMatrices {
    int tile = 2;  ///< m
    int taps = 3, step = 1;
    std::vector<std::vector<double>> a, g, b;  ///< A^T [m][rows], G [rows][taps], B^T [rows][inputs]
    bool rough = false;                        ///< errors of more than three finite points: F(4, 3), F(4, 2), F(2, 5)
    int rows() const { return static_cast<int>(g.size()); }
    int inputs() const { return static_cast<int>(b[0].size()); }
};
/// Null where five finite points (0, 1, -1, 2, -2) are not enough.
const WinogradMatrices* winograd_matrices(int tile, int taps = 3, int step = 1);

}  // namespace tilewright
