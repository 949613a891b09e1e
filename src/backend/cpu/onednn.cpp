#include "backend/cpu/onednn.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>

#include "base/blocked_signals.h"
#include "base/error.h"
#include "runtime/arena.h"

namespace tilewright::cpu {

namespace {

// Constants of dnnl_types.h, version 2.
enum : int { kF32 = 3, kAnyFormat = 1, kCpu = 1, kInference = 96, kDirect = 1, kInOrder = 1, kUserScratchpad = 1 };
enum : int { kQueryImplementation = 8, kQueryWeights = 131, kQueryScratchpad = 136 };
enum : int {
    kEltElu = 63,
    kEltLinear = 127,
    kEltGelu = 48,
    kEltGeluTanh = 207,
    kEltSwish = 223,
    kEltLogistic = 175,
    kEltTanh = 47
};
enum : int { kEltHardSwish = 112, kAdd = 131056 };
enum : int {
    kArgSource = 1,
    kArgDestination = 17,
    kArgWeights = 33,
    kArgBias = 41,
    kArgScratchpad = 80,
    kArgPostOp = 16384
};
enum : unsigned { kSequential = 1, kOpenMp = 2 };

/// dnnl_version_t.
struct Version {
    int major, minor, patch;
    const char* hash;
    unsigned cpu_runtime, gpu_runtime;
};
/// dnnl_exec_arg_t.
struct Argument {
    int number;
    void* memory;
};
/// dnnl_memory_desc_t: 696 bytes in version 2; opaque here.
struct TensorForm {
    alignas(16) std::byte bytes[1024];
};
/// Descriptor of a matrix product (2,800 bytes) or of a convolution (5,976).
struct Operation {
    alignas(16) std::byte bytes[16384];
};

int64_t elements_of(const std::vector<int64_t>& dims) {
    return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& dims) {
    std::vector<int64_t> strides(dims.size(), 1);
    for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
    return strides;
}

/// Copies a constant to row-major order from any positions.
void gather_constant(const LibraryOperand& o, const float* from, float* to) {
    std::vector<size_t> at(o.dims.size(), 0);
    const std::vector<int64_t>& inner = o.places.back();
    for (int64_t done = 0, all = elements_of(o.dims); done < all; done += static_cast<int64_t>(inner.size())) {
        const float* row = from;
        for (size_t d = 0; d + 1 < at.size(); ++d) row += o.places[d][at[d]];
        for (const int64_t p : inner) *to++ = row[p];
        for (size_t d = at.size() - 1; d-- > 0;) {
            if (++at[d] < o.places[d].size()) break;
            at[d] = 0;
        }
    }
}

}  // namespace

struct OneDnn::Functions {
    explicit Functions(SharedLibrary found) : library(std::move(found)) {
        const Version* (*version)() = nullptr;
        library.find(version, "dnnl_version");
        const Version& v = *version();
        name = fmt::format("oneDNN {}.{}.{}", v.major, v.minor, v.patch);
        // Binary post-operations exist since 2.0; version 3 has another API.
        if (v.major != 2) throw RuntimeError(fmt::format("{}: only version 2 is supported", name));
        if (v.cpu_runtime != kOpenMp && v.cpu_runtime != kSequential)
            throw RuntimeError(fmt::format("{}: unsupported threading runtime (expected OpenMP or none)", name));
        sequential = v.cpu_runtime == kSequential;
        if (!sequential) {
            library.find(set_threads, "omp_set_num_threads");
            library.find(get_threads, "omp_get_max_threads");
        }
        library.find(create_engine, "dnnl_engine_create");
        library.find(destroy_engine, "dnnl_engine_destroy");
        library.find(create_stream, "dnnl_stream_create");
        library.find(destroy_stream, "dnnl_stream_destroy");
        library.find(wait, "dnnl_stream_wait");
        library.find(form_by_strides, "dnnl_memory_desc_init_by_strides");
        library.find(form_by_tag, "dnnl_memory_desc_init_by_tag");
        library.find(form_bytes, "dnnl_memory_desc_get_size");
        library.find(create_memory, "dnnl_memory_create");
        library.find(destroy_memory, "dnnl_memory_destroy");
        library.find(set_address, "dnnl_memory_set_data_handle");
        library.find(describe_product, "dnnl_matmul_desc_init");
        library.find(describe_convolution, "dnnl_dilated_convolution_forward_desc_init");
        library.find(create_attributes, "dnnl_primitive_attr_create");
        library.find(destroy_attributes, "dnnl_primitive_attr_destroy");
        library.find(set_scratchpad, "dnnl_primitive_attr_set_scratchpad_mode");
        library.find(set_post_ops, "dnnl_primitive_attr_set_post_ops");
        library.find(create_post_ops, "dnnl_post_ops_create");
        library.find(destroy_post_ops, "dnnl_post_ops_destroy");
        library.find(append_function, "dnnl_post_ops_append_eltwise");
        library.find(append_operand, "dnnl_post_ops_append_binary");
        library.find(choose, "dnnl_primitive_desc_create");
        library.find(create_iterator, "dnnl_primitive_desc_iterator_create");
        library.find(destroy_iterator, "dnnl_primitive_desc_iterator_destroy");
        library.find(next, "dnnl_primitive_desc_iterator_next");
        library.find(fetch, "dnnl_primitive_desc_iterator_fetch");
        library.find(choose_reorder, "dnnl_reorder_primitive_desc_create");
        library.find(destroy_choice, "dnnl_primitive_desc_destroy");
        library.find(ask, "dnnl_primitive_desc_query");
        library.find(ask_form, "dnnl_primitive_desc_query_md");
        library.find(create_primitive, "dnnl_primitive_create");
        library.find(destroy_primitive, "dnnl_primitive_destroy");
        library.find(execute, "dnnl_primitive_execute");
        check(create_engine(&engine, kCpu, 0), "start");
    }
    ~Functions() {
        if (engine != nullptr) destroy_engine(engine);
    }
    Functions(const Functions&) = delete;
    Functions& operator=(const Functions&) = delete;

