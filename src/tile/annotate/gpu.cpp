#include "tile/annotate/gpu.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "program/analysis/access.h"
#include "tile/annotate/gpu_access.h"
#include "tile/gpu_boxes.h"

namespace tilewright::gpu {

namespace {

template <class Statement, class Body>
Statement& statement_at(Body& root, const TreePath& path) {
    auto* body = &root;
    for (size_t k = 0; k + 1 < path.size(); ++k) body = &std::get<TileLoop>(body->at(path[k]).kind).body;
    return std::get<Statement>(body->at(path.back()).kind);
}

/// Steps of the loop over a product's sum that are unrolled: the fragments of one are loaded while the other
/// multiplies.
constexpr int64_t kProductSteps = 2;
constexpr int64_t kMostUnrolled = 256;

/// Walks a program as the generator does, and derives the annotations of each statement, or checks those that it has.
class Walker : public Block {
  public:
    Walker(const TileProgram& program, const BlockLimits& limits, bool check)
        : Block(program, limits),
          check_(check),
          groups_(std::any_of(tree_.computes.begin(), tree_.computes.end(), [](const auto& c) {
              return c.second->micro.matrix && c.second->micro.matrix->group();
          })) {}

    void run() {
        const std::vector<Stmt>* body = &p_.body;
        TreePath path;
        grid(body, path);
        enter_scope(path);
        statements(*body, path, false);
        for (const auto& [at, compute] : tree_.computes)
            if (check_ && compute->micro.annotations.access)
                for (const OperandRead& r : compute->micro.annotations.access->reads)
                    if (r != OperandRead{r.access} && seen_[at].count(r.access) == 0)
                        fault(fmt::format("compute {}", compute->stage.value),
                              fmt::format("access {} is read where its value is used, one by one", r.access));
    }

    using Block::split_fault;

    std::map<TreePath, Annotations> computes;
    std::map<TreePath, BlockCopy> copies;
    std::vector<std::string> faults;

  private:
    const IndexVariables& variables() const override { return vars_; }

    void grid(const std::vector<Stmt>*& body, TreePath& path) {
        const auto [loops, trips] = grid_loops(body, path);
        for (size_t k = 0; k < loops.size(); ++k) {
            AxisRange& r = ranges_[loops[k]->axis];
            if (r.covered_by(loops[k]->step)) continue;
            const Expr counter = trips[k].is_constant(1) ? Expr(0) : vars_.add("block", {Expr(0), trips[k] - 1});
            r = grid_range(*loops[k], r, counter);
        }
    }

    /// `ahead`: Loads have run ahead of these statements.
    void statements(const std::vector<Stmt>& body, const TreePath& path, bool ahead) {
        for (size_t i = 0; i < body.size(); ++i) {
            TreePath here = path;
            here.push_back(i);
            if (const auto* loop = std::get_if<TileLoop>(&body[i].kind)) {
                tile_loop(*loop, here);
                for (const auto& [at, compute] : finished_behind(here))
                    if (!p_.stages.primitives[compute->stage].expr()->epilogue.empty())
                        access(*compute, at, StageJob::Phase::Finish);
            } else if (const auto* load = std::get_if<Load>(&body[i].kind)) {
                if (!ahead) this->load(*load, here, false);
            } else if (const auto* compute = std::get_if<Compute>(&body[i].kind)) {
                this->compute(*compute, here, path);
            } else {
                store(std::get<Store>(body[i].kind), here);
            }
        }
    }

    Expr counter_of(const TileLoop& loop, const AxisRange& outer) {
        return vars_.add("step", {Expr(0), ceil_div(outer.most, loop.step) - 1});
    }

    void tile_loop(const TileLoop& loop, const TreePath& path) {
        const AxisRange outer = ranges_[loop.axis];
        const bool once = outer.covered_by(loop.step), ahead = !once && loop.stages > 1;
        if (ahead) copies_ahead(loop, path, outer);
        if (!once) ranges_[loop.axis] = narrowed(outer, counter_of(loop, outer), loop.step, vars_);
        enter_scope(path);
        statements(loop.body, path, ahead);
        ranges_[loop.axis] = outer;
    }

    void copies_ahead(const TileLoop& loop, const TreePath& path, const AxisRange& outer) {
        const auto starts = starts_;
        ranges_[loop.axis] = narrowed(outer, counter_of(loop, outer), loop.step, vars_);
        enter_scope(path);
        for (size_t i = 0; i < loop.body.size(); ++i)
            if (const auto* load = std::get_if<Load>(&loop.body[i].kind)) {
                TreePath here = path;
                here.push_back(i);
                this->load(*load, here, true);
            }
        ranges_[loop.axis] = outer;
        starts_ = starts;
    }

