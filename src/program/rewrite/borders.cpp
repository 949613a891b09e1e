#include "program/rewrite/borders.h"

#include <algorithm>
#include <set>

namespace tilewright {

namespace {

/// The primitives that a patch redefines, and those that are dead afterwards.
std::set<PrimitiveId> replaced_by(const RewriteContext& context, const Patch& patch) {
    std::set<PrimitiveId> gone;
    std::set<ValueId> kept;
    for (const Primitive& p : patch.primitives) {
        for (const ValueId v : p.inputs()) kept.insert(v);
        for (const ValueId v : p.outputs)
            if (context.program().values.contains(v)) gone.insert(context.producer_id(v));
    }
    std::vector<PrimitiveId> open(gone.begin(), gone.end());
    while (!open.empty()) {
        const Primitive& p = context.program().primitives[open.back()];
        open.pop_back();
        for (const ValueId v : p.inputs()) {
            const PrimitiveId maker = context.producer_id(v);
            if (!maker || context.foldable(v) || context.is_output(v) || kept.count(v) != 0) continue;
            const auto& readers = context.consumers(v);
            const bool dead = std::all_of(readers.begin(), readers.end(), [&](PrimitiveId r) { return gone.count(r); });
            if (dead && gone.insert(maker).second) open.push_back(maker);
        }
    }
    return gone;
}

class Borders {
  public:
    Borders(const Program& program, const std::vector<size_t>& piece_of, const RewriteSearch& options)
        : program_(program), piece_of_(piece_of), options_(options), context_(program, options.rules.folding) {}

    std::vector<Run> runs() const {
        std::vector<Run> out;
        for (const Run& span : spans()) {
            Run* const last = out.empty() ? nullptr : &out.back();
            if (last == nullptr || span.first >= last->second)
                out.push_back(span);
            else if (std::max(last->second, span.second) - last->first <= most())
                last->second = std::max(last->second, span.second);
        }
        for (size_t k = 0; k < out.size(); ++k)
            extend(out[k], k == 0 ? 0 : out[k - 1].second,
                   k + 1 < out.size() ? out[k + 1].first : program_.primitives.size());
        return out;
    }

  private:
    const TensorExpr* expr(size_t k) const { return program_.primitives[PrimitiveId(k)].expr(); }
    size_t piece(PrimitiveId id) const { return piece_of_[program_.primitives[id].outputs[0].index()]; }
    size_t most() const { return options_.across * options_.piece; }

    /// Primitives that read a value of another piece, and their readers up to the size of a match.
    std::set<PrimitiveId> behind_borders() const {
        constexpr int kSteps = 3;  // primitives of the longest path in a match, without the first
        std::set<PrimitiveId> out, last;
        for (const PrimitiveId id : program_.primitives.ids()) {
            if (expr(id.index()) == nullptr) continue;
            for (const ValueId v : program_.primitives[id].inputs())
                if (const PrimitiveId maker = context_.producer_id(v);
                    maker && expr(maker.index()) != nullptr && piece(maker) != piece(id))
                    last.insert(id);
        }
        for (int step = 0; step < kSteps; ++step) {
            out.insert(last.begin(), last.end());
            std::set<PrimitiveId> next;
            for (const PrimitiveId id : last)
                for (const PrimitiveId reader : context_.consumers(program_.primitives[id].outputs[0]))
                    if (expr(reader.index()) != nullptr) next.insert(reader);
            last = std::move(next);
        }
        return out;
    }

    /// A rule that matches at a primitive, and the primitives from the first to the last that it replaces.
    struct Match {
        Run span;
        PrimitiveId at;
        const RewriteRule* rule;
    };

    std::vector<Match> matches() const {
        const std::vector<const RewriteRule*> rules = rewrite_rules(options_.rules);
        std::vector<Match> out;
        for (const PrimitiveId at : behind_borders()) {
            if (too_large(*expr(at.index()))) continue;
            for (const RewriteRule* rule : rules) {
                std::vector<Patch> patches;
                rule->find(context_, at, patches);
                for (const Patch& patch : patches) {
                    const std::set<PrimitiveId> gone = replaced_by(context_, patch);
                    const Run span{gone.begin()->index(), gone.rbegin()->index() + 1};
                    const bool crosses =
                        std::any_of(gone.begin(), gone.end(), [&](PrimitiveId id) { return piece(id) != piece(at); });
                    if (crosses && span.second - span.first <= most() && all_expressions(span))
                        out.push_back({span, at, rule});
                }
            }
        }
        return out;
    }

    bool all_expressions(const Run& run) const {
        for (size_t k = run.first; k < run.second; ++k)
            if (expr(k) == nullptr) return false;
        return true;
    }

    /// The spans of matches that pay off.
    std::set<Run> spans() const {
        const std::vector<Match> all = matches();
        std::vector<Run> of;
        for (const Match& m : all) of.push_back(m.span);
        const std::vector<Piece> alone = pieces(program_, of);
        std::set<Run> out;
        for (size_t k = 0; k < all.size(); ++k)
            if (out.count(of[k]) == 0 && pays_off(alone[k].program, all[k])) out.insert(of[k]);
        return out;
    }

    /// Whether the rule reduces the cost of the primitives of the match's span alone.
    bool pays_off(const Program& alone, const Match& match) const {
        const RewriteContext context(alone, options_.rules.folding);
        const auto cost = [&](const RewriteContext& c) { return options_.cost ? options_.cost(c) : analytic_cost(c); };
        const double before = cost(context);
        std::vector<Patch> patches;
        match.rule->find(context, PrimitiveId(match.at.index() - match.span.first), patches);
        return std::any_of(patches.begin(), patches.end(), [&](const Patch& patch) {
            const auto after = apply_later(alone, patch, alone.values.size());
            return after && cost(RewriteContext(*after, options_.rules.folding)) < before;
        });
    }

    void extend(Run& run, size_t least, size_t end) const {
        for (bool longer = true; longer && run.second - run.first < options_.piece;) {
            longer = false;
            if (run.first > least && expr(run.first - 1) != nullptr) {
                --run.first;
                longer = true;
            }
            if (run.second - run.first < options_.piece && run.second < end && expr(run.second) != nullptr) {
                ++run.second;
                longer = true;
            }
        }
    }

    const Program& program_;
    const std::vector<size_t>& piece_of_;
    const RewriteSearch& options_;
    const RewriteContext context_;
};

}  // namespace

std::vector<Run> runs_across_pieces(const Program& program, const std::vector<size_t>& piece_of,
                                    const RewriteSearch& options) {
    return Borders(program, piece_of, options).runs();
}

}  // namespace tilewright
