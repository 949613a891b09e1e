// Reference execution of a whole program, control flow included.

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "program/program.h"
#include "program/watch.h"

namespace tilewright {

namespace {

Tensor converted(const Tensor& t, DType to) {
    if (t.dtype() == to) return t;
    Tensor r(to, t.shape(), false);
    for (int64_t i = 0; i < t.count(); ++i) {
        if (is_float(t.dtype()))
            r.set(i, t.get(i));
        else
            r.set(i, t.get_int(i));
    }
    return r;
}

/// Distance, in elements, between neighbours along an axis: outer x length x inner.
struct AxisView {
    int64_t outer = 1, length = 1, inner = 1;
    AxisView(std::span<const int64_t> shape, int64_t axis) {
        for (size_t d = 0; d < shape.size(); ++d) {
            const auto k = static_cast<int64_t>(d);
            (k < axis ? outer : k == axis ? length : inner) *= shape[d];
        }
    }
};

/// t[.., position, ..], the axis removed.
Tensor slice_at(const Tensor& t, int64_t axis, int64_t position) {
    Shape shape = t.shape();
    shape.erase(shape.begin() + axis);
    Tensor r(t.dtype(), std::move(shape), false);
    const AxisView view(t.shape(), axis);
    const size_t bytes = static_cast<size_t>(view.inner) * byte_size(t.dtype());
    const auto* from = static_cast<const std::byte*>(t.data());
    auto* to = static_cast<std::byte*>(r.mutable_data());
    for (int64_t o = 0; o < view.outer; ++o)
        std::copy_n(from + static_cast<size_t>(o * view.length + position) * bytes, bytes,
                    to + static_cast<size_t>(o) * bytes);
    return r;
}

/// Slices of equal shape, stacked along a new axis.
Tensor stack(const std::vector<Tensor>& slices, int64_t axis, bool reverse, std::string_view what) {
    Shape shape = slices[0].shape();
    shape.insert(shape.begin() + axis, static_cast<int64_t>(slices.size()));
    Tensor r(slices[0].dtype(), shape, false);
    const AxisView view(shape, axis);
    const size_t bytes = static_cast<size_t>(view.inner) * byte_size(r.dtype());
    auto* to = static_cast<std::byte*>(r.mutable_data());
    for (int64_t s = 0; s < view.length; ++s) {
        const Tensor& slice = slices[static_cast<size_t>(reverse ? view.length - 1 - s : s)];
        if (slice.shape() != slices[0].shape())
            model_error("scan output '{}' changes its shape between iterations: {} and {}", what,
                        to_string(slices[0].shape()), to_string(slice.shape()));
        const auto* from = static_cast<const std::byte*>(slice.data());
        for (int64_t o = 0; o < view.outer; ++o)
            std::copy_n(from + static_cast<size_t>(o) * bytes, bytes,
                        to + static_cast<size_t>(o * view.length + s) * bytes);
    }
    return r;
}

std::vector<Tensor> run_program(const Program& program, const std::vector<Tensor>& inputs, Bindings bindings,
                                const InterpretOptions& options);

class Execution {
  public:
    Execution(const Program& program, Bindings bindings, const InterpretOptions& options, const WatchValues* watch)
        : program_(program),
          bindings_(std::move(bindings)),
          options_(options),
          watch_(watch),
          tensors_(program.values.size()) {
        last_use_.resize(program.values.size());
        for (const PrimitiveId p : program.primitives.ids())
            for (const ValueId v : program.primitives[p].inputs()) last_use_[v] = p;
        for (const ValueId v : program.outputs) last_use_[v] = PrimitiveId();
        for (const auto& [v, tensor] : program.constants) tensors_[v] = tensor;
        for (const Requirement& r : program.requirements) unchecked_.push_back(&r);
    }

    std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
        TW_CHECK(inputs.size() == program_.inputs.size(), "program '{}' takes {} inputs, {} given", program_.name,
                 program_.inputs.size(), inputs.size());
        for (const size_t k : binding_order(program_)) define(program_.inputs[k], inputs[k]);
        check_requirements();
        for (const auto& [v, tensor] : program_.constants) show(v);
        for (const ValueId v : program_.inputs) show(v);
        for (const PrimitiveId id : program_.primitives.ids()) {
            const Primitive& p = program_.primitives[id];
            try {
                std::visit([&](const auto& kind) { execute(p, kind); }, p.kind);
            } catch (const InternalError& e) {
                throw InternalError(fmt::format("interpreting '{}': {}", p.name, e.what()));
            }
            if (p.expr() == nullptr) check_requirements();
            for (const ValueId v : p.outputs) show(v);
            for (const ValueId v : p.inputs())
                if (last_use_[v] == id && !program_.is_constant(v)) tensors_[v] = Tensor();
        }
        std::vector<Tensor> outputs;
        for (const ValueId v : program_.outputs) outputs.push_back(get(v));
        return outputs;
    }

