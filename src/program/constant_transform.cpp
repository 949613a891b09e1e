#include "program/constant_transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "program/analysis/access.h"
#include "program/form_hash.h"
#include "program/scalar_eval.h"

namespace tilewright {

namespace {

int64_t product(const std::vector<int64_t>& extents) {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

/// Point `k` of a box over `axes`, the last axis fastest, among all coordinates.
void to_point(size_t k, const std::vector<uint32_t>& axes, const std::vector<int64_t>& extents,
              std::vector<int64_t>& at) {
    auto rest = static_cast<int64_t>(k);
    for (size_t d = axes.size(); d-- > 0;) {
        at[axes[d]] = rest % extents[d];
        rest /= extents[d];
    }
}

/// The modulus m if `axis(a) % m` occurs in the expression.
std::optional<int64_t> period(Expr e, uint32_t a) {
    for (const Term& t : e.terms())
        for (const Atom* atom : t.atoms) {
            if (atom->kind == Atom::Kind::Var) continue;
            if (atom->kind == Atom::Kind::Mod && atom->a == axis(a) && atom->b.is_constant()) return atom->b.constant();
            for (const Expr inner : {atom->a, atom->b})
                if (const auto m = period(inner, a)) return m;
        }
    return std::nullopt;
}

/// Substitutes m * block + within for axis a: whether the expressions depend on `block`, and on `within`.
struct Parts {
    bool block = false, within = false;
};
Parts parts_of(const std::vector<Expr>& list, uint32_t a, int64_t m, const Ranges& of) {
    Ranges ranges = of;
    const auto block = static_cast<uint32_t>(ranges.axes.size()), within = block + 1;
    ranges.axes.push_back({Expr(0), std::nullopt});
    ranges.axes.push_back({Expr(0), Expr(m - 1)});
    Parts out;
    for (const Expr e : list) {
        const Expr split = substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v == Var{VarKind::Axis, a}) return axis(block) * m + axis(within);
            return std::nullopt;
        });
        const Expr s = simplify(split, ranges);
        out.block = out.block || uses(s, {VarKind::Axis, block});
        out.within = out.within || uses(s, {VarKind::Axis, within});
    }
    return out;
}

/// Live nodes of `root`.
std::vector<bool> below(const ScalarBody& body, ScalarId root) {
    std::vector<bool> needed(body.nodes().size(), false);
    needed[root.index()] = true;
    for (size_t k = root.index() + 1; k-- > 0;)
        if (needed[k])
            for (const ScalarId o : {body[ScalarId(k)].a, body[ScalarId(k)].b, body[ScalarId(k)].c})
                if (o) needed[o.index()] = true;
    return needed;
}

}  // namespace

size_t ConstantTransform::row_count() const { return static_cast<size_t>(product(row_extents)); }
size_t ConstantTransform::column_count() const { return static_cast<size_t>(product(column_extents)); }
size_t ConstantTransform::row_at(const std::vector<int64_t>& axes) const {
    int64_t at = 0;
    for (size_t k = 0; k < rows.size(); ++k) at = at * row_extents[k] + axes[rows[k]] % row_extents[k];
    return static_cast<size_t>(at);
}
void ConstantTransform::to_column(size_t column, std::vector<int64_t>& axes) const {
    to_point(column, columns, column_extents, axes);
}

