#!/usr/bin/env python3
"""Whole models as torch runs them: eager, and torch.compile with CUDA graphs. Weights are random.

    bench/gpu/torch_models.py bert_base:512 resnet50 --type f32        # products of f32 by tf32
    bench/gpu/torch_models.py bert_small:64 --device cpu --no-compile  # to see that it works
"""

import argparse
import sys
import time

BERT = {"bert_small": (4, 512, 8), "bert_base": (12, 768, 12), "bert_large": (24, 1024, 16)}  # layers, width, heads


def bert(torch, name, tokens):
    """BERT's encoder on embedded tokens."""
    nn = torch.nn
    layers, width, heads = BERT[name]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

        def forward(self, x):
            split = lambda t: t.view(1, tokens, heads, width // heads).transpose(1, 2)
            q, k, v = (split(t) for t in self.qkv(x).chunk(3, dim=-1))
            a = nn.functional.scaled_dot_product_attention(q, k, v)
            x = self.first(x + self.out(a.transpose(1, 2).reshape(1, tokens, width)))
            return self.second(x + self.down(nn.functional.gelu(self.up(x))))

    return nn.Sequential(*[Layer() for _ in range(layers)]), torch.randn(1, tokens, width)


def resnet50(torch):
    """Batch normalisation is folded into the convolutions, as it is in what we compile."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.a, self.c = nn.Conv2d(inputs, width, 1), nn.Conv2d(width, 4 * width, 1)
            self.b = nn.Conv2d(width, width, 3, stride, 1)
            same = stride == 1 and inputs == 4 * width
            self.skip = nn.Identity() if same else nn.Conv2d(inputs, 4 * width, 1, stride)

        def forward(self, x):
            relu = nn.functional.relu
            return relu(self.c(relu(self.b(relu(self.a(x))))) + self.skip(x))

    parts = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            parts.append(Block(inputs, width, stride if k == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)), torch.randn(1, 3, 224, 224)


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
    parser.add_argument("models", nargs="+", help="bert_small:TOKENS, bert_base:TOKENS, bert_large:TOKENS, resnet50")
    parser.add_argument("--type", default="f32", choices=["f16", "bf16", "f32"], help="f32: products by tf32")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.5)
    o = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("torch is not installed: nothing to compare with")
    on_gpu = o.device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[o.type]
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    for name in o.models:
        kind, _, tokens = name.partition(":")
        model, x = resnet50(torch) if kind == "resnet50" else bert(torch, kind, int(tokens or 512))
        model, x = model.to(o.device, dtype).eval(), x.to(o.device, dtype)
        ways = {"eager": model}
        if not o.no_compile:
            ways["torch.compile (CUDA graphs)"] = torch.compile(model, mode="reduce-overhead")
            ways["torch.compile (max-autotune)"] = torch.compile(model, mode="max-autotune")
        with torch.inference_mode():
            for way, call in ways.items():
                ms = median_ms(lambda: call(x), synchronize, o.seconds)
                print(f"{name:<16}{o.type:<6}{ms:>10.3f} ms  {way}", flush=True)


if __name__ == "__main__":
    main()
