#include "program/rewrite/search.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/hash.h"
#include "program/rewrite/pieces.h"
#include "program/transform/common_subexpressions.h"

namespace tilewright {

namespace {

class StructureHash {
  public:
    explicit StructureHash(const Program& program) : p_(program), of_(program.values.size(), 0) {}

    uint64_t run() {
        for (const ValueId v : p_.inputs) of_[v] = hash_combine(1, v.value);
        for (const auto& [v, tensor] : p_.constants) {
            const auto unread = p_.unread.find(v);
            of_[v] =
                unread != p_.unread.end() ? hash_combine(2, unread->second) : hash_combine(3, contents_hash(tensor));
        }
        for (const Primitive& p : p_.primitives) {
            const TensorExpr* e = p.expr();
            TW_CHECK(e != nullptr, "'{}' is no tensor expression", p.name);
            of_[p.outputs[0]] = hash_combine(hash(*e), static_cast<uint64_t>(p_.values[p.outputs[0]].dtype));
        }
        uint64_t h = 4;
        for (const ValueId v : p_.outputs) h = hash_combine(h, of_[v]);
        return h;
    }

  private:
    static uint64_t hash(uint64_t h, const std::vector<Expr>& list) {
        h = hash_combine(h, list.size());
        for (const Expr e : list) h = hash_combine(h, hash_text(e.text()));
        return h;
    }
    static uint64_t hash(uint64_t h, const ScalarBody& body) {
        if (body.empty()) return hash_combine(h, 0);
        const ScalarBody pruned = body.pruned();
        for (const ScalarNode& n : pruned.nodes()) {
            h = hash_combine(h, static_cast<uint64_t>(n.op) << 8 | static_cast<uint64_t>(n.dtype));
            for (const ScalarId o : {n.a, n.b, n.c}) h = hash_combine(h, o.value);
            h = hash_combine(h, std::bit_cast<uint64_t>(n.value));
            h = hash_combine(h, static_cast<uint64_t>(n.int_value));
            h = hash_combine(h, n.slot);
            h = hash_combine(h, hash_text(n.index.text()));
        }
        return h;
    }
    uint64_t hash(const TensorExpr& e) const {
        uint64_t h = hash(hash_combine(5, e.spatial), e.extents);
        h = hash_combine(h, static_cast<uint64_t>(e.reducer));
        for (const Access& a : e.accesses) {
            h = hash(hash(hash_combine(h, of_[a.value]), a.index), a.valid);
            if (!a.valid.empty()) h = hash_combine(h, std::bit_cast<uint64_t>(a.fill));
        }
        return hash(hash(hash(h, e.body), e.epilogue), e.output_index);
    }

    const Program& p_;
    IndexVector<ValueId, uint64_t> of_;
};

struct State {
    Program program;
    double cost = 0;
    size_t number = 0;  ///< in order of discovery, which decides among equals
    std::vector<std::string_view> way;
};

struct Dearer {
    bool operator()(const State& a, const State& b) const {
        return a.cost != b.cost ? a.cost > b.cost : a.number > b.number;
    }
};

class Search {
  public:
    Search(const RewriteSearch& options, RewriteReport& report)
        : options_(options), report_(report), rules_(rewrite_rules(options.rules)) {}

    State run(const Program& start) {
        const size_t most = static_cast<size_t>(static_cast<double>(start.primitives.size()) * options_.growth);
        State best{start, cost(start), 0, {}};
        std::priority_queue<State, std::vector<State>, Dearer> queue;
        std::unordered_set<uint64_t> seen = {structure_hash(start)};
        queue.push(best);
        for (size_t taken = 0; taken < options_.budget && !queue.empty(); ++taken) {
            const State state = queue.top();
            queue.pop();
            ++report_.taken;
            const RewriteContext context(state.program, options_.rules.folding);
            for (const RewriteRule* rule : rules_)
                for (const Patch& patch : find_all(context, *rule)) {
                    Program next = merge_common_subexpressions(apply(state.program, patch));
                    if (next.primitives.size() > most || !seen.insert(structure_hash(next)).second) continue;
                    State found{std::move(next), 0, ++number_, state.way};
                    found.cost = cost(found.program);
                    if (!(found.cost < options_.alpha * best.cost)) continue;
                    found.way.push_back(rule->name);
                    if (found.cost < best.cost) best = found;
                    queue.push(std::move(found));
                }
        }
        return best;
    }

    double cost(const Program& program) {
        ++report_.costed;
        const RewriteContext context(program, options_.rules.folding);
        return options_.cost ? options_.cost(context) : analytic_cost(context);
    }

  private:
    const RewriteSearch& options_;
    RewriteReport& report_;
    std::vector<const RewriteRule*> rules_;
    size_t number_ = 0;
};

}  // namespace

uint64_t structure_hash(const Program& program) { return StructureHash(program).run(); }

Program search(const Program& program, const RewriteSearch& options, RewriteReport* report) {
    RewriteReport unwanted;
    RewriteReport& r = report != nullptr ? *report : unwanted;
    Search search(options, r);
    State best = search.run(program);
    r.before += search.cost(program);
    r.after += best.cost;
    for (const std::string_view rule : best.way) ++r.applied[std::string(rule)];
    return std::move(best.program);
}

Program rewrite(const Program& program, const RewriteSearch& options, RewriteReport* report) {
    struct Done {
        Program program;
        RewriteReport report;
    };
    RewriteReport unwanted;
    RewriteReport& r = report != nullptr ? *report : unwanted;
    std::unordered_map<std::string, Done> done;
    std::vector<std::pair<Piece, const Program*>> changed;
    for (const auto& run : cut(program, options.piece)) {
        Piece part = piece(program, run);
        const auto [it, fresh] = done.try_emplace(piece_text(part));
        Done& d = it->second;
        if (fresh) {
            d.program = search(part.program, options, &d.report);
            ++r.distinct;
            r.taken += d.report.taken;
            r.costed += d.report.costed;
        }
        ++r.pieces;
        r.before += d.report.before;
        r.after += d.report.after;
        for (const auto& [rule, times] : d.report.applied) r.applied[rule] += times;
        if (!d.report.applied.empty()) changed.emplace_back(std::move(part), &d.program);
    }
    Program out = program;
    for (const auto& [part, to] : changed) out = apply(out, as_patch(out, part, *to));
    return out;
}

}  // namespace tilewright
