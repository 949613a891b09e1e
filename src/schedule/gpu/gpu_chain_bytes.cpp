#include <algorithm>

#include "schedule/gpu/gpu_schedule.h"
#include "tile/gpu_memory.h"

namespace tilewright {

namespace {

/// Padding of each row of a copy in bytes: neighbouring rows then start in different banks.
constexpr int64_t kRoomOfRow = 16;
constexpr int64_t kWarpColumns = 128;  ///< of a warp's tile in trees of chains
constexpr int64_t kBlockWarps = kGpuBlockThreads / 32;

}  // namespace

GpuChainBytes::GpuChainBytes(const chain::Chain& c) : c_(c) {
    const auto is_one_of = [](const std::vector<ValueId>& list, ValueId v) {
        return std::find(list.begin(), list.end(), v) != list.end();
    };
    std::optional<size_t> last;
    for (const PrimitiveId s : c.products) {
        const TensorExpr& e = *c.stages.primitives[s].expr();
        const auto add = [&](ValueId v, DType dtype, const std::vector<Expr>& index) -> Tile& {
            Tile t;
            t.element_bytes = static_cast<double>(byte_size(dtype));
            t.axes = c.stage_axes[s];
            t.given = is_one_of(c.stages.outputs, v);
            for (const Expr& i : index) {
                t.reach.emplace_back(i, 0);
                for (const Var x : variables(i))
                    if (x.kind == VarKind::Axis) t.moves.push_back(c.stage_axes[s][x.id]);
            }
            tiles_.push_back(std::move(t));
            return tiles_.back();
        };
        for (const uint32_t slot : e.body.slots()) {
            const Access& a = e.accesses[slot];
            if (is_one_of(c.stages.inputs, a.value))
                add(a.value, c.stages.values[a.value].dtype, a.index).copied = true;
        }
        add(c.stages.primitives[s].outputs[0], DType::F32, result_index(e));
        if (last) tiles_[*last].reader = tiles_.size() - 1;
        last = tiles_.size() - 1;
    }
}

/// Points of the tile along each dimension.
std::vector<int64_t> GpuChainBytes::shape(const Tile& t, const std::vector<int64_t>& range) {
    std::vector<int64_t> tile, out;
    tile.reserve(t.axes.size());
    for (const size_t a : t.axes) tile.push_back(range[a]);
    for (const IndexReach& r : t.reach) out.push_back(r.over(tile) + 1);
    return out;
}

/// Whether a product's result stays in registers. Warps lie along its rows, and each has all columns. The axis that the
/// next product reduces must be in one warp's tile, and so must the next result.
bool GpuChainBytes::kept(const Tile& t, const std::vector<int64_t>& range) const {
    const std::vector<int64_t> points = shape(t, range);
    if (points.empty()) return true;
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < points.size(); ++d) rows *= points[d];
    const int64_t of_warp = rows > 128 ? 32 : 16, columns = (points.back() + kWarpColumns - 1) / kWarpColumns;
    if (t.reader && (columns > 1 || shape(tiles_[*t.reader], range).back() > kWarpColumns)) return false;
    return (rows + of_warp - 1) / of_warp * columns <= kBlockWarps;
}

double GpuChainBytes::operator()(const chain::Candidate& k) const {
    std::vector<int64_t> range(c_.extents.size());
    for (size_t a = 0; a < range.size(); ++a) range[a] = c_.batch[a] ? 1 : c_.extents[a];
    std::vector<bool> stepped(range.size(), false);  // cut by a loop inside the block
    std::vector<size_t> group(range.size(), 0);      // 1 + the group of that loop
    for (size_t i = 0; i < c_.tiled.size(); ++i) {
        const size_t a = c_.tiled[i];
        range[a] = c_.open[a] ? k.tiles[i] : std::min(k.tiles[i], c_.extents[a]);
    }
    const auto cut = [&](size_t i) { return c_.open[c_.tiled[i]] || k.tiles[i] < c_.extents[c_.tiled[i]]; };
    for (const size_t i : k.expression.nested) stepped[c_.tiled[i]] = cut(i);
    for (size_t g = 0; g < k.expression.groups.size(); ++g)
        for (const size_t i : k.expression.groups[g]) {
            stepped[c_.tiled[i]] = cut(i);
            if (cut(i)) group[c_.tiled[i]] = g + 1;
        }
    double always = 0;
    std::vector<double> of_group(k.expression.groups.size(), 0);
    for (const Tile& t : tiles_) {
        const bool steps = std::any_of(t.moves.begin(), t.moves.end(), [&](size_t a) { return stepped[a]; });
        const bool apart = std::any_of(t.moves.begin(), t.moves.end(), [&](size_t a) { return group[a] != 0; });
        std::vector<int64_t> points = shape(t, range);
        double bytes = t.element_bytes;
        if (!t.copied) {
            // A result that a group's loop computes in parts, and that is read after the loop: the whole of it is kept.
            if (apart && !t.given && !t.reader) {
                std::vector<int64_t> whole = range;
                for (const size_t a : t.moves)
                    if (group[a] != 0) whole[a] = c_.extents[a];
                points = shape(t, whole);
            } else if (t.given || kept(t, range)) {
                continue;
            }
        } else if (!points.empty()) {
            points.back() += kRoomOfRow / static_cast<int64_t>(t.element_bytes);
            if (steps) bytes *= 2;
        }
        for (const int64_t n : points) bytes *= static_cast<double>(n);
        size_t in = 0;
        if (t.copied)
            for (const size_t a : t.moves) in = std::max(in, group[a]);
        (in == 0 ? always : of_group[in - 1]) += bytes;
    }
    double most = 0;
    for (const double g : of_group) most = std::max(most, g);
    return always + most;
}

}  // namespace tilewright
