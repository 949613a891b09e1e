#include "backend/cuda/stage_values.h"

#include <algorithm>

#include "backend/cuda/scalar_text.h"
#include "base/error.h"
#include "program/analysis/access.h"
#include "program/scalar_ops.h"

namespace tilewright::cuda {

StageValues::StageValues(Writer& writer, Variables& variables, const StageJob& job)
    : StagePoints(variables, job), w_(&writer), v_(variables), acc_type_(job.expr->body.dtype()) {
    TW_CHECK(job.micro->annotations.access.has_value(), "a statement has no annotation of what its threads access");
}

void StageValues::declare(Expr variable, Expr value) { w_->line("{} = {};", v_.declaration(variable), v_.text(value)); }

void StageValues::hold(size_t a, Expr held, Expr local, Expr last) {
    held_[a] = {held, fmt::format("{} = tw::lesser({}, {});", v_.declaration(held), v_.text(v_.simplified(local)),
                                  v_.text(last))};
    if (part_.registers[a] == 1 || is_held_whole(a)) w_->add(held_[a].second);
}

OperandRead StageValues::reading(size_t slot) const {
    const OperandRead* read = job_.micro->annotations.access->read(slot);
    return read != nullptr ? *read : OperandRead{slot};
}

bool StageValues::reads_vectors(uint32_t slot) {
    const OperandRead read = reading(slot);
    return read.by == OperandRead::By::Elements && read.width > 1;
}

int64_t StageValues::unrolled(size_t a) const {
    const auto& unroll = job_.micro->annotations.unroll;
    TW_CHECK(unroll && a < unroll->size(), "a reduction has no annotation of how its loops are unrolled");
    return (*unroll)[a];
}

std::optional<StageValues::Vector> StageValues::annotated_load(uint32_t slot, Mask mask) {
    const OperandRead read = reading(slot);
    if (read.by == OperandRead::By::Elements && read.width == 1) return std::nullopt;
    auto vector = vector_load(slot, mask, read.width);
    TW_CHECK(vector.has_value(), "access {} is annotated to be read {} elements at a time, which it cannot be", slot,
             read.width);
    return vector;
}

DType StageValues::type_of(Item item) const {
    if (item.access) return compute_type(job_.accesses[item.number].storage);
    return compute_type((*body_)[ScalarId(item.number)].dtype);
}

void StageValues::open_loops(Mask mask) {
    for (size_t a = 0; a < n_; ++a)
        if (((mask >> a) & 1) != 0) {
            w_->add("TW_UNROLL");
            const std::string i = v_.name(coordinate_[a]);
            w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", i, part_.registers[a]));
        }
}

void StageValues::close_loops(Mask mask) {
    for (size_t a = 0; a < n_; ++a)
        if (((mask >> a) & 1) != 0) w_->close();
}

std::vector<int64_t> StageValues::extents(Mask mask) const {
    std::vector<int64_t> out;
    for (const size_t a : part_.array_axes())
        if (((mask >> a) & 1) != 0) out.push_back(part_.registers[a]);
    return out;
}

std::string StageValues::coordinates(Mask mask) const {
    std::string s;
    for (const size_t a : part_.array_axes())
        if (((mask >> a) & 1) != 0) s += fmt::format("[{}]", v_.name(coordinate_[a]));
    return s;
}

void StageValues::in_loops(Mask mask, const std::function<void()>& inside) {
    open_loops(mask);
    Writer body = w_->inner(0);
    Writer* outer = w_;
    w_ = &body;
    used_held_ = 0;
    inside();
    w_ = outer;
    for (size_t a = 0; a < n_; ++a)
        if (((used_held_ >> a) & 1) != 0) w_->add(held_.at(a).second);
    w_->insert(body);
    close_loops(mask);
}

void StageValues::evaluate(const ScalarBody& body, const std::vector<ScalarId>& roots, bool guarded,
                           const Finish& finish) {
    const std::vector<Mask> groups = groups_of(body, roots);
    find_inverted(roots);
    for (const Mask g : groups) {
        group_ = g;
        raw_points_ = false;
        std::vector<Item> exported;
        for (auto it = needed_.rbegin(); it != needed_.rend(); ++it)
            if (known(*it).exported && known(*it).mask == g && (g != mask_ || in_vectors(*it))) exported.push_back(*it);
        if (g == 0) {
            in_loops(0, [&] {
                for (const Item i : exported) name_here(i);
            });
            continue;
        }
        std::vector<std::pair<Item, std::string>> arrays;
        for (const Item i : exported) {
            const std::string name = v_.fresh(wish(i));
            const auto vector = i.access ? annotated_load(i.number, g) : std::nullopt;
            const std::string type = vector ? storage_type(job_.accesses[i.number].storage) : register_type(type_of(i));
            w_->add(array_declaration(type, name, extents(g)) + ";");
            if (vector) {
                load_vectors(i.number, g, *vector, name);
                known(i).name = name;
                known(i).stored = known(i).array = true;
            } else {
                arrays.emplace_back(i, name);
            }
        }
        if (arrays.empty()) continue;
        in_loops(g, [&] {
            for (const auto& [i, name] : arrays) {
                const std::string value = known(i).users == 0 ? text(i) : use(i);
                w_->line("{}{} = {};", name, coordinates(g), inverted_.count(i) != 0 ? reciprocal(i, value) : value);
            }
        });
        for (const Item i : needed_)  // the innermost scope is left
            if (known(i).mask == g && known(i).named_here) known(i).name.clear();
        for (const auto& [i, name] : arrays) {
            known(i).name = name;
            known(i).array = true;
        }
    }
    group_ = mask_;
    raw_points_ = guarded;
    if (vector_out_ && guarded) return vectors_out(*vector_out_, roots, finish);
    in_loops(mask_, [&] {
        const std::string condition = guarded ? inside_condition() : "";
        if (!condition.empty()) w_->open("if (" + condition + ")");
        std::vector<std::string> texts;
        texts.reserve(roots.size());
        for (const ScalarId r : roots) texts.push_back(use({false, r.value}));
        finish(texts);
        if (!condition.empty()) w_->close();
    });
}

std::string StageValues::inside_condition() const {
    std::string s = job_.out.in_registers ? "" : mine_;
    for (size_t a = 0; a < e_.spatial; ++a)
        if (((overhang_ >> a) & 1) != 0)
            s += fmt::format("{}{} < {}", s.empty() ? "" : " && ", v_.text(raw_[a]), v_.text(job_.ranges[a].hi));
    return s;
}

std::string StageValues::wish(Item i) const {
    if (i.access) return identifier(job_.names[i.number]).substr(0, 16);
    return "t";
}

void StageValues::name_here(Item item) {
    item = resolved(item);
    if (is_leaf_text(item) || !known(item).name.empty()) return;
    const std::string value = text(item);
    Known& k = known(item);
    k.name = v_.fresh(wish(item));
    k.named_here = true;
    w_->line("const {} {} = {};", register_type(type_of(item)), k.name, value);
}

std::string StageValues::use(Item item) {
    item = resolved(item);
    if (is_leaf_text(item)) return text(item);
    const Mask mask = known(item).mask;
    if (mask != group_ || known(item).array) {
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

std::string StageValues::number_in(Item item, const std::string& name) {
    return known(item).stored ? from_storage(job_.accesses[item.number].storage, name) : name;
}

std::string StageValues::text(Item item) {
    if (item.access) return access_text(item.number);
    const ScalarNode& n = (*body_)[ScalarId(item.number)];
    switch (n.op) {
        case ScalarOp::Const:
            return literal(n.dtype, n.value, n.int_value);
        case ScalarOp::Acc:
            return acc_ + coordinates(result_mask_);
        case ScalarOp::Index:
            return v_.wide(v_.simplified(at(n.index)), load_text());
        default:
            break;
    }
    const auto operand = [&](ScalarId k) { return k ? use({false, k.value}) : std::string(); };
    const bool near = job_.rounds && n.dtype == DType::F32, is_exp = scalar_op_info(n.op).cuda == "exp";
    if (near && is_exp && (*body_)[n.a].op == ScalarOp::Sub) {
        const ScalarNode& difference = (*body_)[n.a];
        if (const Place* place = unscaled(difference.a))
            return fmt::format("tw::exp_near({}, {}, {})", element(*place, {}), literal(DType::F32, place->factor, 0),
                               operand(difference.b));
        const std::string x = operand(difference.a);
        return fmt::format("tw::exp_near({}, {})", x, operand(difference.b));
    }
    const std::string a = operand(n.a), b = operand(n.b), c = operand(n.c);
    if (n.op == ScalarOp::Table) return table_text(n, a);
    if (near && is_exp) return fmt::format("tw::exp_near({})", a);
    if (is_near_quotient(n))
        return fmt::format("({} * {})", a,
                           inverted_.count(resolved({false, n.b.value})) != 0 ? b : reciprocal({false, n.b.value}, b));
    return scalar_op(n.op, n.dtype, (*body_)[n.op == ScalarOp::Select ? n.b : n.a].dtype, a, b, c);
}

bool StageValues::is_near_quotient(const ScalarNode& n) const {
    return job_.rounds && n.dtype == DType::F32 && n.op == ScalarOp::Div;
}

std::string StageValues::reciprocal(Item item, const std::string& value) {
    item = resolved(item);
    const bool from_one = item.access && job_.accesses[item.number].from_one;
    return fmt::format("tw::reciprocal{}({})", from_one ? "_from_one" : "", value);
}

void StageValues::find_inverted(const std::vector<ScalarId>& roots) {
    inverted_.clear();
    std::set<Item> others;
    for (const ScalarId r : roots) others.insert(resolved({false, r.value}));
    for (const Item i : needed_) {
        const bool quotient = !i.access && is_near_quotient((*body_)[ScalarId(i.number)]);
        for (const Item o : operands(i)) {
            const Item from = resolved(o);
            const bool divisor = quotient && o.number == (*body_)[ScalarId(i.number)].b.value;
            const bool is_array = !is_leaf_text(from) && known(from).mask != 0 && known(from).mask != mask_;
            if (divisor && is_array && known(from).users == 0)
                inverted_.insert(from);
            else
                others.insert(from);
        }
    }
    for (const Item i : others) inverted_.erase(i);
}

std::string StageValues::table_text(const ScalarNode& n, const std::string& position) {
    if (n.table->empty()) return literal(n.dtype, 0, 0);
    std::string numbers;
    for (const double v : *n.table) numbers += (numbers.empty() ? "" : ", ") + literal(n.dtype, v, 0);
    const std::string name = v_.fresh("table");
    w_->line("static const {} {}[] = {{{}}};", register_type(n.dtype), name, numbers);
    return fmt::format("(u64({}) < {} ? {}[{}] : {})", position, n.table->size(), name, position,
                       literal(n.dtype, 0, 0));
}

Variables::LoadText StageValues::load_text() {
    return [this](size_t access) { return "i64(" + use({true, static_cast<uint32_t>(access)}) + ")"; };
}

Expr StageValues::at(Expr e) {
    if (!raw_points_)
        for (const Var v : variables(e))
            if (is_own_axis(v) && ((overhang_ >> v.id) & 1) != 0 && part_.registers[v.id] > 1 && !is_held_whole(v.id))
                used_held_ |= Mask{1} << v.id;
    return substitute_axes(e, points_here());
}

std::string StageValues::access_element(uint32_t slot) {
    const Access& a = e_.accesses[slot];
    const Place& place = job_.accesses[slot];
    if (place.in_registers) return element(place, {});
    if (const auto raw = inside_filled(place, a.index)) return element(place, *raw);
    std::vector<Expr> index;
    index.reserve(a.index.size());
    for (const Expr& i : a.index) index.push_back(at(i));
    return element(place, index);
}

std::string StageValues::access_conditions(uint32_t slot) {
    std::vector<std::string> all;
    if (!job_.accesses[slot].checked)
        for (const Expr& c : e_.accesses[slot].valid) {
            const Expr here = v_.simplified(at(c));
            if (v_.nonnegative(here)) continue;
            const std::string condition = v_.condition(here, load_text());
            if (std::find(all.begin(), all.end(), condition) == all.end()) all.push_back(condition);
        }
    return fmt::format("{}", fmt::join(all, " && "));
}

std::string StageValues::access_text(uint32_t slot) {
    const Access& a = e_.accesses[slot];
    const Place& place = job_.accesses[slot];
    std::string s = from_storage(place.storage, access_element(slot));
    const std::string conditions = access_conditions(slot);
    if (!conditions.empty()) s = fmt::format("({} ? {} : {})", conditions, s, fill_literal(place.storage, a.fill));
    if (!place.final.empty()) s = fmt::format("tw::level({}, {})", s, place.final);
    if (place.factor != 1 && applies_factor_) s = fmt::format("({} * {})", s, literal(DType::F32, place.factor, 0));
    return s;
}

const Place* StageValues::unscaled(ScalarId node) const {
    const ScalarNode& n = (*body_)[node];
    if (n.op != ScalarOp::Access || job_.accesses[n.slot].factor == 1) return nullptr;
    return &job_.accesses[n.slot];
}

std::string StageValues::swizzled(const Place& place, Expr offset, const Variables::LoadText& loads) const {
    if (place.swizzle == 0) return v_.text(offset, loads);
    // Whole blocks of eight rows change nothing: so much of an address stays a constant of an unrolled loop.
    const auto size = static_cast<int64_t>(byte_size(place.storage)), block = 8 * place.swizzle / size;
    Expr rest = offset, rows = 0, blocks = 0;
    for (size_t a = 0; a < n_; ++a) {
        if (((mask_ >> a) & 1) == 0) continue;
        const auto linear = linear_in(rest, gpu::var_of(coordinate_[a]));
        if (!linear || !linear->coefficient.is_constant() || linear->coefficient.is_constant(0)) continue;
        const int64_t apart = linear->coefficient.constant(), beside = apart > 0 ? block / apart : 0;
        if (beside * apart != block) continue;
        rest = linear->rest;
        rows += mod(coordinate_[a], beside) * apart;
        blocks += floor_div(coordinate_[a], beside) * block;
    }
    const Expr inside = v_.simplified(mod(rest, block));
    blocks = v_.simplified(blocks + rest - inside);
    if (gpu::IndexVariables::multiple(blocks) % block != 0) {
        rest = offset;
        blocks = rows = 0;
    } else {
        rest = v_.simplified(inside + rows);
    }
    const std::string at = fmt::format("tw::swizzled<{}, {}>({})", place.swizzle, size, v_.text(rest, loads));
    return blocks.is_constant(0) ? at : fmt::format("{} + {}", at, v_.operand(blocks));
}

std::string StageValues::element(const Place& place, const std::vector<Expr>& index) {
    if (place.in_registers) {
        std::string s = place.object;
        for (const size_t a : place.register_axes)
            if (part_.registers[a] != 1) s += fmt::format("[{}]", v_.name(coordinate_[a]));
        return s;
    }
    return fmt::format("{}[{}]", place.object, swizzled(place, offset(place, index), load_text()));
}

void StageValues::put(const Place& place, const std::string& value) {
    if (!into_vector_.empty()) return w_->line("{} = {};", into_vector_, value);
    if (place.in_registers) return w_->line("{} = {};", element(place, {}), value);
    w_->line("tw::put({}, {}, {});", place.object, swizzled(place, offset(place, out_index())), value);
}

void StageValues::put_async() {
    const Place& from = job_.accesses[0];
    std::vector<Expr> index;
    for (const Expr& i : e_.accesses[0].index) index.push_back(at(i));
    const std::string conditions = access_conditions(0);
    w_->line("tw::copy_async{}<1>({} + {}, {} + {}{});", conditions.empty() ? "" : "_if", job_.out.object,
             address(job_.out, offset(job_.out, out_index())), from.object, v_.operand(offset(from, index)),
             conditions.empty() ? "" : ", " + conditions);
}

}  // namespace tilewright::cuda
