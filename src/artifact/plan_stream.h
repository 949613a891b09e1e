#pragma once
// The fields of a compiled model, in order (byte_stream.h). What only compilation reads is left out: tensor
// expressions, origins, tile programs, reports.

#include <algorithm>
#include <utility>

#include "artifact/byte_stream.h"
#include "artifact/plan_file.h"
#include "base/checksum.h"
#include "opaque/custom.h"
#include "opaque/text.h"

namespace tilewright::artifact {

// The header: magic, format version, size of the content, its checksum; then the content.
inline constexpr std::string_view kPlanMagic("TWPLAN\r\n", 8);
inline constexpr size_t kHeaderBytes = 8 + 4 + 8 + sizeof(Checksum);
inline constexpr uint64_t kWeightsAlignment = 64;

/// Where a model's constants are written to, or read from.
struct WeightsReader {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
    Tensor at(DType dtype, Shape shape, uint64_t offset) const;
};

template <class Stream>
class PlanStream {
  public:
    using Constants = std::conditional_t<Stream::kReads, const WeightsReader, WeightsWriter>;
    template <class T>
    using F = Field<Stream, T>;

    /// `operators`: those of the caller that nodes of the plan may call; only for reading.
    PlanStream(Stream& stream, Constants& constants, uint64_t kernels, const CustomOperators* operators)
        : s_(stream), constants_(constants), kernels_(kernels), operators_(operators) {}

    void plan(F<Plan> p) {
        s_.require(++depth_ <= kMostNested, "fewer nested bodies");
        Program_ program = p.program;
        s_.text(program.name);
        values(program.values);
        ids(program.inputs);
        ids(program.outputs);
        constants(program.constants);
        s_.list(program.requirements, [this](auto& r) { requirement(r); });
        s_.list(p.steps, [&](auto& step) {
            this->step(step, program);
            values_ = program.values.size();
        });
        s_.list(p.slices, [&](auto& slices) { this->slices(slices, p); });
        s_.list(p.regions, [&](auto& region) { this->region(region); });
        check_ways(p);
        --depth_;
    }

    void dims(F<std::vector<Expr>> shape) {
        s_.list(shape, [this](auto& e) { s_.expr(e); });
    }

  private:
    static constexpr int kMostNested = 50;
    using Program_ = F<Program>;

    template <class V>
    void values(V& all) {
        if constexpr (Stream::kReads) {
            std::vector<Value> read;
            s_.list(read, [this](Value& v) { value(v); });
            for (Value& v : read) all.push_back(std::move(v));
        } else {
            s_.number(all.size());
            for (const Value& v : all) value(v);
        }
        values_ = all.size();
    }
    void value(F<Value> v) {
        s_.text(v.name);
        s_.enumerator(v.dtype, DType::U2);
        dims(v.shape);
    }

    void id(F<ValueId> v) {
        if constexpr (Stream::kReads) {
            uint64_t n = 0;
            s_.number(n);
            s_.require(n < values_, "a value of the plan");
            v = ValueId(static_cast<size_t>(n));
        } else {
            s_.number(v.index());
        }
    }
    /// A value that may be missing.
    void optional_id(F<ValueId> v) {
        bool there = static_cast<bool>(v);
        s_.flag(there);
        if (there) id(v);
    }
    void ids(F<std::vector<ValueId>> all) {
        s_.list(all, [this](auto& v) { id(v); });
    }

    void constants(F<std::map<ValueId, Tensor>> all) {
        if constexpr (Stream::kReads) {
            std::vector<char> each;
            s_.list(each, [&](char&) {
                ValueId v;
                DType dtype = DType::F32;
                std::vector<int64_t> shape;
                uint64_t offset = 0;
                id(v);
                s_.enumerator(dtype, DType::U2);
                s_.list(shape, [this](int64_t& d) { s_.integer(d); });
                s_.number(offset);
                all.insert_or_assign(v, constants_.at(dtype, std::move(shape), offset));
            });
        } else {
            s_.number(all.size());
            for (const auto& [v, t] : all) {
                id(v);
                s_.enumerator(t.dtype(), DType::U2);
                s_.list(t.shape(), [this](int64_t d) { s_.integer(d); });
                s_.number(constants_.place(t));
            }
        }
    }

    void requirement(F<Requirement> r) {
        s_.enumerator(r.kind, Requirement::Kind::Declared);
        s_.expr(r.a);
        s_.expr(r.b);
        s_.text(r.what);
        s_.text(r.source);
        s_.enumerator(r.when, Requirement::Check::Fallback);
    }

    void step(F<Step> step, Program_ program) {
        bool is_kernel = std::holds_alternative<KernelCall>(step.what);
        s_.flag(is_kernel);
        if constexpr (Stream::kReads) {
            if (is_kernel) {
                call(step.what.template emplace<KernelCall>());
            } else {
                Primitive p;
                primitive(p);
                bodies(step, p);
                check(step, p);
                step.what = program.primitives.push_back(std::move(p));
            }
        } else if (is_kernel) {
            call(std::get<KernelCall>(step.what));
        } else {
            const Primitive& p = program.primitives[std::get<PrimitiveId>(step.what)];
            primitive(p);
            bodies(step, p);
        }
    }

