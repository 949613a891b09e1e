// Printer and parser of scalar bodies.
//
//     max(add(acc, @2), 0.0)        constants: F32 as 0.0 (0.1f: the float nearest to 0.1), F64 as 0.5:f64,
//     select(lt(@0, 3), f64(@1), 1.5:f64)      I64 as 3, other integers as 3:i32, Bool as true and false
//     table{1, 0, -1}(index(i0))               the numbers of a table (F64: table.f64{...}), and the position
//     let t0 = exp(@0) in mul(t0, t0)          only in bodies that would otherwise be long or deep

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "program/scalar_eval.h"
#include "program/scalar_text.h"

namespace tilewright {

namespace {

constexpr int64_t kLongText = 256;  // printed nodes, with repetitions, above which shared nodes get a name
constexpr int kDeepText = 100;      // nesting depth above which an operator gets a name
constexpr int kMaxNesting = 500;    // nesting depth that the parser accepts

std::string constant_text(const ScalarNode& n) {
    if (n.dtype == DType::Bool) return n.int_value != 0 ? "true" : "false";
    if (!is_float(n.dtype)) {
        std::string s = n.dtype == DType::U64 ? fmt::format("{}", static_cast<uint64_t>(n.int_value))
                                              : fmt::format("{}", n.int_value);
        return n.dtype == DType::I64 ? s : s + ":" + std::string(to_string(n.dtype));
    }
    const auto with_point = [](const std::string& s) {
        return s.find_first_not_of("-0123456789") == std::string::npos ? s + ".0" : s;
    };
    std::string s = with_point(double_text(n.value));
    if (n.dtype == DType::F64) return s + ":f64";
    const auto single = static_cast<float>(n.value);
    if (std::isfinite(n.value) && static_cast<double>(single) == n.value) {
        std::string shorter = with_point(float_text(single));
        if (shorter != s) return shorter + "f";
    }
    return s;
}

std::string table_text(const ScalarNode& n) {
    std::string s = n.dtype == DType::F32 ? "table{" : fmt::format("table.{}{{", to_string(n.dtype));
    for (const double v : *n.table)
        s += (s.back() == '{' ? "" : ", ") +
             (n.dtype == DType::F32 ? float_text(static_cast<float>(v)) : double_text(v));
    return s + "}";
}

class BodyPrinter {
  public:
    explicit BodyPrinter(const ScalarBody& body) : body_(body) {}

    std::string print() {
        const ScalarBody& b = body_;
        std::vector<int64_t> size(b.nodes().size(), 1);
        std::vector<int> depth(b.nodes().size(), 0), uses(b.nodes().size(), 0);
        for (const ScalarId id : b.nodes().ids()) {  // operands come before their users
            for (const ScalarId o : operands(b[id])) {
                size[id.index()] = std::min<int64_t>(size[id.index()] + size[o.index()], INT32_MAX);
                ++uses[o.index()];
            }
        }
        const bool name_shared = size[b.root().index()] > kLongText;
        std::string lets;
        for (const ScalarId id : b.nodes().ids()) {
            const auto inner = operands(b[id]);
            for (const ScalarId o : inner)
                depth[id.index()] = std::max(depth[id.index()], names_.count(o) != 0 ? 1 : depth[o.index()] + 1);
            if (inner.empty() || id == b.root()) continue;
            if ((name_shared && uses[id.index()] > 1) || depth[id.index()] >= kDeepText) {
                const std::string value = text(id);
                const std::string name = fmt::format("t{}", names_.size());
                lets += fmt::format("{}{} = {}", lets.empty() ? "let " : ", ", name, value);
                names_.emplace(id, name);
            }
        }
        return lets.empty() ? text(b.root()) : lets + " in " + text(b.root());
    }

  private:
    static std::vector<ScalarId> operands(const ScalarNode& n) {
        std::vector<ScalarId> out;
        for (const ScalarId o : {n.a, n.b, n.c})
            if (o) out.push_back(o);
        return out;
    }

    std::string text(ScalarId id) const {
        if (const auto it = names_.find(id); it != names_.end()) return it->second;
        const ScalarNode& n = body_[id];
        switch (n.op) {
            case ScalarOp::Const:
                return constant_text(n);
            case ScalarOp::Access:
                return fmt::format("@{}", n.slot);
            case ScalarOp::Acc:
                return "acc";
            case ScalarOp::Index:
                return fmt::format("index({})", n.index.text());
            default:
                break;
        }
        std::string s;
        if (n.op == ScalarOp::Cast)
            s = to_string(n.dtype);
        else if (n.op == ScalarOp::Bitcast)
            s = fmt::format("bitcast.{}", to_string(n.dtype));
        else if (n.op == ScalarOp::Table)
            s = table_text(n);
        else
            s = to_string(n.op);
        s += '(';
        for (const ScalarId o : operands(n)) s += (s.back() == '(' ? "" : ", ") + text(o);
        return s + ")";
    }

    const ScalarBody& body_;
    std::map<ScalarId, std::string> names_;
};

class BodyParser {
  public:
    BodyParser(TextCursor& text, const StorageOf& storage, std::optional<DType> acc)
        : text_(text), storage_(storage), acc_(acc) {}

    ScalarBody body() {
        if (text_.eat_word("let")) {
            do {
                const std::string name(text_.peek_word());
                if (name.empty() || names_.count(name) != 0) text_.fail_expected("a new name");
                text_.eat_word(name);
                text_.expect("=");
                const ScalarId id = node();
                names_.emplace(name, id);
            } while (text_.eat(","));
            text_.expect_word("in");
        }
        const ScalarId root = node();
        body_.set_root(root);
        return std::move(body_);
    }