    // --- computes

    void compute(const Compute& c, const TreePath& path, const TreePath& scope) {
        Annotations& out = computes[path];
        const std::string what = fmt::format("compute {}", c.stage.value);
        const StageJob::Phase phase = phase_of(c.stage);
        if (check_ && c.micro.annotations.access) {
            const size_t accesses = p_.stages.primitives[c.stage].expr()->accesses.size();
            for (const OperandRead& r : c.micro.annotations.access->reads)
                if (r.access >= accesses) fault(what, fmt::format("access {} of {}", r.access, accesses));
        }
        access(c, path, phase);
        StageJob job;
        TensorExpr rescaled;
        compute_job(c, path, phase, job, rescaled);
        if (job.expr->reducer != Reducer::None) unroll(c, job, out, what);
        if (!c.micro.matrix || !c.micro.matrix->group()) {
            if (check_ && c.micro.annotations.overlap) fault(what, "only products of a warpgroup overlap");
            return;
        }
        const auto loop = tree_.loops.find(scope);
        out.overlap = loop != tree_.loops.end() && may_overlap(*loop->second);
        if (check_ && c.micro.annotations.overlap == true && !*out.overlap)
            fault(what, "products overlap in a loop of three stages or more whose one product stays in registers");
    }

    void access(const Compute& c, const TreePath& path, StageJob::Phase phase) {
        StageJob job;
        TensorExpr rescaled;
        compute_job(c, path, phase, job, rescaled);
        StageAccess stage(vars_, job);
        if (check_) {
            if (!c.micro.annotations.access) return;
            for (const std::string& f : stage.faults(*c.micro.annotations.access))
                fault(fmt::format("compute {}", c.stage.value), f);
            seen_[path].insert(stage.seen().begin(), stage.seen().end());
            return;
        }
        const ThreadAccess found = stage.derive();
        Annotations& out = computes[path];
        if (!out.access) {
            out.access = found;
            return;
        }
        for (const OperandRead& r : found.reads)  // of the epilogue behind the loops
            if (out.access->read(r.access) == nullptr) out.access->reads.push_back(r);
        std::sort(out.access->reads.begin(), out.access->reads.end(),
                  [](const OperandRead& a, const OperandRead& b) { return a.access < b.access; });
    }

    /// Whether the threads go through the axis in a loop, step by step.
    static bool loops_over(const StageJob& job, size_t a) {
        const Partition& p = job.share;
        if (job.micro->matrix && p.warps != 0 && a == job.micro->matrix->sum) return !job.micro->matrix->group();
        return a >= job.expr->spatial && p.spread[a] != Spread::Columns;
    }

    void unroll(const Compute& c, const StageJob& job, Annotations& out, const std::string& what) {
        const size_t n = job.expr->extents.size();
        out.unroll.emplace(n, 1);
        for (size_t a = job.expr->spatial; a < n; ++a) {
            if (!loops_over(job, a)) continue;
            const Expr length = vars_.simplified(job.ranges[a].hi - job.ranges[a].lo);
            const Expr most = job.ranges[a].most;
            if (job.micro->matrix && a == job.micro->matrix->sum) {
                if (!(most.is_constant() && most.constant() <= job.share.span(a))) (*out.unroll)[a] = kProductSteps;
            } else if (!length.is_constant(1) && a < c.micro.registers.size()) {
                (*out.unroll)[a] = std::max<int64_t>(1, c.micro.registers[a] / job.share.registers[a]);
            }
        }
        if (!check_ || !c.micro.annotations.unroll) return;
        const std::vector<int64_t>& given = *c.micro.annotations.unroll;
        if (given.size() != n) return fault(what, fmt::format("unrolling of {} axes of {}", given.size(), n));
        for (size_t a = 0; a < n; ++a)
            if (given[a] < 1 || given[a] > kMostUnrolled || (given[a] != 1 && !loops_over(job, a)))
                fault(what, fmt::format("{} steps along {} are unrolled: 1 to {}, of a reduction's loop", given[a],
                                        job.axes[a], kMostUnrolled));
    }

    // --- copies

