#!/usr/bin/env python3
"""Latency of torch.compile(backend="tilewright") beside eager and torch.compile's default, Inductor.

usage: PYTHONPATH=build/python build/torch/bin/python bench/torch_compile.py [--threads 1 2] [--models NAME ...]
                                         [--rounds 9] [--seconds 0.3] [--clock wall|cpu] [--json FILE] [--no-inductor]

Each model is compiled by both backends; then blocks of calls follow in turns, so that all see the same machine. Prints
the median over the blocks of the mean time of a call, and geometric means of the ratios. A process of its own runs each
number of threads. --clock cpu counts CPU time of the process: for one thread on a busy machine. nn.LSTM is captured
(torch._dynamo.config.allow_rnn) for Tilewright only; Inductor's default leaves it to oneDNN.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python", "tests"))


def models():
    """name -> (module, inputs): sizes as in use, where torch_models.py has those of tests."""
    import torch
    import torch_models as m

    def images(n, size):
        return (torch.randn(n, 3, size, size),)

    return {
        "mlp": (lambda: m.Mlp(256, 10), lambda: (torch.randn(32, 256),)),
        "resnet18": (lambda: m.ResNet(), lambda: images(1, 224)),
        "mobilenet": (lambda: m.MobileNet(), lambda: images(1, 224)),
        "unet": (lambda: m.UNet(16), lambda: images(1, 128)),
        "vit": (lambda: m.Vit(224, 16, 384, 6, 4, 1000), lambda: images(1, 224)),
        "encoder": (lambda: m.Encoder(width=256, heads=4, layers=4), lambda: (m.ids(1, 128),)),
        "bert": (lambda: m.Bert(width=256, heads=4, layers=4), lambda: (m.ids(1, 128), torch.ones(1, 128))),
        "gpt": (lambda: m.Gpt(width=256, heads=4, layers=4), lambda: (m.ids(1, 128),)),
        "decoder": (
            lambda: m.Decoder(2000, 256, 4, 2, 4),
            lambda: (m.ids(1, 1), [(torch.randn(1, 2, 200, 64), torch.randn(1, 2, 200, 64)) for _ in range(4)]),
        ),
        "lstm": (lambda: m.LstmTagger(width=128), lambda: (m.ids(1, 64),)),
        "textcnn": (lambda: m.TextCnn(width=128), lambda: (m.ids(8, 64),)),
        "recommender": (lambda: m.Recommender(), lambda: (torch.rand(64, 13), m.ids(64, 6, 200))),
        "autoencoder": (lambda: m.Autoencoder(), lambda: (torch.randn(4, 1, 64, 64),)),
    }


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def block(f, args, calls, clock=time.perf_counter):
    start = clock()
    for _ in range(calls):
        f(*args)
    return (clock() - start) / calls


def error(actual, expected):
    from torch.utils._pytree import tree_leaves

    pairs = [(a, e) for a, e in zip(tree_leaves(actual), tree_leaves(expected)) if e is not None and e.is_floating_point()]
    return max(float((a - e).abs().max() / e.abs().max()) for a, e in pairs)


def measure(name, make, inputs, arguments):
    """{"eager": ms, "inductor": ms, "tilewright": ms, "error": ..., "compile_...": s}"""
    import tilewright.torch
    import torch

    torch.manual_seed(0)
    module, args = make().eval(), inputs()
    result = {}
    runs = {"eager": module}
    with torch.inference_mode():
        expected = module(*args)
        for backend in ["tilewright"] + ["inductor"] * (not arguments.no_inductor):
            torch._dynamo.config.allow_rnn = backend == "tilewright"
            found = tilewright.torch.backend if backend == "tilewright" else backend
            start = time.perf_counter()
            runs[backend] = torch.compile(module, backend=found, dynamic=arguments.dynamic)
            actual = runs[backend](*args)
            result[f"compile_{backend}"] = time.perf_counter() - start
            result[f"error_{backend}"] = error(actual, expected)
        calls = {}
        for key, f in runs.items():
            once = min(block(f, args, 1) for _ in range(5))
            calls[key] = max(1, int(arguments.seconds / once))
        times = {key: [] for key in runs}
        for _ in range(arguments.rounds):
            for key, f in runs.items():
                times[key].append(block(f, args, calls[key], CLOCKS[arguments.clock]))
    result.update({key: 1e3 * statistics.median(t) for key, t in times.items()})
    result["left_to_torch"] = sum(tilewright.torch.left_to_torch.values())
    return result


def child(arguments):
    """Measures one model on one number of threads; prints JSON."""
    import torch

    torch.set_num_threads(arguments.threads[0])
    (name,) = arguments.models
    make, inputs = models()[name]
    print("RESULT " + json.dumps(measure(name, make, inputs, arguments)))


def run_child(name, threads, arguments):
    command = [sys.executable, os.path.abspath(__file__), "--child", "--models", name, "--threads", str(threads),
               "--rounds", str(arguments.rounds), "--seconds", str(arguments.seconds)]
    command += ["--clock", arguments.clock]
    command += ["--no-inductor"] * arguments.no_inductor + ["--dynamic"] * bool(arguments.dynamic)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(lines[0].removeprefix("RESULT "))


def mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a block")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--dynamic", action="store_const", const=True, help="compile with dynamic=True")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    results = {}
    for threads in arguments.threads:
        print(f"threads {threads}\n{'model':<14}{'eager':>9}{'inductor':>10}{'ours':>9}  vs eager  vs inductor    error  compile: inductor, ours")
        for name in arguments.models or list(models()):
            r = results[f"{name}:{threads}"] = run_child(name, threads, arguments)
            inductor = r.get("inductor", math.nan)
            print(
                f"{name:<14}{r['eager']:>9.3f}{inductor:>10.3f}{r['tilewright']:>9.3f}{r['eager'] / r['tilewright']:>9.2f}x"
                f"{inductor / r['tilewright']:>12.2f}x {r['error_tilewright']:>9.1e}"
                f"{r.get('compile_inductor', math.nan):>9.1f} s,{r['compile_tilewright']:.1f} s"
                + (f"  {r['left_to_torch']} nodes left to torch" if r["left_to_torch"] else ""),
                flush=True,
            )
        rows = [r for key, r in results.items() if key.endswith(f":{threads}")]
        for peer in ("eager", "inductor"):
            if all(peer in r for r in rows):
                print(f"geometric mean over {peer}: {mean([r[peer] / r['tilewright'] for r in rows]):.2f}x")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
