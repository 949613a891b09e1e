#!/usr/bin/env python3
"""MCFuser's figures 2, 8 and 9 and table IV on a CPU, with its ablations.

usage: PYTHONPATH=build/python python bench/mcfuser.py [--figures 2 8 9 IV] [--every 1] [--models small base large]
           [--tokens 512] [--budget 60s] [--trials 1000] [--threads 1] [--peers onnxruntime openvino torch] [--json FILE]

Figure 2: products of 1024^3 multiply-adds with M = N and a decreasing share K/M, both factors computed at run time.
Figure 8: every Nth (--every) of its GEMM chains (G1 to G12) and attentions (S1 to S9). Chains in the given order (A B) D:
`chain` is MCFuser's search, as one kernel even where the model sees no gain, `deep` the same without flat expressions,
`unhoisted` with copies in their own loops, `chimera` without both (the paper's MCFuser-Chimera), `separate` a kernel a
product, `planned` whichever the model prefers; `rewritten` is the default plan, whose rewrites may compute A (B D) where that
is less work, and then no longer is MCFuser's result.
Figure 9: BERT-small, -base and -large with --tokens tokens: `default` is the default heuristic without chains (in Relay's
place), `mcfuser` the same with chains, `search` a measured search without chains (`tilewright tune --budget`, in Ansor's
place), `mcfuser+search` the same with chains, `auto` what models are compiled with.
Table IV: seconds of finding the kernels of figure 8 and of compiling the models of figure 9. `--trials` are those of Ansor's
place for chains and attentions, each with an empty database.

The figures are images in the paper: its text has the means that are printed below each table.
"""

import json
import subprocess
import sys
from pathlib import Path

from papers import mean, over, parser_of, print_table, run

HERE = Path(__file__).resolve().parent
CHAIN = "--scheduler mcfuser --all-chains"
SEARCHED = {"chain": CHAIN, "deep": f"{CHAIN} --chain-ablation deep", "unhoisted": f"{CHAIN} --chain-ablation unhoisted",
            "chimera": f"{CHAIN} --chain-ablation chimera", "separate": "--scheduler default", "planned": "--scheduler mcfuser"}
KINDS = {"GEMM chains": "mcfuser_gemm_chains", "attentions": "mcfuser_attention"}


def operators(bench, kind):
    lines = (HERE / "ops" / f"{KINDS[kind]}.txt").read_text().splitlines()
    return [op for op in (line.partition("#")[0].strip() for line in lines) if op][::bench.o.every]


def op(bench, text, *more):
    """The JSON of `tilewright op`, and its seconds."""
    out = bench.folder / "op.json"
    out.unlink(missing_ok=True)
    seconds, _ = bench.tool("op", text, "--threads", bench.o.threads, "--json", out, *more)
    return json.loads(out.read_text()), seconds


def figure_2(bench):
    o, machine = bench.o, bench.folder / "machine.json"
    bench.tool("info", "--json", machine)
    rates, some = json.loads(machine.read_text()), "1" if o.threads == 1 else "all"
    # FLOP an element of f32: below it memory is the limit.
    limit = rates[f"fma_gflops_{some}"]["value"] / (rates[f"memory_gbps_{some}"]["value"] / 4)
    tile, rows = 256, []
    for k in o.sums:
        m = max(16, round((1024**3 / k) ** 0.5 / 16) * 16)
        j, _ = op(bench, f"gemm m={m} n={m} k={k} weights=input", "--time", o.seconds, "--no-check")
        intensity = 2 * tile * tile * k / (tile * tile + 2 * tile * k)
        rows.append({"m": m, "k": k, "intensity": intensity, "gflops": j["gflops"], "share": j["limit_share"]})
    print_table(f"Figure 2: products of 1024^3 multiply-adds, M = N; {o.threads} threads, P / W = {limit:.0f} FLOP an element",
                ["K", "M = N", "K / M", "paper: phi", "phi, tile 256", "bound", "GFLOP/s", "of the limit"],
                [[r["k"], r["m"], f"{r['k'] / r['m']:.4f}", {1024: "227", 1: "2"}.get(r["k"], ""), f"{r['intensity']:.1f}",
                  "memory" if r["intensity"] < limit else "compute", f"{r['gflops']:.1f}", f"{r['share']:.0%}"]
                 for r in rows])
    print("paper: the throughput of an A100 falls with K / M (an image)")
    return rows


