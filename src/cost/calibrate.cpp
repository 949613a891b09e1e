// Measures a machine: clock, multiply-add peak, cache and memory latencies and bandwidths, thread dispatch.

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cost/probe.h"
#include "cost/sampling.h"
#include "cost/target.h"
#include "runtime/thread_pool.h"

namespace tilewright {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kHugePage = 2 * kMiB;

/// What a length of calibration implies.
struct Effort {
    double budget;               ///< multiplies the seconds of every sample
    double reading_seconds;      ///< long against the clock, short against the scheduler's time slices
    double reading_seconds_all;  ///< the same on all threads, where a disturbance is likelier
    int64_t most_memory;         ///< bytes
    int64_t most_ring;           ///< bytes that the chase through memory covers: to write the ring takes most of it
    bool every_capacity;         ///< latency and bandwidth curves of all levels; else bandwidth at the last level's end
};
constexpr Effort effort_of(CalibrationLength length) {
    if (length == CalibrationLength::quick) return {0.1, 2e-4, 2e-4, 256 * kMiB, 64 * kMiB, false};
    return {1, 1e-3, 3e-4, 1024 * kMiB, 4096 * kMiB, true};
}

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/// Zero pages, huge ones where the system has them: a pointer chase should measure caches, not address translation.
class Pages {
  public:
    explicit Pages(int64_t bytes) : bytes_(round_up(bytes, kHugePage)) {
        const auto mapped = static_cast<size_t>(bytes_ + kHugePage);
        mapping_ = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapping_ == MAP_FAILED) {
            throw RuntimeError(fmt::format("no {} MiB of memory for measuring this machine", bytes_ / kMiB));
        }
        const auto address = reinterpret_cast<uintptr_t>(mapping_);
        data_ = static_cast<char*>(mapping_) +
                (round_up(static_cast<int64_t>(address), kHugePage) - static_cast<int64_t>(address));
        madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);  // a hint
    }
    ~Pages() { munmap(mapping_, static_cast<size_t>(bytes_ + kHugePage)); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    char* data() const { return data_; }
    int64_t bytes() const { return bytes_; }

  private:
    int64_t bytes_;
    void* mapping_ = nullptr;
    char* data_ = nullptr;
};

/// Free memory as the machine and this process's control group see it.
int64_t free_memory() {
    int64_t bytes = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    if (const auto limit = read_text_file("/sys/fs/cgroup/memory.max")) {
        int64_t value = 0;
        const auto result = std::from_chars(limit->data(), limit->data() + limit->size(), value);
        if (result.ec == std::errc()) bytes = std::min(bytes, value);
    }
    return bytes;
}

/// Memory that no cache holds: four times what all last-level caches hold together, within reason.
int64_t memory_bytes(const Target& target, int64_t limit) {
    const CacheLevel& last = target.caches.back();
    const int64_t instances = (target.threads + last.shared_by - 1) / last.shared_by;
    const int64_t most = std::min(limit, free_memory() / 4);
    return round_up(std::max(std::min(4 * last.bytes * instances, most), 32 * kMiB), kHugePage);
}

/// A working set well outside the level before `i` and as far inside level `i` as that allows: where a cache is shared
/// with others, little of it may be ours.
int64_t probe_bytes(const std::vector<CacheLevel>& caches, size_t i) {
    const int64_t inside = caches[i].bytes / 2;
    return (i == 0 ? inside : std::min(3 * caches[i - 1].bytes, inside)) / 512 * 512;
}

/// Sizes for curves: powers of two and the ones half way between.
std::vector<int64_t> curve_sizes(int64_t largest) {
    std::vector<int64_t> sizes;
    for (int64_t bytes = 4096; bytes <= largest; bytes *= 2) {
        sizes.push_back(bytes);
        if (bytes + bytes / 2 <= largest) sizes.push_back(bytes + bytes / 2);
    }
    return sizes;
}

class Calibration {
  public:
    Calibration(CalibrationLength length, const CalibrationProgress& progress)
        : progress_(progress),
          effort_(effort_of(length)),
          target_(host_target()),
          pool_(target_.threads, Pinning::on),
          kernels_(probe_kernels(target_.isa)),
          pages_(memory_bytes(target_, effort_.most_memory)) {
        target_.quick = length == CalibrationLength::quick;
        // Each worker touches the part it will read later, so that the part lies in the worker's own memory.
        on_all([&](int worker) { std::memset(part(worker), 1, static_cast<size_t>(part_bytes())); });
    }

