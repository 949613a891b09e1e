#include "index/expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "index/expr_parts.h"
#include "index/expr_scope.h"
#include "index/intern_set.h"

namespace tilewright {

using namespace parts;

struct Expr::Node {
    int64_t constant = 0;
    std::vector<Term> terms;
    std::string text;
    bool uniform = true;  ///< contains no axis and no load
};

namespace {

size_t mix(size_t seed, size_t v) {
    seed = (seed ^ v) * 0x9E3779B97F4A7C15U;
    return seed ^ (seed >> 32);  // InternSet uses the low bits first
}

bool equal_terms(const std::vector<Term>& a, const std::vector<Term>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Term& x, const Term& y) {
        return x.coefficient == y.coefficient && x.atoms == y.atoms;
    });
}

size_t hash_of(int64_t constant, const std::vector<Term>& terms) {
    size_t h = mix(1, static_cast<size_t>(constant));
    for (const Term& t : terms) {
        h = mix(h, static_cast<size_t>(t.coefficient));
        for (const Atom* a : t.atoms) h = mix(h, reinterpret_cast<size_t>(a));
    }
    return h;
}

bool same(const Atom& x, const Atom& y) { return x.kind == y.kind && x.var == y.var && x.a == y.a && x.b == y.b; }

size_t hash_of(const Atom& a) {
    size_t h = mix(static_cast<size_t>(a.kind), (size_t{a.var.id} << 8) + static_cast<size_t>(a.var.kind));
    h = mix(h, a.a.hash());
    return mix(h, a.b.hash());
}

}  // namespace

/// An atom in the table, and the expression that consists of this atom alone, created on first use.
struct InternedAtom : Atom {
    explicit InternedAtom(Atom atom) : Atom(std::move(atom)) {}
    InternedAtom(InternedAtom&& other) noexcept : Atom(std::move(other)) {}
    mutable std::atomic<const Expr::Node*> alone{nullptr};
};

/// The process-wide tables. Operands are interned before their expressions, so equal forms have equal pointers.
struct ExprTable {
    InternSet<Expr::Node> nodes;
    InternSet<InternedAtom> atoms;
    std::mutex names_mutex;
    std::unordered_map<std::string, uint32_t> name_ids;
    std::deque<std::string> names;

    static ExprTable& get() {
        static auto* table = new ExprTable;  // never destroyed: handles may outlive static destruction
        return *table;
    }

    /// Of this thread: what is found in neither table is interned there (expr_scope.h).
    static inline thread_local ExprTable* temporary = nullptr;

    template <class T, class Equal, class Make>
    const T* find_or_insert(InternSet<T> ExprTable::*set, size_t hash, const Equal& equal, const Make& make) {
        if (temporary == nullptr) return (this->*set).find_or_insert(hash, equal, make);
        // First there: another thread may have made the same form for good since.
        if (const T* known = (temporary->*set).find(hash, equal)) return known;
        if (const T* known = (this->*set).find(hash, equal)) return known;
        return (temporary->*set).find_or_insert(hash, equal, make);
    }

    Expr intern(int64_t constant, std::vector<Term> terms);
    const InternedAtom* intern_atom(Atom atom);
    static Expr alone(const Atom& atom);
    static bool uniform(Expr e) { return e.node_->uniform; }

    uint32_t name_id(std::string_view name) {
        const std::lock_guard lock(names_mutex);
        auto [it, fresh] = name_ids.try_emplace(std::string(name), static_cast<uint32_t>(names.size()));
        if (fresh) names.emplace_back(name);
        return it->second;
    }
    const std::string& name(uint32_t id) {
        const std::lock_guard lock(names_mutex);
        return names.at(id);
    }
};

namespace parts {

int64_t checked_add(int64_t a, int64_t b) {
    int64_t r = 0;
    if (__builtin_add_overflow(a, b, &r)) model_error("shape arithmetic overflows 64 bits: {} + {}", a, b);
    return r;
}

int64_t checked_mul(int64_t a, int64_t b) {
    int64_t r = 0;
    if (__builtin_mul_overflow(a, b, &r)) model_error("shape arithmetic overflows 64 bits: {} * {}", a, b);
    return r;
}

}  // namespace parts

namespace {

/// Characters of a text, products of two terms: far more than shapes and indices need (expr_size.h).
constexpr size_t kLongestText = 160'000, kMostProducts = 10'000;

bool atom_less(const Atom* x, const Atom* y) { return x != y && x->text < y->text; }

bool atom_list_less(const std::vector<const Atom*>& a, const std::vector<const Atom*>& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), atom_less);
}

