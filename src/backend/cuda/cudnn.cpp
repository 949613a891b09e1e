#include "backend/cuda/cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>

#include "backend/cuda/library_convolution.h"
#include "backend/cuda/library_matmul.h"
#include "base/error.h"
#include "base/shared_library.h"

namespace tilewright::cuda {

/// Numbers of cudnn_graph.h.
struct Cudnn::Numbers {
    // Descriptors:
    enum : int {
        kPointwise = 0,
        kConvolution = 1,
        kEngine = 2,
        kEngineConfig = 3,
        kHeuristics = 4,
        kExecutionPlan = 5,
        kConvolutionForward = 10,
        kConvolutionBackwardData = 12,
        kPointwiseOperation = 13,
        kOperationGraph = 15,
        kVariantPack = 16,
        kTensor = 17,
        kMatmul = 18,
        kMatmulOperation = 19,
        kReduction = 21,
        kReductionOperation = 22,
        kDeviceProperties = 38,
    };
    // Their attributes:
    enum : int { kPointwiseMode = 0, kPointwiseType = 1, kPointwiseMost = 4, kPointwiseAxis = 9 };
    enum : int {
        kConvolutionType = 100,
        kConvolutionMode = 101,
        kDilations = 102,
        kStrides = 103,
        kAfter = 104,
        kBefore = 105,
        kSpatial = 106,
    };
    enum : int { kHeuristicsMode = 200, kHeuristicsGraph = 201, kHeuristicsResults = 202, kHeuristicsDevice = 204 };
    enum : int { kConfigEngine = 300 };
    enum : int { kPlanHandle = 400, kPlanConfig = 401, kPlanWorkspace = 402, kPlanDevice = 407 };
    enum : int { kForward = 700, kBackwardData = 706 };  // the first, alpha; then:
    enum : int { kBeta = 1, kOfConvolution = 2, kFilter = 3, kFromOrTo = 4, kToOrFrom = 5 };
    enum : int { kPointwiseOf = 750, kPointwiseX = 751, kPointwiseB = 752, kPointwiseY = 753, kPointwiseT = 758 };
    enum : int { kGraphHandle = 800, kGraphOperations = 801 };
    enum : int {
        kTensorByteAlignment = 900,
        kTensorType = 901,
        kTensorExtents = 902,
        kTensorStrides = 903,
        kTensorNumber = 906,
        kTensorVirtual = 907,
        kTensorByValue = 908,
    };
    enum : int { kPackNumbers = 1000, kPackPointers = 1001, kPackWorkspace = 1003 };
    enum : int { kEngineNotes = 1303 };
    enum : int { kMatmulType = 1500, kMatmulA = 1520, kMatmulB = 1521, kMatmulC = 1522, kMatmulOf = 1523 };
    enum : int {
        kReductionKind = 1600,
        kReductionType = 1601,
        kReductionX = 1610,
        kReductionY = 1611,
        kReductionOf = 1612
    };
    enum : int { kDeviceJson = 2702 };
    // Types of attributes:
    enum : int {
        kOfHandle = 0,
        kOfType = 1,
        kOfBool = 2,
        kOfInt = 3,
        kOfFloat = 4,
        kOfDouble = 5,
        kOfPointer = 6,
        kOfConvolutionMode = 7,
        kOfHeuristicsMode = 8,
        kOfNote = 11,
        kOfPointwiseMode = 14,
        kOfDescriptor = 15,
        kOfReduction = 18,
        kOfChar = 24,
    };
    // Values:
    enum : int { kF32 = 0, kF16 = 2, kU8 = 6, kBF16 = 9, kBits = 11 };
    enum : int { kCorrelation = 1 };
    enum : int { kFallback = 2, kBest = 3 };  // of heuristics
    enum : int { kTensorCore = 0, kDownConvert = 1, kReducedSum = 2, kWinogradNote = 5, kNotes = 16 };
    enum : int {
        kAdd = 0,
        kMul = 1,
        kDiv = 6,
        kSub = 9,
        kExp = 13,
        kLog = 15,
        kRelu = 100,
        kTanh = 101,
        kSigmoid = 102,
        kGelu = 104,
        kSilu = 106,
        kGeluTanh = 107,
        kGreater = 302,
        kGreaterEqual = 303,
        kIndex = 501,
        kSelect = 601,
    };
    enum : int { kSum = 0, kMaximum = 3 };

