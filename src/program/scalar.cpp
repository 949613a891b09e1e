#include "program/scalar.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "program/scalar_eval.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

bool same_table(const ScalarNode& x, const ScalarNode& y) {
    return x.table == y.table || (x.table && y.table && *x.table == *y.table);
}

/// Compares field by field, floats by their bits: -0.0 and 0.0 differ, equal NaNs are equal.
bool same_node(const ScalarNode& x, const ScalarNode& y) {
    return x.op == y.op && x.dtype == y.dtype && x.a == y.a && x.b == y.b && x.c == y.c &&
           std::bit_cast<uint64_t>(x.value) == std::bit_cast<uint64_t>(y.value) && x.int_value == y.int_value &&
           x.slot == y.slot && x.index == y.index && same_table(x, y);
}

/// Equal for equal nodes. Tables are ignored, because a body rarely has several.
uint64_t hash_of(const ScalarNode& n) {
    uint64_t h = hash_combine(static_cast<uint64_t>(n.op) << 8 | static_cast<uint64_t>(n.dtype), n.slot);
    h = hash_combine(h, std::bit_cast<uint64_t>(n.value) ^ hash_mix(static_cast<uint64_t>(n.int_value)));
    h = hash_combine(h, n.index.hash());
    for (const ScalarId id : {n.a, n.b, n.c}) h = hash_combine(h, id ? id.index() + 1 : 0);
    return h;
}

ScalarValue value_of(const ScalarNode& n) { return {n.value, n.int_value}; }

ScalarNode const_node(DType t, ScalarValue v) {
    ScalarNode n;
    n.dtype = compute_type(t);
    if (is_float(t))
        n.value = v.f;
    else
        n.int_value = wrap_integer(t, v.i);
    return n;
}

bool is_const(const ScalarNode& n, double f, int64_t i) {
    if (n.op != ScalarOp::Const) return false;
    if (is_float(n.dtype)) return std::bit_cast<uint64_t>(n.value) == std::bit_cast<uint64_t>(f);
    return n.int_value == i;
}

/// The operand that the node equals for all values of the operands, if any:
///     x * 1 -> x    x + 0 -> x (floats: x + -0.0)    x - 0 -> x    x / 1 -> x    select(true, x, y) -> x
///     select(c, x, x) -> x    and(x, true) -> x    or(x, false) -> x    cast to its own type -> x
ScalarId identity(const ScalarBody& body, const ScalarNode& n) {
    const auto& at = [&](ScalarId id) -> const ScalarNode& { return body[id]; };
    switch (n.op) {
        case ScalarOp::Mul:
            if (is_const(at(n.b), 1.0, 1)) return n.a;
            if (is_const(at(n.a), 1.0, 1)) return n.b;
            break;
        case ScalarOp::Weigh:
            if (is_const(at(n.a), 1.0, 1)) return n.b;
            break;
        case ScalarOp::Div:
            if (is_const(at(n.b), 1.0, 1)) return n.a;
            break;
        case ScalarOp::Add:
            if (is_const(at(n.b), -0.0, 0)) return n.a;
            if (is_const(at(n.a), -0.0, 0)) return n.b;
            break;
        case ScalarOp::Sub:
            if (is_const(at(n.b), 0.0, 0)) return n.a;
            break;
        case ScalarOp::BitAnd:
        case ScalarOp::BitOr: {
            if (n.dtype != DType::Bool) break;
            const int64_t neutral = n.op == ScalarOp::BitAnd ? 1 : 0;
            for (const auto& [x, y] : {std::pair(n.a, n.b), std::pair(n.b, n.a)})
                if (at(y).op == ScalarOp::Const) return at(y).int_value == neutral ? x : y;
            break;
        }
        case ScalarOp::Select:
            if (at(n.a).op == ScalarOp::Const) return at(n.a).int_value != 0 ? n.b : n.c;
            if (n.b == n.c) return n.b;
            break;
        case ScalarOp::Cast:
            // A value rounded to F16 is an F32, so casting it to either type is the identity.
            if (n.dtype == at(n.a).dtype || n.dtype == compute_type(at(n.a).dtype)) return n.a;
            break;
        default:
            break;
    }
    return {};
}

