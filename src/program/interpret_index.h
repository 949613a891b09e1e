#pragma once
// Index expressions compiled for the interpreter. Symbols and scalars are replaced by their numbers; affine parts
// become coefficients of the axes; other operations (divisions, moduli, minima, loads) become registers computed for a
// run of points. Internal to the interpreter.

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "index/expr.h"
#include "program/program.h"

namespace tilewright::interp {

/// Points evaluated at a time, along one axis.
inline constexpr int64_t kLanes = 512;

/// Inclusive range of an integer; saturated at 64 bits.
struct IntRange {
    int64_t lo = std::numeric_limits<int64_t>::min();
    int64_t hi = std::numeric_limits<int64_t>::max();
    bool within(int64_t l, int64_t h) const { return lo >= l && hi <= h; }
};

/// constant + sum of axes[k] * axis(k) + sum of coefficient * register.
struct Form {
    int64_t constant = 0;
    std::vector<int64_t> axes;  ///< one per axis
    std::vector<std::pair<uint32_t, int64_t>> registers;
    bool is_constant() const;
};
// These throw ModelError where a sum or a product overflows.
int64_t exact_mul(int64_t a, int64_t b);
void add(Form& sum, const Form& term);
Form scaled(Form form, int64_t by);

struct Register {
    enum class Kind : uint8_t { FloorDiv, Mod, Min, Max, Product, Load };
    Kind kind = Kind::Load;
    Form a, b;            ///< operands, except for Load
    uint32_t access = 0;  ///< Load
    IntRange range;
    /// axis // b or axis % b by a positive constant b.
    bool divides() const { return kind <= Kind::Mod && b.is_constant() && b.constant > 0; }
};
IntRange register_range(Register::Kind kind, IntRange a, IntRange b);
/// `extents`: of the axes; at least 1 each.
IntRange range_of(const Form& form, std::span<const int64_t> extents, std::span<const Register> registers);
/// a // by or a % by, by `kind`, without a register: where `a` stays in one period of `by`.
///     (i0 + 3) // 64 -> 0,   (i0 + 67) % 64 -> i0 + 3   for i0 in [0, 16)
std::optional<Form> in_one_period(Register::Kind kind, const Form& a, IntRange range, int64_t by);

/// Registers of one tensor expression, in topological order.
class IndexForms {
  public:
    /// `extents`: the extents evaluated with `bindings`; at least 1 each.
    IndexForms(std::span<const int64_t> extents, const Bindings& bindings) : extents_(extents), bindings_(bindings) {}

    Form form(Expr e);
    IntRange range(const Form& form) const { return range_of(form, extents_, registers_); }
    std::vector<Register>& registers() { return registers_; }

  private:
    Form atom_form(const Atom& atom);

    std::span<const int64_t> extents_;
    const Bindings& bindings_;
    std::vector<Register> registers_;
    std::map<const Atom*, Form> atoms_;  ///< atoms are interned, so the pointer identifies the atom
    std::map<std::pair<const Term*, size_t>, Form> products_;
};

/// Narrows the interval [lo, hi) of lanes to those l where start + step * l >= 0; an empty interval stays inside.
void clip_lanes(int64_t start, int64_t step, int64_t& lo, int64_t& hi);

}  // namespace tilewright::interp
