#pragma once
// Transcendental functions as inlined LLVM IR.
//
// Every emit_* function appends instructions at the builder's insertion point, adds no basic block to the function it
// stands in, and returns a value of its operand's type: float or double, alone or as a vector of any lane count. What
// comes back does not depend on the lane count. Fast-math flags of the builder are neither used nor changed: range
// reductions live from roundings that reassociation would remove.
//
// The enclosing function's "target-features" attribute decides on AVX-512F (vscalefps, vpermps); everything else is
// plain IR for any target with a fused multiply-add. Without one the results stay right, but each llvm.fma is a call.
//
// Special values follow C's libm (Annex F): NaN in, NaN out; infinities, signed zeros, overflow and subnormal results
// as there, except that emit_exp returns 0 in place of a subnormal result. errno and the floating-point exception flags
// are left alone, and the rounding mode is taken to be nearest.
//
// The error of the f32 functions, in units in the last place of the exact result, is asserted function by function in
// vector_math_test.cpp, for AVX-512 and x86-64-v3, on some millions of arguments. Over all 2^32 (pow: 2^28 random
// pairs) TILEWRIGHT_EXHAUSTIVE=1 build/bin/backend_cpu_test --gtest_filter='*Math*' measures and prints it.
//
// The polynomials are minimax fits of our own: linear programs over Chebyshev grids in 40-digit arithmetic for the
// weight that makes the error relative to the function, whose coefficients are rounded to float one by one, lowest
// power first, each time fitting the others again. Range, degree and error stand beside each of them.
//
// The f64 functions call libm, lane by lane; see math_symbols().

#include <vector>

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace tilewright::cpu {

/// emit_exp, emit_erf, ...: one for each TW_SCALAR_FUNCTION of the table.
///
/// emit_exp of floats is 0 where e^x < 2^-126, so the absolute error there is at most 1.18e-38. emit_expm1 and
/// emit_log1p are exact to the last places near 0. Angles are in radians, of any size: an argument past 2^15 takes a
/// slow, exact reduction, in an internal function that is added to the module once. Rounding and emit_sqrt are
/// instructions, in f64 too.
#define TW_SCALAR_FUNCTION(op, text, ...) llvm::Value* emit_##text(llvm::IRBuilderBase& b, llvm::Value* x);
#include "program/scalar_ops.def"

llvm::Value* emit_pow(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);

/// The larger / smaller operand; NaN where either is NaN. Of two zeros, either may come back. Any floating-point type.
llvm::Value* emit_max_nan(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
llvm::Value* emit_min_nan(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);

/// x / y. By a constant float without a division, which takes ten times as long as this: exact to the last place, where
/// the result is not smaller than 2^-100 (there within one place of a subnormal's).
llvm::Value* emit_div(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
/// The same of a vector of floats by one float for all lanes: one division where that float changes.
llvm::Value* emit_div_by_one(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);

/// Half precision. The operand of the first is `half` or its bits as i16; the second returns `half`, rounded to nearest
/// even, overflow to infinity.
llvm::Value* emit_f16_to_f32(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_f32_to_f16(llvm::IRBuilderBase& b, llvm::Value* x);
/// bfloat16 as i16 bits, rounded to nearest even; a NaN stays one, quietened.
llvm::Value* emit_bf16_to_f32(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_f32_to_bf16(llvm::IRBuilderBase& b, llvm::Value* x);

/// A C function that emitted code may call: a JIT defines the name at the address, object files link libm.
struct MathSymbol {
    const char* name;
    const void* address;
};

/// All of them: libm in double precision, and what LLVM lowers a remainder or a missing fused multiply-add to.
const std::vector<MathSymbol>& math_symbols();

}  // namespace tilewright::cpu
