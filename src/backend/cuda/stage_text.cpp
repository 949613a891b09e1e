#include "backend/cuda/stage_text.h"

#include <algorithm>

#include "backend/cuda/scalar_text.h"
#include "backend/cuda/stage_values.h"
#include "base/error.h"

namespace tilewright::cuda {

std::string array_declaration(const std::string& type, const std::string& name, const std::vector<int64_t>& extents) {
    std::string s = type + " " + name;
    for (const int64_t n : extents)
        if (n != 1) s += fmt::format("[{}]", n);
    return s;
}

namespace {

class StageText : public StageValues {
  public:
    StageText(Writer& writer, Variables& variables, const StageJob& job, bool begun, Writer* early)
        : StageValues(writer, variables, job), begun_(begun) {
        const bool one_tile = part_.warps != 0 && part_.count && *part_.count == job.threads / part_.takes();
        if (one_tile && e_.reducer == Reducer::None && !job.async) early_ = early;
        for (size_t a = e_.spatial; a < n_; ++a)
            quad_ = quad_ || (part_.spread[a] == Spread::Columns && !job_.micro->matrix);
    }

    void run() {
        w_->open("");
        decide_first_last();
        tiles();
        w_->close();
    }

  private:
    // --- which part of a reduction this is

    void decide_first_last() {
        if (job_.phase != StageJob::Phase::Whole) return;
        std::string first, last;
        for (size_t a = e_.spatial; a < n_; ++a) {
            const AxisRange& r = job_.ranges[a];
            if (r.whole) continue;
            partial_ = true;
            const auto both = [](std::string& s, const std::string& condition) {
                s += (s.empty() ? "" : " && ") + condition;
            };
            if (!(r.lo == r.begin)) both(first, fmt::format("{} == {}", v_.text(r.lo), v_.text(r.begin)));
            if (!(r.hi == r.end)) both(last, fmt::format("{} == {}", v_.text(r.hi), v_.text(r.end)));
        }
        if (!partial_) return;
        TW_CHECK(compute_type(job_.out.storage) == job_.out.storage && job_.out.storage == acc_type_,
                 "partial reductions are kept in the result, which has another type");
        if (!begun_) {
            first_ = v_.fresh("first");
            w_->line("const bool {} = {};", first_, first.empty() ? "true" : first);
        }
        if (e_.epilogue.empty() && !apart()) return;
        last_ = v_.fresh("last");
        w_->line("const bool {} = {};", last_, last.empty() ? "true" : last);
    }

    /// Whether each of the four threads that share a row keeps what its own columns give until the last part. (Nothing
    /// reads sums before; an online maximum is read in every step.)
    bool apart() const { return quad_ && partial_ && job_.out.in_registers && !job_.correction; }

    // --- tiles and threads

    /// Declares what says which tile this thread works on, opens its scope, and emits the tile.
    void tiles() {
        const Expr count = v_.simplified(part_.tile_count());
        const bool known = part_.count.has_value();
        const int64_t threads = job_.threads, group = part_.group, at_once = threads / group;
        const std::string tile = v_.name(begin_tile());
        const std::string mine = group == 1         ? "tw::thread()"
                                 : part_.apart == 1 ? fmt::format("tw::thread() / {}", group)
                                                    : fmt::format("tw::thread() % {}", part_.apart);
        int scopes = 0;
        Writer* const own = w_;
        if (early_ != nullptr) w_ = early_;
        if (part_.warps != 0) {
            scopes = warps(tile, count, known);
        } else if (group == 1) {
            if (known && *part_.count <= threads) {
                if (*part_.count < threads) {
                    w_->open(fmt::format("if (tw::thread() < {})", *part_.count));
                    ++scopes;
                }
                if (*part_.count > 1) w_->line("const int {} = tw::thread();", tile);
            } else {
                w_->open(fmt::format("for ({0} {1} = tw::thread(); {1} < {2}; {1} += {3})", v_.type(tile_), tile,
                                     v_.text(count), threads));
                ++scopes;
            }
        } else {
            // Every thread takes part in the exchange: where tiles run out, the last is computed again.
            mine_ = v_.fresh("mine");
            w_->line("const int {} = tw::thread() {} {};", v_.name(lane_), part_.apart == 1 ? '%' : '/',
                     part_.apart == 1 ? group : part_.apart);
            if (known && *part_.count <= at_once) {
                w_->line("const bool {} = {} == 0{};", mine_, v_.name(lane_),
                         *part_.count == at_once ? "" : fmt::format(" && {} < {}", mine, *part_.count));
                if (*part_.count == at_once && at_once > 1)
                    w_->line("const int {} = {};", tile, mine);
                else if (*part_.count > 1)
                    w_->line("const int {} = tw::lesser({}, {});", tile, mine, *part_.count - 1);
            } else {
                const std::string from = v_.fresh("from");
                w_->open(fmt::format("for ({0} {1} = 0; {1} < {2}; {1} += {3})", v_.type(tile_), from, v_.text(count),
                                     at_once));
                ++scopes;
                w_->line("const {} {} = tw::lesser({} + {}, {});", v_.type(tile_), tile, from, mine,
                         v_.text(count - 1));
                w_->line("const bool {} = {} == 0 && {} + {} < {};", mine_, v_.name(lane_), from, mine, v_.text(count));
            }
        }
        begin_points();
        w_ = own;
        if (e_.reducer == Reducer::None)
            elementwise();
        else
            reduction();
        while (scopes-- > 0) w_->close();
    }

