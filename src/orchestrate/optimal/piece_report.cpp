#include "orchestrate/optimal/piece_report.h"

#include <utility>

#include "orchestrate/optimal/states.h"

namespace tilewright::optimal {

namespace {

constexpr size_t kMostStates = 10'000;  // counting limit per piece: wide pieces have astronomically many

}  // namespace

void PlanReport::add(const PieceStep& step) {
    const SearchedPiece& searched = choice_.searched()[step.search];
    const auto [first, fresh] = first_.try_emplace(step.search, report_.pieces.size());
    if (fresh) {
        report_.pieces.push_back(report_of(searched, step.piece));
    } else {
        PieceReport r = report_.pieces[first->second];
        r.like = first->second;
        r.solve_ms = r.emitted = 0;
        for (auto* relaxed : {&r.strong, &r.published})
            if (*relaxed) (*relaxed)->ms = 0;
        report_.pieces.push_back(r);
    }
    for (const auto& [reason, n] : searched.plan.refused) report_.refused[reason] += n;
}

PieceReport PlanReport::report_of(const SearchedPiece& searched, const Piece& piece) const {
    const PiecePlan& plan = searched.plan;
    const BlpResult& blp = plan.solution.blp;
    PieceReport r;
    r.primitives = piece.dag.nodes.size();
    r.states = count_states(piece.dag, kMostStates);
    r.more_states = r.states == kMostStates;
    r.sets = plan.sets;
    r.capped = plan.capped;
    r.candidates = plan.candidates;
    r.conversions = plan.conversions;
    r.chains = plan.chains;
    r.dropped = plan.dropped;
    if (options_.optimal.profile != Profile::None)
        for (const PieceKernel& k : searched.search.kernels()) r.measured += k.known ? 1 : 0;
    r.columns = blp.columns;
    r.rows = blp.rows;
    r.rounds = blp.rounds;
    r.optimal = blp.status == BlpStatus::Optimal;
    r.seconds = blp.objective;
    r.bound = blp.bound;
    r.root = blp.root;
    r.greedy_seconds = plan.started ? plan.start_seconds : 0;
    r.solve_ms = 1e3 * blp.seconds;
    r.kept_greedy = searched.greedy;
    if (plan.strong) r.strong = {plan.strong->root, 1e3 * plan.strong->seconds};
    if (plan.published) r.published = {plan.published->root, 1e3 * plan.published->seconds};
    return r;
}

std::string PlanReport::named(const PlacedValue& v) const {
    const std::string& name = choice_.program().values[v.value].name;
    return v.second && choice_.layouts()[v.value].second.has_value() ? name + " " + choice_.layouts()[v.value].text
                                                                     : name;
}

void PlanReport::add(const PieceKernel& k, const std::vector<PrimitiveId>& covers,
                     const std::vector<PlacedValue>& reads, const std::vector<PlacedValue>& writes) {
    KernelReport r;
    for (const PrimitiveId id : covers) {
        const bool again = !computed_.insert(id).second;
        report_.repeated += again ? 1 : 0;
        r.primitives.push_back({choice_.program().primitives[id].name, choice_.program().primitives[id].source, again});
    }
    for (const PlacedValue& v : reads) r.reads.push_back(named(v));
    for (const PlacedValue& v : writes) r.writes.push_back(named(v));
    r.piece = report_.pieces.size() - 1;
    r.cost = k.candidate.cost;
    report_.pieces.back().emitted += r.cost;
    r.estimate = k.answer.seconds;
    r.at_least = k.answer.at_least;
    if (options_.optimal.profile != Profile::None && k.known) r.measured = k.candidate.cost;
    report_.kernels.push_back(std::move(r));
}

}  // namespace tilewright::optimal
