#pragma once
// A fake GPU: a driver and a compiler for tests, without either.
//
// It is stricter than a GPU. The work of a stream happens when the stream is waited for and not before, so that a read
// of a result that comes too early, or a change of memory that is still to be copied, is seen. Addresses of its memory
// are none of the host's, and every access is checked against what is allocated. Nothing may be allocated while a
// stream is captured by the same thread.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/fake_cudnn_test.h"
#include "base/shared_library.h"

namespace tilewright::cuda::test {

class FakeGpu {
  public:
    using Address = unsigned long long;

    // --- what it is
    int devices = 1;
    int major = 8;
    uint64_t memory_bytes = 1 << 20;
    int shared_bytes = 163 << 10;  ///< of a block
    int driver_version = 13000;
    int failure = 0;  ///< what waiting answers
    /// A launch of the kernel in that image (what the compiler made of the text): `arguments` of 8 bytes each. Throws
    /// where something is wrong with it; waiting then fails.
    std::function<void(const std::string& image, const std::vector<uint64_t>& arguments, int64_t blocks)> run;
    std::function<size_t(const std::string& image)> argument_count;

    // --- what has happened
    uint64_t used = 0, most_used = 0;
    int allocations = 0, pinned = 0, launches = 0, graphs = 0, graph_launches = 0, compilations = 0;
    uint64_t brought = 0;  ///< bytes that streams have copied to it
    struct Map {
        Address address = 0;
        std::vector<uint64_t> extents;
        std::vector<unsigned> box;
        int swizzle = 0;
    };
    std::vector<Map> maps;               ///< of tensors, made for TMA
    bool has_maps = true;                ///< its driver supports them
    int library_products = 0;            ///< that cuBLASLt has computed
    bool products_propagate_nan = true;  ///< its relu of a NaN is one
    int product_choices = 0;             ///< times that its heuristic was used
    uint64_t product_rows = 0;           ///< of the last product: columns, as it counts
    uint64_t wrong_rows = 0;             ///< of products whose results are others
    uint64_t most_rows_known = ~uint64_t{0}, most_rows_run = ~uint64_t{0};  ///< others have no algorithm, or fail
    FakeCudnn cudnn;
    int streams = 0, modules = 0, contexts = 0;  ///< that are there
    std::string wrong;                           ///< the first thing that must not be

    FakeGpu() { now_ = this; }
    ~FakeGpu() {
        if (now_ == this) now_ = nullptr;
    }
    FakeGpu(const FakeGpu&) = delete;
    FakeGpu& operator=(const FakeGpu&) = delete;

    SharedLibrary driver() const {
        return {"CUDA driver", [](const std::string& name) { return function(name); }};
    }
    /// cuBLASLt, as its manual has it: matrices by columns.
    SharedLibrary products() const {
        return {"cuBLASLt", [](const std::string& name) { return function(name); }};
    }
    /// cuDNN, of convolutions and attentions.
    SharedLibrary graphs_library() const {
        return {"cuDNN", [](const std::string& name) { return function(name); }};
    }
    SharedLibrary compiler() const {
        return {"NVRTC", [](const std::string& name) { return function(name); }};
    }

    /// Where the bytes of its memory really lie. Throws where they are not all of one allocation.
    void* at(Address a, size_t bytes) {
        const auto it = blocks_.upper_bound(a);
        if (it != blocks_.begin()) {
            const auto& [begin, block] = *std::prev(it);
            if (a + bytes <= begin + block.size) return block.bytes.get() + (a - begin);
        }
        throw std::runtime_error(fmt::format("{} bytes at {:x} are not of this GPU's memory", bytes, a));
    }