    /// Along which axes the copy's operand lies side by side in memory; the one with the shortest way from point to
    /// point last: neighbours in a warp go along it, whatever the order in which the copy lies in shared memory.
    static std::vector<size_t> by_memory(const TensorExpr& copy, const Place& from) {
        std::vector<size_t> order(copy.spatial);
        std::iota(order.begin(), order.end(), size_t{0});
        if (!from.origin.empty()) return order;
        const Expr offset = strided_offset(copy.accesses[0].index, from.strides);
        std::vector<int64_t> way;
        for (size_t a = 0; a < copy.spatial; ++a) {
            const auto linear = linear_in(offset, var_of(axis(a)));
            way.push_back(linear && linear->coefficient.is_constant() ? linear->coefficient.constant() : INT64_MAX);
        }
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return way[a] > way[b]; });
        return order;
    }

    /// The axis along which the copy's operand lies side by side in memory, which is read by lines. Of shared memory
    /// any axis will do.
    static std::optional<size_t> contiguous_axis(const TensorExpr& copy, const Place& from) {
        if (!from.origin.empty()) return std::nullopt;
        const Expr offset = strided_offset(copy.accesses[0].index, from.strides);
        for (size_t a = copy.spatial; a-- > 0;) {
            const auto linear = linear_in(offset, var_of(axis(a)));
            if (linear && linear->coefficient.is_constant(1) && !copy.extents[a].is_constant(1)) return a;
        }
        return std::nullopt;
    }

    static std::vector<size_t> with_last(std::vector<size_t> order, size_t last) {
        order.erase(std::remove(order.begin(), order.end(), last), order.end());
        order.push_back(last);
        return order;
    }

    /// Vectors of up to 16 bytes where both sides have them; else element by element. `async`: it may be.
    BlockCopy derive_copy(CopyJob& c, bool async) {
        BlockCopy how;
        const auto finish = [&](StageAccess& stage) {
            if (async && stage.may_be_async(how.width)) how.by = BlockCopy::By::Async;
            return how;
        };
        if (!c.shared_out && c.copy.spatial > 0) {
            const size_t last = c.copy.spatial - 1;
            const Expr most = c.job.ranges.back().most;
            how.order = with_last(by_memory(c.copy, c.job.accesses[0]), last);
            for (how.width = 16 / static_cast<int64_t>(byte_size(c.job.out.storage)); how.width > 1; how.width /= 2) {
                if (!most.is_constant() || most.constant() % how.width != 0) continue;
                set_copy(c, how);
                StageAccess stage(vars_, c.job);
                if (stage.derive().write == how.width) return finish(stage);
            }
            how.order.resize(c.copy.spatial);
            std::iota(how.order.begin(), how.order.end(), size_t{0});
            how.order = with_last(how.order, contiguous_axis(c.copy, c.job.accesses[0]).value_or(last));
        }
        how.width = 1;
        set_copy(c, how);
        StageAccess stage(vars_, c.job);
        how.width = stage.derive().write;
        return finish(stage);
    }

    void copy_faults(const std::string& what, CopyJob& c, const BlockCopy& given, bool async) {
        std::vector<size_t> sorted = given.order, all(c.shared_out ? 0 : c.copy.spatial);
        std::sort(sorted.begin(), sorted.end());
        std::iota(all.begin(), all.end(), size_t{0});
        if (sorted != all)
            return fault(what, c.shared_out
                                   ? "it is copied as the threads have it in their registers, in no other order"
                                   : "its order is no permutation of its dimensions");
        if (given.by == BlockCopy::By::Async && !async)
            return fault(what, "copies run beside the program in a loop of several stages, filled with zeros");
        const int64_t widest = 16 / static_cast<int64_t>(byte_size(c.job.out.storage));
        const std::string wide = fmt::format("it is copied {} elements at a time, but ", given.width);
        if (given.width < 1 || given.width > widest || (given.width & (given.width - 1)) != 0)
            return fault(what, wide + fmt::format("vectors have a power of two of elements, {} at most", widest));
        if (given.width > 1 && !given.order.empty()) {
            const Expr most = c.job.ranges[given.order.back()].most;
            if (!most.is_constant() || most.constant() % given.width != 0)
                return fault(what,
                             wide + fmt::format("there are {} along {}", most.text(), c.job.axes[given.order.back()]));
        }
        set_copy(c, given);
        StageAccess stage(vars_, c.job);
        ThreadAccess access{{}, given.width};
        const std::vector<std::string> vectors = stage.faults(access);
        for (const std::string& f : vectors) fault(what, f);
        if (vectors.empty() && given.by == BlockCopy::By::Async && !stage.may_be_async(given.width))
            fault(what, "copies that run beside the program have 4 bytes at least");
    }

