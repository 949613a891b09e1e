// The device's side of generated kernels in plain C++: blocks run one by one, the threads of a block as fibers that
// meet at barriers and shuffles. Every access to a tensor or to shared memory is checked: inside its bounds, written
// before it is read, and no two threads at one byte without a barrier between them, one of them writing. What is found
// first ends the run with a sentence.

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define TW_DEVICE inline
#define TW_UNROLL
#define TW_UNROLL_BY(n)
#define TW_KERNEL(name, ...) static void name
#define TW_GRID_CONSTANT

namespace tw {
namespace machine {

/// What is known of one byte. (There is one for every byte of what kernels write: it is small.)
struct Byte {
    int writing_block = 0;  ///< 1 + its number; 0: nobody wrote it; -1: it was there before
    int reading_block = 0;  ///< 1 + the last one's number
    unsigned write_epoch = 0, read_epoch = 0;
    unsigned short writer = 0, reader = 0;  ///< threads
    bool several_readers = false;           ///< in that epoch
    bool in_flight = false;                 ///< an asynchronous copy may write it at any time
    unsigned char products = 0;             ///< of four warps that may read it at any time
    unsigned char arrival = 0;              ///< 1 + the one that counted it, where the copy engine wrote it
    union {
        unsigned fences = 0;  ///< that its writer had come to when it wrote
        unsigned arrived;     ///< of the copy engine's: how often that had come when this did
    };
};

/// A tensor, or the block's shared memory.
struct Memory {
    const char* name;
    unsigned char* bytes;
    long long size;
    Byte* known;        ///< one a byte; null: read only, all of it there before
    bool of_block = false;  ///< nothing in it outlives a block
};

enum class State { Ready, AtBarrier, AtShuffle, AtGroup, AtArrival, Done };

/// A tensor as the copy engine is told of it, innermost dimension first.
struct Boxes {
    const Memory* memory;
    int rank, size;  ///< bytes of an element
    long long extents[5];
    int box[5];
    int swizzle;
};
/// A box on its way.
struct BoxCopy {
    Boxes map;
    long long begin[5];
    const Memory* to;
    long long to_byte;
    const char* what;
    int thread;
};
/// What waits for so many bytes, in eight bytes of shared memory.
struct Arrival {
    long long byte = -1;
    bool announced = false;  ///< this time
    long long missing = 0;   ///< bytes of what was announced that have not come
    unsigned times = 0;      ///< that all have come
    BoxCopy* copies = nullptr;
    int copying = 0, most_copies = 0;
};
constexpr int kMostArrivals = 64;

struct Fiber {
    State state = State::Ready;
    int line = 0;  ///< of the barrier or shuffle it is at
    jmp_buf here;
    ucontext_t start;
    int parity = 0;
    unsigned long long sent[2] = {0, 0};
    const void* shown = nullptr;  ///< what the warp may look at while it is at a shuffle
    struct AsyncCopy {
        const Memory *from, *to;  ///< from: null where zeros are written
        long long from_byte, to_byte, element;
        int size, group;
        const char* what;
    };
    AsyncCopy copies[256];
    int copying = 0, groups = 0;  ///< copies under way; groups begun
    // Products of four warps: sums that they have not handed out yet, the last of each, and the group it is of.
    struct Sum {
        float* at;
        float value;
        int group;
    };
    Sum sums[1024];
    int summing = 0, next_sum = 0, product_groups = 0;
    bool may_multiply = false;  ///< begin_products came behind all that was done with registers
    unsigned fences = 0;
    struct Read {  ///< of shared memory, by the group whose first thread this is
        long long byte;
        int group;
    };
    Read* reads = nullptr;
    int reading = 0, most_reads = 0;
    float* matrices = nullptr;  ///< of the product that is being computed: 64 x 16, then 16 x 256
    unsigned seen[kMostArrivals] = {0};  ///< times of each arrival that this thread has waited for
    int arrival = 0;                     ///< the one it is at
    unsigned parity_wanted = 0;
};

/// A block that came to a counter (last_to_arrive).
struct Arrived {
    long long counter = 0;  ///< 1 + its number; 0: it did not
    unsigned epoch = 0;     ///< in which it did: what it wrote before is seen by the last one there
};

/// The one block that is running.
struct Block {
    Arrived* arrived = nullptr;  ///< of every block
    long long joined = 0;        ///< 1 + the number of the counter where this block was the last
    bool counts = false;         ///< the kernel has counters
    int number = 0, threads = 0, current = 0;
    unsigned epoch = 1;  ///< counts barriers, of all blocks together
    Fiber* fibers = nullptr;
    jmp_buf scheduler;
    ucontext_t main;
    void (*kernel)(void*) = nullptr;
    void* call = nullptr;
    Memory shared{};
    Arrival arrivals[kMostArrivals];
    int arriving = 0;
    bool failed = false;
    char message[400] = {0};
};
inline Block& running() {
    static Block block;
    return block;
}

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char* format, ...) {
    Block& b = running();
    const int n = snprintf(b.message, sizeof b.message, "block %d, thread %d: ", b.number, b.current);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(b.message + n, sizeof b.message - static_cast<size_t>(n), format, arguments);
    va_end(arguments);
    b.failed = true;
    _longjmp(b.scheduler, 1);
}

inline void wait(State state, int line) {
    Block& b = running();
    Fiber& f = b.fibers[b.current];
    f.state = state;
    f.line = line;
    if (_setjmp(f.here) == 0) _longjmp(b.scheduler, 1);
}

/// A fiber runs the kernel for one block after the other.
inline void run_fiber() {
    Block& b = running();
    while (true) {
        b.kernel(b.call);
        wait(State::Done, 0);
    }
}

inline void resume(int thread) {
    Block& b = running();
    Fiber& f = b.fibers[thread];
    b.current = thread;
    if (_setjmp(b.scheduler) != 0) return;
    if (f.line < 0) {
        f.line = 0;
        setcontext(&f.start);
    }
    _longjmp(f.here, 1);
}

/// Where the threads of [first, first + count) all wait at one place of this kind they may go on.
inline bool release(int first, int count, State kind, const char* place) {
    Block& b = running();
    int waiting = 0;
    for (int t = first; t < first + count; ++t) waiting += b.fibers[t].state == kind ? 1 : 0;
    if (waiting == 0) return false;
    for (int t = first; t < first + count; ++t) {
        Fiber &f = b.fibers[t], &one = b.fibers[first];
        if (f.state == one.state && f.line == one.line) continue;
        // Threads that wait for fewer go on first.
        if (kind != State::AtShuffle && (f.state == State::AtShuffle || one.state == State::AtShuffle)) return false;
        if (kind == State::AtBarrier && (f.state == State::AtGroup || one.state == State::AtGroup)) return false;
        if (f.state == State::AtArrival || one.state == State::AtArrival) return false;
        const auto where = [](const Fiber& x) {
            return x.state == State::AtBarrier   ? "at a barrier"
                   : x.state == State::AtShuffle ? "at a shuffle"
                   : x.state == State::AtGroup   ? "at a product of four warps"
                                                 : "done";
        };
        b.failed = true;
        snprintf(b.message, sizeof b.message,
                 "block %d: not every thread comes to the same %s: thread %d is %s (line %d), thread %d is %s (line %d)",
                 b.number, place, first, where(one), one.line, t, where(f), f.line);
        return false;
    }
    if (b.fibers[first].state != kind) return false;
    for (int t = first; t < first + count; ++t) b.fibers[t].state = State::Ready;
    return true;
}

/// The bytes of a box arrive.
inline void deliver(const Arrival& arrival, int index, const BoxCopy& c) {
    Block& b = running();
    const Boxes& map = c.map;
    long long at[5] = {0, 0, 0, 0, 0}, byte = c.to_byte;
    while (true) {
        bool inside = true;
        long long element = 0;
        for (int d = map.rank; d-- > 0;) {
            const long long i = c.begin[d] + at[d];
            inside = inside && i >= 0 && i < map.extents[d];
            element = element * map.extents[d] + i;
        }
        const long long to = map.swizzle == 0 ? byte : byte ^ ((byte >> 3) & (map.swizzle - 16));
        if (inside)
            memcpy(c.to->bytes + to, map.memory->bytes + element * map.size, static_cast<size_t>(map.size));
        else
            memset(c.to->bytes + to, 0, static_cast<size_t>(map.size));
        for (int i = 0; i < map.size; ++i) {
            Byte& known = c.to->known[to + i];
            known.in_flight = false;
            known.writing_block = b.number + 1;
            known.write_epoch = b.epoch;
            known.writer = static_cast<unsigned short>(c.thread);
            known.arrival = static_cast<unsigned char>(index + 1);
            known.arrived = arrival.times + 1;
        }
        byte += map.size;
        int d = 0;
        while (d < map.rank && ++at[d] == map.box[d]) at[d++] = 0;
        if (d == map.rank) return;
    }
}

/// What was announced comes, as late as it can: when nobody can go on. Whether some thread now can.
inline bool arrive() {
    Block& b = running();
    bool released = false;
    for (int k = 0; k < b.arriving; ++k) {
        Arrival& a = b.arrivals[k];
        for (int c = 0; c < a.copying; ++c) {
            const BoxCopy& copy = a.copies[c];
            long long bytes = copy.map.size;
            for (int d = 0; d < copy.map.rank; ++d) bytes *= copy.map.box[d];
            deliver(a, k, copy);
            a.missing -= bytes;
        }
        a.copying = 0;
        if (a.announced && a.missing < 0) {
            b.failed = true;
            snprintf(b.message, sizeof b.message, "block %d: %lld bytes more have come than were announced", b.number,
                     -a.missing);
            return false;
        }
        if (a.announced && a.missing == 0) {
            a.announced = false;
            ++a.times;
        }
        for (int t = 0; t < b.threads; ++t) {
            Fiber& f = b.fibers[t];
            if (f.state != State::AtArrival || f.arrival != k || (a.times & 1) == f.parity_wanted) continue;
            f.state = State::Ready;
            released = true;
        }
    }
    return released;
}

inline void run_block(int number) {
    Block& b = running();
    b.number = number;
    b.joined = 0;
    ++b.epoch;
    memset(b.shared.bytes, 0xff, static_cast<size_t>(b.shared.size));
    for (long long i = 0; i < b.shared.size; ++i) {
        b.shared.known[i].in_flight = false;
        b.shared.known[i].products = 0;
    }
    for (int t = 0; t < b.threads; ++t) {
        Fiber& f = b.fibers[t];
        f.state = State::Ready;
        f.copying = f.groups = f.summing = f.next_sum = f.product_groups = f.reading = 0;
        f.may_multiply = false;
        memset(f.seen, 0, sizeof f.seen);
    }
    for (int k = 0; k < b.arriving; ++k) {
        free(b.arrivals[k].copies);
        b.arrivals[k] = Arrival();
    }
    b.arriving = 0;
    while (true) {
        int done = 0;
        for (int t = 0; t < b.threads; ++t) {
            if (b.fibers[t].state == State::Ready) resume(t);
            if (b.failed) return;
            done += b.fibers[t].state == State::Done ? 1 : 0;
        }
        if (done == b.threads) {
            for (int k = 0; k < b.arriving && !b.failed; ++k)
                if (b.arrivals[k].copying != 0) {
                    b.failed = true;
                    snprintf(b.message, sizeof b.message, "block %d ends before copies of boxes have come", number);
                }
            return;
        }
        bool released = false;
        for (int warp = 0; warp < b.threads && !b.failed; warp += 32)
            released = release(warp, 32, State::AtShuffle, "shuffle") || released;
        for (int first = 0; first < b.threads && !b.failed; first += 128)
            released = release(first, b.threads - first < 128 ? b.threads - first : 128, State::AtGroup,
                               "product of four warps") ||
                       released;
        if (!released && !b.failed && release(0, b.threads, State::AtBarrier, "barrier")) {
            ++b.epoch;
            released = true;
        }
        if (b.failed) return;
        if (!released) released = arrive();
        if (b.failed) return;
        for (int t = 0; t < b.threads && !released; ++t) {
            const Fiber& f = b.fibers[t];
            if (f.state != State::AtArrival) continue;
            const Arrival& a = b.arrivals[f.arrival];
            b.failed = true;
            snprintf(b.message, sizeof b.message, "block %d, thread %d: waits without end (line %d): %s", number, t, f.line,
                     a.announced ? "fewer bytes come than were announced" : "no bytes were announced");
            return;
        }
        if (!released) {
            b.failed = true;
            snprintf(b.message, sizeof b.message, "block %d: its threads wait for each other for ever", number);
            return;
        }
    }
}

inline long long common_divisor(long long a, long long b) { return b == 0 ? a : common_divisor(b, a % b); }

/// Runs the kernel; null, or what was wrong.
inline const char* run_grid(long long blocks, int threads, long long shared_bytes, void (*kernel)(void*), void* call) {
    constexpr size_t kStack = size_t{1} << 18;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    Block& b = running();
    if (threads < 1 || threads % 32 != 0 || threads > 1024) return "a block has whole warps, at most 32 of them";
    b.threads = threads;
    b.kernel = kernel;
    b.call = call;
    b.failed = false;
    const size_t room = shared_bytes > 0 ? static_cast<size_t>(shared_bytes) : 1;
    b.shared = {"shared memory", static_cast<unsigned char*>(malloc(room)), shared_bytes,
                static_cast<Byte*>(calloc(room, sizeof(Byte))), true};
    const size_t all = static_cast<size_t>(threads) * kStack;
    void* stacks = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    b.fibers = new Fiber[static_cast<size_t>(threads)];
    if (stacks == MAP_FAILED || b.shared.bytes == nullptr || b.shared.known == nullptr) return "no memory";
    for (int t = 0; t < threads; ++t) {
        Fiber& f = b.fibers[t];
        f.line = -1;
        getcontext(&f.start);
        char* stack = static_cast<char*>(stacks) + static_cast<size_t>(t) * kStack;
        mprotect(stack, page, PROT_NONE);
        f.start.uc_stack.ss_sp = stack + page;
        f.start.uc_stack.ss_size = kStack - page;
        f.start.uc_link = &b.main;
        makecontext(&f.start, run_fiber, 0);
    }
    b.arrived = static_cast<Arrived*>(calloc(static_cast<size_t>(blocks) + 1, sizeof(Arrived)));
    if (b.arrived == nullptr) return "no memory";
    // Blocks that wait for no other run in any order: those that count each other not in that of their numbers.
    long long apart = b.counts ? blocks * 5 / 8 + 1 : 1;
    while (common_divisor(apart, blocks) != 1) --apart;
    for (long long k = 0; k < blocks && !b.failed; ++k) run_block(static_cast<int>(k * apart % blocks));
    free(b.arrived);
    munmap(stacks, all);
    for (int t = 0; t < threads; ++t) {
        free(b.fibers[t].reads);
        free(b.fibers[t].matrices);
    }
    delete[] b.fibers;
    free(b.shared.bytes);
    free(b.shared.known);
    return b.failed ? b.message : nullptr;
}

inline void note_read(const Memory& m, long long at, long long element, const char* what, size_t size) {
    if (m.known == nullptr) return;
    const Block& b = running();
    for (size_t i = 0; i < size; ++i) {
        Byte& byte = m.known[at + static_cast<long long>(i)];
        const int me = b.number + 1;
        if (byte.in_flight) fail("reads element %lld of %s before its asynchronous copy was waited for", element, what);
        if (byte.writing_block == 0 || (m.of_block && byte.writing_block != me))
            fail("reads element %lld of %s, which is not written", element, what);
        if (byte.writing_block > 0 && byte.writing_block != me) {
            const Arrived& there = b.arrived[byte.writing_block - 1];
            if (b.joined == 0 || there.counter != b.joined || byte.write_epoch >= there.epoch)
                fail("reads element %lld of %s, which block %d wrote", element, what, byte.writing_block - 1);
        }
        if (byte.arrival != 0 && byte.write_epoch == b.epoch) {
            if (b.fibers[b.current].seen[byte.arrival - 1] < byte.arrived)
                fail("reads element %lld of %s, whose arrival this thread has not waited for", element, what);
        } else if (byte.write_epoch == b.epoch && byte.writer != b.current) {
            fail("reads element %lld of %s, which thread %d wrote since the last barrier", element, what, byte.writer);
        }
        if (byte.read_epoch != b.epoch) {
            byte.read_epoch = b.epoch;
            byte.reader = static_cast<unsigned short>(b.current);
            byte.several_readers = false;
        } else if (byte.reader != b.current) {
            byte.several_readers = true;
        }
        byte.reading_block = me;
    }
}

inline void note_write(const Memory& m, long long at, long long element, const char* what, size_t size) {
    const Block& b = running();
    for (size_t i = 0; i < size; ++i) {
        Byte& byte = m.known[at + static_cast<long long>(i)];
        const int me = b.number + 1;
        if (byte.in_flight) fail("writes element %lld of %s, which an asynchronous copy is writing", element, what);
        if (byte.products != 0)
            fail("writes element %lld of %s, which a product that is not waited for may read", element, what);
        if (!m.of_block && byte.writing_block > 0 && byte.writing_block != me)
            fail("writes element %lld of %s, which block %d also writes", element, what, byte.writing_block - 1);
        if (!m.of_block && byte.reading_block > 0 && byte.reading_block != me)
            fail("writes element %lld of %s, which block %d reads", element, what, byte.reading_block - 1);
        if (byte.arrival != 0 && byte.write_epoch == b.epoch &&
            b.fibers[b.current].seen[byte.arrival - 1] < byte.arrived)
            fail("writes element %lld of %s, whose arrival this thread has not waited for", element, what);
        if (byte.arrival == 0 && byte.write_epoch == b.epoch && byte.writer != b.current)
            fail("writes element %lld of %s, which thread %d wrote since the last barrier", element, what, byte.writer);
        if (byte.read_epoch == b.epoch && (byte.several_readers || byte.reader != b.current))
            fail("writes element %lld of %s, which thread %d read since the last barrier", element, what, byte.reader);
        byte.write_epoch = b.epoch;
        byte.writer = static_cast<unsigned short>(b.current);
        byte.writing_block = me;
        byte.arrival = 0;
        byte.fences = b.fibers[b.current].fences;
    }
}

}  // namespace machine

