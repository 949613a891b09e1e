#pragma once

#include "program/program.h"

namespace tilewright {

struct FoldOptions {
    int64_t work = int64_t{1} << 26;        ///< points x body nodes of one primitive
    int64_t total_work = int64_t{1} << 30;  ///< limit for all primitives together
    int64_t growth = 4;                     ///< a folded result has at most this many times its operands' bytes,
    int64_t slack = int64_t{1} << 20;       ///< plus this many
    /// False: foldable values are determined but not computed. New constants are marked unread (Program::unread),
    /// unread constants count as known, and scalars and opaque operators are not folded.
    bool contents = true;
};

/// Constant folding: primitives that depend only on constants become constants, and reads of scalars from constants
/// become numbers everywhere. A primitive stays if its result would only repeat numbers (a broadcast, a fill), because
/// its consumers read less memory without it. Nested programs likewise. Primitives that become dead are removed.
Program fold_constants(Program program, const FoldOptions& options = {});

}  // namespace tilewright
