#include "cost/stage_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "cost/cache_sets.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/constant_transform.h"
#include "tile/cuts.h"

namespace tilewright {

IndexReach::IndexReach(Expr index, int64_t whole) {
    for (const Term& t : index.terms()) {
        Product product;
        product.coefficient = std::abs(t.coefficient);
        for (const Atom* a : t.atoms) {
            Factor f;
            switch (a->kind) {
                case Atom::Kind::Var:
                    if (a->var.kind == VarKind::Axis) {
                        f.axis = a->var.id;
                    } else {
                        f.kind = Kind::Constant;
                        f.number = a->var.kind == VarKind::Load ? whole : 0;
                    }
                    break;
                case Atom::Kind::FloorDiv:
                case Atom::Kind::Mod:
                    f.kind = a->kind == Atom::Kind::Mod ? Kind::Mod : Kind::Div;
                    f.number = a->b.is_constant() ? std::max<int64_t>(1, a->b.constant()) : 1;
                    f.parts = {IndexReach(a->a, whole)};
                    break;
                case Atom::Kind::Min:
                case Atom::Kind::Max:
                    f.kind = Kind::Either;
                    f.parts = {IndexReach(a->a, whole), IndexReach(a->b, whole)};
                    break;
            }
            product.factors.push_back(std::move(f));
        }
        products_.push_back(std::move(product));
    }
    note_axis();
}

void IndexReach::note_axis() {
    axis_.reset();
    if (products_.size() != 1 || products_[0].factors.size() != 1) return;
    const Factor& f = products_[0].factors[0];
    if (f.kind == Kind::Axis) axis_ = f.axis;
}

int64_t IndexReach::over(std::span<const int64_t> tile) const {
    if (axis_) return products_[0].coefficient * (tile[*axis_] - 1);
    int64_t sum = 0;
    for (const Product& p : products_) {
        int64_t reach = p.coefficient;
        for (const Factor& f : p.factors) switch (f.kind) {
                case Kind::Axis:
                    reach *= tile[f.axis] - 1;
                    break;
                case Kind::Div:
                    reach *= f.parts[0].over(tile) / f.number;
                    break;
                case Kind::Mod:
                    reach *= std::min(f.parts[0].over(tile), f.number - 1);
                    break;
                case Kind::Either:
                    reach *= std::max(f.parts[0].over(tile), f.parts[1].over(tile));
                    break;
                case Kind::Constant:
                    reach *= f.number;
                    break;
            }
        sum += reach;
    }
    return sum;
}

int64_t IndexReach::step(size_t axis, int64_t distance) const {
    int64_t sum = 0;
    for (const Product& p : products_) {
        if (p.factors.size() != 1) continue;  // a factor that does not move is unknown
        const Factor& f = p.factors[0];
        int64_t moved = 0;
        switch (f.kind) {
            case Kind::Axis:
                moved = f.axis == axis ? distance : 0;
                break;
            case Kind::Div:
                moved = f.parts[0].step(axis, distance) / f.number;
                break;
            case Kind::Mod:
                moved = f.parts[0].step(axis, distance) % f.number;
                break;
            case Kind::Either:
                moved = std::max(f.parts[0].step(axis, distance), f.parts[1].step(axis, distance));
                break;
            case Kind::Constant:
                break;
        }
        sum += p.coefficient * moved;
    }
    return sum;
}

IndexReach IndexReach::counter(int64_t count) {
    IndexReach r;
    Factor f;
    f.kind = Kind::Constant;
    f.number = count - 1;
    r.products_.push_back({1, {std::move(f)}});
    return r;
}

bool IndexReach::has_choice() const {
    return std::any_of(products_.begin(), products_.end(), [](const Product& p) {
        return std::any_of(p.factors.begin(), p.factors.end(), [](const Factor& f) { return f.kind == Kind::Either; });
    });
}

std::vector<std::pair<int64_t, IndexReach>> IndexReach::summands() const {
    std::vector<std::pair<int64_t, IndexReach>> out;
    for (const Product& p : products_) {
        IndexReach alone;
        alone.products_.push_back(p);
        alone.products_[0].coefficient = 1;
        alone.note_axis();
        out.emplace_back(p.coefficient, std::move(alone));
    }
    return out;
}

namespace {

/// Runs of elements closer together than `gap` elements.
struct Runs {
    double length = 1, number = 1;
    double places = 1;  ///< different places of their first elements, in bytes modulo `period`
    double share = 1;   ///< of the tiles that read any
};
Runs runs_of(const OperandModel& o, std::span<const int64_t> tile, int64_t gap, int64_t period = 1) {
    Runs r;
    int64_t apart = period;  // every run begins at a multiple of it, modulo the period
    double picks = 1;        // data-dependent indices read for this tile
    for (size_t a = 0; a < tile.size(); ++a)
        if (o.picked_along(a)) picks *= static_cast<double>(tile[a]);
    for (size_t k = 0; k < o.parts.size();) {
        // Terms of equal stride overlap: 14 pixels and 3 points of a window span 16.
        const auto stride = static_cast<double>(o.parts[k].stride);
        double count = 1, most = 0;
        bool picked = false;
        for (; k < o.parts.size() && static_cast<double>(o.parts[k].stride) == stride; ++k) {
            picked = picked || o.parts[k].picked;
            count += static_cast<double>(o.parts[k].reach.over(tile));
            most = std::max(most, o.parts[k].most);
        }
        count = std::min(count, most);
        if (picked) count = std::min(count, picks);
        if (count <= 1) continue;
        if (!picked && r.number == 1 && stride < r.length + static_cast<double>(gap))
            r.length += stride * (count - 1);
        else {
            r.number *= count;
            const auto bytes = static_cast<int64_t>(stride) * o.element_bytes;
            const int64_t places = period / std::gcd(period, bytes);
            r.places *= std::min(count, static_cast<double>(places));
            apart = std::gcd(apart, bytes);
        }
    }
    const int64_t places = period / apart;
    r.places = std::min(r.places, static_cast<double>(places));
    double all = 1;
    for (const int64_t e : o.extents) all *= static_cast<double>(e);
    if (o.irregular) {
        // Data-dependent accesses touch at most one element per point.
        double points = 1;
        for (size_t a = 0; a < tile.size(); ++a) points *= static_cast<double>(tile[a]);
        if (r.length * r.number > points) return {1, std::min(points, all)};
    }
    r.length = std::min(r.length, all);
    r.number = std::min(r.number, std::max(1.0, all / r.length));
    return r;
}

}  // namespace

namespace {

/// The part of a tile at which the operand is read, for tiles that read it, and the share of those tiles.
struct ReadPart {
    std::vector<int64_t> tile;
    double share = 1;
};
ReadPart read_part(const OperandModel& o, std::span<const int64_t> tile) {
    ReadPart part{{tile.begin(), tile.end()}, 1};
    for (size_t a = 0; a < o.shares.size(); ++a) {
        part.tile[a] = std::max<int64_t>(1, std::min(tile[a], o.read_points[a]));
        part.share *= std::min(1.0, static_cast<double>(tile[a]) * o.shares[a] / static_cast<double>(part.tile[a]));
    }
    return part;
}

/// The runs of the part of the tile at which the operand is read.
Runs read_runs(const OperandModel& o, std::span<const int64_t> tile, int64_t gap, int64_t period = 1) {
    if (o.shares.empty()) return runs_of(o, tile, gap, period);
    const ReadPart part = read_part(o, tile);
    Runs r = runs_of(o, part.tile, gap, period);
    r.share = part.share;
    return r;
}

/// Bytes of the lines of a run.
double whole_lines(const OperandModel& o, const Runs& r) {
    const auto line = static_cast<double>(kLineBytes);
    return std::max(1.0, std::ceil(r.length * static_cast<double>(o.element_bytes) / line)) * line;
}

}  // namespace

double OperandModel::share() const {
    double out = 1;
    for (const double s : shares) out *= s;
    return out;
}

double OperandModel::elements(std::span<const int64_t> tile) const {
    const Runs r = read_runs(*this, tile, 1);
    return r.length * r.number * r.share;
}

double OperandModel::bytes(std::span<const int64_t> tile) const {
    const Runs r = read_runs(*this, tile, std::max<int64_t>(1, kLineBytes / element_bytes));
    return r.share * r.number * whole_lines(*this, r);
}

double OperandModel::pages(std::span<const int64_t> tile, int64_t page_bytes) const {
    const Runs r = read_runs(*this, tile, std::max<int64_t>(1, page_bytes / element_bytes));
    return r.share * r.number *
           std::max(1.0, r.length * static_cast<double>(element_bytes) / static_cast<double>(page_bytes));
}

double OperandModel::runs(std::span<const int64_t> tile) const {
    const double known = runs_of(*this, tile, 1).number;
    return irregular || !shares.empty() ? std::max(2.0, known) : known;
}

double OperandModel::lines_in_a_set(std::span<const int64_t> tile, int64_t way_bytes) const {
    const auto way = static_cast<double>(way_bytes);
    const Runs r = read_runs(*this, tile, std::max<int64_t>(1, kLineBytes / element_bytes), way_bytes);
    const double run_bytes = whole_lines(*this, r);
    const double places = irregular ? way / static_cast<double>(kLineBytes) : r.places;
    return r.number * run_bytes / std::min(way, places * run_bytes);
}

OperandModel OperandModel::in_strips(std::span<const Strip> strips) const {
    OperandModel out = *this;
    for (const Strip& s : strips)
        for (const Part& p : parts)
            if (const int64_t step = p.reach.step(s.axis, s.distance); step != 0) {
                Part strip;
                strip.stride = p.stride * std::abs(step);
                strip.reach = IndexReach::counter(s.count);
                out.parts.push_back(std::move(strip));
            }
    std::stable_sort(out.parts.begin(), out.parts.end(),
                     [](const Part& a, const Part& b) { return a.stride < b.stride; });
    return out;
}

double StageModel::points() const {
    double n = 1;
    for (const int64_t e : extents) n *= static_cast<double>(e);
    return n;
}

double StageModel::results() const {
    double n = 1;
    for (size_t a = 0; a < spatial; ++a) n *= static_cast<double>(extents[a]);
    return n;
}

double StageModel::flops() const {
    if (map)
        return points() / (map->row_count * map->column_count) * 2 * map->operations + results() * epilogue_operations;
    return points() * (product ? 2 : least_operations) + results() * epilogue_operations;
}

namespace {

constexpr size_t kTilePoints = 8;  // assumed points of a register tile for the choice of cuts: tiles are not known yet

class Builder {
  public:
    Builder(const Program& stages, Bindings bindings, int64_t assumed)
        : stages_(stages), bindings_(std::move(bindings)), assumed_(assumed) {
        bindings_.insert(stages.assumed.begin(), stages.assumed.end());
    }

