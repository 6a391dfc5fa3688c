#pragma once

#include <cstdint>
#include <span>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer::detail::kernels {

/// The shape after a reduction over `axes` (negative counts from the end; none means all): with keep, they
/// stay with size 1, otherwise they go. Throws IndexError for an axis outside the rank, ShapeError for one
/// named twice.
Shape reduced_shape(const Shape& shape, std::span<const index_t> axes, bool keep);

/// y = beta * y + scale * sum of x over `axes` (none means all). x: shape; y: reduced_shape. beta is 0 (y is
/// not read) or 1. Partial sums have a fixed order and size.
template <class T>
void reduce_sum(const T* x, const Shape& shape, std::span<const index_t> axes, T* y, T scale, T beta);

/// y = largest of x over `axes` (none means all); -inf over nothing. NaN where one of them is NaN, as in
/// PyTorch.
template <class T>
void reduce_max(const T* x, const Shape& shape, std::span<const index_t> axes, T* y);

/// y = smallest of x over `axes` (none means all); inf over nothing, NaN where one of them is NaN.
template <class T>
void reduce_min(const T* x, const Shape& shape, std::span<const index_t> axes, T* y);

/// y = product of x over `axes` (none means all); 1 over nothing.
template <class T>
void reduce_prod(const T* x, const Shape& shape, std::span<const index_t> axes, T* y);

/// y = sum of x * x over `axes` (none means all).
template <class T>
void reduce_square_sum(const T* x, const Shape& shape, std::span<const index_t> axes, T* y);

/// Gradient of reduce_max and reduce_min: dx = beta * dx + dy / (number of entries equal to y) where x equals
/// y, 0 elsewhere; NaN equals NaN here.
template <class T>
void reduce_max_backward(const T* x, const Shape& shape, std::span<const index_t> axes, const T* y,
                         const T* dy, T* dx, T beta);

/// out = beta * out + scale * g summed to the shape of an operand that was broadcast: `to` broadcasts to
/// `from`, the shape of g. Throws ShapeError where it does not.
template <class T>
void reduce_to_shape(const T* g, const Shape& from, T* out, const Shape& to, T scale, T beta);

/// out[j] = beta * out[j] + sum over r of x[r][j]: a bias's gradient. x: (rows, n), out: (n).
template <class T>
void sum_rows(const T* x, T* out, T beta, index_t rows, index_t n);

/// out[r] = index of the largest entry of row r, the first of equals, or of the first NaN, as in PyTorch.
/// x: (rows, n), n at least 1.
template <class T>
void argmax(const T* x, std::int32_t* out, index_t rows, index_t n);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <array>
#include <limits>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// The dimensions that are reduced. Throws IndexError for an axis outside the rank, ShapeError for one named
/// twice.
inline std::array<bool, 6> reduced_dimensions(const Shape& shape, std::span<const index_t> axes) {
  std::array<bool, 6> reduced{};
  if (axes.empty()) reduced.fill(true);
  for (const index_t axis : axes) {
    const index_t d = axis < 0 ? axis + shape.rank() : axis;
    if (d < 0 || d >= shape.rank()) {
      throw IndexError("reduce", {"axis ", axis, " does not exist in shape ", shape});
    }
    bool& mark = reduced[static_cast<std::size_t>(d)];
    if (mark) throw ShapeError("reduce", {"axis ", axis, " of shape ", shape, " is named twice"}, {shape});
    mark = true;
  }
  return reduced;
}

/// A reduction as two loops over x: `kept` visits the outputs in order, `reduced` the elements that are
/// combined into one. The innermost dimension of x with more than one element is the inner one of the loop it
/// belongs to.
struct ReducePlan {
  StridedLoop<1> kept, reduced;
  bool rows = false;  // the innermost dimension is reduced

