#!/usr/bin/env python3
"""Checks the rules for text files of the project.

usage: check_sources.py [ROOT]

  size       no file passes MAX_LINES lines, no C++ source MAX_SOURCE_LINES and no function MAX_FUNCTION_LINES (tests,
             prose, the licence and GENERATED aside)
  paths      no file contains an absolute path of one machine (a home or work folder)
  words      documents (*.md) use the terms of docs/glossary.md; code spans and indented blocks are not checked. Comments
             and string literals of C++ and Python files avoid CODE_WORDS
  links      a relative link of a document refers to a file
  one place  queries of program/analysis/ are not reimplemented elsewhere
  one name   classes of one namespace have different names: the linker would take two for one
  functions  a function of the table of scalar operators is named in few other files, and no other file lists functions
  text       UTF-8, ends with a line end, no tabs outside makefiles, no blanks at line ends in code

One line for each violation; exit status 1 if there is any.
"""

import io
import os
import re
import sys
import tokenize

MAX_LINES = 1000
MAX_SOURCE_LINES = 700
MAX_FUNCTION_LINES = 80
# path -> limit for its functions
LONGER_FUNCTIONS = {"src/compile/pipeline.cpp": 120}  # run_pipeline lists every pass
GENERATED = ("bench/replay.txt",)  # generated: of any length
FOLDERS = [".ci", "bench", "cmake", "docs", "fuzz", "include", "python", "scripts", "src", "tests"]
CODE = (".cpp", ".h", ".hpp", ".def", ".cu", ".py", ".sh", ".cmake")
TEXT = CODE + (".cuh", ".txt", ".json", ".md", ".in", ".map", ".toml", ".golden")
NAMES = ("Makefile", "run", ".clang-format", ".clang-tidy", ".gitignore", "LICENSE")

# First folders of absolute paths that exist on one machine only.
LOCAL_ROOTS = ("home", "root", "work", "workspace", "opt", "mnt", "srv", "Users")
LOCAL_PATH = re.compile(r"(?<![\w./$}*])/(?:" + "|".join(LOCAL_ROOTS) + r")/[\w.-]")
# path -> reason for the exception
LOCAL_PATHS_ALLOWED = {}

# The old dialect -> the field's word (docs/glossary.md). Patterns, without regard to case.
OLD_WORDS = {
    r"only the run knows": "dynamic, unknown at compile time",
    r"the run's": "dynamic",
    r"rests\b(?! on)": "tails",
    r"rungs?": "tile-size candidates, tail specialisation",
    r"turned around": "transposed",
    r"(?:in|sums in) parts": "split-K",
    r"past the caches": "non-temporal store",
    r"(?:asked|asks|ask) for": "prefetch, or name the component",
    r"weighed sums?": "constant-coefficient linear transform",
    r"goes by|go by": "is streamed",
    r"tak(?:e|en) in slices": "depth-first slicing",
    r"four warps (?:together|multiply)": "warpgroup",
    r"copy engine": "TMA",
    r"pretended": "fake driver",
    r"(?:default|greedy) rule(?:'s)?": "default heuristic, greedy orchestration",
    r"the rule's": "the default schedule's",
    r"judge[sd]?|judging": "evaluate",
    r"dear(?:er|est)?": "expensive",
    r"hopeless": "pruned",
    r"whoever|nobody|somebody": "the passive, or the component's name",
    r"wish(?:es|ed)?": "the passive",
    r"for ever": "kept in the tuning database",
    r"to and fro": "in reverse order",
    r"by heart": "kept",
}
OLD_WORD = {re.compile(r"\b(?:" + pattern + r")(?!\w)", re.IGNORECASE): word for pattern, word in OLD_WORDS.items()}
# path -> reason for the exception
OLD_WORDS_ALLOWED = {
    "docs/glossary.md": "lists the old names",
    "CONTRIBUTING.md": "lists the words to avoid",
}