    StageModel run(PrimitiveId id) {
        const Primitive& stage = stages_.primitives[id];
        const TensorExpr& e = *stage.expr();
        StageModel m;
        m.spatial = e.spatial;
        for (const Expr& x : e.extents) {
            m.extents.push_back(number(x));
            m.dynamic.push_back(!x.is_constant());
        }
        m.reduces = e.reducer != Reducer::None;
        m.product = contraction(e).has_value();
        m.body_operations = m.least_operations = body_operations(e.body) + (m.reduces && !m.product ? 1 : 0);
        if (m.product) m.factors = factor_work(e);
        m.epilogue_operations = e.epilogue.empty() ? 0 : body_operations(e.epilogue);
        if (const auto size = map_size(e))
            if (const auto map = constant_transform(e))
                m.map = {map->rows, map->row_extents, size->rows, size->columns, size->operations};
        const std::vector<uint32_t> slots = e.body.slots();
        for (size_t i = 0; i < e.accesses.size(); ++i) {
            OperandModel o = operand(e.accesses[i].value, e.accesses[i].index, m.extents);
            pick(e, e.accesses[i].index, o);
            o.in_body = std::find(slots.begin(), slots.end(), static_cast<uint32_t>(i)) != slots.end();
            m.operands.push_back(std::move(o));
        }
        m.operands.push_back(operand(stage.outputs[0], result_index(e), m.extents));
        m.operands.back().result = true;
        m.operands.back().in_body = false;
        find_cuts(e, m);
        choose(e, m);
        return m;
    }

