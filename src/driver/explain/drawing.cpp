#include "driver/explain/drawing.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tilewright::explain {

namespace {

constexpr double kGapX = 14;
constexpr int kSweeps = 6;

class Layers {
  public:
    Layers(const std::vector<Box>& boxes, const std::vector<std::pair<size_t, size_t>>& edges, double gap)
        : edges_(edges), given_(boxes.size()), gap_(gap), size_(boxes) {}

    Drawing run() {
        find_layers();
        add_points();
        order();
        place();
        return drawing();
    }

  private:
    void find_layers() {
        std::vector<std::vector<size_t>> readers(given_);
        std::vector<size_t> waits(given_, 0), ready;
        for (const auto& [from, to] : edges_) {
            readers[from].push_back(to);
            ++waits[to];
        }
        layer_.assign(given_, 0);
        for (size_t b = 0; b < given_; ++b)
            if (waits[b] == 0) ready.push_back(b);
        std::vector<bool> reads(given_, false);
        size_t done = 0;
        for (; done < ready.size(); ++done)
            for (const size_t r : readers[ready[done]]) {
                layer_[r] = std::max(layer_[r], layer_[ready[done]] + 1);
                reads[r] = true;
                if (--waits[r] == 0) ready.push_back(r);
            }
        TW_CHECK(done == given_, "the graph has a cycle");
        // A box without predecessors is placed in the layer before its first reader.
        for (size_t b = 0; b < given_; ++b) {
            if (reads[b] || readers[b].empty()) continue;
            size_t first = SIZE_MAX;
            for (const size_t r : readers[b]) first = std::min(first, layer_[r]);
            layer_[b] = first - 1;
        }
    }

    /// Adds points where edges pass layers. `down_`: edges between neighbouring layers, of boxes and points.
    void add_points() {
        std::vector<size_t> farthest(layer_.begin(), layer_.end());
        for (const auto& [from, to] : edges_) farthest[from] = std::max(farthest[from], layer_[to]);
        std::vector<std::vector<size_t>> passes(given_);  // per box: its point in each layer that it passes
        for (size_t b = 0; b < given_; ++b)
            for (size_t l = layer_[b] + 1; l < farthest[b]; ++l) {
                passes[b].push_back(size_.size());
                size_.push_back({2, 0});
                layer_.push_back(l);
            }
        down_.resize(size_.size());
        up_.resize(size_.size());
        for (size_t b = 0; b < given_; ++b)
            for (size_t i = 0; i < passes[b].size(); ++i) link(i == 0 ? b : passes[b][i - 1], passes[b][i]);
        for (const auto& [from, to] : edges_) {
            const size_t between = layer_[to] - layer_[from] - 1;
            through_.emplace_back(passes[from].begin(), passes[from].begin() + static_cast<std::ptrdiff_t>(between));
            link(between == 0 ? from : passes[from][between - 1], to);
        }
    }
    void link(size_t from, size_t to) {
        down_[from].push_back(to);
        up_[to].push_back(from);
    }

    void order() {
        const size_t layers = layer_.empty() ? 0 : *std::max_element(layer_.begin(), layer_.end()) + 1;
        rows_.resize(layers);
        for (size_t b = 0; b < layer_.size(); ++b) rows_[layer_[b]].push_back(b);
        position_.assign(layer_.size(), 0);
        for (auto& row : rows_) number(row);
        for (int sweep = 0; sweep < kSweeps; ++sweep) {
            for (size_t l = 1; l < layers; ++l) sort(rows_[l], up_);
            for (size_t l = layers; l-- > 1;) sort(rows_[l - 1], down_);
        }
    }
    void number(const std::vector<size_t>& row) {
        for (size_t i = 0; i < row.size(); ++i) position_[row[i]] = static_cast<double>(i);
    }
    void sort(std::vector<size_t>& row, const std::vector<std::vector<size_t>>& neighbours) {
        std::vector<double> wish(row.size());
        for (size_t i = 0; i < row.size(); ++i) wish[i] = mean(position_, neighbours[row[i]], position_[row[i]]);
        std::vector<size_t> by(row.size());
        std::iota(by.begin(), by.end(), size_t{0});
        std::stable_sort(by.begin(), by.end(), [&](size_t a, size_t b) { return wish[a] < wish[b]; });
        std::vector<size_t> sorted;
        for (const size_t i : by) sorted.push_back(row[i]);
        row = std::move(sorted);
        number(row);
    }
    static double mean(const std::vector<double>& of, const std::vector<size_t>& which, double otherwise) {
        if (which.empty()) return otherwise;
        double sum = 0;
        for (const size_t i : which) sum += of[i];
        return sum / static_cast<double>(which.size());
    }