std::string term_text(const Term& t) {
    std::string s;
    const Atom& first = *t.atoms[0];
    const bool quotient = first.kind == Atom::Kind::FloorDiv || first.kind == Atom::Kind::Mod;
    if (quotient && t.coefficient == 1 && t.atoms.size() == 1) return first.text.substr(1, first.text.size() - 2);
    if (t.coefficient == -1)
        s = "-";
    else if (t.coefficient != 1)
        s = std::to_string(t.coefficient) + "*";
    for (size_t i = 0; i < t.atoms.size(); ++i) {
        if (i > 0) s += '*';
        s += t.atoms[i]->text;
    }
    return s;
}

std::string polynomial_text(int64_t constant, const std::vector<Term>& terms) {
    if (terms.empty()) return std::to_string(constant);
    std::string s;
    for (const Term& t : terms) {
        std::string piece = term_text(t);
        if (s.empty())
            s = std::move(piece);
        else if (piece[0] == '-')
            s += " - " + piece.substr(1);
        else
            s += " + " + piece;
    }
    if (constant > 0) s += " + " + std::to_string(constant);
    if (constant < 0) s += constant == INT64_MIN ? " - 9223372036854775808" : " - " + std::to_string(-constant);
    return s;
}

/// Sums terms with equal monomials, drops zeros, sorts.
std::vector<Term> canonical(std::vector<Term> terms) {
    std::sort(terms.begin(), terms.end(),
              [](const Term& a, const Term& b) { return atom_list_less(a.atoms, b.atoms); });
    std::vector<Term> out;
    for (Term& t : terms) {
        if (!out.empty() && out.back().atoms == t.atoms)
            out.back().coefficient = checked_add(out.back().coefficient, t.coefficient);
        else
            out.push_back(std::move(t));
    }
    std::erase_if(out, [](const Term& t) { return t.coefficient == 0; });
    return out;
}

}  // namespace

namespace parts {

Expr make(int64_t constant, std::vector<Term> terms) {
    return ExprTable::get().intern(constant, canonical(std::move(terms)));
}

Expr from_atom(const Atom& atom) { return ExprTable::alone(atom); }

}  // namespace parts

namespace {

bool needs_parentheses(Expr e) {
    return !e.is_constant() && (e.terms().size() > 1 || e.constant() != 0 || e.terms()[0].atoms.size() > 1 ||
                                e.terms()[0].coefficient != 1 || e.terms()[0].atoms[0]->kind == Atom::Kind::FloorDiv ||
                                e.terms()[0].atoms[0]->kind == Atom::Kind::Mod);
}

std::string operand_text(Expr e) { return needs_parentheses(e) || e.constant() < 0 ? "(" + e.text() + ")" : e.text(); }

std::string atom_text(const Atom& a) {
    switch (a.kind) {
        case Atom::Kind::Var:
            switch (a.var.kind) {
                case VarKind::Axis:
                    return "i" + std::to_string(a.var.id);
                case VarKind::Load:
                    return "@" + std::to_string(a.var.id);
                case VarKind::Symbol:
                    return "$" + var_name(a.var);
                case VarKind::Scalar:
                    return "?" + var_name(a.var);
            }
            break;
        case Atom::Kind::FloorDiv:
            return "(" + operand_text(a.a) + " // " + operand_text(a.b) + ")";
        case Atom::Kind::Mod:
            return "(" + operand_text(a.a) + " % " + operand_text(a.b) + ")";
        case Atom::Kind::Min:
            return "min(" + a.a.text() + ", " + a.b.text() + ")";
        case Atom::Kind::Max:
            return "max(" + a.a.text() + ", " + a.b.text() + ")";
    }
    return {};
}

Expr make_atom(Atom::Kind kind, Expr a, Expr b) {
    Atom atom;
    atom.kind = kind;
    atom.a = a;
    atom.b = b;
    return ExprTable::alone(*ExprTable::get().intern_atom(std::move(atom)));
}

/// Removes the atoms of `divisor` from `atoms`; false when they are not all there.
bool remove_atoms(std::vector<const Atom*>& atoms, const std::vector<const Atom*>& divisor) {
    for (const Atom* d : divisor) {
        auto it = std::find(atoms.begin(), atoms.end(), d);
        if (it == atoms.end()) return false;
        atoms.erase(it);
    }
    return true;
}

/// Splits e into multiples of b and a remainder: e = quotient * b + rest. b is a constant or a term without one.
void split_multiples(Expr e, Expr b, Expr& quotient, Expr& rest) {
    int64_t q_const = 0, r_const = 0;
    std::vector<Term> q, r;
    if (b.is_constant()) {
        const int64_t c = b.constant();
        q_const = floor_div(e.constant(), c);
        r_const = floor_mod(e.constant(), c);
        for (Term t : e.terms()) {
            if (t.coefficient % c == 0) {
                t.coefficient /= c;
                q.push_back(std::move(t));
            } else {
                r.push_back(std::move(t));
            }
        }
    } else {
        const Term& d = b.terms()[0];
        r_const = e.constant();
        for (Term t : e.terms()) {
            Term s = t;
            if (t.coefficient % d.coefficient == 0 && remove_atoms(s.atoms, d.atoms)) {
                s.coefficient /= d.coefficient;
                if (s.atoms.empty())
                    q_const = checked_add(q_const, s.coefficient);
                else
                    q.push_back(std::move(s));
            } else {
                r.push_back(std::move(t));
            }
        }
    }
    quotient = make(q_const, std::move(q));
    rest = make(r_const, std::move(r));
}

int64_t gcd_of(Expr e) {
    int64_t g = e.constant() < 0 ? -e.constant() : e.constant();
    for (const Term& t : e.terms()) g = std::gcd(g, t.coefficient);
    return g;
}

}  // namespace

