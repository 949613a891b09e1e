#pragma once
// Index expressions over a kernel's variables (tile/gpu_index.h) as C++.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/writer.h"
#include "tile/gpu_index.h"

namespace tilewright::cuda {

using gpu::var_of;

class Variables : public gpu::IndexVariables {
  public:
    /// A new variable, called `name` or similarly.
    Expr add(std::string_view name, Interval range) override;
    /// What symbols and scalars are called.
    void name(Var v, std::string text) { outer_[v] = std::move(text); }
    std::string fresh(std::string_view name) { return names_.fresh(name); }

    std::string name(Expr variable) const { return names_of_.at(var_of(variable).id - kStageAxes); }
    /// "int", or "i64" where it is not known to be small.
    std::string_view type(Expr e) const;
    /// "const int m = ..."
    std::string declaration(Expr variable) const;

    /// Sources of the integers that accesses read, by access: "i64(...)" texts.
    using LoadText = std::function<std::string(size_t access)>;
    /// C++ for the expression, of type int where nothing in it can pass 2^31, else i64.
    std::string text(Expr e, const LoadText& loads = {}) const { return print(e, !type_is_int(e), loads, false); }
    /// The same with sums in parentheses.
    std::string operand(Expr e) const { return print(e, !type_is_int(e), {}, true); }
    /// As an i64, sums in parentheses.
    std::string wide(Expr e, const LoadText& loads = {}) const { return print(e, true, loads, true); }
    /// C++ for e >= 0, without differences: "step_k * 2 + 1 <= 6".
    std::string condition(Expr e, const LoadText& loads = {}) const;

    /// Declares a constant for what is one division, minimum or maximum; until `forget`, expressions mention it by that
    /// name. Nothing where it is none.
    void call(Expr e, const std::string& name, Writer& out);
    void forget(Expr e);

  private:
    bool type_is_int(Expr e) const;
    std::optional<int64_t> magnitude(Expr e) const;
    std::optional<int64_t> magnitude(const Atom& a) const;
    std::string print(Expr e, bool as_wide, const LoadText& loads, bool parentheses) const;
    std::string print(const Atom& a, bool as_wide, const LoadText& loads) const;

    Names names_;
    std::vector<std::string> names_of_;
    std::map<Var, std::string> outer_;
    std::map<std::string, std::string> called_;  ///< by the atom's text
};

}  // namespace tilewright::cuda
