#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/optim/optimizer.hpp"
#include "eigenformer/optim/parameter_groups.hpp"

namespace eigenformer::detail {

// Number of matrices in a tensor of rank 2 or above.
inline index_t matrices_of(const Shape& shape) {
  index_t count = 1;
  for (index_t i = 0; i + 2 < shape.rank(); ++i) count *= shape[i];
  return count;
}

// The root mean square of a parameter, which is not empty.
template <class T>
double root_mean_square(const Tensor<T>& parameter) {
  return std::sqrt(kernels::sum_of_squares<T>(parameter.data(), parameter.numel()) /
                   static_cast<double>(parameter.numel()));
}

// What a step of one parameter keeps for a moment; the next parameter takes the same memory.
template <class T>
struct AdafactorFactors {
  std::vector<T> rows, columns;
  std::vector<double> squares;

  // Takes the memory for a step of this parameter.
  void reserve(const Tensor<T>& parameter) {
    const index_t width = parameter.shape().cols(), height = width > 0 ? parameter.numel() / width : 0;
    const bool matrix = parameter.rank() >= 2;
    if (matrix) rows.reserve(static_cast<std::size_t>(height));
    columns.reserve(static_cast<std::size_t>(matrix ? matrices_of(parameter.shape()) * width : width));
    squares.reserve(static_cast<std::size_t>(height));
  }
};

// One step of Adafactor for one parameter: factored() or full() update the mean squares, then apply() updates
// the parameter. The update is never stored: each element is the gradient times a factor of its row and one
// of its column, or times a factor of its own. The order of all sums is independent of threads.
template <class T>
class AdafactorStep {
 public:
  AdafactorStep(Tensor<T>& parameter, const T* gradient, double grad_scale, AdafactorFactors<T>& factors)
      : p_(parameter.data()),
        g_(gradient),
        scale_(grad_scale),
        columns_(parameter.shape().cols()),
        rows_(columns_ > 0 ? parameter.numel() / columns_ : 0),
        matrices_(parameter.rank() < 2 ? 1 : matrices_of(parameter.shape())),
        row_factors_(factors.rows),
        column_factors_(factors.columns),
        squares_(factors.squares) {
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

  T* p_;
  const T* g_;
  double scale_;
  index_t columns_, rows_, matrices_;
  std::vector<T>&row_factors_, &column_factors_;
  std::vector<double>& squares_;
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

  /// Throws ValueError that names the invalid field.
  void validate() const;
};

/// Adafactor (Shazeer and Stern 2018, algorithms 4 and 5), with the same numbers as transformers' Adafactor.
/// Instead of a mean square for each element of a matrix it keeps one for each row and column, so its state
/// needs hardly any memory; vectors have a mean square for each element. It holds the parameters' handles, so
/// it may outlive the model.
///
///     ef::Adafactor<float> optimizer(ef::parameters(model), {.scale_parameter = false});
///     optimizer.step(gradients, learning_rate);
///
/// A tensor of rank above 2 counts as a list of matrices, its last two dimensions. Norms and biases do not
/// decay unless a group says so.
template <class T = float>
class Adafactor : public Optimizer<T> {
 public:
  /// Throws ValueError that names the invalid option, or a group that matches no parameter or only parameters
  /// of earlier groups. Tied parameters are stepped once.
  explicit Adafactor(const std::vector<ParameterHandle<T>>& parameters, const AdafactorOptions& options = {})
      : options_(options), parameters_(detail::distinct("adafactor", parameters)) {
    options_.validate();
    moments_.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i]->frozen) take_memory(i);
    }
    set_groups(options.groups);
  }

  /// Updates every parameter that is not frozen and has a gradient. Gradients are first multiplied by
  /// grad_scale, the learning rate by that of the parameter's group. Each parameter counts its own steps.
  /// Throws ValueError if learning_rate or grad_scale is not finite or `gradients` has no entry for a
  /// parameter; then nothing changes.
  void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) override {
    detail::require_step("adafactor", learning_rate, grad_scale);
    // Memory is allocated first, so that nothing has changed if it runs out.
    std::vector<Tensor<T>> new_steps(parameters_.size());
    std::vector<double> sizes(parameters_.size());
    detail::AdafactorFactors<T> factors;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto& p = *parameters_[i];
      const bool steps = detail::gradient_of("adafactor", gradients, p) != nullptr && p.value.numel() > 0;
      if (!steps) continue;
      factors.reserve(p.value);
      if (options_.scale_parameter) sizes[i] = detail::root_mean_square(p.value);
      if (moments_[i].steps.defined()) continue;
      take_memory(i);
      new_steps[i] = Tensor<T>::scalar(T(0));
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& p = *parameters_[i];
      const T* g = detail::gradient_of("adafactor", gradients, p);
      if (g == nullptr || p.value.numel() == 0) continue;
      Moments& m = moments_[i];
      if (!m.steps.defined()) {
        for (Tensor<T>* t : {&m.rows, &m.columns, &m.all, &m.mean}) {
          if (t->defined()) t->fill(T(0));
        }
        m.steps = std::move(new_steps[i]);
      }
      *m.steps.data() += T(1);
      const auto count = static_cast<double>(m.steps.item());
      double rate = learning_rate * rules_[i].rate;
      if (options_.relative_step) rate *= std::min(0.01, 1 / std::sqrt(count));
      detail::AdafactorStep<T> step{p.value, g, grad_scale, factors};
      if (options_.scale_parameter) rate *= std::max(options_.eps2, sizes[i]);
      const double decay = 1 - std::pow(count, -options_.decay_rate);
      if (m.rows.defined()) {
        step.factored(m.rows.data(), m.columns.data(), decay, options_.eps1);
      } else {
        step.full(m.all.data(), decay, options_.eps1);
      }
      step.apply(m.mean.data(), rate, options_.clip_threshold, options_.beta1, rules_[i].weight_decay);
      p.value.mark_changed();
    }
  }

  /// The state of every parameter that was stepped, under transformers' names: for parameter `p`
  /// "p.exp_avg_sq_row" and "p.exp_avg_sq_col" for matrices, "p.exp_avg_sq" for vectors, "p.exp_avg" with
  /// momentum, and "p.step". The tensors share storage with the optimizer. Throws ValueError if two
  /// parameters have the same name.
  std::vector<StateEntry<T>> state() const override {
    detail::require_distinct_names("adafactor", parameters_);
    std::vector<StateEntry<T>> entries;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Moments& m = moments_[i];
      if (!m.steps.defined()) continue;
      for (const Part& part : parts) {
        const Tensor<T>& tensor = m.*part.member;
        if (tensor.defined()) entries.push_back({parameters_[i]->name + part.name, tensor, {}});
      }
    }
    return entries;
  }
  /// Loads what state() returned; the tensors are copied, and parameters without entries start afresh. Throws
  /// ValueError that lists all missing, unexpected and misshaped names and counts that are none, or if two
  /// parameters have the same name; then nothing changes.
  void load(const std::vector<StateEntry<T>>& entries) override {
    detail::require_distinct_names("adafactor", parameters_);
    std::vector<detail::StateSlot<T>> slots;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto& p = *parameters_[i];
      for (const Part& part : parts) {
        if (const auto shape = shape_of(part.member, p.value.shape()))
          slots.push_back(
              {p.name, part.name, &(moments_[i].*part.member), *shape, part.member == &Moments::steps});
      }
    }
    detail::load_slots("adafactor", slots, entries);
  }

  /// Replaces the parameter groups. Throws ValueError as the constructor does; then nothing changes.
  void set_groups(const ParameterGroups& groups) {
    rules_ = detail::step_rules("adafactor", parameters_, groups, options_.weight_decay);
    options_.groups = groups;
  }

  /// The options, with the current groups.
  const AdafactorOptions& options() const noexcept { return options_; }

 private:
  struct Moments {
    Tensor<T> rows, columns;  // of a matrix: mean squares of each row and of each column
    Tensor<T> all;            // of a vector: mean square of each element
    Tensor<T> mean;           // with momentum
    Tensor<T> steps;  // a scalar, so that it is saved like the others; undefined before the first step
  };
  struct Part {
    const char* name;
    Tensor<T> Moments::*member;
  };
  static constexpr Part parts[] = {{".exp_avg_sq_row", &Moments::rows},
                                   {".exp_avg_sq_col", &Moments::columns},
                                   {".exp_avg_sq", &Moments::all},
                                   {".exp_avg", &Moments::mean},
                                   {".step", &Moments::steps}};

  // The shape of a part for a parameter, if the parameter has this part.
  std::optional<Shape> shape_of(Tensor<T> Moments::*member, const Shape& parameter) const {
    const bool matrix = parameter.rank() >= 2;
    if (member == &Moments::steps) return Shape{};
    if (member == &Moments::mean) return options_.beta1 > 0 ? std::optional(parameter) : std::nullopt;
    if (member == &Moments::all) return matrix ? std::nullopt : std::optional(parameter);
    if (!matrix) return std::nullopt;
    return parameter.without(member == &Moments::rows ? -1 : -2);
  }

  // Allocates before the first step, so that lasting memory does not fragment that of a step.
  void take_memory(std::size_t i) {
    for (const Part& part : parts) {
      Tensor<T>& tensor = moments_[i].*part.member;
      if (part.member == &Moments::steps || tensor.defined()) continue;
      if (const auto shape = shape_of(part.member, parameters_[i]->value.shape())) tensor = Tensor<T>(*shape);
    }
  }

  AdafactorOptions options_;
  std::vector<ParameterHandle<T>> parameters_;
  std::vector<Moments> moments_;
  std::vector<detail::StepRule> rules_;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION void AdafactorOptions::validate() const {
  const auto require = [](bool valid, const char* field, double value, const char* rule) {
    if (valid && std::isfinite(value)) return;
    throw ValueError("adafactor", {field, " is ", value, ", must be ", rule});
  };
  require(eps1 >= 0, "eps1", eps1, "finite and not negative");
  require(eps2 >= 0, "eps2", eps2, "finite and not negative");
  require(clip_threshold > 0, "clip_threshold", clip_threshold, "finite and positive");
  require(decay_rate > 0, "decay_rate", decay_rate, "finite and positive");
  require(beta1 >= 0 && beta1 < 1, "beta1", beta1, "in [0, 1)");
  require(weight_decay >= 0, "weight_decay", weight_decay, "finite and not negative");
}

}  // namespace eigenformer

#endif
