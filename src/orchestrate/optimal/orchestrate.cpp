#include "orchestrate/optimal/orchestrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "orchestrate/fuse.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/layouts.h"
#include "orchestrate/optimal/chain_sets.h"
#include "orchestrate/optimal/partition.h"
#include "orchestrate/optimal/pricing.h"
#include "orchestrate/optimal/start.h"
#include "orchestrate/options.h"
#include "program/transform/dead_code.h"

namespace tilewright::optimal {

namespace {

constexpr size_t kMostStates = 10'000;  // counted of a piece: a wide one has more than there are atoms
/// By how much a kernel that the greedy rule does not have counts more than the model says, as a share, unless it is
/// measured: estimates of kernels that walk memory in other ways err that much against each other, and of thousands of
/// candidates a search finds those that they flatter.
constexpr double kModelError = 0.12;
constexpr size_t kMostChains = 48;  // sets of several products that are tried in a piece

constexpr char kGreedy = 'g', kOptimal = 'o';  // what is remembered of each search

ValueId value(TensorId t) { return ValueId(t.index()); }
PrimitiveId primitive(NodeId n) { return PrimitiveId(n.index()); }

class Orchestration {
  public:
    Orchestration(const Program& program, const GreedyGroups& greedy, const OrchestrateOptions& options,
                  Schedules& schedules, const FusionLimits& limits, OrchestrationReport& report, const RunGrouped& run)
        : p_(program),
          options_(options),
          limits_(limits),
          schedules_(schedules),
          report_(report),
          run_(run),
          dag_(dag_of(program)),
          greedy_(greedy_plan(program, greedy)),
          maker_(program, greedy_.layouts, options, schedules) {}

    Grouped run() {
        PartitionOptions cut;
        cut.most_nodes = options_.optimal.piece_nodes;
        cut.alone = [&](NodeId n) { return p_.primitives[primitive(n)].expr() == nullptr; };
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
                steps_.push_back({primitive(piece[0]), {}, {}});
            else
                search(piece);
        }
        choose();
        do {
            for (Searched& s : searched_) {
                const std::vector<size_t> unknown = s.search.next();
                TW_CHECK(unknown.empty(), "a piece is not solved");
                s.plan = s.search.plan();
                s.greedy = false;
            }
            if (run_ && options_.optimal.profile != Profile::None) compare();
        } while (refuses_libraries() && solve_again());
        return build();
    }

  private:
    /// A piece; or a primitive that is no tensor expression.
    struct PieceStep {
        PrimitiveId alone;
        Piece piece;
        size_t search = 0;
    };
    /// Pieces that differ in names and weights alone are one.
    struct Searched {
        PieceSearch search;
        PiecePlan plan;
        std::optional<size_t> report;  ///< of the first such piece
        bool greedy = false;           ///< the greedy rule's kernels are taken in place of the plan's

        const std::vector<PieceKernel>& kernels() const { return greedy ? plan.start : plan.kernels; }
        bool differs() const { return plan.started && texts(plan.start) != texts(plan.kernels); }
        static std::set<std::string> texts(const std::vector<PieceKernel>& kernels) {
            std::set<std::string> out;
            for (const PieceKernel& k : kernels) out.insert(text_of(k.candidate));
            return out;
        }
    };

    // --- choosing

    bool two(ValueId v) const { return greedy_.layouts[v].second.has_value(); }

    static std::vector<PrimitiveId> whole(const Piece& piece, const std::vector<NodeId>& nodes) {
        std::vector<PrimitiveId> out;
        out.reserve(nodes.size());
        for (const NodeId n : nodes) out.push_back(primitive(piece.nodes[n]));
        return out;
    }

    /// What tensors of a piece's choice are.
    static std::vector<PlacedValue> whole(const Piece& piece, const std::vector<TensorId>& tensors) {
        std::vector<PlacedValue> out;
        out.reserve(tensors.size());
        const size_t n = piece.tensors.size();
        for (const TensorId t : tensors) {
            const ValueId v = value(piece.tensors[TensorId(t.index() % n)]);
            out.push_back({v, t.index() >= n});
        }
        return out;
    }