    /// Tiles of warps; gives the number of scopes that it opens.
    int warps(const std::string& tile, Expr count, bool known) {
        const int64_t takes = part_.takes();
        const bool group = takes == 128;
        const std::string lane = v_.name(lane_);
        w_->line("const int {0} = {4}, {1} = {3}, {2} = {0} % 4;", lane, v_.name(lane_row_), v_.name(lane_pair_),
                 has_row_pairs()    ? fmt::format("tw::row_pair_of_group({})", lane)
                 : part_.warps == 1 ? lane + " / 4"
                 : group            ? "tw::warp_of_group() * 16 + " + lane + " / 4"
                                    : fmt::format("tw::thread() % {} / 32 * 16 + {} / 4", takes, lane),
                 group ? "tw::lane()" : "tw::thread() % 32");
        // What has no columns is the same in the four threads of a row.
        bool columns = false;
        for (size_t a = 0; a < e_.spatial; ++a) columns = columns || part_.spread[a] == Spread::Columns;
        if (!columns) mine_ = fmt::format("{} == 0", v_.name(lane_pair_));
        const int64_t at_once = job_.threads / takes;
        if (known && *part_.count <= at_once) {
            if (*part_.count > 1) w_->line("const int {} = {};", tile, first_tile(takes));
            if (*part_.count == at_once) return 0;
            w_->open(fmt::format("if (tw::thread() < {})", *part_.count * takes));
        } else {
            w_->open(fmt::format("for ({0} {1} = {4}; {1} < {2}; {1} += {3})", v_.type(tile_), tile, v_.text(count),
                                 at_once, first_tile(takes)));
        }
        return 1;
    }
    static std::string first_tile(int64_t threads) {
        return threads == 128 ? "warpgroup" : fmt::format("tw::thread() / {}", threads);
    }

    // --- what becomes of them

    void elementwise() {
        annotated_store();
        if (job_.async && !vector_out_) {
            group_ = mask_;
            raw_points_ = true;
            known_.clear();
            in_loops(mask_, [&] {
                const std::string condition = inside_condition();
                if (!condition.empty()) w_->open("if (" + condition + ")");
                put_async();
                if (!condition.empty()) w_->close();
            });
            return;
        }
        evaluate(e_.body, {e_.body.root()}, true,
                 [&](const std::vector<std::string>& value) { put(job_.out, to_storage(job_.out.storage, value[0])); });
    }

