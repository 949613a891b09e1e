#include "schedule/search_annotations.h"

#include "tile/annotate/gpu.h"
#include "tile/annotate/variants.h"

namespace tilewright {

namespace {

Micro& micro_at(TileProgram& program, const TreePath& path) {
    std::vector<Stmt>* body = &program.body;
    for (size_t k = 0; k + 1 < path.size(); ++k) body = &std::get<TileLoop>(body->at(path[k]).kind).body;
    return std::get<Compute>(body->at(path.back()).kind).micro;
}

/// Of a GPU: of every statement, not of its Computes alone.
TileProgram search_statements(TileProgram program, const KernelCosts& costs, const gpu::BlockLimits& limits) {
    const Walk tree = walk(program);
    std::vector<TreePath> statements;
    for (const auto& [path, load] : tree.loads) statements.push_back(path);
    for (const auto& [path, compute] : tree.computes) statements.push_back(path);
    for (const auto& [path, store] : tree.stores) statements.push_back(path);
    for (const TreePath& path : statements) {
        std::vector<TileProgram> candidates = gpu::annotation_variants(program, path, limits);
        if (candidates.empty()) continue;
        candidates.insert(candidates.begin(), std::move(program));
        program = fastest(std::move(candidates), costs);
    }
    return program;
}

}  // namespace

std::vector<std::vector<TileProgram>> annotation_neighbours(const TileProgram& program,
                                                            const AnnotateOptions& options) {
    std::vector<std::vector<TileProgram>> out;
    const Walk tree = walk(program);
    for (const auto& [path, compute] : tree.computes) {
        std::vector<TileProgram>& neighbours = out.emplace_back();
        const StageSite site = site_of(program, tree, path, *compute);
        for (Annotations& a : annotation_variants(compute->micro.annotations, site, options)) {
            neighbours.push_back(program);
            micro_at(neighbours.back(), path).annotations = std::move(a);
        }
    }
    return out;
}

TileProgram search_annotations(TileProgram program, const KernelCosts& costs, const AnnotateOptions& options) {
    if (options.gpu) return search_statements(std::move(program), costs, *options.gpu);
    const size_t computes = annotation_neighbours(program, options).size();
    for (size_t k = 0; k < computes; ++k) {
        std::vector<TileProgram> candidates = std::move(annotation_neighbours(program, options)[k]);
        if (candidates.empty()) continue;
        candidates.insert(candidates.begin(), program);
        program = fastest(std::move(candidates), costs);
    }
    return program;
}

}  // namespace tilewright
