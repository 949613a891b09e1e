#include "model/gpu_offers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "index/expr_scope.h"
#include "program/analysis/dynamic.h"
#include "program/transform/substitute.h"

namespace tilewright {

namespace {

/// The operation: an attention, a product, or a convolution in either direction.
size_t kind_of(const LibraryKernel& form) {
    const auto* operation = std::get_if<LibraryOperation>(&form);
    return operation == nullptr ? 0 : !operation->convolution ? 1 : operation->transposed ? 2 : 3;
}

/// On a logarithmic scale.
double distance(const Bindings& a, const Bindings& b) {
    double sum = 0;
    for (const auto& [name, size] : a) {
        const double d = std::log2(static_cast<double>(size)) - std::log2(static_cast<double>(b.at(name)));
        sum += d * d;
    }
    return sum;
}

}  // namespace

std::string GpuOffers::Way::key() const {
    std::string out = parts ? "parts" : "whole";
    for (const Of& o : of) out += fmt::format(" {}:{}", o.library, kind_of(o.form));
    return out;
}

/// Compares what libraries have for a kernel at one sample with the generated kernel.
class GpuOffers::Comparison {
  public:
    Comparison(GpuOffers& all, size_t k, const Bindings& sizes, const Program& stages)
        : all_(all), k_(k), sizes_(sizes), stages_(stages), precision_(all.sources_->precision) {}

    AtSample run() {
        AtSample out{sizes_, {}, nullptr};
        const auto refused = [&](const std::string& library, const std::string& why) { note(library, why); };
        // Sizes between samples get the first algorithm of a library's heuristic: it is the one to compare.
        const size_t most = sizes_.empty() ? kMostOfALibrary : 1;
        const auto whole = library_candidates(stages_, precision_, all_.libraries_, refused, most);
        const auto found = all_.sources_->parts.find(k_);
        const LibraryParts* parts = found == all_.sources_->parts.end() ? nullptr : &found->second;
        const auto of_parts = parts == nullptr
                                  ? std::nullopt
                                  : part_candidates(*parts, sizes_, precision_, all_.libraries_, refused, most);
        if (whole.empty() && !of_parts) return out;
        try {
            GpuTrial trial(*all_.gpu_, stages_);
            trial_ = &trial;
            const GpuGenerated generated = all_.generated(k_);
            reference_ = trial.launch(generated.kernel, *generated.text, sizes_);
            time_ = all_.libraries_.time ? all_.libraries_.time : median_seconds;
            least_ = time_(trial.stream, reference_);
            for (const GpuLibraryCandidate& c : whole) {
                const Way way{false, {{c.library, c.kernel}}};
                if (const auto seconds = measured(c.name, *c.plan, &c.kernel, way)) keep(*seconds, way, c.plan, out);
            }
            if (of_parts) of(*parts, *of_parts, out);
        } catch (const RuntimeError& e) {  // not enough memory to try them, or the generated kernel fails
            note("libraries", e.what());
        }
        return out;
    }

  private:
    void note(const std::string& library, const std::string& what) { all_.note(k_, sizes_, library, what); }

    void keep(double seconds, const Way& way, const std::shared_ptr<const cuda::LibraryPlan>& plan, AtSample& out) {
        if (seconds >= least_) return;
        least_ = seconds;
        out.way = way;
        out.plan = plan;
    }

    void of(const LibraryParts& parts, const GpuPartCandidates& candidates, AtSample& out) {
        const auto way_of = [&](const std::vector<size_t>& choice) {
            Way way{true, {}};
            for (size_t s = 0; s < choice.size(); ++s)
                way.of.push_back({candidates[s][choice[s]].library, candidates[s][choice[s]].kernel});
            return way;
        };
        const auto chosen = fastest_parts(
            parts, sizes_, candidates, [&](size_t part) { return all_.generated(part); },
            [&](const GpuChosenParts& made) { return measured(made.name, *made.plan, nullptr, way_of(made.choice)); });
        if (chosen) keep(chosen->seconds, way_of(chosen->choice), chosen->plan, out);
    }

    /// Seconds; nothing where it must not run. `form`: null of parts.
    std::optional<double> measured(const std::string& name, const cuda::LibraryPlan& plan, const LibraryKernel* form,
                                   const Way& way) {
        try {
            const GpuTrial::OfLibrary run = trial_->launch(plan);
            const double difference = trial_->difference(reference_, run.whole, form, precision_);
            if (difference > 1) {
                note(name, fmt::format("its results are others ({:.3g} times what rounding explains)", difference));
                all_.of_[k_].wrong.insert(way.key());
                return std::nullopt;
            }
            const double seconds = time_(trial_->stream, run.again);
            note(name, fmt::format("{:.4g} ms, the best else {:.4g} ms", seconds * 1e3, least_ * 1e3));
            return seconds;
        } catch (const RuntimeError& e) {  // it fails, or there is no room for it: others may run
            trial_->finish();
            note(name, e.what());
            return std::nullopt;
        }
    }

