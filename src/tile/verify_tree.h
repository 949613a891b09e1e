#pragma once
// The part of verify(TileProgram) that checks the tree, for callers that build many trees for the same stages.

#include <string>
#include <vector>

#include "tile/tile.h"

namespace tilewright {

std::vector<std::string> verify_tree(const TileProgram& program);

}  // namespace tilewright
