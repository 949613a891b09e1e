// Gensor's states on a CPU: levels are caches, and the outer loops are tasks of the thread pool.

#include <algorithm>
#include <cmath>

#include "cost/cache_sets.h"
#include "schedule/construct/etir.h"

namespace tilewright::construct {

namespace {

constexpr size_t kCpuLevels = 3;
constexpr int64_t kMostRows = 14;    // of a register tile; more rows only add code
constexpr int64_t kMostColumns = 4;  // vectors
constexpr int64_t kPageElements = kPageBytes / 4;

size_t vector_axis(const Problem& p) { return p.micro.vector_axis.value_or(p.stage.extents.size()); }

bool reused(const Problem& p, size_t a) {
    // Some operand of the body varies along the vectors and not along a: its vectors serve all rows.
    const size_t va = vector_axis(p);
    if (va >= p.stage.extents.size()) return false;
    for (const OperandModel& o : p.stage.operands)
        if (o.in_body && o.depends[va] && !o.depends[a]) return true;
    return false;
}

/// Vector registers of a tile: its results, the vectors of operands, one broadcast.
double registers_taken(const Problem& p, const std::vector<int64_t>& tile) {
    const size_t va = vector_axis(p);
    double results = 1, vectors = 0;
    for (size_t a = 0; a < p.stage.spatial; ++a)
        results *= std::ceil(static_cast<double>(tile[a]) / static_cast<double>(p.units[a]));
    for (const OperandModel& o : p.stage.operands) {
        if (!o.in_body || va >= p.stage.extents.size() || !o.depends[va]) continue;
        double n = 1;
        for (size_t a = 0; a < p.stage.spatial; ++a)
            if (o.depends[a] && a == va) n *= static_cast<double>(tile[a]) / static_cast<double>(p.units[a]);
        vectors = std::max(vectors, n);
    }
    if (va >= p.stage.spatial && va < p.stage.extents.size())
        results *= static_cast<double>(tile[va]) / static_cast<double>(p.units[va]);
    return results + vectors + 1;
}

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/// Cycles of the copies of all tasks: every element is loaded, checked and stored.
double copy_cycles(const Problem& p, const std::vector<int64_t>& task, int lanes, const CycleRates& rates) {
    double tasks = 1, elements = 0;
    for (size_t a = 0; a < p.stage.spatial; ++a)
        tasks *= std::ceil(static_cast<double>(p.stage.extents[a]) / static_cast<double>(task[a]));
    for (const size_t i : p.loads) elements += p.stage.operands[i].elements(task);
    return tasks * elements / lanes * 4 / rates.loads_per_cycle;
}

/// Bytes of the copies of a task.
double copied_bytes(const Problem& p, const std::vector<int64_t>& task) {
    double n = 0;
    for (const size_t i : p.loads)
        n += p.stage.operands[i].elements(task) * static_cast<double>(p.stage.operands[i].element_bytes);
    return n;
}

class CpuModel : public StateModel {
  public:
    explicit CpuModel(const Target& target)
        : rates_(target), lanes_(target.lanes(DType::F32)), vector_registers_(target.vector_registers) {}

    double footprint(const Problem& p, const Etir& e, size_t level) const override {
        if (level == 0) return registers_taken(p, e.tiles[0]) * 4 * static_cast<double>(lanes_);
        double n = 0;
        for (const OperandModel& o : p.stage.operands) n += o.bytes(e.tiles[level]);
        return n;
    }
    double capacity(const Problem&, size_t level) const override {
        if (level == 0) return vector_registers_ * 4.0 * lanes_;
        return rates_.caches[std::min(level, rates_.caches.size()) - 1].bytes;
    }
    double transfer(size_t level, double bytes) const override {
        const CycleRates::Level& from = level <= rates_.caches.size() ? rates_.caches[level - 1] : rates_.memory;
        return from.latency + bytes / from.bytes_per_cycle;
    }
    double interleaving(const Problem& p, const Etir& before, const Etir& after, size_t axis) const override {
        double most = 1;
        for (const OperandModel& o : p.stage.operands) {
            const int64_t stride = std::abs(o.strides[axis]) * o.element_bytes;
            if (!o.in_body || stride == 0) continue;
            const auto w = static_cast<double>(steps_to_same_set(stride));
            const auto x = static_cast<double>(before.tiles[0][axis]);
            const auto v = static_cast<double>(after.virtual_threads[axis]);
            most = std::max(most, std::ceil(x / w) / std::ceil(x / (v * w)));
        }
        return most;
    }
    Realised realise(const Problem& p, const Etir& e) const override;
    std::vector<Stmt> copies(const Program& stages, const Problem& p, const Realised& r) const override {
        return make_loads(stages, PrimitiveId(0), p.loads, r.micro);
    }

