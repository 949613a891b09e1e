// How the host calls emulated kernels; stands in front of one entry for each.

namespace tw {
namespace machine {

/// A tensor as the host hands it over (LockstepTensor in lockstep.cpp).
struct Argument {
    const char* name;
    void* bytes;
    long long size;
    long long element;  ///< bytes of one
    long long written;  ///< 1: by the kernel, all of it; 2: it is scratch memory; 3: counters, 0 before and behind
};

template <class T>
Pointer<T> tensor(const Memory& m) {
    return {&m, 0, m.size / static_cast<long long>(sizeof(T)), 0, m.name};
}

/// A map as the host hands it over: of tensor `of`, extents innermost first (LockstepMap in lockstep.cpp).
struct Map {
    long long of, rank, element, swizzle, extents[5], box[5];
};
inline TensorMap tensor_map(const Memory* tensors, const Map& m) {
    TensorMap out;
    out.boxes = {&tensors[m.of], static_cast<int>(m.rank), static_cast<int>(m.element), {}, {}, static_cast<int>(m.swizzle)};
    for (int d = 0; d < 5; ++d) {
        out.boxes.extents[d] = m.extents[d];
        out.boxes.box[d] = static_cast<int>(m.box[d]);
    }
    return out;
}

/// run_grid on these tensors.
inline const char* run_kernel(const Argument* arguments, int count, long long blocks, int threads,
                              long long shared_bytes, void (*kernel)(const Memory*, void*), void* call) {
    struct Call {
        Memory* tensors;
        void (*kernel)(const Memory*, void*);
        void* call;
    } all = {new Memory[static_cast<size_t>(count)], kernel, call};
    running().counts = false;
    for (int k = 0; k < count; ++k) {
        const Argument& a = arguments[k];
        all.tensors[k] = {a.name, static_cast<unsigned char*>(a.bytes), a.size, nullptr, false};
        if (a.written == 3) running().counts = true;
        if (a.written != 0) all.tensors[k].known = new Byte[static_cast<size_t>(a.size) + 1];
    }
    const char* wrong = run_grid(
        blocks, threads, shared_bytes,
        [](void* c) {
            const Call& x = *static_cast<Call*>(c);
            x.kernel(x.tensors, x.call);
        },
        &all);
    for (int k = 0; k < count; ++k) {
        const Argument& a = arguments[k];
        Block& b = running();
        for (long long i = 0; i < a.size && a.written == 1 && wrong == nullptr; ++i)
            if (all.tensors[k].known[i].writing_block == 0) {
                snprintf(b.message, sizeof b.message, "element %lld of %s is never written", i / a.element, a.name);
                wrong = b.message;
            }
        for (long long i = 0; i < a.size / 4 && a.written == 3 && wrong == nullptr; ++i)
            if (const unsigned count = static_cast<const unsigned*>(a.bytes)[i]; count != 0) {
                snprintf(b.message, sizeof b.message, "counter %lld is %u behind the kernel, not 0", i, count);
                wrong = b.message;
            }
        delete[] all.tensors[k].known;
    }
    delete[] all.tensors;
    return wrong;
}

}  // namespace machine
}  // namespace tw
