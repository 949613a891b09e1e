#include <map>
#include <utility>

#include "ops/families.h"

namespace tilewright {

const std::vector<OpLowering>& op_lowerings() {
    static const std::vector<OpLowering> lowerings = [] {
        std::vector<OpLowering> all;
        for (const auto family : {
                 elementwise_lowerings,
                 activation_lowerings,
                 cast_lowerings,
                 layout_lowerings,
                 slice_lowerings,
                 shape_lowerings,
                 gather_scatter_lowerings,
                 control_lowerings,
                 conv_lowerings,
                 pool_lowerings,
                 norm_lowerings,
                 matmul_lowerings,
                 reduce_lowerings,
                 softmax_lowerings,
                 resize_lowerings,
                 opaque_lowerings,
                 quant_lowerings,
                 signal_lowerings,
                 contrib_quant_lowerings,
                 vision_lowerings,
                 recurrent_lowerings,
                 attention_lowerings,
                 contrib_activation_lowerings,
                 contrib_attention_lowerings,
                 contrib_conv_lowerings,
                 contrib_gqa_lowerings,
                 contrib_matmul_lowerings,
                 contrib_norm_lowerings,
                 contrib_weights_lowerings,
             }) {
            const std::vector<OpLowering> some = family();
            all.insert(all.end(), some.begin(), some.end());
        }
        return all;
    }();
    return lowerings;
}

const OpLowering* find_lowering(std::string_view domain, std::string_view op, int64_t opset) {
    using Key = std::pair<std::string_view, std::string_view>;
    static const std::map<Key, std::map<int64_t, const OpLowering*>> table = [] {
        std::map<Key, std::map<int64_t, const OpLowering*>> t;
        for (const OpLowering& r : op_lowerings()) t[{r.domain, r.op}][r.since] = &r;
        return t;
    }();
    const auto versions = table.find({domain, op});
    if (versions == table.end()) return nullptr;
    const auto after = versions->second.upper_bound(opset);
    return after == versions->second.begin() ? nullptr : std::prev(after)->second;
}

}  // namespace tilewright
