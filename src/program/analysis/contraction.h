#pragma once
// Contractions: sums of products of two factors, the form of matrix products, convolutions and both products of
// attention. Only this file recognises the form. Further conditions (plain reads, f32, a constant operand) are
// properties of the result.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// y[...] = epilogue(sum over the reduction axes of factors[0] * factors[1])
///     y[i0, i1] = sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
struct Contraction {
    struct Factor {
        ScalarId node;                 ///< of the expression's body
        std::optional<uint32_t> slot;  ///< the access, if the factor is a plain read: relu(@0) has none
        /// `slot`, or the access of an 8-bit integer that is widened, cast(i32, @0), cast(f32, @0), or of quantised
        /// weights that are decoded (decoded_read()).
        std::optional<uint32_t> read;
    };
    std::array<Factor, 2> factors;  ///< in the order of the multiplication
    DType type = DType::F32;        ///< of the products

    bool of_reals() const { return is_float(type); }
    /// Both factors are plain reads.
    bool reads_plainly() const { return factors[0].slot && factors[1].slot; }
    /// Both factors are plain, widened or decoded reads.
    bool reads_widened() const { return factors[0].read && factors[1].read; }
    /// Both factors are plain reads, of different accesses: not a square.
    bool reads_two() const { return reads_plainly() && *factors[0].slot != *factors[1].slot; }
};

/// Returns the factors of a body whose root is a multiplication, whatever the reducer; else nothing.
std::optional<std::array<Contraction::Factor, 2>> product_factors(const ScalarBody& body);
/// Returns the contraction if the reducer is a sum and the root of the body is a multiplication; else nothing.
/// `Casts::Through` also accepts a multiplication under conversions, which round or widen every product.
enum class Casts : uint8_t { None, Through };
std::optional<Contraction> contraction(const TensorExpr& e, Casts casts = Casts::None);

/// The access of quantised weights in a factor that decodes them: 8-bit integers, or words of codes, whose numbers a
/// table has; then a zero point and a scale (program/transform/quantised_weights.h).
///     mul(sub(f32(@0), @1), @2)   mul(table[...](i64(and(shr(@0, i2 * 4), 15))), @1)   ->   @0
std::optional<uint32_t> decoded_read(const ScalarBody& body, ScalarId factor);

/// Whether `e` is a contraction whose factors are both plain, widened or decoded reads.
bool is_plain_product(const TensorExpr& e);

/// The axes of a contraction, by the factors that depend on them (program/analysis/access.h). M, N and K of a matrix
/// product are rows, columns and sum.
struct ContractionAxes {
    std::vector<size_t> batch;      ///< spatial, both factors
    std::vector<size_t> rows;       ///< spatial, the first factor alone
    std::vector<size_t> columns;    ///< spatial, the second factor alone
    std::vector<size_t> broadcast;  ///< spatial, neither
    std::vector<size_t> sum;        ///< reduced, both
    std::vector<size_t> one_sided;  ///< reduced, at most one
};
ContractionAxes axes(const TensorExpr& e, const Contraction& c);

/// A contraction of plain, widened or decoded reads with exactly one constant operand: a layer and its weights.
struct WeightedContraction {
    uint32_t data = 0, weights = 0;  ///< slots
};
std::optional<WeightedContraction> weighted_contraction(const Program& program, const TensorExpr& e);

}  // namespace tilewright
