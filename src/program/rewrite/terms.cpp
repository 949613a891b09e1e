#include "program/rewrite/terms.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace tilewright {

namespace {

struct TermInfo {
    TermOp op;
    std::string_view name;
    int arity;
};
constexpr std::array<TermInfo, 17> kTerms{{
    {TermOp::Variable, "", 0},
    {TermOp::Transpose, "transpose", 1},
    {TermOp::Exp, "exp", 1},
    {TermOp::Relu, "relu", 1},
    {TermOp::Scale, "scale", 1},
    {TermOp::Sum, "sum", 1},
    {TermOp::Top, "top", 1},
    {TermOp::Bottom, "bottom", 1},
    {TermOp::Left, "left", 1},
    {TermOp::Right, "right", 1},
    {TermOp::MatMul, "matmul", 2},
    {TermOp::Add, "add", 2},
    {TermOp::Sub, "sub", 2},
    {TermOp::Mul, "mul", 2},
    {TermOp::Div, "div", 2},
    {TermOp::Above, "above", 2},
    {TermOp::Beside, "beside", 2},
}};

class TermParser {
  public:
    explicit TermParser(std::string_view text) : text_(text) {}

    MatrixTerm whole() {
        MatrixTerm t = term();
        if (!text_.empty()) model_error("term: expected its end, found '{}'", text_);
        return t;
    }

  private:
    MatrixTerm term() {
        size_t n = 0;
        while (n < text_.size() && std::isalpha(static_cast<unsigned char>(text_[n])) != 0) ++n;
        const std::string_view name = text_.substr(0, n);
        text_.remove_prefix(n);
        if (n == 1 && name[0] >= 'A' && name[0] <= 'Z') return {TermOp::Variable, name[0] - 'A', {}};
        for (const TermInfo& i : kTerms) {
            if (i.arity == 0 || i.name != name) continue;
            MatrixTerm t{i.op, 0, {}};
            for (int k = 0; k < i.arity; ++k) {
                expect(k == 0 ? "(" : ", ");
                t.args.push_back(term());
            }
            expect(")");
            return t;
        }
        model_error("term: expected a variable or an operator, found '{}'", name.empty() ? text_ : name);
    }
    void expect(std::string_view what) {
        if (!text_.starts_with(what)) model_error("term: expected '{}', found '{}'", what, text_);
        text_.remove_prefix(what.size());
    }

    std::string_view text_;
};

void add_variables(const MatrixTerm& term, std::vector<int>& out) {
    if (term.op == TermOp::Variable && std::find(out.begin(), out.end(), term.variable) == out.end())
        out.push_back(term.variable);
    for (const MatrixTerm& a : term.args) add_variables(a, out);
}

}  // namespace

std::string_view to_string(TermOp op) { return kTerms.at(static_cast<size_t>(op)).name; }
int arity(TermOp op) { return kTerms.at(static_cast<size_t>(op)).arity; }

std::string print(const MatrixTerm& term) {
    if (term.op == TermOp::Variable) return std::string(1, static_cast<char>('A' + term.variable));
    std::string out = std::string(to_string(term.op)) + "(";
    for (size_t k = 0; k < term.args.size(); ++k) out += (k == 0 ? "" : ", ") + print(term.args[k]);
    return out + ")";
}

MatrixTerm parse_term(std::string_view text) { return TermParser(text).whole(); }

int operations(const MatrixTerm& term) {
    int n = term.op == TermOp::Variable ? 0 : 1;
    for (const MatrixTerm& a : term.args) n += operations(a);
    return n;
}

std::vector<int> term_variables(const MatrixTerm& term) {
    std::vector<int> out;
    add_variables(term, out);
    return out;
}

namespace {

/// One column for all shapes of the variables: a row sum and expressions of row sums.
bool is_column(const MatrixTerm& t) {
    switch (t.op) {
        case TermOp::Sum:
            return true;
        case TermOp::Exp:
        case TermOp::Relu:
        case TermOp::Scale:
        case TermOp::Add:
        case TermOp::Sub:
        case TermOp::Mul:
        case TermOp::Div:
            return is_column(t.args[0]);
        default:
            return false;
    }
}

}  // namespace

