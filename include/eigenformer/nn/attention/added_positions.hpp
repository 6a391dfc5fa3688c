#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "eigenformer/nn/attention/positional.hpp"
#include "eigenformer/nn/module/optional_module.hpp"

namespace eigenformer {

/// The positions that a model adds to its inputs: the given ones; if unset, sinusoidal ones, or none if the
/// layers' attention has positions of its own.
inline InputPositions input_positions(const std::optional<InputPositions>& given, const LayerOptions& layer) {
  if (given) return *given;
  if (std::holds_alternative<NoPositions>(layer.positions)) return SinusoidalPositions{};
  return NoPositions{};
}

/// Adds positions to a model's inputs: sinusoidal, learned or none, as its options choose.
///
///     ef::AddedPositions<float> positions("my_model", ef::SinusoidalPositions{}, 128, 12, rng);
///     auto y = positions(ctx, x, layout);  // (rows, 12) or (B, L, 12), the same shape as x
template <class T = float>
struct AddedPositions {
  using value_type = T;  ///< element type, float or double

  std::optional<SinusoidalPositionalEncoding<T>> sinusoids;  ///< set for SinusoidalPositions
  OptionalModule<LearnedPositionalEmbedding<T>> learned;     ///< set for LearnedPositions

  /// max_length: number of learned positions; d_model: features of the inputs. Throws ValueError (`[op] ...`)
  /// for invalid options.
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

  /// x: (rows, d) or (B, L, d), with the positions of the layout. Returns the same shape; without positions x
  /// itself. Throws ShapeError if x does not match the layout or d, ValueError for a position beyond a
  /// learned table.
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
