#include <fmt/format.h>

#include "backend/cpu/kernel.h"
#include "driver/explain/write.h"

namespace tilewright::explain {

namespace {

/// The first and last instructions of long code, to limit the size of the page.
std::string shortened(const std::string& assembly) {
    constexpr size_t kHead = 6000, kTail = 1000;
    if (assembly.size() <= kHead + kTail) return assembly;
    const size_t head = assembly.rfind('\n', kHead), tail = assembly.find('\n', assembly.size() - kTail);
    return fmt::format("{}\n\n... {} bytes ...\n{}", assembly.substr(0, head), tail - head, assembly.substr(tail));
}

}  // namespace

std::vector<CodeText> codes_of(const CompiledModel& model, bool assembly) {
    std::vector<CodeText> out;
    for (const TileProgram& k : model.kernels())
        out.push_back({print(k), assembly ? shortened(cpu::print_assembly(k, model.target())) : ""});
    return out;
}

}  // namespace tilewright::explain
