#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/bfloat16.hpp"
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

struct DtypeEntry {
  Dtype dtype;
  const char* name;
  std::size_t size;
};

inline constexpr std::array<DtypeEntry, 13> dtype_table{{{Dtype::boolean, "BOOL", 1},
                                                         {Dtype::u8, "U8", 1},
                                                         {Dtype::i8, "I8", 1},
                                                         {Dtype::u16, "U16", 2},
                                                         {Dtype::i16, "I16", 2},
                                                         {Dtype::u32, "U32", 4},
                                                         {Dtype::i32, "I32", 4},
                                                         {Dtype::u64, "U64", 8},
                                                         {Dtype::i64, "I64", 8},
                                                         {Dtype::f16, "F16", 2},
                                                         {Dtype::bf16, "BF16", 2},
                                                         {Dtype::f32, "F32", 4},
                                                         {Dtype::f64, "F64", 8}}};

/// The name of an element type, as in a safetensors header: "F32".
inline const char* dtype_name(Dtype dtype) { return dtype_table[static_cast<std::size_t>(dtype)].name; }

/// Size of one element in bytes.
inline std::size_t dtype_size(Dtype dtype) { return dtype_table[static_cast<std::size_t>(dtype)].size; }

/// Whether the elements are floating-point numbers of any size; only these can be loaded as parameters.
inline bool is_floating_point(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64;
}

/// The element type that stores a Tensor<T> exactly.
template <class T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, double>) {
    return Dtype::f64;
  } else if constexpr (std::is_same_v<T, float>) {
    return Dtype::f32;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return Dtype::bf16;
  } else if constexpr (std::is_same_v<T, float16>) {
    return Dtype::f16;
  } else if constexpr (std::is_same_v<T, bool>) {
    return Dtype::boolean;
  } else if constexpr (std::is_same_v<T, std::int8_t>) {
    return Dtype::i8;
  } else if constexpr (std::is_same_v<T, std::uint8_t>) {
    return Dtype::u8;
  } else if constexpr (std::is_same_v<T, std::int16_t>) {
    return Dtype::i16;
  } else if constexpr (std::is_same_v<T, std::uint16_t>) {
    return Dtype::u16;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return Dtype::i32;
  } else if constexpr (std::is_same_v<T, std::uint32_t>) {
    return Dtype::u32;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return Dtype::u64;
  } else {
    static_assert(std::is_same_v<T, std::int64_t>, "this type has no element type in tensor files");
    return Dtype::i64;
  }
}

template <class T>
inline constexpr bool is_float_like =
    std::is_floating_point_v<T> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// Calls f with a value of the C++ type of a file's elements; uint8_t for boolean.
template <class F>
void visit_dtype(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::boolean:
    case Dtype::u8:
      return f(std::uint8_t{});
    case Dtype::i8:
      return f(std::int8_t{});
    case Dtype::u16:
      return f(std::uint16_t{});
    case Dtype::i16:
      return f(std::int16_t{});
    case Dtype::u32:
      return f(std::uint32_t{});
    case Dtype::i32:
      return f(std::int32_t{});
    case Dtype::u64:
      return f(std::uint64_t{});
    case Dtype::i64:
      return f(std::int64_t{});
    case Dtype::f16:
      return f(float16{});
    case Dtype::bf16:
      return f(bfloat16{});
    case Dtype::f32:
      return f(float{});
    case Dtype::f64:
      return f(double{});
  }
}

template <class T>
T load_element(const std::byte* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
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
template <class Refuse>
void check_booleans(std::span<const std::byte> bytes, Refuse&& refuse) {
  for (const std::byte b : bytes) {
    if (b > std::byte{1}) refuse("has a byte " + std::to_string(std::to_integer<int>(b)) + " as a BOOL");
  }
}

/// Converts the elements of `bytes`, which are of type `dtype`, to T in `out`: floating-point types to each
/// other (rounding), integers to wider or narrower integers. Calls refuse(what), which must throw, for other
/// types and for a value that is out of range; `what` is a predicate such as "has dtype ...".
template <class T, class Refuse>
void convert_elements(Dtype dtype, std::span<const std::byte> bytes, T* out, Refuse&& refuse) {
  if (dtype == dtype_of<T>()) {
    if constexpr (std::is_same_v<T, bool>) check_booleans(bytes, refuse);
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
          out[i] =
              convert_float<T>(load_element<From>(bytes.data() + static_cast<std::size_t>(i) * sizeof(From)));
        }
      });
    } else if constexpr (std::is_integral_v<From> && std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (dtype == Dtype::boolean) return;
      converts = true;
      for (index_t i = 0; i < n; ++i) {
        const From value = load_element<From>(bytes.data() + static_cast<std::size_t>(i) * sizeof(From));
        if (!std::in_range<T>(value)) {
          refuse("holds " + std::to_string(value) + ", which does not fit " + dtype_name(dtype_of<T>()));
        }
        out[i] = static_cast<T>(value);
      }
    }
  });
  if (!converts) {
    refuse(std::string("has dtype ") + dtype_name(dtype) + ", which does not convert to " +
           dtype_name(dtype_of<T>()));
  }
}

/// Whether bytes of a file can be used as elements of T without a copy: same type, aligned, not empty.
template <class T>
bool needs_no_conversion(Dtype dtype, std::span<const std::byte> bytes) noexcept {
  return dtype == dtype_of<T>() && !bytes.empty() &&
         reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) == 0;
}

/// Makes a tensor of mapped bytes: without a copy when needs_no_conversion(), else converted. `keep_alive`
/// owns the mapping.
template <class T, class Refuse>
Tensor<T> tensor_of_bytes(Dtype dtype, std::span<std::byte> bytes, const Shape& shape,
                          std::shared_ptr<void> keep_alive, Refuse&& refuse) {
  if (needs_no_conversion<T>(dtype, bytes)) {
    if constexpr (std::is_same_v<T, bool>) check_booleans(bytes, refuse);
    return Tensor<T>::borrow(reinterpret_cast<T*>(bytes.data()), shape, std::move(keep_alive));
  }
  Tensor<T> out(shape);
  convert_elements(dtype, bytes, out.data(), refuse);
  return out;
}

}  // namespace detail

}  // namespace eigenformer