    void reduction() {
        if (job_.phase != StageJob::Phase::Whole) {
            acc_ = job_.out.object;
            if (job_.phase == StageJob::Phase::Finish) {
                if (job_.overlapped) settle();
                if (job_.parts == StageJob::Parts::Give) return give_part();
                if (job_.parts == StageJob::Parts::Join) join_parts();
                if (!e_.epilogue.empty()) store_last();
                return;
            }
            add_up();
            return;
        }
        acc_ = v_.fresh("sum");
        const std::string type = register_type(acc_type_);
        w_->add(array_declaration(type, acc_, extents(mask_)) + ";");
        if (job_.parts == StageJob::Parts::Join) {
            join_parts();
        } else {
            body_ = &e_.body;
            late_ = e_.reducer == Reducer::Max && quad_ ? unscaled(e_.body.root()) : nullptr;
            applies_factor_ = late_ == nullptr;
            begin_sum();
            add_up();
            if (late_ != nullptr) apply_factor();
            if (apart()) {
                w_->open(fmt::format("if ({})", last_));
                exchange();
                w_->close();
            } else if (quad_ || part_.group > 1) {
                exchange();
            }
            if (job_.parts == StageJob::Parts::Give) return give_part();
        }
        finish_sum();
    }

    // --- split-K

    /// The type of parts in memory, which are not rounded to 16 bits.
    DType kept() const { return compute_type(acc_type_); }
    /// The parts of one block, whose number is `block`.
    void declare_parts(const std::string& name, const std::string& block) {
        const gpu::SumParts& p = job_.sum_parts;
        w_->line("const tw::Out<{0}> {1} = tw::scratch<{0}>({2}, i64({3}) * {4} + {5}, {6}, \"parts of sums\");",
                 storage_type(kept()), name, p.memory, block, p.stride, p.offset, p.elements());
    }
    /// Where this thread's sum at the current register coordinates is among a block's parts.
    std::string place_in_parts() const {
        const gpu::SumParts own = gpu::sum_parts(part_, e_.spatial);
        TW_CHECK(own.elements() == job_.sum_parts.elements(), "a block's parts of sums have other room");
        std::vector<std::string> terms;
        int64_t stride = own.slots;
        for (size_t a = e_.spatial; a-- > 0;)
            if (((result_mask_ >> a) & 1) != 0) {
                terms.insert(terms.begin(), fmt::format("{} * {}", v_.name(coordinate_[a]), stride));
                stride *= part_.registers[a];
            }
        const int64_t takes = part_.warps != 0 ? part_.takes() : 1;
        const std::string tile = *part_.count == 1 ? "" : v_.name(tile_);
        if (part_.warps == 0)
            terms.push_back(tile.empty() ? "0" : tile);
        else
            terms.push_back(
                fmt::format("{}tw::thread() % {}", tile.empty() ? "" : fmt::format("{} * {} + ", tile, takes), takes));
        return fmt::format("{}", fmt::join(terms, " + "));
    }
    void give_part() {
        const std::string parts = v_.fresh("parts");
        declare_parts(parts, "tw::block()");
        // One of the threads that have the same sums.
        const bool one = part_.group > 1;
        if (one) w_->open("if (" + mine_ + ")");
        in_loops(mask_,
                 [&] { w_->line("tw::put({}, {}, {});", parts, place_in_parts(), to_storage(kept(), sum_here())); });
        if (one) w_->close();
    }
    void join_parts() {
        const std::string parts = v_.fresh("parts"), part = v_.fresh("part");
        in_loops(mask_, [&] { w_->line("{} = {};", sum_here(), identity_of(e_.reducer, acc_type_)); });
        w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", part, job_.sum_parts.count));
        declare_parts(parts, fmt::format("{} + {}", job_.sum_parts.first, part));
        in_loops(mask_, [&] {
            const std::string number = from_storage(kept(), fmt::format("{}[{}]", parts, place_in_parts()));
            w_->line("{} = {};", sum_here(), combined(e_.reducer, acc_type_, sum_here(), number));
        });
        w_->close();
    }

    /// Adds to the sums what the current ranges give.
    void add_up() {
        const bool matrix = part_.warps != 0 && job_.micro->matrix;
        size_t loops = 0;
        for (const size_t a : reduction_order()) {
            if (matrix && a == job_.micro->matrix->sum) continue;
            open_reduction(a);
            ++loops;
        }
        if (matrix)
            multiply();
        else
            accumulate();
        mask_ = result_mask_;
        while (loops-- > 0) w_->close();
    }

    std::string sum_here() const { return acc_ + coordinates(result_mask_); }

    /// Emits a value for each of the sums.
    void set_sums(const std::function<std::string()>& value) {
        group_ = mask_;
        raw_points_ = true;
        known_.clear();
        in_loops(mask_, [&] { w_->line("{} = {};", sum_here(), value()); });
    }

