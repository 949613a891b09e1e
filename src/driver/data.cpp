#include "driver/data.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "graph/import.h"

namespace tilewright {

namespace {

std::string read_file(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) model_error("cannot read '{}': no such file", path);
    std::ifstream in(path, std::ios::binary);
    if (!in) model_error("cannot read '{}'", path);
    return {std::istreambuf_iterator<char>(in), {}};
}

struct NpyType {
    const char* code;
    DType type;
};
constexpr NpyType kNpyTypes[] = {{"|b1", DType::Bool}, {"|i1", DType::I8},  {"|u1", DType::U8},  {"<i2", DType::I16},
                                 {"<u2", DType::U16},  {"<i4", DType::I32}, {"<u4", DType::U32}, {"<i8", DType::I64},
                                 {"<u8", DType::U64},  {"<f2", DType::F16}, {"<f4", DType::F32}, {"<f8", DType::F64}};

/// The text after 'key': in the header's dictionary.
std::string_view field(std::string_view header, std::string_view key, const std::string& path) {
    const size_t at = header.find("'" + std::string(key) + "'");
    if (at == std::string_view::npos) model_error("'{}' is no .npy file: its header has no '{}'", path, key);
    const size_t colon = header.find(':', at);
    if (colon == std::string_view::npos) model_error("'{}' is no .npy file: its header is cut off", path);
    size_t start = colon + 1;
    while (start < header.size() && header[start] == ' ') ++start;
    return header.substr(start);
}

Shape parse_shape(std::string_view text, const std::string& path) {
    Shape shape;
    if (text.empty() || text[0] != '(') model_error("'{}': its shape is no tuple", path);
    size_t i = 1;
    while (i < text.size() && text[i] != ')') {
        if (text[i] == ' ' || text[i] == ',' || text[i] == 'L') {
            ++i;
            continue;
        }
        int64_t v = 0;
        size_t digits = 0;
        while (i < text.size() && text[i] >= '0' && text[i] <= '9' && digits < 18) {
            v = v * 10 + (text[i] - '0');
            ++i;
            ++digits;
        }
        if (digits == 0 || shape.size() >= 64) model_error("'{}': its shape cannot be read", path);
        shape.push_back(v);
    }
    if (i >= text.size()) model_error("'{}': its shape is cut off", path);
    return shape;
}

}  // namespace

Tensor load_npy(const std::string& path) {
    const std::string bytes = read_file(path);
    if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0) model_error("'{}' is no .npy file", path);
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes.at(i))); };
    const size_t version = byte(6);
    size_t length = byte(8) | byte(9) << 8, start = 10;
    if (version >= 2) {
        if (bytes.size() < 12) model_error("'{}' is cut off", path);
        length |= byte(10) << 16 | byte(11) << 24;
        start = 12;
    }
    if (length > bytes.size() - start) model_error("'{}' is cut off", path);
    const std::string_view header = std::string_view(bytes).substr(start, length);
    const std::string_view code = field(header, "descr", path);
    const NpyType* type = nullptr;
    for (const NpyType& t : kNpyTypes)
        if (code.substr(1, 3) == t.code) type = &t;
    if (type == nullptr)
        model_error("'{}' holds elements of type {}, which Tilewright does not read", path,
                    code.substr(0, code.find(',')));
    const bool fortran = field(header, "fortran_order", path).substr(0, 4) == "True";
    const Shape shape = parse_shape(field(header, "shape", path), path);
    const int64_t count = element_count(shape);
    const size_t element = byte_size(type->type);
    const size_t have = bytes.size() - start - length;
    if (static_cast<uint64_t>(count) > have / element)
        model_error("'{}' has {} bytes of data, its shape {} needs {} elements of {}", path, have, to_string(shape),
                    count, element);
    Tensor out(type->type, shape, false);
    const char* data = bytes.data() + start + length;
    if (!fortran || shape.size() < 2) {
        if (out.bytes() > 0) std::memcpy(out.mutable_data(), data, out.bytes());
        return out;
    }
    std::vector<int64_t> at(shape.size(), 0);
    for (int64_t i = 0; i < count; ++i) {
        int64_t from = 0;
        for (size_t d = shape.size(); d-- > 0;) from = from * shape[d] + at[d];
        std::memcpy(static_cast<char*>(out.mutable_data()) + static_cast<size_t>(i) * element,
                    data + static_cast<size_t>(from) * element, element);
        for (size_t d = shape.size(); d-- > 0;) {
            if (++at[d] < shape[d]) break;
            at[d] = 0;
        }
    }
    return out;
}

