// Stands for src/backend/cpu in a command line without LLVM (target tilewright_gpu), small enough to be carried to a
// machine with a GPU. Models for GPUs need no machine code for CPUs; what does is an error.

#include "backend/cpu/kernel.h"
#include "backend/cpu/shared_object.h"
#include "backend/cpu/shared_object_view.h"
#include "base/error.h"

namespace tilewright::cpu {

namespace {

[[noreturn]] void refuse() {
    throw RuntimeError("this program was built without LLVM, for GPUs alone: use --target cuda");
}

}  // namespace

LlvmCpu llvm_cpu(const Target&) { refuse(); }

std::vector<CompiledKernel> compile(const std::vector<const TileProgram*>& programs, const Target&,
                                    const std::shared_ptr<const CodeCache>&, bool) {
    if (programs.empty()) return {};
    refuse();
}
CompiledKernel compile(const TileProgram&, const Target&, const std::shared_ptr<const CodeCache>&) { refuse(); }

std::string print_emitted(const TileProgram&, const Target&) { refuse(); }
std::string print_llvm(const TileProgram&, const Target&) { refuse(); }
std::string print_assembly(const TileProgram&, const Target&) { refuse(); }

void link_shared_object(const SharedObject&, const std::string&) { refuse(); }
std::string linked_shared_object(const SharedObject&) { refuse(); }
void write_archive(const SharedObject&, const std::string&) { refuse(); }
SharedObjectView view_shared_object(std::string_view, std::string_view, uint32_t) { refuse(); }

}  // namespace tilewright::cpu
