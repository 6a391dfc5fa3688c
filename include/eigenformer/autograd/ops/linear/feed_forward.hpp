#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/elementwise/dropout.hpp"
#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"

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

namespace detail {

// The data that the backward of a gated feed-forward network needs: its input, both halves of the hidden
// layer, and their product after dropout.
template <class T>
struct GatedSaved {
  Tensor<T> x, w_gate, w_up, w2;
  mutable Tensor<T> gate;  // filled by the epilogue, whose context is const
  Tensor<T> up, hidden;
  Activation activation;
  RowDropoutSite<T> dropout;

  // On a tile of the product for the gate, in the cache: stores it and computes the hidden layer from it.
  static void forward(const void* context, T* c, index_t ldc, index_t row, index_t rows, index_t col,
                      index_t cols) {
    const auto& self = *static_cast<const GatedSaved*>(context);
    const index_t width = self.up.dim(-1);
    if (self.gate.defined()) {
      T* kept = self.gate.data() + row * width + col;
      for (index_t r = 0; r < rows; ++r) std::copy(c + r * ldc, c + r * ldc + cols, kept + r * width);
    }
    kernels::gated_tile<T>(self.activation, c, ldc, self.up.data() + row * width + col, width, c, ldc, rows,
                           cols);
    self.dropout.apply_tile(c, ldc, row, rows, col, cols);
  }
};

// The saved halves and the memory of dup, for the epilogue that computes both gradients.
template <class T>
struct GatedBackwardTile {
  const GatedSaved<T>* saved;
  T* dup;

