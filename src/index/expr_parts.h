#pragma once
// The parts of an Expr: for the files of this folder, and for others that take expressions apart.

#include <vector>

#include "index/expr.h"

namespace tilewright::parts {

/// The polynomial; terms in any order, equal monomials allowed.
Expr make(int64_t constant, std::vector<Term> terms);
/// The expression that consists of this interned atom alone.
Expr from_atom(const Atom& atom);
/// The atom, if the expression is a single atom; else null.
const Atom* single_atom(Expr e);
/// The same kind of atom with other operands, through the constructors.
Expr rebuild(const Atom& atom, Expr a, Expr b);
/// e / g for a g that divides every coefficient.
Expr divide_exactly(Expr e, int64_t g);
/// True for a polynomial over symbols (and divisions, minima, ... of symbols) only.
bool symbols_only(Expr e);
/// True for divisors that may be cancelled. A uniform divisor is a dimension: where it is 0 the iteration space is
/// empty and the quotient is never evaluated.
bool never_zero(Expr b);

/// Between the name of a size and its step in the name of a symbol: "height/32". No name of a model has it.
inline constexpr char kPerStep = '/';

/// a + b and a * b; ModelError where the result exceeds 64 bits.
int64_t checked_add(int64_t a, int64_t b);
int64_t checked_mul(int64_t a, int64_t b);

/// Calls f with every occurrence of a variable in e, those within divisions, minima and maxima included.
template <class F>
void visit_vars(Expr e, const F& f) {
    for (const Term& t : e.terms())
        for (const Atom* a : t.atoms) {
            if (a->kind == Atom::Kind::Var) {
                f(a->var);
            } else {
                visit_vars(a->a, f);
                visit_vars(a->b, f);
            }
        }
}

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