    void check(int result, const char* what) const {
        if (result != 0) throw RuntimeError(fmt::format("{} cannot {}: status {}", name, what, result));
    }

    TensorForm by_strides(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) const {
        TensorForm out{};
        check(form_by_strides(&out, static_cast<int>(dims.size()), dims.data(), kF32, strides.data()),
              "describe a tensor");
        return out;
    }
    TensorForm any(const std::vector<int64_t>& dims) const {
        TensorForm out{};
        check(form_by_tag(&out, static_cast<int>(dims.size()), dims.data(), kF32, kAnyFormat), "describe a tensor");
        return out;
    }
    /// `address` may be null and set later.
    std::shared_ptr<void> memory(const TensorForm& form, void* address) const {
        void* made = nullptr;
        check(create_memory(&made, &form, engine, address), "describe memory");
        return {made, destroy_memory};
    }
    std::shared_ptr<void> stream() const {
        void* made = nullptr;
        check(create_stream(&made, engine, kInOrder), "make a stream");
        return {made, destroy_stream};
    }
    std::shared_ptr<void> primitive(const void* choice) const {
        void* made = nullptr;
        check(create_primitive(&made, choice), "make a primitive");
        return {made, destroy_primitive};
    }

    SharedLibrary library;
    std::string name;
    bool sequential = false;
    void* engine = nullptr;
    void (*set_threads)(int) = nullptr;
    int (*get_threads)() = nullptr;
    int (*create_engine)(void** engine, int kind, size_t index) = nullptr;
    int (*destroy_engine)(void* engine) = nullptr;
    int (*create_stream)(void** stream, void* engine, unsigned flags) = nullptr;
    int (*destroy_stream)(void* stream) = nullptr;
    int (*wait)(void* stream) = nullptr;
    int (*form_by_strides)(TensorForm*, int dims, const int64_t* size, int type, const int64_t* strides) = nullptr;
    int (*form_by_tag)(TensorForm*, int dims, const int64_t* size, int type, int tag) = nullptr;
    size_t (*form_bytes)(const TensorForm*) = nullptr;
    int (*create_memory)(void** memory, const TensorForm*, void* engine, void* address) = nullptr;
    int (*destroy_memory)(void* memory) = nullptr;
    int (*set_address)(void* memory, void* address) = nullptr;
    int (*describe_product)(Operation*, const TensorForm* data, const TensorForm* weights, const TensorForm* bias,
                            const TensorForm* result) = nullptr;
    int (*describe_convolution)(Operation*, int kind, int algorithm, const TensorForm* data, const TensorForm* weights,
                                const TensorForm* bias, const TensorForm* result, const int64_t* strides,
                                const int64_t* dilations, const int64_t* begins, const int64_t* ends) = nullptr;
    int (*create_attributes)(void**) = nullptr;
    int (*destroy_attributes)(void*) = nullptr;
    int (*set_scratchpad)(void* attributes, int mode) = nullptr;
    int (*set_post_ops)(void* attributes, const void* post_ops) = nullptr;
    int (*create_post_ops)(void**) = nullptr;
    int (*destroy_post_ops)(void*) = nullptr;
    int (*append_function)(void* post_ops, float scale, int algorithm, float alpha, float beta) = nullptr;
    int (*append_operand)(void* post_ops, int algorithm, const TensorForm*) = nullptr;
    int (*choose)(void** choice, const Operation*, const void* attributes, void* engine, const void* hint) = nullptr;
    int (*create_iterator)(void** iterator, const Operation*, const void* attributes, void* engine,
                           const void* hint) = nullptr;
    int (*destroy_iterator)(void*) = nullptr;
    int (*next)(void* iterator) = nullptr;
    void* (*fetch)(const void* iterator) = nullptr;
    int (*choose_reorder)(void** choice, const TensorForm* from, void* from_engine, const TensorForm* to,
                          void* to_engine, const void* attributes) = nullptr;
    int (*destroy_choice)(void*) = nullptr;
    int (*ask)(const void* choice, int what, int index, void* answer) = nullptr;
    const void* (*ask_form)(const void* choice, int what, int index) = nullptr;
    int (*create_primitive)(void** primitive, const void* choice) = nullptr;
    int (*destroy_primitive)(void*) = nullptr;
    int (*execute)(const void* primitive, void* stream, int count, const Argument* arguments) = nullptr;
};

namespace {

using Functions = OneDnn::Functions;

/// The state of this thread for calls of the library, until the end of the scope: the number of OpenMP threads for
/// parallel regions, and no signals, also for threads that OpenMP starts. oneDNN's products of f32 (gemm:jit) move the
/// stack pointer into an allocated block for sums of more than 84: the system would write a signal's frame of 3 KiB and
/// more over what is in front of that block.
class LibraryScope {
  public:
    LibraryScope(const Functions& call, int threads) : call_(call) {
        if (call.sequential) return;
        before_ = call.get_threads();
        if (before_ != threads) call.set_threads(threads);
    }
    ~LibraryScope() {
        if (!call_.sequential) call_.set_threads(before_);
    }
    LibraryScope(const LibraryScope&) = delete;
    LibraryScope& operator=(const LibraryScope&) = delete;

