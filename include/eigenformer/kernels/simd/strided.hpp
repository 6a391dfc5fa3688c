#pragma once

#include <array>
#include <cstddef>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer::detail::kernels {

/// A loop nest over up to six dimensions and its operands' strides in elements, with adjacent dimensions
/// merged if every operand allows it, so that most shapes become one or two loops. The last dimension is the
/// inner one; a nest over a single element has one dimension of size 1 with strides 0.
template <std::size_t Operands>
struct StridedLoop {
  std::array<index_t, 6> size{};
  std::array<std::array<index_t, 6>, Operands> stride{};
  int rank = 0;

  /// Adds a dimension inside the present ones; size 1 is ignored.
  void push(index_t n, const std::array<index_t, Operands>& strides) {
    if (n == 1) return;
    const auto last = static_cast<std::size_t>(rank - 1);
    bool merges = rank > 0;
    for (std::size_t o = 0; merges && o < Operands; ++o) merges = stride[o][last] == strides[o] * n;
    if (merges) {
      size[last] *= n;
      for (std::size_t o = 0; o < Operands; ++o) stride[o][last] = strides[o];
      return;
    }
    const auto at = static_cast<std::size_t>(rank++);
    size[at] = n;
    for (std::size_t o = 0; o < Operands; ++o) stride[o][at] = strides[o];
  }

  /// Adds an inner dimension of size 1 if there is none.
  void finish() {
    if (rank == 0) size[static_cast<std::size_t>(rank++)] = 1;
  }

  index_t inner_size() const { return size[static_cast<std::size_t>(rank - 1)]; }
  index_t inner_stride(std::size_t operand) const {
    return stride[operand][static_cast<std::size_t>(rank - 1)];
  }

  /// Product of the sizes of the outer dimensions.
  index_t outer_size() const {
    index_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= size[static_cast<std::size_t>(i)];
    return n;
  }

  /// The operands' offsets at the beginning of a round of the outer dimensions, and of those after it. Only
  /// the first takes divisions, which would take longer than a short inner dimension.
  class Rounds {
   public:
    Rounds(const StridedLoop& loop, index_t round) : loop_(loop) {
      for (int i = loop.rank - 2; i >= 0; --i) {
        const auto d = static_cast<std::size_t>(i);
        place_[d] = i > 0 ? round % loop.size[d] : round;
        if (i > 0) round /= loop.size[d];
        for (std::size_t o = 0; o < Operands; ++o) offset_[o] += place_[d] * loop.stride[o][d];
      }
    }
    index_t operator[](std::size_t operand) const { return offset_[operand]; }
    void next() {
      for (int i = loop_.rank - 2; i >= 0; --i) {
        const auto d = static_cast<std::size_t>(i);
        for (std::size_t o = 0; o < Operands; ++o) offset_[o] += loop_.stride[o][d];
        if (++place_[d] < loop_.size[d] || i == 0) return;
        for (std::size_t o = 0; o < Operands; ++o) offset_[o] -= place_[d] * loop_.stride[o][d];
        place_[d] = 0;
      }
    }

   private:
    const StridedLoop& loop_;
    std::array<index_t, 6> place_{};
    std::array<index_t, Operands> offset_{};
  };
  Rounds offsets(index_t round) const { return Rounds(*this, round); }
};

/// Strides of a row-major tensor of `shape`, aligned at the last dimension to rank `rank`; 0 where it is
/// broadcast.
inline std::array<index_t, 6> broadcast_strides(const Shape& shape, index_t rank) {
  std::array<index_t, 6> strides{};
  index_t step = 1;
  for (index_t i = 1; i <= shape.rank(); ++i) {
    const index_t n = shape[-i];
    strides[static_cast<std::size_t>(rank - i)] = n == 1 ? 0 : step;
    step *= n;
  }
  return strides;
}

/// The loop over the elements of `out` in order, with the strides of operands that are broadcast to it.
template <std::size_t Operands>
StridedLoop<Operands> broadcast_loop(const Shape& out, const std::array<const Shape*, Operands>& operands) {
  std::array<std::array<index_t, 6>, Operands> strides{};
  for (std::size_t o = 0; o < Operands; ++o) strides[o] = broadcast_strides(*operands[o], out.rank());
  StridedLoop<Operands> loop;
  for (index_t d = 0; d < out.rank(); ++d) {
    std::array<index_t, Operands> here{};
    for (std::size_t o = 0; o < Operands; ++o) here[o] = strides[o][static_cast<std::size_t>(d)];
    loop.push(out[d], here);
  }
  loop.finish();
  return loop;
}

}  // namespace eigenformer::detail::kernels
