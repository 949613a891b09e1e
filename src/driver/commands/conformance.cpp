#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "driver/commands.h"
#include "driver/compare.h"
#include "driver/data.h"
#include "driver/pipeline.h"
#include "graph/import.h"

namespace tilewright {

namespace {

namespace fs = std::filesystem;

struct Outcome {
    char verdict = 'F';  ///< P, F or S
    std::string reason;
};

struct Settings {
    Tolerance tolerance;
    bool interpreter = false;
    int threads = 0;
    int seconds = 120;
    PipelineOptions pipeline;
};

/// Runs in a child process: whatever happens to it is this case's outcome alone.
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
            const Comparison c = compare(actual[i], expected[i], s.tolerance, fmt::format("output {}", i));
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
        if (!fs::is_directory(f)) model_error("'{}' is no folder", f);
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
        const std::string name = c.filename().empty() ? c.parent_path().filename().string() : c.filename().string();
        const char* verdict = o.verdict == 'P' ? "PASS" : o.verdict == 'S' ? "SKIP" : "FAIL";
        (o.verdict == 'P' ? passed : o.verdict == 'S' ? skipped : failed) += 1;
        if (o.reason.empty())
            std::printf("%s %s\n", verdict, name.c_str());
        else
            std::printf("%s %s: %s\n", verdict, name.c_str(), o.reason.c_str());
        list.push_back({{"name", name}, {"result", verdict}, {"reason", o.reason}});
    }
    if (!json.empty()) {
        std::ofstream out(json);
        out << nlohmann::ordered_json{{"passed", passed}, {"failed", failed}, {"skipped", skipped}, {"cases", list}}
                   .dump(2)
            << "\n";
        if (!out) throw RuntimeError("cannot write '" + json + "'");
    }
    std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed == 0 ? 0 : 1;
}

}  // namespace

void add_conformance_command(CLI::App& app, int& status) {
    auto folders = std::make_shared<std::vector<std::string>>();
    auto s = std::make_shared<Settings>();
    auto json = std::make_shared<std::string>();
    auto no_fuse = std::make_shared<bool>(false);
    CLI::App* c = app.add_subcommand("conformance",
                                     "run ONNX test-case folders\n  tilewright conformance cases/node --rtol 1e-3");
    c->add_option("folders", *folders, "test cases, or folders of them")->required();
    c->add_option("--rtol", s->tolerance.relative, "relative tolerance (1e-3)");
    c->add_option("--atol", s->tolerance.absolute, "absolute tolerance (1e-7)");
    c->add_option("--max-relative", s->tolerance.max_relative,
                  "instead: largest difference as a share of the largest expected magnitude");
    c->add_option("--threads", s->threads, "worker threads");
    c->add_option("--timeout", s->seconds, "seconds a case may take (120)");
    c->add_option("--isa", s->pipeline.compile.isa, "avx2 or avx512");
    c->add_option("--json", *json, "write the results to this file");
    c->add_flag("--interpreter", s->interpreter, "run the reference interpreter instead of machine code");
    c->add_flag("--no-fuse", *no_fuse, "one kernel a primitive");
    c->callback([=, &status] {
        s->pipeline.compile.fuse = !*no_fuse;
        s->pipeline.compile.threads = s->threads;
        status = command_conformance(*folders, *s, *json);
    });
}

}  // namespace tilewright
