// Finds identities between small matrix expressions by exhaustive enumeration, in the manner of TASO (Jia et al., SOSP
// 2019, sections 3 and 4), and prints src/program/rewrite/enumerated.txt.
//
//     build/bin/enumerate_rules [OPERATORS] > src/program/rewrite/enumerated.txt
//
// OPERATORS: maximum of operators of both sides together (5: three against two; 6 takes many minutes, and adds
// identities with sides of equal size, which rewriting does not use).
//
// 1. Every expression of up to three operators over A, B, C, D is evaluated on random matrices of small integers, and
//    expressions with equal results are paired. Larger expressions are built from one representative of equal ones:
//    identities of the others follow. Expressions with a constant result (A - A) are dropped. The numbers form a finite
//    field, so that division is exact: pairs (x mod p, x mod q), where q divides p - 1. exp maps the second component
//    to the first, g^x with g of order q, so that exp(x + y) = exp(x) exp(y) holds as well (Mirage's construction). The
//    second component of exp, and relu, is a hash of the operand: an uninterpreted function.
// 2. A pair is dropped if it follows from the identities found so far, smaller ones first: if one step with one of
//    them, in either direction, anywhere in one side, gives an expression that is known to equal the other. That covers
//    renaming, instances, and common subexpressions.
// 3. The remaining pairs are proved with Z3 (prover_test.h), for square matrices and for other shapes that fit both
//    sides. Unproved pairs are not printed.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <unordered_map>

#include "base/hash.h"
#include "base/union_find.h"
#include "program/rewrite/prover_test.h"
#include "program/rewrite/terms.h"

