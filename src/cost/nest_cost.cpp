// The cycles of one Compute in its loops: arithmetic, and traffic into each cache level.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>

#include "base/numbers.h"
#include "cost/cache_sets.h"
#include "cost/estimate.h"
#include "tile/annotate/prefetch.h"
#include "tile/cuts.h"
#include "tile/register_tile.h"

namespace tilewright {

namespace {

constexpr double kClampedRows = 2;   // the cost of a tail of clamped rows, relative to a full tile
constexpr double kPageJump = 12;     // visible cycles of a page change in a stream from memory
constexpr double kNearPageJump = 4;  // the same for a stream from a cache
// Measured on Zen 5 (100 ns): pieces of 24 KB wait 177 ns each, rows of 64 or 256 bytes 8 ns.
constexpr double kStreamStart = 1.5;       // latencies of memory until prefetchers run ahead of a stream
constexpr double kWindowBytes = 12 << 10;  // of loads in flight: streams that are shorter begin together
constexpr double kMostStarts = 18;         // that many at most
constexpr double kStreamsInPage = 4;       // rows of one page, read alternately, that prefetchers follow as one stream
constexpr double kSegmentCycles = 8;       // cycles to skip an empty range between two cuts
constexpr double kTileSum = 2;             // cycles to read a vector of sums that tile registers have stored
constexpr double kResumedLoads = 2;        // cost of resuming a sum, in loads: the first step waits for them
constexpr double kEven = 1.5;              // lines in a set, relative to all sets': as good as spread over all
constexpr double kKept = 0.5;              // of a cache: tensors that are there when the next kernel reads them
constexpr double kSerialShare = 0.1;  // share of the other components' cycles that does not overlap with the bottleneck

/// Loops of the tree and of the micro-kernel as one list, outermost first.
struct Expanded {
    std::vector<Nest::Loop> loops;
    std::vector<std::vector<int64_t>> ranges;  ///< of every axis inside the first d loops
    std::vector<double> trips;                 ///< of loop d, averaged
    std::vector<Strip> strips;                 ///< of the register tile, in the order of the loops
    /// The number of strips, from the first, of which the tile inside the first d loops consists.
    std::vector<size_t> in_strips;