    static constexpr int64_t kMostWorkspace = int64_t{64} << 20;
    static constexpr int64_t kAlignment = 16;  // of tensors, which kTensorAlignment includes

    /// Booleans in memory are bytes; its own type of them (kBits) has eight in a byte.
    static int number_of(DType t) {
        return t == DType::F16 ? kF16 : t == DType::BF16 ? kBF16 : t == DType::Bool ? kU8 : kF32;
    }
};

struct Cudnn::Functions : Numbers {
    Functions(std::optional<Gpu> device, SharedLibrary found, const std::string& description)
        : gpu(std::move(device)), library(std::move(found)) {
        library.find(create, "cudnnCreate");
        library.find(destroy, "cudnnDestroy");
        library.find(set_stream, "cudnnSetStream");
        library.find(get_version, "cudnnGetVersion");
        library.find(error_text, "cudnnGetErrorString");
        library.find_if_there(last_error, "cudnnGetLastErrorString");  // 9 and newer
        library.find(create_descriptor, "cudnnBackendCreateDescriptor");
        library.find(destroy_descriptor, "cudnnBackendDestroyDescriptor");
        library.find(finalize, "cudnnBackendFinalize");
        library.find(set_attribute, "cudnnBackendSetAttribute");
        library.find(get_attribute, "cudnnBackendGetAttribute");
        library.find(execute, "cudnnBackendExecute");
        if (gpu) {
            gpu->enter();
            check(create(&handle), "start");
        } else {
            device_properties = descriptor(kDeviceProperties);
            set(device_properties.get(), kDeviceJson, kOfChar, static_cast<int64_t>(description.size()),
                description.data());
            finish(device_properties.get(), "know of a device");
        }
    }
    ~Functions() {
        device_properties.reset();
        if (handle != nullptr) destroy(handle);
    }
    Functions(const Functions&) = delete;
    Functions& operator=(const Functions&) = delete;

    /// With the library's own words for the last error, of as many as there are.
    std::string reason(int status) const {
        std::string out = status == 0 ? "" : fmt::format("status {}, {}", status, error_text(status));
        if (last_error == nullptr) return out;
        std::string said(size_t{64} << 10, '\0');
        last_error(said.data(), said.size());
        said.resize(std::strlen(said.c_str()));
        // Version 9 gives a line for each engine, and for each function that it came through. An engine that lacks
        // something of the machine would take the graph.
        constexpr std::string_view kWarning = "Warning: ";
        size_t at = said.find(fmt::format("{}CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING", kWarning));
        if (at == std::string::npos) at = said.find(kWarning);
        if (at != std::string::npos) said.erase(0, at + kWarning.size());
        said = said.substr(0, said.find('\n'));
        return said.empty() ? out : fmt::format("{}{}{}", out, out.empty() ? "" : ": ", said);
    }
    void check(int status, const char* what) const {
        if (status != 0) throw RuntimeError(fmt::format("cuDNN cannot {}: {}", what, reason(status)));
    }
    std::shared_ptr<void> descriptor(int kind) const {
        void* made = nullptr;
        check(create_descriptor(kind, &made), "make a descriptor");
        return {made, [d = destroy_descriptor](void* p) { d(p); }};
    }
    void set(void* descriptor, int attribute, int type, int64_t count, const void* values) const {
        const int status = set_attribute(descriptor, attribute, type, count, values);
        if (status != 0)
            throw RuntimeError(fmt::format("cuDNN cannot take attribute {}: {}", attribute, reason(status)));
    }
    void set(void* descriptor, int attribute, int type, int value) const {
        set(descriptor, attribute, type, 1, &value);
    }
    void set(void* descriptor, int attribute, int64_t value) const { set(descriptor, attribute, kOfInt, 1, &value); }
    void set(void* descriptor, int attribute, const std::vector<int64_t>& values) const {
        set(descriptor, attribute, kOfInt, static_cast<int64_t>(values.size()), values.data());
    }
    void set(void* descriptor, int attribute, const std::shared_ptr<void>& other) const {
        void* p = other.get();
        set(descriptor, attribute, kOfDescriptor, 1, &p);
    }
    void finish(void* descriptor, const char* what) const { check(finalize(descriptor), what); }

