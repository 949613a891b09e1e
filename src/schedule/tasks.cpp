#include "schedule/tasks.h"

#include <algorithm>
#include <cmath>

#include "base/numbers.h"
#include "cost/cache_sets.h"
#include "cost/estimate.h"
#include "program/analysis/access.h"
#include "schedule/boxes.h"
#include "schedule/default/steps.h"

namespace tilewright {

namespace {

constexpr int64_t kSummedBytes = 16 * 1024;  // of partial sums: half of L1
constexpr double kWorthSharing = 4000;       // cycles of a stage; shorter ones are not split among threads
constexpr double kLargeTask = 16000;         // cycles of a task from which many more tasks are allowed
/// Of a task, along the axis that a copy or vectors read contiguously, where its extent is dynamic. 3 channels of 2048
/// x 2048 pixels, windows of 3 x 3 with step 2: 30 ms with rows of 48, 24 of 128, 21 of 256 (Zen 2).
constexpr int64_t kRunPoints = 256;
constexpr int64_t kMostRows = 4096;  // of a block where the number of rows is dynamic

class TaskCutter {
  public:
    TaskCutter(const Program& stages, const StageChoice& choice, const Target& target)
        : stages_(stages),
          e_(*stages.primitives[PrimitiveId(0)].expr()),
          choice_(choice),
          target_(target),
          vector_(choice.micro.vector_axis.value_or(e_.extents.size())),
          loads_(choice.loads),
          split_(e_.extents.size(), false) {
        double points = 1;
        for (const Expr& x : e_.extents) {
            inside_.push_back(guessed_extent(stages, x));
            points *= static_cast<double>(inside_.back());
        }
        work_ = points * (0.5 + 0.5 * static_cast<double>(e_.body.nodes().size())) /
                (vector_ < e_.extents.size() ? target.micro_lanes() : 1);
        wanted_ = work_ < kWorthSharing || target.tasks_at_a_time() == 1 ? 1 : target.tasks_at_a_time() * 4;
    }

    Tasks run() {
        if (!choice_.right_blocks.empty()) return packed_tasks();
        fit_loads();
        const bool panels = choice_.contraction && loads_.empty() && vector_ < e_.spatial;
        if (panels && choice_.keeps_left)
            panels_first_ = true;
        else if (panels)
            fit_panels();
        cut_for_threads();
        if (choice_.summed_rows)
            while (inside_[vector_] * 4 > kSummedBytes && halve(vector_)) continue;
        // The grid has the axes in order. Panels are outermost where rows are streamed, or where each thread reads only
        // its own panels.
        Tasks out;
        if (rows_streamed_ || (panels_first_ && !choice_.keeps_left)) out.grid = panel_axes_;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (std::find(out.grid.begin(), out.grid.end(), a) == out.grid.end()) out.grid.push_back(a);
        std::erase_if(out.grid, [&](size_t a) { return !split_[a]; });
        out.inside = std::move(inside_);
        out.loads = std::move(loads_);
        return out;
    }

  private:
    bool known(size_t a) const { return e_.extents[a].is_constant(); }
    int64_t extent(size_t a) const { return guessed_extent(stages_, e_.extents[a]); }
    int64_t unit(size_t a) const { return std::max<int64_t>(1, choice_.micro.registers[a]); }

    bool halve(size_t a) {
        // In sums down columns, one thread reads a page of a row to its end.
        const bool page = choice_.summed_rows && a == vector_;
        const int64_t least = page ? (kPageBytes / 4 + unit(a) - 1) / unit(a) * unit(a) : unit(a);
        const int64_t next = std::max<int64_t>(least, (inside_[a] / 2 + unit(a) - 1) / unit(a) * unit(a));
        const bool smaller = next < inside_[a];
        inside_[a] = next;
        split_[a] = split_[a] || smaller;
        return smaller;
    }

