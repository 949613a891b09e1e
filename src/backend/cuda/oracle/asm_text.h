#pragma once
// The asm statements of a preprocessed C++ text, as calls.

#include <string>
#include <vector>

namespace tilewright::cuda::oracle {

/// Statement k becomes a call of run(k, operands...), in which each operand keeps its constraint and its expression:
///
///     asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
///     tw_asm::run(7, tw_asm::in("n", open));
///
/// Outputs become tw_asm::out("=r", place). Clobbers are dropped. Throws InternalError for a statement of another form.
struct AsmText {
    std::string text;                     ///< with the calls
    std::vector<std::string> statements;  ///< the template of each, as the assembler reads it
};
AsmText with_calls(const std::string& preprocessed);

}  // namespace tilewright::cuda::oracle
