#include "backend/cuda/stage_text.h"

#include <algorithm>
#include <bit>
#include <map>

#include "backend/cuda/scalar_text.h"
#include "base/error.h"

namespace tilewright::cuda {

std::string array_declaration(const std::string& type, const std::string& name, const std::vector<int64_t>& extents) {
    std::string s = type + " " + name;
    for (const int64_t n : extents)
        if (n != 1) s += fmt::format("[{}]", n);
    return s;
}

namespace {

using Mask = uint64_t;  ///< register axes that a value depends on

class StageText {
  public:
    StageText(Writer& w, Variables& v, const StageJob& job)
        : w_(&w), v_(v), job_(job), e_(*job.expr), n_(job.expr->extents.size()) {
        part_ = job.share;
        acc_type_ = e_.body.dtype();
        TW_CHECK(n_ <= Variables::kStageAxes, "a stage has {} axes", n_);
    }

    bool run() {
        w_->open("");
        decide_first_last();
        tiles();
        w_->close();
        return wrote_vectors_;
    }

  private:
    // --- which part of a reduction this is

    void decide_first_last() {
        std::string first, last;
        for (size_t a = e_.spatial; a < n_; ++a) {
            const AxisRange& r = job_.ranges[a];
            if (r.whole) continue;
            partial_ = true;
            const auto both = [](std::string& s, const std::string& condition) {
                s += (s.empty() ? "" : " && ") + condition;
            };
            if (!r.lo.is_constant(0)) both(first, fmt::format("{} == 0", v_.text(r.lo)));
            if (!(r.hi == r.total)) both(last, fmt::format("{} == {}", v_.text(r.hi), v_.text(r.total)));
        }
        if (!partial_) return;
        TW_CHECK(compute_type(job_.out.storage) == job_.out.storage && job_.out.storage == acc_type_,
                 "partial reductions are kept in the result, which has another type");
        first_ = v_.fresh("first");
        w_->line("const bool {} = {};", first_, first.empty() ? "true" : first);
        if (e_.epilogue.empty()) return;
        last_ = v_.fresh("last");
        w_->line("const bool {} = {};", last_, last.empty() ? "true" : last);
    }

    // --- tiles and threads

    Expr local_range(size_t a) const { return v_.simplified(job_.ranges[a].hi - job_.ranges[a].lo); }