def estimated(bench, kind):
    """Prints how far each variant is from `chain` by the cost model, and in how many plans it differs, free of noise."""
    plans = [{n: op(bench, text, "--no-rewrites", "--no-run", "--no-check", *how.split())[0] for n, how in SEARCHED.items()}
             for text in operators(bench, kind)]
    print("    by the cost model, chain over " + ", ".join(
        f"{n} {mean([p[n]['estimate_ms'] / p['chain']['estimate_ms'] for p in plans]):.3f} (another plan in "
        f"{sum(p[n]['schedule'] != p['chain']['schedule'] for p in plans)} of {len(plans)})" for n in SEARCHED if n != "chain"))
    return [{n: p[n]["estimate_ms"] for n in SEARCHED} for p in plans]


def figure_8(bench):
    results = {}
    for kind, file in ((k, KINDS[k]) for k in bench.o.kinds):
        given = {n: f"{how} --no-rewrites" for n, how in SEARCHED.items()}
        out = bench.folder / "ops.jsonl"
        done = subprocess.run([sys.executable, HERE / "ops.py", HERE / "ops" / f"{file}.txt", "--every", str(bench.o.every),
                               "--threads", str(bench.o.threads), "--seconds", str(bench.o.seconds / 5), "--rounds", str(bench.o.rounds), "--build",
                               Path(bench.o.tool).resolve().parent.parent, "--json", out, "--peers",
                               *[p for p in bench.peers if p != "torch"],
                               "--variants", *(f"{n}={how}" for n, how in {**given, "rewritten": ""}.items())], check=False)
        if done.returncode != 0:
            raise RuntimeError("bench/ops.py failed")
        rows = [json.loads(line)["ms"] for line in out.read_text().splitlines()]
        paper = {"GEMM chains": "over PyTorch 6.6 (A100) and 3.7 (RTX 3080), over Ansor 2.7 and 1.6, over Chimera 1.06 and 1.07",
                 "attentions": "over PyTorch 8.1 and 5.8, over Ansor 2.8 and 1.45, over Chimera 1.1 and 1.01"}[kind]
        print(f"Figure 8, {kind}: paper, MCFuser {paper}")
        print("    here: chain over " + ", ".join(
            f"{n} {mean([r[n] / r['chain'] for r in rows if r.get(n) and r['chain']]) or float('nan'):.2f}"
            for n in rows[0] if n != "chain"))
        results[kind] = {"ms": rows, "estimates_ms": estimated(bench, kind)}
    return results


def models(bench):
    return {f"Bert-{m.capitalize()}": bench.zoo(f"bert_{m}", seq=bench.o.tokens) for m in bench.o.models}


def figure_9(bench):
    variants = {"default": {"options": ["--scheduler", "default"]}, "mcfuser": {"options": ["--scheduler", "mcfuser"]},
                "auto": {"options": []}}
    if bench.o.budget != "0":
        variants["search"] = {"options": ["--skip", "fuse_gemm_chains"], "tune": bench.o.budget}
        variants["mcfuser+search"] = {"options": [], "tune": bench.o.budget}
    rows = {name: bench.compare(path, variants) for name, path in models(bench).items()}
    columns = [*variants, *bench.peers]
    text = lambda r, c: f"{r[c]['ms']:.2f}" if c in r else "-"  # noqa: E731
    print_table(f"Figure 9: BERT, {bench.o.tokens} tokens, {bench.o.threads} threads: ms, then speed over default",
                ["", *columns, *(f"{c} /x" for c in columns[1:])],
                [[n, *(text(r, c) for c in columns), *(over([r], c, "default") for c in columns[1:])] for n, r in rows.items()])
    all_rows = list(rows.values())
    print("means, paper (A100): MCFuser+Relay over Relay 1.45, over Ansor 1.33; MCFuser+Ansor over BOLT 3.66")
    print("    here: mcfuser over default " + over(all_rows, "mcfuser", "default") + ", auto over default "
          + over(all_rows, "auto", "default") + ", mcfuser over search " + over(all_rows, "mcfuser", "search")
          + "".join(f", auto over {p} {over(all_rows, 'auto', p)}" for p in bench.peers))
    bench.found = rows
    return rows


