#!/usr/bin/env python3
"""Tests of the scripts (check_*.py on small trees that break one rule each, replay.py, tutorial.py), of bench/charts.py and
of the columns of bench/ops.py."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import batches  # noqa: E402
import check_includes  # noqa: E402
import check_sources  # noqa: E402
import replay  # noqa: E402
import tutorial  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import charts  # noqa: E402
import ops  # noqa: E402


def include_violations(tree):
    """check_includes on a tree given as {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        return check_includes.check(root)


class IncludeGraph(unittest.TestCase):
    def test_a_folder_may_include_what_comes_before_it(self):
        self.assertEqual([], include_violations({
            "src/base/a.h": "", "src/tile/b.h": '#include <vector>\n#include "base/a.h"\n',
            "src/tile/b.cpp": '#include "tile/b.h"\n', "src/tile/c_test.cpp": '#include <gtest/gtest.h>\n'}))

    def test_an_include_that_runs_up_is_named_with_file_and_line(self):
        self.assertEqual(["src/base/a.h:2: includes tile/b.h: 'tile' comes after 'base'"], include_violations({
            "src/base/a.h": '#pragma once\n#include "tile/b.h"\n', "src/tile/b.h": ""}))

    def test_angle_brackets_do_not_hide_an_include(self):
        self.assertEqual(["src/base/a.h:1: includes tile/b.h: 'tile' comes after 'base'"], include_violations({
            "src/base/a.h": "#  include  <tile/b.h>\n", "src/tile/b.h": ""}))

    def test_every_include_of_a_line_sequence_is_seen(self):
        lines = include_violations({"src/base/a.h": '#include "tile/b.h"\n#include "cost/c.h"\n\n#include "tile/b.h"\n',
                                    "src/tile/b.h": "", "src/cost/c.h": ""})
        self.assertEqual(["1", "2", "4"], [line.split(":")[1] for line in lines])

    def test_backends_do_not_know_each_other(self):
        self.assertEqual(
            ["src/backend/cpu/a.cpp:1: includes backend/cuda/b.h: backend/cpu and backend/cuda are separate slices"],
            include_violations({"src/backend/cpu/a.cpp": '#include "backend/cuda/b.h"\n#include "backend/backend.h"\n',
                                "src/backend/cuda/b.h": "", "src/backend/backend.h": ""}))

    def test_a_path_relative_to_the_file_is_refused(self):
        self.assertEqual(
            ["src/tile/b.cpp:1: includes b.h: no such file below src/ or include/ (write the path from there)"],
            include_violations({"src/tile/b.cpp": '#include "b.h"\n', "src/tile/b.h": ""}))

    def test_a_new_folder_needs_a_place_in_the_order(self):
        self.assertEqual(["src/extra/a.cpp:1: includes base/a.h: folder 'extra' has no place in the order"],
                         include_violations({"src/extra/a.cpp": '#include "base/a.h"\n', "src/base/a.h": ""}))

    def test_the_public_interface_includes_only_itself(self):
        self.assertEqual(
            ["include/tilewright/a.h:1: includes base/a.h: the public interface includes nothing but itself"],
            include_violations({"include/tilewright/a.h": '#include "base/a.h"\n#include "tilewright/b.h"\n',
                                "include/tilewright/b.h": "", "src/base/a.h": ""}))

    def test_headers_in_a_circle_are_listed(self):
        self.assertEqual(["cycle of includes: src/tile/a.h -> src/tile/b.h -> src/tile/a.h"], include_violations({
            "src/tile/a.h": '#include "tile/b.h"\n', "src/tile/b.h": '#include "tile/a.h"\n'}))

    def test_the_runtime_library_includes_no_compiler(self):
        self.assertEqual(
            ["src/model/b.h: includes src/tile/c.h, and the runtime library includes src/model/b.h: it has no compiler",
             "src/runtime_sources.txt: no source is model/z.cpp"],
            include_violations({
                "src/runtime_sources.txt": "# comment\nbase/*.cpp\nmodel/a.cpp\nmodel/z.cpp\n",
                "src/base/a.cpp": "", "src/model/a.cpp": '#include "model/b.h"\n', "src/tile/c.h": "",
                "src/model/b.h": '#include "tile/c.h"\n', "src/model/other.cpp": '#include "tile/c.h"\n'}))

    def test_libraries_stay_in_their_folders(self):
        lines = include_violations({"src/tile/a.cpp": '#include <llvm/IR/Module.h>\n#include <onnx/onnx_pb.h>\n'})
        self.assertEqual(2, len(lines))
        self.assertIn("LLVM headers belong in src/backend/cpu/ only", lines[0])
        self.assertIn("protobuf headers belong in src/graph/, src/driver/zoo/, fuzz/ only", lines[1])

    def test_libraries_may_stand_where_they_belong(self):
        self.assertEqual([], include_violations({
            "src/backend/cpu/a.h": '#include "llvm/IR/Module.h"\n', "src/graph/a.cpp": "#include <onnx/onnx_pb.h>\n",
            "src/cost/a.cpp": "#include <nlohmann/json.hpp>\n"}))

    def test_slow_headers_stay_out_of_headers(self):
        self.assertEqual(["src/cost/a.h:1: includes nlohmann/json.hpp: nlohmann-json headers stay in .cpp files"],
                         include_violations({"src/cost/a.h": "#include <nlohmann/json.hpp>\n"}))


class SourceRules(unittest.TestCase):
    def test_a_clean_file_passes(self):
        self.assertEqual([], check_sources.check_file("src/a.cpp", b"int a;  // see /usr/include/x and a/opt/b\n"))

    def test_sources_have_700_lines_at_most_and_other_files_1000(self):
        self.assertEqual([], check_sources.check_file("src/a.cpp", b"\n" * 700))
        self.assertEqual(["src/a.cpp: 701 lines, at most 700: split it"],
                         check_sources.check_file("src/a.cpp", b"\n" * 701))
        self.assertEqual([], check_sources.check_file("src/a_test.cpp", b"\n" * 1000))
        self.assertEqual(["src/a.cpp: 1001 lines, at most 1000: split it"],
                         check_sources.check_file("src/a.cpp", b"\n" * 1001))
        self.assertEqual([], check_sources.check_file("docs/a.md", b"\n" * 1001))

    def test_a_function_has_eighty_lines_at_most(self):
        def source(lines):
            return (f"namespace n {{\nclass C {{\n    int f(int a,\n          int b) const {{\n"
                    + "        if (a) { g('{'); }  // {\n" * (lines - 3) + "    }\n};\n}\n").encode()

        self.assertEqual(check_sources.check_file("src/a.cpp", source(80)), [])
        self.assertEqual(check_sources.check_file("src/a.cpp", source(81)),
                         ["src/a.cpp:3: a function of 81 lines, at most 80: split it"])
        self.assertEqual(check_sources.check_file("src/a_test.cpp", source(81)), [])

    def test_a_lambda_belongs_to_the_function_around_it(self):
        text = "void f() {\n    const auto g = [](int x) {\n        return x;\n    };\n}\nstruct S {\n    int a{1};\n};\n"
        self.assertEqual(check_sources.functions(text), [(1, 5)])

    def test_paths_of_one_machine_are_found(self):
        for folder in check_sources.LOCAL_ROOTS:
            for before in ('"', " ", "=", "(", "<"):
                data = f"a\n{before}/{folder}/x/y.h\n".encode()
                self.assertEqual([f"CMakeLists.txt:2: absolute path of one machine: /{folder}/x/y.h"],
                                 check_sources.check_file("CMakeLists.txt", data))

    def test_text_is_tidy(self):
        self.assertEqual(["a.cpp:1: no line end at the end of the file"], check_sources.check_file("a.cpp", b"x"))
        self.assertEqual(["a.cpp:1: blanks at the end of the line"], check_sources.check_file("a.cpp", b"x \n"))
        self.assertEqual(["a.cpp:1: a tab"], check_sources.check_file("a.cpp", b"\tx\n"))
        self.assertEqual(["a.cpp: not UTF-8 at byte 1"], check_sources.check_file("a.cpp", b"x\xff\n"))

    def test_old_words_in_documents_are_found(self):
        for text, words in [("Rests are clamped.\n", ["Rests"]), ("what only the\nrun knows\n", ["only the run knows"]),
                            ("| a | dearest |\n", ["dearest"]),
                            ("The greedy rule, past the caches.\n", ["past the caches", "greedy rule"])]:
            lines = check_sources.check_words("docs/a.md", text)
            self.assertEqual(words, [line.split("'")[1] for line in lines])
            self.assertTrue(all(line.startswith("docs/a.md:1: ") for line in lines))

    def test_a_phrase_over_two_lines_is_found_once(self):
        lines = check_sources.check_words("docs/a.md", "It is turned\naround.\nMore.\n")
        self.assertEqual(["docs/a.md:1: 'turned around': write 'transposed' (docs/glossary.md)"], lines)

    def test_words_of_the_field_and_code_pass(self):
        text = ("The tail rests on a proof; `rest_rungs` is code.\n\n    rests of nobody\n\n```\nrungs\n```\n"
                "Adjudged, endearing and reworded words only contain an old one.\n")
        self.assertEqual([], check_sources.check_words("docs/a.md", text))

    def test_every_old_word_has_a_pattern_that_finds_it(self):
        for word in ("only the run knows", "rungs", "copy engine", "judged", "whoever", "for ever", "sums in parts",
                     "asked for", "weighed sum", "default rule", "wishes", "pretended", "hopeless", "taken in slices"):
            self.assertEqual(1, len(check_sources.check_words("README.md", f"a {word} b\n")), word)
        self.assertEqual([], check_sources.check_words("docs/glossary.md", "rungs\n"))

    def test_old_words_in_comments_and_strings_are_found(self):
        cases = [
            ("src/base/a.cpp", "int a;  // nobody reads it\n", [(1, "nobody")]),
            ("src/base/a.h", "/// What only the\n/// run knows.\nint a;\n", [(1, "only the run knows"), (2, "knows")]),
            ("include/a.hpp", "/* first line\n * a dear kernel */\n", [(2, "dear")]),
            ("src/base/a.cpp", 'fail("turned around");\n', [(1, "turned around")]),
            ("src/base/a.cpp", 'auto s = R"(x\nby heart\n)";\n', [(2, "by heart")]),
            ("src/base/a.cpp", "const int n = 1'000'000;  // kept for ever\n", [(1, "for ever")]),
            ("bench/a.py", '"""A title.\n\nIt asks whoever it likes."""\n', [(3, "whoever"), (3, "asks")]),
            ("bench/a.py", "a = 1  # hopeless\n", [(1, "hopeless")]),
        ]
        for path, text, expected in cases:
            lines = check_sources.check_code_words(path, text)
            found = [(int(line.split(":")[1]), line.split("'")[1].replace("\n", " ")) for line in lines]
            self.assertEqual(sorted(expected), sorted(found), text)
            self.assertTrue(all(line.startswith(path + ":") for line in lines))

    def test_identifiers_and_code_spans_pass(self):
        text = "int nobody = wish(dear);  // `nobody` and `dear` are names; the size is known, the word endearing\n"
        self.assertEqual([], check_sources.check_code_words("src/base/a.cpp", text))
        self.assertEqual([], check_sources.check_code_words("src/base/a.txt", "nobody\n"))
        self.assertEqual([], check_sources.check_code_words("scripts/check_sources.py", "# nobody\n"))

    def test_a_character_is_no_string_and_a_quote_no_end(self):
        text = "char a = '\"';  int nobody;\nfail(\"a \\\" b\");  int somebody;\n"
        self.assertEqual([], check_sources.check_code_words("src/base/a.cpp", text))

    def test_every_exception_exists(self):
        for path in check_sources.CODE_WORDS_ALLOWED:
            self.assertTrue(os.path.isfile(os.path.join(ROOT, path)), path)

    def test_what_an_analysis_decides_is_decided_nowhere_else(self):
        second = [
            "if (e.body[e.body.root()].op == ScalarOp::Mul) return true;\n",
            "if (root.op != ScalarOp::Mul || root.dtype != DType::F32) return {};\n",
            "double n = d.is_constant() ? static_cast<double>(d.constant()) : 64.0;\n",
            "switch (op) {\n    case ScalarOp::Tanh:\n    case ScalarOp::Erf:\n        return 24;\n}\n",
        ]
        for text in second:
            self.assertEqual(1, len(check_sources.check_one_place("src/cost/a.cpp", text)), text)
            self.assertEqual([], check_sources.check_one_place("src/cost/a_test.cpp", text))
        self.assertEqual([], check_sources.check_one_place("src/program/analysis/contraction.cpp", second[0]))
        self.assertEqual([], check_sources.check_one_place("src/a.cpp", "return Expr(d.is_constant() ? d : 1);\n"))

    def test_classes_of_one_namespace_have_different_names(self):
        walks = "namespace tilewright {\nclass Walks {\n};\n}  // namespace tilewright\n"
        own = "namespace tilewright {\nnamespace {\nclass Walks {\n};\n}  // namespace\n}  // namespace tilewright\n"
        other = "namespace tilewright::cpu {\nstruct Walks : Base {\n};\n}  // namespace tilewright::cpu\n"
        forward = "namespace tilewright {\nclass Walks;\n}  // namespace tilewright\n"
        self.assertEqual(["src/a.h: class tilewright::Walks is also in src/b.h: rename one"],
                         check_sources.check_class_names({"src/a.h": walks, "src/b.h": walks}))
        self.assertEqual([], check_sources.check_class_names(
            {"src/a.h": walks, "src/b.cpp": own, "src/c.h": other, "src/d.h": forward}))

    def test_functions_of_the_scalar_table_are_named_in_few_files(self):
        table = "TW_SCALAR_FUNCTION(Erf, erf, erf, erf, 24)\n"
        users = {f"src/ops/{k}.cpp": "x.apply(ScalarOp::Erf);\n" for k in "abc"}
        backends = {"src/backend/cpu/a.cpp": "llvm::Value* emit_erf(llvm::IRBuilderBase& b, llvm::Value* x) {}\n",
                    "src/backend/cuda/device/common.cuh": "TW_FUNCTION(erf, erff, erf)\n"}
        sources = {check_sources.SCALAR_TABLE: table, **users, **backends}
        self.assertEqual([], check_sources.check_scalar_functions(sources))
        lines = check_sources.check_scalar_functions({**sources, "src/tune/d.cpp": "case ScalarOp::Erf:\n"})
        self.assertEqual(1, len(lines))
        self.assertIn("Erf is named in 7 files, at most 6", lines[0])
        self.assertEqual([], check_sources.check_scalar_functions({**sources, "src/tune/d.cpp": "ScalarOp::Erfc\n"}))

    def test_no_file_lists_the_functions_of_the_scalar_table_again(self):
        names = ["Sin", "Cos", "Tan", "Asin", "Acos"]
        table = "".join(f"TW_SCALAR_FUNCTION({n}, {n.lower()}, {n.lower()}, {n.lower()}, 40)\n" for n in names)
        cases = [f"        case ScalarOp::{n}:\n" for n in names]
        for count, expected in ((4, []), (5, [f"src/tune/a.cpp: names 5 functions of {check_sources.SCALAR_TABLE}, "
                                              "at most 4: read it"])):
            self.assertEqual(expected, check_sources.check_scalar_functions({
                check_sources.SCALAR_TABLE: table, "src/tune/a.cpp": "".join(cases[:count])}))

    def test_the_scalar_table_has_rows_that_the_check_reads(self):
        with open(os.path.join(ROOT, check_sources.SCALAR_TABLE), encoding="utf-8") as f:
            rows = check_sources.SCALAR_ROW.findall(f.read())
        self.assertIn(("RoundEven", "round", "round_even"), rows)
        self.assertGreater(len(rows), 20)

    def test_links_of_documents_lead_to_files(self):
        text = "[a](b.md) [c](../README.md#map) ![d](charts/e.svg) [f](https://example.org) `[g](h)`\n"
        self.assertEqual([], check_sources.check_links("docs/a.md", text,
                                                       {"docs/b.md", "README.md", "docs/charts/e.svg"}.__contains__))
        self.assertEqual(["docs/a.md:1: link to charts/e.svg, which is not there"],
                         check_sources.check_links("docs/a.md", text, {"docs/b.md", "README.md"}.__contains__))

    def test_a_tree_is_checked_as_a_whole(self):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "docs"))
            for name, text in (("docs/a.md", "[b](b.md)\nhopeless\n"), ("README.md", "[a](docs/a.md)\n")):
                with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                    f.write(text)
            self.assertEqual(["docs/a.md:2: 'hopeless': write 'pruned' (docs/glossary.md)",
                              "docs/a.md:1: link to b.md, which is not there"], check_sources.check(root))


