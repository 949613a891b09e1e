// Steps whose results depend on sizes alone: a session runs them once for a combination of sizes, and keeps the results
// with its preparation.
//
//     distances[$seq, $seq] = range(0, $seq) ...      once for each $seq
//     bias = gather(table, distances)                 likewise
//     scores = product + bias                         every run

#include <algorithm>

#include "model/executor_impl.h"
#include "program/analysis/sized.h"

namespace tilewright {

namespace {

constexpr const char* kSizedName = "what depends on sizes alone";

}  // namespace

Executor::Impl::SizedResult::SizedResult(MemoryBudget& charged, int64_t bytes)
    : storage(static_cast<size_t>(bytes) + kBufferAlignment), memory(charged) {
    memory.resize(0, storage.size(), false, kSizedName);
}

Executor::Impl::SizedResult::~SizedResult() { memory.resize(storage.size(), 0, false, kSizedName); }

std::vector<ValueId> Executor::Impl::results_of(size_t step) const {
    if (const auto* call = std::get_if<KernelCall>(&plan.steps[step].what))
        return {call->tensors.end() - static_cast<std::ptrdiff_t>(call->results), call->tensors.end()};
    return plan.program.primitives[std::get<PrimitiveId>(plan.steps[step].what)].outputs;
}

std::vector<ValueId> Executor::Impl::operands_of(size_t step) const {
    if (const auto* call = std::get_if<KernelCall>(&plan.steps[step].what))
        return {call->tensors.begin(), call->tensors.end() - static_cast<std::ptrdiff_t>(call->results)};
    return plan.program.primitives[std::get<PrimitiveId>(plan.steps[step].what)].inputs();
}

bool Executor::Impl::may_run_once(size_t step) const {
    if (sliced_as[step] >= 0 || steps[step].kernel.late) return false;
    if (const auto* id = std::get_if<PrimitiveId>(&plan.steps[step].what)) {
        const auto* opaque = std::get_if<Opaque>(&plan.program.primitives[*id].kind);
        if (opaque == nullptr || !opaque->op->deterministic() || bindings.count(*id) != 0) return false;
    }
    const std::vector<ValueId> results = results_of(step), &outputs = plan.program.outputs;
    return std::none_of(results.begin(), results.end(), [&](ValueId v) {
        return slots[v].late || std::find(outputs.begin(), outputs.end(), v) != outputs.end() ||
               std::any_of(appends.begin(), appends.end(), [&](const AppendStep& a) { return a.rows == v; });
    });
}

void Executor::Impl::find_sized() {
    for (size_t s = 0; s < steps.size(); ++s) of_sizes.push_back(may_run_once(s));
    std::map<ValueId, std::vector<size_t>> made_by;  // several steps: one in each way of a region
    for (size_t s = 0; s < steps.size(); ++s)
        for (const ValueId v : results_of(s)) made_by[v].push_back(s);
    const auto is_sized = [&](ValueId v) {
        if (!v || slots[v].constant) return true;
        const auto by = made_by.find(v);
        return by != made_by.end() &&
               std::all_of(by->second.begin(), by->second.end(), [&](size_t s) { return of_sizes[s]; });
    };
    for (bool again = true; again;) {
        again = false;
        for (size_t s = 0; s < steps.size(); ++s) {
            if (!of_sizes[s]) continue;
            const std::vector<ValueId> read = operands_of(s), made = results_of(s);
            of_sizes[s] =
                std::all_of(read.begin(), read.end(), is_sized) && std::all_of(made.begin(), made.end(), is_sized);
            again = again || !of_sizes[s];
        }
    }
    std::map<ValueId, NameSet> names;
    for (size_t s = 0; s < steps.size(); ++s) {
        if (!of_sizes[s]) continue;
        NameSet of = kernel_names[s];
        for (const ValueId v : operands_of(s))
            if (const auto it = names.find(v); it != names.end()) of |= it->second;
        for (const ValueId v : results_of(s)) {
            for (const Expr d : plan.program.values[v].shape) of |= names_in(d);
            names[v] |= of;
        }
    }
    for (const auto& [v, of] : names) sized.push_back({v, of});
}

void Executor::Impl::place_sized(Preparation& p, const Preparation* before, NameSet changed) {
    int64_t bytes = 0;
    for (const auto& [v, names] : sized) bytes += bytes_of(v);
    p.keeps_sized = !sized.empty() && bytes <= kMostSizedBytes;
    for (const auto& [v, names] : sized) slots[v].kept = p.keeps_sized;
    if (!p.keeps_sized) return;
    p.sized_bytes = bytes;
    const bool shares = before != nullptr && before->keeps_sized && before->sized_done && before->ways == p.ways;
    for (size_t i = 0; i < sized.size(); ++i) {
        const auto& [v, names] = sized[i];
        const bool same = shares && (names & changed) == 0;
        p.sized.push_back(same ? before->sized[i] : std::make_shared<SizedResult>(*context.memory, bytes_of(v)));
        p.sized_known.push_back(same);
    }
}

void Executor::Impl::compute_sized(Preparation& p) {
    if (!p.keeps_sized || p.sized_done) return;
    std::map<ValueId, bool> known;
    for (size_t i = 0; i < sized.size(); ++i) known[sized[i].value] = p.sized_known[i];
    for (const std::vector<size_t>& now : order)
        for (const size_t s : now) {
            if (!of_sizes[s] || !runs(s)) continue;
            const std::vector<ValueId> made = results_of(s);
            if (std::all_of(made.begin(), made.end(), [&](ValueId v) { return known.at(v); })) continue;
            run_step(s);
        }
    p.sized_done = true;
}

void Executor::Impl::forget_sized() {
    int64_t bytes = 0;
    for (auto it = preparations.begin(); it != preparations.end();) {
        bytes += it->sized_bytes;
        it = bytes > kMostSizedBytes && it != preparations.begin() ? preparations.erase(it) : std::next(it);
    }
}

}  // namespace tilewright
