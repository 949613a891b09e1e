#!/usr/bin/env python3
"""Whole models as torch runs them: eager, and torch.compile with CUDA graphs. Weights are random (torch_nets.py).

    bench/gpu/torch_models.py bert_base:512 segformer_b0:512 --type f32   # products of f32 by tf32
    bench/gpu/torch_models.py all --device cpu --no-compile --seconds 0.1 # to see that they work
    bench/gpu/torch_models.py --count                                     # their weights, to hold against the zoo's
"""

import argparse
import sys
import time

import torch_nets

def median_ms(call, synchronize, seconds):
    for _ in range(5):
        call()
    synchronize()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = ", ".join(f"{name} ({what}: {size})" for name, (what, size) in torch_nets.NAMES.items())
    parser.add_argument("models", nargs="*", default=["all"], help=f"NAME or NAME:SIZE, or all: {usual}")
    parser.add_argument("--type", default="f32", choices=["f16", "bf16", "f32"], help="f32: products by tf32")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no further model is begun")
    parser.add_argument("--count", action="store_true", help="count weights, run nothing")
    o = parser.parse_args()
    begin = time.perf_counter()
    try:
        import torch
    except ImportError:
        sys.exit("torch is not installed: nothing to compare with")
    on_gpu = o.device != "cpu"
    if on_gpu and not o.count and not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[o.type]
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    for name in list(torch_nets.NAMES) if o.models == ["all"] else o.models:
        kind, _, size = name.partition(":")
        if time.perf_counter() - begin > o.limit:
            print(f"{name:<20}left out: {o.limit:.0f} seconds are over", flush=True)
            continue
        model, x = torch_nets.make(torch, kind, int(size or 0))
        if o.count:
            print(f"{name:<20}{sum(p.numel() for p in model.parameters()):>12}", flush=True)
            continue
        model, x = model.to(o.device, dtype).eval(), x.to(o.device, dtype)
        ways = {"eager": model}
        if not o.no_compile:
            ways["torch.compile (CUDA graphs)"] = torch.compile(model, mode="reduce-overhead")
            if on_gpu:
                ways["torch.compile (max-autotune)"] = torch.compile(model, mode="max-autotune")
        with torch.inference_mode():
            for way, call in ways.items():
                if time.perf_counter() - begin > o.limit:
                    break
                ms = median_ms(lambda: call(x), synchronize, o.seconds)
                print(f"{name:<20}{o.type:<6}{ms:>10.3f} ms  {way}", flush=True)


if __name__ == "__main__":
    main()