    std::optional<Gpu> gpu;
    SharedLibrary library;
    void* handle = nullptr;
    std::shared_ptr<void> device_properties;  ///< where there is no GPU
    mutable std::mutex running;               ///< the handle has one stream at a time
    int (*create)(void** handle) = nullptr;
    int (*destroy)(void* handle) = nullptr;
    int (*set_stream)(void* handle, void* stream) = nullptr;
    size_t (*get_version)() = nullptr;
    const char* (*error_text)(int status) = nullptr;
    void (*last_error)(char* text, size_t size) = nullptr;
    int (*create_descriptor)(int kind, void** descriptor) = nullptr;
    int (*destroy_descriptor)(void* descriptor) = nullptr;
    int (*finalize)(void* descriptor) = nullptr;
    int (*set_attribute)(void* descriptor, int attribute, int type, int64_t count, const void* values) = nullptr;
    int (*get_attribute)(void* descriptor, int attribute, int type, int64_t wanted, int64_t* count,
                         void* values) = nullptr;
    int (*execute)(void* handle, void* plan, void* pack) = nullptr;
};

struct Cudnn::Plan : LibraryPlan, private Numbers {
    std::shared_ptr<const Functions> call;
    std::shared_ptr<void> plan;
    std::vector<std::shared_ptr<void>> parts;  ///< what it was made of
    std::vector<int64_t> numbers;              ///< of the tensors that a run gives
    std::vector<size_t> tensors;               ///< of the kernel, for the first of them
    std::vector<int64_t> offsets;              ///< bytes in front of their first elements
    std::vector<float> values;                 ///< for those behind, which lie on the host
    std::vector<int64_t> kept;                 ///< and of those behind, that are not read: where in the workspace
    int64_t own = 0, behind = 0;               ///< bytes: the library's, and those of what is not read

    int64_t workspace_bytes() const override { return own + behind; }
    void run(const Gpu::Stream& stream, const std::vector<void*>& given, void* workspace) const override {
        TW_CHECK(call->gpu.has_value(), "a plan for a GPU that is described only");
        std::vector<void*> pointers;
        pointers.reserve(numbers.size());
        for (size_t k = 0; k < tensors.size(); ++k)
            pointers.push_back(static_cast<std::byte*>(given.at(tensors[k])) + offsets[k]);
        for (const float& v : values) pointers.push_back(const_cast<float*>(&v));
        for (const int64_t at : kept) pointers.push_back(static_cast<std::byte*>(workspace) + at);
        call->gpu->enter();
        const std::shared_ptr<void> pack = call->descriptor(kVariantPack);
        call->set(pack.get(), kPackPointers, kOfPointer, static_cast<int64_t>(pointers.size()), pointers.data());
        call->set(pack.get(), kPackNumbers, numbers);
        call->set(pack.get(), kPackWorkspace, kOfPointer, 1, &workspace);
        call->finish(pack.get(), "take a run's tensors");
        const std::lock_guard lock(call->running);
        call->check(call->set_stream(call->handle, stream.handle()), "take a stream");
        call->check(call->execute(call->handle, plan.get(), pack.get()), "run");
    }
};

/// Operations on tensors, as cuDNN is told of them.
class Cudnn::Graph : private Numbers {
  public:
    using Descriptor = std::shared_ptr<void>;
    struct Tensor {
        Descriptor descriptor;
        std::vector<int64_t> extents, strides;
    };

    explicit Graph(std::shared_ptr<const Functions> call) : call_(std::move(call)), plan_(std::make_shared<Plan>()) {
        plan_->call = call_;
    }

