#pragma once
// The half of verify(TileProgram) that looks at the tree: whoever makes many trees for the same stages asks it alone.

#include <string>
#include <vector>

#include "tile/tile.h"

namespace tilewright {

std::vector<std::string> verify_tree(const TileProgram& program);

}  // namespace tilewright
