#!/usr/bin/env python3
"""Whole models in torch: eager, and torch.compile with CUDA graphs. Weights are random (torch_nets.py).

Times are of a call with operands on the device, and of one that copies its input from pinned memory and fetches
its result, as `tilewright bench` does.

    bench/gpu/torch_models.py bert_base:512 segformer_b0:512 --type f32   # products of f32 by tf32
    bench/gpu/torch_models.py all --device cpu --no-compile --seconds 0.1 # smoke test
    bench/gpu/torch_models.py --count                                     # number of weights, to compare with the zoo's
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
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no further model is started")
    parser.add_argument("--warm", action="store_true", help="only compile, to fill torch's cache")
    parser.add_argument("--count", action="store_true", help="count weights, run nothing")
    o = parser.parse_args()
    begin = time.perf_counter()
    try:
        import torch
    except ImportError:
        sys.exit("torch is not installed: no comparison")
    on_gpu = o.device != "cpu"
    if on_gpu and not o.count and not torch.cuda.is_available():
        sys.exit("torch has no GPU")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[o.type]
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    names = list(torch_nets.NAMES) if o.models == ["all"] else o.models
    late = lambda: time.perf_counter() - begin > o.limit
    tuned = "torch.compile (max-autotune)"

    def model_and_input(name):
        kind, _, size = name.partition(":")
        torch.manual_seed(0)
        model, x = torch_nets.make(torch, kind, int(size or 0))
        return model.to(o.device, dtype).eval(), x.to(dtype)

    def ways(model, rounds):
        if rounds == 1:
            return {tuned: torch.compile(model, mode="max-autotune")}
        if o.no_compile:
            return {"eager": model}
        return {"eager": model, "torch.compile (CUDA graphs)": torch.compile(model, mode="reduce-overhead")}

    def measure(name, rounds):
        model, x_host = model_and_input(name)
        x = x_host.to(o.device)
        for way, call in ways(model, rounds).items():
            try:
                if o.warm:
                    for _ in range(3):
                        call(x)
                    synchronize()
                    continue
                text = f"{median_ms(lambda: call(x), synchronize, o.seconds):>10.3f} ms"
                if on_gpu:
                    x_host, y_host = x_host.pin_memory(), torch.empty_like(call(x), device="cpu").pin_memory()

                    def whole():
                        x.copy_(x_host, non_blocking=True)
                        y_host.copy_(call(x), non_blocking=True)

                    text += f"{median_ms(whole, synchronize, o.seconds):>10.3f} ms with transfers"
                print(f"{name:<20}{o.type:<6}{text}  {way}", flush=True)
            except Exception as e:
                print(f"{name:<20}{o.type:<6}{'-':>10}     {way}: {(str(e).splitlines() or [repr(e)])[0][:60]}", flush=True)

    if o.count:
        for name in names:
            kind, _, size = name.partition(":")
            model, _ = torch_nets.make(torch, kind, int(size or 0))
            print(f"{name:<20}{sum(p.numel() for p in model.parameters()):>12}", flush=True)
        return
    with torch.inference_mode():
        # Models that are tuned for a minute come last.
        for rounds in range(2 if on_gpu and not o.no_compile and not o.warm else 1):
            for name in names:
                if late():
                    print(f"{name:<20}skipped{': ' + tuned if rounds else ''}: time limit of {o.limit:.0f} seconds",
                          flush=True)
                else:
                    measure(name, rounds)
                if on_gpu:
                    torch.compiler.reset()
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
