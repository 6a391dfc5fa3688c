#pragma once

#include "eigenformer/core/base/random.hpp"

namespace eigenformer::detail::kernels {

/// Writes n numbers uniform in [low, high) to `out` and advances the generator, as
/// RandomGenerator::fill_uniform() does, with the same bits.
void random_uniform(RandomGenerator& rng, float* out, index_t n, double low, double high);

/// Writes n normal numbers to `out` as RandomGenerator::fill_normal() does. The logarithm and cosine are not
/// the C library's: of 40 million numbers, one is rounded to another float.
void random_normal(RandomGenerator& rng, float* out, index_t n, double mean, double standard_deviation);

/// The same for other types, one number after the other.
template <class T>
void random_uniform(RandomGenerator& rng, T* out, index_t n, double low, double high) {
  rng.fill_uniform(out, n, low, high);
}
template <class T>
void random_normal(RandomGenerator& rng, T* out, index_t n, double mean, double standard_deviation) {
  rng.fill_normal(out, n, mean, standard_deviation);
}

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/elementwise/random-inl.hpp"
#endif