std::optional<ConstantTransform> constant_transform(const TensorExpr& e) {
    if (e.reducer != Reducer::Sum || e.body.empty() || e.body[e.body.root()].op != ScalarOp::Weigh) return std::nullopt;
    ConstantTransform out;
    out.weight = e.body[e.body.root()].a;
    out.term = e.body[e.body.root()].b;
    const std::vector<bool> of_weight = below(e.body, out.weight), of_term = below(e.body, out.term);
    std::vector<Expr> weight_at, term_at;  // the expressions through which they depend on the axes
    bool tabled = false;
    for (const ScalarId id : e.body.nodes().ids()) {
        const ScalarNode& n = e.body[id];
        if (of_weight[id.index()]) {
            if (n.op == ScalarOp::Access || n.op == ScalarOp::Acc) return std::nullopt;
            if (n.op == ScalarOp::Index) weight_at.push_back(n.index);
            tabled = tabled || n.op == ScalarOp::Table;
        }
        if (of_term[id.index()]) {
            if (n.op == ScalarOp::Index) term_at.push_back(n.index);
            if (n.op != ScalarOp::Access) continue;
            const Access& a = e.accesses[n.slot];
            term_at.insert(term_at.end(), a.index.begin(), a.index.end());
            term_at.insert(term_at.end(), a.valid.begin(), a.valid.end());
        }
    }
    if (!tabled) return std::nullopt;
    for (const Expr x : weight_at)
        for (const Var v : variables(x))
            if (v.kind != VarKind::Axis) return std::nullopt;
    for (const Expr x : term_at)
        for (const Var v : variables(x))
            if (v.kind == VarKind::Load) return std::nullopt;
    for (uint32_t a = 0; a < e.extents.size(); ++a) {
        const bool summed = a >= e.spatial;
        if (!summed && !index_uses(weight_at, a)) continue;
        std::optional<int64_t> every;
        for (const Expr x : weight_at)
            if (!summed && !every) every = period(x, a);
        if (every &&
            (parts_of(weight_at, a, *every, e.ranges()).block || parts_of(term_at, a, *every, e.ranges()).within))
            every.reset();
        if (!every) {
            if (!e.extents[a].is_constant() || e.extents[a].constant() < 1) return std::nullopt;
            if (!summed && index_uses(term_at, a)) return std::nullopt;
        }
        (summed ? out.columns : out.rows).push_back(a);
        (summed ? out.column_extents : out.row_extents).push_back(every ? *every : e.extents[a].constant());
        if (!summed) out.periodic.push_back(every.has_value());
        if (product(out.row_extents) > kMaxWeights || product(out.column_extents) > kMaxWeights ||
            product(out.row_extents) * product(out.column_extents) > kMaxWeights)
            return std::nullopt;
    }
    std::vector<int64_t> extents = out.row_extents;
    extents.insert(extents.end(), out.column_extents.begin(), out.column_extents.end());
    std::vector<uint32_t> axes = out.rows;
    axes.insert(axes.end(), out.columns.begin(), out.columns.end());
    std::vector<int64_t> at(e.extents.size(), 0);
    Env env;
    env.axes = at;
    std::vector<ScalarValue> values(e.body.nodes().size());
    const size_t count = out.row_count() * out.column_count();
    for (size_t k = 0; k < count; ++k) {
        to_point(k, axes, extents, at);
        for (size_t i = 0; i <= out.weight.index(); ++i) {
            if (!of_weight[i]) continue;
            const ScalarNode& n = e.body[ScalarId(i)];
            const auto of = [&](ScalarId o) { return o ? values[o.index()] : ScalarValue(); };
            if (n.op == ScalarOp::Const)
                values[i] = {n.value, n.int_value};
            else if (n.op == ScalarOp::Index)
                values[i] = {0, evaluate(n.index, env)};
            else
                values[i] = eval_node(n, e.body[n.op == ScalarOp::Select ? n.b : n.a].dtype, of(n.a), of(n.b), of(n.c));
        }
        const double weight = values[out.weight.index()].f;
        if (!std::isfinite(weight)) return std::nullopt;
        out.weights.push_back(weight);
    }
    return out;
}

namespace {

/// A matrix whose rows and columns are multi-dimensional.
struct Map {
    std::vector<int64_t> rows, columns;  ///< extents
    std::vector<double> weights;         ///< [rows..., columns...]
};

class Sharing {
  public:
    explicit Sharing(size_t inputs) { out_.inputs = inputs; }

    using Nodes = std::vector<std::optional<size_t>>;  ///< none: 0

    /// The factorisation with the fewest operations.
    Nodes apply(const Map& m, const Nodes& inputs) {
        const SharedSums before = out_;
        Nodes best = directly(m, inputs);
        for (size_t c = 0; c < m.columns.size() && m.rows.size() > 1; ++c) {
            const auto factors = split(m, c);
            if (!factors) continue;
            SharedSums other = std::exchange(out_, before);
            Nodes rows = in_turn(m, c, *factors, inputs);
            if (out_.operations() < other.operations())
                best = std::move(rows);
            else
                out_ = std::move(other);
        }
        return best;
    }

    SharedSums take(Nodes rows) {
        out_.rows = std::move(rows);
        return std::move(out_);
    }

  private:
    struct Factors {
        Map first, rest;  ///< along the first row axis and column axis c; along all others
    };