  private:
    void show(ValueId v) const {
        if (watch_ != nullptr && *watch_) (*watch_)(v, tensors_[v]);
    }

    /// Checks the requirements whose names are bound.
    void check_requirements() {
        const auto bound = [&](Expr e) {
            const std::vector<Var> names = variables(e);
            return std::all_of(names.begin(), names.end(), [&](Var v) { return bindings_.count(v) != 0; });
        };
        std::erase_if(unchecked_, [&](const Requirement* r) {
            if (!bound(r->a) || !bound(r->b)) return false;
            check(*r, program_, [&](Expr e) { return evaluate(e, bindings_); });
            return true;
        });
    }

    const Tensor& get(ValueId v) const {
        const Tensor& t = tensors_[v];
        TW_CHECK(t.data() != nullptr || !t.shape().empty(), "value '{}' is read before it is computed",
                 program_.values[v].name);
        return t;
    }

    /// An external tensor: its shape binds symbols, its type must be the declared one.
    void define(ValueId v, const Tensor& t) {
        const Value& value = program_.values[v];
        const bool kept_double = options_.exact && value.dtype == DType::F32 && t.dtype() == DType::F64;
        if (t.dtype() != value.dtype && !kept_double)
            model_error("'{}' is expected to be {}, but is {}", value.name, to_string(value.dtype),
                        to_string(t.dtype()));
        bind_shape(bindings_, value.shape, t.shape(), value.name);
        tensors_[v] = t;
    }

    void execute(const Primitive& p, const TensorExpr& expr) {
        std::vector<Tensor> operands;
        for (const Access& a : expr.accesses) operands.push_back(get(a.value));
        const ValueId out = p.outputs.at(0);
        const Value& value = program_.values[out];
        tensors_[out] = interpret(expr, operands, value.dtype, evaluate(value.shape, bindings_), bindings_, options_);
    }

    class Outputs : public OpaqueOutputs {
      public:
        Outputs(Execution& execution, const Primitive& p) : execution_(execution), p_(p) {
            tensors.resize(p.outputs.size());
        }
        TensorView allocate(size_t k, std::span<const int64_t> shape) override {
            const Value& value = execution_.program_.values[p_.outputs.at(k)];
            Bindings trial = execution_.bindings_;
            bind_shape(trial, value.shape, shape, value.name);
            tensors[k] = Tensor(value.dtype, Shape(shape.begin(), shape.end()), false);
            return {value.dtype, tensors[k].shape(), tensors[k].mutable_data()};
        }
        std::vector<Tensor> tensors;

      private:
        Execution& execution_;
        const Primitive& p_;
    };

    void execute(const Primitive& p, const Opaque& opaque) {
        std::vector<Tensor> operands;
        std::vector<TensorView> views;
        for (const ValueId v : opaque.inputs) {
            if (!v) {
                operands.emplace_back();
                views.push_back({});
                continue;
            }
            Tensor& t = operands.emplace_back(converted(get(v), program_.values[v].dtype));
            views.push_back({t.dtype(), t.shape(), t.mutable_data()});
        }
        for (size_t k = 0; k < views.size(); ++k)  // the shapes' final addresses
            if (opaque.inputs[k]) views[k].shape = operands[k].shape();
        Outputs outputs(*this, p);
        opaque.op->run(views, outputs);
        for (size_t k = 0; k < p.outputs.size(); ++k) {
            Tensor& t = outputs.tensors[k];
            TW_CHECK(t.data() != nullptr || !t.shape().empty(), "{} leaves output {} unallocated", opaque.op->print(),
                     k);
            define(p.outputs[k], options_.exact && t.dtype() == DType::F32 ? converted(t, DType::F64) : t);
        }
    }

    void execute(const Primitive&, const ReadScalar& read) {
        const Tensor& t = get(read.value);
        TW_CHECK(read.position >= 0 && read.position < t.count(), "element {} of {}", read.position,
                 to_string(t.shape()));
        bindings_[*scalar(read.name).as_var()] = t.get_int(read.position);
    }

    bool truth(const Tensor& t, std::string_view what) const {
        if (t.count() != 1)
            model_error("{} is expected to have one element, but has shape {}", what, to_string(t.shape()));
        return t.get_int(0) != 0;
    }

