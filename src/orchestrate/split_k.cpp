#include "orchestrate/split_k.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "backend/cuda/library_offer.h"
#include "base/error.h"
#include "cost/gpu_estimate.h"
#include "libraries/cut.h"
#include "orchestrate/fuse.h"
#include "orchestrate/fuse_rows.h"
#include "program/transform/substitute.h"
#include "schedule/chain/split.h"

namespace tilewright {

namespace {

/// The share that two kernels must save by estimates alone. On a GPU, a library may have the whole kernel but not its
/// parts.
constexpr double kConvincing = 0.1, kConvincingOnGpu = 0.3;
constexpr double kWorthwhile = 4 * kKernelSeconds;  // a faster kernel is not split

/// A group of all stages as a chain.
KernelGroup whole_of(const Program& p) {
    KernelGroup g;
    g.primitives = p.primitives.ids();
    g.row_axes.resize(g.primitives.size());
    g.chain = true;
    return g;
}

const Schedules::Scheduled* scheduled(const KernelBody& body, bool chain, Schedules& schedules) {
    if (!chain) return &schedules.kernel(body);
    const auto& s = schedules.chain(body);
    return s ? &*s : nullptr;
}

class Splits {
  public:
    Splits(Grouped& grouped, Schedules& schedules) : g_(grouped), schedules_(schedules) {}

    void run() {
        std::map<size_t, Replacement> replacements;
        const KernelExtractor extracted(g_.program);
        for (size_t k = 0; k < g_.groups.size(); ++k)
            if (auto r = better(extracted(g_.groups[k]), g_.groups[k].chain)) replacements.emplace(k, std::move(*r));
        if (!replacements.empty()) replace(replacements);
    }

  private:
    /// The replacement of a group.
    struct Replacement {
        KernelBody body;
        SplitKernel parts;
    };

    std::optional<Replacement> better(KernelBody body, bool chain) {
        const Schedules::Scheduled* whole = scheduled(body, chain, schedules_);
        TW_CHECK(whole != nullptr, "a chain without a schedule");
        auto parts = split_kernel(body, *whole, schedules_);
        if (!parts) return std::nullopt;
        return Replacement{std::move(body), std::move(*parts)};
    }

    /// Replaces groups by other primitives, at the place of each group's last primitive.
    void replace(const std::map<size_t, Replacement>& replacements) {
        std::map<PrimitiveId, size_t> ends;
        std::vector<bool> gone(g_.program.primitives.size(), false);
        for (const auto& [k, r] : replacements) {
            ends[g_.groups[k].primitives.back()] = k;
            for (const PrimitiveId id : g_.groups[k].primitives) gone[id.index()] = true;
        }
        IndexVector<PrimitiveId, Primitive> old = std::move(g_.program.primitives);
        g_.program.primitives = {};
        std::map<PrimitiveId, PrimitiveId> now;
        std::map<size_t, std::vector<KernelGroup>> fresh;
        for (const PrimitiveId id : old.ids()) {
            if (!gone[id.index()]) {
                now[id] = g_.program.primitives.push_back(old[id]);
            } else if (const auto end = ends.find(id); end != ends.end()) {
                fresh[end->second] = insert(replacements.at(end->second), old[id].name, g_.groups[end->second].chosen,
                                            origin_of(g_.groups[end->second], old));
            }
        }
        std::vector<KernelGroup> groups;
        for (size_t k = 0; k < g_.groups.size(); ++k) {
            if (const auto it = fresh.find(k); it != fresh.end()) {
                groups.insert(groups.end(), it->second.begin(), it->second.end());
                continue;
            }
            for (PrimitiveId& id : g_.groups[k].primitives) id = now.at(id);
            groups.push_back(std::move(g_.groups[k]));
        }
        g_.groups = std::move(groups);
    }

    static Origin origin_of(const KernelGroup& group, const IndexVector<PrimitiveId, Primitive>& primitives) {
        Origin origin;
        for (const PrimitiveId id : group.primitives) origin.add(primitives[id].origin);
        return origin;
    }

    /// Appends the primitives of a replacement and returns their groups. The first primitive gets the origin of the
    /// replaced group.
    std::vector<KernelGroup> insert(const Replacement& r, const std::string& name, std::optional<size_t> chosen,
                                    const Origin& origin) {
        std::map<std::string, ValueId> known;  // values are identified by name
        const Program& body = r.body.stages;
        for (size_t i = 0; i < body.inputs.size(); ++i) known[body.values[body.inputs[i]].name] = r.body.tensors[i];
        for (size_t i = 0; i < body.outputs.size(); ++i)
            known[body.values[body.outputs[i]].name] = r.body.tensors[body.inputs.size() + i];
        std::vector<KernelGroup> groups;
        for (const SplitKernel::Part& part : r.parts.parts) {
            const auto value = [&](ValueId v) {
                const Value& mine = part.stages.values[v];
                const auto [it, fresh] = known.try_emplace(mine.name);
                if (fresh) {
                    Value copy = mine;
                    copy.name = unique(name + "/" + mine.name);
                    it->second = g_.program.values.push_back(std::move(copy));
                }
                return it->second;
            };
            IndexVector<PrimitiveId, PrimitiveId> placed;
            for (const Primitive& s : part.stages.primitives) {
                Primitive copy = s;
                copy.name = name + "/" + part.stages.values[s.outputs[0]].name;
                if (groups.empty()) copy.origin = origin;
                for (Access& a : copy.expr()->accesses) a.value = value(a.value);
                copy.outputs = {value(s.outputs[0])};
                placed.push_back(g_.program.primitives.push_back(std::move(copy)));
            }
            for (KernelGroup g : part.groups) {
                for (PrimitiveId& id : g.primitives) id = placed[id];
                g.chosen = chosen;
                groups.push_back(std::move(g));
            }
            // Values inside one half are different values in the other, even with equal names.
            for (const PrimitiveId s : part.stages.primitives.ids()) {
                const ValueId v = part.stages.primitives[s].outputs[0];
                const auto& outputs = part.stages.outputs;
                if (std::find(outputs.begin(), outputs.end(), v) == outputs.end())
                    known.erase(part.stages.values[v].name);
            }
        }
        return groups;
    }

