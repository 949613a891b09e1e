#include "orchestrate/optimal/pricing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"
#include "orchestrate/options.h"
#include "tune/canonical.h"

namespace tilewright::optimal {

namespace {

using Kind = KernelMaker::Kind;

/// Seconds with a launch; infinite if the kernel cannot run.
double with_launch(double seconds) {
    return seconds < 0 ? std::numeric_limits<double>::infinity() : seconds + kKernelSeconds;
}

}  // namespace

std::map<size_t, size_t> equal_kernels(const KernelMaker& maker) {
    std::map<size_t, size_t> equal;
    std::unordered_map<std::string, size_t> first;
    for (size_t number = 0; number < maker.size(); ++number) {
        if (maker[number].kernels.empty()) continue;
        std::string text;
        for (const ScheduledKernel& one : maker[number].kernels) {
            text += canonical_text(one.tiles);
            for (const bool weight : one.weights) text += weight ? '1' : '0';
        }
        equal[number] = first.try_emplace(std::move(text), number).first->second;
    }
    return equal;
}

size_t count_distinct(const std::map<size_t, size_t>& equal) {
    return static_cast<size_t>(
        std::count_if(equal.begin(), equal.end(), [](const auto& e) { return e.first == e.second; }));
}

double low_ratio(std::vector<double> kind, std::vector<double> all) {
    std::vector<double>& x = kind.empty() ? all : kind;
    if (x.empty()) return 1;
    std::sort(x.begin(), x.end());
    const bool told = !kind.empty() && kind.size() >= kTellingKernels;
    return told && x[0] > 1 ? x[0] : std::min(1.0, x[x.size() / 4]);
}

class Pricing::Impl {
  public:
    Impl(std::vector<PieceSearch*> searches, std::map<size_t, size_t> equal, const KernelMaker& maker,
         Schedules& schedules, const OrchestrateOptions& options, OrchestrationReport& report)
        : searches_(std::move(searches)),
          maker_(maker),
          schedules_(schedules),
          options_(options),
          report_(report),
          others_enough_(report.measured_enough),
          equal_(std::move(equal)) {}

    void solve() {
        TW_CHECK(schedules_.costs().measures_kernels(),
                 "measured costs requested, but KernelCosts cannot measure kernels");
        const double begin = now_seconds();
        const bool everything = options_.optimal.profile == Profile::Full;
        most_ = everything
                    ? SIZE_MAX
                    : static_cast<size_t>(options_.optimal.most_measured * static_cast<double>(count_distinct(equal_)));
        std::set<size_t> all;
        for (const PieceSearch* s : searches_) {
            for (const PieceKernel& k : s->kernels()) all.insert(one(k));
            for (const size_t k : s->start()) first_.insert(one(s->kernels()[k]));
        }
        measure(first_);
        low_ = low_ratios(first_);
        for (const size_t k : first_) all.erase(k);
        everything ? measure(all) : recall(all);
        solve_all();
        report_.measure_ms += 1e3 * (now_seconds() - begin);
    }

    bool solve_without_refused() {
        bool changed = false;
        for (auto& [k, seconds] : seconds_) {
            const double now = seconds_of(k);
            changed = changed || now != seconds;
            seconds = now;
        }
        if (!changed) return false;
        const double begin = now_seconds();
        solve_all();
        report_.measure_ms += 1e3 * (now_seconds() - begin);
        return true;
    }

  private:
    void solve_all() {
        const size_t before = run_;
        enough_ = true;
        price();
        while (round(most_)) {
        }
        // Among plans of equal cost, select the one that a compilation with the present database selects, because the
        // decisions of whole runs are kept under its key.
        if (run_ > before) {
            enough_ = true;
            price();
            while (round(most_)) {
            }
        }
        report_.measured_enough = others_enough_ && enough_;
        report_.undercut -= undercut_;
        undercut_ = 0;
        for (const auto& [k, seconds] : seconds_) undercut_ += first_.count(k) == 0 && seconds < least(k) ? 1 : 0;
        report_.undercut += undercut_;
    }

    size_t one(const PieceKernel& k) const { return equal_.at(k.answer.kernel); }

