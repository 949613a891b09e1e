// Matrix products: MatMul, Gemm, Einsum.

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ops/families.h"
#include "ops/matmul.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

void matmul(NodeContext& c) {
    c.require(c.dtype(0) == c.dtype(1), fmt::format("the operands have different types, {} and {}",
                                                    to_string(c.dtype(0)), to_string(c.dtype(1))));
    c.out(0, c.b.matmul(c.in(0), c.in(1)));
}

ValueId scaled(Builder& b, ValueId v, float factor) {
    return factor == 1 ? v : b.binary(ScalarOp::Mul, v, static_cast<double>(factor));
}

void gemm_lowering(NodeContext& c) { c.out(0, gemm(c)); }

// --- Einsum

struct Einsum {
    std::vector<std::string> operands;  ///< one label per dimension
    std::string result;
};

/// Labels of the dimensions of "...": characters that cannot occur in the equation.
constexpr char kFirstHidden = '\x01';

std::string without_spaces(std::string s) {
    s.erase(std::remove(s.begin(), s.end(), ' '), s.end());
    return s;
}

/// "ij..." at rank 4  ->  "ij" and the last two of `hidden` labels.
std::string spelled_out(NodeContext& c, const std::string& term, size_t dots_rank, size_t hidden) {
    std::string out;
    for (size_t k = 0; k < term.size(); ++k) {
        if (term[k] == '.') {
            c.require(term.compare(k, 3, "...") == 0, "an ellipsis in the equation has three dots");
            for (size_t d = hidden - dots_rank; d < hidden; ++d)
                out += static_cast<char>(kFirstHidden + static_cast<int>(d));
            k += 2;
            continue;
        }
        const bool letter = (term[k] >= 'a' && term[k] <= 'z') || (term[k] >= 'A' && term[k] <= 'Z');
        c.require(letter, fmt::format("'{}' in the equation is not a label", term[k]));
        out += term[k];
    }
    return out;
}

Einsum parse_einsum(NodeContext& c) {
    const std::string equation = without_spaces(c.node.attr_string("equation", ""));
    const size_t arrow = equation.find("->");
    std::vector<std::string> terms(1);
    for (const char ch : equation.substr(0, arrow)) {
        if (ch == ',')
            terms.emplace_back();
        else
            terms.back() += ch;
    }
    c.require(terms.size() == c.input_count(), fmt::format("the equation '{}' has {} operands, and {} are given",
                                                           equation, terms.size(), c.input_count()));
    std::vector<size_t> dots(terms.size(), 0);
    size_t hidden = 0;
    for (size_t k = 0; k < terms.size(); ++k) {
        const bool has_dots = terms[k].find("...") != std::string::npos;
        const size_t named = terms[k].size() - (has_dots ? 3 : 0);
        c.require(
            has_dots ? named <= c.rank(k) : named == c.rank(k),
            fmt::format("'{}' in the equation does not fit an operand of shape {}", terms[k], to_string(c.shape(k))));
        dots[k] = c.rank(k) - named;
        if (has_dots) hidden = std::max(hidden, dots[k]);
    }
    c.require(hidden <= 8, "an ellipsis covers more than 8 dimensions");
    Einsum e;
    for (size_t k = 0; k < terms.size(); ++k) e.operands.push_back(spelled_out(c, terms[k], dots[k], hidden));
    if (arrow != std::string::npos) {
        e.result = spelled_out(c, equation.substr(arrow + 2), hidden, hidden);
    } else {  // the hidden dimensions, then the labels that appear once, in alphabetical order
        std::map<char, int> count;
        for (size_t d = 0; d < hidden; ++d) e.result += static_cast<char>(kFirstHidden + static_cast<int>(d));
        for (const std::string& t : e.operands)
            for (const char l : t) ++count[l];
        for (const auto& [l, n] : count)
            if (n == 1 && l >= 'A') e.result += l;
    }
    for (size_t k = 0; k < e.result.size(); ++k) {
        const char l = e.result[k];
        c.require(e.result.find(l) == k, fmt::format("label '{}' occurs twice in the result", l));
        c.require(std::any_of(e.operands.begin(), e.operands.end(),
                              [&](const std::string& t) { return t.find(l) != std::string::npos; }),
                  fmt::format("label '{}' of the result is in no operand", l));
    }
    return e;
}

