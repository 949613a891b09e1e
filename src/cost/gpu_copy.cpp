#include "cost/gpu_copy.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/numbers.h"

namespace tilewright {

namespace {

constexpr int64_t kBanks = 32, kBankBytes = 4, kVectorBytes = 16, kWarp = 32;

}  // namespace

GpuCopy::GpuCopy(const Program& stages, const Load& load) : access_(load.access), layout_(load.layout) {
    const TensorExpr& e = *stages.primitives[load.stage].expr();
    const Access& a = e.accesses[access_];
    element_bytes_ = static_cast<int64_t>(byte_size(stages.values[a.value].dtype));
    for (const Expr& index : a.index) {
        reaches_.emplace_back(index, 1);
        coefficients_.emplace_back(e.extents.size(), 0);
        for (size_t k = 0; k < e.extents.size(); ++k) {
            const Var axis_k{VarKind::Axis, static_cast<uint32_t>(k)};
            if (!uses(index, axis_k)) continue;
            const auto linear = linear_in(index, axis_k);
            if (linear && linear->coefficient.is_constant())
                coefficients_.back()[k] = linear->coefficient.constant();
            else
                regular_ = false;
        }
    }
    order_.resize(a.index.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    for (const layout::Primitive& primitive : layout_.primitives) {
        const auto* pad = std::get_if<layout::Pad>(&primitive);
        if (const auto* reorder = std::get_if<layout::Reorder>(&primitive); reorder != nullptr && room_ == 0) {
            std::vector<size_t> order;
            order.reserve(order_.size());
            for (const size_t d : reorder->permutation) order.push_back(order_[d]);
            order_ = std::move(order);
        } else if (pad != nullptr && pad->dim + 1 == order_.size() && pad->before == 0) {
            room_ += pad->after;
        } else {
            regular_ = false;
            break;  // later primitives are about other dimensions than the index's
        }
    }
}

int64_t GpuCopy::bytes(std::span<const int64_t> tile) const {
    int64_t n = element_bytes_;
    if (regular_) {
        for (size_t d = 0; d < order_.size(); ++d)
            n *= reaches_[order_[d]].over(tile) + 1 + (d + 1 == order_.size() ? room_ : 0);
    } else {
        std::vector<Expr> box;
        box.reserve(reaches_.size());
        for (const IndexReach& r : reaches_) box.emplace_back(r.over(tile) + 1);
        for (const Expr& d : physical_shape(layout_, box)) n *= d.constant();
    }
    return ceil_of(n, 64) * 64 + 64;  // whole lines, and a vector of padding behind them
}

std::vector<int64_t> GpuCopy::strides(std::span<const int64_t> tile) const {
    std::vector<int64_t> out(tile.size(), 0);
    int64_t stride = 1;
    for (size_t d = order_.size(); d-- > 0;) {
        for (size_t a = 0; a < out.size(); ++a) out[a] += stride * coefficients_[order_[d]][a];
        stride *= reaches_[order_[d]].over(tile) + 1 + (d + 1 == order_.size() ? room_ : 0);
    }
    return out;
}

double GpuCopy::conflicts(const StageModel& stage, const Micro& micro, std::span<const int64_t> tile) const {
    if (micro.matrix || !regular_) return 1;
    const auto registers = [&](size_t a) {
        return std::min(a < micro.registers.size() ? std::max<int64_t>(1, micro.registers[a]) : 1, tile[a]);
    };
    // Contiguous points of a register tile: those of a virtual thread.
    const auto strip = [&](size_t a) {
        const int64_t threads = a < micro.virtual_threads.size() ? std::max<int64_t>(1, micro.virtual_threads[a]) : 1;
        return registers(a) % threads == 0 ? registers(a) / threads : registers(a);
    };
    const std::vector<int64_t> steps = strides(tile);
    bool vectors = false;
    for (size_t a = 0; a < stage.spatial; ++a)
        vectors = vectors || (steps[a] == 1 && strip(a) * element_bytes_ >= kVectorBytes);
    int64_t bytes = vectors ? kVectorBytes : element_bytes_;
    if (micro.annotations.access) {
        const OperandRead* read = micro.annotations.access->read(access_);
        bytes = (read != nullptr ? read->width : 1) * element_bytes_;
    }
    // Tiles are assigned to threads along the vector axis first, then along the other axes from last to first.
    std::vector<size_t> order;
    if (micro.vector_axis && *micro.vector_axis < stage.spatial) order.push_back(*micro.vector_axis);
    for (size_t a = stage.spatial; a-- > 0;)
        if (micro.vector_axis != a) order.push_back(a);
    std::array<int64_t, kWarp> begin{};  // first word of each thread
    for (int64_t t = 0; t < kWarp; ++t) {
        int64_t remaining = t, offset = 0;
        for (const size_t a : order) {
            const int64_t tiles = ceil_of(tile[a], registers(a));
            offset += remaining % tiles * strip(a) * steps[a];
            remaining /= tiles;
        }
        begin[static_cast<size_t>(t)] = offset * element_bytes_ / kBankBytes;
    }
    const int64_t words = std::max<int64_t>(1, bytes / kBankBytes);
    const int64_t together = std::min(kWarp, kBanks / words);  // threads served at a time
    int64_t reads = 0;
    for (int64_t from = 0; from < kWarp; from += together) {
        const auto first = begin.begin() + from;
        std::sort(first, first + together);
        std::array<int64_t, kBanks> met{};
        for (int64_t t = 0; t < together; ++t)
            if (t == 0 || first[t] != first[t - 1])
                for (int64_t w = first[t]; w < first[t] + words; ++w) ++met[static_cast<size_t>(w % kBanks)];
        reads += *std::max_element(met.begin(), met.end());
    }
    return static_cast<double>(reads * together) / kWarp;
}

}  // namespace tilewright
