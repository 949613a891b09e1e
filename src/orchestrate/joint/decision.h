#pragma once
// What tune_layouts has chosen, from which it makes the same layouts again.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrate/joint/layout_options.h"

namespace tilewright::joint {

/// Of one program.
struct Decision {
    std::vector<Proposal> proposals;
    std::vector<size_t> chosen;  ///< candidates of the LayoutChoice of these proposals; none: the heuristic's layouts
};

/// A line for each decision: value, gain, whether it is a result, and layout of each proposal; then the candidates.
///     12 0x1.8p-14 1 split(1, 16) reorder(0, 1, 3, 2)|9 0x1p-15 0 reorder(1, 0); 0 4 7
std::string print(const std::vector<Decision>& decisions);
/// Nothing if the text is not of that form.
std::optional<std::vector<Decision>> parse_decisions(std::string_view text);

}  // namespace tilewright::joint