/// Stands for `T*`: elements of a part of a memory, from `at` on.
template <class T>
struct Pointer {
    const machine::Memory* memory = nullptr;
    long long begin = 0, count = 0;  ///< bytes where the part begins, elements in it
    long long at = 0;
    const char* what = nullptr;

    T operator[](long long i) const { return read(at + i); }
    Pointer operator+(long long i) const { return {memory, begin, count, at + i, what}; }
    long long byte_of(long long element, const char* does) const {
        if (element < 0 || element >= count)
            machine::fail("%s element %lld of %s, which has %lld", does, element, what, count);
        return begin + element * static_cast<long long>(sizeof(T));
    }
    T read(long long element) const {
        const long long byte = byte_of(element, "reads");
        machine::note_read(*memory, byte, element, what, sizeof(T));
        T value;
        memcpy(&value, memory->bytes + byte, sizeof(T));
        return value;
    }
    void write(long long element, T value) const {
        const long long byte = byte_of(element, "writes");
        machine::note_write(*memory, byte, element, what, sizeof(T));
        memcpy(memory->bytes + byte, &value, sizeof(T));
    }
};
template <class T>
using In = Pointer<T>;
template <class T>
using Out = Pointer<T>;
template <class T>
using Shared = Pointer<T>;
template <class T>
void put(const Pointer<T>& to, long long i, T value) {
    to.write(to.at + i, value);
}

