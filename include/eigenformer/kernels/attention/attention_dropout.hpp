#pragma once

#include <cstdint>

#include "eigenformer/kernels/attention/attention_product.hpp"
#include "eigenformer/kernels/elementwise/dropout_mask.hpp"

namespace eigenformer::kernels::detail {

/// Dropout's multipliers for a tile of attention weights (m, n) that begins at positions (query, key): 0 or 1
/// / (1 - rate).
///
/// The weight of a query at position i and a key at position j takes output word i % 4 of Philox4x32-10 with
/// counter (sequence number, head, i / 4, j): one batch of 16 counters is 4 rows of 16 keys, so short
/// sentences waste none.
template <class T>
struct AttentionDropout {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const DropoutPlan<T>* plan, std::uint32_t sequence,
                                            std::uint32_t head, index_t query, index_t m, index_t key,
                                            index_t n, T* out) {
    using S = Simd<T, Bytes>;
    alignas(64) std::uint32_t words[64];
    for (index_t four = query / 4; four * 4 < query + m; ++four) {
      for (index_t j = 0; j < n; j += 16) {
        PhiloxBlock<Bytes>::run(plan->key0, plan->key1, sequence, head, static_cast<std::uint32_t>(four),
                                static_cast<std::uint32_t>(key + j), words);
        for (index_t w = 0; w < 4; ++w) {
          const index_t i = four * 4 + w - query;
          if (i < 0 || i >= m) continue;
          T* to = out + i * attention_width + j;
          if constexpr (sizeof(T) == 4) {
            for (index_t l = 0; l < 16; l += S::lanes) {
              typename S::U word;
              __builtin_memcpy(&word, words + 16 * w + l, Bytes);
              S::at(to + l).v = word >= plan->threshold ? plan->scale - typename S::V{} : typename S::V{};
            }
          } else {
            for (index_t l = 0; l < 16; ++l)
              to[l] = words[16 * w + l] >= plan->threshold ? plan->scale : T(0);
          }
        }
      }
    }
  }
};

}  // namespace eigenformer::kernels::detail