    std::string unique(const std::string& name) {
        if (names_.empty())
            for (const Value& v : g_.program.values) names_.insert(v.name);
        std::string out = name;
        for (int n = 1; !names_.insert(out).second; ++n) out = fmt::format("{}.{}", name, n);
        return out;
    }

    Grouped& g_;
    Schedules& schedules_;
    std::set<std::string> names_;
};

/// Parallel workers: a CPU's threads, or a GPU's multiprocessors.
struct Workers {
    double all = 1;
    double busy = 1;     ///< workers that have a task or block of the schedule
    double another = 0;  ///< seconds of one more kernel that estimates do not include
};
Workers workers_of(const TileProgram& program, const Scheduling& how) {
    const auto all = static_cast<double>(how.target.tasks_at_a_time());
    if (how.target.gpu) return {all, gpu_estimate(program, *how.target.gpu).blocks, 0};  // estimates include the launch
    return {all, estimate(program, how.target).tasks, kKernelSeconds};
}
bool has_workers(const Scheduling& how) { return how.chains() && how.target.tasks_at_a_time() > 1; }
/// Seconds; a faster kernel is not split.
double worthwhile(const Scheduling& how) {
    return how.target.gpu ? 4e-6 * how.target.gpu->rates.launch_us : kWorthwhile;
}

std::optional<SplitKernel> split_into(int64_t count, const KernelBody& body, Schedules& schedules, double another) {
    auto split = chain::split_sum(body.stages, count);
    if (!split) return std::nullopt;
    SplitKernel out;
    out.parts.push_back({std::move(split->partial), {}});
    out.parts.push_back({fuse_greedily(split->merge), {}});
    for (SplitKernel::Part& part : out.parts) {
        const bool chain = &part == &out.parts[0] && part.stages.primitives.size() > 1;
        part.groups = chain ? std::vector<KernelGroup>{whole_of(part.stages)} : fuse_rows(part.stages);
        for (const KernelGroup& g : part.groups) {
            const Schedules::Scheduled* s = scheduled(extract(part.stages, g), g.chain, schedules);
            if (s == nullptr) return std::nullopt;
            out.seconds += schedules.seconds_of(*s) + another;
            if (out.measured && s->measured)
                *out.measured += *s->measured + another;
            else
                out.measured.reset();
        }
    }
    out.seconds -= another;  // one kernel is launched in any case
    if (out.measured) *out.measured -= another;
    return out;
}

/// Whether the split kernel is fast enough: by tuned schedules, or by a margin.
bool gains(const SplitKernel& split, const Schedules::Scheduled& whole, double margin, Schedules& schedules) {
    if (split.measured && whole.measured) return *split.measured < *whole.measured;
    return split.seconds <= (1 - margin) * schedules.seconds_of(whole);
}

/// Whether libraries have the sum of the kernel: they split it themselves. With dynamic sizes the generated kernel is
/// what runs at those for which they have none.
bool is_for_libraries(const Program& stages, const Scheduling& how) {
    if (!how.gpu_libraries || stages.primitives.size() != 1 || !names_of(stages).empty()) return false;
    return !cuda::library_refusal(stages) ||
           std::holds_alternative<KernelCut>(cut_at_sums(stages, how.precision, cuda::library_refusal));
}

}  // namespace

std::optional<SplitKernel> split_kernel(const KernelBody& body, const Schedules::Scheduled& whole,
                                        Schedules& schedules) {
    const Scheduling& how = schedules.how();
    if (!has_workers(how) || whole.seconds < worthwhile(how)) return std::nullopt;
    const auto& primitives = body.stages.primitives;
    if (std::none_of(primitives.begin(), primitives.end(),
                     [](const Primitive& p) { return p.expr()->reducer != Reducer::None; }))
        return std::nullopt;
    const Workers workers = workers_of(whole.program, how);
    if (workers.busy >= workers.all) return std::nullopt;
    if (is_for_libraries(body.stages, how)) return std::nullopt;
    const auto most = static_cast<int64_t>(std::ceil(workers.all / workers.busy));
    std::optional<SplitKernel> out = split_into(most, body, schedules, workers.another);
    // The merge reads every part, so fewer parts than multiprocessors may be faster.
    for (int64_t fewer = most / 2; how.target.gpu && fewer > 1; fewer /= 2)
        if (auto parts = split_into(fewer, body, schedules, workers.another);
            parts && (!out || parts->seconds < out->seconds))
            out = std::move(parts);
    if (!out || !gains(*out, whole, how.target.gpu ? kConvincingOnGpu : kConvincing, schedules)) return std::nullopt;
    return out;
}

void split_k(Grouped& grouped, Schedules& schedules) {
    if (has_workers(schedules.how())) Splits(grouped, schedules).run();
}

}  // namespace tilewright
