#include "orchestrate/optimal/acceptance.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace tilewright::optimal {

namespace {

constexpr char kGreedy = 'g', kOptimal = 'o';  // one character per search, kept in the tuning database

/// The share that a piece, or a library kernel, must gain in whole runs: some of many are faster by chance.
constexpr double kGain = 0.02;
/// The share that a whole plan must gain in each of two comparisons.
constexpr double kPlanGain = 0.01;

bool gains(const GroupedTimes& plan, const GroupedTimes& other) {
    return plan.seconds < (1 - kPlanGain) * other.seconds;
}

/// Seconds of the kernels of each search.
std::vector<double> seconds_by_search(const GroupedTimes& times, const Emitted& plan, size_t searches) {
    std::vector<double> out(searches);
    for (const auto& [kernel, seconds] : times.chosen) out[plan.search_of.at(kernel)] += seconds;
    return out;
}

}  // namespace

/// The currently selected kernels, without a change to the report.
Emitted Acceptance::tried() const {
    OrchestrationReport scratch = report_;
    return emit(choice_, options_, schedules_, scratch);
}

/// Whether the plan is faster than the other in whole runs again, as in `first` (its time, then the other's). The
/// second comparison runs the two in the opposite order. `first` becomes the mean of both.
bool Acceptance::confirmed(const Grouped& plan, const Grouped& other, std::vector<GroupedTimes>& first) const {
    if (!gains(first[0], first[1])) return false;
    const std::vector<GroupedTimes> again = run_({other, plan});
    if (again.size() != 2) return false;
    const bool holds = gains(again[1], again[0]);
    first[0].seconds = (first[0].seconds + again[1].seconds) / 2;
    first[1].seconds = (first[1].seconds + again[0].seconds) / 2;
    return holds;
}

void Acceptance::compare() {
    report_.in_model.reset();
    InModelReport in_model;
    std::string what = "pieces, confirmed\n";
    for (const std::string& kernel : schedules_.refused()) what += "without a library\n" + kernel + '\n';
    what += choice_.key();
    const std::vector<SearchedPiece>& searched = choice_.searched();
    for (const SearchedPiece& s : searched) in_model.pieces += s.differs() ? 1 : 0;
    if (in_model.pieces == 0) return;
    if (const auto known = options_.remember.find ? options_.remember.find(what) : std::nullopt;
        known && known->size() == searched.size()) {
        choice_.take([&](size_t s) { return (*known)[s] == kGreedy; });
    } else {
        if (options_.watch) options_.watch({"running whole plans", 0, 1, 0, report_.measured - report_.remembered});
        const double begin = now_seconds();
        if (!choose_in_runs(in_model)) return;
        report_.measure_ms += 1e3 * (now_seconds() - begin);
        std::string chosen;
        for (const SearchedPiece& s : searched) chosen += s.greedy ? kGreedy : kOptimal;
        if (options_.remember.keep) options_.remember.keep(what, chosen);
    }
    for (const SearchedPiece& s : searched) in_model.greedy += s.greedy ? 1 : 0;
    report_.in_model = in_model;
}

/// Chooses each piece's kernels by whole runs. False if nothing can be run.
bool Acceptance::choose_in_runs(InModelReport& report) {
    const auto none = [](size_t) { return false; };
    const auto all = [](size_t) { return true; };
    const std::vector<SearchedPiece>& searched = choice_.searched();
    choice_.take(all);
    Emitted greedy = tried();
    greedy.grouped.generated_only = true;
    choice_.take(none);
    const Emitted optimal = tried();
    std::vector<GroupedTimes> times = run_({optimal.grouped, greedy.grouped});
    if (times.size() != 2) return false;
    const std::vector<double> mine = seconds_by_search(times[0], optimal, searched.size()),
                              of_greedy = seconds_by_search(times[1], greedy, searched.size());
    choice_.take([&](size_t s) { return mine[s] > (1 - kGain) * of_greedy[s]; });
    const auto greedy_ones = static_cast<size_t>(
        std::count_if(searched.begin(), searched.end(), [](const SearchedPiece& s) { return s.greedy; }));
    Grouped best = optimal.grouped;
    if (greedy_ones > 0 && greedy_ones < report.pieces) {
        Grouped mixed = tried().grouped;
        std::vector<GroupedTimes> again = run_({mixed, greedy.grouped});
        if (again.size() != 2) return false;
        if (again[0].seconds / again[1].seconds > times[0].seconds / times[1].seconds) {
            choice_.take(none);
        } else {
            best = std::move(mixed);
            times = std::move(again);
        }
    } else {
        choice_.take(none);
    }
    const bool faster = confirmed(best, greedy.grouped, times);
    if (!faster) choice_.take(all);
    report.greedy_seconds = times[1].seconds;
    report.seconds = times[faster ? 0 : 1].seconds;
    return true;
}