  private:
    /// Restricts operations and reads to the sides of index-dependent selects that remain: after the actual cuts, and,
    /// for least_operations, after all possible cuts.
    static void choose(const TensorExpr& e, StageModel& m) {
        const double more = m.reduces && !m.product ? 1 : 0;
        const auto least = needed_between(e, m.extents, choice_cuts(e));
        if (!least) return;
        m.least_operations = body_operations(e.body, &least->nodes) + more;
        const auto now = needed_between(e, m.extents, m.cuts);
        if (!now) return;
        m.body_operations = body_operations(e.body, &now->nodes) + more;
        for (size_t i = 0; i < e.accesses.size(); ++i)
            if (std::any_of(now->accesses[i].begin(), now->accesses[i].end(),
                            [](double x) { return x > 0 && x < 1; })) {
                OperandModel& o = m.operands[i];
                o.shares = now->accesses[i];
                for (size_t a = 0; a < o.shares.size(); ++a)
                    o.read_points.push_back(std::llround(o.shares[a] * static_cast<double>(m.extents[a])));
            }
    }

    std::vector<StageModel::FactorWork> factor_work(const TensorExpr& e) const {
        constexpr double kHalfToFloat = 2;  // vcvtph2ps
        std::vector<StageModel::FactorWork> out;
        for (const ScalarId id : e.body.nodes().ids()) {
            const ScalarNode& n = e.body[id];
            const bool half = n.op == ScalarOp::Access && stages_.values[e.accesses[n.slot].value].dtype == DType::F16;
            const double operations = half ? kHalfToFloat : operation_cost(n.op);
            if (id == e.body.root() || operations == 0) continue;
            StageModel::FactorWork work{operations, {}};
            for (size_t a = 0; a < e.extents.size(); ++a) work.depends.push_back(moves_along(e, e.body, id, a));
            out.push_back(std::move(work));
        }
        return out;
    }