  private:
    const BlockedSignals blocked_;
    const Functions& call_;
    int before_ = 0;
};

/// Copies a dnnl_memory_desc_t of the library, a plain struct with the alignment of a pointer: TensorForm is larger.
TensorForm copy_of(const void* form) {
    constexpr size_t kBytes = 696;
    TensorForm out{};
    std::memcpy(out.bytes, form, kBytes);
    return out;
}

bool is_reference(std::string_view implementation) { return implementation.find("ref") != std::string_view::npos; }

/// The primitive that the library created for a kernel and a number of threads.
struct Chosen {
    std::shared_ptr<void> primitive;
    TensorForm weights{}, scratchpad{};
    int64_t scratch_bytes = 0;
};

class OneDnnCall : public LibraryCall {
  public:
    /// `implementation`: one of implementations(); empty: the library's own choice.
    OneDnnCall(std::shared_ptr<const Functions> call, LibraryOperation op, int threads, std::string implementation)
        : call_(std::move(call)), op_(std::move(op)), threads_(threads), implementation_(std::move(implementation)) {
        for (size_t i = 0; i < op_.added.size(); ++i)
            if (!bias_ && op_.scale == 1 && op_.is_bias(i)) bias_ = i;
        data_ = op_.data.places.empty() ? call_->by_strides(op_.data.dims, op_.data.strides)
                                        : call_->by_strides(op_.data.dims, dense_strides(op_.data.dims));
        result_ = call_->by_strides(op_.result.dims, op_.result.strides);
        weight_dims_ = op_.weights.dims;
        if (op_.convolution && weight_dims_[0] == 1) weight_dims_.erase(weight_dims_.begin());
        const TensorForm weights = op_.weights.places.empty() ? call_->by_strides(weight_dims_, op_.weights.strides)
                                                              : call_->any(weight_dims_);
        for (const LibraryOperand& a : op_.added) added_.push_back(call_->by_strides(a.dims, a.strides));
        if (bias_) {
            const LibraryOperand& b = op_.added[*bias_];
            bias_form_ = op_.convolution ? call_->by_strides({b.dims[1]}, {1})
                                         : call_->by_strides(b.dims, dense_strides(b.dims));
        }
        wanted_ = weights;
        chosen_ = choose(weights, threads);
    }