    /// Whether a copy reads memory along the axis.
    bool runs_along(size_t a) const {
        return std::any_of(loads_.begin(), loads_.end(), [&](size_t i) {
            const std::vector<Expr>& index = e_.accesses[i].index;
            return !index.empty() && uses(index.back(), {VarKind::Axis, static_cast<uint32_t>(a)});
        });
    }

    /// Splits axes so that copies have boxes of constant size that fit: first every dynamic axis that moves them (rows
    /// that share packed data stay together), then rows until they fit.
    void fit_loads() {
        for (size_t a = e_.spatial; a < e_.extents.size(); ++a)
            if (!known(a)) loads_.clear();
        if (loads_.empty()) return;
        const auto bytes = [&] {
            int64_t sum = 0;
            for (const size_t i : loads_) sum += box_bytes(stages_, e_.accesses[i], inside_);
            return sum;
        };
        const auto moves = [&](size_t a) {
            return std::any_of(loads_.begin(), loads_.end(),
                               [&](size_t i) { return index_uses(e_.accesses[i].index, a); });
        };
        // Batch items, whose copies share nothing, are separate tasks.
        for (size_t a = 0; a < e_.spatial; ++a)
            if (!known(a) && moves(a)) {
                const bool item = unit(a) == 1 && !slides(stages_, e_, a);
                const int64_t blocks = runs_along(a) ? std::max<int64_t>(8, ceil_of(kRunPoints, unit(a))) : 8;
                const int64_t several = item ? 1 : unit(a) * blocks;
                inside_[a] = a == vector_ ? std::max<int64_t>(unit(a), kRunPoints / unit(a) * unit(a)) : several;
                split_[a] = true;
            }
        const int64_t limit = target_.task_bytes() * 2 / 5;
        for (size_t a = 0; a < e_.spatial; ++a)
            while (a != vector_ && moves(a) && bytes() > limit && halve(a)) continue;
        while (vector_ < e_.extents.size() && bytes() > limit && halve(vector_)) continue;
        if (bytes() > limit * 4) loads_.clear();
    }

    /// Tasks that pack blocks of both factors: a block of columns is packed for the rows of the task, one of rows for
    /// its columns. Rows are split first, which dynamic columns leave balanced.
    Tasks packed_tasks() {
        constexpr int64_t kLeastRows = 96, kDynamicColumns = 256;
        Tasks out;
        if (wanted_ <= 1) {
            out.inside = std::move(inside_);
            return out;
        }
        int64_t missing = target_.tasks_at_a_time();
        for (size_t a = 0; a < e_.spatial; ++a) {
            if (a == vector_) continue;
            const int64_t parts = known(a) ? std::clamp<int64_t>(inside_[a] / kLeastRows, 1, missing) : 1;
            if (unit(a) == 1)
                inside_[a] = 1;  // an item of a batch
            else if (!known(a))
                inside_[a] = ceil_of(kKeptRows, unit(a)) * unit(a);
            else
                inside_[a] = ceil_of(ceil_of(inside_[a], parts), unit(a)) * unit(a);
            if (known(a)) missing = ceil_of(missing, ceil_of(extent(a), inside_[a]));
        }
        if (missing > 1) {
            const int64_t block = unit(vector_) * kPackedPanels;
            const int64_t columns = known(vector_) ? ceil_of(extent(vector_), 2 * missing) : kDynamicColumns;
            inside_[vector_] = ceil_of(columns, block) * block;
        }
        for (size_t a = 0; a < e_.spatial; ++a)
            if (known(a) ? inside_[a] < extent(a) : a != vector_ || missing > 1) out.grid.push_back(a);
        out.inside = std::move(inside_);
        return out;
    }