inline int thread() { return machine::running().current; }
inline int block() { return machine::running().number; }

template <class T>
Pointer<T> shared(int offset, int count, const char* what) {
    const machine::Memory& memory = machine::running().shared;
    if (offset < 0 || offset % static_cast<int>(sizeof(T)) != 0 ||
        offset + static_cast<long long>(count) * static_cast<long long>(sizeof(T)) > memory.size)
        machine::fail("%d elements from byte %d on lie outside of the %lld bytes of shared memory", count, offset,
                      memory.size);
    return {&memory, offset, count, 0, what};
}

template <class T>
Pointer<T> scratch(const Pointer<unsigned char>& all, long long from, int count, const char* what) {
    const long long bytes = static_cast<long long>(count) * static_cast<long long>(sizeof(T));
    if (from < 0 || from % static_cast<long long>(sizeof(T)) != 0 || from + bytes > all.count)
        machine::fail("%d elements from byte %lld on lie outside of the %lld bytes of scratch memory", count, from,
                      all.count);
    return {all.memory, from, count, 0, what};
}

inline void barrier(int line = __builtin_LINE()) { machine::wait(machine::State::AtBarrier, line); }

inline bool last_to_arrive(const Pointer<unsigned>& counter, long long parts, int line = __builtin_LINE()) {
    machine::Block& b = machine::running();
    machine::wait(machine::State::AtBarrier, line);
    if (thread() == 0) {
        unsigned* count = reinterpret_cast<unsigned*>(counter.memory->bytes + counter.byte_of(counter.at, "counts at"));
        machine::Arrived& mine = b.arrived[b.number];
        if (mine.counter != 0) machine::fail("comes to a counter a second time");
        mine = {counter.at + 1, b.epoch};
        if (*count >= parts) machine::fail("is one block more than the %lld of counter %lld", parts, counter.at);
        *count = *count + 1 == parts ? 0 : *count + 1;
        if (*count == 0) b.joined = counter.at + 1;
    }
    machine::wait(machine::State::AtBarrier, line);
    return b.joined != 0;
}

