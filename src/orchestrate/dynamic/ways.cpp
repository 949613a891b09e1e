#include "orchestrate/dynamic/ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "base/error.h"
#include "base/parallel.h"
#include "base/union_find.h"
#include "orchestrate/dynamic/dispatch_table.h"
#include "orchestrate/dynamic/size_dependence.h"
#include "program/transform/substitute.h"

namespace tilewright::dynamic {

namespace {

/// A step of one of the plans.
struct PlacedStep {
    Step step;
    std::optional<TileProgram> program;
    std::vector<bool> weights;
    size_t position = 0;  ///< in the outlined program: of its last primitive
    std::string text;     ///< of a kernel: its tile program and its tensors
    const KernelCall* call() const { return std::get_if<KernelCall>(&step.what); }
};

class Merger {
  public:
    Merger(const Program& outlined, std::vector<PlannedWay> ways, const MergeOptions& options)
        : outlined_(outlined), options_(options), ways_(std::move(ways)), values_(outlined.values.size()) {}

    PlannedWay run(std::vector<RegionReport>* report) {
        const auto producers = outlined_.producers();
        for (const ValueId v : outlined_.values.ids())
            made_at_.push_back(producers[v] ? producers[v].index() : SIZE_MAX);
        Plan plan = std::move(ways_[0].plan);
        const std::vector<Slices> slices = std::move(plan.slices);
        plan.slices.clear();
        std::vector<Step> first = std::move(plan.steps);
        plan.steps.clear();
        place(0, std::move(first), plan, plan.program);
        for (size_t w = 1; w < ways_.size(); ++w) {
            std::vector<Step> steps = std::move(ways_[w].plan.steps);
            place(w, std::move(steps), plan, ways_[w].plan.program);
        }
        join_readers_of_unstored();
        join_until_ordered();
        return assemble(std::move(plan), slices, report);
    }

  private:
    /// Adds the steps of way `w` to placed_, with the values of the merged plan.
    void place(size_t w, std::vector<Step> steps, Plan& plan, const Program& program) {
        std::map<ValueId, ValueId> extras;  // values that only this plan has, such as parts of a split sum
        const auto merged = [&](ValueId v) {
            if (v.index() < outlined_.values.size()) return v;
            const auto [it, fresh] = extras.try_emplace(v);
            if (!fresh) return it->second;
            if (w == 0) return it->second = v;
            Value copy = program.values[v];
            copy.name = fmt::format("{} of way {}", copy.name, w);
            return it->second = plan.program.values.push_back(std::move(copy));
        };
        const auto producers = plan.program.producers();
        std::vector<PlacedStep> out(steps.size());
        size_t others = 0;  // steps that are no kernels: the same ones in all plans
        for (size_t s = 0; s < steps.size(); ++s) {
            PlacedStep& p = out[s];
            p.step = std::move(steps[s]);
            p.program = std::move(ways_[w].programs[s]);
            p.weights = std::move(ways_[w].weights[s]);
            auto* call = std::get_if<KernelCall>(&p.step.what);
            if (call == nullptr) {
                p.position = other_position(others++);
                continue;
            }
            p.position = SIZE_MAX;
            for (const PrimitiveId id : call->primitives)
                for (const ValueId v : program.primitives[id].outputs)
                    if (v.index() < outlined_.values.size())
                        p.position =
                            p.position == SIZE_MAX ? made_at_[v.index()] : std::max(p.position, made_at_[v.index()]);
            join_values(*call, program, merged);
            if (w > 0) {
                std::vector<PrimitiveId> same;
                for (const PrimitiveId id : call->primitives)
                    for (const ValueId v : program.primitives[id].outputs)
                        if (v.index() < outlined_.values.size() && producers[v]) same.push_back(producers[v]);
                call->primitives = std::move(same);
            }
            for (ValueId& v : call->tensors) v = merged(v);
            p.text = print_without_names(*p.program) + call->provider;
            for (const ValueId v : call->tensors) p.text += fmt::format(" {}", v.index());
        }
        // A kernel of parts of a sum stands at the place of the kernel that merges them, which follows it.
        for (size_t s = out.size(), next = 0; s-- > 0; next = out[s].position)
            if (out[s].position == SIZE_MAX) out[s].position = next;
        for (PlacedStep& p : out) {
            way_of_.push_back(w);
            placed_.push_back(std::move(p));
        }
    }

    size_t other_position(size_t n) {
        if (others_.empty())
            for (const PrimitiveId id : outlined_.primitives.ids())
                if (outlined_.primitives[id].expr() == nullptr) others_.push_back(id.index());
        return others_.at(n);
    }

