#pragma once

#include <string>

#include "eigenformer/core/runtime/runtime.hpp"

namespace translator {

/// Sets the number of threads as --threads says; 0 leaves it at the number of cores. Throws ValueError.
inline void set_threads(eigenformer::index_t threads) {
  constexpr eigenformer::index_t most = 1024;  // more only takes memory, and the time to start them
  if (threads < 0 || threads > most) {
    throw eigenformer::ValueError(
        "runtime", "threads is " + std::to_string(threads) + ", must be from 0 to " + std::to_string(most));
  }
  if (threads != 0) eigenformer::Runtime::instance().set_threads(static_cast<int>(threads));
}

}  // namespace translator