    /// Declares what says which tile this thread works on, opens its scope, and emits the tile.
    void tiles() {
        const Expr count = v_.simplified(part_.tile_count());
        const bool known = part_.count.has_value();
        const int64_t threads = job_.threads, group = part_.group, at_once = threads / group;
        tile_ = v_.add("tile", {Expr(0), count - 1});
        const std::string tile = v_.name(tile_);
        const std::string mine = group == 1 ? "tw::thread()" : fmt::format("tw::thread() / {}", group);
        int scopes = 0;
        if (count.is_constant(1)) tile_ = 0;
        if (group == 1) {
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
            lane_ = v_.add("lane", {Expr(0), Expr(group - 1)});
            mine_ = v_.fresh("mine");
            w_->line("const int {} = tw::thread() % {};", v_.name(lane_), group);
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
        points();
        if (e_.reducer == Reducer::None)
            elementwise();
        else
            reduction();
        while (scopes-- > 0) w_->close();
    }

    /// The thread's point along every axis: raw, and held inside the range.
    void points() {
        raw_.resize(n_);
        clamped_.resize(n_);
        coordinate_.resize(n_);
        Expr rest = tile_;
        std::vector<Expr> tile(e_.spatial);
        for (size_t k = part_.order.size(); k-- > 0;) {
            const size_t a = part_.order[k];
            const Expr tiles = v_.simplified(part_.tiles[a]);
            if (tiles.is_constant(1)) continue;
            bool outermost = true;
            for (size_t j = 0; j < k; ++j)
                if (!v_.simplified(part_.tiles[part_.order[j]]).is_constant(1)) outermost = false;
            if (outermost && rest == tile_) {
                tile[a] = tile_;
                break;
            }
            tile[a] = v_.add(fmt::format("tile_{}", axis_name(a)), {Expr(0), tiles - 1});
            const Expr value = outermost ? rest : mod(rest, tiles);
            w_->line("{} = {};", v_.declaration(tile[a]), v_.text(v_.simplified(value)));
            rest = floor_div(rest, tiles);
        }
        for (size_t a = 0; a < e_.spatial; ++a) {
            const int64_t n = part_.registers[a], strip = part_.strip[a];
            Expr local = tile[a] * strip;
            if (n > 1) {
                mask_ |= Mask{1} << a;
                coordinate_[a] = v_.add(fmt::format("r_{}", axis_name(a)), {Expr(0), Expr(n - 1)});
                if (strip == n)
                    local += coordinate_[a];
                else
                    local += floor_div(coordinate_[a], strip) * (part_.tiles[a] * strip) + mod(coordinate_[a], strip);
            }
            const AxisRange& r = job_.ranges[a];
            raw_[a] = v_.simplified(r.lo + local);
            const Expr length = local_range(a);
            if (v_.nonnegative(length - 1 - local)) {
                clamped_[a] = raw_[a];
                continue;
            }
            overhang_ |= Mask{1} << a;
            // A name of its own, whose range is known.
            const Expr held = v_.add(fmt::format("{}_held", axis_name(a)), {Expr(0), length - 1});
            held_[a] = {held, fmt::format("{} = tw::lesser({}, {});", v_.declaration(held), v_.text(local),
                                          v_.text(length - 1))};
            clamped_[a] = v_.simplified(r.lo + held);
            if (n == 1) w_->add(held_[a].second);
        }
    }

    const std::string& axis_name(size_t a) const { return job_.axes[a]; }

    // --- values

    /// What a value is: an access of the expression, or a node of one of its bodies.
    struct Item {
        bool access = false;
        uint32_t number = 0;
        auto operator<=>(const Item&) const = default;
    };
    struct Known {
        Mask mask = 0;
        int users = 0;            ///< in its own group
        bool exported = false;    ///< some user is in another group
        std::string name;         ///< once it has one
        bool stored = false;      ///< the name is of elements as they lie in memory
        bool named_here = false;  ///< as a constant of the innermost scope of its group
    };

    static bool is_own_axis(Var v) { return v.kind == VarKind::Axis && v.id < Variables::kStageAxes; }

    Mask mask_of(Expr e) {
        Mask m = 0;
        for (const Var v : variables(e)) {
            if (is_own_axis(v)) m |= Mask{1} << v.id;
            if (v.kind == VarKind::Load) m |= mask_of(Item{true, v.id});
        }
        return m & mask_;
    }
    Mask mask_of(const Access& a, bool checked) {
        Mask m = 0;
        for (const Expr& i : a.index) m |= mask_of(i);
        if (!checked)
            for (const Expr& c : a.valid) m |= mask_of(c);
        return m;
    }
    Mask mask_of(Item item) { return known(item).mask; }

    std::vector<Item> operands(Item item) const {
        std::vector<Item> out;
        if (item.access) {
            const Access& a = e_.accesses[item.number];
            const auto loads = [&](Expr e) {
                for (const Var v : variables(e))
                    if (v.kind == VarKind::Load) out.push_back({true, v.id});
            };
            for (const Expr& i : a.index) loads(i);
            if (!job_.accesses[item.number].checked)
                for (const Expr& c : a.valid) loads(c);
            return out;
        }
        const ScalarNode& n = (*body_)[ScalarId(item.number)];
        if (n.op == ScalarOp::Access) return {{true, n.slot}};
        if (n.op == ScalarOp::Index) {
            for (const Var v : variables(n.index))
                if (v.kind == VarKind::Load) out.push_back({true, v.id});
            return out;
        }
        for (const ScalarId k : {n.a, n.b, n.c})
            if (k) out.push_back({false, k.value});
        return out;
    }

    Known& known(Item item) {
        const auto it = known_.find(item);
        if (it != known_.end()) return it->second;
        Known k;
        if (item.access && job_.accesses[item.number].in_registers) {
            k.mask = mask_;
        } else if (item.access) {
            k.mask = mask_of(e_.accesses[item.number], job_.accesses[item.number].checked);
        } else {
            const ScalarNode& n = (*body_)[ScalarId(item.number)];
            if (n.op == ScalarOp::Acc) k.mask = mask_;
            if (n.op == ScalarOp::Index) k.mask = mask_of(n.index);
            for (const Item o : operands(item)) k.mask |= mask_of(o);
        }
        return known_[item] = k;
    }

    /// An access node is its access; constants are written where they are used.
    Item resolved(Item item) const {
        if (!item.access && (*body_)[ScalarId(item.number)].op == ScalarOp::Access)
            return {true, (*body_)[ScalarId(item.number)].slot};
        return item;
    }
    bool is_leaf_text(Item item) const {
        if (item.access) return false;
        const ScalarOp op = (*body_)[ScalarId(item.number)].op;
        return op == ScalarOp::Const || op == ScalarOp::Acc;
    }

    void count_users(Item item, Mask user) {
        item = resolved(item);
        if (is_leaf_text(item)) return;
        Known& k = known(item);
        const bool seen = k.users > 0 || k.exported;
        if (user == k.mask)
            ++k.users;
        else
            k.exported = true;
        if (seen) return;
        needed_.push_back(item);
        for (const Item o : operands(item)) count_users(o, mask_of(item));
    }

    DType type_of(Item item) const {
        if (item.access) return compute_type(job_.accesses[item.number].storage);
        return compute_type((*body_)[ScalarId(item.number)].dtype);
    }

    /// Loops over the register coordinates of `mask`.
    void open_loops(Mask mask) {
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((mask >> a) & 1) != 0) {
                w_->add("TW_UNROLL");
                const std::string i = v_.name(coordinate_[a]);
                w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", i, part_.registers[a]));
            }
    }
    void close_loops(Mask mask) {
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((mask >> a) & 1) != 0) w_->close();
    }
    std::vector<int64_t> extents(Mask mask) const {
        std::vector<int64_t> out;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((mask >> a) & 1) != 0) out.push_back(part_.registers[a]);
        return out;
    }
    std::string coordinates(Mask mask) const {
        std::string s;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((mask >> a) & 1) != 0) s += fmt::format("[{}]", v_.name(coordinate_[a]));
        return s;
    }

    /// What a loop nest says, with the held coordinates that it uses in front.
    template <class F>
    void in_loops(Mask mask, const F& inside) {
        open_loops(mask);
        Writer body = w_->inner(0);
        Writer* outer = w_;
        w_ = &body;
        used_held_ = 0;
        inside();
        w_ = outer;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((used_held_ >> a) & 1) != 0) w_->add(held_.at(a).second);
        w_->insert(body);
        close_loops(mask);
    }

    /// Evaluates `roots` of `body` and hands their texts to `finish`, in loops over the whole register tile. `guarded`:
    /// there only points inside the ranges count, and only they are touched.
    template <class F>
    void evaluate(const ScalarBody& body, const std::vector<ScalarId>& roots, bool guarded, const F& finish) {
        body_ = &body;
        known_.clear();
        needed_.clear();
        for (const ScalarId r : roots) count_users({false, r.value}, mask_);
        std::vector<Mask> groups;
        for (const Item i : needed_)
            if (known(i).exported && std::find(groups.begin(), groups.end(), known(i).mask) == groups.end())
                groups.push_back(known(i).mask);
        std::sort(groups.begin(), groups.end(), [](Mask a, Mask b) {
            return std::popcount(a) != std::popcount(b) ? std::popcount(a) < std::popcount(b) : a < b;
        });
        for (const Mask g : groups) {
            if (g == mask_) continue;
            group_ = g;
            raw_points_ = false;
            std::vector<Item> exported;
            for (auto it = needed_.rbegin(); it != needed_.rend(); ++it)
                if (known(*it).exported && known(*it).mask == g) exported.push_back(*it);
            if (g == 0) {
                in_loops(0, [&] {
                    for (const Item i : exported) name_here(i);
                });
                continue;
            }
            std::vector<std::pair<Item, std::string>> arrays;
            for (const Item i : exported) {
                const std::string name = v_.fresh(wish(i));
                const auto vector = i.access ? vector_load(i.number, g) : std::nullopt;
                const std::string type =
                    vector ? storage_type(job_.accesses[i.number].storage) : register_type(type_of(i));
                w_->add(array_declaration(type, name, extents(g)) + ";");
                if (vector) {
                    load_vectors(i.number, g, *vector, name);
                    known(i).name = name;
                    known(i).stored = true;
                } else {
                    arrays.emplace_back(i, name);
                }
            }
            if (arrays.empty()) continue;
            in_loops(g, [&] {
                for (const auto& [i, name] : arrays) {
                    const std::string value = known(i).users == 0 ? text(i) : use(i);
                    w_->line("{}{} = {};", name, coordinates(g), value);
                }
            });
            for (const Item i : needed_)  // the innermost scope is left
                if (known(i).mask == g && known(i).named_here) known(i).name.clear();
            for (const auto& [i, name] : arrays) known(i).name = name;
        }
        group_ = mask_;
        raw_points_ = guarded;
        if (vector_out_ && guarded) return vectors_out(roots, finish);
        in_loops(mask_, [&] {
            const std::string condition = guarded ? inside_condition() : "";
            if (!condition.empty()) w_->open("if (" + condition + ")");
            std::vector<std::string> texts;
            for (const ScalarId r : roots) texts.push_back(use({false, r.value}));
            finish(texts);
            if (!condition.empty()) w_->close();
        });
    }

    /// Where this point of the tile exists, and is this thread's to write.
    std::string inside_condition() const {
        std::string s = mine_;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((overhang_ >> a) & 1) != 0)
                s += fmt::format("{}{} < {}", s.empty() ? "" : " && ", v_.text(raw_[a]), v_.text(job_.ranges[a].hi));
        return s;
    }

    // --- vectors: neighbours along one register axis that are neighbours in memory

    /// The register axis of the innermost loop, whose coordinate is `width * part + lane` where it goes by vectors.
    struct Vector {
        size_t axis = 0;
        int64_t width = 1;
        Expr offset;  ///< of lane 0, over the part
    };

    /// The last register axis of the mask; none: there is none.
    std::optional<size_t> innermost(Mask mask) const {
        for (size_t a = e_.spatial; a-- > 0;)
            if (((mask >> a) & 1) != 0) return a;
        return std::nullopt;
    }
    void split_coordinate(size_t axis, int64_t width) {
        if (split_axis_ == axis && split_width_ == width) return;
        split_axis_ = axis;
        split_width_ = width;
        part_of_ = v_.add("part_" + axis_name(axis), {Expr(0), Expr(part_.registers[axis] / width - 1)});
        lane_of_ = v_.add("lane_" + axis_name(axis), {Expr(0), Expr(width - 1)});
    }
    Expr split(Expr e) const {
        const Var whole = *coordinate_[split_axis_].as_var();
        return v_.simplified(substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v == whole) return part_of_ * split_width_ + lane_of_;
            return std::nullopt;
        }));
    }
    /// e over the part alone; `step`: what it gains from lane to lane.
    std::optional<Expr> at_lane_0(Expr e, int64_t step) const {
        const auto linear = linear_in(split(e), *lane_of_.as_var());
        if (!linear || !linear->coefficient.is_constant(step)) return std::nullopt;
        return v_.simplified(linear->rest);
    }

    /// Offset of whole, aligned vectors of that place, where it goes by them.
    std::optional<Expr> vector_offset(const Place& place, const std::vector<Expr>& index) {
        if (place.in_registers) return std::nullopt;
        const auto rest = at_lane_0(offset(place, index), 1);
        if (!rest || Variables::multiple(*rest) % split_width_ != 0) return std::nullopt;
        for (const Var v : variables(*rest))
            if (v.kind == VarKind::Load) return std::nullopt;
        return rest;
    }

    static int64_t widest(DType t, int64_t points) {
        int64_t width = 16 / static_cast<int64_t>(byte_size(t));
        while (width > 1 && points % width != 0) width /= 2;
        return width;
    }

    /// Whether an access may be read by vectors in loops over `mask`, without conditions.
    std::optional<Vector> vector_load(uint32_t slot, Mask mask) {
        const Place& place = job_.accesses[slot];
        const Access& a = e_.accesses[slot];
        const auto axis = innermost(mask);
        if (!axis || !place.final.empty()) return std::nullopt;
        const int64_t width = widest(place.storage, part_.strip[*axis]);
        if (width == 1) return std::nullopt;
        if (!place.checked)
            for (const Expr& c : a.valid)
                if (!v_.nonnegative(v_.simplified(substitute_axes(c, raw_)))) return std::nullopt;
        const auto raw = inside_filled(place, a.index);
        if (!raw && (overhang_ & axes_of(a)) != 0) return std::nullopt;
        std::vector<Expr> index;
        if (raw)
            index = *raw;
        else
            for (const Expr& i : a.index) index.push_back(substitute_axes(i, raw_));
        split_coordinate(*axis, width);
        const auto at = vector_offset(place, index);
        if (!at) return std::nullopt;
        return Vector{*axis, width, *at};
    }
    Mask axes_of(const Access& a) const {
        Mask m = 0;
        for (const Expr& i : a.index)
            for (const Var v : variables(i))
                if (is_own_axis(v)) m |= Mask{1} << v.id;
        return m;
    }

    void load_vectors(uint32_t slot, Mask mask, const Vector& vector, const std::string& name) {
        const Mask others = mask & ~(Mask{1} << vector.axis);
        open_loops(others);
        const std::string part = open_parts(vector);
        w_->line("tw::load<{}>({}{}{}, {} + {});", vector.width, name, coordinates(others), part,
                 job_.accesses[slot].object, v_.operand(vector.offset));
        close_parts(vector);
        close_loops(others);
    }
    /// The loop over the vectors of a register axis; what is added to the array's begin.
    std::string open_parts(const Vector& vector) {
        const int64_t parts = part_.registers[vector.axis] / vector.width;
        if (parts == 1) return "";
        const std::string part = v_.name(part_of_);
        w_->add("TW_UNROLL");
        w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", part, parts));
        return fmt::format(" + {} * {}", part, vector.width);
    }
    void close_parts(const Vector& vector) {
        if (part_.registers[vector.axis] != vector.width) w_->close();
    }

    /// Whether an elementwise statement may write vectors: the result goes by them, and a vector is inside the ranges
    /// as a whole or not at all.
    void choose_vector_out() {
        const auto axis = innermost(mask_);
        if (!axis || job_.out.in_registers) return;
        const int64_t width = widest(job_.out.storage, part_.strip[*axis]);
        if (width == 1) return;
        split_coordinate(*axis, width);
        const auto at = vector_offset(job_.out, out_index());
        if (!at) return;
        if (((overhang_ >> *axis) & 1) != 0) {
            const auto left = at_lane_0(job_.ranges[*axis].hi - raw_[*axis], -1);
            if (!left || Variables::multiple(*left) % width != 0) return;
        }
        // Operands that are read one by one would be neighbours of neighbours to the other threads.
        for (uint32_t slot = 0; slot < e_.accesses.size(); ++slot) {
            const Place& place = job_.accesses[slot];
            if (place.in_registers || !uses_coordinate(slot, *axis)) continue;
            if (!conditional_vector(slot, {*axis, width, {}})) return;
        }
        vector_out_ = Vector{*axis, width, *at};
    }
    bool uses_coordinate(uint32_t slot, size_t axis) const {
        const Access& a = e_.accesses[slot];
        const auto uses_it = [&](Expr e) { return uses(e, *tilewright::axis(axis).as_var()); };
        return std::any_of(a.index.begin(), a.index.end(), uses_it) ||
               (!job_.accesses[slot].checked && std::any_of(a.valid.begin(), a.valid.end(), uses_it));
    }

    struct Conditional {
        Expr offset;
        std::vector<Expr> conditions;  ///< each >= 0
    };
    /// A vector that is there as a whole or not at all.
    std::optional<Conditional> conditional_vector(uint32_t slot, const Vector& vector) {
        const Place& place = job_.accesses[slot];
        const Access& a = e_.accesses[slot];
        if (!place.final.empty() || widest(place.storage, vector.width) != vector.width) return std::nullopt;
        std::vector<Expr> index;
        for (const Expr& i : a.index) index.push_back(substitute_axes(i, raw_));
        split_coordinate(vector.axis, vector.width);
        const auto at = vector_offset(place, index);
        if (!at) return std::nullopt;
        Conditional out{*at, {}};
        if (place.checked) return out;
        const auto add = [&](Expr c) {
            if (std::find(out.conditions.begin(), out.conditions.end(), c) == out.conditions.end())
                out.conditions.push_back(c);
        };
        for (const Expr& c : a.valid) {
            const Expr here = v_.simplified(substitute_axes(c, raw_));
            if (v_.nonnegative(here)) continue;
            for (const Var v : variables(here))
                if (v.kind == VarKind::Load) return std::nullopt;
            const auto same = at_lane_0(here, 0), up = at_lane_0(here, 1), down = at_lane_0(here, -1);
            if (same) {
                add(*same);
            } else if (up && Variables::multiple(*up) % vector.width == 0) {
                add(*up);
            } else if (down && Variables::multiple(*down + 1) % vector.width == 0) {
                add(*down);
            } else {
                return std::nullopt;
            }
        }
        return out;
    }

    /// The last group of an elementwise statement, by vectors: operands into arrays, results from one.
    template <class F>
    void vectors_out(const std::vector<ScalarId>& roots, const F& finish) {
        const Vector vector = *vector_out_;
        const Mask others = mask_ & ~(Mask{1} << vector.axis);
        split_coordinate(vector.axis, vector.width);
        open_loops(others);
        open_parts(vector);
        // Conditions of the ranges, at lane 0.
        std::string inside = mine_;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((overhang_ >> a) & 1) != 0) {
                Expr at = raw_[a];
                if (a == vector.axis)
                    at = v_.simplified(substitute(split(at), [&](Var v) -> std::optional<Expr> {
                        if (v == *lane_of_.as_var()) return Expr(0);
                        return std::nullopt;
                    }));
                inside +=
                    fmt::format("{}{} < {}", inside.empty() ? "" : " && ", v_.text(at), v_.text(job_.ranges[a].hi));
            }
        if (!inside.empty()) w_->open("if (" + inside + ")");
        const std::string lane = v_.name(lane_of_);
        for (const Item i : needed_) {
            if (!i.access || known(i).mask != mask_ || job_.accesses[i.number].in_registers) continue;
            const auto load = conditional_vector(i.number, vector);
            if (!load) continue;
            const Place& place = job_.accesses[i.number];
            const std::string name = v_.fresh(wish(i)), type = storage_type(place.storage);
            std::string conditions;
            for (const Expr& c : load->conditions) conditions += (conditions.empty() ? "" : " && ") + v_.condition(c);
            w_->line("{} {}[{}];", type, name, vector.width);
            const std::string text =
                fmt::format("tw::load<{}>({}, {} + {});", vector.width, name, place.object, v_.operand(load->offset));
            if (conditions.empty())
                w_->add(text);
            else
                w_->line("if ({}) {} else tw::fill<{}>({}, {});", conditions, text, vector.width, name,
                         to_storage(place.storage, fill_literal(place.storage, e_.accesses[i.number].fill)));
            known(i).stored = true;
            known(i).name = fmt::format("{}[{}]", name, lane);
        }
        const std::string out = v_.fresh("out");
        w_->line("{} {}[{}];", storage_type(job_.out.storage), out, vector.width);
        w_->add("TW_UNROLL");
        w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", lane, vector.width));
        const bool one = part_.registers[vector.axis] == vector.width;
        w_->line("const int {} = {}{};", v_.name(coordinate_[vector.axis]),
                 one ? "" : fmt::format("{} * {} + ", v_.name(part_of_), vector.width), lane);
        std::vector<std::string> texts;
        for (const ScalarId r : roots) texts.push_back(use({false, r.value}));
        into_vector_ = fmt::format("{}[{}]", out, lane);
        finish(texts);
        into_vector_.clear();
        w_->close();
        w_->line("tw::store<{}>({} + {}, {});", vector.width, job_.out.object, v_.operand(vector.offset), out);
        if (!inside.empty()) w_->close();
        close_parts(vector);
        close_loops(others);
        wrote_vectors_ = true;
    }

    std::string wish(Item i) const {
        if (i.access) return identifier(job_.names[i.number]).substr(0, 16);
        return "t";
    }

    void name_here(Item item) {
        item = resolved(item);
        if (is_leaf_text(item) || !known(item).name.empty()) return;
        const std::string value = text(item);
        Known& k = known(item);
        k.name = v_.fresh(wish(item));
        k.named_here = true;
        w_->line("const {} {} = {};", register_type(type_of(item)), k.name, value);
    }

    /// C++ for the value in the group that is being written.
    std::string use(Item item) {
        item = resolved(item);
        if (is_leaf_text(item)) return text(item);
        const Mask mask = known(item).mask;
        if (mask != group_) {
            TW_CHECK(!known(item).name.empty(), "a value is used before its group");
            return number_in(item, known(item).name + coordinates(mask));
        }
        if (!known(item).name.empty()) return number_in(item, known(item).name);
        if (known(item).users > 1 || known(item).exported) {
            name_here(item);
            return known(item).name;
        }
        std::string s = text(item);
        if (s.size() <= 90) return s;
        Known& k = known(item);
        k.name = v_.fresh(wish(item));
        k.named_here = true;
        w_->line("const {} {} = {};", register_type(type_of(item)), k.name, s);
        return k.name;
    }

    std::string number_in(Item item, const std::string& name) {
        return known(item).stored ? from_storage(job_.accesses[item.number].storage, name) : name;
    }

    std::string text(Item item) {
        if (item.access) return access_text(item.number);
        const ScalarNode& n = (*body_)[ScalarId(item.number)];
        switch (n.op) {
            case ScalarOp::Const:
                return literal(n.dtype, n.value, n.int_value);
            case ScalarOp::Acc:
                return acc_ + coordinates(mask_);
            case ScalarOp::Index:
                return v_.wide(v_.simplified(at(n.index)), load_text());
            default:
                break;
        }
        const auto operand = [&](ScalarId k) { return k ? use({false, k.value}) : std::string(); };
        const std::string a = operand(n.a), b = operand(n.b), c = operand(n.c);
        return scalar_op(n.op, n.dtype, (*body_)[n.op == ScalarOp::Select ? n.b : n.a].dtype, a, b, c);
    }

    Variables::LoadText load_text() {
        return [this](size_t access) { return "i64(" + use({true, static_cast<uint32_t>(access)}) + ")"; };
    }

    // --- places

    const std::vector<Expr>& points_here() const { return raw_points_ ? raw_ : clamped_; }
    /// The expression at the thread's point.
    Expr at(Expr e) {
        if (!raw_points_)
            for (const Var v : variables(e))
                if (is_own_axis(v) && ((overhang_ >> v.id) & 1) != 0 && part_.registers[v.id] > 1)
                    used_held_ |= Mask{1} << v.id;
        return substitute_axes(e, points_here());
    }

    std::string access_text(uint32_t slot) {
        const Access& a = e_.accesses[slot];
        const Place& place = job_.accesses[slot];
        std::string s;
        if (place.in_registers) {
            s = element(place, {});
        } else if (const auto raw = inside_filled(place, a.index)) {
            s = element(place, *raw);
        } else {
            std::vector<Expr> index;
            for (const Expr& i : a.index) index.push_back(at(i));
            s = element(place, index);
        }
        s = from_storage(place.storage, s);
        std::vector<std::string> all;
        if (!place.checked)
            for (const Expr& c : a.valid) {
                const Expr here = v_.simplified(at(c));
                if (v_.nonnegative(here)) continue;
                const std::string condition = v_.condition(here, load_text());
                if (std::find(all.begin(), all.end(), condition) == all.end()) all.push_back(condition);
            }
        const std::string conditions = fmt::format("{}", fmt::join(all, " && "));
        if (!conditions.empty()) s = fmt::format("({} ? {} : {})", conditions, s, fill_literal(place.storage, a.fill));
        if (!place.final.empty()) s = fmt::format("tw::level({}, {})", s, place.final);
        return s;
    }

    /// The index without clamping, where all that it can reach is there to be read.
    std::optional<std::vector<Expr>> inside_filled(const Place& place, const std::vector<Expr>& index) const {
        if (!place.filled || overhang_ == 0) return std::nullopt;
        std::vector<Expr> out;
        for (size_t d = 0; d < index.size(); ++d) {
            out.push_back(substitute_axes(index[d], raw_));
            const Expr in_box = v_.simplified(out[d] - place.origin[d]);
            if (!v_.nonnegative(in_box) || !v_.nonnegative(place.box[d] - 1 - in_box)) return std::nullopt;
        }
        return out;
    }

    Expr offset(const Place& place, std::vector<Expr> where) const {
        if (!place.origin.empty())
            for (size_t d = 0; d < where.size(); ++d) where[d] = v_.simplified(where[d] - place.origin[d]);
        if (place.layout) where = physical_index(*place.layout, place.box, where);
        Expr offset = 0;
        for (size_t d = 0; d < where.size(); ++d) offset += where[d] * place.strides[d];
        return v_.simplified(offset);
    }
    std::string element(const Place& place, const std::vector<Expr>& index) {
        if (place.in_registers) return place.object + coordinates(mask_);
        return fmt::format("{}[{}]", place.object, v_.text(offset(place, index), load_text()));
    }
    /// Writes the result's element at the raw point.
    void put(const Place& place, const std::string& value) {
        if (!into_vector_.empty()) return w_->line("{} = {};", into_vector_, value);
        if (place.in_registers) return w_->line("{} = {};", place.object + coordinates(mask_), value);
        w_->line("tw::put({}, {}, {});", place.object, v_.text(offset(place, out_index())), value);
    }
    std::vector<Expr> out_index() const {
        std::vector<Expr> index;
        for (const Expr& i : result_index(e_)) index.push_back(substitute_axes(i, raw_));
        return index;
    }
    /// The result's element at the raw point.
    std::string out_element(const Place& place) { return element(place, out_index()); }

    // --- what becomes of them

    void elementwise() {
        choose_vector_out();
        evaluate(e_.body, {e_.body.root()}, true,
                 [&](const std::vector<std::string>& value) { put(job_.out, to_storage(job_.out.storage, value[0])); });
    }

    void reduction() {
        acc_ = v_.fresh("sum");
        const std::string type = register_type(acc_type_);
        w_->add(array_declaration(type, acc_, extents(mask_)) + ";");
        begin_sum();
        size_t loops = 0;
        for (const size_t a : reduction_order()) {
            open_reduction(a);
            ++loops;
        }
        accumulate();
        while (loops-- > 0) w_->close();
        if (part_.group > 1) exchange();
        finish_sum();
    }

    std::string sum_here() const { return acc_ + coordinates(mask_); }

    void begin_sum() {
        group_ = mask_;
        raw_points_ = true;
        known_.clear();
        in_loops(mask_, [&] {
            std::string s = identity_of(e_.reducer, acc_type_);
            if (partial_) {
                const std::string inside = inside_condition();
                s = fmt::format("!{}{} ? {} : {}", first_, inside.empty() ? "" : " && " + inside, before(), s);
            }
            w_->line("{} = {};", sum_here(), s);
        });
    }

    /// What was summed up before, as it counts now.
    std::string before() {
        std::string s = from_storage(job_.out.storage, out_element(job_.out));
        if (job_.rescale) s = fmt::format("{} * {}", s, access_text(static_cast<uint32_t>(*job_.rescale)));
        return s;
    }

    std::vector<size_t> reduction_order() const {
        std::vector<size_t> out;
        for (const size_t a : job_.micro->order)
            if (a >= e_.spatial) out.push_back(a);
        for (size_t a = e_.spatial; a < n_; ++a)
            if (std::find(out.begin(), out.end(), a) == out.end()) out.push_back(a);
        return out;
    }

    void open_reduction(size_t a) {
        const Expr length = local_range(a);
        const AxisRange& r = job_.ranges[a];
        if (length.is_constant(1)) {
            raw_[a] = clamped_[a] = r.lo;
            w_->open("");
            return;
        }
        const Expr k = v_.add(axis_name(a), {Expr(0), length - 1});
        raw_[a] = clamped_[a] = v_.simplified(r.lo + k);
        const bool shared = part_.group > 1 && part_.shared_axis == a;
        const int64_t unroll = a < job_.micro->registers.size() ? job_.micro->registers[a] : 1;
        if (unroll > 1 && !shared) w_->line("TW_UNROLL_BY({})", unroll);
        w_->open(fmt::format("for ({0} {1} = {2}; {1} < {3}; {1} += {4})", v_.type(k), v_.name(k),
                             shared ? v_.name(lane_) : "0", v_.text(length), shared ? part_.group : 1));
    }

    void accumulate() {
        const ScalarNode& root = e_.body[e_.body.root()];
        if (e_.reducer == Reducer::Sum && root.op == ScalarOp::Mul && is_float(acc_type_)) {
            evaluate(e_.body, {root.a, root.b}, false, [&](const std::vector<std::string>& x) {
                w_->line("{0} = tw::fused({1}, {2}, {0});", sum_here(), x[0], x[1]);
            });
            return;
        }
        evaluate(e_.body, {e_.body.root()}, false, [&](const std::vector<std::string>& x) {
            w_->line("{} = {};", sum_here(), combined(e_.reducer, acc_type_, sum_here(), x[0]));
        });
    }

    /// All threads of a group get the whole sum.
    void exchange() {
        const std::string type = register_type(acc_type_);
        in_loops(mask_, [&] {
            if (part_.group <= 32)
                w_->line("{0} = tw::reduce_in_warp<{1}, {2}>({0});", sum_here(), reducer_name(e_.reducer), part_.group);
            else
                w_->line("{0} = tw::reduce_in_block<{1}, {2}>({0}, tw::shared<{3}>({4}, {5}, \"the sums of warps\"));",
                         sum_here(), reducer_name(e_.reducer), part_.group, type, job_.room, job_.threads / 32);
        });
    }

    void finish_sum() {
        const auto store = [&](const std::string& value) { put(job_.out, to_storage(job_.out.storage, value)); };
        const auto store_sum = [&] {
            group_ = mask_;
            raw_points_ = true;
            in_loops(mask_, [&] {
                const std::string inside = inside_condition();
                if (!inside.empty()) w_->open("if (" + inside + ")");
                if (job_.correction) {
                    // A maximum that is found in one step corrects nothing.
                    const std::string then = fmt::format("({} ? {} : {})", first_, sum_here(), out_element(job_.out));
                    put(*job_.correction,
                        fmt::format("tw::correction({}, {})", partial_ ? then : sum_here(), sum_here()));
                }
                store(sum_here());
                if (!inside.empty()) w_->close();
            });
        };
        if (e_.epilogue.empty()) return store_sum();
        const auto store_last = [&] {
            evaluate(e_.epilogue, {e_.epilogue.root()}, true,
                     [&](const std::vector<std::string>& value) { store(value[0]); });
        };
        if (!partial_) return store_last();
        w_->open(fmt::format("if ({})", last_));
        store_last();
        w_->close();
        w_->open("else");
        store_sum();
        w_->close();
    }

    Writer* w_;
    Variables& v_;
    const StageJob& job_;
    const TensorExpr& e_;
    size_t n_ = 0;
    Partition part_;
    DType acc_type_ = DType::F32;
    bool partial_ = false;
    std::string first_, last_, mine_, acc_;
    Expr tile_, lane_;
    std::vector<Expr> raw_, clamped_, coordinate_;
    std::map<size_t, std::pair<Expr, std::string>> held_;  ///< clamped coordinates, and their declarations
    Mask mask_ = 0;                                        ///< axes with register coordinates
    Mask overhang_ = 0;                                    ///< axes along which a tile may reach beyond the range
    Mask used_held_ = 0;                                   ///< in the loops being written
    bool wrote_vectors_ = false;

    size_t split_axis_ = 0;  ///< the register axis whose coordinate is split_width_ * part + lane
    int64_t split_width_ = 0;
    Expr part_of_, lane_of_;
    std::optional<Vector> vector_out_;
    std::string into_vector_;  ///< where `put` goes while a vector is being made

    const ScalarBody* body_ = nullptr;
    std::map<Item, Known> known_;
    std::vector<Item> needed_;
    Mask group_ = 0;
    bool raw_points_ = false;
};

}  // namespace

bool emit_stage(Writer& out, Variables& variables, const StageJob& job) { return StageText(out, variables, job).run(); }

}  // namespace tilewright::cuda
