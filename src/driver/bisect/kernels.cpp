#include "driver/bisect/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernel.h"
#include "base/error.h"
#include "compile/limits.h"
#include "driver/bisect/evaluate.h"
#include "orchestrate/kernel_group.h"
#include "tile/matrix.h"
#include "tune/error_bound.h"
#include "tune/operands.h"
#include "tune/restrict.h"

namespace tilewright::bisect {

namespace {

/// Ends the evaluation of a plan whose wrong kernel was found.
struct Found {};

std::string place(int64_t element, const Shape& shape) {
    Shape at(shape.size());
    for (size_t d = at.size(); d-- > 0;) {
        at[d] = element % shape[d];
        element /= shape[d];
    }
    return to_string(at);
}

std::vector<Tensor> run_code(const cpu::CompiledKernel& code, const Program& stages, const std::vector<Tensor>& inputs,
                             const Bindings& names, ThreadPool& pool) {
    const Program sized = with_sizes(stages, names);
    const OperandOptions guarded{.guarded = true};
    const PreparedInputs prepared =
        code.library ? prepared_inputs(sized, inputs, *code.library) : PreparedInputs{sized, inputs};
    Operands operands(prepared.stages, prepared.inputs, guarded);
    KernelRun run(code, names, operands, pool);
    operands.fill_outputs(0xff);
    run.fill_scratch(0xff);
    run();
    if (const std::string harm = operands.intact(); !harm.empty()) throw RuntimeError(harm);
    std::vector<Tensor> outputs;
    for (size_t k = 0; k < sized.outputs.size(); ++k) outputs.push_back(operands.output(k));
    return outputs;
}

Tensor copied(const Tensor& tensor) {
    Tensor out(tensor.dtype(), tensor.shape(), false);
    if (tensor.bytes() > 0) std::memcpy(out.mutable_data(), tensor.data(), tensor.bytes());
    return out;
}

/// An element of a result beside its bound.
struct Deviation {
    int64_t off = 0, first = -1;
    double largest_bound = 0;
};

/// By bounds; an element without a finite one by `otherwise`.
Deviation deviation(const Tensor& found, const Tensor& exact, const Tensor& bounds, double otherwise) {
    Deviation d;
    for (int64_t e = 0; e < exact.count(); ++e) {
        const double x = exact.get(e), y = found.get(e);
        const double bound = std::isfinite(bounds.get(e)) ? bounds.get(e) : otherwise;
        d.largest_bound = std::max(d.largest_bound, bound);
        if (x == y || (std::isnan(x) && std::isnan(y)) || std::fabs(x - y) <= bound) continue;
        if (d.off++ == 0) d.first = e;
    }
    return d;
}

class Search {
  public:
    Search(const Plan& plan, const CompiledModel& model, const KernelRunner& run, const KernelSearchOptions& options)
        : plan_(plan), model_(model), run_(run), options_(options) {}

    KernelSearch operator()(const std::vector<Tensor>& inputs) {
        const auto check = [this](const CallSite& at, const std::vector<Tensor>& operands, const Bindings& names) {
            return this->check(at, operands, names);
        };
        try {
            interpret(program_of(plan_, model_.kernels(), check, bind_inputs(plan_.program, inputs)), inputs);
        } catch (const Found&) {
        }
        return std::move(result_);
    }

  private:
    /// What the call's primitives compute.
    Program stages_of(const CallSite& at) {
        auto& extractor = extractors_[at.plan];
        if (!extractor) extractor = std::make_unique<KernelExtractor>(at.plan->program);
        KernelGroup group;
        group.primitives = at.call->primitives;
        group.row_axes.resize(group.primitives.size());
        return (*extractor)(group).stages;
    }

