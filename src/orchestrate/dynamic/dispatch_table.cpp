#include "orchestrate/dynamic/dispatch_table.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/parallel.h"

namespace tilewright::dynamic {

namespace {

constexpr int64_t kGridPoints = 256;       // about
constexpr size_t kMostGridPoints = 1'024;  // of grids over many symbols

class TableMaker {
  public:
    TableMaker(const std::vector<GridAxis>& grid, size_t ways, uint32_t otherwise,
               const std::function<double(uint32_t, const Bindings&)>& seconds)
        : grid_(grid), ways_(ways), otherwise_(otherwise), seconds_(seconds) {}

    uint32_t fastest(const Bindings& sizes) const {
        uint32_t best = otherwise_;
        double least = seconds_(otherwise_, sizes);
        for (uint32_t w = 0; w < ways_; ++w) {
            if (w == otherwise_) continue;
            if (const double t = seconds_(w, sizes); t < least * (1 - 1e-9)) {
                least = t;
                best = w;
            }
        }
        return best;
    }

    std::vector<uint32_t> table() const {
        size_t cells = 1;
        for (const GridAxis& a : grid_) cells *= a.sizes.size();
        std::vector<uint32_t> out(cells);
        std::vector<size_t> coarse, fine, open;
        for (size_t n = 0; n < cells; ++n) (is_coarse(n) ? coarse : fine).push_back(n);
        compare(coarse, out);
        for (const size_t n : fine) {
            if (const auto way = agreed(n, out))
                out[n] = *way;
            else
                open.push_back(n);
        }
        compare(open, out);
        return out;
    }

    /// The first size above `low` at which another way than at `low` is faster, if `high` has another one.
    int64_t crossing(int64_t low, int64_t high, uint32_t at_low) const {
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            (fastest({{grid_[0].symbol, middle}}) == at_low ? low : high) = middle;
        }
        return high;
    }

  private:
    bool is_coarse(size_t k, size_t at) const { return grid_[k].coarse.empty() || grid_[k].coarse[at]; }

    /// Per symbol, which of its sizes a point of the grid has.
    std::vector<size_t> coordinates(size_t point) const {
        std::vector<size_t> out(grid_.size());
        for (size_t k = grid_.size(); k-- > 0; point /= grid_[k].sizes.size()) out[k] = point % grid_[k].sizes.size();
        return out;
    }

    bool is_coarse(size_t point) const {
        const std::vector<size_t> at = coordinates(point);
        for (size_t k = 0; k < at.size(); ++k)
            if (!is_coarse(k, at[k])) return false;
        return true;
    }

    void compare(const std::vector<size_t>& points, std::vector<uint32_t>& out) const {
        parallel_for(points.size(), [&](size_t n) {
            const std::vector<size_t> at = coordinates(points[n]);
            Bindings sizes;
            for (size_t k = 0; k < at.size(); ++k) sizes.emplace(grid_[k].symbol, grid_[k].sizes[at[k]]);
            out[points[n]] = fastest(sizes);
        });
    }

    /// The way of all points of coarse sizes around this one; nothing if they differ.
    std::optional<uint32_t> agreed(size_t point, const std::vector<uint32_t>& ways) const {
        std::vector<size_t> around{0};
        const std::vector<size_t> at = coordinates(point);
        for (size_t k = 0; k < at.size(); ++k) {
            size_t low = at[k], high = at[k];
            while (!is_coarse(k, low)) --low;
            while (!is_coarse(k, high)) ++high;
            std::vector<size_t> next;
            for (const size_t n : around) {
                next.push_back(n * grid_[k].sizes.size() + low);
                if (high != low) next.push_back(n * grid_[k].sizes.size() + high);
            }
            around = std::move(next);
        }
        for (const size_t n : around)
            if (ways[n] != ways[around[0]]) return std::nullopt;
        return ways[around[0]];
    }

