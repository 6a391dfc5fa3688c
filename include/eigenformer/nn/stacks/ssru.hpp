#pragma once

#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "eigenformer/nn/stacks/pass.hpp"

namespace eigenformer {

/// Options of an Ssru.
struct SsruOptions {
  index_t d_model = defaults::d_model;  ///< features of a row
  bool bias = true;                     ///< a bias in the forget gate
};

/// The Simpler Simple Recurrent Unit of Kim et al. 2019 ("From Research to Production and Back"), which
/// replaces a decoder's self-attention:
///
///     f = sigmoid(forget(x)),  c[t] = f[t] * c[t - 1] + (1 - f[t]) * input(x)[t],  y = relu(c)
///
/// A token sees earlier ones through c alone, which starts at zero, so decoding stores one vector for each
/// sequence and layer, whatever the length.
///
///     ef::Ssru<float> unit({.d_model = 12}, rng);
///     ef::SequencePass<float> pass(layout);
///     auto y = unit(ctx, x, pass);  // (rows, 12)
template <class T = float>
struct Ssru {
  using value_type = T;  ///< element type, float or double

  Linear<T> input;   ///< D -> D, without bias
  Linear<T> forget;  ///< D -> D, the forget gate

  /// Throws ValueError for a d_model that is not positive.
  Ssru(const SsruOptions& options, RandomGenerator& rng)
      : input({options.d_model, options.d_model, false}, rng),
        forget({options.d_model, options.d_model, options.bias}, rng) {
    name_parameters(*this);
  }

  /// x: the rows of the pass, (rows, D). Returns the same shape. Throws as LayerPass::recurrence does.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, LayerPass<T>& pass) const {
    return relu(pass.recurrence(ctx, sigmoid(forget(ctx, x)), input(ctx, x)));
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("input", self.input);
    visit("forget", self.forget);
  }
};

static_assert(std::is_nothrow_move_constructible_v<Ssru<float>>);

EIGENFORMER_MODULE_INSTANCES(Ssru)

}  // namespace eigenformer