template <class T>
T shuffle_xor(T value, int mask, int line = __builtin_LINE()) {
    machine::Block& b = machine::running();
    machine::Fiber& mine = b.fibers[b.current];
    // Two slots: who is released first may already send again.
    mine.parity ^= 1;
    memcpy(&mine.sent[mine.parity], &value, sizeof(T));
    machine::wait(machine::State::AtShuffle, line);
    const int me = b.current;
    memcpy(&value, &b.fibers[me ^ mask].sent[b.fibers[me].parity], sizeof(T));
    return value;
}

template <int N, class T>
void load(T* to, const Pointer<T>& from) {
    if ((from.begin + from.at * static_cast<long long>(sizeof(T))) % (N * static_cast<long long>(sizeof(T))) != 0)
        machine::fail("reads %d elements at once from element %lld of %s, which is not aligned", N, from.at, from.what);
    for (int i = 0; i < N; ++i) to[i] = from[i];
}
template <int N, class T>
void store(const Pointer<T>& to, const T* from) {
    if ((to.begin + to.at * static_cast<long long>(sizeof(T))) % (N * static_cast<long long>(sizeof(T))) != 0)
        machine::fail("writes %d elements at once to element %lld of %s, which is not aligned", N, to.at, to.what);
    for (int i = 0; i < N; ++i) put(to, i, from[i]);
}