    /// The extents inside the first d loops, of one strip.
    std::vector<int64_t> tile(size_t d) const {
        std::vector<int64_t> out = ranges[d];
        for (size_t k = 0; k < in_strips[d]; ++k) out[strips[k].axis] /= strips[k].count;
        return out;
    }
};

/// Virtual threads of a micro-kernel along an axis with this extent (the emitter needs two whole tiles).
///     512 points, tiles of 64 in 4: strips of 16 that begin 128 points apart
std::optional<Strip> strip_of(const StageModel& s, const Micro& m, size_t a, int64_t extent) {
    const int64_t threads = a < m.virtual_threads.size() ? m.virtual_threads[a] : 1;
    const int64_t tile = a < m.registers.size() ? m.registers[a] : 1;
    const bool dynamic = a < s.dynamic.size() && s.dynamic[a];
    if (threads <= 1 || tile % threads != 0 || extent < 2 * tile || dynamic) return std::nullopt;
    return Strip{a, threads, extent / tile * (tile / threads)};
}

Expanded expand(const StageModel& s, const Nest& nest) {
    Expanded x;
    x.loops = nest.loops;
    const Micro& micro = *nest.micro;
    const auto tile = [&](size_t a) {
        return a < micro.registers.size() ? std::max<int64_t>(1, micro.registers[a]) : 1;
    };
    std::vector<size_t> order = micro.order;
    if (order.empty())
        for (size_t a = 0; a < s.extents.size(); ++a) order.push_back(a);
    for (const size_t a : order) x.loops.push_back({a, tile(a)});
    std::vector<int64_t> range = s.extents;
    x.ranges.push_back(range);
    x.in_strips.push_back(0);
    for (size_t d = 0; d < x.loops.size(); ++d) {
        const Nest::Loop& l = x.loops[d];
        const int64_t step = std::min(l.step, range[l.axis]);
        if (d >= nest.loops.size())  // of the micro-kernel
            if (const auto strip = strip_of(s, micro, l.axis, range[l.axis])) x.strips.push_back(*strip);
        x.in_strips.push_back(x.strips.size());
        x.trips.push_back(static_cast<double>(range[l.axis]) / static_cast<double>(std::max<int64_t>(1, step)));
        range[l.axis] = step;
        x.ranges.push_back(range);
    }
    return x;
}

/// The lengths of the ranges in which an axis is computed, with their counts: the steps of the loops around the
/// micro-kernel, cut again where conditions change. [0, 14) in steps of 8, padded by one at either side:
///     [0, 1) [1, 8) [8, 13) [13, 14)  ->  1 twice, 7, 5
std::map<int64_t, double> ranges_of(const StageModel& s, const Nest& nest, size_t a) {
    struct Piece {
        int64_t from, length;
    };
    constexpr size_t kMostPieces = 1 << 12;  // beyond that, most ranges are alike and cuts have little effect
    std::vector<Piece> pieces{{0, s.extents[a]}};
    std::map<int64_t, double> lengths{{s.extents[a], 1.0}};
    for (const Nest::Loop& l : nest.loops) {
        if (l.axis != a) continue;
        std::map<int64_t, double> next;
        for (const auto& [length, count] : lengths) {
            if (const int64_t steps = length / l.step; steps > 0) next[l.step] += count * static_cast<double>(steps);
            if (length % l.step > 0) next[length % l.step] += count;
        }
        lengths = std::move(next);
        std::vector<Piece> smaller;
        for (const Piece& p : pieces)
            for (int64_t at = 0; at < p.length && smaller.size() <= kMostPieces; at += l.step)
                smaller.push_back({p.from + at, std::min(l.step, p.length - at)});
        pieces = std::move(smaller);
    }
    if (s.cuts.empty() || s.cuts[a].empty() || pieces.size() > kMostPieces) return lengths;
    const bool vector = nest.micro->vector_axis == a;
    lengths.clear();
    for (const Piece& p : pieces) {
        int64_t from = p.from;
        for (int64_t cut : s.cuts[a]) {
            if (vector) cut = cut_beside_vectors(cut, s.extents[a], nest.micro->lanes);
            if (cut > from && cut < p.from + p.length) {
                lengths[cut - from] += 1;
                from = cut;
            }
        }
        lengths[p.from + p.length - from] += 1;
    }
    return lengths;
}

using Lengths = std::map<int64_t, double>;  ///< length of a range -> count

/// Tiles along an axis: points or vectors of each, and whether it is a tail.
using Tiles = std::map<std::pair<int64_t, bool>, double>;

/// Tiles of `step` points in units of `unit`. A tail of an extent that is unknown at compile time is computed in tiles
/// of `tail_sizes` (Tail::sizes); empty: every tail has its exact size.
Tiles tiles_of(const Lengths& ranges, int64_t step, int64_t unit, const std::vector<int64_t>& tail_sizes) {
    Tiles tiles;
    for (const auto& [length, count] : ranges) {
        if (const int64_t steps = length / step; steps > 0)
            tiles[{step / unit, false}] += count * static_cast<double>(steps);
        int64_t tail = ceil_of(length % step, unit);
        if (tail == 0) continue;
        if (tail_sizes.empty()) {
            tiles[{tail, true}] += count;
            continue;
        }
        const int64_t points = tail_step(tail, tail_sizes.back());
        for (; tail > 0; tail -= points)
            tiles[{*std::lower_bound(tail_sizes.begin(), tail_sizes.end(), std::min(tail, points)), true}] += count;
    }
    return tiles;
}

double count_of(const Lengths& ranges) {
    double n = 0;
    for (const auto& [length, count] : ranges) n += count;
    return n;
}

/// The arithmetic of one nest: all register tiles, full ones and tails.
class ComputeModel {
  public:
    ComputeModel(const StageModel& stage, const Nest& nest, const CycleRates& m)
        : s_(stage), nest_(nest), micro_(*nest.micro), m_(m), va_(micro_.vector_axis.value_or(stage.extents.size())) {
        const size_t n = s_.extents.size();
        looped_.assign(n, false);
        ranges_.reserve(n);
        for (size_t a = 0; a < n; ++a) ranges_.push_back(ranges_of(s_, nest_, a));
        for (const Nest::Loop& l : nest_.loops) looped_[l.axis] = true;
    }

