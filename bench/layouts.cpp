// ALT's tables 2 and 3 beside the paper's figures: what layouts do to the first cache, and to a convolution.
//
//     bench_layouts                  both tables
//     bench_layouts --row 4096       table 2 with rows of 4096 floats
//
// Table 2: a block of 512 x T floats is read once, from memory that holds the blocks one after the other (layout
// tiling), or from rows of a longer matrix (loop tiling). The paper does not give the length of a row; --row does here.
// Blocks are chosen so that none is in the first two caches. Misses are hardware counters; without them the time of a
// cache line is left. The paper's prediction, a quarter of the lines, is of a CPU that fetches four lines a miss.
//
// Table 3: the convolution in each layout runs with the fastest of the schedules that the default heuristic, Gensor's
// walk and `auto` make for it. The weights are packed for the micro-kernel, whatever the layout. The last row is the
// fastest of the layouts that the joint search proposes by estimates. One thread.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>

#include "backend/cpu/kernel.h"
#include "base/clock.h"
#include "bench/counters.h"
#include "compile/pipeline.h"
#include "driver/opspec/op_model.h"
#include "graph/import.h"
#include "orchestrate/fuse.h"
#include "orchestrate/joint/search.h"
#include "program/analysis/contraction.h"
#include "schedule/scheduler.h"
#include "tune/operands.h"

namespace tilewright {
namespace {

std::string text(std::optional<double> value, double unit = 1, int digits = 0) {
    return value ? fmt::format("{:.{}f}", *value / unit, digits) : "-";
}

// --- table 2

constexpr int64_t kRows = 512, kLine = 16;  // floats

/// Reads one element of every vector of 4, as NEON's loads do.
float read_block(const float* at, int64_t rows, int64_t columns, int64_t row) {
    float sums[4] = {};
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; j += 4) sums[j / 4 % 4] += at[i * row + j];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

struct Reads {
    std::optional<double> misses;
    double ns = 0;  ///< of a line
};

/// Medians over many blocks of a memory that exceeds the second cache.
Reads read_blocks(const Counters& counters, const std::vector<float>& memory, int64_t columns, int64_t row) {
    const bool contiguous = row == columns;
    const int64_t block = contiguous ? kRows * columns : kRows * row;
    std::vector<double> misses, seconds;
    volatile float keep = 0;
    const auto blocks = static_cast<int64_t>(memory.size()) / block;
    for (int64_t k = 0; k < std::max<int64_t>(blocks, 9); ++k) {
        const float* at = memory.data() + k % blocks * block;
        const double begin = now_ms();
        counters.start();
        keep = keep + read_block(at, kRows, columns, row);
        counters.stop();
        seconds.push_back((now_ms() - begin) * 1e-3);
        if (const auto n = counters.value(Event::L1Misses)) misses.push_back(*n);
    }
    const auto median = [](std::vector<double>& v) {
        std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
        return v[v.size() / 2];
    };
    const double lines = static_cast<double>(kRows) * std::ceil(static_cast<double>(columns) / kLine);
    const double used = contiguous ? static_cast<double>(kRows * columns) / kLine : lines;
    Reads out;
    if (!misses.empty()) out.misses = median(misses);
    out.ns = median(seconds) * 1e9 / used;
    return out;
}

void table_2(int64_t row) {
    struct Paper {
        int64_t columns;
        int contiguous, predicted, rows;
    };
    constexpr Paper kPaper[] = {{4, 32, 32, 208}, {16, 96, 128, 262}, {64, 501, 512, 785}, {256, 2037, 2048, 2952}};
    const Counters counters;
    const std::vector<float> memory(size_t{64} << 20, 1.0F);
    fmt::print("Table 2: misses of the first cache, blocks of 512 x T floats, rows of {} floats\n", row);
    fmt::print("{:>10}  {:>30}  {:>30}  {:>24}\n", "", "contiguous blocks", "rows of a matrix", "ns a line");
    fmt::print("{:>10}  {:>8} {:>10} {:>10}  {:>8} {:>10} {:>10}  {:>11} {:>12}\n", "T", "paper", "predicted",
               "measured", "paper", "lines", "measured", "contiguous", "rows");
    for (const Paper& p : kPaper) {
        const Reads one = read_blocks(counters, memory, p.columns, p.columns);
        const Reads other = read_blocks(counters, memory, p.columns, row);
        const int64_t lines = kRows * ((p.columns + kLine - 1) / kLine);
        fmt::print("{:>10}  {:>8} {:>10} {:>10}  {:>8} {:>10} {:>10}  {:>11.2f} {:>12.2f}\n", p.columns, p.contiguous,
                   p.predicted, text(one.misses), p.rows, lines, text(other.misses), one.ns, other.ns);
    }
    if (!counters.missing().empty())
        fmt::print("no counters of the first cache here ({}): misses are not measured\n", counters.missing());
}

// --- table 3

/// A layout of the convolution's input and result, and what the paper measured with it.
struct Case {
    std::string name;
    std::string paper;  ///< instructions, loads, misses, stores (1e6), milliseconds
    std::vector<Layout> layouts;
};

Layout parsed(const std::string& layout) { return parse_layout(layout); }

struct Convolution {
    Program program;
    joint::SinglePrimitive single;

