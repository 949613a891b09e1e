#pragma once
// Machine code of NVIDIA GPUs as `nvdisasm -c` prints it: instructions, and the natural loops of their flow graph.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::cuda {

struct SassInstruction {
    std::string predicate;         ///< "P0", "!UP1"; empty: none
    std::string opcode;            ///< with modifiers: "HGMMA.64x256x16.F32"
    std::string operands;          ///< "R1, c[0x0][0x28]"
    std::optional<size_t> target;  ///< of a branch: the instruction that it may continue with

    /// Whether the opcode is `name`, or `name` and modifiers.
    bool is(std::string_view name) const;
    /// Whether control never reaches the instruction behind this one.
    bool ends_flow() const;
};

struct SassKernel {
    std::string name;
    std::vector<SassInstruction> instructions;  ///< without the padding behind the last one
};

/// A natural loop: the target of a back edge, which dominates its source, and what reaches that source without passing
/// the target. Loops with one target are one.
struct SassLoop {
    std::vector<size_t> instructions;  ///< ascending
    std::optional<size_t> parent;      ///< the loop directly around it
    size_t depth = 1;                  ///< 1: no loop is around it
};

/// The functions of a listing. Throws InternalError for a line in a function that is neither an instruction, a label
/// nor a directive.
std::vector<SassKernel> parse_sass(const std::string& listing);

/// Outer loops before inner ones. Calls of functions of the kernel continue behind the call; their bodies are in no
/// loop.
std::vector<SassLoop> sass_loops(const SassKernel& kernel);

/// The number of instructions on the shortest way through these: from the first of `passed` to the last, in that order,
/// and back to the first where these are of a loop.
size_t shortest_way(const SassKernel& kernel, const std::vector<size_t>& instructions,
                    const std::vector<size_t>& passed);

}  // namespace tilewright::cuda
