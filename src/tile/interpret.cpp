// Reference execution of a tile program: the tree, statement by statement, point by point.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "program/interpret_lanes.h"
#include "tile/online.h"
#include "tile/point_evaluator.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

struct Range {
    int64_t lo = 0, hi = 0;
};

ScalarOp combining(Reducer r) {
    switch (r) {
        case Reducer::Sum:
            return ScalarOp::Add;
        case Reducer::Prod:
            return ScalarOp::Mul;
        case Reducer::Max:
            return ScalarOp::Max;
        default:
            return ScalarOp::Min;
    }
}

/// Calls f(point) for every point of the box.
template <class F>
void each_point(std::span<const Range> box, const F& f) {
    std::vector<int64_t> at;
    for (const Range& r : box) {
        if (r.lo >= r.hi) return;
        at.push_back(r.lo);
    }
    while (true) {
        f(std::span<const int64_t>(at));
        size_t k = at.size();
        while (k > 0 && ++at[k - 1] == box[k - 1].hi) {
            at[k - 1] = box[k - 1].lo;
            --k;
        }
        if (k == 0) return;
    }
}

/// An online maximum, and its state under the current ranges.
struct RunningMaximum {
    PrimitiveId stage;
    Place* correction = nullptr;
    bool final = false;
};

/// A stage with its compiled expressions, which are evaluated many times.
struct Stage {
    const TensorExpr* expr = nullptr;
    const std::vector<size_t>* axes = nullptr;
    std::unique_ptr<PointEvaluator> points;
    std::vector<IndexCode> result;
    Place* out = nullptr;
    ScalarValue identity;
    RunningMaximum* online = nullptr;     ///< the stage computes this maximum
    RunningMaximum* scaled_by = nullptr;  ///< the stage runs in this maximum's steps
    std::vector<IndexCode> scale;         ///< the element of that maximum
};

class Execution {
  public:
    Execution(const TileProgram& program, const std::vector<Tensor>& inputs, Bindings bindings)
        : p_(program), tree_(walk(program)), plan_(plan_buffers(program)), bindings_(std::move(bindings)) {
        TW_CHECK(inputs.size() == p_.stages.inputs.size(), "{} inputs, {} given", p_.stages.inputs.size(),
                 inputs.size());
        for (size_t k = 0; k < inputs.size(); ++k) {
            const Value& v = p_.stages.values[p_.stages.inputs[k]];
            if (inputs[k].dtype() != v.dtype)
                model_error("'{}' is expected to be {}, but is {}", v.name, to_string(v.dtype),
                            to_string(inputs[k].dtype()));
            bind_shape(bindings_, v.shape, inputs[k].shape(), v.name);
            memory_.emplace(p_.stages.inputs[k], Place(fmt::format("'{}'", v.name), inputs[k]));
        }
        for (const ValueId id : p_.stages.outputs) {
            const Value& v = p_.stages.values[id];
            memory_.emplace(id, Place(fmt::format("'{}'", v.name), v.dtype, evaluate(v.shape, bindings_)));
        }
        for (const Buffer& b : plan_.buffers) {
            const std::string name =
                fmt::format("{} of '{}'", b.access ? "the copy" : "the buffer", p_.stages.values[b.value].name);
            buffers_.push_back(std::make_unique<Place>(name, b));
            corners_.push_back(index_codes(b.base, bindings_));
        }
        for (const TileAxis& a : p_.axes) {
            extents_.push_back(evaluate(a.extent, bindings_));
            ranges_.push_back({0, extents_.back()});
        }
        for (const auto& [path, compute] : tree_.computes) {
            if (!compute->online) continue;
            const ValueId v = p_.stages.primitives[compute->stage].outputs[0];
            Place* correction = buffer([&](const Buffer& b) { return b.correction && b.value == v; });
            online_[v] = {compute->stage, correction};
        }
        const auto scales = online_scales(p_.stages, online_maxima(p_));
        for (const PrimitiveId s : p_.stages.primitives.ids()) stages_.push_back(prepare(s, scales[s]));
    }