    bool is_row(size_t a) const { return std::find(rows_.begin(), rows_.end(), a) != rows_.end(); }
    bool is_weight(const Access& x) const {
        bool summed = false;
        for (size_t r = e_.spatial; r < e_.extents.size(); ++r) summed = summed || index_uses(x.index, r);
        return summed && index_uses(x.index, vector_);
    }
    double row_bytes() const {
        int64_t bytes = 0;
        for (const Access& x : e_.accesses)
            if (!index_uses(x.index, vector_)) bytes += box_bytes(stages_, x, inside_);
        return static_cast<double>(bytes);
    }
    double weight_bytes() const {
        int64_t bytes = 0;
        for (const Access& x : e_.accesses)
            if (is_weight(x)) bytes += box_bytes(stages_, x, inside_);
        return static_cast<double>(bytes);
    }
    /// Of results, and of what their epilogues read beside them.
    double result_bytes() const {
        int64_t bytes = byte_size(stages_.values[stages_.primitives[PrimitiveId(0)].outputs[0]].dtype);
        for (size_t a = 0; a < e_.spatial; ++a) bytes *= inside_[a];
        for (const Access& x : e_.accesses)
            if (index_uses(x.index, vector_) && !is_weight(x)) bytes += box_bytes(stages_, x, inside_);
        return static_cast<double>(bytes);
    }
    double blocks(const std::vector<size_t>& axes, const std::vector<int64_t>& all) const {
        double n = 1;
        for (const size_t a : axes) n *= std::ceil(static_cast<double>(all[a]) / static_cast<double>(inside_[a]));
        return n;
    }

    /// Splits panels and rows; loops over panels are outside of rows. Where all rows of the broadcast operand stay in
    /// L2, threads split the panels: each reads all rows, and its own weights once. Otherwise one operand stays
    /// resident in L2 by blocks while the other is streamed again for every block. The operand with less total traffic
    /// is streamed; with a dynamic number of rows the rows are, because tasks then split over panels. (A single thread
    /// needs no tasks. A loop whose every step reads the same weights still has them, to run them in alternating order:
    /// executor.cpp.)
    void fit_panels() {
        for (size_t a = 0; a < e_.spatial; ++a) {
            if (a == vector_) continue;
            const bool row = std::any_of(e_.accesses.begin(), e_.accesses.end(), [&](const Access& x) {
                return index_uses(x.index, a) && !index_uses(x.index, vector_);
            });
            (row ? rows_ : panel_axes_).push_back(a);
        }
        panel_axes_.push_back(vector_);
        const bool several = inside_[vector_] > unit(vector_);
        // Dynamic rows: blocks of as many as fit, one batch item at a time.
        bool dynamic = false;
        for (const size_t a : rows_)
            if (several && !known(a)) {
                const bool item = unit(a) == 1 && rows_.size() > 1 && a != rows_.back();
                inside_[a] = item ? 1 : kMostRows / unit(a) * unit(a);
                dynamic = split_[a] = true;
            }
        const auto l2 = static_cast<double>(target_.task_bytes());
        if (!dynamic && several && cut_streams(l2)) return;
        panels_first_ = !dynamic && row_bytes() <= l2 / 2;
        if (!several || panels_first_) return;
        const std::vector<int64_t> all = inside_;
        const double rows_read = row_bytes(), weights_read = weight_bytes();
        for (const size_t a : rows_)
            while (row_bytes() > l2 * 2 / 5 && (unit(a) == 1 || inside_[a] > 4 * unit(a)) && halve(a)) continue;
        // Batch items have separate panels.
        for (const Access& x : e_.accesses)
            for (const size_t a : rows_)
                if (is_weight(x) && index_uses(x.index, a)) return;
        if (!dynamic && rows_stay(rows_read, weights_read, all)) {
            inside_ = all;
            for (const size_t a : rows_) split_[a] = false;
            panels_first_ = true;
            return;
        }
        panels_first_ = weights_read > l2 / 4;  // blocks of rows stay large, since each reads all weights
        for (const size_t a : panel_axes_)
            while (weight_bytes() > l2 / 4 && halve(a)) continue;
        const double panels = blocks(panel_axes_, all), row_blocks = blocks(rows_, all);
        rows_streamed_ =
            dynamic || (panels > 1 && rows_read * panels + weights_read < rows_read + weights_read * row_blocks);
        for (const size_t a : panel_axes_)
            if (!rows_streamed_) {
                inside_[a] = all[a];
                split_[a] = false;
            }
    }

