#pragma once

#include <array>
#include <concepts>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/core/tensor/view.hpp"

// Only declared: code that has an Eigen expression has included Eigen, and other code need not compile it.
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

/// (size,) for a vector at compile time, (rows, cols) for all else.
template <class Derived>
Shape eigen_shape(const Eigen::DenseBase<Derived>& x) {
  if constexpr (static_cast<bool>(Derived::IsVectorAtCompileTime)) {
    return Shape{static_cast<index_t>(x.size())};
  } else {
    return Shape{static_cast<index_t>(x.rows()), static_cast<index_t>(x.cols())};
  }
}

}  // namespace detail

template <class T>
class TensorPart;

/// A contiguous, row-major array of rank 0 to 6. Copies, reshape() and rows() share the storage; clone()
/// copies it.
///
/// Storage is owned (64-byte aligned, from the Runtime's pool) or borrowed, with an object that keeps it
/// alive. Memory is released with the last tensor that shares it. Tensors that share storage may be read by
/// several threads; writes need the caller's synchronisation.
template <class T>
class Tensor {
 public:
  using value_type = T;  ///< the element type

  /// An undefined tensor: no storage, shape (0,).
  Tensor() : shape_{0} {}
  /// Shares the storage of the other tensor, in O(1).
  EIGENFORMER_NOINLINE Tensor(const Tensor&) = default;
  /// Takes the storage of the other tensor, which keeps its shape and has no memory afterwards.
  Tensor(Tensor&&) noexcept = default;
  /// Shares the storage of the other tensor and releases its own; copy_from() copies values instead.
  EIGENFORMER_NOINLINE Tensor& operator=(const Tensor&) = default;
  /// Takes the storage of the other tensor and releases its own.
  EIGENFORMER_NOINLINE Tensor& operator=(Tensor&&) noexcept = default;
  EIGENFORMER_NOINLINE ~Tensor() = default;

  /// An uninitialised tensor of the given shape. Throws Error when memory runs out.
  EIGENFORMER_NOINLINE explicit Tensor(const Shape& shape) : shape_(shape) {
    const auto bytes = static_cast<std::uint64_t>(shape.numel()) * sizeof(T);
    std::shared_ptr<void> storage = Runtime::instance().pool().allocate(bytes, &state_);
    T* data = static_cast<T*>(storage.get());
    storage_ = std::shared_ptr<T>(std::move(storage), data);
  }

  /// Copies the values, a vector, span or numbers in braces as in Tensor<float>({2, 2}, {1, 2, 3, 4}), which
  /// are in row-major order. Throws ShapeError unless there are shape.numel() of them.
  template <class Values = std::initializer_list<T>>
  requires std::same_as<typename Values::value_type, T> Tensor(const Shape& shape, const Values& values)
      : Tensor(checked(shape, values.size())) {
    std::copy(values.begin(), values.end(), data());
  }

  /// Copies the values of an Eigen matrix, array or expression of T, in either storage order: rank 1 for a
  /// vector type, else (rows, cols). Another scalar type needs Eigen's cast<T>(). borrow() does not copy.
  template <class Derived>
  requires std::same_as<typename Derived::Scalar, T> Tensor(
      const Eigen::DenseBase<Derived>& expression)  // NOLINT(google-explicit-constructor)
      : Tensor(detail::eigen_shape(expression)) {
    constexpr int dynamic = -1, row_major = 1;
    using RowMajor = Eigen::Matrix<T, dynamic, dynamic, row_major, dynamic, dynamic>;
    Eigen::Map<RowMajor, 0, Eigen::Stride<0, 0>>(data(), expression.rows(), expression.cols()) =
        expression.derived();
  }

  /// A new tensor with every element set to `value`.
  static Tensor full(const Shape& shape, T value) {
    Tensor t(shape);
    t.fill(value);
    return t;
  }
  /// A new tensor of zeros.
  static Tensor zeros(const Shape& shape) { return full(shape, T(0)); }
  /// A new tensor of ones.
  static Tensor ones(const Shape& shape) { return full(shape, T(1)); }

  /// Tensor(shape, values) by name: from({2, 2}, {1, 2, 3, 4}).
  template <class Values = std::initializer_list<T>>
  static Tensor from(const Shape& shape, const Values& values) {
    return Tensor(shape, values);
  }