namespace parts {

Expr divide_exactly(Expr e, int64_t g) {
    std::vector<Term> terms = e.terms();
    for (Term& t : terms) t.coefficient /= g;
    return make(e.constant() / g, std::move(terms));
}

const Atom* single_atom(Expr e) {
    if (e.constant() == 0 && e.terms().size() == 1 && e.terms()[0].coefficient == 1 && e.terms()[0].atoms.size() == 1)
        return e.terms()[0].atoms[0];
    return nullptr;
}

}  // namespace parts

Expr ExprTable::intern(int64_t constant, std::vector<Term> terms) {
    const auto equal = [&](const Expr::Node& n) { return n.constant == constant && equal_terms(n.terms, terms); };
    const auto make_node = [&] {
        Expr::Node node;
        node.constant = constant;
        node.text = polynomial_text(constant, terms);
        if (node.text.size() > kLongestText)
            model_error("shape arithmetic makes an expression of {} characters, and {} are the most", node.text.size(),
                        kLongestText);
        for (const Term& t : terms)
            for (const Atom* a : t.atoms)
                node.uniform = node.uniform && (a->kind == Atom::Kind::Var
                                                    ? a->var.kind != VarKind::Axis && a->var.kind != VarKind::Load
                                                    : is_uniform(a->a) && is_uniform(a->b));
        node.terms = terms;
        return node;
    };
    return Expr(find_or_insert(&ExprTable::nodes, hash_of(constant, terms), equal, make_node));
}

const InternedAtom* ExprTable::intern_atom(Atom atom) {
    const auto make_atom = [&] {
        Atom named = atom;
        named.text = atom_text(atom);
        return InternedAtom(std::move(named));
    };
    return find_or_insert(
        &ExprTable::atoms, hash_of(atom), [&](const Atom& a) { return same(a, atom); }, make_atom);
}

Expr ExprTable::alone(const Atom& atom) {
    const auto& interned = static_cast<const InternedAtom&>(atom);
    if (const Expr::Node* known = interned.alone.load(std::memory_order_acquire)) return Expr(known);
    const Expr e = make(0, {Term{1, {&atom}}});
    if (temporary == nullptr) interned.alone.store(e.node_, std::memory_order_release);
    return e;
}

Expr::Expr() : Expr(int64_t{0}) {}
Expr::Expr(int64_t constant) {
    if (constant >= -16 && constant < 240) {  // common constants, without the lock
        static const auto small = [] {
            std::vector<const Node*> v;
            for (int64_t c = -16; c < 240; ++c) v.push_back(ExprTable::get().intern(c, {}).node_);
            return v;
        }();
        node_ = small[static_cast<size_t>(constant + 16)];
        return;
    }
    node_ = ExprTable::get().intern(constant, {}).node_;
}