# Words that comments and string literals avoid: those of OLD_WORDS that have no other meaning in code, and personified
# data. Patterns, without regard to case.
CODE_ONLY_WORDS = {
    r"everybody|anybody|everyone|anyone|no one": "the passive, or the component's name",
    r"who|whom": "the component's name",
    r"(?:asks|wants|tells|knows|believes|hears)": "a verb for data: requests, requires, defines, contains",
    r"not to be had": "out of memory, missing",
    r"shall": "must, or the present tense",
    r"of late": "recently",
    r"in so many": "split-K",
    r"wholes": "full plan",
}
WORDS_OF_DOCUMENTS_ONLY = (r"rests\b(?! on)", r"(?:in|sums in) parts", r"(?:asked|asks|ask) for", r"pretended",
                           r"(?:default|greedy) rule(?:'s)?", r"the rule's", r"judge[sd]?|judging")
CODE_WORDS = {p: w for p, w in OLD_WORDS.items() if p not in WORDS_OF_DOCUMENTS_ONLY} | CODE_ONLY_WORDS
CODE_WORD = {re.compile(r"\b(?:" + pattern + r")(?!\w)", re.IGNORECASE): word for pattern, word in CODE_WORDS.items()}
# path -> reason for the exception
CODE_WORDS_ALLOWED = {
    "scripts/check_sources.py": "lists the words to avoid",
    "scripts/checks_test.py": "tests the list",
}

# Where a query is implemented -> patterns of a second implementation. Tests are not checked.
ONE_PLACE = {
    "src/program/analysis/contraction.cpp": [
        (re.compile(r"\bbody(?:\(\)|_)?\.root\(\)\]\.op\s*[!=]=\s*ScalarOp::Mul\b"), "contraction() or product_factors()"),
        (re.compile(r"\b(?:root|product)\.op\s*[!=]=\s*ScalarOp::Mul\b(?!\))"), "contraction() or product_factors()"),
    ],
    "src/program/analysis/dynamic.h": [
        (re.compile(r"is_constant\(\)\s*\?[^:;]*constant\(\)\)?\s*:\s*\d{2,}(?:\.0)?\b"), "assumed_extent()"),
    ],
    "src/program/analysis/scalar_cost.cpp": [
        (re.compile(r"case ScalarOp::Tanh:\n(?:\s*case ScalarOp::\w+:\n)*\s*return \d+;"), "operation_cost()"),
    ],
}

# The table of scalar operators; a row of it and two files of the backends add a function. Tests are not counted.
SCALAR_TABLE = "src/program/scalar_ops.def"
SCALAR_ROW = re.compile(r"^TW_SCALAR_FUNCTION\((\w+), *(\w+), *\w+, *(\w+),", re.MULTILINE)
MAX_FILES_OF_FUNCTION = 6
# function -> limit: rewrite rules and decompositions have it in their formulas
MORE_FILES_OF_FUNCTION = {"Exp": 13, "Sqrt": 7}
MAX_FUNCTIONS_OF_FILE = 4  # in formulas; a file with more has a list that should read the table
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def files(root):
    """Every text file of the project, relative to root, sorted."""
    found = [n for n in os.listdir(root) if os.path.isfile(os.path.join(root, n))]
    for top in FOLDERS:
        for folder, below, names in os.walk(os.path.join(root, top)):
            below[:] = [b for b in below if b != "__pycache__"]
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(p for p in found if p.endswith(TEXT) or os.path.basename(p) in NAMES)


def is_source(path):
    """Whether it is C++ or CUDA code other than a test."""
    return path.startswith("src/") and path.endswith((".cpp", ".h", ".def", ".cuh")) and "_test." not in path


