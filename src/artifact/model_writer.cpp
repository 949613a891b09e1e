#include <unistd.h>

#include <filesystem>
#include <fstream>

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

}  // namespace

ModelObject write_model_object(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin) {
    PlanFile plan = write_plan(std::move(model), origin, false);
    return {cpu::linked_shared_object(shared_object(plan)), std::move(plan.weights)};
}

void write_model_file(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin, const std::string& path) {
    const PlanFile plan = write_plan(std::move(model), origin);
    cpu::SharedObject object = shared_object(plan);
    for (const Weights::Block& b : plan.weights.blocks)
        object.weights.push_back({b.offset, {static_cast<const char*>(b.tensor.data()), b.tensor.bytes()}});
    object.weight_bytes = plan.weights.bytes;

    const std::string part = fmt::format("{}.{}.part", path, ::getpid());
    std::error_code error;
    try {
        cpu::link_shared_object(object, part);
        const std::string hash = plain_hash(MappedFile(part).bytes());
        std::ofstream file(part, std::ios::binary | std::ios::app);
        file << hash << kTrailerMagic;
        file.close();
        if (!file) throw RuntimeError(fmt::format("cannot write '{}'", path));
        std::filesystem::rename(part, path, error);
        if (error) throw RuntimeError(fmt::format("cannot write '{}': {}", path, error.message()));
    } catch (...) {
        std::filesystem::remove(part, error);
        throw;
    }
}

}  // namespace tilewright::artifact
