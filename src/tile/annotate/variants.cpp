#include "tile/annotate/variants.h"

#include <algorithm>

#include "tile/register_tile.h"

namespace tilewright {

namespace {

class Variants {
  public:
    Variants(const Annotations& given, const StageSite& site, const AnnotateOptions& options)
        : given_(given), derived_(given), site_(site), options_(options) {
        annotate(derived_, site, options);
    }

    std::vector<Annotations> take() && {
        vary_accumulators();
        vary_scales();
        vary_epilogue();
        vary_stores();
        vary_prefetches();
        vary_tails();
        vary_code();
        return std::move(out_);
    }

  private:
    /// Adds the annotations unless the code would be the same, or cannot follow them.
    void add(Annotations a) {
        if (annotation_faults(a, site_).empty() && std::find(out_.begin(), out_.end(), a) == out_.end())
            out_.push_back(std::move(a));
    }
    template <class T>
    void set(std::optional<T> Annotations::*which, T value, const T& absent) {
        if ((derived_.*which).value_or(absent) == value) return;
        Annotations a = given_;
        a.*which = std::move(value);
        add(std::move(a));
    }

    void vary_accumulators() {
        for (const int64_t most : {1, 2, 4, 8}) set(&Annotations::accumulators, Accumulators{most, 0}, Accumulators{});
    }
    void vary_scales() {
        for (const HoistScale& h : {HoistScale{}, HoistScale{12, 1}, HoistScale{12, 8}})
            set(&Annotations::hoist_scale, h, HoistScale{});
    }
    void vary_epilogue() {
        EpilogueLoop loop{{}, 2, 2};
        for (size_t a = 0; a < site_.expr->spatial; ++a)
            if (!site_.vector_axis(a) && site_.register_tile(a) >= loop.steps) loop.axes.push_back(a);
        set(&Annotations::epilogue_loop, EpilogueLoop{}, EpilogueLoop{});
        if (!loop.axes.empty() && !derived_.epilogue_loop)
            set(&Annotations::epilogue_loop, std::move(loop), EpilogueLoop{});
    }
    /// Of results near the size of the last-level cache or larger. A kernel that is measured alone would gain by
    /// writing any result around the caches, and the kernel that reads it would lose.
    void vary_stores() {
        const Expr bytes = site_.result.bytes;
        if (!bytes.is_constant() || bytes.constant() <= options_.cache_bytes / 4 || options_.cache_bytes == 0) return;
        for (const NonTemporal above : {kNonTemporalNever, kNonTemporalAlways})
            set(&Annotations::non_temporal, above, kNonTemporalNever);
    }
    void vary_prefetches() {
        using All = std::vector<Prefetch>;
        set(&Annotations::prefetch, All{}, All{});
        const All all = derived_.prefetch.value_or(All());
        for (const double factor : {0.5, 2.0}) {
            All scaled = all;
            for (Prefetch& p : scaled) p.bytes = static_cast<int64_t>(static_cast<double>(p.bytes) * factor) / 64 * 64;
            set(&Annotations::prefetch, scaled, All{});
        }
        if (all.size() > 1)
            for (const Prefetch& one : all) set(&Annotations::prefetch, All{one}, All{});
    }
    void vary_tails() {
        for (const Tail& tail : derived_.tails) {
            std::vector<Tail> others;
            const int64_t tile = site_.register_tile(tail.axis);
            for (const std::vector<int64_t>& sizes :
                 {std::vector<int64_t>{tile}, std::vector<int64_t>{1, tile}, tail_sizes(tile), half_tail_sizes(tile)})
                for (const bool shift : {false, true}) others.push_back({tail.axis, sizes, shift, tail.border});
            if (tail.border > 0) others.push_back({tail.axis, tail.sizes, tail.shift, 0});
            for (Tail& other : others) {
                if (other == tail) continue;
                Annotations a = given_;
                a.tails.erase(
                    std::remove_if(a.tails.begin(), a.tails.end(), [&](const Tail& t) { return t.axis == tail.axis; }),
                    a.tails.end());
                a.tails.push_back(std::move(other));
                add(std::move(a));
            }
        }
    }
    void vary_code() {
        if (site_.on_tiles())
            for (const bool streamed : {false, true}) set(&Annotations::stream_left, streamed, false);
        for (const bool late : {false, true}) set(&Annotations::resume_late, late, false);
        set(&Annotations::cut, std::vector<size_t>{}, std::vector<size_t>{});
        for (const bool unrolled : {false, true}) set(&Annotations::unroll_sum, unrolled, false);
    }

    const Annotations& given_;
    Annotations derived_;
    const StageSite& site_;
    const AnnotateOptions& options_;
    std::vector<Annotations> out_;
};

}  // namespace

std::vector<Annotations> annotation_variants(const Annotations& given, const StageSite& site,
                                             const AnnotateOptions& options) {
    return Variants(given, site, options).take();
}

}  // namespace tilewright