/// The kernels of the grouping for which a library measured faster. All kernels are appended to `what`.
Acceptance::ProvidedKernels Acceptance::provided_kernels(const Grouped& grouped, std::string& what) const {
    ProvidedKernels of;
    const KernelExtractor extracted(grouped.program);
    for (const KernelGroup& g : grouped.groups) {
        const KernelBody body = extracted(g);
        std::vector<bool> weights;
        for (size_t i = 0; i < body.stages.inputs.size(); ++i)
            weights.push_back(grouped.program.is_constant(body.tensors[i]));
        const Schedules::Scheduled& s = g.chain ? *schedules_.chain(body) : schedules_.kernel(body);
        const auto provided = schedules_.provided(s, weights);
        what += '\n' + (provided ? provided->kernel : print(s.program));
        if (provided) of.emplace(provided->kernel, *provided);
    }
    return of;
}

bool Acceptance::refuses_libraries() {
    if (!report_.provider || report_.provider->faster == 0) return false;
    ProviderReport& r = *report_.provider;
    const Grouped with = tried().grouped;
    std::string what = "libraries, confirmed: " + r.name;
    const ProvidedKernels of = provided_kernels(with, what);
    const size_t refused = schedules_.refused().size();
    r.in_model = of.size() + refused - refused_before_;
    r.kept = of.size();
    if (of.empty() || !run_) return false;
    std::optional<std::string> chosen = options_.remember.find ? options_.remember.find(what) : std::nullopt;
    if (!chosen || chosen->size() != of.size()) {
        if (options_.watch)
            options_.watch({"running whole plans with " + r.name, 0, 1, 0, report_.measured - report_.remembered});
        const double begin = now_seconds();
        chosen = choose_libraries(with, of);
        if (!chosen) return false;
        report_.measure_ms += 1e3 * (now_seconds() - begin);
        if (options_.remember.keep) options_.remember.keep(what, *chosen);
    }
    refuse(of, *chosen);
    r.kept = static_cast<size_t>(std::count(chosen->begin(), chosen->end(), kOptimal));
    return schedules_.refused().size() > refused;
}

void Acceptance::refuse(const ProvidedKernels& of, const std::string& chosen) {
    for (size_t k = 0; const auto& [kernel, p] : of)
        if (chosen[k++] == kGreedy) schedules_.refuse(p);
}

/// Per kernel, whether the library's is kept; nothing if nothing can be run.
std::optional<std::string> Acceptance::choose_libraries(const Grouped& with, const ProvidedKernels& of) {
    Grouped without = with;
    without.generated_only = true;
    std::vector<GroupedTimes> times = run_({with, without});
    if (times.size() != 2) return std::nullopt;
    std::string chosen;
    for (const auto& [kernel, p] : of) {
        const auto library = times[0].provided.find(kernel), generated = times[1].provided.find(kernel);
        const bool faster = library != times[0].provided.end() && generated != times[1].provided.end() &&
                            library->second < (1 - kGain) * generated->second;
        chosen += faster ? kOptimal : kGreedy;
    }
    refuse(of, chosen);
    const bool some = chosen.find(kOptimal) != std::string::npos;
    if (some && chosen.find(kGreedy) != std::string::npos) {
        times = run_({with, without});  // `with` has only the library kernels that are not refused
        if (times.size() != 2) return std::nullopt;
    }
    const bool faster = some && confirmed(with, without, times);
    if (!faster) chosen.assign(of.size(), kGreedy);
    report_.provider->generated_seconds = times[1].seconds;
    report_.provider->seconds = times[faster ? 0 : 1].seconds;
    return chosen;
}

}  // namespace tilewright::optimal
