#!/usr/bin/env python3
"""Checks what holds for every text file of the project.

usage: check_sources.py [ROOT]

  size       no file passes MAX_LINES lines (prose and the licence aside)
  paths      no absolute path of somebody's machine (a home or work folder) stands in a file
  text       UTF-8, ends with a line end, no tabs outside makefiles, no blanks at line ends in code

One line for each violation; exit status 1 if there is any.
"""

import os
import re
import sys

MAX_LINES = 1000
FOLDERS = [".ci", "bench", "cmake", "docs", "fuzz", "include", "scripts", "src", "tests"]
CODE = (".cpp", ".h", ".hpp", ".cu", ".py", ".sh", ".cmake")
TEXT = CODE + (".txt", ".json", ".md", ".in", ".map", ".golden")
NAMES = ("Makefile", "run", ".clang-format", ".clang-tidy", ".gitignore", "LICENSE")

# First folders of absolute paths that exist on one machine only.
LOCAL_ROOTS = ("home", "root", "work", "workspace", "opt", "mnt", "srv", "Users")
LOCAL_PATH = re.compile(r"(?<![\w./$}*])/(?:" + "|".join(LOCAL_ROOTS) + r")/[\w.-]")
# path -> reason why a local path may stand there
LOCAL_PATHS_ALLOWED = {}


def files(root):
    """Every text file of the project, relative to root, sorted."""
    found = [n for n in os.listdir(root) if os.path.isfile(os.path.join(root, n))]
    for top in FOLDERS:
        for folder, below, names in os.walk(os.path.join(root, top)):
            below[:] = [b for b in below if b != "__pycache__"]
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(p for p in found if p.endswith(TEXT) or os.path.basename(p) in NAMES)


def check_file(path, data):
    """Violations of one file, given its bytes."""
    lines = []
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return [f"{path}: not UTF-8 at byte {error.start}"]
    rows = text.split("\n")
    prose = path.endswith((".md", ".golden", ".json", "LICENSE"))
    if not prose and len(rows) - 1 > MAX_LINES:
        lines.append(f"{path}: {len(rows) - 1} lines, at most {MAX_LINES}: split it")
    if text and not text.endswith("\n"):
        lines.append(f"{path}:{len(rows)}: no line end at the end of the file")
    for number, row in enumerate(rows, 1):
        found = LOCAL_PATH.search(row)
        if found and path not in LOCAL_PATHS_ALLOWED:
            lines.append(f"{path}:{number}: absolute path of one machine: {row[found.start():].split()[0][:60]}")
        if path.endswith(CODE) and row != row.rstrip():
            lines.append(f"{path}:{number}: blanks at the end of the line")
        if path.endswith(CODE) and "\t" in row:
            lines.append(f"{path}:{number}: a tab")
    return lines


def check(root):
    """All violations, as lines of text."""
    lines = []
    for path in files(root):
        with open(os.path.join(root, path), "rb") as f:
            lines += check_file(path, f.read())
    return lines


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    lines = check(root)
    for line in lines:
        print(line)
    print(f"source rules: {len(files(root))} files, {len(lines)} violation{'' if len(lines) == 1 else 's'}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
