// The innermost level of one expression by the default heuristic.

#include "schedule/default/steps.h"

namespace tilewright {

namespace {

/// Puts all rows and columns of a linear transform into the register tile, where its weights are known. Vectors are
/// innermost, so that every row is written contiguously.
void hold_transform(const TensorExpr& e, const ConstantTransform& transform, size_t vector, int lanes, Micro& micro) {
    micro.vector_axis = vector;
    micro.lanes = lanes;
    micro.registers[vector] = lanes;
    for (size_t k = 0; k < transform.rows.size(); ++k) micro.registers[transform.rows[k]] = transform.row_extents[k];
    for (size_t k = 0; k < transform.columns.size(); ++k)
        micro.registers[transform.columns[k]] = transform.column_extents[k];
    for (size_t a = 0; a < e.spatial; ++a)
        if (a != vector) micro.order.push_back(a);
    micro.order.push_back(vector);
    for (size_t a = e.spatial; a < e.extents.size(); ++a) micro.order.push_back(a);
}

}  // namespace

StageChoice choose_micro(const Program& stages, const TensorExpr& e, DType out, const Target& target) {
    const OperandWalks walks(stages, e, out, target);
    StageChoice choice;
    Micro& micro = choice.micro;
    micro.registers.assign(e.extents.size(), 1);
    micro.virtual_threads.assign(e.extents.size(), 1);
    if (const auto transform = constant_transform(e))
        if (const auto vector = transform_vector_axis(walks, *transform)) {
            hold_transform(e, *transform, *vector, target.micro_lanes(), micro);
            return choice;
        }
    if (choose_tile_micro(walks, choice) || choose_dot_micro(walks, choice)) return choice;
    micro.vector_axis = choose_vector_axis(walks);
    micro.lanes = micro.vector_axis ? target.micro_lanes() : 1;
    choose_register_tile(walks, choice);
    unroll_windows(walks, choice);
    choose_loop_order(walks, choice);
    if (choice.contraction) choice.loads = choose_loads(walks, *micro.vector_axis);
    return choice;
}

}  // namespace tilewright
