#include "tune/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "base/error.h"
#include "tune/error_bound.h"
#include "tune/operands.h"
#include "tune/restrict.h"

namespace tilewright {
namespace {

constexpr int kWindows = 12;  // of an output that is not compared as a whole

Shape position(int64_t element, const Shape& shape) {
    Shape at(shape.size());
    for (size_t d = at.size(); d-- > 0;) {
        at[d] = element % shape[d];
        element /= shape[d];
    }
    return at;
}

class Checker {
  public:
    Checker(const Program& stages, const CheckOptions& options)
        : options_(options), stages_(stages), inputs_(kernel_inputs(stages, options.seed)) {}

    CheckResult run(const cpu::CompiledKernel& kernel, ThreadPool& pool) {
        actual_ = outputs_of(kernel, pool, 0xff);
        ThreadPool alone(1);
        const std::vector<Tensor> again = outputs_of(kernel, alone, 0x55);
        for (size_t i = 0; i < actual_.size() && result_.ok; ++i) compare_runs(i, actual_[i], again[i]);
        if (!result_.ok) return result_;
        if (work_of(stages_) <= options_.work || is_empty()) {
            compare_all();
        } else {
            for (size_t i = 0; i < actual_.size(); ++i) compare_windows(i);
        }
        const bool nothing = result_.compared == 0 && result_.undecided > 0;
        if (result_.ok && nothing) fail("no element has an error bound that is finite, so none could be compared");
        return result_;
    }

  private:
    std::vector<Tensor> outputs_of(const cpu::CompiledKernel& kernel, ThreadPool& pool, unsigned char before) {
        Operands operands(stages_, inputs_, {.guarded = true});
        KernelRun run(kernel, options_.bindings, operands, pool);
        operands.fill_outputs(before);
        run.fill_scratch(before);
        run();
        const std::string harm = operands.intact();
        if (!harm.empty()) fail(harm);
        std::vector<Tensor> outputs;
        for (size_t i = 0; i < stages_.outputs.size(); ++i) outputs.push_back(operands.output(i));
        return outputs;
    }

    void compare_runs(size_t i, const Tensor& a, const Tensor& b) {
        if (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0) return;
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

    void compare_all() {
        const std::vector<Tensor> expected = reference(stages_);
        for (size_t i = 0; i < actual_.size(); ++i)
            compare(i, expected[i], expected[i + actual_.size()], [](int64_t element) { return element; });
    }

    std::vector<Tensor> reference(const Program& program) const {
        return interpret(with_error_bounds(program), inputs_, {.exact = true});
    }

    void compare_windows(size_t i) {
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
            if (longest == window.length.end() || *longest == 1) break;  // one element costs what it costs
            *longest /= 2;
        }
        std::mt19937_64 rng(options_.seed);
        const std::vector<Expr> index = result_index(stage);
        for (int n = 0; n < kWindows; ++n) {
            for (size_t k = 0; k < extents.size(); ++k) {
                const int64_t last = extents[k] - window.length[k];
                const int64_t any = static_cast<int64_t>(rng() % static_cast<uint64_t>(last + 1));
                const uint64_t where = rng() % 4;  // ends are where tiles are not full
                window.begin[k] = n == 0 || (n > 1 && where == 0) ? 0 : n == 1 || where == 1 ? last : any;
            }
            const std::vector<Tensor> expected = reference(restrict_kernel(stages_, i, window).program);
            compare(i, expected[0], expected[1], [&](int64_t element) {
                Shape point = position(element, window.length);
                for (size_t k = 0; k < point.size(); ++k) point[k] += window.begin[k];
                int64_t flat = 0;
                for (size_t d = 0; d < index.size(); ++d)
                    flat = flat * actual_[i].shape()[d] + evaluate(index[d], Env{point, {}, nullptr});
                return flat;
            });
        }
    }

    /// Elements of `expected` against those of output `i` that `place` says.
    void compare(size_t i, const Tensor& expected, const Tensor& bounds,
                 const std::function<int64_t(int64_t element)>& place) {
        int64_t off = 0, first = -1;
        for (int64_t e = 0; e < expected.count(); ++e) {
            const double bound = bounds.get(e);
            if (!std::isfinite(bound)) {
                ++result_.undecided;
                continue;
            }
            ++result_.compared;
            const int64_t at = place(e);
            if (agrees(actual_[i], at, expected, e, bound)) continue;
            if (first < 0) first = e;
            ++off;
        }
        if (first < 0) return;
        const int64_t at = place(first);
        fail(fmt::format("output {}, element {} is {}, expected {} within {:.3g} ({} of {} elements are off)", name(i),
                         to_string(position(at, actual_[i].shape())), actual_[i].get(at), expected.get(first),
                         bounds.get(first), off, expected.count()));
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

    const CheckOptions& options_;
    const Program& stages_;
    std::vector<Tensor> inputs_, actual_;
    CheckResult result_;
};

}  // namespace

CheckResult check_kernel(const cpu::CompiledKernel& kernel, const Program& stages, ThreadPool& pool,
                         const CheckOptions& options) {
    const Program sized = with_sizes(stages, options.bindings);
    return Checker(sized, options).run(kernel, pool);
}

}  // namespace tilewright
