#include "base/suggest.h"

#include <algorithm>
#include <numeric>

namespace tilewright {

namespace {

/// The Levenshtein distance.
size_t edits(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < a.size(); ++i) {
        size_t diagonal = row[0]++;
        for (size_t j = 0; j < b.size(); ++j) {
            const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

}  // namespace

std::vector<std::string> closest_names(std::string_view wanted, const std::vector<std::string>& names) {
    std::vector<std::string> containing, closest;
    size_t best = 3;  // names with more edits are not suggested
    for (const std::string& name : names) {
        if (name.find(wanted) != std::string::npos) containing.push_back(name);
        const size_t n = edits(wanted, name);
        if (n < best) closest.clear();
        if (n <= best) closest.push_back(name);
        best = std::min(best, n);
    }
    return containing.empty() ? closest : containing;
}

}  // namespace tilewright