  /// A new tensor of rank 0.
  static Tensor scalar(T value) { return full(Shape{}, value); }

  /// A new tensor of shape (n,) with the values 0, 1, ... n-1. Throws ShapeError for a negative n.
  static Tensor arange(index_t n) {
    Tensor t(Shape{n});
    for (index_t i = 0; i < n; ++i) t.data()[i] = static_cast<T>(i);
    return t;
  }

  /// A tensor over the caller's memory, row-major, without a copy. `keep_alive` is released with the last
  /// tensor that shares it; without one the memory must outlive the tensors. Throws ValueError for a null
  /// pointer with elements.
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

  /// A tensor with a shape but no memory, as weights have after their memory was released. defined() is
  /// false.
  static Tensor without_storage(const Shape& shape) {
    Tensor t;
    t.shape_ = shape;
    return t;
  }

  /// Whether it has memory: false after default construction, a move or without_storage().
  bool defined() const noexcept { return storage_.get() != nullptr; }
  /// The sizes of its dimensions.
  const Shape& shape() const noexcept { return shape_; }
  /// The number of dimensions.
  index_t rank() const noexcept { return shape_.rank(); }
  /// The size of dimension i; negative i counts from the end. Throws IndexError when it does not exist.
  index_t dim(index_t i) const { return shape_[i]; }
  /// The number of elements.
  index_t numel() const noexcept { return shape_.numel(); }

  /// The first element; null without memory. Elements are adjacent, in row-major order. Call mark_changed()
  /// after writing to values that a tape may have saved.
  T* data() noexcept { return storage_.get(); }
  /// The first element, for reading; null without memory.
  const T* data() const noexcept { return storage_.get(); }
  /// All elements in row-major order. The tensor must have memory; mark_changed() as for data().
  std::span<T> span() noexcept { return {data(), static_cast<std::size_t>(numel())}; }
  /// All elements in row-major order, for reading.
  std::span<const T> span() const noexcept { return {data(), static_cast<std::size_t>(numel())}; }

  /// A tensor of another shape that shares the storage. Throws ShapeError when the number of elements
  /// differs.
  Tensor reshape(const Shape& shape) const {
    if (shape.numel() != numel()) {
      throw ShapeError(
          "reshape",
          {"tensor of shape ", shape_.str(), " has ", numel(), " elements, which do not fit shape ", shape},
          {shape_, shape});
    }
    Tensor t = *this;
    t.shape_ = shape;
    return t;
  }

  /// The slices [begin, begin + count) of the first dimension, sharing the storage; without memory if this
  /// tensor has none. Throws IndexError when they do not exist or the rank is 0.
  Tensor rows(index_t begin, index_t count) const {
    if (rank() == 0 || begin < 0 || count < 0 || begin > dim(0) || count > dim(0) - begin) {
      throw IndexError(
          "rows", {count, " rows starting at row ", begin, " are outside a tensor of shape ", shape_.str()});
    }
    Tensor t = *this;
    t.shape_ = shape_.with(0, count);
    if (!defined()) return t;
    const index_t stride = dim(0) == 0 ? 0 : numel() / dim(0);
    t.storage_ = std::shared_ptr<T>(storage_, storage_.get() + begin * stride);
    return t;
  }

  /// A copy with storage of its own. Throws ValueError when it has a shape but no memory.
  Tensor clone() const {
    require_memory("copy");
    Tensor t(shape_);
    if (numel() > 0)
      std::memcpy(static_cast<void*>(t.data()), data(), static_cast<std::size_t>(numel()) * sizeof(T));
    return t;
  }

  /// Sets every element; tensors that share the storage see it. Counts as a change (mark_changed()). Throws
  /// ValueError when it has a shape but no memory.
  void fill(T value) {
    require_memory("fill");
    std::fill_n(data(), numel(), value);
    mark_changed();
  }

  /// Copies the values of another tensor into its own storage and counts as a change (mark_changed()). Throws
  /// ShapeError when the shapes differ, ValueError when either has no memory.
  void copy_from(const Tensor& other) {
    if (other.shape() != shape_) {
      throw ShapeError("copy", {"cannot copy shape ", other.shape(), " into shape ", shape_.str()},
                       {other.shape(), shape_});
    }
    require_memory("copy");
    other.require_memory("copy");
    if (numel() > 0)
      std::memcpy(static_cast<void*>(data()), other.data(), static_cast<std::size_t>(numel()) * sizeof(T));
    mark_changed();
  }

