#include "orchestrate/optimal/piece.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "orchestrate/optimal/candidates.h"

namespace tilewright::optimal {

namespace {

/// The layouts in which a kernel reads and writes tensors that have two.
struct Variant {
    bool reads = true, writes = true;
    bool mixed() const { return reads != writes; }
};

}  // namespace

class PieceSearch::Impl {
  public:
    Impl(const Dag& dag, const std::vector<Candidate>& given, const AskKernel& ask, PieceOptions options)
        : dag_(dag), ask_(ask), options_(std::move(options)), paths_(dag_), choice_(choice_of(dag_)) {
        second_ = options_.second;
        second_.resize(dag_.tensors.size());
        options_.at_boundary.resize(dag_.tensors.size());
        choice_.tensors *= 2;
        for (auto* ends : {&choice_.given, &choice_.needed})
            for (TensorId& t : *ends) t = in(t, options_.at_boundary[t.index()]);
        choice_.once = options_.once;
        enumerate();
        convert();
        begin(given);
    }

    const Choice& choice() const { return choice_; }
    std::vector<PieceKernel> kernels;
    std::vector<size_t> start;

    void price(const std::function<Price(const PieceKernel&)>& of) {
        if (search_) {
            const LazyResult& r = search_->result();
            before_.measured += r.measured;
            before_.blp.rounds += r.blp.rounds;
            before_.blp.seconds += r.blp.seconds;
        }
        search_.reset();
        for (PieceKernel& k : kernels) {
            const Price p = of(k);
            k.candidate.cost = p.cost;
            k.known = p.known;
        }
    }

    LazySearch& search() {
        if (search_) return *search_;
        std::vector<bool> known;
        for (size_t k = 0; k < kernels.size(); ++k) {
            choice_.candidates[k].cost = kernels[k].candidate.cost;
            known.push_back(kernels[k].known);
        }
        BlpOptions blp;
        blp.seconds = options_.seconds;
        blp.start = start;
        if (choice_.once && !start_is_once()) blp.start = alone();
        if (options_.published_form) {
            blp.form = BlpForm::Published;
            blp.reduce = false;
        }
        if (options_.compare_forms) {
            plan_.strong = relaxation(choice_, BlpForm::Strong);
            plan_.published = relaxation(choice_, BlpForm::Published);
        }
        return search_.emplace(choice_, std::move(known), std::move(blp));
    }

    PiecePlan plan() const {
        TW_CHECK(search_, "a piece is planned before it is solved");
        PiecePlan plan = plan_;
        plan.solution = search_->result();
        plan.solution.measured += before_.measured;
        plan.solution.blp.rounds += before_.blp.rounds;
        plan.solution.blp.seconds += before_.blp.seconds;
        TW_CHECK(plan.solution.blp.status != BlpStatus::Infeasible, "a piece of {} nodes has no plan",
                 dag_.nodes.size());
        for (const size_t k : plan.solution.blp.chosen) plan.kernels.push_back(kernels[k]);
        plan.started = started_;
        for (const size_t k : start) plan.start_seconds += kernels[k].candidate.cost;
        for (const size_t k : execute(choice_, start).order) plan.start.push_back(kernels[k]);
        return plan;
    }

  private:
    TensorId in(TensorId t, bool second) const {
        return second && second_[t.index()] ? TensorId(t.index() + dag_.tensors.size()) : t;
    }

    std::vector<TensorId> in(std::vector<TensorId> tensors, bool second) const {
        for (TensorId& t : tensors) t = in(t, second);
        return tensors;
    }

    bool any_second(const std::vector<TensorId>& tensors) const {
        return std::any_of(tensors.begin(), tensors.end(), [&](TensorId t) { return second_[t.index()]; });
    }

    /// Nothing if there is no such kernel.
    std::optional<PieceKernel> made(const NodeSet& set, std::vector<TensorId> reads, std::vector<TensorId> writes) {
        KernelAnswer answer = ask_(set, reads, writes);
        if (std::isinf(answer.seconds)) {
            ++plan_.refused[answer.reason];
            return std::nullopt;
        }
        const double seconds = answer.seconds * (1 + answer.margin);
        return PieceKernel{{std::move(reads), std::move(writes), set.nodes(), seconds}, std::move(answer), true};
    }

