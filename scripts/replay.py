#!/usr/bin/env python3
"""Hashes every kernel that the compiler generates for many models, to detect changes of generated code.

  scripts/replay.py                  compile everything and write bench/replay.txt
  scripts/replay.py --check          compile everything and compare with bench/replay.txt; exit status 1 if any differs
  scripts/replay.py --check --quick  a subset for the tests: small models of the zoo, an operator of each kind
  scripts/replay.py --check --code-only   compare the code of kernels alone, for changes of the tile programs' text

The models are the zoo's, the operators of bench/ops/*.txt and, with --suite and the packages numpy and onnx,
the models of a suite (suite.tsv, skeletons/ and fill_weights.py). Each is planned for fixed machines, described by files,
so that the result depends neither on this machine nor on caches. No machine code is generated. A
line of bench/replay.txt is

  MODEL | CONFIGURATION | kernels, calls | hash over the hashes of its kernels | TILE.CODE of each kernel

where a kernel has two hashes: of its tile program, and of its LLVM IR before optimisation or CUDA text, without names
(`tilewright dump --stage hashes`). TILE and CODE are the first digits of them: they identify changed kernels.
build/replay/kernels.txt has a line for each kernel, and build/replay/texts the texts. --check shows for each kernel that
changed the difference to the texts of the last run in this folder that had the hash of bench/replay.txt.
Lines of models that this run skips are unchanged.
"""
import argparse
import collections
import concurrent.futures
import difflib
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Hashes of all kernels, by scripts/replay.py (`make replay-update`):
# MODEL | CONFIGURATION | kernels, calls | hash | TILE.CODE of each kernel
# A commit that changes no kernel leaves this file as it is; any other says which kernels it changes and why.
# After a merge conflict, write it again.
"""
CHANGED = """\
Kernels differ from bench/replay.txt.
- A commit that is meant to change no kernel, such as a refactoring, must not: find out why it does. To see how the texts
  differ, build the commit before, run the same command there, and run it here again with the same build folder.