    Convolution() {
        const ZooModel model = build_op(parse_op("conv2d n=1 c=3 h=230 o=64 kh=7 stride=2 bias=1 act=relu"), 1);
        program = fuse_greedily(make_program(load_model_from_bytes(model.bytes.data(), model.bytes.size()), {}));
        const KernelExtractor extracted(program);
        for (const PrimitiveId id : program.primitives.ids())
            if (const TensorExpr* e = program.primitives[id].expr(); e != nullptr && contraction(*e))
                single = joint::single_primitive(program, extracted, id);
    }
};

struct Result {
    double ms = 0;
    std::optional<double> instructions, loads, misses, stores;
};

class Runs {
  public:
    explicit Runs(Scheduling how) : how_(std::move(how)), pool_(1, Pinning::on) {}

    /// The fastest schedule in these layouts; nothing if the convolution cannot be computed in them.
    std::optional<Result> run(const joint::SinglePrimitive& single, const std::vector<Layout>& layouts) {
        const auto kernel = joint::kernel_in_layouts(single, layouts, how_.target);
        if (!kernel) return std::nullopt;
        std::vector<TileProgram> schedules;
        for (const SchedulerKind kind : {SchedulerKind::Default, SchedulerKind::Gensor, SchedulerKind::Auto}) {
            Scheduling how = how_;
            how.kind = kind;
            schedules.push_back(make_schedule(kernel->body.stages, kernel->body.row_axes, how));
        }
        std::vector<const TileProgram*> all;
        for (const TileProgram& t : schedules) all.push_back(&t);
        const std::vector<cpu::CompiledKernel> code = cpu::compile(all, how_.target);
        std::deque<Operands> operands;  // schedules with merged axes have other stages
        std::vector<Runnable> runnables;
        for (size_t k = 0; k < all.size(); ++k) {
            operands.emplace_back(all[k]->stages, kernel_inputs(all[k]->stages, 1, Spread::Usual));
            runnables.push_back({all[k]->name, KernelRun(code[k], {}, operands.back(), pool_)});
        }
        const std::vector<Timing> times = measure(runnables);
        size_t best = 0;
        for (size_t k = 1; k < times.size(); ++k)
            if (times[k].seconds.value < times[best].seconds.value) best = k;
        Result out = counted(runnables[best]);
        out.ms = times[best].seconds.value * 1e3;
        return out;
    }

  private:
    Result counted(const Runnable& runnable) const {
        constexpr int kRuns = 20;
        counters_.start();
        for (int k = 0; k < kRuns; ++k) runnable.run();
        counters_.stop();
        const auto of = [&](Event e) {
            const auto v = counters_.value(e);
            return v ? std::optional(*v / kRuns) : v;
        };
        return {0, of(Event::Instructions), of(Event::L1Loads), of(Event::L1Misses), of(Event::L1Stores)};
    }

