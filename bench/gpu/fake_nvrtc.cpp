// A fake NVRTC for tests of the command line, beside fake_driver.cpp: every text compiles to a file that the fake
// driver accepts.

#include <cstring>

namespace {
constexpr char kCode[] =
    "\x7f"
    "ELF";
}

// NOLINTBEGIN(readability-identifier-naming): NVRTC's names
extern "C" {
int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*, const char* const*) {
    static char some;
    *program = &some;
    return text == nullptr ? 4 : 0;  // invalid input
}
int nvrtcDestroyProgram(void** program) { return *program = nullptr, 0; }
int nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
int nvrtcGetProgramLogSize(void*, size_t* size) { return *size = 1, 0; }
int nvrtcGetProgramLog(void*, char* text) { return *text = '\0', 0; }
int nvrtcGetCUBINSize(void*, size_t* size) { return *size = sizeof kCode, 0; }
int nvrtcGetCUBIN(void*, char* bytes) { return std::memcpy(bytes, kCode, sizeof kCode), 0; }
const char* nvrtcGetErrorString(int) { return "some error"; }
}
// NOLINTEND(readability-identifier-naming)
