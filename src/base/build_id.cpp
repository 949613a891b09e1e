#include "base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

namespace tilewright {

namespace {

struct Wanted {
    const void* address = nullptr;
    std::string id;
};

/// The build id in the notes of a segment.
std::string id_in(const char* at, size_t bytes) {
    constexpr auto aligned = [](size_t n) { return (n + 3) / 4 * 4; };
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        std::memcpy(&note, at, sizeof note);
        const size_t name = aligned(note.n_namesz), all = sizeof note + name + aligned(note.n_descsz);
        if (all > bytes) return {};
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(at + sizeof note, "GNU", 4) == 0) {
            std::string id;
            for (size_t k = 0; k < note.n_descsz; ++k)
                id += fmt::format("{:02x}", static_cast<unsigned char>(at[sizeof note + name + k]));
            return id;
        }
        at += all;
        bytes -= all;
    }
    return {};
}

int look(dl_phdr_info* module, size_t, void* data) {
    auto& wanted = *static_cast<Wanted*>(data);
    const auto address = reinterpret_cast<uintptr_t>(wanted.address);
    bool here = false;
    for (int k = 0; k < module->dlpi_phnum; ++k) {
        const ElfW(Phdr)& segment = module->dlpi_phdr[k];
        const uintptr_t from = module->dlpi_addr + segment.p_vaddr;
        here = here || (segment.p_type == PT_LOAD && address >= from && address < from + segment.p_memsz);
    }
    if (!here) return 0;
    for (int k = 0; k < module->dlpi_phnum && wanted.id.empty(); ++k) {
        const ElfW(Phdr)& segment = module->dlpi_phdr[k];
        if (segment.p_type == PT_NOTE)
            wanted.id = id_in(reinterpret_cast<const char*>(module->dlpi_addr + segment.p_vaddr), segment.p_memsz);
    }
    return 1;
}

}  // namespace

const std::string& build_id() {
    static const std::string id = [] {
        Wanted wanted;
        wanted.address = reinterpret_cast<const void*>(&look);
        ::dl_iterate_phdr(look, &wanted);
        return wanted.id;
    }();
    return id;
}

}  // namespace tilewright