void save_npy(const std::string& path, const Tensor& tensor) {
    Tensor t = tensor;
    const NpyType* type = nullptr;
    for (const NpyType& n : kNpyTypes)
        if (n.type == t.dtype()) type = &n;
    if (type == nullptr) {  // bf16 and the small types: as float32
        Tensor wide(DType::F32, t.shape(), false);
        for (int64_t i = 0; i < t.count(); ++i) wide.set(i, t.get(i));
        t = wide;
        type = &kNpyTypes[10];
    }
    std::string shape = "(";
    for (const int64_t d : t.shape()) shape += std::to_string(d) + ",";
    std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}), }}", type->code, shape);
    header.append(64 - (10 + header.size() + 1) % 64, ' ');
    header += '\n';
    std::ofstream out(path, std::ios::binary);
    const char version[] = {'\x93',
                            'N',
                            'U',
                            'M',
                            'P',
                            'Y',
                            1,
                            0,
                            static_cast<char>(header.size() & 255),
                            static_cast<char>(header.size() >> 8)};
    out.write(version, sizeof version);
    out << header;
    out.write(static_cast<const char*>(t.data()), static_cast<std::streamsize>(t.bytes()));
    out.flush();
    if (!out) throw RuntimeError("cannot write '" + path + "'");
}

Tensor load_tensor(const std::string& path) {
    if (path.ends_with(".npy")) return load_npy(path);
    if (path.ends_with(".pb")) return load_tensor_pb(path).value;
    model_error("'{}': expected a file that ends in .npy or .pb", path);
}

Tensor random_tensor(const std::string& name, DType dtype, const Shape& shape, uint64_t seed) {
    Tensor t(dtype, shape);
    const bool ones = dtype == DType::Bool || name.find("mask") != std::string::npos;
    uint64_t state = hash_combine(hash_text(name), seed);
    const auto uniform = [&] {
        state += 0x9E3779B97F4A7C15ull;
        return static_cast<double>(hash_mix(state) >> 11) * 0x1p-53;
    };
    for (int64_t i = 0; i < t.count(); ++i) {
        if (is_float(dtype) && !ones)
            t.set(i, (uniform() + uniform() + uniform() + uniform() - 2.0) * std::sqrt(3.0));
        else
            t.set(i, ones ? int64_t{1} : static_cast<int64_t>(uniform() * 2));
    }
    return t;
}

std::vector<Tensor> load_numbered(const std::string& folder, const std::string& prefix) {
    std::vector<Tensor> out;
    for (int i = 0;; ++i) {
        const std::string path = fmt::format("{}/{}_{}.pb", folder, prefix, i);
        struct stat info {};
        if (::stat(path.c_str(), &info) != 0) return out;
        out.push_back(load_tensor_pb(path).value);
    }
}

Shape input_shape(const ModelIo& io, const std::map<std::string, int64_t>& dims) {
    Bindings bindings;
    Shape shape;
    for (const Expr& d : io.shape) {
        for (const Var v : variables(d)) {
            const auto it = dims.find(var_name(v));
            bindings[v] = it != dims.end() ? it->second : 1;
        }
        shape.push_back(evaluate(d, bindings));
    }
    return shape;
}

}  // namespace tilewright
