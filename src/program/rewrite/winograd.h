#pragma once
// Winograd's minimal filtering F(m, 3): m outputs of a filter with 3 taps from m + 2 multiplications (S. Winograd,
// "Arithmetic Complexity of Computations", 1980; A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2016, whose matrices these are):
//
//     y = A^T ((G g) * (B^T d))        d: m + 2 inputs, g: 3 taps, *: element by element
//
// Nested for two dimensions it takes (m + 2)^2 multiplications for m^2 outputs, 9 m^2 without it: 2.25 times fewer for
// m = 2, 4 times fewer for m = 4.
//
// Error. B^T and A^T add inputs and products of very different size, and errors grow with their entries. In f32, for
// uniform inputs in [-1, 1] and 64 channels, winograd_test.cpp measures the largest error of any output against f64,
// relative to the largest output, and holds it below 1e-6 for m = 2 and 1e-5 for m = 4; the direct sum, in order, stays
// below 1e-6 there.

#include <vector>

namespace tilewright {

struct WinogradMatrices {
    int tile = 2;                              ///< m
    std::vector<std::vector<double>> a, g, b;  ///< A^T [m][m+2], G [m+2][3], B^T [m+2][m+2]
};
/// `tile` is 2 or 4.
const WinogradMatrices& winograd_matrices(int tile);

}  // namespace tilewright