    void load(const Load& load, const TreePath& path, bool ahead) {
        CopyJob c;
        load_job(load, c);
        const Access& access = p_.stages.primitives[load.stage].expr()->accesses[load.access];
        const bool boxes = groups_ && std::holds_alternative<BoxCopy>(as_boxes(
                                          c.copy, access, p_.stages.values[access.value], load.swizzle, vars_));
        const bool async = ahead && access.fill == 0;
        if (!check_) {
            copies[path] = boxes ? BlockCopy{BlockCopy::By::Boxes, 1, {}} : derive_copy(c, async);
            return;
        }
        if (!load.copy) return;
        const std::string what = fmt::format("load {} access {}", load.stage.value, load.access);
        if (load.copy->by != BlockCopy::By::Boxes)
            copy_faults(what, c, *load.copy, async);
        else if (!boxes)
            fault(what, "TMA has no boxes for it");
    }

    void store(const Store& store, const TreePath& path) {
        CopyJob c;
        store_job(store, c);
        if (!check_)
            copies[path] = derive_copy(c, false);
        else if (store.copy && store.copy->by == BlockCopy::By::Threads)
            copy_faults("store " + p_.stages.values[store.value].name, c, *store.copy, false);
        else if (store.copy)
            fault("store " + p_.stages.values[store.value].name, "threads write their results themselves");
    }

    void fault(const std::string& what, const std::string& text) {
        std::string all = what + ": " + text;
        if (std::find(faults.begin(), faults.end(), all) == faults.end()) faults.push_back(std::move(all));
    }

    const bool check_;
    const bool groups_;
    IndexVariables vars_;
    std::map<TreePath, std::set<size_t>> seen_;  ///< accesses that are read several at a time
};

bool complete(const Walk& tree, const TileProgram& p) {
    const auto copied = [](const auto& s) { return s.second->copy.has_value(); };
    return std::all_of(tree.loads.begin(), tree.loads.end(), copied) &&
           std::all_of(tree.stores.begin(), tree.stores.end(), copied) &&
           std::all_of(tree.computes.begin(), tree.computes.end(), [&](const auto& c) {
               const Micro& m = c.second->micro;
               const bool reduces = p.stages.primitives[c.second->stage].expr()->reducer != Reducer::None;
               return m.annotations.access && (!reduces || m.annotations.unroll) &&
                      (!m.matrix || !m.matrix->group() || m.annotations.overlap);
           });
}

}  // namespace

bool has_annotations(const Walk& tree) {
    const auto copied = [](const auto& s) { return s.second->copy.has_value(); };
    return std::any_of(tree.loads.begin(), tree.loads.end(), copied) ||
           std::any_of(tree.stores.begin(), tree.stores.end(), copied) ||
           std::any_of(tree.computes.begin(), tree.computes.end(), [](const auto& c) {
               const Annotations& a = c.second->micro.annotations;
               return a.unroll || a.access || a.overlap;
           });
}

TileProgram annotate(TileProgram program, const BlockLimits& limits) {
    const TileProgram given = program;
    const Walk tree = walk(given);
    if (complete(tree, given)) return program;
    Walker walker(given, limits, false);
    walker.run();
    for (const auto& [path, found] : walker.computes) {
        Annotations& a = statement_at<Compute>(program.body, path).micro.annotations;
        if (!a.unroll) a.unroll = found.unroll;
        if (!a.access) a.access = found.access;
        if (!a.overlap) a.overlap = found.overlap;
    }
    for (const auto& [path, load] : tree.loads)
        if (!load->copy) statement_at<Load>(program.body, path).copy = walker.copies.at(path);
    for (const auto& [path, store] : tree.stores)
        if (!store->copy) statement_at<Store>(program.body, path).copy = walker.copies.at(path);
    return program;
}

std::vector<std::string> annotation_faults(const TileProgram& program, const BlockLimits& limits) {
    Walker walker(program, limits, true);
    walker.run();
    return std::move(walker.faults);
}

std::vector<std::string> split_faults(const TileProgram& program, const BlockLimits& limits) {
    const std::string fault = Walker(program, limits, true).split_fault();
    return fault.empty() ? std::vector<std::string>() : std::vector<std::string>{fault};
}

}  // namespace tilewright::gpu
