#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <utility>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

namespace detail {
template <class T>
struct TapeState;
}

/// A tensor and, when recorded, its node in a tape: the argument and result of differentiable ops. A tensor
/// converts to a Var that is not recorded (a constant). Copies share the value and the node.
///
/// A recorded Var whose tape was cleared, consumed by backward or destroyed keeps its value, but an op on it
/// throws ValueError.
template <class T>
class Var {
 public:
  using value_type = T;  ///< the element type

  /// An undefined Var, as optional inputs of ops take it.
  Var() = default;
  /// Shares value and node.
  EIGENFORMER_NOINLINE Var(const Var&) = default;
  /// Takes value and node.
  Var(Var&&) noexcept = default;
  /// Shares value and node of the other Var.
  EIGENFORMER_NOINLINE Var& operator=(const Var&) = default;
  /// Takes value and node of the other Var.
  EIGENFORMER_NOINLINE Var& operator=(Var&&) noexcept = default;
  EIGENFORMER_NOINLINE ~Var() = default;
  /// A constant: no gradient is computed for it. It shares the storage of `value`; Tape::variable() makes a
  /// leaf with a gradient.
  Var(Tensor<T> value)
      : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): a constant is a Var
  /// A constant with a copy of an Eigen expression: rank 1 for a vector type, else (rows, cols).
  template <class Derived>
  requires std::same_as<typename Derived::Scalar, T> Var(
      const Eigen::DenseBase<Derived>& value)  // NOLINT(google-explicit-constructor): as a tensor is
      : value_(value) {}
  /// A constant with a copy of a part of a tensor.
  Var(const TensorPart<T>& value)  // NOLINT(google-explicit-constructor): as a tensor is
      : value_(value.clone()) {}
  /// For record() and Tape: the result of a node of a tape.
  Var(Tensor<T> value, std::shared_ptr<detail::TapeState<T>> tape, std::uint64_t generation,
      std::int32_t node)
      : value_(std::move(value)), tape_(std::move(tape)), generation_(generation), node_(node) {}

  /// The value, which shares storage with copies of this Var; ops that have saved it need it unchanged.
  const Tensor<T>& value() const noexcept { return value_; }
  /// The shape of value().
  const Shape& shape() const noexcept { return value_.shape(); }
  /// The number of dimensions.
  index_t rank() const noexcept { return value_.rank(); }
  /// The size of dimension i; negative i counts from the end. Throws IndexError when it does not exist.
  index_t dim(index_t i) const { return value_.dim(i); }
  /// The number of elements.
  index_t numel() const noexcept { return value_.numel(); }
  /// Whether value() has memory; false for a default-constructed Var.
  bool defined() const noexcept { return value_.defined(); }
  /// The value of a Var with one element. Throws ShapeError for any other number.
  T item() const { return value_.item(); }

  /// A part, indexed as in NumPy by numbers, all, range(), newaxis and ellipsis: x(ef::all, ef::range(1, 3),
  /// -1). Defined in autograd/ops/indexing/index.hpp. Errors as for Tensor's operator().
  [[nodiscard]] Var operator()(const Index& a, const Index& b = {}, const Index& c = {}, const Index& d = {},
                               const Index& e = {}, const Index& f = {}, const Index& g = {},
                               const Index& h = {}) const;

  /// Whether it is the result of a recorded op, a variable or a parameter on a tape; false for constants.
  bool recorded() const noexcept { return node_ >= 0; }
  /// The index of its node in the tape; -1 for a constant.
  std::int32_t node() const noexcept { return node_; }
  /// The state of the tape when it was recorded: clear() and backward start a new one, in which node() is
  /// invalid.
  std::uint64_t generation() const noexcept { return generation_; }
  /// The tape on which it is recorded; null for a constant.
  const std::shared_ptr<detail::TapeState<T>>& tape() const noexcept { return tape_; }

  /// A constant that shares the value: gradients stop here.
  Var detach() const { return Var(value_); }

 private:
  Tensor<T> value_;
  std::shared_ptr<detail::TapeState<T>> tape_;
  std::uint64_t generation_ = 0;
  std::int32_t node_ = -1;
};

/// Prints the value as a Tensor is printed; the definition for tensors is in core/tensor/print.hpp.
template <class T>
std::ostream& operator<<(std::ostream& out, const Var<T>& x) {
  return out << x.value();
}

}  // namespace eigenformer
