#pragma once

#include <concepts>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/shape.hpp"

// Only declared: whoever has an Eigen expression has included Eigen, and nobody else pays for it.
namespace Eigen {
template <class Derived>
class DenseBase;
template <class Scalar, int Rows, int Cols, int Options, int MaxRows, int MaxCols>
class Matrix;
template <int Outer, int Inner>
class Stride;
template <class Plain, int Options, class StrideType>
class Map;
}  // namespace Eigen

namespace eigenformer {

namespace detail {

/// (size,) for what Eigen knows to be a vector when compiling, (rows, cols) for all else.
template <class Derived>
Shape eigen_shape(const Eigen::DenseBase<Derived>& x) {
  if constexpr (static_cast<bool>(Derived::IsVectorAtCompileTime)) {
    return Shape{static_cast<index_t>(x.size())};
  } else {
    return Shape{static_cast<index_t>(x.rows()), static_cast<index_t>(x.cols())};
  }
}

}  // namespace detail

/// A contiguous, row-major array of rank 0 to 6. A copy shares the storage, clone() copies it, reshape()
/// shares it.
///
/// Storage is owned (64-byte aligned, from the Runtime's pool) or borrowed together with whatever keeps it
/// alive. A default-constructed tensor is undefined: it has no storage and the shape (0,).
template <class T>
class Tensor {
 public:
  using value_type = T;

  Tensor() : shape_{0} {}
  EIGENFORMER_NOINLINE Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  EIGENFORMER_NOINLINE Tensor& operator=(const Tensor&) = default;
  EIGENFORMER_NOINLINE Tensor& operator=(Tensor&&) noexcept = default;
  EIGENFORMER_NOINLINE ~Tensor() = default;

  /// An uninitialised tensor of the given shape. Throws Error when memory runs out.
  EIGENFORMER_NOINLINE explicit Tensor(const Shape& shape) : shape_(shape) {
    const auto bytes = static_cast<std::size_t>(shape.numel()) * sizeof(T);
    std::shared_ptr<void> storage = Runtime::instance().pool().allocate(bytes, &state_);
    T* data = static_cast<T*>(storage.get());
    storage_ = std::shared_ptr<T>(std::move(storage), data);
  }

  /// The values of an Eigen matrix, array or expression of T (another scalar type needs Eigen's cast<T>()):
  /// of rank 1 for a vector, else (rows, cols). It copies, whatever the storage order; borrow() does not.
  template <class Derived>
  requires std::same_as<typename Derived::Scalar, T> Tensor(
      const Eigen::DenseBase<Derived>& expression)  // NOLINT(google-explicit-constructor)
      : Tensor(detail::eigen_shape(expression)) {
    constexpr int dynamic = -1, row_major = 1;
    using RowMajor = Eigen::Matrix<T, dynamic, dynamic, row_major, dynamic, dynamic>;
    Eigen::Map<RowMajor, 0, Eigen::Stride<0, 0>>(data(), expression.rows(), expression.cols()) =
        expression.derived();
  }

  static Tensor full(const Shape& shape, T value) {
    Tensor t(shape);
    t.fill(value);
    return t;
  }
  static Tensor zeros(const Shape& shape) { return full(shape, T(0)); }
  static Tensor ones(const Shape& shape) { return full(shape, T(1)); }

  /// A tensor of the given values, in row-major order. Throws ShapeError when their number does not fit.
  static Tensor from(const Shape& shape, std::span<const T> values) {
    check_count(shape, static_cast<index_t>(values.size()));
    Tensor t(shape);
    std::copy(values.begin(), values.end(), t.data());
    return t;
  }
  static Tensor from(const Shape& shape, std::initializer_list<T> values) {
    return from(shape, std::span<const T>(values.begin(), values.size()));
  }
  static Tensor from(const Shape& shape, const std::vector<T>& values) {
    check_count(shape, static_cast<index_t>(values.size()));
    Tensor t(shape);
    std::copy(values.begin(), values.end(), t.data());
    return t;
  }

  /// A tensor of rank 0.
  static Tensor scalar(T value) { return full(Shape{}, value); }

  /// 0, 1, ... n-1 as a tensor of rank 1.
  static Tensor arange(index_t n) {
    Tensor t(Shape{n});
    for (index_t i = 0; i < n; ++i) t.data()[i] = static_cast<T>(i);
    return t;
  }

  /// A tensor over memory that belongs to someone else, without a copy; `keep_alive` is held as long as the
  /// tensor is.
  static Tensor borrow(T* data, const Shape& shape, std::shared_ptr<void> keep_alive = nullptr) {
    if (data == nullptr && shape.numel() > 0) throw ValueError("tensor", "cannot borrow a null pointer");
    Tensor t;
    t.shape_ = shape;
    auto owner = std::make_shared<Borrowed>();
    owner->keep_alive = std::move(keep_alive);
    owner->state.borrowed = true;
    t.state_ = &owner->state;
    t.storage_ = std::shared_ptr<T>(std::move(owner), data);
    return t;
  }

  /// A tensor that has a shape but no memory: what is left of weights that were given back. defined() is
  /// false.
  static Tensor without_storage(const Shape& shape) {
    Tensor t;
    t.shape_ = shape;
    return t;
  }

  bool defined() const noexcept { return storage_.get() != nullptr; }
  const Shape& shape() const noexcept { return shape_; }
  index_t rank() const noexcept { return shape_.rank(); }
  index_t dim(index_t i) const { return shape_[i]; }
  index_t numel() const noexcept { return shape_.numel(); }

