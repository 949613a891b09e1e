#!/usr/bin/env python3
"""Cost and benefit of optimal orchestration, model by model, as a Markdown table.

  python3 bench/orchestration.py build/bin/tilewright MODELS [--only NAME...] [--profile none|lazy|full]

MODELS is a folder of .onnx files; those of the twelve models below that it contains are compiled. Columns:
  states                  execution states
  candidates, distinct    candidate kernels, and how many of them (and of conversions) differ in text or weights
  measured                distinct kernels measured, and their share of the distinct candidates
  columns x rows          of the binary programs
  capped                  pieces with more convex sets than the limit
  bound ms, plan ms       the lower bound; the cost of the solver's plan; gap: by how much that
  gap                     is above the bound
  kept greedy             pieces that kept the greedy plan's kernels after whole runs, of all pieces
  emitted ms, gap         the cost of the emitted kernels, and by how much that is above the bound
  greedy ms               the cost of the greedy plan's kernels; "-" if one of them is not a candidate
  ratio                   of that to the emitted kernels
  compile, choosing,      seconds of the whole compilation, and of those for choosing and for measuring
  measuring s
Costs are those used by the choice: estimates, or (--profile) times of single kernels. A gap is "-" if no program
was solved. With --time SECONDS the plan and the greedy plan also run as whole models, in turns, and so does the
greedy plan without rewrites: five more columns, milliseconds of each
and the ratios of the latter two to the plan's. --database names the tuning database; to compare an empty one with
a full one, run this program twice.
--ablations is another table: the plan's estimate with one mechanism disabled, relative to the estimate with all of
them. --forms is one of the two binary programs (Korch's, and the stronger one): their linear relaxations and the times
of these. --bounds is one of the maximum size of pieces that the graph is cut into: for each size the pieces, the
megabytes and the greedy plan's kernels that are cut, the plan's estimate relative to that with
the last size, and the seconds of choosing. --outputs runs the models with and without each mechanism, on the same inputs,
and prints the largest difference of outputs relative to their largest magnitude; it fails if that is more than 1e-3.
It needs numpy. --figure-13 measures the memory-bound subgraph of Korch's figures 11 and 13 (addition, LayerNorm and
transposition of SegFormer) for batches of 1 and 16: the chosen plan, the greedy plan and one kernel for each
operator, kernels and milliseconds of whole runs. It needs onnx, and no models.
"""
import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = ["candy", "efficientvit_b1_512", "efficientvit_b1_2048", "yolox_nano", "yolov4", "segformer_b0", "bert_base",
          "vit_b_16", "swin_t", "resnet50", "mobilenet_v2", "densenet121"]
HEADER = ["model", "states", "candidates", "distinct", "measured", "columns x rows", "capped", "bound ms", "plan ms",
          "gap", "kept greedy", "emitted ms", "gap", "greedy ms", "ratio", "compile s", "choosing s", "measuring s"]
TIMED = ["whole runs: plan ms", "greedy ms", "ratio", "greedy without rewrites ms", "ratio"]


ABLATIONS = ["no-fission", "no-operator-fusion", "no-rewrites", "no-redundancy", "single-output", "layouts-first",
             "orchestrate greedy"]


