#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/optim/optimizer.hpp"

namespace eigenformer::detail {

// Number of matrices in a tensor of rank 2 or above.
inline index_t matrices_of(const Shape& shape) {
  index_t count = 1;
  for (index_t i = 0; i + 2 < shape.rank(); ++i) count *= shape[i];
  return count;
}

// Steps of Adafactor, one parameter after the other: factored() or full() update the mean squares, then
// apply() updates the parameter. The update is never stored: each element is the gradient times a factor of
// its row and one of its column, or times a factor of its own. The order of all sums is independent of
// threads. The memory of one step serves the next.
template <class T>
class AdafactorStep {
 public:
  // Takes the memory for a step of this parameter.
  void reserve(const Tensor<T>& parameter) {
    const index_t width = parameter.shape().cols(), height = width > 0 ? parameter.numel() / width : 0;
    const bool matrix = parameter.rank() >= 2;
    if (matrix) row_factors_.reserve(static_cast<std::size_t>(height));
    column_factors_.reserve(
        static_cast<std::size_t>(matrix ? matrices_of(parameter.shape()) * width : width));
    squares_.reserve(static_cast<std::size_t>(height));
  }

  void start(Tensor<T>& parameter, const T* gradient, double grad_scale) {
    p_ = parameter.data();
    g_ = gradient;
    scale_ = grad_scale;
    columns_ = parameter.shape().cols();
    rows_ = columns_ > 0 ? parameter.numel() / columns_ : 0;
    matrices_ = parameter.rank() < 2 ? 1 : matrices_of(parameter.shape());
    row_factors_.clear();
  }

  // Updates the mean squares by row and column, (matrices, rows) and (matrices, columns). Shazeer and Stern
  // 2018, algorithm 2.
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

  // Updates a mean square for each element.
  void full(T* means, double decay, double eps) {
    const index_t n = rows_ * columns_;
    column_factors_.resize(static_cast<std::size_t>(n));
    for (index_t i = 0; i < n; ++i) {
      blend(means[i], decay, square(i) + eps);
      column_factors_[static_cast<std::size_t>(i)] =
          static_cast<T>(1 / std::sqrt(static_cast<double>(means[i])));
    }
  }

  // Clips the update, averages it into `mean` (size of the parameter; null: no momentum), and changes the
  // parameter.
  void apply(T* mean, double rate, double clip_threshold, double beta1, double weight_decay) {
    squares_.assign(static_cast<std::size_t>(rows_), 0);
    parallel_for(rows_, grain(), [&](index_t begin, index_t end) {
      for (index_t r = begin; r < end; ++r) {
        double sum = 0;
        for_row(r,
                [&](index_t, T update) { sum += static_cast<double>(update) * static_cast<double>(update); });
        squares_[static_cast<std::size_t>(r)] = sum;
      }
    });
    const double size = std::sqrt(std::accumulate(squares_.begin(), squares_.end(), 0.0) /
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

  T* p_ = nullptr;
  const T* g_ = nullptr;
  double scale_ = 1;
  index_t columns_ = 0, rows_ = 0, matrices_ = 1;
  std::vector<T> row_factors_, column_factors_;
  std::vector<double> squares_;
};

}  // namespace eigenformer::detail

namespace eigenformer {

/// Options of Adafactor.
struct AdafactorOptions {
  double eps1 = 1e-30;        ///< added to each squared gradient
  double eps2 = 1e-3;         ///< smallest size of a parameter that scale_parameter uses
  double clip_threshold = 1;  ///< largest root mean square of an update, before the learning rate
  double decay_rate = 0.8;    ///< mean squares decay by 1 - step^-decay_rate
  double beta1 = 0;           ///< decay of the mean of updates; 0: no momentum, which needs no memory
  /// Decoupled: shrinks the parameter by this times the step size; not for norms and biases.
  double weight_decay = 0;
  bool scale_parameter = true;  ///< multiply steps by max(eps2, root mean square of the parameter)
  bool relative_step = false;   ///< multiply steps by min(0.01, 1 / sqrt(step)), the paper's schedule
  ParameterGroups groups{};     ///< parameters with rates or decay of their own
};

/// Adafactor (Shazeer and Stern 2018, algorithms 4 and 5), with the same numbers as transformers' Adafactor.
/// Instead of a mean square for each element of a matrix it keeps one for each row and column, so its state
/// needs hardly any memory; vectors have a mean square for each element. It holds the parameters' handles, so
/// it may outlive the model. Frozen parameters and those without a gradient are not stepped; each parameter
/// counts its own steps.
///
///     ef::Adafactor<float> optimizer(ef::parameters(model), {.scale_parameter = false});
///     optimizer.step(gradients, learning_rate);
///
/// A tensor of rank above 2 counts as a list of matrices, its last two dimensions. Norms and biases do not
/// decay unless a group says so.
///
/// The state has transformers' names: for each parameter `p` that was stepped "p.exp_avg_sq_row" and
/// "p.exp_avg_sq_col" for matrices, "p.exp_avg_sq" for vectors, "p.exp_avg" with momentum, and "p.step".
template <class T = float>
class Adafactor : public detail::ParameterOptimizer<T> {
 public:
  /// Throws ValueError that names the invalid option, or a group that matches no parameter or only parameters
  /// of earlier groups. Tied parameters are stepped once.
  explicit Adafactor(const std::vector<ParameterHandle<T>>& parameters, const AdafactorOptions& options = {})
      : detail::ParameterOptimizer<T>("adafactor", parameters),
        options_(options),
        sizes_(this->parameters_.size()) {
    const auto require = [](const char* field, double value, Allowed allowed) {
      detail::require_allowed("adafactor", field, value, allowed);
    };
    require("eps1", options.eps1, Allowed::not_negative);
    require("eps2", options.eps2, Allowed::not_negative);
    require("clip_threshold", options.clip_threshold, Allowed::positive);
    require("decay_rate", options.decay_rate, Allowed::positive);
    require("beta1", options.beta1, Allowed::rate);
    require("weight_decay", options.weight_decay, Allowed::not_negative);
    this->begin(options.groups, options.weight_decay);
  }

