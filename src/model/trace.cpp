#include "model/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "base/clock.h"

namespace tilewright {

namespace {

/// The length of the valid UTF-8 sequence that the text begins with; 0: there is none.
size_t utf8_length(std::string_view text) {
    const auto byte = [&](size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U; };
    const unsigned first = byte(0);
    const size_t length = first < 0x80                    ? 1
                          : first >= 0xc2 && first < 0xe0 ? 2
                          : first >= 0xe0 && first < 0xf0 ? 3
                          : first >= 0xf0 && first < 0xf5 ? 4
                                                          : 0;
    for (size_t k = 1; k < length; ++k)
        if ((byte(k) & 0xc0U) != 0x80U) return 0;
    const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
    const bool none = (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
    return overlong || none ? 0 : length;
}

/// A JSON string; names of the model may hold any bytes.
std::string quoted(std::string_view text) {
    std::string out = "\"";
    while (!text.empty()) {
        const size_t length = utf8_length(text);
        const auto c = static_cast<unsigned char>(text[0]);
        if (length == 0)
            out += "\\ufffd";
        else if (length == 1 && (c < 32 || c == '"' || c == '\\'))
            out += fmt::format("\\u{:04x}", c);
        else
            out += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out + '"';
}

std::string event(std::string_view name, double start_us, double duration_us, const std::string& arguments) {
    return fmt::format(R"({{"name": {}, "ph": "X", "pid": {}, "tid": 1, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
                       quoted(name), ::getpid(), start_us, duration_us, arguments);
}

}  // namespace

std::vector<StepTime>* Trace::begin() {
    recording_ = steps_.size() < most_steps_;
    if (!recording_) ++left_out_;
    start_us_ = now_us();
    return recording_ ? &steps_ : nullptr;
}

void Trace::end(const std::vector<Tensor>& inputs) {
    if (!recording_) return;
    const double end_us = now_us();
    std::string text;
    for (const Tensor& t : inputs)
        text += fmt::format("{}{}{}", text.empty() ? "" : ", ", to_string(t.dtype()), to_string(t.shape()));
    runs_.push_back({start_us_, end_us - start_us_, std::move(text)});
}

std::string Trace::json() const {
    std::string out = "{\"traceEvents\": [";
    const char* separator = "\n";
    const auto add = [&](const std::string& text) {
        out += separator + text;
        separator = ",\n";
    };
    for (const Run& r : runs_) add(event("run", r.start_us, r.duration_us, "\"inputs\": " + quoted(r.inputs)));
    for (const StepTime& s : steps_)
        add(event(s.name, s.start_us, s.duration_us,
                  fmt::format(R"("kernel": {}, "gflops": {:.6g}, "bytes": {:.0f})", s.kernel,
                              s.duration_us > 0 ? s.flops / s.duration_us * 1e-3 : 0, s.bytes)));
    return fmt::format("{}\n], \"runsLeftOut\": {}}}\n", out, left_out_);
}

}  // namespace tilewright
