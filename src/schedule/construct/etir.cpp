#include "schedule/construct/etir.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/error.h"

namespace tilewright::construct {

namespace {

constexpr int64_t kMostRows = 14;     // of a register tile: more is code without gain
constexpr int64_t kMostColumns = 4;   // vectors
constexpr double kMostWaste = 0.2;    // of a tile that does not divide its axis
constexpr int64_t kSetPeriod = 4096;  // bytes after which an address meets the same set of the first-level cache

/// Sizes for an axis of `extent` points in units: divisors, powers of two, the whole.
std::vector<int64_t> ladder(int64_t extent, int64_t unit) {
    std::vector<int64_t> out;
    const int64_t units = (extent + unit - 1) / unit;
    for (int64_t u = 1; u < units; ++u) {
        const bool divisor = units % u == 0, power = (u & (u - 1)) == 0;
        const int64_t covered = (units + u - 1) / u * u;
        if (!divisor && (!power || static_cast<double>(covered - units) > kMostWaste * static_cast<double>(units)))
            continue;
        out.push_back(u * unit);
    }
    out.push_back(extent);
    // Long ladders make long walks: keep about three rungs an octave.
    std::vector<int64_t> thin;
    for (const int64_t x : out)
        if (thin.empty() || static_cast<double>(x) >= 1.25 * static_cast<double>(thin.back()) || x == extent)
            thin.push_back(x);
    return thin;
}

size_t vector_axis(const Problem& p) { return p.micro.vector_axis.value_or(p.stage.extents.size()); }

int64_t unit_of(const Problem& p, size_t a) { return a == vector_axis(p) ? std::max<int64_t>(1, p.micro.lanes) : 1; }

bool reused(const Problem& p, size_t a) {
    // Some operand of the body that the vectors run along does not move with a: its vectors serve every row.
    const size_t va = vector_axis(p);
    if (va >= p.stage.extents.size()) return false;
    for (const OperandModel& o : p.stage.operands)
        if (o.in_body && o.depends[va] && !o.depends[a]) return true;
    return false;
}

double operand_bytes(const Problem& p, const std::vector<int64_t>& tile) {
    double n = 0;
    for (const OperandModel& o : p.stage.operands) n += o.bytes(tile);
    return n;
}

/// Vector registers a tile takes: its results, the vectors along the lanes, one broadcast.
double registers_taken(const Problem& p, const std::vector<int64_t>& tile) {
    const size_t va = vector_axis(p);
    double results = 1, vectors = 0;
    for (size_t a = 0; a < p.stage.spatial; ++a)
        results *= std::ceil(static_cast<double>(tile[a]) / static_cast<double>(unit_of(p, a)));
    for (const OperandModel& o : p.stage.operands) {
        if (!o.in_body || va >= p.stage.extents.size() || !o.depends[va]) continue;
        double n = 1;
        for (size_t a = 0; a < p.stage.spatial; ++a)
            if (o.depends[a] && a == va) n *= static_cast<double>(tile[a]) / static_cast<double>(unit_of(p, a));
        vectors = std::max(vectors, n);
    }
    if (va >= p.stage.spatial && va < p.stage.extents.size())
        results *= static_cast<double>(tile[va]) / static_cast<double>(unit_of(p, va));
    return results + vectors + 1;
}

/// Registers hold a row of the innermost reduction at a time: its tile there is one point (or the unrolled ones).
std::vector<int64_t> register_view(const Problem& p, const std::vector<int64_t>& tile) {
    std::vector<int64_t> t = tile;
    for (size_t a = p.stage.spatial; a < t.size(); ++a)
        if (a != vector_axis(p)) t[a] = 1;
    return t;
}

}  // namespace

Problem make_problem(const Program& stages, const ScheduleTarget& rule, const Machine& machine,
                     const Bindings& bindings) {
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    const DType out = stages.values[stages.primitives[id].outputs[0]].dtype;
    const StageChoice choice = choose_micro(stages, e, out, rule);
    Problem p{
        stage_model(stages, id, bindings), choice.micro, choice.loads, choice.contraction, false, {}, machine, {}, {}};
    const size_t n = e.extents.size();
    for (const Expr& x : e.extents) p.open.push_back(!x.is_constant());
    p.partial_sums =
        e.reducer != Reducer::None && compute_type(out) == out && out == e.body.dtype() && choice.loads.empty();
    const size_t va = vector_axis(p);
    // Weights packed in panels of so many columns are read a panel at a time: half of one, or parts of two, are two
    // streams where one was.
    const bool panels = va < n && std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) {
                            return !axis_strides(stages, e, a.value, a.index)[va];
                        });
    p.ladders.resize(kLevels);
    for (size_t l = 0; l < kLevels; ++l)
        for (size_t a = 0; a < n; ++a) {
            const int64_t extent = p.stage.extents[a];
            const int64_t given = a < choice.micro.registers.size() ? choice.micro.registers[a] : 1;
            std::vector<int64_t> sizes;
            if (l == 0) {
                if ((!p.contraction && given >= unit_of(p, a)) || (panels && a == va)) {
                    // Where nothing is reused across rows, register tile is what the operands' layout asks for (blocks
                    // that are turned around, windows that share loads, vectors that hide a sum's latency).
                    sizes = {given};
                } else if (a == va) {
                    const int64_t lanes = unit_of(p, a);
                    const int64_t most = a < e.spatial ? kMostColumns : 4;
                    for (int64_t c = 1; c <= most && (c == 1 || (c - 1) * lanes < extent); ++c)
                        if (a < e.spatial || (c & (c - 1)) == 0) sizes.push_back(c * lanes);
                } else if (a < e.spatial && (p.contraction ? reused(p, a) : given > 1)) {
                    for (int64_t r = 1; r <= std::min(kMostRows, extent); ++r) sizes.push_back(r);
                } else {
                    sizes = {std::max<int64_t>(1, given)};
                }
            } else if (a < e.spatial) {
                sizes = ladder(extent, unit_of(p, a));
            } else if (p.partial_sums && !p.open[a] && a != va && p.contraction && extent >= 64) {
                sizes = ladder(extent, 16);
            } else if (p.partial_sums && choice.summed_rows == a) {
                sizes = {kSummedRows, extent};
            } else {
                sizes = {extent};
            }
            p.ladders[l].push_back(std::move(sizes));
        }
    const Etir first = initial(p);
    for (size_t l = 0; l < kLevels; ++l) p.smallest.push_back(footprint(p, first, l));
    return p;
}

