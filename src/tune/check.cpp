#include "tune/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "base/error.h"
#include "tune/error_bound.h"
#include "tune/operands.h"
#include "tune/restrict.h"

namespace tilewright {
namespace {

constexpr int kWindows = 12;  // of an output that is not compared completely

Shape position(int64_t element, const Shape& shape) {
    Shape at(shape.size());
    for (size_t d = at.size(); d-- > 0;) {
        at[d] = element % shape[d];
        element /= shape[d];
    }
    return at;
}

/// The expected values of some elements of an output.
struct Reference {
    size_t output = 0;
    Tensor expected, bounds;
    std::vector<int64_t> places;  ///< positions of the elements in the output; empty: all elements
};

}  // namespace

class KernelChecker::Impl {
  public:
    Impl(const Program& stages, CheckOptions options)
        : options_(std::move(options)),
          stages_(with_sizes(stages, options_.bindings)),
          inputs_(kernel_inputs(stages_, options_.seed, Spread::Wide)) {}

    CheckResult check(const cpu::CompiledKernel& kernel, ThreadPool& pool) {
        result_ = {};
        run(kernel, pool, 0xff);
        for (size_t i = 0; i < stages_.outputs.size() && result_.ok; ++i) keep(i);
        if (!result_.ok) return result_;
        ThreadPool alone(1);
        run(kernel, alone, 0x55);
        for (size_t i = 0; i < actual_.size() && result_.ok; ++i) compare_runs(i);
        if (!result_.ok) return result_;
        if (references_.empty()) {
            if (work_of(stages_) <= options_.work || is_empty())
                refer_to_all();
            else
                for (size_t i = 0; i < actual_.size(); ++i) refer_to_windows(i);
        }
        for (const Reference& r : references_) compare(r);
        const bool nothing = result_.compared == 0 && result_.undecided > 0;
        if (result_.ok && nothing) fail("no element has an error bound that is finite, so none could be compared");
        return result_;
    }

  private:
    /// Runs the kernel, which leaves its outputs in the operands. They are empty if it wrote outside its outputs and
    /// its scratch memory: it has failed.
    void run(const cpu::CompiledKernel& kernel, ThreadPool& pool, unsigned char before) {
        if (!operands_ || kernel.library != library_) {
            const OperandOptions guarded{.guarded = true};
            library_ = kernel.library;
            if (library_) {
                const PreparedInputs prepared = prepared_inputs(stages_, inputs_, *library_);
                operands_.emplace(prepared.stages, prepared.inputs, guarded);
            } else {
                operands_.emplace(stages_, inputs_, guarded);
            }
        }
        KernelRun once(kernel, options_.bindings, *operands_, pool);
        operands_->fill_outputs(before);
        once.fill_scratch(before);
        once();
        std::string harm = operands_->intact();
        if (harm.empty()) harm = once.intact();
        if (!harm.empty()) {
            fail(harm);
            operands_.reset();  // the next run needs other operands
        }
    }

    /// Reuses the memory of the previous kernel's outputs: page faults of new memory take longer than the copy.
    void keep(size_t i) {
        if (i == actual_.size())
            actual_.push_back(operands_->output(i));
        else if (actual_[i].bytes() > 0)
            std::memcpy(actual_[i].mutable_data(), operands_->output_data(i), actual_[i].bytes());
    }

    void compare_runs(size_t i) {
        const Tensor& a = actual_[i];
        if (a.bytes() == 0 || std::memcmp(a.data(), operands_->output_data(i), a.bytes()) == 0) return;
        const Tensor b = operands_->output(i);
        const size_t size = byte_size(a.dtype());
        const auto *x = static_cast<const char*>(a.data()), *y = static_cast<const char*>(b.data());
        int64_t at = 0;
        while (std::memcmp(x + static_cast<size_t>(at) * size, y + static_cast<size_t>(at) * size, size) == 0) ++at;
        fail(fmt::format("output {}, element {} is {} in one run and {} in another of the same inputs", name(i),
                         to_string(position(at, a.shape())), a.get(at), b.get(at)));
    }

    bool is_empty() const {
        return std::any_of(stages_.values.begin(), stages_.values.end(), [](const Value& v) {
            return std::any_of(v.shape.begin(), v.shape.end(), [](Expr d) { return d.is_constant(0); });
        });
    }

    void refer_to_all() {
        const std::vector<Tensor> expected = reference(stages_);
        for (size_t i = 0; i < actual_.size(); ++i)
            references_.push_back({i, expected[i], expected[i + actual_.size()], {}});
    }

    std::vector<Tensor> reference(const Program& program) const {
        return interpret(with_error_bounds(program, options_.f16_sums), inputs_, {.exact = true});
    }

