#include "backend/cuda/cublaslt.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/library_product.h"
#include "base/error.h"
#include "base/shared_library.h"

namespace tilewright::cuda {

namespace {

// Numbers of cublasLt.h, cublas_api.h and library_types.h.
enum : int { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8 };  // of a product's description
enum : int { kBatchCount = 5, kBatchOffset = 6 };                                  // of a matrix's
enum : int { kMostWorkspace = 1, kAlignmentOfA = 5, kAlignmentOfD = 8 };           // of a preference
enum : int { kPlain = 1, kRelu = 2, kBias = 4, kGelu = 32 };                       // epilogues
enum : int { kF32 = 0, kF16 = 2, kBF16 = 14 };                                     // types
enum : int { kCompute32 = 68, kCompute16 = 74, kComputeB16 = 75, kComputeTf32 = 77 };

constexpr uint64_t kWorkspace = uint64_t{32} << 20;

int number_of(DType t) { return t == DType::F16 ? kF16 : t == DType::BF16 ? kBF16 : kF32; }
int number_of(Precision p) {
    constexpr int kNumbers[] = {kCompute32, kComputeTf32, kCompute16, kComputeB16};
    return kNumbers[static_cast<size_t>(p)];
}

struct Algorithm {
    uint64_t data[8];
};
/// cublasLtMatmulHeuristicResult_t.
struct Found {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

}  // namespace

struct CublasLt::Functions {
    Functions(const Gpu& device, SharedLibrary found) : gpu(device), library(std::move(found)) {
        library.find(create, "cublasLtCreate");
        library.find(destroy, "cublasLtDestroy");
        library.find(create_product, "cublasLtMatmulDescCreate");
        library.find(destroy_product, "cublasLtMatmulDescDestroy");
        library.find(set_product, "cublasLtMatmulDescSetAttribute");
        library.find(create_matrix, "cublasLtMatrixLayoutCreate");
        library.find(destroy_matrix, "cublasLtMatrixLayoutDestroy");
        library.find(set_matrix, "cublasLtMatrixLayoutSetAttribute");
        library.find(create_preference, "cublasLtMatmulPreferenceCreate");
        library.find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
        library.find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
        library.find(choose, "cublasLtMatmulAlgoGetHeuristic");
        library.find(multiply, "cublasLtMatmul");
        gpu.enter();
        check(create(&handle), "start");
    }
    ~Functions() {
        if (handle != nullptr) destroy(handle);
    }
    Functions(const Functions&) = delete;
    Functions& operator=(const Functions&) = delete;

    void check(int result, const char* what) const {
        if (result != 0) throw RuntimeError(fmt::format("cuBLASLt cannot {}: status {}", what, result));
    }

    Gpu gpu;
    SharedLibrary library;
    void* handle = nullptr;
    int (*create)(void** handle) = nullptr;
    int (*destroy)(void* handle) = nullptr;
    int (*create_product)(void** product, int compute, int scale) = nullptr;
    int (*destroy_product)(void* product) = nullptr;
    int (*set_product)(void* product, int attribute, const void* value, size_t size) = nullptr;
    int (*create_matrix)(void** matrix, int type, uint64_t rows, uint64_t columns, int64_t stride) = nullptr;
    int (*destroy_matrix)(void* matrix) = nullptr;
    int (*set_matrix)(void* matrix, int attribute, const void* value, size_t size) = nullptr;
    int (*create_preference)(void** preference) = nullptr;
    int (*destroy_preference)(void* preference) = nullptr;
    int (*set_preference)(void* preference, int attribute, const void* value, size_t size) = nullptr;
    int (*choose)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference, int wanted,
                  Found* found, int* count) = nullptr;
    int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_matrix, const void* b,
                    void* b_matrix, const void* beta, const void* c, void* c_matrix, void* d, void* d_matrix,
                    const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream) = nullptr;
};

struct CublasLt::Plan : LibraryPlan {
    std::shared_ptr<const Functions> call;
    LibraryProduct product;
    Precision precision = Precision::F32;
    std::shared_ptr<void> a, b, c, d;  ///< descriptions of matrices
    Algorithm algorithm{};
    int64_t workspace_size = 0;

    int64_t workspace_bytes() const override { return workspace_size; }
    void run(const Gpu::Stream& stream, const std::vector<void*>& tensors, void* workspace) const override {
        call->gpu.enter();
        const std::shared_ptr<void> made = description(product.bias ? tensors.at(*product.bias) : nullptr);
        const auto alpha = static_cast<float>(product.scale);
        const float beta = product.added ? 1 : 0;
        void* out = first(product.result, tensors);
        const void* added = product.added ? first(*product.added, tensors) : out;
        call->check(call->multiply(call->handle, made.get(), &alpha, first(product.right, tensors), a.get(),
                                   first(product.left, tensors), b.get(), &beta, added, c.get(), out, d.get(),
                                   &algorithm, workspace, static_cast<size_t>(workspace_size), stream.handle()),
                    "multiply");
    }
    /// Of the matrix's first element.
    static void* first(const LibraryProduct::Matrix& m, const std::vector<void*>& tensors) {
        return static_cast<std::byte*>(tensors.at(m.tensor)) + m.offset * static_cast<int64_t>(byte_size(m.type));
    }

