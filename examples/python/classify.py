#!/usr/bin/env python3
"""Names what an image shows.

usage: classify.py MODEL.onnx IMAGE.pgm|IMAGE.ppm [SCALE]

The model takes one image as float32 [batch, channels, height, width], of 1 or 3 channels, and returns a score for each
class. Pixels, from 0 to 255, are multiplied by SCALE (1/255). Prints the five classes with the highest scores.
"""

import re
import sys

import numpy as np

import tilewright


def read_image(path):
    """PGM and PPM, as text or binary, of 8 bits: [height, width, channels]."""
    with open(path, "rb") as f:
        data = f.read()
    header = re.match(rb"P([2356])\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+255\s", data)
    if header is None:
        sys.exit(f"error: {path}: no PGM or PPM image of 8 bits")
    kind, width, height = (int(g) for g in header.groups())
    body = data[header.end() :]
    pixels = np.frombuffer(body, np.uint8) if kind >= 5 else np.array(body.split(), np.uint8)
    return pixels.reshape(height, width, 3 if kind in (3, 6) else 1)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    session = tilewright.load(sys.argv[1])
    declared = session.get_inputs()[0]
    image = read_image(sys.argv[2])
    _, channels, height, width = (
        size if isinstance(size, int) else actual
        for size, actual in zip(declared.shape, (1, image.shape[2], *image.shape[:2]))
    )
    rows = np.arange(height) * image.shape[0] // height
    columns = np.arange(width) * image.shape[1] // width
    x = image[rows][:, columns].astype(np.float32)  # the nearest pixel
    x = x.mean(axis=2, keepdims=True) if channels == 1 else np.broadcast_to(x, (height, width, 3))
    scale = float(sys.argv[3]) if len(sys.argv) > 3 else 1 / 255
    scores = session.run(None, {declared.name: np.ascontiguousarray(x.transpose(2, 0, 1)[None]) * np.float32(scale)})[0]
    scores = scores.ravel()
    for k in np.argsort(-scores, kind="stable")[:5]:
        print(f"class {k}: {scores[k]:.3f}")


if __name__ == "__main__":
    main()
