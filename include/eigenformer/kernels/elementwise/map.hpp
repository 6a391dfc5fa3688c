#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/simd/pack.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

template <class F, class T, std::size_t N>
struct MapArrays {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const F* f, const std::array<const T*, N>* x, T* y, T beta,
                                            index_t n) {
    using W = Simd<T, Bytes>;
    const F formula = *f;  // a copy, which no write to y can change
    // What does not change is read again and again, without a branch, by which g++ would take masks apart.
    alignas(Bytes) T ones[W::lanes];
    std::fill_n(ones, W::lanes, T(1));
    std::array<const T*, N> from = *x;
    std::array<index_t, N> step;
    for (std::size_t k = 0; k < N; ++k) {
      step[k] = from[k] != nullptr;
      if (from[k] == nullptr) from[k] = ones;
    }
    W::each(n, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
      Pack<T, Bytes> v[N];
      for (std::size_t k = 0; k < N; ++k) W::load(v[k].v, from[k] + i * step[k], count, T(1));
      v[0] = call(formula, v, std::make_index_sequence<N>());
      W::store_sum(y + i, count, v[0].v, beta);
    });
  }

  template <class P, std::size_t... I>
  EIGENFORMER_ALWAYS_INLINE static P call(const F& f, const P* v, std::index_sequence<I...>) {
    return f(v[I]...);
  }
};

// Rounds begin .. end - 1 of the outer dimensions, n elements of the inner one, with strides 0 or 1.
template <class F, class T, bool slope>
struct MapPairs {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const F* f, const StridedLoop<2>* loop, const T* a, const T* b,
                                            const T* dy, T* out, T beta, index_t begin, index_t end,
                                            index_t n) {
    using W = Simd<T, Bytes>;
    const index_t step_a = loop->inner_stride(0), step_b = loop->inner_stride(1), step = loop->inner_size();
    const F formula = *f;  // a copy, which no write to `out` can change
    auto at = loop->offsets(begin);
    for (index_t round = begin; round < end; ++round, at.next()) {
      const T* first = a + at[0];
      const T* second = b + at[1];
      alignas(Bytes) T same_a[W::lanes], same_b[W::lanes];
      if (step_a == 0) first = std::fill_n(same_a, W::lanes, *first) - W::lanes;
      if (step_b == 0) second = std::fill_n(same_b, W::lanes, *second) - W::lanes;
      T* to = out + round * step;
      W::each(n, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
        Pack<T, Bytes> x, y, z, g;
        W::load(x.v, first + i * step_a, count, T(1));
        W::load(y.v, second + i * step_b, count, T(1));
        if constexpr (slope) {
          W::load(g.v, dy + round * step + i, count);
          z = formula(x, y, g);
        } else {
          z = formula(x, y);
        }
        W::store_sum(to + i, count, z.v, slope ? beta : T(0));
      });
    }
  }
};

template <bool slope, class T, class F>
void map_pairs(const F& f, const Shape& shape, const T* a, const Shape& as, const T* b, const Shape& bs,
               const T* dy, T* out, T beta) {
  if (shape.numel() == 0) return;
  const auto loop = broadcast_loop<2>(shape, {&as, &bs});
  for_rounds(loop, math_grain, [&](index_t begin, index_t end, index_t skip, index_t count) {
    dispatch<MapPairs<F, T, slope>>(&f, &loop, a + skip * loop.inner_stride(0),
                                    b + skip * loop.inner_stride(1), slope ? dy + skip : dy, out + skip, beta,
                                    begin, end, count);
  });
}

}  // namespace detail

/// y = f(x...) + beta y, element by element of arrays x of n numbers; f is a formula of Packs. A null array
/// is all 1.
template <class T, std::size_t N, class F>
void map(const F& f, const std::array<const T*, N>& x, T* y, T beta, index_t n) {
  parallel_for(n, math_grain, [&](index_t begin, index_t end) {
    std::array<const T*, N> from = x;
    for (const T*& p : from) p = shifted(p, begin);
    dispatch<detail::MapArrays<F, T, N>>(&f, &from, y + begin, beta, end - begin);
  });
}

/// out = f(a, b), element by element of `shape`, to which the shapes of both broadcast.
template <class T, class F>
void map_pairs(const F& f, const Shape& shape, const T* a, const Shape& as, const T* b, const Shape& bs,
               T* out) {
  detail::map_pairs<false, T>(f, shape, a, as, b, bs, nullptr, out, T(0));
}

/// out = f(a, b, dy) + beta out, likewise.
template <class T, class F>
void map_pairs_slope(const F& f, const Shape& shape, const T* a, const Shape& as, const T* b, const Shape& bs,
                     const T* dy, T* out, T beta) {
  detail::map_pairs<true, T>(f, shape, a, as, b, bs, dy, out, beta);
}

}  // namespace eigenformer::detail::kernels