    /// Where L2 holds all weights but not what the rows read and write, rows are computed in blocks, so that memory is
    /// read and written line by line instead of in pieces as wide as a panel. Only weights of all rows count.
    ///     3136 x 256 sums of 64 terms, added to a tensor, one thread: 0.95 ms, in blocks of 56 rows 0.69 (Intel Xeon
    ///     6/207); the same without that tensor 0.71 and 0.61
    /// Not measured on tile registers.
    bool cut_streams(double l2) {
        if (target_.gpu || (choice_.micro.matrix && choice_.micro.matrix->tile())) return false;
        for (const Access& x : e_.accesses)
            for (const size_t a : rows_)
                if (is_weight(x) && index_uses(x.index, a)) return false;
        if (weight_bytes() > l2 / 2 || row_bytes() + result_bytes() <= l2) return false;
        for (const size_t a : rows_)
            while (row_bytes() + result_bytes() > l2 / 8 && inside_[a] > 2 * unit(a) && halve(a)) continue;
        return true;
    }

    /// Whether the rows' operand, whole, exceeds L2 by so little that reading again what does not fit, for every panel
    /// of weights, takes less time than reading all weights again, for every block of rows. A cache that replaces the
    /// oldest lines loses twice what does not fit; L3, where these lines are, is twice as fast as memory.
    ///     128 rows of 12 KB and panels of 384 KB in 2 MB: nothing for each of 24 panels, or 9.4 MB for a second block
    bool rows_stay(double rows_read, double weights_read, const std::vector<int64_t>& all) const {
        double panels = 1;
        for (const size_t a : panel_axes_)
            panels *= std::ceil(static_cast<double>(all[a]) / static_cast<double>(unit(a)));
        const double beyond = rows_read + weights_read / panels - static_cast<double>(target_.task_bytes());
        const double again = 2 * std::max(0.0, beyond);
        return again <= rows_read && again * panels <= 2 * weights_read * (blocks(rows_, all) - 1);
    }

    /// The grid over axes of constant extent.
    std::vector<TaskAxis> known_grid(const std::vector<int64_t>& inside) const {
        std::vector<TaskAxis> grid;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (known(a)) grid.push_back({extent(a), inside[a]});
        return grid;
    }
    double tasks() const { return task_count(known_grid(inside_)); }

    void cut_for_threads() {
        std::vector<size_t> order;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (a != vector_) order.push_back(a);
        if (vector_ < e_.spatial) order.insert(panels_first_ ? order.begin() : order.end(), vector_);
        if (rows_streamed_) std::stable_partition(order.begin(), order.end(), [&](size_t a) { return !is_row(a); });
        const std::vector<int64_t> most = inside_;
        if (choice_.shared && wanted_ > 1) {
            const size_t a = *choice_.shared;
            if (!known(a)) {  // dynamic: split as finely as possible
                inside_[a] = (choice_.contraction ? 4 : 2) * unit(a);
                split_[a] = true;
                return;
            }
            while (tasks() < static_cast<double>(wanted_) && halve(a)) continue;
        }
        for (const size_t a : order)
            while (known(a) && tasks() < static_cast<double>(wanted_) && halve(a)) continue;
        if (wanted_ > 1 && tasks() > 1) balance(order, most);
        if (target_.tasks_at_a_time() > 1 && tasks() < static_cast<double>(wanted_) && work_ >= kWorthSharing)
            cut_dynamic(order);
    }