  static void apply(const void* context, T* c, index_t ldc, index_t row, index_t rows, index_t col,
                    index_t cols) {
    const auto& self = *static_cast<const GatedBackwardTile*>(context);
    const GatedSaved<T>& s = *self.saved;
    s.dropout.apply_tile(c, ldc, row, rows, col, cols);
    const index_t width = s.up.dim(-1), at = row * width + col;
    kernels::gated_backward_tile<T>(s.activation, s.gate.data() + at, s.up.data() + at, width, c, ldc, T(0),
                                    c, ldc, self.dup + at, width, rows, cols);
  }
};

template <class T>
void check_gated(const Var<T>& x, const Parameter<T>& w_gate, const Parameter<T>& w_up,
                 const Parameter<T>& w2) {
  if (x.rank() < 1 || x.dim(-1) != w_gate.shape()[1] || w2.shape()[1] != w_gate.shape()[0]) {
    throw ShapeError("gated_feed_forward",
                     {"last dimension of input ", x.shape(), " must be ", w_gate.shape()[1], ", to match '",
                      w_gate.name(), "' of shape ", w_gate.shape(), ", and '", w2.name(), "' of shape ",
                      w2.shape(), " must take its outputs"},
                     {x.shape(), w_gate.shape(), w2.shape()});
  }
  if (w_up.shape() != w_gate.shape()) {
    throw ShapeError("gated_feed_forward",
                     {"'", w_up.name(), "' of shape ", w_up.shape(), " must have the shape of '",
                      w_gate.name(), "', which is ", w_gate.shape()},
                     {w_up.shape(), w_gate.shape()});
  }
}

}  // namespace detail

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
  const index_t grain = std::max<index_t>(1, (index_t{1} << 13) / std::max<index_t>(n, 1));
  parallel_for(rows, grain, [&](index_t begin, index_t end) {
    detail::kernels::gated_tile<T>(gate, in + begin * 2 * n + n, 2 * n, in + begin * 2 * n, 2 * n,
                                   out + begin * n, n, end - begin, n);
  });
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
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
  return glu(detail::operand<element_t<X>>(x), gate);
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
  const OpScope scope = detail::scope_of("gated_feed_forward", x);
  detail::check_gated(x, w_gate, w_up, w2);
  detail::require_bias("gated_feed_forward", b_gate, w_gate);
  detail::require_bias("gated_feed_forward", b_up, w_up);
  detail::require_bias("gated_feed_forward", b2, w2);
  if (ctx.adapter_of(w_gate) != nullptr || ctx.adapter_of(w_up) != nullptr || ctx.adapter_of(w2) != nullptr) {
    const Var<T> up = linear(ctx, x, w_up, b_up), gate = linear(ctx, x, w_gate, b_gate, activation);
    return linear(ctx, dropout(ctx, multiply(gate, up), dropout_rate), w2, b2);
  }
  const index_t rows = x.shape().rows(), d = x.shape().cols(), ff = w_gate.shape()[0], out = w2.shape()[0];
  const bool recorded = x.recorded() || ctx.records();
  const Shape hidden_shape = x.shape().with(-1, ff);
  detail::GatedSaved<T> saved{x.value(),
                              w_gate.value(),
                              w_up.value(),
                              w2.value(),
                              recorded ? Tensor<T>(hidden_shape) : Tensor<T>(),
                              Tensor<T>(hidden_shape),
                              Tensor<T>(hidden_shape),
                              activation,
                              detail::RowDropoutSite<T>("gated_feed_forward", ctx, dropout_rate, rows)};
  const auto product = [&](const Tensor<T>& in, const Parameter<T>& weight, const Parameter<T>& bias,
                           Tensor<T>& y, detail::kernels::GemmEpilogue<T> epilogue) {
    if (bias.defined()) epilogue.bias = bias.value().data();
    detail::weight_product<T>("gated_feed_forward", ctx, rows, in.data(), weight, 0, weight.shape()[0],
                              recorded, y.data(), epilogue);
  };
  product(x.value(), w_up, b_up, saved.up, {});
  product(x.value(), w_gate, b_gate, saved.hidden, {nullptr, detail::GatedSaved<T>::forward, &saved});
  Tensor<T> y(x.shape().with(-1, out));
  product(saved.hidden, w2, b2, y, {});
  if (!recorded) return Var<T>(std::move(y));

  // dW2 = dy^T h; with dh = (dy W2) * mask: dg = dh * up * f'(gate), du = dh * f(gate); then for each half dW
  // = d^T x and dx = dg Wg + du Wu; each bias gets its columns' sums.
  const Var<T> v_gate = ctx.use(w_gate), v_up = ctx.use(w_up), v2 = ctx.use(w2);
  const Var<T> c_gate = ctx.use(b_gate), c_up = ctx.use(b_up);
  const bool halves = v_gate.recorded() || v_up.recorded() || c_gate.recorded() || c_up.recorded();
  if (detail::not_recorded<T>(y, x, v_gate, c_gate, v_up, c_up, v2, ctx.use(b2))) return Var<T>(std::move(y));
  return record("gated_feed_forward", std::move(y), {x, v_gate, c_gate, v_up, c_up, v2, ctx.use(b2)},
                SavedTensors()
                    .add_if(x.recorded() || halves, v2)
                    .add_if(v_gate.recorded() || v_up.recorded(), x)
                    .add_if(x.recorded(), v_gate)
                    .add_if(x.recorded(), v_up),
                [saved = std::move(saved), rows, d, ff, out,
                 products = detail::WeightProducts<T>(ctx)](Backward<T>& b) {
                  const T* dy = b.dy().data();
                  products.add_gradients(rows, dy, out, saved.hidden.data(), ff, b.grad(5), b.grad(6));
                  Tensor<T> dgate(saved.hidden.shape()), dup(saved.hidden.shape());
                  const detail::GatedBackwardTile<T> tile{&saved, dup.data()};
                  products.run(true, rows, T(1), dy, saved.w2, 0, out, T(0), dgate.data(),
                               {nullptr, detail::GatedBackwardTile<T>::apply, &tile});
                  const auto half = [&](const Tensor<T>& dz, const Tensor<T>& weight, index_t input) {
                    products.add_gradients(rows, dz.data(), ff, saved.x.data(), d, b.grad(input),
                                           b.grad(input + 1));
                    if (auto dx = b.grad(0)) {
                      products.run(true, rows, T(1), dz.data(), weight, 0, ff, dx.beta, dx.data);
                    }
                  };
                  half(dgate, saved.w_gate, 1);
                  half(dup, saved.w_up, 3);
                });
}

}  // namespace eigenformer
