#include "orchestrate/plan.h"

#include <fmt/format.h>

namespace tilewright {

size_t KernelSet::add(TileProgram kernel, const std::string& provider, const std::vector<bool>& weights) {
    std::string text = print_without_names(kernel);
    if (!provider.empty()) {
        text += provider + ' ';
        for (const bool weight : weights) text += weight ? 'c' : 'v';
    }
    const auto [it, fresh] = by_text_.try_emplace(std::move(text), kernels_.size());
    if (fresh) {
        kernels_.push_back(std::move(kernel));
        provided_.push_back({provider, provider.empty() ? std::vector<bool>() : weights});
    }
    return it->second;
}

std::string Plan::print() const {
    std::string s;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (const auto* call = std::get_if<KernelCall>(&steps[i].what)) {
            s += fmt::format("{:4} kernel {} \"{}\" (", i, call->kernel, call->name);
            if (call->way) s.insert(s.size() - 1, fmt::format("region {} way {} ", call->way->region, call->way->way));
            for (size_t k = 0; k < call->tensors.size(); ++k)
                s += fmt::format("{}{}: {}{}", k > 0 ? ", " : "", program.values[call->tensors[k]].name,
                                 tilewright::to_string(program.values[call->tensors[k]].dtype),
                                 tilewright::to_string(std::span<const Expr>(program.values[call->tensors[k]].shape)));
            s += ")\n";
        } else {
            s += fmt::format("{:4} {}\n", i, program.primitives[std::get<PrimitiveId>(steps[i].what)].name);
        }
        for (const auto& body : steps[i].bodies) s += "  body:\n" + body->print();
    }
    for (const Slices& x : slices)
        s += fmt::format("steps {} to {} in {} slices\n", x.first, x.first + x.count - 1, x.slices);
    for (size_t r = 0; r < regions.size(); ++r)
        s += fmt::format("region {} \"{}\": {}\n", r, regions[r].name, regions[r].dispatch.print());
    if (optimal) s += "optimal: " + optimal->print() + "\n";
    return s;
}

}  // namespace tilewright
