#pragma once
// Index expressions compiled for repeated evaluation: values of names substituted, affine parts as coefficients of
// axes. Internal to the interpreter of tile programs.

#include <memory>
#include <span>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Reads the integer of access k at the current point.
class LoadSource {
  public:
    virtual ~LoadSource() = default;
    virtual int64_t loaded(size_t access) = 0;
};

class IndexCode {
  public:
    IndexCode() = default;
    IndexCode(Expr e, const Bindings& bindings);
    /// `loads` may be null if the expression reads no tensor.
    int64_t at(std::span<const int64_t> axes, LoadSource* loads = nullptr) const;

  private:
    struct Factor {
        Atom::Kind kind = Atom::Kind::Var;
        Var var;
        std::shared_ptr<const IndexCode> a, b;
    };
    struct Product {
        int64_t coefficient = 0;
        std::vector<Factor> factors;
    };
    int64_t constant_ = 0;
    std::vector<std::pair<size_t, int64_t>> axes_;
    std::vector<Product> products_;
};

std::vector<IndexCode> index_codes(std::span<const Expr> exprs, const Bindings& bindings);

}  // namespace tilewright