class Batches(unittest.TestCase):
    @staticmethod
    def of(most=8, before=(), **texts):
        """Names of the sources in each batch."""
        sources = [batches.Source(name, text) for name, text in texts.items()]
        return [[s.path for s in batch] for batch in batches.batches_of(sources, most, before) if batch]

    def test_sources_without_common_names_share_a_batch(self):
        self.assertEqual(1, len(self.of(a="namespace { int f() { return 1; } }\nint g() { return f(); }",
                                        b="static int h() { return 2; }\nint k() { return h(); }")))

    def test_no_batch_has_more_than_the_given_number_of_sources(self):
        self.assertEqual([2, 2, 1], sorted((len(b) for b in self.of(2, a="", b="", c="", d="", e="")), reverse=True))

    def test_a_name_that_two_sources_declare_for_themselves_is_renamed(self):
        own = ["namespace { int f() { return 1; } }", "static int f(int x) { return x; }", "namespace { struct f {}; }",
               "namespace { enum class E { e }; constexpr int f = 3; }", "namespace { using f = int; }",
               "namespace n { namespace { template <class T> T f(T x) { return x; } } }"]
        for k, one in enumerate(own):
            for other in own[k:]:
                self.assertEqual(1, len(self.of(a=one, b=other)), (one, other))
                text = batches.text_of([batches.Source("/src/x/a.cpp", one), batches.Source("/src/y/b.cpp", other)])
                for path, new in ("/src/x/a.cpp", "f_x_a"), ("/src/y/b.cpp", "f_y_b"):
                    before, after = text.split(f'#include "{path}"\n')
                    self.assertIn(f"#define f {new}\n", before)
                    self.assertIn("#undef f\n", after)

    def test_a_name_that_a_macro_would_also_rename_elsewhere_separates_sources(self):
        own = "namespace { int f() { return 1; } }\n"
        for use in ("int g(A a) { return a.f; }", "int g(A* a) { return a->f(); }", "int g() { return n::f(); }",
                    "#define f 1\n", "TEST(A, f) {}"):
            self.assertEqual(2, len(self.of(a=own + use, b=own + use)), use)
        printed = "static void PrintTo(A a, std::ostream* o) {}"
        self.assertEqual(2, len(self.of(a=printed, b=printed)))
        with tempfile.TemporaryDirectory() as folder:
            root = os.path.join(folder, "src")
            os.mkdir(root)
            with open(os.path.join(root, "a.h"), "w", encoding="utf-8") as f:
                f.write("struct A { int f; };\n")
            sources = {f"{root}/{name}.cpp": f'#include "a.h"\n{own}' for name in "ab"}
            self.assertEqual(2, len(self.of(**sources)))

    def test_tests_of_one_name_are_separated(self):
        test = "TEST(A, is_right) { EXPECT_TRUE(true); }"
        self.assertEqual(2, len(self.of(a=test, b=test)))

    def test_a_source_that_mentions_the_name_comes_before_the_one_that_declares_it(self):
        own, reader = "#define f 1\n", "int g() { return f(2); }"
        self.assertEqual([["reader", "own"]], self.of(own=own, reader=reader))
        self.assertEqual(2, len(self.of(own=own + "int h() { return k; }", reader=reader + "\n#define k 2\n")))

    def test_members_and_qualified_names_are_other_names(self):
        self.assertEqual(1, len(self.of(a="namespace { int f() { return 1; } }",
                                        b="int g(A x) { return x.f() + n::f(); }\nnamespace { int k() { return 0; } }")))

    def test_a_using_directive_does_not_reach_a_source_without_it(self):
        opened = "using namespace n;\nnamespace { int f; }"
        self.assertEqual(1, len(self.of(a=opened, b="using namespace n;")))
        self.assertEqual([["b", "a"]], self.of(a=opened, b="int g();"))

    def test_sources_stay_in_their_batches(self):
        before = [["c", "a"], ["b"]]
        self.assertEqual([["c", "a"], ["b", "d"]], self.of(8, before, a="", b="", c="", d=""))
        clash = "#define f 1\n"
        self.assertEqual([["c"], ["b", "a"]], self.of(8, before, a=clash, b="", c=clash))

    def test_a_header_that_would_hide_a_name_from_a_source_separates_them(self):
        with tempfile.TemporaryDirectory() as folder:
            root = os.path.join(folder, "src")
            os.mkdir(root)
            for name, text in {"a.h": "namespace t::q {\nstd::string to_string(A a);\n}", "b.h": '#include "a.h"\n'}.items():
                with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                    f.write(text)
            own = '#include "a.h"\nnamespace t::q {\nstd::string to_string(A a) { return {}; }\n}'

            def count(other):
                return len(self.of(**{f"{root}/a.cpp": own, f"{root}/b.cpp": other}))

            mention = "std::string f(Shape s) { return to_string(s); }"
            self.assertEqual(2, count(f"namespace t::q {{\n{mention}\n}}"))
            self.assertEqual(1, count(f"namespace t {{\n{mention}\n}}"))
            self.assertEqual(1, count("namespace t::q {\nstd::string f(Shape s) { return t::to_string(s); }\n}"))
            self.assertEqual(1, count(f'#include "b.h"\nnamespace t::q {{\n{mention}\n}}'))

    def test_a_header_of_macros_is_not_with_headers_that_declare_their_names(self):
        macros, names = "#include <elf.h>\n", "#include <llvm/Object/ELF.h>\n"
        self.assertEqual(2, len(self.of(a=macros, b=names)))
        self.assertEqual(2, len(self.of(a=names, b=macros)))
        self.assertEqual(1, len(self.of(a=macros, b="#include <map>\n")))

    def test_headers_are_read_before_the_first_source(self):
        first = batches.Source("/a.cpp", '#include "x/a.h"\n#include <map>\n')
        second = batches.Source("/b.cpp", "#include <map>\n#ifdef A\n#include <set>\n#endif\n")
        self.assertEqual('#include "x/a.h"\n#include <map>\n#include "/a.cpp"\n#include "/b.cpp"\n',
                         batches.text_of([first, second]))