    /// Of the kernel.
    Tensor tensor(const LibraryOperand& t) {
        plan_->tensors.push_back(t.tensor);
        plan_->offsets.push_back(t.offset * static_cast<int64_t>(byte_size(t.type)));
        if (plan_->offsets.back() % kAlignment != 0)
            throw RuntimeError(fmt::format("cuDNN takes no tensor that is not aligned to {} bytes", kAlignment));
        given_.push_back(next_);
        return add(t.dims, t.strides, number_of(t.type), false, false);
    }
    /// Between operations: f32, or rounded to what the next one takes.
    Tensor between(const std::vector<int64_t>& extents, const std::vector<int64_t>& strides, DType type = DType::F32) {
        return add(extents, strides, number_of(type), true, false);
    }
    /// Likewise: what a comparison gives.
    Tensor condition(const std::vector<int64_t>& extents, const std::vector<int64_t>& strides) {
        return add(extents, strides, kBits, true, false);
    }
    /// A number.
    Tensor value(double v, size_t rank) {
        plan_->values.push_back(static_cast<float>(v));
        values_.push_back(next_);
        const std::vector<int64_t> ones(rank, 1);
        return add(ones, ones, kF32, false, true);
    }
    /// f32 that the operations write and no operation reads.
    Tensor unread(const std::vector<int64_t>& extents, const std::vector<int64_t>& strides) {
        int64_t count = 1;
        for (const int64_t x : extents) count *= x;
        plan_->kept.push_back(plan_->behind);
        plan_->behind += (count * 4 + 255) / 256 * 256;
        kept_.push_back(next_);
        return add(extents, strides, kF32, false, false);
    }

