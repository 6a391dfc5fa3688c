#pragma once

#include "eigenformer/core/runtime/runtime.hpp"

namespace translator {

/// Applies --threads; 0 keeps the number of cores. Throws ValueError.
inline void set_threads(eigenformer::index_t threads) {
  constexpr eigenformer::index_t most = 1024;  // more threads only cost memory and time to start
  if (threads < 0 || threads > most) {
    throw eigenformer::ValueError("runtime", {"threads is ", threads, ", must be from 0 to ", most});
  }
  if (threads != 0) eigenformer::Runtime::instance().set_threads(static_cast<int>(threads));
}

}  // namespace translator
