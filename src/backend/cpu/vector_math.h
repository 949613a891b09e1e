#pragma once
// Transcendental functions as inlined LLVM IR.
//
// Every emit_* function appends instructions at the builder's insertion point without adding a basic block to the
// current function. It returns a value of its operand's type: float or double, scalar or a vector of any lane count.
// The result does not depend on the lane count. The builder's fast-math flags are neither used nor changed, because
// range reductions rely on roundings that reassociation would remove.
//
// The "target-features" attribute of the current function selects AVX-512F (vscalefps, vpermps); all other code is
// plain IR for any target with a fused multiply-add. Without one the results are the same, but each llvm.fma is a call.
//
// Special values follow C's libm (Annex F): NaN in, NaN out; infinities, signed zeros, overflow and subnormal results
// as there, except that emit_exp returns 0 in place of a subnormal result. errno and the floating-point exception flags
// are not maintained; the rounding mode must be nearest.
//
// vector_math_test.cpp asserts the error of each f32 function, in units in the last place of the exact result, for
// AVX-512 and x86-64-v3, on some millions of arguments. TILEWRIGHT_EXHAUSTIVE=1 build/bin/backend_cpu_test
// --gtest_filter='*Math*' measures and prints it over all 2^32 arguments (pow: 2^28 random pairs).
//
// The polynomials are minimax fits, found by linear programs over Chebyshev grids in 40-digit arithmetic with the
// weight that makes the error relative to the function. Coefficients are rounded to float one by one, lowest power
// first; after each the others are fitted again. Each polynomial states its range, degree and error.
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

/// The larger / smaller operand; NaN if either is NaN. Of two zeros, either may be returned. Any floating-point type.
llvm::Value* emit_max_nan(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
llvm::Value* emit_min_nan(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);

/// x / y. Division by a constant float is replaced by multiply-adds, which take a tenth of the time and are correctly
/// rounded if the result is at least 2^-100 (else within one place of a subnormal's).
llvm::Value* emit_div(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
/// The same for a vector of floats by one float for all lanes: one division per value of that float.
llvm::Value* emit_div_by_one(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);

/// Half precision. The first takes `half` or its bits as i16; the second returns `half`, rounded to nearest even,
/// overflow to infinity.
llvm::Value* emit_f16_to_f32(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_f32_to_f16(llvm::IRBuilderBase& b, llvm::Value* x);
/// bfloat16 as i16 bits, rounded to nearest even; NaNs become quiet. With AVX512_BF16, f32 numbers below the smallest
/// normal one become 0; bf16 numbers that were only moved stay as they are.
llvm::Value* emit_bf16_to_f32(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* emit_f32_to_bf16(llvm::IRBuilderBase& b, llvm::Value* x);

/// A C function that emitted code may call: the JIT maps the name to the address, object files link libm.
struct MathSymbol {
    const char* name;
    const void* address;
};

/// Returns all of them: libm in double precision, and the lowering of remainders and of missing fused multiply-adds.
const std::vector<MathSymbol>& math_symbols();

}  // namespace tilewright::cpu
