#pragma once
// What the files of this folder share about the inside of an Expr.

#include <utility>
#include <vector>

#include "index/expr.h"

namespace tilewright::parts {

/// The polynomial; terms in any order, equal monomials allowed.
Expr make(int64_t constant, std::vector<Term> terms);
/// The expression that is just this atom.
Expr from_atom(Atom atom);
/// The atom, when the expression is just one; else null.
const Atom* single_atom(Expr e);
/// The atom of this kind on other operands, through the constructors.
Expr rebuild(const Atom& atom, Expr a, Expr b);
/// e / g for a g that divides every coefficient.
Expr divide_exactly(Expr e, int64_t g);
/// A polynomial over symbols (and divisions, minima, ... of such) only.
bool symbols_only(Expr e);
/// Divisors by which a multiple may be divided. A uniform one is a dimension: where it is 0 there is no point at which
/// the quotient is asked for.
bool never_zero(Expr b);

/// Rebuilds e with every atom replaced by f(atom).
template <class F>
Expr map_atoms(Expr e, const F& f) {
    Expr sum = e.constant();
    bool changed = false;
    std::vector<std::pair<const Term*, Expr>> mapped;
    for (const Term& t : e.terms()) {
        Expr p = t.coefficient;
        for (const Atom* a : t.atoms) {
            const Expr r = f(*a);
            const Atom* same = single_atom(r);
            if (same != a) changed = true;
            p = p * r;
        }
        mapped.emplace_back(&t, p);
    }
    if (!changed) return e;
    for (const auto& [t, p] : mapped) sum = sum + p;
    return sum;
}

}  // namespace tilewright::parts
