#pragma once
// Kernels without their names: what the tuning database knows them by.
//
// A kernel's text here is print()'s with every name replaced by its place: values v0, v1, ... (inputs, constants,
// results in the order of the primitives), kernel axes a0, a1, ..., symbols and scalars s0, s1, ... in the order in
// which shapes, extents and indices first mention them; names and sources of primitives are left out. So two kernels
// that differ in names alone have one text, and whatever decides what code is made or how fast it runs is in it: shapes
// (physical, hence layouts), types, index maps, conditions, bodies, reducers, order of operands.
//
// The converse does not hold: equal kernels that list their stages or operands in another order have two texts, and are
// measured twice.

#include <string>
#include <string_view>

#include "tile/tile.h"

namespace tilewright {

/// The stages of a kernel: tensor expressions alone (InternalError for anything else).
std::string canonical_text(const Program& stages);
/// Stages and tree; parse_tile_program reads it, and its text is itself again.
std::string canonical_text(const TileProgram& program);

/// The kernel with the names that its canonical text has.
TileProgram with_canonical_names(const TileProgram& program);

/// The tree alone, without the stages: how a kernel of the text canonical_text(stages) is scheduled.
std::string schedule_text(const TileProgram& program);
/// The inverse: the kernel `stages`, with its own names, scheduled as `schedule` says. Throws ModelError where the text
/// cannot be read or names what these stages do not have; where the schedule is not legal for them, with what verify()
/// says.
TileProgram with_schedule(const Program& stages, std::string_view schedule);

/// "s0=128 s1=4": the numbers of the kernel's symbols and scalars, in canonical order. Empty where it has none. Throws
/// InternalError naming one that `bindings` does not have.
std::string canonical_sizes(const Program& stages, const Bindings& bindings);

}  // namespace tilewright
