#include "compile/precision_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/option_error.h"
#include "compile/pipeline.h"
#include "compile/precision_switches.h"
#include "compile/random_inputs.h"
#include "model/session.h"
#include "orchestrate/bf16_terms.h"
#include "orchestrate/fuse.h"
#include "orchestrate/precision.h"
#include "orchestrate/schedules.h"
#include "program/transform/dead_code.h"

namespace tilewright {

namespace {

/// The program with constants whose contents no pass reads.
Program without_reading(Program program) {
    for (const auto& [v, tensor] : program.constants) program.unread.emplace(v, v.value);
    return program;
}

/// The products that are rounded, but for those of `keep`.
std::vector<NarrowedProduct> rounded_products(const Program& program, const Scheduling& how, const F32Products& keep) {
    NarrowedOperands report;
    tilewright::narrow_operands(without_reading(program), how.target, how.precision, &report, keep);
    return report.rounded;
}

/// The largest difference of a floating-point output from the expected one, relative to its largest magnitude.
double largest_error(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
    double worst = 0;
    for (size_t o = 0; o < expected.size(); ++o) {
        const Tensor &x = expected[o], &y = actual.at(o);
        if (!is_float(x.dtype())) continue;
        if (x.shape() != y.shape()) return std::numeric_limits<double>::infinity();
        double magnitude = 0, difference = 0;
        for (int64_t i = 0; i < x.count(); ++i) {
            const double a = x.get(i), b = y.get(i);
            if (!std::isfinite(a)) continue;
            magnitude = std::max(magnitude, std::fabs(a));
            if (const double d = std::fabs(a - b); !(d <= difference)) difference = d;
        }
        if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
        if (difference > 0) worst = std::max(worst, difference / magnitude);
    }
    return worst;
}

class Chooser {
  public:
    Chooser(const Program& program, const CompileOptions& options, OrchestrateOptions& planning,
            PrecisionChoice& report)
        : program_(numbered(eliminate_dead_code(program))),
          options_(options),
          planning_(planning),
          target_(planning.scheduling.target),
          precision_(planning.scheduling.precision),
          report_(report) {}

    void run() {
        candidates_ = rounded_products(program_, planning_.scheduling, planning_.f32_products);
        for (const NarrowedProduct& p : candidates_) report_.products.push_back({p.result, {}, {}, {}});
        if (options_.where_faster) keep_slower();
        if (options_.max_error > 0) keep_inexact();
    }

  private:
    void step(const std::string& what, size_t done = 0, size_t total = 0) const {
        if (options_.watch) options_.watch({what, done, total});
    }

    /// Candidate `k` stays in f32.
    void keep(size_t k, PrecisionReason reason) {
        planning_.f32_products.results.insert(candidates_[k].result);
        report_.products[k].reason = reason;
    }

    bool kept(size_t k) const { return report_.products[k].reason != PrecisionReason::Rounded; }

    // --- time

    struct Times {
        double all = 0;
        std::vector<double> of;  ///< by candidate: the kernels that compute it
    };

    int bf16_terms_in_f32() const {
        CompileOptions exact = options_;
        exact.precision = Precision::F32;
        return bf16_terms_of(exact);
    }

    Times times(Precision precision, const F32Products& keep) {
        OrchestrateOptions how = planning_;
        how.f32_products = keep;
        how.skip.emplace_back("sample_sizes");
        how.keep_refusals = false;
        how.orchestrator = Orchestrator::Greedy;  // selection takes many times as long
        how.joint.reset();
        how.run = {};
        how.scheduling.precision = precision;
        if (precision == Precision::F32) how.bf16_terms = bf16_terms_in_f32();
        how.scheduling.estimates = true;
        how.scheduling.costs = nullptr;
        if (searches(how.scheduling.kind)) how.scheduling.kind = SchedulerKind::Auto;
        if (!schedules_) schedules_ = std::make_shared<Schedules>(how.scheduling, how.kept);
        how.schedules = schedules_;
        KernelSet kernels;
        const Plan plan = plan_program(without_reading(program_), kernels, how);
        Times out{estimated_seconds(plan), std::vector<double>(candidates_.size())};
        for (const Step& s : plan.steps)
            if (const auto* call = std::get_if<KernelCall>(&s.what)) divide(plan.program, *call, out.of);
        return out;
    }

