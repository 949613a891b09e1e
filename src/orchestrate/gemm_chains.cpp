#include "orchestrate/gemm_chains.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "base/error.h"
#include "libraries/attention.h"
#include "orchestrate/split_k.h"
#include "schedule/chain/chain.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr size_t kMostStages = 24;
constexpr double kPruned = 0.95;  // of the separate kernels' time
/// Without measurements an attention on matrix instructions is one kernel up to twice the estimate of its parts.
/// Estimates of chains have been wrong by that factor, in both directions (docs/gpu.md), libraries have attentions as a
/// whole, and the scores take no memory, which grows with the square of the number of tokens.
constexpr double kAttentionExcess = 1;

class GemmChains {
  public:
    GemmChains(const Program& program, std::vector<KernelGroup> groups, Schedules& schedules,
               const FusionLimits& limits)
        : p_(program),
          extracted_(program),
          limits_(limits),
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
        // On a GPU attentions come first, so that none of their products joins what is in front of them.
        if (schedules_.how().target.gpu)
            for (size_t g = 0; g < groups_.size(); ++g)
                if (!gone_[g] && products(g) == 1 && follows_softmax(g)) grow(g);
        for (size_t g = 0; g < groups_.size(); ++g)
            if (!gone_[g] && products(g) == 1) grow(g);
        std::vector<KernelGroup> out;
        for (size_t g = 0; g < groups_.size(); ++g)
            if (!gone_[g]) out.push_back(std::move(groups_[g]));
        return out;
    }

  private:
    size_t products(size_t g) const {
        size_t n = 0;
        for (const PrimitiveId id : groups_[g].primitives) n += chain::is_link(*p_.primitives[id].expr()) ? 1 : 0;
        return n;
    }

    bool has_maximum(size_t g) const {
        return std::any_of(groups_[g].primitives.begin(), groups_[g].primitives.end(),
                           [&](PrimitiveId id) { return p_.primitives[id].expr()->reducer == Reducer::Max; });
    }

    /// Whether a maximum lies between the nearest products in front of group g and its own.
    bool follows_softmax(size_t g) const {
        const std::set<size_t> before = behind(g);
        return std::any_of(before.begin(), before.end(), [&](size_t b) { return has_maximum(b); });
    }

    /// Whether a product reads maxima of what another product computes. (Where a projection of the values and a softmax
    /// of given scores feed one product, there are two products and a maximum, but no attention.)
    static bool is_attention(const Program& stages) {
        enum : uint8_t { kOther, kScores, kMaxima };
        std::map<ValueId, uint8_t> depends;  // on the last of them
        for (const Primitive& s : stages.primitives) {
            const TensorExpr& e = *s.expr();
            uint8_t most = kOther;
            for (const Access& a : e.accesses)
                if (const auto known = depends.find(a.value); known != depends.end())
                    most = std::max(most, known->second);
            if (chain::is_link(e)) {
                if (most == kMaxima) return true;
                most = kScores;
            } else if (e.reducer == Reducer::Max && most == kScores) {
                most = kMaxima;
            }
            depends[s.outputs[0]] = most;
        }
        return false;
    }

    /// Whether only groups of `inside` read the results of group g.
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

    /// Whether the group only rounds a tensor to 16 bits, for a GPU's matrix instructions (precision.h): they read what
    /// lies in memory.
    bool rounds_for_gpu(size_t g) const {
        if (!schedules_.how().target.gpu || groups_[g].primitives.size() != 1) return false;
        const Primitive& p = p_.primitives[groups_[g].primitives[0]];
        const TensorExpr& e = *p.expr();
        return e.reducer == Reducer::None && e.accesses.size() == 1 && e.body[e.body.root()].op == ScalarOp::Access &&
               p_.values[e.accesses[0].value].dtype == DType::F32 && byte_size(p_.values[p.outputs[0]].dtype) == 2;
    }

    /// The groups that feed only `last`, back to the nearest products, which are included. Each further level continues
    /// to the next products.
    std::set<size_t> behind(size_t last, int levels = 1) const {
        std::set<size_t> inside{last}, through{last};
        for (int level = 0; level < levels; ++level) {
            for (bool more = true; more;) {
                more = false;
                for (const size_t g : std::set<size_t>(inside)) {
                    // Groups that feed these products stay outside.
                    if (products(g) > 0 && through.count(g) == 0) continue;
                    for (const PrimitiveId id : groups_[g].primitives)
                        for (const ValueId v : p_.primitives[id].inputs()) {
                            const PrimitiveId from = producers_[v];
                            if (!from) continue;
                            const auto it = group_of_.find(from);
                            if (it == group_of_.end() || inside.count(it->second) != 0 || gone_[it->second]) continue;
                            if (!feeds_only(it->second, inside) || rounds_for_gpu(it->second)) continue;
                            inside.insert(it->second);
                            more = true;
                        }
                }
            }
            through = inside;
        }
        return inside;
    }

    /// Seconds of a group, which may already be a shorter chain. Includes split-K where that is faster (split_k.h).
    double seconds_of(const KernelGroup& group) {
        const KernelBody body = extracted_(group);
        return seconds_of(body, scheduled(body, group.chain));
    }
    double estimate_of(const KernelGroup& group) {
        const KernelBody body = extracted_(group);
        return group.chain ? schedules_.estimated_chain(body)->seconds : schedules_.kernel(body).seconds;
    }
    double seconds_of(const KernelBody& body, const Schedules::Scheduled& whole) {
        const auto parts = split_kernel(body, whole, schedules_);
        return parts ? parts->seconds : schedules_.seconds_of(whole);
    }

    struct Merged {
        KernelGroup group;
        KernelBody body;
        std::set<size_t> inside;
        double apart = 0;    ///< seconds of the separate groups
        double promise = 0;  ///< estimated savings in seconds
    };

    bool may_share(const std::set<PrimitiveId>& members) const {
        if (!limits_.may_share) return true;
        return std::all_of(members.begin(), members.end(), [&](PrimitiveId a) {
            return std::all_of(members.begin(), members.end(),
                               [&](PrimitiveId b) { return limits_.may_share(p_.primitives[a], p_.primitives[b]); });
        });
    }

    /// Merges the groups into one chain. Refused if that is impossible, or saves nothing even at its lower bound.
    std::variant<Merged, FusionRefusal> merge(const std::set<size_t>& inside) {
        Merged m;
        std::set<PrimitiveId> members;
        for (const size_t g : inside) members.insert(groups_[g].primitives.begin(), groups_[g].primitives.end());
        if (members.size() > kMostStages) return FusionRefusal{"the GEMM chain would have too many stages"};
        if (!may_share(members)) return FusionRefusal{"an option forbids fusing the two"};
        m.group.primitives.assign(members.begin(), members.end());
        m.group.row_axes.resize(m.group.primitives.size());
        m.group.chain = true;
        m.body = extracted_(m.group);
        for (const size_t g : inside) {
            m.apart += seconds_of(groups_[g]) + kKernelSeconds;
            m.promise += estimate_of(groups_[g]) + kKernelSeconds;
        }
        // The chain has at least the arithmetic of its kernels. It is pruned where that is nearly all of their time.
        const bool all = schedules_.how().all_chains;
        if (!all && schedules_.costs().lower_bound(m.body.stages) > kPruned * m.apart)
            return FusionRefusal{"a GEMM chain would save nothing even at its lower bound"};
        // A chain of one task may still become as many times faster as there are workers, by split-K.
        const double replaces = m.apart * schedules_.how().target.tasks_at_a_time();
        const auto& fused = all ? schedules_.estimated_chain(m.body) : schedules_.estimated_chain(m.body, replaces);
        if (!fused) return FusionRefusal{"the GEMM chain has no schedule, or none that is nearly as fast"};
        m.promise -= fused->seconds + kKernelSeconds;
        m.inside = inside;
        return m;
    }

    const Schedules::Scheduled& scheduled(const KernelBody& body, bool chain) {
        if (!chain) return schedules_.kernel(body);
        const auto& s = schedules_.chain(body);
        TW_CHECK(s, "a chain without a schedule");
        return *s;
    }

    /// Seconds that the chain saves by tuned schedules, if it and all kernels that it replaces have one.
    std::optional<double> tuned_gain(const Merged& m, const Schedules::Scheduled& fused) {
        if (!fused.measured) return std::nullopt;
        double gain = -*fused.measured - kKernelSeconds;
        for (const size_t g : m.inside) {
            const Schedules::Scheduled& part = scheduled(extracted_(groups_[g]), groups_[g].chain);
            if (!part.measured) return std::nullopt;
            gain += *part.measured + kKernelSeconds;
        }
        return gain;
    }

    /// Seconds that the chain saves. By estimates alone, savings below the margin count as none.
    double gain_of(const Merged& m) {
        const auto& fused = schedules_.chain(m.body);
        if (!fused) return -std::numeric_limits<double>::infinity();
        if (const auto gain = tuned_gain(m, *fused)) return *gain;
        const double gain = m.apart - seconds_of(m.body, *fused) - kKernelSeconds;
        if (schedules_.how().measures() || preference(m) > 0) return gain;
        return gain - chain_gain(m.body.stages, schedules_.how()) * m.apart;
    }

    /// By estimates on a GPU: 2 for an attention that libraries have a form for, 1 for others, 0 for other chains.
    int preference(const Merged& m) const {
        if (schedules_.how().measures() || !schedules_.how().target.gpu || !is_attention(m.body.stages)) return 0;
        const auto form = library_attention(chain::factored(chain::unrounded(m.body.stages)));
        return std::holds_alternative<LibraryAttention>(form) ? 2 : 1;
    }

    bool on_matrix_instructions(const Merged& m) {
        const TileProgram& t = schedules_.chain(m.body)->program;
        const Walk tree = walk(t);
        return std::all_of(tree.computes.begin(), tree.computes.end(), [&](const auto& c) {
            return c.second->micro.matrix || !chain::is_link(*t.stages.primitives[c.second->stage].expr());
        });
    }

    bool reduces(size_t g) const {
        return std::any_of(groups_[g].primitives.begin(), groups_[g].primitives.end(),
                           [&](PrimitiveId id) { return p_.primitives[id].expr()->reducer != Reducer::None; });
    }

    /// Sets that may become one kernel with `last`: the groups that feed it back to the nearest products, with one, all
    /// or none of those products (none: a preceding normalisation); and where products feed an included product (two
    /// products before a gate), those as well.
    std::vector<std::set<size_t>> candidates(size_t last) const {
        const std::set<size_t> all = behind(last);
        std::vector<size_t> first;
        for (const size_t g : all)
            if (g != last && products(g) > 0) first.push_back(g);
        std::vector<std::set<size_t>> out;
        for (const size_t k : first) {
            std::set<size_t> inside = all;
            for (const size_t other : first)
                if (other != k) inside.erase(other);
            out.push_back(std::move(inside));
        }
        if (first.size() > 1) out.push_back(all);
        std::set<size_t> none = all;
        for (const size_t k : first) none.erase(k);
        if (std::any_of(none.begin(), none.end(), [&](size_t g) { return g != last && reduces(g); }))
            out.push_back(std::move(none));
        if (!first.empty())
            if (std::set<size_t> deeper = behind(last, 2); deeper != all) out.push_back(std::move(deeper));
        return out;
    }

    /// Merges group `last` with the candidate that gains most.
    void grow(size_t last) {
        refuse_other_producers(last);
        std::vector<Merged> all;
        for (const std::set<size_t>& inside : candidates(last)) {
            // A group outside must not read from one inside and feed another: neither kernel could run first.
            //     a -> b -> last, a -> last: {a, last} without b
            if (!std::all_of(inside.begin(), inside.end(),
                             [&](size_t g) { return g == last || feeds_only(g, inside); })) {
                refuse(inside, last, {"the GEMM chain and another kernel would depend on each other"});
                continue;
            }
            std::variant<Merged, FusionRefusal> merged = merge(inside);
            if (const auto* refusal = std::get_if<FusionRefusal>(&merged))
                refuse(inside, last, *refusal);
            else
                all.push_back(std::move(std::get<Merged>(merged)));
        }
        const auto best = best_of(all, last);
        if (!best) return;
        for (const size_t g : all[*best].inside) gone_[g] = g != last;
        groups_[last] = std::move(all[*best].group);
        for (const PrimitiveId id : groups_[last].primitives) group_of_[id] = last;
    }

    std::optional<size_t> best_of(std::vector<Merged>& all, size_t last) {
        // A measurement takes a second. Chains are ranked by estimates, and the first one that gains is taken.
        std::stable_sort(all.begin(), all.end(),
                         [](const Merged& a, const Merged& b) { return a.promise > b.promise; });
        std::optional<size_t> best;
        double most = 0;
        for (size_t k = 0; k < all.size(); ++k) {
            if (schedules_.how().measures() && best) break;
            const double gain = gain_of(all[k]);
            const int of_kind = preference(all[k]);
            const bool one = of_kind > 0 && on_matrix_instructions(all[k]);
            const bool enough =
                schedules_.how().all_chains ? std::isfinite(gain) : gain > (one ? -kAttentionExcess * all[k].apart : 0);
            if (enough && (!best || std::pair(of_kind, gain) > std::pair(preference(all[*best]), most))) {
                most = gain;
                best = k;
            }
            refuse(all[k].inside, last,
                   {enough ? "another GEMM chain gains more" : "a GEMM chain would not gain enough"});
        }
        return best;
    }

    /// Records why groups that feed `last` are not candidates.
    void refuse_other_producers(size_t last) const {
        if (!limits_.refusals) return;
        const std::set<size_t> inside = behind(last);
        for (const PrimitiveId id : groups_[last].primitives)
            for (const ValueId v : p_.primitives[id].inputs())
                if (const auto it = group_of_.find(producers_[v]); it != group_of_.end() && !inside.count(it->second))
                    refuse({it->second}, last, {"its operand has other readers or is an output of the program"});
    }

    void refuse(const std::set<size_t>& inside, size_t last, FusionRefusal refusal) const {
        if (!limits_.refusals) return;
        for (const size_t g : inside)
            for (const PrimitiveId from : groups_[g].primitives)
                for (const PrimitiveId to : groups_[last].primitives)
                    if (g != last) limits_.refuse(p_.primitives[from], p_.primitives[to], refusal);
    }

    const Program& p_;
    const KernelExtractor extracted_;
    const FusionLimits& limits_;
    std::vector<KernelGroup> groups_;
    Schedules& schedules_;
    IndexVector<ValueId, PrimitiveId> producers_;
    IndexVector<ValueId, std::vector<PrimitiveId>> consumers_;
    std::set<ValueId> results_;
    std::map<PrimitiveId, size_t> group_of_;
    std::vector<bool> gone_;
};

}  // namespace

std::vector<KernelGroup> fuse_gemm_chains(const Program& program, std::vector<KernelGroup> groups, Schedules& schedules,
                                          const FusionLimits& limits) {
    return GemmChains(program, std::move(groups), schedules, limits).run();
}

}  // namespace tilewright
