#pragma once
// Which values a block keeps in the registers of its threads.
//
// The sums of a product are added to in every step of the loop over k: in shared memory they would be read and written
// once a step. Where each element of a value is computed by one thread, and read by nobody but statements that go
// through the same elements one by one (a Store, an elementwise stage), those adopt the same share of the threads, and
// the value stays where it was computed:
//
//     for k { load A; load B; compute C }; store C      C: registers, in the tile of C's Compute
//     for n { ...; compute E online }; compute O = E/s  E: registers; O runs in E's tile

#include <map>

#include "backend/cuda/partition.h"
#include "tile/walk.h"

namespace tilewright::cuda {

/// By the value: how its elements are shared out, for its Compute, its Store and the Computes that read it.
using RegisterValues = std::map<ValueId, Partition>;

RegisterValues register_values(const TileProgram& program, int threads);

}  // namespace tilewright::cuda