template <int N, class T>
void fill(T* to, T value) {
    for (int i = 0; i < N; ++i) to[i] = value;
}

// --- copies that run beside the program: they write at any time from copy_async to wait_async

template <int N, class T>
void copy_async_if(const Pointer<T>& to, const Pointer<T>& from, bool condition) {
    constexpr int size = N * static_cast<int>(sizeof(T));
    static_assert(size == 4 || size == 8 || size == 16, "an asynchronous copy has 4, 8 or 16 bytes");
    machine::Fiber& f = machine::running().fibers[thread()];
    const long long from_byte = condition ? from.byte_of(from.at, "copies") : 0;
    const long long to_byte = to.byte_of(to.at, "copies to");
    if (condition) from.byte_of(from.at + N - 1, "copies");
    to.byte_of(to.at + N - 1, "copies to");
    if (from_byte % size != 0 || to_byte % size != 0)
        machine::fail("copies %d elements at once to element %lld of %s, which is not aligned", N, to.at, to.what);
    if (f.copying == 256) machine::fail("has begun 256 asynchronous copies and waits for none");
    machine::note_write(*to.memory, to_byte, to.at, to.what, size);
    for (int i = 0; i < size; ++i) to.memory->known[to_byte + i].in_flight = true;
    f.copies[f.copying++] = {condition ? from.memory : nullptr, to.memory, from_byte, to_byte, to.at, size, f.groups,
                             to.what};
}
template <int N, class T>
void copy_async(const Pointer<T>& to, const Pointer<T>& from) {
    copy_async_if<N>(to, from, true);
}
inline void commit_async() { ++machine::running().fibers[thread()].groups; }
template <int open>
void wait_async() {
    machine::Fiber& f = machine::running().fibers[thread()];
    int kept = 0;
    for (int k = 0; k < f.copying; ++k) {
        const machine::Fiber::AsyncCopy& c = f.copies[k];
        if (c.group >= f.groups - open) {  // or in no group yet
            f.copies[kept++] = c;
            continue;
        }
        for (int i = 0; i < c.size; ++i) c.to->known[c.to_byte + i].in_flight = false;
        machine::note_write(*c.to, c.to_byte, c.element, c.what, static_cast<size_t>(c.size));
        if (c.from == nullptr) {
            memset(c.to->bytes + c.to_byte, 0, static_cast<size_t>(c.size));
            continue;
        }
        machine::note_read(*c.from, c.from_byte, c.element, c.what, static_cast<size_t>(c.size));
        memcpy(c.to->bytes + c.to_byte, c.from->bytes + c.from_byte, static_cast<size_t>(c.size));
    }
    f.copying = kept;
}