    double cycles() {
        double entries = 1, segments = 1;  // calls of the micro-kernel, and code ranges per call
        for (size_t a = 0; a < s_.spatial; ++a)
            if (looped_[a] && !s_.cuts.empty()) segments *= static_cast<double>(s_.cuts[a].size() + 1);
        for (size_t a = 0; a < s_.extents.size(); ++a)
            if (looped_[a]) entries *= count_of(ranges_[a]);
        double steps = 1, invocations = 1;
        for (size_t a = s_.spatial; a < s_.extents.size(); ++a) {
            double points = 0;
            for (const auto& [length, count] : ranges_[a])
                points += count * static_cast<double>(a == va_ ? ceil_of(length, micro_.lanes) : length);
            invocations *= count_of(ranges_[a]);
            steps *= points / count_of(ranges_[a]);
        }
        double total = all_tiles(steps, invocations);
        if (segments > 1) total += entries * segments * kSegmentCycles;
        total += entries * nest_.entry_cycles;
        // A resumed sum is loaded first. The epilogue runs once.
        const double result_vectors = s_.results() / static_cast<double>(va_ < s_.spatial ? micro_.lanes : 1);
        total += (invocations - 1) * result_vectors * kResumedLoads / m_.loads_per_cycle;
        for (const OperandModel& o : s_.operands)
            if (!o.result && !o.in_body) total += result_vectors / m_.loads_per_cycle;
        const double epilogue = result_vectors * s_.epilogue_operations / m_.fmas_per_cycle;
        // It reads the sums of tile registers from memory, and does not overlap with the next tile's products.
        if (micro_.matrix && micro_.matrix->tile()) total += result_vectors * kTileSum + epilogue;
        return total + epilogue;
    }

  private:
    int64_t registers(size_t a) const { return a < micro_.registers.size() ? micro_.registers[a] : 1; }

    std::vector<int64_t> sizes_of_tails(size_t a) const {
        for (const Tail& t : micro_.annotations.tails)
            if (t.axis == a) return t.sizes;
        return tail_sizes(std::max<int64_t>(1, registers(a)));
    }

    bool dynamic(size_t a) const { return a < s_.dynamic.size() && s_.dynamic[a]; }

    /// Whether code for a tail of `points` clamps its rows to the end: it may run for fewer.
    bool is_clamped(size_t a, int64_t points) const {
        if (!dynamic(a)) return points > 1 && points < registers(a);
        const std::vector<int64_t> sizes = sizes_of_tails(a);
        const auto it = std::find(sizes.begin(), sizes.end(), points);
        const int64_t less = it == sizes.begin() ? 0 : it[-1];
        return it != sizes.end() && points != less + 1;
    }

    /// Every combination of tile sizes along the spatial axes.
    double all_tiles(double steps, double invocations) const {
        std::vector<Tiles> tiles;
        std::vector<bool> unknown;  // per axis: the tail's size is unknown at compile time
        for (size_t a = 0; a < s_.spatial; ++a) {
            const int64_t unit = a == va_ ? micro_.lanes : 1;
            const bool known = !dynamic(a) && (!looped_[a] || s_.cuts.empty() || s_.cuts[a].empty());
            unknown.push_back(!known && a != va_);
            tiles.push_back(tiles_of(ranges_[a], std::max<int64_t>(registers(a), unit), unit,
                                     known || unit != 1 ? std::vector<int64_t>() : sizes_of_tails(a)));
        }
        double total = 0;
        std::vector<int64_t> tile(s_.extents.size(), 1);
        const auto each = [&](const auto& self, size_t a, double count, bool clamped) -> void {
            if (a == s_.spatial) {
                total += count * tile_cycles(s_, micro_, tile, steps, m_, clamped);
                return;
            }
            for (const auto& [size, times] : tiles[a]) {
                tile[a] = size.first;
                const bool here = unknown[a] && size.second && is_clamped(a, size.first);
                // Rows that are clamped to a dynamic end have a pointer each.
                self(self, a + 1, count * times * (here && dynamic(a) ? kClampedRows : 1), clamped || here);
            }
        };
        each(each, 0, invocations, false);
        return total;
    }