    /// Restarts every search with all known costs.
    void price() {
        for (PieceSearch* s : searches_)
            s->price([&](const PieceKernel& k) -> PieceSearch::Price {
                const auto it = seconds_.find(one(k));
                if (it != seconds_.end()) return {it->second, true};
                return {least(one(k)), false};
            });
    }

    /// The assumed lower bound of an unmeasured kernel.
    double least(size_t kernel) const {
        const KernelMaker::Made& made = maker_[kernel];
        return std::max(made.at_least, low_.at(made.kind) * made.seconds);
    }

    /// One round of measurements. False if no search lists kernels, or the limit is reached.
    bool round(size_t most) {
        std::vector<std::pair<PieceSearch*, std::vector<size_t>>> wanted;
        std::set<size_t> kernels;
        for (PieceSearch* s : searches_) {
            std::vector<size_t> which = s->next();
            // Kernels that other pieces requested are known already.
            while (!which.empty() && known(*s, which)) {
                tell(*s, which);
                which = s->next();
            }
            for (const size_t k : which)
                if (seconds_.count(one(s->kernels()[k])) == 0) kernels.insert(one(s->kernels()[k]));
            if (!which.empty()) wanted.emplace_back(s, std::move(which));
        }
        if (wanted.empty()) return false;
        const size_t room = most - std::min(most, seconds_.size());
        if (kernels.size() > room) {
            // The most expensive kernels have the largest effect.
            std::vector<size_t> dearest(kernels.begin(), kernels.end());
            std::stable_sort(dearest.begin(), dearest.end(), [&](size_t a, size_t b) { return least(a) > least(b); });
            kernels = std::set<size_t>(dearest.begin(), dearest.begin() + static_cast<std::ptrdiff_t>(room));
        }
        if (room == 0) {
            enough_ = false;
            for (PieceSearch* s : searches_) {
                tell_all(*s);
                s->stop();
            }
            return false;
        }
        measure(kernels);
        for (auto& [s, which] : wanted) tell_all(*s);
        return true;
    }

    bool known(const PieceSearch& s, const std::vector<size_t>& which) const {
        return std::all_of(which.begin(), which.end(),
                           [&](size_t k) { return seconds_.count(one(s.kernels()[k])) != 0; });
    }

    /// Passes all known costs to the search, including those that it did not request.
    void tell_all(PieceSearch& s) {
        std::vector<size_t> which;
        for (size_t k = 0; k < s.kernels().size(); ++k)
            if (!s.kernels()[k].known && seconds_.count(one(s.kernels()[k])) != 0) which.push_back(k);
        tell(s, which);
    }

    void tell(PieceSearch& s, const std::vector<size_t>& which) {
        std::vector<double> costs;
        costs.reserve(which.size());
        for (const size_t k : which) costs.push_back(seconds_.at(one(s.kernels()[k])));
        s.tell(which, costs);
    }

    void measure(const std::set<size_t>& kernels) {
        OrchestrationProgress progress;
        progress.done = seconds_.size();
        progress.total = seconds_.size() + kernels.size();
        for (const size_t k : kernels) {
            const KernelMaker::Made& made = maker_[k];
            progress.what = describe(made);
            progress.measured = report_.measured - report_.remembered;
            if (run_ > 0)
                progress.seconds_left =
                    run_seconds_ / static_cast<double>(run_) * static_cast<double>(progress.total - progress.done);
            if (options_.watch) options_.watch(progress);
            const double begin = now_seconds();
            const Measured measured = run(k);
            ++progress.done;
            seconds_[k] = measured.asked ? seconds_of(k) : made.seconds;
            if (!measured.asked) continue;
            if (!measured.remembered) {
                ++run_;
                run_seconds_ += now_seconds() - begin;
            }
            ++report_.measured;
            report_.remembered += measured.remembered ? 1 : 0;
        }
    }

    /// Earlier measurements are costs before the first solution.
    void recall(const std::set<size_t>& kernels) {
        for (const size_t k : kernels) {
            std::vector<MeasuredKernel> all;
            const KernelMaker::Made& made = maker_[k];
            const bool known = std::all_of(made.kernels.begin(), made.kernels.end(), [&](const ScheduledKernel& one) {
                const auto remembered = schedules_.recall(one.tiles, one.weights);
                if (remembered) all.push_back(*remembered);
                return remembered.has_value();
            });
            if (!known || made.kernels.empty()) continue;
            for (const MeasuredKernel& one : all) note(one);
            found_[k] = std::move(all);
            seconds_[k] = seconds_of(k);
            ++report_.measured;
            ++report_.remembered;
        }
    }

