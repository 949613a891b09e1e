#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/plural.h"
#include "driver/explain/write.h"
#include "driver/precision_report.h"

namespace tilewright::explain {

namespace {

constexpr size_t kColumns = 118;

/// "label      first, second, third,
///             fourth", cut off after `lines` lines.
std::string wrapped(size_t indent, std::string_view label, const std::vector<std::string>& words, size_t lines = 4) {
    std::string out = fmt::format("{:{}}{:<12}", "", indent, label), line;
    const size_t width = kColumns - indent - 12;
    const std::string margin = "\n" + std::string(indent + 12, ' ');
    size_t written = 0;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
        if (!line.empty() && line.size() + 1 + word.size() > width) {
            if (++written == lines) return out + fmt::format("... ({} in all)\n", words.size());
            out += line + margin;
            line.clear();
        }
        line += (line.empty() ? "" : " ") + word;
    }
    return out + line + "\n";
}

std::string bytes_text(double bytes) {
    if (bytes < 1e4) return fmt::format("{:.0f} bytes", bytes);
    return bytes < 1e7 ? fmt::format("{:.0f} KB", bytes / 1e3) : fmt::format("{:.0f} MB", bytes / 1e6);
}

std::string counts(const std::map<std::string, size_t>& of, const char* format) {
    std::vector<std::pair<size_t, std::string>> sorted;
    for (const auto& [what, n] : of) sorted.emplace_back(n, what);
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    std::vector<std::string> parts;
    for (const auto& [n, what] : sorted) parts.push_back(fmt::format(fmt::runtime(format), n, what));
    return fmt::format("{}", fmt::join(parts, ", "));
}

/// "0.41 %", or "-" without a value.
std::string percent(std::optional<double> share) { return share ? fmt::format("{:.2f} %", 100 * *share) : "-"; }

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> out;
    for (size_t from = 0; from <= text.size();) {
        const size_t comma = std::min(text.find(", ", from), text.size());
        out.push_back(text.substr(from, comma - from));
        from = comma + 2;
    }
    return out;
}

std::string search_text(const Report& r) {
    std::string s;
    if (r.rewrites) {
        const RewriteReport& w = *r.rewrites;
        s += wrapped(0, "rewrites",
                     split(fmt::format("{} ({} distinct), cost {:.2f} to {:.2f} ms, {} programs evaluated{}",
                                       plural(w.pieces, "piece"), w.distinct, w.before * 1e3, w.after * 1e3, w.costed,
                                       w.applied.empty() ? ", nothing gains" : "") +
                           (w.rejected_by_plan > 0 ? fmt::format(", the planner rejects the result in {}",
                                                                 plural(w.rejected_by_plan, "piece"))
                                                   : "")));
        if (!w.applied.empty()) s += wrapped(2, "rules", split(counts(w.applied, "{1} x{0}")), 8);
    }
    if (!r.optimal) return s;
    const OrchestrationReport& o = *r.optimal;
    s += wrapped(
        0, "states",
        split(fmt::format("{}{} in {}, {} with {} across", plural(o.states(), "execution state"),
                          std::any_of(o.pieces.begin(), o.pieces.end(), [](const auto& p) { return p.more_states; })
                              ? " or more"
                              : "",
                          plural(o.pieces.size(), "piece"), plural(o.cuts, "cut"), bytes_text(o.cut_bytes))));
    s += wrapped(0, "candidates",
                 split(fmt::format("{} kernels of {}, {} pruned, {} distinct, {} of those measured{}", o.candidates(),
                                   plural(o.sets(), "convex set"), o.dropped(), o.distinct_candidates, o.measured,
                                   o.measured > 0 ? " (" + percent(o.measured_share()) + ")" : "")));
    if (!o.refused.empty()) s += wrapped(0, "refused", split(counts(o.refused, "{1} x{0}")), 8);
    s += wrapped(
        0, "program",
        split(fmt::format(
            "{} columns, {} rows, {}, gap {}{}, bound {:.3f} ms, solved in {:.0f} ms", o.columns(), o.rows(),
            o.optimal() ? "optimal" : fmt::format("optimal in {} of {} pieces", o.proven_pieces(), o.pieces.size()),
            percent(o.gap()),
            o.capped_pieces() > 0
                ? fmt::format(" of the sets listed (capped in {} of {} pieces)", o.capped_pieces(), o.pieces.size())
                : "",
            o.bound() * 1e3, o.solve_ms())));
    s += wrapped(
        0, "emitted",
        split(fmt::format("{}, {:.3f} ms by the same costs, {} above the bound, greedy kernels kept in {} of {}",
                          plural(o.kernels.size(), "kernel"), o.emitted() * 1e3, percent(o.emitted_gap()),
                          o.greedy_pieces(), plural(o.pieces.size(), "piece"))));
    if (const auto strong = o.strong(), published = o.published(); strong && published)
        s += wrapped(
            2, "roots",
            split(fmt::format("strong {:.3f} ms in {:.1f} ms, published {:.3f} ms in {:.1f} ms, with the initial "
                              "costs",
                              strong->root * 1e3, strong->ms, published->root * 1e3, published->ms)));
    if (!o.measured_enough)
        s += wrapped(2, "measured", {"limit reached; the plan is the best of measured kernels"});
    else if (!o.optimal())
        s += wrapped(2, "time", {"limit reached; the plan is the best found"});
    if (o.undercut > 0)
        s += wrapped(2, "undercut",
                     {fmt::format("{} measured below the assumed lower bound", plural(o.undercut, "kernel"))});
    if (o.in_model) s += wrapped(0, "compared", split(o.in_model->print()));
    if (o.provider) {
        s += wrapped(0, "library", split(o.provider->print()));
        if (!o.provider->refused.empty()) s += wrapped(2, "refused", split(counts(o.provider->refused, "{1} x{0}")), 8);
    }
    return s;
}