    Scheduling how_;
    ThreadPool pool_;
    Counters counters_;
};

/// The layouts at a point of the template, which may name some of its parameters; others are whole.
std::vector<Layout> at_point(const Convolution& c, joint::Evaluation& evaluation, const std::vector<Layout>& rule,
                             const std::vector<std::pair<std::string, int64_t>>& named) {
    const auto of = layout_template(c.single.program, PrimitiveId(0));
    LayoutPoint point;
    for (const LayoutParameter& p : of.value().parameters()) {
        point.push_back(p.factors.back());
        for (const auto& [name, factor] : named)
            if (p.name == name) point.back() = factor;
    }
    return joint::PointLayouts(c.single, rule, evaluation).at(*of, point);
}

void table_3() {
    Target target = current_target();
    target.workers = 1;
    Scheduling how;
    how.target = target;
    how.estimates = true;
    how.kind = SchedulerKind::Auto;
    const Convolution c;
    Schedules schedules(how);
    joint::Evaluation evaluation(schedules, false);
    const Layout channels_last = parsed("reorder(0, 2, 3, 1)");
    const std::vector<Layout> rule{channels_last, channels_last};
    std::vector<Case> cases{
        {"NHWO, rsIO", " 509.4  166.4    9.7  103.6   0.34", rule},
        {"NOHW, OIrs", " 626.9  206.6    4.5  121.3   0.49", {Layout(), Layout()}},
        {"N O/16 H W 16",
         " 567.6  193.6    9.9  112.9   0.37",
         {parsed("split(1, 3) reorder(0, 1, 3, 4, 2)"), parsed("split(1, 16) reorder(0, 1, 3, 4, 2)")}},
        {"N H/4 W/16 O/16 4 16 16", " 550.5  174.3    3.9  106.2   0.25",
         at_point(c, evaluation, rule, {{"h", 4}, {"w", 16}, {"o", 16}, {"i", 1}})},
    };
    fmt::print(
        "\nTable 3: a convolution of 3 x 230 x 230 by 7 x 7, stride 2, to 64 channels, bias, ReLU; paper: 48 "
        "cores\n");
    fmt::print("{:<26}  {:>34}  {:>37}\n", "", "paper", "here, one thread");
    fmt::print("{:<26} {:>6} {:>6} {:>6} {:>6} {:>6}  {:>7} {:>7} {:>7} {:>7} {:>6}\n", "layout", "inst.", "loads",
               "misses", "stores", "ms", "inst.", "loads", "misses", "stores", "ms");
    Runs runs(how);
    const auto print_row = [](const std::string& name, const std::string& paper, const std::optional<Result>& r) {
        if (!r) return fmt::print("{:<26} {:>34}  cannot be written in this layout\n", name, paper);
        fmt::print("{:<26} {:>34}  {:>7} {:>7} {:>7} {:>7} {:>6.2f}\n", name, paper, text(r->instructions, 1e6, 1),
                   text(r->loads, 1e6, 1), text(r->misses, 1e6, 2), text(r->stores, 1e6, 1), r->ms);
    };
    for (const Case& k : cases) print_row(k.name, k.paper, runs.run(c.single, k.layouts));
    std::optional<Result> best;
    std::string found;
    for (const joint::LayoutCandidate& l : joint::search_layouts(c.single, rule, evaluation, {}).best) {
        const auto r = runs.run(c.single, l.layouts);
        if (!r || (best && best->ms <= r->ms)) continue;
        best = r;
        found = joint::text_of(l.layouts);
    }
    if (best) print_row("the joint search's", "", best);
    if (best) fmt::print("    {}\n", found);
    fmt::print("counts in millions; layouts of the input and of the result. {}\n",
               Counters().missing().empty() ? "" : "No counters here (" + Counters().missing() + ").");
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    using namespace tilewright;
    CLI::App app{"ALT's tables 2 and 3: layouts and the first cache"};
    int64_t row = 1040;
    app.add_option("--row", row, "table 2: floats of a row (1040)")->check(CLI::Range(256, 1 << 16));
    CLI11_PARSE(app, argc, argv);
    try {
        table_2(row);
        table_3();
    } catch (const std::exception& e) {
        fmt::print(stderr, "bench_layouts: {}\n", e.what());
        return 1;
    }
    return 0;
}
