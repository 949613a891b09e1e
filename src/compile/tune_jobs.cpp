#include "compile/tune_jobs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "compile/measured_costs.h"
#include "cost/estimate.h"
#include "tune/operands.h"
#include "tune/tuner.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;  // increment it when a field changes its meaning
constexpr int kMostThreads = 4096;

TuneSettings settings_of(const CompileOptions& options, const Target& target, int64_t weight_bytes,
                         std::vector<bool> weights, Bindings sizes) {
    TuneSettings settings = schedule_settings_in_model(options, target, weight_bytes);
    settings.weights = std::move(weights);
    settings.sizes = std::move(sizes);
    return settings;
}

TileProgram legal_candidate(const std::string& text, const std::map<std::string, int64_t>& sizes) {
    TileProgram program = parse_tile_program(text);
    for (const auto& [name, size] : sizes) program.stages.assumed[*named_symbol(name).as_var()] = size;
    if (const auto problems = verify(program); !problems.empty())
        model_error("a candidate is not legal: {}", problems[0]);
    return program;
}

TuneJob job_of(const Json& json) {
    if (const int format = json.at("format").get<int>(); format != kFormat)
        model_error("it has format {}, and this build reads {}", format, kFormat);
    TuneJob job;
    job.kernel = json.at("kernel").get<std::string>();
    job.target = target_from_json(json.at("target").dump());
    job.target.workers = json.at("threads").get<int>();
    job.target.native = json.at("native").get<bool>();
    job.target.extra = json.at("features").get<std::vector<std::string>>();
    if (job.target.workers < 1 || job.target.workers > kMostThreads)
        model_error("it has {} threads", job.target.workers);
    job.weight_bytes = json.at("weight_bytes").get<int64_t>();
    job.weights = json.at("weights").get<std::vector<bool>>();
    job.sizes = json.at("sizes").get<std::map<std::string, int64_t>>();
    for (const Json& text : json.at("candidates"))
        job.candidates.push_back(legal_candidate(text.get<std::string>(), job.sizes));
    if (job.candidates.empty()) model_error("it has no candidates");
    for (const TileProgram& p : job.candidates)
        if (p.stages.inputs.size() != job.weights.size())
            model_error("it has {} weights, and a candidate {} inputs", job.weights.size(), p.stages.inputs.size());
    return job;
}

}  // namespace

std::string to_json_line(const TuneJob& job) {
    Json json = {
        {"format", kFormat},           {"kernel", job.kernel},         {"weight_bytes", job.weight_bytes},
        {"weights", job.weights},      {"sizes", job.sizes},           {"threads", job.target.workers},
        {"native", job.target.native}, {"features", job.target.extra}, {"target", Json::parse(to_json(job.target))},
        {"candidates", Json::array()}};
    for (const TileProgram& p : job.candidates) json["candidates"].push_back(print(p));
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<TuneJob> parse_jobs(std::string_view text, const std::string& what) {
    std::vector<TuneJob> out;
    for (size_t line = 1; !text.empty(); ++line) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view one = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (one.empty()) continue;
        try {
            out.push_back(job_of(Json::parse(one)));
        } catch (const Json::exception& e) {
            model_error("{}, line {}: {}", what, line, e.what());
        } catch (const RuntimeError& e) {
            model_error("{}, line {}: {}", what, line, e.what());
        } catch (const ModelError& e) {
            model_error("{}, line {}: {}", what, line, e.what());
        }
    }
    return out;
}

JobCollector::JobCollector(const CompileOptions& options, Target target, int64_t weight_bytes,
                           std::shared_ptr<const TuningDatabase> database, size_t most)
    : options_(options),
      target_(std::move(target)),
      weight_bytes_(weight_bytes),
      database_(std::move(database)),
      most_(most) {}

std::optional<std::vector<Trial>> JobCollector::trials(const std::vector<TileProgram>& candidates,
                                                       const std::vector<bool>& weights) {
    const auto sizes = assumed_sizes(candidates.at(0).stages);
    if (!sizes || full()) return std::nullopt;
    const TuneSettings settings = settings_of(options_, target_, weight_bytes_, weights, *sizes);
    TuneJob job{candidates[0].stages.name, {}, weights, {}, target_, weight_bytes_};
    std::vector<Trial> known;
    for (const TileProgram& p : candidates) {
        const auto m = database_ ? remembered_schedule(p, target_, settings, *database_) : std::nullopt;
        if (m)
            known.push_back({m->verdict, m->seconds.value, true});
        else
            job.candidates.push_back(p);
    }
    if (job.candidates.empty()) return known;
    for (const auto& [v, size] : *sizes) job.sizes[Expr::var(v).text()] = size;
    jobs_.push_back(std::move(job));
    return std::nullopt;
}

std::vector<Measurement> run_job(const TuneJob& job, const CompileOptions& options, bool estimates) {
    const Target host = host_target();
    if (target_key(job.target) != target_key(host))
        throw ModelError(fmt::format("kernel '{}' is for {} with {} threads ({}), and this machine is {} with {} ({})",
                                     job.kernel, job.target.cpu, job.target.threads, target_key(job.target), host.cpu,
                                     host.threads, target_key(host)),
                         "measure on machines like the one that plans");
    Target target = job.target;
    target.native = target.native && host.native;
    std::vector<Measurement> out;
    if (estimates) {
        for (const TileProgram& p : job.candidates) {
            const auto sizes = assumed_sizes(p.stages);
            if (!sizes) model_error("kernel '{}': its sizes are unknown before the model runs", job.kernel);
            Measurement m;
            m.key = measurement_key(p, target, settings_of(options, target, job.weight_bytes, job.weights, *sizes));
            m.seconds = {estimate(p, target, *sizes).seconds, 0, 1};
            out.push_back(std::move(m));
        }
        return out;
    }
    const auto tuned = candidates_on_host(options, target, job.weight_bytes, nullptr)(job.candidates, job.weights);
    if (!tuned) model_error("kernel '{}' cannot be checked on this machine", job.kernel);
    out.reserve(tuned->size());
    for (const TunedKernel& k : *tuned) out.push_back(k.measurement);
    return out;
}

}  // namespace tilewright