namespace tilewright {
namespace {

constexpr int kVariables = 4, kOperators = 3;
/// Row operators are omitted (top, bottom and above): they are the transposed column operators.
constexpr TermOp kOps[] = {TermOp::Transpose, TermOp::Exp,   TermOp::Relu,   TermOp::Scale, TermOp::Sum,
                           TermOp::Left,      TermOp::Right, TermOp::MatMul, TermOp::Add,   TermOp::Sub,
                           TermOp::Mul,       TermOp::Div,   TermOp::Beside};
constexpr int64_t kSize = 8;  // matrices of variables; can be halved twice

// --- numbers

using u64 = uint64_t;
__extension__ using u128 = unsigned __int128;  // not part of ISO C++

u64 times(u64 a, u64 b, u64 m) { return static_cast<u64>(static_cast<u128>(a) * b % m); }
u64 power(u64 a, u64 e, u64 m) {
    u64 r = 1;
    for (; e != 0; e >>= 1, a = times(a, a, m))
        if ((e & 1) != 0) r = times(r, a, m);
    return r;
}
bool is_prime(u64 n) {  // Miller and Rabin's test, exact below 2^64 with these bases
    for (const u64 b : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
        if (n % b == 0) return n == b;
        u64 d = n - 1;
        int r = 0;
        for (; d % 2 == 0; d /= 2) ++r;
        u64 x = power(b, d, n);
        bool composite = x != 1 && x != n - 1;
        for (int k = 1; k < r && composite; ++k) {
            x = times(x, x, n);
            composite = x != n - 1;
        }
        if (composite) return false;
    }
    return true;
}

struct Field {
    u64 q = 2147483647, p = 0, g = 0;
    Field() {
        u64 k = 2;
        while (!is_prime(k * q + 1)) k += 2;
        p = k * q + 1;
        for (u64 h = 2; g <= 1; ++h) g = power(h, k, p);
    }
};
const Field& field() {
    static const Field f;
    return f;
}

struct Number {
    u64 p = 0, q = 0;
};
u64 any(u64 x, u64 salt, u64 m) { return hash_combine(salt, x) % m; }

struct Matrix {
    MatrixShape shape;
    std::vector<Number> numbers;
    const Number& at(int64_t i, int64_t j) const { return numbers[static_cast<size_t>(i * shape.second + j)]; }
};

Number compute(TermOp op, Number a, Number b) {
    const auto& [q, p, g] = field();
    switch (op) {
        case TermOp::Add:
            return {(a.p + b.p) % p, (a.q + b.q) % q};
        case TermOp::Sub:
            return {(a.p + p - b.p) % p, (a.q + q - b.q) % q};
        case TermOp::Mul:
            return {times(a.p, b.p, p), times(a.q, b.q, q)};
        case TermOp::Div:
            return {times(a.p, power(b.p, p - 2, p), p), times(a.q, power(b.q, q - 2, q), q)};
        case TermOp::Exp:
            return {power(g, a.q, p), any(a.q, 1, q)};
        case TermOp::Relu:
            return {any(a.p, 2, p), any(a.p, 3, q)};
        case TermOp::Scale:
            return {times(a.p, 7777777, p), times(a.q, 7777777, q)};
        default:
            return a;
    }
}

std::optional<Matrix> compute(TermOp op, const std::vector<const Matrix*>& x) {
    std::map<int, MatrixShape> shapes;
    MatrixTerm term{op, 0, {}};
    for (size_t k = 0; k < x.size(); ++k) {
        shapes[static_cast<int>(k)] = x[k]->shape;
        MatrixTerm operand{TermOp::Variable, static_cast<int>(k), {}};
        if (x[k]->shape.second == 1) operand = {TermOp::Sum, 0, {operand}};  // columns only occur as operands of Sum
        term.args.push_back(operand);
    }
    const auto shape = shape_of(term, shapes);
    if (!shape) return std::nullopt;
    const Matrix& a = *x[0];
    Matrix out{*shape, {}};
    const auto [rows, columns] = a.shape;
    for (int64_t i = 0; i < shape->first; ++i)
        for (int64_t j = 0; j < shape->second; ++j) {
            Number n;
            switch (op) {
                case TermOp::Transpose:
                    n = a.at(j, i);
                    break;
                case TermOp::Top:
                case TermOp::Left:
                    n = a.at(i, j);
                    break;
                case TermOp::Bottom:
                    n = a.at(rows / 2 + i, j);
                    break;
                case TermOp::Right:
                    n = a.at(i, columns / 2 + j);
                    break;
                case TermOp::Above:
                    n = i < rows ? a.at(i, j) : x[1]->at(i - rows, j);
                    break;
                case TermOp::Beside:
                    n = j < columns ? a.at(i, j) : x[1]->at(i, j - columns);
                    break;
                case TermOp::Sum:
                    for (int64_t k = 0; k < columns; ++k) n = compute(TermOp::Add, n, a.at(i, k));
                    break;
                case TermOp::MatMul:
                    for (int64_t k = 0; k < columns; ++k)
                        n = compute(TermOp::Add, n, compute(TermOp::Mul, a.at(i, k), x[1]->at(k, j)));
                    break;
                default:
                    n = compute(op, a.at(i, j), x.size() > 1 ? x[1]->at(i, x[1]->shape.second == 1 ? 0 : j) : Number());
            }
            out.numbers.push_back(n);
        }
    return out;
}

// --- enumeration

struct Entry {
    TermOp op = TermOp::Variable;
    int variable = 0;
    std::vector<uint32_t> args;
    int operators = 0;
    u64 print = 0;  ///< hash of the result
};

class Expressions {
  public:
    Expressions() {
        std::mt19937_64 rng(1);
        for (int v = 0; v < kVariables; ++v) {
            Matrix m{{kSize, kSize}, {}};
            for (int64_t k = 0; k < kSize * kSize; ++k) {
                const u64 n = 1 + rng() % 1000;
                m.numbers.push_back({n, n});
            }
            add({TermOp::Variable, v, {}, 0, 0}, std::move(m));
        }
        for (int n = 1; n <= kOperators; ++n) {
            const std::vector<uint32_t> known = distinct_;
            for (const TermOp op : kOps) {
                for (const uint32_t a : known) {
                    if (arity(op) == 1 && entries[a].operators == n - 1) grow(op, {a}, n);
                    for (const uint32_t b : known)
                        if (arity(op) == 2 && entries[a].operators + entries[b].operators == n - 1) grow(op, {a, b}, n);
                }
            }
        }
    }

    std::vector<Entry> entries;

    /// The entry of the term after its operands are replaced by their representatives, if `same` finds one.
    template <class Same>
    std::optional<uint32_t> find(const MatrixTerm& t, const Same& same) const {
        if (t.op == TermOp::Variable) return static_cast<uint32_t>(t.variable);
        std::pair<TermOp, std::vector<uint32_t>> key{t.op, {}};
        for (const MatrixTerm& a : t.args) {
            const auto k = find(a, same);
            if (!k || !same(*k, first_.at(entries[*k].print))) return std::nullopt;
            key.second.push_back(first_.at(entries[*k].print));
        }
        const auto it = by_args_.find(key);
        return it == by_args_.end() ? std::nullopt : std::optional(it->second);
    }

