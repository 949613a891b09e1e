#include "driver/bisect/bisect.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "compile/limits.h"
#include "runtime/thread_count.h"
#include "tune/error_bound.h"

namespace tilewright::bisect {

namespace {

std::string described(const SourceNode& node) { return fmt::format("{} ({})", node.name, node.op); }

std::vector<std::string> described_nodes(const Program& program, const Origin& origin) {
    std::vector<std::string> out;
    for (const uint32_t node : origin.nodes) out.push_back(described(program.nodes.at(node)));
    return out;
}

Options with_defaults(Options o) {
    const int threads = default_thread_count(o.pipeline.compile.threads);
    if (!o.compile) o.compile = [](const Model& m, const PipelineOptions& p) { return compile_model(m, p); };
    if (!o.run)
        o.run = [threads](const Compilation& c, const std::vector<Tensor>& inputs) {
            return Session(c.model, threads).run(inputs);
        };
    if (!o.kernels)
        o.kernels = [pool = std::make_shared<ThreadPool>(threads)](const Compilation& c) -> KernelRunner {
            return [pool, model = c.model, run = machine_code(*c.model, *pool)](
                       const CallSite& at, const std::vector<Tensor>& inputs, const Bindings& names) {
                return run(at, inputs, names);
            };
        };
    if (!o.progress) o.progress = [](const std::string&) {};
    return o;
}

class Finder {
  public:
    explicit Finder(Options options) : o_(with_defaults(std::move(options))) {}

    Finding operator()() {
        PipelineOptions pipeline = o_.pipeline;
        try {
            search(pipeline);
        } catch (const NeedsFallback&) {
            out_ = {};
            out_.notes.emplace_back(
                "the check of Winograd's convolutions fails on these inputs, so the run uses the strict code: that is "
                "compared (--numerics strict)");
            pipeline.compile.numerics = Numerics::Strict;
            search(pipeline);
        }
        return std::move(out_);
    }

  private:
    void search(const PipelineOptions& pipeline);
    bool parts_from_reference(const std::vector<NamedTensor>& reference);
    bool outputs_agree(const std::vector<Tensor>& expected);
    void find_operator(const std::vector<NamedTensor>& reference);
    void find_pass(Precision precision, Evaluation found);
    void describe_pass(const Snapshot& right, const Evaluation& expected, const Snapshot& wrong,
                       const Evaluation& found);
    void find_kernel();
    void describe_kernel(KernelFault fault);
    void find_numerics();
    void find_in_session();

    const Program& base() const { return snapshots_->all().front().program; }
    const Snapshot& last() const { return snapshots_->all().back(); }
    /// With all values: those of the last right and the first wrong program are compared.
    Evaluation evaluated(const Snapshot& s, Precision precision) {
        o_.progress(fmt::format("evaluating the program after {}", s.pass));
        return evaluate(s.program, inputs_, precision, [](const std::string&) { return true; });
    }
    Comparison compared(const Tensor& actual, const Tensor& expected) const {
        return compare(actual, expected, o_.tolerance, "");
    }
    bool right(const Evaluation& e) const {
        if (!e.failure.empty()) return false;
        for (size_t k = 0; k < e.outputs.size(); ++k)
            if (!compared(e.outputs[k], base_.outputs[k]).ok) return false;
        return true;
    }
    std::map<ValueId, Comparison> values_compared(const Snapshot& right, const Evaluation& expected,
                                                  const Snapshot& wrong, const Evaluation& found) const;
    std::vector<PartedTensor> parted(const Program& program, const std::vector<Compared>& first) const;
    KnownTensors known_tensors() const;
    void add_onnx(const std::set<std::string>& nodes, const std::string& wanted, const KnownTensors& known);
    bool shows(const OnnxCase& part) const;

