#include "driver/bisect/evaluate.h"

#include <algorithm>

#include "base/error.h"
#include "program/watch.h"

namespace tilewright::bisect {

Tensor in_type(const Tensor& tensor, DType to) {
    if (tensor.dtype() == to) return tensor;
    Tensor out(to, tensor.shape(), false);
    if (tensor.dtype() == DType::F64 && to == DType::F32) {
        const auto from = tensor.as<double>();
        const auto into = out.as_mutable<float>();
        for (size_t i = 0; i < from.size(); ++i) into[i] = static_cast<float>(from[i]);
        return out;
    }
    for (int64_t i = 0; i < tensor.count(); ++i)
        is_float(tensor.dtype()) ? out.set(i, tensor.get(i)) : out.set(i, tensor.get_int(i));
    return out;
}

std::map<std::string, ValueId> ids_by_name(const Program& program) {
    std::map<std::string, ValueId> ids;
    for (const ValueId v : program.values.ids()) ids.emplace(program.values[v].name, v);
    return ids;
}

Evaluation evaluate(const Program& program, const std::vector<Tensor>& inputs, Precision precision,
                    const std::function<bool(const std::string&)>& keep) {
    std::map<ValueId, std::vector<const ReadScalar*>> scalars;
    for (const Primitive& p : program.primitives)
        if (const auto* read = std::get_if<ReadScalar>(&p.kind)) scalars[read->value].push_back(read);
    Evaluation out;
    const auto watch = [&](ValueId v, const Tensor& contents) {
        const Value& value = program.values[v];
        for (size_t d = 0; d < value.shape.size() && d < contents.shape().size(); ++d)
            if (const auto s = bound_symbol(value.shape[d]))
                out.names.emplace(*s, contents.shape()[d] / size_name(*s).step);
        if (const auto it = scalars.find(v); it != scalars.end())
            for (const ReadScalar* read : it->second)
                if (read->position < contents.count())
                    out.names[*scalar(read->name).as_var()] = contents.get_int(read->position);
        if (keep && !program.is_constant(v) && keep(value.name)) out.values[v] = in_type(contents, value.dtype);
    };
    try {
        out.outputs = interpret(program, inputs, {.exact = precision == Precision::Exact}, watch);
    } catch (const InternalError& e) {
        out.failure = e.what();
        return out;
    }
    for (size_t k = 0; k < out.outputs.size(); ++k)
        out.outputs[k] = in_type(out.outputs[k], program.values[program.outputs[k]].dtype);
    return out;
}

Cone cone(const Program& program, const std::vector<ValueId>& of, const std::function<bool(ValueId)>& known) {
    const IndexVector<ValueId, PrimitiveId> producers = program.producers();
    Cone out;
    std::vector<ValueId> pending = of;
    std::set<ValueId> seen(of.begin(), of.end());
    for (size_t k = 0; k < pending.size(); ++k) {
        const ValueId v = pending[k];
        if (program.is_constant(v)) continue;
        if (!producers[v] || (k >= of.size() && known(v))) {
            out.from.insert(v);
            continue;
        }
        if (!out.primitives.insert(producers[v]).second) continue;
        for (const ValueId input : program.primitives[producers[v]].inputs())
            if (seen.insert(input).second) pending.push_back(input);
    }
    return out;
}

std::vector<Compared> first_parted(const Program& program, const std::map<ValueId, Comparison>& compared) {
    std::vector<Compared> first;
    const auto known = [&](ValueId v) { return compared.count(v) != 0; };
    for (const Primitive& p : program.primitives)
        for (const ValueId v : p.outputs) {
            const auto it = compared.find(v);
            if (it == compared.end() || it->second.ok) continue;
            const Cone c = cone(program, {v}, known);
            const bool agrees = std::all_of(c.from.begin(), c.from.end(), [&](ValueId from) {
                const auto other = compared.find(from);
                return other == compared.end() || other->second.ok;
            });
            if (agrees) first.push_back({v, it->second});
        }
    return first;
}

}  // namespace tilewright::bisect
