#include "backend/cpu/shared_object_view.h"

#include <llvm/Object/Archive.h>
#include <llvm/Object/ELFObjectFile.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "backend/cpu/guarded.h"
#include "base/error.h"

namespace tilewright::cpu {

namespace {

using llvm::object::ELFObjectFileBase;
using llvm::object::ELFSymbolRef;
using llvm::object::RelocationRef;
using llvm::object::SectionRef;

/// The value, or ModelError with LLVM's message.
template <class T>
T checked(llvm::Expected<T> value) {
    if (value) return std::move(*value);
    throw ModelError("it is damaged: " + llvm::toString(value.takeError()));
}

std::string_view view(llvm::StringRef s) { return {s.data(), s.size()}; }

/// An offset in a section.
struct Place {
    SectionRef section;
    uint64_t offset = 0;
};

std::string_view bytes_at(const Place& place, uint64_t size) {
    const std::string_view all = view(checked(place.section.getContents()));
    if (place.offset > all.size() || size > all.size() - place.offset)
        throw ModelError("it is damaged: a part lies outside of its section");
    return all.substr(place.offset, size);
}

/// The exported data of an object file that begins with `magic`.
std::optional<Place> table_in(const ELFObjectFileBase& file, std::string_view magic) {
    const bool dynamic = file.getEType() == llvm::ELF::ET_DYN;
    for (const ELFSymbolRef symbol : dynamic ? file.getDynamicSymbolIterators() : file.symbols()) {
        if (symbol.getELFType() != llvm::ELF::STT_OBJECT) continue;
        const auto section = checked(symbol.getSection());
        if (section == file.section_end()) continue;
        const Place place{*section, checked(symbol.getValue()) - (dynamic ? section->getAddress() : 0)};
        const std::string_view contents = view(checked(section->getContents()));
        if (place.offset <= contents.size() && contents.substr(place.offset).starts_with(magic)) return place;
    }
    return std::nullopt;
}

Place place_of_address(const ELFObjectFileBase& file, uint64_t address) {
    for (const SectionRef& s : file.sections())
        if (address >= s.getAddress() && address - s.getAddress() < s.getSize()) return {s, address - s.getAddress()};
    throw ModelError("it is damaged: an address leads nowhere");
}

/// Where the addresses in a table lead. The linker has left relocations of them: an address in the file, or before
/// linking a symbol, and an addend.
class Addresses {
  public:
    Addresses(const ELFObjectFileBase& file, const Place& table) : table_(table) {
        if (file.getEType() == llvm::ELF::ET_DYN) {
            const uint64_t start = table.section.getAddress();
            for (const SectionRef& s : file.dynamic_relocation_sections())
                for (const RelocationRef& r : s.relocations())
                    if (r.getOffset() - start < table.section.getSize())
                        add(r.getOffset() - start, r, [&](uint64_t addend) { return place_of_address(file, addend); });
            return;
        }
        for (const SectionRef& s : file.sections()) {
            const auto relocated = checked(s.getRelocatedSection());
            if (relocated == file.section_end() || *relocated != table.section) continue;
            for (const RelocationRef& r : s.relocations()) {
                const auto symbol = r.getSymbol();
                if (symbol == file.symbol_end()) continue;
                const auto section = checked(symbol->getSection());
                if (section == file.section_end()) continue;  // a kernel, in a file of its own
                const uint64_t value = checked(symbol->getValue());
                add(r.getOffset(), r, [&](uint64_t addend) { return Place{*section, value + addend}; });
            }
        }
    }

    /// `offset`: of the address, from the table's begin.
    Place at(uint64_t offset) const {
        const auto found = places_.find(table_.offset + offset);
        if (found == places_.end()) throw ModelError("it is damaged: its table lacks an address");
        return found->second;
    }

  private:
    template <class F>
    void add(uint64_t offset, const RelocationRef& r, const F& place) {
        places_.emplace(offset, place(static_cast<uint64_t>(checked(llvm::object::ELFRelocationRef(r).getAddend()))));
    }

    const Place table_;
    std::map<uint64_t, Place> places_;  ///< by the offset in the table's section
};

template <class T>
T number(std::string_view bytes, uint64_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

std::optional<SharedObjectView> view_of(const llvm::object::Binary& binary, std::string_view magic, uint32_t abi) {
    const auto* file = llvm::dyn_cast<ELFObjectFileBase>(&binary);
    if (file == nullptr || !file->isLittleEndian() || !file->is64Bit()) return std::nullopt;
    const std::optional<Place> table = table_in(*file, magic);
    if (!table) return std::nullopt;
    constexpr uint64_t kHead = 40, kVariant = 32;  // SharedObject's table and its variants
    SharedObjectView out;
    out.arch = llvm::Triple::getArchTypeName(file->getArch()).str();
    out.abi = number<uint32_t>(bytes_at(*table, 12), 8);
    if (out.abi != abi) return out;
    const std::string_view head = bytes_at(*table, kHead);
    const Addresses addresses(*file, *table);
    const Place variants = addresses.at(16);
    out.weights = bytes_at(addresses.at(24), number<uint64_t>(head, 32));
    for (uint64_t v = 0; v < number<uint32_t>(head, 12); ++v) {
        const Place place{variants.section, variants.offset + v * kVariant};
        const std::string_view variant = bytes_at(place, kVariant);
        if (place.section != table->section) throw ModelError("it is damaged: its table has two parts");
        const uint64_t at = place.offset - table->offset, kernels = number<uint64_t>(variant, 24);
        bytes_at(addresses.at(at + 16), std::min(kernels, uint64_t{1} << 60) * 8);  // one address a kernel
        out.variants.push_back({bytes_at(addresses.at(at), number<uint64_t>(variant, 8)), kernels});
    }
    return out;
}

SharedObjectView view_unguarded(std::string_view file, std::string_view magic, uint32_t abi) {
    const llvm::MemoryBufferRef buffer({file.data(), file.size()}, "file");
    const auto binary = checked(llvm::object::createBinary(buffer));
    if (const auto* archive = llvm::dyn_cast<llvm::object::Archive>(binary.get())) {
        llvm::Error error = llvm::Error::success();
        std::optional<SharedObjectView> found;
        for (const llvm::object::Archive::Child& child : archive->children(error)) {
            if (found) continue;  // a range is read to its end: that says whether it ended by an error
            found = view_of(*checked(child.getAsBinary()), magic, abi);
        }
        if (error) throw ModelError("it is damaged: " + llvm::toString(std::move(error)));
        if (found) return *found;
    } else if (const auto found = view_of(*binary, magic, abi)) {
        return *found;
    }
    throw ModelError("it has no compiled model");
}

}  // namespace

SharedObjectView view_shared_object(std::string_view file, std::string_view magic, uint32_t abi) {
    SharedObjectView out;
    try {
        run_guarded(1, [&] { out = view_unguarded(file, magic, abi); });
    } catch (const InternalError&) {
        // LLVM's readers end the process where a section's header contradicts itself: run_guarded makes this of it.
        throw ModelError("it is damaged: LLVM cannot read its sections");
    }
    return out;
}

}  // namespace tilewright::cpu
