#include "driver/npy.h"

#include <cstring>
#include <iterator>

#include "base/error.h"
#include "driver/files.h"

namespace tilewright {

namespace {

struct NpyType {
    const char* code;
    const char* name;
    DType type;
};
constexpr NpyType kTypes[] = {
    {"|b1", "bool", DType::Bool},   {"|i1", "int8", DType::I8},     {"|u1", "uint8", DType::U8},
    {"<i2", "int16", DType::I16},   {"<u2", "uint16", DType::U16},  {"<i4", "int32", DType::I32},
    {"<u4", "uint32", DType::U32},  {"<i8", "int64", DType::I64},   {"<u8", "uint64", DType::U64},
    {"<f2", "float16", DType::F16}, {"<f4", "float32", DType::F32}, {"<f8", "float64", DType::F64}};

const NpyType* type_of(DType t) {
    for (const NpyType& n : kTypes)
        if (n.type == t) return &n;
    return nullptr;
}

/// The text after 'key': in the header's dictionary.
std::string_view field(std::string_view header, std::string_view key, const std::string& name) {
    const size_t at = header.find("'" + std::string(key) + "'");
    if (at == std::string_view::npos) model_error("'{}' is not an .npy file: its header has no '{}'", name, key);
    const size_t colon = header.find(':', at);
    if (colon == std::string_view::npos) model_error("'{}' is not an .npy file: its header is cut off", name);
    size_t start = colon + 1;
    while (start < header.size() && header[start] == ' ') ++start;
    return header.substr(start);
}

/// '<f4' -> F32. Unsupported type codes are quoted in the error.
DType parse_type(std::string_view text, const std::string& name) {
    const size_t end = text.size() > 1 ? text.find(text[0], 1) : std::string_view::npos;
    const bool quoted = end != std::string_view::npos && (text[0] == '\'' || text[0] == '"');
    const std::string_view code = quoted ? text.substr(1, end - 1) : text.substr(0, 40);
    for (const NpyType& t : kTypes)
        if (code == t.code) return t.type;
    const bool big = quoted && code.starts_with('>');
    throw ModelError(fmt::format("'{}' holds elements of type '{}', which Tilewright does not read", name, code),
                     big ? "save it in little-endian order: a.astype(a.dtype.newbyteorder('<'))"
                         : "it reads bool, int8 to int64, uint8 to uint64, float16, float32 and float64");
}

Shape parse_shape(std::string_view text, const std::string& name) {
    constexpr size_t kMostDimensions = 64, kMostDigits = 18;
    Shape shape;
    if (text.empty() || text[0] != '(') model_error("'{}': its shape is not a tuple", name);
    size_t i = 1;
    while (i < text.size() && text[i] != ')') {
        if (text[i] == ' ' || text[i] == ',' || text[i] == 'L') {
            ++i;
            continue;
        }
        int64_t v = 0;
        size_t digits = 0;
        while (i < text.size() && text[i] >= '0' && text[i] <= '9' && digits < kMostDigits) {
            v = v * 10 + (text[i] - '0');
            ++i;
            ++digits;
        }
        if (digits == 0 || shape.size() >= kMostDimensions) model_error("'{}': its shape cannot be read", name);
        shape.push_back(v);
    }
    if (i >= text.size()) model_error("'{}': its shape is cut off", name);
    return shape;
}

/// Reorders column-major elements to row-major order.
void reorder(const char* from, Tensor& out) {
    const Shape& shape = out.shape();
    const size_t element = byte_size(out.dtype());
    auto* to = static_cast<char*>(out.mutable_data());
    std::vector<int64_t> at(shape.size(), 0);
    for (int64_t i = 0; i < out.count(); ++i) {
        int64_t source = 0;
        for (size_t d = shape.size(); d-- > 0;) source = source * shape[d] + at[d];
        std::memcpy(to + static_cast<size_t>(i) * element, from + static_cast<size_t>(source) * element, element);
        for (size_t d = shape.size(); d-- > 0;) {
            if (++at[d] < shape[d]) break;
            at[d] = 0;
        }
    }
}

}  // namespace

Tensor parse_npy(std::string_view bytes, const std::string& name) {
    if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0)
        model_error("'{}' is not an .npy file", name);
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
    size_t length = byte(8) | byte(9) << 8, start = 10;
    if (byte(6) >= 2) {  // from version 2 on the header's length has four bytes
        if (bytes.size() < 12) model_error("'{}' is cut off", name);
        length |= byte(10) << 16 | byte(11) << 24;
        start = 12;
    }
    if (length > bytes.size() - start) model_error("'{}' is cut off", name);
    const std::string_view header = bytes.substr(start, length);
    const DType type = parse_type(field(header, "descr", name), name);
    const bool fortran = field(header, "fortran_order", name).starts_with("True");
    const Shape shape = parse_shape(field(header, "shape", name), name);
    const int64_t count = element_count(shape);
    const size_t have = bytes.size() - start - length;
    if (static_cast<uint64_t>(count) > have / byte_size(type))
        model_error("'{}' has {} bytes of data, and its shape {} needs {} elements of {} bytes", name, have,
                    to_string(shape), count, byte_size(type));
    Tensor out(type, shape, false);
    const char* data = bytes.data() + start + length;
    if (fortran && shape.size() > 1)
        reorder(data, out);
    else if (out.bytes() > 0)
        std::memcpy(out.mutable_data(), data, out.bytes());
    if (type == DType::Bool)  // bytes other than 0 and 1 are normalised
        for (uint8_t& b : out.as_mutable<uint8_t>()) b = b != 0;
    return out;
}

bool has_numpy_type(DType t) { return type_of(t) != nullptr; }

std::string_view numpy_name(DType t) { return has_numpy_type(t) ? type_of(t)->name : "float32"; }

Tensor numpy_tensor(const Tensor& tensor) {
    if (has_numpy_type(tensor.dtype())) return tensor;
    Tensor wide(DType::F32, tensor.shape(), false);
    for (int64_t i = 0; i < tensor.count(); ++i) wide.set(i, tensor.get(i));
    return wide;
}

std::string npy_header(const Tensor& tensor) {
    const NpyType* type = type_of(tensor.dtype());
    TW_CHECK(type != nullptr, "{}", to_string(tensor.dtype()));
    std::string shape = "(";
    for (const int64_t d : tensor.shape()) shape += fmt::format("{},", d);
    std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}), }}", type->code, shape);
    constexpr size_t kBefore = 10, kAlignment = 64;  // the elements are aligned to 64 bytes
    text.append(kAlignment - (kBefore + text.size() + 1) % kAlignment, ' ');
    text += '\n';
    std::string header = "\x93NUMPY";
    header += {'\1', '\0', static_cast<char>(text.size() & 255), static_cast<char>(text.size() >> 8)};
    return header + text;
}

Tensor load_npy(const std::string& path) { return parse_npy(read_file(path), path); }

void save_npy(const std::string& path, const Tensor& tensor) {
    const Tensor t = numpy_tensor(tensor);
    write_file(path, {npy_header(t), {static_cast<const char*>(t.data()), t.bytes()}});
}

}  // namespace tilewright
