#include "backend/cpu/elf_object.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>

namespace tilewright::cpu {

namespace {

struct Machine {
    uint16_t elf;
    uint32_t address;        ///< the relocation of an address of 64 bits
    uint64_t far_from_code;  ///< the section flag for data that is not referenced by 32-bit offsets
};

Machine machine_of(std::string_view arch) {
    if (arch == "aarch64") return {EM_AARCH64, R_AARCH64_ABS64, 0};
    return {EM_X86_64, R_X86_64_64, 0x10000000};  // SHF_X86_64_LARGE
}

constexpr uint64_t kPage = 4096, kReadBehind = 64;

/// Sections in file order, after the null section.
enum Section : uint16_t { kPlan = 1, kWeights, kTable, kRelocations, kSymbols, kStrings, kStack, kSectionCount };

class Writer {
  public:
    explicit Writer(const SharedObject& object)
        : o_(object), machine_(machine_of(object.arch)), kernels_(kernel_objects(object)) {}

    std::string file() {
        bytes_.append(sizeof(Elf64_Ehdr), '\0');
        section(kPlan, ".rodata.tilewright", SHT_PROGBITS, SHF_ALLOC, 64, [&] { plans(); });
        section(kWeights, ".lrodata.tilewright", SHT_PROGBITS, SHF_ALLOC | machine_.far_from_code, kPage,
                [&] { weights(); });
        section(kTable, ".data.rel.ro.tilewright", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 8, [&] { table(); });
        section(kRelocations, ".rela.data.rel.ro.tilewright", SHT_RELA, SHF_INFO_LINK, 8, [&] { relocations(); });
        sections_[kRelocations].sh_link = kSymbols;
        sections_[kRelocations].sh_info = kTable;
        sections_[kRelocations].sh_entsize = sizeof(Elf64_Rela);
        section(kSymbols, ".symtab", SHT_SYMTAB, 0, 8, [&] { symbols(); });
        sections_[kSymbols].sh_link = kStrings;
        sections_[kSymbols].sh_info = kFirstGlobal;
        sections_[kSymbols].sh_entsize = sizeof(Elf64_Sym);
        // Empty: without it linkers take the code for one that executes its stack.
        sections_[kStack].sh_name = name_of(".note.GNU-stack");
        section(kStrings, ".strtab", SHT_STRTAB, 0, 1, [&] { bytes_ += strings_; });
        sections_[kStack].sh_type = SHT_PROGBITS;
        sections_[kStack].sh_addralign = 1;
        sections_[kStack].sh_offset = bytes_.size();
        header();
        return std::move(bytes_);
    }

  private:
    // Symbols: null, the sections of plan, weights and table; then the exported symbol and the kernels.
    static constexpr uint32_t kFirstGlobal = 4, kFirstKernel = kFirstGlobal + 1;
    static constexpr uint64_t kHead = 40, kVariant = 32;  ///< bytes of the table: before the variants, and of one
    static constexpr uint64_t kPlanAlignment = 64;

    template <class T>
    void put(const T& value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }

    void align(uint64_t to) { bytes_.append((to - bytes_.size() % to) % to, '\0'); }

    template <class F>
    void section(Section s, const char* name, uint32_t type, uint64_t flags, uint64_t alignment, const F& write) {
        Elf64_Shdr& h = sections_[s];
        h.sh_name = name_of(name);
        h.sh_type = type;
        h.sh_flags = flags;
        h.sh_addralign = alignment;
        align(alignment);
        h.sh_offset = bytes_.size();
        write();
        h.sh_size = bytes_.size() - h.sh_offset;
    }

    uint32_t name_of(const std::string& name) {
        const auto at = static_cast<uint32_t>(strings_.size());
        strings_.append(name).append(1, '\0');
        return at;
    }

    void weights() {
        const uint64_t start = bytes_.size();
        bytes_.reserve(start + o_.weight_bytes + kPage + kernels_.size() * 128);
        for (const SharedObject::Block& b : o_.weights) {
            bytes_.append(start + b.offset - bytes_.size(), '\0');
            bytes_ += b.bytes;
        }
        bytes_.append(start + o_.weight_bytes + kReadBehind - bytes_.size(), '\0');
    }

