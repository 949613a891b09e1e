#include "program/rewrite/kept.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "base/build_id.h"
#include "base/error.h"
#include "program/text.h"

namespace tilewright {

namespace {

std::string text_of_report(const RewriteReport& r) {
    std::string text = fmt::format("report {} {} {} {} {} {} {} {} {} {}\napplied {}", r.pieces, r.distinct, r.taken,
                                   r.costed, double_text(r.before), double_text(r.after), r.planned, r.rejected_by_plan,
                                   double_text(r.planned_before), double_text(r.planned_after), r.applied.size());
    for (const auto& [rule, times] : r.applied) text += fmt::format(" {} {}", name_text(rule), times);
    return text + '\n';
}

std::optional<std::string> text_of_piece(const Rewritten& what, const Piece& piece) {
    const Program& p = what.program;
    const size_t known = piece.program.values.size();
    for (const auto& [v, tensor] : p.constants)
        if (v.index() >= known && (tensor.count() > kSmallConstant || p.unread.count(v) != 0)) return std::nullopt;
    std::string text = fmt::format("piece {} {} {}", double_text(what.cost), what.inexact ? 1 : 0, what.way.size());
    for (const std::string_view rule : what.way) text += ' ' + name_text(rule);
    text += fmt::format("\nvalues {}\n", p.values.size() - known);
    for (size_t k = known; k < p.values.size(); ++k) {
        const Value& v = p.values[ValueId(k)];
        text += fmt::format("{}: {}{}\n", name_text(v.name), to_string(v.dtype), to_string(v.shape));
    }
    for (const Primitive& primitive : p.primitives)
        text += fmt::format("origin {} {}\n", primitive.origin.nodes.size(), fmt::join(primitive.origin.nodes, " "));
    const std::string program = print(p);
    return text + fmt::format("program {}\n{}", program.size(), program);
}

class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text), cursor_(text, "kept rewrites") {}

    RewriteReport report() {
        RewriteReport r;
        cursor_.expect_word("report");
        for (size_t* const n : {&r.pieces, &r.distinct, &r.taken, &r.costed}) *n = count();
        r.before = cursor_.number();
        r.after = cursor_.number();
        r.planned = count();
        r.rejected_by_plan = count();
        r.planned_before = cursor_.number();
        r.planned_after = cursor_.number();
        cursor_.expect_word("applied");
        for (size_t left = count(); left > 0; --left) {
            const std::string rule = cursor_.name();
            r.applied[rule] = count();
        }
        return r;
    }

    std::optional<Rewritten> piece(const Piece& from) {
        if (cursor_.eat_word("unchanged")) return std::nullopt;
        Rewritten out;
        cursor_.expect_word("piece");
        out.cost = cursor_.number();
        out.inexact = cursor_.integer() != 0;
        for (size_t left = count(); left > 0; --left) {
            const RewriteRule* rule = rewrite_rule(cursor_.name());
            if (rule == nullptr) cursor_.fail("no such rule");
            out.way.push_back(rule->name);
        }
        out.program = program(from.program);
        return out;
    }

    void end() {
        if (!cursor_.at_end()) cursor_.fail_expected("the end");
    }

  private:
    size_t count() {
        const int64_t n = cursor_.integer();
        if (n < 0 || static_cast<size_t>(n) > text_.size()) cursor_.fail("a count out of range");
        return static_cast<size_t>(n);
    }

    /// A piece's program: values of the piece keep their numbers, new ones follow in the order of the text.
    Program program(const Program& piece) {
        Program out;
        out.name = piece.name;
        out.assumed = piece.assumed;
        out.values = piece.values;
        cursor_.expect_word("values");
        for (size_t left = count(); left > 0; --left) {
            Value v;
            v.name = cursor_.name();
            cursor_.expect(":");
            v.dtype = cursor_.dtype();
            v.shape = cursor_.expr_list();
            out.values.push_back(std::move(v));
        }
        std::unordered_map<std::string, ValueId> ids;
        for (const ValueId v : out.values.ids())
            if (!ids.emplace(out.values[v].name, v).second) cursor_.fail("two values of one name");
        std::vector<Origin> origins;
        while (cursor_.eat_word("origin")) {
            origins.emplace_back();
            for (size_t left = count(); left > 0; --left)
                origins.back().nodes.push_back(static_cast<uint32_t>(cursor_.integer()));
        }
        cursor_.expect_word("program");
        const size_t size = count(), begin = cursor_.position() + 1;
        if (begin > text_.size() || size > text_.size() - begin) cursor_.fail("a text cut short");
        const Program parsed = parse_program(text_.substr(begin, size));
        cursor_.rewind(begin + size);
        renumber(parsed, piece, ids, out);
        if (origins.size() != out.primitives.size()) cursor_.fail("an origin for each primitive");
        for (const PrimitiveId id : out.primitives.ids()) out.primitives[id].origin = std::move(origins[id.index()]);
        if (!verify(out).empty()) cursor_.fail("a program that is not valid");
        return out;
    }