    const StageModel& s_;
    const Nest& nest_;
    const Micro& micro_;
    const CycleRates& m_;
    const size_t va_;  ///< the number of axes if there is no vector axis
    std::vector<Lengths> ranges_;
    std::vector<bool> looped_;
};

/// The traffic of one nest into each cache level, in bytes (equation 3 of the paper, once per level).
class TrafficModel {
  public:
    TrafficModel(const StageModel& stage, const Nest& nest, const CycleRates& m)
        : s_(stage), nest_(nest), m_(m), x_(expand(stage, nest)), footprint_(x_.ranges.size(), 0) {
        for (size_t n = 1; n <= x_.strips.size(); ++n)
            for (const OperandModel& o : s_.operands)
                strip_operands_.push_back(o.in_strips(std::span(x_.strips).first(n)));
        bytes_.reserve(depths() * s_.operands.size());
        for (size_t d = 0; d < depths(); ++d)
            for (size_t k = 0; k < s_.operands.size(); ++k) {
                const OperandModel& o = s_.operands[k];
                const bool as_outside = d > 0 && !o.irregular && o.shares.empty() && !o.depends[x_.loops[d - 1].axis];
                if (as_outside)
                    bytes_.push_back(bytes_[(d - 1) * s_.operands.size() + k]);
                else
                    bytes_.push_back(x_.in_strips[d] == 0 ? o.bytes(x_.ranges[d]) : operand(k, d).bytes(x_.tile(d)));
            }
        for (size_t d = 0; d < depths(); ++d)
            for (size_t k = 0; k < s_.operands.size(); ++k) footprint_[d] += touched(k, d);
    }

    struct Traffic {
        double bytes = 0, jumps = 0;
        double start_cycles = 0;  ///< of streams from memory
    };

    Traffic into(size_t level) const {
        const size_t fits = resident_depth(level);
        Traffic sum;
        for (size_t k = 0; k < s_.operands.size(); ++k) {
            const Traffic t = into(level, k, fits);
            sum.bytes += t.bytes;
            sum.jumps += t.jumps;
            sum.start_cycles += t.start_cycles;
        }
        return sum;
    }

    double cycles(size_t level, const Traffic& t) const {
        const CycleRates::Level& from = is_last(level) ? m_.memory : m_.caches[level + 1];
        const double jump = level == 0 ? 0 : t.jumps * (is_last(level) ? kPageJump : kNearPageJump);
        return t.bytes / from.bytes_per_cycle + jump + t.start_cycles;
    }

    /// Cycles for which a nest that otherwise takes `busy` waits for lines from behind L2. A panel that every tile of
    /// rows reads arrives while the first one is computed:
    ///     for 14 tiles of rows { for k { read w[k] } }: 1/14 of the cycles overlap with the transfer of w
    double exposed_cycles(double busy) const {
        double most = 0;
        for (size_t level = 1; level < m_.caches.size(); ++level) {
            const size_t fits = resident_depth(level);
            double all = 0, alone = 0;
            for (size_t k = 0; k < s_.operands.size(); ++k) {
                const double moved = cycles(level, into(level, k, fits));
                all += moved;
                if (moved > 0) alone += std::max(0.0, moved - busy * transfer_share(k, fits));
            }
            most = std::max({most, all - busy, alone});
        }
        return most;
    }

    std::vector<TaskAxis> grid() const {
        std::vector<TaskAxis> grid;
        for (size_t d = 0; d < nest_.parallel; ++d)
            grid.push_back({x_.ranges[d][nest_.loops[d].axis], x_.ranges[d + 1][nest_.loops[d].axis]});
        return grid;
    }

  private:
    size_t depths() const { return x_.ranges.size(); }
    bool is_last(size_t level) const { return level + 1 == m_.caches.size(); }
    size_t home(size_t k) const { return k < nest_.home.size() ? nest_.home[k] : 0; }
    /// Whether an operand that fits a cache between the first and the last is not there when the kernel starts: kernels
    /// before have read others, or the kernel's tensors fill most of it.
    bool misses(size_t k, size_t level) const {
        if (level == 0 || is_last(level) || home(k) > 0) return false;
        return s_.operands[k].residence != Residence::Near || footprint_[0] > kKept * m_.caches[level].bytes;
    }
    /// The depth of the outermost loops of which a level holds what they touch.
    size_t resident_depth(size_t level) const {
        const double capacity = m_.caches[level].bytes;
        size_t d = 0;
        while (d + 1 < depths() && footprint_[d] - (level == 0 ? passing(d) : 0) > capacity) ++d;
        return d;
    }