  private:
    ScalarId node() {
        if (++depth_ > kMaxNesting) text_.fail("a scalar expression nested this deep");
        const ScalarId id = node_unguarded();
        --depth_;
        return id;
    }

    ScalarId node_unguarded() {
        if (text_.eat("@")) {
            const size_t at = text_.position();
            const int64_t slot = text_.integer();
            const auto storage = slot >= 0 && slot <= INT32_MAX ? storage_(static_cast<uint32_t>(slot)) : std::nullopt;
            if (!storage) {
                text_.rewind(at);
                text_.fail(fmt::format("there is no access @{}", slot));
            }
            return body_.access(static_cast<uint32_t>(slot), *storage);
        }
        const std::string word(text_.peek_word());
        if (word.empty() || (word[0] >= '0' && word[0] <= '9') || word == "inf" || word == "nan") return constant();
        if (word == "true" || word == "false") {
            text_.eat_word(word);
            return body_.int_constant(DType::Bool, word == "true" ? 1 : 0);
        }
        if (const auto it = names_.find(word); it != names_.end()) {
            text_.eat_word(word);
            return it->second;
        }
        if (word == "acc") {
            if (!acc_) text_.fail("'acc' is valid in an epilogue only");
            text_.eat_word(word);
            return body_.acc(*acc_);
        }
        if (word == "index") {
            text_.eat_word(word);
            text_.expect("(");
            const Expr e = text_.expr(")");
            text_.expect(")");
            return body_.index(e);
        }
        return operation(word);
    }

    ScalarId constant() {
        const size_t start = text_.position();
        const std::string digits(text_.numeral());
        const bool real = digits.find_first_not_of("+-0123456789") != std::string::npos;
        text_.rewind(start);
        if (!real) {
            const int64_t v = text_.integer();
            DType t = DType::I64;
            if (text_.eat(":")) t = text_.dtype();
            if (is_float(t)) text_.fail_expected("an integer type");
            return body_.int_constant(t, v);
        }
        const double v = text_.number();
        if (text_.eat(":")) {
            const DType t = text_.dtype();
            if (t != DType::F32 && t != DType::F64) text_.fail_expected("f32 or f64");
            return body_.constant(t, v);
        }
        if (text_.eat_word("f")) {
            text_.rewind(start);
            const float single = text_.single();
            text_.eat_word("f");
            return body_.constant(DType::F32, single);
        }
        return body_.constant(DType::F32, v);
    }

    ScalarId operation(const std::string& word) {
        const size_t start = text_.position();
        ScalarNode n;
        const auto op = scalar_op_from_string(word);
        const auto to = dtype_from_string(word);
        if (op && *op != ScalarOp::Cast) {
            n.op = *op;
        } else if (to) {
            n.op = ScalarOp::Cast;
        } else {
            text_.fail_expected("a scalar operator, constant or access");
        }
        text_.eat_word(word);
        if (n.op == ScalarOp::Cast) n.dtype = *to;
        if (n.op == ScalarOp::Bitcast) {
            text_.expect(".");
            n.dtype = text_.dtype();
        }
        if (n.op == ScalarOp::Table) read_table(n);
        text_.expect("(");
        n.a = node();
        for (ScalarId* operand : {&n.b, &n.c}) {
            if (arity(n.op) < (operand == &n.b ? 2 : 3)) break;
            text_.expect(",");
            *operand = node();
        }
        text_.expect(")");
        if (n.op != ScalarOp::Cast && n.op != ScalarOp::Bitcast && n.op != ScalarOp::Table)
            n.dtype = result_type(body_, n);
        if (const std::string fault = type_fault(body_, n); !fault.empty()) {
            text_.rewind(start);
            text_.fail(fault);
        }
        return body_.add(n);
    }

    void read_table(ScalarNode& n) {
        n.dtype = DType::F32;
        if (text_.eat(".")) n.dtype = text_.dtype();
        if (n.dtype != DType::F32 && n.dtype != DType::F64) text_.fail_expected("f32 or f64");
        std::vector<double> numbers;
        text_.expect("{");
        if (!text_.eat("}")) {
            do {
                numbers.push_back(n.dtype == DType::F32 ? static_cast<double>(text_.single()) : text_.number());
            } while (text_.eat(","));
            text_.expect("}");
        }
        n.table = std::make_shared<const std::vector<double>>(std::move(numbers));
    }

    TextCursor& text_;
    const StorageOf& storage_;
    std::optional<DType> acc_;
    ScalarBody body_;
    std::map<std::string, ScalarId> names_;
    int depth_ = 0;
};

}  // namespace

std::string ScalarBody::print() const {
    if (empty()) return "nothing";
    const ScalarBody needed = pruned();
    return BodyPrinter(needed).print();
}

ScalarBody parse_scalar(TextCursor& text, const StorageOf& storage, std::optional<DType> acc) {
    return BodyParser(text, storage, acc).body();
}

ScalarBody parse_scalar(std::string_view text, const StorageOf& storage, std::optional<DType> acc) {
    TextCursor cursor(text, "scalar expression");
    ScalarBody body = parse_scalar(cursor, storage, acc);
    if (!cursor.at_end()) cursor.fail_expected("the end of the text");
    return body;
}

}  // namespace tilewright
