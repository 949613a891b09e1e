// Compares the two binary programs of src/orchestrate/optimal/blp.h on random primitive graphs: the tightness of their
// relaxations, and Cbc's solve times.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/random.h"
#include "orchestrate/optimal/blp.h"
#include "orchestrate/optimal/candidates.h"
#include "orchestrate/optimal/states.h"

namespace {

using namespace tilewright;
using namespace tilewright::optimal;

struct Options {
    std::vector<size_t> nodes = {100, 200};
    size_t outputs = 1;
    size_t set_size = 16;
    uint64_t seed = 1;
    double seconds = 60;
    bool strong_only = false;
};

/// Deep rather than wide, as models are: most nodes extend the latest ones, and some values have long lifetimes.
Dag random_graph(size_t nodes, std::mt19937_64& rng) {
    Dag dag;
    std::vector<TensorId> made{dag.add_given("x")};
    for (size_t n = 0; n < nodes; ++n) {
        const size_t reads = uniform(rng) < 0.3 ? 2 : 1;
        std::vector<TensorId> from;
        for (size_t k = 0; k < reads; ++k) {
            const size_t back = uniform(rng) < 0.75 ? 1 : 1 + rng() % 6;
            from.push_back(made[made.size() - std::min(back, made.size())]);
        }
        made.push_back(dag.result(dag.add_node(fmt::format("n{}", n), from, std::exp2(4 * uniform(rng)))));
    }
    for (Dag::Tensor& t : dag.tensors) t.needed = t.producer && t.readers.empty();
    return dag;
}

/// Connected convex sets with at most one product, some of them rejected at random, as a backend does. The cost of a
/// kernel is a launch, the memory traffic of its tensors, and its arithmetic.
Choice random_choice(const Dag& dag, const Options& options, std::mt19937_64& rng) {
    std::vector<bool> product(dag.nodes.size());
    std::vector<double> work(dag.nodes.size());
    for (size_t n = 0; n < product.size(); ++n) {
        product[n] = uniform(rng) < 0.15;
        work[n] = product[n] ? 4 + 8 * uniform(rng) : 0.3 * uniform(rng);
    }
    ConvexOptions convex;
    convex.most_nodes = options.set_size;
    convex.pruned = [&](const NodeSet& set) {
        size_t products = 0;
        for (const NodeId n : set.nodes()) products += product[n.index()] ? 1 : 0;
        return products > 1;
    };
    Choice choice = choice_of(dag);
    for (const NodeSet& set : convex_sets(dag, Paths(dag), convex).sets) {
        if (set.size() > 1 && uniform(rng) < 0.1) continue;
        for (std::vector<TensorId>& outputs : output_sets(dag, set, set.size() == 1 ? 1 : 4)) {
            if (outputs.size() > options.outputs) continue;
            Candidate c{dag.inputs(set), std::move(outputs), set.nodes(), 1};
            for (const auto* list : {&c.inputs, &c.outputs})
                for (const TensorId t : *list) c.cost += 0.2 * dag.tensors[t].weight;
            for (const NodeId n : c.covers) c.cost += work[n.index()];
            c.cost *= 0.8 + 0.6 * uniform(rng);
            choice.candidates.push_back(std::move(c));
        }
    }
    return choice;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"The published and the strong program for the optimal choice of kernels, on random primitive graphs."};
    Options options;
    app.add_option("nodes", options.nodes, "primitives of each graph (100 200)");
    app.add_option("--outputs", options.outputs, "maximum of outputs per kernel (1)");
    app.add_option("--set-size", options.set_size, "maximum of primitives per kernel (16)");
    app.add_option("--seed", options.seed, "seed of the graphs (1)");
    app.add_option("--seconds", options.seconds, "CPU time limit for each program (60)");
    app.add_flag("--strong-only", options.strong_only, "skip the published program");
    CLI11_PARSE(app, argc, argv);

    fmt::print("{:>5} {:>10} {:>9} {:>6} {:>7} {:>9} {:>9} {:>9} {:>7} {:>6} {:>10} {:>7}\n", "nodes", "candidates",
               "form", "rows", "columns", "root", "bound", "best", "gap", "loops", "status", "seconds");
    for (const size_t nodes : options.nodes) {
        std::mt19937_64 rng(options.seed);
        const Dag dag = random_graph(nodes, rng);
        const Choice choice = random_choice(dag, options, rng);
        for (const BlpForm form : {BlpForm::Strong, BlpForm::Published}) {
            if (options.strong_only && form == BlpForm::Published) continue;
            BlpOptions blp;
            blp.form = form;
            blp.seconds = options.seconds;
            blp.reduce = form == BlpForm::Strong;
            const BlpResult r = solve(choice, blp);
            fmt::print("{:>5} {:>10} {:>9} {:>6} {:>7} {:>9.2f} {:>9.2f} {:>9.2f} {:>6.2f}% {:>6} {:>10} {:>7.2f}\n",
                       nodes, choice.candidates.size(), form == BlpForm::Strong ? "strong" : "published", r.rows,
                       r.columns, r.root, r.bound, r.objective, 100 * r.gap(), r.loop_rows, to_string(r.status),
                       r.seconds);
        }
    }
    return 0;
}