    std::vector<Tensor> check(const CallSite& at, const std::vector<Tensor>& operands, const Bindings& names) {
        if (options_.progress) options_.progress(fmt::format("kernel {} \"{}\"", at.call->kernel, at.call->name));
        Program stages;
        std::vector<Tensor> inputs;
        try {
            stages = with_sizes(stages_of(at), names);
            for (size_t i = 0; i < operands.size(); ++i)
                inputs.push_back(operands[i].reshaped(evaluate(stages.values[stages.inputs[i]].shape, Bindings{})));
        } catch (const InternalError& e) {
            if (calls_[at.call]++ == 0) result_.skipped.push_back(at.call->name + ": " + e.what());
            return run_(at, operands, names);
        }
        std::vector<Tensor> expected = interpret(stages, inputs);
        const TileProgram& tile = model_.kernels()[at.call->kernel];
        constexpr int kChecked = 2;
        if (calls_[at.call]++ < kChecked) {
            ++result_.checked;
            compare_call(at, operands, names, stages, inputs, expected);
        }
        for (size_t k = 0; k < expected.size(); ++k)
            expected[k] = expected[k].reshaped(evaluate(tile.stages.values[tile.stages.outputs[k]].shape, names));
        return expected;
    }

    void compare_call(const CallSite& at, const std::vector<Tensor>& operands, const Bindings& names,
                      const Program& stages, const std::vector<Tensor>& inputs, const std::vector<Tensor>& expected) {
        KernelFault fault;
        fault.kernel = at.call->kernel;
        fault.at = at;
        fault.names = names;
        fault.inputs = operands;
        fault.expected = expected;
        try {
            fault.found = run_(at, operands, names);
        } catch (const RuntimeError& e) {
            fault.value = result(at, 0);
            fault.reason = e.what();
            fault.where = "the code: it fails";
            end(std::move(fault));
        }
        bool suspect = false;
        for (size_t k = 0; k < expected.size(); ++k) {
            fault.found[k] = fault.found[k].reshaped(expected[k].shape());
            suspect = note(at, fault.found[k], expected[k]) || suspect;
        }
        if (suspect && is_wrong(fault, stages, inputs)) {
            fault.where = cause(fault);
            end(std::move(fault));
        }
    }

    [[noreturn]] void end(KernelFault fault) {
        for (Tensor& t : fault.inputs) t = copied(t);  // a view of the interpreter's memory
        result_.fault = std::move(fault);
        throw Found();
    }

    static ValueId result(const CallSite& at, size_t k) {
        return at.call->tensors.at(at.call->tensors.size() - at.call->results + k);
    }

    /// Keeps the largest error. True where it is more than most kernels have: only then are bounds computed, which
    /// takes as long as evaluating the kernel several times.
    bool note(const CallSite& at, const Tensor& found, const Tensor& expected) {
        constexpr double kUsual = 2e-6;
        const double usual = is_float(expected.dtype()) ? kUsual : 0;
        const Comparison c = compare(found, expected, {.relative = 0, .absolute = 0, .max_relative = usual}, "");
        const double error = c.max_magnitude > 0 ? c.max_difference / c.max_magnitude : c.max_difference;
        if (error > result_.worst) {
            result_.worst = error;
            result_.worst_kernel = at.call->name;
        }
        return !c.ok;
    }

