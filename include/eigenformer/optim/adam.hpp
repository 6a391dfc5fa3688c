#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"
#include "eigenformer/optim/optimizer.hpp"

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

/// Options of Adam and AdamW; the defaults are PyTorch's.
struct AdamOptions {
  double beta1 = 0.9;    ///< decay of the mean of gradients, in [0, 1)
  double beta2 = 0.999;  ///< decay of the mean of squared gradients, in [0, 1); 0.98 in Vaswani et al. 2017
  double eps = 1e-8;     ///< added to the square root of the mean square
  /// Not for norms and biases. Adam adds this times the parameter to the gradient; AdamW shrinks the
  /// parameter by this times the rate. Unset: 0 for Adam, 0.01 for AdamW.
  std::optional<double> weight_decay{};
  ParameterGroups groups{};                        ///< parameters with rates or decay of their own
  StatePrecision state = StatePrecision::float32;  ///< of the moments; bf16 halves their memory
};

/// Adam (Kingma and Ba 2015) in PyTorch's form. It holds the parameters' handles, so it may outlive the
/// model. Frozen parameters and those without a gradient are not stepped; each parameter counts its own
/// steps.
///
///     ef::Adam<float> optimizer(ef::parameters(model), {.beta2 = 0.98, .eps = 1e-9});
///     optimizer.step(gradients, learning_rate);
///
/// Norms and biases (rank below 2) do not decay unless a group says so; PyTorch's optimizers decay every
/// parameter that they are given.
///
/// The state has PyTorch's names: for each parameter `p` that was stepped "p.exp_avg", "p.exp_avg_sq" and
/// "p.step". With StatePrecision::bf16 a step is computed in T, and the moments are then rounded
/// stochastically. They are "p.exp_avg_bf16" and "p.exp_avg_sq_bf16": flat tensors with the bits of sizeof(T)
/// / 2 numbers in each element. The random bits depend on the parameter's name, its step and the element, so
/// parameters should have distinct names, as those of a model have.
template <class T = float>
class Adam : public detail::ParameterOptimizer<T> {
 public:
  /// Throws ValueError that names the invalid option, or a group that matches no parameter or only parameters
  /// of earlier groups. Tied parameters are stepped once.
  explicit Adam(const std::vector<ParameterHandle<T>>& parameters, const AdamOptions& options = {})
      : Adam("adam", parameters, options, false) {}

 protected:
  /// For AdamW: `name` begins error messages; decoupled: weight decay shrinks the parameters themselves.
  Adam(const char* name, const std::vector<ParameterHandle<T>>& parameters, const AdamOptions& options,
       bool decoupled);

 private:
  std::vector<detail::StatePart> parts_of(const Shape& parameter) const override;
  void step_parameter(std::size_t i, const T* gradient, double learning_rate, double grad_scale,
                      bool first) override;

  bool half() const { return options_.state == StatePrecision::bf16; }

  AdamOptions options_;
  bool decoupled_;
};

// Defined outside of the class for the reason given in nn/models/seq2seq.hpp.

template <class T>
Adam<T>::Adam(const char* name, const std::vector<ParameterHandle<T>>& parameters, const AdamOptions& options,
              bool decoupled)
    : detail::ParameterOptimizer<T>(name, parameters), options_(options), decoupled_(decoupled) {
  const double weight_decay = options.weight_decay.value_or(decoupled ? 0.01 : 0);
  detail::require_allowed(name, "beta1", options.beta1, Allowed::rate);
  detail::require_allowed(name, "beta2", options.beta2, Allowed::rate);
  detail::require_allowed(name, "eps", options.eps, Allowed::not_negative);
  detail::require_allowed(name, "weight_decay", weight_decay, Allowed::not_negative);
  this->begin(options.groups, weight_decay);
}

template <class T>
std::vector<detail::StatePart> Adam<T>::parts_of(const Shape& parameter) const {
  const Shape moment = half() ? Shape{detail::packed_elements<T>(parameter.numel())} : parameter;
  return {{half() ? ".exp_avg_bf16" : ".exp_avg", moment},
          {half() ? ".exp_avg_sq_bf16" : ".exp_avg_sq", moment},
          {".step", Shape{}, true}};
}

template <class T>
void Adam<T>::step_parameter(std::size_t i, const T* gradient, double learning_rate, double grad_scale,
                             bool /*first*/) {
  auto& p = *this->parameters_[i];
  std::vector<Tensor<T>>& state = this->states_[i];
  const auto step = static_cast<index_t>(*state[2].data() += T(1));
  const auto take = [&](auto&& kernel, const auto&... more) {
    kernel(p.value.data(), gradient, state[0].data(), state[1].data(), p.value.numel(), learning_rate,
           options_.beta1, options_.beta2, options_.eps, this->rules_[i].weight_decay, decoupled_, step,
           grad_scale, more...);
  };
  if (half()) {
    take(detail::adam_step_bf16<T>,
         detail::DropoutKey{detail::hash_of_name(p.name), static_cast<std::uint32_t>(step), 0});
  } else {
    take(detail::kernels::adam_step<T>);
  }
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
  explicit AdamW(const std::vector<ParameterHandle<T>>& parameters, const AdamOptions& options = {})
      : Adam<T>("adamw", parameters, options, true) {}
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