    bool may_share(const std::vector<PrimitiveId>& members) const {
        if (!limits_.may_share) return true;
        return std::all_of(members.begin(), members.end(), [&](PrimitiveId a) {
            return std::all_of(members.begin(), members.end(),
                               [&](PrimitiveId b) { return limits_.may_share(p_.primitives[a], p_.primitives[b]); });
        });
    }

    static KernelAnswer refusal(std::string reason) {
        constexpr double kInfinity = std::numeric_limits<double>::infinity();
        return {kInfinity, kInfinity, std::move(reason)};
    }

    void search(const std::vector<NodeId>& members) {
        PieceStep step;
        step.piece = piece_of(dag_, members);
        const Piece& piece = step.piece;
        const std::vector<Candidate> start = start_of(piece, greedy_);
        const auto [it, fresh] = searches_.try_emplace(key_of(piece, start), searched_.size());
        step.search = it->second;
        if (fresh) {
            const AskKernel ask = [&](const NodeSet& set, const std::vector<TensorId>& reads,
                                      const std::vector<TensorId>& writes) {
                const std::vector<PrimitiveId> covers = whole(piece, set.nodes());
                const std::vector<PlacedValue> from = whole(piece, reads), to = whole(piece, writes);
                if (!may_share(covers)) return refusal("its primitives are to stay apart");
                if (options_.without.single_output && writes.size() > 1) return refusal("several outputs");
                const size_t number =
                    covers.empty() ? maker_.convert(from[0].value, to[0].second) : maker_.make(covers, from, to);
                const KernelMaker::Made& made = maker_[number];
                return KernelAnswer{made.seconds,
                                    made.at_least,
                                    made.reason,
                                    number,
                                    made.kind == KernelMaker::Kind::Chain,
                                    options_.optimal.profile == Profile::None ? std::max(made.margin, kModelError) : 0};
            };
            searched_.push_back({PieceSearch(piece.dag, start, ask, piece_options(piece)), {}, {}, false});
        }
        steps_.push_back(std::move(step));
    }

    PieceOptions piece_options(const Piece& piece) const {
        const OptimalOptions& o = options_.optimal;
        PieceOptions how;
        how.convex.most_nodes = o.kernel_nodes;
        how.convex.most_sets = o.most_sets;
        how.convex.hopeless = [&](const NodeSet& set) {
            const std::vector<PrimitiveId> members = whole(piece, set.nodes());
            return !may_share(members) || maker_.hopeless(members);
        };
        how.most_output_sets = o.most_outputs;
        how.single_output = options_.without.single_output;
        how.once = options_.without.no_redundancy;
        for (const TensorId t : piece.tensors) {
            how.second.push_back(two(value(t)));
            how.home.push_back(greedy_.layouts[value(t)].home);
        }
        if (o.chains && schedules_.how().chains())
            how.also = chain_sets(
                piece.dag, Paths(piece.dag), [&](NodeId n) { return maker_.work(primitive(piece.nodes[n])); },
                kMostChains);
        how.exact = o.profile == Profile::None;
        how.seconds = o.seconds;
        how.published_form = o.published_form;
        how.compare_forms = o.compare_forms;
        return how;
    }

    /// All that the search sees of a piece.
    std::string key_of(const Piece& piece, const std::vector<Candidate>& start) const {
        std::vector<NodeId> all;
        std::vector<ValueId> outputs;
        for (const NodeId n : piece.dag.nodes.ids()) all.push_back(n);
        for (const TensorId t : piece.dag.tensors.ids())
            if (piece.dag.tensors[t].needed) outputs.push_back(value(piece.tensors[t]));
        const Part part = part_of(p_, whole(piece, all), outputs, false);
        std::string key = print(part.program);
        for (size_t k = 0; k < part.whole.size(); ++k) {
            const ValueId v = part.whole[k];
            key += part.constant[k] ? 'c' : greedy_.layouts[v].home ? 's' : 'v';
            if (!part.constant[k]) key += greedy_.layouts[v].text;
        }
        for (const Candidate& c : start) key += text_of(c);
        return key;
    }

    static std::string text_of(const Candidate& c) {
        std::string text;
        for (const NodeId n : c.covers) text += fmt::format(" {}", n.index());
        for (const auto* list : {&c.inputs, &c.outputs}) {
            text += " :";
            for (const TensorId t : *list) text += fmt::format(" {}", t.index());
        }
        return text + '\n';
    }