    void refer_to_windows(size_t i) {
        const TensorExpr& stage = stage_of_output(stages_, i);
        Shape extents;
        for (size_t k = 0; k < stage.spatial; ++k) extents.push_back(stage.extents[k].constant());
        const int64_t share = options_.work / (kWindows * static_cast<int64_t>(actual_.size()));
        Window window;
        window.begin.assign(extents.size(), 0);
        for (size_t k = 0; k < extents.size(); ++k)
            window.length.push_back(std::min<int64_t>(extents[k], k + 1 == extents.size() ? 16 : 3));
        while (restrict_kernel(stages_, i, window).work > share) {
            const auto longest = std::max_element(window.length.begin(), window.length.end());
            if (longest == window.length.end() || *longest == 1) break;  // cannot be reduced further
            *longest /= 2;
        }
        std::mt19937_64 rng(options_.seed);
        const std::vector<Expr> index = result_index(stage);
        for (int n = 0; n < kWindows; ++n) {
            for (size_t k = 0; k < extents.size(); ++k) {
                const int64_t last = extents[k] - window.length[k];
                const int64_t any = static_cast<int64_t>(rng() % static_cast<uint64_t>(last + 1));
                const uint64_t where = rng() % 4;  // the ends of an axis have partial tiles
                window.begin[k] = n == 0 || (n > 1 && where == 0) ? 0 : n == 1 || where == 1 ? last : any;
            }
            const std::vector<Tensor> expected = reference(restrict_kernel(stages_, i, window).program);
            Reference r{i, expected[0], expected[1], {}};
            for (int64_t element = 0; element < r.expected.count(); ++element) {
                Shape point = position(element, window.length);
                for (size_t k = 0; k < point.size(); ++k) point[k] += window.begin[k];
                int64_t flat = 0;
                for (size_t d = 0; d < index.size(); ++d)
                    flat = flat * actual_[i].shape()[d] + evaluate(index[d], Env{point, {}, nullptr});
                r.places.push_back(flat);
            }
            references_.push_back(std::move(r));
        }
    }

    void compare(const Reference& r) {
        const Tensor& actual = actual_[r.output];
        const auto place = [&](int64_t e) { return r.places.empty() ? e : r.places[static_cast<size_t>(e)]; };
        int64_t off = 0, first = -1;
        for (int64_t e = 0; e < r.expected.count(); ++e) {
            const double bound = r.bounds.get(e);
            if (!std::isfinite(bound)) {
                ++result_.undecided;
                continue;
            }
            ++result_.compared;
            if (agrees(actual, place(e), r.expected, e, bound)) continue;
            if (first < 0) first = e;
            ++off;
        }
        if (first < 0) return;
        const int64_t at = place(first);
        fail(fmt::format("output {}, element {} is {}, expected {} within {:.3g} ({} of {} elements are off)",
                         name(r.output), to_string(position(at, actual.shape())), actual.get(at), r.expected.get(first),
                         r.bounds.get(first), off, r.expected.count()));
    }

    bool agrees(const Tensor& actual, int64_t at, const Tensor& expected, int64_t e, double bound) {
        if (!is_float(actual.dtype()) && bound == 0) return actual.get_int(at) == expected.get_int(e);
        const double a = actual.get(at), x = expected.get(e);
        if (std::isnan(x)) return std::isnan(a);
        if (a == x) return true;
        const double difference = std::fabs(a - x);
        if (!(difference <= bound)) return false;
        result_.worst = std::max(result_.worst, difference / bound);
        return true;
    }

    const std::string& name(size_t i) const { return stages_.values[stages_.outputs[i]].name; }

    void fail(std::string reason) {
        if (result_.ok) result_.reason = std::move(reason);
        result_.ok = false;
    }

    CheckOptions options_;
    Program stages_;
    std::vector<Tensor> inputs_;
    std::optional<Operands> operands_;
    std::shared_ptr<const cpu::LibraryCall> library_;  ///< of the prepared operands; null: generated code
    std::vector<Reference> references_;                // made when the first kernel needs them
    std::vector<Tensor> actual_;
    CheckResult result_;
};

KernelChecker::KernelChecker(const Program& stages, CheckOptions options)
    : impl_(std::make_unique<Impl>(stages, std::move(options))) {}
KernelChecker::~KernelChecker() = default;

CheckResult KernelChecker::check(const cpu::CompiledKernel& kernel, ThreadPool& pool) {
    return impl_->check(kernel, pool);
}

CheckResult check_kernel(const cpu::CompiledKernel& kernel, const Program& stages, ThreadPool& pool,
                         const CheckOptions& options) {
    return KernelChecker(stages, options).check(kernel, pool);
}

}  // namespace tilewright