  ReducePlan(const Shape& shape, const std::array<bool, 6>& marks) {
    const Strides strides = whole_view(shape).strides;
    for (index_t d = 0; d < shape.rank(); ++d) {
      const auto at = static_cast<std::size_t>(d);
      if (shape[d] != 1) rows = marks[at];
      (marks[at] ? reduced : kept).push(shape[d], {strides[at]});
    }
    kept.finish();
    reduced.finish();
  }
  index_t outputs() const { return kept.outer_size() * kept.inner_size(); }
};

// How vectors are combined: prepare() is applied to each of x before, padding is what it makes the identity,
// and Join combines results.
template <class Op>
struct PlainReduction {
  using Join = Op;
  template <class V>
  EIGENFORMER_ALWAYS_INLINE static void prepare(V&) {}
  template <class T>
  static constexpr T padding = Op::template identity<T>;
};

struct SumOf : PlainReduction<SumOf> {
  template <class V>
  EIGENFORMER_ALWAYS_INLINE static void combine(V& a, const V& b) {
    a += b;
  }
  template <class T>
  static constexpr T identity = T(0);
};

struct SquareSumOf : SumOf {
  template <class V>
  EIGENFORMER_ALWAYS_INLINE static void prepare(V& v) {
    v *= v;
  }
};

struct ProductOf : PlainReduction<ProductOf> {
  template <class V>
  EIGENFORMER_ALWAYS_INLINE static void combine(V& a, const V& b) {
    a *= b;
  }
  template <class T>
  static constexpr T identity = T(1);
};

struct MaxOf : PlainReduction<MaxOf> {
  // NaN is the result if any entry is NaN.
  template <class V>
  EIGENFORMER_ALWAYS_INLINE static void combine(V& a, const V& b) {
    V other = b, larger = other > a ? other : a;  // a, if one of them is NaN
#if EIGENFORMER_X86 && !defined(__clang__)
    // GCC 12 would join the two choices, and take vectors of 64 bytes apart for the `or` of their conditions.
    if constexpr (sizeof(V) == 64) __asm__("" : "+v"(larger), "+v"(other));
#endif
    a = other == other ? larger : other;
  }
  /// Whether x is equal to the maximum; NaN equals NaN.
  template <class T>
  EIGENFORMER_ALWAYS_INLINE static bool is(T x, T maximum) {
    return x == maximum || (x != x && maximum != maximum);
  }
  template <class T>
  static constexpr T identity = -std::numeric_limits<T>::infinity();
};

// The largest of -x.
struct NegativeMaxOf : MaxOf {
  template <class V>
  EIGENFORMER_ALWAYS_INLINE static void prepare(V& v) {
    v = -v;
  }
  template <class T>
  static constexpr T padding = -identity<T>;
};

/// Elements or rows that are combined before they join the total: keeps the rounding error of long sums
/// small.
inline constexpr index_t reduce_chunk = 4096, reduce_row_chunk = 128;

/// How many rows ahead of the sums of columns memory is asked for.
inline constexpr index_t reduce_rows_ahead = 16;

