#!/usr/bin/env python3
"""Gensor's figures 10 to 12 (whole models, dynamic shapes, dynamic structure) and table VI (the parts of its walk).

usage: PYTHONPATH=build/python python bench/gensor.py [--figures 10 11 12 VI] [--batch 128] [--budget 60s]
           [--lengths 5 24 ...] [--trials 200] [--widths 100 75 50] [--images 2000] [--every-operator] [--full]
           [--threads 1] [--peers onnxruntime openvino torch] [--json FILE]

Columns: `tree` is Roller's construction, `walk` Gensor's as the paper has it (--scheduler gensor-published), `gensor` the
same with the default heuristic's state and a hill climb, `auto` what models are compiled with, and `tune` a measured search
(`tilewright tune --budget`), in Ansor's place; the peers are in PyTorch's. The figures are images in the paper: its text
has the ratios that are printed below each table.

Figure 10: ResNet-34, --batch images: seconds of optimisation, and images a second.
Figure 11: BERT-small for each of --lengths, one compilation a length; `dietcode` is one joint search (--trials) for all
lengths, `dynamic` one compilation by estimates.
Figure 12: MobileNetV2 of one channel, --batch images, whose layers have --widths percent of the published channels, one
after the other. Each is optimised, then it runs --images times: the median of a run counts as often.
Table VI: its four operators, or with --every-operator all of bench/ops/gensor_scaled.txt; --full has the paper's sizes.
Occupancy and memory of a GPU have no counterpart here.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from papers import mean, over, parser_of, print_table, run
from suite import times
from tilewright._tools import random_feeds

OPS = Path(__file__).resolve().parent / "ops"
SCHEDULERS = {"tree": "tree", "walk": "gensor-published", "gensor": "gensor", "auto": "auto"}
# Table VI: FLOPS of Roller, Gensor without vThread, Gensor.
TABLE_VI = {"C1": (22.76, 31.93, 34.54), "M1": (37.6, 43.1, 45.2), "V1": (0.23, 0.39, 0.47), "P1": (0.07, 0.08, 0.08)}


def methods(bench):
    out = {name: {"options": ["--scheduler", scheduler]} for name, scheduler in SCHEDULERS.items()}
    if bench.o.budget != "0":
        out["tune"] = {"options": [], "tune": bench.o.budget}
    return out


def figure_10(bench):
    batch = bench.o.batch
    r = bench.compare(bench.zoo("resnet34", batch=batch), methods(bench))
    print_table(f"Figure 10: ResNet-34, {batch} images, {bench.o.threads} threads",
                ["", "optimisation s", "images/s", "speed over tree"],
                [[n, f"{c['seconds']:.2f}", f"{1e3 * batch / c['ms']:.1f}", over([r], n, "tree")] for n, c in r.items()])
    print("paper (RTX 4090, 128 images): Gensor optimises in the order of Roller's time and far below Ansor's, is clearly faster\n"
          "than Roller (1.2 on average over its models) and close to Ansor")
    return r


def figure_11(bench):
    o = bench.o
    dims = ["batch=1", f"seq={min(o.lengths)}..{max(o.lengths)}:{','.join(map(str, o.lengths))}"]
    dynamic = bench.zoo("bert_small_dyn")
    ready, seconds = {}, {}
    for name, options in [("dietcode", ["--scheduler", "dietcode", "--trials", o.trials]), ("dynamic", [])]:
        ready[name], seconds[name], _ = bench.compiled(dynamic, options, dims)
    rows = []
    for length in o.lengths:
        sessions = {}
        for name, how in methods(bench).items():
            if name == "tune":
                continue
            sessions[name], s, _ = bench.compiled(bench.zoo("bert_small", seq=length), **how)
            seconds[name] = seconds.get(name, 0) + s
        sessions.update(ready)
        feeds = random_feeds(sessions["tree"])
        runs = {n: lambda s=s: s.run(None, feeds) for n, s in sessions.items()}
        for peer in bench.peers:
            runs[peer] = bench.peer(peer, dynamic, feeds)
        taken = times([r for r in runs.values() if r], o.seconds)
        rows.append({n: {"ms": s * 1e3} for n, s in zip([n for n, r in runs.items() if r], taken)})
    columns = list(rows[0])
    print_table(f"Figure 11: BERT-small, {o.threads} threads: samples/s, then speed over tree",
                ["tokens", *columns, *(f"{c} /x" for c in columns if c != "tree")],
                [[n, *(f"{1e3 / r[c]['ms']:.1f}" for c in columns), *(over([r], c, "tree") for c in columns if c != "tree")]
                 for n, r in zip(o.lengths, rows)])
    print("means, paper: Gensor over Roller 1.17, over PyTorch 2.1, DietCode 0.83 of Gensor; optimised in 75 min, DietCode in 50")
    print("    here: walk over tree {}, gensor over tree {}, dietcode {} of walk".format(
        over(rows, "walk", "tree"), over(rows, "gensor", "tree"), over(rows, "dietcode", "walk"))
        + "".join(f", walk over {p} {over(rows, 'walk', p)}" for p in bench.peers))
    print("    optimised in s: " + ", ".join(f"{n} {s:.1f}" for n, s in seconds.items()))
    return {"seconds": seconds, "rows": dict(zip(map(str, o.lengths), rows))}


def figure_12(bench):
    o = bench.o
    stages = [bench.compare(bench.zoo("mobilenet_v2", batch=o.batch, width=w, **{"in": 1}), methods(bench))
              for w in o.widths]
    columns = [c for c in stages[0] if all(c in s for s in stages)]
    total = {c: sum(s[c]["seconds"] + o.images * s[c]["ms"] * 1e-3 for s in stages) for c in columns}
    cells = []
    for c in columns:
        each = [f"{s[c]['seconds']:.1f} + {o.images * s[c]['ms'] * 1e-3:.0f}" for s in stages]
        cells.append([c, *each, f"{total[c]:.0f}", f"{total['tree'] / total[c]:.2f}"])
    print_table(f"Figure 12: MobileNetV2 [{o.batch}, 1, 224, 224], {o.threads} threads: seconds of optimisation + of {o.images} "
                "runs", ["", *(f"width {w} %" for w in o.widths), "total s", "speed over tree"], cells)
    print("paper: Gensor has the shortest total of PyTorch, Ansor (whose optimisation exceeds the figure), Roller and Gensor")
    print(f"    here: the shortest total is that of {min(total, key=total.get)}; of tree and walk, that of "
          f"{min(['tree', 'walk'], key=total.get)}")
    return {"total": total, "stages": stages}


def table_vi(bench):
    """Needs bench_construct beside the tool. All schedules are chosen by estimates; the last columns are not the paper's."""
    o = bench.o
    lines = [line.partition("#") for line in (OPS / ("gensor.txt" if o.full else "gensor_scaled.txt")).read_text().splitlines()]
    ops = {label.strip() or op.strip(): op.strip() for op, _, label in lines if op.strip()}
    if not o.every_operator:
        ops = {label: ops[label] for label in TABLE_VI}
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([Path(o.tool).with_name("bench_construct"), *(x for op in ops.values() for x in ("--op", op)),
                        "--walks", str(o.walks), "--json", out.name, "--database", bench.folder / "construct.db"], check=True,
                       stdout=subprocess.DEVNULL)
        found = json.loads(Path(out.name).read_text())
    rows = dict(zip(ops, ([r["ms"] for r in found])))
    cells = []
    for label, ms in rows.items():
        speed = [f"{ms['tree'] / ms[c]:.2f}" for c in ("walk-v", "walk", "gensor-v", "gensor", "rule")]
        paper = [f"{f / TABLE_VI[label][0]:.2f}" for f in TABLE_VI[label][1:]] if label in TABLE_VI else ["", ""]
        cells.append([label, *paper, f"{ms['tree']:.3f}", *speed])
    print_table("Table VI: speed over Roller's construction; one thread",
                ["", "paper: walk -vThread", "walk", "tree ms", "walk -vThread", "walk", "+ seed, climb -vThread", "+ seed, climb",
                 "heuristic"], cells)
    step = lambda a, b: mean([r[a] / r[b] for r in rows.values()])  # noqa: E731
    graph = statistics.geometric_mean([b / a for a, b, _ in TABLE_VI.values()])
    vthread = statistics.geometric_mean([c / b for _, b, c in TABLE_VI.values()])
    print(f"means: tree to walk, paper {graph:.2f}, here {step('tree', 'walk-v'):.2f}; virtual threads, paper {vthread:.2f}, here "
          f"{step('walk-v', 'walk'):.2f}; seed and climb, not the paper's, {step('walk', 'gensor'):.2f}; tree to all of it "
          f"{step('tree', 'gensor'):.2f}")
    return rows


def main():
    figures = {"10": figure_10, "11": figure_11, "12": figure_12, "VI": table_vi}
    p = parser_of(__doc__)
    p.add_argument("--figures", nargs="+", choices=list(figures), default=list(figures))
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--budget", default="60s", help="of `tune`; 0: without it")
    p.add_argument("--lengths", nargs="+", type=int, default=[5, 24, 43, 62, 81, 100, 119, 128])
    p.add_argument("--trials", type=int, default=200)
    p.add_argument("--widths", nargs="+", type=int, default=[100, 75, 50])
    p.add_argument("--images", type=int, default=2000, help="runs of a stage of figure 12 that are counted")
    p.add_argument("--walks", type=int, default=6, help="of 100 steps, of the paper's columns of table VI (6)")
    p.add_argument("--every-operator", action="store_true")
    p.add_argument("--full", action="store_true", help="the operators in the paper's sizes")
    o = p.parse_args()
    return run(o, {f: figures[f] for f in o.figures})


if __name__ == "__main__":
    sys.exit(main())
