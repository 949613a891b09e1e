#pragma once

#include "program/program.h"

namespace tilewright {

struct FoldOptions {
    int64_t work = int64_t{1} << 26;        ///< points x body nodes of one primitive
    int64_t total_work = int64_t{1} << 30;  ///< of all together
    int64_t growth = 4;                     ///< a folded result is at most this many times its operands' bytes,
    int64_t slack = int64_t{1} << 20;       ///< plus this many
    /// False: what would be folded is found, but not computed. New constants are marked unread (Program::unread), what
    /// is unread counts as known, and scalars and opaque operators are left alone.
    bool contents = true;
};

/// The program with what depends on constants alone computed: primitives become constants, reads of scalars from
/// constants become numbers everywhere. A primitive stays where its result would only spread numbers out (a broadcast,
/// a fill): its consumers read less memory without. Nested programs likewise. What a fold leaves unneeded is removed.
Program fold_constants(const Program& program, const FoldOptions& options = {});

}  // namespace tilewright