/// Outputs begin .. end - 1 of a reduction whose innermost dimension is reduced.
template <class Op, class T>
struct ReduceRows {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const ReducePlan* plan, const T* x, T* y, index_t begin,
                                            index_t end, T scale, T beta) {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    const index_t n = plan->reduced.inner_size(), rounds = plan->reduced.outer_size();
    const index_t kept = plan->kept.inner_size(), step = plan->kept.inner_stride(0);
    index_t outer = begin / kept, inner = begin % kept;
    for (index_t o = begin; o < end; ++o) {
      const T* base = x + plan->kept.offsets(outer)[0] + inner * step;
      if (++inner == kept) {
        inner = 0;
        ++outer;
      }
      T total = Op::template identity<T>;
      for (index_t round = 0; round < rounds; ++round) {
        const T* row = base + plan->reduced.offsets(round)[0];
        for (index_t first = 0; first < n; first += reduce_chunk) {
          const index_t last = first + reduce_chunk < n ? first + reduce_chunk : n;
          V lanes, v;
          W::set(lanes, Op::template identity<T>);
          index_t i = first;
          // Chains that do not wait for each other.
          if (constexpr index_t chains = 4; last - first >= chains * W::lanes) {
            V chain[chains];
            for (index_t c = 0; c < chains; ++c) chain[c] = lanes;
            for (; i + chains * W::lanes <= last; i += chains * W::lanes) {
              for (index_t c = 0; c < chains; ++c) {
                v = W::at(row + i + c * W::lanes).v;
                Op::prepare(v);
                Op::combine(chain[c], v);
              }
            }
            for (index_t half = chains / 2; half > 0; half /= 2) {
              for (index_t c = 0; c < half; ++c) Op::combine(chain[c], chain[c + half]);
            }
            lanes = chain[0];
          }
          for (; i < last; i += W::lanes) {
            W::load(v, row + i, last - i, Op::template padding<T>);
            Op::prepare(v);
            Op::combine(lanes, v);
          }
          Op::combine(total, W::template fold<Op>(lanes));
        }
      }
      put(y[o], scale * total, beta);
    }
  }
};

/// Outputs of a reduction whose innermost dimension is kept: columns first .. last - 1 (at most 64) of round
/// `outer`.
template <class Op, class T>
struct ReduceColumns {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const ReducePlan* plan, const T* x, T* y, index_t outer,
                                            index_t first, index_t last, T scale, T beta) {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    constexpr index_t columns = 4 * W::lanes;
    const index_t n = plan->reduced.inner_size(), step = plan->reduced.inner_stride(0);
    const index_t rounds = plan->reduced.outer_size();
    const T* base = x + plan->kept.offsets(outer)[0];
    T* out = y + outer * plan->kept.inner_size();
    for (index_t column = first; column < last; column += columns) {
      const index_t count = last - column;
      V start;
      W::set(start, Op::template identity<T>);
      V total[4] = {start, start, start, start};
      for (index_t round = 0; round < rounds; ++round) {
        const T* from = base + plan->reduced.offsets(round)[0] + column;
        for (index_t begin = 0; begin < n; begin += reduce_row_chunk) {
          const index_t end = begin + reduce_row_chunk < n ? begin + reduce_row_chunk : n;
          V sums[4] = {start, start, start, start};
          // Rows lie far apart: without a prefetch each would wait for memory.
          if (count >= columns) {
            for (index_t r = begin; r < end; ++r) {
              const T* row = from + r * step;
              for (index_t c = 0; c < 4; ++c) {
                __builtin_prefetch(row + reduce_rows_ahead * step + c * W::lanes);
                V v = W::at(row + c * W::lanes).v;
                Op::prepare(v);
                Op::combine(sums[c], v);
              }
            }
          } else {
            for (index_t r = begin; r < end; ++r) {
              for (index_t c = 0; c < 4; ++c) {
                V v;
                W::load(v, from + r * step + c * W::lanes, count - c * W::lanes);
                Op::prepare(v);
                Op::combine(sums[c], v);
              }
            }
          }
          for (index_t c = 0; c < 4; ++c) Op::combine(total[c], sums[c]);
        }
      }
      for (index_t c = 0; c < 4; ++c) {
        T values[W::lanes];
        W::at(values).v = total[c];
        const index_t at = column + c * W::lanes;
        for (index_t l = 0; l < W::lanes && at + l < last; ++l) put(out[at + l], scale * values[l], beta);
      }
    }
  }
};

