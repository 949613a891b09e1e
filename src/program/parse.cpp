// The parser of programs.
//
//     program mlp {
//       input x: f32[$batch, 3]
//       bound 512 [$batch]                                            Program::at_most
//       const w: f32[3, 2] = {1, 2, 3, 4, 5, 6}                       large ones: = #0123456789abcdef
//       require broadcast [$batch, $rows]  ; dimensions "node 'add' (Add)"    equal, broadcast, spread, at_least,
//       declared h: f32[$batch, 2] = [$batch, 2] sum(i2 < 3) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ;
//       fc/products Gemm t: f32[4], k: i64[4] = opaque "TopK(axis=0)"(h, -)             - : an operand that is left out
//       ?n = read k[0] y: f32[] = if c(x)
//         then yes { ... }
//         else no { ... }
//       s: f32[2] = loop trip(?n) while(c) conditional carried(h) scan(x axis 0 reverse) stack(axis 1) captures(w)
//         body step { ... }
//       output y, s
//     }
//
// An expression is: spatial extents; "-> [..]" if there is an output index; the reducer with its axes; the body;
// "then" and an epilogue; "where", on the same line, and the accesses, each with "when e >= 0 and ... else fill" if it
// has conditions.
// Lines that begin with '#' are comments.

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "program/program.h"
#include "program/scalar_text.h"
#include "program/text.h"

namespace tilewright {

namespace {

constexpr int kMaxNestedPrograms = 50;

class Parser {
  public:
    Parser(std::string_view text, const OpaqueFactory& opaque) : text_(text, "program text"), opaque_(opaque) {}

    Program all() {
        text_.expect_word("program");
        Program p = block();
        if (!text_.at_end()) text_.fail_expected("the end of the text");
        return p;
    }

  private:
    struct Scope {
        Program program;
        std::unordered_map<std::string, ValueId> names;
    };

    Program block() {
        if (++depth_ > kMaxNestedPrograms) text_.fail("programs nested this deep");
        Scope s;
        s.program.name = text_.name();
        text_.expect("{");
        while (!text_.eat("}")) statement(s);
        --depth_;
        return std::move(s.program);
    }

    void statement(Scope& s) {
        if (text_.peek("?")) return read_scalar(s);
        const size_t start = text_.position();
        if (text_.eat("(")) {
            text_.expect(")");
            return primitive(s, {});
        }
        const std::string first = text_.name();
        if (!text_.peek(":")) {
            if (first == "input") return input(s);
            if (first == "const") return constant(s);
            if (first == "output") return outputs(s);
            if (first == "require") return requirement(s);
            if (first == "bound") return bound(s);
        }
        text_.rewind(start);
        std::vector<Value> made;
        do {
            made.push_back(declaration());
        } while (text_.eat(","));
        primitive(s, std::move(made));
    }

    Value declaration() {
        Value v;
        v.name = text_.name();
        text_.expect(":");
        v.dtype = text_.dtype();
        v.shape = text_.expr_list();
        return v;
    }

    ValueId define(Scope& s, Value v) {
        const std::string name = v.name;
        const ValueId id = s.program.values.push_back(std::move(v));
        if (!s.names.emplace(name, id).second) text_.fail(fmt::format("value '{}' is defined twice", name));
        return id;
    }

    ValueId operand(const Scope& s) {
        const size_t start = text_.position();
        const std::string name = text_.name();
        const auto it = s.names.find(name);
        if (it != s.names.end()) return it->second;
        text_.rewind(start);
        text_.at_end();
        text_.fail(fmt::format("value '{}' is not defined before its use", name));
    }

    std::vector<ValueId> operands(const Scope& s, bool optional = false) {
        std::vector<ValueId> out;
        text_.expect("(");
        if (text_.eat(")")) return out;
        do {
            out.push_back(optional && text_.eat("-") ? ValueId() : operand(s));
        } while (text_.eat(","));
        text_.expect(")");
        return out;
    }

    void input(Scope& s) {
        const ValueId v = define(s, declaration());
        s.program.inputs.push_back(v);
    }

    void outputs(Scope& s) {
        do {
            s.program.outputs.push_back(operand(s));
        } while (text_.eat(","));
    }

    void constant(Scope& s) {
        Value v = declaration();
        Shape shape;
        for (const Expr e : v.shape) {
            if (!e.is_constant() || e.constant() < 0)
                text_.fail(fmt::format("constant '{}' has dimension {}, which is not a number", v.name, e.text()));
            shape.push_back(e.constant());
        }
        text_.expect("=");
        Tensor t(v.dtype, shape);
        const std::string name = v.name;
        const ValueId id = define(s, std::move(v));
        if (text_.eat("#")) {
            s.program.unread[id] = hash();
        } else {
            elements(t, name);
        }
        s.program.constants.emplace(id, std::move(t));
    }

