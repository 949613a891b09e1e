#pragma once

namespace tilewright {

/// The version of the code generator that produced the measured code. Increment it with every change after which a
/// kernel of the same text may be faster or slower, or become correct: in code generation (src/backend/cpu/), in the
/// semantics of a tile program (src/tile/tile.h), in how kernels are run (distribution of tasks, placement of
/// operands), in how measurements are taken (src/tune/measure.h), in the canonical text (src/tune/canonical.h), or in
/// the release of LLVM. Changes of schedulers do not count: their choices are stored under their own name and options.
///
/// Records of other versions stay in the database and are not found; `tilewright db prune` removes them.
inline constexpr int kGeneratorVersion = 19;

}  // namespace tilewright
