#!/usr/bin/env python3
"""Decoding with a KV cache beside ONNX Runtime on the same model: tokens, prompt and decode tokens/s.

usage: decode.py MODEL.onnx [--tool build/bin/tilewright] [--prompts 128 1024] [--tokens 64] [--threads 1 2] [--rounds 3]
                 [--precision bf16]

Both read the same made-up prompt and generate greedily. Each round runs one after the other; medians over rounds are
printed, and whether the tokens are equal (or the first difference with the gap between the two scores). ONNX Runtime gets
its outputs back as inputs, as its Python users do. Needs numpy and onnxruntime.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime as ort


def ours(tool, model, prompt, tokens, threads, precision):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([tool, "bench", model, "--prompt", str(prompt), "--decode", str(tokens), "--threads", str(threads),
                        "--precision", precision, "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(out.name))


class Peer:
    def __init__(self, model, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.inputs = {i.name: i for i in self.session.get_inputs()}
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.logits = next(o for o in self.session.get_outputs() if not o.name.startswith("present"))

    def generate(self, prompt, tokens):
        """The tokens, the scores behind each, and the seconds of each run."""
        types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
        past = {n: np.zeros([1 if not isinstance(d, int) else d for d in i.shape[:2]] + [0, i.shape[3]], types[i.type])
                for n, i in self.inputs.items() if n.startswith("past_key_values")}
        vocabulary = self.logits.shape[-1]
        ids, done, made, scores, seconds = [(k * 7919 + 13) % vocabulary for k in range(prompt)], 0, [], [], []
        for _ in range(tokens):
            feeds = {"input_ids": np.array([ids], np.int64)} | past
            if "attention_mask" in self.inputs:
                feeds["attention_mask"] = np.ones([1, done + len(ids)], np.int64)
            if "position_ids" in self.inputs:
                feeds["position_ids"] = np.arange(done, done + len(ids), dtype=np.int64)[None]
            start = time.perf_counter()
            out = dict(zip(self.outputs, self.session.run(self.outputs, feeds)))
            seconds.append(time.perf_counter() - start)
            done += len(ids)
            scores.append(out[self.logits.name][0, -1])
            made.append(int(scores[-1].argmax()))
            ids = [made[-1]]
            past = {n: out[n.replace("past_key_values", "present")] for n in past}
        return made, scores, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tool", default="build/bin/tilewright")
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="f32", help="of Tilewright's products")
    args = parser.parse_args()
    print(f"{'threads':>7} {'prompt':>6} | {'prompt tok/s':>22} | {'decode tok/s':>22} | {'bandwidth':>9} | tokens")
    for threads in args.threads:
        peer = Peer(args.model, threads)
        for prompt in args.prompts:
            mine, theirs = [], []
            for _ in range(args.rounds):
                mine.append(ours(args.tool, args.model, prompt, args.tokens, threads, args.precision))
                theirs.append(peer.generate(prompt, args.tokens))
            made, scores, _ = theirs[-1]
            wanted = mine[-1]["tokens"]
            differ = next((k for k, (a, b) in enumerate(zip(wanted, made)) if a != b), None)
            equal = (f"{len(made)} equal" if differ is None else
                     f"differ at {differ}, gap {scores[differ][made[differ]] - scores[differ][wanted[differ]]:.2e}")
            read = statistics.median(m["prompt_tokens_per_s"] for m in mine)
            step = statistics.median(m["decode_tokens_per_s"] for m in mine)
            peer_read = prompt / statistics.median(s[0] for _, _, s in theirs)
            peer_step = 1 / statistics.median(statistics.median(s[1:]) for _, _, s in theirs)
            share = statistics.median(m["gbps"] / m["read_gbps"] for m in mine)
            print(f"{threads:7} {prompt:6} | {read:7.1f} {peer_read:7.1f} {read / peer_read:5.2f}x | "
                  f"{step:7.1f} {peer_step:7.1f} {step / peer_step:5.2f}x | {100 * share:7.0f} % | {equal}", flush=True)


if __name__ == "__main__":
    main()