    /// Adds the kernel's time to the candidates that it computes, in equal parts.
    void divide(const Program& program, const KernelCall& call, std::vector<double>& of) const {
        std::vector<size_t> computed;
        Origin origin;
        for (const PrimitiveId p : call.primitives) origin.add(program.primitives[p].origin);
        for (size_t k = 0; k < candidates_.size(); ++k)
            if (std::binary_search(origin.parts.begin(), origin.parts.end(), candidates_[k].origin.parts.at(0)))
                computed.push_back(k);
        for (const size_t k : computed)
            of[k] += (call.estimated_seconds + kKernelSeconds) / static_cast<double>(computed.size());
    }

    void keep_slower() {
        step(fmt::format("estimating products in {} and f32", to_string(precision_)));
        const Times f32 = times(Precision::F32, {}), narrow = times(precision_, planning_.f32_products);
        report_.f32_seconds = f32.all;
        F32Products some = planning_.f32_products;
        std::vector<size_t> slower;
        for (size_t k = 0; k < candidates_.size(); ++k)
            if (narrow.of[k] > f32.of[k]) {
                slower.push_back(k);
                some.results.insert(candidates_[k].result);
            }
        report_.seconds = narrow.all;
        if (!slower.empty()) {
            const Times without = times(precision_, some);
            if (without.all <= narrow.all)
                report_.seconds = without.all;
            else
                slower.clear();
        }
        if (*report_.seconds > f32.all) {
            slower.resize(candidates_.size());
            std::iota(slower.begin(), slower.end(), size_t{0});
        }
        for (const size_t k : slower) keep(k, PrecisionReason::Slower);
    }

    // --- error

    /// A session of a program, which is compiled as it is.
    Session session_of(Program program) {
        CompileOptions o = options_;
        o.precision = Precision::F32;
        if (o.machine) o.machine->sums_in_f16 = target_.sums_in_f16;
        o.f32_products = {};
        o.measure = o.keep_refusals = o.keep_objects = o.tuned = false;
        o.tune = nullptr;
        o.code = true;
        o.joint.reset();
        o.orchestrator = Orchestrator::Greedy;
        if (searches(o.scheduler)) o.scheduler = SchedulerKind::Auto;
        const auto model = compile_program(std::move(program), o);
        if (inputs_.empty()) {
            if (options_.inputs) inputs_ = options_.inputs(model->inputs());
            if (inputs_.empty()) inputs_ = random_inputs(model->inputs());
        }
        return Session(model, options_.threads);
    }

    /// The error with the candidates rounded that are not kept.
    double measured() {
        Session session =
            session_of(tilewright::narrow_operands(program_, target_, precision_, nullptr, planning_.f32_products));
        return largest_error(session.run(inputs_), expected_);
    }

    double switched(Session& session, const std::vector<size_t>& among, const std::function<bool(size_t)>& on) const {
        Tensor switches(DType::Bool, {static_cast<int64_t>(among.size())});
        for (size_t i = 0; i < among.size(); ++i) switches.set(static_cast<int64_t>(i), int64_t{on(i) ? 1 : 0});
        std::vector<Tensor> inputs = inputs_;
        inputs.push_back(switches);
        return largest_error(session.run(inputs), expected_);
    }

    void keep_inexact() {
        std::vector<size_t> rounded;
        for (size_t k = 0; k < candidates_.size(); ++k)
            if (!kept(k)) rounded.push_back(k);
        if (rounded.empty()) return;
        try {
            step("running in f32");
            expected_ = session_of(program_).run(inputs_);
            step(fmt::format("running in {}", to_string(precision_)));
            report_.error_of_all = report_.error = measured();
            if (*report_.error_of_all > options_.max_error) keep_until_exact(rounded);
        } catch (const ModelError& e) {
            throw OptionError(
                fmt::format("the error of {} cannot be measured: {}", to_string(precision_), e.what()),
                e.hint().empty() ? "give inputs that the model takes (--data, --input, --dim)" : e.hint());
        }
    }

