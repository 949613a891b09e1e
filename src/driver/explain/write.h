#pragma once
// A report as text, as JSON and as a page.

#include <string>
#include <vector>

#include "driver/explain/report.h"

namespace tilewright::explain {

/// For people: within 120 columns where names allow. The `most` kernels that take longest, in full.
std::string print(const Report& report, size_t most);

/// Times are measured where they were, else estimated. Of a greedy plan what the binary program is concerned with is 0,
/// and `blp_status` "none".
std::string to_json(const Report& report);

/// What the page shows of a kernel's code.
struct CodeText {
    std::string tiles, assembly;
};

/// Of each of the model's different kernels. `assembly`: false omits the machine code.
std::vector<CodeText> codes_of(const CompiledModel& model, bool assembly);

/// One file that needs nothing else: the primitives, with kernels as coloured boxes around them, and a bar for each
/// kernel's time beside its limit; pointing at them shows the rest. `codes`: of each of the different kernels.
std::string to_page(const Report& report, const std::vector<CodeText>& codes);

}  // namespace tilewright::explain
