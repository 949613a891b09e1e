#include "orchestrate/tuned_schedules.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace tilewright {

namespace {

/// Takes a number and the character `end` from the front of `text`.
template <class Number>
std::optional<Number> take_number(std::string_view& text, char end) {
    Number n{};
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || stop == text.data() + text.size() || *stop != end) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(stop - text.data()) + 1);
    return n;
}

std::optional<std::string_view> take_bytes(std::string_view& text, size_t count) {
    if (text.size() < count) return std::nullopt;
    const std::string_view out = text.substr(0, count);
    text.remove_prefix(count);
    return out;
}

std::optional<TileProgram> legal_program(std::string_view text) try {
    TileProgram program = parse_tile_program(text);
    return verify(program).empty() ? std::optional(std::move(program)) : std::nullopt;
} catch (const ModelError&) {
    return std::nullopt;
}

}  // namespace

const TunedSchedule* TunedSchedules::find(const std::string& kernel) const {
    const auto it = all_.find(kernel);
    return it == all_.end() ? nullptr : &it->second;
}

std::string TunedSchedules::print() const {
    std::string text;
    for (const auto& [kernel, schedule] : all_) {
        const std::string program = tilewright::print(schedule.program);
        text += fmt::format("{} {} {} {}\n{}{}", kernel.size(), program.size(), schedule.seconds, schedule.source,
                            kernel, program);
    }
    return text;
}

std::optional<TunedSchedules> TunedSchedules::parse(std::string_view text) {
    TunedSchedules out;
    while (!text.empty()) {
        const auto kernel_bytes = take_number<size_t>(text, ' ');
        const auto program_bytes = kernel_bytes ? take_number<size_t>(text, ' ') : std::nullopt;
        const auto seconds = program_bytes ? take_number<double>(text, ' ') : std::nullopt;
        const size_t line = text.find('\n');
        if (!seconds || !std::isfinite(*seconds) || *seconds < 0 || line == std::string_view::npos) return std::nullopt;
        const std::string source(text.substr(0, line));
        text.remove_prefix(line + 1);
        const auto kernel = take_bytes(text, *kernel_bytes);
        const auto program = kernel ? take_bytes(text, *program_bytes) : std::nullopt;
        auto legal = program ? legal_program(*program) : std::nullopt;
        if (!legal) return std::nullopt;
        out.set(std::string(*kernel), {*std::move(legal), *seconds, source});
    }
    return out;
}

}  // namespace tilewright