def functions(text):
    """[(first line, number of lines)] of the functions of a C++ file; a lambda belongs to the function around it."""
    blank = CPP_TOKEN.sub(lambda t: "\n" * t.group().count("\n"), DIGITS.sub("_", text))
    blank = re.sub(r"'(?:\\.|[^\\'\n])'", "' '", blank)
    blank = re.sub(r"^[ \t]*#.*(?:\\\n.*)*", lambda t: "\n" * t.group().count("\n"), blank, flags=re.MULTILINE)
    found, around, begin = [], [], 0  # around: first line of a function, or None, of each open block
    for mark in re.finditer(r"[;{}]", blank):
        if mark.group() == "{":
            header = blank[begin:mark.start()]
            first = blank.count("\n", 0, begin + len(header) - len(header.lstrip())) + 1
            is_function = (not any(around) and "(" in header and
                           not re.match(r"\s*(?:(?:inline |export )*namespace|(?:struct|class|union|enum)\b[^(]*$)", header))
            around.append(first if is_function else None)
        elif mark.group() == "}" and around:
            first = around.pop()
            if first:
                found.append((first, blank.count("\n", 0, mark.start()) + 2 - first))
        begin = mark.end()
    return found


def check_file(path, data):
    """Violations of one file, given its bytes."""
    lines = []
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return [f"{path}: not UTF-8 at byte {error.start}"]
    rows = text.split("\n")
    prose = path.endswith((".md", ".golden", ".json", "LICENSE")) or path in GENERATED
    if not prose and len(rows) - 1 > MAX_LINES:
        lines.append(f"{path}: {len(rows) - 1} lines, at most {MAX_LINES}: split it")
    if is_source(path):
        if MAX_SOURCE_LINES < len(rows) - 1 <= MAX_LINES:
            lines.append(f"{path}: {len(rows) - 1} lines, at most {MAX_SOURCE_LINES}: split it")
        most = LONGER_FUNCTIONS.get(path, MAX_FUNCTION_LINES)
        lines += [f"{path}:{first}: a function of {count} lines, at most {most}: split it"
                  for first, count in functions(text) if count > most]
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


def check_one_place(path, text):
    """Reimplementations of queries that another file provides."""
    if not path.startswith("src/") or "_test." in path or not path.endswith((".cpp", ".h")):
        return []
    return [f"{path}:{text.count(chr(10), 0, found.start()) + 1}: decided in {place}: use {instead}"
            for place, patterns in ONE_PLACE.items() if path != place
            for pattern, instead in patterns for found in pattern.finditer(text)]


def check_scalar_functions(sources):
    """Functions of the table that are named in too many of the sources {path: text}, and sources that name too many."""
    lines, listed = [], {}
    for op, text, device in SCALAR_ROW.findall(sources.get(SCALAR_TABLE, "")):
        named = re.compile(rf"\bScalarOp::{op}\b|^llvm::Value\* emit_{text}\(|^TW_FUNCTION\({device},", re.MULTILINE)
        users = [path for path, source in sources.items() if path != SCALAR_TABLE and named.search(source)]
        most = MORE_FILES_OF_FUNCTION.get(op, MAX_FILES_OF_FUNCTION)
        if 1 + len(users) > most:
            lines.append(f"{SCALAR_TABLE}: {op} is named in {1 + len(users)} files, at most {most}: read the table "
                         f"instead of {', '.join(sorted(users))}")
        for path in users:
            if f"ScalarOp::{op}" in sources[path]:
                listed.setdefault(path, []).append(op)
    return lines + [f"{path}: names {len(ops)} functions of {SCALAR_TABLE}, at most {MAX_FUNCTIONS_OF_FILE}: read it"
                    for path, ops in sorted(listed.items()) if len(ops) > MAX_FUNCTIONS_OF_FILE]


NAMESPACE = re.compile(r"^namespace ?([\w:]*) ?\{")
NAMESPACE_END = re.compile(r"^\}  // namespace\b")
CLASS = re.compile(r"^(?:class|struct|union) ([A-Z]\w*)(?: final)?(?: :[^;]*)?(?:\s*\{|$)")


def check_class_names(sources):
    """Classes of the sources {path: text} that have one name in one namespace."""
    places = {}
    for path, text in sources.items():
        inside = []
        for line in text.splitlines():
            if found := NAMESPACE.match(line):
                inside.append(found[1] or "anonymous")
            elif NAMESPACE_END.match(line) and inside:
                inside.pop()
            elif (found := CLASS.match(line)) and "anonymous" not in inside:
                places.setdefault("::".join(inside + [found[1]]), set()).add(path)
    return [f"{sorted(paths)[0]}: class {name} is also in {', '.join(sorted(paths)[1:])}: rename one"
            for name, paths in sorted(places.items()) if len(paths) > 1]