Expr Expr::var(Var v) {
    Atom a;
    a.kind = Atom::Kind::Var;
    a.var = v;
    return ExprTable::alone(*ExprTable::get().intern_atom(std::move(a)));
}
bool Expr::is_constant() const { return node_->terms.empty(); }
int64_t Expr::constant() const { return node_->constant; }
const std::vector<Term>& Expr::terms() const { return node_->terms; }
const std::string& Expr::text() const { return node_->text; }
std::optional<Var> Expr::as_var() const {
    const Atom* a = single_atom(*this);
    if (a != nullptr && a->kind == Atom::Kind::Var) return a->var;
    return std::nullopt;
}

Expr axis(size_t position) { return Expr::var({VarKind::Axis, static_cast<uint32_t>(position)}); }
Expr load(size_t access) { return Expr::var({VarKind::Load, static_cast<uint32_t>(access)}); }

namespace {

/// Names are printed without quotes after their sigil: identifiers are kept, other bytes are spelled _xx.
std::string clean_name(std::string_view name) {
    std::string s;
    for (const char c : name) {
        const auto u = static_cast<unsigned char>(c);
        if ((u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z') || (u >= '0' && u <= '9') || u == '_' || u == '.')
            s += c;
        else
            s += fmt::format("_{:02x}", u);
    }
    return s.empty() ? "_" : s;
}

}  // namespace

Expr symbol(std::string_view name) { return Expr::var({VarKind::Symbol, ExprTable::get().name_id(clean_name(name))}); }
Expr symbol(std::string_view name, int64_t step) {
    TW_CHECK(step >= 1);
    if (step == 1) return symbol(name);
    return Expr::var(
        {VarKind::Symbol, ExprTable::get().name_id(fmt::format("{}{}{}", clean_name(name), parts::kPerStep, step))});
}
Expr scalar(std::string_view name) { return Expr::var({VarKind::Scalar, ExprTable::get().name_id(clean_name(name))}); }
const std::string& var_name(Var v) {
    TW_CHECK(v.kind == VarKind::Symbol || v.kind == VarKind::Scalar);
    return ExprTable::get().name(v.id);
}

namespace {

enum class Operation : uint8_t { Add = 1, Multiply, FloorDiv, Mod, Min, Max };

/// A per-thread memo: returns the result of an operation on these operands if it is among the latest. The compiler
/// repeats the same few thousand operations, and interned results stay valid.
template <class F>
Expr remembered(Operation op, Expr a, Expr b, const F& compute) {
    struct Known {
        Expr a, b, result;
        Operation op = Operation::Add;
    };
    constexpr size_t kKnown = 1 << 13;
    thread_local std::vector<Known> known(kKnown);
    const size_t at = mix(mix(static_cast<size_t>(op), a.hash()), b.hash()) % kKnown;
    if (const Known& k = known[at]; k.op == op && k.a == a && k.b == b) return k.result;
    const Expr result = compute();
    known[at] = {a, b, result, op};
    return result;
}

/// The sum of two canonical sums.
std::vector<Term> merged(const std::vector<Term>& a, const std::vector<Term>& b) {
    std::vector<Term> out;
    out.reserve(a.size() + b.size());
    auto x = a.begin(), y = b.begin();
    while (x != a.end() && y != b.end()) {
        if (x->atoms == y->atoms) {
            if (const int64_t c = checked_add(x->coefficient, y->coefficient); c != 0) out.push_back({c, x->atoms});
            ++x;
            ++y;
        } else if (atom_list_less(x->atoms, y->atoms)) {
            out.push_back(*x++);
        } else {
            out.push_back(*y++);
        }
    }
    out.insert(out.end(), x, a.end());
    out.insert(out.end(), y, b.end());
    return out;
}

Expr times(Expr a, int64_t factor) {
    if (factor == 0) return 0;
    std::vector<Term> terms = a.terms();
    for (Term& t : terms) t.coefficient = checked_mul(t.coefficient, factor);
    return ExprTable::get().intern(checked_mul(a.constant(), factor), std::move(terms));
}

Expr multiplied(Expr a, Expr b) {
    if (a.terms().size() * b.terms().size() > kMostProducts)
        model_error("shape arithmetic multiplies sums of {} and {} terms, and {} products are the most",
                    a.terms().size(), b.terms().size(), kMostProducts);
    std::vector<Term> terms;
    for (const Term& t : a.terms()) {
        if (b.constant() != 0) terms.push_back({checked_mul(t.coefficient, b.constant()), t.atoms});
        for (const Term& u : b.terms()) {
            Term p;
            p.coefficient = checked_mul(t.coefficient, u.coefficient);
            p.atoms = t.atoms;
            p.atoms.insert(p.atoms.end(), u.atoms.begin(), u.atoms.end());
            std::sort(p.atoms.begin(), p.atoms.end(), atom_less);
            terms.push_back(std::move(p));
        }
    }
    if (a.constant() != 0)
        for (const Term& u : b.terms()) terms.push_back({checked_mul(u.coefficient, a.constant()), u.atoms});
    return make(checked_mul(a.constant(), b.constant()), std::move(terms));
}

}  // namespace

Expr operator+(Expr a, Expr b) {
    if (a.is_constant() && b.is_constant()) return checked_add(a.constant(), b.constant());
    if (a.is_constant(0)) return b;
    if (b.is_constant(0)) return a;
    return remembered(Operation::Add, a, b, [&] {
        return ExprTable::get().intern(checked_add(a.constant(), b.constant()), merged(a.terms(), b.terms()));
    });
}

Expr operator-(Expr a) { return Expr(-1) * a; }
Expr operator-(Expr a, Expr b) { return a + (-b); }

Expr operator*(Expr a, Expr b) {
    if (a.is_constant() && b.is_constant()) return checked_mul(a.constant(), b.constant());
    if (a.is_constant(1)) return b;
    if (b.is_constant(1)) return a;
    return remembered(Operation::Multiply, a, b, [&] {
        if (a.is_constant()) return times(b, a.constant());
        return b.is_constant() ? times(a, b.constant()) : multiplied(a, b);
    });
}

Expr product(std::span<const Expr> factors) {
    Expr p = 1;
    for (Expr f : factors) p = p * f;
    return p;
}

int64_t floor_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return a == INT64_MIN ? INT64_MAX : -a;
    const int64_t q = a / b;
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

int64_t floor_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    const int64_t r = a % b;
    return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

namespace parts {

bool symbols_only(Expr e) {
    bool ok = true;
    visit_vars(e, [&](Var u) { ok = ok && u.kind == VarKind::Symbol; });
    return ok;
}

bool never_zero(Expr b) { return is_uniform(b); }

}  // namespace parts

namespace {

Expr divided(Expr a, Expr b);
Expr remainder_of(Expr a, Expr b);

}  // namespace

Expr floor_div(Expr a, Expr b) {
    return remembered(Operation::FloorDiv, a, b, [&] { return divided(a, b); });
}
Expr mod(Expr a, Expr b) {
    return remembered(Operation::Mod, a, b, [&] { return remainder_of(a, b); });
}

namespace {

Expr divided(Expr a, Expr b) {
    if (b.is_constant(1)) return a;
    if (b.is_constant(0)) return 0;
    if (a.is_constant() && b.is_constant()) return floor_div(a.constant(), b.constant());
    if (a.is_constant(0)) return 0;
    if (b.is_constant() && b.constant() < 0) return floor_div(-a, -b.constant());
    if (!never_zero(b)) return make_atom(Atom::Kind::FloorDiv, a, b);
    if (a == b) return 1;
    if (b.is_constant() || (b.constant() == 0 && b.terms().size() == 1)) {
        Expr quotient, rest;
        split_multiples(a, b, quotient, rest);
        if (rest.is_constant(0)) return quotient;
        if (!(quotient == Expr(0))) return quotient + floor_div(rest, b);
        if (b.is_constant()) {
            // (4x + 2) // 8 -> (2x + 1) // 4 ; the constant may round down: (4x + 3) // 8 -> x // 2
            int64_t g = b.constant();
            for (const Term& t : a.terms()) g = std::gcd(g, t.coefficient);
            if (g > 1) {
                const Expr whole = divide_exactly(a - floor_mod(a.constant(), g), g);
                return floor_div(whole, b.constant() / g);
            }
            // (x // p) // q -> x // (p q)
            const Atom* inner = single_atom(a);
            if (inner != nullptr && inner->kind == Atom::Kind::FloorDiv && inner->b.is_constant() &&
                inner->b.constant() > 0)
                return floor_div(inner->a, inner->b * b);
            // (x % (p q)) // q -> (x // q) % p
            if (inner != nullptr && inner->kind == Atom::Kind::Mod && inner->b.is_constant() &&
                inner->b.constant() > 0 && inner->b.constant() % b.constant() == 0)
                return mod(floor_div(inner->a, b), inner->b.constant() / b.constant());
        }
    } else if (!b.is_constant() && b.terms().size() > 1) {
        // (n * b) // b for a sum b: try every term of a as a multiple of b's first term.
        for (const Term& t : a.terms()) {
            Term s = t;
            if (t.coefficient % b.terms()[0].coefficient != 0 || !remove_atoms(s.atoms, b.terms()[0].atoms)) continue;
            s.coefficient /= b.terms()[0].coefficient;
            const Expr q = s.atoms.empty() ? Expr(s.coefficient) : make(0, {s});
            const Expr rest = a - q * b;
            if (rest.terms().size() + (rest.constant() != 0 ? 1 : 0) < a.terms().size() + (a.constant() != 0 ? 1 : 0))
                return q + floor_div(rest, b);
        }
    }
    return make_atom(Atom::Kind::FloorDiv, a, b);
}

Expr remainder_of(Expr a, Expr b) {
    if (b.is_constant(1) || b.is_constant(0) || b.is_constant(-1)) return 0;
    if (a.is_constant() && b.is_constant()) return floor_mod(a.constant(), b.constant());
    if (a.is_constant(0) || a == b) return 0;
    if (b.is_constant() && b.constant() < 0) return -mod(-a, -b.constant());
    if (b.is_constant() || (b.constant() == 0 && b.terms().size() == 1 && is_uniform(b))) {
        Expr quotient, rest;
        split_multiples(a, b, quotient, rest);
        if (!(quotient == Expr(0))) return mod(rest, b);
        if (b.is_constant()) {
            // (4x) % 8 -> 4 (x % 2)
            const int64_t g = std::gcd(gcd_of(a), b.constant());
            if (g > 1) return mod(divide_exactly(a, g), b.constant() / g) * g;
            // (x % (q b)) % b -> x % b
            const Atom* inner = single_atom(a);
            if (inner != nullptr && inner->kind == Atom::Kind::Mod && inner->b.is_constant() &&
                inner->b.constant() % b.constant() == 0)
                return mod(inner->a, b);
        }
    } else {
        const Expr q = floor_div(a, b);
        const Expr rest = a - q * b;
        const Atom* whole = single_atom(q);
        const bool undivided = whole != nullptr && whole->kind == Atom::Kind::FloorDiv && whole->a == a;
        if (!undivided && is_uniform(rest) && rest.is_constant(0)) return 0;
    }
    return make_atom(Atom::Kind::Mod, a, b);
}

Expr extremum(Atom::Kind kind, Expr a, Expr b) {
    const Expr difference = b - a;
    const bool is_min = kind == Atom::Kind::Min;
    if (difference.is_constant()) return (difference.constant() >= 0) == is_min ? a : b;
    if (is_uniform(difference)) {
        if (prove_nonnegative(difference, {})) return is_min ? a : b;
        if (prove_nonnegative(-difference, {})) return is_min ? b : a;
    }
    if (b.text() < a.text()) std::swap(a, b);
    return make_atom(kind, a, b);
}

}  // namespace

Expr min(Expr a, Expr b) {
    return remembered(Operation::Min, a, b, [&] { return extremum(Atom::Kind::Min, a, b); });
}
Expr max(Expr a, Expr b) {
    return remembered(Operation::Max, a, b, [&] { return extremum(Atom::Kind::Max, a, b); });
}

namespace parts {

Expr rebuild(const Atom& atom, Expr a, Expr b) {
    switch (atom.kind) {
        case Atom::Kind::FloorDiv:
            return floor_div(a, b);
        case Atom::Kind::Mod:
            return mod(a, b);
        case Atom::Kind::Min:
            return min(a, b);
        case Atom::Kind::Max:
            return max(a, b);
        case Atom::Kind::Var:
            break;
    }
    return from_atom(atom);
}

}  // namespace parts

bool is_uniform(Expr e) { return ExprTable::uniform(e); }

void with_temporary_exprs(const std::function<void()>& work) {
    [[maybe_unused]] const Expr zero = 0;  // the common constants are there
    std::exception_ptr failure;
    std::thread([&] {  // its memos go with it
        ExprTable table;
        ExprTable::temporary = &table;
        try {
            work();
        } catch (...) {
            failure = std::current_exception();
        }
        ExprTable::temporary = nullptr;
    })
        .join();
    if (failure) std::rethrow_exception(failure);
}

size_t interned_exprs() { return ExprTable::get().nodes.size(); }

}  // namespace tilewright