  private:
    struct Free {
        void operator()(unsigned char* p) const { std::free(p); }
    };
    struct Block {
        std::unique_ptr<unsigned char[], Free> bytes;
        size_t size = 0;
    };
    static constexpr size_t kAligned = 256;  // every allocation of a driver
    /// False: an address of its memory at which no allocation could begin.
    bool aligned(Address a, size_t to = kAligned) const {
        const auto it = blocks_.upper_bound(a);
        return it == blocks_.begin() || a >= std::prev(it)->first + std::prev(it)->second.size || a % to == 0;
    }
    size_t matrices_aligned = kAligned;  ///< by the last preference
    using Work = std::function<void(FakeGpu&)>;
    struct Stream {
        std::vector<Work> work, captured;
        bool capturing = false;
    };
    struct Function {
        std::string image;
    };
    static constexpr Address kFar = Address{1} << 62;  // no address of a process is there
    enum : int { kFine = 0, kNoMemory = 2, kFailed = 700, kNotWhileCapturing = 900 };

    template <class F>
    static int locked(const F& f) {
        const std::lock_guard lock(mutex_);
        return f(*now_);
    }
    int complain(const std::string& what) {
        if (wrong.empty()) wrong = what;
        return kFailed;
    }
    Stream& stream_of(void* s) { return s == nullptr ? default_ : *static_cast<Stream*>(s); }
    void ask(void* stream, Work work) {
        Stream& s = stream_of(stream);
        (s.capturing ? s.captured : s.work).push_back(std::move(work));
    }
    int finish(Stream& s) {
        std::vector<Work> work;
        work.swap(s.work);
        for (const Work& w : work) try {
                w(*this);
            } catch (const std::exception& e) {
                return complain(e.what());
            }
        return failure;
    }