    std::vector<Prepared> prepared() const override {
        std::vector<Prepared> out;
        if (!op_.data.places.empty())
            out.push_back({op_.data.tensor, elements_of(op_.data.dims) * static_cast<int64_t>(sizeof(float))});
        if (!op_.weights.places.empty())
            out.push_back({op_.weights.tensor, static_cast<int64_t>(call_->form_bytes(&chosen_.weights))});
        return out;
    }

    void prepare(size_t which, const void* constant, void* to) const override {
        const auto* from = static_cast<const float*>(constant);
        if (which == 0 && !op_.data.places.empty()) {
            gather_constant(op_.data, from, static_cast<float*>(to));
            return;
        }
        Arena plain;
        plain.reserve(std::max<int64_t>(64, elements_of(op_.weights.dims) * static_cast<int64_t>(sizeof(float))));
        gather_constant(op_.weights, from, reinterpret_cast<float*>(plain.data()));
        const TensorForm form = call_->by_strides(weight_dims_, dense_strides(weight_dims_));
        const LibraryScope with(*call_, threads_);
        void* made = nullptr;
        call_->check(call_->choose_reorder(&made, &form, call_->engine, &chosen_.weights, call_->engine, nullptr),
                     "reorder weights");
        const std::shared_ptr<void> choice(made, call_->destroy_choice);
        const std::shared_ptr<void> reorder = call_->primitive(made), stream = call_->stream(),
                                    source = call_->memory(form, plain.data()),
                                    destination = call_->memory(chosen_.weights, to);
        const Argument arguments[] = {{kArgSource, source.get()}, {kArgDestination, destination.get()}};
        call_->check(call_->execute(reorder.get(), stream.get(), 2, arguments), "reorder weights");
        call_->check(call_->wait(stream.get()), "reorder weights");
    }

    /// Returns the library's implementations of the operation, except reference implementations.
    std::vector<std::string> implementations() const {
        const LibraryScope with(*call_, threads_);
        std::vector<std::string> out;
        find_implementation(description(wanted_), [&](const std::string& name) {
            if (!is_reference(name)) out.push_back(name);
            return false;
        });
        return out;
    }

    int64_t scratch_bytes(int threads) const override { return chosen_for(threads).scratch_bytes; }
    std::unique_ptr<Runs> runs(int threads) const override;

  private:
    class OneDnnRuns;

    /// The weights keep their prepared layout for any number of threads.
    Chosen chosen_for(int threads) const {
        if (threads == threads_) return chosen_;
        const std::lock_guard lock(mutex_);
        const auto it = others_.find(threads);
        return it != others_.end() ? it->second
                                   : others_.emplace(threads, choose(chosen_.weights, threads)).first->second;
    }

    /// An operation and its attributes, in the library's form.
    struct Description {
        std::unique_ptr<Operation> operation = std::make_unique<Operation>();
        std::shared_ptr<void> attributes;
    };

    Description description(const TensorForm& weights) const {
        const Functions& f = *call_;
        Description out;
        void* made = nullptr;
        f.check(f.create_attributes(&made), "describe a primitive");
        out.attributes = std::shared_ptr<void>(made, f.destroy_attributes);
        f.check(f.set_scratchpad(made, kUserScratchpad), "describe a primitive");
        f.check(f.create_post_ops(&made), "describe a primitive");
        const std::shared_ptr<void> post_ops(made, f.destroy_post_ops);
        append(made);
        f.check(f.set_post_ops(out.attributes.get(), post_ops.get()), "describe a primitive");
        const TensorForm* bias = bias_ ? &bias_form_ : nullptr;
        if (op_.convolution) {
            std::vector<int64_t> dilations = op_.dilations;  // 0 means dense there
            for (int64_t& d : dilations) --d;
            f.check(f.describe_convolution(out.operation.get(), kInference, kDirect, &data_, &weights, bias, &result_,
                                           op_.strides.data(), dilations.data(), op_.begins.data(), op_.ends.data()),
                    "describe a convolution");
        } else {
            f.check(f.describe_product(out.operation.get(), &data_, &weights, bias, &result_), "describe a product");
        }
        return out;
    }

    std::string name_of(const void* choice) const {
        const char* implementation = nullptr;
        call_->check(call_->ask(choice, kQueryImplementation, 0, &implementation), "name an implementation");
        return implementation;
    }

