#pragma once
// Annotations of kernels on a GPU (tile/annotations.h): what its threads read and write at a time, how copies are made,
// what is unrolled.
//
//     load 0 access 1 layout "" padding local
//     compute 0 vector n lanes 4 registers [m=8 n=4 k=8] padding local
//     store c padding local
//     ->
//     load 0 access 1 layout "" padding local copy [0 1] by 4 async
//     compute 0 vector n lanes 4 registers [m=8 n=4 k=8] padding local unroll [k=8] read 0 by 4 read 1 by 4 write by 1
//     store c padding local copy by 4

#include <string>
#include <vector>

#include "tile/gpu_block.h"

namespace tilewright::gpu {

/// The program with all annotations of a GPU: those it has stay, absent ones are derived.
TileProgram annotate(TileProgram program, const BlockLimits& limits);

/// Whether a statement has an annotation of a GPU.
bool has_annotations(const Walk& walk);
/// One sentence for each annotation that the code cannot follow at its place, of a program that is valid but for those:
/// vectors that may cross the end of an axis, or whose address is not a multiple of their size.
std::vector<std::string> annotation_faults(const TileProgram& program, const BlockLimits& limits);

/// Why the blocks of a program that is valid but for that cannot add the parts of its sum (split-K): their extents are
/// not constant, or the sums do not stay in registers through the loops of a block.
std::vector<std::string> split_faults(const TileProgram& program, const BlockLimits& limits);

/// For searches: `given` with one annotation of a statement set to another legal value than the one that it has, or
/// that `annotate` derives; other annotations stay as given.
///     read 1 by 4 write by 1  ->  read 1 by 2 ...;  read 1 by 1 ...
std::vector<TileProgram> annotation_variants(const TileProgram& given, const TreePath& statement,
                                             const BlockLimits& limits);

}  // namespace tilewright::gpu