    void keep_until_exact(const std::vector<size_t>& rounded) {
        const size_t n = rounded.size();
        std::vector<NarrowedProduct> products;
        for (const size_t k : rounded) products.push_back(candidates_[k]);
        step("compiling with a switch for each product");
        Session session = session_of(with_switches(program_, products, narrow_type(precision_)));
        std::vector<double> alone;
        for (size_t i = 0; i < n; ++i) {
            step("rounding one product at a time", i, n);
            alone.push_back(switched(session, rounded, [&](size_t j) { return j == i; }));
            report_.products[rounded[i]].alone = alone[i];
        }
        std::vector<size_t> order(n);  // the most sensitive first
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return alone[a] > alone[b]; });
        std::vector<size_t> rank(n);
        for (size_t i = 0; i < n; ++i) rank[order[i]] = i;
        size_t low = 1, high = n;  // `high` suffices: nothing is rounded
        while (low < high) {
            const size_t middle = (low + high) / 2;
            step("searching the products in f32", middle, n);
            if (switched(session, rounded, [&](size_t i) { return rank[i] >= middle; }) <= options_.max_error)
                high = middle;
            else
                low = middle + 1;
        }
        for (size_t done = 0;; high = std::min(n, high + std::max<size_t>(1, n / 16))) {
            for (; done < high; ++done) keep(rounded[order[done]], PrecisionReason::Error);
            step("running with some products in f32", high, n);
            report_.error = high == n ? 0 : measured();
            if (*report_.error <= options_.max_error) return;
        }
    }

    const Program program_;
    const CompileOptions& options_;
    OrchestrateOptions& planning_;
    const Target& target_;
    const Precision precision_;
    PrecisionChoice& report_;
    std::vector<NarrowedProduct> candidates_;
    std::shared_ptr<Schedules> schedules_;
    std::vector<Tensor> inputs_, expected_;
};

}  // namespace

std::string_view to_string(PrecisionReason reason) {
    constexpr std::array<std::string_view, 4> kNames = {"rounded", "named", "slower", "error"};
    return kNames[static_cast<size_t>(reason)];
}

size_t PrecisionChoice::rounded() const {
    return static_cast<size_t>(std::count_if(products.begin(), products.end(),
                                             [](const Product& p) { return p.reason == PrecisionReason::Rounded; }));
}

bool is_narrow(Precision precision) { return precision == Precision::BF16 || precision == Precision::F16; }

std::vector<Precision> faster_precisions(const Target& target) {
    std::vector<Precision> out;
    if (target.bf16_tiles()) out.push_back(Precision::BF16);
    if (target.f16_products()) out.push_back(Precision::F16);
    if (target.bf16_products() && !target.bf16_tiles()) out.push_back(Precision::BF16);
    return out;
}

bool narrows(const CompileOptions& c, const OrchestrateOptions* planning) {
    const Precision precision = planning != nullptr ? planning->scheduling.precision : c.precision;
    const int terms = planning != nullptr ? planning->bf16_terms : bf16_terms_of(c);
    return is_narrow(precision) || terms > 0;
}