    /// What was summed up before, where it counts.
    std::string earlier() {
        const std::string identity = identity_of(e_.reducer, acc_type_);
        if (!partial_) return identity;
        std::vector<std::string> counts;
        if (!begun_) counts.push_back("!" + first_);
        if (const std::string inside = inside_condition(); !inside.empty()) counts.push_back(inside);
        // All four have it, a sum counts it once.
        const bool once = e_.reducer == Reducer::Sum || e_.reducer == Reducer::Prod;
        if (quad_ && once && !apart() && job_.out.in_registers && !mine_.empty()) counts.push_back(mine_);
        return counts.empty() ? before() : fmt::format("{} ? {} : {}", fmt::join(counts, " && "), before(), identity);
    }

    /// Whether the factor of what was summed up before is often 1 for a whole warp, whose sums then stay as they are: a
    /// maximum changes in few of many steps.
    bool rescales_seldom() const {
        constexpr int64_t kManySums = 16, kManySteps = 8;
        if (!job_.rescale || !begun_ || part_.warps == 0 || !job_.micro->matrix || overhang_ != 0 ||
            !job_.out.in_registers || !job_.accesses[*job_.rescale].in_registers)
            return false;
        int64_t sums = 1;
        for (const int64_t n : extents(mask_)) sums *= n;
        bool many = false;
        for (size_t a = e_.spatial; a < n_; ++a) {
            const AxisRange& r = job_.ranges[a];
            const Expr steps = v_.simplified(floor_div(r.total, r.most));
            many = many || (!r.whole && (!steps.is_constant() || steps.constant() >= kManySteps));
        }
        return many && sums >= kManySums;
    }

    /// `if (any factor of the warp is not 1) sums *= factors`.
    void begin_rescaled() {
        set_sums([&] { return out_element(job_.out); });
        const Place& factor = job_.accesses[*job_.rescale];
        const std::string changed = v_.fresh("changed");
        w_->line("bool {} = false;", changed);
        Mask rows = 0;
        for (const size_t a : factor.register_axes) rows |= mask_ & Mask{1} << a;
        in_loops(rows, [&] { w_->line("{0} = {0} || {1} != 1.0f;", changed, element(factor, {})); });
        w_->open(fmt::format("if (tw::any_of_warp({}))", changed));
        set_sums([&] { return fmt::format("{} * {}", sum_here(), element(factor, {})); });
        w_->close();
    }

    void begin_sum() {
        if (rescales_seldom()) return begin_rescaled();
        set_sums([&] { return late_ != nullptr ? identity_of(e_.reducer, acc_type_) : earlier(); });
    }

    /// The maximum of numbers with a factor, and of what was there before, which has been multiplied.
    void apply_factor() {
        set_sums([&] {
            const std::string now = fmt::format("{} * {}", sum_here(), literal(DType::F32, late_->factor, 0));
            return partial_ ? combined(e_.reducer, acc_type_, earlier(), now) : now;
        });
    }

    /// What was summed up before, as it counts now.
    std::string before() {
        std::string s = from_storage(job_.out.storage, out_element(job_.out));
        if (job_.rescale) s = fmt::format("{} * {}", s, access_text(static_cast<uint32_t>(*job_.rescale)));
        return s;
    }

    void open_reduction(size_t a) {
        const Expr length = local_range(a);
        if (part_.spread[a] == Spread::Columns) {
            w_->open("");
            enter_reduction(a);
            return;
        }
        const auto k = enter_reduction(a);
        if (!k) return w_->open("");
        const bool shared = part_.group > 1 && part_.shared_axis == a;
        const int64_t unroll = unrolled(a);
        if (unroll > 1) w_->line("TW_UNROLL_BY({})", unroll);
        w_->open(fmt::format("for ({0} {1} = {2}; {1} < {3}; {1} += {4})", v_.type(*k), v_.name(*k),
                             shared ? v_.name(lane_) : "0",
                             v_.text(v_.simplified(ceil_div(length, part_.registers[a]))), shared ? part_.group : 1));
    }