template <class Op, class T>
void reduce(const T* x, const Shape& shape, const std::array<bool, 6>& marks, T* y, T scale, T beta) {
  const ReducePlan plan(shape, marks);
  const index_t outputs = plan.outputs();
  if (outputs == 0) return;
  const index_t each = shape.numel() / outputs;
  if (each == 0) {
    for (index_t o = 0; o < outputs; ++o) put(y[o], scale * Op::template identity<T>, beta);
  } else if (plan.rows && outputs == 1 && each > 4 * reduce_chunk) {
    // One long sum: parts of fixed size, then their results.
    const index_t part = 4 * reduce_chunk, parts = (each + part - 1) / part;
    const auto results = pool_array<T>(parts);
    parallel_each(parts, 2, [&](index_t p) {
      const ReducePlan one(Shape{std::min(part, each - p * part)}, {true});
      dispatch<ReduceRows<Op, T>>(&one, x + p * part, results.get() + p, 0, 1, T(1), T(0));
    });
    const ReducePlan rest(Shape{parts}, {true});
    dispatch<ReduceRows<typename Op::Join, T>>(&rest, results.get(), y, index_t{0}, index_t{1}, scale, beta);
  } else if (plan.rows || plan.kept.inner_stride(0) != 1) {
    parallel_for(outputs, row_grain(each, simple_grain), [&](index_t begin, index_t end) {
      dispatch<ReduceRows<Op, T>>(&plan, x, y, begin, end, scale, beta);
    });
  } else {
    const index_t n = plan.kept.inner_size(), width = 64, blocks = (n + width - 1) / width;
    const index_t grain = row_grain(each * width, simple_grain);
    parallel_each(plan.kept.outer_size() * blocks, grain, [&](index_t task) {
      const index_t first = task % blocks * width;
      dispatch<ReduceColumns<Op, T>>(&plan, x, y, task / blocks, first, std::min(n, first + width), scale,
                                     beta);
    });
  }
}

template <class T>
struct ArgmaxRows {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, std::int32_t* out, index_t rows, index_t n) {
    using W = Simd<T, Bytes>;
    const T lowest = -std::numeric_limits<T>::infinity();
    for (index_t r = 0; r < rows; ++r, x += n) {
      // The first block with the maximum, then the index in it.
      constexpr index_t block = 256;
      T best = lowest;
      index_t where = 0;
      for (index_t first = 0; first < n; first += block) {
        const index_t last = first + block < n ? first + block : n;
        typename W::V largest, v;
        W::set(largest, lowest);
        for (index_t i = first; i < last; i += W::lanes) {
          W::load(v, x + i, last - i, lowest);
          MaxOf::combine(largest, v);
        }
        const T found = W::template fold<MaxOf>(largest);
        if (!(found <= best)) {
          best = found;
          where = first;
        }
        if (best != best) break;
      }
      while (where < n && !MaxOf::is(x[where], best)) ++where;
      out[r] = static_cast<std::int32_t>(where < n ? where : 0);
    }
  }
};

}  // namespace detail

EIGENFORMER_INLINE Shape reduced_shape(const Shape& shape, std::span<const index_t> axes, bool keep) {
  const auto reduced = detail::reduced_dimensions(shape, axes);
  std::array<index_t, 6> dims{};
  std::size_t rank = 0;
  for (index_t d = 0; d < shape.rank(); ++d) {
    if (!reduced[static_cast<std::size_t>(d)]) {
      dims[rank++] = shape[d];
    } else if (keep) {
      dims[rank++] = 1;
    }
  }
  return Shape(std::span<const index_t>(dims.data(), rank));
}

template <class T>
void reduce_sum(const T* x, const Shape& shape, std::span<const index_t> axes, T* y, T scale, T beta) {
  detail::reduce<detail::SumOf>(x, shape, detail::reduced_dimensions(shape, axes), y, scale, beta);
}

template <class T>
void reduce_max(const T* x, const Shape& shape, std::span<const index_t> axes, T* y) {
  detail::reduce<detail::MaxOf>(x, shape, detail::reduced_dimensions(shape, axes), y, T(1), T(0));
}

template <class T>
void reduce_min(const T* x, const Shape& shape, std::span<const index_t> axes, T* y) {
  detail::reduce<detail::NegativeMaxOf>(x, shape, detail::reduced_dimensions(shape, axes), y, T(-1), T(0));
}

