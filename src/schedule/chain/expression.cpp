#include "schedule/chain/expression.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "cost/stage_model.h"

namespace tilewright::chain {

namespace {

constexpr double kMostPadding = 0.05;
constexpr double kMargin = 1.2;     // rule 4: tolerated excess of the estimate
constexpr size_t kMostDeep = 5040;  // orders of seven axes; further axes follow in order of first use
constexpr double kMostCounted = 2e4;
constexpr int64_t kMostOpenTile = 256;

/// Positions in `tiled` of the axes of a product.
std::set<size_t> axes_of(const Chain& c, PrimitiveId product) {
    std::set<size_t> out;
    for (size_t i = 0; i < c.tiled.size(); ++i)
        if (std::find(c.stage_axes[product].begin(), c.stage_axes[product].end(), c.tiled[i]) !=
            c.stage_axes[product].end())
            out.insert(i);
    return out;
}

void permutations(std::vector<size_t> items, size_t most, const std::function<void(const std::vector<size_t>&)>& f) {
    std::sort(items.begin(), items.end());
    size_t n = 0;
    do f(items);
    while (++n < most && std::next_permutation(items.begin(), items.end()));
}

}  // namespace

std::string print(const TilingExpression& e, const std::vector<std::string>& names) {
    std::string s;
    for (const size_t i : e.nested) s += names[i];
    if (e.groups.empty()) return s;
    s += '(';
    for (size_t g = 0; g < e.groups.size(); ++g) {
        if (g > 0) s += ',';
        for (const size_t i : e.groups[g]) s += names[i];
    }
    return s + ")";
}

std::vector<TilingExpression> all_expressions(const Chain& c) {
    std::vector<TilingExpression> out;
    std::vector<size_t> all(c.tiled.size());
    std::iota(all.begin(), all.end(), size_t{0});
    permutations(all, kMostDeep, [&](const std::vector<size_t>& order) { out.push_back({order, {}}); });
    // Flat: axes of a single product go into its group.
    std::vector<PrimitiveId> links = c.products;
    if (links.size() == 1)
        for (const PrimitiveId s : c.stages.primitives.ids())
            if (s != links[0]) links.push_back(s);
    std::vector<int> products(c.tiled.size(), 0);
    for (const PrimitiveId p : links)
        for (const size_t i : axes_of(c, p)) ++products[i];
    std::vector<size_t> shared;
    for (const size_t i : all)
        if (products[i] > 1) shared.push_back(i);
    std::vector<std::vector<std::vector<size_t>>> groups{{}};
    for (const PrimitiveId p : c.products) {
        std::vector<size_t> own;
        for (const size_t i : axes_of(c, p))
            if (products[i] == 1) own.push_back(i);
        if (own.empty()) continue;
        std::vector<std::vector<std::vector<size_t>>> next;
        permutations(own, kMostDeep, [&](const std::vector<size_t>& order) {
            for (auto g : groups) {
                g.push_back(order);
                next.push_back(std::move(g));
            }
        });
        groups = std::move(next);
    }
    if (groups[0].size() > 1 || (c.products.size() == 1 && !groups[0].empty()))
        permutations(shared, kMostDeep, [&](const std::vector<size_t>& order) {
            for (const auto& g : groups) out.push_back({order, g});
        });
    return out;
}

TilingExpression block_expression(const Chain& c, const TilingExpression& e) {
    TilingExpression out;
    for (const size_t i : e.nested)
        if (c.reduced[c.tiled[i]]) out.nested.push_back(i);
    out.groups = e.groups;
    return out;
}

bool keeps_many_tiles(const Chain& c, const TilingExpression& e) {
    // The reduction loops of every product but the last stand inside the loops over its result.
    for (size_t p = 0; p + 1 < c.products.size(); ++p) {
        const TensorExpr& expr = *c.stages.primitives[c.products[p]].expr();
        const std::vector<size_t>& axes = c.stage_axes[c.products[p]];
        const auto spatial = std::span(axes).first(expr.spatial), sums = std::span(axes).subspan(expr.spatial);
        const auto in = [&](std::span<const size_t> set, size_t i) {
            return std::find(set.begin(), set.end(), c.tiled[i]) != set.end();
        };
        bool sum_before = false;
        for (const size_t i : e.nested) {
            if (in(sums, i)) sum_before = true;
            if (sum_before && in(spatial, i)) return true;
        }
    }
    return false;
}

std::vector<int64_t> tile_sizes(int64_t extent, int64_t unit) {
    std::vector<int64_t> out;
    const bool power = (extent & (extent - 1)) == 0;
    for (int64_t t = unit; t < extent; t += unit) {
        const int64_t covered = (extent + t - 1) / t * t;
        const double padding = static_cast<double>(covered - extent) / static_cast<double>(extent);
        if (power ? covered == extent : padding < kMostPadding) out.push_back(t);
    }
    out.push_back(extent);
    return out;
}

std::vector<int64_t> open_tile_sizes(int64_t unit) {
    std::vector<int64_t> out;
    for (int64_t t = unit; t <= kMostOpenTile; t *= 2) out.push_back(t);
    return out;
}

TileBytes::TileBytes(const Chain& c) : extents_(c.extents), open_(c.open), batch_(c.batch), tiled_(c.tiled) {
    std::set<ValueId> counted;
    for (const PrimitiveId s : c.stages.primitives.ids()) {
        const Primitive& stage = c.stages.primitives[s];
        const auto count = [&](ValueId v, const std::vector<Expr>& index) {
            if (!counted.insert(v).second) return;
            Value value;
            value.element_bytes = static_cast<double>(byte_size(c.stages.values[v].dtype));
            for (const Expr& i : index) value.reach.emplace_back(i, 0);
            value.axes = c.stage_axes[s];
            values_.push_back(std::move(value));
        };
        for (const Access& a : stage.expr()->accesses) count(a.value, a.index);
        count(stage.outputs[0], result_index(*stage.expr()));
    }
}

double TileBytes::operator()(const std::vector<int64_t>& tiles) const {
    std::vector<int64_t> range(extents_.size());
    for (size_t a = 0; a < range.size(); ++a) range[a] = batch_[a] ? 1 : extents_[a];
    for (size_t i = 0; i < tiled_.size(); ++i)
        range[tiled_[i]] = open_[tiled_[i]] ? tiles[i] : std::min(tiles[i], extents_[tiled_[i]]);
    double bytes = 0;
    std::vector<int64_t> tile;
    for (const Value& v : values_) {
        tile.clear();
        for (const size_t a : v.axes) tile.push_back(range[a]);
        double n = v.element_bytes;
        for (const IndexReach& r : v.reach) n *= static_cast<double>(r.over(tile) + 1);
        bytes += n;
    }
    return bytes;
}

namespace {

/// The space, and the numbers of expressions in `counts`.
Space pruned_space(const Chain& c, SpaceCounts& counts) {
    Space space;
    const std::vector<TilingExpression> all = all_expressions(c);
    counts.expressions = all.size();
    std::set<TilingExpression> blocks;
    for (const TilingExpression& e : all)
        if (blocks.insert(block_expression(c, e)).second) space.expressions.push_back(block_expression(c, e));
    counts.after_rule_1 = space.expressions.size();
    std::erase_if(space.expressions, [&](const TilingExpression& e) { return keeps_many_tiles(c, e); });
    counts.after_rule_2 = space.expressions.size();
    for (const size_t a : c.tiled) space.sizes.push_back(c.open[a] ? open_tile_sizes() : tile_sizes(c.extents[a]));
    return space;
}

}  // namespace

Space make_space(const Chain& c) {
    SpaceCounts counts;
    return pruned_space(c, counts);
}

SpaceCounts count_space(const Chain& c, double capacity) {
    SpaceCounts n;
    const Space space = pruned_space(c, n);
    double tiles = 1, kept = 1;
    for (size_t i = 0; i < c.tiled.size(); ++i) {
        tiles *= static_cast<double>((c.extents[c.tiled[i]] + 15) / 16);
        kept *= static_cast<double>(space.sizes[i].size());
    }
    n.all = static_cast<double>(n.expressions) * tiles;
    n.rule_1 = static_cast<double>(n.after_rule_1) * tiles;
    n.rule_2 = static_cast<double>(n.after_rule_2) * tiles;
    n.rule_3 = static_cast<double>(n.after_rule_2) * kept;
    const TileBytes bytes(c);
    double fitting = 0;
    const auto counted = static_cast<uint64_t>(std::min(kept, kMostCounted));
    for (uint64_t k = 0; k < counted; ++k) {
        // All choices, or evenly spread ones: `number` is a choice in the mixed radix of the tile sizes.
        auto number = static_cast<uint64_t>(static_cast<double>(k) * (kept / static_cast<double>(counted)));
        std::vector<int64_t> choice;
        for (const auto& sizes : space.sizes) {
            choice.push_back(sizes[number % sizes.size()]);
            number /= sizes.size();
        }
        if (bytes(choice) <= kMargin * capacity) ++fitting;
    }
    n.rule_4 = n.rule_3 * fitting / static_cast<double>(std::max<uint64_t>(1, counted));
    return n;
}

}  // namespace tilewright::chain
