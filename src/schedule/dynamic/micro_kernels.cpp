#include "schedule/dynamic/micro_kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "cost/cycle_rates.h"
#include "schedule/construct/etir.h"
#include "schedule/spaces.h"

namespace tilewright::dynamic {

namespace {

using construct::Problem;
using construct::Realised;

double product_of(const std::vector<int64_t>& tile, size_t from, size_t to) {
    double n = 1;
    for (size_t a = from; a < to; ++a) n *= static_cast<double>(tile[a]);
    return n;
}

float log2_of(double x) { return static_cast<float>(std::log2(std::max(x, 1e-30))); }

MicroKernelFeatures features_of(const Problem& p, const Realised& r, double seconds_per_point) {
    const size_t n = p.stage.extents.size(), spatial = p.stage.spatial;
    const double points = p.stage.points();
    MicroKernelFeatures out{};
    size_t k = 0;
    const auto add = [&](float x) { out.at(k++) = x; };
    add(log2_of(seconds_per_point));
    for (size_t l = 0; l < p.levels(); ++l) add(log2_of(footprint(p, r.state, l)));
    for (size_t l = 0; l < p.levels(); ++l) add(log2_of(traffic(p, r.state, l) / points));
    for (const auto& tile : r.state.tiles) add(log2_of(product_of(tile, 0, spatial)));
    for (size_t l = 1; l < p.levels(); ++l) add(log2_of(product_of(r.state.tiles[l], spatial, n)));
    const size_t va = p.micro.vector_axis.value_or(0);
    add(log2_of(static_cast<double>(r.state.tiles[0][va])));
    add(log2_of(static_cast<double>(r.state.tiles.back()[va])));
    double interleaved = 1;
    for (const int64_t v : r.state.virtual_threads) interleaved *= static_cast<double>(v);
    add(log2_of(interleaved));
    add(static_cast<float>(va));
    return out;
}

std::set<Var> names_of_extents(const Program& stages) {
    std::set<Var> out;
    for (const Expr& x : stages.primitives[PrimitiveId(0)].expr()->extents)
        for (const Var v : variables(x)) out.insert(v);
    return out;
}

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

}  // namespace

Bindings sizes_of_extents(const Program& stages, const Bindings& sizes) {
    Bindings out;
    for (const Var v : names_of_extents(stages))
        if (const auto it = sizes.find(v); it != sizes.end()) out.insert(*it);
    return out;
}

double Instance::points() const { return problem->stage.points(); }

std::vector<Instance> instances_of(const Program& stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                                   const std::vector<SizeSample>& samples, const Scheduling& how) {
    const size_t names = names_of_extents(stages).size();
    std::map<Bindings, double> weights;
    for (const SizeSample& s : samples)
        if (const Bindings sizes = sizes_of_extents(stages, s.sizes); sizes.size() == names) weights[sizes] += s.weight;
    std::vector<Instance> out;
    for (const auto& [sizes, weight] : weights) {
        Instance one;
        one.stages = stages;
        for (const auto& [name, size] : sizes) {
            one.stages.assumed.insert_or_assign(name, size);
            one.stages.at_most.erase(name);
        }
        one.weight = weight;
        Spaces found = spaces_of(one.stages, row_axes, how);
        if (found.all.size() != 1) return {};
        one.rule = std::move(found.initial);
        one.stages = one.rule.stages;
        one.problem = std::make_shared<const Problem>(std::move(found.all[0]));
        one.models = stage_models(one.stages, one.stages.assumed);
        out.push_back(std::move(one));
    }
    return out;
}

std::vector<size_t> constructing(const std::vector<Instance>& instances) {
    const auto kind_of = [](const Problem& p) {
        std::vector<size_t> fixed;  // axes whose register tiles have one size
        for (size_t a = 0; a < p.stage.extents.size(); ++a)
            if (p.tile_sizes[0][a].size() == 1) fixed.push_back(static_cast<size_t>(p.tile_sizes[0][a][0]));
        return std::tuple(p.micro.vector_axis, p.micro.lanes, p.loads, p.virtual_threads, fixed);
    };
    std::map<decltype(kind_of(*instances[0].problem)), size_t> largest;
    for (size_t i = 0; i < instances.size(); ++i) {
        const auto it = largest.try_emplace(kind_of(*instances[i].problem), i).first;
        if (instances[i].points() > instances[it->second].points()) it->second = i;
    }
    std::vector<size_t> out;
    for (const auto& [kind, i] : largest) out.push_back(i);
    std::sort(out.begin(), out.end());
    return out;
}

MicroKernel micro_kernel(const Instance& space, const Realised& tiles, const Target& target) {
    const Problem& p = *space.problem;
    MicroKernel out;
    out.task = tiles.state.tiles.back();
    out.registers = tiles.state.tiles.front();
    out.padding = p.micro.padding;
    for (size_t a = 0; a < p.stage.spatial; ++a)
        out.vectors *= std::ceil(static_cast<double>(out.registers[a]) / static_cast<double>(p.units[a]));
    out.points_per_second = 1;
    out.points_per_second = seconds_at(out, space, target) / tiles.seconds;
    out.features = features_of(p, tiles, 1 / out.points_per_second);
    return out;
}

TileProgram with_stages(TileProgram schedule, const Program& stages) {
    const std::string name = schedule.stages.name;
    schedule.stages = stages;
    schedule.stages.name = name;
    return schedule;
}

Adaption adaption(const MicroKernel& k, const Instance& at, const Target& target) {
    const StageModel& stage = at.problem->stage;
    const CycleRates rates(target);
    const double under_way = rates.fma_latency * rates.fmas_per_cycle;
    Adaption out;
    double tasks = 1;
    for (size_t a = 0; a < stage.spatial; ++a) {
        const int64_t extent = stage.extents[a], task = k.task[a], tile = std::max<int64_t>(1, k.registers[a]);
        const auto points = static_cast<double>(extent);
        tasks *= std::ceil(points / static_cast<double>(task));
        const int64_t rest = extent % tile, unit = at.problem->units[a];
        double computed = points;  // of a smaller register tile for the rest at the end
        if (k.padding == Padding::Global) {
            computed = static_cast<double>(round_up(extent, task));
        } else if (k.padding == Padding::Local) {
            computed = static_cast<double>(round_up(extent, tile));
        } else if (rest != 0) {
            // It takes as long as one with as many vectors under way as the units take.
            const double others = k.vectors / std::ceil(static_cast<double>(tile) / static_cast<double>(unit));
            const double least = std::ceil(under_way / others) * static_cast<double>(unit);
            computed +=
                std::clamp(least, static_cast<double>(rest), static_cast<double>(tile)) - static_cast<double>(rest);
        }
        out.pad *= points / computed;
    }
    const double workers = rates.workers;
    out.spatial = tasks / (std::ceil(tasks / workers) * workers);
    return out;
}

double seconds_at(const MicroKernel& k, const Instance& at, const Target& target) {
    return at.points() / (k.points_per_second * target.workers * adaption(k, at, target).share());
}

}  // namespace tilewright::dynamic
