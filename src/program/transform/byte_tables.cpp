#include "program/transform/byte_tables.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "program/analysis/rounded.h"
#include "program/analysis/scalar_cost.h"

namespace tilewright {

namespace {

constexpr double kLeastOperations = 24;  // a lookup takes the time of about 16

class Tabulator {
  public:
    explicit Tabulator(const ScalarBody& body) : from_(body), replaced_(body.nodes().size()) {}

    std::optional<ScalarBody> run() {
        for (const ScalarId id : from_.nodes().ids())
            if (is_byte(from_[id].dtype) && from_[id].op != ScalarOp::Const && !replaced_[id.index()]) functions_of(id);
        if (!changed_) return std::nullopt;
        moved_.assign(from_.nodes().size(), {});
        out_.set_root(copy(from_.root()));
        return std::move(out_);
    }

  private:
    struct Lookup {
        ScalarId byte;
        std::shared_ptr<const std::vector<double>> numbers;
    };

    /// Finds the largest functions of a byte among the nodes behind it.
    void functions_of(ScalarId byte) {
        const size_t n = from_.nodes().size();
        enum class Of : uint8_t { Constants, Byte, More };
        std::vector<Of> of(n, Of::More);
        for (const ScalarId id : from_.nodes().ids()) {
            const ScalarNode& node = from_[id];
            if (id == byte) {
                of[id.index()] = Of::Byte;
                continue;
            }
            if (node.op == ScalarOp::Const) of[id.index()] = Of::Constants;
            if (arity(node.op) == 0) continue;
            Of sum = Of::Constants;
            for (const ScalarId k : {node.a, node.b, node.c})
                if (k) sum = std::max(sum, of[k.index()]);
            of[id.index()] = sum;
        }
        for (const ScalarId id : from_.nodes().ids()) {
            // What a table holds: floats, and bytes, which floats represent.
            const DType t = from_[id].dtype;
            if (id == byte || of[id.index()] != Of::Byte || (t != DType::F32 && !is_byte(t))) continue;
            const bool outermost = id == from_.root() ||
                                   is_read_outside(id, [&](ScalarId reader) { return of[reader.index()] != Of::Byte; });
            if (!outermost || replaced_[id.index()]) continue;
            ScalarBody function;
            function.set_root(with_byte(function, id, byte, function.access(0, from_[byte].dtype)));
            if (body_operations(function) < kLeastOperations) continue;
            if (auto numbers = numbers_of(id, byte)) {
                replaced_[id.index()] = Lookup{byte, std::move(numbers)};
                changed_ = true;
            }
        }
    }

    template <class Outside>
    bool is_read_outside(ScalarId id, const Outside& outside) const {
        for (const ScalarId reader : from_.nodes().ids()) {
            const ScalarNode& n = from_[reader];
            if ((n.a == id || n.b == id || n.c == id) && outside(reader)) return true;
        }
        return false;
    }

    /// Copies what `id` computes, with `by` in place of the byte.
    ScalarId with_byte(ScalarBody& to, ScalarId id, ScalarId byte, ScalarId by) const {
        std::vector<ScalarId> moved(from_.nodes().size());
        moved[byte.index()] = by;
        for (const ScalarId k : from_.nodes().ids()) {
            if (k == byte || k.index() > id.index()) continue;
            ScalarNode n = from_[k];
            bool known = n.op == ScalarOp::Const || arity(n.op) > 0;
            for (ScalarId* operand : {&n.a, &n.b, &n.c}) {
                if (!*operand) continue;
                *operand = moved[operand->index()];
                known = known && *operand;
            }
            if (known) moved[k.index()] = to.add(std::move(n));
        }
        return moved[id.index()];
    }

    /// The function of all bytes; null if some operator is not computed at compile time.
    std::shared_ptr<const std::vector<double>> numbers_of(ScalarId id, ScalarId byte) const {
        const DType t = from_[byte].dtype;
        std::vector<double> numbers;
        for (int64_t k = 0; k < 256; ++k) {
            ScalarBody b;
            const ScalarNode result = b[with_byte(b, id, byte, b.int_constant(t, t == DType::U8 ? k : k - 128))];
            if (result.op != ScalarOp::Const) return nullptr;
            const double v = is_float(result.dtype) ? result.value : static_cast<double>(result.int_value);
            numbers.push_back(static_cast<double>(static_cast<float>(v)));
        }
        return std::make_shared<const std::vector<double>>(std::move(numbers));
    }

    ScalarId copy(ScalarId id) {
        if (moved_[id.index()]) return moved_[id.index()];
        if (const std::optional<Lookup>& lookup = replaced_[id.index()]) {
            ScalarId position = out_.cast(DType::I64, copy(lookup->byte));
            if (from_[lookup->byte].dtype == DType::I8)
                position = out_.binary(ScalarOp::Add, position, out_.int_constant(DType::I64, 128));
            const ScalarId result = out_.table(DType::F32, lookup->numbers, position);
            return moved_[id.index()] = out_.cast(from_[id].dtype, result);
        }
        ScalarNode n = from_[id];
        for (ScalarId* operand : {&n.a, &n.b, &n.c})
            if (*operand) *operand = copy(*operand);
        return moved_[id.index()] = out_.add(std::move(n));
    }

    const ScalarBody& from_;
    std::vector<std::optional<Lookup>> replaced_;
    std::vector<ScalarId> moved_;
    ScalarBody out_;
    bool changed_ = false;
};

}  // namespace

Program tabulate_bytes(Program program) {
    for (Primitive& p : program.primitives) {
        TensorExpr* e = p.expr();
        if (e == nullptr) continue;
        for (ScalarBody* body : {&e->body, &e->epilogue})
            if (!body->empty())
                if (auto better = Tabulator(*body).run()) *body = std::move(*better);
    }
    return program;
}

}  // namespace tilewright
