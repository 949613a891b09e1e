#include "model/plan_program.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"

namespace tilewright {

namespace {

/// One call of a kernel. Inputs: the kernel's, then the values of the names that it mentions.
class KernelOp : public OpaqueOp {
  public:
    KernelOp(const CallSite& at, const TileProgram& kernel, std::vector<Var> names, KernelRunner run)
        : at_(at), stages_(kernel.stages), names_(std::move(names)), run_(std::move(run)) {}

    std::string print() const override { return "Kernel(" + at_.call->name + ")"; }

    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const size_t tensors = stages_.inputs.size();
        Bindings names;
        for (size_t k = 0; k < names_.size(); ++k)
            names[names_[k]] = *static_cast<const int64_t*>(inputs[tensors + k].data);
        std::vector<Tensor> operands;
        for (size_t i = 0; i < tensors; ++i) {
            const Value& value = stages_.values[stages_.inputs[i]];
            // Where axes were merged the kernel sees tensors flattened.
            operands.emplace_back(value.dtype, evaluate(value.shape, names), inputs[i].data, nullptr);
        }
        const std::vector<Tensor> results = run_(at_, operands, names);
        for (size_t k = 0; k < results.size(); ++k) {
            const TensorView to = outputs.allocate(k, results[k].shape());
            if (results[k].bytes() > 0) std::memcpy(to.data, results[k].data(), results[k].bytes());
        }
    }

  private:
    CallSite at_;
    Program stages_;
    std::vector<Var> names_;
    KernelRunner run_;
};

std::vector<Var> names_in(const Program& stages) {
    std::set<Var> seen;
    const auto add = [&](Expr e) {
        for (const Var v : variables(e))
            if (v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) seen.insert(v);
    };
    for (const Value& v : stages.values)
        for (const Expr& d : v.shape) add(d);
    for (const Primitive& p : stages.primitives) {
        const TensorExpr& e = *p.expr();
        for (const Expr& x : e.extents) add(x);
        for (const Expr& i : e.output_index) add(i);
        for (const Access& a : e.accesses) {
            for (const Expr& i : a.index) add(i);
            for (const Expr& c : a.valid) add(c);
        }
        for (const ScalarBody* body : {&e.body, &e.epilogue})
            for (const ScalarNode& n : body->nodes())
                if (n.op == ScalarOp::Index) add(n.index);
    }
    return {seen.begin(), seen.end()};
}

/// What a name is, as a tensor of one number: the operator reads the interpreter's value.
ValueId value_of(Program& p, Var name) {
    const ValueId v = p.values.push_back({"the value of " + var_name(name), DType::I64, {}});
    TensorExpr e;
    e.body.set_root(e.body.index(Expr::var(name)));
    Primitive read;
    read.name = p.values[v].name;
    read.outputs = {v};
    read.kind = std::move(e);
    p.primitives.push_back(std::move(read));
    return v;
}

void add_call(Program& p, const CallSite& at, const TileProgram& kernel, const KernelRunner& run) {
    const KernelCall& call = *at.call;
    const std::vector<Var> names = names_in(kernel.stages);
    const size_t inputs = kernel.stages.inputs.size();
    Opaque op;
    op.op = std::make_shared<const KernelOp>(at, kernel, names, run);
    op.inputs.assign(call.tensors.begin(), call.tensors.begin() + static_cast<std::ptrdiff_t>(inputs));
    for (const Var v : names) op.inputs.push_back(value_of(p, v));
    // The results as the kernel shapes them, and as the program does.
    Primitive primitive;
    primitive.name = call.name;
    std::vector<Primitive> reshapes;
    for (size_t k = 0; k < kernel.stages.outputs.size(); ++k) {
        const Value& flat = kernel.stages.values[kernel.stages.outputs[k]];
        const ValueId wanted = call.tensors[inputs + k];
        const std::vector<Expr> shape = p.values[wanted].shape;
        if (flat.shape == shape) {
            primitive.outputs.push_back(wanted);
            continue;
        }
        const ValueId v = p.values.push_back({p.values[wanted].name + ", flattened", flat.dtype, flat.shape});
        primitive.outputs.push_back(v);
        // Element of the same offset, in the dimensions that the kernel has.
        TensorExpr e;
        e.extents = shape;
        e.spatial = shape.size();
        Expr offset = 0;
        for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + axis(d);
        Access a;
        a.value = v;
        a.index.resize(flat.shape.size());
        for (size_t d = flat.shape.size(); d-- > 0;) {
            a.index[d] = d == 0 ? offset : mod(offset, flat.shape[d]);
            offset = floor_div(offset, flat.shape[d]);
        }
        e.accesses = {a};
        e.body.set_root(e.body.access(0, flat.dtype));
        Primitive reshape;
        reshape.name = call.name + ", in shape";
        reshape.outputs = {wanted};
        reshape.kind = std::move(e);
        reshapes.push_back(std::move(reshape));
    }
    primitive.kind = std::move(op);
    p.primitives.push_back(std::move(primitive));
    for (Primitive& reshape : reshapes) p.primitives.push_back(std::move(reshape));
}

}  // namespace

namespace {

/// Whether the step runs at these sizes.
bool runs_at(const Plan& plan, const Step& step, const Bindings& sizes) {
    const auto* call = std::get_if<KernelCall>(&step.what);
    if (call == nullptr || !call->way) return true;
    const Dispatch& d = plan.regions[call->way->region].dispatch;
    bool known = true;
    const uint32_t way = d.choose([&](Expr e) {
        const std::vector<Var> names = variables(e);
        known = known && std::all_of(names.begin(), names.end(), [&](Var v) { return sizes.count(v) != 0; });
        return known ? evaluate(e, sizes) : 0;
    });
    return call->way->way == (known ? way : d.otherwise);
}

}  // namespace

Program program_of(const Plan& plan, const std::vector<TileProgram>& kernels, const KernelRunner& run,
                   const Bindings& sizes) {
    Program out = plan.program;
    out.primitives = {};
    for (const Step& step : plan.steps) {
        if (!runs_at(plan, step, sizes)) continue;
        if (const auto* call = std::get_if<KernelCall>(&step.what)) {
            add_call(out, {&plan, call}, kernels.at(call->kernel), run);
            continue;
        }
        Primitive p = plan.program.primitives[std::get<PrimitiveId>(step.what)];
        const auto body = [&](size_t k) {
            return std::make_shared<const Program>(program_of(*step.bodies.at(k), kernels, run, sizes));
        };
        if (auto* branch = std::get_if<If>(&p.kind)) {
            branch->then_branch = body(0);
            branch->else_branch = body(1);
        }
        if (auto* loop = std::get_if<Loop>(&p.kind)) loop->body = body(0);
        out.primitives.push_back(std::move(p));
    }
    return out;
}

}  // namespace tilewright
