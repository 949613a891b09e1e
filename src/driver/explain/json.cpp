#include <nlohmann/json.hpp>

#include "driver/explain/write.h"
#include "driver/precision_report.h"

namespace tilewright::explain {

namespace {

using Json = nlohmann::ordered_json;

Json optional(const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); }

Json relaxed(const std::optional<PieceReport::Relaxed>& r) {
    return r ? Json({{"root_ms", r->root * 1e3}, {"solve_ms", r->ms}}) : Json(nullptr);
}

Json tensors(const std::vector<TensorNote>& notes) {
    Json out = Json::array();
    for (const TensorNote& t : notes) {
        Json j = {{"name", t.name}, {"type", t.type}};
        if (!t.layout.empty()) j["layout"] = t.layout;
        if (t.constant) j["constant"] = true;
        out.push_back(std::move(j));
    }
    return out;
}

Json not_fused(const KernelNote& k) {
    Json out = Json::array();
    for (const NotFused& n : k.not_fused) out.push_back({{"kernels", n.kernels}, {"reason", n.reason}});
    return out;
}

Json shares(const KernelNote& k) {
    Json out = Json::object();
    for (const auto& [type, share] : k.shares) out[type] = share;
    return out;
}

Json kernels(const Report& r) {
    Json out = Json::array();
    for (const KernelNote& k : r.kernels)
        out.push_back({{"name", k.name},
                       {"code", k.code},
                       {"primitives", k.primitives},
                       {"operators", k.nodes},
                       {"reads", tensors(k.reads)},
                       {"writes", tensors(k.writes)},
                       {"not_fused", not_fused(k)},
                       {"provider", k.provider.empty() ? "generated" : k.provider},
                       {"tiling", k.tiling},
                       {"offered_to_libraries", k.offer},
                       {"estimate_us", k.estimate_us},
                       {"measured_us", optional(k.in_model_us ? k.in_model_us : k.alone_us)},
                       {"measured_alone_us", optional(k.alone_us)},
                       {"limit_us", k.limit.ms * 1e3},
                       {"limit", k.limit.compute ? "multiply-adds" : k.limit.level},
                       {"operations", k.operations},
                       {"bytes", k.bytes},
                       {"shares", shares(k)},
                       {"repeated", k.repeated}});
    return out;
}

Json primitives(const Report& r) {
    Json out = Json::array();
    for (const PrimitiveNote& p : r.primitives)
        out.push_back({{"name", p.name},
                       {"category", p.category},
                       {"operators", p.nodes},
                       {"type", p.type},
                       {"text", p.text},
                       {"reads", p.reads},
                       {"kernels", p.kernels}});
    return out;
}

Json operator_totals(const Report& r) {
    Json out = Json::array();
    for (const OperatorTotal& t : r.operator_totals())
        out.push_back({{"operator", t.type}, {"kernels", t.kernels}, {"us", t.us}, {"limit_us", t.limit_us}});
    return out;
}

Json roofline(const Report& r) {
    Json levels = Json::array();
    for (const Bandwidth& b : r.bandwidths) levels.push_back({{"level", b.level}, {"gbps", b.gbps}});
    return {{"gflops", r.peak_gflops}, {"levels", std::move(levels)}};
}

Json pieces(const OrchestrationReport& o) {
    Json out = Json::array();
    for (const PieceReport& p : o.pieces)
        out.push_back({{"primitives", p.primitives},
                       {"execution_states", p.states},
                       {"more_states", p.more_states},
                       {"sets", p.sets},
                       {"capped", p.capped},
                       {"like", p.like ? Json(*p.like) : Json(nullptr)},
                       {"candidates", p.candidates},
                       {"chains", p.chains},
                       {"conversions", p.conversions},
                       {"dropped", p.dropped},
                       {"measured", p.measured},
                       {"blp_columns", p.columns},
                       {"blp_rows", p.rows},
                       {"optimal", p.optimal},
                       {"ms", p.seconds * 1e3},
                       {"bound_ms", p.bound * 1e3},
                       {"kept_greedy", p.kept_greedy},
                       {"emitted_ms", p.emitted * 1e3},
                       {"root_ms", p.root * 1e3},
                       {"strong", relaxed(p.strong)},
                       {"published", relaxed(p.published)},
                       {"programs", p.rounds},
                       {"greedy_ms", p.greedy_seconds * 1e3},
                       {"solve_ms", p.solve_ms}});
    return out;
}

Json regions(const Report& r) {
    Json out = Json::array();
    for (const RegionNote& n : r.regions) {
        Json ways = Json::array();
        for (const RegionNote::Way& w : n.ways)
            ways.push_back({{"kernels", w.kernels}, {"estimate_us", w.estimate_us}});
        out.push_back({{"name", n.name},
                       {"count", n.count},
                       {"dispatch", n.dispatch},
                       {"taken", n.taken},
                       {"ways", std::move(ways)}});
    }
    return out;
}

Json rewrites(const RewriteReport& r) {
    return {{"pieces", r.pieces},          {"distinct", r.distinct},    {"costed", r.costed},
            {"before_ms", r.before * 1e3}, {"after_ms", r.after * 1e3}, {"rejected_by_plan", r.rejected_by_plan},
            {"applied", r.applied}};
}

}  // namespace

