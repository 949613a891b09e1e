#pragma once
// Skeletons of exported models (../shared/models/suite; fill_weights.py there says how they are completed).

#include <filesystem>

#include "graph/graph.h"

namespace tilewright::test {

inline const std::filesystem::path kSharedModels = std::filesystem::path(TW_SOURCE_DIR) / "../shared/models";

/// The model, with weights that are cheap to make and all different. Fails the test where a tensor has a type that no
/// skeleton has.
Model from_skeleton(const std::filesystem::path& path);

}  // namespace tilewright::test
