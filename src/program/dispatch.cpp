#include "program/dispatch.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright {

namespace {

size_t cell_of(const std::vector<int64_t>& cuts, int64_t size) {
    return static_cast<size_t>(std::upper_bound(cuts.begin(), cuts.end(), size) - cuts.begin());
}

/// "seq < 48", "48 <= seq < 400", "400 <= seq"
std::string range_text(const std::string& key, const std::vector<int64_t>& cuts, size_t cell) {
    if (cuts.empty()) return {};
    if (cell == 0) return fmt::format("{} < {}", key, cuts[0]);
    if (cell == cuts.size()) return fmt::format("{} <= {}", cuts.back(), key);
    return fmt::format("{} <= {} < {}", cuts[cell - 1], key, cuts[cell]);
}

}  // namespace

size_t Dispatch::cells() const {
    size_t n = 1;
    for (const auto& c : cuts) n = std::min(n, table.size() + 1) * (c.size() + 1);
    return std::min(n, table.size() + 1);
}

uint32_t Dispatch::choose(const std::function<int64_t(Expr)>& value) const {
    size_t cell = 0;
    for (size_t k = 0; k < keys.size(); ++k) cell = cell * (cuts[k].size() + 1) + cell_of(cuts[k], value(keys[k]));
    const uint32_t way = table[cell];
    const bool legal = std::all_of(needs[way].begin(), needs[way].end(), [&](Expr e) { return value(e) >= 0; });
    return legal ? way : otherwise;
}

std::string Dispatch::print() const {
    std::string text;
    for (size_t cell = 0; cell < table.size(); ++cell) {
        if (cell > 0) text += "; ";
        size_t rest = cell, below = table.size();
        std::string where;
        for (size_t k = 0; k < keys.size(); ++k) {
            below /= cuts[k].size() + 1;
            const std::string range = range_text(keys[k].text(), cuts[k], rest / below);
            rest %= below;
            where += (where.empty() || range.empty() ? "" : ", ") + range;
        }
        text += fmt::format("{}{}way {}", where, where.empty() ? "" : ": ", table[cell]);
    }
    for (size_t w = 0; w < needs.size(); ++w)
        for (const Expr e : needs[w])
            text += fmt::format("; way {} only if {} >= 0, else way {}", w, e.text(), otherwise);
    return text;
}

std::vector<std::string> Dispatch::faults() const {
    std::vector<std::string> out;
    if (cuts.size() != keys.size())
        out.push_back(fmt::format("{} keys have {} lists of cuts", keys.size(), cuts.size()));
    for (const auto& c : cuts)
        if (std::adjacent_find(c.begin(), c.end(), std::greater_equal<>()) != c.end())
            out.emplace_back("cuts of a dispatch table are not ascending");
    if (table.size() != cells())
        out.push_back(fmt::format("a dispatch table of {} cells does not fit its cuts", table.size()));
    for (const uint32_t w : table)
        if (w >= needs.size()) out.push_back(fmt::format("a dispatch table names way {} of {}", w, needs.size()));
    if (otherwise >= needs.size())
        out.push_back(fmt::format("a dispatch falls back to way {} of {}", otherwise, needs.size()));
    else if (!needs[otherwise].empty())
        out.push_back(fmt::format("way {}, to which a dispatch falls back, has needs", otherwise));
    return out;
}

}  // namespace tilewright
