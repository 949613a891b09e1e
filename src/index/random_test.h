#pragma once
// Random index expressions for property tests: an expression tree that evaluates itself by the definition of its
// operators, together with the Expr that the constructors build from it.

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "index/expr.h"

namespace tilewright::testing {

/// Small reproducible choices from one number.
class Choice {
  public:
    explicit Choice(uint64_t seed) : engine_(seed) {}
    int64_t between(int64_t lo, int64_t hi) {
        return lo + static_cast<int64_t>(engine_() % static_cast<uint64_t>(hi - lo + 1));
    }
    bool one_in(int64_t n) { return between(1, n) == 1; }

  private:
    std::mt19937_64 engine_;
};

struct Tree {
    enum class Op { Constant, Axis, Symbol, Scalar, Add, Sub, Mul, Div, Mod, Min, Max };
    Op op = Op::Constant;
    int64_t number = 0;  ///< of Constant; which variable
    std::shared_ptr<const Tree> a, b;

    int64_t value(const Env& env) const {
        switch (op) {
            case Op::Constant:
                return number;
            case Op::Axis:
                return env.axes[static_cast<size_t>(number)];
            case Op::Symbol:
            case Op::Scalar:
                return (*env.names)(*expr().as_var()).value();
            default:
                break;
        }
        const int64_t x = a->value(env), y = b->value(env);
        switch (op) {
            case Op::Add:
                return x + y;
            case Op::Sub:
                return x - y;
            case Op::Mul:
                return x * y;
            case Op::Div: {
                if (y == 0) return 0;
                int64_t q = x / y;
                while (q * y > x && y > 0) --q;
                while (q * y < x && y < 0) --q;
                return q;
            }
            case Op::Mod: {
                if (y == 0) return 0;
                int64_t r = x % y;
                if (r != 0 && (r < 0) != (y < 0)) r += y;
                return r;
            }
            case Op::Min:
                return std::min(x, y);
            default:
                return std::max(x, y);
        }
    }

    /// True if a divisor that consists of symbols and scalars alone is 0: quotients are then unspecified (see expr.h).
    bool divides_by_empty_dimension(const Env& env) const {
        if (!a) return false;
        if (op == Op::Div || op == Op::Mod) {
            const Expr divisor = b->expr();
            if (is_uniform(divisor) && !divisor.is_constant() && b->value(env) == 0) return true;
        }
        return a->divides_by_empty_dimension(env) || b->divides_by_empty_dimension(env);
    }

    Expr expr() const {
        switch (op) {
            case Op::Constant:
                return number;
            case Op::Axis:
                return axis(static_cast<size_t>(number));
            case Op::Symbol:
                return symbol(number == 0 ? "n" : "m");
            case Op::Scalar:
                return scalar("s");
            case Op::Add:
                return a->expr() + b->expr();
            case Op::Sub:
                return a->expr() - b->expr();
            case Op::Mul:
                return a->expr() * b->expr();
            case Op::Div:
                return floor_div(a->expr(), b->expr());
            case Op::Mod:
                return mod(a->expr(), b->expr());
            case Op::Min:
                return min(a->expr(), b->expr());
            default:
                return max(a->expr(), b->expr());
        }
    }
};

/// The variables that may occur: axes i0 .. i(axes-1), symbols $n and $m, scalar ?s.
struct Vocabulary {
    int64_t axes = 3;
    bool symbols = true;
    bool scalars = false;
    bool any_divisor = false;  ///< otherwise divisors are non-zero constants or symbols
};

inline std::shared_ptr<const Tree> leaf(Tree::Op op, int64_t number) {
    return std::make_shared<const Tree>(Tree{op, number, nullptr, nullptr});
}

inline std::shared_ptr<const Tree> random_tree(Choice& choose, const Vocabulary& words, int depth) {
    if (depth == 0 || choose.one_in(6)) {
        if (words.axes > 0 && !choose.one_in(3)) return leaf(Tree::Op::Axis, choose.between(0, words.axes - 1));
        if (words.symbols && choose.one_in(2)) return leaf(Tree::Op::Symbol, choose.between(0, 1));
        if (words.scalars && choose.one_in(2)) return leaf(Tree::Op::Scalar, 0);
        return leaf(Tree::Op::Constant, choose.between(-7, 12));
    }
    static constexpr Tree::Op kOps[] = {Tree::Op::Add, Tree::Op::Add, Tree::Op::Add, Tree::Op::Sub,
                                        Tree::Op::Mul, Tree::Op::Mul, Tree::Op::Div, Tree::Op::Div,
                                        Tree::Op::Mod, Tree::Op::Mod, Tree::Op::Min, Tree::Op::Max};
    Tree t;
    t.op = kOps[choose.between(0, 11)];
    t.a = random_tree(choose, words, depth - 1);
    const bool divides = t.op == Tree::Op::Div || t.op == Tree::Op::Mod;
    if (divides && !words.any_divisor) {
        if (words.symbols && choose.one_in(3)) {
            t.b = leaf(Tree::Op::Symbol, choose.between(0, 1));
        } else {
            const int64_t c = choose.between(1, 12);
            t.b = leaf(Tree::Op::Constant, choose.one_in(8) ? -c : c);
        }
    } else if (t.op == Tree::Op::Mul && !choose.one_in(4)) {
        t.b = leaf(Tree::Op::Constant, choose.between(-3, 8));
    } else {
        t.b = random_tree(choose, words, depth - 1);
    }
    return std::make_shared<const Tree>(std::move(t));
}

/// Values of $n, $m and ?s for Env::names.
inline std::function<std::optional<int64_t>(Var)> names(int64_t n, int64_t m, int64_t s) {
    return [=](Var v) -> std::optional<int64_t> {
        if (v.kind == VarKind::Scalar) return s;
        return var_name(v) == "n" ? n : m;
    };
}

/// Calls f on every point of the box [0, extents), in row-major order, until it returns false.
template <class F>
bool for_all_points(const std::vector<int64_t>& extents, const F& f) {
    if (std::any_of(extents.begin(), extents.end(), [](int64_t e) { return e <= 0; })) return true;
    std::vector<int64_t> point(extents.size(), 0);
    for (;;) {
        if (!f(point)) return false;
        size_t k = extents.size();
        while (k > 0 && ++point[k - 1] == extents[k - 1]) point[--k] = 0;
        if (k == 0) return true;
    }
}

}  // namespace tilewright::testing