    /// Rebalances tasks that threads cannot share evenly, as rounded halves may be (36 points of a transform, halved:
    /// nine tasks of four). Among the lengths of one axis with about as many tasks, it takes the one with the least
    /// work for the slowest thread. Many more tasks are allowed only if each is long enough.
    void balance(const std::vector<size_t>& order, const std::vector<int64_t>& most) {
        struct Cut {
            size_t axis;
            int64_t length;
            double slowest, off;
            bool allowed;
        };
        const auto wanted = static_cast<double>(wanted_);
        const auto evaluate = [&](size_t a, int64_t length) {
            std::vector<int64_t> inside = inside_;
            inside[a] = length;
            const std::vector<TaskAxis> grid = known_grid(inside);
            const double n = task_count(grid);
            const double far = work_ >= kLargeTask * n ? 4 : 2;
            return Cut{a, length, slowest_share(grid, target_.tasks_at_a_time()), std::max(n / wanted, wanted / n),
                       n >= wanted / 2 && n <= wanted * far};
        };
        std::optional<Cut> best;
        double least = evaluate(order[0], inside_[order[0]]).slowest;
        for (const size_t a : order) {
            const bool whole = inside_[a] >= extent(a);
            // Packed data of a task serves all of it.
            if (!known(a) || (whole && !loads_.empty()) || (choice_.summed_rows && a == vector_)) continue;
            for (int64_t count = 1; count <= 4 * wanted_; ++count)
                for (const int64_t up : {unit(a) - 1, int64_t{0}}) {
                    const int64_t length = ((extent(a) + count - 1) / count + up) / unit(a) * unit(a);
                    if (length < unit(a) || length > most[a]) continue;
                    const Cut cut = evaluate(a, length);
                    const bool nearer = best && best->axis == a && cut.off < best->off;
                    if (!cut.allowed || cut.slowest > least * (nearer ? 1.01 : whole ? 0.97 : 0.99)) continue;
                    best = cut;
                    least = std::min(least, cut.slowest);
                }
        }
        if (!best) return;
        inside_[best->axis] = best->length;
        split_[best->axis] = best->length < extent(best->axis);
    }

    /// Splits dynamic axes where the others give too few tasks, as long as a task is worth its dispatch.
    void cut_dynamic(const std::vector<size_t>& order) {
        const auto task_work = [&] {
            double w = work_;
            for (size_t a = 0; a < e_.spatial; ++a)
                w *= static_cast<double>(inside_[a]) / static_cast<double>(extent(a));
            return w;
        };
        for (const size_t a : order) {
            if (known(a) || split_[a]) continue;
            // Rows that share packed data stay together, unless no other axis gives enough tasks.
            if (!loads_.empty() && tasks() >= target_.tasks_at_a_time()) continue;
            inside_[a] = std::max<int64_t>(unit(a), inside_[a] / 8 / unit(a) * unit(a));
            split_[a] = true;
            while (task_work() > (choice_.contraction ? 64000 : 8000) && halve(a)) continue;
        }
    }

    const Program& stages_;
    const TensorExpr& e_;
    const StageChoice& choice_;
    const Target& target_;
    const size_t vector_;  ///< the number of axes if there is no vector axis
    std::vector<size_t> loads_;
    std::vector<int64_t> inside_;
    std::vector<bool> split_;
    double work_ = 0;                 ///< estimated cycles on one thread
    int64_t wanted_ = 1;              ///< intended number of tasks
    std::vector<size_t> rows_;        ///< of a product: axes of the broadcast operand
    std::vector<size_t> panel_axes_;  ///< axes that do not move rows, the vector axis last
    bool panels_first_ = false;       ///< threads split panels before rows
    bool rows_streamed_ = false;      ///< panels are outermost in the grid
};

}  // namespace

Tasks cut_tasks(const Program& stages, const StageChoice& choice, const Target& target) {
    return TaskCutter(stages, choice, target).run();
}

}  // namespace tilewright
