#include <fmt/format.h>

#include <cstring>

#include "base/hash.h"
#include "program/program.h"
#include "program/text.h"

namespace tilewright {

namespace {

std::string value_name(const Program& p, ValueId v) {
    if (!v) return "-";
    return p.values.contains(v) ? name_text(p.values[v].name) : fmt::format("\"value {}\"", v.index());
}

std::string value_names(const Program& p, const std::vector<ValueId>& values) {
    std::string s;
    for (const ValueId v : values) s += (s.empty() ? "" : ", ") + value_name(p, v);
    return s;
}

std::string declaration(const Program& p, ValueId v) {
    if (!p.values.contains(v)) return value_name(p, v);
    return fmt::format("{}: {}{}", value_name(p, v), to_string(p.values[v].dtype), to_string(p.values[v].shape));
}

std::string element_text(const Tensor& t, int64_t i) {
    if (t.dtype() == DType::Bool) return t.get_int(i) != 0 ? "true" : "false";
    if (t.dtype() == DType::F64) return double_text(t.get(i));
    if (is_float(t.dtype())) return float_text(static_cast<float>(t.get(i)));
    if (t.dtype() == DType::U64) return fmt::format("{}", static_cast<uint64_t>(t.get_int(i)));
    return fmt::format("{}", t.get_int(i));
}

std::string contents_text(const Program& p, ValueId v, const Tensor& t) {
    const auto unread = p.unread.find(v);
    if (unread != p.unread.end()) return fmt::format("#{:016x}", unread->second);
    if (t.count() > kSmallConstant) return fmt::format("#{:016x}", contents_hash(t));
    std::string s = "{";
    for (int64_t i = 0; i < t.count(); ++i) s += (i > 0 ? ", " : "") + element_text(t, i);
    return s + "}";
}

std::string access_text(const Program& p, const Access& a) {
    std::string s = value_name(p, a.value) + to_string(a.index);
    if (a.valid.empty()) return s;
    for (size_t k = 0; k < a.valid.size(); ++k)
        s += fmt::format(" {} {} >= 0", k == 0 ? "when" : "and", a.valid[k].text());
    return s + " else " + double_text(a.fill);
}

std::string opaque_text(const Program& p, const Opaque& o) {
    return fmt::format("opaque {}({})", name_text(o.op ? o.op->print() : ""), value_names(p, o.inputs));
}

std::string loop_text(const Program& p, const Loop& l) {
    std::string s = "loop";
    if (l.trip_count) s += fmt::format(" trip({})", l.trip_count->text());
    if (l.condition) s += fmt::format(" while({})", value_name(p, *l.condition));
    if (l.has_condition) s += " conditional";
    if (!l.carried.empty()) s += fmt::format(" carried({})", value_names(p, l.carried));
    std::string list;
    for (const Loop::ScanInput& i : l.scan_inputs)
        list += fmt::format("{}{} axis {}{}", list.empty() ? "" : ", ", value_name(p, i.value), i.axis,
                            i.reverse ? " reverse" : "");
    if (!list.empty()) s += fmt::format(" scan({})", list);
    list.clear();
    for (const Loop::ScanOutput& o : l.scan_outputs)
        list += fmt::format("{}axis {}{}", list.empty() ? "" : ", ", o.axis, o.reverse ? " reverse" : "");
    if (!list.empty()) s += fmt::format(" stack({})", list);
    if (!l.captures.empty()) s += fmt::format(" captures({})", value_names(p, l.captures));
    return s;
}

class Printer {
  public:
    std::string text;

    void program(const Program& p, std::string_view head, const std::string& indent) {
        text += fmt::format("{}{} {} {{\n", indent, head, name_text(p.name));
        const std::string inner = indent + "  ";
        for (const ValueId v : p.inputs) text += fmt::format("{}input {}\n", inner, declaration(p, v));
        for (const auto& [v, most] : p.at_most)
            text += fmt::format("{}bound {} [{}]\n", inner, most, Expr::var(v).text());
        for (const auto& [v, tensor] : p.constants)
            text += fmt::format("{}const {} = {}\n", inner, declaration(p, v), contents_text(p, v, tensor));
        for (const Requirement& r : p.requirements)
            text +=
                fmt::format("{}require {} {}{}  ; {} {}\n", inner, to_string(r.kind), to_string(std::vector{r.a, r.b}),
                            r.when == Requirement::Check::Free ? "" : fmt::format(" {}", to_string(r.when)),
                            name_text(r.what), name_text(r.source));
        for (const Primitive& primitive : p.primitives) line(p, primitive, inner);
        if (!p.outputs.empty()) text += fmt::format("{}output {}\n", inner, value_names(p, p.outputs));
        text += indent + "}\n";
    }

