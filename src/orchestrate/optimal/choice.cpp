#include "orchestrate/optimal/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "cost/residual.h"
#include "orchestrate/optimal/chain_sets.h"
#include "orchestrate/optimal/partition.h"
#include "orchestrate/optimal/start.h"

namespace tilewright::optimal {

namespace {

/// The share that is added to the estimate of a kernel without a measurement that greedy orchestration does not have.
/// Estimates of kernels with different access patterns have this relative error, and a search over thousands of
/// candidates selects underestimated ones.
constexpr double kModelError = 0.12;
constexpr size_t kMostChains = 48;  // sets of several products tried per piece

std::string text_of(const Candidate& c) {
    std::string text;
    for (const NodeId n : c.covers) text += fmt::format(" {}", n.index());
    for (const auto* list : {&c.inputs, &c.outputs}) {
        text += " :";
        for (const TensorId t : *list) text += fmt::format(" {}", t.index());
    }
    return text + '\n';
}

KernelAnswer no_kernel(std::string reason) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {kInfinity, kInfinity, std::move(reason)};
}

}  // namespace

bool SearchedPiece::differs() const {
    const auto texts = [](const std::vector<PieceKernel>& kernels) {
        std::set<std::string> out;
        for (const PieceKernel& k : kernels) out.insert(text_of(k.candidate));
        return out;
    };
    return plan.started && texts(plan.start) != texts(plan.kernels);
}

std::vector<PrimitiveId> in_program(const Piece& piece, const std::vector<NodeId>& nodes) {
    std::vector<PrimitiveId> out;
    out.reserve(nodes.size());
    for (const NodeId n : nodes) out.emplace_back(piece.nodes[n].index());
    return out;
}

std::vector<PlacedValue> in_program(const Piece& piece, const std::vector<TensorId>& tensors) {
    std::vector<PlacedValue> out;
    out.reserve(tensors.size());
    const size_t n = piece.tensors.size();
    for (const TensorId t : tensors)
        out.push_back({ValueId(piece.tensors[TensorId(t.index() % n)].index()), t.index() >= n});
    return out;
}

PieceChoice::PieceChoice(const Program& program, const GreedyGroups& greedy, const OrchestrateOptions& options,
                         Schedules& schedules, const FusionLimits& limits, OrchestrationReport& report)
    : p_(program),
      options_(options),
      limits_(limits),
      schedules_(schedules),
      report_(report),
      dag_(dag_of(program)),
      greedy_(greedy_plan(program, greedy)),
      maker_(program, greedy_.layouts, options, schedules) {}

void PieceChoice::list() {
    PartitionOptions cut;
    cut.most_nodes = options_.optimal.piece_nodes;
    cut.alone = [&](NodeId n) { return p_.primitives[PrimitiveId(n.index())].expr() == nullptr; };
    for (const GreedyKernel& k : greedy_.kernels) {
        cut.together.emplace_back();
        for (const PrimitiveId id : k.members) cut.together.back().emplace_back(id.index());
    }
    const Partition pieces = partition(dag_, cut);
    report_.primitives += p_.primitives.size();
    report_.cuts += pieces.cuts;
    report_.cut_bytes += pieces.crossing;
    report_.cut_kernels += pieces.split;
    for (size_t k = 0; k < pieces.pieces.size(); ++k) {
        const std::vector<NodeId>& piece = pieces.pieces[k];
        if (options_.watch) options_.watch({"listing the kernels of a piece", k, pieces.pieces.size(), 0, 0});
        if (cut.alone(piece[0]))
            steps_.push_back({PrimitiveId(piece[0].index()), {}, {}});
        else
            add(piece);
    }
    measure();
}

bool PieceChoice::may_share(const std::vector<PrimitiveId>& members) const {
    if (!limits_.may_share) return true;
    return std::all_of(members.begin(), members.end(), [&](PrimitiveId a) {
        return std::all_of(members.begin(), members.end(),
                           [&](PrimitiveId b) { return limits_.may_share(p_.primitives[a], p_.primitives[b]); });
    });
}

void PieceChoice::add(const std::vector<NodeId>& members) {
    PieceStep step;
    step.piece = piece_of(dag_, members);
    const Piece& piece = step.piece;
    const std::vector<Candidate> start = start_of(piece, greedy_);
    const auto [it, fresh] = searches_.try_emplace(key_of(piece, start), searched_.size());
    step.search = it->second;
    if (fresh) {
        const AskKernel ask = [&](const NodeSet& set, const std::vector<TensorId>& reads,
                                  const std::vector<TensorId>& writes) { return answer(piece, set, reads, writes); };
        searched_.push_back({PieceSearch(piece.dag, start, ask, piece_options(piece))});
    }
    steps_.push_back(std::move(step));
}

