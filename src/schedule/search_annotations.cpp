#include "schedule/search_annotations.h"

#include "tile/annotate/variants.h"

namespace tilewright {

namespace {

Micro& micro_at(TileProgram& program, const TreePath& path) {
    std::vector<Stmt>* body = &program.body;
    for (size_t k = 0; k + 1 < path.size(); ++k) body = &std::get<TileLoop>(body->at(path[k]).kind).body;
    return std::get<Compute>(body->at(path.back()).kind).micro;
}

}  // namespace

TileProgram search_annotations(TileProgram program, const KernelCosts& costs, const AnnotateOptions& options) {
    const TileProgram given = program;  // paths and sites do not depend on annotations
    const Walk tree = walk(given);
    for (const auto& [path, compute] : tree.computes) {
        std::vector<TileProgram> candidates{program};
        const StageSite site = site_of(given, tree, path, *compute);
        for (Annotations& a : annotation_variants(compute->micro.annotations, site, options)) {
            candidates.push_back(program);
            micro_at(candidates.back(), path).annotations = std::move(a);
        }
        if (candidates.size() > 1) program = fastest(std::move(candidates), costs);
    }
    return program;
}

}  // namespace tilewright