std::optional<MatrixShape> shape_of(const MatrixTerm& term, const std::map<int, MatrixShape>& variables) {
    if (term.op == TermOp::Variable) {
        const auto it = variables.find(term.variable);
        return it == variables.end() ? std::nullopt : std::optional(it->second);
    }
    std::vector<MatrixShape> s;
    for (const MatrixTerm& a : term.args) {
        const auto shape = shape_of(a, variables);
        if (!shape) return std::nullopt;
        s.push_back(*shape);
    }
    const auto [m, n] = s[0];
    switch (term.op) {
        case TermOp::Transpose:
            return MatrixShape{n, m};
        case TermOp::Sum:
            return MatrixShape{m, 1};
        case TermOp::Top:
        case TermOp::Bottom:
            return m % 2 == 0 ? std::optional(MatrixShape{m / 2, n}) : std::nullopt;
        case TermOp::Left:
        case TermOp::Right:
            return n % 2 == 0 ? std::optional(MatrixShape{m, n / 2}) : std::nullopt;
        case TermOp::MatMul:
            return n == s[1].first ? std::optional(MatrixShape{m, s[1].second}) : std::nullopt;
        case TermOp::Add:
        case TermOp::Sub:
        case TermOp::Mul:
        case TermOp::Div:
            if (m != s[1].first || (n != s[1].second && !is_column(term.args[1]))) return std::nullopt;
            return s[0];
        case TermOp::Above:
            return n == s[1].second ? std::optional(MatrixShape{m + s[1].first, n}) : std::nullopt;
        case TermOp::Beside:
            return m == s[1].first ? std::optional(MatrixShape{m, n + s[1].second}) : std::nullopt;
        default:
            return s[0];
    }
}

ValueId write_term(Builder& b, const MatrixTerm& term, const std::map<int, ValueId>& variables, double scale) {
    if (term.op == TermOp::Variable) return variables.at(term.variable);
    std::vector<ValueId> x;
    for (const MatrixTerm& a : term.args) x.push_back(write_term(b, a, variables, scale));
    const auto half = [&](int64_t along, bool second) {
        const Dims shape = b.shape(x[0]);
        const Expr n = floor_div(shape[shape.size() - static_cast<size_t>(-along)], 2);
        return b.slice(x[0], along, second ? n : Expr(0), n);
    };
    switch (term.op) {
        case TermOp::Transpose: {
            std::vector<int64_t> order;
            for (size_t d = 0; d < b.rank(x[0]); ++d) order.push_back(static_cast<int64_t>(d));
            std::swap(order[order.size() - 1], order[order.size() - 2]);
            return b.transpose(x[0], order);
        }
        case TermOp::Exp:
            return b.unary(ScalarOp::Exp, x[0]);
        case TermOp::Relu:
            return b.binary(ScalarOp::Max, x[0], 0.0);
        case TermOp::Scale:
            return b.binary(ScalarOp::Mul, x[0], scale);
        case TermOp::Sum:
            return b.reduce(Reducer::Sum, x[0], {-1}, true, "sum");
        case TermOp::Top:
            return half(-2, false);
        case TermOp::Bottom:
            return half(-2, true);
        case TermOp::Left:
            return half(-1, false);
        case TermOp::Right:
            return half(-1, true);
        case TermOp::MatMul:
            return b.matmul(x[0], x[1]);
        case TermOp::Add:
            return b.binary(ScalarOp::Add, x[0], x[1]);
        case TermOp::Sub:
            return b.binary(ScalarOp::Sub, x[0], x[1]);
        case TermOp::Mul:
            return b.binary(ScalarOp::Mul, x[0], x[1]);
        case TermOp::Div:
            return b.binary(ScalarOp::Div, x[0], x[1]);
        case TermOp::Above:
            return b.concat(x, -2);
        case TermOp::Beside:
            return b.concat(x, -1);
        default:
            return x[0];
    }
}

std::vector<TermLaw> parse_laws(std::string_view text) {
    std::vector<TermLaw> out;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty() || line[0] == '#') continue;
        const size_t at = line.find(" = ");
        if (at == std::string_view::npos) model_error("enumerated rules: expected 'term = term', found '{}'", line);
        out.push_back({parse_term(line.substr(0, at)), parse_term(line.substr(at + 3))});
    }
    return out;
}

const std::vector<TermLaw>& enumerated_laws() {
    static const std::vector<TermLaw> laws = parse_laws(enumerated_text());
    return laws;
}

}  // namespace tilewright