    void call(F<KernelCall> c) {
        s_.number(c.kernel);
        s_.require(c.kernel < kernels_, "a kernel of the model");
        ids(c.tensors);
        s_.number(c.results);
        s_.require(c.results <= c.tensors.size(), "results among a kernel's tensors");
        s_.list(c.products, [this](auto& extents) { dims(extents); });
        s_.text(c.name);
        way(c);
    }

    void way(F<KernelCall> c) {
        bool there = c.way.has_value();
        s_.flag(there);
        if (!there) return;
        if constexpr (Stream::kReads) c.way.emplace();
        s_.number(c.way->region);
        s_.number(c.way->way);
    }

    void region(F<Region> r) {
        s_.text(r.name);
        Field<Stream, Dispatch> d = r.dispatch;
        dims(d.keys);
        s_.list(d.cuts, [this](auto& cuts) { s_.list(cuts, [this](auto& cut) { s_.integer(cut); }); });
        s_.list(d.table, [this](auto& way) { s_.number(way); });
        s_.list(d.needs, [this](auto& needs) { dims(needs); });
        s_.number(d.otherwise);
        s_.require(d.faults().empty(), "a complete table of ways");
    }
    void check_ways(const Plan& p) {
        for (const Step& step : p.steps)
            if (const auto* call = std::get_if<KernelCall>(&step.what); call != nullptr && call->way)
                s_.require(call->way->region < p.regions.size() &&
                               call->way->way < p.regions[call->way->region].dispatch.ways(),
                           "a way of a region of the plan");
    }

    void primitive(F<Primitive> p) {
        s_.text(p.name);
        ids(p.outputs);
        uint64_t kind = p.kind.index();
        s_.number(kind);
        if constexpr (Stream::kReads) {
            if (kind == 1)
                p.kind = Opaque{};
            else if (kind == 2)
                p.kind = ReadScalar{};
            else if (kind == 3)
                p.kind = If{};
            else
                p.kind = Loop{};
            s_.require(kind >= 1 && kind <= 4, "a kind of step");
        }
        if (auto* opaque = std::get_if<Opaque>(&p.kind)) {
            opaque_op(*opaque, p.name);
        } else if (auto* read = std::get_if<ReadScalar>(&p.kind)) {
            id(read->value);
            s_.integer(read->position);
            s_.require(read->position >= 0, "a position in a tensor");
            s_.text(read->name);
        } else if (auto* branch = std::get_if<If>(&p.kind)) {
            id(branch->condition);
            ids(branch->captures);
        } else if (auto* loop = std::get_if<Loop>(&p.kind)) {
            this->loop(*loop);
        }
    }

    void opaque_op(F<Opaque> o, const std::string& node) {
        if constexpr (Stream::kReads) {
            std::string text;
            s_.text(text);
            o.op = tilewright::opaque_op(text, operators_);
            if (!o.op) model_error("'{}': this build has no operator {}", node, text);
        } else {
            const std::string text = o.op->print();
            CustomOperators own;
            if (auto custom = custom_operator_of(*o.op)) own.add(std::move(custom));
            const auto same = tilewright::opaque_op(text, &own);
            if (!same || same->print() != text) model_error("'{}': operator {} cannot be saved", node, text);
            s_.text(text);
        }
        s_.list(o.inputs, [this](auto& v) { optional_id(v); });
    }

    void loop(F<Loop> l) {
        bool counted = l.trip_count.has_value(), conditional = l.condition.has_value();
        s_.flag(counted);
        s_.flag(conditional);
        s_.flag(l.has_condition);
        if constexpr (Stream::kReads) {
            if (counted) l.trip_count.emplace();
            if (conditional) l.condition.emplace();
        }
        if (counted) s_.expr(*l.trip_count);
        if (conditional) id(*l.condition);
        ids(l.carried);
        s_.list(l.scan_inputs, [this](auto& in) {
            id(in.value);
            s_.integer(in.axis);
            s_.flag(in.reverse);
        });
        s_.list(l.scan_outputs, [this](auto& out) {
            s_.integer(out.axis);
            s_.flag(out.reverse);
        });
        ids(l.captures);
    }

    void bodies(F<Step> step, const Primitive&) {
        const uint64_t values = values_;
        if constexpr (Stream::kReads) {
            s_.list(step.bodies, [this](std::shared_ptr<const Plan>& body) {
                auto read = std::make_shared<Plan>();
                plan(*read);
                body = std::move(read);
            });
        } else {
            s_.list(step.bodies, [this](const std::shared_ptr<const Plan>& body) { plan(*body); });
        }
        values_ = values;
    }

