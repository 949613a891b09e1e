#pragma once
// What the annotations of a tile program depend on of the machine.

#include "cost/target.h"
#include "tile/annotate/annotate.h"

namespace tilewright {

AnnotateOptions annotate_options(const GpuTarget& gpu);
AnnotateOptions annotate_options(const Target& target);

}  // namespace tilewright
