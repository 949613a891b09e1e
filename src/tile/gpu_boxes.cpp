#include "tile/gpu_boxes.h"

#include <algorithm>

#include "base/error.h"
#include "tile/walk.h"

namespace tilewright::gpu {

namespace {

constexpr size_t kMostRank = 5;      ///< of a map
constexpr int64_t kMostOfBox = 256;  ///< elements along a dimension
constexpr int64_t kUnit = 16;        ///< bytes that distances are multiples of

}  // namespace

std::variant<BoxCopy, std::string> as_boxes(const TensorExpr& copy, const Access& access, const Value& tensor,
                                            int swizzle, const IndexVariables& v) {
    const int64_t size = static_cast<int64_t>(byte_size(tensor.dtype));
    const size_t rank = tensor.shape.size();
    if (swizzle == 0) return "its rows are not swizzled";
    if (rank == 0 || rank > kMostRank) return fmt::format("it has {} dimensions", rank);
    if (access.fill != 0) return "it is filled with other numbers than zeros";
    for (const Expr& condition : access.valid) {
        // Inside the tensor it must hold.
        const auto on = condition_on_index(access, condition);
        if (!on || !v.nonnegative(on->sign > 0 ? on->rest : on->rest - (tensor.shape[on->dimension] - 1)))
            return "its conditions are not those of the tensor's bounds";
    }
    Expr distance = size;
    for (size_t d = rank - 1; d > 0; --d) {
        distance = distance * tensor.shape[d];
        const int64_t multiple = IndexVariables::multiple(distance);
        if (multiple % kUnit != 0)
            return distance.is_constant()
                       ? fmt::format("its rows are {} bytes apart, not a multiple of {}", distance.constant(), kUnit)
                       : fmt::format("its rows are a dynamic number of bytes apart, perhaps not a multiple of {}",
                                     kUnit);
    }
    BoxCopy out;
    std::vector<size_t> inside;  // axes of the copy along which a box goes, as the tensor has them
    for (size_t d = 0; d < rank; ++d) {
        std::optional<size_t> own;
        for (size_t j = 0; j < copy.extents.size(); ++j) {
            if (copy.extents[j].is_constant(1)) continue;
            const auto linear = linear_in(copy.accesses[0].index[d], var_of(axis(j)));
            if (!linear || !linear->coefficient.is_constant()) return "its index is no sum of its axes";
            if (linear->coefficient.is_constant(0)) continue;
            if (linear->coefficient.is_constant(1)) {
                if (own) return "two of its axes go along one dimension";
                own = j;
            } else {
                out.apart.push_back(j);
            }
        }
        const int64_t points = own ? copy.extents[*own].constant() : 1;
        if (points > kMostOfBox) return fmt::format("a box would have {} elements along a dimension", points);
        out.box.insert(out.box.begin(), points);
        out.extents.insert(out.extents.begin(), tensor.shape[d]);
        if (own) inside.push_back(*own);
    }
    if (out.box[0] * size != swizzle) return "its rows go along another dimension than the tensor's last";
    // In memory the axes of a box follow those that are boxes apart, in the tensor's order.
    if (!std::is_sorted(inside.begin(), inside.end())) return "its dimensions change places";
    for (const size_t a : out.apart)
        if (a > inside.front()) return "its boxes do not lie behind each other";
    int64_t box = size, boxes = 1;
    for (const int64_t n : out.box) box *= n;
    for (const size_t a : out.apart) boxes *= copy.extents[a].constant();
    if (boxes > 1 && box % (8 * swizzle) != 0) return "a box has no whole blocks of eight rows";
    out.bytes = box * boxes;
    return out;
}

}  // namespace tilewright::gpu