    void choose() {
        std::map<size_t, size_t> equal = equal_kernels(maker_);
        report_.distinct_candidates += count_distinct(equal);
        if (options_.optimal.profile == Profile::None || searched_.empty()) return;
        std::vector<PieceSearch*> all;
        all.reserve(searched_.size());
        for (Searched& s : searched_) all.push_back(&s.search);
        pricing_.emplace(std::move(all), std::move(equal), maker_, schedules_, options_, report_);
        pricing_->solve();
    }

    /// What refused libraries took is no cost any more: other kernels may be better now.
    bool solve_again() {
        if (!pricing_ || !pricing_->solve_without_refused()) return false;
        ++report_.provider->solved_again;
        return true;
    }

    // --- in whole runs

    /// What a piece, or a library's kernel, must gain there, as a share: of many some are faster by luck.
    static constexpr double kGain = 0.02;
    /// What a whole plan must gain, in each of two comparisons.
    static constexpr double kWholeGain = 0.01;

    static bool gains(const GroupedTimes& plan, const GroupedTimes& other) {
        return plan.seconds < (1 - kWholeGain) * other.seconds;
    }

    /// Whether the plan takes less than the other in whole runs once more, as it did in `first` (its time, then the
    /// other's): a second comparison, with the two in the other order. `first` is then the mean of both.
    bool confirmed(const Grouped& plan, const Grouped& other, std::vector<GroupedTimes>& first) {
        if (!gains(first[0], first[1])) return false;
        const std::vector<GroupedTimes> again = run_({other, plan});
        if (again.size() != 2) return false;
        const bool holds = gains(again[1], again[0]);
        first[0].seconds = (first[0].seconds + again[1].seconds) / 2;
        first[1].seconds = (first[1].seconds + again[0].seconds) / 2;
        return holds;
    }

    void take(const std::function<bool(size_t)>& greedy) {
        for (size_t s = 0; s < searched_.size(); ++s) searched_[s].greedy = searched_[s].differs() && greedy(s);
    }

    /// The grouping of what is taken now; the report stays as it was.
    Grouped tried() {
        const OrchestrationReport before = report_;
        Grouped grouped = build();
        report_ = before;
        return grouped;
    }

    void compare() {
        report_.in_model.reset();
        InModelReport in_model;
        std::string what = "pieces, confirmed\n";
        for (const std::string& kernel : schedules_.refused()) what += "without a library\n" + kernel + '\n';
        for (const auto& [key, s] : searches_) {
            what += key;
            for (const PieceKernel& k : searched_[s].plan.kernels) what += text_of(k.candidate);
            in_model.pieces += searched_[s].differs() ? 1 : 0;
        }
        if (in_model.pieces == 0) return;
        if (const auto known = options_.remember.find ? options_.remember.find(what) : std::nullopt;
            known && known->size() == searched_.size()) {
            take([&](size_t s) { return (*known)[s] == kGreedy; });
        } else {
            if (options_.watch) options_.watch({"running whole plans", 0, 1, 0, report_.measured - report_.remembered});
            const double begin = now();
            if (!choose_in_runs(in_model)) return;
            report_.measure_ms += 1e3 * (now() - begin);
            std::string chosen;
            for (const Searched& s : searched_) chosen += s.greedy ? kGreedy : kOptimal;
            if (options_.remember.keep) options_.remember.keep(what, chosen);
        }
        for (const Searched& s : searched_) in_model.greedy += s.greedy ? 1 : 0;
        report_.in_model = in_model;
    }

