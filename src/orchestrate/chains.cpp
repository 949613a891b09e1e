#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "orchestrate/schedules.h"
#include "schedule/chain/chain.h"

namespace tilewright {

namespace {

constexpr size_t kMostStages = 24;
constexpr double kHopeless = 0.95;  // of the separate kernels' time

class Chains {
  public:
    Chains(const Program& program, std::vector<KernelGroup> groups, Schedules& schedules)
        : p_(program),
          groups_(std::move(groups)),
          schedules_(schedules),
          producers_(program.producers()),
          consumers_(program.consumers()),
          results_(program.outputs.begin(), program.outputs.end()) {
        for (size_t g = 0; g < groups_.size(); ++g)
            for (const PrimitiveId id : groups_[g].primitives) group_of_[id] = g;
        gone_.assign(groups_.size(), false);
    }

    std::vector<KernelGroup> run() {
        for (size_t g = 0; g < groups_.size(); ++g)
            if (products(g) == 1) grow(g);
        std::vector<KernelGroup> out;
        for (size_t g = 0; g < groups_.size(); ++g)
            if (!gone_[g]) out.push_back(std::move(groups_[g]));
        return out;
    }

  private:
    size_t products(size_t g) const {
        size_t n = 0;
        for (const PrimitiveId id : groups_[g].primitives) n += chain::is_product(*p_.primitives[id].expr()) ? 1 : 0;
        return n;
    }

    /// Whether everything that group g gives is read by `inside` alone.
    bool feeds_only(size_t g, const std::set<size_t>& inside) const {
        for (const PrimitiveId id : groups_[g].primitives) {
            const ValueId v = p_.primitives[id].outputs[0];
            if (results_.count(v) != 0) return false;
            for (const PrimitiveId c : consumers_[v]) {
                const auto it = group_of_.find(c);
                if (it == group_of_.end() || (it->second != g && inside.count(it->second) == 0)) return false;
            }
        }
        return true;
    }

    /// Groups that feed `last` and nobody else, back to products, those included.
    std::set<size_t> behind(size_t last) const {
        std::set<size_t> inside{last};
        for (bool more = true; more;) {
            more = false;
            for (const size_t g : std::set<size_t>(inside)) {
                if (g != last && products(g) > 0) continue;  // what feeds the first products stays outside
                for (const PrimitiveId id : groups_[g].primitives)
                    for (const ValueId v : p_.primitives[id].inputs()) {
                        const PrimitiveId from = producers_[v];
                        if (!from) continue;
                        const auto it = group_of_.find(from);
                        if (it == group_of_.end() || inside.count(it->second) != 0 || gone_[it->second]) continue;
                        if (!feeds_only(it->second, inside)) continue;
                        inside.insert(it->second);
                        more = true;
                    }
            }
        }
        return inside;
    }

    /// Of a group as it stands, which may be a shorter chain.
    double seconds_of(const KernelGroup& group) {
        const KernelBody body = extract(p_, group);
        if (!group.chain) return schedules_.seconds_of(schedules_.kernel(body));
        const auto& chain = schedules_.chain(body);
        TW_CHECK(chain, "a chain without a schedule");
        return schedules_.seconds_of(*chain);
    }

    struct Merged {
        KernelGroup group;
        std::set<size_t> inside;
        double gain = 0;
    };

    Merged merge(std::set<size_t> inside) {
        Merged m;
        std::set<PrimitiveId> members;
        for (const size_t g : inside) members.insert(groups_[g].primitives.begin(), groups_[g].primitives.end());
        if (members.size() > kMostStages) return m;
        m.group.primitives.assign(members.begin(), members.end());
        m.group.row_axes.resize(m.group.primitives.size());
        m.group.chain = true;
        const KernelBody body = extract(p_, m.group);
        double apart = 0;
        for (const size_t g : inside) apart += seconds_of(groups_[g]) + kKernelSeconds;
        // Together they still compute what they compute: where that is nearly all, searching is in vain.
        if (lower_bound(body.stages, *schedules_.how().machine, {}, true) > kHopeless * apart) return m;
        const auto& fused = schedules_.chain(body);
        if (!fused) return m;
        m.gain = apart - schedules_.seconds_of(*fused) - kKernelSeconds;
        if (!schedules_.how().measure) m.gain -= kConvincing * apart;
        m.inside = std::move(inside);
        return m;
    }

    /// The product of group `last` with one of those that feed it, or with all: whichever gains most.
    void grow(size_t last) {
        const std::set<size_t> all = behind(last);
        std::vector<size_t> first;
        for (const size_t g : all)
            if (g != last && products(g) > 0) first.push_back(g);
        Merged best;
        for (size_t k = 0; k < first.size() + (first.size() > 1 ? 1 : 0); ++k) {
            std::set<size_t> inside = all;
            for (size_t j = 0; j < first.size(); ++j)
                if (k < first.size() && j != k) inside.erase(first[j]);
            // One that stays may have fed one that left: then neither kernel could run before the other.
            //     a -> b -> last, a -> last: {a, last} without b
            if (!std::all_of(inside.begin(), inside.end(),
                             [&](size_t g) { return g == last || feeds_only(g, inside); }))
                continue;
            Merged m = merge(std::move(inside));
            if (m.gain > best.gain) best = std::move(m);
        }
        if (best.gain <= 0) return;
        for (const size_t g : best.inside) gone_[g] = g != last;
        groups_[last] = std::move(best.group);
        for (const PrimitiveId id : groups_[last].primitives) group_of_[id] = last;
    }

    const Program& p_;
    std::vector<KernelGroup> groups_;
    Schedules& schedules_;
    IndexVector<ValueId, PrimitiveId> producers_;
    IndexVector<ValueId, std::vector<PrimitiveId>> consumers_;
    std::set<ValueId> results_;
    std::map<PrimitiveId, size_t> group_of_;
    std::vector<bool> gone_;
};

}  // namespace

std::vector<KernelGroup> group_chains(const Program& program, std::vector<KernelGroup> groups, Schedules& schedules) {
    return Chains(program, std::move(groups), schedules).run();
}

}  // namespace tilewright
