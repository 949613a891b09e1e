#pragma once

namespace tilewright {

/// What made the code that was measured. Raise it with every change after which a kernel of the same text may run
/// faster or slower, or be right where it was wrong: in code generation (src/backend/cpu/), in the meaning of a tile
/// program (src/tile/tile.h), in how kernels are run (the share-out of tasks, the placing of operands), in how
/// measurements are taken (src/tune/measure.h), or in the canonical text (src/tune/canonical.h). Also with another
/// release of LLVM. Schedulers have no part in it: what they choose is remembered under their own name and options.
///
/// Records of other versions stay in the database and are not found; `tilewright db prune` removes them.
inline constexpr int kGeneratorVersion = 9;

}  // namespace tilewright
