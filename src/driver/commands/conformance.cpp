#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "compile/pipeline.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/compare.h"
#include "driver/data.h"
#include "driver/files.h"
#include "graph/import.h"
#include "ops/lowering.h"
#include "runtime/thread_count.h"

namespace tilewright {

namespace {

namespace fs = std::filesystem;

struct Outcome {
    char verdict = 'F';  ///< P, F or S
    std::string reason;
};

struct Settings {
    ToleranceOptions tolerance;
    std::map<std::string, double> max_relative;  ///< of single cases, by name
    bool interpreter = false;
    int threads = 0;
    int seconds = 120;
    PipelineOptions pipeline;
};

/// Operators whose stored outputs are less exact than the tolerance of ONNX's own runner (rtol 1e-3, atol 1e-7).
struct OperatorTolerance {
    const char* op;
    double absolute;
    const char* reason;
};
constexpr OperatorTolerance kOperatorTolerances[] = {
    {"DFT", 1e-6, "the stored outputs carry a float32 FFT's noise, 2e-7 where the exact value is 0"},
    {"STFT", 1e-6, "as DFT"},
};

/// Widens the tolerance for the operators of the graph and its bodies.
void widen(Tolerance& t, const Graph& graph) {
    for (const Node& n : graph.nodes) {
        for (const OperatorTolerance& o : kOperatorTolerances)
            if (n.domain.empty() && n.op == o.op) t.absolute = std::max(t.absolute, o.absolute);
        for (const auto& [name, value] : n.attributes)
            if (const auto* body = std::get_if<std::shared_ptr<const Graph>>(&value)) widen(t, **body);
    }
}

Tolerance tolerance_of(const std::string& name, const Model& model, const Settings& s) {
    Tolerance t = s.tolerance.get();
    widen(t, model.graph);
    if (const auto it = s.max_relative.find(name); it != s.max_relative.end()) t.max_relative = it->second;
    return t;
}

std::vector<std::string> split_tabs(const std::string& line) {
    std::vector<std::string> fields(1);
    for (const char c : line) {
        if (c == '\t')
            fields.emplace_back();
        else if (c != '\r')
            fields.back() += c;
    }
    return fields;
}

/// Reads lines "case <tab> share"; if the first line is a heading, its columns "name" and "tol_rel_max".
std::map<std::string, double> read_tolerances(const std::string& path) {
    std::map<std::string, double> out;
    std::istringstream in(read_file(path));
    size_t name = 0, share = 1, number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        const std::vector<std::string> fields = split_tabs(line);
        if (number == 1) {
            const auto column = [&](const char* heading) {
                return static_cast<size_t>(std::find(fields.begin(), fields.end(), heading) - fields.begin());
            };
            if (column("name") < fields.size() && column("tol_rel_max") < fields.size()) {
                name = column("name");
                share = column("tol_rel_max");
                continue;
            }
        }
        if (line.empty()) continue;
        double value = 0;
        const std::string text = std::max(name, share) < fields.size() ? fields[share] : "";
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (text.empty() || error != std::errc() || end != text.data() + text.size() || !(value > 0))
            throw ModelError(fmt::format("{}:{}: no tolerance above 0 for a case", path, number),
                             "expected a case's name, a tab, and a share such as 1e-4; or a heading with the columns "
                             "'name' and 'tol_rel_max'");
        out[fields[name]] = value;
    }
    return out;
}

std::string name_of(const fs::path& folder) {
    return folder.filename().empty() ? folder.parent_path().filename().string() : folder.filename().string();
}

/// Runs in a child process, so that a crash only affects this case.
Outcome run_case(const fs::path& folder, const Settings& s) {
    const Model model = load_model((folder / "model.onnx").string());
    std::vector<Problem> problems;
    lower(model, {}, &problems);
    for (const Problem& p : problems)
        if (p.unsupported) return {'S', fmt::format("{} (opset {}): {}", p.op, p.opset, p.reason)};
    std::shared_ptr<Session> session;
    Program program;
    if (s.interpreter) {
        program = make_program(model, s.pipeline);
    } else {
        session = std::make_shared<Session>(compile_model(model, s.pipeline).model, s.threads);
    }
    const Tolerance tolerance = tolerance_of(name_of(folder), model, s);
    int sets = 0;
    for (int n = 0;; ++n) {
        const fs::path data = folder / fmt::format("test_data_set_{}", n);
        if (!fs::exists(data)) break;
        ++sets;
        const std::vector<Tensor> inputs = load_numbered(data.string(), "input");
        const std::vector<Tensor> expected = load_numbered(data.string(), "output");
        const std::vector<Tensor> actual = s.interpreter ? interpret(program, inputs) : session->run(inputs);
        if (actual.size() < expected.size())
            return {'F', fmt::format("{} outputs, expected {}", actual.size(), expected.size())};
        for (size_t i = 0; i < expected.size(); ++i) {
            const Comparison c = compare(actual[i], expected[i], tolerance, fmt::format("output {}", i));
            if (!c.ok) return {'F', c.reason};
        }
    }
    if (sets == 0) return {'F', "no test_data_set_0"};
    return {'P', ""};
}

std::string one_line(std::string s) {
    std::replace(s.begin(), s.end(), '\n', ' ');
    return s.substr(0, 600);
}

Outcome guarded(const fs::path& folder, const Settings& s) {
    int channel[2];
    if (::pipe(channel) != 0) throw RuntimeError("cannot make a pipe");
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child < 0) throw RuntimeError("cannot start a process");
    if (child == 0) {
        ::close(channel[0]);
        ::alarm(static_cast<unsigned>(s.seconds));
        Outcome o;
        try {
            o = run_case(folder, s);
        } catch (const std::exception& e) {
            o = {'F', e.what()};
        }
        const std::string text = o.verdict + one_line(o.reason);
        const ssize_t written = ::write(channel[1], text.data(), text.size());
        ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(channel[1]);
    std::string text;
    char buffer[1024];
    for (ssize_t n; (n = ::read(channel[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    ::close(channel[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGALRM) return {'F', fmt::format("not done after {} s", s.seconds)};
        return {'F', fmt::format("crashed (signal {})", WTERMSIG(status))};
    }
    if (text.empty()) return {'F', "ended without an answer"};
    return {text[0], text.substr(1)};
}

int command_conformance(const std::vector<std::string>& folders, const Settings& s, const std::string& json) {
    std::vector<fs::path> cases;
    for (const std::string& f : folders) {
        if (!fs::is_directory(f)) model_error("'{}' is not a folder", f);
        if (fs::exists(fs::path(f) / "model.onnx")) {
            cases.emplace_back(f);
            continue;
        }
        std::vector<fs::path> inside;
        for (const auto& entry : fs::directory_iterator(f))
            if (entry.is_directory() && fs::exists(entry.path() / "model.onnx")) inside.push_back(entry.path());
        std::sort(inside.begin(), inside.end());
        cases.insert(cases.end(), inside.begin(), inside.end());
    }
    if (cases.empty()) model_error("no test cases: expected folders with model.onnx and test_data_set_0");
    int passed = 0, failed = 0, skipped = 0;
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const fs::path& c : cases) {
        const Outcome o = guarded(c, s);
        const std::string name = name_of(c);
        const char* verdict = o.verdict == 'P' ? "PASS" : o.verdict == 'S' ? "SKIP" : "FAIL";
        (o.verdict == 'P' ? passed : o.verdict == 'S' ? skipped : failed) += 1;
        if (o.reason.empty())
            std::printf("%s %s\n", verdict, name.c_str());
        else
            std::printf("%s %s: %s\n", verdict, name.c_str(), o.reason.c_str());
        std::fflush(stdout);
        list.push_back({{"name", name}, {"result", verdict}, {"reason", o.reason}});
    }
    const nlohmann::ordered_json results{{"passed", passed}, {"failed", failed}, {"skipped", skipped}, {"cases", list}};
    write_json(json, results.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed == 0 ? 0 : 1;
}

}  // namespace

void add_conformance_command(CLI::App& app, int& status) {
    auto folders = std::make_shared<std::vector<std::string>>();
    auto s = std::make_shared<Settings>();
    auto json = std::make_shared<std::string>(), tolerances = std::make_shared<std::string>();
    auto no_fuse = std::make_shared<bool>(false);
    auto orchestrate = std::make_shared<std::string>("greedy");
    auto rewriting = std::make_shared<RewriteFlags>();
    auto passes = std::make_shared<PassFlags>();
    CLI::App* c = app.add_subcommand("conformance", "run ONNX test-case folders and compare with their stored outputs");
    c->add_option("folders", *folders, "test cases (model.onnx, test_data_set_0, ...), or folders of them")->required();
    add_tolerance_options(*c, s->tolerance);
    c->add_option(
        "--tolerances", *tolerances,
        "file of lines \"case <tab> share\": --max-relative of single cases; with a heading line, its columns "
        "'name' and 'tol_rel_max'");
    c->add_option("--threads", s->threads, "worker threads")->check(CLI::Range(1, kMaxThreads));
    c->add_option("--timeout", s->seconds, "time limit per case in seconds (120)")->check(CLI::Range(1, 1000000));
    c->add_option("--isa", s->pipeline.compile.isa, "instruction set")->check(CLI::IsMember(selectable_isas()));
    add_json_option(*c, *json);
    c->add_flag("--interpreter", s->interpreter, "run the reference interpreter instead of machine code");
    c->add_flag("--no-fuse", *no_fuse, "one kernel per primitive");
    add_orchestrate_option(*c, *orchestrate);
    add_rewrite_options(*c, *rewriting);
    add_pass_options(*c, *passes);
    std::string exceptions;
    for (const OperatorTolerance& o : kOperatorTolerances)
        exceptions += fmt::format("  {:<6} --atol {:g}: {}\n", o.op, o.absolute, o.reason);
    c->footer(
        "One line per case: PASS, FAIL or SKIP (an unsupported operator) with the reason; the last line counts them.\n"
        "Each case runs in its own process, so that a crash or hang only affects that case. Exit status 1 if any\n"
        "failed.\n\n"
        "Cases with these operators have a larger tolerance:\n" +
        exceptions +
        "\nExamples:\n"
        "  tilewright conformance cases/node --rtol 1e-3 --atol 1e-7\n"
        "  tilewright conformance models --tolerances models/index.tsv --json results.json\n"
        "  tilewright conformance cases/node --skip fuse_rows --verify-each");
    c->callback([=, &status] {
        if (!tolerances->empty()) s->max_relative = read_tolerances(*tolerances);
        s->pipeline.compile.fuse = !*no_fuse;
        s->pipeline.compile.orchestrator = *orchestrator_from_string(*orchestrate);
        rewriting->apply(s->pipeline);
        passes->apply(s->pipeline);
        s->pipeline.compile.threads = s->threads;
        status = command_conformance(*folders, *s, *json);
    });
}

}  // namespace tilewright
