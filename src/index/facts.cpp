#include "index/facts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "index/expr_parts.h"

namespace tilewright {

namespace {

class Prover {
  public:
    Prover(const Ranges& ranges, std::vector<Expr> facts) : ranges_(ranges), facts_(std::move(facts)) {}

    bool prove(Expr e, int facts_left, int openings_left) {
        if (--budget_ < 0) return false;
        if (prove_nonnegative(e, ranges_)) return true;
        if (e.is_constant()) return false;
        if (facts_left > 0)
            for (const Expr fact : facts_)
                for (const int64_t times : multiples(e, fact))
                    if (prove(e - fact * times, facts_left - 1, openings_left)) return true;
        return openings_left > 0 && open(e, facts_left, openings_left - 1);
    }

  private:
    /// Multipliers of a fact with which one of its terms cancels one of e's: e = 2x - y, fact = x - 3 -> 2.
    static std::vector<int64_t> multiples(Expr e, Expr fact) {
        std::vector<int64_t> out{1};
        for (const Term& f : fact.terms())
            for (const Term& t : e.terms())
                if (t.atoms == f.atoms && t.coefficient / f.coefficient > 0)
                    out.push_back(t.coefficient / f.coefficient);
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
        return out;
    }

    /// Replaces one division, minimum or maximum by its bound:
    ///     r + c (x // s) >= 0   if   r s + c (x - s + 1) >= 0     (c > 0; for c < 0:  r s + c x >= 0)
    ///     r + min(x, y) >= 0    if   r + x >= 0 and r + y >= 0    (for -min and max accordingly)
    bool open(Expr e, int facts_left, int openings_left) {
        for (const Term& t : e.terms()) {
            if (t.atoms.size() != 1) continue;
            const Atom& a = *t.atoms[0];
            const Expr rest = e - parts::make(0, {t});
            const int64_t c = t.coefficient;
            switch (a.kind) {
                case Atom::Kind::FloorDiv:
                    if (!prove_positive(a.b, ranges_)) break;
                    if (c > 0 && prove(a.a, facts_left, openings_left) && prove(rest, facts_left, openings_left))
                        return true;
                    if (prove(rest * a.b + (c > 0 ? a.a - a.b + 1 : a.a) * c, facts_left, openings_left)) return true;
                    break;
                case Atom::Kind::Mod:
                    if (!prove_positive(a.b, ranges_)) break;
                    if (prove(c > 0 ? rest : rest + (a.b - 1) * c, facts_left, openings_left)) return true;
                    break;
                case Atom::Kind::Min:
                case Atom::Kind::Max: {
                    const bool both = (a.kind == Atom::Kind::Min) == (c > 0);
                    const bool first = prove(rest + a.a * c, facts_left, openings_left);
                    if (first != both) {
                        if (first) return true;
                        break;
                    }
                    if (prove(rest + a.b * c, facts_left, openings_left)) return true;
                    break;
                }
                case Atom::Kind::Var:
                    break;
            }
        }
        return false;
    }

    const Ranges& ranges_;
    std::vector<Expr> facts_;
    int budget_ = 200;  // limit of attempted proofs, whatever the number of facts
};

/// The facts that share a variable with e, directly or indirectly. No other fact can contribute to a proof.
std::vector<Expr> facts_about(Expr e, std::span<const Expr> facts) {
    std::vector<Var> about = variables(e);
    std::vector<char> taken(facts.size(), 0);
    for (bool more = true; more;) {
        more = false;
        for (size_t k = 0; k < facts.size(); ++k) {
            if (taken[k] != 0) continue;
            const std::vector<Var> of = variables(facts[k]);
            if (std::none_of(of.begin(), of.end(),
                             [&](Var v) { return std::find(about.begin(), about.end(), v) != about.end(); }))
                continue;
            about.insert(about.end(), of.begin(), of.end());
            taken[k] = 1;
            more = true;
        }
    }
    std::vector<Expr> out;
    for (size_t k = 0; k < facts.size(); ++k)
        if (taken[k] != 0) out.push_back(facts[k]);
    return out;
}

}  // namespace

bool prove_nonnegative(Expr e, const Ranges& ranges, std::span<const Expr> facts) {
    return Prover(ranges, facts_about(e, facts)).prove(e, 3, 3);
}

}  // namespace tilewright
