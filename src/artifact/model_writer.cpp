#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "artifact/model_file.h"
#include "artifact/model_trailer.h"
#include "backend/cpu/shared_object.h"
#include "base/error.h"
#include "base/keyed_hash.h"
#include "base/mapped_file.h"

namespace tilewright::artifact {

namespace {

/// With views of the plan's bytes.
cpu::SharedObject shared_object(const PlanFile& plan) {
    cpu::SharedObject object;
    object.symbol = kModelSymbol;
    object.magic = kTableMagic;
    object.abi = kModelAbi;
    object.plan = plan.bytes;
    for (const cpu::CompiledKernel* k : plan.kernels) {
        TW_CHECK(!k->object.empty(), "kernel '{}' was compiled without its object file", k->name);
        object.kernels.push_back(k->object);
    }
    return object;
}

void add_weights(cpu::SharedObject& object, const Weights& weights) {
    for (const Weights::Block& b : weights.blocks)
        object.weights.push_back({b.offset, {static_cast<const char*>(b.tensor.data()), b.tensor.bytes()}});
    object.weight_bytes = weights.bytes;
}

/// `write` makes a file of the name it is given, which replaces `path` when it is complete.
void write_whole(const std::string& path, const std::function<void(const std::string&)>& write) {
    const std::string part = fmt::format("{}.{}.part", path, ::getpid());
    std::error_code error;
    try {
        write(part);
        std::filesystem::rename(part, path, error);
        if (error) throw RuntimeError(fmt::format("cannot write '{}': {}", path, error.message()));
    } catch (...) {
        std::filesystem::remove(part, error);
        throw;
    }
}

}  // namespace

ModelObject write_model_object(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin) {
    PlanFile plan = write_plan(std::move(model), origin, false);
    return {cpu::linked_shared_object(shared_object(plan)), std::move(plan.weights)};
}

void write_model_file(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin, const std::string& path) {
    const PlanFile plan = write_plan(std::move(model), origin);
    cpu::SharedObject object = shared_object(plan);
    add_weights(object, plan.weights);
    write_whole(path, [&](const std::string& part) {
        cpu::link_shared_object(object, part);
        const std::string hash = plain_hash(MappedFile(part).bytes());
        std::ofstream file(part, std::ios::binary | std::ios::app);
        file << hash << kTrailerMagic;
        file.close();
        if (!file) throw RuntimeError(fmt::format("cannot write '{}'", path));
    });
}

ModelFileInfo write_model_archive(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin,
                                  const std::string& path, const std::string& symbol) {
    const PlanFile plan = write_plan(std::move(model), origin);
    cpu::SharedObject object = shared_object(plan);
    object.symbol = symbol;
    object.kernel_prefix = symbol + "_kernel_";
    add_weights(object, plan.weights);
    write_whole(path, [&](const std::string& part) { cpu::write_archive(object, part); });
    ModelFileInfo out;
    out.about = read_about(plan.bytes);
    out.file_bytes = std::filesystem::file_size(path);
    out.plan_bytes = plan.bytes.size();
    out.weight_bytes = plan.weights.bytes;
    out.kernels = static_cast<uint32_t>(plan.kernels.size());
    out.model = plan.model;
    return out;
}

}  // namespace tilewright::artifact
