#!/usr/bin/env python3
"""Checks the include graph of src/: data flows one way, and the folders show it.

usage: check_includes.py [ROOT]

Five rules, one line for each violation, exit status 1 if there is any:

  order      a folder includes only itself and the folders before it in ORDER; sub-folders of backend/ are slices that
             must not include each other; tests of TESTED_BY_COMPILING may include compile/ as well
  spelling   "..." names a file of the project as seen from src/ or include/, so that this check can see it
  cycle      no header includes itself through others
  library    headers of a library in LIBRARIES are included only where its entry says
  runtime    the sources of src/runtime_sources.txt, and what they include, are in RUNTIME_FOLDERS
"""

import fnmatch
import os
import re
import sys

# From the bottom up. `tool` is the command line's main program, `fuzz`, `bench` and `tests` use everything.
ORDER = [
    "base", "index", "runtime", "graph", "program", "opaque", "ops", "layout", "tile", "cost", "schedule", "libraries", "backend",
    "tune", "orchestrate", "model", "artifact", "compile", "driver", "provider", "tool",
]
TOP = ["fuzz", "bench", "tests"]
# Folders whose tests compile whole programs.
TESTED_BY_COMPILING = ["orchestrate", "model", "artifact"]

# The runtime library has no compiler: folders of which it may use something.
RUNTIME_FOLDERS = ["base", "index", "runtime", "program", "opaque", "model", "artifact", "driver", "include"]

# (name, pattern of the included file, path prefixes that may include it, the reason)
LIBRARIES = [
    ("LLVM", r"(llvm(-c)?|lld)/", ["src/backend/cpu/"], "only the CPU backend uses LLVM"),
    ("protobuf", r"(onnx/|google/protobuf/|.*\.pb\.h$)", ["src/graph/", "src/driver/zoo/", "fuzz/"],
     "model files are read in graph, written in zoo; all other folders use Graph"),
    ("SQLite", r"sqlite3", ["src/tune/"], "the tuning database"),
    ("Cbc", r"(coin/|Cbc|Clp|Osi)", ["src/orchestrate/optimal/milp.cpp"], "one file uses the mixed-integer solver"),
    ("CUDA", r"(cuda|nvrtc|cublas|cudnn)", ["src/backend/cuda/"], "a vertical slice"),
    ("CLI11", r"CLI/", ["src/driver/", "src/tool/", "bench/"], "the command line"),
]
# Libraries that may be included in sources but never in a header, because they are slow to compile.
NOT_IN_HEADERS = [
    ("nlohmann-json", r"nlohmann/"), ("protobuf", r"(onnx/onnx|google/protobuf/|.*\.pb\.h$)"), ("SQLite", r"sqlite3"),
]
# path -> library -> reason for the exception.
EXCEPTIONS = {
    path: {"protobuf": "writes the hostile models that the tool is tested with"}
    for path in ("src/tool/hostile_graph_test.cpp", "src/tool/hostile_file_test.cpp", "src/tool/hostile_models_test.cpp",
                 "src/tool/hostile_structure_test.cpp", "src/tool/commands_test.cpp", "src/tool/mutation_test.cpp",
                 "src/tool/compile_command_test.cpp",
                 "src/tool/mutator_test.cpp", "src/tool/hostile_limits_test.cpp",
                 "src/tool/gpu_command_test.cpp", "src/tool/api_inputs_test.cpp", "src/tool/must_fail_test.cpp",
                 "src/tool/tune_command_test.cpp")
}
EXCEPTIONS["src/base/keyed_hash.cpp"] = {"LLVM": "uses its BLAKE3, instead of one more library for one hash"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def sources(root):
    """Paths of all C++ files below src/, include/ and the TOP folders, relative to root, sorted."""
    found = []
    for top in ["src", "include"] + TOP:
        for folder, _, names in os.walk(os.path.join(root, top)):
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names
                      if n.endswith((".cpp", ".h", ".hpp", ".cu"))]
    return sorted(found)


def includes(root, path):
    """[(line number, included name, whether it is in quotes)] of one file."""
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        text = f.read()
    return [(text.count("\n", 0, m.start(1 if m[1] else 2)) + 1, m[1] or m[2], m[1] is not None)
            for m in INCLUDE.finditer(text)]


def unit(path):
    """The folder a project path belongs to: src/backend/cpu/a.h -> backend/cpu, src/ops/x/a.h -> ops,
    include/... -> "include", fuzz/... -> "fuzz"."""
    parts = path.split("/")
    if parts[0] != "src":
        return parts[0]
    if len(parts) < 3:
        return "src"
    return "/".join(parts[1:3]) if parts[1] == "backend" and len(parts) > 3 else parts[1]