    void convolve(const LibraryConvolution& c, const Tensor& data, const Tensor& filter, const Tensor& result) {
        const Descriptor how = call_->descriptor(kConvolution);
        call_->set(how.get(), kConvolutionType, kOfType, kF32);
        call_->set(how.get(), kConvolutionMode, kOfConvolutionMode, kCorrelation);
        call_->set(how.get(), kSpatial, static_cast<int64_t>(c.strides.size()));
        call_->set(how.get(), kDilations, c.dilations);
        call_->set(how.get(), kStrides, c.strides);
        call_->set(how.get(), kBefore, c.before);
        call_->set(how.get(), kAfter, c.after);
        call_->finish(how.get(), "describe a convolution");
        made_.push_back(how);
        const float alpha = 1, beta = 0;
        Descriptor operation = call_->descriptor(c.transposed ? kConvolutionBackwardData : kConvolutionForward);
        const int first = c.transposed ? kBackwardData : kForward;
        call_->set(operation.get(), first, kOfFloat, 1, &alpha);
        call_->set(operation.get(), first + kBeta, kOfFloat, 1, &beta);
        call_->set(operation.get(), first + kOfConvolution, how);
        call_->set(operation.get(), first + kFilter, filter.descriptor);
        call_->set(operation.get(), first + (c.transposed ? kToOrFrom : kFromOrTo), data.descriptor);
        call_->set(operation.get(), first + (c.transposed ? kFromOrTo : kToOrFrom), result.descriptor);
        add(std::move(operation));
    }
    /// `t`: of kSelect, where x is chosen instead of b. `axis`: of kIndex. `most`: of kRelu, its largest value.
    void pointwise(int mode, const Tensor& x, const Tensor* b, const Tensor& y, const Tensor* t = nullptr,
                   std::optional<int64_t> axis = std::nullopt, std::optional<double> most = std::nullopt) {
        const Descriptor how = call_->descriptor(kPointwise);
        call_->set(how.get(), kPointwiseMode, kOfPointwiseMode, mode);
        call_->set(how.get(), kPointwiseType, kOfType, kF32);
        if (axis) call_->set(how.get(), kPointwiseAxis, *axis);
        if (most) call_->set(how.get(), kPointwiseMost, kOfDouble, 1, &*most);
        call_->finish(how.get(), "describe a pointwise operation");
        made_.push_back(how);
        Descriptor operation = call_->descriptor(kPointwiseOperation);
        call_->set(operation.get(), kPointwiseOf, how);
        call_->set(operation.get(), kPointwiseX, x.descriptor);
        if (b != nullptr) call_->set(operation.get(), kPointwiseB, b->descriptor);
        if (t != nullptr) call_->set(operation.get(), kPointwiseT, t->descriptor);
        call_->set(operation.get(), kPointwiseY, y.descriptor);
        add(std::move(operation));
    }
    void multiply(const Tensor& a, const Tensor& b, const Tensor& c) {
        const Descriptor how = call_->descriptor(kMatmul);
        call_->set(how.get(), kMatmulType, kOfType, kF32);
        call_->finish(how.get(), "describe a product");
        made_.push_back(how);
        Descriptor operation = call_->descriptor(kMatmulOperation);
        call_->set(operation.get(), kMatmulA, a.descriptor);
        call_->set(operation.get(), kMatmulB, b.descriptor);
        call_->set(operation.get(), kMatmulC, c.descriptor);
        call_->set(operation.get(), kMatmulOf, how);
        add(std::move(operation));
    }
    void reduce(int kind, const Tensor& x, const Tensor& y) {
        const Descriptor how = call_->descriptor(kReduction);
        call_->set(how.get(), kReductionKind, kOfReduction, kind);
        call_->set(how.get(), kReductionType, kOfType, kF32);
        call_->finish(how.get(), "describe a reduction");
        made_.push_back(how);
        Descriptor operation = call_->descriptor(kReductionOperation);
        call_->set(operation.get(), kReductionX, x.descriptor);
        call_->set(operation.get(), kReductionY, y.descriptor);
        call_->set(operation.get(), kReductionOf, how);
        add(std::move(operation));
    }
    /// result = activation(conv(data, filter) + bias + residual).
    void convolve(const LibraryConvolution& c) {
        const Tensor data = tensor(c.data), filter = tensor(c.filter), result = tensor(c.result);
        std::vector<LibraryOperand> added;
        for (const auto* operand : {&c.bias, &c.residual})
            if (*operand) added.push_back(**operand);
        const auto sum = [&](const Tensor& to) { convolve(c, data, filter, to); };
        finish(sum, result, 1, added, c.activation, c.most);
    }
    /// result = activation(scale * data weights + operands).
    void multiply(const LibraryMatmul& m) {
        const Tensor data = tensor(m.data), weights = tensor(m.weights), result = tensor(m.result);
        const auto sum = [&](const Tensor& to) { multiply(data, weights, to); };
        finish(sum, result, m.scale, m.added, m.activation, m.most);
    }
    /// `sum`: writes the sum of products to a tensor; what follows writes to `result`.
    void finish(const std::function<void(const Tensor&)>& sum, const Tensor& result, double scale,
                const std::vector<LibraryOperand>& added, Activation activation, double most) {
        const int kind = mode_of(activation);
        size_t left = (scale == 1 ? 0 : 1) + added.size() + (kind >= 0 ? 1 : 0);
        const auto next = [&] { return left-- == 0 ? result : between(result.extents, result.strides); };
        Tensor x = next();
        sum(x);
        if (scale != 1) {
            const Tensor factor = value(scale, result.extents.size()), y = next();
            pointwise(kMul, x, &factor, y);
            x = y;
        }
        for (const LibraryOperand& operand : added) {
            const Tensor b = tensor(operand), y = next();
            pointwise(kAdd, x, &b, y);
            x = y;
        }
        if (kind < 0) return;
        const bool clips = activation == Activation::ClippedRelu;
        pointwise(kind, x, nullptr, next(), nullptr, std::nullopt, clips ? std::optional(most) : std::nullopt);
    }
    /// Negative: none.
    static int mode_of(Activation a) {
        switch (a) {
            case Activation::Relu:
            case Activation::ClippedRelu:
                return kRelu;
            case Activation::Gelu:
                return kGelu;
            case Activation::GeluTanh:
                return kGeluTanh;
            case Activation::Silu:
                return kSilu;
            case Activation::Sigmoid:
                return kSigmoid;
            case Activation::Tanh:
                return kTanh;
            case Activation::None:
            case Activation::HardSwish:  // refused
                return -1;
        }
        return -1;
    }