    /// Bodies have the inputs and outputs that the executor gives to and takes from them.
    void check(const Step& step, const Primitive& p) const {
        const auto has = [&](size_t in, size_t out) {
            return std::all_of(step.bodies.begin(), step.bodies.end(), [&](const auto& b) {
                return b->program.inputs.size() == in && b->program.outputs.size() == out;
            });
        };
        size_t count = 0;
        if (const auto* branch = std::get_if<If>(&p.kind)) {
            count = 2;
            s_.require(has(branch->captures.size(), p.outputs.size()), "branches with the operands of their step");
        } else if (const auto* l = std::get_if<Loop>(&p.kind)) {
            count = 1;
            const size_t condition = l->has_condition ? 1 : 0, carried = l->carried.size();
            s_.require(has(1 + condition + carried + l->scan_inputs.size() + l->captures.size(),
                           condition + carried + l->scan_outputs.size()) &&
                           p.outputs.size() == carried + l->scan_outputs.size(),
                       "a loop body with the operands of its step");
        }
        s_.require(step.bodies.size() == count, "the bodies of a step");
    }

    void slices(F<Slices> slices, F<Plan> p) {
        s_.number(slices.first);
        s_.number(slices.count);
        s_.integer(slices.slices);
        ids(slices.kept);
        const size_t steps = p.steps.size();
        bool fits = slices.count <= steps && slices.first <= steps - slices.count && slices.slices > 0;
        for (size_t k = 0; fits && k < slices.count; ++k)
            fits = std::holds_alternative<KernelCall>(p.steps[slices.first + k].what);
        s_.require(fits, "kernels that run slice by slice");
    }

    Stream& s_;
    Constants& constants_;
    const uint64_t kernels_;
    const CustomOperators* operators_;
    uint64_t values_ = 0;  ///< of the plan whose fields are streamed
    int depth_ = 0;
};

template <class Stream>
void stream_info(Stream& s, Field<Stream, ModelInfo> i) {
    for (auto* text : {&i.producer, &i.graph_name, &i.domain, &i.description, &i.graph_description}) s.text(*text);
    s.integer(i.version);
    std::vector<std::pair<std::string, std::string>> metadata(i.metadata.begin(), i.metadata.end());
    s.list(metadata, [&](auto& entry) {
        s.text(entry.first);
        s.text(entry.second);
    });
    if constexpr (Stream::kReads) i.metadata = {metadata.begin(), metadata.end()};
}

template <class Stream>
void stream_about(Stream& s, Field<Stream, About> a) {
    s.text(a.compiler);
    s.text(a.origin.hash);
    stream_info(s, a.origin.info);
    s.text(a.platform.arch);
    s.text(a.platform.cpu);
    s.enumerator(a.platform.isa, VectorIsa::neon);
    s.list(a.platform.features, [&](auto& f) { s.text(f); });
}

template <class Stream>
void stream_io(Stream& s, Field<Stream, std::vector<ModelIo>> all) {
    s.list(all, [&](auto& io) {
        s.text(io.name);
        s.enumerator(io.dtype, DType::U2);
        s.list(io.shape, [&](auto& d) { s.expr(d); });
    });
}

inline void stream_name(ByteWriter& s, const Var& v) { s.expr(Expr::var(v)); }
inline void stream_name(ByteReader& s, Var& v) {
    Expr e;
    s.expr(e);
    s.require(e.as_var().has_value(), "a name that a kernel reads");
    v = *e.as_var();
}

template <class Stream>
void stream_kernels(Stream& s, Field<Stream, std::vector<cpu::CompiledKernel>> all) {
    s.list(all, [&](auto& k) {
        s.text(k.name);
        s.list(k.names, [&](auto& v) { stream_name(s, v); });
        s.list(k.grid, [&](auto& e) { s.expr(e); });
        s.integer(k.scratch_bytes);
        s.require(k.scratch_bytes >= 0 && k.scratch_bytes < int64_t{1} << 40, "a kernel's scratch memory");
    });
}

template <class Stream>
void stream_appends(Stream& s, Field<Stream, CompiledModel::Impl> model) {
    s.list(model.appends, [&](auto& a) {
        s.number(a.input);
        s.number(a.output);
        s.number(a.axis);
        s.require(a.input < model.inputs.size() && a.output < model.outputs.size(), "an input and an output");
        const size_t rank = model.inputs[a.input].shape.size();
        const Program& p = model.plan.program;
        s.require(a.axis < rank && model.outputs[a.output].shape.size() == rank &&
                      p.values[p.inputs[a.input]].shape.size() == rank &&
                      p.values[p.outputs[a.output]].shape.size() == rank,
                  "a dimension of an input and of the output that extends it");
    });
}

template <class Stream>
void stream_model(Stream& s, typename PlanStream<Stream>::Constants& constants,
                  Field<Stream, CompiledModel::Impl> model, const CustomOperators* operators = nullptr) {
    stream_io(s, model.inputs);
    stream_io(s, model.outputs);
    s.flag(model.keep_subnormals);
    stream_kernels(s, model.code);
    PlanStream<Stream>(s, constants, model.code.size(), operators).plan(model.plan);
    s.require(model.inputs.size() == model.plan.program.inputs.size() &&
                  model.outputs.size() == model.plan.program.outputs.size(),
              "the plan's inputs and outputs to be the model's");
    stream_appends(s, model);
}

}  // namespace tilewright::artifact