    std::vector<Variant> variants(const NodeSet& set) const {
        const bool reads = any_second(dag_.inputs(set)), writes = any_second(dag_.exposed(set));
        if (!reads && !writes) return {{true, true}};
        if (!reads || !writes || set.size() > options_.most_mixed) return {{true, true}, {false, false}};
        return {{true, true}, {false, false}, {false, true}, {true, false}};
    }

    /// Appends the candidates of a set in one variant, and returns the cost of the one with all outputs.
    double list(const NodeSet& set, Variant variant, std::vector<PieceKernel>& out) {
        const std::vector<TensorId> reads = in(dag_.inputs(set), variant.reads);
        const size_t most = variant.mixed() ? 1 : options_.most_output_sets;
        double whole = kInfinity;
        bool first = true;
        for (const std::vector<TensorId>& outputs : output_sets(dag_, set, most)) {
            if (options_.single_output && set.size() > 1 && outputs.size() > 1) continue;
            auto kernel = made(set, reads, in(outputs, variant.writes));
            // A set without a kernel for all its outputs rarely has one for fewer.
            if (!kernel && first) break;
            if (first && outputs.size() == dag_.exposed(set).size()) whole = kernel->candidate.cost;
            if (kernel) out.push_back(std::move(*kernel));
            first = false;
        }
        return whole;
    }

    void enumerate() {
        const ConvexSets convex = convex_sets(dag_, paths_, options_.convex);
        plan_.sets = convex.sets.size();
        plan_.capped = convex.capped;
        // A set without tensors of two layouts has a single variant.
        struct Listed {
            std::vector<PieceKernel> first, second, mixed;
        };
        std::vector<Listed> of_set(convex.sets.size());
        std::vector<double> first(convex.sets.size()), second(convex.sets.size());
        for (size_t i = 0; i < convex.sets.size(); ++i) {
            const std::vector<Variant> wanted = variants(convex.sets[i]);
            for (const Variant v : wanted) {
                if (v.mixed())
                    list(convex.sets[i], v, of_set[i].mixed);
                else if (v.reads)
                    second[i] = list(convex.sets[i], v, of_set[i].second);
                else
                    first[i] = list(convex.sets[i], v, of_set[i].first);
            }
            if (wanted.size() == 1) first[i] = second[i];
        }
        // The smaller kernels that may replace a larger one have its variant.
        const std::vector<KnownCost> in_first = known_costs(dag_, paths_, convex.sets, first);
        const std::vector<KnownCost> in_second = known_costs(dag_, paths_, convex.sets, second);
        for (size_t i = 0; i < of_set.size(); ++i) {
            take(std::move(of_set[i].second), in_second[i].without);
            take(std::move(of_set[i].first), in_first[i].without);
            take(std::move(of_set[i].mixed), kInfinity);
        }
        for (const NodeSet& set : options_.also) {
            std::vector<PieceKernel> listed;
            list(set, {true, true}, listed);
            take(std::move(listed), kInfinity);
        }
    }

    void take(std::vector<PieceKernel> listed, double otherwise) {
        for (PieceKernel& kernel : listed) {
            ++plan_.candidates;
            plan_.chains += kernel.answer.chain ? 1 : 0;
            // Estimates are no bounds; and where nodes must not repeat, the smaller kernels may not replace it.
            if (options_.exact && !options_.once && kernel.candidate.cost >= otherwise)
                ++plan_.dropped;
            else
                push(std::move(kernel));
        }
    }

    void convert() {
        for (const TensorId t : dag_.tensors.ids()) {
            if (!second_[t.index()]) continue;
            for (const bool to_second : {true, false}) {
                auto kernel = made(dag_.none(), {in(t, !to_second)}, {in(t, to_second)});
                if (!kernel) continue;
                ++plan_.conversions;
                push(std::move(*kernel));
            }
        }
    }