    void bound(Scope& s) {
        const int64_t most = text_.integer();
        for (const Expr e : text_.expr_list()) {
            const auto v = e.as_var();
            if (!v || v->kind != VarKind::Symbol)
                text_.fail(fmt::format("a bound of {}, which is no symbol", e.text()));
            if (!s.program.at_most.emplace(*v, most).second) text_.fail(fmt::format("two bounds of {}", e.text()));
        }
    }

    void requirement(Scope& s) {
        Requirement r;
        const std::string word(text_.peek_word());
        using Kind = Requirement::Kind;
        const auto kinds = {Kind::Equal, Kind::Broadcast, Kind::Spread, Kind::AtLeast, Kind::Declared};
        const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](Kind k) { return to_string(k) == word; });
        if (kind == kinds.end()) text_.fail_expected("equal, broadcast, spread, at_least or declared");
        text_.eat_word(word);
        r.kind = *kind;
        const std::vector<Expr> sides = text_.expr_list();
        if (sides.size() != 2)
            text_.fail(fmt::format("a requirement is about two expressions, found {}", sides.size()));
        r.a = sides[0];
        r.b = sides[1];
        for (const Requirement::Check when : {Requirement::Check::Always, Requirement::Check::Fallback})
            if (text_.peek_word() == to_string(when)) {
                text_.eat_word(to_string(when));
                r.when = when;
            }
        if (text_.more_on_line() && text_.eat(";")) {
            r.what = text_.name();
            r.source = text_.name();
        }
        s.program.requirements.push_back(std::move(r));
    }

    uint64_t hash() {
        const std::string digits(text_.peek_word());
        if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
            text_.fail_expected("a hash of 16 hexadecimal digits");
        text_.eat_word(digits);
        return std::stoull(digits, nullptr, 16);
    }

    void elements(Tensor& t, const std::string& name) {
        text_.expect("{");
        if (t.count() > kSmallConstant)
            text_.fail(fmt::format("constant '{}' has {} elements: more than {} are written as a hash", name, t.count(),
                                   kSmallConstant));
        for (int64_t i = 0; i < t.count(); ++i) {
            if (i > 0) text_.expect(",");
            if (t.dtype() == DType::Bool) {
                const bool v = text_.peek_word() == "true";
                if (!v && text_.peek_word() != "false") text_.fail_expected("true or false");
                text_.eat_word(text_.peek_word());
                t.set(i, v);
            } else if (t.dtype() == DType::F64) {
                t.set(i, text_.number());
            } else if (is_float(t.dtype())) {
                t.set(i, text_.single());
            } else {
                t.set(i, text_.integer());
            }
        }
        text_.expect("}");
    }

    void read_scalar(Scope& s) {
        text_.expect("?");
        ReadScalar r;
        r.name = text_.name();
        text_.expect("=");
        text_.expect_word("read");
        r.value = operand(s);
        text_.expect("[");
        r.position = text_.integer();
        text_.expect("]");
        Primitive p;
        p.kind = std::move(r);
        annotation(p);
        s.program.primitives.push_back(std::move(p));
    }

    /// "; name source", on the same line.
    void annotation(Primitive& p) {
        if (!text_.more_on_line() || !text_.eat(";")) return;
        p.name = text_.name();
        p.source = text_.name();
    }

    void primitive(Scope& s, std::vector<Value> made) {
        text_.expect("=");
        Primitive p;
        if (text_.peek("[")) {
            if (made.size() != 1) text_.fail(fmt::format("an expression gives one value, found {}", made.size()));
            p.kind = expression(s);
            annotation(p);
        } else if (text_.eat_word("opaque")) {
            p.kind = opaque(s);
            annotation(p);
        } else if (text_.eat_word("if")) {
            If branch;
            branch.condition = operand(s);
            branch.captures = operands(s);
            annotation(p);
            text_.expect_word("then");
            branch.then_branch = std::make_shared<const Program>(block());
            text_.expect_word("else");
            branch.else_branch = std::make_shared<const Program>(block());
            p.kind = std::move(branch);
        } else if (text_.eat_word("loop")) {
            Loop l = loop(s);
            annotation(p);
            text_.expect_word("body");
            l.body = std::make_shared<const Program>(block());
            p.kind = std::move(l);
        } else {
            text_.fail_expected("'[', 'opaque', 'if' or 'loop'");
        }
        for (Value& v : made) p.outputs.push_back(define(s, std::move(v)));
        s.program.primitives.push_back(std::move(p));
    }