class Charts(unittest.TestCase):
    RESULT = {"machine": {"cpu": "a <b>", "flags": [], "cores": 2, "date": "2026-11-24"}, "peers": {"onnxruntime": "1"},
              "command": "bench/suite.py", "lines": [
                  {"model": "m", "shape": "1x3", "threads": 1, "ours_ms": 2.0, "ratios": {"onnxruntime": 1.25}},
                  {"model": "m", "shape": "1x3", "threads": 2, "ratios": {"onnxruntime": 0.5}}]}

    def test_a_bar_is_as_long_as_its_ratio(self):
        svg = charts.chart(self.RESULT)
        self.assertEqual([], charts.problems(self.RESULT))
        self.assertIn(f'width="{charts.WIDTH * 1.25 / 1.5:.1f}"', svg)
        self.assertIn("a &lt;b&gt;", svg)
        self.assertNotIn("0.50", svg)  # the line of two threads
        self.assertIn("0.50", charts.chart(self.RESULT, 2))

    def test_faults_of_results_are_named(self):
        faulty = json.loads(json.dumps(self.RESULT))
        faulty["lines"][1].update(threads=1, ratios={"torch": 1.0, "onnxruntime": float("nan")})
        self.assertEqual(["line 1: ('m', '1x3', 1) is duplicated", "line 1: unknown peer 'torch'",
                          "line 1: ratio nan of onnxruntime"], charts.problems(faulty))
        self.assertEqual(["'lines' is missing"], charts.problems({k: v for k, v in faulty.items() if k != "lines"}))

    def test_kept_results_are_sound_and_drawn(self):
        folder = os.path.join(ROOT, "bench", "results")
        names = [n for n in sorted(os.listdir(folder)) if n.endswith(".json")]
        self.assertNotEqual([], names)
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                result = json.load(f)
            self.assertEqual([], charts.problems(result), name)
            drawn = os.path.join(ROOT, "docs", "charts", name[:-len("json")] + "svg")
            with open(drawn, encoding="utf-8") as f:
                self.assertEqual(charts.chart(result), f.read(), f"{drawn}: run `make charts`")


