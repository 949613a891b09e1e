#include "backend/cpu/shared_object.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <lld/Common/Driver.h>
#include <llvm/ObjCopy/ConfigManager.h>
#include <llvm/ObjCopy/ObjCopy.h>
#include <llvm/Object/ArchiveWriter.h>
#include <llvm/Object/ObjectFile.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "backend/cpu/elf_object.h"
#include "backend/cpu/guarded.h"
#include "base/error.h"
#include "base/file_size_signal.h"

namespace lld::elf {
bool link(llvm::ArrayRef<const char*> args, llvm::raw_ostream& out, llvm::raw_ostream& errors, bool exit_early,
          bool disable_output);
}

namespace tilewright::cpu {

namespace {

/// A temporary folder for the linker's inputs.
class LinkFolder {
  public:
    LinkFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "tilewright-link-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw RuntimeError(fmt::format("cannot make a folder '{}'", name));
        path_ = name;
    }
    ~LinkFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    LinkFolder(const LinkFolder&) = delete;
    LinkFolder& operator=(const LinkFolder&) = delete;
    const std::string& path() const { return path_; }

    std::string write(const std::string& name, std::string_view bytes) const {
        const std::string path = path_ + "/" + name;
        std::ofstream file(path, std::ios::binary);
        file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        file.close();
        if (!file) throw RuntimeError(fmt::format("cannot write '{}'", path));
        return path;
    }

