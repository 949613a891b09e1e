#include "artifact/plan_file.h"

#include <algorithm>
#include <cstring>

#include "artifact/plan_stream.h"
#include "base/keyed_hash.h"
#include "tilewright/tilewright.h"

namespace tilewright::artifact {

namespace {

// The header: magic, format version, size of the content, its hash; then the content.
constexpr std::string_view kMagic("TWPLAN\r\n", 8);
constexpr size_t kHashBytes = 32, kHeaderBytes = 8 + 4 + 8 + kHashBytes;
constexpr uint64_t kWeightsAlignment = 64;

void put(std::string& to, uint64_t v, size_t bytes) {
    for (size_t k = 0; k < bytes; ++k) to += static_cast<char>(v >> (8 * k));
}

uint64_t get(std::string_view from, size_t at, size_t bytes) {
    uint64_t v = 0;
    for (size_t k = bytes; k-- > 0;) v = v << 8 | static_cast<unsigned char>(from[at + k]);
    return v;
}

template <class Stream>
void stream_about(Stream& s, Field<Stream, About> a) {
    s.text(a.compiler);
    s.text(a.model_hash);
    s.text(a.arch);
    s.text(a.cpu);
    s.enumerator(a.isa, VectorIsa::neon);
    s.list(a.features, [&](auto& f) { s.text(f); });
}

template <class Stream>
void stream_io(Stream& s, Field<Stream, std::vector<ModelIo>> all) {
    s.list(all, [&](auto& io) {
        s.text(io.name);
        s.enumerator(io.dtype, DType::U2);
        s.list(io.shape, [&](auto& d) { s.expr(d); });
    });
}

void stream_name(ByteWriter& s, const Var& v) { s.expr(Expr::var(v)); }
void stream_name(ByteReader& s, Var& v) {
    Expr e;
    s.expr(e);
    s.require(e.as_var().has_value(), "a name that a kernel reads");
    v = *e.as_var();
}

template <class Stream>
void stream_kernels(Stream& s, Field<Stream, std::vector<cpu::CompiledKernel>> all) {
    s.list(all, [&](auto& k) {
        s.text(k.name);
        s.list(k.names, [&](auto& v) { stream_name(s, v); });
        s.list(k.grid, [&](auto& e) { s.expr(e); });
        s.integer(k.scratch_bytes);
        s.require(k.scratch_bytes >= 0 && k.scratch_bytes < int64_t{1} << 40, "a kernel's scratch memory");
    });
}

template <class Stream>
void stream_model(Stream& s, typename PlanStream<Stream>::Constants& constants,
                  Field<Stream, CompiledModel::Impl> model) {
    stream_io(s, model.inputs);
    stream_io(s, model.outputs);
    s.flag(model.keep_subnormals);
    stream_kernels(s, model.code);
    PlanStream<Stream>(s, constants, model.code.size()).plan(model.plan);
    s.require(model.inputs.size() == model.plan.program.inputs.size() &&
                  model.outputs.size() == model.plan.program.outputs.size(),
              "the plan's inputs and outputs to be the model's");
}

void check_can_be_saved(const CompiledModel::Impl& model) {
    if (model.target.gpu) throw ModelError("a model that is compiled for a GPU cannot be saved");
    if (model.code.size() < model.kernels.kernels().size())
        throw ModelError("a model without machine code cannot be saved");
    for (const cpu::CompiledKernel& k : model.code)
        if (k.library)
            throw ModelError(fmt::format("kernel '{}' is a library's, which cannot be saved", k.name),
                             "compile without libraries");
}

About about(const CompiledModel& model, const std::string& model_hash) {
    const Target& t = model.target();
    return {"Tilewright " TILEWRIGHT_VERSION,
            model_hash,
            t.arch,
            t.native ? t.cpu : "",
            t.isa,
            t.native ? t.features : generic_target(t.isa).features};
}

/// What is not in the fields, but follows from them.
void complete(CompiledModel::Impl& model, const About& a, std::span<const cpu::KernelFn> code,
              const std::shared_ptr<const void>& owner) {
    model.target = generic_target(a.isa);
    model.target.arch = a.arch;
    model.target.native = !a.cpu.empty();
    if (model.target.native) model.target.cpu = a.cpu;
    if (model.target.native) model.target.features = a.features;
    for (size_t k = 0; k < model.code.size(); ++k) {
        model.code[k].run = code[k];
        model.code[k].code = owner;
    }
    count_plan(model.plan, model.code.size(), model.stats);
}

/// The content of a plan that is whole.
std::string_view content_of(std::string_view bytes) {
    if (bytes.size() < kHeaderBytes || bytes.substr(0, kMagic.size()) != kMagic)
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
    if (plain_hash(content) != bytes.substr(20, kHashBytes))
        throw ModelError("the compiled model is damaged: its content does not have the hash in its header");
    return content;
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

Tensor WeightsReader::at(DType dtype, Shape shape, uint64_t offset) const {
    uint64_t size = byte_size(dtype);
    for (const int64_t d : shape)
        if (d < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(d), &size))
            throw ModelError("the compiled model is damaged: expected the shape of a constant");
    if (offset % kWeightsAlignment != 0 || offset > bytes.size() || size > bytes.size() - offset)
        throw ModelError("the compiled model is damaged: a constant lies outside the weights");
    return {dtype, std::move(shape), bytes.data() + offset, owner};
}

std::string content_hash(std::string_view bytes) {
    std::string s;
    for (const char c : plain_hash(bytes)) s += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return s;
}

PlanFile write_plan(std::shared_ptr<const CompiledModel> model, const std::string& model_hash) {
    const std::shared_ptr<const CompiledModel> fallback = model->impl().fallback_model();
    PlanFile out;
    ByteWriter s;
    WeightsWriter weights;
    stream_about(s, about(*model, model_hash));
    s.flag(fallback != nullptr);
    for (const CompiledModel* m : {model.get(), fallback.get()}) {
        if (m == nullptr) continue;
        check_can_be_saved(m->impl());
        stream_model(s, weights, m->impl());
        for (const cpu::CompiledKernel& k : m->impl().code) out.kernels.push_back(&k);
    }
    const std::string content = s.finished();
    out.bytes = kMagic;
    put(out.bytes, kFormatVersion, 4);
    put(out.bytes, content.size(), 8);
    out.bytes += plain_hash(content);
    out.bytes += content;
    out.weights = weights.finished();
    out.model = std::move(model);
    return out;
}

About read_about(std::string_view bytes) {
    ByteReader s(content_of(bytes));
    About a;
    stream_about(s, a);
    return a;
}

std::shared_ptr<const CompiledModel> read_plan(std::string_view bytes, std::span<const std::byte> weights,
                                               std::span<const cpu::KernelFn> code,
                                               const std::shared_ptr<const void>& owner) {
    ByteReader s(content_of(bytes));
    const WeightsReader constants{weights, owner};
    About a;
    stream_about(s, a);
    bool has_fallback = false;
    s.flag(has_fallback);
    auto model = std::make_unique<CompiledModel::Impl>(), strict = std::make_unique<CompiledModel::Impl>();
    stream_model(s, constants, *model);
    if (has_fallback) stream_model(s, constants, *strict);
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
    return std::make_shared<CompiledModel>(std::move(model));
}

}  // namespace tilewright::artifact
