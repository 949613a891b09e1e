#!/usr/bin/env python3
"""Compile time and peak memory, model by model, as a Markdown table.

  python3 bench/compile.py build/bin/tilewright MODEL_OR_FOLDER... [--only NAME...] [--cores 1 2] [--stages]

A folder means its .onnx files and those of its subfolders. Each model is compiled and run once by
`tilewright bench --iterations 1 --warmup 0`, in a process bound to that many cores, with as many threads: first with
an empty cache folder (cold), then again with that cache (warm). Columns: megabytes of the model's files; for
each number of cores the seconds of loading and compiling, cold and warm; the peak memory of a process
(VmHWM), and its limit, twice the files plus --memory megabytes. --stages adds a line per model with the milliseconds of
each stage, cold and warm. --repeat takes the minimum of several runs of each kind. --json writes all readings.

A time above --cold or --warm seconds, memory above its limit, and a compilation that takes more than --slack times as
long on the last number of cores as on the first (and 50 ms more) are marked with an asterisk, and the exit status
is 1.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NOISE_S = 0.05


def models_of(paths, only):
    """(name, path) of each model, smallest file first; a file called model.onnx has its folder's name."""
    files = []
    for path in map(Path, paths):
        files += [path] if path.is_file() else [p for p in path.rglob("*.onnx") if p.is_file()]
    named = [(p.parent.name if p.stem == "model" else p.stem, p) for p in files]
    return sorted((m for m in named if not only or m[0] in only), key=lambda m: m[1].stat().st_size)


def file_mb(model):
    """The size of the model with its external data in the same folder."""
    others = [p for p in model.parent.iterdir() if p.name.startswith(model.name) and p.is_file()]
    return sum(p.stat().st_size for p in others) / 2**20


def measure(tool, model, cores, cache, arguments):
    """The JSON of one `tilewright bench` in its own process; prints the error and returns None if it fails."""
    out = Path(cache) / "bench.json"
    command = [tool, "bench", str(model), "--threads", str(cores), "--iterations", "1", "--warmup", "0", "--json",
               str(out), *arguments.options.split()]
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "XDG_CACHE_HOME": str(cache)},
                          preexec_fn=lambda: os.sched_setaffinity(0, allowed))
    if done.returncode != 0:
        print(f"{model}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(out.read_text(encoding="utf-8"))


def seconds(reading):
    return (reading["load_ms"] + reading["compile_ms"]) / 1e3


def compile_model(tool, model, cores, arguments):
    """The fastest cold and warm readings, and the peak memory of all runs."""
    cold, warm = [], []
    for _ in range(arguments.repeat):
        cache = tempfile.mkdtemp()
        try:
            for readings in (cold, warm):
                reading = measure(tool, model, cores, cache, arguments)
                if reading is None:
                    return None
                readings.append(reading)
        finally:
            shutil.rmtree(cache)
    peak = max(r["peak_rss_mb"] for r in cold + warm)
    return {"cores": cores, "cold": min(cold, key=seconds), "warm": min(warm, key=seconds), "peak_mb": peak}


def marked(value, limit, digits):
    return f"{value:.{digits}f}" + ("*" if value > limit else "")


def row_of(name, mb, results, arguments):
    cells = [name, f"{mb:.0f}"]
    first = results[0]
    for r in results:
        for kind, limit in (("cold", arguments.cold), ("warm", arguments.warm)):
            most = limit if r is first else min(limit, arguments.slack * seconds(first[kind]) + NOISE_S)
            cells.append(marked(seconds(r[kind]), most, 2))
    limit = 2 * mb + arguments.memory
    cells += [marked(max(r["peak_mb"] for r in results), limit, 0), f"{limit:.0f}"]
    return cells


def stages_of(reading):
    passes = {"load": reading["load_ms"], **reading["passes_ms"]}
    return ", ".join(f"{k} {v:.0f}" for k, v in sorted(passes.items(), key=lambda p: -p[1]) if v >= 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--cold", type=float, default=8)
    parser.add_argument("--warm", type=float, default=2)
    parser.add_argument("--memory", type=float, default=400)
    parser.add_argument("--slack", type=float, default=1.05)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--options", default="", help="further options of the tool, in one argument")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    times = [f"{kind} {n}" for n in arguments.cores for kind in ("cold", "warm")]
    header = ["model", "MB", *(f"{t} s" for t in times), "peak MB", "limit MB"]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}", flush=True)
    missed, kept = False, []
    for name, model in models_of(arguments.models, arguments.only):
        results = [compile_model(arguments.tool, model, n, arguments) for n in arguments.cores]
        if None in results:
            missed = True
            continue
        cells = row_of(name, file_mb(model), results, arguments)
        missed = missed or any(c.endswith("*") for c in cells)
        print(f"| {' | '.join(cells)} |", flush=True)
        if arguments.stages:
            for r in results:
                for kind in ("cold", "warm"):
                    print(f"  {r['cores']} {kind}: {stages_of(r[kind])}", flush=True)
        kept.append({"model": name, "mb": file_mb(model), "results": results})
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
