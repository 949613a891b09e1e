#include "orchestrate/optimal/orchestrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "orchestrate/optimal/kernel_maker.h"
#include "orchestrate/optimal/partition.h"
#include "orchestrate/optimal/piece.h"
#include "program/transform/dead_code.h"

namespace tilewright {

namespace optimal {

namespace {

constexpr size_t kMostStates = 10'000;  // counted of a piece: a wide one has more than there are atoms

ValueId value(TensorId t) { return ValueId(t.index()); }
PrimitiveId primitive(NodeId n) { return PrimitiveId(n.index()); }

/// A kernel of the whole program: primitives in order, and what it writes.
struct Kernel {
    std::vector<PrimitiveId> members;
    std::vector<ValueId> outputs;
};

/// The greedy rule's kernels as sets of the unfused program's primitives.
std::vector<Kernel> greedy_kernels(const Program& program, Schedules& schedules, const FusionLimits& limits) {
    const Program fused = fuse_greedily(program, limits);
    std::vector<KernelGroup> groups = group_rows(fused, true, limits);
    if (schedules.how().chains()) groups = group_chains(fused, std::move(groups), schedules, limits);
    const auto producers = program.producers();
    std::vector<Kernel> out;
    for (const KernelGroup& group : groups) {
        const KernelBody body = extract(fused, group);
        const size_t inputs = body.stages.inputs.size();
        const std::set<ValueId> reads(body.tensors.begin(), body.tensors.begin() + static_cast<std::ptrdiff_t>(inputs));
        Kernel kernel;
        kernel.outputs.assign(body.tensors.begin() + static_cast<std::ptrdiff_t>(inputs), body.tensors.end());
        // Everything between what it reads and what it writes.
        std::set<PrimitiveId> members;
        std::vector<ValueId> open = kernel.outputs;
        while (!open.empty()) {
            const PrimitiveId from = producers[open.back()];
            open.pop_back();
            if (!from || !members.insert(from).second) continue;
            for (const ValueId v : program.primitives[from].inputs())
                if (reads.count(v) == 0) open.push_back(v);
        }
        kernel.members.assign(members.begin(), members.end());
        out.push_back(std::move(kernel));
    }
    return out;
}

class Orchestration {
  public:
    Orchestration(const Program& program, const OrchestrateOptions& options, Schedules& schedules,
                  const FusionLimits& limits, OrchestrationReport& report)
        : p_(program),
          options_(options),
          limits_(limits),
          schedules_(schedules),
          report_(report),
          dag_(dag_of(program)),
          maker_(program, options, schedules) {}

    Grouped run() {
        greedy_ = greedy_kernels(p_, schedules_, limits_);
        PartitionOptions cut;
        cut.most_nodes = options_.optimal.piece_nodes;
        cut.alone = [&](NodeId n) { return p_.primitives[primitive(n)].expr() == nullptr; };
        for (const Kernel& k : greedy_) {
            cut.together.emplace_back();
            for (const PrimitiveId id : k.members) cut.together.back().emplace_back(id.index());
        }
        const Partition pieces = partition(dag_, cut);
        report_.primitives += p_.primitives.size();
        report_.cuts += pieces.cuts;
        report_.cut_bytes += pieces.crossing;
        report_.cut_kernels += pieces.split;
        begin();
        for (const std::vector<NodeId>& piece : pieces.pieces) {
            if (cut.alone(piece[0]))
                result_.primitives.push_back(p_.primitives[primitive(piece[0])]);
            else
                solve(piece);
        }
        return finish();
    }

  private:
    // --- choosing

