#include "bench/peers/peer.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "driver/files.h"

namespace tilewright::peers {

namespace {

using Json = nlohmann::ordered_json;

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// As in `tilewright op`: for `seconds`, at least three times; short runs are timed several at once.
Json measure(const std::function<void()>& run, double seconds) {
    const auto time_of = [&](int runs) {
        const double start = now_ms();
        for (int i = 0; i < runs; ++i) run();
        return (now_ms() - start) / runs;
    };
    time_of(1);
    const int together = std::clamp(static_cast<int>(0.05 / std::max(time_of(1), 1e-6)), 1, 1000);
    std::vector<double> times;
    for (double spent = 0; times.size() < 3 || spent < seconds * 1e3;) {
        times.push_back(time_of(together));
        spent += times.back() * together;
    }
    std::sort(times.begin(), times.end());
    const size_t n = times.size();
    const double median = (times[(n - 1) / 2] + times[n / 2]) / 2;
    return {{"measured_ms", median}, {"spread", (times[n - 1 - n / 4] - times[n / 4]) / median}, {"runs", n}};
}

Json result_of(const OpSpec& op, const Prepare& prepare, double seconds) {
    Json j;
    j["op"] = op.print();
    try {
        const std::function<void()> run = prepare(op);
        if (run)
            j.update(measure(run, seconds));
        else
            j["unsupported"] = true;
    } catch (const std::exception& e) {
        j["error"] = e.what();
    }
    return j;
}

}  // namespace

int run_peer(int argc, char** argv, const char* description, const std::function<void(int)>& set_threads,
             const Prepare& prepare) {
    CLI::App app{description};
    std::vector<std::string> ops, batches;
    int threads = 1;
    double seconds = 0.5;
    app.add_option("op", ops, "NAME key=value ..., in the syntax of `tilewright op`");
    app.add_option("--batch", batches, "a file of operators, one per line")->allow_extra_args(false);
    app.add_option("--threads", threads, "worker threads (1)")->check(CLI::Range(1, 1024));
    app.add_option("--time", seconds, "seconds to measure each operator for (0.5)")->check(CLI::Range(0.0, 3600.0));
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        app.exit(e);
        return 2;
    }
    try {
        set_threads(threads);
        std::vector<OpSpec> all;
        all.reserve(ops.size());
        for (const std::string& text : ops) all.push_back(parse_op(text));
        for (const std::string& path : batches)
            for (const BatchLine& line : parse_batch(read_file(path), path)) all.push_back(line.op);
        for (const OpSpec& op : all) {
            fmt::print("{}\n", result_of(op, prepare, seconds).dump());
            std::fflush(stdout);
        }
    } catch (const std::exception& e) {
        fmt::print(stderr, "error: {}\n", e.what());
        return 1;
    }
    return 0;
}

void fill(std::span<float> numbers, uint32_t seed) {
    std::minstd_rand rng(seed + 1);
    for (float& x : numbers) x = static_cast<float>(rng()) * (2.0F / 2147483647.0F) - 1;
}

std::vector<float> numbers(int64_t count, uint32_t seed) {
    std::vector<float> out(static_cast<size_t>(count));
    fill(out, seed);
    return out;
}

}  // namespace tilewright::peers
