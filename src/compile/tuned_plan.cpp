#include "compile/tuned_plan.h"

#include <fmt/format.h>

#include "compile/measured_costs.h"
#include "compile/planned_cost.h"
#include "orchestrate/joint/decision.h"
#include "tune/measure.h"

namespace tilewright {

namespace {

constexpr std::string_view kScheduler = "tune", kLayouts = "tune layouts";

/// Before each line of decisions about layouts, in a record.
constexpr std::string_view kLayoutLine = "layouts ";

ChoiceKey layouts_key(ChoiceKey key) {
    key.scheduler = kLayouts;
    return key;
}

}  // namespace

ChoiceKey tuned_plan_key(const Program& program, const OrchestrateOptions& planning) {
    const Target& target = planning.scheduling.target;
    std::string text = planned_cost_text(planning) + "\n";
    for (const auto& [name, range] : planning.ranges) text += fmt::format("dim {} {}\n", name, to_string(range));
    text += print(program);
    if (program.constants_at != Residence::Near)
        text += fmt::format("constants {}", static_cast<int>(program.constants_at));
    return {"model " + hash_digits(text), target_key(target), std::string(kScheduler),
            fmt::format("threads={}", target.workers)};
}

std::string plan_hash(const Plan& plan, const KernelSet& kernels) {
    std::string text = plan.print();
    for (const TileProgram& k : kernels.kernels()) text += print(k);
    return hash_digits(text);
}

// The record: "HASH PROPOSED INPUTS\n", lines of layouts, then the schedules. Its estimate is the time of the default
// plan; the time of the tuned one has a sample if it is kept.
std::optional<TunedPlan> find_tuned_plan(const TuningDatabase& database, const ChoiceKey& key) {
    const std::optional<Choice> choice = database.find(key);
    if (!choice) return std::nullopt;
    const std::string& text = choice->schedule;
    const size_t line = text.find('\n'), proposed = text.find(' '), inputs = text.find(' ', proposed + 1);
    if (line == std::string::npos || proposed > line || inputs > line) return std::nullopt;
    TunedPlan out;
    std::string_view rest = std::string_view(text).substr(line + 1);
    while (rest.starts_with(kLayoutLine)) {
        const size_t end = rest.find('\n');
        if (end == std::string_view::npos) return std::nullopt;
        out.layouts += rest.substr(kLayoutLine.size(), end + 1 - kLayoutLine.size());
        rest.remove_prefix(end + 1);
    }
    auto schedules = TunedSchedules::parse(rest);
    if (!schedules) return std::nullopt;
    out.schedules = *std::move(schedules);
    out.hash = text.substr(0, proposed);
    out.proposed = text.substr(proposed + 1, inputs - proposed - 1);
    out.inputs = text.substr(inputs + 1, line - inputs - 1);
    out.initial = choice->estimate;
    out.tuned = choice->seconds.value;
    out.kept = choice->seconds.measured();
    return out;
}

void keep_tuned_plan(TuningDatabase& database, const ChoiceKey& key, const TunedPlan& plan) {
    Choice choice;
    choice.key = key;
    choice.schedule = fmt::format("{} {} {}\n", plan.hash, plan.proposed, plan.inputs);
    for (size_t from = 0, end = 0; (end = plan.layouts.find('\n', from)) != std::string::npos; from = end + 1)
        choice.schedule += fmt::format("{}{}\n", kLayoutLine, plan.layouts.substr(from, end - from));
    choice.schedule += plan.schedules.print();
    choice.estimate = plan.initial;
    choice.seconds = {plan.tuned, 0, plan.kept ? 1 : 0};
    database.insert(choice);
}

std::optional<std::string> find_tuned_layouts(const TuningDatabase& database, const ChoiceKey& key) {
    const std::optional<Choice> choice = database.find(layouts_key(key));
    return choice ? std::optional(choice->schedule) : std::nullopt;
}

void keep_tuned_layouts(TuningDatabase& database, const ChoiceKey& key, const std::string& layouts) {
    Choice choice;
    choice.key = layouts_key(key);
    choice.schedule = layouts;
    database.insert(choice);
}

bool use_tuned_layouts(OrchestrateOptions& planning, const std::string& layouts) {
    auto decisions = joint::parse_decisions(layouts);
    if (!decisions || !planning.joint) return false;
    planning.joint->decided = std::make_shared<const std::vector<joint::Decision>>(*std::move(decisions));
    return true;
}

std::optional<TunedPlan> confirmed_plan(const CompileOptions& options, const ChoiceKey& key) {
    const auto database = open_database(options);
    auto plan = database ? find_tuned_plan(*database, key) : std::nullopt;
    if (!plan && options.note)
        options.note("no tuned plan of this model and these options is known; `tilewright tune` makes one");
    return plan && plan->kept ? std::move(plan) : std::nullopt;
}

std::string tuned_plans_text(const TuningDatabase& database) {
    const std::string here = target_key(host_target());
    std::string text;
    database.choices([&](const Choice& c) {
        if (c.key.scheduler == kScheduler && c.key.target == here)
            text += fmt::format("{} {} {} {}\n", c.key.stages, c.key.options, c.key.generator, hash_digits(c.schedule));
        return true;
    });
    return hash_digits(text);
}

}  // namespace tilewright
