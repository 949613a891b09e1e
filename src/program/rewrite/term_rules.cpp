// The enumerated laws (enumerated.txt) as a rule: matches their larger sides and writes the smaller ones.

#include <algorithm>

#include "program/analysis/contraction.h"
#include "program/rewrite/algebra.h"
#include "program/rewrite/rules.h"
#include "program/rewrite/terms.h"

namespace tilewright {

namespace {

/// A primitive recognised as an operator: its operands, and Scale's number.
struct Recognised {
    std::vector<ValueId> operands;
    double scale = 0;
};

/// The index at which an expression of rank r reads a matrix of each batch element of a value of that `shape`: leading
/// axes in place, the last two replaced. The value may have fewer leading dimensions, or some of extent 1, which are
/// broadcast.
///     rank 3, shape [k, n]   ->   [row, column]
std::vector<Expr> matrix_index(size_t rank, const std::vector<Expr>& shape, Expr row, Expr column) {
    const size_t lead = rank - shape.size();
    std::vector<Expr> index;
    for (size_t d = 0; d + 2 < shape.size(); ++d) index.push_back(shape[d].is_constant(1) ? Expr(0) : axis(lead + d));
    index.push_back(row);
    index.push_back(column);
    return index;
}

class Recogniser {
  public:
    Recogniser(const RewriteContext& context, PrimitiveId at)
        : c_(context), p_(context.program().primitives[at]), e_(*p_.expr()), rank_(e_.spatial) {}

    std::optional<Recognised> as(TermOp op) const {
        const DType t = c_.value(p_.outputs[0]).dtype;
        if (rank_ < 2 || !is_real(t) || e_.body.dtype() != t || !e_.epilogue.empty() || !e_.output_index.empty())
            return std::nullopt;
        for (const Access& a : e_.accesses)
            if (!a.valid.empty() || c_.value(a.value).dtype != t) return std::nullopt;
        const ScalarNode& root = e_.body[e_.body.root()];
        const Expr row = axis(rank_ - 2), column = axis(rank_ - 1), summed = axis(rank_);
        const bool sums = e_.reducer == Reducer::Sum && e_.extents.size() == rank_ + 1;
        if (op == TermOp::MatMul) {
            const auto c = contraction(e_);
            if (!sums || !c || !c->reads_plainly()) return std::nullopt;
            const ScalarId a = c->factors[0].node, b = c->factors[1].node;
            for (const auto& [l, r] : {std::pair(a, b), std::pair(b, a)})
                if (reads(l, row, summed, true) && reads(r, summed, column, true))
                    return Recognised{{value(l), value(r)}};
            return std::nullopt;
        }
        if (op == TermOp::Sum) {
            if (!sums || !e_.extents[rank_ - 1].is_constant(1) || !reads(e_.body.root(), row, summed))
                return std::nullopt;
            return Recognised{{value(e_.body.root())}};
        }
        if (e_.reducer != Reducer::None) return std::nullopt;
        switch (op) {
            case TermOp::Transpose:
                if (!reads(e_.body.root(), column, row)) return std::nullopt;
                return Recognised{{value(e_.body.root())}};
            case TermOp::Exp:
                if (root.op != ScalarOp::Exp || !reads(root.a, row, column)) return std::nullopt;
                return Recognised{{value(root.a)}};
            case TermOp::Relu:
            case TermOp::Scale:
                if (root.op != (op == TermOp::Relu ? ScalarOp::Max : ScalarOp::Mul)) return std::nullopt;
                for (const auto& [x, n] : {std::pair(root.a, root.b), std::pair(root.b, root.a)}) {
                    const ScalarNode& number = e_.body[n];
                    if (number.op != ScalarOp::Const || (op == TermOp::Relu && number.value != 0)) continue;
                    if (reads(x, row, column)) return Recognised{{value(x)}, number.value};
                }
                return std::nullopt;
            case TermOp::Left:
            case TermOp::Right:
                return half(rank_ - 1, op == TermOp::Right);
            case TermOp::Top:
            case TermOp::Bottom:
                return half(rank_ - 2, op == TermOp::Bottom);
            case TermOp::Add:
            case TermOp::Sub:
            case TermOp::Mul:
            case TermOp::Div: {
                static constexpr ScalarOp kOps[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div};
                if (root.op != kOps[static_cast<size_t>(op) - static_cast<size_t>(TermOp::Add)]) return std::nullopt;
                if (!reads(root.a, row, column, true)) return std::nullopt;
                if (!reads(root.b, row, column, true) && !reads(root.b, row, 0, true)) return std::nullopt;
                return Recognised{{value(root.a), value(root.b)}};
            }
            default:
                return std::nullopt;  // the layout rules handle concatenations
        }
    }

