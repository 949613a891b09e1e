#include "orchestrate/optimal/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tilewright::optimal {

namespace {

/// The neighbouring kernels of one piece's selection.
class Neighbours {
  public:
    Neighbours(PieceChoice& choice, const PieceStep& step, const OrchestrateOptions& options)
        : choice_(choice),
          piece_(step.piece),
          searched_(choice.searched()[step.search]),
          options_(options),
          paths_(piece_.dag) {}

    /// Pairs of positions of kernels, with their reasons.
    std::map<std::pair<size_t, size_t>, std::string> reasons() {
        std::map<std::pair<size_t, size_t>, std::string> out;
        const std::vector<PieceKernel>& all = searched_.kernels();
        for (size_t a = 0; a < all.size(); ++a)
            for (size_t b = 0; b < all.size(); ++b)
                if (a != b && reads_from(all[b], all[a])) out[{a, b}] = reason(a, b);
        return out;
    }

  private:
    static bool contains(const std::vector<TensorId>& all, TensorId t) {
        return std::find(all.begin(), all.end(), t) != all.end();
    }

    static bool reads_from(const PieceKernel& reader, const PieceKernel& writer) {
        return std::any_of(reader.candidate.inputs.begin(), reader.candidate.inputs.end(),
                           [&](TensorId t) { return contains(writer.candidate.outputs, t); });
    }

    /// The number of a tensor without its layout.
    TensorId tensor(TensorId t) const { return TensorId(t.index() % piece_.dag.tensors.size()); }

    std::string reason(size_t a, size_t b) {
        if (searched_.greedy) return "runs of the whole model were faster with the kernels of greedy orchestration";
        const PieceKernel &producer = searched_.kernels()[a], &reader = searched_.kernels()[b];
        if (producer.candidate.covers.empty() || reader.candidate.covers.empty())
            return "one of them converts a layout";
        NodeSet set = piece_.dag.set(producer.candidate.covers);
        for (const NodeId n : reader.candidate.covers) set.insert(n);
        if (!paths_.convex(set)) return "another kernel reads from the first and is read by the second";
        const Candidate together = merged(set, a, b);
        const auto answer = choice_.answer_if_known(piece_, set, together.inputs, together.outputs);
        if (answer && std::isinf(answer->seconds)) return answer->reason;
        const PieceKernel* listed = find(together);
        if (listed == nullptr && set.size() > options_.optimal.kernel_nodes)
            return fmt::format("together they have {} primitives, more than --kernel-nodes", set.size());
        if (!answer) return "the merged kernel was not measured";
        return costs(listed != nullptr ? *listed : PieceKernel{together, *answer, false}, producer, reader,
                     listed != nullptr);
    }

    /// Both kernels as one candidate. It writes tensors that other kernels read or that are needed outside the piece.
    Candidate merged(const NodeSet& set, size_t a, size_t b) const {
        const std::vector<PieceKernel>& all = searched_.kernels();
        Candidate out;
        out.covers = set.nodes();
        std::set<TensorId> inside, seen;
        for (const NodeId n : out.covers)
            for (const TensorId t : piece_.dag.nodes[n].writes) inside.insert(t);
        for (const TensorId wanted : piece_.dag.inputs(set))
            for (const size_t k : {a, b})
                for (const TensorId t : all[k].candidate.inputs)
                    if (tensor(t) == wanted && seen.insert(wanted).second) out.inputs.push_back(t);
        const auto used = [&](TensorId t) {
            if (piece_.dag.tensors[tensor(t)].needed) return true;
            for (size_t k = 0; k < all.size(); ++k)
                if (k != a && k != b && contains(all[k].candidate.inputs, t)) return true;
            return false;
        };
        for (const TensorId wanted : piece_.dag.exposed(set))
            for (const size_t k : {a, b})
                for (const TensorId t : all[k].candidate.outputs)
                    if (tensor(t) == wanted && inside.count(wanted) != 0 && used(t) && seen.insert(wanted).second)
                        out.outputs.push_back(t);
        if (out.outputs.empty()) out.outputs = all[b].candidate.outputs;
        return out;
    }

    const PieceKernel* find(const Candidate& c) const {
        const auto& all = searched_.search.kernels();
        const auto it = std::find_if(all.begin(), all.end(), [&](const PieceKernel& k) {
            return k.candidate.covers == c.covers && k.candidate.inputs == c.inputs && k.candidate.outputs == c.outputs;
        });
        return it != all.end() ? &*it : nullptr;
    }

    bool measured(const PieceKernel& k) const { return options_.optimal.profile != Profile::None && k.known; }
    double seconds(const PieceKernel& k) const { return measured(k) ? k.candidate.cost : k.answer.seconds; }

    std::string costs(const PieceKernel& together, const PieceKernel& a, const PieceKernel& b, bool listed) const {
        const double one = seconds(together), two = seconds(a) + seconds(b);
        const bool one_measured = measured(together), two_measured = measured(a) && measured(b);
        const auto word = [](bool m) { return m ? "measured" : "estimated"; };
        if (std::isinf(one)) return "the merged kernel could not be run";
        std::string text =
            fmt::format("{} {:.1f} us together, {}{:.1f} us apart", word(one_measured), 1e6 * one,
                        one_measured != two_measured ? fmt::format("{} ", word(two_measured)) : "", 1e6 * two);
        if (one >= two) return text;
        const double margin = options_.optimal.profile == Profile::None ? together.answer.margin : 0;
        if (one * (1 + margin) >= two)
            return text + fmt::format(", within the estimate's error of {:.0f} %", 100 * margin);
        if (!listed) return text + ", but not a candidate (--most-sets)";
        return text + ", but other selections cost less";
    }

    PieceChoice& choice_;
    const Piece& piece_;
    const SearchedPiece& searched_;
    const OrchestrateOptions& options_;
    Paths paths_;
};

}  // namespace

void explain_neighbours(PieceChoice& choice, const OrchestrateOptions& options, size_t first,
                        OrchestrationReport& report) {
    std::map<size_t, std::map<std::pair<size_t, size_t>, std::string>> of_search;  // equal pieces share the reasons
    for (const PieceStep& step : choice.steps()) {
        if (step.alone) continue;
        const auto [it, fresh] = of_search.try_emplace(step.search);
        if (fresh) it->second = Neighbours(choice, step, options).reasons();
        for (const auto& [pair, reason] : it->second)
            report.not_fused[{first + pair.first, first + pair.second}] = reason;
        first += choice.searched()[step.search].kernels().size();
    }
}

}  // namespace tilewright::optimal