    const std::vector<GridAxis>& grid_;
    const size_t ways_;
    const uint32_t otherwise_;
    const std::function<double(uint32_t, const Bindings&)>& seconds_;
};

int64_t geometric_mean(int64_t a, int64_t b) {
    return std::clamp<int64_t>(std::llround(std::sqrt(static_cast<double>(a) * static_cast<double>(b))), a + 1, b);
}

/// Merges the cells of key `k` with equal neighbours throughout.
void merge_cells(Dispatch& d, size_t k) {
    size_t inner = 1, cells = d.cuts[k].size() + 1;
    for (size_t j = k + 1; j < d.cuts.size(); ++j) inner *= d.cuts[j].size() + 1;
    const size_t outer = d.table.size() / (cells * inner);
    const auto same = [&](size_t cell) {
        for (size_t o = 0; o < outer; ++o)
            for (size_t i = 0; i < inner; ++i)
                if (d.table[(o * cells + cell) * inner + i] != d.table[(o * cells + cell + 1) * inner + i])
                    return false;
        return true;
    };
    for (size_t cell = 0; cell + 1 < cells;) {
        if (!same(cell)) {
            ++cell;
            continue;
        }
        std::vector<uint32_t> table;
        for (size_t o = 0; o < outer; ++o)
            for (size_t c = 0; c < cells; ++c)
                for (size_t i = 0; i < inner && c != cell; ++i) table.push_back(d.table[(o * cells + c) * inner + i]);
        d.table = std::move(table);
        d.cuts[k].erase(d.cuts[k].begin() + static_cast<std::ptrdiff_t>(cell));
        --cells;
    }
}

size_t points(const std::vector<GridAxis>& grid) {
    size_t n = 1;
    for (const GridAxis& a : grid) n = std::min(n * a.sizes.size(), 2 * kMostGridPoints);
    return n;
}

/// Leaves out every second size between the first and the last one.
void thin(GridAxis& axis) {
    std::vector<int64_t> kept;
    for (size_t k = 0; k < axis.sizes.size(); ++k)
        if (k % 2 == 0 || k + 1 == axis.sizes.size()) kept.push_back(axis.sizes[k]);
    axis.sizes = std::move(kept);
}

/// Leaves out sizes until there are few points. If two sizes for each symbol are too many, the last symbols keep that
/// of the heaviest sample, and decide nothing.
void limit(std::vector<GridAxis>& grid, const std::vector<SizeSample>& samples) {
    const auto longest = [&] {
        return std::max_element(grid.begin(), grid.end(),
                                [](const auto& a, const auto& b) { return a.sizes.size() < b.sizes.size(); });
    };
    while (points(grid) > kMostGridPoints && longest()->sizes.size() > 2) thin(*longest());
    const auto heaviest = std::max_element(samples.begin(), samples.end(),
                                           [](const auto& a, const auto& b) { return a.weight < b.weight; });
    for (size_t k = grid.size(); k-- > 0 && points(grid) > kMostGridPoints;) {
        int64_t size = grid[k].sizes.front();
        if (heaviest != samples.end())
            if (const auto it = heaviest->sizes.find(grid[k].symbol); it != heaviest->sizes.end())
                size = std::max<int64_t>(1, it->second);
        grid[k].sizes = {size};
    }
}

void choose_coarse(GridAxis& axis, const std::vector<SizeSample>& samples) {
    axis.coarse.assign(axis.sizes.size(), false);
    for (const SizeSample& s : samples)
        if (const auto size = s.sizes.find(axis.symbol); size != s.sizes.end())
            if (const auto it = std::find(axis.sizes.begin(), axis.sizes.end(), std::max<int64_t>(1, size->second));
                it != axis.sizes.end())
                axis.coarse[static_cast<size_t>(it - axis.sizes.begin())] = true;
    axis.coarse.front() = axis.coarse.back() = true;
    for (size_t i = 1; i < axis.sizes.size(); ++i)
        if (!axis.coarse[i - 1]) axis.coarse[i] = true;
}

}  // namespace

std::vector<GridAxis> dispatch_grid(const std::vector<Var>& symbols, const std::vector<SizeSample>& samples,
                                    const std::map<Var, int64_t>& most) {
    std::vector<GridAxis> out;
    const double each =
        std::pow(static_cast<double>(kGridPoints), 1 / std::max<double>(1, static_cast<double>(symbols.size())));
    for (const Var v : symbols) {
        std::set<int64_t> sizes{1};
        for (const SizeSample& s : samples)
            if (const auto it = s.sizes.find(v); it != s.sizes.end()) sizes.insert(std::max<int64_t>(1, it->second));
        const auto bound = most.find(v);
        const int64_t last = bound != most.end() ? std::max<int64_t>(1, bound->second) : 4 * *sizes.rbegin();
        sizes.insert(last);
        const double octaves = std::log2(static_cast<double>(last)) + 1;
        const double step = std::max(0.5, octaves / std::max(2.0, std::min(each, 40.0)));
        for (int k = 0; k * step < octaves - 1; ++k) sizes.insert(std::llround(std::exp2(k * step)));
        out.push_back({v, {sizes.begin(), sizes.end()}});
    }
    limit(out, samples);
    for (GridAxis& axis : out) choose_coarse(axis, samples);
    return out;
}

Dispatch dispatch_table(const std::vector<GridAxis>& grid, std::vector<std::vector<Expr>> needs, uint32_t otherwise,
                        const std::function<double(uint32_t way, const Bindings& sizes)>& seconds) {
    const TableMaker maker(grid, needs.size(), otherwise, seconds);
    Dispatch d;
    d.table = maker.table();
    for (const GridAxis& a : grid) {
        d.keys.push_back(Expr::var(a.symbol));
        d.cuts.emplace_back();
        for (size_t k = 0; k + 1 < a.sizes.size(); ++k)
            d.cuts.back().push_back(geometric_mean(a.sizes[k], a.sizes[k + 1]));
    }
    if (grid.size() == 1)
        for (size_t k = 0; k + 1 < d.table.size(); ++k)
            if (d.table[k] != d.table[k + 1])
                d.cuts[0][k] = maker.crossing(grid[0].sizes[k], grid[0].sizes[k + 1], d.table[k]);
    d.needs = std::move(needs);
    d.otherwise = otherwise;
    for (size_t k = 0; k < grid.size(); ++k) merge_cells(d, k);
    // A key without cuts decides nothing.
    for (size_t k = d.keys.size(); k-- > 0;)
        if (d.cuts[k].empty()) {
            d.keys.erase(d.keys.begin() + static_cast<std::ptrdiff_t>(k));
            d.cuts.erase(d.cuts.begin() + static_cast<std::ptrdiff_t>(k));
        }
    TW_CHECK(d.faults().empty(), "{}", d.faults()[0]);
    return d;
}

}  // namespace tilewright::dynamic