    /// Compares with the exact results on the same inputs. Sets reason, error, bounds and value of `fault`.
    bool is_wrong(KernelFault& fault, const Program& stages, const std::vector<Tensor>& inputs) {
        std::vector<Tensor> exact = fault.expected;
        const bool f16_sums = sums_in_f16(model_.kernels()[fault.kernel]);
        if (options_.bounds) exact = interpret(with_error_bounds(stages, f16_sums), inputs, {.exact = true});
        const size_t n = fault.expected.size();
        for (size_t k = 0; k < n; ++k) {
            const Comparison c = compare(fault.found[k], fault.expected[k], options_.tolerance, "");
            const double scale = c.max_magnitude > 0 ? c.max_magnitude : 1;
            if (!options_.bounds) {
                if (c.ok) continue;
                fault.reason = c.reason.substr(2);  // behind ": "
            } else {
                const double otherwise =
                    std::max(options_.tolerance.absolute,
                             std::max(options_.tolerance.relative, options_.tolerance.max_relative) * scale);
                const Deviation d = deviation(fault.found[k], exact[k], exact[n + k], otherwise);
                if (d.off == 0) continue;
                fault.allowed = d.largest_bound / scale;
                fault.reason = fmt::format("element {} is {}, expected {} within {:.3g} ({} of {} elements differ)",
                                           place(d.first, exact[k].shape()), fault.found[k].get(d.first),
                                           exact[k].get(d.first), exact[n + k].get(d.first), d.off, exact[k].count());
                fault.bounds.assign(exact.begin() + static_cast<std::ptrdiff_t>(n), exact.end());
            }
            fault.error = c.max_difference / scale;
            fault.value = result(fault.at, k);
            return true;
        }
        return false;
    }

    /// Which form of the kernel is wrong.
    std::string cause(const KernelFault& fault) const {
        constexpr int64_t kMostWork = int64_t{1} << 31;
        const TileProgram& tile = model_.kernels()[fault.kernel];
        if (!fault.at.call->provider.empty()) return "the kernel of " + fault.at.call->provider;
        const auto agrees = [&](const std::vector<Tensor>& results) {
            for (size_t k = 0; k < results.size(); ++k) {
                const Tensor r = results[k].reshaped(fault.expected[k].shape());
                if (!compare(r, fault.expected[k], {.absolute = 0, .max_relative = fault.error / 2}, "").ok)
                    return false;
            }
            return true;
        };
        try {
            if (work_of(with_sizes(tile.stages, fault.names)) <= kMostWork &&
                !agrees(interpret(tile, fault.inputs, fault.names)))
                return "the tile program (passes `schedule` and `annotate`): interpreted, it gives other results as "
                       "well";
        } catch (const InternalError& e) {
            return fmt::format("the tile program (passes `schedule` and `annotate`): {}", e.what());
        }
        if (model_.target().gpu) return "the generated CUDA C++: the tile program is right";
        ThreadPool pool(1);
        const cpu::CompiledKernel fresh = cpu::compile(tile, model_.target());
        if (agrees(run_code(fresh, tile.stages, fault.inputs, fault.names, pool)))
            return "the machine code that was kept (--no-code-cache): generated anew, it is right";
        return "the generated machine code: the tile program is right";
    }

    const Plan& plan_;
    const CompiledModel& model_;
    const KernelRunner& run_;
    const KernelSearchOptions& options_;
    std::map<const Plan*, std::unique_ptr<KernelExtractor>> extractors_;
    std::map<const KernelCall*, int> calls_;
    KernelSearch result_;
};

}  // namespace

std::unique_ptr<CompiledModel::Impl> copy_of(const CompiledModel::Impl& from) {
    auto out = std::make_unique<CompiledModel::Impl>();
    out->inputs = from.inputs;
    out->outputs = from.outputs;
    out->plan = from.plan;
    out->code = from.code;
    out->platform = from.platform;
    out->for_gpu = from.for_gpu;
    out->keep_subnormals = from.keep_subnormals;
    out->sources = from.sources;
    return out;
}

KernelRunner machine_code(const CompiledModel& model, ThreadPool& pool) {
    return [&](const CallSite& at, const std::vector<Tensor>& inputs, const Bindings& names) {
        const size_t kernel = at.call->kernel;
        return run_code(model.impl().code.at(kernel), model.kernels()[kernel].stages, inputs, names, pool);
    };
}

KernelSearch find_wrong_kernel(const Plan& plan, const CompiledModel& model, const std::vector<Tensor>& inputs,
                               const KernelRunner& run, const KernelSearchOptions& options) {
    return Search(plan, model, run, options)(inputs);
}

}  // namespace tilewright::bisect