Etir initial(const Problem& p) {
    Etir e;
    for (const auto& level : p.ladders) {
        e.tiles.emplace_back();
        for (const auto& sizes : level) e.tiles.back().push_back(sizes.front());
    }
    e.virtual_threads.assign(p.stage.extents.size(), 1);
    return e;
}

std::optional<Etir> apply(const Problem& p, const Etir& e, Action action, bool nested) {
    Etir next = e;
    if (action.kind == Action::Kind::Cache) {
        if (e.level == 0) return std::nullopt;
        --next.level;
        return next;
    }
    const std::vector<int64_t>& sizes = p.ladders[e.level][action.axis];
    int64_t& tile = next.tiles[e.level][action.axis];
    if (action.kind == Action::Kind::SetVThread) {
        if (!p.contraction || e.level != 0 || action.axis >= p.stage.spatial || p.open[action.axis])
            return std::nullopt;
        int64_t& threads = next.virtual_threads[action.axis];
        threads *= 2;
        if (tile % (threads * unit_of(p, action.axis)) != 0) return std::nullopt;
        return next;
    }
    auto at = std::find(sizes.begin(), sizes.end(), tile);
    TW_CHECK(at != sizes.end());
    if (action.kind == Action::Kind::Tile) {
        if (++at == sizes.end()) return std::nullopt;
        // Not beyond the tile around it, which a register tile may exceed by its rounding.
        if (nested && e.level + 1 < kLevels &&
            *at > std::max(e.tiles[e.level + 1][action.axis], unit_of(p, action.axis)))
            return std::nullopt;
    } else {
        if (at == sizes.begin()) return std::nullopt;
        --at;
    }
    tile = *at;
    if (e.level == 0 && tile % (next.virtual_threads[action.axis] * unit_of(p, action.axis)) != 0)
        next.virtual_threads[action.axis] = 1;
    return next;
}