    /// The library counts by columns: what is a row here is a column there, so that C^T = B^T A^T.
    std::shared_ptr<void> matrix(const LibraryProduct::Matrix& m, int64_t rows, int64_t columns) const {
        void* made = nullptr;
        call->check(call->create_matrix(&made, number_of(m.type), static_cast<uint64_t>(m.transposed ? rows : columns),
                                        static_cast<uint64_t>(m.transposed ? columns : rows), m.stride),
                    "describe a matrix");
        std::shared_ptr<void> out(made, [c = call](void* p) { c->destroy_matrix(p); });
        const auto count = static_cast<int32_t>(product.batch);
        if (count > 1) {
            call->check(call->set_matrix(made, kBatchCount, &count, sizeof count), "describe a batch");
            call->check(call->set_matrix(made, kBatchOffset, &m.of_batch, sizeof m.of_batch), "describe a batch");
        }
        return out;
    }
    /// `bias`: its address, or one that is aligned as it will be.
    std::shared_ptr<void> description(const void* bias) const {
        void* made = nullptr;
        call->check(call->create_product(&made, number_of(precision), kF32), "describe a product");
        std::shared_ptr<void> out(made, [c = call](void* p) { c->destroy_product(p); });
        const int32_t transpose_a = product.right.transposed ? 1 : 0, transpose_b = product.left.transposed ? 1 : 0;
        const int32_t kind = product.activation == Activation::Relu       ? kRelu
                             : product.activation == Activation::GeluTanh ? kGelu
                                                                          : 0;
        int32_t epilogue = kind | (product.bias ? kBias : 0);
        if (epilogue == 0) epilogue = kPlain;
        const auto set = [&](int attribute, const void* value, size_t size) {
            call->check(call->set_product(made, attribute, value, size), "describe a product");
        };
        set(kTransposeA, &transpose_a, sizeof transpose_a);
        set(kTransposeB, &transpose_b, sizeof transpose_b);
        set(kEpilogue, &epilogue, sizeof epilogue);
        if (product.bias) set(kBiasPointer, &bias, sizeof bias);
        return out;
    }
};

CublasLt::CublasLt(const Gpu& gpu, const std::vector<std::string>& names)
    : CublasLt(gpu,
               SharedLibrary("cuBLASLt",
                             names.empty() ? std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12"} : names,
                             "NVIDIA's products of matrices are no candidates without it")) {}

CublasLt::CublasLt(const Gpu& gpu, const SharedLibrary& library)
    : call_(std::make_shared<const Functions>(gpu, library)) {}

std::optional<Refusal> CublasLt::refusal(const LibraryKernel& operation) const {
    const auto* op = std::get_if<LibraryOperation>(&operation);
    if (op == nullptr) return Refusal{"it multiplies matrices and does nothing else"};
    auto product = library_product(*op);
    auto* refusal = std::get_if<Refusal>(&product);
    return refusal != nullptr ? std::optional(std::move(*refusal)) : std::nullopt;
}

std::variant<std::vector<CublasLt::Candidate>, Refusal> CublasLt::candidates(const LibraryKernel& operation,
                                                                             const LibraryConditions& conditions,
                                                                             size_t most) const {
    if (auto refused = refusal(operation)) return *std::move(refused);
    Plan p;
    p.call = call_;
    p.product = std::get<LibraryProduct>(library_product(std::get<LibraryOperation>(operation)));
    p.precision = p.product.left.type == DType::F32 ? conditions.precision : Precision::F32;
    p.a = p.matrix(p.product.right, p.product.sum, p.product.columns);
    p.b = p.matrix(p.product.left, p.product.rows, p.product.sum);
    p.d = p.matrix(p.product.result, p.product.rows, p.product.columns);
    p.c = p.product.added ? p.matrix(*p.product.added, p.product.rows, p.product.columns) : p.d;
    const auto aligned = reinterpret_cast<const void*>(uintptr_t{kTensorAlignment});
    const std::shared_ptr<void> description = p.description(aligned);
    void* made = nullptr;
    call_->check(call_->create_preference(&made), "make a preference");
    const std::shared_ptr<void> preference(made, [c = call_](void* x) { c->destroy_preference(x); });
    call_->check(call_->set_preference(made, kMostWorkspace, &kWorkspace, sizeof kWorkspace), "set a preference");
    // The library assumes 256 bytes.
    if (const auto alignment = static_cast<uint32_t>(p.product.alignment(kTensorAlignment));
        alignment != kTensorAlignment)
        for (int matrix = kAlignmentOfA; matrix <= kAlignmentOfD; ++matrix)
            call_->check(call_->set_preference(made, matrix, &alignment, sizeof alignment), "set a preference");
    std::vector<Found> found(most);
    int count = 0;
    call_->gpu.enter();
    const int status = call_->choose(call_->handle, description.get(), p.a.get(), p.b.get(), p.c.get(), p.d.get(), made,
                                     static_cast<int>(most), found.data(), &count);
    found.resize(status == 0 ? static_cast<size_t>(std::max(0, count)) : 0);
    std::vector<Candidate> out;
    for (size_t k = 0; k < found.size(); ++k) {
        if (found[k].state != 0) continue;
        p.algorithm = found[k].algorithm;
        p.workspace_size = static_cast<int64_t>(found[k].workspace);
        out.push_back({fmt::format("algorithm {}", k), [plan = std::make_shared<const Plan>(p)] { return plan; }});
    }
    if (out.empty())
        return Refusal{fmt::format("no algorithm for it (status {})", found.empty() ? status : found[0].state)};
    return out;
}

}  // namespace tilewright::cuda
