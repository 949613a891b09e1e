#pragma once
// Kernels without their names: the keys of the tuning database.
//
// The canonical text of a kernel is the output of print() with every name replaced by a number: values v0, v1, ...
// (inputs, constants, results in the order of the primitives), kernel axes a0, a1, ..., symbols and scalars s0, s1, ...
// in the order in which shapes, extents and indices first mention them; names and sources of primitives are omitted.
// Kernels that differ in names only have the same text. The text contains everything that determines the generated code
// and its speed: shapes (physical, hence layouts), types, index maps, conditions, bodies, reducers, order of operands.
//
// The converse does not hold: equal kernels with stages or operands in another order have different texts, and are
// measured separately.

#include <string>
#include <string_view>

#include "tile/tile.h"

namespace tilewright {

/// The stages of a kernel: tensor expressions only (InternalError for other primitives).
std::string canonical_text(const Program& stages);
/// Stages and tree. parse_tile_program reads it, and the canonical text of the result is the same.
std::string canonical_text(const TileProgram& program);

/// The kernel with the names of its canonical text.
TileProgram with_canonical_names(const TileProgram& program);

/// The tree without the stages: the schedule of a kernel whose text is canonical_text(stages).
std::string schedule_text(const TileProgram& program);
/// The inverse: the kernel `stages`, with its own names, scheduled by `schedule`. Throws ModelError if the text cannot
/// be parsed or refers to something that these stages do not have, and with the result of verify() if the schedule is
/// not legal for them.
TileProgram with_schedule(const Program& stages, std::string_view schedule);

/// "s0=128 s1=4": the values of the kernel's symbols and scalars, in canonical order. Empty without symbols. Throws
/// InternalError with a symbol that `bindings` does not have.
std::string canonical_sizes(const Program& stages, const Bindings& bindings);

}  // namespace tilewright
