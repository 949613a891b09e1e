#pragma once
// The texts of a model's kernels without names, and their hashes: two builds of the compiler that generate the same
// kernels give the same texts. scripts/replay.py compares the hashes over many models.

#include <string>
#include <vector>

#include "model/session.h"

namespace tilewright {

struct KernelTexts {
    std::string name;  ///< of the tile program, for display; not part of the texts
    size_t stages = 0, calls = 0;
    std::string tiles;  ///< canonical_text: stages and schedule
    std::string code;   ///< LLVM IR before optimisation, without target triple and data layout; or CUDA text
};

/// The texts of all kernels, in the order of CompiledModel::kernels(). Works without machine code
/// (CompileOptions::code).
std::vector<KernelTexts> kernel_texts(const CompiledModel& model);

/// 16 hexadecimal digits.
std::string text_hash(std::string_view text);

/// One line per kernel: hashes of both texts, number of steps that run it, number of its stages, name:
///
///   tiles 0f1e2d3c4b5a6978 llvm 8796a5b4c3d2e1f0 calls 2 stages 1 Conv_3
std::string print_hashes(const CompiledModel& model, const std::vector<KernelTexts>& kernels);

/// Writes each text to the file HASH.txt in the folder, which is created; existing files are kept.
void save_texts(const std::vector<KernelTexts>& kernels, const std::string& folder);

}  // namespace tilewright