    const Options o_;
    Finding out_;
    std::shared_ptr<Snapshots> snapshots_;
    std::optional<Compilation> compilation_;
    std::vector<Tensor> inputs_, actual_;
    Evaluation base_;  ///< of the program after `lower`, exact
    Evaluation end_;   ///< of the last program, exact
};

void Finder::search(const PipelineOptions& pipeline) {
    snapshots_ = std::make_shared<Snapshots>();
    PipelineOptions p = pipeline;
    snapshots_->attach(p.passes);
    o_.progress("compiling");
    compilation_ = o_.compile(o_.model, p);
    out_.snapshots = snapshots_;
    inputs_ = o_.inputs(compilation_->model->inputs());
    o_.progress("running");
    actual_ = o_.run(*compilation_, inputs_);
    std::vector<NamedTensor> reference;
    if (o_.reference) {
        o_.progress("running the reference");
        reference = o_.reference(compilation_->model->inputs(), inputs_);
        if (!parts_from_reference(reference)) return;
    }
    base_ = evaluated(snapshots_->all().front(), Precision::Exact);
    if (!base_.failure.empty()) throw InternalError(base_.failure);
    if (o_.reference) {
        find_operator(reference);
        if (out_.fault != Fault::None) return;
    }
    if (outputs_agree(base_.outputs)) {
        if (o_.reference)
            out_.notes.emplace_back(
                "the interpreter lies between: both the reference and the compiled model agree with it");
        return;
    }
    end_ = evaluated(last(), Precision::Exact);
    if (!right(end_)) return find_pass(Precision::Exact, std::move(end_));
    find_kernel();
    if (out_.fault == Fault::None) find_numerics();
}

/// Compares the outputs with the interpreter's.
bool Finder::outputs_agree(const std::vector<Tensor>& expected) {
    bool agree = true;
    std::vector<OutputResult> results;
    for (size_t k = 0; k < expected.size(); ++k) {
        results.push_back({compilation_->model->outputs()[k].name, compared(actual_.at(k), expected[k])});
        agree = agree && results.back().comparison.ok;
    }
    if (!o_.reference) out_.outputs = std::move(results);
    return agree;
}

bool Finder::parts_from_reference(const std::vector<NamedTensor>& reference) {
    bool part = false;
    const std::vector<ModelIo>& outputs = compilation_->model->outputs();
    for (size_t k = 0; k < outputs.size(); ++k)
        for (const NamedTensor& t : reference) {
            if (t.name != outputs[k].name) continue;
            const Tensor expected = is_float(t.value.dtype()) ? in_type(t.value, outputs[k].dtype) : t.value;
            out_.outputs.push_back({t.name, compared(actual_.at(k), expected)});
            part = part || !out_.outputs.back().comparison.ok;
            break;
        }
    if (out_.outputs.empty())
        throw ModelError(fmt::format("{} has none of the model's outputs", o_.reference_name),
                         "the first output is called " + quoted_name(outputs.empty() ? "" : outputs[0].name));
    return part;
}

/// Where the definitions of operators, as the interpreter evaluates them, part from the reference.
void Finder::find_operator(const std::vector<NamedTensor>& reference) {
    KnownTensors known = known_tensors();
    const std::map<std::string, ValueId> ids = ids_by_name(base());
    std::map<ValueId, Comparison> all;
    Evaluation at_reference = base_;
    const auto take = [&](ValueId v, const Tensor& given) {
        const Tensor& found = base_.values.at(v);
        const Tensor expected = is_float(given.dtype()) ? in_type(given, found.dtype()) : given;
        all[v] = compared(found, expected);
        at_reference.values[v] = expected;
        known[base().values[v].name] = expected;
    };
    bool parts = false;
    for (const NamedTensor& t : reference) {
        const std::vector<ModelIo>& outputs = compilation_->model->outputs();
        for (size_t k = 0; k < outputs.size(); ++k)
            if (outputs[k].name == t.name && base_.values.count(base().outputs[k]) != 0) {
                take(base().outputs[k], t.value);
                parts = parts || !all.at(base().outputs[k]).ok;
            }
        const auto it = ids.find(t.name);
        if (it != ids.end() && base_.values.count(it->second) != 0) take(it->second, t.value);
    }
    if (!parts) return;
    out_.fault = Fault::Operator;
    const std::vector<Compared> first = first_parted(base(), all);
    out_.first = parted(base(), first);
    if (first.empty()) return;
    const ValueId v = first[0].value;
    const auto compared_before = [&](ValueId from) { return all.count(from) != 0; };
    const Part part = part_of(base(), {v}, at_reference, compared_before);
    std::vector<Tensor> from;
    for (const NamedTensor& t : part.inputs) from.push_back(t.value);
    const Evaluation own = evaluate(part.program, from, Precision::Exact);
    if (own.failure.empty() && compared(own.outputs[0], at_reference.values.at(v)).ok)
        out_.notes.push_back(fmt::format(
            "on {}'s own inputs these nodes give its result within the tolerance: differences add up before them",
            o_.reference_name));
    out_.evidence.texts.emplace_back("program.txt", print(part.program));
    for (size_t k = 0; k < from.size(); ++k) out_.evidence.tensors.emplace_back(fmt::format("input_{}", k), from[k]);
    out_.evidence.tensors.emplace_back("expected", at_reference.values.at(v));
    out_.evidence.tensors.emplace_back("found", base_.values.at(v));
    add_onnx(nodes_of(base(), cone(base(), {v}, compared_before).primitives), base().values[v].name, known);
}

/// The first pass after which the outputs are not those of the program that operators define. `found`: of the last
/// program.
void Finder::find_pass(Precision precision, Evaluation found) {
    const std::vector<Snapshot>& all = snapshots_->all();
    size_t lo = 0, hi = all.size() - 1;
    Evaluation expected = base_;
    while (hi - lo > 1) {
        const size_t middle = (lo + hi) / 2;
        Evaluation e = evaluated(all[middle], precision);
        if (right(e)) {
            lo = middle;
            expected = std::move(e);
        } else {
            hi = middle;
            found = std::move(e);
        }
    }
    out_.right_after = all[lo].until;
    out_.wrong_after = all[hi].pass;
    if (precision == Precision::Rounded) return;
    out_.fault = Fault::Pass;
    if (out_.wrong_after == "narrow_operands")
        out_.notes.emplace_back(
            "this pass rounds operands of products: `verify --precision bf16` lists their errors, and --max-error and "
            "--keep-f32 keep products in f32");
    describe_pass(all[lo], expected, all[hi], found);
}

/// By name, where both have the tensor in one shape once the layout of the wrong one is undone; outputs by position.
std::map<ValueId, Comparison> Finder::values_compared(const Snapshot& right, const Evaluation& expected,
                                                      const Snapshot& wrong, const Evaluation& found) const {
    const std::map<std::string, ValueId> ids = ids_by_name(right.program);
    const auto as_expected = [&](const std::string& name, const Tensor& t, const Shape& shape) {
        const auto it = snapshots_->layouts().find(name);
        if (right.laid_out || !wrong.laid_out || it == snapshots_->layouts().end()) return t;
        const std::vector<Expr> dims(shape.begin(), shape.end());
        return evaluate(physical_shape(it->second, dims), Bindings{}) == t.shape() ? to_logical(it->second, t, shape)
                                                                                   : t;
    };
    std::map<ValueId, Comparison> out;
    for (const auto& [v, tensor] : found.values) {
        const std::string& name = wrong.program.values[v].name;
        const auto id = ids.find(name);
        if (id == ids.end() || expected.values.count(id->second) == 0) continue;
        const Tensor& other = expected.values.at(id->second);
        const Tensor t = as_expected(name, tensor, other.shape());
        if (t.dtype() == other.dtype() && t.shape() == other.shape()) out[v] = compared(t, other);
    }
    for (size_t k = 0; k < found.outputs.size(); ++k)
        if (found.outputs[k].shape() == expected.outputs[k].shape())
            out[wrong.program.outputs[k]] = compared(found.outputs[k], expected.outputs[k]);
    return out;
}

std::vector<PartedTensor> Finder::parted(const Program& program, const std::vector<Compared>& first) const {
    const IndexVector<ValueId, PrimitiveId> producers = program.producers();
    std::vector<PartedTensor> out;
    for (const Compared& c : first) {
        PartedTensor t{program.values[c.value].name, c.result, "", {}};
        if (producers[c.value]) {
            const Primitive& p = program.primitives[producers[c.value]];
            t.expression = p.expr() != nullptr ? print(program, *p.expr()) : p.source + " " + p.name;
            t.nodes = described_nodes(program, p.origin);
        }
        out.push_back(std::move(t));
    }
    return out;
}

/// Whether the part, computed in f32 in any order, may give these numbers.
bool is_rounding(const Part& part, const Tensor& expected) {
    std::vector<Tensor> inputs, exact;
    for (const NamedTensor& t : part.inputs) inputs.push_back(t.value);
    try {
        exact = interpret(with_error_bounds(part.program), inputs, {.exact = true});
    } catch (const InternalError&) {  // control flow and opaque operators have no bounds
        return false;
    }
    if (exact[0].shape() != expected.shape()) return false;
    for (int64_t e = 0; e < expected.count(); ++e) {
        const double difference = std::fabs(exact[0].get(e) - expected.get(e));
        if (difference > exact[1].get(e)) return false;
    }
    return true;
}

void Finder::describe_pass(const Snapshot& right, const Evaluation& expected, const Snapshot& wrong,
                           const Evaluation& found) {
    const std::map<std::string, ValueId> right_ids = ids_by_name(right.program);
    if (!found.failure.empty()) out_.notes.push_back("the program after " + wrong.pass + " fails: " + found.failure);
    const std::map<ValueId, Comparison> all = values_compared(right, expected, wrong, found);
    const std::vector<Compared> first = first_parted(wrong.program, all);
    out_.first = parted(wrong.program, first);
    if (first.empty()) return;
    const ValueId v = first[0].value;
    std::set<std::string> agreeing;
    for (const auto& [value, result] : all)
        if (result.ok) agreeing.insert(wrong.program.values[value].name);
    const auto add = [&](const Snapshot& s, const Evaluation& e, ValueId value, const std::string& as) {
        const Part part = part_of(s.program, {value}, e,
                                  [&](ValueId from) { return agreeing.count(s.program.values[from].name) != 0; });
        out_.evidence.texts.emplace_back(as + ".txt", print(part.program));
        for (size_t k = 0; k < part.inputs.size(); ++k)
            if (part.inputs[k].value.data() != nullptr)
                out_.evidence.tensors.emplace_back(fmt::format("{}/input_{}", as, k), part.inputs[k].value);
        if (const auto it = e.values.find(value); it != e.values.end())
            out_.evidence.tensors.emplace_back(as + "/result", it->second);
    };
    const auto same = right_ids.find(wrong.program.values[v].name);
    if (same != right_ids.end()) {
        add(right, expected, same->second, "before");
        const Part part = part_of(wrong.program, {v}, found,
                                  [&](ValueId from) { return agreeing.count(wrong.program.values[from].name) != 0; });
        if (expected.values.count(same->second) != 0 && is_rounding(part, expected.values.at(same->second))) {
            out_.fault = Fault::Numerics;
            out_.notes.push_back(
                "the difference is within the rounding errors of what `" + wrong.pass +
                "` makes: constants that it computed are f32 numbers, and large inputs multiply their errors");
        }
    }
    add(wrong, found, v, "after");
    const auto compared_before = [&](ValueId from) { return all.count(from) != 0; };
    add_onnx(nodes_of(wrong.program, cone(wrong.program, {v}, compared_before).primitives),
             wrong.program.values[v].name, known_tensors());
}

KnownTensors Finder::known_tensors() const {
    KnownTensors known;
    for (const auto& [v, tensor] : base_.values) known.emplace(base().values[v].name, tensor);
    for (size_t k = 0; k < base_.outputs.size(); ++k)
        known.emplace(compilation_->model->outputs()[k].name, base_.outputs[k]);
    return known;
}

/// The smallest part of the model that shows the fault by itself, else the nodes alone.
void Finder::add_onnx(const std::set<std::string>& nodes, const std::string& wanted, const KnownTensors& known) {
    constexpr int kTries = 4;
    std::set<std::string> grown = nodes;
    for (int n = 0; n < kTries; ++n) {
        std::optional<OnnxCase> part = onnx_case(o_.model, grown, wanted, known);
        if (!part) return;
        o_.progress(fmt::format("compiling a part of {} nodes", part->model.graph.nodes.size()));
        part->shows = shows(*part);
        if (n == 0 || part->shows) out_.evidence.onnx = std::move(part);
        if (out_.evidence.onnx->shows) return;
        std::set<std::string> more = with_producers(o_.model, grown);
        if (more.size() == grown.size()) return;
        grown = std::move(more);
    }
}

bool Finder::shows(const OnnxCase& part) const {
    PipelineOptions p = o_.pipeline;
    p.compile.dims.clear();
    std::vector<Tensor> inputs;
    for (const NamedTensor& t : part.inputs) inputs.push_back(t.value);
    try {
        const std::vector<Tensor> outputs = o_.run(o_.compile(part.model, p), inputs);
        for (size_t k = 0; k < outputs.size(); ++k)
            if (!compared(outputs[k], part.expected[k].value).ok) return true;
    } catch (const std::exception&) {  // it cannot be compiled or run by itself
    }
    return false;
}

void Finder::find_kernel() {
    KernelSearchOptions how;
    how.tolerance = o_.tolerance;
    how.bounds = o_.kernel_bounds;
    how.progress = o_.progress;
    KernelSearch found =
        find_wrong_kernel(snapshots_->plan(), *compilation_->model, inputs_, o_.kernels(*compilation_), how);
    for (const std::string& why : found.skipped) out_.notes.push_back("not checked: kernel " + why);
    if (found.fault) return describe_kernel(std::move(*found.fault));
    out_.notes.push_back(fmt::format(
        "each of {} kernel calls is within its error bound; the largest error is {:.2g} of the result's magnitude, of "
        "kernel \"{}\"",
        found.checked, found.worst, found.worst_kernel));
}

void Finder::describe_kernel(KernelFault fault) {
    out_.fault = Fault::Kernel;
    const Program& program = fault.at.plan->program;
    const TileProgram& tile = compilation_->model->kernels()[fault.kernel];
    out_.tiling = tiling_expression(tile);
    Origin origin;
    std::set<PrimitiveId> primitives(fault.at.call->primitives.begin(), fault.at.call->primitives.end());
    for (const PrimitiveId id : primitives) origin.add(program.primitives[id].origin);
    out_.kernel_nodes = described_nodes(program, origin);
    for (size_t k = fault.at.call->tensors.size() - fault.at.call->results; k < fault.at.call->tensors.size(); ++k)
        out_.kernel_results.push_back(program.values[fault.at.call->tensors[k]].name);
    Evidence& e = out_.evidence;
    e.texts.emplace_back("kernel.txt", print(tile));
    const auto add = [&](const char* name, const std::vector<Tensor>& tensors) {
        for (size_t k = 0; k < tensors.size(); ++k) e.tensors.emplace_back(fmt::format("{}_{}", name, k), tensors[k]);
    };
    add("input", fault.inputs);
    add("expected", fault.expected);
    add("found", fault.found);
    add("bound", fault.bounds);
    const std::string wanted = program.values[fault.value].name;
    const bool body = fault.at.plan != &snapshots_->plan();
    out_.kernel = std::move(fault);
    if (!body) add_onnx(nodes_of(program, primitives), wanted, known_tensors());
}

/// Every pass and every kernel is right by itself.
void Finder::find_numerics() {
    const Snapshot& end = last();
    const auto errors = [&](const Evaluation& e) {
        std::map<ValueId, Comparison> out;
        for (const auto& [v, tensor] : e.values)
            if (const auto it = end_.values.find(v); it != end_.values.end()) out[v] = compared(tensor, it->second);
        return out;
    };
    Evaluation rounded = evaluated(end, Precision::Rounded);
    if (!right(rounded)) {
        out_.fault = Fault::Numerics;
        out_.first = parted(end.program, first_parted(end.program, errors(rounded)));
        if (right(evaluated(snapshots_->all().front(), Precision::Rounded)))
            return find_pass(Precision::Rounded, std::move(rounded));
        out_.notes.emplace_back("the operators as the model has them, computed in f32, part as well");
        return;
    }
    o_.progress("running kernel by kernel");
    const Plan& plan = snapshots_->plan();
    const Program chained =
        program_of(plan, compilation_->model->kernels(), o_.kernels(*compilation_), bind_inputs(plan.program, inputs_));
    const Evaluation found = evaluate(chained, inputs_, Precision::Rounded, [](const std::string&) { return true; });
    if (right(found)) return find_in_session();
    out_.fault = Fault::Numerics;
    std::map<ValueId, Comparison> compared_values = errors(found);
    std::erase_if(compared_values, [&](const auto& c) { return !end.program.values.contains(c.first); });
    out_.first = parted(end.program, first_parted(end.program, compared_values));
    out_.notes.emplace_back("the rounding errors of kernels add up");
}

/// Kernels one after the other, each in memory of its own, give the right outputs.
void Finder::find_in_session() {
    out_.fault = Fault::Session;
    out_.notes.emplace_back(
        "the kernels of the plan, run one after the other with separate memory, give the right outputs: the session "
        "does not (its memory plan, slices, or threads)");
    if (compilation_->model->target().gpu) return;
    const auto agree = [&](const std::vector<Tensor>& outputs) {
        for (size_t k = 0; k < outputs.size(); ++k)
            if (!compared(outputs[k], base_.outputs[k]).ok) return false;
        return true;
    };
    const bool alone = agree(Session(compilation_->model, 1).run(inputs_));
    out_.notes.push_back(fmt::format("with one thread the outputs {}", alone ? "agree" : "part as well"));
    if (compilation_->model->plan().slices.empty()) return;
    auto whole = copy_of(compilation_->model->impl());
    whole->plan.slices.clear();
    const int threads = default_thread_count(o_.pipeline.compile.threads);
    const bool unsliced = agree(Session(std::make_shared<CompiledModel>(std::move(whole)), threads).run(inputs_));
    out_.notes.push_back(fmt::format("without depth-first slices the outputs {}", unsliced ? "agree" : "part as well"));
}

}  // namespace

std::string_view to_string(Fault fault) {
    switch (fault) {
        case Fault::None:
            return "none";
        case Fault::Operator:
            return "operator";
        case Fault::Pass:
            return "pass";
        case Fault::Kernel:
            return "kernel";
        case Fault::Numerics:
            return "numerics";
        case Fault::Session:
            break;
    }
    return "session";
}

Finding find(const Options& options) { return Finder(options)(); }

}  // namespace tilewright::bisect
