#!/usr/bin/env python3
"""Runs the commands of a document and compares what they print with what the document shows.

  scripts/tutorial.py            compare docs/tutorial.md; exit status 1 if an output differs
  scripts/tutorial.py --update   write the outputs anew (`make tutorial-update`)

A fenced block that begins with ```console holds commands and outputs:

  ```console
  $ tilewright dump gemm.onnx --stage plan | sed -n 2p
  what the command prints, standard output and standard error
  ```

A line that begins with "$ " is a command, and a command goes on in the next line where its line ends with a backslash.
The lines up to the next command are exactly what it prints. A document shows a part of an output by a command that
prints a part: `| sed -n '2,5p'`, `| grep -A3 axes`. In a block that begins with ```console times the commands must
succeed, and their output, which holds times, is not compared. Other blocks are not run.

All commands run in one bash with `set -o pipefail`, so that variables and functions stay. Its folder is temporary; there
bench/ is the project's and `tilewright` is the tool under test. Neither kept code nor rates of this machine are used. A
command that exits with another status than 0 is a failure.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 120


class Command:
    """One command of a document and the lines that the document shows as its output."""

    def __init__(self, line, text, compared):
        self.line, self.text, self.compared = line, text, compared
        self.shown = []
        self.first = line + text.count("\n")  # index of the first line of the output


def commands_of(lines):
    """The commands of a document, given its lines, in order."""
    commands, inside, compared, i = [], False, False, 0
    while i < len(lines):
        line = lines[i]
        if line.startswith("```"):
            inside = not inside and re.fullmatch(r"```console( times)?", line) is not None
            compared = line == "```console"
            begins = True
        elif inside and line.startswith("$ "):
            text = line[2:]
            start = i + 1
            while text.endswith("\\") and i + 1 < len(lines):
                i += 1
                text += "\n" + lines[i]
            commands.append(Command(start, text, compared))
            begins = False
        elif inside:
            if begins:
                raise SystemExit(f"line {i + 1}: a console block begins with a command, '$ '")
            commands[-1].shown.append(line)
        i += 1
    return commands


def run(commands, tool):
    """[(lines of output, exit status)] of each command."""
    mark = "===== end of command"
    script = "set -o pipefail\n"
    for c in commands:
        script += f"{c.text}\nprintf '\\n%s %d\\n' '{mark}' $?\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "bin" / "tilewright").symlink_to(Path(tool).resolve())
        (folder / "bench").symlink_to(ROOT / "bench")
        environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "LC_ALL": "C",
                       "XDG_CACHE_HOME": str(folder / "cache"), "TILEWRIGHT_CALIBRATE": "0"}
        done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, timeout=LIMIT_SECONDS, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    results = []
    rest = done.stdout
    for _ in commands:
        found = re.search(rf"\n{mark} (\d+)\n", rest)
        if found is None:
            results.append((rest.splitlines(), done.returncode or 1))
            break
        text, rest = rest[:found.start()], rest[found.end():]
        results.append((text.removesuffix("\n").split("\n") if text else [], int(found[1])))
    return results


def differences(path, commands, results):
    """Lines that say which outputs differ from the document, or which commands fail."""
    out = []
    for command, (printed, status) in zip(commands, results):
        where = f"{path}:{command.line}: $ {command.text.splitlines()[0]}"
        if status != 0:
            out += [where, f"  exit status {status}"] + ["  " + line for line in printed[-20:]]
        elif command.compared and printed != command.shown:
            out.append(where)
            diff = difflib.unified_diff(command.shown, printed, "document", "printed", lineterm="", n=1)
            out += ["  " + line for line in diff]
    if len(results) < len(commands):
        out.append(f"{path}: the shell ended before line {commands[len(results)].line}")
    return out


def updated(lines, commands, results):
    """The document's lines with the outputs that were printed."""
    lines = list(lines)
    for command, (printed, _) in reversed(list(zip(commands, results))):
        if command.compared:
            lines[command.first:command.first + len(command.shown)] = printed
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, default=ROOT / "build" / "bin" / "tilewright")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "tutorial.md")
    parser.add_argument("--update", action="store_true", help="write the outputs into the document")
    o = parser.parse_args()

    lines = o.page.read_text().split("\n")
    commands = commands_of(lines)
    if not commands:
        print(f"{o.page}: no console block")
        return 1
    results = run(commands, o.tool)
    wrong = differences(o.page.name, commands, results)
    if o.update and len(results) == len(commands) and all(status == 0 for _, status in results):
        o.page.write_text("\n".join(updated(lines, commands, results)))
        print(f"{o.page.name}: {len(commands)} commands run, outputs written")
        return 0
    for line in wrong:
        print(line)
    print(f"{o.page.name}: {len(commands)} commands, {'outputs differ: make tutorial-update' if wrong else 'all as shown'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
