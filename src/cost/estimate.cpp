#include "cost/estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>

#include "base/error.h"
#include "base/numbers.h"
#include "tile/cuts.h"
#include "tile/online.h"
#include "tile/register_tile.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr double kFmaLatency = 4;
constexpr double kWindow = 300;       // instructions that are under way at a time
constexpr double kIssueWidth = 5;     // instructions a cycle that keep up over a loop
constexpr double kTileOverhead = 20;  // cycles around one register tile: addresses, the last sums' latency
constexpr double kNextStage = 8;      // cycles until a micro-kernel has begun, behind another stage's in one task
constexpr double kJump = 12;          // cycles that show where a stream from memory goes on in another page
constexpr double kFollowed = 4;       // rows within a page, met in turns, that count as one stream from memory
constexpr double kNearJump = 4;       // the same where it comes from a cache
constexpr int64_t kPage = 4096;       // bytes; also the distance at which lines fall into one set
constexpr int64_t kWays = 8;          // of the first-level cache
constexpr double kClash = 8;          // cycles of a store to a set that is overfull
constexpr double kSegment = 8;        // cycles to find out that a piece between two cuts is empty
constexpr double kAgain = 2;       // loads' worth of a sum that is taken up again: nothing can begin before it is there
constexpr double kOccupied = 0.8;  // of a cache: the rest is other data's
constexpr double kSerial = 0.1;    // of what is not the bottleneck, how much shows all the same

}  // namespace

Machine::Machine(const Target& target, int n) : threads(std::max(1, n)) {
    ghz = target.ghz.value;
    lanes = target.lanes(DType::F32);
    vector_registers = target.vector_registers;
    const double vector_bytes = target.vector_bits / 8.0;
    fma_a_cycle = std::max(0.5, target.fma_gflops_1.value / (2 * lanes * ghz));
    dispatch_cycles = threads > 1 ? target.dispatch_us.value * 1e3 * ghz : 0;
    for (const CacheLevel& c : target.caches) {
        Level level;
        level.bytes = static_cast<double>(c.usable_bytes()) * kOccupied;
        if (c.level >= 3) level.bytes /= std::min(std::max(1, c.shared_by), threads);
        level.bytes_a_cycle = c.load_gbps.value / ghz;
        level.latency = c.latency_ns.value * ghz;
        caches.push_back(level);
    }
    TW_CHECK(!caches.empty());
    loads_a_cycle = std::max(0.5, caches[0].bytes_a_cycle / vector_bytes);
    memory.bytes_a_cycle =
        threads > 1 ? target.memory_gbps_all.value / ghz / threads : target.memory_gbps_1.value / ghz;
    memory.latency = target.memory_latency_ns.value * ghz;
    memory.bytes = 1e18;
}