    /// Sets the centres of boxes and points.
    void place() {
        x_.assign(layer_.size(), 0);
        for (const auto& row : rows_) {
            double at = 0;
            for (const size_t b : row) {
                x_[b] = at + size_[b].width / 2;
                at += size_[b].width + kGapX;
            }
            for (const size_t b : row) x_[b] -= at / 2;
        }
        for (int sweep = 0; sweep < kSweeps; ++sweep) {
            for (size_t l = 1; l < rows_.size(); ++l) settle(rows_[l], up_);
            for (size_t l = rows_.size(); l-- > 1;) settle(rows_[l - 1], down_);
        }
    }

    /// Moves a row to the mean position of its neighbours, in this order and without overlaps. The result is the mean
    /// of two placements, which resolve overlaps by pushing boxes to the right and to the left.
    void settle(const std::vector<size_t>& row, const std::vector<std::vector<size_t>>& neighbours) {
        std::vector<double> right(row.size()), left(row.size());
        const auto apart = [&](size_t i) { return (size_[row[i]].width + size_[row[i + 1]].width) / 2 + kGapX; };
        for (size_t i = 0; i < row.size(); ++i) right[i] = left[i] = mean(x_, neighbours[row[i]], x_[row[i]]);
        for (size_t i = 1; i < row.size(); ++i) right[i] = std::max(right[i], right[i - 1] + apart(i - 1));
        for (size_t i = row.size(); i-- > 1;) left[i - 1] = std::min(left[i - 1], left[i] - apart(i - 1));
        for (size_t i = 0; i < row.size(); ++i) x_[row[i]] = (right[i] + left[i]) / 2;
    }

    Drawing drawing() const {
        Drawing out;
        double least = 0, most = 0;
        for (size_t b = 0; b < size_.size(); ++b) {
            least = b == 0 ? x_[b] - size_[b].width / 2 : std::min(least, x_[b] - size_[b].width / 2);
            most = std::max(most, x_[b] + size_[b].width / 2);
        }
        std::vector<double> top;
        double y = 0;
        for (const auto& row : rows_) {
            top.push_back(y);
            double height = 0;
            for (const size_t b : row) height = std::max(height, size_[b].height);
            y += height + gap_;
        }
        for (size_t b = 0; b < given_; ++b) out.boxes.push_back({x_[b] - size_[b].width / 2 - least, top[layer_[b]]});
        for (size_t e = 0; e < edges_.size(); ++e) {
            const auto& [from, to] = edges_[e];
            std::vector<Point> path = {{x_[from] - least, top[layer_[from]] + size_[from].height}};
            for (const size_t p : through_[e]) {
                const size_t l = layer_[p];
                path.push_back({x_[p] - least, top[l]});
                path.push_back({x_[p] - least, (l + 1 < top.size() ? top[l + 1] : y) - gap_});
            }
            path.push_back({x_[to] - least, top[layer_[to]]});
            out.edges.push_back(std::move(path));
        }
        out.size = {most - least, std::max(0.0, y - gap_)};
        return out;
    }

    const std::vector<std::pair<size_t, size_t>>& edges_;
    size_t given_;
    double gap_;
    std::vector<Box> size_;  ///< of boxes, then of points
    std::vector<size_t> layer_;
    std::vector<std::vector<size_t>> down_, up_, through_, rows_;
    std::vector<double> position_, x_;
};

}  // namespace

Drawing draw_layers(const std::vector<Box>& boxes, const std::vector<std::pair<size_t, size_t>>& edges, double gap) {
    return Layers(boxes, edges, gap).run();
}

}  // namespace tilewright::explain
