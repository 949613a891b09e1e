#!/usr/bin/env python3
"""What the optimal choice of kernels takes and gives, model by model, as a Markdown table.

  python3 bench/orchestration.py build/bin/tilewright MODELS [--only NAME...] [--profile none|lazy|full]

MODELS is a folder of .onnx files; of the twelve models below those that it holds are compiled. Columns: execution
states; candidate kernels; different kernels measured, and those as a share of the candidates; columns and rows of the
binary programs, and the gap that is left; seconds of the whole compilation, and of those for choosing and for
measuring; the plan's and the greedy rule's milliseconds, and their ratio: by the costs that the choice went by,
estimated or (--profile) measured kernel by kernel, or, with --time SECONDS, of whole runs; then also those of the
greedy rule over the program as its operators write it, without rewrites, and their ratio to the plan's. --database
names the tuning database: what an empty one takes, and what a full one takes, are two runs of this program.
--ablations is another table: what the plan takes by estimate where a part is left out, over what it takes with all of
them. --forms is one of the two binary programs (Korch's, and the stronger one): their linear relaxations and the times
of these. --bounds is one of the bound on the pieces that the graph is cut into: for each bound the pieces, the
megabytes and the greedy rule's kernels that cuts go through, what the plan takes by estimate over what it takes with
the last bound, and the seconds of choosing. --outputs runs the models with and without each part, on the same inputs,
and prints how far apart outputs are at most, over the largest number among them; it fails where that is more than 1e-3.
It needs numpy.
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
HEADER = ["model", "states", "candidates", "measured", "columns x rows", "gap", "compile s", "choosing s",
          "measuring s", "plan ms", "greedy ms", "ratio"]


ABLATIONS = ["no-fission", "no-operator-fusion", "no-rewrites", "no-redundancy", "single-output", "layouts-first",
             "orchestrate greedy"]


def explain(tool, model, arguments, more):
    """The tool's report of a model; nothing where it failed, which is printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        how = [] if "--orchestrate" in more else ["--orchestrate", "optimal", "--profile", arguments.profile]
        command = [tool, "explain", str(model), *how, "--threads", str(arguments.threads), "--json", str(path), *more]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            print(f"{model.name}: {done.stderr.strip()}", file=sys.stderr)
            return None
        return json.loads(path.read_text(encoding="utf-8"))


def row(name, report, costs):
    measured = str(report["measured"])
    if report["measured"]:
        measured += f" ({100 * report['measured'] / report['candidates']:.1f} %)"
    return [name, report["execution_states"], report["candidates"], measured,
            f"{report['blp_columns']} x {report['blp_rows']}", f"{100 * report['blp_gap']:.2g} %",
            f"{report['compile_ms'] / 1e3:.1f}", f"{(report['orchestrate_ms'] - report['measure_ms']) / 1e3:.1f}",
            f"{report['measure_ms'] / 1e3:.1f}", *(f"{x:.3f}" for x in costs), f"{costs[1] / costs[0]:.3f}"]


def models(arguments):
    """Names and files of those asked for that are there; the others are named on standard error."""
    for name in arguments.only:
        model = arguments.models / f"{name}.onnx"
        if model.exists():
            yield name, model
        else:
            print(f"{model}: not there", file=sys.stderr)


def ablations(arguments, more):
    """The table of what is lost without each part; false where a model failed."""
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
    """By name; nothing where the tool failed, which is printed."""
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
    """The table of how far apart outputs are; false where a model failed, or they are not equal."""
    import numpy

    def apart(one, other):
        if one is None or other is None or one.keys() != other.keys() or not one:
            return math.inf
        worst = 0.0
        for name, a in one.items():
            b = other[name]
            finite = numpy.isfinite(a)
            if a.shape != b.shape or a.dtype != b.dtype or (a.size and not finite.any()):
                return math.inf  # also where all is NaN: equal, but that says nothing
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
    """The table of both binary programs; false where a model failed."""
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
    """The table of bounds on pieces; false where a model failed."""
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


def costs_of(report, timed):
    """Milliseconds of the plan, and of the greedy rule's."""
    chosen = report if timed else report["choice"]
    return [chosen["plan_ms"], chosen["greedy_ms"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("models", type=Path)
    parser.add_argument("--only", nargs="+", default=MODELS, help="names of models, also others than the twelve")
    parser.add_argument("--profile", choices=["none", "lazy", "full"], default="none")
    parser.add_argument("--database", help="tuning database of --profile lazy and full")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, help="run both plans for so many seconds each")
    parser.add_argument("--dim", nargs="+", default=[], metavar="NAME=SIZE", help="of the inputs that --time runs on")
    parser.add_argument("--ablations", action="store_true", help="what leaving out each part loses, by estimate")
    parser.add_argument("--outputs", action="store_true", help="whether leaving out each part changes what is computed")
    parser.add_argument("--forms", action="store_true", help="the relaxations of both binary programs")
    parser.add_argument("--bounds", type=int, nargs="+", metavar="N", help="what bounding pieces to N primitives does")
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
    header = HEADER + (["greedy without rewrites", "ratio"] if arguments.time else [])
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header), flush=True)
    ratios, before = [], []
    failed = False
    for name, model in models(arguments):
        report = explain(arguments.tool, model, arguments, more)
        failed = failed or report is None
        if report is None:
            continue
        costs = costs_of(report, arguments.time)
        cells = row(name, report, costs)
        if arguments.time:
            plain = explain(arguments.tool, model, arguments, more + ["--orchestrate", "greedy", "--no-rewrites"])
            failed = failed or plain is None
            if plain is not None:
                before.append(plain["plan_ms"] / costs[0])
                cells += [f"{plain['plan_ms']:.3f}", f"{before[-1]:.3f}"]
        print("| " + " | ".join(str(x) for x in cells) + " |", flush=True)
        ratios.append(costs[1] / costs[0])
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"\nGreedy over plan, geometric mean of {len(ratios)}: {mean:.3f}, least {min(ratios):.3f}")
    if before:
        mean = math.exp(sum(map(math.log, before)) / len(before))
        print(f"Greedy without rewrites over plan, geometric mean of {len(before)}: {mean:.3f}, "
              f"least {min(before):.3f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