    std::vector<Tensor> run() {
        enter({});
        statements(p_.body, {});
        std::vector<Tensor> out;
        out.reserve(p_.stages.outputs.size());
        for (const ValueId v : p_.stages.outputs) out.push_back(memory_.at(v).contents());
        return out;
    }

  private:
    Place* buffer(const std::function<bool(const Buffer&)>& is) {
        for (size_t i = 0; i < plan_.buffers.size(); ++i)
            if (is(plan_.buffers[i])) return buffers_[i].get();
        return nullptr;
    }
    Place* copy_of(PrimitiveId stage, size_t access) {
        return buffer([&](const Buffer& b) { return b.access && *b.access == std::pair(stage, access); });
    }
    Place* place_of(ValueId v) {
        if (Place* b =
                buffer([&](const Buffer& x) { return !x.access && !x.correction && !x.partial && x.value == v; }))
            return b;
        const auto it = memory_.find(v);
        TW_CHECK(it != memory_.end(), "value '{}' has no memory", p_.stages.values[v].name);
        return &it->second;
    }

    TreePath compute_of(PrimitiveId s) const {
        for (const auto& [path, compute] : tree_.computes)
            if (compute->stage == s) return path;
        return {};
    }

    Stage prepare(PrimitiveId id, const std::optional<OnlineScale>& scale) {
        const Primitive& primitive = p_.stages.primitives[id];
        Stage s;
        s.expr = primitive.expr();
        s.axes = &p_.stage_axes[id];
        std::vector<PointEvaluator::Source> sources;
        for (size_t k = 0; k < s.expr->accesses.size(); ++k) {
            Place* copy = copy_of(id, k);
            const ValueId v = s.expr->accesses[k].value;
            sources.push_back({copy != nullptr ? copy : place_of(v), copy != nullptr});
            if (const auto it = online_.find(v); it != online_.end()) sources.back().final = &it->second.final;
        }
        s.points = std::make_unique<PointEvaluator>(p_.stages, *s.expr, std::move(sources), bindings_);
        s.result = index_codes(result_index(*s.expr), bindings_);
        s.out = place_of(primitive.outputs[0]);
        if (s.expr->reducer != Reducer::None)
            s.identity = interp::reducer_identity(s.expr->reducer, s.expr->body.dtype());
        if (const auto it = online_.find(primitive.outputs[0]); it != online_.end()) s.online = &it->second;
        if (scale) {
            RunningMaximum& maximum = online_.at(scale->maximum);
            if (inside_reduction(p_, tree_, maximum.stage, compute_of(maximum.stage), compute_of(id))) {
                s.scaled_by = &maximum;
                s.scale = index_codes(scale->index, bindings_);
            }
        }
        return s;
    }

    // --- the tree

    void enter(const TreePath& scope) {
        std::vector<int64_t> starts;
        starts.reserve(ranges_.size());
        for (const Range& r : ranges_) starts.push_back(r.lo);
        for (size_t i = 0; i < plan_.buffers.size(); ++i) {
            if (plan_.buffers[i].scope != scope) continue;
            std::vector<int64_t> corner;
            for (const IndexCode& c : corners_[i]) corner.push_back(c.at(starts));
            buffers_[i]->enter(std::move(corner));
        }
    }

    void statements(const std::vector<Stmt>& body, const TreePath& path) {
        for (size_t i = 0; i < body.size(); ++i) {
            TreePath here = path;
            here.push_back(i);
            if (const auto* loop = std::get_if<TileLoop>(&body[i].kind))
                run_loop(*loop, here);
            else if (const auto* load = std::get_if<Load>(&body[i].kind))
                run_load(*load);
            else if (const auto* compute = std::get_if<Compute>(&body[i].kind))
                run_compute(*compute);
            else
                run_store(std::get<Store>(body[i].kind), path);
        }
    }

    void run_loop(const TileLoop& loop, const TreePath& path) {
        const Range outer = ranges_[loop.axis];
        const bool parts = path == tree_.split;  // there is one at least, which may be empty
        for (int64_t at = outer.lo; at < outer.hi || (parts && at == outer.lo); at += loop.step) {
            ranges_[loop.axis] = {at, std::min(outer.hi, at + loop.step)};
            if (loop.parallel) ++task_;
            if (path == tree_.split) part_ = ranges_[loop.axis];
            enter(path);
            statements(loop.body, path);
        }
        ranges_[loop.axis] = outer;
    }