    void accumulate() {
        std::string inside;  // of sums over registers
        for (size_t a = e_.spatial; a < n_; ++a)
            if (((overhang_ >> a) & 1) != 0)
                inside += fmt::format("{}{} < {}", inside.empty() ? "" : " && ", v_.text(raw_[a]),
                                      v_.text(job_.ranges[a].hi));
        if (!inside.empty()) {
            evaluate(e_.body, {e_.body.root()}, false, [&](const std::vector<std::string>& x) {
                w_->line("if ({}) {} = {};", inside, sum_here(), combined(e_.reducer, acc_type_, sum_here(), x[0]));
            });
            return;
        }
        evaluate(e_.body, terms(), false, [&](const std::vector<std::string>& x) {
            if (x.size() == 2)
                w_->line("{0} = tw::fused({1}, {2}, {0});", sum_here(), x[0], x[1]);
            else
                w_->line("{} = {};", sum_here(), combined(e_.reducer, acc_type_, sum_here(), x[0]));
        });
    }

    /// All threads of a group get the whole sum.
    void exchange() {
        const std::string type = register_type(acc_type_);
        if (part_.apart > 1) return exchange_apart(type);
        in_loops(mask_, [&] {
            if (quad_)
                w_->line("{0} = tw::reduce_in_warp<{1}, 4>({0});", sum_here(), reducer_name(e_.reducer));
            else if (part_.group <= 32)
                w_->line("{0} = tw::reduce_in_warp<{1}, {2}>({0});", sum_here(), reducer_name(e_.reducer), part_.group);
            else
                w_->line("{0} = tw::reduce_in_block<{1}, {2}>({0}, tw::shared<{3}>({4}, {5}, \"the sums of warps\"));",
                         sum_here(), reducer_name(e_.reducer), part_.group, type, job_.room, job_.threads / 32);
        });
    }

    void exchange_apart(const std::string& type) {
        int64_t count = 1;
        std::string first = acc_;
        for (const int64_t n : extents(mask_)) {
            count *= n;
            first += "[0]";
        }
        const std::string call =
            fmt::format("tw::reduce_apart<{}, {}, {}, {}>", reducer_name(e_.reducer), part_.group, part_.apart, count);
        const std::string room = part_.spans_warps()
                                     ? fmt::format("tw::shared<{}>({}, {}, \"the sums of threads\")", type, job_.room,
                                                   std::min(count, gpu::kExchanged) * job_.threads)
                                     : fmt::format("tw::Shared<{}>()", type);
        w_->line("{}(&{}, {});", call, first, room);
    }

    void store(const std::string& value) { put(job_.out, to_storage(job_.out.storage, value)); }
    void store_last() {
        evaluate(e_.epilogue, {e_.epilogue.root()}, true,
                 [&](const std::vector<std::string>& value) { store(value[0]); });
    }

    void finish_sum() {
        const auto store_sum = [&] {
            group_ = mask_;
            raw_points_ = true;
            in_loops(mask_, [&] {
                const std::string inside = inside_condition();
                if (!inside.empty()) w_->open("if (" + inside + ")");
                if (job_.correction) {
                    // A maximum that is found in one step corrects nothing.
                    const std::string was = partial_ ? out_element(job_.out) : sum_here();
                    const std::string then =
                        partial_ && !begun_ ? fmt::format("({} ? {} : {})", first_, sum_here(), was) : was;
                    const bool near = job_.rounds && acc_type_ == DType::F32;
                    put(*job_.correction,
                        fmt::format("tw::correction{}({}, {})", near ? "_near" : "", then, sum_here()));
                }
                store(sum_here());
                if (!inside.empty()) w_->close();
            });
        };
        if (e_.epilogue.empty()) return store_sum();
        if (!partial_) return store_last();
        w_->open(fmt::format("if ({})", last_));
        store_last();
        w_->close();
        w_->open("else");
        store_sum();
        w_->close();
    }

    bool partial_ = false, quad_ = false;  ///< sums in parts; sums of the four threads that share a row
    const Place* late_ = nullptr;          ///< of what a maximum is taken of, where that gets the factor
    const bool begun_;
    std::string first_, last_;
};

}  // namespace

void emit_stage(Writer& out, Variables& variables, const StageJob& job, bool begun, Writer* early) {
    StageText(out, variables, job, begun, early).run();
}

}  // namespace tilewright::cuda
