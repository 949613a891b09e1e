#include "driver/npz.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "compile/limits.h"
#include "driver/files.h"
#include "driver/npy.h"
#include "graph/graph.h"

namespace tilewright {

namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint16_t kStored = 0, kDeflated = 8, kZip64Field = 1;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // a size or offset that is in the ZIP64 field instead

/// Checked reads of the numbers of an archive.
class Reader {
  public:
    Reader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

    uint64_t number(uint64_t at, size_t size) const {
        const std::string_view text = range(at, size);
        uint64_t v = 0;
        for (size_t i = 0; i < size; ++i) v |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
        return v;
    }
    uint16_t u16(uint64_t at) const { return static_cast<uint16_t>(number(at, 2)); }
    uint32_t u32(uint64_t at) const { return static_cast<uint32_t>(number(at, 4)); }
    uint64_t u64(uint64_t at) const { return number(at, 8); }
    std::string_view range(uint64_t at, uint64_t size) const {
        if (at > bytes_.size() || size > bytes_.size() - at) damaged();
        return bytes_.substr(at, size);
    }
    uint64_t size() const { return bytes_.size(); }
    [[noreturn]] void damaged() const { model_error("'{}' is cut off, damaged or not an .npz file", path_); }

  private:
    std::string_view bytes_;
    const std::string& path_;
};

struct Member {
    std::string name;
    uint16_t method = 0, flags = 0;
    uint32_t checksum = 0;
    uint64_t packed = 0, size = 0, local = 0;
};

/// The start of the central directory, and the number of its entries.
std::pair<uint64_t, uint64_t> find_directory(const Reader& r) {
    constexpr uint64_t kEndSize = 22, kLongestComment = 65535, kLocatorSize = 20;
    if (r.size() < kEndSize) r.damaged();
    const uint64_t last = r.size() - kEndSize, first = last > kLongestComment ? last - kLongestComment : 0;
    for (uint64_t at = last;; --at) {
        if (r.u32(at) == kEnd) {
            const uint16_t count = r.u16(at + 10);
            const uint32_t offset = r.u32(at + 16);
            if ((count != 0xFFFF && offset != kIn64) || at < kLocatorSize) return {offset, count};
            if (r.u32(at - kLocatorSize) != kLocator64) return {offset, count};
            const uint64_t end64 = r.u64(at - kLocatorSize + 8);
            if (r.u32(end64) != kEnd64) r.damaged();
            return {r.u64(end64 + 48), r.u64(end64 + 32)};
        }
        if (at == first) r.damaged();
    }
}

/// The member whose entry begins at `at`; advances `at` to the next entry.
Member read_entry(const Reader& r, uint64_t& at) {
    if (r.u32(at) != kCentral) r.damaged();
    Member m;
    m.flags = r.u16(at + 8);
    m.method = r.u16(at + 10);
    m.checksum = r.u32(at + 16);
    m.packed = r.u32(at + 20);
    m.size = r.u32(at + 24);
    m.local = r.u32(at + 42);
    const uint64_t name = r.u16(at + 28), extra = r.u16(at + 30), comment = r.u16(at + 32);
    constexpr uint64_t kFixed = 46;
    m.name = std::string(r.range(at + kFixed, name));
    const uint64_t end = at + kFixed + name + extra;
    for (uint64_t field = at + kFixed + name; field + 4 <= end;) {
        uint64_t value = field + 4;
        const uint64_t next = value + r.u16(field + 2);
        if (r.u16(field) == kZip64Field)
            for (uint64_t* part : {&m.size, &m.packed, &m.local})
                if (*part == kIn64 && value + 8 <= next) {
                    *part = r.u64(value);
                    value += 8;
                }
        field = next;
    }
    at = end + comment;
    return m;
}

std::string inflated(std::string_view packed, const Member& m, const std::string& what) {
    // Deflate compresses at most 1032 to 1: a larger declared size is invalid, and no memory is allocated for it.
    constexpr uint64_t kBestRatio = 1032;
    if (m.size / kBestRatio > packed.size())
        model_error("{} declares {} bytes, which {} packed bytes cannot hold", what, m.size, packed.size());
    require_memory(m.size, what);
    std::string out(m.size, '\0');
    z_stream z{};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK) throw RuntimeError("zlib cannot be set up: out of memory");
    const auto* in = reinterpret_cast<const unsigned char*>(packed.data());
    uint64_t read = 0, written = 0;
    int status = Z_OK;
    while (status == Z_OK) {  // zlib's counters have 32 bits
        constexpr uint64_t kMostAtOnce = uint64_t{1} << 30;
        z.next_in = const_cast<unsigned char*>(in + read);
        z.avail_in = static_cast<uInt>(std::min(packed.size() - read, kMostAtOnce));
        z.next_out = reinterpret_cast<unsigned char*>(out.data() + written);
        z.avail_out = static_cast<uInt>(std::min(m.size - written, kMostAtOnce));
        const uInt had_in = z.avail_in, had_out = z.avail_out;
        status = inflate(&z, Z_NO_FLUSH);
        read += had_in - z.avail_in;
        written += had_out - z.avail_out;
    }
    inflateEnd(&z);
    if (status != Z_STREAM_END || written != m.size)
        model_error("{} is damaged: it does not inflate to the {} bytes it declares", what, m.size);
    return out;
}

