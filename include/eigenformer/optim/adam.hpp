#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"
#include "eigenformer/optim/optimizer.hpp"
#include "eigenformer/optim/parameter_groups.hpp"

namespace eigenformer::detail {

// Moments in bfloat16. Rounding to nearest would freeze them: with beta2 = 0.999 a step changes a mean square
// by at most a thousandth, less than half the distance between adjacent bfloat16 numbers. So they are rounded
// up or down at random, with probabilities that keep the mean exact (stochastic rounding; Gupta et al. 2015,
// and Zamirai et al. 2020 for bfloat16). The random bits are a function of the parameter's name, its step and
// the element, so results do not depend on threads, on the other parameters of the optimizer, or on a resume.

// Number of elements of T that hold n bfloat16 numbers.
template <class T>
index_t packed_elements(index_t n) {
  constexpr index_t per_element = sizeof(T) / sizeof(std::uint16_t);
  return (n + per_element - 1) / per_element;
}

// FNV-1a.
constexpr std::uint64_t hash_of_name(std::string_view name) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

inline float from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds x to one of its bfloat16 neighbours, by `random` in [0, 2^16): away from zero with the probability
// of x's distance from the one nearer to zero. Infinities keep their bits, and NaN stays NaN.
EIGENFORMER_FUNCTION std::uint16_t round_stochastically(float x, std::uint32_t random) noexcept;

// kernels::adam_step with n moments in bfloat16 each. key: of the random bits.
template <class T>
void adam_step_bf16(T* p, const T* g, T* first, T* second, index_t n, double lr, double beta1, double beta2,
                    double eps, double weight_decay, bool decoupled, index_t step, double grad_scale,
                    const DropoutKey& key) {
  constexpr index_t block = 512, of_philox = 64;
  const auto words = key.philox_key();
  parallel_for((n + block - 1) / block, 64, [&](index_t begin, index_t end) {
    alignas(64) T m[block], v[block];
    alignas(64) std::uint32_t random[of_philox];
    std::uint16_t bits[2][block];
    for (index_t k = begin; k < end; ++k) {
      const index_t at = k * block, count = std::min(block, n - at);
      const auto bytes = static_cast<std::size_t>(count) * sizeof(std::uint16_t);
      char* const places[2] = {reinterpret_cast<char*>(first) + at * 2,
                               reinterpret_cast<char*>(second) + at * 2};
      for (int moment = 0; moment < 2; ++moment) std::memcpy(bits[moment], places[moment], bytes);
      for (index_t i = 0; i < count; ++i) {
        m[i] = static_cast<T>(from_bf16(bits[0][i]));
        v[i] = static_cast<T>(from_bf16(bits[1][i]));
      }
      kernels::adam_step<T>(p + at, g + at, m, v, count, lr, beta1, beta2, eps, weight_decay, decoupled, step,
                            grad_scale);
      for (index_t i = 0; i < count; ++i) {
        // Each word serves both moments of one element.
        if (i % of_philox == 0) {
          kernels::PhiloxBlock<16>::run(words[0], words[1], 0, static_cast<std::uint32_t>(at >> 32),
                                        static_cast<std::uint32_t>(at),
                                        static_cast<std::uint32_t>(i / of_philox * 16), random);
        }
        const std::uint32_t word = random[i % of_philox];
        bits[0][i] = round_stochastically(static_cast<float>(m[i]), word & 0xFFFFu);
        bits[1][i] = round_stochastically(static_cast<float>(v[i]), word >> 16);
      }
      for (int moment = 0; moment < 2; ++moment) std::memcpy(places[moment], bits[moment], bytes);
    }
  });
}

}  // namespace eigenformer::detail

namespace eigenformer {

/// Options of Adam; the defaults are PyTorch's.
struct AdamOptions {
  double beta1 = 0.9;    ///< decay of the mean of gradients, in [0, 1)
  double beta2 = 0.999;  ///< decay of the mean of squared gradients, in [0, 1); 0.98 in Vaswani et al. 2017
  double eps = 1e-8;     ///< added to the square root of the mean square
  double weight_decay = 0;   ///< adds this times the parameter to the gradient; not for norms and biases
  ParameterGroups groups{};  ///< parameters with rates or decay of their own
  StatePrecision state = StatePrecision::float32;  ///< of the moments; bf16 halves their memory
};

/// Options of AdamW; the defaults are PyTorch's.
struct AdamWOptions {
  double beta1 = 0.9;          ///< decay of the mean of gradients, in [0, 1)
  double beta2 = 0.999;        ///< decay of the mean of squared gradients, in [0, 1)
  double eps = 1e-8;           ///< added to the square root of the mean square
  double weight_decay = 0.01;  ///< decoupled: shrinks parameters by this times the rate; not norms and biases
  ParameterGroups groups{};    ///< parameters with rates or decay of their own
  StatePrecision state = StatePrecision::float32;  ///< of the moments; bf16 halves their memory
};

/// Adam (Kingma and Ba 2015) in PyTorch's form. It holds the parameters' handles, so it may outlive the
/// model.
///
///     ef::Adam<float> optimizer(ef::parameters(model), {.beta2 = 0.98, .eps = 1e-9});
///     optimizer.step(gradients, learning_rate);
///
/// Norms and biases (rank below 2) do not decay unless a group says so; PyTorch's optimizers decay every
/// parameter that they are given.
///
/// With StatePrecision::bf16 a step is computed in T, and the moments are then rounded stochastically. The
/// random bits depend on the parameter's name, its step and the element, so parameters should have distinct
/// names, as those of a model have.
template <class T = float>
class Adam : public Optimizer<T> {
 public:
  /// Throws ValueError that names the invalid option, or a group that matches no parameter or only parameters
  /// of earlier groups. Tied parameters are stepped once.
  explicit Adam(const std::vector<ParameterHandle<T>>& parameters, const AdamOptions& options = {})
      : Adam("adam", parameters, options, false) {}

