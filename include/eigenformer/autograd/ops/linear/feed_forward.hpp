#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/elementwise/dropout.hpp"
#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"

namespace eigenformer {

namespace detail {

// Computes, from a tile of the gradient of a feed-forward network's hidden layer, the gradients of the
// products before it while the tile is in the cache. `up` of the tail is defined if the network is gated;
// then dup is the memory for the gradient of that half.
template <class T>
struct FeedForwardBackwardTile {
  const LinearTail<T>& tail;
  const Tensor<T>& hidden;
  T* dup;

  static void apply(const void* context, T* c, index_t ldc, index_t row, index_t rows, index_t col,
                    index_t cols) {
    const auto& [tail, hidden, dup] = *static_cast<const FeedForwardBackwardTile*>(context);
    const bool gated = tail.up.defined();
    // ReLU needs no mask: dropped elements are zero in the output, too (the factor 1 / (1 - rate) is in the
    // product's alpha).
    if (gated || !tail.relu()) tail.dropout.apply_tile(c, ldc, row, rows, col, cols);
    const index_t width = hidden.dim(-1), at = row * width + col;
    const T* const state = (tail.input.defined() ? tail.input : hidden).data() + at;
    if (gated) {
      kernels::gated_backward_tile<T>(tail.activation, state, tail.up.data() + at, width, c, ldc, T(0), c,
                                      ldc, dup + at, width, rows, cols);
    } else {
      kernels::activation_backward_tile<T>(tail.activation, state, width, c, c, ldc, T(0), rows, cols);
    }
  }
};

// The network as one op; gated if w_up is defined. linear1 is the gate then.
template <class T>
Var<T> fused_feed_forward(const char* op, const Context<T>& ctx, const Var<T>& x, const Parameter<T>& w1,
                          const Parameter<T>& b1, const Parameter<T>& w_up, const Parameter<T>& b_up,
                          const Parameter<T>& w2, const Parameter<T>& b2, Activation activation,
                          double dropout_rate) {
  const OpScope scope = scope_of(op, x);
  const bool gated = w_up.defined(), recorded = x.recorded() || ctx.records();
  const index_t rows = x.shape().rows(), d = x.shape().cols(), ff = w1.shape()[0], out = w2.shape()[0];
  if (x.rank() < 1 || d != w1.shape()[1] || w2.shape()[1] != ff) {
    throw ShapeError(op,
                     {"last dimension of input ", x.shape(), " must be ", w1.shape()[1], ", to match '",
                      w1.name(), "' of shape ", w1.shape(), ", and '", w2.name(), "' of shape ", w2.shape(),
                      " must take its outputs"},
                     {x.shape(), w1.shape(), w2.shape()});
  }
  if (gated && w_up.shape() != w1.shape()) {
    throw ShapeError(op,
                     {"'", w_up.name(), "' of shape ", w_up.shape(), " must have the shape of '", w1.name(),
                      "', which is ", w1.shape()},
                     {w_up.shape(), w1.shape()});
  }
  require_bias(op, b1, w1);
  if (gated) require_bias(op, b_up, w_up);
  require_bias(op, b2, w2);
  const auto adapted = [&](const Parameter<T>& w) { return w.defined() && ctx.adapter_of(w) != nullptr; };
  if (adapted(w1) || adapted(w_up) || adapted(w2)) {
    if (!gated) return linear(ctx, linear(ctx, x, w1, b1, activation, dropout_rate), w2, b2);
    const Var<T> up = linear(ctx, x, w_up, b_up), gate = linear(ctx, x, w1, b1, activation);
    return linear(ctx, dropout(ctx, multiply(gate, up), dropout_rate), w2, b2);
  }
  const Shape hidden_shape = x.shape().with(-1, ff);
  LinearTail<T> tail{activation, RowDropoutSite<T>(op, ctx, dropout_rate, rows)};
  const auto product = [&](const Tensor<T>& in, const Parameter<T>& weight, const Parameter<T>& bias,
                           const Shape& shape, kernels::GemmEpilogue<T> epilogue) {
    Tensor<T> y(shape);
    if (bias.defined()) epilogue.bias = bias.value().data();
    weight_product<T>(op, ctx, rows, in.data(), weight, 0, weight.shape()[0], recorded, y.data(), epilogue);
    return y;
  };
  if (gated) tail.up = product(x.value(), w_up, b_up, hidden_shape, {});
  if (recorded) tail.keep_input(hidden_shape);
  Tensor<T> hidden = product(x.value(), w1, b1, hidden_shape, {nullptr, LinearTail<T>::apply, &tail});
  Tensor<T> y = product(hidden, w2, b2, x.shape().with(-1, out), {});
  if (!recorded) return Var<T>(std::move(y));

  // dW2 = dy^T h, dz = (dy W2) * mask * f'(z), dW1 = dz^T x, dx = dz W1; each bias gets its columns' sums.
  // Gated: dz has the factor up, and with du = (dy W2) * mask * f(z): dWu = du^T x, dx += du Wu.
  const Var<T> v1 = ctx.use(w1), c1 = ctx.use(b1), v2 = ctx.use(w2), c2 = ctx.use(b2);
  const Var<T> v_up = ctx.use(w_up), c_up = ctx.use(b_up);
  std::vector<Var<T>> inputs{x, v2, c2, v1, c1};
  if (gated) inputs.insert(inputs.end(), {v_up, c_up});
  if (not_recorded(y, inputs)) return y;
  const bool before = x.recorded() || v1.recorded() || c1.recorded() || v_up.recorded() || c_up.recorded();
  return record(op, std::move(y), inputs,
                SavedTensors()
                    .add_if(v1.recorded() || v_up.recorded(), x)
                    .add_if(x.recorded(), v1)
                    .add_if(x.recorded() && gated, v_up)
                    .add_if(before, v2),
                [x = x.value(), w1 = v1.value(), w_up = v_up.value(), w2 = v2.value(), tail = std::move(tail),
                 hidden = std::move(hidden), before, rows, d, ff, out,
                 products = WeightProducts<T>(ctx)](Backward<T>& b) {
                  const T* dy = b.dy().data();
                  products.add_gradients(rows, dy, out, hidden.data(), ff, b.grad(1), b.grad(2));
                  if (!before) return;
                  const bool gate = tail.up.defined();
                  Tensor<T> dz(hidden.shape()), dup = gate ? Tensor<T>(hidden.shape()) : Tensor<T>();
                  const FeedForwardBackwardTile<T> tile{tail, hidden, gate ? dup.data() : nullptr};
                  const T alpha = tail.relu() && !gate ? static_cast<T>(1 / (1 - tail.dropout.rate)) : T(1);
                  products.run(true, rows, alpha, dy, w2, 0, out, T(0), dz.data(),
                               {nullptr, FeedForwardBackwardTile<T>::apply, &tile});
                  const auto half = [&](const Tensor<T>& g, const Tensor<T>& weight, std::size_t input) {
                    products.add_gradients(rows, g.data(), ff, x.data(), d, b.grad(input), b.grad(input + 1));
                    if (auto dx = b.grad(0)) {
                      products.run(true, rows, T(1), g.data(), weight, 0, ff, dx.beta, dx.data);
                    }
                  };
                  half(dz, w1, 3);
                  if (gate) half(dup, w_up, 5);
                });
}

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
  // Not fused: activations such as sigmoid, whose backward reads the output; Transformers do not use them
  // here.
  const bool fused =
      activation == Activation::relu || !detail::kernels::activation_backward_takes_output(activation);
  if (!fused || !(x.recorded() || ctx.records()))
    return linear(ctx, linear(ctx, x, w1, b1, activation, dropout_rate), w2, b2);
  return detail::fused_feed_forward<T>("feed_forward", ctx, x, w1, b1, {}, {}, w2, b2, activation,
                                       dropout_rate);
}

/// linear2(dropout(activation(gate(x)) * up(x))) as one op: the halves are multiplied, and their gradients
/// computed, inside the products around them. Shazeer 2020: sigmoid is GLU, gelu GEGLU, silu SwiGLU, relu
/// ReGLU, none bilinear.
///
/// x: (..., d); w_gate, w_up: (ff, d); b_gate, b_up: (ff) or absent; w2: (out, ff); b2: (out) or absent.
/// Returns (..., out). Throws ShapeError, naming the parameter, when shapes do not fit, ValueError for a rate
/// outside [0, 1).
template <class T>
[[nodiscard]] Var<T> gated_feed_forward(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                        const Parameter<T>& w_gate, const Parameter<T>& b_gate,
                                        const Parameter<T>& w_up, const Parameter<T>& b_up,
                                        const Parameter<T>& w2, const Parameter<T>& b2, Activation activation,
                                        double dropout_rate) {
  return detail::fused_feed_forward("gated_feed_forward", ctx, x, w_gate, b_gate, w_up, b_up, w2, b2,
                                    activation, dropout_rate);
}

/// a * f(b) for the halves (a, b) of x's last dimension. Sigmoid gives GLU (Dauphin et al. 2017; PyTorch's
/// F.glu), the others the variants of Shazeer 2020.
///
/// x: (..., 2 n), the gate last. Returns (..., n). Throws ShapeError unless the last dimension is even.
template <class T>
[[nodiscard]] Var<T> glu(const Var<T>& x, Activation gate = Activation::sigmoid) {
  const OpScope scope = detail::scope_of("glu", x);
  if (x.rank() < 1 || x.dim(-1) % 2 != 0) {
    throw ShapeError("glu", {"last dimension of input ", x.shape(), " must be even"}, {x.shape()});
  }
  const index_t rows = x.shape().rows(), n = x.dim(-1) / 2;
  Tensor<T> y(x.shape().with(-1, n));
  const T* in = x.value().data();
  T* out = y.data();
  const index_t grain = (index_t{1} << 13) / std::max<index_t>(n, 1);
  parallel_for(rows, grain, [&](index_t begin, index_t end) {
    detail::kernels::gated_tile<T>(gate, in + begin * 2 * n + n, 2 * n, in + begin * 2 * n, 2 * n,
                                   out + begin * n, n, end - begin, n);
  });
  if (detail::not_recorded(y, x)) return y;
  // da = f(b) dy, db = f'(b) a dy.
  return detail::record_one("glu", std::move(y), x, SavedTensors(x),
                            [gate, rows, n, grain, x = x.value()](const auto& dx, const Tensor<T>& dy) {
                              const T* g = dy.data();
                              parallel_for(rows, grain, [&](index_t begin, index_t end) {
                                const index_t at = begin * 2 * n;
                                detail::kernels::gated_backward_tile<T>(
                                    gate, x.data() + at + n, x.data() + at, 2 * n, g + begin * n, n, dx.beta,
                                    dx.data + at + n, 2 * n, dx.data + at, 2 * n, end - begin, n);
                              });
                            });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> glu(const X& x, Activation gate = Activation::sigmoid) {
  return glu<element_t<X>>(x, gate);
}

}  // namespace eigenformer
