#include "driver/opspec/chain_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "cost/sampling.h"
#include "orchestrate/fuse.h"
#include "orchestrate/kernel_group.h"
#include "schedule/chain/search.h"

namespace tilewright {
namespace {

std::string text_of(const chain::Chain& c, const chain::Candidate& candidate) {
    std::vector<std::string> names;
    std::string tiles;
    for (size_t k = 0; k < c.tiled.size(); ++k) {
        names.push_back(c.axes[c.tiled[k]].name);
        tiles += fmt::format(" {}={}", names.back(), candidate.tiles[k]);
    }
    return chain::print(candidate.expression, names) + tiles;
}

}  // namespace

double ChainModel::correlation() const {
    std::vector<double> estimates, measured;
    for (const ChainModelPoint& p : points) {
        estimates.push_back(p.estimate);
        measured.push_back(p.seconds);
    }
    return tilewright::correlation(estimates, measured);
}

size_t ChainModel::rank_of_fastest() const {
    const auto fastest = std::min_element(points.begin(), points.end(),
                                          [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    return points.empty() ? 0 : static_cast<size_t>(fastest - points.begin()) + 1;
}

double ChainModel::share_of_first(size_t n) const {
    if (points.empty()) return 0;
    const auto least = [&](size_t count) {
        double best = points[0].seconds;
        for (size_t k = 0; k < std::min(count, points.size()); ++k) best = std::min(best, points[k].seconds);
        return best;
    };
    return least(points.size()) / least(n);
}

std::optional<ChainModel> measure_chain_model(const Program& program, const Target& target, size_t most,
                                              const TuneSettings& settings, TuningDatabase* database, uint64_t seed) {
    const Program fused = fuse_greedily(program);
    KernelGroup group;
    group.primitives = fused.primitives.ids();
    group.row_axes.resize(group.primitives.size());
    for (const Primitive& p : fused.primitives)
        if (p.expr() == nullptr) return std::nullopt;
    const auto c = chain::make_chain(extract(fused, group).stages);
    if (!c) return std::nullopt;
    const std::vector<chain::Found> found = chain::sample(*c, target, std::max<size_t>(1, most), seed);
    std::vector<TileProgram> programs;
    programs.reserve(found.size());
    for (const chain::Found& f : found) programs.push_back(f.program);
    ChainModel out;
    const std::vector<TunedKernel> tuned = Tuner(target, settings, database).tune(programs);
    for (size_t k = 0; k < tuned.size(); ++k)
        if (tuned[k].measurement.verdict == Verdict::measured)
            out.points.push_back(
                {found[k].estimate, tuned[k].measurement.seconds.value, text_of(*c, found[k].candidate)});
        else
            ++out.refused;
    return out;
}

}  // namespace tilewright