uint32_t checksum_of(std::string_view bytes, uint32_t before = 0) {
    if (bytes.empty()) return before;
    return static_cast<uint32_t>(crc32_z(before, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

Tensor read_member(const Reader& r, const Member& m, const std::string& what) {
    if ((m.flags & 1) != 0) model_error("{} is encrypted", what);
    if (r.u32(m.local) != kLocal) r.damaged();
    constexpr uint64_t kFixed = 30;
    const uint64_t begin = m.local + kFixed + r.u16(m.local + 26) + r.u16(m.local + 28);
    const std::string_view packed = r.range(begin, m.packed);
    if (m.method != kStored && m.method != kDeflated)
        throw ModelError(fmt::format("{} is packed by method {}, which Tilewright does not read", what, m.method),
                         "write the archive with numpy.savez or numpy.savez_compressed");
    if (m.method == kStored && m.packed != m.size) r.damaged();
    const std::string unpacked = m.method == kDeflated ? inflated(packed, m, what) : std::string();
    const std::string_view bytes = m.method == kDeflated ? std::string_view(unpacked) : packed;
    if (checksum_of(bytes) != m.checksum) model_error("{} is damaged: its checksum is wrong", what);
    return parse_npy(bytes, what);
}

// --- writing

void put(std::string& out, uint64_t v, size_t size) {
    for (size_t i = 0; i < size; ++i) out += static_cast<char>(v >> (8 * i) & 255);
}

std::string deflated(std::string_view header, std::string_view data) {
    z_stream z{};
    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, -MAX_WBITS, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        throw RuntimeError("zlib cannot be set up: out of memory");
    std::string out;
    std::string block(size_t{1} << 18, '\0');
    const auto feed = [&](std::string_view part, bool last) {
        do {
            const size_t n = std::min(part.size(), size_t{1} << 30);
            z.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(part.data()));
            z.avail_in = static_cast<uInt>(n);
            part.remove_prefix(n);
            do {
                z.next_out = reinterpret_cast<unsigned char*>(block.data());
                z.avail_out = static_cast<uInt>(block.size());
                deflate(&z, last && part.empty() ? Z_FINISH : Z_NO_FLUSH);
                out.append(block.data(), block.size() - z.avail_out);
            } while (z.avail_out == 0);
        } while (!part.empty());
    };
    feed(header, false);
    feed(data, true);
    deflateEnd(&z);
    return out;
}

/// Extracting the archive must not write outside of its folder.
std::string member_name(const std::string& tensor) {
    const bool leads_out =
        tensor.empty() || tensor.front() == '/' || tensor.find('\\') != std::string::npos ||
        ("/" + tensor + "/").find("/../") != std::string::npos ||
        std::any_of(tensor.begin(), tensor.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    return (leads_out ? file_name_of(tensor) : tensor) + ".npy";
}

/// The common fields of local header and directory entry.
std::string description(uint32_t checksum, uint64_t packed, uint64_t size, const std::string& name) {
    constexpr uint64_t kVersion = 20, kUtf8Names = 1 << 11, kFirstOf1980 = 33;
    std::string s;
    put(s, kVersion, 2);
    put(s, kUtf8Names, 2);
    put(s, kDeflated, 2);
    put(s, 0, 2);
    put(s, kFirstOf1980, 2);  // a fixed date: equal arrays give equal files
    put(s, checksum, 4);
    put(s, packed, 4);
    put(s, size, 4);
    put(s, name.size(), 2);
    put(s, 0, 2);
    return s;
}

}  // namespace

std::vector<NamedTensor> load_npz(const std::string& path) {
    const std::string bytes = read_file(path);
    const Reader r(bytes, path);
    auto [at, count] = find_directory(r);
    std::vector<NamedTensor> arrays;
    for (uint64_t i = 0; i < count; ++i) {
        Member m = read_entry(r, at);
        if (!m.name.ends_with(".npy")) continue;
        m.name.resize(m.name.size() - 4);
        for (const NamedTensor& a : arrays)
            if (a.name == m.name) model_error("'{}' has two arrays called {}", path, quoted_name(m.name));
        const std::string what = fmt::format("array {} of {}", quoted_name(m.name), path);
        arrays.push_back({m.name, read_member(r, m, what)});
    }
    return arrays;
}

void save_npz(const std::string& path, const std::vector<NamedTensor>& arrays) {
    std::string file, directory;
    std::map<std::string, int> used;
    for (const NamedTensor& a : arrays) {
        std::string name = member_name(a.name);
        if (const int n = used[name]++; n > 0) name.insert(name.size() - 4, fmt::format("_{}", n));
        const Tensor t = numpy_tensor(a.value);
        const std::string header = npy_header(t);
        const std::string_view data(static_cast<const char*>(t.data()), t.bytes());
        const std::string packed = deflated(header, data);
        const uint64_t size = header.size() + data.size();
        if (name.size() > 0xFFFF)
            throw RuntimeError(
                fmt::format("cannot write '{}': the name of output {} has {} bytes, and an archive holds {}", path,
                            quoted_name(a.name), a.name.size(), 0xFFFF));
        if (size >= kIn64 || file.size() + packed.size() >= kIn64 || arrays.size() >= 0xFFFF)
            throw RuntimeError(
                fmt::format("cannot write '{}': the outputs exceed the limit of an archive (4 GiB)", path));
        const std::string common = description(checksum_of(data, checksum_of(header)), packed.size(), size, name);
        put(directory, kCentral, 4);
        put(directory, 20, 2);
        directory += common;
        directory.append(2 + 2 + 2 + 4, '\0');  // comment, disk, attributes
        put(directory, file.size(), 4);
        directory += name;
        put(file, kLocal, 4);
        file += common;
        file += name;
        file += packed;
    }
    std::string end;
    put(end, kEnd, 4);
    put(end, 0, 4);
    put(end, arrays.size(), 2);
    put(end, arrays.size(), 2);
    put(end, directory.size(), 4);
    put(end, file.size(), 4);
    put(end, 0, 2);
    write_file(path, {file, directory, end});
}

}  // namespace tilewright
