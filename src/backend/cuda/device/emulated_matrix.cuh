// Matrix instructions in plain C++, behind emulated.cuh: of a warp, and of four, with their fragments and layouts in
// shared memory as PTX has them. Threads meet at each, as at a shuffle.

namespace tw {

// --- numbers of 16 bits, maxima, places in swizzled rows

template <class To, class From>
To bitcast(From value) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &value, sizeof(To));
    return to;
}

inline float f16_value(unsigned short bits) {
    const unsigned sign = static_cast<unsigned>(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u;
    const unsigned mantissa = bits & 1023u;
    if (exponent == 31) return bitcast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0) return bitcast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}
inline unsigned short to_f16(float value) {
    const unsigned bits = bitcast<unsigned>(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;  // as the device's conversion
    if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);
    if (magnitude < 0x38800000u)
        return static_cast<unsigned short>(sign | static_cast<unsigned>(nearbyintf(bitcast<float>(magnitude) * 0x1p24f)));
    const unsigned rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<unsigned short>(sign | ((rounded - 0x38000000u) >> 13));
}

inline unsigned short to_bf16(float value) {
    const unsigned bits = bitcast<unsigned>(value);  // a NaN: as the device's conversion
    return static_cast<unsigned short>(value != value ? 0x7fff : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float maximum(float a, float b) { return a > b || a != a ? a : b; }
inline float minimum(float a, float b) { return a < b || a != a ? a : b; }

template <int row, int size>
int swizzled(int element) {
    const int byte = element * size;
    return (byte ^ ((byte >> 3) & (row - 16))) / size;
}

inline int lane() { return thread() % 32; }
inline int warp_of_group() { return thread() % 128 / 32; }

inline bool any_of_warp(bool condition, int line = __builtin_LINE()) {
    int any = condition ? 1 : 0;
    for (int mask = 16; mask >= 1; mask /= 2) any |= shuffle_xor(any, mask, line);
    return any != 0;
}

inline float exp_near(float x) { return exp2f(x * 1.4426950408889634f); }
inline float exp_near(float x, float scale, float y) {
    const float unit = scale > 0.69f && fabsf(y) > 2.3e38f ? 1.0f : 1.4426950408889634f;
    return exp2f(fmaf(x, scale * unit, -(y * unit)));
}
inline float exp_near(float x, float y) { return exp_near(x, 1.0f, y); }
inline float reciprocal(float x) { return 1 / x; }
inline float reciprocal_from_one(float x) {
    if (x != 0 && (x < 0.99f || x >= 8.5070592e37f)) machine::fail("takes the reciprocal of %g as of a softmax's sum", x);
    return 1 / x;
}
template <class T>
Pointer<T> kept(Pointer<T> address) {
    return address;
}
inline int counted_block() { return block(); }
inline bool elected() { return thread() == 0; }
template <int threads>
void assume_threads() {
    if (thread() >= threads) machine::fail("is thread %d of %d", thread(), threads);
}
inline int warpgroup() { return thread() / 128; }

// --- matrix instructions of a warp, fragments as PTX lays them out

namespace machine {

/// c += a b for the warp: 16 x 8 results, each the sum of 8 words' products. Each thread shows its words to the others:
/// of a those of rows l / 4 and l / 4 + 8, of b of column l / 4; along the sum words l % 4 and l % 4 + 4.
template <class Product>
void multiply(float* const (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Product product, int line) {
    Block& block = running();
    Fiber& mine = block.fibers[block.current];
    struct Shown {
        const unsigned *a, *b;
    } shown = {a, b};
    mine.shown = &shown;
    wait(State::AtShuffle, line);
    const int me = block.current, warp = me / 32 * 32;
    const auto of = [&](int lane) { return *static_cast<const Shown*>(block.fibers[warp + lane].shown); };
    float sum[4];
    for (int i = 0; i < 4; ++i) {
        const int row = me % 32 / 4, column = me % 4 * 2 + i % 2;
        double total = *c[i];
        for (int k = 0; k < 8; ++k)
            total += product(of(row * 4 + k % 4).a[k / 4 * 2 + i / 2], of(column * 4 + k % 4).b[k / 4]);
        sum[i] = static_cast<float>(total);
    }
    wait(State::AtShuffle, line);  // everybody has looked
    for (int i = 0; i < 4; ++i) *c[i] = sum[i];
}

inline double tf32_product(unsigned a, unsigned b) {
    return static_cast<double>(bitcast<float>(a)) * static_cast<double>(bitcast<float>(b));
}
inline double f16_product(unsigned a, unsigned b) {
    const auto half = [](unsigned word, int k) {
        return static_cast<double>(f16_value(static_cast<unsigned short>(word >> (16 * k))));
    };
    return half(a, 0) * half(b, 0) + half(a, 1) * half(b, 1);
}
inline double bf16_product(unsigned a, unsigned b) {
    return tf32_product(a << 16, b << 16) + tf32_product(a & 0xffff0000u, b & 0xffff0000u);
}

/// Row `row` and the one behind it of column `column` of the matrix that eight threads from `first` on point at, or,
/// not turned, columns of that row.
template <class T>
unsigned pair_of(int first, bool turned) {
    const int me = running().current, lane = me % 32;
    unsigned word = 0;
    for (int k = 0; k < 2; ++k) {
        const int row = turned ? lane % 4 * 2 + k : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + k;
        const auto& from = *static_cast<const Pointer<T>*>(running().fibers[me / 32 * 32 + first + row].shown);
        if ((from.begin + from.at * 2) % 16 != 0)
            fail("reads a row of 8 halves from element %lld of %s, which is not aligned", from.at, from.what);
        word |= static_cast<unsigned>(from[column]) << (16 * k);
    }
    return word;
}
template <class T>
void load_matrices(unsigned* const* words, int count, const Pointer<T>& row, bool turned, int line) {
    static_assert(sizeof(T) == 2, "matrices of halves");
    running().fibers[running().current].shown = &row;
    wait(State::AtShuffle, line);
    for (int i = 0; i < count; ++i) *words[i] = pair_of<T>(8 * i, turned);
    wait(State::AtShuffle, line);  // everybody has looked
}

}  // namespace machine

/// To 10 bits of mantissa, halves away from zero.
inline unsigned tf32(float x) {
    const unsigned bits = bitcast<unsigned>(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}
inline unsigned f16_pair(float first, float second) {
    return to_f16(first) | static_cast<unsigned>(to_f16(second)) << 16;
}
inline unsigned bf16_pair(float first, float second) {
    const auto rounded = [](float x) {
        const unsigned bits = bitcast<unsigned>(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;  // as the device's conversion
        return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    };
    return rounded(first) | rounded(second) << 16;
}
#define TW_MULTIPLY(name, product)                                                                                  \
    inline void name(float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, \
                     unsigned b0, unsigned b1, int line = __builtin_LINE()) {                                       \
        float* const c[4] = {&c0, &c1, &c2, &c3};                                                                   \
        const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};                                                    \
        machine::multiply(c, a, b, machine::product, line);                                                         \
    }
TW_MULTIPLY(multiply_tf32, tf32_product)
TW_MULTIPLY(multiply_f16, f16_product)
TW_MULTIPLY(multiply_bf16, bf16_product)
#undef TW_MULTIPLY
#define TW_LOAD_MATRICES(name, turned)                                                                            \
    template <class T>                                                                                            \
    void name(unsigned& a, unsigned& b, unsigned& c, unsigned& d, const Pointer<T>& row, int line = __builtin_LINE()) { \
        unsigned* const words[4] = {&a, &b, &c, &d};                                                              \
        machine::load_matrices(words, 4, row, turned, line);                                                      \
    }                                                                                                             \
    template <class T>                                                                                            \
    void name(unsigned& a, unsigned& b, const Pointer<T>& row, int line = __builtin_LINE()) {                     \
        unsigned* const words[2] = {&a, &b};                                                                      \
        machine::load_matrices(words, 2, row, turned, line);                                                      \
    }                                                                                                             \
    template <class T>                                                                                            \
    void name(unsigned& a, const Pointer<T>& row, int line = __builtin_LINE()) {                                  \
        unsigned* const words[1] = {&a};                                                                          \
        machine::load_matrices(words, 1, row, turned, line);                                                      \
    }
TW_LOAD_MATRICES(load_matrices, false)
TW_LOAD_MATRICES(load_matrices_turned, true)
#undef TW_LOAD_MATRICES

// --- matrix instructions of four warps: they read shared memory, and write their sums, at any time from the call to
// wait_products; here they read at the call, and hand out sums, which are NaN until then, at the wait

template <class T>
struct Cores {
    Pointer<T> first;
    int along, across, row;
    bool turned;
};
template <int along, int across, int row = 0, class T>
Cores<T> cores(const Pointer<T>& first, int element, bool turned = false) {
    static_assert(along % 16 == 0 && across % 16 == 0 && along < (1 << 18) && across < (1 << 18), "a descriptor's");
    // The addresses of both parts are divided by 16 one by one.
    if (element * static_cast<int>(sizeof(T)) % 16 != 0)
        machine::fail("multiplies from element %d behind %lld of %s on, which is not aligned", element, first.at, first.what);
    return {first + element, along, across, row, turned};
}

inline void fence_async() { ++machine::running().fibers[thread()].fences; }
inline void settle(float&) {}
inline void begin_products(int line = __builtin_LINE()) {
    machine::wait(machine::State::AtGroup, line);
    machine::running().fibers[thread()].may_multiply = true;
}
inline void end_products() { ++machine::running().fibers[thread()].product_groups; }

template <int open>
void wait_products() {
    machine::Block& b = machine::running();
    machine::Fiber& f = b.fibers[thread()];
    int kept = 0;
    for (int k = 0; k < f.summing; ++k)
        if (f.sums[k].group >= f.product_groups - open)  // or in no group yet
            f.sums[kept++] = f.sums[k];
        else
            *f.sums[k].at = f.sums[k].value;
    f.summing = kept;
    f.next_sum = 0;
    kept = 0;
    for (int k = 0; k < f.reading; ++k)
        if (f.reads[k].group >= f.product_groups - open)
            f.reads[kept++] = f.reads[k];
        else {
            machine::Byte& byte = b.shared.known[f.reads[k].byte];
            --byte.products;
            byte.read_epoch = b.epoch;  // who writes now has not met those that waited
            byte.several_readers = true;
        }
    f.reading = kept;
    if (kept == 0) f.may_multiply = false;
}

namespace machine {

inline void note_product(const Memory& m, long long at, long long element, const char* what, size_t size) {
    Block& b = running();
    Fiber& f = b.fibers[b.current];
    if (&m != &b.shared) fail("multiplies %s, which is not in shared memory", what);
    for (size_t i = 0; i < size; ++i) {
        Byte& byte = m.known[at + static_cast<long long>(i)];
        if (byte.in_flight)
            fail("multiplies element %lld of %s before its asynchronous copy was waited for", element, what);
        if (byte.writing_block != b.number + 1) fail("multiplies element %lld of %s, which is not written", element, what);
        if (byte.arrival != 0 && byte.write_epoch == b.epoch && f.seen[byte.arrival - 1] < byte.arrived)
            fail("multiplies element %lld of %s, whose arrival this thread has not waited for", element, what);
        if (byte.arrival == 0 && byte.write_epoch == b.epoch)
            fail("multiplies element %lld of %s, which thread %d wrote since the last barrier", element, what, byte.writer);
        if (byte.arrival == 0 && byte.fences == b.fibers[byte.writer].fences)
            fail("multiplies element %lld of %s, which thread %d wrote and did not fence", element, what, byte.writer);
        if (byte.products == 255) fail("multiplies element %lld of %s for the 256th time without a wait", element, what);
        ++byte.products;
        if (f.reading == f.most_reads) {
            f.most_reads = f.most_reads == 0 ? 4096 : 2 * f.most_reads;
            f.reads = static_cast<Fiber::Read*>(realloc(f.reads, sizeof(Fiber::Read) * static_cast<size_t>(f.most_reads)));
        }
        f.reads[f.reading++] = {at + static_cast<long long>(i), f.product_groups};
    }
}

inline float product_number(float x, bool) { return bitcast<float>(bitcast<unsigned>(x) & ~0x1fffu); }  // truncated
inline float product_number(unsigned short x, bool is_bf16) {
    return is_bf16 ? bitcast<float>(static_cast<unsigned>(x) << 16) : f16_value(x);
}

/// Point (p, k), p across the sum, of a matrix of blocks.
template <class T>
float point(const Cores<T>& c, int p, int k, bool turned, bool is_bf16) {
    constexpr int size = sizeof(T), row = 16 / size;
    // A block has 8 points across and a row's length along the sum; turned, a row's length across and 8 along.
    const Pointer<T>& f = c.first;
    const long long first = f.begin + f.at * size;
    if (first % 16 != 0) fail("multiplies from element %lld of %s on, which is not aligned", f.at, f.what);
    if (c.row != 0 && c.turned != turned) fail("multiplies %s, whose rows are told to go otherwise than they do", f.what);
    long long bytes;
    if (c.row == 0) {
        const int blocks_across = turned ? p / row : p / 8, blocks_along = turned ? k / 8 : k / row;
        const int which_row = turned ? k % 8 : p % 8, inside = turned ? p % row : k % row;
        bytes = blocks_across * c.across + blocks_along * c.along + which_row * 16 + inside * size;
    } else {
        // Rows are swizzled by their place in shared memory.
        if (first % (8 * c.row) >= c.row) fail("multiplies from a row of %s on that is not the first of eight", f.what);
        const int wide = c.row / size;
        bytes = turned ? p / wide * c.across + p % wide * size + k / 8 * c.along + k % 8 * c.row
                       : p / 8 * c.across + p % 8 * c.row + k * size;
        const long long to = first + bytes;
        bytes = (to ^ ((to >> 3) & (c.row - 16))) - first;
    }
    const long long element = f.at + bytes / size, byte = f.byte_of(element, "multiplies");
    note_product(*f.memory, byte, element, f.what, size);
    T value;
    memcpy(&value, f.memory->bytes + byte, size);
    return product_number(value, is_bf16);
}

/// Adds a sum of 64 x n: of thread t those of row 16 (t / 32) + t % 32 / 4, and 8 below. `left`: puts a number of the
/// left matrix, by row and place along the sum, into the room that is given.
template <int n, class Left, class T>
void multiply_group(float* low, float* high, const Left& left, const Cores<T>& b, bool b_turned, bool is_bf16, int line) {
    constexpr int sum = 32 / sizeof(T);
    Block& block = running();
    const int me = block.current, first = me / 128 * 128;
    Fiber& mine = block.fibers[me];
    if (!mine.may_multiply) fail("multiplies without begin_products in front");
    mine.shown = &b;
    wait(State::AtGroup, line);
    Fiber& leader = block.fibers[first];
    if (me == first) {
        for (int t = first; t < first + 128; ++t) {
            const auto& theirs = *static_cast<const Cores<T>*>(block.fibers[t].shown);
            if (theirs.first.begin != b.first.begin || theirs.first.at != b.first.at)
                fail("multiplies another matrix than thread %d", t);
        }
        if (leader.matrices == nullptr)
            leader.matrices = static_cast<float*>(malloc(sizeof(float) * (64 * 16 + 16 * 256)));
        for (int column = 0; column < n; ++column)
            for (int k = 0; k < sum; ++k)
                leader.matrices[64 * 16 + column * 16 + k] = point(b, column, k, b_turned, is_bf16);
    }
    left(leader.matrices);
    wait(State::AtGroup, line);  // the matrices are there
    for (int i = 0; i < n / 2; ++i) {
        const int row = me % 128 / 32 * 16 + me % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + me % 4 * 2 + i % 2;
        float* const at = (i / 2 % 2 == 0 ? low : high) + i / 4 * 2 + i % 2;
        // Sums come in the order of the last time.
        int k = mine.next_sum;
        if (k >= mine.summing || mine.sums[k].at != at)
            for (k = 0; k < mine.summing && mine.sums[k].at != at; ++k) {
            }
        if (k == mine.summing) {
            if (mine.summing == 1024) fail("adds up more than 1024 sums without a wait");
            mine.sums[mine.summing++] = {at, *at, 0};
        }
        mine.next_sum = k + 1;
        double total = mine.sums[k].value;
        for (int s = 0; s < sum; ++s)
            total += static_cast<double>(leader.matrices[row * 16 + s]) *
                     static_cast<double>(leader.matrices[64 * 16 + column * 16 + s]);
        mine.sums[k].value = static_cast<float>(total);
        mine.sums[k].group = mine.product_groups;
        *at = bitcast<float>(0x7fc00000u);
    }
    wait(State::AtGroup, line);  // everybody has looked
}

/// The left matrix from shared memory: what the first thread of the group shows is read by that thread.
template <class T>
struct FromShared {
    const Cores<T>& a;
    bool turned, is_bf16;
    void operator()(float* matrix) const {
        if (running().current % 128 != 0) return;
        for (int row = 0; row < 64; ++row)
            for (int k = 0; k < 32 / static_cast<int>(sizeof(T)); ++k)
                matrix[row * 16 + k] = point(a, row, k, turned, is_bf16);
    }
};
/// From the threads' words: of rows l / 4 and l / 4 + 8 of the warp's, number l % 4 along the sum, then 4 further.
struct FromLongWords {
    const unsigned (&words)[4];
    void operator()(float* matrix) const {
        const int t = running().current % 128;
        for (int w = 0; w < 4; ++w)
            matrix[(t / 32 * 16 + t % 32 / 4 + w % 2 * 8) * 16 + w / 2 * 4 + t % 4] =
                product_number(bitcast<float>(words[w]), false);
    }
};
/// The same of halves: pairs 2 (l % 4) along the sum, then 8 further.
struct FromWords {
    const unsigned (&words)[4];
    bool is_bf16;
    void operator()(float* matrix) const {
        const int t = running().current % 128;
        for (int w = 0; w < 4; ++w)
            for (int half = 0; half < 2; ++half)
                matrix[(t / 32 * 16 + t % 32 / 4 + w % 2 * 8) * 16 + w / 2 * 8 + t % 4 * 2 + half] =
                    product_number(static_cast<unsigned short>(words[w] >> (16 * half)), is_bf16);
    }
};

}  // namespace machine

#define TW_GROUP_HALVES(name, n, is_bf16)                                                                              \
    template <int a_turned, int b_turned>                                                                              \
    void name##_##n(float* low, float* high, const Cores<unsigned short>& a, const Cores<unsigned short>& b,           \
                    int line = __builtin_LINE()) {                                                                     \
        machine::multiply_group<n>(low, high, machine::FromShared<unsigned short>{a, a_turned != 0, is_bf16}, b,       \
                                   b_turned != 0, is_bf16, line);                                                      \
    }                                                                                                                  \
    template <int b_turned>                                                                                            \
    void name##_##n(float* low, float* high, unsigned a0, unsigned a1, unsigned a2, unsigned a3,                       \
                    const Cores<unsigned short>& b, int line = __builtin_LINE()) {                                     \
        const unsigned words[4] = {a0, a1, a2, a3};                                                                    \
        machine::multiply_group<n>(low, high, machine::FromWords{words, is_bf16}, b, b_turned != 0, is_bf16, line);    \
    }
#define TW_GROUP(n)                                                                                                    \
    TW_GROUP_HALVES(multiply_group_f16, n, false)                                                                      \
    TW_GROUP_HALVES(multiply_group_bf16, n, true)                                                                      \
    template <int a_turned, int b_turned>                                                                              \
    void multiply_group_tf32_##n(float* low, float* high, const Cores<float>& a, const Cores<float>& b,                \
                                 int line = __builtin_LINE()) {                                                        \
        static_assert(a_turned == 0 && b_turned == 0, "rows of tf32 lie along the sum");                               \
        machine::multiply_group<n>(low, high, machine::FromShared<float>{a, false, false}, b, false, false, line);     \
    }                                                                                                                  \
    template <int b_turned>                                                                                            \
    void multiply_group_tf32_##n(float* low, float* high, unsigned a0, unsigned a1, unsigned a2, unsigned a3,          \
                                 const Cores<float>& b, int line = __builtin_LINE()) {                                 \
        static_assert(b_turned == 0, "rows of tf32 lie along the sum");                                                \
        const unsigned words[4] = {a0, a1, a2, a3};                                                                    \
        machine::multiply_group<n>(low, high, machine::FromLongWords{words}, b, false, false, line);                   \
    }
TW_GROUP(8)
TW_GROUP(16)
TW_GROUP(32)
TW_GROUP(64)
TW_GROUP(128)
TW_GROUP(256)
#undef TW_GROUP_HALVES
#undef TW_GROUP

}  // namespace tw
