#include "compile/pass.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace tilewright {

namespace {

bool has(const std::vector<std::string>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Passes::Passes(const PassOptions& options, std::vector<std::string> skip, Subject subject, PassRange range)
    : options_(options),
      skip_(std::move(skip)),
      subject_(std::move(subject)),
      range_(range),
      begun_(range.first.empty()),
      lists_(false) {}

Passes::Passes() : begun_(true), lists_(true) {}

void Passes::operator()(const PassInfo& pass, const std::function<void()>& run) {
    infos_.push_back(pass);
    if (lists_) return;
    begun_ = begun_ || pass.name == range_.first;
    if (!begun_ || ended_) return;
    ended_ = pass.name == range_.last;
    if (!pass.on || (has(skip_, pass.name) && !pass.required)) return;
    if (options_.progress) options_.progress(std::string(pass.name));
    if (options_.print_before_all || has(options_.print_before, pass.name)) print("before " + std::string(pass.name));
    const double start = now_ms();
    run();
    times_.push_back({std::string(pass.name), now_ms() - start});
    if (options_.after) options_.after(std::string(pass.name), subject_.result());
    if (options_.verify_each) {
        const std::vector<std::string> faults = subject_.faults();
        TW_CHECK(faults.empty(), "after {}: {}", pass.name, faults[0]);
    }
    if (options_.print_after_all || has(options_.print_after, pass.name)) print("after " + std::string(pass.name));
}

void Passes::print(const std::string& when) {
    std::string text = subject_.text();
    options_.print(when, text == printed_ ? "(unchanged)\n" : text);
    printed_ = std::move(text);
}

}  // namespace tilewright