Etir random_state(const Problem& p, std::mt19937_64& rng) {
    for (int tries = 0; tries < 1000; ++tries) {
        Etir e = initial(p);
        for (size_t l = kLevels; l-- > 0;)
            for (size_t a = 0; a < p.stage.extents.size(); ++a) {
                const auto& sizes = p.ladders[l][a];
                size_t most = sizes.size();
                if (l + 1 < kLevels)
                    while (most > 1 && sizes[most - 1] > e.tiles[l + 1][a]) --most;
                e.tiles[l][a] = sizes[rng() % most];
            }
        e.level = 0;
        if (!fits(p, e, 0) || !fits(p, e, 1) || !fits(p, e, 2)) continue;
        // Half of the states have virtual threads, along some axes 2 or 4.
        if (rng() % 2 == 0)
            for (size_t a = 0; a < p.stage.spatial; ++a)
                for (auto steps = rng() % 3; steps > 0; --steps)
                    e = apply(p, e, {Action::Kind::SetVThread, a}).value_or(e);
        return e;
    }
    return initial(p);
}

void to_rungs(const Problem& p, Etir& e) {
    for (size_t l = 0; l < kLevels; ++l)
        for (size_t a = 0; a < e.tiles[l].size(); ++a) {
            const auto& sizes = p.ladders[l][a];
            const auto it = std::lower_bound(sizes.begin(), sizes.end(), e.tiles[l][a]);
            e.tiles[l][a] = it == sizes.end() ? sizes.back() : *it;
        }
}

Etir mutated(const Problem& p, Etir e, std::mt19937_64& rng) {
    to_rungs(p, e);
    constexpr Action::Kind kinds[] = {Action::Kind::Tile, Action::Kind::InverseTile, Action::Kind::SetVThread};
    const auto steps = 1 + rng() % 3;
    for (uint64_t done = 0, tries = 0; done < steps && tries < 100; ++tries) {
        e.level = rng() % kLevels;
        const auto next = apply(p, e, {kinds[rng() % 3], rng() % p.stage.extents.size()}, false);
        if (!next || !fits(p, *next, 0)) continue;
        e = *next;
        ++done;
    }
    e.level = 0;
    return e;
}

double footprint(const Problem& p, const Etir& e, size_t level) {
    if (level > 0) return operand_bytes(p, e.tiles[level]);
    return registers_taken(p, e.tiles[0]) * 4 * static_cast<double>(p.machine.lanes);
}

double traffic(const Problem& p, const Etir& e, size_t level) {
    const std::vector<int64_t> tile = level > 0 ? e.tiles[level] : register_view(p, e.tiles[0]);
    double spatial = 1, reductions = 1;
    for (size_t a = 0; a < tile.size(); ++a) {
        const double trips = std::ceil(static_cast<double>(p.stage.extents[a]) / static_cast<double>(tile[a]));
        (a < p.stage.spatial ? spatial : reductions) *= trips;
    }
    double bytes = 0;
    for (const OperandModel& o : p.stage.operands) {
        // In registers a broadcast is one element, a vector its bytes.
        const double moved = level > 0 ? o.bytes(tile) : o.elements(tile) * static_cast<double>(o.element_bytes);
        bytes += moved * spatial * (o.in_body ? reductions : 1);
    }
    return bytes;
}

bool fits(const Problem& p, const Etir& e, size_t level) {
    if (level == 0) return !p.contraction || registers_taken(p, e.tiles[0]) <= p.machine.vector_registers;
    const double bytes = p.machine.caches[std::min(level, p.machine.caches.size()) - 1].bytes;
    return footprint(p, e, level) <= bytes || p.smallest[level] > bytes;
}

double benefit(const Problem& p, const Etir& e, Action action, int step) {
    const auto next = apply(p, e, action);
    if (!next) return 0;
    switch (action.kind) {
        case Action::Kind::Tile:
        case Action::Kind::InverseTile:
            if (!fits(p, *next, e.level)) return 0;
            return traffic(p, e, e.level) * footprint(p, *next, e.level) /
                   (traffic(p, *next, e.level) * footprint(p, e, e.level));
        case Action::Kind::Cache: {
            const Machine::Level high = p.machine.caches[std::min(e.level, p.machine.caches.size()) - 1];
            const Machine::Level low = e.level < p.machine.caches.size() ? p.machine.caches[e.level] : p.machine.memory;
            const double size = footprint(p, e, e.level);
            const double gain = (low.latency + size / low.bytes_a_cycle) / (high.latency + size / high.bytes_a_cycle);
            return gain * 3 / (1 + std::exp(-std::log(5.0) / 10 * (step - 10)));
        }
        case Action::Kind::SetVThread: {
            double most = 1;
            for (const OperandModel& o : p.stage.operands) {
                const int64_t stride = std::abs(o.strides[action.axis]) * o.element_bytes;
                if (!o.in_body || stride == 0) continue;
                const auto period = static_cast<double>(kSetPeriod / std::gcd(stride, kSetPeriod));
                const double w = std::max(1.0, period);
                const auto x = static_cast<double>(e.tiles[0][action.axis]);
                const auto v = static_cast<double>(next->virtual_threads[action.axis]);
                most = std::max(most, std::ceil(x / w) / std::ceil(x / (v * w)));
            }
            return most;
        }
    }
    return 0;
}

