#pragma once
// A report as text, as JSON and as a page.

#include <string>
#include <vector>

#include "driver/explain/report.h"

namespace tilewright::explain {

/// The report as text, within 120 columns as far as names allow. The `most` kernels with the longest times are
/// described in full.
std::string print(const Report& report, size_t most);

/// The report as JSON. Times are measured where known, else estimated. For a greedy plan, values of the binary program
/// are 0, and `blp_status` is "none".
std::string to_json(const Report& report);

/// The code of a kernel for the page.
struct CodeText {
    std::string tiles, assembly;
};

/// The code of each distinct kernel of the model. `assembly`: false omits the machine code.
std::vector<CodeText> codes_of(const CompiledModel& model, bool assembly);

/// The report as a self-contained HTML page: primitives inside coloured boxes of their kernels, and a bar for each
/// kernel's time and limit, with details on hover. `codes`: of each distinct kernel.
std::string to_page(const Report& report, const std::vector<CodeText>& codes);

}  // namespace tilewright::explain