    MatrixTerm term(uint32_t k) const {
        MatrixTerm t{entries[k].op, entries[k].variable, {}};
        for (const uint32_t a : entries[k].args) t.args.push_back(term(a));
        return t;
    }

  private:
    void grow(TermOp op, std::vector<uint32_t> args, int operators) {
        std::vector<const Matrix*> operands;
        for (const uint32_t a : args) operands.push_back(&results_.at(a));
        if (auto m = compute(op, operands)) add({op, 0, std::move(args), operators, 0}, std::move(*m));
    }
    void add(Entry e, Matrix m) {
        u64 h = hash_combine(static_cast<u64>(m.shape.first), static_cast<u64>(m.shape.second));
        for (const Number& n : m.numbers) h = hash_combine(h, n.p);
        // A constant result for all operands (A - A) has no use.
        if (e.operators > 0 &&
            std::all_of(m.numbers.begin(), m.numbers.end(), [&](const Number& n) { return n.p == m.numbers[0].p; }))
            return;
        e.print = h;
        const auto k = static_cast<uint32_t>(entries.size());
        by_args_[{e.op, e.args}] = k;
        if (first_.emplace(h, k).second && e.operators < kOperators) {
            distinct_.push_back(k);
            results_.emplace(k, std::move(m));
        }
        entries.push_back(std::move(e));
    }

