#include "orchestrate/optimal/pricing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "tune/canonical.h"

namespace tilewright::optimal {

namespace {

using Kind = KernelMaker::Kind;

class Profiler {
  public:
    Profiler(std::vector<PieceSearch*> searches, const KernelMaker& maker, Schedules& schedules,
             const OrchestrateOptions& options, OrchestrationReport& report)
        : searches_(std::move(searches)), maker_(maker), schedules_(schedules), options_(options), report_(report) {}

    void run(size_t candidates) {
        TW_CHECK(schedules_.measures(), "kernels are to be measured, and nobody says how");
        const double begin = now_seconds();
        const bool everything = options_.optimal.profile == Profile::Full;
        find_equal();
        std::set<size_t> first, all;
        for (const PieceSearch* s : searches_) {
            for (const PieceKernel& k : s->kernels()) all.insert(one(k));
            for (const size_t k : s->start()) first.insert(one(s->kernels()[k]));
        }
        measure(first);
        low_ = low_ratios(first);
        for (const size_t k : first) all.erase(k);
        everything ? measure(all) : recall(all);
        price();
        const auto most = static_cast<size_t>(options_.optimal.most_measured * static_cast<double>(candidates));
        while (round(everything ? SIZE_MAX : most)) {
        }
        // Of plans that cost the same, the one that a compile on the database as it is now finds: what whole runs say
        // of it is remembered for that.
        if (run_ > 0) {
            report_.measured_enough = true;
            price();
            while (round(everything ? SIZE_MAX : most)) {
            }
        }
        for (const auto& [k, seconds] : seconds_) report_.undercut += first.count(k) == 0 && seconds < least(k) ? 1 : 0;
        report_.measure_ms += 1e3 * (now_seconds() - begin);
    }

  private:
    /// Kernels of other texts may be scheduled as one and the same: what is measured of one is known of all.
    void find_equal() {
        std::map<std::string, size_t> first;
        for (const PieceSearch* s : searches_)
            for (const PieceKernel& k : s->kernels()) {
                const size_t number = k.answer.kernel;
                if (equal_.count(number) != 0) continue;
                std::string text;
                for (const ScheduledKernel& one : maker_[number].kernels) {
                    text += canonical_text(one.tiles);
                    for (const bool weight : one.weights) text += weight ? '1' : '0';
                }
                equal_[number] = first.try_emplace(std::move(text), number).first->second;
            }
    }

    size_t one(const PieceKernel& k) const { return equal_.at(k.answer.kernel); }

    /// Every search begins with all that is known.
    void price() {
        for (PieceSearch* s : searches_)
            s->price([&](const PieceKernel& k) -> PieceSearch::Price {
                const auto it = seconds_.find(one(k));
                if (it != seconds_.end()) return {it->second, true};
                return {least(one(k)), false};
            });
    }

    /// What is said of a kernel that nobody measured.
    double least(size_t kernel) const {
        const KernelMaker::Made& made = maker_[kernel];
        return std::max(made.at_least, low_.at(made.kind) * made.seconds);
    }

    /// False when nobody wants to know more, or nobody is told more.
    bool round(size_t most) {
        std::vector<std::pair<PieceSearch*, std::vector<size_t>>> wanted;
        std::set<size_t> kernels;
        for (PieceSearch* s : searches_) {
            std::vector<size_t> which = s->next();
            // What other pieces asked for is known already.
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
            // What costs most decides most.
            std::vector<size_t> dearest(kernels.begin(), kernels.end());
            std::stable_sort(dearest.begin(), dearest.end(), [&](size_t a, size_t b) { return least(a) > least(b); });
            kernels = std::set<size_t>(dearest.begin(), dearest.begin() + static_cast<std::ptrdiff_t>(room));
        }
        if (room == 0) {
            report_.measured_enough = false;
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

    /// Whatever is known by now, also of what it did not ask for.
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
            const Measured measured = run(made);
            ++progress.done;
            seconds_[k] = measured.seconds;
            if (!measured.asked) continue;
            if (!measured.remembered) {
                ++run_;
                run_seconds_ += now_seconds() - begin;
            }
            ++report_.measured;
            report_.remembered += measured.remembered ? 1 : 0;
        }
    }