def check_words(path, text):
    """Old words in the prose of a document, and what to write instead."""
    if path in OLD_WORDS_ALLOWED:
        return []
    lines, fenced = [], False
    rows = text.split("\n")
    for number, row in enumerate(rows, 1):
        if row.startswith("```"):
            fenced = not fenced
        if fenced or row.startswith("    "):
            continue
        # a phrase may go on in the next line
        after = rows[number] if number < len(rows) and not rows[number].startswith("    ") else ""
        prose = re.sub(r"`[^`]*`", "", row)
        both = prose + " " + re.sub(r"`[^`]*`", "", after)
        for pattern, word in OLD_WORD.items():
            lines += [f"{path}:{number}: '{found.group()}': write '{word}' (docs/glossary.md)"
                      for found in pattern.finditer(both) if found.start() < len(prose)]
    return lines


CPP_TOKEN = re.compile(r"""
    //(?:[^\n\\]|\\.|\\\n)*                # a comment to the end of the line
    | /\*.*?\*/                              # a block comment
    | R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"   # a raw string
    | "(?:[^"\\\n]|\\.)*"                   # a string
    | '(?:[^'\\\n]|\\.)+'                   # a character
    """, re.VERBOSE | re.DOTALL)
DIGITS = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")  # 1'000'000


def prose_of_code(path, text):
    """{line number: text of its comments and string literals}."""
    prose = {}

    def add(number, token):
        for offset, line in enumerate(token.split("\n")):
            line = re.sub(r"`[^`]*`", "", line)
            line = re.sub(r"^\s*(?:///?<?|/?\*+|#+)?\s?", "", line)
            prose[number + offset] = prose.get(number + offset, "") + " " + line

    if path.endswith(".py"):
        kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None)}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in kinds:
                add(token.start[0], token.string)
    else:
        for found in CPP_TOKEN.finditer(DIGITS.sub("_", text)):
            add(text.count("\n", 0, found.start()) + 1, found.group())
    return prose


def check_code_words(path, text):
    """Words of the old dialect in comments and string literals, and what to write instead."""
    if not path.endswith((".cpp", ".h", ".hpp", ".py")) or path in CODE_WORDS_ALLOWED:
        return []
    lines = []
    prose = prose_of_code(path, text)
    for number, row in sorted(prose.items()):
        both = row + " " + prose.get(number + 1, "").strip()  # a phrase may go on in the next line
        for pattern, word in CODE_WORD.items():
            lines += [f"{path}:{number}: '{found.group()}': write '{word}' (docs/glossary.md)"
                      for found in pattern.finditer(both) if found.start() < len(row)]
    return lines


def check_links(path, text, exists):
    """Relative links of a document to files that `exists` denies."""
    lines = []
    for number, row in enumerate(text.split("\n"), 1):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", row)):
            if "://" not in target and not exists(os.path.normpath(os.path.join(os.path.dirname(path), target))):
                lines.append(f"{path}:{number}: link to {target}, which is not there")
    return lines


def check(root):
    """All violations, as lines of text."""
    lines, sources = [], {}
    for path in files(root):
        with open(os.path.join(root, path), "rb") as f:
            data = f.read()
        lines += check_file(path, data)
        text = data.decode("utf-8", errors="replace")
        lines += check_one_place(path, text)
        if is_source(path):
            sources[path] = text
        lines += check_code_words(path, text)
        if path.endswith(".md"):
            lines += check_words(path, text)
            lines += check_links(path, text, lambda p: os.path.exists(os.path.join(root, p)))
    return lines + check_scalar_functions(sources) + check_class_names(sources)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    lines = check(root)
    for line in lines:
        print(line)
    print(f"source rules: {len(files(root))} files, {len(lines)} violation{'' if len(lines) == 1 else 's'}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
