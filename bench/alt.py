#!/usr/bin/env python3
"""ALT's figures 10 and 12: whole models with layouts that are tuned together with loops, beside other libraries.

usage: PYTHONPATH=build/python python bench/alt.py [--figures 10 12] [--models R18 MV2 BB BT R3D] [--batches 1 16]
           [--layouts rule none joint joint:ol joint:wp] [--layout-seconds 10] [--search joint] [--layout-trials 1000]
           [--threads 1] [--peers onnxruntime openvino torch] [--json FILE]

Figure 10: ResNet-18, MobileNetV2, BERT-base, BERT-tiny (128 tokens) and ResNet3D-18 (16 frames) from the zoo, each
compiled with each of --layouts (bench/ops.py explains their names; ppo takes 1,000 measurements a contraction, hours a
model), and timed in turns with the peers. Columns are milliseconds; the last ones are speeds relative to the first peer,
as the paper's are to Torch. The paper's bars are images: its text has the means that are printed below.

Figure 12: one level of layout tiles, two levels with the same budget, and two levels with half as much again; budgets are
--layout-seconds of joint, or --layout-trials of ppo (--search). Speeds are relative to the first.
"""

import sys

from ops import layout_options
from papers import over, parser_of, print_table, run

MODELS = {"R18": "resnet18", "MV2": "mobilenet_v2", "BB": "bert_base", "BT": "bert_tiny", "R3D": "r3d_18"}


def compared(bench, variants):
    """(names of rows, results) of every model and batch."""
    names, rows = [], []
    for model in bench.o.models:
        for batch in bench.o.batches:
            names.append(f"{model}-b{batch}")
            rows.append(bench.compare(bench.zoo(MODELS[model], batch=batch), variants))
            print(f"{names[-1]}: " + ", ".join(f"{c} {r['ms']:.3f}" for c, r in rows[-1].items()), file=sys.stderr)
    return names, rows


def print_rows(title, names, rows, columns, base):
    cells = [[name, *(f"{r[c]['ms']:.3f}" if c in r else "-" for c in columns),
              *(over([r], c, base) for c in columns if c != base)] for name, r in zip(names, rows)]
    print_table(title, ["", *columns, *(f"{c} /x" for c in columns if c != base)], cells)


def figure_10(bench):
    budgets = {"joint": ["--layout-seconds", bench.o.layout_seconds], "ppo": ["--layout-trials", bench.o.layout_trials]}
    variants = {l: {"options": [*layout_options(l), *budgets.get(l.partition(":")[0], [])]} for l in bench.o.layouts}
    names, rows = compared(bench, variants)
    columns = [*bench.o.layouts, *bench.peers]
    base = bench.peers[0] if bench.peers else columns[0]
    print_rows(f"Figure 10: ms, {bench.o.threads} threads; then speed over {base}", names, rows, columns, base)
    print("geometric means, paper (Xeon Gold 6248, 40 cores): ALT over Ansor 1.47, ALT-WP over ALT-OL 1.1, ALT over ALT-WP 1.3")
    pairs = [("joint", "rule"), ("joint", "none"), ("rule", "none"), ("joint:wp", "joint:ol"), ("joint", "joint:wp"),
             ("ppo", "rule"), ("ppo:wp", "ppo:ol"), ("ppo", "ppo:wp"), *(("joint", p) for p in bench.peers)]
    print("    here: " + ", ".join(f"{a} over {b} {over(rows, a, b)}" for a, b in pairs if a in columns and b in columns))
    return dict(zip(names, rows))


def figure_12(bench):
    o = bench.o
    flag, budget = ("--layout-trials", o.layout_trials) if o.search == "ppo" else ("--layout-seconds", o.layout_seconds)
    more = int(budget * 1.5) if o.search == "ppo" else budget * 1.5
    search = ["--layouts", o.search]
    variants = {"one level": {"options": [*search, flag, budget]},
                "two levels": {"options": [*search, flag, budget, "--layout-levels", "2"]},
                "two, budget x 1.5": {"options": [*search, flag, more, "--layout-levels", "2"]}}
    peers, bench.peers = bench.peers, []
    names, rows = compared(bench, variants)
    bench.peers = peers
    print_rows(f"Figure 12: ms with {o.search}, budget {budget} ({flag}); then speed over one level", names, rows,
               list(variants), "one level")
    print("means, paper (budgets of 20,000, 20,000 and 30,000 measurements): 1, 1 / 1.15 = 0.87, 1.06")
    print("    here: 1, " + ", ".join(over(rows, v, "one level") for v in list(variants)[1:]))
    return dict(zip(names, rows))


def main():
    p = parser_of(__doc__)
    p.add_argument("--figures", nargs="+", choices=["10", "12"], default=["10", "12"])
    p.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    p.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    p.add_argument("--layouts", nargs="+", default=["rule", "none", "joint", "joint:ol", "joint:wp"])
    p.add_argument("--layout-seconds", type=float, default=10)
    p.add_argument("--search", choices=["joint", "ppo"], default="joint")
    p.add_argument("--layout-trials", type=int, default=1000)
    o = p.parse_args()
    figures = {"10": figure_10, "12": figure_12}
    return run(o, {f"figure {f}": figures[f] for f in o.figures})


if __name__ == "__main__":
    sys.exit(main())