std::vector<Weighted> transitions(const Problem& p, const Etir& e, int step, bool virtual_threads) {
    std::vector<Weighted> out;
    const auto add = [&](Action a) {
        const double w = benefit(p, e, a, step);
        if (w > 0) out.push_back({a, w, *apply(p, e, a)});
    };
    for (size_t a = 0; a < p.stage.extents.size(); ++a) {
        add({Action::Kind::Tile, a});
        add({Action::Kind::InverseTile, a});
        if (virtual_threads) add({Action::Kind::SetVThread, a});
    }
    add({Action::Kind::Cache, 0});
    return out;
}

namespace {

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/// Cycles that all tasks' copies take: every element is loaded, checked and stored.
double copy_cycles(const Problem& p, const std::vector<int64_t>& task) {
    double tasks = 1, elements = 0;
    for (size_t a = 0; a < p.stage.spatial; ++a)
        tasks *= std::ceil(static_cast<double>(p.stage.extents[a]) / static_cast<double>(task[a]));
    for (const size_t i : p.loads) elements += p.stage.operands[i].elements(task);
    return tasks * elements / p.machine.lanes * 4 / p.machine.loads_a_cycle;
}

/// Bytes of the copies that a task makes.
double copies(const Problem& p, const std::vector<int64_t>& task) {
    double n = 0;
    for (const size_t i : p.loads)
        n += p.stage.operands[i].elements(task) * static_cast<double>(p.stage.operands[i].element_bytes);
    return n;
}

}  // namespace

Realised realise(const Problem& p, const Etir& e) {
    Realised out;
    out.state = e;
    const size_t n = p.stage.extents.size();
    std::vector<std::vector<int64_t>>& tiles = out.state.tiles;
    for (size_t a = 0; a < n; ++a)
        for (size_t l = 1; l < kLevels; ++l) {
            const int64_t inner = l == 1 ? (a < p.stage.spatial || a == vector_axis(p) ? tiles[0][a] : 1) : tiles[1][a];
            tiles[l][a] = std::max(tiles[l][a], inner);
            tiles[l][a] = round_up(tiles[l][a], inner);
            if (tiles[l][a] >= p.stage.extents[a] && !p.open[a]) tiles[l][a] = p.stage.extents[a];
        }
    for (size_t a = 0; a < n; ++a)
        if (out.state.virtual_threads[a] > 1 && tiles[1][a] % tiles[0][a] != 0) out.state.virtual_threads[a] = 1;
    out.micro = p.micro;
    out.micro.registers = tiles[0];
    out.micro.virtual_threads = out.state.virtual_threads;

    // Copies must fit beside what they serve; where they do not, tasks shrink along the rows.
    if (!p.loads.empty() && p.machine.caches.size() > 1)
        for (size_t a = 0; a < p.stage.spatial && copies(p, tiles[2]) > p.machine.caches[1].bytes / 2; ++a)
            while (a != vector_axis(p) && tiles[2][a] > tiles[0][a] &&
                   copies(p, tiles[2]) > p.machine.caches[1].bytes / 2) {
                tiles[2][a] = std::max(tiles[0][a], round_up(tiles[2][a] / 2, tiles[0][a]));
                tiles[1][a] = std::min(tiles[1][a], tiles[2][a]);
            }

    const size_t va = vector_axis(p);
    const auto loops_in = [&](bool vectors_first) {
        std::vector<size_t> axes;
        for (size_t a = 0; a < p.stage.spatial; ++a)
            if (a != va) axes.push_back(a);
        if (va < p.stage.spatial) axes.insert(vectors_first ? axes.begin() : axes.end(), va);
        return axes;
    };
    const double copying = p.loads.empty() ? 0 : copy_cycles(p, tiles[2]);
    out.seconds = 1e300;
    std::optional<double> compute;
    std::vector<std::vector<size_t>> orders;  // those that were looked at: with few loops most are the same
    for (const bool task_first : {true, false})
        for (const bool tile_first : {true, false})
            for (const bool micro_first : {true, false}) {
                Realised r;
                r.micro = out.micro;
                std::vector<size_t> order = loops_in(micro_first);
                for (const size_t a : p.micro.order)
                    if (a >= p.stage.spatial) order.push_back(a);
                for (size_t a = p.stage.spatial; a < n; ++a)
                    if (std::find(order.begin(), order.end(), a) == order.end()) order.push_back(a);
                r.micro.order = order;
                std::vector<int64_t> range = p.stage.extents;
                const auto cut = [&](size_t a, int64_t to) {
                    if (to >= range[a]) return;
                    r.loops.push_back({a, to});
                    range[a] = to;
                };
                for (const size_t a : loops_in(task_first)) cut(a, tiles[2][a]);
                r.parallel = r.loops.size();
                for (size_t a = p.stage.spatial; a < n; ++a) cut(a, tiles[2][a]);
                for (const size_t a : loops_in(tile_first)) cut(a, tiles[1][a]);
                for (size_t a = p.stage.spatial; a < n; ++a) cut(a, tiles[1][a]);
                Nest nest;
                nest.loops = r.loops;
                nest.parallel = r.parallel;
                nest.micro = &r.micro;
                std::vector<size_t> axes{r.parallel};
                for (const Nest::Loop& l : r.loops) axes.push_back(l.axis);
                axes.insert(axes.end(), order.begin(), order.end());
                if (std::find(orders.begin(), orders.end(), axes) != orders.end()) continue;
                orders.push_back(std::move(axes));
                r.cost = nest_cost(p.stage, nest, p.machine, compute);
                compute = r.cost.compute_cycles;
                r.cost.cycles += copying;
                r.cost.compute_cycles += copying;
                r.seconds = r.cost.seconds(p.machine);
                if (r.seconds >= out.seconds * (1 - 1e-9)) continue;
                r.state = out.state;
                out = std::move(r);
            }
    return out;
}

