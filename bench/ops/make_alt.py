#!/usr/bin/env python3
"""Writes alt.txt: ALT's operators in random configurations, ten each, and its subgraphs and case study.

usage: make_alt.py > alt.txt

The paper draws batch sizes from 1 to 16 and channels from 3, 16, 32, 64, 512, 960 and 1280, and does not list the
configurations. These are drawn the same way from a fixed seed; one of more than MOST_FLOPS, about 0.2 s on a core, is
drawn again.
"""
import random

SEED = 20260101
EACH = 10
MOST_FLOPS = 15e9
BATCHES = [1, 2, 4, 8, 16]
CHANNELS = [3, 16, 32, 64, 512, 960, 1280]


def extent(n, k, stride, pad, dilation=1):
    return (n + 2 * pad - dilation * (k - 1) - 1) // stride + 1


def conv(rng, axes, sizes, kernels, strides, groups=(1,), dilations=(1,), transposed=False):
    """A line, and its number of operations."""
    n, c = rng.choice(BATCHES), rng.choice(CHANNELS)
    g = rng.choice([g for g in groups if c % g == 0] or [1])
    o = rng.choice([x for x in CHANNELS if x % g == 0])
    size, k, stride, dilation = rng.choice(sizes), rng.choice(kernels), rng.choice(strides), rng.choice(dilations)
    pad = dilation * (k - 1) // 2
    points = size ** axes if transposed else extent(size, k, stride, pad, dilation) ** axes
    name = f"conv_transposed{axes}d" if transposed else f"conv{axes}d"
    first = {1: "w", 2: "h", 3: "d"}[axes]
    line = f"{name} n={n} c={c} {first}={size} o={o} k{first}={k} stride={stride} pad={pad}"
    line += f" dilation={dilation}" if dilation > 1 else ""
    line += f" groups={g}" if g > 1 else ""
    return line, 2 * n * points * o * (c // g) * k ** axes


def depthwise(rng):
    n, c, size = rng.choice(BATCHES), rng.choice(CHANNELS), rng.choice([7, 14, 28, 56, 112])
    k, stride = rng.choice([3, 5]), rng.choice([1, 2])
    return (f"depthwise n={n} c={c} h={size} kh={k} stride={stride} pad={k // 2}",
            2 * n * c * extent(size, k, stride, k // 2) ** 2 * k * k)


def product(rng):
    m, n, k = (rng.choice([16, 32, 64, 128, 256, 512, 768, 1024, 2048]) for _ in range(3))
    batch = rng.choice([1, 1, 2, 4])
    return f"gemm m={m} n={n} k={k} batch={batch} weights=input", 2 * batch * m * n * k


KINDS = [
    ("C2D: convolutions", lambda r: conv(r, 2, [7, 14, 28, 56, 112], [1, 3, 5, 7], [1, 2])),
    ("GRP: in groups", lambda r: conv(r, 2, [7, 14, 28, 56], [3], [1, 2], groups=(2, 4, 8, 16))),
    ("DEP: depthwise", depthwise),
    ("DIL: dilated", lambda r: conv(r, 2, [14, 28, 56], [3], [1], dilations=(2, 4))),
    ("C3D: three-dimensional", lambda r: conv(r, 3, [4, 7, 8, 14, 16], [1, 3], [1, 2])),
    ("C1D: one-dimensional", lambda r: conv(r, 1, [64, 128, 256, 1024], [1, 3, 5], [1, 2])),
    ("GMM: products of two inputs", product),
    ("T2D: transposed", lambda r: conv(r, 2, [4, 7, 8, 14, 28], [2, 4], [2], transposed=True)),
    ("T3D: transposed, three-dimensional", lambda r: conv(r, 3, [4, 7, 8], [2, 4], [2], transposed=True)),
]


def main():
    rng = random.Random(SEED)
    print(f"# Written by make_alt.py (seed {SEED}), which says how: ALT's operators, ten configurations each, none of more")
    print(f"# than {MOST_FLOPS / 1e9:.0f} GFLOP; then its subgraphs and its case study in their own sizes.")
    for title, draw in KINDS:
        print(f"\n# {title}")
        lines = []
        while len(lines) < EACH:
            line, flops = draw(rng)
            if flops <= MOST_FLOPS and line not in lines:
                lines.append(line)
        print("\n".join(lines))
    print("\n# Subgraphs: a padded 3 x 3 convolution, then one of 1 x 1")
    print("conv_chain c=512 h=7 o=512 kh=3 pad=1 o2=512")
    print("conv_chain c=512 h=14 o=512 kh=3 pad=1 o2=2048")
    print("\n# Case study: ResNet's first layer, its input padded already, for one image")
    print("conv2d c=3 h=230 o=64 kh=7 stride=2 bias=1 act=relu")


if __name__ == "__main__":
    main()
