#include "orchestrate/optimal/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "base/error.h"
#include "orchestrate/optimal/options.h"

namespace tilewright::optimal {

namespace {

/// Per tensor, whether it is in the list.
std::vector<bool> marked(const Choice& choice, const std::vector<TensorId>& tensors) {
    std::vector<bool> out(choice.tensors);
    for (const TensorId t : tensors) out[t.index()] = true;
    return out;
}

bool all_of(const std::vector<TensorId>& tensors, const std::vector<bool>& there) {
    return std::all_of(tensors.begin(), tensors.end(), [&](TensorId t) { return there[t.index()]; });
}

}  // namespace

double Choice::cost(const std::vector<size_t>& chosen) const {
    double sum = 0;
    for (const size_t k : chosen) sum += candidates[k].cost;
    return sum;
}

std::vector<std::string> Choice::verify() const {
    std::vector<std::string> faults;
    const auto check = [&](const std::vector<TensorId>& list, const std::string& what) {
        std::vector<bool> seen(tensors);
        for (const TensorId t : list) {
            if (t.index() >= tensors)
                faults.push_back(fmt::format("{} names tensor {} of {}", what, t.index(), tensors));
            else if (seen[t.index()])
                faults.push_back(fmt::format("{} names tensor {} twice", what, t.index()));
            else
                seen[t.index()] = true;
        }
    };
    check(given, "what is given");
    check(needed, "what is needed");
    for (size_t k = 0; k < candidates.size(); ++k) {
        const Candidate& c = candidates[k];
        std::vector<TensorId> both = c.inputs;
        both.insert(both.end(), c.outputs.begin(), c.outputs.end());
        check(both, fmt::format("candidate {}", k));
        for (const NodeId n : c.covers)
            if (n.index() >= nodes)
                faults.push_back(fmt::format("candidate {} covers node {} of {}", k, n.index(), nodes));
        if (!(c.cost >= 0)) faults.push_back(fmt::format("candidate {} costs {}", k, c.cost));
        if (c.outputs.empty()) faults.push_back(fmt::format("candidate {} has no output", k));
    }
    return faults;
}

Choice choice_of(const Dag& dag) {
    Choice choice;
    choice.tensors = dag.tensors.size();
    choice.nodes = dag.nodes.size();
    NodeSet wanted = dag.none();
    for (const TensorId t : dag.tensors.ids()) {
        const Dag::Tensor& tensor = dag.tensors[t];
        if (!tensor.producer) choice.given.push_back(t);
        if (!tensor.needed) continue;
        choice.needed.push_back(t);
        if (tensor.producer) wanted.insert(tensor.producer);
    }
    for (size_t k = dag.nodes.size(); k-- > 0;)
        if (wanted.contains(NodeId(k)))
            for (const TensorId t : dag.nodes[NodeId(k)].reads)
                if (dag.tensors[t].producer) wanted.insert(dag.tensors[t].producer);
    choice.unavoidable = wanted.nodes();
    return choice;
}

Execution execute(const Choice& choice, const std::vector<size_t>& chosen) {
    Execution run;
    std::vector<bool> there = marked(choice, choice.given);
    std::vector<size_t> waiting = chosen;
    for (bool moved = true; moved;) {
        moved = false;
        std::vector<size_t> still;
        for (const size_t k : waiting) {
            if (!all_of(choice.candidates[k].inputs, there)) {
                still.push_back(k);
                continue;
            }
            for (const TensorId t : choice.candidates[k].outputs) there[t.index()] = true;
            run.order.push_back(k);
            moved = true;
        }
        waiting = std::move(still);
    }
    run.stuck = std::move(waiting);
    run.complete = all_of(choice.needed, there);
    return run;
}

std::vector<size_t> without_idle(const Choice& choice, const std::vector<size_t>& order) {
    std::vector<size_t> maker(choice.tensors, SIZE_MAX);
    for (size_t i = 0; i < order.size(); ++i)
        for (const TensorId t : choice.candidates[order[i]].outputs)
            if (maker[t.index()] == SIZE_MAX) maker[t.index()] = i;
    const std::vector<bool> given = marked(choice, choice.given);
    std::vector<bool> wanted = marked(choice, choice.needed);
    std::vector<size_t> kept;
    for (size_t i = order.size(); i-- > 0;) {
        const Candidate& c = choice.candidates[order[i]];
        const bool used = std::any_of(c.outputs.begin(), c.outputs.end(), [&](TensorId t) {
            return wanted[t.index()] && !given[t.index()] && maker[t.index()] == i;
        });
        if (!used) continue;
        for (const TensorId t : c.inputs) wanted[t.index()] = true;
        kept.push_back(order[i]);
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
}

bool compatible(const Choice& choice, const std::vector<size_t>& chosen) {
    if (!choice.once) return true;
    std::vector<bool> executed(choice.nodes, false);
    for (const size_t k : chosen)
        for (const NodeId n : choice.candidates[k].covers) {
            if (executed[n.index()]) return false;
            executed[n.index()] = true;
        }
    return true;
}

std::vector<size_t> cheap_plan(const Choice& choice) {
    std::vector<double> cost(choice.tensors, kInfinity);
    std::vector<size_t> via(choice.tensors, SIZE_MAX);
    std::vector<std::vector<size_t>> readers(choice.tensors);
    std::vector<size_t> waits(choice.candidates.size());
    std::vector<bool> settled(choice.tensors);
    using Entry = std::pair<double, size_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    const auto offer = [&](size_t k) {
        const Candidate& c = choice.candidates[k];
        double sum = c.cost;
        for (const TensorId t : c.inputs) sum += cost[t.index()];
        for (const TensorId t : c.outputs)
            if (sum < cost[t.index()]) {
                cost[t.index()] = sum;
                via[t.index()] = k;
                queue.emplace(sum, t.index());
            }
    };
    for (const TensorId t : choice.given) {
        cost[t.index()] = 0;
        queue.emplace(0, t.index());
    }
    for (size_t k = 0; k < choice.candidates.size(); ++k) {
        for (const TensorId t : choice.candidates[k].inputs) readers[t.index()].push_back(k);
        waits[k] = choice.candidates[k].inputs.size();
        if (waits[k] == 0) offer(k);
    }
    while (!queue.empty()) {
        const size_t t = queue.top().second;
        queue.pop();
        if (settled[t]) continue;
        settled[t] = true;
        for (const size_t k : readers[t])
            if (--waits[k] == 0) offer(k);
    }
    std::vector<bool> in_plan(choice.candidates.size());
    std::vector<TensorId> open = choice.needed;
    std::vector<size_t> plan;
    while (!open.empty()) {
        const TensorId t = open.back();
        open.pop_back();
        if (cost[t.index()] == kInfinity) return {};
        const size_t k = via[t.index()];
        if (k == SIZE_MAX || in_plan[k]) continue;
        in_plan[k] = true;
        plan.push_back(k);
        for (const TensorId i : choice.candidates[k].inputs) open.push_back(i);
    }
    std::sort(plan.begin(), plan.end());
    std::vector<size_t> dearest = plan;
    std::stable_sort(dearest.begin(), dearest.end(),
                     [&](size_t a, size_t b) { return choice.candidates[a].cost > choice.candidates[b].cost; });
    for (const size_t k : dearest) {
        std::vector<size_t> rest;
        for (const size_t j : plan)
            if (j != k) rest.push_back(j);
        if (execute(choice, rest).complete) plan = std::move(rest);
    }
    return without_idle(choice, execute(choice, plan).order);
}

std::vector<size_t> dominating(const Choice& choice) {
    const size_t n = choice.candidates.size();
    std::vector<size_t> possible;
    for (size_t k = 0; k < n; ++k)
        if (choice.candidates[k].cost < kInfinity) possible.push_back(k);
    std::vector<size_t> by(n, SIZE_MAX);
    for (const size_t k : execute(choice, possible).order) by[k] = k;
    std::vector<std::vector<size_t>> makers(choice.tensors);
    for (size_t k = 0; k < n; ++k)
        if (by[k] == k)
            for (const TensorId t : choice.candidates[k].outputs) makers[t.index()].push_back(k);
    const std::vector<bool> given = marked(choice, choice.given);
    std::vector<bool> mine(choice.tensors);
    for (size_t k = 0; k < n; ++k) {
        if (by[k] != k) continue;
        const Candidate& c = choice.candidates[k];
        for (const TensorId t : c.inputs) mine[t.index()] = true;
        for (const size_t j : makers[c.outputs[0].index()]) {
            if (j == k || by[j] != j) continue;
            const Candidate& d = choice.candidates[j];
            if (d.cost > c.cost || d.outputs.size() < c.outputs.size()) continue;
            const bool gives = std::all_of(c.outputs.begin(), c.outputs.end(), [&](TensorId t) {
                return std::find(d.outputs.begin(), d.outputs.end(), t) != d.outputs.end();
            });
            const bool reads_less = std::all_of(d.inputs.begin(), d.inputs.end(),
                                                [&](TensorId t) { return mine[t.index()] || given[t.index()]; });
            if (!gives || !reads_less) continue;
            // Of equal candidates the first is kept.
            const auto same_inputs = [&] {
                size_t a = 0, b = 0;
                for (const TensorId t : c.inputs) a += given[t.index()] ? 0 : 1;
                for (const TensorId t : d.inputs) b += given[t.index()] ? 0 : 1;
                return a == b;
            };
            if (d.cost == c.cost && d.outputs.size() == c.outputs.size() && same_inputs() && j > k) continue;
            by[k] = j;
            break;
        }
        for (const TensorId t : c.inputs) mine[t.index()] = false;
    }
    for (size_t k = 0; k < n; ++k)
        while (by[k] != SIZE_MAX && by[by[k]] != by[k]) by[k] = by[by[k]];
    return by;
}

}  // namespace tilewright::optimal