// --- copies of boxes: they write at any time from copy_box to the end of wait_arrival; here as late as can be

struct TensorMap {
    machine::Boxes boxes;
};

namespace machine {

inline int arrival_at(const Pointer<unsigned long long>& p) {
    const Block& b = running();
    const long long byte = p.byte_of(p.at, "waits at");
    for (int k = 0; k < b.arriving; ++k)
        if (b.arrivals[k].byte == byte) return k;
    fail("comes to element %lld of %s, which is no arrival yet", p.at, p.what);
}

inline void copy_box(const Memory* to, long long to_byte, const char* what, const TensorMap& map,
                     const Pointer<unsigned long long>& at, const long long* begin, int rank) {
    Block& b = running();
    const Boxes& m = map.boxes;
    Arrival& a = b.arrivals[arrival_at(at)];
    if (rank != m.rank) fail("copies a box of %d dimensions of a tensor of %d", rank, m.rank);
    if (to != &b.shared) fail("copies a box to %s, which is not in shared memory", what);
    long long bytes = m.size;
    for (int d = 0; d < rank; ++d) bytes *= m.box[d];
    if (to_byte % (m.swizzle == 0 ? 128 : 8 * m.swizzle) != 0)
        fail("copies a box to byte %lld, which is not aligned", to_byte);
    if (to_byte + bytes > b.shared.size) fail("copies a box of %lld bytes to byte %lld of shared memory", bytes, to_byte);
    for (long long i = 0; i < bytes; ++i) {
        Byte& byte = b.shared.known[to_byte + i];
        const bool mine = byte.writing_block == b.number + 1;
        if (mine && byte.arrival == 0 && byte.fences == b.fibers[byte.writer].fences)
            fail("copies a box over byte %lld of %s, which thread %d wrote and did not fence", to_byte + i, what, byte.writer);
        note_write(b.shared, to_byte + i, i / m.size, what, 1);
        byte.in_flight = true;
    }
    if (a.copying == a.most_copies) {
        a.most_copies = a.most_copies == 0 ? 16 : 2 * a.most_copies;
        a.copies = static_cast<BoxCopy*>(realloc(a.copies, sizeof(BoxCopy) * static_cast<size_t>(a.most_copies)));
    }
    BoxCopy& c = a.copies[a.copying++];
    c = {m, {0, 0, 0, 0, 0}, to, to_byte, what, b.current};
    for (int d = 0; d < rank; ++d) c.begin[d] = begin[d];
}

}  // namespace machine

