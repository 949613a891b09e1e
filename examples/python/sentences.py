#!/usr/bin/env python3
"""Cuts a text into sentences.

usage: sentences.py MODEL.onnx TEXT

The model takes bytes, uint8 [batch, length], and returns scores [batch, length, 2]: whether a sentence, and whether a
word, ends behind each byte. Texts may have any length; the model is compiled once.
"""

import sys

import numpy as np

import tilewright


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    session = tilewright.load(sys.argv[1])
    text = sys.argv[2].encode()
    (scores,) = session.run(None, {session.get_inputs()[0].name: np.frombuffer(text, np.uint8)[None]})
    start = 0
    for end in [*np.flatnonzero(scores[0, :, 0] > 0) + 1, len(text)]:
        if sentence := text[start:end].decode(errors="replace").strip():
            print(sentence)
        start = end


if __name__ == "__main__":
    main()