    /// False where nothing can be run.
    bool choose_in_runs(InModelReport& report) {
        const auto none = [](size_t) { return false; };
        const auto all = [](size_t) { return true; };
        take(all);
        Grouped greedy = tried();
        greedy.generated_only = true;
        const std::map<size_t, size_t> of_greedy = search_of_;
        take(none);
        const Grouped optimal = tried();
        std::vector<GroupedTimes> times = run_({optimal, greedy});
        if (times.size() != 2) return false;
        std::vector<double> mine(searched_.size()), theirs(searched_.size());
        for (const auto& [kernel, seconds] : times[0].chosen) mine[search_of_.at(kernel)] += seconds;
        for (const auto& [kernel, seconds] : times[1].chosen) theirs[of_greedy.at(kernel)] += seconds;
        take([&](size_t s) { return mine[s] > (1 - kGain) * theirs[s]; });
        const auto greedy_ones = static_cast<size_t>(
            std::count_if(searched_.begin(), searched_.end(), [](const Searched& s) { return s.greedy; }));
        Grouped best = optimal;
        if (greedy_ones > 0 && greedy_ones < report.pieces) {
            Grouped mixed = tried();
            std::vector<GroupedTimes> again = run_({mixed, greedy});
            if (again.size() != 2) return false;
            if (again[0].seconds / again[1].seconds > times[0].seconds / times[1].seconds) {
                take(none);
            } else {
                best = std::move(mixed);
                times = std::move(again);
            }
        } else {
            take(none);
        }
        const bool faster = confirmed(best, greedy, times);
        if (!faster) take(all);
        report.greedy_seconds = times[1].seconds;
        report.seconds = times[faster ? 0 : 1].seconds;
        return true;
    }

    /// A library's kernels between generated ones: its threads are others, and what it leaves in the caches. Those of
    /// the plan stay that are faster there, all kernels of one text together, if the whole is faster with them. The
    /// others are refused; true where there are such.
    bool refuses_libraries() {
        if (!report_.provider || report_.provider->faster == 0) return false;
        ProviderReport& r = *report_.provider;
        const Grouped with = tried();
        Grouped without = with;
        without.generated_only = true;
        std::map<std::string, Schedules::Provided> of;
        std::string what = "libraries, confirmed: " + r.name;
        for (const KernelGroup& g : with.groups) {
            const KernelBody body = extract(with.program, g);
            std::vector<bool> weights;
            for (size_t i = 0; i < body.stages.inputs.size(); ++i)
                weights.push_back(with.program.is_constant(body.tensors[i]));
            const Schedules::Scheduled& s = g.chain ? *schedules_.chain(body) : schedules_.kernel(body);
            const auto provided = schedules_.provided(s, weights);
            what += '\n' + (provided ? provided->kernel : print(s.program));
            if (provided) of.emplace(provided->kernel, *provided);
        }
        const size_t refused = schedules_.refused().size();
        r.in_model = of.size() + refused - refused_before_;
        r.kept = of.size();
        if (of.empty() || !run_) return false;
        const auto known = options_.remember.find ? options_.remember.find(what) : std::nullopt;
        std::string chosen;
        if (known && known->size() == of.size()) {
            chosen = *known;
        } else {
            if (options_.watch)
                options_.watch({"running whole plans with " + r.name, 0, 1, 0, report_.measured - report_.remembered});
            const double begin = now();
            std::vector<GroupedTimes> times = run_({with, without});
            if (times.size() != 2) return false;
            for (const auto& [kernel, p] : of) {
                const auto mine = times[0].provided.find(kernel), ours = times[1].provided.find(kernel);
                const bool faster = mine != times[0].provided.end() && ours != times[1].provided.end() &&
                                    mine->second < (1 - kGain) * ours->second;
                chosen += faster ? kOptimal : kGreedy;
            }
            for (size_t k = 0; const auto& [kernel, p] : of)
                if (chosen[k++] == kGreedy) schedules_.refuse(p);
            const bool some = chosen.find(kOptimal) != std::string::npos;
            if (some && chosen.find(kGreedy) != std::string::npos) {
                times = run_({with, without});  // `with` those that are not refused by now
                if (times.size() != 2) return false;
            }
            const bool faster = some && confirmed(with, without, times);
            if (!faster) chosen.assign(of.size(), kGreedy);
            r.generated_seconds = times[1].seconds;
            r.seconds = times[faster ? 0 : 1].seconds;
            report_.measure_ms += 1e3 * (now() - begin);
            if (options_.remember.keep) options_.remember.keep(what, chosen);
        }
        for (size_t k = 0; const auto& [kernel, p] : of)
            if (chosen[k++] == kGreedy) schedules_.refuse(p);
        r.kept = static_cast<size_t>(std::count(chosen.begin(), chosen.end(), kOptimal));
        return schedules_.refused().size() > refused;
    }

    static double now() {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }

    // --- reporting

