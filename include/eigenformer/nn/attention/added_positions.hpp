#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "eigenformer/nn/attention/positional.hpp"
#include "eigenformer/nn/module/optional_module.hpp"

namespace eigenformer {

/// The positions that a model adds to its inputs: what its options name; unset: sinusoidal, unless its
/// attention has positions of its own.
inline InputPositions input_positions(const std::optional<InputPositions>& given, const LayerOptions& layer) {
  if (given) return *given;
  if (std::holds_alternative<NoPositions>(layer.positions)) return SinusoidalPositions{};
  return NoPositions{};
}

/// Adds to a model's inputs the positions that its options name, if any.
template <class T = float>
struct AddedPositions {
  using value_type = T;  ///< element type, float or double

  std::optional<SinusoidalPositionalEncoding<T>> sinusoids;
  OptionalModule<LearnedPositionalEmbedding<T>> learned;

  /// max_length: the positions that learned ones have; d_model: the inputs' width. Throws ValueError (`[op]
  /// ...`) for impossible options.
  AddedPositions(const char* op, const InputPositions& positions, index_t max_length, index_t d_model,
                 RandomGenerator& rng) {
    if (const auto* o = std::get_if<SinusoidalPositions>(&positions)) {
      o->validate(op, d_model);
      sinusoids.emplace(d_model, *o);
    }
    if (const auto* o = std::get_if<LearnedPositions>(&positions)) {
      learned.emplace(LearnedPositionalOptions{max_length, d_model, o->offset}, rng);
    }
  }

  /// x: (rows, d) or (B, L, d), with the positions of the layout. Returns the same shape. Throws ShapeError
  /// if they do not match, ValueError for a position beyond a learned table.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x,
                                  const SequenceLayout& layout) const {
    if (learned) return (*learned)(ctx, x, layout);
    return sinusoids ? (*sinusoids)(ctx, x, layout) : x;
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) { visit("", self.learned); }
};

static_assert(std::is_nothrow_move_constructible_v<AddedPositions<float>>);

EIGENFORMER_MODULE_INSTANCES(AddedPositions)

}  // namespace eigenformer