  /// Updates every parameter that is not frozen and has a gradient. Gradients are first multiplied by
  /// grad_scale, the learning rate by that of the parameter's group. Each parameter counts its own steps, as
  /// in PyTorch. Throws ValueError if learning_rate or grad_scale is not finite or `gradients` has no entry
  /// for a parameter; then nothing changes.
  void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) override;

  /// The moments and step counts of every parameter that was stepped, under PyTorch's names: for parameter
  /// `p` "p.exp_avg", "p.exp_avg_sq" and "p.step". The tensors share storage with the optimizer. Moments in
  /// bf16 are "p.exp_avg_bf16" and "p.exp_avg_sq_bf16": flat tensors with the bits of sizeof(T) / 2 numbers
  /// in each element. Throws ValueError if two parameters have the same name.
  std::vector<StateEntry<T>> state() const override;
  /// Loads what state() returned; the tensors are copied, and parameters without entries start afresh. Throws
  /// ValueError that lists all missing, unexpected and misshaped names and counts that are none, or if two
  /// parameters have the same name; then nothing changes.
  void load(const std::vector<StateEntry<T>>& entries) override;

  /// Replaces the parameter groups. Throws ValueError as the constructor does; then nothing changes.
  void set_groups(const ParameterGroups& groups) {
    const auto rules = detail::step_rules(name_, handles(), groups, options_.weight_decay);
    for (std::size_t i = 0; i < moments_.size(); ++i) moments_[i].rule = rules[i];
    options_.groups = groups;
  }

  /// The options, with the current groups.
  const AdamOptions& options() const noexcept { return options_; }
  /// Whether weight decay shrinks the parameters themselves (AdamW) instead of adding to the gradient.
  bool decoupled() const noexcept { return decoupled_; }

 protected:
  /// For AdamW: `name` begins error messages, decoupled as in decoupled().
  Adam(const char* name, const std::vector<ParameterHandle<T>>& parameters, const AdamOptions& options,
       bool decoupled);

 private:
  struct Moments {
    ParameterHandle<T> parameter;
    Tensor<T> first, second;
    Tensor<T> steps;  // a scalar, so that it is saved like the others; undefined before the first step
    detail::StepRule rule;
  };

  // Allocates before the first step, so that lasting memory does not fragment that of a step.
  void take_memory(Moments& m) const {
    if (!m.first.defined()) m.first = Tensor<T>(moment_shape(*m.parameter));
    if (!m.second.defined()) m.second = Tensor<T>(moment_shape(*m.parameter));
  }
  Shape moment_shape(const detail::ParameterState<T>& p) const {
    return half() ? Shape{detail::packed_elements<T>(p.value.numel())} : p.value.shape();
  }
  bool half() const { return options_.state == StatePrecision::bf16; }
  const char* first_name() const { return half() ? ".exp_avg_bf16" : ".exp_avg"; }
  const char* second_name() const { return half() ? ".exp_avg_sq_bf16" : ".exp_avg_sq"; }

  std::vector<ParameterHandle<T>> handles() const {
    std::vector<ParameterHandle<T>> handles;
    for (const auto& m : moments_) handles.push_back(m.parameter);
    return handles;
  }
  void require_names() const { detail::require_distinct_names(name_, handles()); }

  const char* name_;
  AdamOptions options_;
  bool decoupled_;
  std::vector<Moments> moments_;
};

// Defined outside of the class for the reason given in nn/models/seq2seq.hpp.

