#include "tune/canonical.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "program/transform/substitute.h"

namespace tilewright {
namespace {

/// Numbers symbols and scalars in order of first use.
class NameOrder {
  public:
    /// Numbers the names that `e` mentions first. Within one expression the order must not depend on the names,
    /// although the order of its terms does. New names are therefore sorted by the text in which this name is
    /// distinguished from all other new ones:   $y + 2*$x   ->   for $y: "$~0 + 2*$~1",   for $x: "$~1 + 2*$~0".
    void visit(Expr e) {
        std::vector<std::pair<std::string, Var>> fresh;
        for (const Var v : variables(e))
            if (named(v) && places_.count(v) == 0) fresh.emplace_back("", v);
        if (fresh.size() > 1) {
            for (auto& [text, v] : fresh) {
                text = substitute(e, [&, self = v](Var w) -> std::optional<Expr> {
                           if (!named(w)) return std::nullopt;
                           if (const auto known = places_.find(w); known != places_.end()) return known->second;
                           return symbol(w == self ? "~0" : "~1");
                       }).text();
            }
            std::stable_sort(fresh.begin(), fresh.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; });
        }
        for (const auto& [text, v] : fresh) add(v);
    }

    const std::map<Var, Expr>& places() const { return places_; }
    const std::vector<Var>& order() const { return order_; }

  private:
    static bool named(Var v) { return v.kind == VarKind::Symbol || v.kind == VarKind::Scalar; }

    void add(Var v) {
        const std::string name = fmt::format("s{}", order_.size());
        places_.emplace(v, v.kind == VarKind::Symbol ? symbol(name) : scalar(name));
        order_.push_back(v);
    }

    std::map<Var, Expr> places_;
    std::vector<Var> order_;
};

NameOrder name_order(const Program& stages) {
    NameOrder names;
    const auto shape = [&](ValueId v) {
        for (const Expr d : stages.values[v].shape) names.visit(d);
    };
    for (const ValueId v : stages.inputs) shape(v);
    for (const auto& [v, tensor] : stages.constants) shape(v);
    for (const Primitive& p : stages.primitives) {
        TW_CHECK(p.expr() != nullptr, "kernel {}: stage {} is not a tensor expression", stages.name, p.name);
        for (const ValueId v : p.outputs) shape(v);
        map_exprs(*p.expr(), [&](Expr e) {
            names.visit(e);
            return e;
        });
    }
    return names;
}

/// The values in the order in which print() declares them, each once.
std::vector<ValueId> value_order(const Program& stages) {
    std::vector<ValueId> order = stages.inputs;
    for (const auto& [v, tensor] : stages.constants) order.push_back(v);
    for (const Primitive& p : stages.primitives) order.insert(order.end(), p.outputs.begin(), p.outputs.end());
    std::set<ValueId> seen;
    order.erase(std::remove_if(order.begin(), order.end(), [&](ValueId v) { return !seen.insert(v).second; }),
                order.end());
    return order;
}

Program canonical(const Program& stages, const NameOrder& names) {
    Program out = substitute_names(stages, names.places());
    out.name = "k";
    for (Value& v : out.values) v.name.clear();
    size_t place = 0;
    for (const ValueId v : value_order(out)) out.values[v].name = fmt::format("v{}", place++);
    for (Primitive& p : out.primitives) p.name = p.source = "";
    return out;
}

TileProgram canonical(const TileProgram& program) {
    const NameOrder names = name_order(program.stages);
    TileProgram out = program;
    out.name = "k";
    out.stages = canonical(program.stages, names);
    for (size_t a = 0; a < out.axes.size(); ++a) {
        out.axes[a].name = fmt::format("a{}", a);
        out.axes[a].extent = substitute(out.axes[a].extent, [&](Var v) -> std::optional<Expr> {
            const auto place = names.places().find(v);
            return place == names.places().end() ? std::nullopt : std::optional(place->second);
        });
    }
    return out;
}

// print() of a tile program puts the stages between these; canonical names and texts contain no such lines.
constexpr std::string_view kHead = "tile k {\n", kStagesBegin = "stages {\n", kStagesEnd = "}\n";

}  // namespace

std::string canonical_text(const Program& stages) { return print(canonical(stages, name_order(stages))); }

std::string canonical_text(const TileProgram& program) { return print(canonical(program)); }

TileProgram with_canonical_names(const TileProgram& program) { return canonical(program); }

std::string schedule_text(const TileProgram& program) {
    const TileProgram renamed = canonical(program);
    std::string text = print(renamed);
    const std::string head = fmt::format("{}{}{}{}", kHead, kStagesBegin, print(renamed.stages), kStagesEnd);
    TW_CHECK(text.starts_with(head), "a tile program's text does not begin with its stages");
    return fmt::format("{}{}", kHead, std::string_view(text).substr(head.size()));
}

TileProgram with_schedule(const Program& stages, std::string_view schedule) {
    if (!schedule.starts_with(kHead))
        model_error("schedule: expected a text that begins with 'tile k {{', found '{}'", schedule.substr(0, 20));
    const NameOrder names = name_order(stages);
    const Program renamed = canonical(stages, names);
    TileProgram out = parse_tile_program(
        fmt::format("{}{}{}{}{}", kHead, kStagesBegin, print(renamed), kStagesEnd, schedule.substr(kHead.size())));
    // The parser has numbered the values anew: their canonical names map them to the values of `stages`.
    std::map<std::string, ValueId> own;
    for (const ValueId v : value_order(renamed)) own.emplace(renamed.values[v].name, v);
    const auto back = [&](ValueId v) { return own.at(out.stages.values[v].name); };
    std::map<ValueId, Layout> layouts;
    for (auto& [v, layout] : out.buffer_layouts) layouts.emplace(back(v), std::move(layout));
    out.buffer_layouts = std::move(layouts);
    std::set<ValueId> near;
    for (const ValueId v : out.near) near.insert(back(v));
    out.near = std::move(near);
    const auto restore = [&](const auto& self, std::vector<Stmt>& body) -> void {
        for (Stmt& s : body) {
            if (auto* loop = std::get_if<TileLoop>(&s.kind)) self(self, loop->body);
            if (auto* store = std::get_if<Store>(&s.kind)) store->value = back(store->value);
        }
    };
    restore(restore, out.body);
    std::map<Var, Expr> given;
    for (const auto& [v, place] : names.places())
        if (const auto var = place.as_var()) given.emplace(*var, Expr::var(v));
    for (TileAxis& a : out.axes)
        a.extent = substitute(a.extent, [&](Var v) -> std::optional<Expr> {
            const auto it = given.find(v);
            return it == given.end() ? std::nullopt : std::optional(it->second);
        });
    out.name = stages.name;
    out.stages = stages;
    const std::vector<std::string> faults = verify(out);
    if (!faults.empty()) model_error("schedule: not legal for kernel '{}': {}", stages.name, faults.front());
    return out;
}

std::string canonical_sizes(const Program& stages, const Bindings& bindings) {
    const NameOrder names = name_order(stages);
    std::string text;
    size_t place = 0;
    for (const Var v : names.order()) {
        const auto it = bindings.find(v);
        TW_CHECK(it != bindings.end(), "no value for '{}' of kernel '{}'", var_name(v), stages.name);
        text += fmt::format("{}s{}={}", place == 0 ? "" : " ", place, it->second);
        ++place;
    }
    return text;
}

}  // namespace tilewright