    /// What moves into a level of operand k, if the level holds what the loops from `fits` on touch.
    Traffic into(size_t level, size_t k, size_t fits) const {
        const bool cold = is_last(level) && s_.operands[k].residence == Residence::Memory && home(k) == 0;
        const double evicted = evicted_share(k, fits, level);
        const bool there = fits == 0 && !cold && !misses(k, level);  // it is in the level when the kernel starts
        if (there && evicted == 0) return {};
        double moved = there ? 0 : fits == 0 ? touched(k, 0) : bytes_moved(k, fits, level);
        if (evicted > 0) moved += evicted * std::max(0.0, moved_in_conflict(k, fits, level) - moved);
        Traffic t{moved, moved * jumps_per_byte(k), 0};
        if (cold) t.start_cycles = moved / stream_bytes(k) * stream_start_cycles(stream_bytes(k), m_);
        if (is_last(level)) t.jumps += moved / static_cast<double>(kLineBytes) * unpredicted_share(k);
        return t;
    }

    /// The share of the nest's steps in which operand k moves into a level that holds what the loops from `fits` on
    /// touch: the first pass of those that read it again. 1 where a prefetch spreads the transfer over all of them.
    double transfer_share(size_t k, size_t fits) const {
        const OperandModel& o = s_.operands[k];
        if (o.result || prefetched_by_shares(k)) return 1;
        double share = 1;
        bool moves = false;
        for (size_t l = x_.loops.size(); l-- > 0;) {
            if (x_.trips[l] <= 1) continue;
            const bool depends = o.depends[x_.loops[l].axis];
            if (depends && l < fits) break;  // each trip moves other elements
            moves = moves || depends;
            if (moves && !depends) share /= x_.trips[l];
        }
        return share;
    }

    /// Whether the next panel of operand k is prefetched while the tiles of rows read this one (PrefetchKind::Next).
    bool prefetched_by_shares(size_t k) const {
        const OperandModel& o = s_.operands[k];
        const size_t loops = nest_.loops.size(), va = nest_.micro->vector_axis.value_or(s_.extents.size());
        if (va >= s_.spatial || !o.depends[va] || nest_.micro->matrix) return false;
        std::vector<int64_t> panel = x_.ranges[loops];
        for (size_t a = 0; a < s_.spatial; ++a)
            if (a < nest_.micro->registers.size()) panel[a] = std::min(panel[a], nest_.micro->registers[a]);
        return o.bytes(panel) <= static_cast<double>(kNearPanelBytes) && o.runs(panel) <= 1;
    }

    double touched(size_t k, size_t d) const { return bytes_[std::max(d, home(k)) * s_.operands.size() + k]; }

    /// Bytes that pass through L1: the left operand of tile registers, while a panel of the right one is read for every
    /// tile of rows and stays.
    double passing(size_t d) const {
        const auto& unit = nest_.micro->matrix;
        if (!unit || !unit->tile()) return 0;
        double bytes = 0;
        for (size_t k = 0; k < s_.operands.size(); ++k) {
            const OperandModel& o = s_.operands[k];
            if (!o.result && o.in_body && o.depends[unit->rows] && !o.depends[unit->columns]) bytes += touched(k, d);
        }
        return bytes;
    }

    const OperandModel& operand(size_t k, size_t d) const {
        const size_t strips = x_.in_strips[d], n = s_.operands.size();
        return strips == 0 ? s_.operands[k] : strip_operands_[(strips - 1) * n + k];
    }

    /// The share of operand k's lines that a level cannot keep inside of the first d loops, although it is large
    /// enough, because they share few of its sets. Other operands are spread over all sets. Sums stay in registers
    /// (what rows of results cost that share a set is part of tile_cycles).
    ///     18,432 lines, one of every four: 36 in a set; of 2 MiB, 16 ways keep less than half
    double evicted_share(size_t k, size_t d, size_t level) const {
        const CycleRates::Level& cache = m_.caches[level];
        if (cache.way_bytes == 0 || home(k) > 0 || !s_.operands[k].in_body) return 0;
        const auto way = static_cast<double>(cache.way_bytes);
        const double bytes = touched(k, d), lines = operand(k, d).lines_in_a_set(x_.tile(d), cache.way_bytes);
        if (lines <= kEven * std::max(1.0, bytes / way)) return 0;
        const double room = std::max(0.0, cache.ways - (footprint_[d] - bytes) / way);
        return lines <= room ? 0 : 1 - room / lines;
    }