    GpuOffers& all_;
    const size_t k_;
    const Bindings& sizes_;
    const Program& stages_;
    const Precision precision_;
    GpuTrial* trial_ = nullptr;
    GpuTrial::Work reference_;
    std::function<double(const cuda::Gpu::Stream&, const std::function<void()>&)> time_;
    double least_ = 0;  ///< seconds of the fastest so far
};

GpuOffers::GpuOffers(const ModelSources& sources, std::vector<cuda::Gpu::Kernel> kernels, size_t called,
                     const cuda::Gpu& gpu, GpuLibraries libraries)
    : sources_(&sources), kernels_(std::move(kernels)), gpu_(gpu), libraries_(std::move(libraries)) {
    if (libraries_.libraries.empty()) return;
    of_.resize(called);
    for (size_t k = 0; k < called; ++k) decide(k);
}

std::vector<Bindings> GpuOffers::samples_of(const OfKernel& kernel, const Program& stages) const {
    std::vector<Bindings> out;
    const auto add = [&](const Bindings& sizes) {
        Bindings mine;
        for (const Var v : kernel.names) {
            const auto it = sizes.find(v);
            mine.emplace(v, it != sizes.end() ? it->second : assumed_value(Expr::var(v), stages.assumed));
        }
        if (std::find(out.begin(), out.end(), mine) == out.end()) out.push_back(std::move(mine));
    };
    for (const SizeSample& s : sources_->samples) add(s.sizes);
    if (out.empty()) add({});
    return out;
}

void GpuOffers::decide(size_t k) {
    const Program& stages = sources_->kernels.kernels()[k].stages;
    OfKernel& mine = of_[k];
    std::set<Var> names = names_of(stages);
    names.insert(sources_->gpu_kernels[k].names.begin(), sources_->gpu_kernels[k].names.end());
    mine.names.assign(names.begin(), names.end());
    for (const Bindings& sizes : samples_of(mine, stages))
        if (const auto sized = at_sizes(stages, sizes))
            mine.samples.push_back(Comparison(*this, k, sizes, *sized).run());
    for (AtSample& s : mine.samples)
        if (s.way && mine.wrong.count(s.way->key()) != 0 && !mine.names.empty()) s.way.reset();
    // Of kernels that are generated at all sizes nothing is asked again.
    if (std::none_of(mine.samples.begin(), mine.samples.end(), [](const AtSample& s) { return s.way.has_value(); }))
        mine = {};
}

std::shared_ptr<const cuda::LibraryPlan> GpuOffers::plan(size_t k, const Bindings& sizes) const {
    if (k >= of_.size() || of_[k].samples.empty()) return nullptr;
    const std::vector<AtSample>& samples = of_[k].samples;
    // No kernel of a library has tensors without elements.
    for (const auto& [name, size] : sizes)
        if (size < 1) return nullptr;
    const AtSample* nearest = &samples[0];
    for (const AtSample& s : samples)
        if (distance(sizes, s.sizes) < distance(sizes, nearest->sizes)) nearest = &s;
    if (!nearest->way) return nullptr;
    return nearest->sizes == sizes ? nearest->plan : at_new_sizes(k, *nearest->way, sizes);
}

const std::vector<Var>& GpuOffers::names(size_t k) const {
    static const std::vector<Var> none;
    return k < of_.size() ? of_[k].names : none;
}

const cuda::LibraryPlan* GpuOffers::preparing(size_t k) const {
    if (k < of_.size())
        for (const AtSample& s : of_[k].samples)
            if (s.way && s.plan->prepared_bytes() > 0) return s.plan.get();
    return nullptr;
}

int GpuOffers::library_kernels() const {
    return static_cast<int>(
        std::count_if(of_.begin(), of_.end(), [](const OfKernel& o) { return !o.samples.empty(); }));
}

std::shared_ptr<const cuda::LibraryPlan> GpuOffers::at_new_sizes(size_t k, const Way& way,
                                                                 const Bindings& sizes) const {
    std::shared_ptr<const cuda::LibraryPlan> out;
    try {
        with_temporary_exprs([&] { out = instance(k, way, sizes); });
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the generated kernel runs
    }
    return out;
}

std::shared_ptr<const cuda::LibraryPlan> GpuOffers::instance(size_t k, const Way& way, const Bindings& sizes) const {
    const Program& stages = sources_->kernels.kernels()[k].stages;
    if (!way.parts) {
        const auto sized = at_sizes(stages, sizes);
        return sized ? instance(way.of[0], *sized) : nullptr;
    }
    const LibraryParts& parts = sources_->parts.at(k);
    std::vector<std::shared_ptr<const cuda::LibraryPlan>> plans;
    for (const LibraryParts::Part& p : parts.parts) {
        if (p.kernel) continue;
        const auto sized = at_sizes(p.stages, sizes);
        auto plan = sized ? instance(way.of[plans.size()], *sized) : nullptr;
        if (!plan) return nullptr;
        plans.push_back(std::move(plan));
    }
    return plan_of_parts(parts, sizes, plans, [&](size_t part) { return generated(part); });
}

std::shared_ptr<const cuda::LibraryPlan> GpuOffers::instance(const Way::Of& of, const Program& stages) const {
    const auto forms = tilewright::library_kernels(stages);
    const auto* all = std::get_if<std::vector<LibraryKernel>>(&forms);
    if (all == nullptr) return nullptr;
    const cuda::KernelLibrary& library = *libraries_.libraries[of.library];
    for (const LibraryKernel& form : *all) {
        if (kind_of(form) != kind_of(of.form)) continue;
        try {
            const auto found = library.candidates(form, {1, sources_->precision}, 1);
            if (const auto* some = std::get_if<std::vector<cuda::KernelLibrary::Candidate>>(&found))
                return library.make(some->front());
        } catch (const RuntimeError&) {  // NOLINT(bugprone-empty-catch): the generated kernel runs
        }
    }
    return nullptr;
}

void GpuOffers::note(size_t k, const Bindings& sizes, const std::string& library, const std::string& what) {
    std::string kernel = fmt::format("kernel {}", k);
    for (const auto& [name, size] : sizes)
        kernel += fmt::format("{} {} = {}", name == sizes.begin()->first ? " at" : ",", var_name(name), size);
    notes_.push_back(fmt::format("{}, {}: {}", kernel, library, what));
}

}  // namespace tilewright