    [[noreturn]] void fail(const std::string& statement, const std::vector<size_t>& axes, std::span<const int64_t> at,
                           const std::exception& e) const {
        std::string where;
        for (size_t k = 0; k < at.size(); ++k)
            where += fmt::format("{}{}={}", k == 0 ? "" : ", ", p_.axes[axes[k]].name, at[k]);
        throw InternalError(fmt::format("tile program '{}', {} at [{}]: {}", p_.name, statement, where, e.what()));
    }

    // --- Compute

    void run_compute(const Compute& compute) {
        Stage& s = stages_[compute.stage.index()];
        const size_t n = s.axes->size(), spatial = s.expr->spatial;
        std::vector<Range> box, reductions;
        bool first = true, last = true;
        for (size_t k = 0; k < n; ++k) {
            const Range& r = ranges_[(*s.axes)[k]];
            if (k < spatial) {
                box.push_back(r);
                continue;
            }
            reductions.push_back(r);
            const Range whole = whole_range((*s.axes)[k]);
            first = first && r.lo == whole.lo;
            last = last && r.hi == whole.hi;
        }
        for (auto& [v, maximum] : online_) maximum.final = is_final(maximum.stage);
        std::vector<int64_t> at(n), element(s.result.size());
        const auto point = [&](std::span<const int64_t> p, bool overhang) {
            std::copy(p.begin(), p.end(), at.begin());
            std::fill(at.begin() + static_cast<std::ptrdiff_t>(spatial), at.end(), 0);
            try {
                compute_point(s, at, reductions, element, first, last, overhang);
            } catch (const InternalError& e) {
                fail(fmt::format("compute {}", compute.stage.value), *s.axes, at, e);
            }
        };
        each_point(box, [&](std::span<const int64_t> p) { point(p, false); });
        if (compute.micro.padding == Padding::Global) overhang(compute, s, box, point);
    }

    /// What the task reduces of an axis: all of it, or its part (Walk::split).
    Range whole_range(size_t axis) const {
        if (tree_.split && tree_.loops.at(*tree_.split)->axis == axis) return part_;
        return {0, extents_[axis]};
    }
    /// Whether parts of sums are missing, which later tasks add.
    bool parts_are_missing() const { return tree_.split && part_.hi != extents_[tree_.loops.at(*tree_.split)->axis]; }

    /// Whether the current ranges reach the end of the stage's reduction.
    bool is_final(PrimitiveId id) const {
        const std::vector<size_t>& axes = p_.stage_axes[id];
        for (size_t k = p_.stages.primitives[id].expr()->spatial; k < axes.size(); ++k)
            if (ranges_[axes[k]].hi != extents_[axes[k]]) return false;
        return true;
    }

    /// Runs the points of whole register tiles beyond the range (global padding). With other paddings the tail of a
    /// tile is computed separately, or dropped.
    template <class F>
    void overhang(const Compute& compute, const Stage& s, const std::vector<Range>& box, const F& point) {
        std::vector<Range> whole = box;
        for (size_t k = 0; k < whole.size(); ++k) {
            const int64_t tile = k < compute.micro.registers.size() ? compute.micro.registers[k] : 1;
            whole[k].hi = whole[k].lo + (whole[k].hi - whole[k].lo + tile - 1) / tile * tile;
            TW_CHECK(whole[k].hi == box[k].hi || box[k].hi == extents_[(*s.axes)[k]],
                     "tile program '{}', compute {}: its register tiles reach into the next tile of {}", p_.name,
                     compute.stage.value, p_.axes[(*s.axes)[k]].name);
        }
        each_point(whole, [&](std::span<const int64_t> p) {
            for (size_t k = 0; k < box.size(); ++k)
                if (p[k] >= box[k].hi) return point(p, true);
        });
    }

