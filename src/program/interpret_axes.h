#pragma once
// The iteration axes of the interpreter's plan, dropped, merged and split. Internal to the interpreter.

#include <cstddef>

#include "program/interpret_plan.h"

namespace tilewright::interp {

/// Removes unit axes, and merges axes that every form uses as one: i0, i1 in i0 * extent(i1) + i1.
void simplify_axes(Plan& plan);
/// Makes a spatial axis of one point the first axis.
void insert_unit_axis(Plan& plan);
/// Makes axis k the last one.
void move_last(Plan& plan, size_t k);
/// Splits every axis that a register divides by a factor of its extent into an outer and an inner axis, so that forms
/// which read such registers become affine. Divisions that are not affine then stay. Returns whether it split any.
///     i0 // 16, i0 % 16, i0 < 64   ->   i0, i1,   i0 < 4, i1 < 16
bool split_axes(Plan& plan);

}  // namespace tilewright::interp
