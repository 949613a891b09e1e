#pragma once
// The half of verify(TileProgram) that looks at the tree, for callers that make many trees for the same stages.

#include <string>
#include <vector>

#include "tile/tile.h"

namespace tilewright {

std::vector<std::string> verify_tree(const TileProgram& program);

}  // namespace tilewright
