#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"

// Derivatives of functions from Vars to a Var, without a tape in sight.

namespace eigenformer {

namespace detail {

// The element type of arguments; of numbers alone float if all of them are, else double.
template <class... X>
using argument_t = std::conditional_t<!std::is_void_v<element_t<X...>>, element_t<X...>,
                                      std::conditional_t<(std::is_same_v<X, float> && ...), float, double>>;

template <class... X>
concept Arguments = sizeof...(X) > 0 &&
                    ((Number<X> || std::is_same_v<typename ElementOf<X>::type, argument_t<X...>>)&&...) &&
                    std::is_floating_point_v<argument_t<X...>>;

template <class T, class X>
Tensor<T> argument_of(const char* op, const X& x) {
  if constexpr (is_var<X>) {
    if (x.recorded()) {
      throw ValueError(op,
                       "an argument is recorded on a tape, must be a value: there are no second derivatives");
    }
  }
  if constexpr (Number<X>) {
    return Tensor<T>::scalar(static_cast<T>(x));
  } else {
    require_defined(op, x);
    return tensor_of(x);
  }
}

// f(x...) on a tape of its own, on which the arguments with the numbers I are variables.
template <class T, std::size_t N>
struct Recording {
  const char* op;
  Tape<T> tape;
  std::array<Var<T>, N> arguments;
  Var<T> y;

  template <class F, std::size_t... I, class... X>
  Recording(const char* name, const F& f, std::index_sequence<I...>, const X&... x)
      : op(name), arguments{Var<T>(argument_of<T>(name, x))...} {
    static_assert(((I < N) && ...), "the function has fewer arguments");
    ((arguments[I] = tape.variable(arguments[I].value())), ...);
    y = std::apply([&f](const auto&... v) { return Var<T>(f(v...)); }, arguments);
    if (!y.recorded()) {
      throw ValueError(op, "the result of the function does not depend on its arguments, must do so");
    }
  }

  // The gradients of the arguments: a tensor, or a tuple of several.
  template <std::size_t... I>
  auto gradients(const Tensor<T>& cotangent, std::index_sequence<I...>) {
    Gradients<T> none;
    tape.backward(y, cotangent, none);
    if constexpr (sizeof...(I) == 1) {
      return (tape.gradient(arguments[I]), ...);
    } else {
      return std::make_tuple(tape.gradient(arguments[I])...);
    }
  }

  // The same of a scalar.
  template <class Wanted>
  auto gradients(Wanted wanted) {
    if (y.numel() != 1) {
      throw ShapeError(op,
                       {"the result of the function has shape ", y.shape(),
                        ", must be a scalar: reduce it, as by sum(), or call vjp() or jacobian()"},
                       {y.shape()});
    }
    return gradients(Tensor<T>::ones(y.shape()), wanted);
  }
};

template <class Chosen, std::size_t N>
using chosen_t = std::conditional_t<Chosen::size() == 0, std::make_index_sequence<N>, Chosen>;

}  // namespace detail

/// The gradient of f as a function of the same arguments, as JAX's grad:
///
///     auto df = ef::grad([](auto x) { return ef::sum(x * x); });
///     ef::Tensor<float> dx = df(x);
///
/// f: from Vars to a Var with one element. The arguments of the result are Tensors, Eigen objects or numbers
/// (double, unless another argument or all numbers are float); it returns a Tensor of the argument's shape,
/// and a tuple for several. grad<1>(f) is the gradient of argument 1 alone, for which the others are
/// constants. Throws ShapeError when f gives more than one element, ValueError when what it gives depends on
/// no argument, and for a recorded Var as an argument: there are no second derivatives.
template <std::size_t... Chosen, class F>
[[nodiscard]] auto grad(F f) {
  return [f = std::move(f)]<class... X>(const X&... x) requires(detail::Arguments<X...>) {
    constexpr detail::chosen_t<std::index_sequence<Chosen...>, sizeof...(X)> wanted;
    return detail::Recording<detail::argument_t<X...>, sizeof...(X)>("grad", f, wanted, x...)
        .gradients(wanted);
  };
}

/// The value of f and its gradient as a function that returns a pair: a number, and what grad() returns.
/// Arguments and errors as for grad().
template <std::size_t... Chosen, class F>
[[nodiscard]] auto value_and_grad(F f) {
  return [f = std::move(f)]<class... X>(const X&... x) requires(detail::Arguments<X...>) {
    constexpr detail::chosen_t<std::index_sequence<Chosen...>, sizeof...(X)> wanted;
    detail::Recording<detail::argument_t<X...>, sizeof...(X)> r("value_and_grad", f, wanted, x...);
    auto gradients = r.gradients(wanted);
    return std::make_pair(r.y.item(), std::move(gradients));
  };
}

/// f(x...) and the product of its Jacobian with a cotangent of its shape, the last argument, as PyTorch's
/// vjp: vjp(f, x, dy), vjp(f, a, b, dy). Returns a pair of the value and a Tensor of the argument's shape, or
/// a tuple for several. Throws ShapeError unless dy has the shape of f(x...), ValueError as grad().
template <class F, class... X>
requires(sizeof...(X) > 1 && detail::Arguments<X...>) [[nodiscard]] auto vjp(const F& f, const X&... x) {
  using T = detail::argument_t<X...>;
  constexpr std::size_t n = sizeof...(X) - 1;
  const auto all = std::forward_as_tuple(x...);
  return [&]<std::size_t... I>(std::index_sequence<I...> wanted) {
    detail::Recording<T, n> r("vjp", f, wanted, std::get<I>(all)...);
    auto gradients = r.gradients(detail::argument_of<T>("vjp", std::get<n>(all)), wanted);
    return std::make_pair(r.y.value(), std::move(gradients));
  }
  (std::make_index_sequence<n>());
}

/// All derivatives of the elements of f(x): a Tensor of the shape of f(x), followed by that of x, as
/// PyTorch's jacobian. f runs once for each element of its result. Throws ShapeError when the shape has more
/// than 6 dimensions, ValueError as grad().
template <class F, class X>
requires detail::Arguments<X>
[[nodiscard]] Tensor<detail::argument_t<X>> jacobian(const F& f, const X& x) {
  using T = detail::argument_t<X>;
  constexpr std::index_sequence<0> wanted;
  Tensor<T> y;
  for (index_t i = 0; i == 0 || i < y.numel();) {
    detail::Recording<T, 1> r("jacobian", f, wanted, x);
    const Shape from = r.arguments[0].shape(), to = r.y.shape();
    if (i == 0) {
      Shape shape = to;
      for (const index_t size : from) shape = shape.inserted(shape.rank(), size);
      y = Tensor<T>(shape);
    }
    if (y.numel() == 0) break;
    Tensor<T> cotangent = Tensor<T>::zeros(to);
    cotangent.data()[i / from.numel()] = T(1);
    const Tensor<T> row = r.gradients(cotangent, wanted);
    std::copy(row.span().begin(), row.span().end(), y.data() + i);
    i += from.numel();
  }
  return y;
}

}  // namespace eigenformer