    Target run() {
        using Step = std::pair<const char*, void (Calibration::*)()>;
        const Step steps[] = {
            {"clock", &Calibration::clock},
            {"multiply-add on 1 thread", &Calibration::multiply_add_1},
            {"multiply-add on all threads", &Calibration::multiply_add_all},
            {"tile registers", &Calibration::tiles},
            {"dot products", &Calibration::dots},
            {"multiply-add in f16", &Calibration::f16_sums},
            {"cache bandwidth", &Calibration::cache_bandwidth},
            {"memory bandwidth on 1 thread", &Calibration::memory_1},
            {"memory bandwidth on all threads", &Calibration::memory_all},
            {"dispatch to threads", &Calibration::dispatch},
            {"latencies", &Calibration::latencies},
            {"cache sizes", &Calibration::capacities},
        };
        double done = 0;
        for (const auto& [name, step] : steps) {
            if (progress_) progress_(name, done / static_cast<double>(std::size(steps)));
            (this->*step)();
            done += 1;
        }
        if (progress_) progress_("done", 1);
        // Whatever disturbed the readings: all threads together do no less than one alone.
        for (const auto& [one, all] : {std::pair{&Target::fma_gflops_1, &Target::fma_gflops_all},
                                       std::pair{&Target::tile_gflops_1, &Target::tile_gflops_all},
                                       std::pair{&Target::dot_gflops_1, &Target::dot_gflops_all},
                                       std::pair{&Target::f16_gflops_1, &Target::f16_gflops_all},
                                       std::pair{&Target::memory_gbps_1, &Target::memory_gbps_all},
                                       std::pair{&Target::copy_gbps_1, &Target::copy_gbps_all}}) {
            (target_.*all).value = std::max((target_.*all).value, (target_.*one).value);
        }
        target_.calibrated = true;
        return std::move(target_);
    }

  private:
    /// Runs body(worker) once on every thread at a time.
    template <class Body>
    void on_all(const Body& body) {
        parallel_for(pool_, pool_.size(), [&](int64_t begin, int64_t, int) { body(static_cast<int>(begin)); });
    }

    /// The time until the last thread is done.
    template <class Body>
    Reading time_all(const Body& body) {
        std::atomic<bool> disturbed{false};
        Reading reading = time_once([&] {
            on_all([&](int worker) {
                if (time_once([&] { body(worker); }).disturbed) disturbed = true;
            });
        });
        reading.disturbed = reading.disturbed || disturbed;
        return reading;
    }

    Measure sampled(double budget, const std::function<Reading()>& take,
                    const std::function<double(double)>& figure) const {
        return sample(effort_.budget * budget, take, figure);
    }

    int64_t part_bytes() const { return pages_.bytes() / pool_.size() / 4096 * 4096; }
    char* part(int worker) const { return pages_.data() + worker * part_bytes(); }

    void clock() {
        const int64_t rounds = rounds_for(effort_.reading_seconds, probe_cycles);
        target_.ghz = sampled(
            0.1, [&] { return time_once([&] { probe_cycles(rounds); }); },
            [&](double s) { return static_cast<double>(rounds * kCyclesARound) / s / 1e9; });
    }

    void multiply_add_1() {
        const double warming = 0.05 * effort_.budget;
        time_once([&] { kernels_.multiply_add(rounds_for(warming, kernels_.multiply_add)); });  // clocks settle
        const int64_t rounds = rounds_for(effort_.reading_seconds, kernels_.multiply_add);
        target_.fma_gflops_1 = sampled(
            0.3, [&] { return time_once([&] { kernels_.multiply_add(rounds); }); },
            [&](double s) { return gflops(rounds, s); });
    }
    void multiply_add_all() {
        const int64_t rounds = rounds_for(effort_.reading_seconds_all, kernels_.multiply_add);
        on_all([&](int) { kernels_.multiply_add(50 * rounds); });
        target_.fma_gflops_all = sampled(
            0.5, [&] { return time_all([&](int) { kernels_.multiply_add(rounds); }); },
            [&](double s) { return gflops(rounds, s) * pool_.size(); });
    }
    double gflops(int64_t rounds, double seconds) const {
        return static_cast<double>(rounds * kernels_.flops_a_round) / seconds / 1e9;
    }