    /// Bytes of operand k that move into a level if it keeps only what is touched where nothing is evicted.
    double moved_in_conflict(size_t k, size_t fits, size_t level) const {
        size_t d = fits;
        while (d + 1 < depths() && evicted_share(k, d, level) > 0) ++d;
        if (evicted_share(k, d, level) == 0) return bytes_moved(k, d, level);
        while (d > 0 && !s_.operands[k].depends[x_.loops[d - 1].axis]) --d;
        double trips = 1;  // every tile reads all of its lines again
        for (size_t l = 0; l < d; ++l) trips *= x_.trips[l];
        return touched(k, d) * trips;
    }

    /// Bytes of operand k that move into a level that holds the working set inside of the first `fits` loops.
    double bytes_moved(size_t k, size_t fits, size_t level) const {
        const OperandModel& o = s_.operands[k];
        const double capacity = m_.caches[level].bytes;
        // The operand stays in the level over trips of surrounding loops that do not move it.
        size_t from = fits;
        while (from > 0 && !o.depends[x_.loops[from - 1].axis]) --from;
        double trips = 1;
        for (size_t d = 0; d < from; ++d)
            if (d >= home(k) || touched(k, home(k)) > capacity) trips *= x_.trips[d];
        double moved = touched(k, fits) * trips;
        // Neighbouring steps share lines: a sum along a row reads a new line every 64 bytes.
        const Nest::Loop& around = x_.loops[fits - 1];
        const auto step = static_cast<double>(std::abs(o.strides[around.axis]) * around.step * o.element_bytes);
        if (from == fits && step > 0 && step < kLineBytes) moved *= step / kLineBytes;
        if (home(k) > 0 && touched(k, home(k)) <= capacity) moved = 0;  // a buffer that stays in the level
        if (o.result) {
            bool again = false;
            for (size_t d = 0; d < fits; ++d) again = again || (x_.loops[d].axis >= s_.spatial && x_.trips[d] > 1);
            moved *= again || is_last(level) ? 2 : 1;
        }
        return moved;
    }

    /// Bytes of operand k that are read in order, one behind the other, before the next are elsewhere. Of panels of
    /// 32 columns and 576 rows: all, where whole panels are read in order; 24 KB, where 192 rows of each are.
    double stream_bytes(size_t k) const {
        const OperandModel& o = s_.operands[k];
        double stream = 0;
        for (size_t d = depths(); d-- > 0;) {
            const double bytes = o.bytes(x_.ranges[d]), runs = o.runs(x_.ranges[d]);
            if (runs <= 1)
                stream = bytes;
            else if (bytes > static_cast<double>(kPageBytes))  // else rows of a tile, side by side
                return stream > 0 ? stream : bytes / runs;
        }
        return std::max(stream, static_cast<double>(kLineBytes));
    }

    /// Page changes of an operand's stream per byte, over the sweep of the innermost loop that moves it. For rows of
    /// 1024 floats written in tiles of 14 x 32 there is one every 128 bytes where the next tile is below, one a row
    /// where it is to the right.
    double jumps_per_byte(size_t k) const {
        const OperandModel& o = s_.operands[k];
        size_t d = depths() - 1;
        while (d > 0 && (!o.depends[x_.loops[d - 1].axis] || x_.trips[d - 1] <= 1)) --d;
        const std::vector<int64_t>& sweep = x_.ranges[d > 0 ? d - 1 : 0];
        return o.pages(sweep, kPageBytes) / o.bytes(sweep);
    }

    /// Whether two points of one axis read the same element, at different points of the other.
    bool overlap(const OperandModel& o, size_t a, size_t b) const {
        std::vector<int64_t> one(s_.extents.size(), 1), along_a = one, along_b = one;
        along_a[a] = s_.extents[a];
        along_b[b] = s_.extents[b];
        std::vector<int64_t> both = along_a;
        both[b] = s_.extents[b];
        return o.elements(both) < o.elements(along_a) * o.elements(along_b);
    }

