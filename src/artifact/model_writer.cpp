#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "artifact/model_file.h"
#include "artifact/model_trailer.h"
#include "backend/cpu/shared_object.h"
#include "backend/cpu/shared_object_view.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace tilewright::artifact {

namespace {

/// With views of the plan's bytes.
cpu::SharedObject::Variant variant(const PlanFile& plan) {
    cpu::SharedObject::Variant v;
    v.plan = plan.bytes;
    for (const cpu::CompiledKernel* k : plan.kernels) {
        TW_CHECK(!k->object.empty(), "kernel '{}' was compiled without its object file", k->name);
        v.kernels.push_back(k->object);
    }
    return v;
}

cpu::SharedObject empty_object() {
    cpu::SharedObject object;
    object.symbol = kModelSymbol;
    object.magic = kTableMagic;
    object.abi = kModelAbi;
    return object;
}

/// Models with the constants that they share, as parts of a file.
struct Parts {
    std::vector<PlanFile> plans;
    Weights weights;
    cpu::SharedObject object = empty_object();  ///< views of the two

    Parts(const Compilations& models, const ModelOrigin& origin) {
        TW_CHECK(!models.empty(), "no model to write");
        object.arch = models.front()->impl().platform.arch;
        WeightsWriter writer;
        for (const auto& m : models) {
            TW_CHECK(m->impl().platform.arch == object.arch, "models for several architectures in one file");
            plans.push_back(write_plan(m, origin, writer));
        }
        weights = writer.finished();
        for (const PlanFile& plan : plans) object.variants.push_back(variant(plan));
        for (const Weights::Block& b : weights.blocks)
            object.weights.push_back({b.offset, {static_cast<const char*>(b.tensor.data()), b.tensor.bytes()}});
        object.weight_bytes = weights.bytes;
    }
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;

    ModelFileInfo info(const std::string& path) const {
        ModelFileInfo out;
        for (const PlanFile& plan : plans) {
            About about = read_about(plan.bytes);
            out.variants.push_back({about.platform, plan.bytes.size(), plan.kernels.size()});
            if (!out.model) out.about = std::move(about);
            if (!out.model) out.model = plan.model;
        }
        out.file_bytes = std::filesystem::file_size(path);
        out.weight_bytes = weights.bytes;
        return out;
    }
};

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

std::string trailer_of(std::string_view object) {
    const std::string_view weights = cpu::view_shared_object(object, kTableMagic, kModelAbi).weights;
    ModelTrailer trailer;
    trailer.weights_at = weights.empty() ? 0 : static_cast<uint64_t>(weights.data() - object.data());
    trailer.weight_bytes = weights.size();
    trailer.weights = pieces_checksum(weights);
    trailer.rest = trailer.rest_of(object);
    kTrailerMagic.copy(trailer.magic, sizeof trailer.magic);
    return {reinterpret_cast<const char*>(&trailer), sizeof trailer};
}

}  // namespace

std::string model_file_bytes(const Compilations& models, const ModelOrigin& origin) {
    const Parts parts(models, origin);
    std::string bytes = cpu::linked_shared_object(parts.object);
    return bytes.append(trailer_of(bytes));
}

ModelObject write_model_object(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin) {
    WeightsWriter weights;
    const PlanFile plan = write_plan(std::move(model), origin, weights, false);
    cpu::SharedObject object = empty_object();
    object.variants.push_back(variant(plan));
    return {cpu::linked_shared_object(object), weights.finished()};
}

ModelFileInfo write_model_file(const Compilations& models, const ModelOrigin& origin, const std::string& path) {
    const Parts parts(models, origin);
    write_whole(path, [&](const std::string& part) {
        cpu::link_shared_object(parts.object, part);
        const std::string trailer = trailer_of(MappedFile(part).bytes());
        std::ofstream file(part, std::ios::binary | std::ios::app);
        file << trailer;
        file.close();
        if (!file) throw RuntimeError(fmt::format("cannot write '{}'", path));
    });
    return parts.info(path);
}

ModelFileInfo write_model_archive(const Compilations& models, const ModelOrigin& origin, const std::string& path,
                                  const std::string& symbol) {
    Parts parts(models, origin);
    parts.object.symbol = symbol;
    parts.object.kernel_prefix = symbol + "_kernel_";
    write_whole(path, [&](const std::string& part) { cpu::write_archive(parts.object, part); });
    return parts.info(path);
}

}  // namespace tilewright::artifact
