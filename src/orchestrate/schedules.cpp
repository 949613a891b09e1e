#include "orchestrate/schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/build_id.h"
#include "base/clock.h"
#include "base/error.h"
#include "cost/residual.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "program/analysis/dynamic.h"

namespace tilewright {

namespace {

std::string key_of(const KernelBody& body) {
    Program stages = body.stages;
    stages.name = "stages";
    std::string key = print(stages);
    for (const auto& [v, size] : stages.assumed) key += fmt::format(" {}={}", Expr::var(v).text(), size);
    for (const auto& [v, at] : stages.far) key += fmt::format(" {} at {}", stages.values[v].name, static_cast<int>(at));
    for (const auto& rows : body.row_axes) key += fmt::format(" [{}]", fmt::join(rows, " "));
    return key;
}

std::string weights_text(const std::vector<bool>& weights) {
    std::string text;
    for (const bool weight : weights) text += weight ? 'c' : 'v';
    return text;
}

/// Schedules that were found faster are not kept: reading them back takes about as long.
constexpr double kWorthKeepingMs = 0.5;
constexpr double kAnyTime = std::numeric_limits<double>::infinity();

std::string text_of(const CycleRates::Level& l) {
    return fmt::format("{:a}/{:a}/{:a}", l.bytes, l.bytes_per_cycle, l.latency);
}

Scheduling unmeasured(Scheduling how) {
    how.costs = nullptr;
    return how;
}

constexpr std::string_view kNone = "none";

/// Keys of the kinds of kernels, in the cache and in TunedSchedules.
std::string kernel_key(const std::string& body) { return "kernel\n" + body; }
std::string chain_key(const std::string& body) { return "chain\n" + body; }

/// What no text of a schedule has.
void describe_stages(TileProgram& program, const Program& stages) {
    program.stages.assumed = stages.assumed;
    program.stages.far = stages.far;
}

std::string text_of(const std::optional<Schedules::Scheduled>& s) {
    return s ? fmt::format("{:a}\n{}", s->seconds, print(s->program)) : std::string(kNone);
}

/// Parses the text of a kept schedule; nothing if it has another form.
std::optional<std::optional<Schedules::Scheduled>> scheduled_in(const std::string& text) {
    if (text == kNone) return std::optional<Schedules::Scheduled>();
    const size_t line = text.find('\n');
    if (line == std::string::npos) return std::nullopt;
    try {
        Schedules::Scheduled s;
        s.seconds = std::strtod(text.c_str(), nullptr);
        s.program = parse_tile_program(std::string_view(text).substr(line + 1));
        return std::optional(std::move(s));
    } catch (const ModelError&) {
        return std::nullopt;
    }
}

class Stopwatch {
  public:
    Stopwatch(double& ms, std::mutex& mutex) : ms_(ms), mutex_(mutex), start_(now_ms()) {}
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() {
        const std::lock_guard lock(mutex_);
        ms_ += now_ms() - start_;
    }

