#include "orchestrate/joint/layout_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "layout/propagate.h"

namespace tilewright::joint {

namespace {

/// Per tensor, the number of its layouts that are combined, so that there are at most `most` combinations.
std::vector<size_t> combined(std::vector<size_t> counts, size_t most) {
    const auto product = [&] {
        size_t n = 1;
        for (const size_t c : counts) n = std::min<size_t>(n * c, most + 1);
        return n;
    };
    while (product() > most) --*std::max_element(counts.begin(), counts.end());
    return counts;
}

}  // namespace

LayoutChoice::LayoutChoice(const RuleLayouts& rule, const LayoutOptions& options, Evaluation& evaluation,
                           size_t most_combinations, bool converts)
    : program_(rule.program),
      options_(options),
      how_(evaluation),
      most_combinations_(most_combinations),
      converts_(converts),
      extracted_(rule.program) {
    const Program& program = program_;
    first_tensor_.resize(program.values.size());
    for (const ValueId v : program.values.ids()) {
        first_tensor_[v] = choice_.tensors;
        choice_.tensors += options[v].size();
        values_.resize(choice_.tensors, v);
    }
    choice_.nodes = program.primitives.size();
    std::set<optimal::TensorId> given, needed;
    const auto row_major = [&](ValueId v) {
        const auto& of = options[v];
        const auto it = std::find_if(of.begin(), of.end(), [](const Layout& l) { return l.is_identity(); });
        TW_CHECK(it != of.end(), "value '{}' has no row-major layout", program.values[v].name);
        return tensor(v, static_cast<size_t>(it - of.begin()));
    };
    for (const ValueId v : program.inputs) given.insert(row_major(v));
    for (const ValueId v : program.outputs)
        if (!program.is_constant(v)) needed.insert(row_major(v));
    for (const PrimitiveId id : program.primitives.ids()) {
        const Primitive& p = program.primitives[id];
        if (p.expr() != nullptr) {
            add_primitive(id, rule);
            choice_.unavoidable.push_back(optimal::NodeId(id.value));
            continue;
        }
        for (const ValueId v : p.inputs())
            if (!program.is_constant(v)) needed.insert(row_major(v));
        for (const ValueId v : p.outputs) given.insert(row_major(v));
    }
    for (const ValueId v : program.values.ids())
        if (!program.is_constant(v)) add_conversions(v);
    choice_.given.assign(given.begin(), given.end());
    choice_.needed.assign(needed.begin(), needed.end());
    convert_rule();
}

optimal::TensorId LayoutChoice::tensor(ValueId v, size_t option) const {
    return optimal::TensorId(static_cast<uint32_t>(first_tensor_[v] + option));
}

std::vector<Layout> LayoutChoice::layouts_of(const PlacedKernel& kernel) const {
    std::vector<Layout> out;
    out.reserve(kernel.tensors.size());
    for (size_t t = 0; t < kernel.tensors.size(); ++t) out.push_back(options_[kernel.tensors[t]][kernel.options[t]]);
    return out;
}

void LayoutChoice::add(const SinglePrimitive& given, PlacedKernel kernel) {
    const SinglePrimitive& single = singles_.try_emplace(given.key, given).first->second;
    optimal::Candidate c;
    c.cost = kKernelSeconds + how_.constructed({&single, layouts_of(kernel)});
    if (std::isinf(c.cost)) return;
    for (size_t t = 0; t + 1 < kernel.tensors.size(); ++t)
        c.inputs.push_back(tensor(kernel.tensors[t], kernel.options[t]));
    c.outputs = {tensor(kernel.tensors.back(), kernel.options.back())};
    if (kernel.primitive) c.covers = {optimal::NodeId(kernel.primitive->value)};
    choice_.candidates.push_back(std::move(c));
    kernels_.push_back(std::move(kernel));
    single_of_.push_back(&single);
}

void LayoutChoice::add_primitive(PrimitiveId id, const RuleLayouts& rule) {
    const SinglePrimitive single = single_primitive(program_, extracted_, id);
    std::vector<size_t> counts, of_rule;
    for (const ValueId v : single.tensors) {
        const std::vector<Layout>& of = options_[v];
        counts.push_back(of.size());
        of_rule.push_back(static_cast<size_t>(std::find(of.begin(), of.end(), rule.layout(id, v)) - of.begin()));
    }
    counts = combined(std::move(counts), most_combinations_);
    PlacedKernel kernel{id, single.tensors, of_rule};
    rule_.push_back(kernels_.size());
    add(single, kernel);
    TW_CHECK(kernels_.size() > rule_.back(), "a kernel in the layouts of the default heuristic cannot be made");
    kernel.options.assign(counts.size(), 0);
    for (bool more = true; more;) {
        if (kernel.options != of_rule) add(single, kernel);
        more = false;
        for (size_t t = 0; t < counts.size() && !more; ++t) {
            more = ++kernel.options[t] < counts[t];
            if (!more) kernel.options[t] = 0;
        }
    }
}

void LayoutChoice::add_conversions(ValueId v) {
    const size_t n = options_[v].size();
    if (n < 2) return;
    const SinglePrimitive copy = single_copy(program_, v);
    for (size_t from = 0; from < n; ++from)
        for (size_t to = 0; to < n; ++to) {
            const std::vector<Layout>& all = options_[v];
            if (from == to || expands(all[from], program_.values[v].shape)) continue;
            if (!converts_ && !all[from].is_identity() && !all[to].is_identity()) continue;
            const size_t before = kernels_.size();
            add(copy, {std::nullopt, {v, v}, {from, to}});
            conversions_ += kernels_.size() - before;
        }
}

void LayoutChoice::convert_rule() {
    // From row-major inputs, and to row-major outputs.
    const std::set<optimal::TensorId> given(choice_.given.begin(), choice_.given.end()),
        needed(choice_.needed.begin(), choice_.needed.end());
    for (size_t k = 0; k < kernels_.size(); ++k) {
        const PlacedKernel& kernel = kernels_[k];
        if (kernel.primitive) continue;
        const optimal::Candidate& c = choice_.candidates[k];
        if (kernel.options[1] == 0 ? given.count(c.inputs[0]) != 0
                                   : kernel.options[0] == 0 && needed.count(c.outputs[0]) != 0)
            rule_.push_back(k);
    }
    const optimal::Execution execution = optimal::execute(choice_, rule_);
    TW_CHECK(execution.complete, "the layouts of the default heuristic make no plan: {} of {} kernels can run",
             execution.order.size(), rule_.size());
    rule_ = optimal::without_idle(choice_, execution.order);
}

bool LayoutChoice::decides(size_t candidate) const {
    const std::vector<ValueId>& tensors = kernels_[candidate].tensors;
    return std::any_of(tensors.begin(), tensors.end(), [&](ValueId v) { return options_[v].size() > 1; });
}

std::optional<std::vector<double>> LayoutChoice::measure(const std::vector<size_t>& candidates) const {
    std::vector<Placement> all;
    all.reserve(candidates.size());
    for (const size_t k : candidates) all.push_back({single_of_[k], layouts_of(kernels_[k])});
    auto seconds = how_.measured(all);
    if (seconds)
        for (double& s : *seconds) s += kKernelSeconds;
    return seconds;
}

ChosenLayouts LayoutChoice::apply(const std::vector<size_t>& chosen) const {
    ChosenLayouts out;
    out.program = program_;
    out.program.primitives = {};
    std::map<optimal::TensorId, ValueId> made;
    // An input, an output and what an opaque operator reads or writes is the value itself in row-major.
    std::set<optimal::TensorId> own(choice_.given.begin(), choice_.given.end());
    own.insert(choice_.needed.begin(), choice_.needed.end());
    std::set<ValueId> taken;
    for (const optimal::TensorId t : own) taken.insert(value_of(t));
    for (const optimal::TensorId t : choice_.given) made[t] = value_of(t);
    const auto placed = [&](ValueId v, size_t option) {
        const optimal::TensorId t = tensor(v, option);
        const auto it = made.find(t);
        if (it != made.end()) return it->second;
        ValueId fresh = v;
        if (own.count(t) == 0 && !taken.insert(v).second) {
            Value copy = program_.values[v];
            copy.name = fmt::format("{}/layout{}", copy.name, option);
            fresh = out.program.values.push_back(std::move(copy));
        }
        if (!options_[v][option].is_identity()) out.values[fresh] = options_[v][option];
        made.emplace(t, fresh);
        return fresh;
    };
    std::map<PrimitiveId, std::vector<size_t>> of_primitive;
    std::vector<size_t> conversions;
    for (const size_t k : chosen) {
        if (const auto primitive = kernels_[k].primitive)
            of_primitive[*primitive].push_back(k);
        else
            conversions.push_back(k);
    }
    const auto convert = [&] {
        for (bool more = true; more;) {
            more = false;
            for (const size_t k : conversions) {
                const PlacedKernel& c = kernels_[k];
                if (made.count(tensor(c.tensors[0], c.options[0])) == 0 ||
                    made.count(tensor(c.tensors[1], c.options[1])) != 0)
                    continue;
                const ValueId from = placed(c.tensors[0], c.options[0]), to = placed(c.tensors[1], c.options[1]);
                out.program.primitives.push_back(layout_copy(out.program, from, to));
                more = true;
            }
        }
    };
    convert();
    for (const PrimitiveId id : program_.primitives.ids()) {
        const auto it = of_primitive.find(id);
        if (it == of_primitive.end()) {
            out.program.primitives.push_back(program_.primitives[id]);
            TW_CHECK(program_.primitives[id].expr() == nullptr, "a primitive without a kernel");
        } else {
            for (const size_t k : it->second) {
                const PlacedKernel& kernel = kernels_[k];
                Primitive p = program_.primitives[id];
                for (size_t t = 0; t + 1 < kernel.tensors.size(); ++t) {
                    const ValueId from = placed(kernel.tensors[t], kernel.options[t]);
                    for (Access& a : p.expr()->accesses)
                        if (a.value == kernel.tensors[t]) a.value = from;
                }
                p.outputs = {placed(kernel.tensors.back(), kernel.options.back())};
                out.program.primitives.push_back(std::move(p));
            }
        }
        convert();
    }
    return out;
}

}  // namespace tilewright::joint
