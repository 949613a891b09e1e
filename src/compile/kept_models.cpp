#include "compile/kept_models.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "artifact/model_file.h"
#include "base/build_id.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/keyed_hash.h"
#include "base/private_folder.h"
#include "compile/measured_costs.h"
#include "compile/planned_cost.h"
#include "compile/tuned_plan.h"
#include "graph/import.h"
#include "program/rewrite/kept.h"
#include "runtime/arena.h"

namespace tilewright {

namespace {

/// A model as the user gave it, its bytes, and how it is compiled from there.
struct Source {
    double begun = now_ms();  ///< to be read
    std::string hash;         ///< of the bytes; empty: they cannot be read twice
    bool file = false;        ///< they can be read again
    std::function<Compilation(const PipelineOptions&)> compile;
    std::function<bool()> unchanged;  ///< the bytes still have this hash
    /// The same source for as long as it is needed.
    std::function<std::shared_ptr<const Source>()> lasting;
};

/// Whether the result is a model for this CPU and nothing else, and the same for equal options.
bool may_be_kept(const PipelineOptions& o) {
    const CompileOptions& c = o.compile;
    const PassOptions& p = o.passes;
    const bool measures =
        c.measure || searches(c.scheduler) || c.optimal.profile != Profile::None || (c.joint && c.joint->measure);
    const bool prints = p.print_before_all || p.print_after_all || !p.print_before.empty() || !p.print_after.empty();
    const bool more = o.reference || o.keep_rewritten || c.keep_refusals || c.keep_objects || !c.code || p.verify_each;
    const bool own_costs = o.rewrite && (o.rewrite->cost || o.rewrite->evaluator);
    const bool own_samples = c.max_error > 0 && c.inputs;
    return !c.code_folder.empty() && !build_id().empty() && !c.gpu && !own_samples && !c.provider && !measures &&
           !c.tune && !prints && !more && !own_costs && !c.operators;
}

/// All that decides about plan and code, but the model.
std::string text_of(const PipelineOptions& o) {
    const CompileOptions& c = o.compile;
    const OptimalOptions& b = c.optimal;
    std::string text = fmt::format(
        "{}, trials {}, {}, chains {} {} {} {} {} {:a} {} {}, numerics {}, check values {}, keep subnormals {}, "
        "precision {} fast {} max error {:a} where faster {}, kv cache {}\n",
        planned_cost_text(orchestrate_options(c)), c.trials, to_string(c.orchestrator), b.chains, b.piece_nodes,
        b.kernel_nodes, b.most_sets, b.most_outputs, b.seconds, b.published_form, b.most_measured,
        to_string(c.numerics), c.check_values, c.keep_subnormals, static_cast<int>(c.precision), c.fast_f32,
        c.max_error, c.where_faster, c.kv_cache);
    for (const std::string& pattern : c.keep_f32) text += fmt::format("f32 {}\n", pattern);
    for (const FunctionLibrary& f : c.functions) text += fmt::format("functions {}\n", artifact::content_hash(f.bytes));
    for (const auto& [name, size] : c.dims) text += fmt::format("dim {} {}\n", name, size);
    for (const auto& [name, range] : c.ranges) text += fmt::format("dim {} {}\n", name, to_string(range));
    if (c.tuned)
        if (const auto database = open_database(c)) text += fmt::format("tuned {}\n", tuned_plans_text(*database));
    text += o.rewrite ? rewrite_options_text(*o.rewrite) : "no rewrites\n";
    return text;
}

/// The key in the code cache.
std::string key_of(const Source& source, const PipelineOptions& o) {
    const std::string cpu = read_text_file("/proc/cpuinfo").value_or("");
    const std::string_view flags = cpuinfo_field(cpu, kHostArch == "aarch64" ? "Features" : "flags").value_or("");
    const Target target = target_of(o.compile);
    return fmt::format("model {} by {} for {}\nnative {}\nflags {}\n{}", source.hash, build_id(), to_json(target),
                       target.native, flags, text_of(o));
}

/// The file of a kept object, and the model's weights in memory.
struct Kept {
    CodeCache::Object object;
    Arena weights;
};

std::optional<artifact::ModelFileInfo> kept_model(const CodeCache& cache, const std::string& key,
                                                  const std::function<artifact::MakeFallback()>& strict) try {
    const auto kept = std::make_shared<Kept>();
    auto found = cache.find_object(key, [&](uint64_t bytes) {
        kept->weights.reserve(static_cast<int64_t>(bytes) + kBufferAlignment);  // vectors at the end may be read whole
        return kept->weights.data();
    });
    if (!found) return std::nullopt;
    kept->object = std::move(*found);
    return artifact::load_model_object(kept->object.file.get(), {kept->weights.data(), kept->object.data_bytes}, kept,
                                       strict);
} catch (const std::exception&) {  // it is compiled again
    return std::nullopt;
}

Compilation compile_or_load(const Source& source, PipelineOptions options);

/// The model's code that needs no checks at run time, from the beginning.
artifact::MakeFallback strict_model(const Source& source, PipelineOptions options) {
    options.compile.numerics = Numerics::Strict;
    options.compile.kv_cache = options.compile.tuned = false;
    options.passes.progress = nullptr;
    return [from = source.lasting(), options] {
        if (!from->unchanged())
            throw RuntimeError("the model's file has changed, and its strict code is needed for these inputs");
        return compile_or_load(*from, options).model;
    };
}

void keep(const CodeCache& cache, const std::string& key, const Compilation& c, const Source& source) {
    const artifact::ModelObject object = artifact::write_model_object(c.model, {source.hash, c.info});
    static constexpr char kZeros[64] = {};
    std::vector<std::string_view> data;
    uint64_t at = 0;
    const auto pad_to = [&](uint64_t offset) {
        for (; at < offset; at += data.back().size()) data.emplace_back(kZeros, std::min<uint64_t>(64, offset - at));
    };
    for (const artifact::Weights::Block& b : object.weights.blocks) {
        pad_to(b.offset);
        data.emplace_back(static_cast<const char*>(b.tensor.data()), b.tensor.bytes());
        at += b.tensor.bytes();
    }
    pad_to(object.weights.bytes);
    cache.keep_object(key, object.bytes, data);
}

Compilation compile_or_load(const Source& source, PipelineOptions options) {
    complete_machine(options.compile);
    const std::shared_ptr<const CodeCache> cache = code_cache(options.compile);
    const std::string key = key_of(source, options);
    if (auto file = kept_model(*cache, key, [&] { return strict_model(source, options); })) {
        if (options.passes.progress) options.passes.progress("load_kept_model");
        Compilation c;
        c.model = std::move(file->model);
        c.info = std::move(file->about.origin.info);
        c.kept = true;
        c.load_ms = now_ms() - source.begun;
        return c;
    }
    options.compile.keep_objects = true;
    if (source.file) options.strict = strict_model(source, options);
    Compilation c = source.compile(options);
    const double compiled = now_ms();
    try {
        const bool fits = c.model->stats().weight_bytes <= cache->most_object_bytes();
        if (fits && !c.external_data && source.unchanged()) keep(*cache, key, c, source);
    } catch (const std::exception& e) {
        if (options.compile.warn)
            options.compile.warn(fmt::format("the compiled model is not kept for the next time: {}", e.what()));
    }
    c.compile_ms += now_ms() - compiled;
    return c;
}

/// Empty for a file that cannot be read twice: a pipe must not be opened here.
std::string hash_of_file(const std::string& path) {
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(path, unknown)) return {};
    try {
        return hex_digits(pieces_hash_of_file(path));
    } catch (const RuntimeError&) {
        return {};
    }
}

/// `path` and whatever keeps it readable; `hash`: of its bytes.
std::shared_ptr<const Source> source_of(const std::string& path, const std::string& hash,
                                        std::shared_ptr<const Descriptor> open_file = nullptr) {
    auto s = std::make_shared<Source>();
    s->hash = hash;
    s->file = !hash.empty();
    s->compile = [path, open_file = std::move(open_file)](const PipelineOptions& o) { return compile_model(path, o); };
    s->unchanged = [path, hash] { return hash_of_file(path) == hash; };
    s->lasting = [path, hash] {  // held open, so that it may be removed
        auto file = std::make_shared<const Descriptor>(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        return *file ? source_of(fmt::format("/proc/self/fd/{}", file->get()), hash, file) : source_of(path, hash);
    };
    return s;
}

std::shared_ptr<const Source> source_of(const void* bytes, size_t size) {
    const std::string_view content(static_cast<const char*>(bytes), size);
    auto s = std::make_shared<Source>();
    s->hash = hex_digits(pieces_hash(content));
    s->compile = [bytes, size](const PipelineOptions& o) { return compile_model(bytes, size, o); };
    s->unchanged = [] { return true; };
    s->lasting = [content] {
        const auto copy = std::make_shared<const std::string>(content);
        auto own = std::make_shared<Source>(*source_of(copy->data(), copy->size()));
        own->compile = [copy](const PipelineOptions& o) { return compile_model(copy->data(), copy->size(), o); };
        return std::shared_ptr<const Source>(own);
    };
    return s;
}

/// A line for each tensor of a graph and its subgraphs, with the hash of its bytes: Graph::print has shorter ones.
void list_tensors(const Graph& graph, std::string& text) {
    const auto add = [&](const std::string& name, const Tensor& t) {
        const std::string_view bytes(static_cast<const char*>(t.data()), t.bytes());
        text += fmt::format("{} {}{} {}\n", name, to_string(t.dtype()), to_string(t.shape()),
                            artifact::content_hash(bytes));
    };
    for (const auto& [name, tensor] : graph.initializers) add(name, tensor);
    for (const Node& n : graph.nodes)
        for (const auto& [name, attribute] : n.attributes) {
            if (const auto* tensor = std::get_if<Tensor>(&attribute)) add(name, *tensor);
            if (const auto* tensors = std::get_if<std::vector<Tensor>>(&attribute))
                for (const Tensor& t : *tensors) add(name, t);
            if (const auto* body = std::get_if<std::shared_ptr<const Graph>>(&attribute)) list_tensors(**body, text);
        }
}

std::shared_ptr<const Source> source_of(const Model& model) {
    Graph nodes = model.graph;
    nodes.initializers.clear();
    std::string text = fmt::format("IR {}\n{}", model.ir_version, nodes.print());
    list_tensors(model.graph, text);
    auto s = std::make_shared<Source>();
    s->hash = artifact::content_hash(text);
    s->compile = [model](const PipelineOptions& o) { return compile_model(model, o); };
    s->unchanged = [] { return true; };
    s->lasting = [model] { return source_of(model); };
    return s;
}

}  // namespace

Compilation compile_or_load(const std::string& path, const PipelineOptions& options) {
    if (may_be_kept(options))
        if (const auto source = source_of(path, hash_of_file(path)); source->file)
            return compile_or_load(*source, options);
    return compile_model(path, options);
}

Compilation compile_or_load(const void* bytes, size_t size, const PipelineOptions& options) {
    return may_be_kept(options) ? compile_or_load(*source_of(bytes, size), options)
                                : compile_model(bytes, size, options);
}

Compilation compile_or_load(const Model& model, const PipelineOptions& options) {
    return may_be_kept(options) ? compile_or_load(*source_of(model), options) : compile_model(model, options);
}

}  // namespace tilewright