    void solve(const std::vector<NodeId>& members) {
        const Piece piece = piece_of(dag_, members);
        const auto whole = [&](const std::vector<NodeId>& nodes) {
            std::vector<PrimitiveId> out;
            out.reserve(nodes.size());
            for (const NodeId n : nodes) out.push_back(primitive(piece.nodes[n]));
            return out;
        };
        const auto values = [&](const std::vector<TensorId>& tensors) {
            std::vector<ValueId> out;
            out.reserve(tensors.size());
            for (const TensorId t : tensors) out.push_back(value(piece.tensors[t]));
            return out;
        };
        const AskKernel ask = [&](const NodeSet& set, const std::vector<TensorId>& outputs) {
            const KernelMaker::Made& made = maker_.make(whole(set.nodes()), values(outputs));
            return KernelAnswer{made.seconds, made.at_least, made.reason};
        };
        PieceOptions how;
        how.convex.most_nodes = options_.optimal.kernel_nodes;
        how.convex.most_sets = options_.optimal.most_sets;
        how.convex.hopeless = [&](const NodeSet& set) {
            const std::vector<PrimitiveId> ids = whole(set.nodes());
            return !may_share(ids) || maker_.hopeless(ids);
        };
        how.most_output_sets = options_.optimal.most_outputs;
        how.once = options_.without.no_redundancy;
        how.single_output = options_.without.single_output;
        how.seconds = options_.optimal.seconds;
        how.compare_forms = options_.optimal.compare_forms;
        if (schedules_.how().measure) {
            how.profile = Profile::Lazy;
            how.measure = [&](const std::vector<Candidate>& candidates) {
                std::vector<double> out;
                out.reserve(candidates.size());
                for (const Candidate& c : candidates) {
                    const double seconds = schedules_.measure(maker_.make(whole(c.covers), values(c.outputs)).tiles);
                    out.push_back(seconds < 0 ? std::numeric_limits<double>::infinity() : seconds + kKernelSeconds);
                }
                return out;
            };
        }
        const PiecePlan plan = plan_piece(piece.dag, start_of(piece), ask, how);
        report(plan, piece.dag);
        for (const PlannedKernel& k : plan.kernels) {
            const std::vector<PrimitiveId> covers = whole(k.candidate.covers);
            report(k, covers, values(k.candidate.inputs), values(k.candidate.outputs));
            emit(covers, values(k.candidate.outputs));
        }
    }

    bool may_share(const std::vector<PrimitiveId>& members) const {
        if (!limits_.may_share) return true;
        return std::all_of(members.begin(), members.end(), [&](PrimitiveId a) {
            return std::all_of(members.begin(), members.end(),
                               [&](PrimitiveId b) { return limits_.may_share(p_.primitives[a], p_.primitives[b]); });
        });
    }

    /// The greedy rule's kernels within a piece. Each writes what it does there, and what the piece must give and none
    /// of them writes (a value that it computes for itself, and a kernel of another piece as well).
    std::vector<Candidate> start_of(const Piece& piece) const {
        std::map<PrimitiveId, NodeId> local;
        std::map<ValueId, TensorId> tensors;
        for (const NodeId n : piece.dag.nodes.ids()) local[primitive(piece.nodes[n])] = n;
        for (const TensorId t : piece.dag.tensors.ids()) tensors[value(piece.tensors[t])] = t;
        std::set<ValueId> written;
        for (const Kernel& k : greedy_) written.insert(k.outputs.begin(), k.outputs.end());
        std::vector<Candidate> out;
        for (const Kernel& k : greedy_) {
            NodeSet set = piece.dag.none();
            for (const PrimitiveId id : k.members)
                if (const auto it = local.find(id); it != local.end()) set.insert(it->second);
            if (set.empty()) continue;
            Candidate c;
            c.inputs = piece.dag.inputs(set);
            c.covers = set.nodes();
            for (const NodeId n : c.covers)
                for (const TensorId t : piece.dag.nodes[n].writes) {
                    const ValueId v = value(piece.tensors[t]);
                    const bool mine = std::find(k.outputs.begin(), k.outputs.end(), v) != k.outputs.end();
                    if (mine || (piece.dag.tensors[t].needed && written.count(v) == 0)) c.outputs.push_back(t);
                }
            if (!c.outputs.empty()) out.push_back(std::move(c));
        }
        return out;
    }

    // --- reporting

    void report(const PiecePlan& plan, const Dag& dag) {
        const BlpResult& blp = plan.solution.blp;
        PieceReport r;
        r.primitives = dag.nodes.size();
        r.states = count_states(dag, kMostStates);
        r.more_states = r.states == kMostStates;
        r.sets = plan.sets;
        r.capped = plan.capped;
        r.candidates = plan.candidates;
        r.dropped = plan.dropped;
        r.measured = plan.solution.measured;
        r.columns = blp.columns;
        r.rows = blp.rows;
        r.rounds = blp.rounds;
        r.optimal = blp.status == BlpStatus::Optimal;
        r.seconds = blp.objective;
        r.bound = blp.bound;
        r.root = blp.root;
        r.greedy_seconds = plan.started ? plan.start_seconds : 0;
        r.solve_ms = 1e3 * blp.seconds;
        if (plan.published) {
            r.published_root = plan.published->root;
            r.published_ms = 1e3 * plan.published->seconds;
        }
        for (const auto& [reason, n] : plan.refused) report_.refused[reason] += n;
        report_.pieces.push_back(std::move(r));
    }