def explain(tool, model, arguments, more):
    """The tool's report of a model; prints the error and returns nothing if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        how = [] if "--orchestrate" in more else ["--orchestrate", "optimal", "--profile", arguments.profile]
        command = [tool, "explain", str(model), *how, "--threads", str(arguments.threads), "--json", str(path), *more]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            print(f"{model.name}: {done.stderr.strip()}", file=sys.stderr)
            return None
        return json.loads(path.read_text(encoding="utf-8"))


def percent(share):
    return "-" if share is None else f"{100 * share:.2f} %"


def row(name, report):
    measured = str(report["measured"])
    if report["measured"]:
        measured += f" ({100 * report['measured_share']:.1f} %)"
    choice = report["choice"]
    return [name, report["execution_states"], report["candidates"], report["distinct_candidates"], measured,
            f"{report['blp_columns']} x {report['blp_rows']}", report["capped_pieces"], f"{choice['bound_ms']:.3f}",
            f"{choice['plan_ms']:.3f}", percent(report["blp_gap"]),
            f"{report['greedy_pieces']} of {len(report['pieces'])}", f"{choice['emitted_ms']:.3f}",
            percent(report["emitted_gap"]), f"{choice['greedy_ms']:.3f}" if choice["greedy_ms"] else "-",
            f"{choice['greedy_ms'] / choice['emitted_ms']:.3f}" if choice["greedy_ms"] else "-", f"{report['compile_ms'] / 1e3:.1f}",
            f"{(report['orchestrate_ms'] - report['measure_ms']) / 1e3:.1f}", f"{report['measure_ms'] / 1e3:.1f}"]


def models(arguments):
    """Names and files of the selected models that exist; missing ones are printed on standard error."""
    for name in arguments.only:
        model = arguments.models / f"{name}.onnx"
        if model.exists():
            yield name, model
        else:
            print(f"{model}: not there", file=sys.stderr)


def ablations(arguments, more):
    """The table of ablations; false if a model failed."""
    print("| model | plan ms | " + " | ".join(ABLATIONS) + " |\n" + "|---" * (len(ABLATIONS) + 2) + "|", flush=True)
    losses = {name: [] for name in ABLATIONS}
    complete = True
    for name, model in models(arguments):
        whole = explain(arguments.tool, model, arguments, more)
        cells = []
        for part in ABLATIONS if whole else []:
            report = explain(arguments.tool, model, arguments, [*more, *f"--{part}".split()])
            complete = complete and report is not None
            loss = report["plan_ms"] / whole["plan_ms"] if report else math.nan
            losses[part].append(loss)
            cells.append(f"{loss:.3f}")
        complete = complete and whole is not None
        if whole:
            print(f"| {name} | {whole['plan_ms']:.2f} | " + " | ".join(cells) + " |", flush=True)
    means = [math.exp(sum(map(math.log, x)) / len(x)) if x else math.nan for x in losses.values()]
    print("| geometric mean | | " + " | ".join(f"{x:.3f}" for x in means) + " |")
    return complete


def outputs_of(arguments, model, more):
    """Outputs by name; prints the error and returns nothing if the tool failed."""
    import numpy

    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.tool, "run", str(model), "--threads", str(arguments.threads), "--output-dir", folder,
                   *more]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            print(f"{model.name} {' '.join(more)}: {done.stderr.strip()}", file=sys.stderr)
            return None
        return {path.name: numpy.load(path) for path in Path(folder).glob("*.npy")}


def outputs(arguments, more):
    """The table of differences of outputs; false if a model failed, or outputs are not equal."""
    import numpy

    def apart(one, other):
        if one is None or other is None or one.keys() != other.keys() or not one:
            return math.inf
        worst = 0.0
        for name, a in one.items():
            b = other[name]
            finite = numpy.isfinite(a)
            if a.shape != b.shape or a.dtype != b.dtype or (a.size and not finite.any()):
                return math.inf  # also if all elements are NaN: equal, but meaningless
            others = [numpy.where(numpy.isfinite(v), 0, v) for v in (a, b)]
            if not numpy.array_equal(*others, equal_nan=True):
                return math.inf
            x, y = a[finite].astype(numpy.float64), b[finite].astype(numpy.float64)
            if x.size:
                worst = max(worst, float(numpy.max(numpy.abs(x - y)) / max(1e-30, numpy.max(numpy.abs(x)))))
        return worst

    print("| model | " + " | ".join(ABLATIONS) + " |\n" + "|---" * (len(ABLATIONS) + 1) + "|", flush=True)
    equal = True
    for name, model in models(arguments):
        whole = outputs_of(arguments, model, [*more, "--orchestrate", "optimal"])
        cells = []
        for part in ABLATIONS:
            how = f"--{part}".split() if "orchestrate" in part else ["--orchestrate", "optimal", f"--{part}"]
            cells.append(apart(whole, outputs_of(arguments, model, [*more, *how])))
        equal = equal and max(cells) <= 1e-3
        print(f"| {name} | " + " | ".join(f"{x:.1e}" for x in cells) + " |", flush=True)
    return equal


def forms(arguments, more):
    """The table of both binary programs; false if a model failed."""
    print("| model | columns x rows | plan ms | strong root ms | ms | published root ms | ms |\n" + "|---" * 7 + "|",
          flush=True)
    shares = []
    complete = True
    for name, model in models(arguments):
        report = explain(arguments.tool, model, arguments, [*more, "--blp", "both"])
        complete = complete and report is not None
        if report is None:
            continue
        roots = report["blp_roots"]
        strong, published = roots["strong"], roots["published"]
        plan = report["choice"]["plan_ms"]
        shares.append((strong["root_ms"] / plan, published["root_ms"] / plan))
        print(f"| {name} | {report['blp_columns']} x {report['blp_rows']} | {plan:.3f} | "
              + " | ".join(f"{r['root_ms']:.3f} ({100 * r['root_ms'] / plan:.2f} %) | {r['solve_ms']:.0f}"
                           for r in (strong, published)) + " |", flush=True)
    if shares:
        print("\nRelaxation over plan, geometric means: " + ", ".join(
            f"{which} {100 * math.exp(sum(math.log(s[k]) for s in shares) / len(shares)):.2f} %"
            for k, which in enumerate(("strong", "published"))))
    return complete


def bounds(arguments, more):
    """The table of maximum sizes of pieces; false if a model failed."""
    print("| model | " + " | ".join(f"{n} primitives" for n in arguments.bounds) + " |\n"
          + "|---" * (len(arguments.bounds) + 1) + "|", flush=True)
    complete = True
    for name, model in models(arguments):
        reports = [explain(arguments.tool, model, arguments, [*more, "--piece-nodes", str(n)])
                   for n in arguments.bounds]
        complete = complete and None not in reports
        if None in reports:
            continue
        last = reports[-1]["choice"]["plan_ms"]
        print(f"| {name} | " + " | ".join(
            f"{len(r['pieces'])} pieces, {r['cuts']['bytes'] / 1e6:.1f} MB, {r['cuts']['greedy_kernels']} kernels; "
            f"{r['choice']['plan_ms'] / last:.3f}; {r['orchestrate_ms'] / 1e3:.1f} s" for r in reports) + " |",
              flush=True)
    return complete


def subgraph(path, batch):
    """Addition, LayerNorm and transposition over 128 x 128 places of 32 channels, SegFormer-B0's first stage."""
    import numpy
    import onnx
    from onnx import helper, numpy_helper

    places, channels = 16384, 32
    shape = [batch, places, channels]
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
               for name, dims in (("x", shape), ("y", shape), ("out", [batch, channels, places]))]
    nodes = [helper.make_node("Add", ["x", "y"], ["sum"], "add"),
             helper.make_node("LayerNormalization", ["sum", "gain", "bias"], ["norm"], "norm", axis=-1, epsilon=1e-5),
             helper.make_node("Transpose", ["norm"], ["out"], "transpose", perm=[0, 2, 1])]
    weights = [numpy_helper.from_array(numpy.linspace(0.5, 1.5, channels, dtype=numpy.float32), name)
               for name in ("gain", "bias")]
    graph = helper.make_graph(nodes, f"figure_13_batch_{batch}", tensors[:2], tensors[2:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def figure_13(arguments, more):
    """The table of the memory-bound subgraph; false if it failed."""
    print("| batch | plan: kernels | ms | greedy: kernels | ms | one kernel per operator: kernels | ms |\n" + "|---" * 7
          + "|", flush=True)
    if not arguments.time:
        more = [*more, "--time", "1"]
    if arguments.profile == "none":
        arguments.profile = "full"
    complete = True
    for batch in (1, 16):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"figure_13_batch_{batch}.onnx"
            subgraph(path, batch)
            report = explain(arguments.tool, path, arguments, more)
        complete = complete and report is not None
        if report is not None:
            print(f"| {batch} | " + " | ".join(f"{p['kernels']} | {p['measured_ms']:.3f}" for p in report["plans"])
                  + " |", flush=True)
    return complete


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("models", type=Path, nargs="?", default=Path("."))
    parser.add_argument("--only", nargs="+", default=MODELS, help="names of models, also others than the twelve")
    parser.add_argument("--profile", choices=["none", "lazy", "full"], default="none")
    parser.add_argument("--database", help="tuning database of --profile lazy and full")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, help="run both plans for this many seconds each")
    parser.add_argument("--dim", nargs="+", default=[], metavar="NAME=SIZE", help="sizes of the inputs for --time")
    parser.add_argument("--ablations", action="store_true", help="the effect of disabling each mechanism, by estimate")
    parser.add_argument("--outputs", action="store_true", help="check that disabling a mechanism does not change outputs")
    parser.add_argument("--forms", action="store_true", help="the relaxations of both binary programs")
    parser.add_argument("--bounds", type=int, nargs="+", metavar="N", help="the effect of limiting pieces to N primitives")
    parser.add_argument("--figure-13", action="store_true", help="the memory-bound subgraph of Korch's figure 13")
    arguments = parser.parse_args()
    more = [f"--dim={d}" for d in arguments.dim]
    if arguments.database:
        more += ["--database", arguments.database]
    if arguments.time:
        more += ["--time", str(arguments.time)]
    if arguments.ablations:
        return 0 if ablations(arguments, more) else 1
    if arguments.outputs:
        return 0 if outputs(arguments, more) else 1
    if arguments.forms:
        return 0 if forms(arguments, more) else 1
    if arguments.bounds:
        return 0 if bounds(arguments, more) else 1
    if arguments.figure_13:
        return 0 if figure_13(arguments, more) else 1
    header = HEADER + (TIMED if arguments.time else [])
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header), flush=True)
    ratios, whole, before = [], [], []
    failed = False
    for name, model in models(arguments):
        report = explain(arguments.tool, model, arguments, more)
        failed = failed or report is None
        if report is None:
            continue
        cells = row(name, report)
        if arguments.time:
            whole.append(report["greedy_ms"] / report["plan_ms"])
            cells += [f"{report['plan_ms']:.3f}", f"{report['greedy_ms']:.3f}", f"{whole[-1]:.3f}"]
            plain = explain(arguments.tool, model, arguments, more + ["--orchestrate", "greedy", "--no-rewrites"])
            failed = failed or plain is None
            if plain is not None:
                before.append(plain["plan_ms"] / report["plan_ms"])
                cells += [f"{plain['plan_ms']:.3f}", f"{before[-1]:.3f}"]
        print("| " + " | ".join(str(x) for x in cells) + " |", flush=True)
        if report["choice"]["greedy_ms"]:
            ratios.append(report["choice"]["greedy_ms"] / report["choice"]["emitted_ms"])
    print()
    for what, values in (("Greedy over emitted kernels, by the costs of the choice", ratios),
                         ("Greedy over plan, whole runs", whole),
                         ("Greedy without rewrites over plan, whole runs", before)):
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"{what}, geometric mean of {len(values)}: {mean:.3f}, least {min(values):.3f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