std::string to_json(const Report& r) {
    const auto ms = [](const PlanNote& p) { return p.measured_ms.value_or(p.estimate_ms); };
    const OrchestrationReport none, &o = r.optimal ? *r.optimal : none;
    Json j;
    j["model"] = r.model;
    j["threads"] = r.threads;
    j["orchestrator"] = to_string(r.orchestrator);
    j["machine"] = r.machine;
    j["rates_calibrated"] = r.calibrated;
    j["sizes"] = r.sizes;
    j["execution_states"] = o.states();
    j["candidates"] = o.candidates();
    j["distinct_candidates"] = o.distinct_candidates;
    j["measured"] = o.measured;
    j["measured_share"] = optional(o.measured_share());
    j["blp_columns"] = o.columns();
    j["blp_rows"] = o.rows();
    j["blp_status"] = !r.optimal ? "none" : o.optimal() ? "optimal" : "feasible";
    // Null if no program was solved. `emitted_gap`: of the kernels that run, after pieces kept greedy ones.
    j["blp_gap"] = optional(o.gap());
    j["emitted_gap"] = optional(o.emitted_gap());
    j["greedy_pieces"] = o.greedy_pieces();
    j["capped_pieces"] = o.capped_pieces();
    j["taken_apart"] = o.taken_apart;
    j["blp_roots"] = {{"strong", relaxed(o.strong())}, {"published", relaxed(o.published())}};
    j["cuts"] = {{"number", o.cuts}, {"bytes", o.cut_bytes}, {"greedy_kernels", o.cut_kernels}};
    // By the costs of the choice: measured where known, else estimated.
    j["choice"] = {{"plan_ms", o.seconds() * 1e3},
                   {"greedy_ms", o.greedy_seconds() * 1e3},
                   {"bound_ms", o.bound() * 1e3},
                   {"emitted_ms", o.emitted() * 1e3}};
    j["remembered"] = o.remembered;
    j["undercut"] = o.undercut;
    j["measured_enough"] = o.measured_enough;
    if (o.in_model)
        j["in_model"] = {{"pieces", o.in_model->pieces},
                         {"greedy_pieces", o.in_model->greedy},
                         {"plan_ms", o.in_model->seconds * 1e3},
                         {"greedy_ms", o.in_model->greedy_seconds * 1e3}};
    if (o.provider)
        j["library"] = {{"name", o.provider->name},
                        {"measured", o.provider->measured},
                        {"faster", o.provider->faster},
                        {"in_plan", o.provider->in_model},
                        {"kept", o.provider->kept},
                        {"solved_again", o.provider->solved_again},
                        {"plan_ms", o.provider->seconds * 1e3},
                        {"without_ms", o.provider->generated_seconds * 1e3},
                        {"refused", o.provider->refused}};
    j["orchestrate_ms"] = o.ms;
    j["measure_ms"] = o.measure_ms;
    j["solve_ms"] = o.solve_ms();
    j["compile_ms"] = r.compile_ms;
    j["plan_ms"] = ms(r.plan());
    j["greedy_ms"] = ms(r.greedy());
    j["operators_ms"] = ms(r.operators());
    j["repeated"] = r.repeated();
    j["steps"] = r.steps.size();
    Json plans = Json::array();
    for (const PlanNote& p : r.plans)
        plans.push_back({{"name", p.name},
                         {"kernels", p.kernels},
                         {"estimate_ms", p.estimate_ms},
                         {"measured_ms", optional(p.measured_ms)}});
    j["plans"] = std::move(plans);
    j["refused"] = o.refused;
    j["pieces"] = pieces(o);
    if (r.rewrites) j["rewrites"] = rewrites(*r.rewrites);
    if (r.precision) j["precision"] = Json::parse(to_json(*r.precision));
    j["regions"] = regions(r);
    j["launch_us"] = r.launch_us;
    j["operator_totals"] = operator_totals(r);
    j["roofline"] = roofline(r);
    j["kernels"] = kernels(r);
    j["primitives"] = primitives(r);
    return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tilewright::explain