- A commit that is meant to change them: `make replay-update` (with SUITE=FOLDER and a PYTHON that has numpy and onnx, for
  the suite's models) writes bench/replay.txt; say in the commit's message which kernels change and why.
"""

# Machines as `tilewright info --json` describes them: 2 cores at 3.5 GHz with typical rates.
MACHINES = ROOT / "bench" / "machines"
# name -> options of `tilewright dump`, and the machine. Every pair of AVX2 or AVX-512, orchestrator and
# threads occurs.
CONFIGURATIONS = {
    "avx512 greedy 1": ("avx512", ["--orchestrate", "greedy", "--threads", "1"]),
    "avx512 optimal 2": ("avx512", ["--orchestrate", "optimal", "--threads", "2"]),
    "avx2 greedy 2": ("avx2", ["--orchestrate", "greedy", "--threads", "2"]),
    "avx2 optimal 1": ("avx2", ["--orchestrate", "optimal", "--threads", "1"]),
    # Of what a file describes beside AVX2 and AVX-512, code has what --isa names.
    "amx greedy 1": ("amx", ["--orchestrate", "greedy", "--threads", "1", "--isa", "amx"]),
    "amx bf16 2": ("amx", ["--precision", "bf16", "--threads", "2", "--isa", "amx"]),
    "fp16 f16 1": ("avx512", ["--precision", "f16", "--threads", "1", "--isa", "avx512-fp16"]),
    "sm_90a f16": ("avx512", ["--target", "cuda:sm_90a", "--precision", "f16", "--threads", "1"]),
    "sm_80 f32": ("avx512", ["--target", "cuda:sm_80", "--threads", "1"]),
    # With the generated parts of kernels whose sums libraries may compute.
    "sm_90a f16 libraries": ("avx512", ["--target", "cuda:sm_90a", "--precision", "f16", "--threads", "1",
                                        "--gpu-libraries"]),
    "sm_90a tf32 libraries": ("avx512", ["--target", "cuda:sm_90a", "--precision", "tf32", "--threads", "1",
                                         "--gpu-libraries"]),
}
# Attentions and projections, of known and of dynamic sizes; clips and residuals; transposed convolutions.
LIBRARIES = ["zoo bert_tiny", "dynamic bert_tiny", "zoo mobilenet_v2", "zoo dcgan_generator"]
OF_LIBRARIES = [c for c in CONFIGURATIONS if "libraries" in c]
# The configurations for each kind of model: a few minutes in total.
KINDS = {"op": [c for c in CONFIGURATIONS if "libraries" not in c],
         "zoo": ["avx512 greedy 1", "avx512 optimal 2", "avx2 greedy 2", "avx2 optimal 1", "amx greedy 1", "amx bf16 2",
                 "fp16 f16 1", "sm_90a f16"],
         "dynamic": ["avx512 greedy 1"],
         "suite": ["avx512 optimal 2", "avx2 greedy 2"]}
# Binary programs are solved to optimality: a plan at a time limit depends on the machine.
SOLVED = ["--blp-seconds", "3600"]

QUICK_ZOO = ["mlp", "matmul", "gemm_chain", "attention", "conv2d", "m5", "lstm_tagger", "gru_tagger", "dcgan_generator",
             "gpt2_tiny"]
QUICK_OPS = 2  # per kind
MOST_NAMES = 20  # printed names of changed kernels without stored texts

EXTERNAL_FROM = 1 << 20     # bytes: weights of the suite from this size on are read from one shared file
EXTERNAL_BYTES = 412 << 20
MOST_PARAMETERS = 30e6      # of a model of the zoo; larger ones repeat the layers of smaller ones, or are in the suite
MOST_BYTES = 256 << 20       # of an operator's file
# Too large, or slow and also in the zoo.
SKIPPED_SUITE = {"bert_large", "bert_large_dyn", "efficientnet_b0", "swin_t", "yolox_nano"}


def digest(paths):
    """One hash of the contents of files."""
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(path.name.encode() + b"\0" + path.read_bytes())
    return h.hexdigest()


def quick_operators(texts):
    """QUICK_OPS of each kind, evenly spread over the smaller half, ordered by the product of their numbers."""
    kinds = collections.defaultdict(list)
    for text in texts:
        kinds[text.split()[0]].append(text)
    out = []
    for of_kind in kinds.values():
        of_kind.sort(key=lambda text: (math.prod(map(int, re.findall(r"[=:]([1-9]\d*)", text))), text))
        half = of_kind[:(len(of_kind) + 1) // 2]
        out += dict.fromkeys(half[(2 * k + 1) * len(half) // (2 * QUICK_OPS)] for k in range(QUICK_OPS))
    return out


class Models:
    """Model files, rewritten only when their sources have changed."""

    def __init__(self, tool, folder):
        self.tool, self.folder = tool, folder

    def fresh(self, name, made_of):
        """A folder's path; emptied, and True, if its files have other sources."""
        folder = self.folder / name
        stamp = folder / "made_of"
        if stamp.exists() and stamp.read_text() == made_of:
            return folder, False
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder, True

    def sources(self, *folders):
        files = [p for f in folders for p in (ROOT / "src" / f).rglob("*.cpp") if not p.name.endswith("_test.cpp")]
        return digest(files)

    def run(self, *arguments):
        return subprocess.run([self.tool, *map(str, arguments)], check=True, capture_output=True, text=True).stdout

    def zoo(self, quick, pool):
        """{name: path} of the zoo; models with batch or seq settings once more with dynamic sizes."""
        entries = {}
        for line in self.run("zoo", "--list").splitlines():
            if not line.startswith(" "):
                name = line.split()[0]
                entries[name] = []
                if float(re.search(r"\(([\d.]+) M parameters", line)[1]) * 1e6 > MOST_PARAMETERS:
                    entries.pop(name)
            elif name in entries:
                option = re.match(r" *--set (batch|seq)=(\d+)", line)
                if option:
                    entries[name].append((option[1], option[2]))
        made_of = self.sources("driver/zoo") + str(quick)
        folder, fresh = self.fresh("zoo", made_of)
        wanted = []
        for name, sizes in entries.items():
            if quick and name not in QUICK_ZOO:
                continue
            wanted.append((f"zoo {name}", name, []))
            if any(value != "0" for _, value in sizes):
                wanted.append((f"dynamic {name}", name, [x for s, _ in sizes for x in ("--set", s + "=0")]))
        paths = {label: folder / (label.replace(" ", "_") + ".onnx") for label, _, _ in wanted}
        if fresh:
            list(pool.map(lambda w: self.run("zoo", w[1], "-o", paths[w[0]], *w[2]), wanted))
            (folder / "made_of").write_text(made_of)
        return paths

    def operators(self, quick):
        """{text: path} of the operators of bench/ops, each once."""
        batches = sorted((ROOT / "bench" / "ops").glob("*.txt"))
        texts = [line.split("#")[0].strip() for b in batches for line in b.read_text().splitlines()]
        texts = list(dict.fromkeys(filter(None, texts)))
        if quick:
            texts = quick_operators(texts)
        made_of = self.sources("driver/opspec", "driver/zoo") + "\n".join(texts)
        folder, fresh = self.fresh("ops", made_of)
        index = folder / "index"
        if fresh:
            index.write_text(self.run("op", *texts, "--save", folder, "--save-only"))
            (folder / "made_of").write_text(made_of)
        lines = [line.split(" ", 1) for line in index.read_text().splitlines()]
        return {"op " + text: Path(path) for path, text in lines if Path(path).stat().st_size < MOST_BYTES}

    def suite(self, suite):
        """Skeletons with weights; large weights are ranges of one shared file."""
        import numpy as np
        import onnx
        sys.path.insert(0, str(suite))
        sys.dont_write_bytecode = True
        import fill_weights

        skeletons = sorted((suite / "skeletons").glob("*.onnx"))
        made_of = digest(skeletons + [Path(__file__), suite / "fill_weights.py"])
        folder, fresh = self.fresh("suite", made_of)
        paths = {f"suite {s.stem}": folder / s.name for s in skeletons if s.stem not in SKIPPED_SUITE}
        if not fresh:
            return paths
        block = fill_weights.random_values("weights", [1 << 20], {"role": "weight", "mean": 0, "std": 0.02}, 0)
        with open(folder / "weights.bin", "wb") as f:
            for k in range(EXTERNAL_BYTES // block.nbytes):
                f.write(np.roll(block, 4099 * k).tobytes())
        for skeleton in skeletons:
            if skeleton.stem in SKIPPED_SUITE:
                continue
            model = onnx.load(skeleton)
            for name, t in fill_weights.tensors_of(model.graph):
                size = 4 * int(np.prod(list(t.dims), dtype=np.int64))
                if not t.doc_string.startswith("zoo1 ") or size < EXTERNAL_FROM:
                    continue
                marker = dict(p.split("=", 1) for p in t.doc_string.split(" ")[1:])
                if marker["role"] in ("constant", "iota", "tril", "zlib"):
                    continue
                if marker.get("transpose") == "0":
                    name = marker["of"]
                pages = (EXTERNAL_BYTES - size) // 4096 + 1
                t.data_location = onnx.TensorProto.EXTERNAL
                for key, value in (("location", "weights.bin"), ("offset", fill_weights.fnv(name) % pages * 4096),
                                   ("length", size)):
                    entry = t.external_data.add()
                    entry.key, entry.value = key, str(value)
                t.ClearField("doc_string")
            fill_weights.fill(model)
            (folder / skeleton.name).write_bytes(model.SerializeToString())
        (folder / "made_of").write_text(made_of)
        return paths


def short(line):
    """TILE.CODE of a kernel's line."""
    words = line.split(" ")
    return f"{words[1][:4]}.{words[3][:4]}"


class Kernels:
    """A model in a configuration: the lines of `dump --stage hashes`, or an error."""

    def __init__(self, lines):
        self.lines = lines

    def summary(self):
        if self.lines and self.lines[0].startswith("error: "):
            return f"{self.lines[0]} | - | -"
        words = [line.split(" ") for line in self.lines]
        calls = sum(int(w[5]) for w in words)
        text = "\n".join(sorted(" ".join(w[:6]) for w in words))
        whole = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{len(words)}, {calls} | {whole} | {' '.join(sorted(map(short, self.lines)))}"

    def texts(self):
        return {h for line in self.lines for h in line.split(" ")[1:4:2]} if self.summary()[-1] != "-" else set()


def read_details(path):
    """{(model, configuration): Kernels} of a file that write_details wrote."""
    out = {}
    if not path.exists():
        return out
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            lines.append(line[2:])
        else:
            lines = []
            out[tuple(line.split(" | "))] = Kernels(lines)
    return out


def write_details(path, details):
    text = ""
    for key in sorted(details):
        text += " | ".join(key) + "\n" + "".join(f"  {line}\n" for line in details[key].lines)
    path.write_text(text)


def read_summary(path):
    out = {}
    if path.exists():
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                model, configuration, rest = line.split(" | ", 2)
                out[model, configuration] = rest
    return out


def write_summary(path, summary):
    path.write_text(HEADER + "".join(f"{m} | {c} | {summary[m, c]}\n" for m, c in sorted(summary)))


class Replay:
    def __init__(self, tool, folder, jobs, quick=False):
        self.tool, self.folder, self.jobs, self.quick = tool, folder, jobs, quick
        self.times_path = folder / "times.json"
        self.times = json.loads(self.times_path.read_text()) if self.times_path.exists() else {}
        # No rates of this machine, no measurements, no cached code.
        self.environment = {**os.environ, "XDG_CACHE_HOME": str((folder / "no_cache").resolve()),
                            "TILEWRIGHT_CALIBRATE": "0"}

    def kernels(self, job):
        (model, configuration), path = job
        isa, options = CONFIGURATIONS[configuration]
        command = [self.tool, "dump", path, "--stage", "hashes", "--target-file", MACHINES / f"{isa}.json",
                   "--no-code-cache", *options, "--texts", self.folder / "texts"]
        if "optimal" in options:
            command += SOLVED
        start = time.time()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=self.environment)
        self.times[f"{model} | {configuration}"] = round(time.time() - start, 2)
        lines = done.stdout.splitlines()
        if done.returncode != 0:
            error = next((x for x in done.stderr.splitlines() if x.startswith("error: ")), None)
            lines = [error.replace(str(path), "MODEL") if error else f"error: exit status {done.returncode}"]
        return (model, configuration), Kernels(lines)

    def run(self, models):
        jobs = [((model, c), path) for model, path in models.items()
                for c in KINDS[model.split()[0]] + (OF_LIBRARIES if model in LIBRARIES and not self.quick else [])]
        # The longest jobs start first, so that the last one does not run alone.
        jobs.sort(key=lambda job: -self.times.get(" | ".join(job[0]), 1e9))
        details = {}
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for key, kernels in pool.map(self.kernels, jobs):
                details[key] = kernels
        self.times_path.write_text(json.dumps(self.times, indent=0, sort_keys=True))
        return details

    def text(self, text_hash):
        path = self.folder / "texts" / (text_hash + ".txt")
        return path.read_text().splitlines() if path.exists() else None

    def prune(self, details):
        """Removes texts that belong to none of these kernels."""
        used = {h for kernels in details.values() for h in kernels.texts()}
        for path in (self.folder / "texts").glob("*.txt"):
            if path.stem not in used:
                path.unlink()


def changed_pairs(before, after):
    """Kernels of `before` that `after` lacks, each paired with its replacement: by name, else in order."""
    old, new = [line.split(" ", 8) for line in before], [line.split(" ", 8) for line in after]
    gone = [w for w in old if not any(w[:4] == v[:4] for v in new)]
    come = [w for w in new if not any(w[:4] == v[:4] for v in old)]
    pairs = []
    for w in gone:
        match = next((v for v in come if v[8] == w[8]), None)
        if match is not None:
            come.remove(match)
        pairs.append([w, match])
    for pair in pairs:
        if pair[1] is None and come:
            pair[1] = come.pop(0)
    return pairs + [[None, v] for v in come]


def changed_names(expected, lines):
    """The changes if texts were not stored: `expected` is the previous TILE.CODE of each kernel."""
    if lines[0].startswith("error: "):
        return lines
    gone, come = collections.Counter(expected.split(" ")), []
    for line in lines:
        if gone[short(line)] > 0:
            gone[short(line)] -= 1
        else:
            come.append(line)
    tiles = collections.Counter(s.split(".")[0] for s in gone.elements())
    out = []
    for line in come:
        words = line.split(" ", 8)
        same_tiles = tiles[words[1][:4]] > 0
        out.append(f"kernel {words[8]}: {words[2] if same_tiles else 'tile program'} is another")
    return out or [f"{gone.total()} kernels fewer; the others are unchanged"]


def same(summary, expected, code_only):
    """Whether a model's kernels are the expected ones; with `code_only` their tile programs may differ."""
    if not code_only or expected is None or summary.endswith("| -") or expected.endswith("| -"):
        return summary == expected
    codes = []
    for count, _, kernels in (s.split(" | ") for s in (summary, expected)):
        codes.append((count, sorted(k.split(".")[1] for k in kernels.split(" "))))
    return codes[0] == codes[1]


def counts(summary):
    return " | ".join(summary.split(" | ")[:2])


def show_change(replay, key, expected, before, after, lines_of_diff):
    print(f"changed: {' | '.join(key)}: {counts(expected)} -> {counts(after.summary())}")
    if before is None:
        names = changed_names(expected.split(" | ")[2], after.lines)
        for line in names[:MOST_NAMES]:
            print("  " + line)
        if len(names) > MOST_NAMES:
            print(f"  ... {len(names) - MOST_NAMES} more")
        return
    for old, new in changed_pairs(before.lines, after.lines):
        name = (new or old)[8] if len(new or old) > 8 else " ".join(new or old)
        if old is None or new is None:
            print(f"  kernel {'added' if old is None else 'removed'}: {name}")
            continue
        where = 1 if old[1] != new[1] else 3
        print(f"  kernel {name}: {'tile program' if where == 1 else old[2]} {old[where]} -> {new[where]}")
        a, b = replay.text(old[where]), replay.text(new[where])
        if a is None or b is None:
            print("    (its text was not stored)")
            continue
        diff = list(difflib.unified_diff(a, b, "before", "after", lineterm="", n=1))
        for line in diff[:lines_of_diff]:
            print("    " + line)
        if len(diff) > lines_of_diff:
            print(f"    ... {len(diff) - lines_of_diff} more lines")


def check(replay, details, expected, kept, lines_of_diff, code_only=False):
    """Prints the differences; True if there are none."""
    changed = 0
    for key in sorted(details):
        if same(details[key].summary(), expected.get(key), code_only):
            continue
        changed += 1
        before = kept.get(key)
        if before is not None and before.summary() != expected.get(key):
            before = None  # of another commit
        if key not in expected:
            print(f"new: {' | '.join(key)}: {counts(details[key].summary())}")
        else:
            show_change(replay, key, expected[key], before, details[key], lines_of_diff)
    print(f"replay: {len(details)} models and configurations compared, {changed} changed")
    if changed:
        print(CHANGED, end="")
    return changed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, default=ROOT / "build" / "bin" / "tilewright")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "replay", help="models, texts and details")
    parser.add_argument("--summary", type=Path, default=ROOT / "bench" / "replay.txt")
    parser.add_argument("--suite", type=Path, help="a folder of further models")
    parser.add_argument("--check", action="store_true", help="compare without changing bench/replay.txt")
    parser.add_argument("--quick", action="store_true", help="a subset, in less than a minute")
    parser.add_argument("--code-only", action="store_true", help="with --check: tile programs may differ")
    parser.add_argument("--only", default="", help="models whose name matches this regular expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of concurrent processes")
    parser.add_argument("--diff-lines", type=int, default=30, help="lines per changed kernel")
    o = parser.parse_args()

    start = time.time()
    o.folder.mkdir(parents=True, exist_ok=True)
    source = Models(o.tool, o.folder / "models")
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        models = source.zoo(o.quick, pool)
    models |= source.operators(o.quick)
    if o.suite and not o.quick:
        try:
            models |= source.suite(o.suite)
        except ImportError as e:
            print(f"the suite is skipped: {e}")
    elif not o.quick:
        print("the suite is skipped: no --suite (make replay SUITE=FOLDER)")
    models = {name: path for name, path in models.items() if re.search(o.only, name)}
    prepared = time.time()
    replay = Replay(o.tool, o.folder, o.jobs, o.quick)
    kept_path = o.folder / "kernels.txt"
    kept, expected = read_details(kept_path), read_summary(o.summary)
    replay.prune(kept)
    details = replay.run(models)
    print(f"models {prepared - start:.1f} s, kernels {time.time() - prepared:.1f} s")

    if o.check:
        unchanged = check(replay, details, expected, kept, o.diff_lines, o.code_only)
        # Unchanged kernels are the baseline of the next comparison.
        details = {key: kernels for key, kernels in details.items() if kernels.summary() == expected.get(key)}
        write_details(kept_path, kept | details)
        return 0 if unchanged else 1
    if not o.only and not o.quick and any(name.startswith("suite ") for name in models):
        kept, expected = {}, {}  # nothing was skipped: other lines belong to models that are no longer compiled
    write_summary(o.summary, expected | {key: kernels.summary() for key, kernels in details.items()})
    write_details(kept_path, kept | details)
    print(f"wrote {o.summary}: {len(details)} models and configurations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
