#include <fmt/format.h>

#include "artifact/plan_file.h"
#include "artifact/plan_stream.h"
#include "base/error.h"

namespace tilewright::artifact {

namespace {

uint64_t get(std::string_view from, size_t at, size_t bytes) {
    uint64_t v = 0;
    for (size_t k = bytes; k-- > 0;) v = v << 8 | static_cast<unsigned char>(from[at + k]);
    return v;
}

/// What is not in the fields, but follows from them.
void complete(CompiledModel::Impl& model, const About& a, std::span<const cpu::KernelFn> code,
              const std::shared_ptr<const void>& owner) {
    model.platform = a.platform;
    for (size_t k = 0; k < model.code.size(); ++k) {
        model.code[k].run = code[k];
        model.code[k].code = owner;
    }
    count_plan(model.plan, model.code.size(), model.stats);
}

/// The content of a plan that is whole.
std::string_view content_of(std::string_view bytes) {
    if (bytes.size() < kHeaderBytes || bytes.substr(0, kPlanMagic.size()) != kPlanMagic)
        throw ModelError("this is no compiled model of Tilewright");
    if (const uint64_t version = get(bytes, 8, 4); version != kFormatVersion)
        throw ModelError(fmt::format("the compiled model has format version {}, and this build reads version {}",
                                     version, kFormatVersion),
                         "compile the model again");
    const uint64_t size = get(bytes, 12, 8);
    if (size != bytes.size() - kHeaderBytes)
        model_error("the compiled model is damaged: it has {} bytes, and should have {}", bytes.size() - kHeaderBytes,
                    size);
    const std::string_view content = bytes.substr(kHeaderBytes);
    if (checksum({content}).text() != bytes.substr(20, sizeof(Checksum)))
        throw ModelError("the compiled model is damaged: its content does not have the checksum in its header");
    return content;
}

}  // namespace

Tensor WeightsReader::at(DType dtype, Shape shape, uint64_t offset) const {
    uint64_t size = byte_size(dtype);
    for (const int64_t d : shape)
        if (d < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(d), &size))
            throw ModelError("the compiled model is damaged: expected the shape of a constant");
    if (offset % kWeightsAlignment != 0 || offset > bytes.size() || size > bytes.size() - offset)
        throw ModelError("the compiled model is damaged: a constant lies outside the weights");
    return {dtype, std::move(shape), bytes.data() + offset, owner};
}

About read_about(std::string_view bytes) {
    ByteReader s(content_of(bytes));
    About a;
    stream_about(s, a);
    return a;
}

std::shared_ptr<const CompiledModel> read_plan(std::string_view bytes, std::span<const std::byte> weights,
                                               std::span<const cpu::KernelFn> code,
                                               const std::shared_ptr<const void>& owner,
                                               const std::function<MakeFallback()>& fallback,
                                               const CustomOperators* operators) {
    ByteReader s(content_of(bytes));
    const WeightsReader constants{weights, owner};
    About a;
    stream_about(s, a);
    auto saved = SavedFallback::None;
    s.enumerator(saved, SavedFallback::Elsewhere);
    const bool has_fallback = saved == SavedFallback::Included;
    if (saved == SavedFallback::Elsewhere && !fallback)
        throw ModelError("the compiled model needs its strict model, which is not in the file");
    auto model = std::make_unique<CompiledModel::Impl>(), strict = std::make_unique<CompiledModel::Impl>();
    stream_model(s, constants, *model, operators);
    if (has_fallback) stream_model(s, constants, *strict, operators);
    s.require(s.at_end(), "the end of the content");
    if (code.size() != model->code.size() + strict->code.size())
        model_error("the compiled model is damaged: it has {} kernels, and its plan {}", code.size(),
                    model->code.size() + strict->code.size());
    complete(*model, a, code, owner);
    if (has_fallback) {
        complete(*strict, a, code.subspan(model->code.size()), owner);
        model->make_fallback = [fallback = std::make_shared<const CompiledModel>(std::move(strict))] {
            return fallback;
        };
    }
    if (saved == SavedFallback::Elsewhere) model->make_fallback = fallback();
    return std::make_shared<CompiledModel>(std::move(model));
}

}  // namespace tilewright::artifact