  private:
    /// The node is an element of a value at this row and column, with leading dimensions in place. All leading
    /// dimensions are present and have equal extents, unless they may be `broadcast`.
    bool reads(ScalarId node, Expr row, Expr column, bool broadcast = false) const {
        const auto slot = bare_slot(e_.body, node);
        if (!slot) return false;
        const std::vector<Expr>& shape = c_.value(e_.accesses[*slot].value).shape;
        const size_t rank = shape.size();
        if (rank < 2 || rank > rank_ || (rank < rank_ && !broadcast)) return false;
        if (!same_index(e_.extents, e_.accesses[*slot].index, matrix_index(rank_, shape, row, column))) return false;
        for (size_t d = 0; d + 2 < rank; ++d)
            if (!(shape[d] == e_.extents[rank_ - rank + d]) && !(broadcast && shape[d].is_constant(1))) return false;
        const auto whole = [&](Expr at, Expr extent) {
            const auto v = at.as_var();
            return v ? extent == e_.extents[v->id] : extent.is_constant(1);
        };
        return whole(row, shape[rank - 2]) && whole(column, shape[rank - 1]);
    }
    ValueId value(ScalarId node) const { return e_.accesses[*bare_slot(e_.body, node)].value; }

    std::optional<Recognised> half(size_t along, bool second) const {
        if (!is_view(e_) || e_.accesses[0].index.size() != rank_) return std::nullopt;
        std::vector<Expr> shape = c_.value(e_.accesses[0].value).shape, expected = plain_axes(rank_);
        if (!(shape[along] == e_.extents[along] * 2)) return std::nullopt;
        if (second) expected[along] = axis(along) + e_.extents[along];
        shape[along] = e_.extents[along];
        if (shape != e_.extents || !same_index(e_.extents, e_.accesses[0].index, expected)) return std::nullopt;
        return Recognised{{e_.accesses[0].value}};
    }

    const RewriteContext& c_;
    const Primitive& p_;
    const TensorExpr& e_;
    size_t rank_;
};

bool match(const RewriteContext& context, const MatrixTerm& term, ValueId v, TermMatch& out) {
    if (term.op == TermOp::Variable) return out.variables.try_emplace(term.variable, v).first->second == v;
    if (context.producer(v) == nullptr) return false;
    const auto found = Recogniser(context, context.producer_id(v)).as(term.op);
    if (!found) return false;
    if (term.op == TermOp::Scale && out.scale.value_or(found->scale) != found->scale) return false;
    if (term.op == TermOp::Scale) out.scale = found->scale;
    for (size_t k = 0; k < term.args.size(); ++k)
        if (!match(context, term.args[k], found->operands[k], out)) return false;
    return true;
}

/// Operands of one matrix operator, and the extents of its result before the operator changes them.
struct TermOperands {
    std::vector<ValueId> values;
    std::vector<std::vector<Expr>> shapes;
    std::vector<Expr> extents;
};

/// Writes the expression of one matrix operator.
class OperatorWriter {
  public:
    OperatorWriter(TermOperands operands, DType t)
        : operands_(std::move(operands)),
          t_(t),
          rank_(operands_.extents.size()),
          row_(axis(rank_ - 2)),
          column_(axis(rank_ - 1)),
          summed_(axis(rank_)) {}

    /// None if the operands do not fit, or if `scale` is needed and absent.
    std::optional<TensorExpr> write(TermOp op, std::optional<double> scale) {
        switch (op) {
            case TermOp::Transpose:
                std::swap(rows(), columns());
                return map([&](ExprWriter& w) { return read(w, 0, column_, row_); });
            case TermOp::Exp:
                return map([&](ExprWriter& w) { return w.body().unary(ScalarOp::Exp, read(w, 0, row_, column_)); });
            case TermOp::Relu:
                return map([&](ExprWriter& w) {
                    return w.body().binary(ScalarOp::Max, read(w, 0, row_, column_), w.body().constant(t_, 0));
                });
            case TermOp::Scale:
                if (!scale) return std::nullopt;
                return map([&](ExprWriter& w) {
                    return w.body().binary(ScalarOp::Mul, read(w, 0, row_, column_), w.body().constant(t_, *scale));
                });
            case TermOp::Sum:
                return row_sum();
            case TermOp::Left:
            case TermOp::Right:
                return half(rank_ - 1, op == TermOp::Right);
            case TermOp::Top:
            case TermOp::Bottom:
                return half(rank_ - 2, op == TermOp::Bottom);
            case TermOp::MatMul:
                return product();
            case TermOp::Add:
            case TermOp::Sub:
            case TermOp::Mul:
            case TermOp::Div:
                return elementwise(op);
            default:
                return std::nullopt;
        }
    }

