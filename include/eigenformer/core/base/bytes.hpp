#pragma once

#include <cstring>

namespace eigenformer::detail {

/// The object whose bytes begin at an address of any alignment.
template <class T>
T load_as(const void* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace eigenformer::detail
