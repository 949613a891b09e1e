#include "driver/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/plural.h"
#include "driver/inputs.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

std::string line(const TuneReport::Kernel& k) {
    const std::string calls =
        k.calls == k.tuned_calls ? std::to_string(k.calls) : fmt::format("{}->{}", k.calls, k.tuned_calls);
    std::string name = k.name.size() > 60 ? k.name.substr(0, 60) + "..." : k.name;
    if (k.chain) name = "chain: " + name;
    if (k.dropped) name += " (another schedule was faster alone, and slower in whole runs)";
    std::string candidates = std::to_string(k.tried);
    if (k.failed + k.wrong > 0) candidates += fmt::format(" ({} failed, {} wrong)", k.failed, k.wrong);
    return fmt::format("{:>6} {:>5.1f}% {:>11.2f} {:>11.2f} {:>5.1f}% {:>5.0f}%  {:<12}  {:>10}  {}\n", calls,
                       100 * k.share, 1e6 * k.initial, 1e6 * k.seconds, 100 * (1 - k.seconds / k.initial),
                       std::min(100.0, 100 * k.limit / k.seconds), to_string(k.source), candidates, name);
}

}  // namespace

std::string to_text(const TuneReport& r, const TunedModel& of) {
    std::string out =
        fmt::format("{}, {}: {} candidates of {} distinct kernels ({} failed, {} wrong, {} recalled) in {:.1f} s; {}\n",
                    of.name, plural(static_cast<size_t>(of.threads), "thread"), r.tried, r.kernels.size() + r.others,
                    r.failed, r.wrong, r.recalled, r.seconds, r.ended);
    if (!of.assumed.empty())
        out += fmt::format("sizes assumed in whole runs: {} (--dim NAME=SIZE, --input or --data set them)\n",
                           sizes_text(of.assumed));
    out += fmt::format("{:>6} {:>6} {:>11} {:>11} {:>6} {:>6}  {:<12}  {:>10}  {}\n", "calls", "share", "default us",
                       "tuned us", "gain", "limit", "schedule", "candidates", "computes");
    size_t untried = 0;
    double share = 0;
    for (const TuneReport::Kernel& k : r.kernels) {
        if (k.initial > 0 && k.seconds > 0) {
            out += line(k);
            continue;
        }
        ++untried;
        share += k.share;
    }
    if (untried > 0)
        out += fmt::format("not measured: {}, estimated at {:.1f} % of the time\n", plural(untried, "kernel"),
                           100 * share);
    if (r.others > 0) out += fmt::format("measured, and in neither plan: {}\n", plural(r.others, "kernel"));
    if (r.layouts.searched)
        out +=
            fmt::format("layouts: {}{}\n", r.layouts.kept ? "by measurements" : "as without tuning",
                        r.layouts.initial == 0 ? ", as an earlier tuning chose"
                                               : fmt::format(", whole runs {:.3f} ms by default, {:.3f} ms with them",
                                                             1e3 * r.layouts.initial, 1e3 * r.layouts.seconds));
    if (r.initial > 0)
        out += fmt::format("whole runs: {:.3f} ms by default, {:.3f} ms tuned ({:+.1f} %)\n", 1e3 * r.initial,
                           1e3 * r.tuned, 100 * (r.tuned / r.initial - 1));
    return out + (r.kept ? "the tuned plan is kept: --tuned, or the option `tuned`, uses it\n"
                         : fmt::format("nothing is gained, the default plan stays: {}\n", r.reason));
}

std::string to_json(const TuneReport& r, const TunedModel& of) {
    Json j = {{"model", of.name},       {"threads", of.threads},     {"budget", of.budget}, {"seconds", r.seconds},
              {"ended", r.ended},       {"candidates", r.tried},     {"failed", r.failed},  {"wrong", r.wrong},
              {"recalled", r.recalled}, {"assumed_dims", of.assumed}};
    const auto ms = [](double seconds) { return seconds > 0 ? Json(1e3 * seconds) : Json(); };
    const auto us = [](double seconds) { return seconds > 0 ? Json(1e6 * seconds) : Json(); };
    j["layouts"] =
        r.layouts.searched
            ? Json({{"kept", r.layouts.kept}, {"default_ms", ms(r.layouts.initial)}, {"ms", ms(r.layouts.seconds)}})
            : Json();
    j["others"] = r.others;
    j["default_ms"] = ms(r.initial);
    j["tuned_ms"] = ms(r.tuned);
    j["kept"] = r.kept;
    j["reason"] = r.reason;
    j["kernels"] = Json::array();
    for (const TuneReport::Kernel& k : r.kernels)
        j["kernels"].push_back({{"name", k.name},
                                {"chain", k.chain},
                                {"calls", k.calls},
                                {"tuned_calls", k.tuned_calls},
                                {"share", k.share},
                                {"default_us", us(k.initial)},
                                {"tuned_us", us(k.seconds)},
                                {"limit_us", us(k.limit)},
                                {"schedule", to_string(k.source)},
                                {"dropped", k.dropped},
                                {"candidates", k.tried},
                                {"failed", k.failed},
                                {"wrong", k.wrong}});
    return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const TuningState& s) {
    if (s.kernel.empty()) return "whole runs";
    std::string text = fmt::format("{} ({} candidates", s.kernel.substr(0, 40), s.tried);
    if (s.initial > 0) text += fmt::format("; {:.1f} us, by default {:.1f}", 1e6 * s.best, 1e6 * s.initial);
    text += ')';
    if (s.seconds_left > 0) text += fmt::format(", {:.0f} s left", std::ceil(s.seconds_left));
    return text;
}

}  // namespace tilewright