    /// All values that the kernel makes, and those that no other plan has, belong to one region. `merged`: the value in
    /// the merged plan.
    template <class Merged>
    void join_values(const KernelCall& call, const Program& program, const Merged& merged) {
        std::optional<size_t> first;
        const auto join = [&](ValueId v) {
            const size_t node = node_of(merged(v));
            if (first) values_.join(*first, node);
            first = node;
        };
        for (const PrimitiveId id : call.primitives)
            for (const ValueId v : program.primitives[id].outputs) join(v);
        for (const ValueId v : call.tensors)
            if (v.index() >= outlined_.values.size()) join(v);
    }

    size_t node_of(ValueId v) {
        if (v.index() < outlined_.values.size()) return v.index();
        const auto [it, fresh] = extra_nodes_.try_emplace(v);
        if (fresh) it->second = values_.add();
        return it->second;
    }

    /// The region of a kernel.
    size_t region_of(const PlacedStep& p) { return values_.find(node_of(p.call()->tensors.back())); }

    /// The values that a step stores.
    static std::span<const ValueId> results_of(const KernelCall& call) {
        return std::span(call.tensors).last(call.results);
    }

    /// A value that some way does not store is in one region with what its readers make: that way makes those results
    /// without it. Its kernels need not have the primitive that makes the value: those of a GEMM chain whose sum is
    /// split make parts of it.
    ///     way 0: s = conv(x), y = product(s);   way 1: parts = product(conv(x)'s halves), y = sum(parts)
    void join_readers_of_unstored() {
        std::map<ValueId, std::set<size_t>> stored_in;  // ways
        for (size_t s = 0; s < placed_.size(); ++s)
            if (const KernelCall* call = placed_[s].call())
                for (const ValueId v : results_of(*call)) stored_in[v].insert(way_of_[s]);
        for (const PlacedStep& p : placed_) {
            const KernelCall* call = p.call();
            if (call == nullptr) continue;
            for (const ValueId v : std::span(call->tensors).first(call->tensors.size() - call->results)) {
                const auto it = stored_in.find(v);
                if (it != stored_in.end() && it->second.size() < ways_.size())
                    values_.join(node_of(v), node_of(call->tensors.back()));
            }
        }
    }

    /// Every way of a region stores what other regions read, and the program's results.
    void check_results(const std::map<size_t, std::vector<std::vector<size_t>>>& steps_of) {
        std::map<ValueId, size_t> stored_by;  // regions
        std::set<ValueId> needed(outlined_.outputs.begin(), outlined_.outputs.end());
        for (const PlacedStep& p : placed_)
            if (const KernelCall* call = p.call())
                for (const ValueId v : results_of(*call)) stored_by[v] = region_of(p);
        for (const PlacedStep& p : placed_)
            if (const KernelCall* call = p.call())
                for (const ValueId v : call->tensors)
                    if (const auto it = stored_by.find(v); it != stored_by.end() && it->second != region_of(p))
                        needed.insert(v);
        for (const auto& [region, of] : steps_of) {
            std::vector<std::set<ValueId>> stored(of.size());
            for (size_t w = 0; w < of.size(); ++w)
                for (const size_t s : of[w])
                    for (const ValueId v : results_of(*placed_[s].call()))
                        if (needed.count(v) != 0) stored[w].insert(v);
            for (const std::set<ValueId>& values : stored)
                TW_CHECK(values == stored[0], "a way of a region lacks results that others read");
        }
    }

    /// Steps stand in the order of their positions. Where the kernel that makes a value, in one way of a region, would
    /// not come before a reader in some way of another region, the two regions become one.
    void join_until_ordered() {
        for (bool again = true; again;) {
            again = false;
            std::map<ValueId, std::pair<size_t, size_t>> last;  // position and step of the last maker
            for (size_t s = 0; s < placed_.size(); ++s)
                if (const KernelCall* call = placed_[s].call())
                    for (const ValueId v : results_of(*call)) {
                        const auto [it, fresh] = last.try_emplace(v, placed_[s].position, s);
                        if (!fresh && placed_[s].position > it->second.first) it->second = {placed_[s].position, s};
                    }
            for (PlacedStep& p : placed_) {
                const KernelCall* call = p.call();
                if (call == nullptr) continue;
                for (size_t k = 0; k + call->results < call->tensors.size(); ++k) {
                    const auto it = last.find(call->tensors[k]);
                    if (it == last.end() || it->second.first < p.position) continue;
                    PlacedStep& maker = placed_[it->second.second];
                    if (region_of(maker) == region_of(p)) continue;
                    values_.join(node_of(maker.call()->tensors.back()), node_of(call->tensors.back()));
                    again = true;
                }
            }
        }
    }