    /// The scores where the conditions of an attention hold, its number of masks elsewhere.
    Tensor selected(const LibraryAttention& a, Tensor x) {
        const auto select = [&](const Tensor& keep) {
            const Tensor masked = value(a.masked, 4), y = between(x.extents, x.strides);
            pointwise(kSelect, x, &masked, y, &keep);
            x = y;
        };
        if (a.diagonal) {
            const Tensor rows = between(x.extents, x.strides), columns = between(x.extents, x.strides),
                         diagonal = value(static_cast<double>(*a.diagonal), 4), last = between(x.extents, x.strides),
                         keep = condition(x.extents, x.strides);
            pointwise(kIndex, x, nullptr, rows, nullptr, 2);
            pointwise(kIndex, x, nullptr, columns, nullptr, 3);
            pointwise(kAdd, rows, &diagonal, last);
            pointwise(kGreaterEqual, last, &columns, keep);
            select(keep);
        }
        if (a.selected) {
            const Tensor bytes = tensor(*a.selected), zero = value(0, 4),
                         keep = condition(bytes.extents, bytes.strides);
            pointwise(kGreater, bytes, &zero, keep);
            select(keep);
        }
        return x;
    }

    /// result = softmax(scale queries keys^T + mask, where the conditions hold) values.
    void attend(const LibraryAttention& a) {
        const int64_t batch = a.queries.dims[0], heads = a.queries.dims[1], rows = a.queries.dims[2],
                      columns = a.keys.dims[2];
        LibraryOperand transposed = a.keys;
        std::swap(transposed.dims[2], transposed.dims[3]);
        std::swap(transposed.strides[2], transposed.strides[3]);
        const Tensor queries = tensor(a.queries), keys = tensor(transposed), values = tensor(a.values),
                     result = tensor(a.result);
        const std::vector<int64_t> all = {batch, heads, rows, columns},
                                   packed = {heads * rows * columns, rows * columns, columns, 1},
                                   of_rows = {batch, heads, rows, 1}, by_rows = {heads * rows, rows, 1, 1};
        Tensor x = between(all, packed);
        multiply(queries, keys, x);
        const Tensor scale = value(a.scale, 4), scaled = between(all, packed);
        pointwise(kMul, x, &scale, scaled);
        x = scaled;
        if (a.mask) {
            const Tensor mask = tensor(*a.mask), masked = between(all, packed);
            pointwise(kAdd, x, &mask, masked);
            x = masked;
        }
        x = selected(a, x);
        const Tensor most = between(of_rows, by_rows), shifted = between(all, packed), powers = between(all, packed),
                     sums = between(of_rows, by_rows), logarithms = between(of_rows, by_rows),
                     statistics = unread(of_rows, by_rows), shares = between(all, packed, a.queries.type);
        reduce(kMaximum, x, most);
        pointwise(kSub, x, &most, shifted);
        pointwise(kExp, shifted, nullptr, powers);
        reduce(kSum, powers, sums);
        // Engines of version 9 recognise a softmax by what a backward pass would read.
        pointwise(kLog, sums, nullptr, logarithms);
        pointwise(kAdd, most, &logarithms, statistics);
        pointwise(kDiv, powers, &sums, shares);
        multiply(shares, values, result);
    }

    /// The library's engines, in its own order, that take the graph with no more rounding than allowed.
    std::variant<std::vector<Candidate>, Refusal> candidates(Precision allowed, size_t most) {
        const Descriptor graph = finished_graph();
        Refusals refused;
        std::vector<Candidate> out;
        for (const int mode : {kBest, kFallback}) {
            for (const Descriptor& config : engines(graph, mode, refused)) {
                if (out.size() == most) return out;
                ++refused.engines;
                if (rounds(config, allowed)) {
                    ++refused.rounding;
                    continue;
                }
                if (auto plan = planned(config, refused))
                    out.push_back({fmt::format("engine {}", refused.engines - 1), [plan] { return plan; }});
            }
            if (!out.empty()) return out;
        }
        return Refusal{refused.text()};
    }

  private:
    /// Why engines take no graph.
    struct Refusals {
        int engines = 0, rounding = 0, large = 0;
        std::string first;  ///< of the library's reasons

        void add(const std::string& reason) {
            if (first.empty()) first = reason;
        }
        std::string text() const {
            std::string why = fmt::format("none of {} engines takes it", engines);
            if (rounding > 0) why += fmt::format("; {} round operands", rounding);
            if (large > 0) why += fmt::format("; {} need more than {} bytes", large, kMostWorkspace);
            return first.empty() ? why : why + "; " + first;
        }
    };