    void renumber(const Program& parsed, const Program& piece, const std::unordered_map<std::string, ValueId>& ids,
                  Program& out) {
        IndexVector<ValueId, ValueId> moved;
        for (const Value& v : parsed.values) {
            const auto it = ids.find(v.name);
            if (it == ids.end() || out.values[it->second].dtype != v.dtype || out.values[it->second].shape != v.shape)
                cursor_.fail("a value of another form");
            moved.push_back(it->second);
        }
        const auto all_moved = [&](std::vector<ValueId> values) {
            for (ValueId& v : values) v = moved[v];
            return values;
        };
        out.inputs = all_moved(parsed.inputs);
        out.outputs = all_moved(parsed.outputs);
        if (out.inputs != piece.inputs || out.outputs != piece.outputs) cursor_.fail("other inputs or outputs");
        for (const auto& [v, tensor] : parsed.constants) {
            const auto own = piece.constants.find(moved[v]);
            const bool is_new = moved[v].index() >= piece.values.size();
            if (is_new ? parsed.unread.count(v) != 0 : own == piece.constants.end()) cursor_.fail("another constant");
            out.constants.emplace(moved[v], is_new ? tensor : own->second);
            if (const auto unread = piece.unread.find(moved[v]); unread != piece.unread.end())
                out.unread.insert(*unread);
        }
        for (Primitive p : parsed.primitives) {
            if (p.expr() == nullptr) cursor_.fail_expected("tensor expressions");
            p.outputs = all_moved(p.outputs);
            for (Access& a : p.expr()->accesses) a.value = moved[a.value];
            out.primitives.push_back(std::move(p));
        }
    }

    std::string_view text_;
    TextCursor cursor_;
};

}  // namespace

std::string rewrite_options_text(const RewriteSearch& o) {
    const FoldOptions& f = o.rules.folding;
    return fmt::format(
        "rewrites by {} for {}, winograd {}, folding {} {} {} {}, {:a} {} {} {:a} {} {} {} {} {:a} {:a} {:a}\n",
        build_id(), o.evaluator_key, o.rules.winograd, f.work, f.total_work, f.growth, f.slack, o.alpha, o.budget,
        o.patience, o.growth, o.always, o.piece, o.across, o.programs, o.margin, o.inexact_margin, o.equal);
}

std::string rewrites_key(const Program& program, const std::vector<Run>& runs, const RewriteSearch& options) {
    if (!options.kept || options.evaluator_key.empty() || options.cost || build_id().empty()) return {};
    std::string text = rewrite_options_text(options);
    for (const auto& [begin, end] : runs) text += fmt::format("run {} {}\n", begin, end);
    for (const auto& [v, size] : program.assumed) text += fmt::format("assumed {} {}\n", Expr::var(v).text(), size);
    const RewriteContext context(program);
    Program form = program;
    for (const auto& [v, tensor] : program.constants) {
        form.unread.emplace(v, v.value);
        if (const auto fill = context.fill(v)) text += fmt::format("fill {} {:a}\n", v.value, *fill);
    }
    for (const Primitive& p : program.primitives)
        text += fmt::format("origin {} of {}\n", fmt::join(p.origin.nodes, " "), program.nodes.size());
    return text + print(form);
}

std::optional<std::string> print(const ChosenRewrites& chosen, const std::vector<const Piece*>& pieces) {
    TW_CHECK(chosen.pieces.size() == pieces.size());
    std::string text = text_of_report(chosen.report);
    for (size_t k = 0; k < pieces.size(); ++k) {
        const auto piece = chosen.pieces[k] ? text_of_piece(*chosen.pieces[k], *pieces[k]) : "unchanged\n";
        if (!piece) return std::nullopt;
        text += *piece;
    }
    return text;
}

std::optional<ChosenRewrites> parse_rewrites(std::string_view text, const std::vector<const Piece*>& pieces) {
    try {
        Reader reader(text);
        ChosenRewrites out;
        out.report = reader.report();
        for (const Piece* piece : pieces) out.pieces.push_back(reader.piece(*piece));
        reader.end();
        return out;
    } catch (const ModelError&) {
        return std::nullopt;
    }
}

}  // namespace tilewright