    /// One way of a region: steps of one plan, in its order.
    struct Way {
        std::vector<size_t> steps;  ///< of placed_
        std::string text;
        std::vector<Expr> needs;
    };

    PlannedWay assemble(Plan plan, const std::vector<Slices>& slices, std::vector<RegionReport>* report) {
        std::map<size_t, std::vector<std::vector<size_t>>> steps_of;  // per region and plan
        for (size_t s = 0; s < placed_.size(); ++s) {
            if (placed_[s].call() == nullptr) continue;
            auto& of = steps_of[region_of(placed_[s])];
            of.resize(ways_.size());
            of[way_of_[s]].push_back(s);
        }
        check_results(steps_of);
        std::vector<std::pair<size_t, std::optional<WayOf>>> kept;  // steps of placed_
        for (size_t s = 0; s < placed_.size(); ++s)
            if (placed_[s].call() == nullptr && way_of_[s] == 0) kept.emplace_back(s, std::nullopt);
        for (const auto& [region, of] : steps_of) {
            std::vector<Way> ways = different_ways(of);
            if (ways.size() == 1) {
                for (const size_t s : ways[0].steps) kept.emplace_back(s, std::nullopt);
                continue;
            }
            const Decision& d = decide(ways);
            if (report != nullptr) {
                report->push_back(d.report);
                report->back().name = placed_[ways[0].steps.back()].call()->name;
            }
            if (d.ways.size() == 1) {
                for (const size_t s : ways[d.ways[0]].steps) kept.emplace_back(s, std::nullopt);
                continue;
            }
            for (uint32_t w = 0; w < d.ways.size(); ++w)
                for (const size_t s : ways[d.ways[w]].steps) kept.emplace_back(s, WayOf{plan.regions.size(), w});
            plan.regions.push_back({placed_[ways[0].steps.back()].call()->name, d.dispatch});
        }
        std::stable_sort(kept.begin(), kept.end(), [&](const auto& a, const auto& b) {
            return std::pair(placed_[a.first].position, a.first) < std::pair(placed_[b.first].position, b.first);
        });
        PlannedWay out;
        out.plan = std::move(plan);
        std::map<size_t, size_t> now;  // placed step -> its place
        for (const auto& [s, way] : kept) {
            now[s] = out.plan.steps.size();
            if (auto* call = std::get_if<KernelCall>(&placed_[s].step.what)) call->way = way;
            out.plan.steps.push_back(std::move(placed_[s].step));
            out.programs.push_back(std::move(placed_[s].program));
            out.weights.push_back(std::move(placed_[s].weights));
        }
        for (Slices x : slices) {
            bool together = now.count(x.first) != 0;
            const size_t first = together ? now.at(x.first) : 0;
            for (size_t k = 0; together && k < x.count; ++k) {
                const auto it = now.find(x.first + k);
                together = it != now.end() && it->second == first + k &&
                           !std::get<KernelCall>(out.plan.steps[first + k].what).way;
            }
            if (!together) continue;
            x.first = first;
            out.plan.slices.push_back(std::move(x));
        }
        return out;
    }

    std::vector<Way> different_ways(const std::vector<std::vector<size_t>>& of) const {
        std::vector<Way> out;
        for (const std::vector<size_t>& steps : of) {
            Way way;
            way.steps = steps;
            std::map<Var, int64_t> bounds;
            for (const size_t s : steps) {
                way.text += placed_[s].text + '\n';
                for (const auto& [v, most] : placed_[s].program->stages.at_most) {
                    const auto known = outlined_.at_most.find(v);
                    if (known != outlined_.at_most.end() && known->second <= most) continue;
                    const auto [it, fresh] = bounds.try_emplace(v, most);
                    if (!fresh) it->second = std::min(it->second, most);
                }
            }
            for (const auto& [v, most] : bounds) way.needs.push_back(most - Expr::var(v));
            if (std::none_of(out.begin(), out.end(), [&](const Way& w) { return w.text == way.text; }))
                out.push_back(std::move(way));
        }
        return out;
    }

    struct Decision {
        std::vector<size_t> ways;  ///< kept
        Dispatch dispatch;
        RegionReport report;
    };

    /// The same for regions whose kernels have the same texts.
    const Decision& decide(const std::vector<Way>& ways) {
        std::string key;
        for (const Way& w : ways) {
            for (const size_t s : w.steps) key += print_without_names(*placed_[s].program) + '|';
            key += '\n';
        }
        const auto [it, fresh] = decided_.try_emplace(key);
        if (fresh) it->second = decision(ways);
        return it->second;
    }