std::string plans_text(const Report& r) {
    const bool measured = r.plan().measured_ms.has_value();
    std::string s = fmt::format("{:<26}{:>8}{:>14}{}{:>16}\n", "", "kernels", "estimate ms",
                                measured ? fmt::format("{:>14}", "measured ms") : "", "this plan saves");
    const auto ms = [&](const PlanNote& p) { return p.measured_ms.value_or(p.estimate_ms); };
    for (const PlanNote& p : r.plans) {
        s += fmt::format("{:<26}{:>8}{:>14.3f}{}", p.name, p.kernels, p.estimate_ms,
                         p.measured_ms ? fmt::format("{:>14.3f}", *p.measured_ms) : "");
        if (&p != &r.plans[0]) s += fmt::format("{:>14.1f} %", 100 * (1 - ms(r.plan()) / std::max(1e-12, ms(p))));
        s += '\n';
    }
    return s;
}

std::string repeated_text(const Report& r) {
    if (r.repeated() == 0) return "";
    std::map<std::string, size_t> categories;
    std::vector<std::string> names;
    for (const PrimitiveNote& p : r.primitives) {
        if (p.kernels.size() < 2) continue;
        ++categories[p.category];
        names.push_back(fmt::format("{} x{}", p.name, p.kernels.size()));
    }
    return fmt::format("\n{} computed by several kernels ({})\n", plural(names.size(), "primitive"),
                       counts(categories, "{0} {1}")) +
           wrapped(2, "", names, 3);
}

/// Which way each region takes at the report's sizes, what the others would take, and at which sizes they run.
std::string regions_text(const Report& r) {
    if (r.regions.empty()) return "";
    std::string s = "\nregions with several ways, and those taken at these sizes\n";
    for (const RegionNote& n : r.regions) {
        s += fmt::format("  {}{}\n", n.name, n.count > 1 ? fmt::format(" and {} more like it", n.count - 1) : "");
        for (size_t w = 0; w < n.ways.size(); ++w)
            s += fmt::format("    {} way {}: {:.1f} us, {}\n", w == n.taken ? "->" : "  ", w, n.ways[w].estimate_us,
                             plural(n.ways[w].kernels, "kernel"));
        s += wrapped(4, "by size", split(n.dispatch), 3);
    }
    return s;
}

/// "operators   Conv 12.1 ms (81 %), Add 1.2 ms (8 %), ..."
std::string totals_text(const Report& r) {
    double all = 1e-9;
    for (const KernelNote& k : r.kernels) all += k.us();
    std::vector<std::string> words;
    for (const OperatorTotal& t : r.operator_totals())
        words.push_back(fmt::format("{} {:.3f} ms ({:.0f} %)", t.type, t.us * 1e-3, 100 * t.us / all));
    return words.empty() ? "" : "\n" + wrapped(0, "operators", words);
}

std::vector<std::string> texts(const std::vector<TensorNote>& tensors) {
    std::vector<std::string> out;
    for (const TensorNote& t : tensors)
        out.push_back(fmt::format("{}{} {}{}", t.constant ? "constant " : "", t.name, t.type,
                                  t.layout.empty() ? "" : " as " + t.layout));
    return out;
}