class OperatorColumns(unittest.TestCase):
    def columns(self, **options):
        given = {"variants": None, "schedulers": ["auto"], "layouts": ["rule"], **options}
        return [(c.name, c.more) for c in ops.columns_of(argparse.Namespace(**given))]

    def test_every_scheduler_has_every_choice_of_layouts(self):
        self.assertEqual([("auto", ["--scheduler", "auto", "--layouts", "rule"])], self.columns())
        self.assertEqual(["tree rule", "tree none", "auto rule", "auto none"],
                         [name for name, _ in self.columns(schedulers=["tree", "auto"], layouts=["rule", "none"])])
        self.assertEqual(["--layouts", "joint", "--layout-ablation", "fp"], ops.layout_options("joint:fp"))
        self.assertEqual(["--layouts", "ppo", "--layout-levels", "2"], ops.layout_options("ppo:2"))

    def test_variants_have_names_and_any_options(self):
        self.assertEqual([("deep", ["--scheduler", "mcfuser", "--chain-ablation", "deep"]), ("plain", [])],
                         self.columns(variants=["deep=--scheduler mcfuser --chain-ablation deep", "plain="]))


class Replay(unittest.TestCase):
    ONE = "tiles 1111 llvm aaaa calls 2 stages 1 conv"
    TWO = "tiles 2222 llvm bbbb calls 1 stages 1 gemm"

    def test_a_summary_depends_on_no_order_and_no_name(self):
        one = replay.Kernels([self.ONE, self.TWO])
        two = replay.Kernels([self.TWO.replace("gemm", "product"), self.ONE])
        self.assertEqual(one.summary(), two.summary())
        self.assertTrue(one.summary().startswith("2, 3 | "))
        self.assertNotEqual(one.summary(), replay.Kernels([self.ONE]).summary())
        self.assertTrue(one.summary().endswith(" | 1111.aaaa 2222.bbbb"))
        self.assertEqual("error: no | - | -", replay.Kernels(["error: no"]).summary())

    def test_code_alone_is_compared_on_demand(self):
        one = replay.Kernels([self.ONE, self.TWO]).summary()
        tiles = replay.Kernels([self.ONE.replace("1111", "3333"), self.TWO]).summary()
        code = replay.Kernels([self.ONE.replace("aaaa", "3333"), self.TWO]).summary()
        fewer = replay.Kernels([self.ONE]).summary()
        self.assertEqual([True, False, False, False], [replay.same(s, one, False) for s in (one, tiles, code, fewer)])
        self.assertEqual([True, True, False, False], [replay.same(s, one, True) for s in (one, tiles, code, fewer)])
        error = replay.Kernels(["error: no"]).summary()
        self.assertEqual([False, False, True], [replay.same(*x, True) for x in ((one, error), (error, one), (error,) * 2)])
        self.assertFalse(replay.same(one, None, True))

    def test_changed_kernels_are_found_by_name_then_in_order(self):
        changed = self.ONE.replace("aaaa", "cccc")
        added = "tiles 4444 llvm dddd calls 1 stages 1 new"
        pairs = replay.changed_pairs([self.ONE, self.TWO], [self.TWO, changed, added])
        self.assertEqual([("aaaa", "cccc"), (None, "dddd")], [(a and a[3], b and b[3]) for a, b in pairs])

    def test_changed_kernels_are_named_without_their_texts_before(self):
        before = "1111.aaaa 2222.bbbb"
        self.assertEqual(["kernel conv: llvm is another"],
                         replay.changed_names(before, [self.TWO, self.ONE.replace("aaaa", "cccc")]))
        self.assertEqual(["kernel gemm: tile program is another"],
                         replay.changed_names(before, [self.TWO.replace("2222", "3333"), self.ONE]))
        self.assertEqual(["1 kernels fewer; the others are unchanged"], replay.changed_names(before, [self.ONE]))
        self.assertEqual(["error: no"], replay.changed_names(before, ["error: no"]))

    def test_a_difference_is_reported_with_model_kernel_and_what_to_do(self):
        key, line = ("m", "c"), self.ONE.replace("aaaa", "cccc")
        with tempfile.TemporaryDirectory() as folder, io.StringIO() as out, contextlib.redirect_stdout(out):
            run = replay.Replay("tool", pathlib.Path(folder), 1)
            expected = {key: replay.Kernels([self.ONE]).summary()}
            self.assertTrue(replay.check(run, {key: replay.Kernels([self.ONE])}, expected, {}, 9))
            self.assertFalse(replay.check(run, {key: replay.Kernels([line])}, expected, {}, 9))
            text = out.getvalue()
        for part in ("changed: m | c: ", "kernel conv: llvm is another", "make replay-update"):
            self.assertIn(part, text)

    def test_files_are_read_as_they_were_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "details"
            replay.write_details(path, {("m", "c"): replay.Kernels([self.ONE])})
            self.assertEqual([self.ONE], replay.read_details(path)["m", "c"].lines)
            replay.write_summary(path, {("m", "c"): "1, 2 | 3"})
            self.assertEqual({("m", "c"): "1, 2 | 3"}, replay.read_summary(path))