    void plans() {
        const uint64_t start = bytes_.size();
        for (const SharedObject::Variant& v : o_.variants) {
            align(kPlanAlignment);
            plans_.push_back(bytes_.size() - start);
            bytes_ += v.plan;
        }
    }

    /// Where the addresses of the kernels begin in the table.
    uint64_t first_kernel() const { return kHead + kVariant * o_.variants.size(); }

    void table() {
        std::string magic(o_.magic);
        magic.resize(8);
        bytes_ += magic;
        put(o_.abi);
        put(static_cast<uint32_t>(o_.variants.size()));
        put(uint64_t{0});  // variants
        put(uint64_t{0});  // weights
        put(o_.weight_bytes);
        for (const SharedObject::Variant& v : o_.variants) {
            put(uint64_t{0});  // plan
            put(static_cast<uint64_t>(v.plan.size()));
            put(uint64_t{0});  // kernels
            put(static_cast<uint64_t>(v.kernels.size()));
        }
        for (size_t k = 0; k < kernels_.size(); ++k) put(uint64_t{0});
    }

    void relocation(uint64_t at, uint32_t symbol, int64_t addend) {
        put(Elf64_Rela{at, ELF64_R_INFO(uint64_t{symbol}, machine_.address), addend});
    }

    void relocations() {
        relocation(16, kTable, kHead);
        relocation(24, kWeights, 0);
        uint64_t kernel = first_kernel();
        for (size_t v = 0; v < o_.variants.size(); ++v) {
            relocation(kHead + kVariant * v, kPlan, static_cast<int64_t>(plans_[v]));
            relocation(kHead + kVariant * v + 16, kTable, static_cast<int64_t>(kernel));
            kernel += 8 * o_.variants[v].kernels.size();
        }
        for (size_t k = 0; k < kernels_.size(); ++k)
            relocation(first_kernel() + 8 * k, kFirstKernel + static_cast<uint32_t>(k), 0);
    }

    void symbols() {
        put(Elf64_Sym{});
        for (const Section s : {kPlan, kWeights, kTable})
            put(Elf64_Sym{0, ELF64_ST_INFO(STB_LOCAL, STT_SECTION), 0, s, 0, 0});
        put(Elf64_Sym{name_of(o_.symbol), ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), STV_DEFAULT, kTable, 0,
                      first_kernel() + 8 * kernels_.size()});
        for (const KernelObject& k : kernels_)  // hidden: a reference's visibility applies to the definition
            put(Elf64_Sym{name_of(k.symbol), ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), STV_HIDDEN, SHN_UNDEF, 0, 0});
    }

    void header() {
        align(8);
        Elf64_Ehdr h{};
        std::memcpy(h.e_ident, ELFMAG, SELFMAG);
        h.e_ident[EI_CLASS] = ELFCLASS64;
        h.e_ident[EI_DATA] = ELFDATA2LSB;
        h.e_ident[EI_VERSION] = EV_CURRENT;
        h.e_type = ET_REL;
        h.e_machine = machine_.elf;
        h.e_version = EV_CURRENT;
        h.e_shoff = bytes_.size();
        h.e_ehsize = sizeof(Elf64_Ehdr);
        h.e_shentsize = sizeof(Elf64_Shdr);
        h.e_shnum = kSectionCount;
        h.e_shstrndx = kStrings;
        for (const Elf64_Shdr& s : sections_) put(s);
        std::memcpy(bytes_.data(), &h, sizeof h);
    }

    const SharedObject& o_;
    const Machine machine_;
    const std::vector<KernelObject> kernels_;
    std::vector<uint64_t> plans_;  ///< offsets in their section
    std::string bytes_;
    std::string strings_ = std::string(1, '\0');
    Elf64_Shdr sections_[kSectionCount] = {};
};

}  // namespace

std::vector<KernelObject> kernel_objects(const SharedObject& object) {
    std::vector<KernelObject> out;
    for (size_t v = 0; v < object.variants.size(); ++v)
        for (size_t k = 0; k < object.variants[v].kernels.size(); ++k)
            out.push_back({fmt::format("{}{}_{}", object.kernel_prefix, v, k), object.variants[v].kernels[k]});
    return out;
}

std::string data_object(const SharedObject& object) { return Writer(object).file(); }

}  // namespace tilewright::cpu
