#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// The sizes of a tensor's dimensions: rank 0 to 6, held inline, row-major.
class Shape {
 public:
  static constexpr index_t max_rank = 6;  ///< the highest rank
  /// The most elements that a shape may have, 2^27 in WebAssembly; sizes in bytes cannot overflow below it.
  static constexpr index_t max_numel = index_t{1} << (sizeof(std::size_t) < 8 ? 27 : 58);

  /// Rank 0: one element.
  Shape() = default;
  /// The given dimensions. Throws ShapeError for more than max_rank, a negative one or more than max_numel
  /// elements.
  EIGENFORMER_NOINLINE Shape(std::initializer_list<index_t> dims)
      : Shape(std::span<const index_t>(dims.begin(), dims.size())) {}
  /// As the constructor above, with the same errors.
  explicit Shape(std::span<const index_t> dims);

  /// The number of dimensions.
  index_t rank() const noexcept { return rank_; }

  /// Size of dimension i; negative i counts from the end. Throws IndexError outside the rank.
  index_t operator[](index_t i) const { return dims_[position(i)]; }

  /// Number of elements; 1 for rank 0.
  index_t numel() const noexcept {
    index_t n = 1;
    for (index_t i = 0; i < rank_; ++i) n *= dims_[static_cast<std::size_t>(i)];
    return n;
  }

  /// Product of all dimensions but the last (1 for rank 0).
  index_t rows() const noexcept {
    index_t n = 1;
    for (index_t i = 0; i + 1 < rank_; ++i) n *= dims_[static_cast<std::size_t>(i)];
    return n;
  }

  /// The last dimension (1 for rank 0).
  index_t cols() const noexcept { return rank_ == 0 ? 1 : dims_[static_cast<std::size_t>(rank_ - 1)]; }

  /// A copy with dimension i (negative counts from the end) replaced by n. Throws IndexError when it does not
  /// exist, ShapeError when n does not fit.
  Shape with(index_t i, index_t n) const;
  /// A copy without dimension i (negative counts from the end). Throws IndexError when it does not exist.
  Shape without(index_t i) const;
  /// A copy with a dimension of size n inserted before position i; negative i counts positions of the result
  /// from its end. Throws IndexError when it does not exist, ShapeError when the result is not a valid shape.
  Shape inserted(index_t i, index_t n) const;

  /// All dimensions; a view that ends with this object.
  std::span<const index_t> dims() const noexcept { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  /// Iterates over the dimensions.
  auto begin() const noexcept { return dims().begin(); }
  auto end() const noexcept { return dims().end(); }  ///< one past the last dimension

  /// As Python prints it: "(2, 3)", "(4,)", "()".
  EIGENFORMER_NOINLINE std::string str() const {
    std::string s = "(";
    for (index_t i = 0; i < rank_; ++i) {
      if (i > 0) s += ", ";
      s += std::to_string(dims_[static_cast<std::size_t>(i)]);
    }
    if (rank_ == 1) s += ",";
    return s + ")";
  }

  /// Whether rank and dimensions agree.
  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    return a.rank_ == b.rank_ && std::equal(a.dims_.begin(), a.dims_.begin() + a.rank_, b.dims_.begin());
  }

 private:
  // The place of dimension i in dims_. Throws IndexError outside the rank.
  std::size_t position(index_t i) const;

  // Throws ShapeError for a negative dimension and for more elements than max_numel (zeros aside, as rows()
  // skips some).
  void check() const;

  std::array<index_t, static_cast<std::size_t>(max_rank)> dims_{};
  index_t rank_ = 0;
};

/// Shapes that do not fit an operation, or that cannot exist.
class ShapeError : public Error {
 public:
  /// An error of `op` about the given shapes.
  EIGENFORMER_NOINLINE ShapeError(std::string_view op, std::string_view message,
                                  std::initializer_list<Shape> shapes = {})
      : Error(op, message), shapes_(shapes) {}
  /// The same with a message in parts.
  EIGENFORMER_NOINLINE ShapeError(std::string_view op, std::initializer_list<detail::MessagePart> message,
                                  std::initializer_list<Shape> shapes = {})
      : Error(op, message), shapes_(shapes) {}
  /// The same with any number of shapes.
  EIGENFORMER_NOINLINE ShapeError(std::string_view op, std::initializer_list<detail::MessagePart> message,
                                  std::vector<Shape> shapes)
      : Error(op, message), shapes_(std::move(shapes)) {}

  /// The shapes in question, in the order of the arguments; may be empty.
  const std::vector<Shape>& shapes() const noexcept { return shapes_; }

 private:
  std::vector<Shape> shapes_;
};

EIGENFORMER_NOINLINE inline Shape::Shape(std::span<const index_t> dims) {
  if (static_cast<index_t>(dims.size()) > max_rank) {
    throw ShapeError("shape", {"rank ", dims.size(), " exceeds the maximum rank ", max_rank});
  }
  for (const index_t d : dims) dims_[static_cast<std::size_t>(rank_++)] = d;
  check();
}

EIGENFORMER_NOINLINE inline void Shape::check() const {
  index_t n = 1;
  for (const index_t d : dims()) {
    if (d < 0) throw ShapeError("shape", {"dimension ", d, " must not be negative"});
    if (d > 0 && n > max_numel / d)
      throw ShapeError("shape", {str(), " has more elements than any memory holds"});
    n *= std::max<index_t>(d, 1);
  }
}

EIGENFORMER_NOINLINE inline std::size_t Shape::position(index_t i) const {
  const index_t j = i < 0 ? i + rank_ : i;
  if (j < 0 || j >= rank_) {
    throw IndexError("shape", {"dimension ", i, " does not exist in shape ", str()});
  }
  return static_cast<std::size_t>(j);
}

EIGENFORMER_NOINLINE inline Shape Shape::with(index_t i, index_t n) const {
  Shape s = *this;
  s.dims_[position(i)] = n;
  s.check();
  return s;
}

EIGENFORMER_NOINLINE inline Shape Shape::without(index_t i) const {
  Shape s = *this;
  const auto at = s.dims_.begin() + position(i);
  std::copy(at + 1, s.dims_.end(), at);
  --s.rank_;
  return s;
}

EIGENFORMER_NOINLINE inline Shape Shape::inserted(index_t i, index_t n) const {
  const index_t at = i < 0 ? i + rank_ + 1 : i;
  if (at < 0 || at > rank_) {
    throw IndexError("shape", {"cannot insert a dimension at ", i, " into shape ", str()});
  }
  std::array<index_t, static_cast<std::size_t>(max_rank) + 1> sizes{};
  const auto place = std::copy_n(begin(), at, sizes.begin());
  *place = n;
  std::copy(begin() + at, end(), place + 1);
  return Shape(std::span<const index_t>(sizes.data(), static_cast<std::size_t>(rank_ + 1)));
}

}  // namespace eigenformer