double tile_cycles(const StageModel& s, const Micro& micro, std::span<const int64_t> tile, double steps,
                   const Machine& m, bool clamped) {
    const size_t va = micro.vector_axis.value_or(s.extents.size());
    double vectors = 1;  // results, in vectors
    for (size_t a = 0; a < s.spatial; ++a) vectors *= static_cast<double>(tile[a]);
    const auto* map = s.map ? &*s.map : nullptr;
    double maps = map != nullptr && va < s.spatial ? vectors : 0;  // that the tile holds; 0: none whole
    for (size_t k = 0; map != nullptr && maps > 0 && k < map->rows.size(); ++k) {
        const uint32_t a = map->rows[k];
        const int64_t rows = map->row_extents[k], held = a < micro.registers.size() ? micro.registers[a] : 1;
        if (a == va || held % rows != 0) maps = 0;
        maps *= std::ceil(static_cast<double>(tile[a]) / static_cast<double>(rows)) / static_cast<double>(tile[a]);
    }
    if (map != nullptr && maps > 0) {
        // Sums along one axis of a map of two wait in memory for those along the other: registers do not hold them.
        const double moved = 2 * map->column_count;
        const double gathered = s.operands[0].strides[va] == 1 ? 1 : micro.lanes;
        const double sums = std::max({map->operations / m.fma_a_cycle, moved * gathered / m.loads_a_cycle,
                                      (map->operations + moved + map->row_count) / kIssueWidth});
        return maps * sums + vectors * 2 / m.loads_a_cycle + kTileOverhead;
    }
    const auto reads = [&](const OperandModel& o) {
        double n = 1;
        for (size_t a = 0; a < s.spatial; ++a)
            if (o.depends[a]) n *= static_cast<double>(tile[a]);
        return n * o.share();
    };
    const auto spread = [&](const OperandModel& o) {
        return va < s.extents.size() && !o.result && !o.irregular && !o.picked_along(va) && o.strides[va] > 1 &&
               o.strides[va] <= kMostSpread;
    };
    const auto cost_of = [&](const OperandModel& o) {
        // A vector, a broadcast, a row of a block that is turned around in registers, vectors of neighbours for lanes
        // a few elements apart (a shuffle puts each behind those before it), or one load a lane.
        if (va == s.extents.size() || !o.depends[va] || (o.strides[va] == 1 && !o.picked_along(va))) return 1.0;
        if (!o.result && !s.reduces && !o.irregular)
            for (size_t u = 0; u < s.spatial; ++u)
                if (u != va && o.strides[u] == 1 && tile[u] % micro.lanes == 0)
                    return 1 + std::log2(static_cast<double>(micro.lanes));
        if (spread(o)) return static_cast<double>(o.strides[va]);
        return static_cast<double>(micro.lanes) * (o.result ? 1.5 : 1.0);
    };
    // Windows that are written out whole share what they load: 4 pixels of 3 points are 6 loads, not 12.
    double unrolled = 1;
    std::vector<int64_t> block(tile.begin(), tile.end());
    block.resize(s.extents.size(), 1);
    if (!clamped)
        for (size_t a = s.spatial; a < s.extents.size() && a < micro.registers.size(); ++a)
            if (a != va && micro.registers[a] > 1 && micro.registers[a] == s.extents[a]) {
                block[a] = micro.registers[a];
                unrolled *= static_cast<double>(block[a]);
            }
    if (va < s.extents.size() && unrolled > 1) block[va] *= micro.lanes;
    const auto reads_of = [&](const OperandModel& o) {
        if (unrolled == 1) return reads(o) * cost_of(o);
        const double elements = o.elements(block);
        return std::min(reads(o) * unrolled, o.depends[va] ? elements / micro.lanes : elements) / unrolled * cost_of(o);
    };
    double loads = 0, instructions = 2;
    for (const OperandModel& o : s.operands) {
        if (o.result) continue;
        if (!o.in_body) continue;
        const double n = reads_of(o);
        loads += n;
        if (spread(o)) instructions += n * static_cast<double>(o.strides[va] - 1) / static_cast<double>(o.strides[va]);
        // Broadcasts are memory operands of the multiply-add, where one tile row needs each once.
        if (!(s.product && va < s.extents.size() && !o.depends[va])) instructions += n;
    }
    const double work = vectors * s.body_operations;
    instructions += s.product ? vectors * std::max(1.0, s.body_operations) : work;
    double step = std::max({(s.product ? vectors * std::max(1.0, s.body_operations) : work) / m.fma_a_cycle,
                            loads / m.loads_a_cycle, instructions / kIssueWidth});
    const bool vector_reduces = va < s.extents.size() && va >= s.spatial;
    if (s.reduces) {
        double chains = 1;
        if (vector_reduces && va < micro.registers.size()) {
            const int64_t whole = micro.registers[va] / std::max<int64_t>(1, micro.lanes);
            chains = std::max<double>(1, static_cast<double>(whole));
        }
        if (!vector_reduces && s.product && unrolled == 1)
            chains = static_cast<double>(sum_chains(std::llround(vectors), std::llround(steps)));
        // Short sums of several tiles are under way together.
        const double together = std::max(1.0, kWindow / std::max(1.0, instructions * steps));
        step = std::max(step, kFmaLatency / chains / together);
    }
    const double stores = vectors * cost_of(s.result()) * 2 / m.loads_a_cycle;
    double ends = stores;
    // Rows that all fall into one set of the first-level cache push each other out before their lines are whole.
    for (size_t a = 0; a < s.spatial; ++a)
        if (a != va && tile[a] > kWays && s.result().strides[a] != 0 &&
            s.result().strides[a] * s.result().element_bytes % kPage == 0)
            ends += vectors * kClash;
    if (vector_reduces) ends += vectors * 10;
    return step * steps + ends + (s.reduces ? kTileOverhead : 1);
}

