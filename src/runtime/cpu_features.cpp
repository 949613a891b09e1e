#include "runtime/cpu_features.h"

#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace tilewright {

namespace {

// Linux's name -> LLVM's, for the features that change the code one would generate.
constexpr std::pair<std::string_view, std::string_view> kX86Features[] = {
    {"pni", "sse3"},
    {"ssse3", "ssse3"},
    {"sse4_1", "sse4.1"},
    {"sse4_2", "sse4.2"},
    {"popcnt", "popcnt"},
    {"abm", "lzcnt"},
    {"movbe", "movbe"},
    {"bmi1", "bmi"},
    {"bmi2", "bmi2"},
    {"avx", "avx"},
    {"f16c", "f16c"},
    {"fma", "fma"},
    {"avx2", "avx2"},
    {"avx_vnni", "avxvnni"},
    {"avx512f", "avx512f"},
    {"avx512cd", "avx512cd"},
    {"avx512bw", "avx512bw"},
    {"avx512dq", "avx512dq"},
    {"avx512vl", "avx512vl"},
    {"avx512ifma", "avx512ifma"},
    {"avx512vbmi", "avx512vbmi"},
    {"avx512_vbmi2", "avx512vbmi2"},
    {"avx512_vnni", "avx512vnni"},
    {"avx512_bitalg", "avx512bitalg"},
    {"avx512_vpopcntdq", "avx512vpopcntdq"},
    {"avx512_bf16", "avx512bf16"},
    {"avx512_fp16", "avx512fp16"},
    {"amx_tile", "amx-tile"},
    {"amx_int8", "amx-int8"},
    {"amx_bf16", "amx-bf16"},
    {"gfni", "gfni"},
};
constexpr std::pair<std::string_view, std::string_view> kArmFeatures[] = {
    {"asimd", "neon"}, {"fp", "fp-armv8"}, {"asimdhp", "fullfp16"}, {"asimddp", "dotprod"}, {"atomics", "lse"},
    {"sve", "sve"},    {"sve2", "sve2"},   {"i8mm", "i8mm"},        {"bf16", "bf16"},
};

std::vector<std::string> llvm_features(std::string_view flags, bool arm) {
    std::set<std::string> found;
    while (!flags.empty()) {
        const size_t end = std::min(flags.find(' '), flags.size());
        const std::string_view flag = flags.substr(0, end);
        flags.remove_prefix(std::min(end + 1, flags.size()));
        const auto collect = [&](const auto& table) {
            for (const auto& [linux_name, llvm_name] : table) {
                if (flag == linux_name) found.emplace(llvm_name);
            }
        };
        arm ? collect(kArmFeatures) : collect(kX86Features);
    }
    return {found.begin(), found.end()};
}

}  // namespace