namespace {

/// Selection and greedy orchestration begin with one program.
void narrow_source_on_gpu(Unit& unit, const Scheduling& how, NarrowedOperands& narrowed) {
    const size_t values = unit.source.values.size();
    unit.source = tilewright::narrow_operands(std::move(unit.source), how.target, how.precision, &narrowed);
    // As without selection, copies are not fused with what reads them: matrix instructions read what is in memory.
    FusionLimits limits = unit.limits;
    limits.may_share = [values, given = limits.may_share](const Primitive& a, const Primitive& b) {
        return a.outputs[0].index() < values && b.outputs[0].index() < values && (!given || given(a, b));
    };
    unit.grouped.program = fuse_greedily(unit.source, limits);
}

/// Likewise on a CPU. Products are named by their results in the fused program, as choose_precision() names them; those
/// of the source are what they are made of.
void narrow_source(Unit& unit, const Scheduling& how, F32Products keep, NarrowedOperands& narrowed) {
    std::map<uint32_t, std::string> fused;  // by part: the result of the fused product
    for (const Primitive& p : unit.grouped.program.primitives)
        if (const TensorExpr* e = p.expr(); e != nullptr && e->reducer != Reducer::None)
            for (const uint32_t part : p.origin.parts) fused[part] = unit.grouped.program.values[p.outputs[0]].name;
    std::map<std::string, std::string> names;  // of results in the source: in the fused program
    for (const Primitive& p : unit.source.primitives) {
        const TensorExpr* e = p.expr();
        if (e == nullptr || e->reducer == Reducer::None || p.origin.parts.empty()) continue;
        const auto at = fused.find(p.origin.parts[0]);
        if (at == fused.end()) continue;
        const std::string& own = unit.source.values[p.outputs[0]].name;
        names[own] = at->second;
        if (keep.results.count(at->second) != 0) keep.results.insert(own);
    }
    std::set<std::string> stored;  // results that greedy orchestration stores in the type
    for (const NarrowedProduct& p : rounded_products(unit.grouped.program, how, keep))
        if (p.stored) stored.insert(p.result);
    unit.source =
        tilewright::narrow_operands(std::move(unit.source), how.target, how.precision, &narrowed, keep, &stored);
    for (std::vector<NarrowedProduct>* products : {&narrowed.rounded, &narrowed.kept})
        for (NarrowedProduct& p : *products)
            if (const auto at = names.find(p.result); at != names.end()) p.result = at->second;
    // Products read rounded copies in memory.
    FusionLimits limits = unit.limits;
    limits.may_share = [given = limits.may_share](const Primitive& a, const Primitive& b) {
        return a.source != kPrecisionSource && b.source != kPrecisionSource && (!given || given(a, b));
    };
    unit.grouped.program = fuse_greedily(unit.source, limits);
    merge_scales(unit);
}

}  // namespace

void narrow_operands(Unit& unit, const OrchestrateOptions& planning, PrecisionChoice* report) {
    const Scheduling& how = planning.scheduling;
    if (how.precision == Precision::F32) {
        unit.grouped.program = split_operands(std::move(unit.grouped.program), how.target, planning.bf16_terms, nullptr,
                                              {}, planning.ranges);
        return;
    }
    NarrowedOperands narrowed;
    if (unit.selects && how.target.gpu)
        narrow_source_on_gpu(unit, how, narrowed);
    else if (unit.selects)
        narrow_source(unit, how, planning.f32_products, narrowed);
    else
        unit.grouped.program = tilewright::narrow_operands(std::move(unit.grouped.program), how.target, how.precision,
                                                           &narrowed, planning.f32_products);
    if (report == nullptr) return;
    report->precision = how.precision;
    report->available = how.target.gpu || has_narrow_products(how.target, how.precision);
    const std::vector<SourceNode>& nodes = unit.grouped.program.nodes;
    for (const std::vector<NarrowedProduct>* products : {&narrowed.rounded, &narrowed.kept})
        for (const NarrowedProduct& p : *products) {
            auto at = std::find_if(report->products.begin(), report->products.end(),
                                   [&](const auto& known) { return known.result == p.result; });
            if (at == report->products.end()) {
                const bool rounded = products == &narrowed.rounded;
                at = report->products.insert(
                    at, {p.result, {}, rounded ? PrecisionReason::Rounded : PrecisionReason::Named, {}});
            }
            for (const uint32_t n : p.origin.nodes)
                at->nodes.push_back(fmt::format("{} ({})", nodes.at(n).name, nodes.at(n).op));
        }
}

void choose_precision(Unit& unit, const CompileOptions& options, OrchestrateOptions& planning,
                      PrecisionChoice& report) {
    report.max_error = options.max_error;
    if (!has_narrow_products(planning.scheduling.target, planning.scheduling.precision)) return;
    Chooser(unit.grouped.program, options, planning, report).run();
    for (const auto& [program, body] : unit.bodies)
        body->each([&](Unit& u) {
            for (const NarrowedProduct& p :
                 rounded_products(u.grouped.program, planning.scheduling, planning.f32_products)) {
                planning.f32_products.results.insert(p.result);
                report.products.push_back({p.result, {}, PrecisionReason::Error, {}});
            }
        });
}

double estimated_seconds(const Plan& plan) {
    double seconds = 0;
    for (const Step& step : plan.steps) {
        if (const auto* call = std::get_if<KernelCall>(&step.what)) seconds += call->estimated_seconds + kKernelSeconds;
        for (const auto& body : step.bodies) seconds += estimated_seconds(*body);
    }
    return seconds;
}

}  // namespace tilewright
