// A fake NVRTC for run.sh's dry run and tests of the command line, beside fake_driver.cpp: every text compiles to a
// file that the fake driver accepts, with the log that ptxas would write of kernels of few registers.

#include <cstring>
#include <string>

namespace {

constexpr char kCode[] =
    "\x7f"
    "ELF";

/// "ptxas info    : Compiling entry function 'k' for ..., Used 32 registers" for each TW_KERNEL(k, threads) of the
/// text.
std::string log_of(const std::string& text) {
    const std::string head = "TW_KERNEL(";
    std::string log;
    for (size_t at = text.find(head); at != std::string::npos; at = text.find(head, at + 1)) {
        const size_t name = at + head.size(), end = text.find(',', name);
        if (end == std::string::npos) break;
        log += "ptxas info    : Compiling entry function '" + text.substr(name, end - name) +
               "' for 'sm_90a'\nptxas info    : Used 32 registers\n";
    }
    return log;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVRTC's names
extern "C" {
int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*, const char* const*) {
    if (text == nullptr) return 4;  // invalid input
    *program = new std::string(log_of(text));
    return 0;
}
int nvrtcDestroyProgram(void** program) {
    delete static_cast<std::string*>(*program);
    return *program = nullptr, 0;
}
int nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
int nvrtcGetProgramLogSize(void* program, size_t* size) {
    return *size = static_cast<std::string*>(program)->size() + 1, 0;
}
int nvrtcGetProgramLog(void* program, char* text) {
    const auto* log = static_cast<std::string*>(program);
    return std::memcpy(text, log->c_str(), log->size() + 1), 0;
}
int nvrtcGetCUBINSize(void*, size_t* size) { return *size = sizeof kCode, 0; }
int nvrtcGetCUBIN(void*, char* bytes) { return std::memcpy(bytes, kCode, sizeof kCode), 0; }
const char* nvrtcGetErrorString(int) { return "some error"; }
}
// NOLINTEND(readability-identifier-naming)
