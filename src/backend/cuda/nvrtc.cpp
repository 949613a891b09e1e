#include "backend/cuda/nvrtc.h"

#include <sstream>

#include "base/error.h"
#include "base/shared_library.h"

namespace tilewright::cuda {

/// As nvrtc.h of CUDA declares them; every result is 0 where all went well.
struct Nvrtc::Functions {
    explicit Functions(SharedLibrary found) : library(std::move(found)) {}

    SharedLibrary library;
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

SharedLibrary usual_library(const std::vector<std::string>& names) {
    const std::vector<std::string> usual = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    return {"NVRTC", names.empty() ? usual : names,
            "kernels for GPUs need CUDA's run-time compiler (libnvrtc) where the loader looks, as in LD_LIBRARY_PATH"};
}

}  // namespace

Nvrtc::Nvrtc(const std::vector<std::string>& names) : Nvrtc(usual_library(names)) {}

Nvrtc::Nvrtc(const SharedLibrary& library) {
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
    return compiled(text, capability, {}).code;
}

std::map<std::string, KernelUse> Nvrtc::uses(const std::string& text, int capability,
                                             const std::vector<std::string>& options) const {
    std::vector<std::string> all = options;
    all.emplace_back("--ptxas-options=-v");
    return parse_uses(compiled(text, capability, all).log);
}

Nvrtc::Compiled Nvrtc::compiled(const std::string& text, int capability,
                                const std::vector<std::string>& options) const {
    void* program = nullptr;
    call_->check(call_->create(&program, text.c_str(), "kernels.cu", 0, nullptr, nullptr), "take a text");
    const std::shared_ptr<void> owner(program, [call = call_](void* p) { call->destroy(&p); });
    // sm_90a: instructions of that architecture alone are allowed.
    const std::string target = "--gpu-architecture=" + architecture_name(capability);
    std::vector<const char*> words = {target.c_str(), "--std=c++17"};
    for (const std::string& o : options) words.push_back(o.c_str());
    const int result = call_->compile(program, static_cast<int>(words.size()), words.data());
    size_t size = 0;
    call_->check(call_->log_size(program, &size), "say what is wrong");
    std::string log(size, '\0');
    call_->check(call_->log(program, log.data()), "say what is wrong");
    if (result != 0)
        throw RuntimeError(
            fmt::format("NVRTC refuses the text of a kernel ({}): {}", call_->error(result), log.substr(0, 4000)));
    call_->check(call_->code_size(program, &size), "hand out the code");
    std::string code(size, '\0');
    call_->check(call_->code(program, code.data()), "hand out the code");
    return {std::move(code), std::move(log)};
}

std::map<std::string, KernelUse> parse_uses(const std::string& log) {
    // ptxas info    : Compiling entry function 'k' for 'sm_90a'
    // ptxas info    : Function properties for k
    // ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
    // ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem
    std::map<std::string, KernelUse> out;
    std::string name;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
        const std::string_view head = "Compiling entry function '";
        if (const size_t at = line.find(head); at != std::string::npos) {
            const size_t begin = at + head.size();
            name = line.substr(begin, line.find('\'', begin) - begin);
            out[name] = {};
        }
        if (name.empty()) continue;
        /// The number in front of these words; 0 where they are not there.
        const auto before = [&](std::string_view words) -> int64_t {
            size_t end = line.find(words);
            if (end == std::string::npos) return 0;
            size_t begin = end;
            while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
            return begin == end ? 0 : std::stoll(line.substr(begin, end - begin));
        };
        KernelUse& use = out[name];
        if (line.find("bytes stack frame") != std::string::npos) {
            use.stack_bytes = before(" bytes stack frame");
            use.spilled_bytes = before(" bytes spill stores") + before(" bytes spill loads");
        } else if (line.find("Used ") != std::string::npos) {
            use.registers = static_cast<int>(before(" registers"));
            use.shared_bytes = before(" bytes smem");
        }
    }
    return out;
}

}  // namespace tilewright::cuda
