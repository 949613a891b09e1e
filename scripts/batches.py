#!/usr/bin/env python3
"""Writes source files that include several others each: compiled together, their headers are read once.

usage: batches.py --most N --count FILE...            print how many batches these sources need
       batches.py --most N --into PREFIX COUNT --stamp STAMP FILE...  write PREFIX0.cpp ... PREFIX<COUNT - 1>.cpp

The result is the same as if each source were compiled alone. A name that a source declares for itself (in an unnamed
namespace, static) and that another one of its batch mentions is renamed by a macro around the source's include; it needs
to be unique in its source only. Where a macro would reach other names, in the source or in what its headers declare, the
source comes after every source of its batch that mentions the name, unless behind '.', '->' or '::'; where that is
impossible, the two are in different batches. Headers are included before the first source, so that they see neither
these names nor the macros. A source of a nested namespace is not with a header that it does not include and that
declares, in that namespace, a function whose name the source mentions: the function would hide those of the outer
namespaces. A source whose system header defines macros is not with one whose headers declare names like them. Sources
stay in their batches as long as these conditions hold, and unchanged batches are not written.
"""
import argparse
import functools
import os
import re
import sys

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>(?:u8|[uUL])?R"(?P<d>[^\s()\\]{0,16})\(.*?\)(?P=d)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
  | (?P<directive>(?<![^\n])[ \t]*\#(?:[^\n\\]|\\.)*)
  | (?P<number>\.?\d(?:'?[\w.]|[eEpP][+-])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<mark>::|->|[^\s\w])
""", re.VERBOSE | re.DOTALL)
# A header that defines macros -> the beginning of the names of headers that declare names like them.
MACROS = {"<elf.h>": "<llvm/"}
# Functions that templates of libraries find by the types of their arguments.
FOUND_BY_TEMPLATES = set("PrintTo begin data end format_as from_json get hash_value size swap to_json".split())
KEYWORDS = set("""alignas alignof auto bool break case catch char class concept const consteval constexpr constinit continue
    decltype default delete do double else enum explicit extern false float for friend if inline int long mutable namespace
    new noexcept nullptr operator private protected public requires return short signed sizeof static static_assert
    static_cast struct switch template this throw true try typedef typename union unsigned using virtual void volatile
    while override final const_cast reinterpret_cast dynamic_cast""".split())


class Source:
    """The names of one source.

    own: {name declared for the source alone: the declaration it refers to (using a::name), or ""}
    mentions: names that may refer to its namespace or to one around it
    fixed: names of members and of other namespaces, in directives, and printed as part of a test's name
    renamable: its own names that a macro can rename without reaching another
    includes: lines before the first other directive
    opened: namespaces of using directives
    namespaces: those in which it declares, nested ones by their whole names
    functions: (nested namespace, name) of the functions in the headers that it includes, directly or not
    system: headers in angle brackets, included directly or not
    """

    def __init__(self, path, text):
        self.path, self.own, self.mentions, self.includes, self.opened = path, {}, set(), [], set()
        self.fixed = set()
        self.namespaces = set(re.findall(r"^namespace (\w+::[\w:]+) \{", text, re.MULTILINE))
        root = re.match(r"(.*/src/)?", path)[0]
        headers = headers_of(root, text, set()) if root else set()
        self.functions = {f for h in headers for f in functions_of(h)}
        self.system = {name for t in [text, *map(read, headers)] for name in re.findall(r"^#include (<.*>)", t, re.MULTILINE)}
        tokens, plain = [], True
        for m in TOKEN.finditer(text):
            kind, value = m.lastgroup if m.lastgroup != "d" else "string", m.group()
            if kind == "directive":
                plain = self.directive(value.strip(), plain)
                self.fixed.update(re.findall(r"\w+", value))
            elif kind in ("name", "mark"):
                tokens.append(value)
            elif kind in ("string", "number"):
                tokens.append("0")
        for before, token in zip([""] + tokens, tokens):
            if (token[0].isalpha() or token[0] == "_") and token not in KEYWORDS and before not in (".", "->", "::"):
                self.mentions.add(token)
            elif before in (".", "->", "::"):
                self.fixed.add(token)
        self.scope(tokens, 0, False)
        declared = set().union(*map(names_of, headers))
        self.renamable = (self.own.keys() & self.mentions) - self.fixed - declared - FOUND_BY_TEMPLATES
        self.mentions |= self.own.keys()

    def add(self, name, refers_to=""):
        if name[0].isalpha() or name[0] == "_":
            self.own[name] = refers_to

    def directive(self, line, plain):
        """Reads a directive. `plain`: no directive before it can change what an include means."""
        name = re.match(r"#\s*(\w*)\s*(.*)", line, re.DOTALL)
        if name[1] == "include" and plain:
            self.includes.append(" ".join(["#include", name[2].split("//")[0].strip()]))
        elif name[1] == "define":
            self.add(re.match(r"\w+", name[2])[0])
        return plain and name[1] == "include"

    def scope(self, tokens, at, private):
        """Reads the declarations of a namespace from tokens[at] to its closing brace. Returns the position after it."""
        head = []
        while at < len(tokens):
            token = tokens[at]
            at += 1
            if token == "}":
                return at
            if token == ";":
                self.declare(head, [], private)
                head = []
            elif token == "{":
                words = [w for w in head if w not in ("inline", "export")]
                if words[:1] == ["namespace"] or words == ["extern", "0"]:
                    at = self.scope(tokens, at, private or words == ["namespace"])
                    head = []
                    continue
                end = behind_brace(tokens, at)
                body = tokens[at:end - 1]
                at = end
                self.declare(head, body, private)
                # `struct A {...} a;`, `int a{1}, b;` and `T f() = {...};` continue after the brace.
                continues = at < len(tokens) and tokens[at] in (";", ",", "=", "(", "[")
                head = ["0"] if continues else []
            else:
                head.append(token)
        return at

    def declare(self, head, body, private):
        head = without_template(head)
        if not head or head[0] in ("static_assert", "friend"):
            return
        if head[0] == "using" and head[1:2] == ["namespace"]:
            self.opened.add("".join(head[2:]))
            return
        kinds = [w for w in head if w in ("class", "struct", "union", "enum", "concept", "using", "typedef")]
        if not (private or kinds or {"static", "constexpr", "const", "consteval", "constinit"} & set(head)):
            # Other functions at this level are declared in a header; macros define tests.
            if len(head) > 1 and head[0].isupper() and head[1] == "(":
                self.macro(head)
            return
        if head[0] == "typedef":
            self.add(head[-1])
        elif head[0] == "using":  # `using ::a::b` is `using a::b`
            self.add(head[1] if "=" in head else head[-1], "".join(head).replace("using::", "using"))
        elif kinds and "(" not in head and (body or len(head) <= 4):
            names = [w for w in head[head.index(kinds[0]) + 1:] if w not in ("class", "struct", "final")]
            if names and "=" not in head:
                self.add(names[0])
            for w in body if kinds[0] == "enum" else []:
                self.add(w)
        elif "operator" in head:
            at = head.index("operator")
            self.add("operator" + "".join(head[at + 1:at + 3]))
        elif len(head) > 1 and re.fullmatch(r"[A-Z][A-Z0-9_]+", head[0]) and head[1] == "(":
            self.macro(head)
        else:
            self.variables(head)

    def macro(self, head):
        """TEST(A, b) {...} declares A_b_Test."""
        self.add("_".join(w for w in head[2:] if w[0].isalpha()))
        self.fixed.update(head)

    def variables(self, head):
        """Names in `T a, b(1), c = d;` and `T f(int x)`: before one of these marks, but not in an initialiser."""
        depth, in_value = 0, False
        for k, token in enumerate(head + [";"]):
            before = head[k - 1] if k > 0 else ""
            named = before and before not in KEYWORDS and (k < 2 or head[k - 2] != "::")
            if depth == 0 and token in ("(", "=", "[", ";", ",") and named and not in_value:
                self.add(before)
            if depth == 0 and token in ("=", ","):
                in_value = token == "="
            depth += (token in ("(", "[", "<")) - (token in (")", "]", ">"))


def behind_brace(tokens, at):
    depth = 1
    while at < len(tokens) and depth > 0:
        depth += (tokens[at] == "{") - (tokens[at] == "}")
        at += 1
    return at


def without_template(head):
    while head[:1] == ["template"] or head[:1] == ["["]:
        opening, closing = ("<", ">") if head[0] == "template" else ("[", "]")
        depth, k = 0, 0
        for k, token in enumerate(head):
            depth += (token == opening) - (token == closing)
            if depth == 0 and k > 0 and token == closing:
                break
        head = head[k + 1:]
    return head


@functools.cache
def functions_of(header):
    """(namespace, name) of the functions that a header declares in nested namespaces, one declaration a line."""
    found, namespace = set(), ""
    for line in read(header).split("\n"):
        if m := re.match(r"namespace ([\w:]+) \{", line):
            namespace = m[1]
        elif "::" in namespace and (m := re.match(r"\w[^()=]*[ &*>](\w+)\(", line)):
            found.add((namespace, m[1]))
    return found


@functools.cache
def names_of(header):
    """All names in a header, outside of comments and strings."""
    return {name for m in TOKEN.finditer(read(header)) if m.lastgroup in ("name", "directive")
            for name in re.findall(r"\w+", m.group())}


def headers_of(root, text, seen):
    """The project's headers that a text includes, directly or not."""
    for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        if root + name not in seen:
            seen.add(root + name)
            headers_of(root, read(root + name), seen)
    return seen


def hidden(a, b):
    """A name that a header of `a` would hide from `b`, or ""."""
    return next((name for space, name in sorted(a.functions - b.functions)
                 if space in b.namespaces and name in b.mentions), "")


def redefined(a, b):
    """A header of `a` whose macros are names in a header of `b`, or ""."""
    return next((macros for macros, names in MACROS.items()
                 if macros in a.system and any(h.startswith(names) for h in b.system)), "")


def disturbs(a, b):
    """Why `a` may not come before `b` in a batch: a name, or "" if it may."""
    if name := hidden(a, b) or hidden(b, a) or redefined(a, b) or redefined(b, a):
        return name
    for name in sorted((a.own.keys() - a.renamable) & b.mentions):
        if not a.own[name] or a.own[name] != b.own.get(name):
            return name
    return next((f"using namespace {n}" for n in sorted(a.opened - b.opened)), "")


def place_in(batch, s, most):
    """The position in the batch at which a source may be; None if there is none."""
    if len(batch) >= most:
        return None
    after = max((k + 1 for k, b in enumerate(batch) if disturbs(s, b)), default=0)
    before = min((k for k, b in enumerate(batch) if disturbs(b, s)), default=len(batch))
    return before if after <= before else None


def batches_of(sources, most, before=()):
    """Lists of sources, none longer than `most`. `before`: earlier lists of paths, kept as far as possible."""
    out = [[] for _ in before]
    rest = {s.path: s for s in sources}

    def join(batch, s):
        place = place_in(batch, s, most)
        if place is None:
            return False
        batch.insert(place, s)
        rest.pop(s.path)
        return True

    for batch, paths in zip(out, before):
        for path in paths:
            if path in rest:
                join(batch, rest[path])
    out += [[] for _ in range(len(out), -(-len(sources) // most))]
    # Sources with the most conflicts are placed first, each into the smallest batch that takes it.
    conflicts = {s.path: sum(bool(disturbs(s, b)) + bool(disturbs(b, s)) for b in sources) for s in rest.values()}
    for s in sorted(rest.values(), key=lambda s: (-conflicts[s.path], s.path)):
        if not any(join(batch, s) for batch in sorted(out, key=len)):
            out.append([])
            join(out[-1], s)
    return out


def text_of(batch):
    lines = list(dict.fromkeys(line for s in batch for line in s.includes))
    for s in batch:
        renamed = sorted(name for name in s.renamable if any(name in other.mentions for other in batch if other is not s))
        suffix = re.sub(r"\W", "_", re.sub(r".*/src/", "", s.path).removesuffix(".cpp"))
        lines += [f"#define {name} {name}_{suffix}" for name in renamed]
        lines.append(f'#include "{s.path}"')
        lines += [f"#undef {name}" for name in renamed]
    return "".join(f"{line}\n" for line in lines)


@functools.cache
def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=8, help="sources of a batch")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--into", nargs=2, metavar=("PREFIX", "COUNT"))
    parser.add_argument("--stamp", help="file that is touched if more than COUNT batches are needed")
    parser.add_argument("files", nargs="+")
    o = parser.parse_args()
    sources = [Source(path, read(path)) for path in sorted(o.files)]
    if o.count:
        print(len(batches_of(sources, o.most)))
        return 0
    paths = [f"{o.into[0]}{k}.cpp" for k in range(int(o.into[1]))]
    old = [read(path) for path in paths]
    found = batches_of(sources, o.most, [re.findall(r'^#include "(/.*)"$', text, re.MULTILINE) for text in old])
    if len(found) > len(paths):
        found = batches_of(sources, o.most)
    if len(found) > len(paths):
        os.utime(o.stamp)
        print(f"{o.into[0]}: {len(found)} batches are needed, not {len(paths)}: build once more, which configures first")
        return 1
    for k, path in enumerate(paths):
        text = text_of(found[k]) if k < len(found) else ""
        if text != old[k] or not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
