#include "orchestrate/joint/point_layouts.h"

#include "layout/propagate.h"
#include "orchestrate/optimal/options.h"

namespace tilewright::joint {

std::vector<Layout> PointLayouts::at(const LayoutTemplate& of, const LayoutPoint& point) const {
    const LayoutRequests requests = of.requests(point);
    std::vector<Layout> out = rule_;
    const TensorExpr& e = *single_.primitive().expr();
    const ValueId result = single_.program.outputs[0];
    out.back() = requests.written.at(result);
    for (size_t t = 0; t + 1 < out.size(); ++t) {
        const ValueId v = single_.value(t);
        bool requested = false;
        for (size_t slot = 0; slot < e.accesses.size(); ++slot) {
            if (e.accesses[slot].value != v) continue;
            const auto r = requests.read.find({PrimitiveId(0), slot});
            if (r != requests.read.end() && !requested) {
                out[t] = r->second;
                requested = true;
            } else if (r == requests.read.end() && !requested && e.accesses[slot].index == result_index(e) &&
                       single_.program.values[v].shape == single_.program.values[result].shape) {
                out[t] = out.back();
            }
        }
    }
    return out;
}

std::vector<bool> PointLayouts::relevant(const LayoutTemplate& of) const {
    LayoutPoint whole;
    for (const LayoutParameter& p : of.parameters()) whole.push_back(p.factors.back());
    const std::string text = text_of(at(of, whole));
    std::vector<bool> out;
    for (size_t k = 0; k < whole.size(); ++k) {
        bool differs = false;
        for (const int64_t f : of.parameters()[k].factors) {
            LayoutPoint p = whole;
            p[k] = f;
            differs = differs || (of.valid(p) && text_of(at(of, p)) != text);
        }
        out.push_back(differs);
    }
    return out;
}

LayoutCandidate PointLayouts::candidate(std::vector<Layout> layouts) {
    LayoutCandidate c;
    for (size_t t = 0; t + 1 < layouts.size(); ++t)
        if (expands(layouts[t], single_.program.values[single_.value(t)].shape))
            c.conversions += conversion(t, layouts[t]);
    c.layouts = std::move(layouts);
    return c;
}

double PointLayouts::conversion(size_t tensor, const Layout& to) {
    const auto [it, fresh] = converted_.try_emplace({tensor, print(to)}, 0.0);
    if (fresh) {
        const SinglePrimitive copy = single_copy(single_.program, single_.value(tensor));
        it->second = kKernelSeconds + how_.by_rule({&copy, {rule_[tensor], to}});
    }
    return it->second;
}

}  // namespace tilewright::joint