    std::unordered_map<u64, uint32_t> first_;  ///< by equal results
    std::vector<uint32_t> distinct_;           ///< the representatives, from which larger expressions are built
    std::map<uint32_t, Matrix> results_;       ///< results of the representatives
    std::map<std::pair<TermOp, std::vector<uint32_t>>, uint32_t> by_args_;
};

// --- implied identities

bool match(const MatrixTerm& pattern, const MatrixTerm& term, std::map<int, MatrixTerm>& variables) {
    if (pattern.op == TermOp::Variable) {
        const auto [it, fresh] = variables.try_emplace(pattern.variable, term);
        return fresh || it->second == term;
    }
    if (pattern.op != term.op) return false;
    for (size_t k = 0; k < pattern.args.size(); ++k)
        if (!match(pattern.args[k], term.args[k], variables)) return false;
    return true;
}

MatrixTerm filled(const MatrixTerm& pattern, const std::map<int, MatrixTerm>& variables) {
    if (pattern.op == TermOp::Variable) {
        const auto it = variables.find(pattern.variable);  // free if the other side lacks it: A
        return it == variables.end() ? MatrixTerm{} : it->second;
    }
    MatrixTerm out{pattern.op, 0, {}};
    for (const MatrixTerm& a : pattern.args) out.args.push_back(filled(a, variables));
    return out;
}

/// The results of one step with the identity, anywhere in the term.
void steps(const TermLaw& law, const MatrixTerm& term, std::vector<MatrixTerm>& out) {
    for (const auto& [from, to] : {std::pair(&law.left, &law.right), std::pair(&law.right, &law.left)}) {
        std::map<int, MatrixTerm> variables;
        if (!match(*from, term, variables)) continue;
        out.push_back(filled(*to, variables));
    }
    for (size_t k = 0; k < term.args.size(); ++k) {
        std::vector<MatrixTerm> inner;
        steps(law, term.args[k], inner);
        for (MatrixTerm& t : inner) {
            MatrixTerm whole = term;
            whole.args[k] = std::move(t);
            out.push_back(std::move(whole));
        }
    }
}

/// True if variables are named in order of appearance.
bool canonical(const MatrixTerm& left, const MatrixTerm& right) {
    std::vector<int> all = term_variables(left);
    for (const int v : term_variables(right))
        if (std::find(all.begin(), all.end(), v) == all.end()) all.push_back(v);
    return std::is_sorted(all.begin(), all.end()) && (all.empty() || all.back() + 1 == static_cast<int>(all.size()));
}

bool covers(const MatrixTerm& a, const MatrixTerm& b) {
    const std::vector<int> of_a = term_variables(a), of_b = term_variables(b);
    return std::all_of(of_b.begin(), of_b.end(),
                       [&](int v) { return std::find(of_a.begin(), of_a.end(), v) != of_a.end(); });
}

Program program_of(const MatrixTerm& term, const std::map<int, MatrixShape>& shapes) {
    Program p;
    Builder b(p);
    std::map<int, ValueId> inputs;
    for (const auto& [v, s] : shapes)
        inputs[v] = b.input(std::string(1, static_cast<char>('A' + v)), DType::F32, {s.first, s.second});
    ValueId out = write_term(b, term, inputs, 3);
    if (term.op == TermOp::Variable) out = b.copy(out);
    b.set_outputs({out});
    return p;
}

/// Proves the identity for square matrices, and for up to two other choices of shapes.
bool proved(const TermLaw& law) {
    std::set<int> variables;
    for (const MatrixTerm* t : {&law.left, &law.right})
        for (const int v : term_variables(*t)) variables.insert(v);
    std::vector<std::map<int, MatrixShape>> choices(1);
    for (const int v : variables) choices[0][v] = {2, 2};
    std::mt19937_64 rng(3);
    const auto fits = [&](const std::map<int, MatrixShape>& s) {
        const auto l = shape_of(law.left, s), r = shape_of(law.right, s);
        return l && r && *l == *r;
    };
    if (!fits(choices[0])) choices[0].clear();  // halved twice
    for (int tries = 0; tries < 400 && choices.size() < 3; ++tries) {
        std::map<int, MatrixShape> s;
        for (const int v : variables) s[v] = {static_cast<int64_t>(1 + rng() % 4), static_cast<int64_t>(1 + rng() % 4)};
        if (!fits(s)) continue;
        if (std::find(choices.begin(), choices.end(), s) == choices.end()) choices.push_back(s);
    }
    size_t proofs = 0;
    for (const auto& s : choices) {
        if (s.empty()) continue;
        const ProofOptions options{.elements = 4, .work = 2'000'000};
        if (prove_equal(program_of(law.left, s), program_of(law.right, s), options) != Verdict::Proven) return false;
        ++proofs;
    }
    return proofs > 0;
}

void enumerate(int most) {
    const Expressions all;
    std::unordered_map<u64, std::vector<uint32_t>> groups;
    for (uint32_t k = 0; k < all.entries.size(); ++k) groups[all.entries[k].print].push_back(k);
    struct Pair {
        int size, repeated;  ///< operators; number of repeated variables: the most general identities come first
        uint32_t first, other;
    };
    std::vector<Pair> pairs;
    for (const auto& [print, members] : groups)  // members ascend: the first has the fewest operators
        for (size_t k = 1; k < members.size(); ++k) {
            if (all.entries[members[0]].operators + all.entries[members[k]].operators > most) continue;
            pairs.push_back({all.entries[members[0]].operators + all.entries[members[k]].operators,
                             kVariables - static_cast<int>(term_variables(all.term(members[k])).size()), members[0],
                             members[k]});
        }
    std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
        return std::tie(a.size, a.repeated, a.first, a.other) < std::tie(b.size, b.repeated, b.first, b.other);
    });
    std::vector<TermLaw> laws;
    UnionFind known(all.entries.size());
    const auto same = [&](uint32_t a, uint32_t b) { return known.find(a) == known.find(b); };
    for (const Pair& pair : pairs) {
        const MatrixTerm left = all.term(pair.other), right = all.term(pair.first);
        for (const TermLaw& law : laws) {
            std::vector<MatrixTerm> next;
            steps(law, left, next);
            for (const MatrixTerm& t : next)
                if (const auto k = all.find(t, same)) known.join(pair.other, *k);
            if (known.find(pair.other) == known.find(pair.first)) break;
        }
        if (known.find(pair.other) == known.find(pair.first)) continue;
        if (!canonical(left, right)) continue;  // a renaming of another pair
        const TermLaw law{left, right};
        if (!proved(law)) {
            std::fprintf(stderr, "not proved: %s = %s\n", print(left).c_str(), print(right).c_str());
            continue;
        }
        known.join(pair.other, pair.first);
        laws.push_back(law);
        if (laws.size() % 10 == 0) std::fprintf(stderr, "%zu laws, %s = ...\n", laws.size(), print(left).c_str());
    }
    std::printf(
        "# Laws of up to three operators a side, found and proved by bench/enumerate_rules (which prints this "
        "file).\n# %zu expressions, %zu pairs that agree on random matrices, %zu laws that do not follow from "
        "smaller ones.\n",
        all.entries.size(), pairs.size(), laws.size());
    for (const TermLaw& law : laws)
        if (covers(law.left, law.right))  // A - A = B - B implies others, but has no use in a program
            std::printf("%s = %s\n", print(law.left).c_str(), print(law.right).c_str());
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    const int most = argc > 1 ? std::atoi(argv[1]) : 5;
    if (most < 1) {
        std::fprintf(stderr, "usage: enumerate_rules [OPERATORS]\n");
        return 2;
    }
    tilewright::enumerate(most);
    return 0;
}