    /// M[(r, s), (c, d)] = P[r, c] Q[s, d], r the first axis of the rows.
    static std::optional<Factors> split(const Map& m, size_t c) {
        Factors f;
        f.first = {{m.rows[0]}, {m.columns[c]}, {}};
        f.rest = {{m.rows.begin() + 1, m.rows.end()}, m.columns, {}};
        f.rest.columns.erase(f.rest.columns.begin() + static_cast<std::ptrdiff_t>(c));
        const int64_t r_count = m.rows[0], c_count = m.columns[c];
        const int64_t s_count = product(f.rest.rows), d_count = product(f.rest.columns);
        if (d_count == 1 && c_count == 1) return std::nullopt;
        const auto at = [&](int64_t r, int64_t s, int64_t k, int64_t d) {
            int64_t inner = 1;
            for (size_t i = c + 1; i < m.columns.size(); ++i) inner *= m.columns[i];
            const int64_t column = (d / inner * c_count + k) * inner + d % inner;
            return m.weights[static_cast<size_t>((r * s_count + s) * c_count * d_count + column)];
        };
        // Normalised to an entry of 1 if possible, so that the factors' entries are as simple as the product's.
        const auto with = [&](const auto& fits) -> std::optional<std::array<int64_t, 4>> {
            for (int64_t r = 0; r < r_count; ++r)
                for (int64_t s = 0; s < s_count; ++s)
                    for (int64_t k = 0; k < c_count; ++k)
                        for (int64_t d = 0; d < d_count; ++d)
                            if (fits(at(r, s, k, d))) return std::array{r, s, k, d};
            return std::nullopt;
        };
        auto pivot = with([](double w) { return w == 1; });
        if (!pivot) pivot = with([](double w) { return w != 0; });
        if (!pivot) return std::nullopt;
        const auto [r0, s0, k0, d0] = *pivot;
        for (int64_t r = 0; r < r_count; ++r)
            for (int64_t k = 0; k < c_count; ++k) f.first.weights.push_back(at(r, s0, k, d0) / at(r0, s0, k0, d0));
        for (int64_t s = 0; s < s_count; ++s)
            for (int64_t d = 0; d < d_count; ++d) f.rest.weights.push_back(at(r0, s, k0, d));
        for (int64_t r = 0; r < r_count; ++r)
            for (int64_t s = 0; s < s_count; ++s)
                for (int64_t k = 0; k < c_count; ++k)
                    for (int64_t d = 0; d < d_count; ++d)
                        if (at(r, s, k, d) != f.first.weights[static_cast<size_t>(r * c_count + k)] *
                                                  f.rest.weights[static_cast<size_t>(s * d_count + d)])
                            return std::nullopt;
        return f;
    }

    Nodes in_turn(const Map& m, size_t c, const Factors& f, const Nodes& inputs) {
        const int64_t c_count = m.columns[c], d_count = product(f.rest.columns), r_count = m.rows[0];
        int64_t inner = 1;
        for (size_t i = c + 1; i < m.columns.size(); ++i) inner *= m.columns[i];
        std::vector<Nodes> mapped(static_cast<size_t>(r_count), Nodes(static_cast<size_t>(d_count)));
        for (int64_t d = 0; d < d_count; ++d) {
            Nodes line;
            for (int64_t k = 0; k < c_count; ++k)
                line.push_back(inputs[static_cast<size_t>((d / inner * c_count + k) * inner + d % inner)]);
            const Nodes one = directly(f.first, line);
            for (int64_t r = 0; r < r_count; ++r)
                mapped[static_cast<size_t>(r)][static_cast<size_t>(d)] = one[static_cast<size_t>(r)];
        }
        Nodes out;
        for (const Nodes& line : mapped) {
            const Nodes rows = apply(f.rest, line);
            out.insert(out.end(), rows.begin(), rows.end());
        }
        return out;
    }

    size_t add(std::vector<SharedSums::Term> terms) {
        out_.sums.push_back(std::move(terms));
        return out_.inputs + out_.sums.size() - 1;
    }

    Nodes directly(const Map& m, const Nodes& inputs) {
        const auto rows = static_cast<size_t>(product(m.rows)), columns = static_cast<size_t>(product(m.columns));
        std::vector<std::map<size_t, double>> sums(rows);
        for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c)
                if (const double w = m.weights[r * columns + c]; w != 0 && inputs[c]) sums[r][*inputs[c]] += w;
        if (rows * columns <= kMaxPaired) share_pairs(sums);
        Nodes out;
        for (const std::map<size_t, double>& sum : sums) {
            std::vector<SharedSums::Term> terms;
            for (const auto& [node, weight] : sum)
                if (weight != 0) terms.push_back({node, weight});
            if (terms.empty())
                out.emplace_back();
            else if (terms.size() == 1 && terms[0].weight == 1)
                out.emplace_back(terms[0].node);
            else
                out.emplace_back(add(std::move(terms)));
        }
        return out;
    }

    /// Bounds the cost: comparing all pairs of all rows takes rows x columns^2 per extracted pair.
    static constexpr size_t kMaxPaired = 4096;

