#include "orchestrate/optimal/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tilewright {

std::string_view to_string(Orchestrator o) { return o == Orchestrator::Greedy ? "greedy" : "optimal"; }

std::optional<Orchestrator> orchestrator_from_string(std::string_view name) {
    for (const Orchestrator o : {Orchestrator::Greedy, Orchestrator::Optimal})
        if (to_string(o) == name) return o;
    return std::nullopt;
}

std::string_view to_string(Profile p) {
    switch (p) {
        case Profile::None:
            return "none";
        case Profile::Lazy:
            return "lazy";
        case Profile::Full:
            return "full";
    }
    return "";
}

std::optional<Profile> profile_from_string(std::string_view name) {
    for (const Profile p : {Profile::None, Profile::Lazy, Profile::Full})
        if (to_string(p) == name) return p;
    return std::nullopt;
}

namespace {

template <class T>
T sum(const std::vector<PieceReport>& pieces, T PieceReport::*of) {
    return std::accumulate(pieces.begin(), pieces.end(), T(),
                           [&](T so_far, const PieceReport& p) { return so_far + p.*of; });
}

}  // namespace

size_t OrchestrationReport::states() const { return sum(pieces, &PieceReport::states); }
size_t OrchestrationReport::sets() const { return sum(pieces, &PieceReport::sets); }
size_t OrchestrationReport::candidates() const { return sum(pieces, &PieceReport::candidates); }
size_t OrchestrationReport::dropped() const { return sum(pieces, &PieceReport::dropped); }
size_t OrchestrationReport::columns() const { return sum(pieces, &PieceReport::columns); }
size_t OrchestrationReport::rows() const { return sum(pieces, &PieceReport::rows); }
double OrchestrationReport::seconds() const { return sum(pieces, &PieceReport::seconds); }
double OrchestrationReport::bound() const { return sum(pieces, &PieceReport::bound); }
double OrchestrationReport::root() const { return sum(pieces, &PieceReport::root); }
double OrchestrationReport::solve_ms() const { return sum(pieces, &PieceReport::solve_ms); }
namespace {

std::optional<PieceReport::Relaxed> relaxed(const std::vector<PieceReport>& pieces,
                                            std::optional<PieceReport::Relaxed> PieceReport::*of) {
    std::optional<PieceReport::Relaxed> all;
    for (const PieceReport& p : pieces) {
        const auto& one = p.*of;
        if (!one) continue;
        if (!all) all = PieceReport::Relaxed();
        all->root += one->root;
        all->ms += one->ms;
    }
    return all;
}

}  // namespace

std::optional<PieceReport::Relaxed> OrchestrationReport::strong() const {
    return relaxed(pieces, &PieceReport::strong);
}
std::optional<PieceReport::Relaxed> OrchestrationReport::published() const {
    return relaxed(pieces, &PieceReport::published);
}
double OrchestrationReport::emitted() const { return sum(pieces, &PieceReport::emitted); }

namespace {

std::optional<double> above(double seconds, double bound) {
    return bound > 0 ? std::optional(std::max(0.0, seconds - bound) / bound) : std::nullopt;
}

size_t count_of(const std::vector<PieceReport>& pieces, bool PieceReport::*which) {
    return static_cast<size_t>(
        std::count_if(pieces.begin(), pieces.end(), [&](const PieceReport& p) { return p.*which; }));
}

/// "0.41 %", or "-" without a value.
std::string percent(std::optional<double> share) { return share ? fmt::format("{:.2f} %", 100 * *share) : "-"; }

}  // namespace

std::optional<double> OrchestrationReport::gap() const { return above(seconds(), bound()); }
std::optional<double> OrchestrationReport::emitted_gap() const { return above(emitted(), bound()); }
size_t OrchestrationReport::greedy_pieces() const { return count_of(pieces, &PieceReport::kept_greedy); }
size_t OrchestrationReport::capped_pieces() const { return count_of(pieces, &PieceReport::capped); }

std::optional<double> OrchestrationReport::measured_share() const {
    if (distinct_candidates == 0) return std::nullopt;
    return static_cast<double>(measured) / static_cast<double>(distinct_candidates);
}

size_t OrchestrationReport::proven_pieces() const { return count_of(pieces, &PieceReport::optimal); }

double OrchestrationReport::greedy_seconds() const {
    const bool all =
        std::all_of(pieces.begin(), pieces.end(), [](const PieceReport& p) { return p.greedy_seconds > 0; });
    return all ? sum(pieces, &PieceReport::greedy_seconds) : 0;
}

std::string InModelReport::print() const {
    std::string s = fmt::format("in whole runs, {} of {} distinct pieces keep greedy kernels", greedy, pieces);
    if (seconds > 0) s += fmt::format(", {:.3f} us, greedy {:.3f} us", seconds * 1e6, greedy_seconds * 1e6);
    return s;
}

std::string ProviderReport::print() const {
    std::string s =
        fmt::format("{} also computes {} kernels, {} of them faster when measured alone; {} of {} in the plan are kept",
                    name, measured, faster, kept, in_model);
    if (seconds > 0) s += fmt::format(", {:.3f} us, without it {:.3f} us", seconds * 1e6, generated_seconds * 1e6);
    if (solved_again > 0) s += fmt::format(", solved again {} times without refused kernels", solved_again);
    return s;
}

std::string OrchestrationReport::print() const {
    std::string s = fmt::format(
        "{} primitives, {} pieces ({} cuts, {:.0f} bytes across, {} greedy kernels split), {} sets{}, {} "
        "candidates of which {} dropped",
        primitives, pieces.size(), cuts, cut_bytes, cut_kernels, sets(),
        capped_pieces() > 0 ? fmt::format(" (capped in {} pieces)", capped_pieces()) : "", candidates(), dropped());
    s += fmt::format(", {} distinct", distinct_candidates);
    if (measured > 0)
        s += fmt::format(", {} kernels measured ({} recalled), {} of distinct candidates", measured, remembered,
                         percent(measured_share()));
    for (const auto& [reason, n] : refused) s += fmt::format(", {} refused: {}", n, reason);
    s += fmt::format("; {} columns, {} rows, {} pieces optimal of {}, bound {:.3f} us, plan {:.3f} us, gap {}",
                     columns(), rows(), proven_pieces(), pieces.size(), bound() * 1e6, seconds() * 1e6, percent(gap()));
    s +=
        fmt::format("; {} kernels emitted, {} primitives repeated, {:.3f} us, gap {}, greedy kernels kept in {} pieces",
                    kernels.size(), repeated, emitted() * 1e6, percent(emitted_gap()), greedy_pieces());
    if (greedy_seconds() > 0) s += fmt::format(", greedy {:.3f} us", greedy_seconds() * 1e6);
    if (in_model) s += "; " + in_model->print();
    if (provider) s += "; " + provider->print();
    return s + fmt::format("; {:.0f} ms", ms);
}

}  // namespace tilewright
