#pragma once
// What the files of this folder share about the inside of an Expr.

#include <vector>

#include "index/expr.h"

namespace tilewright::parts {

/// The polynomial; terms in any order, equal monomials allowed.
Expr make(int64_t constant, std::vector<Term> terms);
/// The expression that is just this atom, which is one of an expression's own.
Expr from_atom(const Atom& atom);
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
    bool changed = false;
    std::vector<Expr> mapped;
    for (const Term& t : e.terms())
        for (const Atom* a : t.atoms) {
            mapped.push_back(f(*a));
            changed = changed || single_atom(mapped.back()) != a;
        }
    if (!changed) return e;
    Expr sum = e.constant();
    size_t next = 0;
    for (const Term& t : e.terms()) {
        Expr p = t.coefficient;
        for (size_t k = 0; k < t.atoms.size(); ++k) p = p * mapped[next++];
        sum = sum + p;
    }
    return sum;
}

}  // namespace tilewright::parts