    // NOLINTBEGIN(readability-identifier-naming)
    static void* function(const std::string& name) {
        static const std::map<std::string, void*> all = table();
        if (name == "cuTensorMapEncodeTiled" && !now_->has_maps) return nullptr;
        const auto it = all.find(name);
        return it == all.end() ? nullptr : it->second;
    }
    template <class R, class... A>
    static void* entry(R (*f)(A...)) {
        return reinterpret_cast<void*>(f);
    }
    static std::map<std::string, void*> table() {
        std::map<std::string, void*> t;
        const auto add = [&](const char* name, auto f) { t[name] = entry(+f); };
        add("cuInit", [](unsigned) { return 0; });
        add("cuDriverGetVersion", [](int* n) { return locked([&](auto& g) { return *n = g.driver_version, kFine; }); });
        add("cuDeviceGetCount", [](int* n) { return locked([&](auto& g) { return *n = g.devices, kFine; }); });
        add("cuDeviceGet", [](int* d, int i) { return *d = i, 0; });
        add("cuDeviceGetName",
            [](char* s, int n, int) { return std::strncpy(s, "FakeDriver", static_cast<size_t>(n)), 0; });
        add("cuDeviceTotalMem_v2",
            [](size_t* n, int) { return locked([&](auto& g) { return *n = g.memory_bytes, kFine; }); });
        add("cuDeviceGetAttribute", [](int* v, int a, int) {
            // Limits as of an A100 where they matter, any positive number else.
            static const std::map<int, int> known = {{1, 1024}, {10, 32},     {16, 108},   {39, 2048},
                                                     {76, 0},   {81, 167936}, {82, 65536}, {106, 32}};
            return locked([&](auto& g) {
                const auto it = known.find(a);
                *v = a == 75 ? g.major : a == 97 ? g.shared_bytes : it == known.end() ? a : it->second;
                return kFine;
            });
        });
        add("cuDevicePrimaryCtxRetain",
            [](void** c, int) { return locked([&](auto& g) { return *c = &g, ++g.contexts, kFine; }); });
        add("cuDevicePrimaryCtxRelease_v2", [](int) { return locked([](auto& g) { return --g.contexts, kFine; }); });
        add("cuCtxSetCurrent", [](void*) { return 0; });
        add("cuCtxSynchronize", [] { return locked([](auto& g) { return g.finish(g.default_); }); });
        add("cuModuleLoadData", [](void** m, const void* image) {
            return locked([&](auto& g) {
                if (*static_cast<const char*>(image) == '\0') return 200;
                *m = new Function{static_cast<const char*>(image)};
                return ++g.modules, static_cast<int>(kFine);
            });
        });
        add("cuModuleUnload", [](void* m) {
            return locked([&](auto& g) { return delete static_cast<Function*>(m), --g.modules, kFine; });
        });
        add("cuModuleGetFunction", [](void** f, void* m, const char* name) {
            const auto* function = static_cast<Function*>(m);
            if (function->image.find("TW_KERNEL(" + std::string(name)) == std::string::npos) return 500;
            return *f = m, 0;
        });
        add("cuFuncSetAttribute", [](void*, int, int) { return 0; });
        add("cuLaunchKernel", [](void* f, unsigned x, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 void* stream, void** a, void**) {
            return locked([&](auto& g) {
                const std::string image = static_cast<Function*>(f)->image;
                std::vector<uint64_t> arguments;
                for (size_t k = 0; k < g.argument_count(image); ++k)
                    arguments.push_back(*static_cast<const uint64_t*>(a[k]));
                for (const uint64_t value : arguments)
                    if (!g.aligned(value)) return g.complain("an argument that is not aligned as allocations are");
                g.ask(stream, [image, arguments, x](FakeGpu& gpu) {
                    ++gpu.launches;
                    gpu.run(image, arguments, x);
                });
                return static_cast<int>(kFine);
            });
        });
        add("cuTensorMapEncodeTiled", [](void* map, int type, unsigned rank, void* address, const uint64_t* extents,
                                         const uint64_t* strides, const unsigned* box, const unsigned* steps,
                                         int interleave, int swizzle, int, int fill) {
            return locked([&](auto& g) {
                // What cuda.h demands.
                const auto at = reinterpret_cast<Address>(address);
                const unsigned size = type == 6 || type == 9 ? 2 : 4;
                bool right = strides != nullptr && rank >= 1 && rank <= 5 && at % 16 == 0 && interleave == 0 &&
                             fill == 0 && swizzle >= 1 && swizzle <= 3 && box[0] * size <= 16u << swizzle &&
                             box[0] * size % 16 == 0 && reinterpret_cast<uintptr_t>(map) % 64 == 0;
                for (unsigned d = 0; d < rank; ++d) {
                    right = right && box[d] >= 1 && box[d] <= 256 && steps[d] == 1 && extents[d] >= 1;
                    right = right && (d == 0 || (strides[d - 1] % 16 == 0 && strides[d - 1] >= extents[d - 1] * size));
                }
                if (!right) return g.complain("a map of a tensor that cannot be"), 1;
                g.maps.push_back({at, {extents, extents + rank}, {box, box + rank}, 16 << swizzle});
                std::memcpy(map, &at, sizeof at);  // the rest is not read
                return static_cast<int>(kFine);
            });
        });
        add("cuMemAlloc_v2", [](Address* m, size_t n) { return locked([&](auto& g) { return g.allocate(m, n); }); });
        add("cuMemFree_v2", [](Address m) { return locked([&](auto& g) { return g.release(m); }); });
        add("cuMemGetInfo_v2", [](size_t* left, size_t* all) {
            return locked([&](auto& g) { return *left = g.memory_bytes - g.used, *all = g.memory_bytes, kFine; });
        });
        add("cuMemAllocHost_v2",
            [](void** m, size_t n) { return locked([&](auto& g) { return *m = std::malloc(n), ++g.pinned, kFine; }); });
        add("cuMemFreeHost", [](void* m) { return locked([&](auto& g) { return std::free(m), --g.pinned, kFine; }); });
        add("cuMemcpyHtoD_v2", [](Address to, const void* from, size_t n) {
            // What is not pinned has been read when this returns, and may still be on its way.
            const std::vector<unsigned char> read(static_cast<const unsigned char*>(from),
                                                  static_cast<const unsigned char*>(from) + n);
            return locked([&](auto& g) {
                g.ask(nullptr, [=](FakeGpu& gpu) { std::memcpy(gpu.at(to, n), read.data(), n); });
                return kFine;
            });
        });
        add("cuMemcpyDtoH_v2", [](void* to, Address from, size_t n) {
            return locked([&](auto& g) {
                g.finish(g.default_);
                return g.copy([&] { std::memcpy(to, g.at(from, n), n); });
            });
        });
        add("cuMemcpyHtoDAsync_v2", [](Address to, const void* from, size_t n, void* stream) {
            return locked([&](auto& g) {
                g.ask(stream, [=](FakeGpu& gpu) {
                    std::memcpy(gpu.at(to, n), from, n);
                    gpu.brought += n;
                });
                return kFine;
            });
        });
        add("cuMemcpyDtoHAsync_v2", [](void* to, Address from, size_t n, void* stream) {
            return locked([&](auto& g) {
                g.ask(stream, [=](FakeGpu& gpu) { std::memcpy(to, gpu.at(from, n), n); });
                return kFine;
            });
        });
        add("cuStreamCreate",
            [](void** s, unsigned) { return locked([&](auto& g) { return *s = new Stream, ++g.streams, kFine; }); });
        add("cuStreamDestroy_v2", [](void* s) {
            return locked([&](auto& g) {
                if (!static_cast<Stream*>(s)->work.empty()) g.complain("a stream is destroyed that has work");
                return delete static_cast<Stream*>(s), --g.streams, kFine;
            });
        });
        add("cuStreamSynchronize", [](void* s) {
            return locked([&](auto& g) {
                if (g.stream_of(s).capturing) return static_cast<int>(kNotWhileCapturing);
                return g.finish(g.stream_of(s));
            });
        });
        add("cuStreamBeginCapture_v2", [](void* s, int) {
            return locked([&](auto& g) { return static_cast<Stream*>(s)->capturing = true, ++g.capturing_, kFine; });
        });
        add("cuStreamEndCapture", [](void* s, void** graph) {
            return locked([&](auto& g) {
                auto* stream = static_cast<Stream*>(s);
                *graph = new std::vector<Work>(std::move(stream->captured));
                stream->captured.clear();
                stream->capturing = false;
                return --g.capturing_, kFine;
            });
        });
        add("cuGraphInstantiateWithFlags", [](void** e, void* graph, unsigned long long) {
            return locked([&](auto& g) {
                *e = new std::vector<Work>(*static_cast<std::vector<Work>*>(graph));
                return ++g.graphs, kFine;
            });
        });
        add("cuGraphDestroy", [](void* graph) { return delete static_cast<std::vector<Work>*>(graph), 0; });
        add("cuGraphExecDestroy", [](void* e) {
            return locked([&](auto& g) { return delete static_cast<std::vector<Work>*>(e), --g.graphs, kFine; });
        });
        add("cuGraphLaunch", [](void* e, void* stream) {
            return locked([&](auto& g) {
                for (const Work& w : *static_cast<std::vector<Work>*>(e)) g.ask(stream, w);
                return ++g.graph_launches, kFine;
            });
        });
        add("cuGetErrorString", [](int e, const char** s) {
            *s = e == kFailed              ? "an illegal memory access"
                 : e == kNotWhileCapturing ? "not while capturing"
                                           : "some error";
            return 0;
        });
        // Code is the text itself.
        add("nvrtcVersion", [](int* major, int* minor) { return *major = 13, *minor = 0, 0; });
        add("nvrtcCreateProgram", [](void** p, const char* text, const char*, int, const char* const*,
                                     const char* const*) { return *p = new std::string(text), 0; });
        add("nvrtcDestroyProgram", [](void** p) { return delete static_cast<std::string*>(*p), 0; });
        add("nvrtcCompileProgram",
            [](void*, int, const char* const*) { return locked([](auto& g) { return ++g.compilations, kFine; }); });
        add("nvrtcGetProgramLogSize", [](void*, size_t* n) { return *n = 0, 0; });
        add("nvrtcGetProgramLog", [](void*, char*) { return 0; });
        add("nvrtcGetCUBINSize", [](void* p, size_t* n) { return *n = static_cast<std::string*>(p)->size(), 0; });
        add("nvrtcGetCUBIN", [](void* p, char* to) {
            const auto* text = static_cast<std::string*>(p);
            return std::memcpy(to, text->data(), text->size()), 0;
        });
        add("nvrtcGetErrorString", [](int) { return "some error"; });
        add_products(add);
        add_graphs(add);
        return t;
    }
    struct Matrix {
        uint64_t rows, columns;
        int64_t stride;
        int type;
        int32_t count = 1;
        int64_t offset = 0;
    };
    struct Product {
        int32_t turn_a = 0, turn_b = 0, epilogue = 1;
        Address bias = 0;
    };
    template <class Add>
    static void add_products(const Add& add) {
        add("cublasLtCreate", [](void** h) { return *h = new int, 0; });
        add("cublasLtDestroy", [](void* h) { return delete static_cast<int*>(h), 0; });
        add("cublasLtMatmulDescCreate", [](void** p, int, int) { return *p = new Product, 0; });
        add("cublasLtMatmulDescDestroy", [](void* p) { return delete static_cast<Product*>(p), 0; });
        add("cublasLtMatmulDescSetAttribute", [](void* p, int attribute, const void* value, size_t size) {
            auto& d = *static_cast<Product*>(p);
            void* to = attribute == 3   ? static_cast<void*>(&d.turn_a)
                       : attribute == 4 ? static_cast<void*>(&d.turn_b)
                       : attribute == 7 ? static_cast<void*>(&d.epilogue)
                                        : static_cast<void*>(&d.bias);
            return std::memcpy(to, value, size), 0;
        });
        add("cublasLtMatrixLayoutCreate", [](void** m, int type, uint64_t rows, uint64_t columns, int64_t stride) {
            return *m = new Matrix{rows, columns, stride, type}, 0;
        });
        add("cublasLtMatrixLayoutDestroy", [](void* m) { return delete static_cast<Matrix*>(m), 0; });
        add("cublasLtMatrixLayoutSetAttribute", [](void* m, int attribute, const void* value, size_t size) {
            auto& d = *static_cast<Matrix*>(m);
            void* to = attribute == 5 ? static_cast<void*>(&d.count) : static_cast<void*>(&d.offset);
            return std::memcpy(to, value, size), 0;
        });
        add("cublasLtMatmulPreferenceCreate", [](void** p) { return *p = new int, 0; });
        add("cublasLtMatmulPreferenceDestroy", [](void* p) { return delete static_cast<int*>(p), 0; });
        add("cublasLtMatmulPreferenceSetAttribute", [](void*, int attribute, const void* value, size_t) {
            if (attribute >= 5 && attribute <= 8)
                locked([&](auto& g) { return g.matrices_aligned = *static_cast<const uint32_t*>(value); });
            return 0;
        });
        struct Found {
            uint64_t algorithm[8];
            size_t workspace;
            int state;
            float waves;
            int reserved[4];
        };
        add("cublasLtMatmulAlgoGetHeuristic",
            [](void*, void* product, void* a, void* b, void* c, void* d, void*, int, Found* found, int* count) {
                const auto type = [](void* m) { return static_cast<Matrix*>(m)->type; };
                *found = {};
                found->workspace = 1000;
                const bool fits = locked([&](auto& g) {
                                      return ++g.product_choices,
                                             static_cast<Matrix*>(d)->columns <= g.most_rows_known ? 1 : 0;
                                  }) != 0;
                const bool known = fits && type(a) == type(b) && type(c) == type(d) &&
                                   (type(d) == 0 || type(d) == type(a)) &&
                                   (static_cast<Product*>(product)->epilogue & 32) == 0;
                *count = known ? 1 : 0;
                return known ? 0 : 15;
            });
        add("cublasLtMatmul", [](void*, void* product, const float* alpha, Address a, void* a_matrix, Address b,
                                 void* b_matrix, const float* beta, Address c, void* c_matrix, Address d,
                                 void* d_matrix, const void*, Address workspace, size_t workspace_bytes, void* stream) {
            const Product p = *static_cast<Product*>(product);
            const auto matrix = [](void* m) { return *static_cast<Matrix*>(m); };
            const Operands o{p,
                             *alpha,
                             *beta,
                             {a, b, c, d},
                             {matrix(a_matrix), matrix(b_matrix), matrix(c_matrix), matrix(d_matrix)}};
            return locked([&](auto& g) {
                if (o.matrices[3].columns > g.most_rows_run) return 13;
                for (const Address address : {a, b, c, d, p.bias, workspace})
                    if (!g.aligned(address, g.matrices_aligned))
                        return g.complain("a matrix that is not aligned as it was tried");
                g.ask(stream, [=](FakeGpu& gpu) {
                    gpu.at(workspace, workspace_bytes);
                    gpu.multiply(o);
                });
                return static_cast<int>(kFine);
            });
        });
    }
    template <class Add>
    static void add_graphs(const Add& add) {
        struct Handle {
            void* stream = nullptr;
        };
        add("cudnnCreate", [](void** h) { return *h = new Handle, 0; });
        add("cudnnDestroy", [](void* h) { return delete static_cast<Handle*>(h), 0; });
        add("cudnnSetStream", [](void* h, void* stream) { return static_cast<Handle*>(h)->stream = stream, 0; });
        add("cudnnGetVersion", []() -> size_t { return 90100; });
        add("cudnnGetErrorString", [](int) { return "some error"; });
        add("cudnnGetLastErrorString", [](char* to, size_t n) {
            locked([&](auto& g) { return std::strncpy(to, g.cudnn.wrong.c_str(), n - 1), to[n - 1] = '\0', 0; });
        });
        add("cudnnBackendCreateDescriptor",
            [](int kind, void** d) { return locked([&](auto& g) { return g.cudnn.create(kind, d); }); });
        add("cudnnBackendDestroyDescriptor",
            [](void* d) { return locked([&](auto& g) { return g.cudnn.destroy(d); }); });
        add("cudnnBackendFinalize", [](void* d) { return locked([&](auto& g) { return g.cudnn.finish(d); }); });
        add("cudnnBackendSetAttribute", [](void* d, int attribute, int type, int64_t count, const void* values) {
            return locked([&](auto& g) { return g.cudnn.set(d, attribute, type, count, values); });
        });
        add("cudnnBackendGetAttribute", [](void* d, int attribute, int type, int64_t wanted, int64_t* count, void* to) {
            return locked([&](auto& g) { return g.cudnn.get(d, attribute, type, wanted, count, to); });
        });
        add("cudnnBackendExecute", [](void* handle, void* plan, void* pack) {
            return locked([&](auto& g) {
                const auto work = g.cudnn.execution(plan, pack);
                g.ask(static_cast<Handle*>(handle)->stream,
                      [work](FakeGpu& gpu) { work([&](Address a, size_t n) { return gpu.at(a, n); }); });
                return kFine;
            });
        });
    }
    /// d = epilogue(alpha a b + beta c + bias).
    struct Operands {
        Product product;
        float alpha = 1, beta = 0;
        Address at[4];
        Matrix matrices[4];
    };
    static int64_t size_of(const Matrix& m) { return m.type == 0 ? 4 : 2; }
    /// Where the element is.
    void* element(const Operands& o, int k, bool turned, int64_t batch, uint64_t row, uint64_t column) {
        const Matrix& m = o.matrices[k];
        if (turned) std::swap(row, column);
        if (row >= m.rows || column >= m.columns) throw std::runtime_error("a product reaches out of its matrix");
        const int64_t i = batch * m.offset + static_cast<int64_t>(column) * m.stride + static_cast<int64_t>(row);
        return at(o.at[k] + static_cast<Address>(i * size_of(m)), static_cast<size_t>(size_of(m)));
    }
    static double number(const void* p, int type) {
        float f = 0;
        uint16_t h = 0;
        std::memcpy(type == 0 ? static_cast<void*>(&f) : &h, p, type == 0 ? 4 : 2);
        return static_cast<double>(type == 0 ? f : type == 2 ? half_to_float(h) : bfloat16_to_float(h));
    }
    static void put(void* p, int type, double v) {
        const auto f = static_cast<float>(v);
        const uint16_t h = type == 2 ? float_to_half(f) : float_to_bfloat16(f);
        std::memcpy(p, type == 0 ? static_cast<const void*>(&f) : &h, type == 0 ? 4 : 2);
    }
    void multiply(const Operands& o) {
        ++library_products;
        const Product& p = o.product;
        const Matrix &x = o.matrices[0], &z = o.matrices[3];
        product_rows = z.columns;
        const uint64_t sum = p.turn_a != 0 ? x.rows : x.columns;
        const auto read = [&](int k, bool turned, int64_t batch, uint64_t row, uint64_t column) {
            return number(element(o, k, turned, batch, row, column), o.matrices[k].type);
        };
        for (int64_t batch = 0; batch < z.count; ++batch)
            for (uint64_t row = 0; row < z.rows; ++row)
                for (uint64_t column = 0; column < z.columns; ++column) {
                    double total = 0;
                    for (uint64_t k = 0; k < sum; ++k)
                        total += read(0, p.turn_a != 0, batch, row, k) * read(1, p.turn_b != 0, batch, k, column);
                    total *= static_cast<double>(o.alpha);
                    if (o.beta != 0) total += static_cast<double>(o.beta) * read(2, false, batch, row, column);
                    const auto size = static_cast<size_t>(size_of(z));
                    if ((p.epilogue & 4) != 0) total += number(at(p.bias + row * size, size), z.type);
                    if ((p.epilogue & 2) != 0) total = relu(total);
                    if (z.columns == wrong_rows) total += 1;
                    put(element(o, 3, false, batch, row, column), z.type, total);
                }
    }
    double relu(double x) const { return products_propagate_nan ? (x < 0 ? 0 : x) : (x > 0 ? x : 0); }
    // NOLINTEND(readability-identifier-naming)

