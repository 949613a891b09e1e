#include "tune/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tilewright {
namespace {

constexpr size_t kMinReadings = 3;  // readings before a candidate may be given up
constexpr double kLong = 1e-3;  // seconds; such long work has cold caches in every run, so the first run counts as well
constexpr int64_t kMostRounds = 100000;  // repetitions of the work within a reading

struct Candidate {
    const Runnable* what = nullptr;
    int64_t rounds = 1;  // of the work in one reading
    std::vector<double> clean, disturbed;
    bool given_up = false;

    const std::vector<double>& readings() const { return clean.empty() ? disturbed : clean; }
    double fastest() const { return *std::min_element(readings().begin(), readings().end()); }
};

class Measuring {
  public:
    Measuring(const std::vector<Runnable>& candidates, const MeasureOptions& options) : options_(options) {
        candidates_.reserve(candidates.size());
        for (const Runnable& r : candidates) candidates_.push_back({&r, 1, {}, {}, false});
        budget_ = options.seconds * static_cast<double>(candidates.size());
    }

    std::vector<Timing> run() {
        warm_up();
        for (size_t round = 0; !done(); ++round) {
            for (size_t k = 0; k < candidates_.size(); ++k) {
                Candidate& c = candidates_[(round + k) % candidates_.size()];
                if (!c.given_up) take(c);
            }
            give_up_the_slow();
        }
        std::vector<Timing> timings;
        timings.reserve(candidates_.size());
        for (const Candidate& c : candidates_)
            timings.push_back({summarize(c.readings()), static_cast<int>(c.disturbed.size()), c.given_up});
        return timings;
    }

  private:
    Reading read(const Candidate& c) {
        Reading reading = options_.take([&] {
            for (int64_t r = 0; r < c.rounds; ++r) c.what->run();
        });
        spent_ += reading.seconds;
        reading.seconds /= static_cast<double>(c.rounds);
        return reading;
    }

    void take(Candidate& c) { note(c, read(c)); }

    static void note(Candidate& c, const Reading& reading) {
        (reading.disturbed ? c.disturbed : c.clean).push_back(reading.seconds);
    }

    void warm_up() {
        double fastest = options_.known_best;
        for (Candidate& c : candidates_) {
            const Reading first = read(c);
            if (options_.give_up > 0 && first.seconds > 4 * options_.give_up * std::max(fastest, options_.shortest)) {
                c.disturbed.push_back(first.seconds);  // at least one value
                c.given_up = true;
                continue;
            }
            fastest = std::min(fastest, first.seconds);
            if (first.seconds >= kLong) note(c, first);
            if (first.seconds >= options_.shortest) continue;
            // The first run is slow; a second one determines the number of runs per reading.
            const double again = std::max(read(c).seconds, options_.shortest / static_cast<double>(kMostRounds));
            c.rounds = std::clamp<int64_t>(std::llround(std::ceil(options_.shortest / again)), 1, kMostRounds);
        }
    }

    bool done() const {
        size_t fewest = std::numeric_limits<size_t>::max();
        bool read_once = true;
        for (const Candidate& c : candidates_) {
            if (c.given_up) continue;
            fewest = std::min(fewest, c.clean.size());
            read_once = read_once && !c.readings().empty();
        }
        if (!read_once) return false;
        if (fewest >= static_cast<size_t>(options_.enough)) return true;
        return spent_ > 2 * budget_ || (spent_ > budget_ && fewest >= static_cast<size_t>(options_.few));
    }

    void give_up_the_slow() {
        if (options_.give_up <= 0) return;
        double best = options_.known_best;
        for (const Candidate& c : candidates_)
            if (!c.given_up && c.clean.size() >= kMinReadings) best = std::min(best, summarize(c.clean).value);
        for (Candidate& c : candidates_)
            if (!c.given_up && c.clean.size() >= kMinReadings && c.fastest() > options_.give_up * best)
                c.given_up = true;
    }

    const MeasureOptions& options_;
    std::vector<Candidate> candidates_;
    double budget_ = 0, spent_ = 0;
};

}  // namespace

std::vector<Timing> measure(const std::vector<Runnable>& candidates, const MeasureOptions& options) {
    return Measuring(candidates, options).run();
}

Timing measure(const Runnable& candidate, const MeasureOptions& options) {
    return measure(std::vector<Runnable>{candidate}, options).front();
}

std::string_view to_string(Warmth w) { return w == Warmth::warm ? "warm" : "cold-weights"; }

Warmth warmth_in_model(const Target& target, int64_t weight_bytes) {
    return weight_bytes > target.last_cache_bytes() ? Warmth::cold_weights : Warmth::warm;
}

std::string settings_text(int threads, Warmth warmth, const std::string& sizes) {
    return fmt::format("threads={} warmth={}{}{}", threads, to_string(warmth), sizes.empty() ? "" : " ", sizes);
}

}  // namespace tilewright
