#!/usr/bin/env python3
"""Draws stored results of bench/suite.py as SVG: the speed of each model relative to ONNX Runtime and OpenVINO.

usage: bench/charts.py [--results DIR] [--output DIR] [--threads N]

Each bench/results/NAME.json becomes docs/charts/NAME.svg, for N threads (default 1). A bar is the peer's
median latency divided by Tilewright's: above 1.0 Tilewright is faster. The colours follow the light or dark mode.

The schema of a result (`bench/suite.py --json FILE` writes it):
  machine  {cpu, cpu_id, flags, cores, date}
  peers    {peer: version}
  command  the command line that measured the lines
  summary  [{peer, threads, lines, geometric_mean, least, most}], optional
  lines    [{model, shape, threads, ours_ms, ratios: {peer: peer's latency / Tilewright's}}]; ours_ms may be absent
"""

import argparse
import json
import math
import sys
from html import escape
from pathlib import Path

PEERS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "torch": "torch.compile"}
BAR, GAP, LEFT, WIDTH, RIGHT, TOP = 12, 8, 210, 480, 50, 78

STYLE = """
  text { font: 12px sans-serif; fill: #1f2328; }
  .title { font-weight: bold; font-size: 15px; }
  .note, .tick { fill: #59636e; font-size: 11px; } .value { fill: #59636e; font-size: 10px; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .one { stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 4 3; }
  .onnxruntime { fill: #0969da; } .openvino { fill: #bc4c00; } .torch { fill: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .note, .tick, .value { fill: #9198a1; }
    .grid { stroke: #3d444d; } .one { stroke: #f0f6fc; }
    .onnxruntime { fill: #4493f8; } .openvino { fill: #f0883e; } .torch { fill: #3fb950; }
  }
"""


def problems(result):
    """The errors of a result, as lines of text."""
    found = [f"'{key}' is missing" for key in ("machine", "peers", "command", "lines") if key not in result]
    if found:
        return found
    found += [f"machine: '{key}' is missing" for key in ("cpu", "flags", "cores", "date")
              if key not in result["machine"]]
    seen = set()
    for k, line in enumerate(result["lines"]):
        missing = [key for key in ("model", "shape", "threads", "ratios") if key not in line]
        if missing:
            found.append(f"line {k}: {', '.join(missing)} missing")
            continue
        key = (line["model"], line["shape"], line["threads"])
        if key in seen:
            found.append(f"line {k}: {key} is duplicated")
        seen.add(key)
        for peer, ratio in line["ratios"].items():
            if peer not in result["peers"] or peer not in PEERS:
                found.append(f"line {k}: unknown peer '{peer}'")
            if not (isinstance(ratio, (int, float)) and math.isfinite(ratio) and ratio > 0):
                found.append(f"line {k}: ratio {ratio} of {peer}")
    return found


def chart(result, threads=1):
    """The SVG of one result's lines for a number of threads."""
    lines = [line for line in result["lines"] if line["threads"] == threads and line["ratios"]]
    peers = [p for p in PEERS if any(p in line["ratios"] for line in lines)]
    most = math.ceil(max((r for line in lines for r in line["ratios"].values()), default=1) * 2) / 2

    def x(ratio):
        return LEFT + WIDTH * ratio / most

    row = BAR * len(peers) + GAP
    bottom = TOP + row * len(lines)
    width, height = LEFT + WIDTH + RIGHT, bottom + 44
    machine = result["machine"]
    title = f"Speed relative to {' and '.join(PEERS[p] for p in peers)}, {threads} thread{'s' if threads > 1 else ''}"
    note = (f"{machine['cpu']}, float32, {machine['date']}; peer's median latency / Tilewright's: "
            "above 1.0 Tilewright is faster")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           f'role="img" aria-label="{escape(title)}">', f"<style>{STYLE}</style>",
           f'<text class="title" x="10" y="22">{escape(title)}</text>',
           f'<text class="note" x="10" y="40">{escape(note)}</text>']
    for k, peer in enumerate(peers):
        out.append(f'<rect class="{peer}" x="{LEFT + 130 * k}" y="53" width="12" height="{BAR}"/>'
                   f'<text x="{LEFT + 130 * k + 17}" y="62">{PEERS[peer]}</text>')
    for half in range(int(most * 2) + 1):
        at, ratio = x(half / 2), half / 2
        out.append(f'<line class="{"one" if ratio == 1 else "grid"}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 6}" '
                   f'y2="{bottom}"/>')
        out.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{ratio:.1f}</text>')
    for k, line in enumerate(lines):
        top = TOP + row * k + GAP / 2
        label = f"{line['model']} {line['shape']}"
        out.append(f'<text x="{LEFT - 8}" y="{top + BAR * len(peers) / 2 + 4:.1f}" text-anchor="end">'
                   f'{escape(label)}</text>')
        for n, peer in enumerate(peers):
            if peer not in line["ratios"]:
                continue
            ratio, y = line["ratios"][peer], top + BAR * n
            out.append(f'<rect class="{peer}" x="{LEFT}" y="{y:.1f}" width="{x(ratio) - LEFT:.1f}" height="{BAR - 1}"/>'
                       f'<text class="value" x="{x(ratio) + 4:.1f}" y="{y + BAR - 2:.1f}">{ratio:.2f}</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=root / "bench/results")
    parser.add_argument("--output", type=Path, default=root / "docs/charts")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    failed = 0
    for path in sorted(options.results.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found = problems(result)
        for problem in found:
            print(f"error: {path}: {problem}")
        failed += len(found)
        if found:
            continue
        target = options.output / f"{path.stem}.svg"
        target.write_text(chart(result, options.threads), encoding="utf-8")
        print(f"wrote {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
