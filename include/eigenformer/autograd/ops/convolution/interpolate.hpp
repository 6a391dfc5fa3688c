#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/convolution/window.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"

namespace eigenformer {

/// How interpolate() finds elements between those of an image.
enum class InterpolateMode {
  nearest,  ///< the element at floor(i * size / new size)
  bilinear  ///< the mean of the four around it, by distance, with PyTorch's align_corners=False
};

namespace detail {

/// The two entries of an axis that an entry of the result is made of, and the weight of the second.
template <class T>
struct AxisTaps {
  std::vector<index_t> first, second;
  std::vector<T> weight;

  AxisTaps(index_t in, index_t out, InterpolateMode mode) {
    const double scale = static_cast<double>(in) / static_cast<double>(out);
    for (index_t i = 0; i < out; ++i) {
      double at = (static_cast<double>(i) + 0.5) * scale - 0.5;
      if (mode == InterpolateMode::nearest || at < 0) at = 0;
      const index_t begin =
          mode == InterpolateMode::nearest ? i * in / out : std::min(static_cast<index_t>(at), in - 1);
      first.push_back(begin);
      second.push_back(std::min(begin + 1, in - 1));
      weight.push_back(static_cast<T>(at - static_cast<double>(begin)));
    }
  }
};

/// The passes over planes begin .. end of images of height and width `in`, resized to `out`.
template <class T>
struct Interpolation {
  AxisTaps<T> rows, cols;
  InterpolateMode mode;
  SizePair in, out;

  Interpolation(const SizePair& from, const SizePair& to, InterpolateMode of)
      : rows(from.h, to.h, of), cols(from.w, to.w, of), mode(of), in(from), out(to) {}

  index_t in_plane() const noexcept { return in.h * in.w; }

  void forward(const T* from, T* to, index_t begin, index_t end) const {
    for (index_t i = begin * out.h; i < end * out.h; ++i) {
      const auto h = static_cast<std::size_t>(i % out.h);
      const T* upper = from + i / out.h * in_plane() + rows.first[h] * in.w;
      const T* lower = from + i / out.h * in_plane() + rows.second[h] * in.w;
      const T down = rows.weight[h];
      for (index_t j = 0; j < out.w; ++j) {
        const auto w = static_cast<std::size_t>(j);
        const index_t a = cols.first[w], b = cols.second[w];
        if (mode == InterpolateMode::nearest) {
          to[i * out.w + j] = upper[a];  // a weight of 0 would make NaN of infinity
        } else {
          const T right = cols.weight[w], left = T(1) - right;
          to[i * out.w + j] = (T(1) - down) * (left * upper[a] + right * upper[b]) +
                              down * (left * lower[a] + right * lower[b]);
        }
      }
    }
  }

  // dx = the sum of dy times the weight that an element has in each element of the result.
  void backward(const T* dy, T* dx, index_t begin, index_t end) const {
    for (index_t i = begin * out.h; i < end * out.h; ++i) {
      const auto h = static_cast<std::size_t>(i % out.h);
      T* upper = dx + i / out.h * in_plane() + rows.first[h] * in.w;
      T* lower = dx + i / out.h * in_plane() + rows.second[h] * in.w;
      const T down = rows.weight[h];
      for (index_t j = 0; j < out.w; ++j) {
        const auto w = static_cast<std::size_t>(j);
        const index_t a = cols.first[w], b = cols.second[w];
        const T g = dy[i * out.w + j];
        if (mode == InterpolateMode::nearest) {
          upper[a] += g;
        } else {
          const T right = cols.weight[w], left = T(1) - right;
          upper[a] += (T(1) - down) * left * g;
          upper[b] += (T(1) - down) * right * g;
          lower[a] += down * left * g;
          lower[b] += down * right * g;
        }
      }
    }
  }
};

}  // namespace detail

/// Images of another size. x: (N, C, H, W). Returns (N, C, size). Throws ShapeError unless x has rank 4 and
/// elements, ValueError for a size that is not positive.
///
///     auto twice = ef::interpolate(x, {2 * x.dim(2), 2 * x.dim(3)}, ef::InterpolateMode::bilinear);
template <Operand X>
[[nodiscard]] Var<element_t<X>> interpolate(const X& input, const detail::SizePair& size,
                                            InterpolateMode mode = InterpolateMode::nearest) {
  using T = element_t<X>;
  const Var<T>& x = input;
  const OpScope scope = detail::scope_of("interpolate", x);
  if (x.rank() != 4 || x.dim(2) < 1 || x.dim(3) < 1) {
    throw ShapeError("interpolate", {"input of shape ", x.shape(), " must be (N, C, H, W), H and W not 0"},
                     {x.shape()});
  }
  detail::require_at_least("interpolate", "input size", 1, {x.dim(2), x.dim(3)});
  detail::require_at_least("interpolate", "size", 1, size);
  const detail::Interpolation<T> planes({x.dim(2), x.dim(3)}, size, mode);
  const index_t count = x.dim(0) * x.dim(1);
  const index_t grain = (1 << 14) / std::max(planes.in_plane(), size.h * size.w);
  Tensor<T> y(x.shape().with(2, size.h).with(3, size.w));
  parallel_for(count, grain, [&, from = x.value().data(), to = y.data()](index_t begin, index_t end) {
    planes.forward(from, to, begin, end);
  });
  if (detail::not_recorded(y, x)) return y;
  return detail::record_one("interpolate", std::move(y), x, SavedTensors(),
                            [planes, count, grain](const auto& dx, const Tensor<T>& dy) {
                              parallel_for(count, grain, [&, g = dy.data()](index_t begin, index_t end) {
                                if (dx.beta == T(0)) {
                                  std::fill(dx.data + begin * planes.in_plane(),
                                            dx.data + end * planes.in_plane(), T(0));
                                }
                                planes.backward(g, dx.data, begin, end);
                              });
                            });
}

}  // namespace eigenformer