def order_violation(user, used):
    """The reason why a file of folder `user` may not include one of folder `used`; None if it may."""
    if user in TOP or used == "include" or user == used:
        return None
    if user == "include":
        return "the public interface includes nothing but itself"
    user_top, used_top = user.split("/")[0], used.split("/")[0]
    for folder in (user_top, used_top):
        if folder not in ORDER:
            return f"folder '{folder}' has no place in the order"
    if user_top == used_top:
        if used == user_top or user == user_top:
            return None
        return f"{user} and {used} are separate slices"
    if ORDER.index(used_top) > ORDER.index(user_top):
        return f"'{used_top}' comes after '{user_top}'"
    return None


def resolve(root, name):
    """The project path of "name", or None."""
    for base in ("src", "include", "."):
        path = os.path.normpath(os.path.join(base, name))
        if not path.startswith("..") and os.path.isfile(os.path.join(root, path)):
            return path
    return None


def find_cycle(edges):
    """A cycle of includes, with the first path repeated at the end; None if there is none."""
    state = {}  # 1: on the current path, 2: done
    for start in sorted(edges):
        if state.get(start):
            continue
        way, pending = [start], [iter(sorted(edges[start]))]
        state[start] = 1
        while way:
            following = next(pending[-1], None)
            if following is None:
                state[way.pop()] = 2
                pending.pop()
            elif state.get(following) == 1:
                return way[way.index(following):] + [following]
            elif following not in state:
                state[following] = 1
                way.append(following)
                pending.append(iter(sorted(edges.get(following, ()))))
    return None


def runtime_violations(root, edges):
    """Lines for what sources of the runtime library include, directly or not, from a folder of the compiler; and for
    patterns that no source fits."""
    listed = os.path.join(root, "src", "runtime_sources.txt")
    if not os.path.exists(listed):
        return []
    with open(listed, encoding="utf-8") as f:
        patterns = [line.strip() for line in f if line.strip() and not line.startswith("#")]
    lines = []
    seen = set()
    for pattern in patterns:
        pending = [p for p in sorted(edges) if fnmatch.fnmatch(p, "src/" + pattern)
                   and p.count("/") == pattern.count("/") + 1 and not p.endswith("_test.cpp")]
        if not pending:
            lines.append(f"src/runtime_sources.txt: no source is {pattern}")
        while pending:
            path = pending.pop()
            if path in seen:
                continue
            seen.add(path)
            for used in sorted(edges.get(path, ())):
                if unit(used) in RUNTIME_FOLDERS:
                    pending.append(used)
                else:
                    lines.append(f"{path}: includes {used}, and the runtime library includes {path}: it has no compiler")
    return sorted(lines)


def check(root):
    """All violations, as lines of text."""
    lines, edges = [], {}
    for path in sources(root):
        edges[path] = set()
        for number, name, quoted in includes(root, path):
            where = f"{path}:{number}: includes {name}"
            used = resolve(root, name)
            external = any(re.match(pattern, name) for _, pattern, _, _ in LIBRARIES)
            if quoted and used is None and not external:
                lines.append(f"{where}: no such file below src/ or include/ (write the path from there)")
            if used is not None:
                edges[path].add(used)
                tests = "_test." in path and unit(path) in TESTED_BY_COMPILING and unit(used) == "compile"
                reason = None if tests else order_violation(unit(path), unit(used))
                if reason:
                    lines.append(f"{where}: {reason}")
                continue
            for library, pattern, allowed, why in LIBRARIES:
                if not re.match(pattern, name) or library in EXCEPTIONS.get(path, {}):
                    continue
                if not path.startswith(tuple(allowed)):
                    lines.append(f"{where}: {library} headers belong in {', '.join(allowed)} only ({why})")
            if path.endswith((".h", ".hpp")):
                for library, pattern in NOT_IN_HEADERS:
                    if re.match(pattern, name) and library not in EXCEPTIONS.get(path, {}):
                        lines.append(f"{where}: {library} headers stay in .cpp files")
    lines += runtime_violations(root, edges)
    cycle = find_cycle(edges)
    if cycle:
        lines.append("cycle of includes: " + " -> ".join(cycle))
    return lines


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    lines = check(root)
    for line in lines:
        print(line)
    print(f"include graph: {len(sources(root))} files, {len(lines)} violation{'' if len(lines) == 1 else 's'}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
