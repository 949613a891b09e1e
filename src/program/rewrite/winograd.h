#pragma once
// Winograd's minimal filtering F(m, 3): m outputs of a filter with 3 taps from m + 2 multiplications (S. Winograd,
// "Arithmetic Complexity of Computations", 1980; A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2016, whose matrices these are):
//
//     y = A^T ((G g) * (B^T d))        d: m + 2 inputs, g: 3 taps, *: element by element
//
// Nested for two dimensions it takes (m + 2)^2 multiplications for m^2 outputs, 9 m^2 without it: 2.25 times fewer for
// m = 2, 4 times fewer for m = 4; for three dimensions 3.4 times fewer for m = 2. Dimensions need not have one m, and
// of a window some may stay as they are: of 3x3x3 taps F(4) in two dimensions takes 4 times fewer multiplications, with
// F(2) in the third 6 times fewer.
//
// Error. B^T and A^T add inputs and products of very different size, and errors grow with their entries, dimension by
// dimension. In f32, for uniform inputs in [-1, 1] and 64 channels, winograd_test.cpp measures the largest error of any
// output against f64, relative to the largest output, and holds it below 2e-6 where every m is 2, or one dimension
// alone is taken; below 5e-6 where one m of several is 4; below 1e-5 where two are; the direct sum, in order, stays
// below 2e-6 there. A third dimension of m = 4 would make it 2.4e-5, and is not offered.

#include <vector>

namespace tilewright {

struct WinogradMatrices {
    int tile = 2;                              ///< m
    std::vector<std::vector<double>> a, g, b;  ///< A^T [m][m+2], G [m+2][3], B^T [m+2][m+2]
};
/// Of one dimension; `tile` is 2 or 4.
const WinogradMatrices& winograd_matrices(int tile);

}  // namespace tilewright