 private:
  std::vector<detail::StatePart> parts_of(const Shape& parameter) const override {
    std::vector<detail::StatePart> parts;
    if (parameter.rank() >= 2) {
      parts = {{".exp_avg_sq_row", parameter.without(-1)}, {".exp_avg_sq_col", parameter.without(-2)}};
    } else {
      parts = {{".exp_avg_sq", parameter}};
    }
    if (options_.beta1 > 0) parts.push_back({".exp_avg", parameter});
    parts.push_back({".step", Shape{}, true});
    return parts;
  }
  void prepare(std::size_t i) override {
    const Tensor<T>& p = this->parameters_[i]->value;
    step_.reserve(p);
    if (!options_.scale_parameter || p.numel() == 0) return;
    sizes_[i] =
        std::sqrt(detail::kernels::sum_of_squares<T>(p.data(), p.numel()) / static_cast<double>(p.numel()));
  }
  void step_parameter(std::size_t i, const T* gradient, double learning_rate, double grad_scale,
                      bool /*first*/) override {
    Tensor<T>& p = this->parameters_[i]->value;
    if (p.numel() == 0) return;
    std::vector<Tensor<T>>& state = this->states_[i];
    const auto count = static_cast<double>(*state.back().data() += T(1));
    double rate = learning_rate;
    if (options_.relative_step) rate *= std::min(0.01, 1 / std::sqrt(count));
    if (options_.scale_parameter) rate *= std::max(options_.eps2, sizes_[i]);
    const double decay = 1 - std::pow(count, -options_.decay_rate);
    step_.start(p, gradient, grad_scale);
    if (p.rank() >= 2) {
      step_.factored(state[0].data(), state[1].data(), decay, options_.eps1);
    } else {
      step_.full(state[0].data(), decay, options_.eps1);
    }
    T* const mean = options_.beta1 > 0 ? state[state.size() - 2].data() : nullptr;
    step_.apply(mean, rate, options_.clip_threshold, options_.beta1, this->rules_[i].weight_decay);
  }

  AdafactorOptions options_;
  std::vector<double> sizes_;  // root mean squares of the parameters, with scale_parameter
  detail::AdafactorStep<T> step_;
};

}  // namespace eigenformer