    Descriptor finished_graph() {
        const Descriptor graph = call_->descriptor(kOperationGraph);
        std::vector<void*> operations;
        operations.reserve(operations_.size());
        for (const Descriptor& o : operations_) operations.push_back(o.get());
        if (call_->handle != nullptr) call_->set(graph.get(), kGraphHandle, kOfHandle, 1, &call_->handle);
        call_->set(graph.get(), kGraphOperations, kOfDescriptor, static_cast<int64_t>(operations.size()),
                   operations.data());
        call_->finish(graph.get(), "take these operations together");
        made_.push_back(graph);
        return graph;
    }
    /// Configurations of the engines that the library proposes.
    std::vector<Descriptor> engines(const Descriptor& graph, int mode, Refusals& refused) const {
        const Descriptor heuristics = call_->descriptor(kHeuristics);
        call_->set(heuristics.get(), kHeuristicsGraph, graph);
        call_->set(heuristics.get(), kHeuristicsMode, kOfHeuristicsMode, mode);
        if (call_->device_properties) call_->set(heuristics.get(), kHeuristicsDevice, call_->device_properties);
        if (const int status = call_->finalize(heuristics.get()); status != 0) {
            refused.add(call_->reason(status));
            return {};
        }
        std::vector<Descriptor> found = configurations(heuristics);
        if (found.empty()) refused.add(call_->reason(0));
        return found;
    }
    /// Null where the engine does not take the graph, or only with too much memory.
    std::shared_ptr<const Plan> planned(const Descriptor& config, Refusals& refused) const {
        Descriptor made = call_->descriptor(kExecutionPlan);
        if (call_->handle != nullptr) call_->set(made.get(), kPlanHandle, kOfHandle, 1, &call_->handle);
        call_->set(made.get(), kPlanConfig, config);
        if (call_->device_properties) call_->set(made.get(), kPlanDevice, call_->device_properties);
        if (const int status = call_->finalize(made.get()); status != 0) {
            refused.add(call_->reason(status));
            return nullptr;
        }
        int64_t bytes = 0, count = 0;
        call_->check(call_->get_attribute(made.get(), kPlanWorkspace, kOfInt, 1, &count, &bytes),
                     "say what memory it needs");
        if (bytes > kMostWorkspace) {
            ++refused.large;
            return nullptr;
        }
        return finished(std::move(made), config, bytes);
    }

    Tensor add(const std::vector<int64_t>& extents, const std::vector<int64_t>& strides, int type, bool is_virtual,
               bool by_value) {
        Descriptor d = call_->descriptor(kTensor);
        call_->set(d.get(), kTensorNumber, next_++);
        call_->set(d.get(), kTensorType, kOfType, type);
        call_->set(d.get(), kTensorByteAlignment, kAlignment);
        call_->set(d.get(), kTensorExtents, extents);
        call_->set(d.get(), kTensorStrides, strides);
        call_->set(d.get(), kTensorVirtual, kOfBool, 1, &is_virtual);
        if (by_value) call_->set(d.get(), kTensorByValue, kOfBool, 1, &by_value);
        call_->finish(d.get(), "describe a tensor");
        made_.push_back(d);
        return {std::move(d), extents, strides};
    }
    void add(Descriptor operation) {
        call_->finish(operation.get(), "describe an operation");
        operations_.push_back(std::move(operation));
    }

