#include "arrays.h"

#include <algorithm>

namespace tilewright_python {

namespace {

/// Of DLPack, beyond those of nanobind.
enum FloatCode : std::uint8_t { kE4M3FN = 10, kE4M3FNUZ = 11, kE5M2 = 12, kE5M2FNUZ = 13, kE8M0 = 14 };

bool is_code(nb::dlpack::dtype type, nb::dlpack::dtype_code code) {
    return type.code == static_cast<std::uint8_t>(code);
}

/// Position of 8, 16, 32 or 64 bits among integer types.
int size_index(std::uint8_t bits) { return bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3; }

std::vector<std::size_t> sizes_of(const std::vector<std::int64_t>& shape) { return {shape.begin(), shape.end()}; }

}  // namespace

Memory aligned_memory(std::size_t bytes) {
    constexpr std::size_t kAlignment = 64;
    Memory memory(
        std::aligned_alloc(kAlignment, std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

tilewright_dtype type_of(nb::dlpack::dtype type, const std::string& what) {
    using Code = nb::dlpack::dtype_code;
    const bool whole = type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64;
    if (type.lanes == 1 && whole) {
        if (is_code(type, Code::Int)) return static_cast<tilewright_dtype>(TILEWRIGHT_I8 + size_index(type.bits));
        if (is_code(type, Code::UInt)) return static_cast<tilewright_dtype>(TILEWRIGHT_U8 + size_index(type.bits));
        if (is_code(type, Code::Bool) && type.bits == 8) return TILEWRIGHT_BOOL;
        if (is_code(type, Code::Bfloat) && type.bits == 16) return TILEWRIGHT_BF16;
        if (is_code(type, Code::Float) && type.bits == 16) return TILEWRIGHT_F16;
        if (is_code(type, Code::Float) && type.bits == 32) return TILEWRIGHT_F32;
        if (is_code(type, Code::Float) && type.bits == 64) return TILEWRIGHT_F64;
        if (type.bits == 8) switch (type.code) {
                case kE4M3FN:
                    return TILEWRIGHT_F8E4M3FN;
                case kE4M3FNUZ:
                    return TILEWRIGHT_F8E4M3FNUZ;
                case kE5M2:
                    return TILEWRIGHT_F8E5M2;
                case kE5M2FNUZ:
                    return TILEWRIGHT_F8E5M2FNUZ;
                case kE8M0:
                    return TILEWRIGHT_F8E8M0;
                default:
                    break;
            }
    }
    throw tw::Error(TILEWRIGHT_INVALID_ARGUMENT,
                    what + " has elements of an unsupported type (DLPack code " + std::to_string(type.code) + ", " +
                        std::to_string(type.bits) + " bits)",
                    "convert it to a real number type");
}

nb::dlpack::dtype numpy_type(tilewright_dtype type) {
    using Code = nb::dlpack::dtype_code;
    const auto bits = static_cast<std::uint8_t>(8 * tilewright_dtype_size(type));
    Code code = Code::UInt;
    if (type == TILEWRIGHT_F32 || type == TILEWRIGHT_F64 || type == TILEWRIGHT_F16) code = Code::Float;
    if (type >= TILEWRIGHT_I8 && type <= TILEWRIGHT_I64) code = Code::Int;
    if (type == TILEWRIGHT_BOOL) code = Code::Bool;
    return {static_cast<std::uint8_t>(code), bits, 1};
}

tw::Tensor tensor_of(const InputArray& array, tilewright_dtype type) {
    tw::Tensor t;
    t.dtype = type;
    for (std::size_t d = 0; d < array.ndim(); ++d) t.shape.push_back(static_cast<std::int64_t>(array.shape(d)));
    t.data = array.data();
    t.bytes = array.size() * tilewright_dtype_size(type);
    return t;
}

nb::object numpy_array(Memory memory, tilewright_dtype type, const std::vector<std::int64_t>& shape) {
    const std::vector<std::size_t> sizes = sizes_of(shape);
    void* data = memory.get();
    const nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
    (void)memory.release();
    return nb::cast(nb::ndarray<nb::numpy>(data, sizes.size(), sizes.data(), owner, nullptr, numpy_type(type)));
}

nb::tuple import_array(nb::handle array) {
    using Any = nb::ndarray<nb::device::cpu>;
    using ReadOnly = nb::ndarray<nb::ro, nb::device::cpu>;
    const auto shared = [](auto given) {
        using Array = decltype(given);
        const tilewright_dtype type = type_of(given.dtype(), "the array");
        std::vector<std::size_t> sizes;
        std::vector<std::int64_t> strides;
        for (std::size_t d = 0; d < given.ndim(); ++d) {
            sizes.push_back(given.shape(d));
            strides.push_back(given.stride(d));
        }
        auto held = std::make_unique<Array>(std::move(given));
        auto* data = held->data();
        const nb::capsule owner(held.get(), [](void* p) noexcept { delete static_cast<Array*>(p); });
        (void)held.release();
        using Numpy =
            std::conditional_t<std::is_same_v<Array, Any>, nb::ndarray<nb::numpy>, nb::ndarray<nb::numpy, nb::ro>>;
        return nb::make_tuple(
            nb::cast(Numpy(data, sizes.size(), sizes.data(), owner, strides.data(), numpy_type(type))),
            static_cast<int>(type));
    };
    Any writable;
    if (nb::try_cast(array, writable, false)) return shared(std::move(writable));
    ReadOnly read_only;
    if (nb::try_cast(array, read_only, false)) return shared(std::move(read_only));
    throw nb::type_error("expected an array in this machine's memory, with DLPack or the buffer protocol");
}

}  // namespace tilewright_python