  private:
    void line(const Program& p, const Primitive& primitive, const std::string& indent) {
        std::string left;
        for (const ValueId v : primitive.outputs) left += (left.empty() ? "" : ", ") + declaration(p, v);
        if (left.empty()) left = "()";
        std::string right;
        const auto* branch = std::get_if<If>(&primitive.kind);
        const auto* loop = std::get_if<Loop>(&primitive.kind);
        if (const TensorExpr* e = primitive.expr()) {
            right = print(p, *e);
        } else if (const auto* opaque = std::get_if<Opaque>(&primitive.kind)) {
            right = opaque_text(p, *opaque);
        } else if (const auto* read = std::get_if<ReadScalar>(&primitive.kind)) {
            left = scalar(read->name).text();
            right = fmt::format("read {}[{}]", value_name(p, read->value), read->position);
        } else if (branch != nullptr) {
            right = fmt::format("if {}({})", value_name(p, branch->condition), value_names(p, branch->captures));
        } else {
            right = loop_text(p, *loop);
        }
        text += fmt::format("{}{} = {}", indent, left, right);
        if (!primitive.name.empty() || !primitive.source.empty())
            text += fmt::format("  ; {} {}", name_text(primitive.name), name_text(primitive.source));
        text += '\n';
        static const Program kNothing;
        const auto nested = [&](const std::shared_ptr<const Program>& body, std::string_view head) {
            program(body ? *body : kNothing, head, indent + "  ");
        };
        if (branch != nullptr) {
            nested(branch->then_branch, "then");
            nested(branch->else_branch, "else");
        }
        if (loop != nullptr) nested(loop->body, "body");
    }
};

}  // namespace

uint64_t contents_hash(const Tensor& tensor) {
    uint64_t h = hash_text(to_string(tensor.dtype()));
    for (const int64_t d : tensor.shape()) h = hash_combine(h, static_cast<uint64_t>(d));
    // Four independent accumulators over 64-bit words: weights of hundreds of megabytes are hashed at memory speed.
    uint64_t lane[4] = {h, h + 1, h + 2, h + 3};
    const auto* bytes = static_cast<const char*>(tensor.data());
    const auto mix = [](uint64_t& to, uint64_t word) {
        to = (to ^ word) * 0x9E3779B97F4A7C15ull;
        to ^= to >> 29;
    };
    size_t at = 0;
    for (; at + 32 <= tensor.bytes(); at += 32) {
        uint64_t words[4];
        std::memcpy(words, bytes + at, 32);
        for (size_t k = 0; k < 4; ++k) mix(lane[k], words[k]);
    }
    for (; at < tensor.bytes(); ++at) mix(lane[0], static_cast<unsigned char>(bytes[at]));
    for (const uint64_t l : lane) h = hash_combine(h, l);
    return h;
}

std::string print(const Program& program, const TensorExpr& e) {
    const size_t spatial = std::min(e.spatial, e.extents.size());
    std::string s = to_string(std::span(e.extents).first(spatial));
    if (!e.output_index.empty()) s += " -> " + to_string(e.output_index);
    if (e.reducer != Reducer::None || spatial < e.extents.size()) {
        s += fmt::format(" {}(", to_string(e.reducer));
        for (size_t k = spatial; k < e.extents.size(); ++k)
            s += fmt::format("{}i{} < {}", k > spatial ? ", " : "", k, e.extents[k].text());
        s += ')';
    }
    s += " " + e.body.print();
    if (!e.epilogue.empty()) s += " then " + e.epilogue.print();
    for (size_t k = 0; k < e.accesses.size(); ++k)
        s += fmt::format("{} @{} = {}", k == 0 ? " where" : ",", k, access_text(program, e.accesses[k]));
    return s;
}

std::string print(const Program& program) {
    Printer printer;
    printer.program(program, "program", "");
    return std::move(printer.text);
}

}  // namespace tilewright