    void report(Searched& searched, const PieceStep& step) {
        const PiecePlan& plan = searched.plan;
        const BlpResult& blp = plan.solution.blp;
        PieceReport r;
        if (searched.report) {
            r = report_.pieces[*searched.report];
            r.like = searched.report;
            r.solve_ms = r.emitted = 0;
            for (auto* relaxed : {&r.strong, &r.published})
                if (*relaxed) (*relaxed)->ms = 0;
            report_.pieces.push_back(r);
        } else {
            r.primitives = step.piece.dag.nodes.size();
            r.states = count_states(step.piece.dag, kMostStates);
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
            searched.report = report_.pieces.size();
            report_.pieces.push_back(r);
        }
        for (const auto& [reason, n] : plan.refused) report_.refused[reason] += n;
    }

    std::string named(const PlacedValue& v) const {
        const std::string& name = p_.values[v.value].name;
        return v.second && greedy_.layouts[v.value].second.has_value() ? name + " " + greedy_.layouts[v.value].text
                                                                       : name;
    }

    void report(const PieceKernel& k, const std::vector<PrimitiveId>& covers, const std::vector<PlacedValue>& reads,
                const std::vector<PlacedValue>& writes) {
        KernelReport r;
        for (const PrimitiveId id : covers) {
            const bool again = !computed_.insert(id).second;
            report_.repeated += again ? 1 : 0;
            r.primitives.push_back({p_.primitives[id].name, p_.primitives[id].source, again});
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

    // --- the program of the chosen kernels

    Grouped build() {
        begin();
        for (const PieceStep& step : steps_) {
            if (step.alone) {
                result_.primitives.push_back(p_.primitives[step.alone]);
                continue;
            }
            Searched& searched = searched_[step.search];
            report(searched, step);
            for (const PieceKernel& k : searched.kernels()) {
                emit(k, step.piece);
                search_of_[report_.kernels.size() - 1] = step.search;
            }
        }
        return finish();
    }

    void begin() {
        for (Searched& s : searched_) s.report.reset();
        search_of_.clear();
        computed_.clear();
        names_.clear();
        laid_.clear();
        other_.clear();
        result_ = p_;
        result_.primitives = {};
        for (const Value& v : p_.values) names_.insert(v.name);
        written_.assign(p_.values.size(), false);
        kernel_of_.assign(p_.values.size(), SIZE_MAX);
        for (const ValueId v : p_.values.ids())
            if (greedy_.layouts[v].home) laid_.emplace(v, greedy_.layouts[v].other());
    }

    ValueId another(ValueId v, bool second) {
        Value copy = result_.values[v];
        for (size_t n = 2; !names_.insert(copy.name).second; ++n)
            copy.name = fmt::format("{}.{}", result_.values[v].name, n);
        written_.push_back(false);
        kernel_of_.push_back(SIZE_MAX);
        const ValueId made = result_.values.push_back(std::move(copy));
        if (second) laid_.emplace(made, greedy_.layouts[v].other());
        return made;
    }

    /// The value in a layout: itself where that is its own, else one of the same name and another number.
    ValueId in_layout(ValueId v, bool second) {
        if (!greedy_.layouts[v].second.has_value() || second == greedy_.layouts[v].home) return v;
        const auto it = other_.find(v);
        return it != other_.end() ? it->second : other_.emplace(v, another(v, second)).first->second;
    }

    void wrote(ValueId v) {
        written_[v.index()] = true;
        kernel_of_[v.index()] = report_.kernels.size() - 1;
    }

    /// Appends the fused stages of a kernel. A value that it keeps to itself, or that another kernel wrote before, gets
    /// a name of its own.
    void emit(const PieceKernel& k, const Piece& piece) {
        const std::vector<PrimitiveId> members = whole(piece, k.candidate.covers);
        const std::vector<PlacedValue> reads = whole(piece, k.candidate.inputs),
                                       writes = whole(piece, k.candidate.outputs);
        report(k, members, reads, writes);
        if (members.empty()) {
            const ValueId to = in_layout(writes[0].value, writes[0].second);
            Primitive copy = layout_copy(result_, in_layout(reads[0].value, reads[0].second), to);
            result_.primitives.push_back(std::move(copy));
            wrote(to);
            return;
        }
        std::vector<ValueId> outputs;
        outputs.reserve(writes.size());
        for (const PlacedValue& v : writes) outputs.push_back(v.value);
        Part part = part_of(p_, members, outputs, true);
        const Program stages = with_copies(part, fuse_greedily(part.program));
        const std::vector<bool> second = placed(part, greedy_.layouts, reads, writes);
        std::map<ValueId, ValueId> made;
        for (const Primitive& stage : stages.primitives) {
            Primitive copy = stage;
            for (Access& a : copy.expr()->accesses) {
                const auto it = made.find(a.value);
                a.value =
                    it != made.end() ? it->second : in_layout(part.whole[a.value.index()], second[a.value.index()]);
            }
            const ValueId local = stage.outputs[0], original = part.whole[local.index()];
            ValueId mine;
            if (std::find(outputs.begin(), outputs.end(), original) != outputs.end())
                mine = in_layout(original, second[local.index()]);
            if (!mine || written_[mine.index()]) mine = another(original, second[local.index()]);
            wrote(mine);
            made[local] = mine;
            copy.outputs = {mine};
            result_.primitives.push_back(std::move(copy));
        }
    }

    Grouped finish() {
        Grouped out;
        out.program = eliminate_dead_code(result_);
        if (options_.layouts) out.program = lay_out(out.program, laid_, options_.target);
        std::vector<KernelGroup> kernels;
        size_t last = SIZE_MAX;
        for (const PrimitiveId id : out.program.primitives.ids()) {
            const Primitive& q = out.program.primitives[id];
            if (q.expr() == nullptr) {
                last = SIZE_MAX;
                continue;
            }
            const size_t kernel = kernel_of_[q.outputs[0].index()];
            if (kernel != last) kernels.emplace_back().chosen = kernel;
            last = kernel;
            kernels.back().primitives.push_back(id);
        }
        for (const KernelGroup& kernel : kernels) append(out, kernel);
        return out;
    }

    /// With the rows that its stages share, as a chain, or in the parts that share rows: the whole program's other
    /// readers may see to it that a value is written which the kernel had for itself.
    void append(Grouped& out, KernelGroup kernel) {
        kernel.row_axes.resize(kernel.primitives.size());
        const KernelBody body = extract(out.program, kernel);
        const std::vector<KernelGroup> groups = fuse_rows(body.stages);
        if (groups.size() > 1 && schedules_.how().chains()) {
            kernel.chain = true;
            if (schedules_.chain(extract(out.program, kernel))) {
                out.groups.push_back(std::move(kernel));
                return;
            }
        }
        report_.taken_apart += groups.size() > 1 ? 1 : 0;
        for (KernelGroup group : groups) {
            for (PrimitiveId& id : group.primitives) id = kernel.primitives[id.index()];
            group.chosen = kernel.chosen;
            out.groups.push_back(std::move(group));
        }
    }

    const Program& p_;
    const OrchestrateOptions& options_;
    const FusionLimits& limits_;
    Schedules& schedules_;
    OrchestrationReport& report_;
    const RunGrouped& run_;
    Dag dag_;
    GreedyPlan greedy_;
    KernelMaker maker_;
    std::vector<PieceStep> steps_;
    std::vector<Searched> searched_;
    std::optional<Pricing> pricing_;                       ///< of these, where costs are measured
    size_t refused_before_ = schedules_.refused().size();  ///< kernels, for other programs
    std::map<std::string, size_t> searches_;               ///< by all that a search sees
    std::map<size_t, size_t> search_of_;                   ///< whose plan each kernel of the report is from
    std::set<PrimitiveId> computed_;                       ///< by some kernel
    Program result_;
    std::set<std::string> names_;
    std::map<ValueId, Layout> laid_;    ///< of result_
    std::map<ValueId, ValueId> other_;  ///< of a value of p_: who stands for it in its other layout
    std::vector<bool> written_;         ///< per value of result_
    std::vector<size_t> kernel_of_;     ///< likewise: which kernel of the report makes it
};

}  // namespace

Grouped group_optimally(const Program& program, const GreedyGroups& greedy, const OrchestrateOptions& options,
                        Schedules& schedules, const FusionLimits& limits, OrchestrationReport& report,
                        const RunGrouped& run) {
    const auto start = std::chrono::steady_clock::now();
    Grouped out = Orchestration(program, greedy, options, schedules, limits, report, run).run();
    report.ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return out;
}

}  // namespace tilewright::optimal
