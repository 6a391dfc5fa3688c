#pragma once

#include <algorithm>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/kernels/sequence/recurrence.hpp"

namespace eigenformer {

/// c[t] = forget[t] * c[t - 1] + (1 - forget[t]) * input[t] along every sequence, for each feature, from c =
/// 0: the state of an SSRU (Kim et al. 2019). forget (in [0, 1]), input: (rows, D) or (B, L, D), with rows as
/// in the layout. Returns the same shape, zeros in rows of padding. Throws ShapeError when shapes do not fit.
template <class T>
[[nodiscard]] Var<T> recurrence(const Var<T>& forget, const Var<T>& input, const SequenceLayout& layout) {
  const OpScope scope = detail::scope_of("recurrence", forget, input);
  if (forget.rank() < 2 || forget.shape() != input.shape() || forget.shape().rows() != layout.rows()) {
    throw ShapeError("recurrence",
                     {"forget gates of shape ", forget.shape(), " and inputs of shape ", input.shape(),
                      " must have the same shape, of ", layout.rows(), " rows"},
                     {forget.shape(), input.shape()});
  }
  const index_t d = forget.dim(-1);
  const bool padded = layout.tokens() != layout.rows();
  Tensor<T> c = padded ? Tensor<T>::zeros(forget.shape()) : Tensor<T>(forget.shape());
  const Tensor<T> f = forget.value(), x = input.value();
  detail::kernels::recurrence_forward<T>(f.data(), x.data(), layout.offsets(), layout.lengths(), d, nullptr,
                                         c.data());
  // With g[t] = dc[t] + f[t + 1] g[t + 1]: df[t] = (c[t - 1] - x[t]) g[t], dx[t] = (1 - f[t]) g[t].
  return record("recurrence", c, {forget, input}, SavedTensors().add(forget).add(input).add(c),
                [f, x, c, layout, d, padded](Backward<T>& b) {
                  const detail::SeparateSlots<T> slots(b, 0, 2);
                  const auto &df = slots[0], &dx = slots[1];
                  for (const auto& slot : {df, dx}) {
                    if (slot && padded && slot.beta == T(0)) std::fill_n(slot.data, slot.shape.numel(), T(0));
                  }
                  detail::kernels::recurrence_backward<T>(
                      f.data(), x.data(), c.data(), b.dy().data(), layout.offsets(), layout.lengths(), d,
                      {.forget = df.data, .forget_beta = df.beta, .input = dx.data, .input_beta = dx.beta});
                  slots.add_up();
                });
}

/// The same for other operands.
template <class F, class X>
requires detail::Converted<F, X>
[[nodiscard]] Var<element_t<F>> recurrence(const F& forget, const X& input, const SequenceLayout& layout) {
  using T = element_t<F>;
  return recurrence(detail::operand<T>(forget), detail::operand<T>(input), layout);
}

}  // namespace eigenformer