    /// Iterates over implementations in the library's order until `accept` returns true; returns that one, or null. A
    /// repeated name gets a number: "jit:avx2 (2)".
    std::shared_ptr<void> find_implementation(const Description& d,
                                              const std::function<bool(const std::string&)>& accept) const {
        const Functions& f = *call_;
        void* made = nullptr;
        f.check(f.create_iterator(&made, d.operation.get(), d.attributes.get(), f.engine, nullptr), "compute this");
        const std::shared_ptr<void> iterator(made, f.destroy_iterator);
        std::map<std::string, int> met;
        do {
            const std::shared_ptr<void> choice(f.fetch(iterator.get()), f.destroy_choice);
            if (!choice) continue;
            const std::string name = name_of(choice.get());
            const int count = ++met[name];
            if (accept(count == 1 ? name : fmt::format("{} ({})", name, count))) return choice;
        } while (f.next(iterator.get()) == 0);
        return nullptr;
    }

    Chosen choose(const TensorForm& weights, int threads) const {
        const Functions& f = *call_;
        const LibraryScope with(f, threads);
        const Description d = description(weights);
        std::shared_ptr<void> choice;
        if (implementation_.empty()) {
            void* made = nullptr;
            f.check(f.choose(&made, d.operation.get(), d.attributes.get(), f.engine, nullptr), "compute this");
            choice = std::shared_ptr<void>(made, f.destroy_choice);
            if (is_reference(name_of(choice.get())))
                throw RuntimeError(fmt::format("{} has only a reference implementation for this operation", f.name));
        } else {
            choice = find_implementation(d, [&](const std::string& name) { return name == implementation_; });
            if (!choice)
                throw RuntimeError(
                    fmt::format("{} has no implementation '{}' for this operation", f.name, implementation_));
        }
        Chosen out;
        out.weights = copy_of(f.ask_form(choice.get(), kQueryWeights, 0));
        out.scratchpad = copy_of(f.ask_form(choice.get(), kQueryScratchpad, 0));
        out.scratch_bytes = static_cast<int64_t>(f.form_bytes(&out.scratchpad));
        out.primitive = f.primitive(choice.get());
        return out;
    }

    /// Appends the operations after the sum, in order.
    void append(void* post_ops) const {
        const Functions& f = *call_;
        const auto function = [&](int algorithm, double alpha, double beta = 0) {
            f.check(f.append_function(post_ops, 1, algorithm, static_cast<float>(alpha), static_cast<float>(beta)),
                    "describe a primitive");
        };
        if (op_.scale != 1) function(kEltLinear, op_.scale);
        for (size_t i = 0; i < op_.added.size(); ++i)
            if (i != bias_) f.check(f.append_operand(post_ops, kAdd, &added_[i]), "describe a primitive");
        switch (op_.activation) {
            case Activation::None:
            case Activation::ClippedRelu:  // refused
                break;
            case Activation::Relu:
                function(kEltElu, 0);
                function(kEltLinear, 1);  // turns -0 into 0
                break;
            case Activation::Gelu:
                function(kEltGelu, 0);
                break;
            case Activation::GeluTanh:
                function(kEltGeluTanh, 0);
                break;
            case Activation::Silu:
                function(kEltSwish, 1);
                break;
            case Activation::Sigmoid:
                function(kEltLogistic, 0);
                break;
            case Activation::Tanh:
                function(kEltTanh, 0);
                break;
            case Activation::HardSwish:
                function(kEltHardSwish, 0);
                break;
        }
    }
    /// Position of the first operand among the post-operations.
    int first_added() const { return op_.scale != 1 ? 1 : 0; }

    std::shared_ptr<const Functions> call_;
    LibraryOperation op_;
    int threads_;
    std::string implementation_;
    std::optional<size_t> bias_;  ///< of `added`
    TensorForm data_, result_, bias_form_{};
    std::vector<int64_t> weight_dims_;
    std::vector<TensorForm> added_;
    TensorForm wanted_{};  ///< descriptor of the weights before the library chooses their layout
    Chosen chosen_;
    mutable std::mutex mutex_;
    mutable std::map<int, Chosen> others_;  ///< per number of threads
};

class OneDnnCall::OneDnnRuns : public LibraryCall::Runs {
  public:
    OneDnnRuns(const OneDnnCall& of, int threads) : call_(of.call_), threads_(threads), stream_(of.call_->stream()) {
        const Chosen chosen = of.chosen_for(threads);
        primitive_ = chosen.primitive;
        add(kArgSource, of.op_.data.tensor, of.data_);
        add(kArgWeights, of.op_.weights.tensor, chosen.weights);
        add(kArgDestination, of.op_.result.tensor, of.result_);
        int position = of.first_added();
        for (size_t i = 0; i < of.op_.added.size(); ++i)
            if (i == of.bias_)
                add(kArgBias, of.op_.added[i].tensor, of.bias_form_);
            else
                add((kArgPostOp * (++position)) | 2, of.op_.added[i].tensor, of.added_[i]);
        if (chosen.scratch_bytes > 0) {
            memories_.push_back(call_->memory(chosen.scratchpad, nullptr));
            arguments_.push_back({kArgScratchpad, memories_.back().get()});
        }
    }