  private:
    Expr& rows() { return operands_.extents[rank_ - 2]; }
    Expr& columns() { return operands_.extents[rank_ - 1]; }

    ScalarId read(ExprWriter& w, size_t k, Expr i, Expr j) const {
        return w.read(operands_.values[k], t_, matrix_index(rank_, operands_.shapes[k], i, j));
    }

    template <typename F>
    TensorExpr map(const F& body) const {
        ExprWriter w(operands_.extents, rank_);
        const ScalarId root = body(w);
        return w.finish(root);
    }

    TensorExpr row_sum() {
        operands_.extents.push_back(columns());
        columns() = 1;
        ExprWriter w(operands_.extents, rank_, Reducer::Sum);
        return w.finish(read(w, 0, row_, summed_));
    }

    /// The first or the second half along an axis.
    std::optional<TensorExpr> half(size_t along, bool second) {
        Expr& extent = operands_.extents[along];
        const Expr length = floor_div(extent, 2);
        if (!(length * 2 == extent)) return std::nullopt;
        extent = length;
        const Expr begin = second ? length : Expr(0);
        return map([&](ExprWriter& w) {
            return read(w, 0, along == rank_ - 2 ? row_ + begin : row_, along == rank_ - 1 ? column_ + begin : column_);
        });
    }

    std::optional<TensorExpr> product() {
        const std::vector<Expr>& right = operands_.shapes[1];
        const Expr length = columns();
        if (!(length == right[right.size() - 2])) return std::nullopt;
        columns() = right.back();
        operands_.extents.push_back(length);
        ExprWriter w(operands_.extents, rank_, Reducer::Sum);
        const ScalarId a = read(w, 0, row_, summed_), b = read(w, 1, summed_, column_);
        return w.finish(w.body().binary(ScalarOp::Mul, a, b));
    }

    std::optional<TensorExpr> elementwise(TermOp op) {
        const std::vector<Expr>& right = operands_.shapes[1];
        const bool broadcast = right.back().is_constant(1);
        if (!(rows() == right[right.size() - 2]) || (!(columns() == right.back()) && !broadcast)) return std::nullopt;
        static constexpr ScalarOp kOps[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div};
        const ScalarOp scalar = kOps[static_cast<size_t>(op) - static_cast<size_t>(TermOp::Add)];
        return map([&](ExprWriter& w) {
            const ScalarId a = read(w, 0, row_, column_);
            return w.body().binary(scalar, a, read(w, 1, row_, broadcast ? Expr(0) : column_));
        });
    }

    TermOperands operands_;
    DType t_;
    size_t rank_;
    Expr row_, column_, summed_;
};

/// Writes terms into a patch.
class TermWriter {
  public:
    TermWriter(PatchWriter& patch, const TermMatch& match, DType t) : patch_(patch), match_(match), t_(t) {}

    /// The expression of a term that is not a variable; none if its operands do not fit.
    std::optional<TensorExpr> expr(const MatrixTerm& term) {
        TermOperands operands;
        for (const MatrixTerm& a : term.args) {
            if (a.op == TermOp::Variable) {
                operands.values.push_back(match_.variables.at(a.variable));
                continue;
            }
            auto e = expr(a);
            if (!e) return std::nullopt;
            operands.values.push_back(patch_.make(std::move(*e), t_, to_string(a.op)));
        }
        for (const ValueId v : operands.values) operands.shapes.push_back(patch_.value(v).shape);
        auto batch = broadcast(operands.shapes);
        if (!batch) return std::nullopt;
        operands.extents = std::move(*batch);
        const std::vector<Expr>& first = operands.shapes[0];
        operands.extents.insert(operands.extents.end(), first.end() - 2, first.end());
        return OperatorWriter(std::move(operands), t_).write(term.op, match_.scale);
    }