inline void begin_arrivals(const Pointer<unsigned long long>& first, int count) {
    machine::Block& b = machine::running();
    for (int k = 0; k < count; ++k) {
        if (b.arriving == machine::kMostArrivals) machine::fail("begins too many arrivals");
        b.arrivals[b.arriving++].byte = first.byte_of(first.at + k, "begins");
        put(first, k, 0ull);
    }
}
inline void expect_bytes(const Pointer<unsigned long long>& arrival, int bytes) {
    arrival[0];  // noted as any read
    machine::Arrival& a = machine::running().arrivals[machine::arrival_at(arrival)];
    if (a.announced) machine::fail("announces bytes a second time");
    a.announced = true;
    a.missing += bytes;
}
inline void wait_arrival(const Pointer<unsigned long long>& arrival, unsigned parity, int line = __builtin_LINE()) {
    arrival[0];
    const int k = machine::arrival_at(arrival);
    machine::Fiber& f = machine::running().fibers[thread()];
    if ((machine::running().arrivals[k].times & 1) == parity) {
        f.arrival = k;
        f.parity_wanted = parity;
        machine::wait(machine::State::AtArrival, line);
    }
    f.seen[k] = machine::running().arrivals[k].times;
}
template <class T, class... At>
void copy_box(const Pointer<T>& to, const TensorMap& map, const Pointer<unsigned long long>& arrival, At... at) {
    const long long begin[] = {static_cast<long long>(at)...};
    machine::copy_box(to.memory, to.byte_of(to.at, "copies to"), to.what, map, arrival, begin,
                      static_cast<int>(sizeof...(At)));
}

}  // namespace tw