KernelAnswer PieceChoice::answer(const Piece& piece, const NodeSet& set, const std::vector<TensorId>& reads,
                                 const std::vector<TensorId>& writes) {
    const std::vector<PrimitiveId> covers = in_program(piece, set.nodes());
    const std::vector<PlacedValue> from = in_program(piece, reads), to = in_program(piece, writes);
    if (!may_share(covers)) return no_kernel("an option forbids fusing its primitives");
    if (options_.without.single_output && writes.size() > 1) return no_kernel("several outputs");
    const size_t number = covers.empty() ? maker_.convert(from[0].value, to[0].second) : maker_.make(covers, from, to);
    const KernelMaker::Made& made = maker_[number];
    return KernelAnswer{made.seconds,
                        made.at_least,
                        made.reason,
                        number,
                        made.kind == KernelMaker::Kind::Chain,
                        options_.optimal.profile == Profile::None
                            ? std::max(made.margin, margin(kModelError, schedules_.how().residual.get()))
                            : 0};
}

std::optional<KernelAnswer> PieceChoice::answer_if_known(const Piece& piece, const NodeSet& set,
                                                         const std::vector<TensorId>& reads,
                                                         const std::vector<TensorId>& writes) {
    const bool known = !schedules_.how().measures() || set.empty() ||
                       maker_.find(in_program(piece, set.nodes()), in_program(piece, reads), in_program(piece, writes));
    return known ? std::optional(answer(piece, set, reads, writes)) : std::nullopt;
}

PieceOptions PieceChoice::piece_options(const Piece& piece) const {
    const OptimalOptions& o = options_.optimal;
    PieceOptions how;
    how.convex.most_nodes = o.kernel_nodes;
    how.convex.most_sets = o.most_sets;
    how.convex.pruned = [&](const NodeSet& set) {
        const std::vector<PrimitiveId> members = in_program(piece, set.nodes());
        return !may_share(members) || maker_.pruned(members);
    };
    how.most_output_sets = o.most_outputs;
    how.single_output = options_.without.single_output;
    how.once = options_.without.no_redundancy;
    for (const TensorId t : piece.tensors) {
        how.second.push_back(greedy_.layouts[ValueId(t.index())].second.has_value());
        how.at_boundary.push_back(greedy_.layouts[ValueId(t.index())].at_boundary);
    }
    if (o.chains && schedules_.how().chains())
        how.also = chain_sets(
            piece.dag, Paths(piece.dag), [&](NodeId n) { return maker_.work(PrimitiveId(piece.nodes[n].index())); },
            kMostChains);
    how.exact = o.profile == Profile::None;
    how.seconds = o.seconds;
    how.published_form = o.published_form;
    how.compare_forms = o.compare_forms;
    return how;
}

std::string PieceChoice::key_of(const Piece& piece, const std::vector<Candidate>& start) const {
    std::vector<NodeId> all;
    std::vector<ValueId> outputs;
    for (const NodeId n : piece.dag.nodes.ids()) all.push_back(n);
    for (const TensorId t : piece.dag.tensors.ids())
        if (piece.dag.tensors[t].needed) outputs.push_back(ValueId(piece.tensors[t].index()));
    const Part part = part_of(p_, in_program(piece, all), outputs, false);
    std::string key = print(part.program);
    for (size_t k = 0; k < part.whole.size(); ++k) {
        const ValueId v = part.whole[k];
        key += part.constant[k] ? 'c' : greedy_.layouts[v].at_boundary ? 's' : 'v';
        if (!part.constant[k]) key += greedy_.layouts[v].text;
    }
    for (const Candidate& c : start) key += text_of(c);
    return key;
}

void PieceChoice::measure() {
    std::map<size_t, size_t> equal = equal_kernels(maker_);
    report_.distinct_candidates += count_distinct(equal);
    if (options_.optimal.profile == Profile::None || searched_.empty()) return;
    std::vector<PieceSearch*> all;
    all.reserve(searched_.size());
    for (SearchedPiece& s : searched_) all.push_back(&s.search);
    pricing_.emplace(std::move(all), std::move(equal), maker_, schedules_, options_, report_);
    pricing_->solve();
}

void PieceChoice::solve() {
    for (SearchedPiece& s : searched_) {
        const std::vector<size_t> unknown = s.search.next();
        TW_CHECK(unknown.empty(), "a piece is not solved");
        s.plan = s.search.plan();
        s.greedy = false;
    }
}

bool PieceChoice::withdraw_refused() {
    if (!pricing_ || !pricing_->solve_without_refused()) return false;
    ++report_.provider->solved_again;
    return true;
}

void PieceChoice::take(const std::function<bool(size_t)>& greedy) {
    for (size_t s = 0; s < searched_.size(); ++s) searched_[s].greedy = searched_[s].differs() && greedy(s);
}

std::string PieceChoice::key() const {
    std::string text;
    for (const auto& [key, s] : searches_) {
        text += key;
        for (const PieceKernel& k : searched_[s].plan.kernels) text += text_of(k.candidate);
    }
    return text;
}

}  // namespace tilewright::optimal
