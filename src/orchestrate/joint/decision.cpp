#include "orchestrate/joint/decision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>
#include <sstream>

#include "base/error.h"

namespace tilewright::joint {

namespace {

std::optional<Proposal> parse_proposal(const std::string& text) {
    std::istringstream in(text);
    uint32_t value = 0;
    std::string gain;
    bool result = false;
    if (!(in >> value >> gain >> result)) return std::nullopt;
    Proposal out{ValueId(value), {}, 0, result};
    char* end = nullptr;
    out.gain = std::strtod(gain.c_str(), &end);
    if (end == gain.c_str() || *end != 0) return std::nullopt;
    std::string layout;
    std::getline(in >> std::ws, layout);
    try {
        out.layout = parse_layout(layout);
    } catch (const ModelError&) {
        return std::nullopt;
    }
    return out;
}

std::optional<Decision> parse_decision(const std::string& line) {
    const size_t semicolon = line.find(';');
    if (semicolon == std::string::npos) return std::nullopt;
    Decision out;
    std::istringstream proposals(line.substr(0, semicolon));
    for (std::string text; std::getline(proposals, text, '|');) {
        auto proposal = parse_proposal(text);
        if (!proposal) return std::nullopt;
        out.proposals.push_back(*std::move(proposal));
    }
    std::istringstream chosen(line.substr(semicolon + 1));
    for (std::string word; chosen >> word;) {
        size_t candidate = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), candidate);
        if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
        out.chosen.push_back(candidate);
    }
    return out;
}

}  // namespace

std::string print(const std::vector<Decision>& decisions) {
    std::string out;
    for (const Decision& d : decisions) {
        std::vector<std::string> proposals;
        for (const Proposal& p : d.proposals)
            proposals.push_back(fmt::format("{} {:a} {:d} {}", p.value.value, p.gain, p.result, print(p.layout)));
        out +=
            fmt::format("{};{}{}\n", fmt::join(proposals, "|"), d.chosen.empty() ? "" : " ", fmt::join(d.chosen, " "));
    }
    return out;
}

std::optional<std::vector<Decision>> parse_decisions(std::string_view text) {
    std::vector<Decision> out;
    std::istringstream in{std::string(text)};
    for (std::string line; std::getline(in, line);) {
        auto decision = parse_decision(line);
        if (!decision) return std::nullopt;
        out.push_back(*std::move(decision));
    }
    return out;
}

}  // namespace tilewright::joint