    void execute(const Primitive& p, const If& branch) {
        const bool condition = truth(get(branch.condition), "the condition of '" + p.name + "'");
        std::vector<Tensor> captures;
        for (const ValueId v : branch.captures) captures.push_back(get(v));
        const Program& chosen = condition ? *branch.then_branch : *branch.else_branch;
        define_all(p, run_program(chosen, captures, bindings_, options_));
    }

    void define_all(const Primitive& p, const std::vector<Tensor>& results) {
        TW_CHECK(results.size() == p.outputs.size(), "{} results for {} outputs", results.size(), p.outputs.size());
        for (size_t k = 0; k < results.size(); ++k) define(p.outputs[k], results[k]);
    }

    void execute(const Primitive& p, const Loop& loop) {
        const int64_t trips = loop.trip_count ? evaluate(*loop.trip_count, bindings_) : INT64_MAX;
        bool go = !loop.condition || truth(get(*loop.condition), "the condition of '" + p.name + "'");
        std::vector<Tensor> carried, scanned, captures;
        for (const ValueId v : loop.carried) carried.push_back(get(v));
        for (const Loop::ScanInput& s : loop.scan_inputs) scanned.push_back(get(s.value));
        for (const ValueId v : loop.captures) captures.push_back(get(v));
        std::vector<std::vector<Tensor>> slices(loop.scan_outputs.size());

        for (int64_t iteration = 0; iteration < trips && go; ++iteration) {
            std::vector<Tensor> inputs = {Tensor::of<int64_t>(DType::I64, {}, {iteration})};
            if (loop.has_condition) inputs.push_back(Tensor::of<int64_t>(DType::Bool, {}, {1}));
            inputs.insert(inputs.end(), carried.begin(), carried.end());
            for (size_t k = 0; k < scanned.size(); ++k) {
                const Loop::ScanInput& s = loop.scan_inputs[k];
                const int64_t length = scanned[k].shape().at(static_cast<size_t>(s.axis));
                if (iteration >= length)
                    model_error("'{}' runs past the {} slices of its scan input '{}'", p.name, length,
                                program_.values[s.value].name);
                inputs.push_back(slice_at(scanned[k], s.axis, s.reverse ? length - 1 - iteration : iteration));
            }
            inputs.insert(inputs.end(), captures.begin(), captures.end());
            // Symbols of the body are bound in each iteration, because carried values may change their shape.
            std::vector<Tensor> results = run_program(*loop.body, inputs, bindings_, options_);
            auto next = results.begin();
            if (loop.has_condition) go = truth(*next++, "the condition given by the body of '" + p.name + "'");
            for (Tensor& t : carried) t = *next++;
            for (auto& list : slices) {
                const bool widen = options_.exact && next->dtype() == DType::F32;  // one type for all slices
                list.push_back(widen ? converted(*next, DType::F64) : *next);
                ++next;
            }
            TW_CHECK(next == results.end(), "the body returns {} results", results.size());
        }
        std::vector<Tensor> results = carried;
        for (size_t k = 0; k < slices.size(); ++k) {
            const Loop::ScanOutput& s = loop.scan_outputs[k];
            const Value& value = program_.values[p.outputs.at(carried.size() + k)];
            results.push_back(slices[k].empty() ? empty_stack(value, s.axis)
                                                : stack(slices[k], s.axis, s.reverse, value.name));
        }
        define_all(p, results);
    }

    /// The scan output of a loop without iterations: dimensions bound only by an iteration are 0.
    Tensor empty_stack(const Value& value, int64_t axis) const {
        Bindings all = bindings_;
        for (const Expr e : value.shape)
            for (const Var v : variables(e)) all.try_emplace(v, 0);
        Shape shape = evaluate(value.shape, all);
        shape.at(static_cast<size_t>(axis)) = 0;
        const bool kept_double = options_.exact && value.dtype == DType::F32;
        return Tensor(kept_double ? DType::F64 : value.dtype, std::move(shape));
    }

    const Program& program_;
    Bindings bindings_;
    const InterpretOptions& options_;
    const WatchValues* watch_;  ///< may be null
    IndexVector<ValueId, Tensor> tensors_;
    IndexVector<ValueId, PrimitiveId> last_use_;
    std::vector<const Requirement*> unchecked_;
};

std::vector<Tensor> run_program(const Program& program, const std::vector<Tensor>& inputs, Bindings bindings,
                                const InterpretOptions& options) {
    return Execution(program, std::move(bindings), options, nullptr).run(inputs);
}

}  // namespace

std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs,
                              const InterpretOptions& options) {
    return run_program(program, inputs, {}, options);
}

std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs,
                              const InterpretOptions& options, const WatchValues& watch) {
    return Execution(program, {}, options, &watch).run(inputs);
}

}  // namespace tilewright