    int allocate(Address* m, size_t n) {
        if (capturing_ > 0) return kNotWhileCapturing;
        if (used + n > memory_bytes) return kNoMemory;
        Block b;
        b.size = n;
        b.bytes.reset(
            static_cast<unsigned char*>(std::aligned_alloc(kAligned, (n + kAligned - 1) / kAligned * kAligned)));
        std::memset(b.bytes.get(), 0xcd, n);
        *m = kFar + reinterpret_cast<Address>(b.bytes.get());
        blocks_.emplace(*m, std::move(b));
        used += n;
        most_used = std::max(most_used, used);
        return ++allocations, kFine;
    }
    int release(Address m) {
        finish(default_);  // it waits for what is under way
        const auto it = blocks_.find(m);
        if (it == blocks_.end()) return complain("memory is freed that is none");
        used -= it->second.size;
        blocks_.erase(it);
        return kFine;
    }
    template <class F>
    int copy(const F& f) try {
        f();
        return kFine;
    } catch (const std::exception& e) {
        return complain(e.what());
    }

    static inline FakeGpu* now_ = nullptr;
    static inline std::recursive_mutex mutex_;
    std::map<Address, Block> blocks_;
    Stream default_;
    static inline thread_local int capturing_ = 0;  // streams, by this thread
};

}  // namespace tilewright::cuda::test
