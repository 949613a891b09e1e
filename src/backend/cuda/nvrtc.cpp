#include "backend/cuda/nvrtc.h"

#include "backend/cuda/library.h"
#include "base/error.h"

namespace tilewright::cuda {

/// As nvrtc.h of CUDA declares them; every result is 0 where all went well.
struct Nvrtc::Functions {
    explicit Functions(Library found) : library(std::move(found)) {}

    Library library;
    int (*version)(int* major, int* minor) = nullptr;
    int (*create)(void** program, const char* text, const char* name, int headers, const char* const* sources,
                  const char* const* names) = nullptr;
    int (*destroy)(void** program) = nullptr;
    int (*compile)(void* program, int options, const char* const* words) = nullptr;
    int (*log_size)(void* program, size_t* size) = nullptr;
    int (*log)(void* program, char* text) = nullptr;
    int (*code_size)(void* program, size_t* size) = nullptr;
    int (*code)(void* program, char* bytes) = nullptr;
    const char* (*error)(int result) = nullptr;

    void check(int result, const char* what) const {
        if (result != 0) throw RuntimeError(fmt::format("NVRTC cannot {}: {}", what, error(result)));
    }
};

namespace {

Library usual_library(const std::vector<std::string>& names) {
    const std::vector<std::string> usual = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    return {"NVRTC", names.empty() ? usual : names,
            "kernels for GPUs need CUDA's run-time compiler (libnvrtc) where the loader looks, as in LD_LIBRARY_PATH"};
}

}  // namespace

Nvrtc::Nvrtc(const std::vector<std::string>& names) : Nvrtc(usual_library(names)) {}

Nvrtc::Nvrtc(const Library& library) {
    auto f = std::make_shared<Functions>(library);
    f->library.find(f->version, "nvrtcVersion");
    f->library.find(f->create, "nvrtcCreateProgram");
    f->library.find(f->destroy, "nvrtcDestroyProgram");
    f->library.find(f->compile, "nvrtcCompileProgram");
    f->library.find(f->log_size, "nvrtcGetProgramLogSize");
    f->library.find(f->log, "nvrtcGetProgramLog");
    f->library.find(f->code_size, "nvrtcGetCUBINSize");
    f->library.find(f->code, "nvrtcGetCUBIN");
    f->library.find(f->error, "nvrtcGetErrorString");
    call_ = std::move(f);
}

int Nvrtc::version() const {
    int major = 0, minor = 0;
    call_->check(call_->version(&major, &minor), "say its version");
    return major * 100 + minor * 10;
}

std::string Nvrtc::compile(const std::vector<KernelText>& kernels, int capability) const {
    std::string text = device_header();
    for (const KernelText& k : kernels) text += "\n" + k.text;
    return compile(text, capability);
}

std::string Nvrtc::compile(const std::string& text, int capability) const {
    void* program = nullptr;
    call_->check(call_->create(&program, text.c_str(), "kernels.cu", 0, nullptr, nullptr), "take a text");
    const std::shared_ptr<void> owner(program, [call = call_](void* p) { call->destroy(&p); });
    // sm_90a: instructions of that architecture alone are allowed.
    const std::string target = fmt::format("--gpu-architecture=sm_{}{}", capability, capability == 90 ? "a" : "");
    const char* words[] = {target.c_str(), "--std=c++17"};
    if (const int result = call_->compile(program, 2, words); result != 0) {
        size_t size = 0;
        call_->check(call_->log_size(program, &size), "say what is wrong");
        std::string log(size, '\0');
        call_->check(call_->log(program, log.data()), "say what is wrong");
        throw RuntimeError(
            fmt::format("NVRTC refuses the text of a kernel ({}): {}", call_->error(result), log.substr(0, 4000)));
    }
    size_t size = 0;
    call_->check(call_->code_size(program, &size), "hand out the code");
    std::string code(size, '\0');
    call_->check(call_->code(program, code.data()), "hand out the code");
    return code;
}

}  // namespace tilewright::cuda
