#pragma once
// Expressions that are freed: for work on index maps while a model runs.

#include <cstddef>
#include <functional>

namespace tilewright {

/// Runs `work` in a thread of its own and waits for it. Expressions that it makes, and that did not exist before, are
/// freed behind it: none of them may be left in what it returns. Its exceptions are thrown here.
void with_temporary_exprs(const std::function<void()>& work);

/// How many expressions live as long as the process. (Counted one by one.)
size_t interned_exprs();

}  // namespace tilewright