  private:
    /// The common leading dimensions of all operands; none if they do not fit.
    static std::optional<std::vector<Expr>> broadcast(const std::vector<std::vector<Expr>>& shapes) {
        size_t rank = 0;
        for (const auto& s : shapes) rank = std::max(rank, s.size());
        std::vector<Expr> out(rank - 2, Expr(1));
        for (const auto& s : shapes)
            for (size_t d = 0; d + 2 < s.size(); ++d) {
                Expr& extent = out[rank - s.size() + d];
                if (s[d].is_constant(1) || s[d] == extent) continue;
                if (!extent.is_constant(1)) return std::nullopt;
                extent = s[d];
            }
        return out;
    }

    PatchWriter& patch_;
    const TermMatch& match_;
    DType t_;
};

/// Variables that the law broadcasts over columns must be whole matrices, or a law of sums would be used for columns.
bool same_widths(const RewriteContext& context, const MatrixTerm& term, const TermMatch& match) {
    std::map<int, MatrixShape> shapes;
    for (const auto& [v, value] : match.variables) {
        const std::vector<Expr>& s = context.value(value).shape;
        if (s.size() < 2 || !s[s.size() - 2].is_constant() || !s.back().is_constant()) return false;
        shapes[v] = {s[s.size() - 2].constant(), s.back().constant()};
    }
    return shape_of(term, shapes).has_value();
}

bool concatenates(const MatrixTerm& term) {
    return term.op == TermOp::Above || term.op == TermOp::Beside ||
           std::any_of(term.args.begin(), term.args.end(), concatenates);
}

/// Laws by the root operator of the larger side.
std::map<TermOp, std::vector<std::pair<const MatrixTerm*, const MatrixTerm*>>> laws_by_root() {
    std::map<TermOp, std::vector<std::pair<const MatrixTerm*, const MatrixTerm*>>> out;
    for (const TermLaw& law : enumerated_laws()) {
        if (use_of(law) != LawUse::Rule) continue;
        const bool left = operations(law.left) > operations(law.right);
        const MatrixTerm &from = left ? law.left : law.right, &to = left ? law.right : law.left;
        out[from.op].emplace_back(&from, &to);
    }
    return out;
}

// larger side = smaller side
void enumerated(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const ValueId out = context.program().primitives[at].outputs[0];
    static const auto by_root = laws_by_root();
    for (const auto& [op, laws] : by_root) {
        if (!Recogniser(context, at).as(op)) continue;
        for (const auto& [from, to] : laws) {
            const auto m = match_term(context, *from, at);
            if (!m || !same_widths(context, *from, *m) || !same_widths(context, *to, *m)) continue;
            PatchWriter patch(context, at);
            if (define_term(context, patch, *to, *m, out)) found.push_back(patch.take());
        }
    }
}

}  // namespace

LawUse use_of(const TermLaw& law) {
    if (concatenates(law.left) || concatenates(law.right)) return LawUse::Concatenation;
    return operations(law.left) == operations(law.right) ? LawUse::EqualSides : LawUse::Rule;
}

std::optional<TermMatch> match_term(const RewriteContext& context, const MatrixTerm& term, PrimitiveId at) {
    TermMatch out;
    if (context.program().primitives[at].expr() == nullptr) return std::nullopt;
    if (!match(context, term, context.program().primitives[at].outputs[0], out)) return std::nullopt;
    return out;
}

bool define_term(const RewriteContext& context, PatchWriter& patch, const MatrixTerm& term, const TermMatch& match,
                 ValueId out) {
    for (const int v : term_variables(term))
        if (match.variables.count(v) == 0) return false;
    const Value& made = context.value(out);
    if (term.op == TermOp::Variable) {
        const ValueId source = match.variables.at(term.variable);
        if (context.value(source).shape != made.shape) return false;
        ExprWriter w(made.shape, made.shape.size());
        patch.define(out, w.finish(w.read(context, source, plain_axes(made.shape.size()))));
        return true;
    }
    auto e = TermWriter(patch, match, made.dtype).expr(term);
    if (!e) return false;
    const std::vector<Expr> shape(e->extents.begin(), e->extents.begin() + static_cast<std::ptrdiff_t>(e->spatial));
    if (shape != made.shape) return false;
    patch.define(out, std::move(*e));
    return true;
}

std::span<const RewriteRule> enumerated_rewrites() {
    static const std::vector<RewriteRule> rules = {
        {"enumerated", "larger side = smaller side, for the laws of enumerated.txt that use_of classifies as rules",
         enumerated}};
    return rules;
}

}  // namespace tilewright