    /// The share of an operand's lines that prefetchers miss: windows alternate between more rows of a page than
    /// prefetchers follow.
    double unpredicted_share(size_t k) const {
        const OperandModel& o = s_.operands[k];
        const size_t va = nest_.micro->vector_axis.value_or(s_.extents.size());
        if (o.result || o.irregular || va >= s_.spatial || !o.depends[va]) return 0.0;
        bool slides = false;  // windows overlap along the vectors: along rows, not along channels or in panels
        for (size_t r = s_.spatial; r < s_.extents.size(); ++r)
            slides = slides || (o.strides[r] != 0 && overlap(o, va, r));
        if (!slides) return 0.0;
        std::vector<int64_t> tile = s_.extents;
        for (size_t a = 0; a < s_.spatial; ++a) {
            const int64_t registers = a < nest_.micro->registers.size() ? nest_.micro->registers[a] : 1;
            tile[a] = std::min(tile[a], std::max<int64_t>(registers, a == va ? nest_.micro->lanes : 1));
        }
        std::vector<int64_t> row = tile;
        for (size_t a = 0; a < row.size(); ++a) {
            const int64_t apart = std::abs(o.strides[a]) * o.element_bytes;
            if (a != va && apart >= kLineBytes && apart < kPageBytes) row[a] = 1;
        }
        const double rows = o.elements(tile) / o.elements(row);
        return rows <= kStreamsInPage ? 0.0 : (rows - kStreamsInPage) / rows;
    }

    const StageModel& s_;
    const Nest& nest_;
    const CycleRates& m_;
    const Expanded x_;
    std::vector<OperandModel> strip_operands_;  ///< of the first n strips: element (n - 1) x operands + k
    std::vector<double> bytes_;      ///< that operand k touches inside the first d loops: element d x operands + k
    std::vector<double> footprint_;  ///< bytes touched inside the first d loops
};

}  // namespace

double stream_start_cycles(double bytes, const CycleRates& m) {
    return kStreamStart * m.memory.latency / std::clamp(kWindowBytes / bytes, 1.0, kMostStarts);
}

double task_count(std::span<const TaskAxis> grid) {
    double tasks = 1;
    for (const TaskAxis& a : grid) tasks *= std::ceil(static_cast<double>(a.extent) / static_cast<double>(a.step));
    return tasks;
}

double slowest_share(std::span<const TaskAxis> grid, int threads) {
    // Beyond so many tasks per thread, the size of the last task has no effect.
    constexpr double kMany = 16;
    if (threads <= 1) return 1;
    const double tasks = task_count(grid);
    if (tasks <= 1) return 1;
    if (tasks > kMany * threads) return std::ceil(tasks / threads) / tasks;
    std::vector<double> sizes{1};
    for (const TaskAxis& a : grid) {
        std::vector<double> finer;
        for (const double size : sizes)
            for (int64_t at = 0; at < a.extent; at += a.step)
                finer.push_back(size * static_cast<double>(std::min(a.step, a.extent - at)));
        sizes = std::move(finer);
    }
    std::priority_queue<double, std::vector<double>, std::greater<>> done;  // time when each thread is free
    for (int t = 0; t < threads; ++t) done.push(0);
    double last = 0, all = 0;
    for (const double size : sizes) {
        const double end = done.top() + size;
        done.pop();
        done.push(end);
        last = std::max(last, end);
        all += size;
    }
    return last / all;
}

NestCost nest_cost(const StageModel& s, const Nest& nest, const CycleRates& m, std::optional<double> compute) {
    NestCost out;
    out.compute_cycles = compute ? *compute : ComputeModel(s, nest, m).cycles();
    const TrafficModel traffic(s, nest, m);
    double sum = 0;
    for (size_t level = 0; level < m.caches.size(); ++level) {
        const TrafficModel::Traffic into = traffic.into(level);
        out.bytes.push_back(into.bytes);
        out.jumps.push_back(into.jumps);
        const double cycles = traffic.cycles(level, into);
        out.memory_cycles = std::max(out.memory_cycles, cycles);
        sum += cycles;
    }
    const double near = traffic.cycles(0, traffic.into(0)), busy = std::max(out.compute_cycles, near);
    const double bottleneck = busy + traffic.exposed_cycles(busy);
    out.cycles = bottleneck + kSerialShare * std::max(0.0, out.compute_cycles + sum - bottleneck);
    const std::vector<TaskAxis> grid = traffic.grid();
    out.tasks = task_count(grid);
    out.slowest = slowest_share(grid, m.workers);
    return out;
}

double NestCost::seconds(const CycleRates& m) const { return (cycles * slowest + m.dispatch_cycles) / (m.ghz * 1e9); }

}  // namespace tilewright
