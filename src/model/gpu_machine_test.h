#pragma once
// A fake GPU that runs the kernels of one model by the tile interpreter.

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/fake_gpu_test.h"
#include "backend/cuda/machine_code.h"
#include "compile/pipeline.h"
#include "model/gpu_model.h"

namespace tilewright::test {

/// A GPU with the kernels of one model.
class Machine {
  public:
    /// `libraries`: kernels are compiled for a GPU with libraries, which may have parts of them. `ranges`: of dynamic
    /// sizes.
    explicit Machine(const Program& program, uint64_t memory = 1 << 24, bool libraries = false,
                     const std::map<std::string, DimRange>& ranges = {}) {
        CompileOptions o;
        o.gpu = a100();
        o.ranges = ranges;
        o.gpu_libraries = libraries;
        o.precision = Precision::F32;
        compiled_ = compile_program(program, o);
        for (size_t k = 0; k < compiled_->gpu_kernels().size(); ++k)
            images_[cuda::device_header() + "\n" + cuda::alone(compiled_->gpu_kernels()[k]).text] = k;
        gpu_.memory_bytes = memory;
        gpu_.argument_count = [this](const std::string& image) {
            const cuda::KernelText& t = compiled_->gpu_kernels()[images_.at(image)];
            return t.pointers() + t.names.size();
        };
        gpu_.run = [this](const std::string& image, const std::vector<uint64_t>& arguments, int64_t blocks) {
            run(images_.at(image), arguments, blocks);
        };
    }

    std::shared_ptr<const GpuModel> load() { return load(cuda::Gpu(0, gpu_.driver()), {}); }
    /// With cuBLASLt and cuDNN, which take so many seconds for a kernel; ours take one. `others`: libraries before
    /// them.
    std::shared_ptr<const GpuModel> load_with_library(
        double seconds, std::vector<std::shared_ptr<const cuda::KernelLibrary>> others = {}) {
        const cuda::Gpu gpu(0, gpu_.driver());
        GpuLibraries libraries{std::move(others), {}};
        libraries.libraries.push_back(std::make_shared<cuda::CublasLt>(gpu, gpu_.products()));
        libraries.libraries.push_back(std::make_shared<cuda::Cudnn>(gpu, gpu_.graphs_library()));
        libraries.time = [this, seconds](const cuda::Gpu::Stream& stream, const std::function<void()>& work) {
            const int before = gpu_.library_products + gpu_.cudnn.graphs;
            work();
            stream.synchronize();
            if (gpu_.library_products + gpu_.cudnn.graphs == before) return 1.0;
            return library_seconds ? library_seconds() : seconds;
        };
        return load(gpu, libraries);
    }
    /// With cuBLASLt, timed as on a GPU.
    std::shared_ptr<const GpuModel> load_and_measure() {
        const cuda::Gpu gpu(0, gpu_.driver());
        return load(gpu, {{std::make_shared<cuda::CublasLt>(gpu, gpu_.products())}, {}});
    }
    std::function<double()> library_seconds;  ///< in place of the number, of what has just run
    const CompiledModel& compiled() const { return *compiled_; }
    cuda::test::FakeGpu& gpu() { return gpu_; }

  private:
    std::shared_ptr<const GpuModel> load(const cuda::Gpu& gpu, const GpuLibraries& libraries) {
        return std::make_shared<const GpuModel>(compiled_, gpu,
                                                cuda::machine_code(compiled_->gpu_kernels(), 80, CodeCache(""),
                                                                   [&] { return cuda::Nvrtc(gpu_.compiler()); }),
                                                libraries);
    }
    void run(size_t k, const std::vector<uint64_t>& arguments, int64_t blocks) {
        const cuda::KernelText& text = compiled_->gpu_kernels()[k];
        const TileProgram& kernel = compiled_->kernels()[k];
        Bindings names;
        size_t at = text.tensors.size();
        if (text.scratch_bytes > 0) gpu_.at(arguments[at++], static_cast<size_t>(text.scratch_bytes * blocks));
        if (text.counters) ++at;
        for (const Var v : text.names) names[v] = static_cast<int64_t>(arguments[at++]);
        for (int64_t i = 0; i < text.counter_bytes(names); ++i)
            if (*static_cast<char*>(gpu_.at(arguments[text.pointers() - 1] + static_cast<uint64_t>(i), 1)) != 0)
                throw std::runtime_error("a counter that is not 0");
        int64_t expected = 1;
        for (const Expr& g : text.grid) expected *= evaluate(g, names);
        if (blocks != expected) throw std::runtime_error("another number of blocks");
        std::vector<Tensor> inputs;
        for (size_t i = 0; i < kernel.stages.inputs.size(); ++i) {
            const Value& v = kernel.stages.values[kernel.stages.inputs[i]];
            Tensor t(v.dtype, evaluate(v.shape, names));
            if (t.bytes() > 0) std::memcpy(t.mutable_data(), gpu_.at(arguments[i], t.bytes()), t.bytes());
            inputs.push_back(std::move(t));
        }
        const std::vector<Tensor> outputs = interpret(kernel, inputs, names);
        for (size_t i = 0; i < outputs.size(); ++i)
            if (outputs[i].bytes() > 0)
                std::memcpy(gpu_.at(arguments[inputs.size() + i], outputs[i].bytes()), outputs[i].data(),
                            outputs[i].bytes());
    }

    cuda::test::FakeGpu gpu_;
    std::shared_ptr<const CompiledModel> compiled_;
    std::map<std::string, size_t> images_;
};

}  // namespace tilewright::test