class Tutorial(unittest.TestCase):
    PAGE = ["# Page", "```console", "$ x=4", "$ echo $x \\", "  y", "4 y", "```", "```", "$ false", "```",
            "```console times", "$ echo now", "12 ms", "```", ""]

    def results(self, page):
        commands = tutorial.commands_of(page)
        return commands, tutorial.run(commands, sys.executable)

    def test_commands_are_those_of_console_blocks(self):
        commands = tutorial.commands_of(self.PAGE)
        self.assertEqual(["x=4", "echo $x \\\n  y", "echo now"], [c.text for c in commands])
        self.assertEqual([[], ["4 y"], ["12 ms"]], [c.shown for c in commands])
        self.assertEqual([True, True, False], [c.compared for c in commands])

    def test_a_page_that_shows_what_is_printed_is_true(self):
        self.assertEqual([], tutorial.differences("p", *self.results(self.PAGE)))

    def test_another_output_is_reported_with_its_line_and_can_be_updated(self):
        page = [line.replace("4 y", "5 y") for line in self.PAGE]
        commands, results = self.results(page)
        self.assertEqual(["p:4: $ echo $x \\", "  --- document", "  +++ printed", "  @@ -1 +1 @@", "  -5 y", "  +4 y"],
                         tutorial.differences("p", commands, results))
        self.assertEqual(self.PAGE, tutorial.updated(page, commands, results))

    def test_a_command_that_fails_is_reported(self):
        page = ["```console", "$ echo a | grep b | cat", "$ exit 3", "$ echo c", "```"]
        self.assertEqual(["p:2: $ echo a | grep b | cat", "  exit status 1", "p:3: $ exit 3", "  exit status 3",
                          "p: the shell ended before line 4"],
                         tutorial.differences("p", *self.results(page)))


if __name__ == "__main__":
    unittest.main()
