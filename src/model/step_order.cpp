#include "model/step_order.h"

#include <algorithm>
#include <set>

namespace tilewright {

namespace {

const Primitive& primitive_of(const Plan& plan, size_t s) {
    return plan.program.primitives[std::get<PrimitiveId>(plan.steps[s].what)];
}

bool alike(const Plan& plan, size_t s, size_t t) {
    const auto& x = std::get<Loop>(primitive_of(plan, s).kind);
    const auto& y = std::get<Loop>(primitive_of(plan, t).kind);
    const std::vector<Step>&p = plan.steps[s].bodies[0]->steps, &q = plan.steps[t].bodies[0]->steps;
    return x.trip_count == y.trip_count &&
           std::equal(p.begin(), p.end(), q.begin(), q.end(), [](const Step& a, const Step& b) {
               return std::get<KernelCall>(a.what).kernel == std::get<KernelCall>(b.what).kernel;
           });
}

bool reads_any(const Plan& plan, size_t s, const std::set<ValueId>& values) {
    const auto among = [&](ValueId v) { return values.count(v) != 0; };
    if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what))
        return std::any_of(call->tensors.begin(), call->tensors.end(), among);
    const std::vector<ValueId> in = primitive_of(plan, s).inputs();
    return std::any_of(in.begin(), in.end(), among);
}

}  // namespace

std::vector<std::vector<size_t>> step_order(const Plan& plan, int threads, const std::vector<bool>& may_wait) {
    std::vector<bool> waits = may_wait;
    if (threads < 2) waits.assign(plan.steps.size(), false);
    std::vector<std::vector<size_t>> order;
    for (int pass = 0; pass < 2; ++pass) {  // the second skips loops that wait in vain
        order.clear();
        std::vector<size_t> waiting;
        std::set<ValueId> awaited;
        const auto release = [&] {
            if (waiting.size() == static_cast<size_t>(threads)) {
                order.push_back(waiting);
            } else {
                for (const size_t s : waiting) {
                    waits[s] = false;
                    order.push_back({s});
                }
            }
            waiting.clear();
            awaited.clear();
        };
        for (size_t s = 0; s < plan.steps.size(); ++s) {
            if (!waiting.empty() && (reads_any(plan, s, awaited) || (waits[s] && !alike(plan, waiting[0], s))))
                release();
            if (!waits[s]) {
                order.push_back({s});
                continue;
            }
            waiting.push_back(s);
            const std::vector<ValueId>& made = primitive_of(plan, s).outputs;
            awaited.insert(made.begin(), made.end());
            if (waiting.size() == static_cast<size_t>(threads)) release();
        }
        if (!waiting.empty()) release();
    }
    return order;
}

}  // namespace tilewright