namespace {

/// Loops of the tree and of the micro-kernel as one list.
struct Expanded {
    std::vector<Nest::Loop> loops;
    std::vector<std::vector<int64_t>> ranges;  ///< of every axis inside the first d loops
    std::vector<double> trips;                 ///< of loop d, on average
};

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
    for (const Nest::Loop& l : x.loops) {
        const int64_t step = std::min(l.step, range[l.axis]);
        x.trips.push_back(static_cast<double>(range[l.axis]) / static_cast<double>(std::max<int64_t>(1, step)));
        range[l.axis] = step;
        x.ranges.push_back(range);
    }
    return x;
}

/// The ranges that an axis is computed in, with how often each occurs: what the loops around the micro-kernel leave of
/// it, cut once more where conditions change. [0, 14) in steps of 8, padded by one at either side:
///     [0, 1) [1, 8) [8, 13) [13, 14)  ->  1 twice, 7, 5
std::map<int64_t, double> ranges_of(const StageModel& s, const Nest& nest, size_t a) {
    struct Piece {
        int64_t from, length;
    };
    constexpr size_t kMostPieces = 1 << 12;  // more are many alike: cuts do not show
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

/// Rows that the code computes of a rest that only the run knows.
int64_t rung_of(int64_t rest, int64_t tile) {
    const std::vector<int64_t> rungs = rest_rungs(tile);
    return *std::lower_bound(rungs.begin(), rungs.end(), rest);
}

/// Cycles of all register tiles, whole ones and rests.
double compute_cycles(const StageModel& s, const Nest& nest, const Machine& m) {
    const Micro& micro = *nest.micro;
    const size_t n = s.extents.size();
    const size_t va = micro.vector_axis.value_or(n);
    std::vector<std::map<int64_t, double>> ranges;
    std::vector<bool> looped(n, false), unknown(n, false);
    double entries = 1, segments = 1;  // how often the micro-kernel begins, and pieces of code it goes through then
    ranges.reserve(n);
    for (size_t a = 0; a < n; ++a) ranges.push_back(ranges_of(s, nest, a));
    for (const Nest::Loop& l : nest.loops) looped[l.axis] = true;
    for (size_t a = 0; a < s.spatial; ++a)
        if (looped[a] && !s.cuts.empty()) segments *= static_cast<double>(s.cuts[a].size() + 1);
    for (size_t a = 0; a < n; ++a) {
        double passes = 0;
        for (const auto& [length, count] : ranges[a]) passes += count;
        if (looped[a]) entries *= passes;
    }
    /// Tiles of a range that the run finds in a piece: the rest of them by the ladder (backend/cpu).
    const auto tiles = [&](std::map<int64_t, double>& lengths, int64_t step, int64_t unit, bool known) {
        std::map<int64_t, double> next;
        for (const auto& [length, count] : lengths) {
            if (const int64_t steps = length / step; steps > 0) next[step / unit] += count * static_cast<double>(steps);
            int64_t rest = ceil_of(length % step, unit);
            if (rest == 0) continue;
            if (!known && unit == 1) rest = rung_of(rest, step);
            next[rest] += count;
        }
        lengths = std::move(next);
    };
    double steps = 1, invocations = 1;
    for (size_t a = s.spatial; a < n; ++a) {
        double passes = 0, points = 0;
        for (const auto& [length, count] : ranges[a]) {
            passes += count;
            points += count * static_cast<double>(a == va ? ceil_of(length, micro.lanes) : length);
        }
        invocations *= passes;
        steps *= points / passes;
    }
    for (size_t a = 0; a < s.spatial; ++a) {
        const int64_t unit = a == va ? micro.lanes : 1;
        const bool known = !looped[a] || s.cuts.empty() || s.cuts[a].empty();
        unknown[a] = !known && a != va;
        tiles(ranges[a], std::max<int64_t>(a < micro.registers.size() ? micro.registers[a] : 1, unit), unit, known);
    }
    double total = 0;
    std::vector<int64_t> tile(n, 1);
    const auto each = [&](const auto& self, size_t a, double count, bool clamped) -> void {
        if (a == s.spatial) {
            total += count * tile_cycles(s, micro, tile, steps, m, clamped);
            return;
        }
        const int64_t whole = a < micro.registers.size() ? micro.registers[a] : 1;
        for (const auto& [points, times] : ranges[a]) {
            tile[a] = points;
            self(self, a + 1, count * times, clamped || (unknown[a] && points > 1 && points < whole));
        }
    };
    each(each, 0, invocations, false);
    if (segments > 1) total += entries * segments * kSegment;
    total += entries * nest.entry_cycles;
    // A sum that is taken up again is read before; the epilogue comes once.
    const double result_vectors = s.results() / static_cast<double>(va < s.spatial ? micro.lanes : 1);
    total += (invocations - 1) * result_vectors * kAgain / m.loads_a_cycle;
    for (const OperandModel& o : s.operands)
        if (!o.result && !o.in_body) total += result_vectors / m.loads_a_cycle;
    return total + result_vectors * s.epilogue_operations / m.fma_a_cycle;
}

}  // namespace

