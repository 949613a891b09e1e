#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/private_folder.h"

namespace tilewright {

MappedFile::MappedFile(const std::string& path) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    map(file.get(), path);
}

MappedFile::MappedFile(int file, const std::string& name) { map(file, name); }

void MappedFile::map(int file, const std::string& name) {
    struct stat status {};
    void* data = MAP_FAILED;
    if (file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        size_ = static_cast<size_t>(status.st_size);
        data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    }
    if (data == MAP_FAILED) throw RuntimeError(fmt::format("cannot read '{}'", name));
    data_ = data;
}

MappedFile::~MappedFile() { ::munmap(data_, size_); }

}  // namespace tilewright
