#include "compile/whole_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "compile/executable.h"
#include "compile/pipeline.h"
#include "cost/sampling.h"
#include "model/model_sources.h"
#include "model/session.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"

namespace tilewright {

namespace {

/// Sessions of several plans of one model that run on the same inputs.
class Race {
  public:
    Race(const CompiledModel::Impl& model, const CompileOptions& options, std::vector<Tensor> inputs)
        : model_(model), options_(options), inputs_(std::move(inputs)) {}

    void add(Plan plan, const std::vector<cpu::CompiledKernel>& code) {
        auto impl = std::make_unique<CompiledModel::Impl>();
        impl->inputs = model_.inputs;
        impl->outputs = model_.outputs;
        impl->appends = model_.appends;
        impl->keep_subnormals = model_.keep_subnormals;
        impl->plan = std::move(plan);
        prepare_constants(impl->plan, code);
        gather_constants(impl->plan);
        impl->code = code;
        sessions_.push_back(
            std::make_unique<Session>(std::make_shared<CompiledModel>(std::move(impl)), options_.threads));
    }

    /// Returns medians over the readings of each plan, taken in turns. A reading is one run if `steps`, else as many
    /// runs as take half a millisecond.
    std::vector<PlanTimes> run(bool steps) {
        constexpr double kSeconds = 1.5, kShortestMs = 0.5;  // per plan; per reading
        constexpr size_t kFewest = 5, kMost = 101;
        double shortest = std::numeric_limits<double>::infinity();
        for (int warm = 0; warm < 2; ++warm)
            for (const auto& session : sessions_) shortest = std::min(shortest, ms_of(*session, 1));
        const double wanted = steps ? 1 : std::ceil(kShortestMs / std::max(shortest, 1e-4));
        const int runs = static_cast<int>(std::clamp(wanted, 1.0, 1e3));
        std::vector<Readings> read(sessions_.size());
        const double end = now_ms() + 1e3 * kSeconds * static_cast<double>(sessions_.size());
        for (size_t round = 0; round < kFewest || (round < kMost && now_ms() < end); ++round)
            for (size_t k = 0; k < sessions_.size(); ++k) {
                const size_t turn = (round + k) % sessions_.size();
                add_reading(read[turn], *sessions_[turn], runs, steps);
            }
        std::vector<PlanTimes> out;
        for (const Readings& r : read) {
            out.push_back({summarize(r.whole).value, {}});
            for (const std::vector<double>& s : r.steps) out.back().steps.push_back(summarize(s).value);
        }
        return out;
    }

  private:
    struct Readings {
        std::vector<double> whole;               ///< seconds
        std::vector<std::vector<double>> steps;  ///< seconds per step
    };

    double ms_of(Session& session, int runs) {
        const double begin = now_ms();
        for (int i = 0; i < runs; ++i) session.run_in_place(inputs_);
        return (now_ms() - begin) / runs;
    }

    void add_reading(Readings& read, Session& session, int runs, bool steps) {
        std::vector<StepTime> times;
        session.set_profile(steps ? &times : nullptr);
        read.whole.push_back(1e-3 * ms_of(session, runs));
        read.steps.resize(times.size());
        for (size_t i = 0; i < times.size(); ++i) read.steps[i].push_back(1e-6 * times[i].duration_us);
    }

    const CompiledModel::Impl& model_;
    const CompileOptions& options_;
    const std::vector<Tensor> inputs_;
    std::vector<std::unique_ptr<Session>> sessions_;
};

std::string print(const Plan& plan, const KernelSet& kernels) {
    std::string text = plan.print();
    for (const TileProgram& k : kernels.kernels()) text += print(k);
    return text;
}

}  // namespace

RunPlans plan_runner(const CompiledModel::Impl& model, const CompileOptions& options, bool steps) {
    return [&, steps](std::vector<Plan> plans, const KernelSet& kernels) -> std::vector<PlanTimes> {
        std::vector<Tensor> inputs = options.inputs(model.inputs);
        if (inputs.size() != model.inputs.size()) return {};
        const std::vector<cpu::CompiledKernel> code = code_of(kernels, model.sources->target, options);
        Race race(model, options, std::move(inputs));
        for (Plan& plan : plans) race.add(std::move(plan), code);
        return race.run(steps);
    };
}

std::vector<GroupedTimes> run_grouped(std::vector<Plan> plans, const KernelSet& kernels, const RunPlans& run) {
    std::vector<std::vector<Step>> steps;
    for (const Plan& plan : plans) steps.push_back(plan.steps);
    const std::vector<PlanTimes> times = run(std::move(plans), kernels);
    if (times.size() != steps.size()) return {};
    std::vector<GroupedTimes> out;
    for (size_t k = 0; k < times.size(); ++k) {
        out.push_back({times[k].seconds, {}, {}});
        for (size_t i = 0; i < steps[k].size(); ++i) {
            const auto* call = std::get_if<KernelCall>(&steps[k][i].what);
            if (call == nullptr) continue;
            if (call->chosen) out.back().chosen[*call->chosen] += times[k].steps.at(i);
            if (!call->provided.empty()) out.back().provided[call->provided] += times[k].steps.at(i);
        }
    }
    return out;
}

void keep_faster_plan(CompiledModel::Impl& model, Program program, const CompileOptions& options,
                      const RememberChoice& remember) {
    const std::string kMeasured = "measured", kDefault = "default";
    CompileOptions without = options;
    without.measure = false;
    without.joint.reset();
    without.optimal.profile = Profile::None;
    without.schedules = nullptr;
    if (searches(without.scheduler)) without.scheduler = SchedulerKind::Auto;
    KernelSet kernels;
    Plan plan = plan_program(std::move(program), kernels, orchestrate_options(without));
    const std::string by_estimates = print(plan, kernels), by_measurements = print(model.plan, model.sources->kernels);
    if (by_estimates == by_measurements) return;
    std::string what = "plan with or without measurements\n" + by_estimates + by_measurements;
    std::string chosen = kDefault;
    try {
        std::vector<Tensor> inputs = options.inputs ? options.inputs(model.inputs) : std::vector<Tensor>();
        if (inputs.size() != model.inputs.size()) throw RuntimeError("no inputs for whole runs");
        for (const Tensor& t : inputs) what += to_string(t.shape());
        if (const auto known = remember.find ? remember.find(what) : std::nullopt) {
            chosen = *known;
        } else {
            Race race(model, options, std::move(inputs));
            race.add(plan, code_of(kernels, model.sources->target, options));
            race.add(model.plan, code_of(model.sources->kernels, model.sources->target, options));
            const std::vector<PlanTimes> times = race.run(false);
            if (times[1].seconds < (1 - kWholeRunGain) * times[0].seconds) chosen = kMeasured;
            if (remember.keep) remember.keep(what, chosen);
        }
    } catch (const std::exception& e) {
        if (options.warn)
            options.warn(
                fmt::format("measured kernels are not used, as whole runs could not be compared: {}", e.what()));
    }
    if (chosen == kMeasured) return;
    model.plan = std::move(plan);
    model.sources->kernels = std::move(kernels);
}

}  // namespace tilewright
