#include "orchestrate/schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

namespace tilewright {

namespace {

std::string key_of(const KernelBody& body) {
    Program stages = body.stages;
    stages.name = "stages";
    std::string key = print(stages);
    for (const auto& rows : body.row_axes) key += fmt::format(" [{}]", fmt::join(rows, " "));
    return key;
}

std::string text_of(TileProgram program) {
    program.name = "kernel";
    program.stages.name = "stages";
    return print(program);
}

class Stopwatch {
  public:
    explicit Stopwatch(double& ms) : ms_(ms) {}
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() {
        ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
    }

  private:
    double& ms_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

double chain_gain(const Program& stages) {
    const bool open = std::any_of(stages.values.begin(), stages.values.end(), [](const Value& v) {
        return std::any_of(v.shape.begin(), v.shape.end(), [](Expr d) { return !d.is_constant(); });
    });
    return open ? 0.1 : 0.03;
}

const Schedules::Scheduled& Schedules::kernel(const KernelBody& body) {
    const Stopwatch watch(spent_ms_);
    std::string key = key_of(body);
    const auto it = kernels_.find(key);
    if (it != kernels_.end()) return it->second;
    Scheduled s;
    s.program = make_schedule(body.stages, body.row_axes, how_);
    s.seconds = how_.estimate_of(s.program);
    return kernels_.emplace(std::move(key), std::move(s)).first->second;
}

const std::optional<Schedules::Scheduled>& Schedules::chain(const KernelBody& body) {
    return chain(body, how_, chains_);
}

const std::optional<Schedules::Scheduled>& Schedules::estimated_chain(const KernelBody& body) {
    if (!how_.measure) return chain(body);
    Scheduling how = how_;
    how.measure = nullptr;
    return chain(body, how, estimated_chains_);
}

const std::optional<Schedules::Scheduled>& Schedules::chain(const KernelBody& body, const Scheduling& how,
                                                            ScheduledChains& known) {
    const Stopwatch watch(spent_ms_);
    std::string key = key_of(body);
    const auto it = known.find(key);
    if (it != known.end()) return it->second;
    std::optional<Scheduled> s;
    if (auto program = make_chain_schedule(body.stages, how)) {
        s.emplace();
        s->seconds = how_.estimate_of(*program);
        s->program = std::move(*program);
    }
    return known.emplace(std::move(key), std::move(s)).first->second;
}

double Schedules::seconds_of(const Scheduled& s) {
    if (!how_.measure) return s.seconds;
    const Stopwatch watch(spent_ms_);
    const double measured = how_.measure({s.program})[0];
    return measured >= 0 ? measured : s.seconds;
}

std::optional<MeasuredKernel> Schedules::measure(const TileProgram& program, const std::vector<bool>& weights) {
    const std::optional<MeasuredKernel> measured = ask_(program, weights);
    if (measured) measured_[text_of(program)] = measured->seconds;
    return measured;
}

std::optional<double> Schedules::measured(const Scheduled& s) const {
    if (measured_.empty()) return std::nullopt;
    const auto it = measured_.find(text_of(s.program));
    return it != measured_.end() && it->second >= 0 ? std::optional(it->second) : std::nullopt;
}

double Schedules::at_least(const KernelBody& body) const { return how_.bound_of(body.stages); }

}  // namespace tilewright
