#pragma once
// Operator notation for scalar bodies.

#include <cstdint>

#include "program/scalar.h"

namespace tilewright {

/// A number in the compute type of `t`.
inline ScalarId number(ScalarBody& body, DType t, double v) {
    const DType c = compute_type(t);
    return is_float(c) ? body.constant(c, v) : body.int_constant(c, static_cast<int64_t>(v));
}

/// An expression being built: `x * 2.0 + y` instead of nested calls. Numbers take the other operand's type.
class Sx {
  public:
    Sx(ScalarBody& body, ScalarId id) : body_(&body), id_(id) {}
    operator ScalarId() const { return id_; }  // NOLINT: the root of a body
    DType dtype() const { return (*body_)[id_].dtype; }

    Sx of(double v) const { return {*body_, number(*body_, dtype(), v)}; }
    Sx apply(ScalarOp op) const { return {*body_, body_->unary(op, id_)}; }
    Sx apply(ScalarOp op, Sx b) const { return {*body_, body_->binary(op, id_, b.id_)}; }
    Sx apply(ScalarOp op, double b) const { return apply(op, of(b)); }
    Sx cast(DType t) const { return {*body_, body_->cast(t, id_)}; }
    /// this ? a : b
    Sx choose(Sx a, Sx b) const { return {*body_, body_->select(id_, a.id_, b.id_)}; }

    friend Sx operator+(Sx a, Sx b) { return a.apply(ScalarOp::Add, b); }
    friend Sx operator-(Sx a, Sx b) { return a.apply(ScalarOp::Sub, b); }
    friend Sx operator*(Sx a, Sx b) { return a.apply(ScalarOp::Mul, b); }
    friend Sx operator/(Sx a, Sx b) { return a.apply(ScalarOp::Div, b); }
    friend Sx operator+(Sx a, double b) { return a + a.of(b); }
    friend Sx operator-(Sx a, double b) { return a - a.of(b); }
    friend Sx operator*(Sx a, double b) { return a * a.of(b); }
    friend Sx operator/(Sx a, double b) { return a / a.of(b); }
    friend Sx operator-(Sx a) { return a.apply(ScalarOp::Neg); }
    friend Sx operator<(Sx a, double b) { return a.apply(ScalarOp::Lt, b); }
    friend Sx operator>(Sx a, double b) { return a.apply(ScalarOp::Gt, b); }
    Sx min(Sx b) const { return apply(ScalarOp::Min, b); }
    Sx max(Sx b) const { return apply(ScalarOp::Max, b); }
    Sx min(double b) const { return apply(ScalarOp::Min, b); }
    Sx max(double b) const { return apply(ScalarOp::Max, b); }
    Sx abs() const { return apply(ScalarOp::Abs); }
    // x.exp(), x.erf(), ...: each function of the table.
#define TW_SCALAR_FUNCTION(op, text, ...) \
    Sx text() const { return apply(ScalarOp::op); }
#include "program/scalar_ops.def"

  private:
    ScalarBody* body_;
    ScalarId id_;
};

}  // namespace tilewright
