#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/core/base/float16.hpp"
#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

static_assert(std::endian::native == std::endian::little,
              "tensor files are little-endian; big-endian machines are not supported");

/// The element types of tensor files, all little-endian.
enum class Dtype {
  boolean,  ///< one byte, 0 or 1
  u8,       ///< unsigned, 8 bits
  i8,       ///< signed, 8 bits
  u16,      ///< unsigned, 16 bits
  i16,      ///< signed, 16 bits
  u32,      ///< unsigned, 32 bits
  i32,      ///< signed, 32 bits
  u64,      ///< unsigned, 64 bits
  i64,      ///< signed, 64 bits
  f16,      ///< IEEE 754 binary16
  bf16,     ///< bfloat16: the upper half of an f32
  f32,      ///< IEEE 754 binary32
  f64       ///< IEEE 754 binary64
};

namespace detail {

/// The C++ types of the elements, in the order of Dtype.
using DtypeTypes = std::type_identity<
    std::tuple<bool, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
               std::uint64_t, std::int64_t, float16, bfloat16, float, double>>;

/// The names of the element types in a safetensors header, in the order of Dtype.
inline constexpr std::array dtype_names = {"BOOL", "U8",  "I8",  "U16",  "I16", "U32", "I32",
                                           "U64",  "I64", "F16", "BF16", "F32", "F64"};

/// The name of an element type, as in a safetensors header: "F32".
inline const char* dtype_name(Dtype dtype) { return dtype_names[static_cast<std::size_t>(dtype)]; }

/// Whether the elements are floating-point numbers of any size; only these can be loaded as parameters.
inline bool is_floating_point(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64;
}

/// The element type that stores a Tensor<T> exactly.
template <class T>
constexpr Dtype dtype_of() {
  return []<class... Types>(std::type_identity<std::tuple<Types...>>) {
    static_assert((std::is_same_v<T, Types> || ...), "this type has no element type in tensor files");
    int position = 0;
    (void)((std::is_same_v<T, Types> || (++position, false)) || ...);
    return static_cast<Dtype>(position);
  }(DtypeTypes{});
}

template <class T>
inline constexpr bool is_float_like =
    std::is_floating_point_v<T> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// Calls f with a value of the C++ type of a file's elements.
template <class F>
void visit_dtype(Dtype dtype, F&& f) {
  [&]<class... Types>(std::type_identity<std::tuple<Types...>>) {
    (void)((dtype == dtype_of<Types>() && (f(Types{}), true)) || ...);
  }(DtypeTypes{});
}

/// Size of one element in bytes.
inline std::size_t dtype_size(Dtype dtype) {
  std::size_t size = 0;
  visit_dtype(dtype, [&](auto example) { size = sizeof example; });
  return size;
}

template <class T, class From>
T convert_float(From value) noexcept {
  if constexpr (std::is_floating_point_v<T> && std::is_floating_point_v<From>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

// A bool whose byte is neither 0 nor 1 would be undefined behaviour.
inline void check_booleans(std::span<const std::byte> bytes, const char* op, const std::string& what) {
  for (const std::byte b : bytes) {
    if (b > std::byte{1}) throw IoError(op, {what, " has a byte ", std::to_integer<int>(b), " as a BOOL"});
  }
}

/// Converts the elements of `bytes`, which are of type `dtype`, to T in `out`: floating-point types to each
/// other (rounding), integers to wider or narrower integers. Throws IoError, as `op` and about `what`, for
/// other types and for a value that is out of range.
template <class T>
void convert_elements(Dtype dtype, std::span<const std::byte> bytes, T* out, const char* op,
                      const std::string& what) {
  if (dtype == dtype_of<T>()) {
    if constexpr (std::is_same_v<T, bool>) check_booleans(bytes, op, what);
    if (!bytes.empty()) std::memcpy(static_cast<void*>(out), bytes.data(), bytes.size());
    return;
  }
  bool converts = false;
  visit_dtype(dtype, [&](auto example) {
    using From = decltype(example);
    const auto n = static_cast<index_t>(bytes.size() / sizeof(From));
    if constexpr (is_float_like<From> && is_float_like<T>) {
      converts = true;
      parallel_for(n, 1 << 16, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
          out[i] = convert_float<T>(load_as<From>(bytes.data() + static_cast<std::size_t>(i) * sizeof(From)));
        }
      });
    } else if constexpr (std::is_integral_v<From> && std::is_integral_v<T> && !std::is_same_v<From, bool> &&
                         !std::is_same_v<T, bool>) {
      converts = true;
      for (index_t i = 0; i < n; ++i) {
        const From value = load_as<From>(bytes.data() + static_cast<std::size_t>(i) * sizeof(From));
        if (!std::in_range<T>(value)) {
          throw IoError(op, {what, " holds ", value, ", which does not fit ", dtype_name(dtype_of<T>())});
        }
        out[i] = static_cast<T>(value);
      }
    }
  });
  if (!converts) {
    throw IoError(op, {what, " has dtype ", dtype_name(dtype), ", which does not convert to ",
                       dtype_name(dtype_of<T>())});
  }
}

template <class T>
void require_memory_to_save(const char* op, const std::string& name, const Tensor<T>& tensor) {
  if (!tensor.defined() && tensor.numel() > 0)
    throw ValueError(op, {"tensor '", name, "' was released; it cannot be saved"});
}

/// Whether bytes of a file can be used as elements of T without a copy: same type, aligned, not empty.
template <class T>
bool needs_no_conversion(Dtype dtype, std::span<const std::byte> bytes) noexcept {
  return dtype == dtype_of<T>() && !bytes.empty() &&
         reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) == 0;
}

/// Makes a tensor of mapped bytes: without a copy when needs_no_conversion(), else converted. `keep_alive`
/// owns the mapping. Throws as convert_elements() does.
template <class T>
Tensor<T> tensor_of_bytes(Dtype dtype, std::span<std::byte> bytes, const Shape& shape,
                          std::shared_ptr<void> keep_alive, const char* op, const std::string& what) {
  if (needs_no_conversion<T>(dtype, bytes)) {
    if constexpr (std::is_same_v<T, bool>) check_booleans(bytes, op, what);
    return Tensor<T>::borrow(reinterpret_cast<T*>(bytes.data()), shape, std::move(keep_alive));
  }
  Tensor<T> out(shape);
  convert_elements(dtype, bytes, out.data(), op, what);
  return out;
}

}  // namespace detail

}  // namespace eigenformer