template <class T>
Adam<T>::Adam(const char* name, const std::vector<ParameterHandle<T>>& parameters, const AdamOptions& options,
              bool decoupled)
    : name_(name), options_(options), decoupled_(decoupled) {
  const auto require = [&](bool valid, const char* field, double value, const char* rule) {
    if (!valid) throw ValueError(name, {field, " is ", value, ", must be ", rule});
  };
  require(options.beta1 >= 0 && options.beta1 < 1, "beta1", options.beta1, "in [0, 1)");
  require(options.beta2 >= 0 && options.beta2 < 1, "beta2", options.beta2, "in [0, 1)");
  require(options.eps >= 0 && std::isfinite(options.eps), "eps", options.eps, "finite and not negative");
  require(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay",
          options.weight_decay, "finite and not negative");
  for (const auto& p : detail::distinct(name, parameters)) {
    moments_.push_back({p, {}, {}, {}, {}});
    if (!p->frozen) take_memory(moments_.back());
  }
  set_groups(options.groups);
}

template <class T>
void Adam<T>::step(const Gradients<T>& gradients, double learning_rate, double grad_scale) {
  detail::require_step(name_, learning_rate, grad_scale);
  for (const auto& m : moments_) (void)detail::gradient_of(name_, gradients, *m.parameter);
  // Memory is allocated first, so that nothing has changed if it runs out.
  std::vector<Tensor<T>> new_steps(moments_.size());
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    auto& m = moments_[i];
    if (detail::gradient_of(name_, gradients, *m.parameter) == nullptr || m.steps.defined()) continue;
    take_memory(m);
    new_steps[i] = Tensor<T>::scalar(T(0));
  }
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    auto& m = moments_[i];
    auto& p = *m.parameter;
    const T* g = detail::gradient_of(name_, gradients, p);
    if (g == nullptr) continue;
    if (!m.steps.defined()) {
      m.first.fill(T(0));
      m.second.fill(T(0));
      m.steps = std::move(new_steps[i]);
    }
    *m.steps.data() += T(1);
    const auto step = static_cast<index_t>(m.steps.item());
    const auto take = [&](auto&& kernel, const auto&... more) {
      kernel(p.value.data(), g, m.first.data(), m.second.data(), p.value.numel(), learning_rate * m.rule.rate,
             options_.beta1, options_.beta2, options_.eps, m.rule.weight_decay, decoupled_, step, grad_scale,
             more...);
    };
    if (half()) {
      take(detail::adam_step_bf16<T>,
           detail::DropoutKey{detail::hash_of_name(p.name), static_cast<std::uint32_t>(step), 0});
    } else {
      take(detail::kernels::adam_step<T>);
    }
    p.value.mark_changed();
  }
}

template <class T>
std::vector<StateEntry<T>> Adam<T>::state() const {
  require_names();
  std::vector<StateEntry<T>> entries;
  for (const auto& m : moments_) {
    if (!m.steps.defined()) continue;
    entries.push_back({m.parameter->name + first_name(), m.first, {}});
    entries.push_back({m.parameter->name + second_name(), m.second, {}});
    entries.push_back({m.parameter->name + ".step", m.steps, {}});
  }
  return entries;
}

template <class T>
void Adam<T>::load(const std::vector<StateEntry<T>>& entries) {
  require_names();
  std::vector<detail::StateSlot<T>> slots;
  for (auto& m : moments_) {
    const std::string& n = m.parameter->name;
    slots.push_back({n, first_name(), &m.first, moment_shape(*m.parameter)});
    slots.push_back({n, second_name(), &m.second, moment_shape(*m.parameter)});
    slots.push_back({n, ".step", &m.steps, Shape{}, true});
  }
  detail::load_slots(name_, slots, entries);
}

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019), in PyTorch's form. Otherwise as Adam.
///
///     ef::AdamW<float> optimizer(ef::parameters(model), {.weight_decay = 0.1});
///     optimizer.step(gradients, learning_rate);
template <class T = float>
class AdamW : public Adam<T> {
 public:
  /// Throws ValueError that names the invalid option, or a group that matches no parameter or only parameters
  /// of earlier groups. Tied parameters are stepped once.
  explicit AdamW(const std::vector<ParameterHandle<T>>& parameters, const AdamWOptions& options = {})
      : Adam<T>(
            "adamw", parameters,
            {options.beta1, options.beta2, options.eps, options.weight_decay, options.groups, options.state},
            true) {}
};

EIGENFORMER_INSTANCES(class Adam)

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_FUNCTION std::uint16_t round_stochastically(float x, std::uint32_t random) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7F800000u) == 0x7F800000u)
    return static_cast<std::uint16_t>(bits >> 16 | ((bits & 0xFFFFu) != 0 ? 1u : 0u));
  const std::uint32_t rounded = bits + random;
  // The largest numbers must not become infinite.
  return static_cast<std::uint16_t>(((rounded & 0x7F800000u) == 0x7F800000u ? bits : rounded) >> 16);
}

}  // namespace detail
}  // namespace eigenformer

#endif
