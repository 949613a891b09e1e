#include "backend/cuda/library_matmul.h"

#include <algorithm>
#include <array>

#include "backend/cuda/library_convolution.h"

namespace tilewright::cuda {

namespace {

/// [rows, columns] -> [1, rows, columns]. Dimensions of one element get the strides of a packed tensor.
LibraryOperand with_batch(LibraryOperand o) {
    if (o.dims.size() == 2) {
        o.dims.insert(o.dims.begin(), 1);
        o.strides.insert(o.strides.begin(), 0);
    }
    const bool by_columns = o.dims[1] > 1 && o.strides[1] == 1 && o.dims[2] > 1;
    int64_t packed = 1;
    for (const size_t d : by_columns ? std::array<size_t, 3>{1, 2, 0} : std::array<size_t, 3>{2, 1, 0}) {
        if (o.dims[d] == 1) o.strides[d] = packed;
        packed = std::max(packed, o.strides[d] * o.dims[d]);
    }
    return o;
}

}  // namespace

std::variant<LibraryMatmul, Refusal> library_matmul(const LibraryOperation& op) {
    if (op.convolution) return Refusal{"a convolution"};
    if (op.result.dims.size() > 3) return Refusal{"batches of several dimensions"};
    if (op.data.is_constant() || op.weights.is_constant()) return Refusal{"constants without strides"};
    if (op.data.type != op.weights.type) return Refusal{"operands of different types"};
    if (!cudnn_has(op.activation)) return Refusal{"an activation that the library has not"};
    LibraryMatmul m{
        with_batch(op.data), with_batch(op.weights), with_batch(op.result), {}, op.scale, op.activation, op.most};
    for (const LibraryOperand& o : op.added) m.added.push_back(with_batch(o));
    for (const LibraryOperand* o : {&m.data, &m.weights, &m.result})
        if (o->strides[1] != 1 && o->strides[2] != 1) return Refusal{"matrices of which no dimension is contiguous"};
    return m;
}

}  // namespace tilewright::cuda
