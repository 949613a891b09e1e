#!/usr/bin/env python3
"""The kernels of bench/gpu/run.sh in torch: matmul, two matmuls, scaled_dot_product_attention's back ends,
convolutions (cuDNN).

    bench/gpu/torch_peers.py gemm:4096x4096x4096 attention:8x512x512x64x64 --type f16
    bench/gpu/torch_peers.py gemm:256x256x256 --device cpu      # smoke test
"""

import argparse
import sys
import time


def graph_of(torch, work, times):
    """A CUDA graph of `count` calls: device time without Python's overhead."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    return graph.replay


def median_seconds(torch, device, work, seconds):
    """Time per call of consecutive calls on resident operands; on a GPU as a CUDA graph, as for Tilewright."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    together = 20 if device == "cuda" else 1
    if device == "cuda":
        work = graph_of(torch, work, together)
    work()
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    n = max(1, int(seconds / (time.perf_counter() - start) / 5))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(n):
            work()
        synchronize()
        times.append((time.perf_counter() - start) / (n * together))
    return sorted(times)[2]


def ways(task, dtype, torch, device):
    """Name -> callable (those of torch.compile last), and the task's floating-point operations."""
    kind, sizes = task.split(":")
    n = [int(x) for x in sizes.split("x")]
    rand = lambda *shape: torch.randn(*shape, device=device, dtype=dtype)
    if kind == "gemm":
        a, b = rand(n[0], n[2]), rand(n[2], n[1])
        return {"matmul (cuBLASLt)": lambda: torch.matmul(a, b)}, 2.0 * n[0] * n[1] * n[2]
    if kind == "conv":
        images, channels, pixels, results, taps, stride = n
        out = (pixels + 2 * (taps // 2) - taps) // stride + 1
        flops = 2.0 * images * out * out * results * channels * taps * taps
        x, w = rand(images, channels, pixels, pixels), rand(results, channels, taps, taps)
        side = dict(memory_format=torch.channels_last)
        wide, beside = (x.to(**side), w.to(**side)), (x, w)
        call = lambda pair: lambda: torch.nn.functional.conv2d(*pair, stride=stride, padding=taps // 2)
        return {"conv2d, channels last": call(wide), "conv2d": call(beside)}, flops
    q, k, v = rand(n[0], n[1], n[3]), rand(n[0], n[2], n[3]), rand(n[0], n[2], n[4])
    flops = 2.0 * n[0] * n[1] * n[2] * (n[3] + n[4])
    if kind == "chain":
        eager = lambda: torch.matmul(torch.matmul(q, k.transpose(1, 2)), v)
        out = {"two matmuls": eager}
        if device == "cuda":
            out["torch.compile (max-autotune)"] = torch.compile(eager, mode="max-autotune-no-cudagraphs")
        return out, flops
    from torch.nn.attention import SDPBackend, sdpa_kernel

    out = {}
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        if hasattr(SDPBackend, name):

            def call(backend=getattr(SDPBackend, name)):
                with sdpa_kernel(backend):
                    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], scale=0.125)

            out[name.lower()] = call
    return out, flops


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--type", default="f16", choices=["f16", "bf16", "f32"])
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which nothing more is compiled")
    o = parser.parse_args()
    begin = time.perf_counter()
    try:
        import torch
    except ImportError:
        sys.exit("torch is not installed: no comparison")
    if o.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch has no GPU")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True  # of f32: compared with Tilewright's tf32
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[o.type]

    def measure(task, name, call, flops):
        try:
            seconds = median_seconds(torch, o.device, call, o.seconds)
            print(f"{task:<36}{seconds * 1e6:>12.1f}{flops / seconds * 1e-12:>12.1f}  {name}", flush=True)
        except Exception as e:  # an unsupported shape, or a compiler error
            print(f"{task:<36}{'-':>12}{'-':>12}  {name}: {(str(e).splitlines() or [repr(e)])[0][:60]}", flush=True)

    with torch.inference_mode():
        for compiled in (False, True):  # functions that take long to compile come last
            for task in o.tasks:
                calls, flops = ways(task, dtype, torch, o.device)
                for name, call in calls.items():
                    if name.startswith("torch.compile") != compiled:
                        continue
                    if compiled and time.perf_counter() - begin > o.limit:
                        print(f"{task:<36}{'-':>12}{'-':>12}  {name}: skipped, time limit of {o.limit:.0f} seconds", flush=True)
                        continue
                    measure(task, name, call, flops)


if __name__ == "__main__":
    main()