    std::vector<Descriptor> configurations(const Descriptor& heuristics) const {
        int64_t count = 0;
        call_->check(call_->get_attribute(heuristics.get(), kHeuristicsResults, kOfDescriptor, 0, &count, nullptr),
                     "say which engines there are");
        std::vector<Descriptor> out;
        std::vector<void*> raw;
        for (int64_t k = 0; k < count; ++k) {
            out.push_back(call_->descriptor(kEngineConfig));
            raw.push_back(out.back().get());
        }
        int64_t given = 0;
        if (count > 0)
            call_->check(
                call_->get_attribute(heuristics.get(), kHeuristicsResults, kOfDescriptor, count, &given, raw.data()),
                "say which engines there are");
        out.resize(static_cast<size_t>(std::min(given, count)));  // those that are of use here
        return out;
    }
    /// Whether the engine computes with less than is allowed. (f32 on matrix instructions is tf32.)
    bool rounds(const Descriptor& config, Precision allowed) const {
        if (allowed == Precision::F16 || allowed == Precision::BF16) return false;
        const Descriptor engine = call_->descriptor(kEngine);
        int64_t count = 0;
        void* to = engine.get();
        call_->check(call_->get_attribute(config.get(), kConfigEngine, kOfDescriptor, 1, &count, &to),
                     "say what an engine does");
        int notes[kNotes] = {};
        count = 0;
        if (call_->get_attribute(engine.get(), kEngineNotes, kOfNote, kNotes, &count, notes) != 0) return true;
        return std::any_of(notes, notes + std::min<int64_t>(count, kNotes), [&](int n) {
            return n == kDownConvert || n == kReducedSum ||
                   (allowed == Precision::F32 && (n == kTensorCore || n == kWinogradNote));
        });
    }
    std::shared_ptr<const Plan> finished(Descriptor made, const Descriptor& config, int64_t bytes) const {
        auto out = std::make_shared<Plan>(*plan_);
        out->plan = std::move(made);
        out->parts = operations_;
        out->parts.insert(out->parts.end(), made_.begin(), made_.end());
        out->parts.push_back(config);
        out->own = (bytes + 255) / 256 * 256;
        for (int64_t& at : out->kept) at += out->own;
        out->numbers = given_;
        out->numbers.insert(out->numbers.end(), values_.begin(), values_.end());
        out->numbers.insert(out->numbers.end(), kept_.begin(), kept_.end());
        return out;
    }

    std::shared_ptr<const Functions> call_;
    std::shared_ptr<Plan> plan_;
    std::vector<Descriptor> operations_, made_;
    int64_t next_ = 1;                            ///< number of a tensor
    std::vector<int64_t> given_, values_, kept_;  ///< numbers of the plan's tensors, values and unread ones
};

SharedLibrary Cudnn::find(const std::vector<std::string>& names) {
    return {"cuDNN", names.empty() ? std::vector<std::string>{"libcudnn.so.9", "libcudnn.so.8"} : names,
            "NVIDIA's convolutions and attentions are no candidates without it"};
}

Cudnn::Cudnn(const Gpu& gpu, const std::vector<std::string>& names) : Cudnn(gpu, find(names)) {}

Cudnn::Cudnn(const Gpu& gpu, const SharedLibrary& library)
    : call_(std::make_shared<const Functions>(gpu, library, "")) {}

Cudnn::Cudnn(const SharedLibrary& library, const std::string& device)
    : call_(std::make_shared<const Functions>(std::nullopt, library, device)) {}

size_t Cudnn::version() const { return call_->get_version(); }

std::optional<Refusal> Cudnn::refusal(const LibraryKernel& operation) const {
    const auto* op = std::get_if<LibraryOperation>(&operation);
    if (op == nullptr) return std::nullopt;
    const auto reason = [](auto form) {
        auto* refusal = std::get_if<Refusal>(&form);
        return refusal != nullptr ? std::optional(std::move(*refusal)) : std::nullopt;
    };
    return op->convolution ? reason(library_convolution(*op)) : reason(library_matmul(*op));
}

std::variant<std::vector<Cudnn::Candidate>, Refusal> Cudnn::candidates(const LibraryKernel& operation,
                                                                       const LibraryConditions& conditions,
                                                                       size_t most) const {
    if (auto refused = refusal(operation)) return *std::move(refused);
    if (call_->gpu) call_->gpu->enter();
    Graph graph(call_);
    try {
        if (const auto* a = std::get_if<LibraryAttention>(&operation)) {
            graph.attend(*a);
            return graph.candidates(Precision::F16, most);
        }
        const auto& op = std::get<LibraryOperation>(operation);
        if (op.convolution)
            graph.convolve(std::get<LibraryConvolution>(library_convolution(op)));
        else
            graph.multiply(std::get<LibraryMatmul>(library_matmul(op)));
        return graph.candidates(op.data.type == DType::F32 ? conditions.precision : Precision::F16, most);
    } catch (const RuntimeError& e) {  // no such descriptors, or not of these values
        return Refusal{e.what()};
    }
}

}  // namespace tilewright::cuda
