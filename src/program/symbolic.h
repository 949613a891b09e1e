#pragma once
// Partial evaluation for shape arithmetic: contents of small integer tensors as expressions over dimensions.
//
//     Shape(x) = [$batch, 128, 768];  Gather 0 -> $batch;  Mul 12 -> $batch*12;  Concat -> [$batch*12, -1, 64]

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// A tensor whose elements are known, as numbers or as integer expressions over symbols and scalars (row-major).
struct KnownContents {
    DType dtype = DType::I64;
    Shape shape;
    std::variant<Tensor, std::vector<Expr>> elements;
};

/// The contents of the tensor of type `out` and shape `out_shape` that `expr` computes from `operands` (in the order
/// of its accesses). None if an element is not an integer expression, depends on a comparison that the provers cannot
/// decide, or is too long (expr_size.h), or if the work exceeds `limit` points. Every element returned holds for all
/// values of the scalars and all values >= 1 of the symbols, as long as no 64-bit (or, for 32-bit types, 32-bit)
/// arithmetic over dimensions overflows.
std::optional<std::vector<Expr>> evaluate_symbolic(const TensorExpr& expr, std::span<const KnownContents> operands,
                                                   DType out, std::span<const int64_t> out_shape,
                                                   int64_t limit = 1 << 16);

}  // namespace tilewright