    void run(void* const* tensors, void* scratch) override {
        const LibraryScope with(*call_, threads_);
        for (size_t i = 0; i < memories_.size(); ++i)
            call_->check(call_->set_address(memories_[i].get(), i < tensors_.size() ? tensors[tensors_[i]] : scratch),
                         "take an address");
        call_->check(
            call_->execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data()),
            "run a primitive");
        call_->check(call_->wait(stream_.get()), "run a primitive");
    }

  private:
    void add(int argument, size_t tensor, const TensorForm& form) {
        memories_.push_back(call_->memory(form, nullptr));
        arguments_.push_back({argument, memories_.back().get()});
        tensors_.push_back(tensor);
    }

    std::shared_ptr<const Functions> call_;
    int threads_;
    std::shared_ptr<void> stream_, primitive_;
    std::vector<std::shared_ptr<void>> memories_;
    std::vector<Argument> arguments_;
    std::vector<size_t> tensors_;  ///< per memory, except a last one that is scratch
};

std::unique_ptr<LibraryCall::Runs> OneDnnCall::runs(int threads) const {
    return std::make_unique<OneDnnRuns>(*this, threads);
}

}  // namespace

OneDnn::OneDnn(const std::vector<std::string>& names)
    : OneDnn(SharedLibrary("oneDNN", names.empty() ? std::vector<std::string>{"libdnnl.so.2", "libdnnl.so.3"} : names,
                           "its products and convolutions are no candidates without it")) {}

OneDnn::OneDnn(const SharedLibrary& library) : call_(std::make_shared<const Functions>(library)) {}

std::string OneDnn::name() const { return call_->name; }

std::optional<Refusal> onednn_refusal(const LibraryKernel& operation) {
    const auto* op = std::get_if<LibraryOperation>(&operation);
    if (op == nullptr) return Refusal{"an attention"};
    if (op->transposed) return Refusal{"a transposed convolution"};
    if (op->activation == Activation::ClippedRelu) return Refusal{"a clipped relu"};
    std::vector<const LibraryOperand*> operands = {&op->data, &op->weights, &op->result};
    for (const LibraryOperand& o : op->added) operands.push_back(&o);
    for (const LibraryOperand* o : operands) {
        if (o->type != DType::F32) return Refusal{"a tensor that is not f32"};
        if (o->offset != 0) return Refusal{"a tensor that is not accessed from its first element"};
    }
    if (!op->convolution) return std::nullopt;
    if (!op->weights.is_constant()) return Refusal{"a convolution with non-constant weights"};
    if (op->spatial_dims() != 2) return Refusal{"a convolution that is not two-dimensional"};
    return std::nullopt;
}

std::variant<std::vector<OneDnn::Candidate>, Refusal> OneDnn::candidates(const LibraryKernel& operation,
                                                                         const LibraryConditions& conditions,
                                                                         size_t most) const {
    if (auto refused = refusal(operation)) return *std::move(refused);
    const auto& op = std::get<LibraryOperation>(operation);
    const auto candidate = [&](const std::string& implementation) {
        return Candidate{implementation.empty() ? "the library's choice" : implementation,
                         [call = call_, op, threads = conditions.threads, implementation] {
                             return std::make_shared<const OneDnnCall>(call, op, threads, implementation);
                         }};
    };
    if (most <= 1) return std::vector{candidate("")};
    std::vector<Candidate> out;
    try {
        for (const std::string& name : OneDnnCall(call_, op, conditions.threads, "").implementations())
            if (out.size() < most) out.push_back(candidate(name));
    } catch (const RuntimeError& e) {
        return Refusal{e.what()};
    }
    return out;
}

}  // namespace tilewright::cpu