double task_count(std::span<const TaskAxis> grid) {
    double tasks = 1;
    for (const TaskAxis& a : grid) tasks *= std::ceil(static_cast<double>(a.extent) / static_cast<double>(a.step));
    return tasks;
}

double slowest_share(std::span<const TaskAxis> grid, int threads) {
    // With so many tasks a thread, the last one's size no longer matters.
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
    std::priority_queue<double, std::vector<double>, std::greater<>> done;  // when each thread is
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

NestCost nest_cost(const StageModel& s, const Nest& nest, const Machine& m, std::optional<double> compute) {
    NestCost out;
    out.compute_cycles = compute ? *compute : compute_cycles(s, nest, m);
    const Expanded x = expand(s, nest);
    const size_t depths = x.ranges.size();
    const auto touched = [&](size_t k, size_t d) {
        const size_t home = k < nest.home.size() ? nest.home[k] : 0;
        return s.operands[k].bytes(x.ranges[std::max(d, home)]);
    };
    // How often an operand's stream goes on in another page, for each byte: counted over what the innermost loop that
    // moves it sweeps over. Rows of 1024 floats written in tiles of 14 x 32: every 128 bytes where the next tile is
    // below, once a row where it is to the right.
    const auto jumps_a_byte = [&](size_t k) {
        const OperandModel& o = s.operands[k];
        size_t d = depths - 1;
        while (d > 0 && (!o.depends[x.loops[d - 1].axis] || x.trips[d - 1] <= 1)) --d;
        const std::vector<int64_t>& sweep = x.ranges[d > 0 ? d - 1 : 0];
        return o.pages(sweep, kPage) / o.bytes(sweep);
    };
    // Of the lines of an operand, those that come in turns with too many rows of the page to be foreseen.
    const auto unforeseen = [&](size_t k) {
        const OperandModel& o = s.operands[k];
        const size_t va = nest.micro->vector_axis.value_or(s.extents.size());
        if (o.result || o.irregular || va >= s.spatial || !o.depends[va]) return 0.0;
        bool slides = false;  // windows along the vectors: rows, not pixels with their channels side by side
        for (size_t r = s.spatial; r < s.extents.size(); ++r)
            slides =
                slides || (o.strides[r] != 0 && std::abs(o.strides[r]) <= std::abs(o.strides[va]) * (s.extents[r] - 1));
        if (!slides) return 0.0;
        std::vector<int64_t> tile = s.extents, row;
        for (size_t a = 0; a < s.spatial; ++a) {
            const int64_t registers = a < nest.micro->registers.size() ? nest.micro->registers[a] : 1;
            tile[a] = std::min(tile[a], std::max<int64_t>(registers, a == va ? nest.micro->lanes : 1));
        }
        row = tile;
        for (size_t a = 0; a < row.size(); ++a) {
            const int64_t apart = std::abs(o.strides[a]) * o.element_bytes;
            if (a != va && apart >= 64 && apart < kPage) row[a] = 1;
        }
        const double rows = o.elements(tile) / o.elements(row);
        return rows <= kFollowed ? 0.0 : (rows - kFollowed) / rows;
    };
    std::vector<double> footprint(depths, 0);
    for (size_t d = 0; d < depths; ++d)
        for (size_t k = 0; k < s.operands.size(); ++k) footprint[d] += touched(k, d);
    double slowest = 0, sum = 0;
    for (size_t level = 0; level < m.caches.size(); ++level) {
        size_t fits = 0;
        while (fits + 1 < depths && footprint[fits] > m.caches[level].bytes) ++fits;
        double bytes = 0, jumps = 0;
        if (fits > 0)
            for (size_t k = 0; k < s.operands.size(); ++k) {
                const OperandModel& o = s.operands[k];
                const size_t home = k < nest.home.size() ? nest.home[k] : 0;
                // Loops around that do not move it find it still there.
                size_t from = fits;
                while (from > 0 && !o.depends[x.loops[from - 1].axis]) --from;
                double trips = 1;
                for (size_t d = 0; d < from; ++d)
                    if (d >= home || touched(k, home) > m.caches[level].bytes) trips *= x.trips[d];
                double moved = touched(k, fits) * trips;
                // Neighbouring steps share lines: a sum that walks along a row meets a new one every 64 bytes.
                const Nest::Loop& around = x.loops[fits - 1];
                const auto step = static_cast<double>(std::abs(o.strides[around.axis]) * around.step * o.element_bytes);
                if (from == fits && step > 0 && step < 64) moved *= step / 64;
                if (home > 0 && touched(k, home) <= m.caches[level].bytes) moved = 0;  // a buffer that stays
                if (o.result) {
                    bool again = false;
                    for (size_t d = 0; d < fits; ++d) again = again || (x.loops[d].axis >= s.spatial && x.trips[d] > 1);
                    moved *= again || level + 1 == m.caches.size() ? 2 : 1;
                }
                bytes += moved;
                jumps += moved * jumps_a_byte(k);
                if (level + 1 == m.caches.size()) jumps += moved / 64 * unforeseen(k);
            }
        const Machine::Level& from = level + 1 < m.caches.size() ? m.caches[level + 1] : m.memory;
        out.bytes.push_back(bytes);
        out.jumps.push_back(jumps);
        const double cycles =
            bytes / from.bytes_a_cycle + (level == 0 ? 0 : jumps * (level + 1 < m.caches.size() ? kNearJump : kJump));
        slowest = std::max(slowest, cycles);
        sum += cycles;
    }
    out.memory_cycles = slowest;
    const double bottleneck = std::max(out.compute_cycles, slowest);
    out.cycles = bottleneck + kSerial * (out.compute_cycles + sum - bottleneck);
    std::vector<TaskAxis> grid;
    for (size_t d = 0; d < nest.parallel; ++d)
        grid.push_back({x.ranges[d][nest.loops[d].axis], x.ranges[d + 1][nest.loops[d].axis]});
    out.tasks = task_count(grid);
    out.slowest = slowest_share(grid, m.threads);
    return out;
}

double NestCost::seconds(const Machine& m) const { return (cycles * slowest + m.dispatch_cycles) / (m.ghz * 1e9); }

double lower_bound(const Program& stages, const Machine& m, const Bindings& bindings, bool warm) {
    double flops = 0, bytes = 0;
    for (const PrimitiveId s : stages.primitives.ids()) flops += stage_model(stages, s, bindings).flops();
    const auto bytes_of = [&](ValueId v) {
        double n = static_cast<double>(byte_size(stages.values[v].dtype));
        for (const Expr& d : stages.values[v].shape) {
            Bindings all = bindings;
            for (const Var x : variables(d)) all.try_emplace(x, 1);
            n *= static_cast<double>(std::max<int64_t>(0, evaluate(d, all)));
        }
        return n;
    };
    for (const ValueId v : stages.inputs) bytes += bytes_of(v);
    for (const ValueId v : stages.outputs) bytes += bytes_of(v);
    if (warm && bytes <= m.caches.back().bytes) bytes = 0;
    const double compute = flops / (2 * m.fma_a_cycle * m.lanes * m.threads);
    return std::max(compute, bytes / (m.memory.bytes_a_cycle * m.threads)) / (m.ghz * 1e9);
}

namespace {

class TreeEstimate {
  public:
    TreeEstimate(const TileProgram& p, const Machine& m, const Bindings& bindings)
        : p_(p), m_(m), tree_(walk(p)), plan_(plan_buffers(p)) {
        for (const PrimitiveId s : p.stages.primitives.ids()) models_.push_back(stage_model(p.stages, s, bindings));
        scales_ = online_scales(p.stages, online_maxima(p));
        extents_.assign(p.axes.size(), 1);
        for (const PrimitiveId s : p.stages.primitives.ids())
            for (size_t k = 0; k < p.stage_axes[s].size(); ++k) extents_[p.stage_axes[s][k]] = models_[s].extents[k];
    }

    Estimate run() {
        double cycles = 0, compute = 0, memory = 0;
        for (const auto& [path, load] : tree_.loads) cycles += copy_cycles(path, *load);
        for (const auto& [path, compute_at] : tree_.computes) {
            const NestCost c = cost_of(path, *compute_at);
            const double again = trips_outside(path, compute_at->stage);
            cycles += c.cycles * again;
            compute += c.compute_cycles * again;
            memory += c.memory_cycles * again;
        }
        for (const auto& [path, store] : tree_.stores) {
            double n = static_cast<double>(byte_size(p_.stages.values[store->value].dtype)) / 4;
            for (const Expr& d : p_.stages.values[store->value].shape) n *= static_cast<double>(assumed_extent(d));
            cycles += 2 * n / m_.lanes / m_.loads_a_cycle;
        }
        Estimate e;
        std::vector<TaskAxis> grid;
        for (const TileLoop* loop : tree_.loops_below({}, tree_.computes.at(0).first)) {
            if (!loop->parallel) break;
            grid.push_back({extents_[loop->axis], loop->step});
        }
        e.tasks = task_count(grid);
        const double share = slowest_share(grid, m_.threads);
        const double hz = m_.ghz * 1e9;
        e.seconds = (cycles * share + m_.dispatch_cycles) / hz;
        e.compute_seconds = compute * share / hz;
        e.memory_seconds = memory * share / hz;
        e.scratch_bytes = static_cast<double>(plan_.scratch_bytes);
        return e;
    }

  private:
    /// The kernel's loops around a statement as loops of the stage's own axes.
    Nest nest_of(const TreePath& path, PrimitiveId s, const Micro& micro) const {
        Nest nest;
        nest.micro = &micro;
        const std::vector<size_t>& axes = p_.stage_axes[s];
        std::vector<size_t> loops_at(path.size(), 0);  // own loops inside the first k tree loops
        const auto loops = tree_.loops_below({}, path);
        for (size_t k = 0; k < loops.size(); ++k) {
            const auto it = std::find(axes.begin(), axes.end(), loops[k]->axis);
            if (it != axes.end()) {
                nest.loops.push_back({static_cast<size_t>(it - axes.begin()), loops[k]->step});
                if (loops[k]->parallel) ++nest.parallel;
            }
            loops_at[k + 1] = nest.loops.size();
        }
        const Primitive& stage = p_.stages.primitives[s];
        const auto home = [&](const auto& is) {
            for (const Buffer& b : plan_.buffers)
                if (!b.correction && is(b)) return loops_at[std::min(b.scope.size(), path.size() - 1)];
            return size_t{0};
        };
        const std::vector<Access>& accesses = stage.expr()->accesses;
        for (size_t i = 0; i < accesses.size(); ++i)
            nest.home.push_back(home([&](const Buffer& b) {
                return b.access ? *b.access == std::pair(s, i) : b.value == accesses[i].value;
            }));
        nest.home.push_back(home([&](const Buffer& b) { return !b.access && b.value == stage.outputs[0]; }));
        return nest;
    }

    NestCost cost_of(const TreePath& path, const Compute& compute) const {
        StageModel model = models_[compute.stage];
        // What was packed lies as the vectors want it.
        for (const auto& [at, load] : tree_.loads)
            if (load->stage == compute.stage && !load->layout.is_identity() && compute.micro.vector_axis)
                model.operands[load->access].strides[*compute.micro.vector_axis] = 1;
        Nest nest = nest_of(path, compute.stage, compute.micro);
        if (p_.stages.primitives.size() > 1) nest.entry_cycles = kNextStage;
        NestCost c = nest_cost(model, nest, m_);
        // An online maximum's factor, and what it multiplies.
        const StageModel& s = models_[compute.stage];
        const double steps = reduction_trips(path, compute.stage);
        if (compute.online) c.cycles += s.results() * steps * 18 / m_.lanes / m_.fma_a_cycle;
        if (scales_[compute.stage] && s.reduces && steps > 1)
            c.cycles += s.results() * steps / m_.lanes / m_.fma_a_cycle;
        return c;
    }

    double trips_of(const TileLoop& loop, std::vector<int64_t>& range) const {
        const int64_t step = std::min(loop.step, range[loop.axis]);
        const double trips = static_cast<double>(range[loop.axis]) / static_cast<double>(std::max<int64_t>(1, step));
        range[loop.axis] = step;
        return trips;
    }

    double reduction_trips(const TreePath& path, PrimitiveId s) const {
        std::vector<int64_t> range = extents_;
        const auto reductions = std::span(p_.stage_axes[s]).subspan(models_[s].spatial);
        double n = 1;
        for (const TileLoop* loop : tree_.loops_below({}, path)) {
            const double trips = trips_of(*loop, range);
            if (std::find(reductions.begin(), reductions.end(), loop->axis) != reductions.end()) n *= trips;
        }
        return n;
    }

    /// Trips of loops around the statement that are not its stage's: it does the same again.
    double trips_outside(const TreePath& path, PrimitiveId s) const {
        std::vector<int64_t> range = extents_;
        const std::vector<size_t>& axes = p_.stage_axes[s];
        double n = 1;
        for (const TileLoop* loop : tree_.loops_below({}, path)) {
            const double trips = trips_of(*loop, range);
            if (std::find(axes.begin(), axes.end(), loop->axis) == axes.end()) n *= trips;
        }
        return n;
    }

    double copy_cycles(const TreePath& path, const Load& load) const {
        std::vector<int64_t> range = extents_;
        double trips = 1;
        for (const TileLoop* loop : tree_.loops_below({}, path)) trips *= trips_of(*loop, range);
        std::vector<int64_t> tile;
        for (const size_t a : p_.stage_axes[load.stage]) tile.push_back(range[a]);
        const OperandModel& o = models_[load.stage].operands[load.access];
        const double vectors = o.elements(tile) / m_.lanes;
        const double each = load.layout.is_identity() ? 3 : 6;  // turning memory around takes shuffles
        return trips * (vectors * each / m_.loads_a_cycle + 20);
    }

    const TileProgram& p_;
    const Machine& m_;
    Walk tree_;
    BufferPlan plan_;
    IndexVector<PrimitiveId, StageModel> models_;
    IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    std::vector<int64_t> extents_;
};

}  // namespace

Estimate estimate(const TileProgram& program, const Machine& machine, const Bindings& bindings) {
    return TreeEstimate(program, machine, bindings).run();
}

}  // namespace tilewright