template <class T>
void reduce_prod(const T* x, const Shape& shape, std::span<const index_t> axes, T* y) {
  detail::reduce<detail::ProductOf>(x, shape, detail::reduced_dimensions(shape, axes), y, T(1), T(0));
}

template <class T>
void reduce_square_sum(const T* x, const Shape& shape, std::span<const index_t> axes, T* y) {
  detail::reduce<detail::SquareSumOf>(x, shape, detail::reduced_dimensions(shape, axes), y, T(1), T(0));
}

template <class T>
void reduce_max_backward(const T* x, const Shape& shape, std::span<const index_t> axes, const T* y,
                         const T* dy, T* dx, T beta) {
  const detail::ReducePlan plan(shape, detail::reduced_dimensions(shape, axes));
  if (shape.numel() == 0) return;
  const index_t n = plan.reduced.inner_size(), step = plan.reduced.inner_stride(0);
  const index_t rounds = plan.reduced.outer_size(), kept = plan.kept.inner_size();
  parallel_each(plan.outputs(), row_grain(n * rounds, simple_grain), [&](index_t o) {
    const index_t base = plan.kept.offsets(o / kept)[0] + o % kept * plan.kept.inner_stride(0);
    index_t count = 0;
    for (index_t round = 0; round < rounds; ++round) {
      const index_t row = base + plan.reduced.offsets(round)[0];
      for (index_t i = 0; i < n; ++i) count += detail::MaxOf::is(x[row + i * step], y[o]) ? 1 : 0;
    }
    const T share = count > 0 ? dy[o] / static_cast<T>(count) : T(0);
    for (index_t round = 0; round < rounds; ++round) {
      const index_t row = base + plan.reduced.offsets(round)[0];
      for (index_t i = 0; i < n; ++i) {
        const index_t at = row + i * step;
        detail::put(dx[at], detail::MaxOf::is(x[at], y[o]) ? share : T(0), beta);
      }
    }
  });
}

template <class T>
void reduce_to_shape(const T* g, const Shape& from, T* out, const Shape& to, T scale, T beta) {
  if (to.rank() > from.rank() || broadcast_shape("reduce_to_shape", to, from) != from) {
    throw ShapeError("reduce_to_shape", {"shape ", to.str(), " does not broadcast to ", from.str()},
                     {from, to});
  }
  std::array<bool, 6> marks{};
  for (index_t d = 0; d < from.rank(); ++d) {
    const index_t i = d - (from.rank() - to.rank());
    marks[static_cast<std::size_t>(d)] = i < 0 || to[i] != from[d];
  }
  detail::reduce<detail::SumOf>(g, from, marks, out, scale, beta);
}

template <class T>
void sum_rows(const T* x, T* out, T beta, index_t rows, index_t n) {
  detail::reduce<detail::SumOf>(x, Shape{rows, n}, {true, false}, out, T(1), beta);
}

template <class T>
void argmax(const T* x, std::int32_t* out, index_t rows, index_t n) {
  if (n < 1) throw ShapeError("argmax", "rows must have at least one entry", {Shape{rows, n}});
  parallel_for(rows, row_grain(n, simple_grain), [&](index_t begin, index_t end) {
    dispatch<detail::ArgmaxRows<T>>(x + begin * n, out + begin, end - begin, n);
  });
}

EIGENFORMER_KERNEL(reduce_sum)
EIGENFORMER_KERNEL(reduce_max)
EIGENFORMER_KERNEL(reduce_min)
EIGENFORMER_KERNEL(reduce_prod)
EIGENFORMER_KERNEL(reduce_square_sum)
EIGENFORMER_KERNEL(reduce_max_backward)
EIGENFORMER_KERNEL(reduce_to_shape)
EIGENFORMER_KERNEL(sum_rows)
EIGENFORMER_KERNEL(argmax)

}  // namespace eigenformer::detail::kernels
#endif
