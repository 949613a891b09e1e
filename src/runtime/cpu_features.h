#pragma once
// Instructions of CPUs: the sets that code is generated for, and what this process's CPU has.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/control_group.h"

namespace tilewright {

/// The architecture that this program was compiled for.
#if defined(__aarch64__)
inline constexpr std::string_view kHostArch = "aarch64";
#else
inline constexpr std::string_view kHostArch = "x86_64";
#endif

/// Vector instructions, by what code generation distinguishes. Each x86 level includes the one before.
enum class VectorIsa : uint8_t {
    baseline,  ///< x86-64 as of 2003 (SSE2, no fused multiply-add), or an unknown machine: 128 bits, 16 registers
    avx2,      ///< AVX2, FMA, F16C, BMI2 (x86-64-v3): 256 bits, 16 registers
    avx512,    ///< AVX-512 F, CD, BW, DQ, VL (x86-64-v4): 512 bits, 32 registers
    neon       ///< AArch64 Advanced SIMD: 128 bits, 32 registers
};
std::string_view to_string(VectorIsa isa);  ///< "baseline", "avx2", ...
std::optional<VectorIsa> vector_isa_from_string(std::string_view s);
std::string_view llvm_name(VectorIsa isa);  ///< of the CPU that has it and nothing more: "x86-64-v3"

/// An instruction set; `required` are the features that a CPU must have for it, `implied` all others of such CPUs.
struct VectorIsaRow {
    VectorIsa isa;
    std::string_view name, arch;
    std::string_view llvm_name;  ///< LLVM's CPU that has it and nothing more
    int vector_bits, vector_registers;
    std::vector<std::string_view> required, implied;
};

/// Of each architecture from the least to the most.
const std::vector<VectorIsaRow>& vector_isa_rows();
const VectorIsaRow& vector_isa_row(VectorIsa isa);
/// `required` and `implied` together, sorted.
std::vector<std::string> features_of(VectorIsa isa);

/// Instructions that code can be restricted to: vector instructions, and others that use their registers or the CPU's
/// matrix units.
struct CodeLevel {
    std::string_view name;  ///< "avx512-bf16"
    VectorIsa isa;
    std::vector<std::string_view> more;  ///< features beside those of `isa`

    std::string_view arch() const { return vector_isa_row(isa).arch; }
};

/// Of each architecture; a level stands behind those whose features it has.
const std::vector<CodeLevel>& code_levels();
std::optional<CodeLevel> code_level_from_string(std::string_view name);
/// Names of those of this machine's architecture.
std::vector<std::string> selectable_isas();

/// The value of the first line "key : value" of /proc/cpuinfo's text.
std::optional<std::string_view> cpuinfo_field(std::string_view cpuinfo, std::string_view key);
/// The features that change generated code, as LLVM spells them, sorted, of the first processor in /proc/cpuinfo's
/// text.
std::vector<std::string> features_in(std::string_view cpuinfo, std::string_view arch);
/// Those of this CPU that this process may use. The first call requests tile registers (AMX) from the system where
/// the CPU has them; they are not listed if it refuses.
std::vector<std::string> host_features(const FileReader& read = read_text_file);

/// The CPUs that code runs on.
struct Platform {
    std::string arch;  ///< "x86_64"
    std::string cpu;   ///< that the code was made for, where it is for such CPUs alone
    VectorIsa isa = VectorIsa::baseline;
    std::vector<std::string> features;  ///< that the code may use; as LLVM spells them, sorted
    friend bool operator==(const Platform&, const Platform&) = default;
};

}  // namespace tilewright
