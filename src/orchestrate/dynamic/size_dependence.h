#pragma once
// What a kernel's estimate depends on: for many sizes of a model it is the same.

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "index/expr.h"
#include "program/sizes.h"
#include "tile/tile.h"

namespace tilewright::dynamic {

/// The maximal subexpressions of a kernel's stages that mention symbols or scalars and no axis, each once. Stages that
/// agree in their values are the same.
///     x[i0, i1 + 1] when $h // 16 - i1 >= 2, over [$n, $h // 16]  ->  $n, $h // 16
std::vector<Expr> size_expressions(const Program& stages);

/// A function of a kernel and its sizes that is evaluated once for each combination of size_expressions(). May be
/// called by several threads at once; `kernel` must outlive it.
class BySize {
  public:
    BySize(const TileProgram& kernel, std::function<double(const TileProgram&, const Bindings&)> of);
    double operator()(const Bindings& sizes);

  private:
    const TileProgram& kernel_;
    std::function<double(const TileProgram&, const Bindings&)> of_;
    std::vector<Expr> expressions_;
    std::mutex mutex_;
    std::map<std::vector<int64_t>, double> known_;
};

}  // namespace tilewright::dynamic