/// "      not fused with kernels 3, 4: its rows differ"
std::string not_fused_text(const KernelNote& k) {
    std::string s;
    for (const NotFused& n : k.not_fused) {
        std::vector<size_t> numbers;
        for (const size_t kernel : n.kernels) numbers.push_back(kernel + 1);
        s += fmt::format("      not fused with kernel{} {}: {}\n", numbers.size() == 1 ? "" : "s",
                         fmt::join(numbers, ", "), n.reason);
    }
    return s;
}

std::string kernel_text(const Report& r, const KernelNote& k, size_t position, double all) {
    std::string s =
        fmt::format("{:>6} {:>10.1f} {:>5.1f}% {:>6.0f}%  {:<8}", position, k.us(), 100 * k.us() / all,
                    100 * k.limit.ms * 1e3 / std::max(1e-9, k.us()), k.limit.compute ? k.limit.unit : k.limit.level);
    if (k.in_model_us || k.alone_us) s += fmt::format("  estimate {:.1f} us", k.estimate_us);
    if (k.in_model_us && k.alone_us) s += fmt::format(", alone {:.1f} us", *k.alone_us);
    s += fmt::format("  code {}\n", k.code);
    std::vector<std::string> primitives;
    for (const size_t p : k.primitives) {
        const PrimitiveNote& note = r.primitives[p];
        primitives.push_back(note.name + (note.kernels.front() + 1 < position ? " (again)" : ""));
    }
    s += wrapped(6, "operators", k.nodes, 3);
    s += wrapped(6, "primitives", primitives, 3);
    s += wrapped(6, "reads", texts(k.reads), 3);
    s += wrapped(6, "writes", texts(k.writes), 3);
    s += not_fused_text(k);
    if (!k.offer.empty()) s += wrapped(6, "libraries", {k.offer}, 1);
    return s +
           wrapped(6, k.provider.empty() ? "tiles" : "computed by", {k.provider.empty() ? k.tiling : k.provider}, 1);
}

/// ", 3 other steps (2 NonMaxSuppression, TopK)": primitives without a tensor expression, by operator.
std::string steps_text(const Report& r) {
    if (r.steps.empty()) return "";
    std::map<std::string, size_t> count;
    for (const StepNote& step : r.steps) {
        const PrimitiveNote& p = r.primitives.at(step.primitive);
        ++count[p.operators.empty() ? p.text.substr(0, p.text.find('(')) : p.operators.front()];
    }
    std::vector<std::string> words;
    for (const auto& [what, n] : count) words.push_back(n > 1 ? fmt::format("{} {}", n, what) : what);
    return fmt::format(", {} ({})", plural(r.steps.size(), "other step"), fmt::join(words, ", "));
}

}  // namespace

std::string print(const Report& r, size_t most) {
    std::string s =
        fmt::format("{}, {}, {} orchestration\n", r.model,
                    r.gpu ? "a GPU" : plural(static_cast<size_t>(r.threads), "thread"), to_string(r.orchestrator));
    s += fmt::format("compiled in {:.0f} ms: {} in {} ({} distinct){}\n", r.compile_ms,
                     plural(r.primitives.size(), "primitive"), plural(r.kernels.size(), "kernel"), r.codes,
                     steps_text(r));
    s += fmt::format("limits and estimates use {} rates of {}{}", r.calibrated ? "measured" : "assumed", r.machine,
                     r.calibrated ? ""
                     : r.gpu      ? " (bench_probe measures them)"
                                  : " (see `tilewright info --calibrate`)");
    std::vector<std::string> sizes;
    for (const auto& [name, size] : r.sizes) sizes.push_back(fmt::format("{} = {}", name, size));
    s += sizes.empty() ? "\n\n" : fmt::format("\nfor {}\n\n", fmt::join(sizes, ", "));
    if (r.precision) s += print(*r.precision) + "\n";
    const std::string search = search_text(r);
    s += search + (search.empty() ? "" : "\n") + plans_text(r) + totals_text(r) + regions_text(r) + repeated_text(r);
    std::vector<size_t> order(r.kernels.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return r.kernels[a].us() > r.kernels[b].us(); });
    double all = 1e-9;
    for (const KernelNote& k : r.kernels) all += k.us();
    const size_t shown = std::min(most, order.size());
    if (shown == 0) return s;
    s += fmt::format("\n{} of {} kernels, {}\n{:>6} {:>10} {:>6} {:>7}  {}\n", shown, order.size(),
                     shown < order.size() ? "the slowest" : "slowest first", "kernel", "us", "share", "limit", "by");
    for (size_t i = 0; i < shown; ++i) s += kernel_text(r, r.kernels[order[i]], order[i] + 1, all);
    return s;
}

}  // namespace tilewright::explain
