#pragma once
// Products with few columns, for matrix instructions of CPUs.

#include "orchestrate/f32_products.h"
#include "program/program.h"

namespace tilewright {

/// Pads the weights of products in f32 with too few output channels for a tile register with zeros, to the columns of
/// one, where the sum has runs of input channels and there are many rows. The result is computed beside the padding,
/// and what it is used for becomes an expression of its own:
///
///     y[o,h,w] = sum(c < 32, i < 9, j < 9) x[c, h + i, w + j] * v[o,c,i,j] then acc + b[o], o < 3
///  -> p[o,h,w] = sum(c < 32, i < 9, j < 9) x[c, h + i, w + j] * v'[o,c,i,j], o < 16;   y[o,h,w] = p[o,h,w] + b[o]
Program pad_columns(Program program, const ProductFilter& may = {});

}  // namespace tilewright