  private:
    std::string path_;
};

std::string text_of_link_error(llvm::Error e) {
    std::string s;
    llvm::raw_string_ostream(s) << e;
    return s;
}

std::unique_ptr<llvm::object::ObjectFile> object_file(std::string_view bytes) {
    auto binary = llvm::object::ObjectFile::createObjectFile(
        llvm::MemoryBufferRef(llvm::StringRef(bytes.data(), bytes.size()), "kernel"));
    if (!binary) throw RuntimeError("LLVM: " + text_of_link_error(binary.takeError()));
    return std::move(*binary);
}

/// Returns the object file with its function `kernel` renamed.
std::string renamed(std::string_view object, const std::string& name) {
    const auto binary = object_file(object);
    llvm::objcopy::ConfigManager config;
    config.Common.SymbolsToRename["kernel"] = name;
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream out(bytes);
    if (llvm::Error e = llvm::objcopy::executeObjcopyOnBinary(config, *binary, out))
        throw RuntimeError("LLVM: " + text_of_link_error(std::move(e)));
    return {bytes.begin(), bytes.end()};
}

/// Returns the path of the loaded shared library that contains the function: generated code calls libm and memory
/// functions.
std::string library_with(const void* function) {
    Dl_info info{};
    if (::dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
    return info.dli_fname;
}

void run_linker(const std::vector<std::string>& arguments) {
    static std::mutex one_at_a_time;  // LLD keeps its state in globals
    const std::lock_guard lock(one_at_a_time);
    std::vector<const char*> argv;
    argv.reserve(arguments.size());
    for (const std::string& a : arguments) argv.push_back(a.c_str());
    std::string messages;
    llvm::raw_string_ostream stream(messages);
    static bool usable = true;
    if (!usable) throw RuntimeError("LLD cannot be used again in this process after an earlier failure");
    const lld::Result result = lld::lldMain(argv, stream, stream, {{lld::Gnu, &lld::elf::link}});
    usable = result.canRunAgain;
    if (result.retCode != 0) throw RuntimeError("LLD: " + stream.str());
}

/// Functions that an object file calls and does not have.
void collect_undefined(std::string_view object, std::set<std::string>& names) {
    const auto binary = object_file(object);
    for (const llvm::object::SymbolRef& symbol : binary->symbols()) {
        llvm::Expected<uint32_t> flags = symbol.getFlags();
        if (!flags) throw RuntimeError("LLVM: " + text_of_link_error(flags.takeError()));
        if ((*flags & llvm::object::SymbolRef::SF_Undefined) == 0) continue;
        llvm::Expected<llvm::StringRef> name = symbol.getName();
        if (!name) throw RuntimeError("LLVM: " + text_of_link_error(name.takeError()));
        if (!name->empty() && *name != "_GLOBAL_OFFSET_TABLE_") names.insert(name->str());
    }
}

/// This machine's libm and libc, or for kernels of another architecture a file that has their names and nothing else.
std::vector<std::string> called_libraries(const SharedObject& object, const LinkFolder& folder) {
    if (object.arch == kHostArch) {
        double (*const libm)(double) = &std::exp;
        // Not malloc or memcpy, which may be the program's own: an allocator linked into it, or a sanitizer's.
        long (*const libc)(int) = &::sysconf;
        std::vector<std::string> found;
        for (const void* f : {reinterpret_cast<const void*>(libm), reinterpret_cast<const void*>(libc)})
            if (std::string library = library_with(f); !library.empty()) found.push_back(std::move(library));
        return found;
    }
    std::set<std::string> names;
    for (const KernelObject& k : kernel_objects(object)) collect_undefined(k.object, names);
    SharedObject nothing;
    nothing.symbol = "nothing";
    nothing.arch = object.arch;
    const std::string path = folder.path() + "/libm.so.6";
    std::vector<std::string> arguments = {"ld.lld",
                                          "-shared",
                                          "-soname=libm.so.6",
                                          "--undefined=_GLOBAL_OFFSET_TABLE_",
                                          "-o",
                                          path,
                                          folder.write("nothing.o", data_object(nothing))};
    for (const std::string& name : names) arguments.push_back("--defsym=" + name + "=0");
    run_linker(arguments);
    return {path};
}

void link_to(const SharedObject& object, const LinkFolder& folder, const std::string& path) {
    std::vector<std::string> arguments = {"ld.lld", "-shared", "--build-id=none", "-z", "now", "-z", "relro", "-z",
                                          "noexecstack", "--hash-style=gnu", "--no-undefined", "--discard-all",
                                          "--strip-all", "--as-needed", "--orphan-handling=place",
                                          // LLD 19 keeps a pointer to this symbol from the last link that had it, and
                                          // writes through it: every link has it.
                                          "--undefined=_GLOBAL_OFFSET_TABLE_", "-o", path};
    run_guarded(1, [&] {
        const NoFileSizeSignal guard;
        for (const KernelObject& k : kernel_objects(object))
            arguments.push_back(folder.write(k.symbol + ".o", renamed(k.object, k.symbol)));
        arguments.push_back(folder.write("data.o", data_object(object)));
        for (std::string& library : called_libraries(object, folder)) arguments.push_back(std::move(library));
        run_linker(arguments);
    });
}

}  // namespace

void link_shared_object(const SharedObject& object, const std::string& path) { link_to(object, LinkFolder(), path); }

std::string linked_shared_object(const SharedObject& object) {
    const LinkFolder folder;
    const std::string path = folder.path() + "/linked.so";
    link_to(object, folder, path);
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file || bytes.empty()) throw RuntimeError(fmt::format("cannot read '{}'", path));
    return bytes;
}

void write_archive(const SharedObject& object, const std::string& path) {
    std::vector<std::string> names, files;
    run_guarded(1, [&] {
        const NoFileSizeSignal guard;
        for (const KernelObject& k : kernel_objects(object)) {
            names.push_back(k.symbol);
            files.push_back(renamed(k.object, k.symbol));
        }
        names.push_back(object.symbol);
        files.push_back(data_object(object));
        std::vector<llvm::NewArchiveMember> members;
        for (size_t k = 0; k < files.size(); ++k) {
            names[k] += ".o";
            members.emplace_back(llvm::MemoryBufferRef(files[k], names[k]));
        }
        llvm::Error failed = llvm::writeArchive(path, members, llvm::SymtabWritingMode::NormalSymtab,
                                                llvm::object::Archive::K_GNU, true, false);
        if (failed)
            throw RuntimeError(fmt::format("cannot write '{}': {}", path, text_of_link_error(std::move(failed))));
    });
}

}  // namespace tilewright::cpu