    void tiles() {
        if (target_.bf16_tiles()) unit(probe_tiles, kTileFlopsARound, &Target::tile_gflops_1, &Target::tile_gflops_all);
    }
    void dots() {
        if (target_.bf16_dot_instructions())
            unit(probe_dots, kDotFlopsARound, &Target::dot_gflops_1, &Target::dot_gflops_all);
    }
    void f16_sums() {
        if (target_.may_use("avx512fp16"))
            unit(probe_f16, kF16FlopsARound, &Target::f16_gflops_1, &Target::f16_gflops_all);
    }
    void unit(void (*probe)(int64_t rounds), int64_t flops, Measure Target::*one, Measure Target::*all) {
        // A core runs instructions of a unit that was idle at a quarter of their rate until its voltage has risen.
        constexpr double kWaking = 0.002;
        on_all([&](int) { probe(rounds_for(kWaking, probe)); });
        const int64_t rounds = rounds_for(effort_.reading_seconds_all, probe);
        const auto rate = [&](double s) { return static_cast<double>(rounds * flops) / s / 1e9; };
        target_.*one = sampled(
            0.1, [&] { return time_once([&] { probe(rounds); }); }, rate);
        target_.*all = sampled(
            0.2, [&] { return time_all([&](int) { probe(rounds); }); },
            [&](double s) { return rate(s) * pool_.size(); });
    }

    void cache_bandwidth() {
        for (size_t i = 0; i < target_.caches.size(); ++i) {
            target_.caches[i].load_gbps = load(probe_bytes(target_.caches, i), 0.2);
        }
    }
    /// Bandwidth of loading so many bytes again and again, GB/s.
    Measure load(int64_t bytes, double budget) {
        const auto body = [&](int64_t passes) { kernels_.load(pages_.data(), bytes, passes); };
        const int64_t passes = rounds_for(effort_.reading_seconds, body);
        return sampled(
            budget, [&] { return time_once([&] { body(passes); }); },
            [&](double s) { return static_cast<double>(bytes * passes) / s / 1e9; });
    }

    // Memory is read window by window, around and around: by the time a window comes again no cache holds it.
    void memory_1() {
        const int64_t window = std::min(8 * kMiB, pages_.bytes() / 4);
        Windows loads(pages_.bytes(), window);
        const auto gbps = [](int64_t bytes) {
            return [bytes](double s) { return static_cast<double>(bytes) / s / 1e9; };
        };
        target_.memory_gbps_1 = sampled(
            0.4, [&] { return time_once([&] { kernels_.load(pages_.data() + loads.next(), window, 1); }); },
            gbps(window));

        const int64_t half = pages_.bytes() / 2;
        Windows copies(half, std::min(window, half / 4));
        target_.copy_gbps_1 = sampled(
            0.4, [&] { return time_once([&] { copy(pages_.data(), half, copies); }); }, gbps(2 * copies.size()));
    }
    void memory_all() {
        const int threads = pool_.size();
        const int64_t window = std::min(8 * kMiB, part_bytes() / 4) / 512 * 512;
        const auto gbps = [threads](int64_t bytes) {
            return [=](double s) { return static_cast<double>(threads * bytes) / s / 1e9; };
        };
        Windows loads(part_bytes(), window);
        target_.memory_gbps_all = sampled(
            0.5,
            [&] {
                const int64_t at = loads.next();
                return time_all([&](int w) { kernels_.load(part(w) + at, window, 1); });
            },
            gbps(window));

        const int64_t half = part_bytes() / 2;
        const Windows each(half, std::min(window, half / 4));
        std::vector<Windows> copies(static_cast<size_t>(threads), each);
        target_.copy_gbps_all = sampled(
            0.5, [&] { return time_all([&](int w) { copy(part(w), half, copies[static_cast<size_t>(w)]); }); },
            gbps(2 * each.size()));
    }

    /// Offsets of the windows of a buffer, in turn.
    class Windows {
      public:
        Windows(int64_t bytes, int64_t size) : count_(std::max<int64_t>(1, bytes / size)), size_(size) {}
        int64_t size() const { return size_; }
        int64_t next() {
            turn_ = (turn_ + 1) % count_;
            return turn_ * size_;
        }

      private:
        int64_t count_, size_, turn_ = 0;
    };

    /// Copies the next window of the first `half` bytes to the second half.
    static void copy(char* data, int64_t half, Windows& windows) {
        const int64_t at = windows.next();
        std::memcpy(data + half + at, data + at, static_cast<size_t>(windows.size()));
    }