PAPER_IV = {"GEMM chains": ("88", "4895", "29", "35"), "attentions": ("-", "2897", "32", "39")}
PAPER_MODELS = {"Bert-Small": ("30", "81", "14508", "10008"), "Bert-Base": ("149", "202", "14184", "9864"),
                "Bert-Large": ("186", "243", "14616", "10728")}


def table_iv(bench):
    o, rows, results = bench.o, [], {}
    for kind in o.kinds:
        seconds = {"estimates": [], "chimera": [], "chain": [], "search": []}
        for text in operators(bench, kind):
            def spent(*more):
                database = bench.folder / "iv.db"
                database.unlink(missing_ok=True)
                return op(bench, text, "--no-rewrites", "--no-run", "--no-check", "--database", database, *more)[1]
            seconds["estimates"].append(spent(*CHAIN.split()))
            seconds["chimera"].append(spent(*CHAIN.split(), "--measure", "--chain-ablation", "chimera"))
            seconds["chain"].append(spent(*CHAIN.split(), "--measure"))
            seconds["search"].append(spent("--scheduler", "search", "--trials", o.trials))
        each = {n: sum(s) / len(s) for n, s in seconds.items()}
        results[kind] = each
        rows.append([kind, *PAPER_IV[kind], *(f"{each[n]:.2f}" for n in ("search", "chimera", "chain", "estimates")),
                     f"{each['search'] / each['chain']:.0f}"])
    print_table(f"Table IV, sub-graphs: mean seconds of tuning (paper: A100; search: {o.trials} trials, paper 1,000)",
                ["", "paper: BOLT", "Ansor", "Chimera", "MCFuser", "here: search", "chimera", "chain", "by estimates",
                 "search / chain"], rows)
    found = getattr(bench, "found", None) or figure_9(bench)
    columns = [c for c in ("default", "mcfuser", "search", "mcfuser+search", "auto") if c in next(iter(found.values()))]
    print_table(f"Table IV, end to end: seconds (here a measured search has {o.budget})",
                ["", "paper: Relay", "MCFuser+Relay", "Ansor", "MCFuser+Ansor", *(f"here: {c}" for c in columns)],
                [[n, *PAPER_MODELS[n], *(f"{r[c]['seconds']:.1f}" for c in columns)] for n, r in found.items()])
    return results


def main():
    figures = {"2": figure_2, "8": figure_8, "9": figure_9, "IV": table_iv}
    p = parser_of(__doc__)
    p.add_argument("--figures", nargs="+", choices=list(figures), default=list(figures))
    p.add_argument("--sums", nargs="+", type=int, default=[1024, 512, 256, 128, 64, 32, 16], metavar="K", help="of figure 2")
    p.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="of figure 8 and table IV")
    p.add_argument("--rounds", type=int, default=3, help="of figure 8, as in bench/ops.py")
    p.add_argument("--every", type=int, default=1, help="only every Nth chain and attention")
    p.add_argument("--models", nargs="+", choices=["small", "base", "large"], default=["small", "base", "large"])
    p.add_argument("--tokens", type=int, default=512)
    p.add_argument("--budget", default="60s", help="of the measured search of a model; 0: without it")
    p.add_argument("--trials", type=int, default=1000)
    o = p.parse_args()
    return run(o, {f: figures[f] for f in o.figures})


if __name__ == "__main__":
    sys.exit(main())