  /// Records that the values were changed, so that a tape whose backward needs the old values throws instead
  /// of using the new ones. fill(), copy_from() and optimizers call it; call it after writing through data(),
  /// span(), at() or Eigen.
  void mark_changed() noexcept {
    if (defined()) state_->version.fetch_add(1, std::memory_order_relaxed);
  }
  /// A watch that detects later calls of mark_changed() by any tensor that shares the storage.
  detail::StorageWatch watch() const noexcept {
    return defined() ? detail::StorageWatch(storage_, state_) : detail::StorageWatch();
  }

  /// The value of a tensor with one element, of any rank. Throws ShapeError for any other number of elements,
  /// ValueError when it has no memory.
  T item() const {
    if (numel() != 1)
      throw ShapeError("item", {"tensor of shape ", shape_.str(), " must have one element"}, {shape_});
    require_memory("item");
    return *data();
  }

  /// The element at one index for each dimension; negative ones count from the end. Throws IndexError when
  /// their number is not the rank or one is out of range, ValueError when there is no memory.
  T& at(std::initializer_list<index_t> index) { return data()[offset(index)]; }
  /// The same, for reading.
  const T& at(std::initializer_list<index_t> index) const { return data()[offset(index)]; }

  /// The element at one index for each dimension: t(i, j). Errors as for at().
  template <std::integral... I>
  T& operator()(I... index) {
    return at({static_cast<index_t>(index)...});
  }
  /// The same, for reading.
  template <std::integral... I>
  const T& operator()(I... index) const {
    return at({static_cast<index_t>(index)...});
  }

  /// A part, indexed as in NumPy by numbers, all, range(), newaxis and ellipsis: t(ef::all, ef::range(1, 3),
  /// -1, ef::newaxis). It shares the storage: assignments to it change this tensor. Numbers alone are an
  /// element. Throws IndexError for indices that do not exist, ValueError for a step of zero and when there
  /// is no memory, ShapeError for more than 6 dimensions.
  TensorPart<T> operator()(const Index& a, const Index& b = {}, const Index& c = {}, const Index& d = {},
                           const Index& e = {}, const Index& f = {}, const Index& g = {},
                           const Index& h = {}) {
    require_memory("index");
    return TensorPart<T>(*this, detail::indexed_view(shape_, std::array<Index, 8>{a, b, c, d, e, f, g, h}));
  }
  /// A copy of a part.
  Tensor operator()(const Index& a, const Index& b = {}, const Index& c = {}, const Index& d = {},
                    const Index& e = {}, const Index& f = {}, const Index& g = {},
                    const Index& h = {}) const {
    return Tensor(*this)(a, b, c, d, e, f, g, h);
  }

  /// A new tensor with each element converted by `static_cast<U>`. Throws ValueError when this one has a
  /// shape but no memory.
  template <class U>
  Tensor<U> to() const {
    require_memory("to");
    Tensor<U> t(shape_);
    for (index_t i = 0; i < numel(); ++i) t.data()[i] = static_cast<U>(data()[i]);
    return t;
  }

  /// Throws ValueError (`[op] ...`) when it has a shape but no memory.
  void require_memory(const char* op) const {
    if (!defined() && numel() > 0) {
      throw ValueError(
          op, {"the memory of this tensor of shape ", shape_.str(), " was released or never allocated"});
    }
  }

  /// The number of owners of this storage, tensors and views; 0 without memory.
  long use_count() const noexcept { return storage_.use_count(); }
  /// Whether the storage is owned, not borrowed, and no other tensor shares it.
  bool unique() const noexcept { return defined() && storage_.use_count() == 1 && !state_->borrowed; }

 private:
  struct Borrowed {
    std::shared_ptr<void> keep_alive;
    detail::StorageState state;
  };

  static const Shape& checked(const Shape& shape, std::size_t count) {
    if (shape.numel() != static_cast<index_t>(count)) {
      throw ShapeError("tensor", {count, " values do not fill shape ", shape}, {shape});
    }
    return shape;
  }