  private:
    CycleRates rates_;
    int lanes_, vector_registers_;
};

/// Rounds tiles of outer levels up to multiples of inner ones.
void nest_tiles(const Problem& p, Etir& state) {
    std::vector<std::vector<int64_t>>& tiles = state.tiles;
    for (size_t a = 0; a < p.stage.extents.size(); ++a)
        for (size_t l = 1; l < kCpuLevels; ++l) {
            const int64_t inner = l == 1 ? (a < p.stage.spatial || a == vector_axis(p) ? tiles[0][a] : 1) : tiles[1][a];
            tiles[l][a] = std::max(tiles[l][a], inner);
            tiles[l][a] = round_up(tiles[l][a], inner);
            if (tiles[l][a] >= p.stage.extents[a] && !p.dynamic[a]) tiles[l][a] = p.stage.extents[a];
        }
    for (size_t a = 0; a < p.stage.extents.size(); ++a)
        if (state.virtual_threads[a] > 1 && tiles[1][a] % tiles[0][a] != 0) state.virtual_threads[a] = 1;
}

/// Shrinks tasks along the rows until the copies fit beside the data that they serve.
void fit_copies(const Problem& p, const CycleRates& rates, std::vector<std::vector<int64_t>>& tiles) {
    if (p.loads.empty() || rates.caches.size() <= 1) return;
    const double most = rates.caches[1].bytes / 2;
    for (size_t a = 0; a < p.stage.spatial && copied_bytes(p, tiles[2]) > most; ++a)
        while (a != vector_axis(p) && tiles[2][a] > tiles[0][a] && copied_bytes(p, tiles[2]) > most) {
            tiles[2][a] = std::max(tiles[0][a], round_up(tiles[2][a] / 2, tiles[0][a]));
            tiles[1][a] = std::min(tiles[1][a], tiles[2][a]);
        }
}

/// Per level, whether the vector axis is the outermost of the spatial loops or the innermost.
struct VectorsFirst {
    bool task, tile, micro;
};

/// Whether tiles inside of a range have loops along the vector axis and along other spatial axes.
bool cuts_both(const Problem& p, const std::vector<int64_t>& tile, const std::vector<int64_t>& range) {
    bool vectors = false, others = false;
    for (size_t a = 0; a < p.stage.spatial; ++a)
        if (tile[a] < range[a]) (a == vector_axis(p) ? vectors : others) = true;
    return vectors && others;
}

/// The loops of a state, and the order of a register tile's axes (Micro::order).
struct StateLoops {
    Nest nest;
    size_t copies_at = 0;
    std::vector<size_t> order;
};

/// The loops of a state: tasks, L2 tiles, L1 tiles, register tiles.
StateLoops loops_of(const Problem& p, const std::vector<std::vector<int64_t>>& tiles, VectorsFirst first) {
    const size_t n = p.stage.extents.size(), va = vector_axis(p);
    const auto spatial = [&](bool vectors_first) {
        std::vector<size_t> axes;
        for (size_t a = 0; a < p.stage.spatial; ++a)
            if (a != va) axes.push_back(a);
        if (va < p.stage.spatial) axes.insert(vectors_first ? axes.begin() : axes.end(), va);
        return axes;
    };
    StateLoops out;
    std::vector<size_t>& order = out.order;
    order = spatial(first.micro);
    for (const size_t a : p.micro.order)
        if (a >= p.stage.spatial) order.push_back(a);
    for (size_t a = p.stage.spatial; a < n; ++a)
        if (std::find(order.begin(), order.end(), a) == order.end()) order.push_back(a);
    std::vector<int64_t> range = p.stage.extents;
    const auto cut = [&](size_t a, int64_t to) {
        if (to >= range[a]) return;
        out.nest.loops.push_back({a, to});
        range[a] = to;
    };
    for (const size_t a : spatial(first.task)) cut(a, tiles[2][a]);
    out.copies_at = out.nest.parallel = out.nest.loops.size();
    for (size_t a = p.stage.spatial; a < n; ++a) cut(a, tiles[2][a]);
    for (const size_t a : spatial(first.tile)) cut(a, tiles[1][a]);
    for (size_t a = p.stage.spatial; a < n; ++a) cut(a, tiles[1][a]);
    return out;
}

Realised CpuModel::realise(const Problem& p, const Etir& e) const {
    Realised out;
    out.state = e;
    nest_tiles(p, out.state);
    out.micro = p.micro;
    out.micro.registers = out.state.tiles[0];
    out.micro.virtual_threads = out.state.virtual_threads;
    fit_copies(p, rates_, out.state.tiles);

    const double copying = p.loads.empty() ? 0 : copy_cycles(p, out.state.tiles[2], lanes_, rates_);
    out.seconds = 1e300;
    std::optional<double> compute;
    StateLoops best;
    // Levels whose loops have one order only are not ordered twice.
    const std::vector<std::vector<int64_t>>& tiles = out.state.tiles;
    const bool tasks_vary = cuts_both(p, tiles[2], p.stage.extents), tiles_vary = cuts_both(p, tiles[1], tiles[2]);
    const bool points_vary = vector_axis(p) < p.stage.spatial && p.stage.spatial > 1;
    for (const bool task : {true, false})
        for (const bool tile : {true, false})
            for (const bool vectors : {true, false}) {
                if ((!task && !tasks_vary) || (!tile && !tiles_vary) || (!vectors && !points_vary)) continue;
                StateLoops now = loops_of(p, tiles, {task, tile, vectors});
                out.micro.order = now.order;
                now.nest.micro = &out.micro;
                NestCost cost = nest_cost(p.stage, now.nest, rates_, compute);
                compute = cost.compute_cycles;
                cost.cycles += copying;
                cost.compute_cycles += copying;
                const double seconds = cost.seconds(rates_);
                if (seconds >= out.seconds * (1 - 1e-9)) continue;
                out.seconds = seconds;
                best = std::move(now);
            }
    out.loops = std::move(best.nest.loops);
    out.parallel = best.nest.parallel;
    out.copies_at = best.copies_at;
    out.micro.order = std::move(best.order);
    return out;
}

}  // namespace

Problem make_problem(const Program& stages, const Target& target, const Bindings& bindings) {
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    const DType out = stages.values[stages.primitives[id].outputs[0]].dtype;
    const StageChoice choice = choose_micro(stages, e, out, target);
    Problem p;
    p.stage = stage_model(stages, id, bindings);
    p.micro = choice.micro;
    p.loads = choice.loads;
    p.contraction = p.virtual_threads = choice.contraction;
    p.model = std::make_shared<const CpuModel>(target);
    const size_t n = e.extents.size();
    for (const Expr& x : e.extents) p.dynamic.push_back(!x.is_constant());
    p.units.assign(n, 1);
    if (vector_axis(p) < n) p.units[vector_axis(p)] = std::max<int64_t>(1, p.micro.lanes);
    // Reductions may be cut where the result has the type of the accumulator.
    const bool partial_sums =
        e.reducer != Reducer::None && compute_type(out) == out && out == e.body.dtype() && choice.loads.empty();
    const size_t va = vector_axis(p);
    // Packed weights are read one panel at a time. A tile of half a panel, or of parts of two, has two streams instead
    // of one.
    const bool panels = va < n && std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) {
                            return !axis_strides(stages, e, a.value, a.index)[va];
                        });
    p.tile_sizes.resize(kCpuLevels);
    for (size_t l = 0; l < kCpuLevels; ++l)
        for (size_t a = 0; a < n; ++a) {
            const int64_t extent = p.stage.extents[a];
            const int64_t given = a < choice.micro.registers.size() ? choice.micro.registers[a] : 1;
            std::vector<int64_t> sizes;
            if (l == 0) {
                if ((!p.contraction && given >= p.units[a]) || (panels && a == va)) {
                    // Without reuse across rows, the layout of operands determines the register tile (in-register
                    // transpose, windows that share loads, vectors that hide the latency of a sum).
                    sizes = {given};
                } else if (a == va) {
                    const int64_t lanes = p.units[a];
                    const int64_t most = a < e.spatial ? kMostColumns : 4;
                    for (int64_t c = 1; c <= most && (c == 1 || (c - 1) * lanes < extent); ++c)
                        if (a < e.spatial || (c & (c - 1)) == 0) sizes.push_back(c * lanes);
                } else if (a < e.spatial && (p.contraction ? reused(p, a) : given > 1)) {
                    for (int64_t r = 1; r <= std::min(kMostRows, extent); ++r) sizes.push_back(r);
                } else {
                    sizes = {std::max<int64_t>(1, given)};
                }
            } else if (a < e.spatial) {
                sizes = candidate_sizes(extent, p.units[a]);
                // Sums down columns read a row at least a page at a time.
                if (choice.summed_rows && a == va)
                    while (sizes.size() > 1 && sizes.front() < kPageElements) sizes.erase(sizes.begin());
            } else if (partial_sums && !p.dynamic[a] && a != va && p.contraction && extent >= 64) {
                sizes = candidate_sizes(extent, 16);
            } else if (partial_sums && choice.summed_rows == a) {
                sizes = {l == 1 ? 1 : extent};
            } else {
                sizes = {extent};
            }
            p.tile_sizes[l].push_back(std::move(sizes));
        }
    measure_smallest(p);
    return p;
}

}  // namespace tilewright::construct
