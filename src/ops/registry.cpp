#include <map>
#include <utility>

#include "ops/families.h"

namespace tilewright {

const std::vector<OpRule>& op_rules() {
    static const std::vector<OpRule> rules = [] {
        std::vector<OpRule> all;
        for (const auto family : {
                 elementwise_rules,    activation_rules, cast_rules,      layout_rules,    slice_rules, shape_rules,
                 gather_scatter_rules, control_rules,    conv_rules,      pool_rules,      norm_rules,  matmul_rules,
                 reduce_rules,         softmax_rules,    resize_rules,    opaque_rules,    quant_rules, signal_rules,
                 contrib_quant_rules,  vision_rules,     recurrent_rules, attention_rules,
             }) {
            const std::vector<OpRule> some = family();
            all.insert(all.end(), some.begin(), some.end());
        }
        return all;
    }();
    return rules;
}

const OpRule* find_rule(std::string_view domain, std::string_view op, int64_t opset) {
    using Key = std::pair<std::string_view, std::string_view>;
    static const std::map<Key, std::map<int64_t, const OpRule*>> table = [] {
        std::map<Key, std::map<int64_t, const OpRule*>> t;
        for (const OpRule& r : op_rules()) t[{r.domain, r.op}][r.since] = &r;
        return t;
    }();
    const auto versions = table.find({domain, op});
    if (versions == table.end()) return nullptr;
    const auto after = versions->second.upper_bound(opset);
    return after == versions->second.begin() ? nullptr : std::prev(after)->second;
}

}  // namespace tilewright