  T* data() noexcept { return storage_.get(); }
  const T* data() const noexcept { return storage_.get(); }
  std::span<T> span() noexcept { return {data(), static_cast<std::size_t>(numel())}; }
  std::span<const T> span() const noexcept { return {data(), static_cast<std::size_t>(numel())}; }

  /// The same storage under another shape. Throws ShapeError when the number of elements differs.
  Tensor reshape(const Shape& shape) const {
    if (shape.numel() != numel()) {
      throw ShapeError("reshape",
                       "tensor of shape " + shape_.str() + " has " + std::to_string(numel()) +
                           " elements, which do not fit shape " + shape.str(),
                       {shape_, shape});
    }
    Tensor t = *this;
    t.shape_ = shape;
    return t;
  }

  /// The rows [begin, begin + count) of the first dimension, sharing storage.
  Tensor rows(index_t begin, index_t count) const {
    if (rank() == 0 || begin < 0 || count < 0 || begin > dim(0) || count > dim(0) - begin) {
      throw IndexError("rows", std::to_string(count) + " rows starting at row " + std::to_string(begin) +
                                   " are outside a tensor of shape " + shape_.str());
    }
    Tensor t = *this;
    t.shape_ = shape_.with(0, count);
    const index_t stride = dim(0) == 0 ? 0 : numel() / dim(0);
    t.storage_ = std::shared_ptr<T>(storage_, storage_.get() + begin * stride);
    return t;
  }

  /// An independent copy. Throws ValueError when the memory was given back.
  Tensor clone() const {
    require_memory();
    Tensor t(shape_);
    if (numel() > 0)
      std::memcpy(static_cast<void*>(t.data()), data(), static_cast<std::size_t>(numel()) * sizeof(T));
    return t;
  }

  void fill(T value) noexcept {
    std::fill_n(data(), numel(), value);
    mark_changed();
  }

  /// Copies the values of another tensor of the same shape. Throws ShapeError for another shape, ValueError
  /// when the memory of either was given back.
  void copy_from(const Tensor& other) {
    if (other.shape() != shape_) {
      throw ShapeError("copy", "cannot copy shape " + other.shape().str() + " into shape " + shape_.str(),
                       {other.shape(), shape_});
    }
    require_memory();
    other.require_memory();
    if (numel() > 0)
      std::memcpy(static_cast<void*>(data()), other.data(), static_cast<std::size_t>(numel()) * sizeof(T));
    mark_changed();
  }

  /// Counts a change of the values. fill(), copy_from() and optimizers do so; what was written through
  /// data(), span(), at() or Eigen is not seen unless this is called. A tape whose backward would read the
  /// old values then throws instead.
  void mark_changed() noexcept {
    if (defined()) state_->version.fetch_add(1, std::memory_order_relaxed);
  }
  /// Notices changes that are counted from now on, by any tensor that shares the storage.
  StorageWatch watch() const noexcept { return defined() ? StorageWatch(storage_, state_) : StorageWatch(); }

  /// The value of a tensor with one element. Throws ShapeError otherwise.
  T item() const {
    if (numel() != 1)
      throw ShapeError("item", "tensor of shape " + shape_.str() + " must have one element", {shape_});
    return *data();
  }

  /// The element at an index per dimension (negative counts from the end). Throws IndexError.
  T& at(std::initializer_list<index_t> index) { return data()[offset(index)]; }
  const T& at(std::initializer_list<index_t> index) const { return data()[offset(index)]; }

  /// The values converted to another element type.
  template <class U>
  Tensor<U> to() const {
    Tensor<U> t(shape_);
    for (index_t i = 0; i < numel(); ++i) t.data()[i] = static_cast<U>(data()[i]);
    return t;
  }

  /// Number of tensors that share this storage.
  long use_count() const noexcept { return storage_.use_count(); }
  /// Whether the memory is the pool's and no other tensor shares it.
  bool unique() const noexcept { return defined() && storage_.use_count() == 1 && !state_->borrowed; }

 private:
  struct Borrowed {
    std::shared_ptr<void> keep_alive;
    StorageState state;
  };

  void require_memory() const {
    if (!defined() && numel() > 0) {
      throw ValueError(
          "copy", "the memory of this tensor of shape " + shape_.str() + " was released or never allocated");
    }
  }

  static void check_count(const Shape& shape, index_t count) {
    if (shape.numel() != count) {
      throw ShapeError("tensor", std::to_string(count) + " values do not fill shape " + shape.str(), {shape});
    }
  }

  index_t offset(std::initializer_list<index_t> index) const {
    if (static_cast<index_t>(index.size()) != rank()) {
      throw IndexError("at", std::to_string(index.size()) + " indices given for shape " + shape_.str());
    }
    index_t flat = 0;
    index_t axis = 0;
    for (const index_t i : index) {
      const index_t n = shape_[axis];
      const index_t j = i < 0 ? i + n : i;
      if (j < 0 || j >= n) {
        throw IndexError("at", "index " + std::to_string(i) + " is outside dimension " +
                                   std::to_string(axis) + " of shape " + shape_.str());
      }
      flat = flat * n + j;
      ++axis;
    }
    return flat;
  }

  Shape shape_;
  std::shared_ptr<T> storage_;
  StorageState* state_ = nullptr;  // beside the memory; valid while that is defined
};

}  // namespace eigenformer