    void dispatch() {
        const int64_t times = rounds_for(effort_.reading_seconds, [&](int64_t n) { dispatch_empty(n); });
        target_.dispatch_us = sampled(
            0.2, [&] { return time_once([&] { dispatch_empty(times); }); },
            [&](double s) { return s / static_cast<double>(times) * 1e6; });
    }
    void dispatch_empty(int64_t times) {
        for (int64_t i = 0; i < times; ++i)
            pool_.parallel(
                pool_.size(), [](void*, int64_t, int64_t, int) {}, nullptr);
    }

    void latencies() {
        for (size_t i = 0; i < target_.caches.size(); ++i) {
            target_.caches[i].latency_ns = chase(probe_bytes(target_.caches, i), 0.1);
        }
        target_.memory_latency_ns = chase(std::min(curve_sizes(largest_curve()).back(), effort_.most_ring), 0.2);
    }

    // Two ways to see a cache end: latency steps up, bandwidth steps down. The larger counts. A chase finds every size
    // where a cache is private; but it is slow, and in a cache shared with busy neighbours its lines are gone before it
    // comes around again, while a kernel that streams through a tile keeps it. Bandwidth hardly differs between levels
    // 1 step apart on some machines, and says nothing then.
    void capacities() {
        const size_t levels = target_.caches.size();
        // Below this size every working set is inside the levels before the last one.
        const int64_t smallest = effort_.every_capacity || levels < 2 ? 0 : 2 * target_.caches[levels - 2].bytes;
        std::vector<WorkingSet> chases, loads;
        for (int64_t bytes : curve_sizes(largest_curve())) {
            if (bytes < smallest) continue;
            if (effort_.every_capacity) chases.push_back({bytes, chase(bytes, 0.03).value});
            loads.push_back({bytes, ns_a_line(load(bytes, 0.03).value)});
        }
        std::vector<double> latency, line_time;
        for (const CacheLevel& cache : target_.caches) {
            latency.push_back(cache.latency_ns.value);
            line_time.push_back(ns_a_line(cache.load_gbps.value));
        }
        latency.push_back(target_.memory_latency_ns.value);
        line_time.push_back(ns_a_line(target_.memory_gbps_1.value));
        const std::vector<int64_t> by_latency = measured_capacities(chases, latency);
        const std::vector<int64_t> by_bandwidth = measured_capacities(loads, line_time);
        for (size_t i = effort_.every_capacity ? 0 : levels - 1; i < levels; ++i) {
            target_.caches[i].measured_bytes = std::max(by_latency[i], by_bandwidth[i]);
        }
    }
    int64_t largest_curve() const { return std::min(pages_.bytes(), 4 * target_.caches.back().bytes); }
    double ns_a_line(double gbps) const { return target_.caches.front().line_bytes / gbps; }

    /// Time of a dependent load in a working set of so many bytes.
    Measure chase(int64_t bytes, double budget) {
        const int line = target_.caches.front().line_bytes;
        const void* node = make_ring(pages_.data(), bytes, line, 1);
        // A few times around, so that the caches hold what they will: fast, then in the order to be timed. In the
        // largest rings a part will do.
        const int64_t around = round_up(bytes / line, 8);
        kernels_.load(pages_.data(), bytes / 512 * 512, 8);
        double warming = 0;
        for (int64_t done = 0; done < 4 * around && warming < 0.05; done += std::min<int64_t>(around, 1 << 14)) {
            warming += time_once([&] { node = probe_chase(node, std::min<int64_t>(around, 1 << 14)); }).seconds;
        }
        const int64_t steps =
            8 * rounds_for(effort_.reading_seconds, [&](int64_t n) { node = probe_chase(node, 8 * n); });
        const auto take = [&] {
            // Another process may have evicted the data meanwhile; streaming loads it again in the shortest time.
            kernels_.load(pages_.data(), bytes / 512 * 512, 2);
            return time_once([&] { node = probe_chase(node, steps); });
        };
        return sampled(budget, take, [&](double s) { return s / static_cast<double>(steps) * 1e9; });
    }

    const CalibrationProgress& progress_;
    const Effort effort_;
    Target target_;
    ThreadPool pool_;
    ProbeKernels kernels_;
    Pages pages_;
};

}  // namespace

Target calibrate(CalibrationLength length, const CalibrationProgress& progress) {
    return Calibration(length, progress).run();
}

}  // namespace tilewright
