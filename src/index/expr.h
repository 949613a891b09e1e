#pragma once
// Integer expressions: extents of axes, dimensions of tensors, index maps. One type for all of them.
//
// An Expr is a polynomial with 64-bit integer coefficients over atoms; an atom is a variable, floordiv(a, b), mod(a,
// b), min(a, b) or max(a, b). Polynomials are kept in canonical form and interned, so that equal forms are one pointer:
//     symbol("s") * 2 + axis(0) == axis(0) + symbol("s") + symbol("s")
//     floor_div(axis(0) * 64 + axis(1), 64)      prints  i1 // 64 + i0
// Division and modulo round to minus infinity; division by zero evaluates to 0. One exception: (d * x) // d simplifies
// to x for a uniform divisor (of symbols and scalars alone), even if it can be 0, as $n // 4 can: such a divisor is a
// dimension, and an empty iteration space evaluates nothing.
//
// Ranges. Constructors apply only simplifications that hold for all integers. `simplify` and the provers below also use
// bounds: axes and loads have bounds in a Ranges table, symbols (dimensions) are >= 1, scalars (read from data) have
// none. The bound of symbols loses no generality: if a dimension is 0, the iteration space that uses it is empty.
//
// Interned nodes live as long as the process; a running model interns nothing. Thread-safe.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

enum class VarKind : uint8_t {
    Axis,    ///< an iteration axis of the expression's owner, by position: i0, i1, ...
    Symbol,  ///< a named dimension, assumed to be >= 1: $batch
    Scalar,  ///< a named integer read from a tensor's contents at run time, any value: ?offset
    Load,    ///< the integer that access k of the owner reads at the current point: @k
};

struct Var {
    VarKind kind = VarKind::Axis;
    uint32_t id = 0;  ///< axis or access position, or the number of the interned name
    friend auto operator<=>(const Var&, const Var&) = default;
};

struct Atom;

/// coefficient * product of atoms; the atoms are sorted and there is at least one.
struct Term {
    int64_t coefficient = 0;
    std::vector<const Atom*> atoms;
};

class Expr {
  public:
    Expr();                  ///< 0
    Expr(int64_t constant);  // NOLINT: an integer is an Expr
    Expr(int constant) : Expr(static_cast<int64_t>(constant)) {}

    static Expr var(Var v);
    bool is_constant() const;
    bool is_constant(int64_t v) const { return is_constant() && constant() == v; }
    /// The constant part (the whole value when is_constant()).
    int64_t constant() const;
    const std::vector<Term>& terms() const;
    /// The variable, if the expression is a single variable.
    std::optional<Var> as_var() const;
    /// Canonical text; `parse_expr` reads it back.
    const std::string& text() const;

    friend bool operator==(Expr a, Expr b) { return a.node_ == b.node_; }
    friend bool operator<(Expr a, Expr b) { return a.text() < b.text(); }
    size_t hash() const { return std::hash<const void*>()(node_); }

    struct Node;

  private:
    friend struct ExprTable;
    explicit Expr(const Node* node) : node_(node) {}
    const Node* node_;
};

/// A factor of a Term.
struct Atom {
    enum class Kind : uint8_t { Var, FloorDiv, Mod, Min, Max };
    Kind kind = Kind::Var;
    Var var;    ///< Kind::Var
    Expr a, b;  ///< operands of the other kinds
    std::string text;
};

