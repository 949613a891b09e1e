// The micro-kernel of a product by dot products.

#include "cost/cycle_rates.h"
#include "schedule/default/matrix_axes.h"
#include "schedule/default/product_tile.h"
#include "schedule/default/steps.h"

namespace tilewright {

bool choose_dot_micro(const OperandWalks& w, StageChoice& choice) {
    if (w.target.gpu || (!w.target.bf16_dots() && !w.target.byte_dots())) return false;
    const auto axes = matrix_axes(w, MatrixForm::Dot);
    if (!axes) return false;
    const bool bytes = axes->unit.type == MatrixType::I8;
    if (bytes ? !w.target.byte_dots() : !w.target.bf16_dots()) return false;
    const OperandWalk& left = w.walks[axes->slots.left];
    ProductShape shape;
    shape.vectors = (w.extent(axes->unit.columns) + axes->lanes - 1) / axes->lanes;
    shape.rows = w.extent(axes->unit.rows);
    shape.stride = left.stride(axes->unit.rows).value_or(0);
    shape.element_bytes = bytes ? 1 : 2;
    if (!bytes) shape.latency = kDotLatency;
    shape.words = bytes && !w.target.byte_dot_instructions();
    shape.steps = w.sum_points() / static_cast<double>(axes->step);
    if (axes->outer_rows) {
        shape.outer_rows = w.extent(*axes->outer_rows);
        shape.outer_stride = left.stride(*axes->outer_rows).value_or(0);
    }
    const ProductTile tile = choose_product_tile(shape, w.target);
    std::vector<int64_t>& registers = choice.micro.registers;
    registers[axes->unit.columns] = tile.columns * axes->lanes;
    registers[axes->unit.rows] = tile.rows;
    if (axes->outer_rows) registers[*axes->outer_rows] = tile.outer_rows;
    finish_matrix_micro(w, *axes, choice);
    return true;
}

}  // namespace tilewright