    void find_cuts(const TensorExpr& e, StageModel& m) const {
        const Ranges ranges = e.ranges();
        CutQuestion q;
        q.expr = &e;
        q.ranges = &ranges;
        q.may_cut.assign(e.spatial, true);
        q.checked.assign(e.accesses.size(), false);
        q.tile_points = kTilePoints;
        const auto cuts = choose_cuts(q);
        if (std::all_of(cuts.begin(), cuts.end(), [](const auto& c) { return c.empty(); })) return;
        for (const std::vector<Expr>& of_axis : cuts) {
            std::vector<int64_t> numbers;
            for (const Expr& c : of_axis) numbers.push_back(number(c));
            std::sort(numbers.begin(), numbers.end());
            m.cuts.push_back(std::move(numbers));
        }
    }

    int64_t number(Expr e) const {
        if (e.is_constant()) return std::max<int64_t>(1, e.constant());
        Bindings all = bindings_;
        for (const Var v : variables(e)) all.try_emplace(v, assumed_);
        return std::max<int64_t>(1, evaluate(e, all));
    }
    int64_t name(Var v) const {
        const auto it = bindings_.find(v);
        return it == bindings_.end() ? assumed_ : it->second;
    }

    /// Finds the axes that select which indices an access reads.
    static void pick(const TensorExpr& e, const std::vector<Expr>& index, OperandModel& o) {
        if (!o.irregular) return;
        o.picks.resize(e.extents.size(), false);
        std::vector<Expr> open = index;
        while (!open.empty()) {  // a load refers only to accesses before its own
            const Expr i = open.back();
            open.pop_back();
            for (const Var v : variables(i)) {
                if (v.kind != VarKind::Load) continue;
                const std::vector<Expr>& at = e.accesses[v.id].index;
                for (const Expr x : at)
                    for (const Var a : variables(x))
                        if (a.kind == VarKind::Axis) o.picks[a.id] = true;
                open.insert(open.end(), at.begin(), at.end());
            }
        }
        for (size_t a = 0; a < o.depends.size(); ++a)
            if (o.picks[a] && !e.extents[a].is_constant(1)) o.depends[a] = true;
    }