Expr axis(size_t position);
Expr symbol(std::string_view name);
/// What counts the size `name` of a dimension in steps: the size is always step * it. Its own name is "height/32".
///     step * symbol("height", 32)  ->  32*$height/32
Expr symbol(std::string_view name, int64_t step);
/// The symbol whose var_name is `text`: one with steps, too.
Expr named_symbol(std::string_view text);
Expr scalar(std::string_view name);
Expr load(size_t access);
/// The name of a symbol or scalar.
const std::string& var_name(Var v);
/// The dimension whose size a symbol counts, and its step: {"height", 32}, or {"batch", 1}.
struct SizeName {
    std::string name;
    int64_t step = 1;
};
SizeName size_name(Var symbol);
/// The symbol that the size of a tensor's dimension determines: `n` of $n, and `height/32` of 32*$height/32. Nothing
/// for other expressions.
std::optional<Var> bound_symbol(Expr dimension);

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator-(Expr a);
inline Expr& operator+=(Expr& a, Expr b) { return a = a + b; }
inline Expr& operator*=(Expr& a, Expr b) { return a = a * b; }
Expr floor_div(Expr a, Expr b);
Expr mod(Expr a, Expr b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
inline Expr ceil_div(Expr a, Expr b) { return floor_div(a + b - 1, b); }
Expr product(std::span<const Expr> factors);

/// Reads `text()` back (also accepts ordinary infix spellings). Throws ModelError with the position.
Expr parse_expr(std::string_view text);

/// Replaces variables; a variable for which `f` returns nothing stays.
Expr substitute(Expr e, const std::function<std::optional<Expr>(Var)>& f);
/// Replaces axis(k) by axes[k] (axes beyond the span stay).
Expr substitute_axes(Expr e, std::span<const Expr> axes);
bool uses(Expr e, Var v);
/// Every variable, each once, in order of first appearance.
std::vector<Var> variables(Expr e);
/// axis(first), axis(first + 1), ... : n of them.
std::vector<Expr> plain_axes(size_t n, size_t first = 0);
/// True when no variable of kind Axis or Load appears.
bool is_uniform(Expr e);

/// e = coefficient * v + rest, where neither part uses v; nothing if v occurs in an atom or is multiplied by itself.
struct Linear {
    Expr coefficient, rest;
};
std::optional<Linear> linear_in(Expr e, Var v);
/// The coefficients that linear_in has for axis(0) to axis(axes - 1), in one pass.
///     24*i0 + 3*i1 + i2 // 2, 3 axes  ->  24, 3, nothing
std::vector<std::optional<Expr>> axis_coefficients(Expr e, size_t axes);

/// Inclusive bounds of axes and loads, as expressions over symbols and scalars. Missing entries are unbounded.
struct Interval {
    std::optional<Expr> lo, hi;
};
struct Ranges {
    std::vector<Interval> axes;
    std::vector<Interval> loads;
    /// axis k in [0, extents[k]).
    static Ranges of_extents(std::span<const Expr> extents);
};
Interval bounds(Expr e, const Ranges& ranges);
/// Removes divisions, moduli, minima and maxima that the ranges decide: i1 // 64 -> 0 when i1 < 64.
Expr simplify(Expr e, const Ranges& ranges);
/// True only if e >= 0 (or > 0, == 0) at every point; false when unknown.
bool prove_nonnegative(Expr e, const Ranges& ranges);
inline bool prove_positive(Expr e, const Ranges& ranges) { return prove_nonnegative(e - 1, ranges); }
inline bool prove_less(Expr a, Expr b, const Ranges& ranges) { return prove_nonnegative(b - a - 1, ranges); }

/// Values of variables for `evaluate`. A missing one throws InternalError naming it.
struct Env {
    std::span<const int64_t> axes;
    std::span<const int64_t> loads;
    const std::function<std::optional<int64_t>(Var)>* names = nullptr;  ///< symbols and scalars
};
int64_t evaluate(Expr e, const Env& env);
int64_t floor_div(int64_t a, int64_t b);  ///< 0 when b is 0
int64_t floor_mod(int64_t a, int64_t b);  ///< 0 when b is 0

/// Text of a list: "[2, $batch, i0 + 1]".
std::string to_string(std::span<const Expr> exprs);

}  // namespace tilewright

template <>
struct std::hash<tilewright::Expr> {
    size_t operator()(tilewright::Expr e) const noexcept { return e.hash(); }
};
