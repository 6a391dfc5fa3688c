#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/simd/pack.hpp"
#include "eigenformer/kernels/simd/strided.hpp"

namespace eigenformer::kernels {

namespace detail {

template <class F, class T, std::size_t N>
struct MapArrays {
  static constexpr bool flatten = true;
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const F* f, const std::array<const T*, N>* x, T* y, T beta,
                                            index_t n) {
    using W = Simd<T, Bytes>;
    W::each(n, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
      Pack<T, Bytes> v[N], before;
      for (std::size_t k = 0; k < N; ++k) {
        v[k] = T(1);
        if ((*x)[k] != nullptr) W::load(v[k].v, (*x)[k] + i, count, T(1));
      }
      v[0] = call(*f, v, std::make_index_sequence<N>());
      if (beta != T(0)) {
        W::load(before.v, y + i, count);
        v[0] = v[0] + before * beta;
      }
      W::store(y + i, count, v[0].v);
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
  static constexpr bool flatten = true;
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const F* f, const StridedLoop<2>* loop, const T* a, const T* b,
                                            const T* dy, T* out, T beta, index_t begin, index_t end,
                                            index_t n) {
    using W = Simd<T, Bytes>;
    const bool a_moves = loop->inner_stride(0) != 0, b_moves = loop->inner_stride(1) != 0;
    const index_t step = loop->inner_size();
    for (index_t round = begin; round < end; ++round) {
      const auto at = loop->offsets(round);
      const T* first = a + at[0];
      const T* second = b + at[1];
      T* to = out + round * step;
      Pack<T, Bytes> x(*first), y(*second), z, g;
      W::each(n, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
        if (a_moves) W::load(x.v, first + i, count, T(1));
        if (b_moves) W::load(y.v, second + i, count, T(1));
        if constexpr (slope) {
          W::load(g.v, dy + round * step + i, count);
          z = (*f)(x, y, g);
          if (beta != T(0)) {
            W::load(g.v, to + i, count);
            z = z + g * beta;
          }
        } else {
          z = (*f)(x, y);
        }
        W::store(to + i, count, z.v);
      });
    }
  }
};

template <bool slope, class T, class F>
void map_pairs(const F& f, const Shape& shape, const T* a, const Shape& as, const T* b, const Shape& bs,
               const T* dy, T* out, T beta) {
  if (shape.numel() == 0) return;
  const auto loop = broadcast_loop<2>(shape, {&as, &bs});
  const index_t n = loop.inner_size();
  const auto part = [&](index_t begin, index_t end, index_t skip, index_t count) {
    dispatch<MapPairs<F, T, slope>>(&f, &loop, a + skip * loop.inner_stride(0),
                                    b + skip * loop.inner_stride(1), slope ? dy + skip : dy, out + skip, beta,
                                    begin, end, count);
  };
  if (loop.outer_size() == 1) {
    parallel_for(n, math_grain, [&](index_t begin, index_t end) { part(0, 1, begin, end - begin); });
  } else {
    parallel_for(loop.outer_size(), row_grain(n, math_grain),
                 [&](index_t begin, index_t end) { part(begin, end, 0, n); });
  }
}

}  // namespace detail

/// y = f(x...) + beta y, element by element of arrays x of n numbers; f is a formula of Packs. A null array
/// is all 1.
template <class T, std::size_t N, class F>
void map(const F& f, const std::array<const T*, N>& x, T* y, T beta, index_t n) {
  parallel_for(n, math_grain, [&](index_t begin, index_t end) {
    std::array<const T*, N> from = x;
    for (const T*& p : from) p = p == nullptr ? p : p + begin;
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

}  // namespace eigenformer::kernels