    /// What was measured before, by whomever, is a cost before the first solution.
    void recall(const std::set<size_t>& kernels) {
        for (const size_t k : kernels) {
            double seconds = 0;
            std::vector<MeasuredKernel> all;
            const KernelMaker::Made& made = maker_[k];
            const bool known = std::all_of(made.kernels.begin(), made.kernels.end(), [&](const ScheduledKernel& one) {
                const auto remembered = schedules_.recall(one.tiles, one.weights);
                if (remembered) seconds += seconds_with_launch(*remembered);
                if (remembered) all.push_back(*remembered);
                return remembered.has_value();
            });
            if (!known || made.kernels.empty()) continue;
            for (const MeasuredKernel& one : all) note(one);
            seconds_[k] = seconds;
            ++report_.measured;
            ++report_.remembered;
        }
    }

    /// Infinite where it cannot run.
    static double seconds_with_launch(const MeasuredKernel& one) {
        return one.seconds < 0 ? std::numeric_limits<double>::infinity() : one.seconds + kKernelSeconds;
    }

    /// What a library had to say of it.
    void note(const MeasuredKernel& one) {
        if (one.asked.empty()) return;
        if (!report_.provider) report_.provider.emplace();
        ProviderReport& r = *report_.provider;
        r.name = one.asked;
        if (!one.refused.empty()) ++r.refused[one.refused];
        r.measured += one.theirs ? 1 : 0;
        r.faster += one.provider.empty() ? 0 : 1;
    }

    struct Measured {
        double seconds = 0;  ///< launches included; infinite: it cannot run
        bool asked = true;   ///< false: nothing better than the estimate will ever be known
        bool remembered = true;
    };
    Measured run(const KernelMaker::Made& made) {
        Measured all;
        for (const ScheduledKernel& kernel : made.kernels) {
            const std::optional<MeasuredKernel> one = schedules_.measure(kernel.tiles, kernel.weights);
            if (!one) return {made.seconds, false, false};
            note(*one);
            all.seconds += seconds_with_launch(*one);
            all.remembered = all.remembered && one->remembered;
        }
        return all;
    }

    /// "measuring a kernel of 3 stages, 1500 us by the model"
    static std::string describe(const KernelMaker::Made& made) {
        const size_t stages = made.kernels[0].tiles.stages.primitives.size();
        return fmt::format("measuring a kernel of {} stage{}, {:.0f} us by the model", stages, stages == 1 ? "" : "s",
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
        // Of a few slow kernels nothing follows for others, which may be as fast as the model says.
        constexpr size_t kTelling = 4;
        const auto quarter = [](std::vector<double> x) {
            if (x.empty()) return 1.0;
            std::sort(x.begin(), x.end());
            const double low = x[x.size() / 4];
            return x.size() < kTelling ? std::min(1.0, low) : low;
        };
        std::map<Kind, double> low;
        for (const Kind kind : {Kind::Elementwise, Kind::Reduction, Kind::Product, Kind::Chain})
            low[kind] = quarter(of[kind].empty() ? all : of[kind]);
        return low;
    }

    std::vector<PieceSearch*> searches_;
    const KernelMaker& maker_;
    Schedules& schedules_;
    const OrchestrateOptions& options_;
    OrchestrationReport& report_;
    std::map<size_t, size_t> equal_;    ///< per number of a kernel: that of the first equal one
    std::map<Kind, double> low_;        ///< of measured over estimated seconds
    std::map<size_t, double> seconds_;  ///< by number of the kernel; a launch included; infinite: it cannot run
    size_t run_ = 0;
    double run_seconds_ = 0;
};

}  // namespace

void measure_lazily(std::vector<PieceSearch*> searches, size_t candidates, const KernelMaker& maker,
                    Schedules& schedules, const OrchestrateOptions& options, OrchestrationReport& report) {
    Profiler(std::move(searches), maker, schedules, options, report).run(candidates);
}

}  // namespace tilewright::optimal