/// Live nodes, operands before users, in the order in which they occur in the printed text.
std::vector<ScalarId> postorder(const ScalarBody& body) {
    std::vector<ScalarId> out;
    if (body.empty()) return out;
    TW_CHECK(body.nodes().contains(body.root()), "a scalar body without a root");
    std::vector<uint8_t> state(body.nodes().size(), 0);  // 1: operands are being visited, 2: done
    std::vector<ScalarId> stack{body.root()};
    while (!stack.empty()) {
        const ScalarId id = stack.back();
        if (state[id.index()] != 0) {
            stack.pop_back();
            if (state[id.index()] == 1) out.push_back(id);
            state[id.index()] = 2;
            continue;
        }
        state[id.index()] = 1;
        const ScalarNode& n = body[id];
        for (const ScalarId operand : {n.c, n.b, n.a})
            if (operand && state[operand.index()] == 0) stack.push_back(operand);
    }
    return out;
}

}  // namespace

ScalarId ScalarBody::add(ScalarNode node) {
    const int n = arity(node.op);
    const std::array<ScalarId, 3> operands{node.a, node.b, node.c};
    bool constant = n > 0;
    for (int k = 0; k < 3; ++k) {
        const ScalarId id = operands[static_cast<size_t>(k)];
        TW_CHECK(static_cast<bool>(id) == (k < n), "operator '{}' takes {} operands", to_string(node.op), n);
        if (k < n) {
            TW_CHECK(nodes_.contains(id));
            constant = constant && nodes_[id].op == ScalarOp::Const;
        }
    }
    if (constant) {
        const ScalarNode zero;
        const DType operand = nodes_[node.op == ScalarOp::Select ? node.b : node.a].dtype;
        node = const_node(node.dtype,
                          eval_node(node, operand, value_of(nodes_[node.a]), value_of(n > 1 ? nodes_[node.b] : zero),
                                    value_of(n > 2 ? nodes_[node.c] : zero)));
    } else if (n > 0) {
        if (const ScalarId same = identity(*this, node)) return same;
    }
    if (node.op == ScalarOp::Const && std::isnan(node.value)) node.value = std::numeric_limits<double>::quiet_NaN();
    if (const ScalarId same = find(node)) return same;
    return nodes_.push_back(std::move(node));
}

ScalarId ScalarBody::find(const ScalarNode& node) {
    constexpr size_t kLarge = 64;  // nodes: for fewer, a linear search is faster than hashing
    if (nodes_.size() < kLarge) {
        for (size_t k = nodes_.size(); k-- > 0;)
            if (same_node(nodes_[ScalarId(k)], node)) return ScalarId(k);
        return {};
    }
    const auto place = [&](const ScalarNode& n) {
        size_t at = hash_of(n) & (table_.size() - 1);
        while (table_[at] != 0 && !same_node(nodes_[ScalarId(size_t{table_[at]} - 1)], n))
            at = (at + 1) & (table_.size() - 1);
        return at;
    };
    if (table_.size() < 2 * nodes_.size() + 2) {
        table_.assign(std::bit_ceil(4 * nodes_.size()), 0);
        for (const ScalarId id : nodes_.ids()) table_[place(nodes_[id])] = static_cast<uint32_t>(id.index() + 1);
    }
    uint32_t& found = table_[place(node)];
    if (found != 0) return ScalarId(size_t{found} - 1);
    found = static_cast<uint32_t>(nodes_.size() + 1);  // the entry of the new node
    return {};
}

ScalarId ScalarBody::constant(DType t, double v) { return add(const_node(t, scalar_from_double(compute_type(t), v))); }

ScalarId ScalarBody::int_constant(DType t, int64_t v) {
    return add(const_node(t, {static_cast<double>(v), is_float(t) ? 0 : v}));
}

ScalarId ScalarBody::access(uint32_t slot, DType storage) {
    ScalarNode n;
    n.op = ScalarOp::Access;
    n.dtype = compute_type(storage);
    n.slot = slot;
    return add(n);
}

ScalarId ScalarBody::index(Expr e) {
    if (e.is_constant()) return int_constant(DType::I64, e.constant());
    ScalarNode n;
    n.op = ScalarOp::Index;
    n.dtype = DType::I64;
    n.index = e;
    return add(n);
}

ScalarId ScalarBody::acc(DType t) {
    ScalarNode n;
    n.op = ScalarOp::Acc;
    n.dtype = compute_type(t);
    return add(n);
}

ScalarId ScalarBody::unary(ScalarOp op, ScalarId a) {
    const Gives gives = scalar_op_info(op).gives;
    TW_CHECK(arity(op) == 1 && gives != Gives::Own, "{}", to_string(op));
    ScalarNode n;
    n.op = op;
    n.a = a;
    n.dtype = gives == Gives::Bool ? DType::Bool : compute_type(nodes_[a].dtype);
    return add(n);
}

