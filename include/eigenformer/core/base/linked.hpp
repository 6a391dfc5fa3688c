#pragma once

#include <atomic>

namespace eigenformer::detail {

/// Functions that need a library which some files of a program may be compiled without; null where all are.
/// `Functions` is a struct of function pointers. A file that has the library calls link() before main(), and
/// every file calls through this pointer. An #if inside an inline function would give it two definitions in
/// one program.
template <class Functions>
inline std::atomic<const Functions*> linked{nullptr};

/// Sets linked<Functions>; for the initializer of an inline variable.
template <class Functions>
bool link(const Functions& functions) noexcept {
  linked<Functions>.store(&functions, std::memory_order_release);
  return true;
}

/// The functions, or null in a program of which no file was compiled with the library.
template <class Functions>
const Functions* find_linked() noexcept {
  return linked<Functions>.load(std::memory_order_acquire);
}

}  // namespace eigenformer::detail