    Decision decision(const std::vector<Way>& ways) const {
        Decision d;
        d.report.candidates = ways.size();
        d.ways = {0};
        std::set<Var> names;
        for (const Way& w : ways)
            for (const size_t s : w.steps) names.merge(names_of(placed_[s].program->stages));
        const std::vector<SizeSample>& samples = options_.samples;
        const bool known = !samples.empty() && std::all_of(names.begin(), names.end(),
                                                           [&](Var v) { return samples[0].sizes.count(v) != 0; });
        if (!known || !ways[0].needs.empty()) return d;
        std::map<size_t, BySize> of_step;
        for (const Way& w : ways)
            for (const size_t s : w.steps) of_step.try_emplace(s, *placed_[s].program, options_.seconds);
        const auto seconds = [&](const Way& w, const Bindings& sizes) {
            for (const Expr e : w.needs)
                if (evaluate(e, sizes) < 0) return std::numeric_limits<double>::infinity();
            double sum = 0;
            for (const size_t s : w.steps) sum += of_step.at(s)(sizes);
            return sum;
        };
        std::vector<std::vector<double>> table;
        std::vector<double> weights, code;
        for (const SizeSample& s : samples) weights.push_back(s.weight);
        for (const Way& w : ways) {
            table.emplace_back(samples.size());
            parallel_for(samples.size(), [&](size_t s) { table.back()[s] = seconds(w, samples[s].sizes); });
            // Text grows with the code that it becomes.
            code.push_back(1 + 1e-5 * static_cast<double>(w.text.size()));
        }
        d.report.cover = cover_samples(table, weights, code, options_.limits);
        d.ways = d.report.cover.ways;
        const auto unlimited =
            std::find_if(d.ways.begin(), d.ways.end(), [&](size_t w) { return ways[w].needs.empty(); });
        const auto otherwise = static_cast<uint32_t>(unlimited - d.ways.begin());
        if (unlimited == d.ways.end()) d.ways.push_back(0);
        if (d.ways.size() == 1) return d;
        std::vector<std::vector<Expr>> needs;
        for (const size_t w : d.ways) needs.push_back(ways[w].needs);
        d.dispatch = dispatch_table(dispatch_grid({names.begin(), names.end()}, samples, outlined_.at_most),
                                    std::move(needs), otherwise,
                                    [&](uint32_t w, const Bindings& sizes) { return seconds(ways[d.ways[w]], sizes); });
        drop_unused(d);
        return d;
    }

    /// Ways that the table never names are dropped, but for the one without needs.
    static void drop_unused(Decision& d) {
        Dispatch& t = d.dispatch;
        std::vector<uint32_t> now(d.ways.size(), UINT32_MAX);
        std::vector<size_t> ways;
        std::vector<std::vector<Expr>> needs;
        const bool limited =
            std::any_of(t.table.begin(), t.table.end(), [&](uint32_t w) { return !t.needs[w].empty(); });
        for (uint32_t w = 0; w < d.ways.size(); ++w) {
            const bool used = std::find(t.table.begin(), t.table.end(), w) != t.table.end();
            if (!used && !(w == t.otherwise && limited)) continue;
            now[w] = static_cast<uint32_t>(ways.size());
            ways.push_back(d.ways[w]);
            needs.push_back(t.needs[w]);
        }
        for (uint32_t& w : t.table) w = now[w];
        t.otherwise = now[t.otherwise] != UINT32_MAX ? now[t.otherwise] : t.table[0];
        t.needs = std::move(needs);
        d.ways = std::move(ways);
    }

    const Program& outlined_;
    const MergeOptions& options_;
    std::vector<PlannedWay> ways_;
    UnionFind values_;
    std::map<ValueId, size_t> extra_nodes_;
    std::vector<size_t> made_at_;  ///< by value of the outlined program: its primitive; SIZE_MAX: none
    std::vector<size_t> others_;   ///< primitives that are no expressions
    std::vector<PlacedStep> placed_;
    std::vector<size_t> way_of_;  ///< by placed step: its plan
    std::map<std::string, Decision> decided_;
};

}  // namespace

PlannedWay merge_ways(const Program& outlined, std::vector<PlannedWay> ways, const MergeOptions& options,
                      std::vector<RegionReport>* report) {
    TW_CHECK(!ways.empty(), "no plan");
    return Merger(outlined, std::move(ways), options).run(report);
}

void drop_unneeded_bounds(TileProgram& program) {
    const std::map<Var, int64_t> bounds = program.stages.at_most;
    for (const auto& [v, most] : bounds) {
        program.stages.at_most.erase(v);
        try {
            plan_buffers(program);
        } catch (const InternalError&) {
            program.stages.at_most.emplace(v, most);
        }
    }
}

}  // namespace tilewright::dynamic
