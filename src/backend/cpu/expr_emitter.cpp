#include "backend/cpu/expr_emitter.h"

#include "base/error.h"

namespace tilewright::cpu {

void ExprEmitter::bind(Var v, llvm::Value* value) {
    bindings_[v] = value;
    cache_.clear();
}

llvm::Value* ExprEmitter::binding(Var v) const {
    auto it = bindings_.find(v);
    TW_CHECK(it != bindings_.end(), "{} is not bound", Expr::var(v).text());
    return it->second;
}

bool ExprEmitter::is_vector(Var v) const {
    auto it = bindings_.find(v);
    return it != bindings_.end() && it->second->getType()->isVectorTy();
}

llvm::Value* ExprEmitter::constant(int64_t c, int lanes) {
    llvm::Constant* k = b_.getInt64(static_cast<uint64_t>(c));
    if (lanes == 0) return k;
    return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(static_cast<unsigned>(lanes)), k);
}

llvm::Value* ExprEmitter::scalar(Expr e) {
    if (e.is_constant()) return constant(e.constant(), 0);
    auto it = cache_.find(e);
    if (it != cache_.end() && it->second.block == b_.GetInsertBlock()) return it->second.value;
    // The varying part is shared between expressions that differ by a constant (rows of a register tile).
    llvm::Value* v = nullptr;
    if (e.constant() != 0)
        v = b_.CreateAdd(scalar(e - e.constant()), constant(e.constant(), 0));
    else
        v = emit(e, 0);
    cache_[e] = {b_.GetInsertBlock(), v};
    return v;
}

llvm::Value* ExprEmitter::vector(Expr e, int lanes) { return emit(e, lanes); }

llvm::Value* ExprEmitter::emit(Expr e, int lanes) {
    llvm::Value* sum = nullptr;
    for (const Term& t : e.terms()) {
        llvm::Value* p = nullptr;
        for (const Atom* a : t.atoms) {
            llvm::Value* v = emit_atom(*a, lanes);
            p = p == nullptr ? v : b_.CreateMul(p, v);
        }
        if (t.coefficient != 1) p = b_.CreateMul(p, constant(t.coefficient, lanes));
        sum = sum == nullptr ? p : b_.CreateAdd(sum, p);
    }
    if (sum == nullptr) return constant(e.constant(), lanes);
    if (e.constant() != 0) sum = b_.CreateAdd(sum, constant(e.constant(), lanes));
    return sum;
}

llvm::Value* ExprEmitter::emit_atom(const Atom& a, int lanes) {
    const auto operand = [&](Expr e) { return lanes == 0 ? scalar(e) : vector(e, lanes); };
    switch (a.kind) {
        case Atom::Kind::Var: {
            llvm::Value* v = binding(a.var);
            if (lanes != 0 && !v->getType()->isVectorTy()) v = b_.CreateVectorSplat(static_cast<unsigned>(lanes), v);
            TW_CHECK(lanes != 0 || !v->getType()->isVectorTy(), "{} is not uniform over lanes", a.text);
            return v;
        }
        case Atom::Kind::FloorDiv:
            return divide(a.a, a.b, false, lanes);
        case Atom::Kind::Mod:
            return divide(a.a, a.b, true, lanes);
        case Atom::Kind::Min:
            return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, operand(a.a), operand(a.b));
        case Atom::Kind::Max:
            return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, operand(a.a), operand(a.b));
    }
    return nullptr;
}

llvm::Value* ExprEmitter::divide(Expr a, Expr b, bool modulo, int lanes) {
    llvm::Value* x = lanes == 0 ? scalar(a) : vector(a, lanes);
    llvm::Value* y = lanes == 0 ? scalar(b) : vector(b, lanes);
    if (!b.is_constant()) {  // dimensions are positive where code runs, but scalars read from data may be 0
        llvm::Value* zero = b_.CreateICmpEQ(y, constant(0, lanes));
        y = b_.CreateSelect(zero, constant(1, lanes), y);
    }
    const bool natural = prove_nonnegative(a, ranges_) && prove_positive(b, ranges_);
    if (natural) return modulo ? b_.CreateURem(x, y) : b_.CreateUDiv(x, y);
    llvm::Value* q = b_.CreateSDiv(x, y);
    llvm::Value* r = b_.CreateSub(x, b_.CreateMul(q, y));
    llvm::Value* inexact = b_.CreateICmpNE(r, constant(0, lanes));
    llvm::Value* opposite = b_.CreateICmpSLT(b_.CreateXor(r, y), constant(0, lanes));
    llvm::Value* adjust = b_.CreateAnd(inexact, opposite);
    if (modulo) return b_.CreateSelect(adjust, b_.CreateAdd(r, y), r);
    return b_.CreateSelect(adjust, b_.CreateSub(q, constant(1, lanes)), q);
}

}  // namespace tilewright::cpu
