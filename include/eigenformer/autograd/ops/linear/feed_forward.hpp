#pragma once

#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/tape/operand.hpp"

namespace eigenformer {

namespace detail {

// The data that the backward of a feed-forward network needs: its input, the hidden layer after activation
// and dropout, and for activations whose derivative needs it the hidden layer before them.
template <class T>
struct FeedForwardSaved {
  Tensor<T> x, w1, w2, hidden, pre;
  Activation activation;
  RowDropoutSite<T> dropout;

  // Undoes dropout and activation on a tile of the hidden layer's gradient while it is in the cache. ReLU
  // needs no mask: dropped elements are zero in the output, too (the factor 1 / (1 - rate) is in the
  // product's alpha).
  static void apply(const void* context, T* c, index_t ldc, index_t row, index_t rows, index_t col,
                    index_t cols) {
    const auto& self = *static_cast<const FeedForwardSaved*>(context);
    const bool relu = self.activation == Activation::relu;
    if (!relu) self.dropout.apply_tile(c, ldc, row, rows, col, cols);
    const Tensor<T>& state = relu ? self.hidden : self.pre;
    const index_t width = state.dim(-1);
    kernels::activation_backward_tile<T>(self.activation, state.data() + row * width + col, width, c, c, ldc,
                                         T(0), rows, cols);
  }
};

}  // namespace detail

/// linear2(dropout(activation(linear1(x)))) as one op, whose backward applies the derivatives of activation
/// and dropout inside the product that computes the hidden layer's gradient. Vaswani et al. 2017, eq. 2.
///
/// x: (..., d); w1: (ff, d); b1: (ff) or absent; w2: (out, ff); b2: (out) or absent. Returns (..., out).
/// Throws ShapeError, naming the parameter, when shapes do not fit, ValueError for a rate outside [0, 1).
template <class T>
[[nodiscard]] Var<T> feed_forward(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                  const Parameter<T>& w1, const Parameter<T>& b1, const Parameter<T>& w2,
                                  const Parameter<T>& b2, Activation activation, double dropout_rate) {
  detail::require_defined("feed_forward", x);
  const bool recorded = x.recorded() || ctx.records();
  // Not fused: activations such as sigmoid, whose backward reads the output; Transformers do not use them
  // here.
  const bool fused =
      activation == Activation::relu || !detail::kernels::activation_backward_takes_output(activation);
  const bool adapted = ctx.adapter_of(w1) != nullptr || ctx.adapter_of(w2) != nullptr;
  if (!recorded || !fused || adapted)
    return linear(ctx, linear(ctx, x, w1, b1, activation, dropout_rate), w2, b2);

  const OpScope scope(Runtime::instance().profiler(), "feed_forward");
  const index_t rows = x.shape().rows(), d = x.shape().cols(), ff = w1.shape()[0], out = w2.shape()[0];
  if (x.rank() < 1 || d != w1.shape()[1] || w2.shape()[1] != ff) {
    throw ShapeError("feed_forward",
                     {"last dimension of input ", x.shape(), " must be ", w1.shape()[1], ", to match '",
                      w1.name(), "' of shape ", w1.shape(), ", and '", w2.name(), "' of shape ", w2.shape(),
                      " must take its outputs"},
                     {x.shape(), w1.shape(), w2.shape()});
  }
  detail::require_bias("feed_forward", b1, w1);
  detail::require_bias("feed_forward", b2, w2);
  detail::require_memory("feed_forward", w1);
  detail::require_memory("feed_forward", w2);
  const Var<T> v1 = ctx.use(w1), c1 = ctx.use(b1), v2 = ctx.use(w2), c2 = ctx.use(b2);
  detail::FeedForwardSaved<T> saved{x.value(),
                                    v1.value(),
                                    v2.value(),
                                    Tensor<T>(x.shape().with(-1, ff)),
                                    {},
                                    activation,
                                    detail::RowDropoutSite<T>("feed_forward", ctx, dropout_rate, rows)};
  if (activation != Activation::relu) saved.pre = Tensor<T>(saved.hidden.shape());
  const detail::LinearTail<T> tail{activation, saved.dropout, saved.pre};
  const detail::WeightProducts<T> products(ctx);
  products.run(false, rows, T(1), x.value().data(), w1.value(), 0, ff, T(0), saved.hidden.data(),
               {b1.defined() ? b1.value().data() : nullptr, detail::LinearTail<T>::apply, &tail});
  Tensor<T> y(x.shape().with(-1, out));
  products.run(false, rows, T(1), saved.hidden.data(), w2.value(), 0, out, T(0), y.data(),
               {b2.defined() ? b2.value().data() : nullptr});

  if (detail::not_recorded<T>(y, x, v1, c1, v2, c2)) return Var<T>(std::move(y));
  // dW2 = dy^T h, dz = (dy W2) * mask * f'(z), dW1 = dz^T x, dx = dz W1; each bias gets its columns' sums.
  return record("feed_forward", std::move(y), {x, v1, c1, v2, c2},
                SavedTensors()
                    .add_if(v1.recorded(), x)
                    .add_if(x.recorded(), v1)
                    .add_if(x.recorded() || v1.recorded() || c1.recorded(), v2),
                [saved = std::move(saved), rows, d, ff, out, products](Backward<T>& b) {
                  const T* dy = b.dy().data();
                  products.add_gradients(rows, dy, out, saved.hidden.data(), ff, b.grad(3), b.grad(4));
                  if (!b.needs(0) && !b.needs(1) && !b.needs(2)) return;
                  Tensor<T> dz(saved.hidden.shape());
                  const bool relu = saved.activation == Activation::relu;
                  const T alpha = relu ? static_cast<T>(1 / (1 - saved.dropout.rate)) : T(1);
                  products.run(true, rows, alpha, dy, saved.w2, 0, out, T(0), dz.data(),
                               {nullptr, detail::FeedForwardSaved<T>::apply, &saved});
                  products.add_gradients(rows, dz.data(), ff, saved.x.data(), d, b.grad(1), b.grad(2));
                  if (auto dx = b.grad(0)) {
                    products.run(true, rows, T(1), dz.data(), saved.w1, 0, ff, dx.beta, dx.data);
                  }
                });
}

}  // namespace eigenformer
