#include "program/transform/widen_storage.h"

#include <algorithm>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"

namespace tilewright {

namespace {

constexpr int64_t kFewRows = 16;                // fewer do not repay reading twice the bytes
constexpr int64_t kLargest = int64_t{1} << 16;  // elements of a constant that stays in the caches

class Widener {
  public:
    Widener(Program program, const std::set<DType>& types) : p_(std::move(program)), types_(types) {}

    Program run() {
        const std::set<ValueId> fixed = fixed_values();
        for (const ValueId v : p_.values.ids()) {
            if (types_.count(p_.values[v].dtype) == 0 || fixed.count(v) != 0) continue;
            if (p_.is_constant(v)) widen_contents(v);
            p_.values[v].dtype = DType::F32;
        }
        return std::move(p_);
    }

  private:
    std::set<ValueId> fixed_values() const {
        std::set<ValueId> out(p_.inputs.begin(), p_.inputs.end());
        out.insert(p_.outputs.begin(), p_.outputs.end());
        for (const Primitive& q : p_.primitives) {
            const TensorExpr* e = q.expr();
            if (e != nullptr) {
                if (const auto w = streamed_weights(*e)) out.insert(*w);
                continue;
            }
            for (const ValueId v : q.inputs()) out.insert(v);
            out.insert(q.outputs.begin(), q.outputs.end());
        }
        return out;
    }

    /// Constant weights of a product whose time is that of reading them.
    std::optional<ValueId> streamed_weights(const TensorExpr& e) const {
        const auto c = contraction(e);
        if (!c || !c->reads_two()) return std::nullopt;
        for (const Contraction::Factor& f : c->factors) {
            const Access& w = e.accesses[*f.slot];
            const auto constant = p_.constants.find(w.value);
            if (constant == p_.constants.end() || constant->second.count() < kLargest) continue;
            int64_t rows = 1;
            for (size_t a = 0; a < e.spatial; ++a)
                if (!index_uses(w.index, a))
                    rows *= e.extents[a].is_constant() ? std::min<int64_t>(e.extents[a].constant(), kFewRows) : 0;
            if (rows < kFewRows) return w.value;
        }
        return std::nullopt;
    }

    void widen_contents(ValueId v) {
        const Tensor from = p_.constants.at(v);
        Tensor to(DType::F32, from.shape(), false);
        if (p_.unread.count(v) == 0) {
            const std::span<const uint16_t> x = from.as<uint16_t>();
            const std::span<float> y = to.as_mutable<float>();
            const bool half = from.dtype() == DType::F16;
            for (size_t i = 0; i < x.size(); ++i) y[i] = half ? half_to_float(x[i]) : bfloat16_to_float(x[i]);
        }
        p_.constants.at(v) = std::move(to);
    }

    Program p_;
    const std::set<DType>& types_;
};

}  // namespace

Program widen_storage(Program program, const std::set<DType>& types) {
    return Widener(std::move(program), types).run();
}

}  // namespace tilewright