const std::vector<VectorIsaRow>& vector_isa_rows() {
    static const std::vector<VectorIsaRow> rows = [] {
        const std::vector<std::string_view> avx2 = {"avx", "avx2", "bmi", "bmi2", "f16c", "fma"};
        const std::vector<std::string_view> v3 = {"lzcnt", "movbe", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"};
        std::vector<std::string_view> avx512 = avx2;
        for (const char* name : {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}) avx512.emplace_back(name);
        return std::vector<VectorIsaRow>{
            {VectorIsa::baseline, "baseline", "x86_64", "x86-64", 128, 16, {}, {}},
            {VectorIsa::avx2, "avx2", "x86_64", "x86-64-v3", 256, 16, avx2, v3},
            {VectorIsa::avx512, "avx512", "x86_64", "x86-64-v4", 512, 32, avx512, v3},
            {VectorIsa::neon, "neon", "aarch64", "generic", 128, 32, {}, {"fp-armv8", "neon"}},
        };
    }();
    return rows;
}

const VectorIsaRow& vector_isa_row(VectorIsa isa) {
    for (const VectorIsaRow& row : vector_isa_rows())
        if (row.isa == isa) return row;
    internal_error(__FILE__, __LINE__, "isa", "a VectorIsa without a row");
}

std::vector<std::string> features_of(VectorIsa isa) {
    const VectorIsaRow& row = vector_isa_row(isa);
    std::vector<std::string> all(row.required.begin(), row.required.end());
    all.insert(all.end(), row.implied.begin(), row.implied.end());
    std::sort(all.begin(), all.end());
    return all;
}

std::string_view to_string(VectorIsa isa) { return vector_isa_row(isa).name; }
std::string_view llvm_name(VectorIsa isa) { return vector_isa_row(isa).llvm_name; }

std::optional<VectorIsa> vector_isa_from_string(std::string_view s) {
    for (const VectorIsaRow& row : vector_isa_rows())
        if (row.name == s) return row.isa;
    return std::nullopt;
}

const std::vector<CodeLevel>& code_levels() {
    static const std::vector<CodeLevel> levels = {
        {"avx2", VectorIsa::avx2, {}},
        {"avx2-vnni", VectorIsa::avx2, {"avxvnni"}},
        {"avx512", VectorIsa::avx512, {}},
        {"avx512-vnni", VectorIsa::avx512, {"avx512vnni"}},
        {"avx512-bf16", VectorIsa::avx512, {"avx512vnni", "avx512bf16"}},
        {"avx512-fp16", VectorIsa::avx512, {"avx512vnni", "avx512bf16", "avx512fp16"}},
        {"amx", VectorIsa::avx512, {"avx512vnni", "avx512bf16", "amx-tile", "amx-int8", "amx-bf16"}},
        {"neon", VectorIsa::neon, {}},
    };
    return levels;
}

std::optional<CodeLevel> code_level_from_string(std::string_view name) {
    for (const CodeLevel& level : code_levels())
        if (level.name == name) return level;
    return std::nullopt;
}

std::vector<std::string> selectable_isas() {
    std::vector<std::string> names;
    for (const CodeLevel& level : code_levels())
        if (level.arch() == kHostArch) names.emplace_back(level.name);
    return names;
}

std::optional<std::string_view> cpuinfo_field(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const size_t colon = line.find(':');
        if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key) return trim(line.substr(colon + 1));
    }
    return std::nullopt;
}

std::vector<std::string> features_in(std::string_view cpuinfo, std::string_view arch) {
    const bool arm = arch == "aarch64";
    const auto flags = cpuinfo_field(cpuinfo, arm ? "Features" : "flags");
    return flags ? llvm_features(*flags, arm) : std::vector<std::string>();
}

namespace {

/// Requests permission to use tile registers from Linux, which a process needs before its first instruction on them
/// (Linux, Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
#if defined(__x86_64__)
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
    return granted;
#else
    return false;
#endif
}

#if defined(__aarch64__)
/// From the auxiliary vector: in an emulator (qemu), /proc/cpuinfo describes the machine that it runs on.
std::vector<std::string> auxiliary_features() {
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    std::string flags;
    for (const auto& [bits, bit, name] :
         std::initializer_list<std::tuple<unsigned long, unsigned long, const char*>>{{first, HWCAP_FP, "fp"},
                                                                                      {first, HWCAP_ASIMD, "asimd"},
                                                                                      {first, HWCAP_ATOMICS, "atomics"},
                                                                                      {first, HWCAP_ASIMDHP, "asimdhp"},
                                                                                      {first, HWCAP_ASIMDDP, "asimddp"},
                                                                                      {first, HWCAP_SVE, "sve"},
                                                                                      {second, HWCAP2_SVE2, "sve2"},
                                                                                      {second, HWCAP2_I8MM, "i8mm"},
                                                                                      {second, HWCAP2_BF16, "bf16"}})
        if ((bits & bit) != 0) flags += std::string(flags.empty() ? "" : " ") + name;
    return llvm_features(flags, true);
}
#endif

}  // namespace

std::vector<std::string> host_features(const FileReader& read) {
#if defined(__aarch64__)
    if (std::vector<std::string> found = auxiliary_features(); !found.empty()) return found;
#endif
    std::vector<std::string> features = features_in(read("/proc/cpuinfo").value_or(""), kHostArch);
    const auto of_tiles = [](const std::string& feature) { return feature.starts_with("amx-"); };
    if (std::any_of(features.begin(), features.end(), of_tiles) && !may_use_tiles()) std::erase_if(features, of_tiles);
    return features;
}

}  // namespace tilewright