    void compute_point(Stage& s, std::vector<int64_t>& at, const std::vector<Range>& reductions,
                       std::vector<int64_t>& element, bool first, bool last, bool overhang) {
        const size_t spatial = s.expr->spatial;
        for (size_t d = 0; d < element.size(); ++d) element[d] = s.result[d].at(at);
        ScalarValue v;
        if (s.expr->reducer == Reducer::None) {
            s.points->move(at, task_, overhang);
            v = s.points->body();
        } else {
            const DType t = s.expr->body.dtype();
            v = s.identity;
            if (!first && !overhang) v = partial(s, element);
            const double before = v.f;
            if (!first && !overhang && s.scaled_by != nullptr) v.f *= correction(s, at);
            const ScalarOp op = combining(s.expr->reducer);
            each_point(reductions, [&](std::span<const int64_t> r) {
                std::copy(r.begin(), r.end(), at.begin() + static_cast<std::ptrdiff_t>(spatial));
                s.points->move(at, task_, overhang);
                v = eval_scalar(op, t, t, v, s.points->body());
            });
            if (s.online != nullptr)
                s.online->correction->cell(element).value.f = before == v.f ? 1 : std::exp(before - v.f);
            if (last && tree_.split && !overhang) {  // tasks run in order, so the last one adds the parts
                const auto [sum, is_first] = sums_.try_emplace(element, v);
                if (!is_first) sum->second = eval_scalar(op, t, t, sum->second, v);
                v = sum->second;
                if (parts_are_missing()) return;
            }
            if (last && !s.expr->epilogue.empty()) {
                std::fill(at.begin() + static_cast<std::ptrdiff_t>(spatial), at.end(), 0);
                s.points->move(at, task_, overhang);
                v = s.points->epilogue(v);
            }
        }
        if (overhang) {
            s.out->cell(element);  // checks that the buffer has room for it
        } else if (last) {
            s.out->write(element, v, task_);
        } else {
            Place::Cell& c = s.out->cell(element);
            TW_CHECK(c.state != Place::State::Written, "{} is added to after its reduction ended",
                     s.out->element(element));
            c = {v, Place::State::Partial, task_};
        }
    }

    static double correction(const Stage& s, std::span<const int64_t> at) {
        std::vector<int64_t> element;
        element.reserve(s.scale.size());
        for (const IndexCode& c : s.scale) element.push_back(c.at(at));
        return s.scaled_by->correction->cell(element).value.f;
    }

    ScalarValue partial(const Stage& s, std::span<const int64_t> element) const {
        const Place::Cell& c = s.out->cell(element);
        TW_CHECK(c.state == Place::State::Partial && c.task == task_, "{} is added to before its reduction begins",
                 s.out->element(element));
        return c.value;
    }

    // --- Load

    void run_load(const Load& load) {
        try {
            fill(load);
        } catch (const InternalError& e) {
            fail(fmt::format("load {} access {}", load.stage.value, load.access), {}, {}, e);
        }
    }

    void fill(const Load& load) {
        const Access& access = p_.stages.primitives[load.stage].expr()->accesses[load.access];
        Place& to = *copy_of(load.stage, load.access);
        Place& from = memory_.at(access.value);
        const size_t rank = access.index.size();
        struct Condition {
            size_t dimension;
            int sign;
            int64_t rest;
        };
        std::vector<Condition> conditions;
        for (const Expr& c : access.valid) {
            const auto on = condition_on_index(access, c);
            TW_CHECK(on, "the condition {} >= 0 does not depend on exactly one index", c.text());
            conditions.push_back({on->dimension, on->sign, evaluate(on->rest, bindings_)});
        }
        const std::vector<Range> touched = touched_box(access, p_.stage_axes[load.stage]);
        const auto fetch = [&](std::span<const int64_t> index) {
            const bool valid = std::all_of(conditions.begin(), conditions.end(), [&](const Condition& c) {
                return c.sign * index[c.dimension] + c.rest >= 0;
            });
            if (load.padding == Padding::Global) {
                TW_CHECK(from.inside(index),
                         "{} is read without a bounds check: the tensor {} is not padded to whole tiles",
                         from.element(index), to_string(from.box));
                return from.read(index, task_);
            }
            if (!valid || (load.padding == Padding::Local && !from.inside(index)))
                return scalar_from_double(from.dtype, access.fill);
            return from.read(index, task_);
        };
        // By memory position: an unfolded buffer holds some elements more than once.
        std::vector<Expr> box, places;
        std::vector<Range> memory;
        for (const int64_t d : to.box) box.emplace_back(d);
        for (size_t d = 0; d < to.physical.size(); ++d) {
            places.push_back(axis(d));
            memory.push_back({0, to.physical[d]});
        }
        const LogicalIndex logical = logical_index(to.layout, box, places);
        const std::vector<IndexCode> index_of = index_codes(logical.index, {}), exists = index_codes(logical.valid, {});
        size_t place = 0;
        std::vector<int64_t> index(rank);
        each_point(memory, [&](std::span<const int64_t> at) {
            Place::Cell& cell = to.cells[place++];
            for (const IndexCode& e : exists)
                if (e.at(at) < 0) return;
            bool wanted = true;
            for (size_t d = 0; d < rank; ++d) {
                index[d] = to.corner[d] + index_of[d].at(at);
                wanted = wanted && index[d] >= touched[d].lo && index[d] < touched[d].hi;
            }
            if (wanted || load.padding != Padding::Partition) cell = {fetch(index), Place::State::Written, task_};
        });
    }

