#include "program/interpret_index.h"

#include <algorithm>

#include "base/error.h"

namespace tilewright::interp {

int64_t exact_mul(int64_t a, int64_t b) {
    int64_t r = 0;
    if (__builtin_mul_overflow(a, b, &r)) model_error("index arithmetic overflows 64 bits: {} * {}", a, b);
    return r;
}

namespace {

__extension__ using Wide = __int128;

int64_t saturate(Wide v) {
    constexpr auto lo = std::numeric_limits<int64_t>::min(), hi = std::numeric_limits<int64_t>::max();
    return v < lo ? lo : v > hi ? hi : static_cast<int64_t>(v);
}

int64_t exact_add(int64_t a, int64_t b) {
    int64_t r = 0;
    if (__builtin_add_overflow(a, b, &r)) model_error("index arithmetic overflows 64 bits: {} + {}", a, b);
    return r;
}

IntRange product_range(IntRange a, IntRange b) {
    const Wide p[] = {Wide(a.lo) * b.lo, Wide(a.lo) * b.hi, Wide(a.hi) * b.lo, Wide(a.hi) * b.hi};
    return {saturate(*std::min_element(p, p + 4)), saturate(*std::max_element(p, p + 4))};
}

int64_t fold(Register::Kind kind, int64_t a, int64_t b) {
    switch (kind) {
        case Register::Kind::FloorDiv:
            return floor_div(a, b);
        case Register::Kind::Mod:
            return floor_mod(a, b);
        case Register::Kind::Min:
            return std::min(a, b);
        case Register::Kind::Max:
            return std::max(a, b);
        default:
            return exact_mul(a, b);
    }
}

Register::Kind register_kind(Atom::Kind kind) {
    switch (kind) {
        case Atom::Kind::FloorDiv:
            return Register::Kind::FloorDiv;
        case Atom::Kind::Mod:
            return Register::Kind::Mod;
        case Atom::Kind::Min:
            return Register::Kind::Min;
        case Atom::Kind::Max:
            return Register::Kind::Max;
        case Atom::Kind::Var:
            break;
    }
    return Register::Kind::Load;
}

}  // namespace

bool Form::is_constant() const {
    return registers.empty() && std::all_of(axes.begin(), axes.end(), [](int64_t c) { return c == 0; });
}

Form scaled(Form form, int64_t by) {
    form.constant = exact_mul(form.constant, by);
    for (int64_t& c : form.axes) c = exact_mul(c, by);
    for (auto& [r, c] : form.registers) c = exact_mul(c, by);
    if (by == 0) form.registers.clear();
    return form;
}

void add(Form& sum, const Form& term) {
    sum.constant = exact_add(sum.constant, term.constant);
    for (size_t k = 0; k < sum.axes.size(); ++k) sum.axes[k] = exact_add(sum.axes[k], term.axes[k]);
    for (const auto& [r, c] : term.registers) {
        const auto same = std::find_if(sum.registers.begin(), sum.registers.end(),
                                       [id = r](const auto& entry) { return entry.first == id; });
        if (same == sum.registers.end())
            sum.registers.emplace_back(r, c);
        else
            same->second = exact_add(same->second, c);
    }
    std::erase_if(sum.registers, [](const auto& entry) { return entry.second == 0; });
}

IntRange register_range(Register::Kind kind, IntRange a, IntRange b) {
    switch (kind) {
        case Register::Kind::FloorDiv:
            if (b.lo <= 0) return {};
            return {std::min(floor_div(a.lo, b.lo), floor_div(a.lo, b.hi)),
                    std::max(floor_div(a.hi, b.lo), floor_div(a.hi, b.hi))};
        case Register::Kind::Mod:
            if (b.lo <= 0) return {};
            if (b.lo == b.hi && floor_div(a.lo, b.lo) == floor_div(a.hi, b.lo))
                return {floor_mod(a.lo, b.lo), floor_mod(a.hi, b.lo)};
            return {0, b.hi - 1};
        case Register::Kind::Min:
            return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
        case Register::Kind::Max:
            return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
        case Register::Kind::Product:
            return product_range(a, b);
        case Register::Kind::Load:
            break;
    }
    return {};
}

IntRange range_of(const Form& form, std::span<const int64_t> extents, std::span<const Register> registers) {
    Wide lo = form.constant, hi = form.constant;
    for (size_t k = 0; k < form.axes.size(); ++k) (form.axes[k] < 0 ? lo : hi) += Wide(form.axes[k]) * (extents[k] - 1);
    for (const auto& [r, c] : form.registers) {
        const IntRange p = product_range(registers[r].range, {c, c});
        lo += p.lo;
        hi += p.hi;
    }
    return {saturate(lo), saturate(hi)};
}

std::optional<Form> in_one_period(Register::Kind kind, const Form& a, IntRange range, int64_t by) {
    const int64_t period = floor_div(range.lo, by);
    if (period != floor_div(range.hi, by)) return std::nullopt;
    Form result;
    if (kind == Register::Kind::FloorDiv) {
        result.axes.assign(a.axes.size(), 0);
        result.constant = period;
    } else {
        result = a;
        result.constant = exact_add(result.constant, -exact_mul(period, by));
    }
    return result;
}

Form IndexForms::form(Expr e) {
    Form sum;
    sum.axes.assign(extents_.size(), 0);
    sum.constant = e.constant();
    for (const Term& t : e.terms()) {
        Form p;
        p.axes.assign(extents_.size(), 0);
        p.constant = 1;
        for (size_t i = 0; i < t.atoms.size(); ++i) {
            const Form q = atom_form(*t.atoms[i]);
            if (p.is_constant()) {
                p = scaled(q, p.constant);
            } else if (q.is_constant()) {
                p = scaled(p, q.constant);
            } else {
                auto [it, fresh] = products_.try_emplace({&t, i});
                if (fresh) {
                    Register r;
                    r.kind = Register::Kind::Product;
                    r.range = product_range(range(p), range(q));
                    r.a = std::move(p);
                    r.b = q;
                    it->second.axes.assign(extents_.size(), 0);
                    it->second.registers = {{static_cast<uint32_t>(registers_.size()), 1}};
                    registers_.push_back(std::move(r));
                }
                p = it->second;
            }
        }
        add(sum, scaled(std::move(p), t.coefficient));
    }
    return sum;
}

Form IndexForms::atom_form(const Atom& atom) {
    Form result;
    result.axes.assign(extents_.size(), 0);
    if (atom.kind == Atom::Kind::Var) {
        if (atom.var.kind == VarKind::Axis) {
            TW_CHECK(atom.var.id < extents_.size(), "axis {} of {}", atom.var.id, extents_.size());
            result.axes[atom.var.id] = 1;
            return result;
        }
        if (atom.var.kind != VarKind::Load) {
            const auto bound = bindings_.find(atom.var);
            TW_CHECK(bound != bindings_.end(), "{} is not bound", atom.text);
            result.constant = bound->second;
            return result;
        }
    }
    if (const auto known = atoms_.find(&atom); known != atoms_.end()) return known->second;
    Register r;
    r.kind = register_kind(atom.kind);
    if (r.kind == Register::Kind::Load) {
        r.access = atom.var.id;
    } else {
        r.a = form(atom.a);
        r.b = form(atom.b);
        if (r.a.is_constant() && r.b.is_constant()) {
            result.constant = fold(r.kind, r.a.constant, r.b.constant);
            return result;
        }
        r.range = register_range(r.kind, range(r.a), range(r.b));
        if (r.divides())
            if (auto affine = in_one_period(r.kind, r.a, range(r.a), r.b.constant))
                return atoms_[&atom] = std::move(*affine);
    }
    result.registers = {{static_cast<uint32_t>(registers_.size()), 1}};
    registers_.push_back(std::move(r));
    return atoms_[&atom] = result;
}

void clip_lanes(int64_t start, int64_t step, int64_t& lo, int64_t& hi) {
    if (step == 0) {
        if (start < 0) hi = lo;
    } else if (step > 0) {
        if (start < 0) lo = std::min(hi, std::max(lo, (-start + step - 1) / step));
    } else {
        hi = start < 0 ? lo : std::max(lo, std::min(hi, start / -step + 1));
    }
}

}  // namespace tilewright::interp