  index_t offset(std::initializer_list<index_t> index) const {
    if (static_cast<index_t>(index.size()) != rank()) {
      throw IndexError("at", {index.size(), " indices given for shape ", shape_.str()});
    }
    index_t flat = 0;
    index_t axis = 0;
    for (const index_t i : index) {
      const index_t n = shape_[axis];
      const index_t j = i < 0 ? i + n : i;
      if (j < 0 || j >= n) {
        throw IndexError("at", {"index ", i, " is outside dimension ", axis, " of shape ", shape_.str()});
      }
      flat = flat * n + j;
      ++axis;
    }
    require_memory("at");
    return flat;
  }

  Shape shape_;
  std::shared_ptr<T> storage_;
  detail::StorageState* state_ = nullptr;  // beside the memory; valid while that is defined
};

/// The element type of a tensor of an Eigen expression is deduced: ef::Tensor(2 * m).
template <class Derived>
Tensor(const Eigen::DenseBase<Derived>&) -> Tensor<typename Derived::Scalar>;

/// A part of a tensor: the result of indexing one. It converts to a Tensor, a copy of its values; an op takes
/// it as an operand; assignments write to the tensor, whose storage it shares, and count as a change
/// (Tensor::mark_changed()).
template <class T>
class TensorPart {
 public:
  using value_type = T;  ///< the element type

  /// For Tensor's operator().
  TensorPart(Tensor<T> whole, detail::StridedView view) : whole_(std::move(whole)), view_(std::move(view)) {}
  /// A part of the same memory.
  TensorPart(const TensorPart&) = default;

  /// The sizes of its dimensions.
  const Shape& shape() const noexcept { return view_.shape; }
  /// A copy of the values.
  Tensor<T> clone() const {
    Tensor<T> values(view_.shape);
    detail::copy_view(values.data(), detail::whole_view(view_.shape), whole_.data(), view_);
    return values;
  }
  /// A copy of the values.
  operator Tensor<T>() const { return clone(); }  // NOLINT(google-explicit-constructor)

  /// Writes a tensor, broadcast to this shape. Throws ShapeError when it does not fit.
  TensorPart& operator=(const Tensor<T>& values) {
    return change(values, [](T& to, const T& from) { to = from; });
  }
  /// Writes the values of another part, which may overlap this one.
  TensorPart& operator=(const TensorPart& values) { return *this = values.clone(); }
  /// Writes a number to every element.
  TensorPart& operator=(T value) { return *this = Tensor<T>::scalar(value); }
  /// Adds a tensor or number, broadcast to this shape.
  TensorPart& operator+=(const Tensor<T>& values) {
    return change(values, [](T& to, const T& from) { to = static_cast<T>(to + from); });
  }
  TensorPart& operator+=(T value) { return *this += Tensor<T>::scalar(value); }  ///< the same
  /// Subtracts a tensor or number, broadcast to this shape.
  TensorPart& operator-=(const Tensor<T>& values) {
    return change(values, [](T& to, const T& from) { to = static_cast<T>(to - from); });
  }
  TensorPart& operator-=(T value) { return *this -= Tensor<T>::scalar(value); }  ///< the same
  /// Multiplies by a tensor or number, broadcast to this shape.
  TensorPart& operator*=(const Tensor<T>& values) {
    return change(values, [](T& to, const T& from) { to = static_cast<T>(to * from); });
  }
  TensorPart& operator*=(T value) { return *this *= Tensor<T>::scalar(value); }  ///< the same
  /// Divides by a tensor or number, broadcast to this shape.
  TensorPart& operator/=(const Tensor<T>& values) {
    return change(values, [](T& to, const T& from) { to = static_cast<T>(to / from); });
  }
  TensorPart& operator/=(T value) { return *this /= Tensor<T>::scalar(value); }  ///< the same

 private:
  template <class F>
  TensorPart& change(const Tensor<T>& given, const F& f) {
    const detail::StridedView from = detail::broadcast_view("assign", given.shape(), view_.shape);
    // Values of the same storage are read before they are written.
    const Tensor<T> values = given.use_count() == 1 ? given : given.clone();
    detail::for_each_pair(whole_.data(), view_, values.data(), from, f);
    whole_.mark_changed();
    return *this;
  }

  Tensor<T> whole_;
  detail::StridedView view_;
};

}  // namespace eigenformer