    void share_pairs(std::vector<std::map<size_t, double>>& sums) {
        using Pair = std::tuple<size_t, size_t, double>;
        for (;;) {
            std::map<Pair, size_t> count;
            const Pair* best = nullptr;
            size_t most = 1;
            for (const auto& sum : sums)
                for (auto i = sum.begin(); i != sum.end(); ++i)
                    for (auto j = std::next(i); j != sum.end(); ++j) {
                        const auto it = count.try_emplace({i->first, j->first, j->second / i->second}, 0).first;
                        if (++it->second > most) {
                            most = it->second;
                            best = &it->first;
                        }
                    }
            if (best == nullptr) return;
            const auto [x, y, ratio] = *best;
            std::vector<std::map<size_t, double>*> with;
            for (auto& sum : sums) {
                const auto i = sum.find(x), j = sum.find(y);
                if (i != sum.end() && j != sum.end() && j->second / i->second == ratio) with.push_back(&sum);
            }
            const auto [first, second] = scaled(with, x, y);
            const size_t node = add({{x, first}, {y, second}});
            for (std::map<size_t, double>* sum : with) {
                const double weight = sum->at(x) / first;
                sum->erase(x);
                sum->erase(y);
                (*sum)[node] = weight;
            }
        }
    }

    /// The weights of a pair that these sums share up to a factor, scaled so that a sum that contains the pair adds it
    /// with factor 1. Otherwise, if the numbers stay unchanged, one weight is 1.
    ///     -2 b + 2 d,  2 b - 2 d   ->   -b + d, times 2 and times -2
    static std::pair<double, double> scaled(const std::vector<std::map<size_t, double>*>& with, size_t x, size_t y) {
        for (const auto* sum : with)
            if (sum->at(x) == 1 || sum->at(y) == 1) return {sum->at(x), sum->at(y)};
        const double first = with[0]->at(x) / with[0]->at(y);
        const bool exact = std::all_of(with.begin(), with.end(), [&](const auto* sum) {
            const double factor = sum->at(x) / first;
            return static_cast<float>(first) == first && static_cast<float>(factor) == factor &&
                   factor * first == sum->at(x) && factor == sum->at(y);
        });
        return exact ? std::pair(first, 1.0) : std::pair(with[0]->at(x), with[0]->at(y));
    }

    SharedSums out_;
};

}  // namespace

size_t SharedSums::operations() const {
    size_t n = 0;
    for (const auto& terms : sums) {
        const bool one = std::any_of(terms.begin(), terms.end(), [](const Term& t) { return t.weight == 1; });
        n += terms.size() - (one ? 1 : 0);
    }
    return n;
}

SharedSums share_sums(const ConstantTransform& map) {
    // A model has few different transforms, each in many kernels.
    constexpr size_t kMostKept = 256;
    static std::mutex mutex;
    static std::map<std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<double>>, SharedSums> known;
    const auto key = std::tie(map.row_extents, map.column_extents, map.weights);
    {
        const std::lock_guard lock(mutex);
        if (const auto it = known.find(key); it != known.end()) return it->second;
    }
    Sharing sharing(map.column_count());
    Sharing::Nodes inputs;
    for (size_t c = 0; c < map.column_count(); ++c) inputs.emplace_back(c);
    SharedSums shared = sharing.take(sharing.apply({map.row_extents, map.column_extents, map.weights}, inputs));
    const std::lock_guard lock(mutex);
    if (known.size() == kMostKept) known.clear();
    known.emplace(key, shared);
    return shared;
}

std::optional<MapSize> map_size(const TensorExpr& e) {
    if (e.reducer != Reducer::Sum || e.body.empty() || e.body[e.body.root()].op != ScalarOp::Weigh) return std::nullopt;
    static std::mutex mutex;
    static std::unordered_map<uint64_t, std::optional<MapSize>> known;
    uint64_t key = hash_combine(form_hash(e.body), e.spatial);
    for (const Expr x : e.extents) key = hash_combine(key, x.hash());
    for (const Access& a : e.accesses) {  // whether the terms depend on the row axes
        for (const Expr x : a.index) key = hash_combine(key, x.hash());
        for (const Expr x : a.valid) key = hash_combine(key, x.hash());
    }
    {
        const std::lock_guard lock(mutex);
        if (const auto it = known.find(key); it != known.end()) return it->second;
    }
    std::optional<MapSize> size;
    if (const auto map = constant_transform(e))
        size = {static_cast<double>(map->row_count()), static_cast<double>(map->column_count()),
                static_cast<double>(share_sums(*map).operations())};
    const std::lock_guard lock(mutex);
    known.emplace(key, size);
    return size;
}

}  // namespace tilewright
