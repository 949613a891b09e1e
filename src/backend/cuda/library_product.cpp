#include "backend/cuda/library_product.h"

#include <algorithm>
#include <numeric>

namespace tilewright::cuda {

namespace {

constexpr int64_t kLeastAlignment = 16;  ///< in bytes: of what most algorithms take

/// The last two dimensions of an operand; nothing where neither is contiguous, or rows overlap.
std::optional<LibraryProduct::Matrix> matrix(const LibraryOperand& o) {
    const size_t n = o.dims.size();
    const int64_t rows = o.dims[n - 2], columns = o.dims[n - 1];
    const int64_t down = rows == 1 ? 0 : o.strides[n - 2], along = columns == 1 ? 0 : o.strides[n - 1];
    LibraryProduct::Matrix m;
    m.tensor = o.tensor;
    m.type = o.type;
    m.offset = o.offset;
    m.transposed = (along != 1 && columns != 1) || (columns == 1 && down == 1 && rows > 1);
    if (m.transposed && down != 1 && rows != 1) return std::nullopt;
    const int64_t stride = m.transposed ? along : down, least = m.transposed ? rows : columns;
    const int64_t count = m.transposed ? columns : rows;
    if (count > 1 && stride < least) return std::nullopt;
    m.stride = std::max(stride, least);
    m.of_batch = n > 2 && o.dims[0] != 1 ? o.strides[0] : 0;
    return m;
}

/// Takes operand i of the epilogue as the bias or as C.
std::optional<Refusal> add(LibraryProduct& p, const LibraryOperation& op, size_t i) {
    const LibraryOperand& o = op.added[i];
    const bool bias = op.is_bias(i), whole = o.dims == op.result.dims;
    if (!(bias && !p.bias) && !(whole && !p.added))
        return Refusal{"epilogue operands other than a bias and a residual"};
    if (o.type != p.result.type) return Refusal{"an epilogue operand of another type than the result"};
    if (bias && !p.bias) {
        if (o.offset != 0) return Refusal{"a bias that is not accessed from its first element"};
        p.bias = o.tensor;
        return std::nullopt;
    }
    p.added = matrix(o);
    if (!p.added || p.added->transposed) return Refusal{"a residual whose rows are not contiguous"};
    return std::nullopt;
}

}  // namespace

int64_t LibraryProduct::alignment(int64_t tensors) const {
    for (const Matrix* m : {&left, &right, &result, added ? &*added : nullptr})
        if (m != nullptr) tensors = std::gcd(tensors, m->offset * static_cast<int64_t>(byte_size(m->type)));
    return tensors;
}

std::variant<LibraryProduct, Refusal> library_product(const LibraryOperation& op) {
    if (op.convolution) return Refusal{"it multiplies matrices and does nothing else"};
    const size_t dims = op.result.dims.size();
    if (dims > 3) return Refusal{"batches of several dimensions"};
    if (op.data.is_constant() || op.weights.is_constant()) return Refusal{"constants without strides"};
    for (const LibraryOperand* o : {&op.data, &op.weights})
        if (dims == 3 && o->dims[0] != op.result.dims[0]) return Refusal{"an operand that is broadcast over the batch"};
    const auto left = matrix(op.data), right = matrix(op.weights), result = matrix(op.result);
    if (!left || !right || !result || result->transposed)
        return Refusal{"matrices of which no dimension is contiguous"};
    if (left->type != right->type || (result->type != left->type && result->type != DType::F32))
        return Refusal{"operands of different types"};
    if (op.activation != Activation::None && op.activation != Activation::Relu && op.activation != Activation::GeluTanh)
        return Refusal{"an activation other than relu and gelu by tanh"};
    LibraryProduct p;
    p.batch = dims == 3 ? op.result.dims[0] : 1;
    p.rows = op.result.dims[dims - 2];
    p.columns = op.result.dims[dims - 1];
    p.sum = op.data.dims[dims - 1];
    p.left = *left;
    p.right = *right;
    p.result = *result;
    p.scale = op.scale;
    p.activation = op.activation;
    for (size_t i = 0; i < op.added.size(); ++i)
        if (auto refused = add(p, op, i)) return *std::move(refused);
    if (p.alignment(kLeastAlignment) != kLeastAlignment) return Refusal{"matrices that are not aligned to 16 bytes"};
    return p;
}

}  // namespace tilewright::cuda