    using Key = std::tuple<std::vector<NodeId>, std::vector<TensorId>, std::vector<TensorId>>;
    static Key key(const Candidate& c) { return {c.covers, c.inputs, c.outputs}; }

    size_t push(PieceKernel kernel) {
        const auto [it, fresh] = position_.emplace(key(kernel.candidate), kernels.size());
        if (!fresh) return it->second;
        choice_.candidates.push_back(kernel.candidate);
        kernels.push_back(std::move(kernel));
        return kernels.size() - 1;
    }

    void begin(const std::vector<Candidate>& given) {
        std::vector<size_t> plan;
        for (const Candidate& c : given) {
            const auto it = position_.find(key(c));
            if (it != position_.end()) {
                plan.push_back(it->second);
                continue;
            }
            auto kernel = made(dag_.set(c.covers), c.inputs, c.outputs);
            if (!kernel) return;
            ++plan_.candidates;
            plan_.chains += kernel->answer.chain ? 1 : 0;
            plan.push_back(push(std::move(*kernel)));
        }
        for (const size_t k : plan) kernels[k].candidate.cost = kernels[k].answer.seconds;
        if (!execute(choice_, plan).complete) return;
        started_ = true;
        start = std::move(plan);
    }

    bool start_is_once() const {
        std::vector<bool> seen(dag_.nodes.size());
        for (const size_t k : start)
            for (const NodeId n : choice_.candidates[k].covers) {
                if (seen[n.index()]) return false;
                seen[n.index()] = true;
            }
        return !start.empty();
    }

    /// Every node as a kernel of its own, in boundary layouts.
    std::vector<size_t> alone() const {
        std::vector<size_t> out;
        for (size_t k = 0; k < kernels.size(); ++k)
            if (kernels[k].candidate.covers.size() <= 1) out.push_back(k);
        const Execution run = execute(choice_, out);
        TW_CHECK(run.complete, "single nodes do not form a plan");
        // Of a node's variants, the first that can run; conversions as required.
        std::vector<bool> seen(dag_.nodes.size());
        std::vector<size_t> once;
        for (const size_t k : run.order) {
            const auto& covers = kernels[k].candidate.covers;
            if (!covers.empty() && seen[covers[0].index()]) continue;
            if (!covers.empty()) seen[covers[0].index()] = true;
            once.push_back(k);
        }
        return without_idle(choice_, execute(choice_, once).order);
    }

    Dag dag_;
    AskKernel ask_;
    PieceOptions options_;
    Paths paths_;
    Choice choice_;
    std::vector<bool> second_;
    std::map<Key, size_t> position_;
    PiecePlan plan_;
    bool started_ = false;
    std::optional<LazySearch> search_;
    LazyResult before_;  ///< statistics of earlier searches
};

PieceSearch::PieceSearch(const Dag& piece, const std::vector<Candidate>& start, const AskKernel& ask,
                         PieceOptions options)
    : impl_(std::make_unique<Impl>(piece, start, ask, std::move(options))) {}
PieceSearch::~PieceSearch() = default;
PieceSearch::PieceSearch(PieceSearch&&) noexcept = default;

const std::vector<PieceKernel>& PieceSearch::kernels() const { return impl_->kernels; }
const std::vector<size_t>& PieceSearch::start() const { return impl_->start; }
void PieceSearch::price(const std::function<Price(const PieceKernel&)>& of) { impl_->price(of); }
std::vector<size_t> PieceSearch::next() { return impl_->search().next(); }
void PieceSearch::stop() { impl_->search().stop(); }
PiecePlan PieceSearch::plan() const { return impl_->plan(); }

void PieceSearch::tell(const std::vector<size_t>& which, const std::vector<double>& costs) {
    impl_->search().tell(which, costs);
    for (size_t i = 0; i < which.size(); ++i) {
        impl_->kernels[which[i]].candidate.cost = costs[i];
        impl_->kernels[which[i]].known = true;
    }
}

}  // namespace tilewright::optimal