ScalarId ScalarBody::binary(ScalarOp op, ScalarId a, ScalarId b) {
    TW_CHECK(arity(op) == 2, "{}", to_string(op));
    const DType t = compute_type(nodes_[a].dtype), u = compute_type(nodes_[b].dtype);
    TW_CHECK(t == u, "{} of {} and {}", to_string(op), to_string(t), to_string(u));
    ScalarNode n;
    n.op = op;
    n.a = a;
    n.b = b;
    n.dtype = scalar_op_info(op).gives == Gives::Bool ? DType::Bool : t;
    return add(n);
}

ScalarId ScalarBody::select(ScalarId condition, ScalarId a, ScalarId b) {
    const DType t = compute_type(nodes_[a].dtype), u = compute_type(nodes_[b].dtype);
    TW_CHECK(nodes_[condition].dtype == DType::Bool, "select by {}", to_string(nodes_[condition].dtype));
    TW_CHECK(t == u, "select of {} and {}", to_string(t), to_string(u));
    ScalarNode n;
    n.op = ScalarOp::Select;
    n.a = condition;
    n.b = a;
    n.c = b;
    n.dtype = t;
    return add(n);
}

ScalarId ScalarBody::cast(DType t, ScalarId a) {
    ScalarNode n;
    n.op = ScalarOp::Cast;
    n.a = a;
    n.dtype = t;
    return add(n);
}

ScalarId ScalarBody::bitcast(DType t, ScalarId a) {
    TW_CHECK(byte_size(t) == byte_size(nodes_[a].dtype), "bitcast of {} to {}", to_string(nodes_[a].dtype),
             to_string(t));
    ScalarNode n;
    n.op = ScalarOp::Bitcast;
    n.a = a;
    n.dtype = t;
    return add(n);
}

ScalarId ScalarBody::table(DType t, std::shared_ptr<const std::vector<double>> numbers, ScalarId position) {
    TW_CHECK(numbers != nullptr && (t == DType::F32 || t == DType::F64) && nodes_[position].dtype == DType::I64);
    if (t == DType::F32)
        for (const double v : *numbers) TW_CHECK(std::isnan(v) || static_cast<float>(v) == v, "{} is not an f32", v);
    ScalarNode n;
    n.op = ScalarOp::Table;
    n.a = position;
    n.dtype = t;
    n.table = std::move(numbers);
    return add(std::move(n));
}

ScalarId ScalarBody::inline_body(const ScalarBody& other,
                                 const std::function<ScalarId(ScalarBody&, const ScalarNode&)>& map_leaf) {
    TW_CHECK(!other.empty());
    if (&other == this) return inline_body(ScalarBody(other), map_leaf);
    std::vector<ScalarId> moved(other.nodes().size());
    for (const ScalarId id : postorder(other)) {
        ScalarNode n = other[id];
        ScalarId& to = moved[id.index()];
        if (arity(n.op) == 0 && n.op != ScalarOp::Const && map_leaf) {
            to = map_leaf(*this, n);
            TW_CHECK(!to || compute_type(nodes_[to].dtype) == compute_type(n.dtype),
                     "a leaf of type {} replaced by one of type {}", to_string(n.dtype), to_string(nodes_[to].dtype));
        }
        if (to) continue;
        for (ScalarId* operand : {&n.a, &n.b, &n.c})
            if (*operand) *operand = moved[operand->index()];
        to = add(std::move(n));
    }
    return moved[other.root().index()];
}

ScalarBody ScalarBody::pruned() const {
    ScalarBody out;
    if (!empty()) out.root_ = out.inline_body(*this, nullptr);
    return out;
}

std::vector<uint32_t> ScalarBody::slots() const {
    std::set<uint32_t> found;
    for (const ScalarId id : postorder(*this))
        if (nodes_[id].op == ScalarOp::Access) found.insert(nodes_[id].slot);
    return {found.begin(), found.end()};
}

bool ScalarBody::uses_acc() const {
    const std::vector<ScalarId> needed = postorder(*this);
    return std::any_of(needed.begin(), needed.end(), [&](ScalarId id) { return nodes_[id].op == ScalarOp::Acc; });
}

bool operator==(const ScalarBody& x, const ScalarBody& y) {
    const ScalarBody p = x.pruned(), q = y.pruned();
    return p.root_ == q.root_ &&
           std::equal(p.nodes_.begin(), p.nodes_.end(), q.nodes_.begin(), q.nodes_.end(), same_node);
}

}  // namespace tilewright
