// The micro-kernel of a product by dot products.

#include "cost/cycle_rates.h"
#include "schedule/default/matrix_axes.h"
#include "schedule/default/product_tile.h"
#include "schedule/default/steps.h"
#include "tile/matrix.h"

namespace tilewright {

bool choose_dot_micro(const OperandWalks& w, StageChoice& choice) {
    const Target& target = w.target;
    if (target.gpu || !(target.bf16_dots() || target.f16_sums() || target.byte_dots())) return false;
    const auto axes = matrix_axes(w, MatrixForm::Dot);
    if (!axes) return false;
    const bool bytes = axes->unit.type == MatrixType::I8, f16 = axes->unit.type == MatrixType::F16;
    if (!(bytes ? target.byte_dots() : f16 ? target.f16_sums() : target.bf16_dots())) return false;
    const OperandWalk& left = w.walks[axes->slots.left];
    ProductShape shape;
    shape.vectors = (w.extent(axes->unit.columns) + axes->lanes - 1) / axes->lanes;
    shape.rows = w.extent(axes->unit.rows);
    shape.stride = left.stride(axes->unit.rows).value_or(0);
    shape.element_bytes = bytes ? 1 : 2;
    if (!bytes && !f16) shape.latency = kDotLatency;
    if (f16) shape.spare = 1;
    shape.words = bytes && !target.byte_dot_instructions();
    shape.steps = w.sum_points() / static_cast<double>(dot_step(axes->unit.type));
    if (axes->outer_rows) {
        shape.outer_rows = w.extent(*axes->outer_rows);
        shape.outer_stride = left.stride(*axes->outer_rows).value_or(0);
    }
    const ProductTile tile = choose_product_tile(shape, target);
    std::vector<int64_t>& registers = choice.micro.registers;
    registers[axes->unit.columns] = tile.columns * axes->lanes;
    registers[axes->unit.rows] = tile.rows;
    if (axes->outer_rows) registers[*axes->outer_rows] = tile.outer_rows;
    finish_matrix_micro(w, *axes, choice);
    return true;
}

}  // namespace tilewright
