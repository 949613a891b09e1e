#pragma once
// TileProgram -> CUDA C++.
//
// A point of the grid is a block; its threads share the work of every statement (tile/gpu_partition.h). Buffers lie in
// shared memory, packed by their lives. Barriers stand where a statement touches what another one wrote, or overwrites
// what another one read, since the last (barriers.h). The text calls nothing but the functions of device/common.cuh, so
// that the same text runs on a GPU and, in plain C++, under lockstep.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/gpu_target.h"
#include "tile/tile.h"

namespace tilewright::cuda {

/// A kernel as text, and what a launch needs.
struct KernelText {
    struct Argument {
        std::string name;
        DType dtype = DType::F32;
        bool written = false;
    };
    /// A tensor whose boxes TMA reads (sm_90a): the arguments of cuTensorMapEncodeTiled.
    struct Map {
        size_t tensor = 0;          ///< of `tensors`
        std::vector<Expr> extents;  ///< innermost first, over `names`; the tensor is row-major
        std::vector<int64_t> box;   ///< elements along each
        int swizzle = 0;            ///< bytes of a row of the copy (Load::swizzle)
    };
    std::string name;               ///< of the function; a C++ identifier
    std::string text;               ///< the function alone, to stand behind device_header()
    std::vector<Argument> tensors;  ///< inputs, then outputs, of TileProgram::stages: pointers
    std::vector<Var> names;         ///< symbols and scalars: i64 arguments behind the pointers
    std::vector<Map> maps;          ///< CUtensorMap arguments behind all others
    std::vector<Expr> grid;         ///< trip counts of the parallel loops; their product is the number of blocks
    int threads = 32;               ///< of a block, whole warps
    int64_t shared_bytes = 0;       ///< dynamic shared memory of a block
    int64_t scratch_bytes = 0;  ///< of memory a block needs besides, for buffers that do not fit and for its parts of
                                ///< sums; if any, a pointer to that of all blocks stands behind the tensors
    /// Numbers of 32 bits by which blocks count those that have their parts of a sum (split-K), over `names`; if any, a
    /// pointer to them stands behind the scratch memory. They are 0 before the kernel runs and, again, behind it, so
    /// one memory serves all launches that do not overlap.
    std::optional<Expr> counters = {};
    /// Pointers among the arguments, which come first.
    size_t pointers() const { return tensors.size() + (scratch_bytes > 0 ? 1 : 0) + (counters ? 1 : 0); }
    int64_t counter_bytes(const Bindings& bindings) const { return counters ? 4 * evaluate(*counters, bindings) : 0; }
};

/// `function`: its name; empty: the program's, as an identifier. Values that do not fit the shared memory are kept in
/// memory; throws RuntimeError where the copies that Loads make do not fit either, InternalError where a buffer has no
/// constant bound.
KernelText generate(const TileProgram& program, const GpuTarget& target, const std::string& function = "");

/// What stands in front of kernels that NVRTC compiles.
std::string device_header();

}  // namespace tilewright::cuda
