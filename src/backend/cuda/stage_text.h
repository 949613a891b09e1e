#pragma once
// One statement of a tile program as C++ that all threads of a block run: a Compute, or the copy of a Load or Store.
//
// A thread's register tile is a nest of short loops that the compiler unrolls. Every value is computed once per
// combination of the register coordinates that it depends on: for a product with registers m=8 n=4
//
//     for i_m < 8: a[i_m] = s_a[...]
//     for i_n < 4: b[i_n] = s_b[...]
//     for i_m < 8: for i_n < 4: c[i_m][i_n] = tw::fused(a[i_m], b[i_n], c[i_m][i_n])
//
// On matrix instructions (Micro::matrix) the operands' values are rounded and packed into words, two halves each, as
// the instruction takes them; stage_matrix.cpp.
//
// Points of a tile beyond the current range are computed clamped to its last point and not written (DietCode §4.3's
// local padding: no predicate where a Load has filled the whole tile).

#include <string>
#include <vector>

#include "backend/cuda/variables.h"
#include "backend/cuda/writer.h"
#include "tile/gpu_points.h"

namespace tilewright::cuda {

using gpu::AxisRange;
using gpu::Partition;
using gpu::Place;
using gpu::Spread;
using gpu::StageJob;

/// Appends the statement, as the annotations of its micro-kernel have it. Throws InternalError where they are missing
/// or cannot be followed, and where partial sums are kept in another type than their own. `begun`: what the statement
/// adds up in the registers of its result is the identity before the first part of the reduction. `early`: takes what
/// says where the statement writes to memory, in front of loops that stand before it; null: it stands with the rest.
void emit_stage(Writer& out, Variables& variables, const StageJob& job, bool begun = false, Writer* early = nullptr);

/// "const Type name[8][4]" without initialiser, for the extents that are not 1.
std::string array_declaration(const std::string& type, const std::string& name, const std::vector<int64_t>& extents);

}  // namespace tilewright::cuda
