#pragma once
// A concurrent, lock-free, append-only set of immutable values.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace tilewright {

/// A hash trie. Each slot is empty, holds an entry, or leads to a branch of slots for the next bits of the hash. Slots
/// change by compare-and-swap, from empty to an entry and from an entry to a branch that holds this entry. Entries do
/// not move and live as long as the set.
template <class T>
class InternSet {
  public:
    InternSet() = default;
    InternSet(const InternSet&) = delete;
    InternSet& operator=(const InternSet&) = delete;
    ~InternSet() {
        for (Slot& slot : root_) free(slot);
    }

    /// The value for which `equal` holds; if there is none, the result of `make` is inserted. `hash` is the hash of
    /// that value. If several threads insert equal values at once, all of them get the first one. An exception of
    /// `make` is propagated, and nothing is inserted.
    template <class Equal, class Make>
    const T* find_or_insert(size_t hash, const Equal& equal, const Make& make) {
        Slot* slot = &root_[hash & (kRoot - 1)];
        unsigned shift = kRootBits;
        std::unique_ptr<Entry> fresh;
        const auto made = [&] {
            if (!fresh) fresh = std::make_unique<Entry>(hash, make());
            return fresh.get();
        };
        for (;;) {
            uintptr_t at = slot->load(std::memory_order_acquire);
            if (is_branch(at)) {
                slot = &branch(at)->slots[(hash >> shift) & (kFan - 1)];
                shift += kFanBits;
            } else if (at == 0) {
                Entry* const mine = made();
                if (slot->compare_exchange_strong(at, reinterpret_cast<uintptr_t>(mine), std::memory_order_acq_rel))
                    return &fresh.release()->value;
            } else if (Entry* const there = entry(at); there->hash == hash) {
                return in_list(*there, equal, made, fresh);
            } else {
                auto deeper = std::make_unique<Branch>();
                deeper->slots[(there->hash >> shift) & (kFan - 1)].store(at, std::memory_order_relaxed);
                if (slot->compare_exchange_strong(at, reinterpret_cast<uintptr_t>(deeper.get()) | kBranch,
                                                  std::memory_order_acq_rel))
                    deeper.release();
            }
        }
    }

    /// Null where there is no such value.
    template <class Equal>
    const T* find(size_t hash, const Equal& equal) const {
        uintptr_t at = root_[hash & (kRoot - 1)].load(std::memory_order_acquire);
        for (unsigned shift = kRootBits; is_branch(at); shift += kFanBits)
            at = branch(at)->slots[(hash >> shift) & (kFan - 1)].load(std::memory_order_acquire);
        const Entry* e = entry(at);
        if (e == nullptr || e->hash != hash) return nullptr;
        for (; e != nullptr; e = e->same_hash.load(std::memory_order_acquire))
            if (equal(e->value)) return &e->value;
        return nullptr;
    }

    size_t size() const {
        size_t all = 0;
        for (const Slot& slot : root_) all += size(slot);
        return all;
    }

  private:
    using Slot = std::atomic<uintptr_t>;
    static constexpr unsigned kRootBits = 12, kFanBits = 4;  // 64 = 12 + 13 * 4: different hashes always separate
    static constexpr size_t kRoot = size_t{1} << kRootBits, kFan = size_t{1} << kFanBits;
    static constexpr uintptr_t kBranch = 1;

    struct Entry {
        Entry(size_t h, T v) : hash(h), value(std::move(v)) {}
        const size_t hash;
        const T value;
        std::atomic<Entry*> same_hash{nullptr};  ///< the next value with the same hash
    };
    struct Branch {
        std::array<Slot, kFan> slots{};
    };

    static bool is_branch(uintptr_t at) { return (at & kBranch) != 0; }
    static Branch* branch(uintptr_t at) { return reinterpret_cast<Branch*>(at & ~kBranch); }
    static Entry* entry(uintptr_t at) { return reinterpret_cast<Entry*>(at); }

    template <class Equal, class Made>
    static const T* in_list(Entry& first, const Equal& equal, const Made& made, std::unique_ptr<Entry>& fresh) {
        for (Entry* e = &first;;) {
            if (equal(e->value)) return &e->value;
            Entry* next = e->same_hash.load(std::memory_order_acquire);
            if (next == nullptr && e->same_hash.compare_exchange_strong(next, made(), std::memory_order_acq_rel))
                return &fresh.release()->value;
            e = next;
        }
    }

    static size_t size(const Slot& slot) {
        const uintptr_t at = slot.load(std::memory_order_acquire);
        size_t all = 0;
        if (is_branch(at)) {
            for (const Slot& s : branch(at)->slots) all += size(s);
            return all;
        }
        for (const Entry* e = entry(at); e != nullptr; e = e->same_hash.load(std::memory_order_acquire)) ++all;
        return all;
    }

    static void free(Slot& slot) {
        const uintptr_t at = slot.load(std::memory_order_relaxed);
        if (is_branch(at)) {
            for (Slot& s : branch(at)->slots) free(s);
            delete branch(at);
            return;
        }
        for (Entry* e = entry(at); e != nullptr;) delete std::exchange(e, e->same_hash.load(std::memory_order_relaxed));
    }

    std::array<Slot, kRoot> root_{};
};

}  // namespace tilewright
