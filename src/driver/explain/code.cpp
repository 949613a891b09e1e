#include <fmt/format.h>

#include "backend/cpu/kernel.h"
#include "backend/cuda/kernel.h"
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
    const bool gpu = model.target().gpu.has_value();
    for (size_t k = 0; k < model.kernels().size(); ++k) {
        const TileProgram& tiles = model.kernels()[k];
        const std::string text = !assembly ? ""
                                 : gpu     ? model.gpu_kernels().at(k).text
                                           : cpu::print_assembly(tiles, model.target());
        out.push_back({print(tiles), shortened(text)});
    }
    return out;
}

}  // namespace tilewright::explain