    /// Measured seconds, including launches: the faster of generated code and a library that is not refused.
    double seconds_of(size_t kernel) const {
        const auto it = found_.find(kernel);
        if (it == found_.end()) return seconds_.at(kernel);
        double seconds = 0;
        for (size_t i = 0; i < it->second.size(); ++i) {
            const MeasuredKernel& m = it->second[i];
            const ScheduledKernel& part = maker_[kernel].kernels[i];
            const bool generated = m.generated_seconds && schedules_.refused(part.tiles, part.weights);
            seconds += with_launch(generated ? *m.generated_seconds : m.seconds);
        }
        return seconds;
    }

    /// Records the library's result for a kernel.
    void note(const MeasuredKernel& one) {
        if (one.library.empty()) return;
        if (!report_.provider) report_.provider.emplace();
        ProviderReport& r = *report_.provider;
        r.name = one.library;
        if (!one.refused.empty()) ++r.refused[one.refused];
        r.measured += one.library_seconds ? 1 : 0;
        r.faster += one.provider.empty() ? 0 : 1;
    }

    struct Measured {
        bool asked = true;  ///< false: no measurement will replace the estimate
        bool remembered = true;
    };
    Measured run(size_t number) {
        Measured all;
        std::vector<MeasuredKernel> found;
        for (const ScheduledKernel& kernel : maker_[number].kernels) {
            const std::optional<MeasuredKernel> one = schedules_.measure(kernel.tiles, kernel.weights);
            if (!one) return {false, false};
            note(*one);
            found.push_back(*one);
            all.remembered = all.remembered && one->remembered;
        }
        found_[number] = std::move(found);
        return all;
    }

    /// "measuring a kernel of 3 stages, estimated 1500 us"
    static std::string describe(const KernelMaker::Made& made) {
        const size_t stages = made.kernels[0].tiles.stages.primitives.size();
        return fmt::format("measuring a kernel of {} stage{}, estimated {:.0f} us", stages, stages == 1 ? "" : "s",
                           1e6 * made.seconds);
    }

    std::map<Kind, double> low_ratios(const std::set<size_t>& kernels) const {
        std::map<Kind, std::vector<double>> of;
        std::vector<double> all;
        for (const size_t k : kernels) {
            if (std::isinf(seconds_.at(k))) continue;
            const double ratio = seconds_.at(k) / maker_[k].seconds;
            of[maker_[k].kind].push_back(ratio);
            all.push_back(ratio);
        }
        std::map<Kind, double> low;
        for (const Kind kind : {Kind::Elementwise, Kind::Reduction, Kind::Product, Kind::Chain})
            low[kind] = low_ratio(of[kind], all);
        return low;
    }

    std::vector<PieceSearch*> searches_;
    const KernelMaker& maker_;
    Schedules& schedules_;
    const OrchestrateOptions& options_;
    OrchestrationReport& report_;
    const bool others_enough_;  ///< OrchestrationReport::measured_enough of earlier programs
    bool enough_ = true;
    std::map<size_t, size_t> equal_;                       ///< kernel -> the first equal one
    std::map<Kind, double> low_;                           ///< ratio of measured to estimated seconds
    std::map<size_t, double> seconds_;                     ///< by kernel; including a launch; infinite: it cannot run
    std::map<size_t, std::vector<MeasuredKernel>> found_;  ///< per kernel: its measurements
    std::set<size_t> first_;                               ///< greedy kernels
    size_t most_ = 0, undercut_ = 0;
    size_t run_ = 0;
    double run_seconds_ = 0;
};

Pricing::Pricing(std::vector<PieceSearch*> searches, std::map<size_t, size_t> equal, const KernelMaker& maker,
                 Schedules& schedules, const OrchestrateOptions& options, OrchestrationReport& report)
    : impl_(std::make_unique<Impl>(std::move(searches), std::move(equal), maker, schedules, options, report)) {}
Pricing::~Pricing() = default;
void Pricing::solve() { impl_->solve(); }
bool Pricing::solve_without_refused() { return impl_->solve_without_refused(); }

}  // namespace tilewright::optimal
