#include "backend/cuda/library_convolution.h"

#include <algorithm>

namespace tilewright::cuda {

namespace {

/// Strides of dimensions of one point are those of a packed tensor: the library derives layouts from them.
void pack_ones(LibraryOperand& o, bool channels_last) {
    std::vector<size_t> order;  // from the innermost on
    if (channels_last) order.push_back(1);
    for (size_t d = o.dims.size(); d-- > 2;) order.push_back(d);
    if (!channels_last) order.push_back(1);
    order.push_back(0);
    int64_t packed = 1;
    for (const size_t d : order) {
        if (o.dims[d] == 1) o.strides[d] = packed;
        packed *= o.dims[d];
    }
}

/// [groups, o / groups, ...] -> [o, ...]; nothing where groups are not one behind the other.
std::optional<LibraryOperand> without_groups(LibraryOperand o) {
    const int64_t groups = o.dims[0], filters = o.dims[1];
    if (groups > 1 && filters > 1 && o.strides[0] != o.strides[1] * filters) return std::nullopt;
    o.strides[1] = filters > 1 ? o.strides[1] : o.strides[0];
    o.dims[1] = groups * filters;
    o.dims.erase(o.dims.begin());
    o.strides.erase(o.strides.begin());
    return o;
}

}  // namespace

bool cudnn_has(Activation activation) { return activation != Activation::HardSwish; }

std::variant<LibraryConvolution, Refusal> library_convolution(const LibraryOperation& op) {
    if (!op.convolution) return Refusal{"a product of matrices is cuBLASLt's"};
    if (op.weights.is_constant()) return Refusal{"constants without strides"};
    if (op.scale != 1) return Refusal{"a scaled convolution"};
    if (!cudnn_has(op.activation)) return Refusal{"an activation that the library has not"};
    LibraryOperand weights = op.weights;
    if (op.transposed) {  // [groups, o / groups, c / groups, ...] -> [groups, c / groups, o / groups, ...]
        std::swap(weights.dims[1], weights.dims[2]);
        std::swap(weights.strides[1], weights.strides[2]);
    }
    const auto filter = without_groups(weights);
    if (!filter) return Refusal{"the channels of a group are not contiguous"};
    if (op.data.type != op.weights.type) return Refusal{"operands of different types"};
    LibraryConvolution c;
    c.transposed = op.transposed;
    c.data = op.data;
    c.filter = *filter;
    c.result = op.result;
    c.strides = op.strides;
    c.dilations = op.dilations;
    c.before = op.begins;
    c.after = op.ends;
    for (size_t s = 0; s < c.after.size(); ++s) {
        if (op.transposed) {
            // Rows behind the last window have no products; a convolution leaves less than a stride out.
            if (c.after[s] <= -c.strides[s]) return Refusal{"rows that no window reaches"};
            c.after[s] = std::max<int64_t>(0, c.after[s]);
            continue;
        }
        // The data behind the last window is left out.
        c.data.dims[2 + s] += std::min<int64_t>(0, c.after[s]);
        c.after[s] = std::max<int64_t>(0, c.after[s]);
        if (c.data.dims[2 + s] < 1) return Refusal{"windows of padding alone"};
    }
    for (size_t i = 0; i < op.added.size(); ++i) {
        auto& to = op.is_residual(i) && !c.residual ? c.residual : c.bias;
        if (to || (&to == &c.bias && !op.is_bias(i)))
            return Refusal{"epilogue operands other than a bias and a residual"};
        to = op.added[i];
    }
    c.activation = op.activation;
    c.most = op.most;
    const bool channels_last = c.data.dims[1] > 1 && c.data.strides[1] == 1;
    for (LibraryOperand* o :
         {&c.data, &c.filter, &c.result, c.bias ? &*c.bias : nullptr, c.residual ? &*c.residual : nullptr})
        if (o != nullptr) pack_ones(*o, channels_last);
    return c;
}

}  // namespace tilewright::cuda
