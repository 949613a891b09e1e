#pragma once
// Where the PTX ISA puts elements of matrices: fragments in registers ("Matrix fragments for mma.m16n8k16", "Register
// fragments for wgmma.mma_async.m64nNk16"), and core matrices in shared memory ("Shared memory matrix layout").

#include <cstdint>

namespace tilewright::cuda::oracle {

struct MatrixPoint {
    int row = 0, column = 0;
    friend bool operator==(const MatrixPoint&, const MatrixPoint&) = default;
};

/// Element `i` of a lane's fragment of A (16 x 16, or 16 x 8 of 32-bit elements), of B (column: along n), and of C.
MatrixPoint mma_a(int lane, int i, int element_bytes);
MatrixPoint mma_b(int lane, int i, int element_bytes);
MatrixPoint mma_c(int lane, int i);
/// Of a thread of a warpgroup: the left operand in registers (64 x 16, or 64 x 8 of 32-bit elements), and the sums.
MatrixPoint wgmma_a(int thread, int i, int element_bytes);
MatrixPoint wgmma_c(int thread, int i);

/// A matrix descriptor of wgmma.
struct MatrixDescriptor {
    uint64_t begin = 0, leading = 0, stride = 0;  ///< bytes
    int row = 0;                                  ///< bytes of a swizzled row: 0, 32, 64, 128
};
/// Throws RuntimeError for a base offset, or bits that have no meaning.
MatrixDescriptor decode(uint64_t descriptor);
/// The address of element (p, k), k along the sum. `transposed`: elements next to each other lie across the sum.
uint64_t element_address(const MatrixDescriptor& d, int p, int k, int element_bytes, bool transposed);

}  // namespace tilewright::cuda::oracle
