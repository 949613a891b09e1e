#pragma once
// Storage in 16 bits, for products on matrix instructions (--precision bf16 and f16).

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cost/target.h"
#include "orchestrate/f32_products.h"
#include "program/program.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

/// The type of 16 bits to which operands are rounded: of Precision::F16, f16; of others bf16.
DType narrow_type(Precision precision);
/// Whether a CPU's products of that type are faster than those of f32. Of f16, where they may be summed up in it.
bool has_narrow_products(const Target& target, Precision precision);

/// Primitive::source of the copies that round operands.
inline constexpr std::string_view kPrecisionSource = "precision";

/// Whether the expression only moves elements.
bool is_copy(const TensorExpr& e);

/// A product, as narrow_operands found it.
struct NarrowedProduct {
    std::string result;    ///< the name of the value that it computes
    Origin origin;         ///< of the product
    bool weights = false;  ///< its constant operand is rounded
    bool data = false;     ///< its computed operands are
    bool stored = false;   ///< its result is
};

/// What narrow_operands changed.
struct NarrowedOperands {
    size_t products = 0;                   ///< whose computed operands are now narrow
    size_t constants = 0;                  ///< converted at compile time
    size_t values = 0;                     ///< computed tensors now stored narrow
    size_t copies = 0;                     ///< of tensors that others read in f32
    std::vector<NarrowedProduct> rounded;  ///< products of which an operand is narrow, in the program's order
    std::vector<NarrowedProduct> kept;     ///< products that stay in f32 because they are chosen (F32Products)
};

/// Rounds operands of products that run on the target's matrix instructions to the type of the precision, and the
/// weights of products of one row, which take the time of reading them. Sums stay f32. So does every tensor from which
/// a reduction other than a product or a pooling is computed (normalisations, softmax), and the program's inputs and
/// outputs; where such a tensor is also an operand, it is copied. Tensors that are only copied to narrow ones are
/// stored narrow as well.
///
/// On a CPU (has_narrow_products) these are products with weights, and products of computed tensors in pairs; their
/// results are stored in the type as well if all readers allow it. On a GPU (f16 or bf16) these are all products of two
/// tensors, and a tensor is copied for warpgroup instructions alone, because others round as they read. Constants that
/// f16 cannot hold stay.
///
/// Products of `keep`, on a CPU, have operands and results of f32. So has what is only copied to these operands.
///
/// `results`, on a CPU: names of the values that are stored in the type although no product reads them. Null: results
/// of rounded products, where all readers allow it. Before fusion these are not what a product computes alone: what is
/// added to its sum would be added to a rounded one.
Program narrow_operands(Program program, const Target& target, Precision precision, NarrowedOperands* report = nullptr,
                        const F32Products& keep = {}, const std::set<std::string>* results = nullptr);

}  // namespace tilewright
