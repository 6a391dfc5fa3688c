#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

namespace detail {
template <class T>
struct TapeState;
}

/// A tensor and, when recorded, its node in a tape. A tensor converts to an unrecorded Var (a constant).
///
/// A recorded Var whose tape was cleared, consumed by backward or destroyed still has its value, but an op on
/// it throws ValueError.
template <class T>
class Var {
 public:
  using value_type = T;

  Var() = default;
  EIGENFORMER_NOINLINE Var(const Var&) = default;
  Var(Var&&) noexcept = default;
  EIGENFORMER_NOINLINE Var& operator=(const Var&) = default;
  EIGENFORMER_NOINLINE Var& operator=(Var&&) noexcept = default;
  EIGENFORMER_NOINLINE ~Var() = default;
  Var(Tensor<T> value)
      : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): a constant is a Var
  /// An Eigen expression is a constant, too: of rank 1 for a vector, else (rows, cols).
  template <class Derived>
  requires std::same_as<typename Derived::Scalar, T> Var(
      const Eigen::DenseBase<Derived>& value)  // NOLINT(google-explicit-constructor): as a tensor is
      : value_(value) {}
  Var(Tensor<T> value, std::shared_ptr<detail::TapeState<T>> tape, std::uint64_t generation,
      std::int32_t node)
      : value_(std::move(value)), tape_(std::move(tape)), generation_(generation), node_(node) {}

  const Tensor<T>& value() const noexcept { return value_; }
  const Shape& shape() const noexcept { return value_.shape(); }
  index_t rank() const noexcept { return value_.rank(); }
  index_t dim(index_t i) const { return value_.dim(i); }
  index_t numel() const noexcept { return value_.numel(); }
  bool defined() const noexcept { return value_.defined(); }
  /// The value of a one-element Var.
  T item() const { return value_.item(); }

  bool recorded() const noexcept { return node_ >= 0; }
  std::int32_t node() const noexcept { return node_; }
  std::uint64_t generation() const noexcept { return generation_; }
  const std::shared_ptr<detail::TapeState<T>>& tape() const noexcept { return tape_; }

  /// The same value as a constant: nothing flows back through it.
  Var detach() const { return Var(value_); }

 private:
  Tensor<T> value_;
  std::shared_ptr<detail::TapeState<T>> tape_;
  std::uint64_t generation_ = 0;
  std::int32_t node_ = -1;
};

}  // namespace eigenformer