Etir state_of(const Problem& p, const TileProgram& schedule) {
    Etir e = initial(p);
    e.level = 0;
    e.tiles[1] = e.tiles[2] = p.stage.extents;
    const auto visit = [&](const auto& self, const std::vector<Stmt>& body) -> void {
        for (const Stmt& statement : body) {
            if (const auto* loop = std::get_if<TileLoop>(&statement.kind)) {
                for (const size_t l : {size_t{1}, size_t{2}})
                    if (l == 1 || loop->parallel) e.tiles[l][loop->axis] = loop->step;
                self(self, loop->body);
            } else if (const auto* compute = std::get_if<Compute>(&statement.kind)) {
                for (size_t a = 0; a < compute->micro.registers.size(); ++a)
                    e.tiles[0][a] = compute->micro.registers[a];
            }
        }
    };
    visit(visit, schedule.body);
    to_rungs(p, e);
    return e;
}

Realised::Key Realised::key() const {
    Key k{state.tiles, state.virtual_threads, {}};
    for (const Nest::Loop& l : loops) k.order.push_back(l.axis);
    k.order.insert(k.order.end(), micro.order.begin(), micro.order.end());
    return k;
}

TileProgram to_tile_program(Program stages, const Problem& p, const Realised& r) {
    TileProgram t;
    t.name = stages.name;
    t.stages = std::move(stages);
    const PrimitiveId id(0);
    const TensorExpr& e = *t.stages.primitives[id].expr();
    std::vector<size_t> identity(e.extents.size());
    std::iota(identity.begin(), identity.end(), size_t{0});
    t.stage_axes.push_back(identity);
    for (size_t a = 0; a < e.extents.size(); ++a)
        t.axes.push_back({fmt::format("{}{}", a < e.spatial ? "s" : "r", a), e.extents[a]});
    std::vector<Stmt> body{Stmt{Compute{id, r.micro}}};
    const auto begin_task = [&] {
        std::vector<Stmt> loads = make_loads(t.stages, id, p.loads, r.micro);
        body.insert(body.begin(), std::make_move_iterator(loads.begin()), std::make_move_iterator(loads.end()));
    };
    for (size_t k = r.loops.size(); k-- > 0;) {
        if (k + 1 == r.parallel) begin_task();
        TileLoop loop;
        loop.axis = r.loops[k].axis;
        loop.step = r.loops[k].step;
        loop.parallel = k < r.parallel;
        loop.body = std::move(body);
        body.clear();
        body.push_back(Stmt{std::move(loop)});
    }
    if (r.parallel == 0) begin_task();
    t.body = std::move(body);
    return t;
}

}  // namespace tilewright::construct
