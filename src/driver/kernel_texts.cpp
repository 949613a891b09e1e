#include "driver/kernel_texts.h"

#include <fmt/format.h>

#include <filesystem>

#include "backend/cpu/kernel.h"
#include "base/error.h"
#include "base/hash.h"
#include "driver/files.h"
#include "model/model_sources.h"
#include "tune/canonical.h"

namespace tilewright {

namespace {

void count_calls(const Plan& plan, std::vector<KernelTexts>& kernels) {
    for (const Step& s : plan.steps) {
        if (const auto* call = std::get_if<KernelCall>(&s.what)) ++kernels.at(call->kernel).calls;
        for (const auto& body : s.bodies) count_calls(*body, kernels);
    }
}

/// The module without target triple and data layout, which depend on the host.
std::string without_system(const std::string& module) {
    std::string out;
    size_t at = 0;
    while (at < module.size()) {
        const size_t end = std::min(module.find('\n', at), module.size() - 1) + 1;
        const std::string_view line = std::string_view(module).substr(at, end - at);
        if (!line.starts_with("; ModuleID") && !line.starts_with("source_filename") && !line.starts_with("target "))
            out += line;
        at = end;
    }
    return out;
}

std::string cuda_text(const TileProgram& kernel, const GpuTarget& target) {
    return cuda::generate(with_canonical_names(kernel), target, "kernel").text;
}

}  // namespace

std::vector<KernelTexts> kernel_texts(const CompiledModel& model) {
    std::vector<KernelTexts> out;
    for (const TileProgram& k : model.kernels()) {
        KernelTexts& texts = out.emplace_back();
        texts.name = k.name;
        texts.stages = k.stages.primitives.size();
        texts.tiles = canonical_text(k);
        texts.code = model.target().gpu ? cuda_text(k, *model.target().gpu)
                                        : without_system(cpu::print_emitted(k, model.target()));
    }
    count_calls(model.plan(), out);
    return out;
}

std::string text_hash(std::string_view text) { return fmt::format("{:016x}", hash_text(text)); }

std::string print_hashes(const CompiledModel& model, const std::vector<KernelTexts>& kernels) {
    std::string out;
    for (const KernelTexts& k : kernels)
        out += fmt::format("tiles {} {} {} calls {} stages {} {}\n", text_hash(k.tiles),
                           model.target().gpu ? "cuda" : "llvm", text_hash(k.code), k.calls, k.stages, k.name);
    return out;
}

void save_texts(const std::vector<KernelTexts>& kernels, const std::string& folder) {
    std::filesystem::create_directories(folder);
    for (const KernelTexts& k : kernels)
        for (const std::string* text : {&k.tiles, &k.code}) {
            const std::string path = fmt::format("{}/{}.txt", folder, text_hash(*text));
            if (!std::filesystem::exists(path)) write_file(path, {*text});
        }
}

}  // namespace tilewright