    OperandModel operand(ValueId value, const std::vector<Expr>& index, const std::vector<int64_t>& axes) const {
        OperandModel o;
        const Value& v = stages_.values[value];
        o.element_bytes = static_cast<int64_t>(byte_size(v.dtype));
        o.residence = stages_.residence(value);
        for (const Expr& d : v.shape) o.extents.push_back(number(d));
        for (const Expr& i : index)
            for (const Var x : variables(i)) o.irregular = o.irregular || x.kind == VarKind::Load;
        std::vector<int64_t> point(axes.size(), 0);
        const std::vector<int64_t> single(axes.size(), 1);  // an index that moves over a single point is data-dependent
        const std::vector<int64_t> loads(64, 0);
        const std::function<std::optional<int64_t>(Var)> names = [&](Var x) { return std::optional(name(x)); };
        Env env;
        env.axes = point;
        env.loads = loads;
        env.names = &names;
        int64_t stride = 1;
        for (size_t d = index.size(); d-- > 0; stride *= o.extents[d]) {
            const IndexReach all(index[d], o.extents[d] - 1);
            for (auto& [coefficient, reach] : all.summands()) {
                o.parts.push_back({stride * coefficient, reach, reach.over(single) > 0});
                if (!all.has_choice() || coefficient == 0) continue;
                const int64_t places = (o.extents[d] - 1) / coefficient + 1;
                o.parts.back().most = static_cast<double>(places);
            }
        }
        std::stable_sort(o.parts.begin(), o.parts.end(),
                         [](const auto& a, const auto& b) { return a.stride < b.stride; });
        const auto offset = [&] {
            int64_t sum = 0;
            for (size_t d = 0; d < index.size(); ++d) sum = sum * o.extents[d] + evaluate(index[d], env);
            return sum;
        };
        const int64_t origin = offset();
        for (size_t a = 0; a < axes.size(); ++a) {
            const Var v_a{VarKind::Axis, static_cast<uint32_t>(a)};
            const bool depends = std::any_of(index.begin(), index.end(), [&](Expr i) { return uses(i, v_a); });
            o.depends.push_back(depends && axes[a] > 1);
            if (!depends || axes[a] == 1) {
                o.strides.push_back(0);
                continue;
            }
            point[a] = 1;
            o.strides.push_back(offset() - origin);
            point[a] = 0;
        }
        return o;
    }

    const Program& stages_;
    Bindings bindings_;
    int64_t assumed_;
};

}  // namespace

StageModel stage_model(const Program& stages, PrimitiveId stage, const Bindings& bindings, int64_t assumed) {
    return Builder(stages, bindings, assumed).run(stage);
}

StageModels stage_models(const Program& stages, const Bindings& bindings) {
    StageModels out;
    for (const PrimitiveId s : stages.primitives.ids()) out.push_back(stage_model(stages, s, bindings));
    return out;
}

}  // namespace tilewright