/// Repeated labels inside one operand become its diagonal.    "ii" of [3, 3]  ->  "i" of [3]
ValueId diagonal(NodeContext& c, ValueId v, std::string& labels) {
    std::string once;
    Dims shape;
    std::vector<Expr> index;
    for (size_t k = 0; k < labels.size(); ++k) {
        size_t at = once.find(labels[k]);
        const Expr d = c.b.shape(v)[k];
        if (at == std::string::npos) {
            at = once.size();
            once += labels[k];
            shape.push_back(d);
        }
        c.b.require_equal(shape[at], d,
                          fmt::format("label '{}' names dimensions of {} and {} of one operand", labels[k],
                                      shape[at].text(), d.text()));
        index.push_back(axis(at));
    }
    if (once.size() == labels.size()) return v;
    labels = once;
    return c.b.view(v, std::move(shape), std::move(index), "diagonal");
}

/// The labels of `from` that satisfy `wanted`, without duplicates.
template <class Predicate>
std::string kept(const std::string& from, const Predicate& wanted) {
    std::string out;
    for (const char l : from)
        if (wanted(l) && out.find(l) == std::string::npos) out += l;
    return out;
}

/// From left to right, two operands at a time; labels of only one operand that are not in the result are summed first.
void einsum(NodeContext& c) {
    Einsum e = parse_einsum(c);
    const DType t = c.dtype(0);
    std::vector<ValueId> values;
    const auto contains = [](const std::string& s, char l) { return s.find(l) != std::string::npos; };
    for (size_t k = 0; k < e.operands.size(); ++k) {
        c.require(c.dtype(k) == t,
                  fmt::format("the operands have different types, {} and {}", to_string(t), to_string(c.dtype(k))));
        values.push_back(diagonal(c, c.in(k), e.operands[k]));
    }
    for (size_t k = 0; k < e.operands.size() && e.operands.size() > 1; ++k) {
        const std::string inside = kept(e.operands[k], [&](char l) {
            for (size_t n = 0; n < e.operands.size(); ++n)
                if (n != k && contains(e.operands[n], l)) return true;
            return contains(e.result, l);
        });
        if (inside == e.operands[k]) continue;
        values[k] = c.b.contract(e.operands[k] + "->" + inside, values[k], {}, t, "sum");
        e.operands[k] = inside;
    }
    ValueId v = values[0];
    std::string labels = e.operands[0];
    for (size_t k = 1; k < values.size(); ++k) {
        const bool last = k + 1 == values.size();
        const std::string both = labels + e.operands[k];
        const std::string next = last ? e.result : kept(both, [&](char l) {
            for (size_t n = k + 1; n < values.size(); ++n)
                if (contains(e.operands[n], l)) return true;
            return contains(e.result, l);
        });
        v = c.b.contract(labels + "," + e.operands[k] + "->" + next, v, values[k], t, "product");
        labels = next;
    }
    if (labels != e.result) v = c.b.contract(labels + "->" + e.result, v, {}, t, "sum");
    c.out(0, v);
}

}  // namespace

ValueId gemm(NodeContext& c) {
    c.require(c.rank(0) == 2 && c.rank(1) == 2, fmt::format("two matrices are expected, and the shapes are {} and {}",
                                                            to_string(c.shape(0)), to_string(c.shape(1))));
    c.require(c.dtype(0) == c.dtype(1), fmt::format("the operands have different types, {} and {}",
                                                    to_string(c.dtype(0)), to_string(c.dtype(1))));
    const std::string a = c.node.attr_int("transA", 0) != 0 ? "km" : "mk";
    const std::string b = c.node.attr_int("transB", 0) != 0 ? "nk" : "kn";
    const Expr depth_a = c.shape(0)[a.find('k')], depth_b = c.shape(1)[b.find('k')];
    c.b.require_equal(depth_a, depth_b,
                      fmt::format("shapes {} and {} cannot be multiplied: {} columns, {} rows", to_string(c.shape(0)),
                                  to_string(c.shape(1)), depth_a.text(), depth_b.text()));
    const ValueId product = c.b.contract(a + "," + b + "->mn", c.in(0), c.in(1), c.dtype(0), "product");
    ValueId y = scaled(c.b, product, c.node.attr_float("alpha", 1));
    const float beta = c.node.attr_float("beta", 1);
    if (c.has(2) && beta != 0) {
        const Dims target = c.b.shape(y);
        const Dims& s = c.shape(2);
        const std::string misfit =
            fmt::format("C of shape {} does not broadcast to {}", to_string(s), to_string(target));
        c.require(s.size() <= 2, misfit);
        for (size_t k = 0; k < s.size(); ++k) c.b.require_spread(s[k], target[2 - s.size() + k], misfit);
        y = c.b.binary(ScalarOp::Add, y, scaled(c.b, c.in(2), beta));
    }
    return y;
}

std::vector<OpLowering> matmul_lowerings() {
    return {
        {"", "Einsum", 12, einsum},
        {"", "Gemm", 1, gemm_lowering},
        {"", "MatMul", 1, matmul},
    };
}

}  // namespace tilewright
