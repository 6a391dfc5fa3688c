#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/tensor/view.hpp"

namespace eigenformer {

template <class T>
Var<T> Var<T>::operator()(const Index& a, const Index& b, const Index& c, const Index& d, const Index& e,
                          const Index& f, const Index& g, const Index& h) const {
  return detail::viewed("index", *this,
                        detail::indexed_view(shape(), std::array<Index, 8>{a, b, c, d, e, f, g, h}));
}

/// x with one part replaced by `values`, broadcast to it: assign(x, {ef::all, 1}, v) is NumPy's x[:, 1] = v,
/// but x stays as it is. A Tensor's own part is assigned to directly: t(ef::all, 1) = v. Throws as x(...),
/// and ShapeError when the values do not broadcast to the part.
template <class T>
[[nodiscard]] Var<T> assign(const Var<T>& x, std::initializer_list<Index> indices,
                            const std::type_identity_t<Var<T>>& values) {
  const OpScope scope = detail::scope_of("assign", x, values);
  const detail::StridedView part =
      detail::indexed_view(x.shape(), std::span<const Index>(indices.begin(), indices.size()));
  const detail::StridedView from = detail::broadcast_view("assign", values.shape(), part.shape);
  Tensor<T> y = x.value().clone();
  detail::copy_view(y.data(), part, values.value().data(), from);
  if (detail::not_recorded<T>(y, x, values)) return Var<T>(std::move(y));
  // dx = dy outside the part, 0 inside; dvalues = dy of the part, summed over what was broadcast.
  return record("assign", std::move(y), {x, values}, SavedTensors(), [part](Backward<T>& back) {
    if (back.needs(1)) {
      Tensor<T> inside(part.shape);
      detail::copy_view(inside.data(), detail::whole_view(part.shape), back.dy().data(), part);
      if (const auto dv = back.grad(1)) detail::sum_into(dv, inside);
    }
    if (back.needs(0)) {
      Tensor<T> outside = back.dy().clone();
      const Tensor<T> zero = Tensor<T>::scalar(T(0));
      detail::copy_view(outside.data(), part, zero.data(),
                        detail::broadcast_view("assign", Shape{}, part.shape));
      back.pass(0, std::move(outside));
    }
  });
}
/// The same for other operands; the values may be a number.
template <class X, class V>
requires(Operand<X>&& detail::ConvertedPair<X, V>)
    [[nodiscard]] Var<element_t<X>> assign(const X& x, std::initializer_list<Index> indices,
                                           const V& values) {
  using T = element_t<X>;
  return assign(detail::operand<T>(x), indices, detail::operand<T>(values));
}

}  // namespace eigenformer