  private:
    double& ms_;
    std::mutex& mutex_;
    double start_;
};

}  // namespace

std::string scheduling_text(const Scheduling& how) {
    const Target& t = how.target;
    const CycleRates m(t);
    std::string text = fmt::format("{}, seed {}, target {} {} {} {} {}, rates {:a} {:a} {:a} {:a}", to_string(how.kind),
                                   how.seed, t.micro_lanes(), t.micro_registers(), t.tasks_at_a_time(), t.task_bytes(),
                                   t.resident_bytes(), m.ghz, m.fmas_per_cycle, m.loads_per_cycle, m.dispatch_cycles);
    for (const CycleRates::Level& l : m.caches) text += ' ' + text_of(l);
    text += ' ' + text_of(m.memory);
    if (t.f16_sums()) text += fmt::format(" f16 {:a}", m.f16_per_cycle);
    if (how.residual) text += " residual " + how.residual->id();
    if (how.chains_without != chain::Ablation::None)
        text += fmt::format(" chains without {}", static_cast<int>(how.chains_without));
    if (how.all_chains) text += " all chains";
    if (t.gpu) text += fmt::format(" {} {} {}", print(*t.gpu), to_string(how.precision), how.gpu_libraries);
    return text;
}

double chain_gain(const Program& stages, const Scheduling& how) {
    const bool open = std::any_of(stages.values.begin(), stages.values.end(), [&](const Value& v) {
        return std::any_of(v.shape.begin(), v.shape.end(), [&](Expr d) { return !sizes_assumed(stages, d); });
    });
    return margin(open ? 0.1 : 0.03, how.residual.get());
}

Schedules::Schedules(Scheduling how, std::shared_ptr<const CodeCache> kept, std::shared_ptr<const TunedSchedules> tuned,
                     Watch watch)
    : how_(std::move(how)),
      estimated_(unmeasured(how_)),
      costs_(kernel_costs(how_)),
      kept_(std::move(kept)),
      tuned_(std::move(tuned)),
      watch_(std::move(watch)) {
    // A GPU's schedules take too little time to be kept. Without the build's id their origin is unknown.
    if (!how_.estimates || how_.target.gpu || searches(how_.kind) || build_id().empty()) kept_ = nullptr;
    if (kept_) key_prefix_ = fmt::format("schedule by {} of {}\n", build_id(), scheduling_text(how_));
}

std::optional<Schedules::Scheduled> Schedules::kept_or(const std::string& what, const Program& stages,
                                                       const Scheduling& how,
                                                       const std::function<std::optional<Scheduled>()>& make) const {
    if (!kept_ || how.measures()) return make();
    const std::string made_of = key_prefix_ + what;
    if (const auto text = kept_->find(made_of))
        if (auto known = scheduled_in(*text)) {
            if (*known) describe_stages((*known)->program, stages);
            return std::move(*known);
        }
    const double begin = now_ms();
    std::optional<Scheduled> made = make();
    if (now_ms() - begin > kWorthKeepingMs) kept_->keep(made_of, text_of(made));
    return made;
}

const Schedules::Scheduled& Schedules::kernel(const KernelBody& body) {
    const Stopwatch watch(spent_ms_, mutex_);
    std::string key = key_of(body);
    if (const Scheduled* better = found(adopted_, key)) return *better;
    if (const Scheduled* known = found(kernels_, key)) return *known;
    const Scheduling& how = how_.measures() ? how_ : estimated_;
    const std::string what = kernel_key(key);
    std::optional<Scheduled> s = kept_or(what, body.stages, how, [&] {
        Scheduled made;
        made.program = make_schedule(body.stages, body.row_axes, how);
        made.seconds = costs_->estimate(made.program);
        return std::optional(std::move(made));
    });
    TW_CHECK(s, "a kernel without a schedule");
    if (auto better = tuned(what, body.stages)) {
        better->seconds = s->seconds;
        s = std::move(better);
    }
    const Scheduled& out = added(kernels_, std::move(key), std::move(*s));
    if (watch_) watch_({what, body, false, out});
    return out;
}

void Schedules::adopt(const KernelBody& body, TileProgram schedule, std::optional<double> measured) {
    const double seconds = costs_->estimate(schedule);
    added(adopted_, key_of(body), {std::move(schedule), seconds, measured});
}

const std::optional<Schedules::Scheduled>& Schedules::chain(const KernelBody& body) {
    if (how_.measures()) return chain(body, how_, chains_, kAnyTime);
    if (!tuned_) return estimated_chain(body);
    const std::optional<Scheduled>& estimated = estimated_chain(body);
    std::string key = key_of(body);
    const std::optional<Scheduled>* known = found(tuned_chains_, key);
    if (known == nullptr) {
        std::optional<Scheduled> s = tuned(chain_key(key), body.stages);
        if (s && estimated) s->seconds = estimated->seconds;
        known = &added(tuned_chains_, std::move(key), std::move(s));
    }
    return *known ? *known : estimated;
}

const Schedules::Scheduled& Schedules::planned(const KernelBody& body, bool chained) {
    const Scheduled& s = chained ? chain(body).value() : kernel(body);
    if (watch_) watch_({(chained ? chain_key : kernel_key)(key_of(body)), body, chained, s, true});
    return s;
}

std::optional<Schedules::Scheduled> Schedules::tuned(const std::string& key, const Program& stages) const {
    const TunedSchedule* found = tuned_ ? tuned_->find(key) : nullptr;
    if (found == nullptr) return std::nullopt;
    Scheduled s{found->program, 0, found->seconds};
    describe_stages(s.program, stages);
    s.seconds = costs_->estimate(s.program);
    return s;
}

const std::optional<Schedules::Scheduled>& Schedules::estimated_chain(const KernelBody& body) {
    return estimated_chain(body, kAnyTime);
}

const std::optional<Schedules::Scheduled>& Schedules::estimated_chain(const KernelBody& body, double replaces) {
    return chain(body, estimated_, estimated_chains_, replaces);
}

const std::optional<Schedules::Scheduled>& Schedules::chain(const KernelBody& body, const Scheduling& how,
                                                            ScheduledChains& known, double replaces) {
    static const std::optional<Scheduled> nothing;
    const Stopwatch watch(spent_ms_, mutex_);
    std::string key = key_of(body);
    if (const std::optional<Scheduled>* before = found(known, key)) return *before;
    {
        const std::lock_guard lock(mutex_);
        if (const auto tried = hopeless_.find(key); tried != hopeless_.end() && replaces <= tried->second)
            return nothing;
    }
    const std::string what = replaces == kAnyTime ? "" : fmt::format("against {:a} ", replaces);
    std::optional<Scheduled> s = kept_or(what + chain_key(key), body.stages, how, [&] {
        std::optional<Scheduled> made;
        if (auto program = make_chain_schedule(body.stages, how, replaces)) {
            made.emplace();
            made->seconds = costs_->estimate(*program);
            made->program = std::move(*program);
        }
        return made;
    });
    if (!s && replaces != kAnyTime) {
        const std::lock_guard lock(mutex_);
        hopeless_[key] = replaces;
        return nothing;
    }
    const std::optional<Scheduled>& out = added(known, std::move(key), std::move(s));
    if (watch_ && out) watch_({chain_key(key_of(body)), body, true, *out});
    return out;
}

double Schedules::seconds_of(const Scheduled& s) {
    if (!how_.measures()) return s.seconds;
    const Stopwatch watch(spent_ms_, mutex_);
    const double measured = costs_->measure_schedules({s.program})[0];
    return measured >= 0 ? measured : s.seconds;
}

std::optional<MeasuredKernel> Schedules::measure(const TileProgram& program, const std::vector<bool>& weights) {
    const std::optional<MeasuredKernel> measured = costs_->measure(program, weights);
    if (measured) note(program, weights, *measured);
    return measured;
}

std::optional<MeasuredKernel> Schedules::recall(const TileProgram& program, const std::vector<bool>& weights) {
    const std::optional<MeasuredKernel> measured = costs_->recall(program, weights);
    if (measured) note(program, weights, *measured);
    return measured;
}

void Schedules::note(const TileProgram& program, const std::vector<bool>& weights, const MeasuredKernel& measured) {
    std::string text = print_without_names(program);
    measured_[text] = measured.seconds;
    if (measured.provider.empty()) return;
    text += weights_text(weights);
    provided_[text] = {measured.provider, text};
}

std::optional<Schedules::Provided> Schedules::provided(const Scheduled& s, const std::vector<bool>& weights) const {
    if (provided_.empty()) return std::nullopt;
    const auto it = provided_.find(print_without_names(s.program) + weights_text(weights));
    return it == provided_.end() || refused_.count(it->second.kernel) != 0 ? std::nullopt : std::optional(it->second);
}

bool Schedules::refused(const TileProgram& program, const std::vector<bool>& weights) const {
    return !refused_.empty() && refused_.count(print_without_names(program) + weights_text(weights)) != 0;
}

std::optional<double> Schedules::measured(const Scheduled& s) const {
    if (s.measured) return s.measured;
    if (measured_.empty()) return std::nullopt;
    const auto it = measured_.find(print_without_names(s.program));
    return it != measured_.end() && it->second >= 0 ? std::optional(it->second) : std::nullopt;
}

double Schedules::at_least(const KernelBody& body) const { return costs_->lower_bound(body.stages); }

}  // namespace tilewright
