#include "schedule/construct/etir.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/error.h"

namespace tilewright::construct {

std::vector<int64_t> candidate_sizes(int64_t extent, int64_t unit) {
    constexpr double kMostWaste = 0.2;  // of a tile that does not divide its axis
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
    // Many sizes make walks long: about three per octave are kept.
    std::vector<int64_t> thin;
    for (const int64_t x : out)
        if (thin.empty() || static_cast<double>(x) >= 1.25 * static_cast<double>(thin.back()) || x == extent)
            thin.push_back(x);
    return thin;
}

void measure_smallest(Problem& p) {
    p.smallest.clear();
    for (size_t l = 0; l < p.levels(); ++l) p.smallest.push_back(footprint(p, initial(p), l));
}

Etir initial(const Problem& p) {
    Etir e;
    e.level = p.levels() - 1;
    for (const auto& level : p.tile_sizes) {
        e.tiles.emplace_back();
        for (const auto& sizes : level) e.tiles.back().push_back(sizes.front());
    }
    e.virtual_threads.assign(p.stage.extents.size(), 1);
    return e;
}

bool advance(const Problem& p, Etir& e, Action action, bool nested) {
    const size_t a = action.axis;
    if (action.kind == Action::Kind::Cache) {
        if (e.level == 0) return false;
        --e.level;
        return true;
    }
    int64_t &tile = e.tiles[e.level][a], &threads = e.virtual_threads[a];
    if (action.kind == Action::Kind::SetVThread) {
        if (!p.virtual_threads || e.level != 0 || a >= p.stage.spatial || p.dynamic[a]) return false;
        if (tile % (2 * threads * p.units[a]) != 0) return false;
        threads *= 2;
        return true;
    }
    const std::vector<int64_t>& sizes = p.tile_sizes[e.level][a];
    auto at = std::find(sizes.begin(), sizes.end(), tile);
    TW_CHECK(at != sizes.end());
    if (action.kind == Action::Kind::Tile) {
        if (++at == sizes.end()) return false;
        // The tile must not exceed its outer tile, except by the rounding of register tiles.
        if (nested && e.level + 1 < p.levels() && *at > std::max(e.tiles[e.level + 1][a], p.units[a])) return false;
    } else {
        if (at == sizes.begin()) return false;
        --at;
    }
    tile = *at;
    if (e.level == 0 && tile % (threads * p.units[a]) != 0) threads = 1;
    return true;
}

std::optional<Etir> apply(const Problem& p, const Etir& e, Action action, bool nested) {
    std::optional<Etir> next = e;
    if (!advance(p, *next, action, nested)) next.reset();
    return next;
}

Etir random_state(const Problem& p, std::mt19937_64& rng) {
    for (int tries = 0; tries < 1000; ++tries) {
        Etir e = initial(p);
        for (size_t l = p.levels(); l-- > 0;)
            for (size_t a = 0; a < p.stage.extents.size(); ++a) {
                const auto& sizes = p.tile_sizes[l][a];
                size_t most = sizes.size();
                if (l + 1 < p.levels())
                    while (most > 1 && sizes[most - 1] > e.tiles[l + 1][a]) --most;
                e.tiles[l][a] = sizes[rng() % most];
            }
        e.level = 0;
        bool room = true;
        for (size_t l = 0; l < p.levels(); ++l) room = room && fits(p, e, l);
        if (!room) continue;
        // Half of the states have 2 or 4 virtual threads along some axes.
        if (rng() % 2 == 0)
            for (size_t a = 0; a < p.stage.spatial; ++a)
                for (auto steps = rng() % 3; steps > 0; --steps)
                    e = apply(p, e, {Action::Kind::SetVThread, a}).value_or(e);
        return e;
    }
    return initial(p);
}

void round_to_sizes(const Problem& p, Etir& e) {
    for (size_t l = 0; l < p.levels(); ++l)
        for (size_t a = 0; a < e.tiles[l].size(); ++a) {
            const auto& sizes = p.tile_sizes[l][a];
            const auto it = std::lower_bound(sizes.begin(), sizes.end(), e.tiles[l][a]);
            e.tiles[l][a] = it == sizes.end() ? sizes.back() : *it;
        }
}

Etir mutated(const Problem& p, Etir e, std::mt19937_64& rng) {
    round_to_sizes(p, e);
    constexpr Action::Kind kinds[] = {Action::Kind::Tile, Action::Kind::InverseTile, Action::Kind::SetVThread};
    const auto steps = 1 + rng() % 3;
    for (uint64_t done = 0, tries = 0; done < steps && tries < 100; ++tries) {
        e.level = rng() % p.levels();
        const auto next = apply(p, e, {kinds[rng() % 3], rng() % p.stage.extents.size()}, false);
        if (!next || !fits(p, *next, 0)) continue;
        e = *next;
        ++done;
    }
    e.level = 0;
    return e;
}

double footprint(const Problem& p, const Etir& e, size_t level) { return p.model->footprint(p, e, level); }

namespace {

/// Registers hold one row of the innermost reduction: the tile has one point of it (or the unrolled ones).
std::vector<int64_t> register_view(const Problem& p, const std::vector<int64_t>& tile) {
    std::vector<int64_t> t = tile;
    for (size_t a = p.stage.spatial; a < t.size(); ++a)
        if (a != p.micro.vector_axis) t[a] = 1;
    return t;
}

}  // namespace

double traffic(const Problem& p, const Etir& e, size_t level) {
    const std::vector<int64_t> tile = level > 0 ? e.tiles[level] : register_view(p, e.tiles[0]);
    double spatial = 1, reductions = 1;
    for (size_t a = 0; a < tile.size(); ++a) {
        const double trips = std::ceil(static_cast<double>(p.stage.extents[a]) / static_cast<double>(tile[a]));
        (a < p.stage.spatial ? spatial : reductions) *= trips;
    }
    double bytes = 0;
    for (const OperandModel& o : p.stage.operands) {
        // In registers, a broadcast is one element and a vector all its bytes.
        const double moved = level > 0 ? o.bytes(tile) : o.elements(tile) * static_cast<double>(o.element_bytes);
        bytes += moved * spatial * (o.in_body ? reductions : 1);
    }
    return bytes;
}

bool fits(const Problem& p, const Etir& e, size_t level) {
    if (level == 0 && !p.contraction) return true;
    const double room = p.model->capacity(p, level);
    return footprint(p, e, level) <= room || (level > 0 && p.smallest[level] > room);
}

namespace {

/// Q(T) and F(T) of a state at its level.
struct Moved {
    double traffic, footprint;
};

Moved moved(const Problem& p, const Etir& e) { return {traffic(p, e, e.level), footprint(p, e, e.level)}; }

/// benefit() of the action from `e`, whose numbers are `here`, to `next`.
double benefit_of(const Problem& p, const Etir& e, const Moved& here, const Etir& next, Action action, int step) {
    switch (action.kind) {
        case Action::Kind::Tile:
        case Action::Kind::InverseTile:
            if (!fits(p, next, e.level)) return 0;
            return here.traffic * footprint(p, next, e.level) / (traffic(p, next, e.level) * here.footprint);
        case Action::Kind::Cache: {
            const double gain =
                p.model->transfer(e.level + 1, here.footprint) / p.model->transfer(e.level, here.footprint);
            return gain * 3 / (1 + std::exp(-std::log(5.0) / 10 * (step - 10)));
        }
        case Action::Kind::SetVThread:
            return p.model->interleaving(p, e, next, action.axis);
    }
    return 0;
}

}  // namespace

double benefit(const Problem& p, const Etir& e, Action action, int step) {
    const auto next = apply(p, e, action);
    return next ? benefit_of(p, e, moved(p, e), *next, action, step) : 0;
}

std::vector<Weighted> transitions(const Problem& p, const Etir& e, int step, bool virtual_threads) {
    std::vector<Weighted> out;
    const Moved here = moved(p, e);
    Etir next = e;
    const auto add = [&](Action a) {
        if (!advance(p, next, a)) return;
        if (const double w = benefit_of(p, e, here, next, a, step); w > 0) out.push_back({a, w, next});
        next = e;
    };
    for (size_t a = 0; a < p.stage.extents.size(); ++a) {
        add({Action::Kind::Tile, a});
        add({Action::Kind::InverseTile, a});
        if (virtual_threads) add({Action::Kind::SetVThread, a});
    }
    add({Action::Kind::Cache, 0});
    return out;
}

Realised realise(const Problem& p, const Etir& e) { return p.model->realise(p, e); }

Etir state_of(const Problem& p, const TileProgram& schedule) {
    Etir e = initial(p);
    e.level = 0;
    for (size_t l = 1; l < p.levels(); ++l) e.tiles[l] = p.stage.extents;
    const auto visit = [&](const auto& self, const std::vector<Stmt>& body) -> void {
        for (const Stmt& statement : body) {
            if (const auto* loop = std::get_if<TileLoop>(&statement.kind)) {
                for (size_t l = 1; l < p.levels(); ++l)
                    if (l == 1 || loop->parallel) e.tiles[l][loop->axis] = loop->step;
                self(self, loop->body);
            } else if (const auto* compute = std::get_if<Compute>(&statement.kind)) {
                for (size_t a = 0; a < compute->micro.registers.size(); ++a)
                    e.tiles[0][a] = compute->micro.registers[a];
                if (p.virtual_threads && !compute->micro.virtual_threads.empty())
                    e.virtual_threads = compute->micro.virtual_threads;
            }
        }
    };
    visit(visit, schedule.body);
    round_to_sizes(p, e);
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
    // Adds copies and the store to the body inside `depth` loops.
    const auto surround = [&](size_t depth) {
        if (depth == r.copies_at) {
            std::vector<Stmt> copies = p.model->copies(t.stages, p, r);
            body.insert(body.begin(), std::make_move_iterator(copies.begin()), std::make_move_iterator(copies.end()));
        }
        if (depth == r.parallel && r.stored) {
            Store store;
            store.value = t.stages.primitives[id].outputs[0];
            body.push_back(Stmt{store});
        }
    };
    for (size_t k = r.loops.size(); k-- > 0;) {
        surround(k + 1);
        TileLoop loop;
        loop.axis = r.loops[k].axis;
        loop.step = r.loops[k].step;
        loop.parallel = k < r.parallel;
        if (k + 1 == r.loops.size() && !loop.parallel) loop.stages = r.ahead;
        loop.body = std::move(body);
        body.clear();
        body.push_back(Stmt{std::move(loop)});
    }
    surround(0);
    t.body = std::move(body);
    return t;
}

}  // namespace tilewright::construct
