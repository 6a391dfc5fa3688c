#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"

namespace eigenformer::detail {

// How many matrices a tensor of rank 2 or above is.
inline index_t matrices_of(const Shape& shape) {
  index_t count = 1;
  for (index_t i = 0; i + 2 < shape.rank(); ++i) count *= shape[i];
  return count;
}

// One step of Adafactor for one parameter: first factored() or full(), which update the mean squares, then
// apply(). The update itself is never stored: its element is the gradient times a factor of its row and one
// of its column, or times one factor of its own. All sums have an order that does not depend on threads.
template <class T>
class AdafactorStep {
 public:
  AdafactorStep(Tensor<T>& parameter, const T* gradient, double grad_scale)
      : p_(parameter.data()),
        g_(gradient),
        scale_(grad_scale),
        columns_(parameter.shape().cols()),
        rows_(columns_ > 0 ? parameter.numel() / columns_ : 0),
        matrices_(parameter.rank() < 2 ? 1 : matrices_of(parameter.shape())) {}

  // Root mean square of the parameter.
  double parameter_size() const {
    return std::sqrt(kernels::sum_of_squares<T>(p_, rows_ * columns_) /
                     static_cast<double>(rows_ * columns_));
  }

  // Mean squares by row and by column: (matrices, rows) and (matrices, columns). Shazeer and Stern 2018,
  // algorithm 2.
  void factored(T* row_means, T* column_means, double decay, double eps) {
    const index_t height = rows_ / matrices_;
    parallel_for(rows_, grain(), [&](index_t begin, index_t end) {
      for (index_t r = begin; r < end; ++r) {
        double sum = 0;
        for (index_t c = 0; c < columns_; ++c) sum += square(r * columns_ + c);
        blend(row_means[r], decay, sum / static_cast<double>(columns_) + eps);
      }
    });
    constexpr index_t block = 64;
    const index_t blocks = (columns_ + block - 1) / block;
    parallel_for(matrices_ * blocks, std::max<index_t>(1, (1 << 15) / (block * height)),
                 [&](index_t begin, index_t end) {
                   for (index_t k = begin; k < end; ++k) {
                     const index_t matrix = k / blocks, first = k % blocks * block;
                     const index_t count = std::min(block, columns_ - first);
                     double sums[block] = {};
                     for (index_t r = matrix * height; r < (matrix + 1) * height; ++r) {
                       for (index_t c = 0; c < count; ++c) sums[c] += square(r * columns_ + first + c);
                     }
                     for (index_t c = 0; c < count; ++c) {
                       blend(column_means[matrix * columns_ + first + c], decay,
                             sums[c] / static_cast<double>(height) + eps);
                     }
                   }
                 });
    row_factors_.resize(static_cast<std::size_t>(rows_));
    column_factors_.resize(static_cast<std::size_t>(matrices_ * columns_));
    for (index_t m = 0; m < matrices_; ++m) {
      const T* means = row_means + m * height;
      const double mean = std::accumulate(means, means + height, 0.0) / static_cast<double>(height);
      for (index_t r = 0; r < height; ++r) {
        row_factors_[static_cast<std::size_t>(m * height + r)] =
            static_cast<T>(1 / std::sqrt(static_cast<double>(means[r]) / mean));
      }
    }
    for (index_t c = 0; c < matrices_ * columns_; ++c)
      column_factors_[static_cast<std::size_t>(c)] =
          static_cast<T>(1 / std::sqrt(static_cast<double>(column_means[c])));
  }

  // A mean square for each element.
  void full(T* means, double decay, double eps) {
    const index_t n = rows_ * columns_;
    column_factors_.resize(static_cast<std::size_t>(n));
    for (index_t i = 0; i < n; ++i) {
      blend(means[i], decay, square(i) + eps);
      column_factors_[static_cast<std::size_t>(i)] =
          static_cast<T>(1 / std::sqrt(static_cast<double>(means[i])));
    }
  }

  // Clips the update, takes its mean if there is one (as large as the parameter), and changes the parameter.
  void apply(T* mean, double rate, double clip_threshold, double beta1, double weight_decay) {
    std::vector<double> squares(static_cast<std::size_t>(rows_));
    parallel_for(rows_, grain(), [&](index_t begin, index_t end) {
      for (index_t r = begin; r < end; ++r) {
        double sum = 0;
        for_row(r,
                [&](index_t, T update) { sum += static_cast<double>(update) * static_cast<double>(update); });
        squares[static_cast<std::size_t>(r)] = sum;
      }
    });
    const double size = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0) /
                                  static_cast<double>(rows_ * columns_));
    const auto factor = static_cast<T>(rate / std::max(1.0, size / clip_threshold));
    const auto keep = static_cast<T>(1 - weight_decay * rate);
    const auto beta = static_cast<T>(beta1), rest = static_cast<T>(1 - beta1);
    parallel_for(rows_, grain(), [&](index_t begin, index_t end) {
      for (index_t r = begin; r < end; ++r) {
        for_row(r, [&](index_t i, T update) {
          update *= factor;
          if (mean != nullptr) update = mean[i] = mean[i] * beta + update * rest;
          p_[i] = p_[i] * keep - update;
        });
      }
    });
  }

 private:
  double square(index_t i) const {
    const double g = static_cast<double>(g_[i]) * scale_;
    return g * g;
  }
  static void blend(T& mean, double decay, double value) {
    mean = static_cast<T>(static_cast<double>(mean) * decay + value * (1 - decay));
  }
  index_t grain() const { return std::max<index_t>(1, (1 << 14) / std::max<index_t>(1, columns_)); }

  // Calls f(index, update) for the elements of a row; the update is neither clipped nor multiplied by a rate.
  template <class F>
  void for_row(index_t r, F&& f) const {
    const T row = row_factors_.empty() ? T(1) : row_factors_[static_cast<std::size_t>(r)];
    const T scale = static_cast<T>(scale_) * row;
    const T* columns =
        column_factors_.data() + (row_factors_.empty() ? r : r / (rows_ / matrices_)) * columns_;
    const T* g = g_ + r * columns_;
    for (index_t c = 0; c < columns_; ++c) f(r * columns_ + c, g[c] * scale * columns[c]);
  }

  T* p_;
  const T* g_;
  double scale_;
  index_t columns_, rows_, matrices_;
  std::vector<T> row_factors_, column_factors_;
};

}  // namespace eigenformer::detail