    Opaque opaque(const Scope& s) {
        Opaque o;
        const size_t start = text_.position();
        const std::string text = text_.name();
        if (opaque_) o.op = opaque_(text);
        if (!o.op) {
            text_.rewind(start);
            text_.at_end();
            text_.fail(fmt::format("there is no opaque operator '{}'", text));
        }
        o.inputs = operands(s, true);
        return o;
    }

    int64_t axis_number() {
        text_.expect_word("axis");
        return text_.integer();
    }

    Loop loop(const Scope& s) {
        Loop l;
        if (text_.eat_word("trip")) {
            text_.expect("(");
            l.trip_count = text_.expr(")");
            text_.expect(")");
        }
        if (text_.eat_word("while")) {
            text_.expect("(");
            l.condition = operand(s);
            text_.expect(")");
        }
        l.has_condition = text_.eat_word("conditional");
        if (text_.eat_word("carried")) l.carried = operands(s);
        if (text_.eat_word("scan")) {
            text_.expect("(");
            do {
                const ValueId v = operand(s);
                const int64_t axis = axis_number();
                l.scan_inputs.push_back({v, axis, text_.eat_word("reverse")});
            } while (text_.eat(","));
            text_.expect(")");
        }
        if (text_.eat_word("stack")) {
            text_.expect("(");
            do {
                const int64_t axis = axis_number();
                l.scan_outputs.push_back({axis, text_.eat_word("reverse")});
            } while (text_.eat(","));
            text_.expect(")");
        }
        if (text_.eat_word("captures")) l.captures = operands(s);
        return l;
    }

    /// Distinguishes the reducer "sum(i2 < 3, i3 < 4)" from the scalar operator "max(@0, @1)" by the text after the
    /// parenthesis.
    void reduction(TensorExpr& e) {
        const size_t start = text_.position();
        const std::string word(text_.peek_word());
        for (const Reducer r : {Reducer::None, Reducer::Sum, Reducer::Prod, Reducer::Max, Reducer::Min}) {
            if (word != to_string(r)) continue;
            text_.eat_word(word);
            const std::string next = fmt::format("i{}", e.extents.size());
            if (!text_.eat("(") || (text_.peek_word() != next && !text_.peek(")"))) {
                text_.rewind(start);
                return;
            }
            e.reducer = r;
            while (!text_.eat(")")) {
                if (e.extents.size() > e.spatial) text_.expect(",");
                text_.expect_word(fmt::format("i{}", e.extents.size()));
                text_.expect("<");
                e.extents.push_back(text_.expr(",)"));
            }
            return;
        }
    }

    Access access(const Scope& s) {
        Access a;
        a.value = operand(s);
        a.index = text_.expr_list();
        if (!text_.eat_word("when")) return a;
        do {
            a.valid.push_back(text_.expr(">"));
            text_.expect(">= 0");
        } while (text_.eat_word("and"));
        text_.expect_word("else");
        a.fill = text_.number();
        return a;
    }

    /// The accesses follow the body, whose nodes need their types: they are parsed first.
    TensorExpr expression(const Scope& s) {
        TensorExpr e;
        e.extents = text_.expr_list();
        e.spatial = e.extents.size();
        if (text_.eat("->")) e.output_index = text_.expr_list();
        reduction(e);
        const size_t body_start = text_.position();
        size_t end = body_start;
        if (text_.skip_to_word("where")) {
            text_.expect_word("where");
            do {
                text_.expect(fmt::format("@{}", e.accesses.size()));
                text_.expect("=");
                e.accesses.push_back(access(s));
            } while (text_.eat(","));
            end = text_.position();
        }
        text_.rewind(body_start);
        const StorageOf storage = [&](uint32_t slot) -> std::optional<DType> {
            if (slot >= e.accesses.size()) return std::nullopt;
            return s.program.values[e.accesses[slot].value].dtype;
        };
        e.body = parse_scalar(text_, storage, std::nullopt);
        if (text_.eat_word("then")) e.epilogue = parse_scalar(text_, storage, compute_type(e.body.dtype()));
        if (e.accesses.empty()) return e;
        if (text_.peek_word() != "where") text_.fail_expected("'where'");
        text_.rewind(end);
        return e;
    }

    TextCursor text_;
    const OpaqueFactory& opaque_;
    int depth_ = 0;
};

}  // namespace

Program parse_program(std::string_view text, const OpaqueFactory& opaque) { return Parser(text, opaque).all(); }

}  // namespace tilewright
