#pragma once

#include <type_traits>
#include <utility>

#include "eigenformer/autograd/tape/var.hpp"
#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/runtime/runtime.hpp"

// What ops take beside Vars, and how it becomes one. A function whose element type T is known from another
// argument, such as a Context<T>, needs none of this: it takes std::type_identity_t<Var<T>>, to which the
// others convert.

namespace eigenformer {

namespace detail {

// A number beside operands whose element type it takes.
template <class S>
concept Number = std::is_arithmetic_v<S> && !std::is_same_v<S, bool>;

template <class T>
const Tensor<T>& tensor_of(const Tensor<T>& x) {
  return x;
}
template <class T>
const Tensor<T>& tensor_of(const Var<T>& x) {
  return x.value();
}
template <class T>
Tensor<T> tensor_of(const TensorPart<T>& x) {
  return x.clone();
}
template <class Derived>
Tensor<typename Derived::Scalar> tensor_of(const Eigen::DenseBase<Derived>& x) {
  return x;
}

// void for a number and for all that has no elements.
template <class X>
struct ElementOf {
  using type = void;
};
template <class X>
requires requires(const X& x) { tensor_of(x); }
struct ElementOf<X> {
  using type = typename std::remove_cvref_t<decltype(tensor_of(std::declval<const X&>()))>::value_type;
};
// The first that is not void.
template <class... X>
struct FirstElement {
  using type = void;
};
template <class X, class... Rest>
struct FirstElement<X, Rest...>
    : std::conditional_t<std::is_void_v<typename ElementOf<X>::type>, FirstElement<Rest...>, ElementOf<X>> {};

template <class... X>
inline constexpr bool are_all_of_one_type =
    (std::is_same_v<typename ElementOf<X>::type, typename FirstElement<X...>::type> && ...);

// Compilers print these names when a call does not fit.
template <class X>
inline constexpr bool is_a_Var_a_Tensor_or_an_Eigen_object_of_float_or_double =
    std::is_floating_point_v<typename ElementOf<X>::type>;
template <class... X>
inline constexpr bool are_Vars_Tensors_or_Eigen_objects_all_of_float_or_all_of_double =
    (is_a_Var_a_Tensor_or_an_Eigen_object_of_float_or_double<X> && ...) && are_all_of_one_type<X...>;
template <class A, class B>
inline constexpr bool are_Vars_Tensors_Eigen_objects_or_one_number_all_of_float_or_all_of_double =
    are_Vars_Tensors_or_Eigen_objects_all_of_float_or_all_of_double<A, B> ||
    (is_a_Var_a_Tensor_or_an_Eigen_object_of_float_or_double<A> && Number<B>) ||
    (Number<A> && is_a_Var_a_Tensor_or_an_Eigen_object_of_float_or_double<B>);

}  // namespace detail

/// What differentiable ops take as an operand: a Var, a Tensor, a part of one, or an Eigen matrix, array, map
/// or expression, of float or double. What is not a Var becomes a constant: a tensor without a copy, an Eigen
/// object with one, of rank 1 for a vector type, else (rows, cols).
template <class X>
concept Operand = detail::is_a_Var_a_Tensor_or_an_Eigen_object_of_float_or_double<X>;

/// Operands of one op, whose elements have one type: float and double do not mix.
template <class... X>
concept Operands = detail::are_Vars_Tensors_or_Eigen_objects_all_of_float_or_all_of_double<X...>;

/// The element type of operands, numbers among them ignored.
template <class... X>
using element_t = typename detail::FirstElement<X...>::type;

namespace detail {

template <class X>
inline constexpr bool is_var = false;
template <class T>
inline constexpr bool is_var<Var<T>> = true;

// Operands for an op that has a definition for Vars, not all of which are Vars.
template <class... X>
concept Converted = Operands<X...> && !(is_var<X> && ...);

// Two operands, one of which may be a number.
template <class A, class B>
concept OperandPair = are_Vars_Tensors_Eigen_objects_or_one_number_all_of_float_or_all_of_double<A, B>;

// The same for a pair in which one may be a number.
template <class A, class B>
concept ConvertedPair = OperandPair<A, B> && !(is_var<A> && is_var<B>);

// An operand as a Var: itself, a constant of a tensor or of an Eigen object, or a number of rank 0.
template <class T, class X>
decltype(auto) operand(const X& x) {
  if constexpr (std::is_same_v<X, Var<T>>) {
    return (x);
  } else if constexpr (Number<X>) {
    return Var<T>(Tensor<T>::scalar(static_cast<T>(x)));
  } else {
    return Var<T>(x);
  }
}

[[noreturn]] EIGENFORMER_NOINLINE inline void refuse_undefined(const char* op, const Shape& shape) {
  throw ValueError(op, {"an operand of shape ", shape,
                        " has no memory: it was moved from, released or never allocated; expected one "
                        "with values"});
}

// Throws ValueError for tensors and Vars without memory. (An empty tensor over a null pointer has an owner.)
template <class... X>
void require_defined(const char* op, const X&... x) {
  [[maybe_unused]] const auto check = [op](const auto& t) {
    if (!t.defined() && (t.numel() > 0 || t.use_count() == 0)) refuse_undefined(op, t.shape());
  };
  (check(tensor_of(x)), ...);
}

// The profiler's scope of an op. Throws ValueError for operands without memory.
template <class... X>
OpScope scope_of(const char* op, const X&... operands) {
  require_defined(op, operands...);
  return OpScope(Runtime::instance().profiler(), op);
}

// The same for optional operands, which may be undefined, but not moved from.
template <class... X>
void require_defined_or_absent(const char* op, const X&... x) {
  const auto check = [op](const auto& t) {
    if (!t.defined() && t.numel() > 0) refuse_undefined(op, t.shape());
  };
  (check(tensor_of(x)), ...);
}

}  // namespace detail

}  // namespace eigenformer
