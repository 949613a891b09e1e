#pragma once
// Index expressions -> LLVM values.

#include <llvm/IR/IRBuilder.h>

#include <map>
#include <unordered_map>

#include "index/expr.h"

namespace tilewright::cpu {

/// Emits Exprs as i64 scalars or vectors at the builder's insertion point. Variables are bound to LLVM values, either a
/// scalar (i64) or one value per lane (<lanes x i64>).
class ExprEmitter {
  public:
    explicit ExprEmitter(llvm::IRBuilder<>& builder) : b_(builder) {}

    void bind(Var v, llvm::Value* value);
    llvm::Value* binding(Var v) const;
    bool is_vector(Var v) const;
    /// Sets ranges of the variables; divisions of non-negative values become cheaper.
    void set_ranges(const Ranges& ranges) { ranges_ = ranges; }

    llvm::Value* scalar(Expr e);
    llvm::Value* vector(Expr e, int lanes);

  private:
    llvm::Value* emit(Expr e, int lanes);
    llvm::Value* emit_atom(const Atom& a, int lanes);
    llvm::Value* divide(Expr a, Expr b, bool modulo, int lanes);
    llvm::Value* constant(int64_t c, int lanes);

    struct Cached {
        llvm::BasicBlock* block;
        llvm::Value* value;
    };
    llvm::IRBuilder<>& b_;
    std::map<Var, llvm::Value*> bindings_;
    std::unordered_map<Expr, Cached> cache_;
    Ranges ranges_;
};

}  // namespace tilewright::cpu