    /// The box that an affine access reads under the current ranges.
    std::vector<Range> touched_box(const Access& access, const std::vector<size_t>& axes) const {
        std::vector<int64_t> lowest(axes.size(), 0);
        std::vector<Range> out;
        for (const Expr& i : access.index) {
            const IndexCode code(i, bindings_);
            Range r{code.at(lowest), code.at(lowest) + 1};
            for (size_t k = 0; k < axes.size(); ++k) {
                std::vector<int64_t> one = lowest;
                one[k] = 1;
                const int64_t coefficient = code.at(one) - code.at(lowest);
                const Range& range = ranges_[axes[k]];
                r.lo += coefficient * (coefficient > 0 ? range.lo : range.hi - 1);
                r.hi += coefficient * (coefficient > 0 ? range.hi - 1 : range.lo);
            }
            out.push_back(r);
        }
        return out;
    }

    // --- Store

    void run_store(const Store& store, const TreePath& scope) {
        if (parts_are_missing()) return;
        const PrimitiveId id = p_.stages.producers()[store.value];
        const Stage& s = stages_[id.index()];
        Place& to = memory_.at(store.value);
        const std::vector<Expr>& largest = tree_.extents.at(scope);
        std::vector<Range> box;
        for (size_t k = 0; k < s.expr->spatial; ++k) {
            Range r = ranges_[(*s.axes)[k]];
            if (store.padding == Padding::Global) r.hi = r.lo + evaluate(largest[(*s.axes)[k]], bindings_);
            box.push_back(r);
        }
        std::vector<int64_t> element(s.result.size());
        each_point(box, [&](std::span<const int64_t> p) {
            for (size_t d = 0; d < element.size(); ++d) element[d] = s.result[d].at(p);
            try {
                if (store.padding == Padding::Global)
                    TW_CHECK(to.inside(element),
                             "{} is written without a bounds check: the tensor {} is not padded to whole tiles",
                             to.element(element), to_string(to.box));
                to.write(element, s.out->read(element, task_), task_);
            } catch (const InternalError& e) {
                fail(fmt::format("store {}", p_.stages.values[store.value].name), *s.axes, p, e);
            }
        });
    }

    const TileProgram& p_;
    const Walk tree_;
    const BufferPlan plan_;
    Bindings bindings_;
    std::map<ValueId, Place> memory_;
    std::vector<std::unique_ptr<Place>> buffers_;
    std::vector<std::vector<IndexCode>> corners_;
    std::vector<int64_t> extents_;
    std::vector<Range> ranges_;  ///< current, per kernel axis
    std::map<ValueId, RunningMaximum> online_;
    std::vector<Stage> stages_;
    int64_t task_ = 0;
    Range part_;                                        ///< of the sum, of the task
    std::map<std::vector<int64_t>, ScalarValue> sums_;  ///< of the parts so far, by the element of the result
};

}  // namespace

std::vector<Tensor> interpret(const TileProgram& program, const std::vector<Tensor>& inputs, const Bindings& bindings) {
    return Execution(program, inputs, bindings).run();
}

}  // namespace tilewright