    void report(const PlannedKernel& k, const std::vector<PrimitiveId>& covers, const std::vector<ValueId>& reads,
                const std::vector<ValueId>& writes) {
        KernelReport r;
        for (const PrimitiveId id : covers) {
            const bool again = !computed_.insert(id).second;
            report_.repeated += again ? 1 : 0;
            r.primitives.push_back({p_.primitives[id].name, p_.primitives[id].source, again});
        }
        for (const ValueId v : reads) r.reads.push_back(p_.values[v].name);
        for (const ValueId v : writes) r.writes.push_back(p_.values[v].name);
        r.piece = report_.pieces.size() - 1;
        r.estimate = k.seconds;
        r.at_least = k.at_least;
        r.measured = k.measured;
        report_.kernels.push_back(std::move(r));
    }

    // --- the program of the chosen kernels

    void begin() {
        result_ = p_;
        result_.primitives = {};
        for (const Value& v : p_.values) names_.insert(v.name);
        written_.assign(p_.values.size(), false);
        kernel_of_.assign(p_.values.size(), SIZE_MAX);
    }

    ValueId another(ValueId v) {
        Value copy = result_.values[v];
        for (size_t n = 2; !names_.insert(copy.name).second; ++n)
            copy.name = fmt::format("{}.{}", result_.values[v].name, n);
        written_.push_back(false);
        kernel_of_.push_back(SIZE_MAX);
        return result_.values.push_back(std::move(copy));
    }

    /// Appends the fused stages of a kernel. A value that it keeps to itself, or that another kernel wrote before, gets
    /// a name of its own.
    void emit(const std::vector<PrimitiveId>& members, const std::vector<ValueId>& outputs) {
        const Part part = part_of(p_, members, outputs, true);
        const Program fused = fuse_greedily(part.program);
        std::map<ValueId, ValueId> made;
        for (const Primitive& stage : fused.primitives) {
            Primitive copy = stage;
            for (Access& a : copy.expr()->accesses) {
                const auto it = made.find(a.value);
                a.value = it != made.end() ? it->second : part.whole[a.value.index()];
            }
            const ValueId local = stage.outputs[0], original = part.whole[local.index()];
            const bool leaves = std::find(outputs.begin(), outputs.end(), original) != outputs.end();
            const ValueId mine = leaves && !written_[original.index()] ? original : another(original);
            written_[mine.index()] = true;
            kernel_of_[mine.index()] = report_.kernels.size() - 1;
            made[local] = mine;
            copy.outputs = {mine};
            result_.primitives.push_back(std::move(copy));
        }
    }

    Grouped finish() {
        Grouped out;
        out.program = eliminate_dead_code(result_);
        if (options_.layouts && !options_.without.layouts_first)
            out.program = assign_layouts(out.program, options_.target);
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

    /// With the rows that its stages share now, as a chain, or in the parts that share rows.
    void append(Grouped& out, KernelGroup kernel) {
        kernel.row_axes.resize(kernel.primitives.size());
        const KernelBody body = extract(out.program, kernel);
        const std::vector<KernelGroup> groups = group_rows(body.stages, true);
        const auto add = [&](const KernelGroup& local) {
            KernelGroup group = local;
            group.chosen = kernel.chosen;
            for (PrimitiveId& id : group.primitives) id = kernel.primitives[id.index()];
            out.groups.push_back(std::move(group));
        };
        if (groups.size() > 1 && schedules_.how().chains()) {
            kernel.chain = true;
            if (schedules_.chain(extract(out.program, kernel))) {
                out.groups.push_back(std::move(kernel));
                return;
            }
        }
        report_.relaid += groups.size() > 1 ? 1 : 0;
        for (const KernelGroup& g : groups) add(g);
    }

    const Program& p_;
    const OrchestrateOptions& options_;
    const FusionLimits& limits_;
    Schedules& schedules_;
    OrchestrationReport& report_;
    Dag dag_;
    KernelMaker maker_;
    std::vector<Kernel> greedy_;
    std::set<PrimitiveId> computed_;  ///< by some kernel
    Program result_;
    std::set<std::string> names_;
    std::vector<bool> written_;      ///< per value of result_
    std::vector<size_t> kernel_of_;  ///< likewise: which kernel of the report makes it
};

}  // namespace

Grouped group_optimally(const Program& program, const OrchestrateOptions& options, Schedules& schedules,
                        const FusionLimits& limits, OrchestrationReport& report) {
    const auto start = std::chrono::steady_clock::now();
    Grouped out = Orchestration(program, options, schedules, limits, report).run();
    report.ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return out;
}

}  // namespace optimal
}  // namespace tilewright
