#include <fmt/format.h>

#include "artifact/plan_file.h"
#include "artifact/plan_stream.h"
#include "base/error.h"
#include "base/keyed_hash.h"
#include "tilewright/tilewright.h"

namespace tilewright::artifact {

namespace {

void put(std::string& to, uint64_t v, size_t bytes) {
    for (size_t k = 0; k < bytes; ++k) to += static_cast<char>(v >> (8 * k));
}

void check_can_be_saved(const CompiledModel::Impl& model) {
    if (model.for_gpu) throw ModelError("a model that is compiled for a GPU cannot be saved");
    if (model.code.size() < kernels_called(model.plan))
        throw ModelError("a model without machine code cannot be saved");
    for (const cpu::CompiledKernel& k : model.code)
        if (k.library)
            throw ModelError(fmt::format("kernel '{}' is a library's, which cannot be saved", k.name),
                             "compile without libraries");
}

}  // namespace

uint64_t WeightsWriter::place(const Tensor& t) {
    const std::string_view bytes(static_cast<const char*>(t.data()), t.bytes());
    const auto [it, fresh] = by_content_.try_emplace(plain_hash(bytes), weights_.bytes);
    if (fresh) {
        weights_.blocks.push_back({weights_.bytes, t});
        weights_.bytes += (t.bytes() + kWeightsAlignment - 1) / kWeightsAlignment * kWeightsAlignment;
    }
    return it->second;
}

namespace {}  // namespace

std::string content_hash(std::string_view bytes) { return hex_digits(plain_hash(bytes)); }

std::string content_hash_of_file(const std::string& path) { return hex_digits(plain_hash_of_file(path)); }

PlanFile write_plan(std::shared_ptr<const CompiledModel> model, const ModelOrigin& origin, WeightsWriter& weights,
                    bool include_fallback) {
    auto saved = model->impl().make_fallback ? SavedFallback::Elsewhere : SavedFallback::None;
    std::shared_ptr<const CompiledModel> fallback;
    if (include_fallback && model->impl().make_fallback) {
        fallback = model->impl().fallback_model();
        saved = SavedFallback::Included;
    }
    PlanFile out;
    ByteWriter s;
    stream_about(s, About{"Tilewright " TILEWRIGHT_VERSION, origin, model->impl().platform});
    s.enumerator(saved, SavedFallback::Elsewhere);
    for (const CompiledModel* m : {model.get(), fallback.get()}) {
        if (m == nullptr) continue;
        check_can_be_saved(m->impl());
        stream_model(s, weights, m->impl());
        for (const cpu::CompiledKernel& k : m->impl().code) out.kernels.push_back(&k);
    }
    const std::string content = s.finished();
    out.bytes = kPlanMagic;
    put(out.bytes, kFormatVersion, 4);
    put(out.bytes, content.size(), 8);
    out.bytes += checksum({content}).text();
    out.bytes += content;
    out.model = std::move(model);
    return out;
}

}  // namespace tilewright::artifact
