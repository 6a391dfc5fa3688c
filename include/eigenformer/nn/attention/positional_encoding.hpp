#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/nn/layers/embedding.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "eigenformer/nn/module/rows.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Adds sines and cosines of each token's position (Vaswani et al. 2017, 3.5). It has no parameters and no
/// limit on the length: the first 512 positions are in a table, later ones are computed.
///
///     ef::SinusoidalPositionalEncoding<float> positions(12);
///     auto y = positions(ctx, x, layout);  // (rows, 12) or (B, L, 12), the same shape as x
template <class T = float>
struct SinusoidalPositionalEncoding {
  using value_type = T;  ///< element type, float or double

  Buffer<T> table;              ///< (512, d): positions 0 to 511; not in the state dict
  SinusoidalPositions options;  ///< as given

  /// Throws ValueError that names the invalid field.
  explicit SinusoidalPositionalEncoding(index_t d_model, const SinusoidalPositions& given = {})
      : options(given) {
    options.validate("positional_encoding", d_model);
    frequencies_.resize(static_cast<std::size_t>((d_model + 1) / 2));
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      const auto d = static_cast<double>(d_model), n = static_cast<double>(i);
      const double power = options.exponent == SinusoidExponent::paper ? 2 * n / d : n / (d / 2 - 1);
      frequencies_[i] = std::pow(options.base, -power);
    }
    table.value = Tensor<T>(Shape{table_length, d_model});
    for (index_t p = 0; p < table_length; ++p) encode(p, table.value.data() + p * d_model);
  }

  /// x: (rows, d) or (B, L, d). Adds the encodings of the layout's positions and returns the same shape.
  /// Throws ShapeError if x does not match the layout or d.
  [[nodiscard]] Var<T> operator()(const Context<T>&, const Var<T>& x, const SequenceLayout& layout) const {
    detail::check_rows("positional_encoding", "input", x.shape(), layout);
    const index_t d = table.value.dim(1);
    if (x.dim(-1) != d) {
      throw ShapeError("positional_encoding", {"last dimension of input ", x.shape(), " must be ", d},
                       {x.shape()});
    }
    Tensor<T> y(x.shape());
    const T* in = x.value().data();
    T* out = y.data();
    const auto keys = layout.row_keys();
    parallel_for(
        layout.rows(), std::max<index_t>(1, (index_t{1} << 14) / d), [&](index_t begin, index_t end) {
          std::vector<T> computed;
          for (index_t r = begin; r < end; ++r) {
            const index_t position = (*keys)[static_cast<std::size_t>(r)].position + options.first_position;
            const T* p = table.value.data() + position * d;
            if (position >= table_length) {
              computed.resize(static_cast<std::size_t>(d));
              encode(position, computed.data());
              p = computed.data();
            }
            for (index_t j = 0; j < d; ++j) out[r * d + j] = in[r * d + j] + p[j];
          }
        });
    if (detail::not_recorded(y, x)) return y;
    return record("positional_encoding", std::move(y), {x}, [](Backward<T>& b) { b.pass(0, b.dy()); });
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) { visit("table", self.table); }

 private:
  static constexpr index_t table_length = 512;

  void encode(index_t position, T* row) const {
    const index_t d = table.value.dim(1);
    for (index_t j = 0; j < d; ++j) {
      const bool concatenated = options.order == SinusoidOrder::concatenated;
      const index_t i = concatenated ? j % (d / 2) : j / 2;
      const bool sine = concatenated ? j < d / 2 : j % 2 == 0;
      const double angle = static_cast<double>(position) * frequencies_[static_cast<std::size_t>(i)];
      row[j] = static_cast<T>(sine ? std::sin(angle) : std::cos(angle));
    }
  }

  std::vector<double> frequencies_;
};

/// Options of a LearnedPositionalEmbedding.
struct LearnedPositionalOptions {
  index_t max_length = 0;               ///< positions 0 to max_length - 1; required
  index_t d_model = defaults::d_model;  ///< features of a row
  index_t offset = 0;  ///< row of the table that is position 0; the table has this many rows more (BART: 2)
};

/// Adds a learned vector for each position (Gehring et al. 2017). Starts normal(0, 0.02) (Radford et al.
/// 2018).
///
///     ef::LearnedPositionalEmbedding<float> positions({.max_length = 128, .d_model = 12}, rng);
///     auto y = positions(ctx, x, layout);
template <class T = float>
struct LearnedPositionalEmbedding {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;  ///< (offset + max_length, d)
  index_t offset;       ///< row of position 0

  /// Throws ValueError that names the invalid field.
  LearnedPositionalEmbedding(const LearnedPositionalOptions& options, RandomGenerator& rng)
      : offset(options.offset) {
    detail::require_not_negative("positional_embedding", "offset", options.offset);
    detail::require_positive("positional_embedding", "max_length", options.max_length);
    detail::require_positive("positional_embedding", "d_model", options.d_model);
    weight = Parameter<T>(init::normal<T>({offset + options.max_length, options.d_model}, rng, 0, 0.02));
    name_parameters(*this);
  }

  /// x: (rows, d) or (B, L, d). Adds the vectors of the layout's positions and returns the same shape. Throws
  /// ValueError for a token at position max_length or later, ShapeError if x does not match the layout or d.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x,
                                  const SequenceLayout& layout) const {
    const char* op = "positional_embedding";
    detail::check_rows(op, "input", x.shape(), layout);
    const index_t d = weight.shape()[1], size = weight.shape()[0] - offset;
    if (x.dim(-1) != d) {
      throw ShapeError(op,
                       {"last dimension of input ", x.shape(), " must be ", d, ", to match '", weight.name(),
                        "' of shape ", weight.shape()},
                       {x.shape(), weight.shape()});
    }
    for (index_t b = 0; b < layout.batch(); ++b) {
      const index_t end = layout.position(b) + layout.length(b);
      if (end > size) {
        throw ValueError(op, {"sequence ", b, " reaches position ", end - 1, ", but '", weight.name(),
                              "' has ", size, " positions"});
      }
    }
    Tensor<std::int32_t> ids(Shape{layout.rows()});
    const auto keys = layout.row_keys();
    // Rows of padding may lie beyond the table; they get the last vector, which nothing uses.
    for (index_t r = 0; r < layout.rows(); ++r) {
      ids.data()[r] = static_cast<std::int32_t>(
          offset + std::min<index_t>((*keys)[static_cast<std::size_t>(r)].position, size - 1));
    }
    return add(x, reshape(embedding(ctx.use(weight), ids), x.shape()));
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) { visit("weight", self.weight); }
};

EIGENFORMER_MODULE_INSTANCES(SinusoidalPositionalEncoding)
EIGENFORMER_MODULE_INSTANCES(LearnedPositionalEmbedding)

namespace detail {

/// The positions that a model adds to its inputs: the given ones; if unset, sinusoidal ones, or none if the
/// layers' attention has positions of its own.
inline InputPositions input_positions(const std::optional<InputPositions>& given, const LayerOptions& layer) {
  if (given) return *given;
  if (std::holds_alternative<NoPositions>(layer.attention.positions)) return SinusoidalPositions{};
  return NoPositions{};
}

/// Adds positions to a model's inputs: sinusoidal, learned or none, as its options choose.
///
///     ef::PositionalEncoding<float> positions(ef::SinusoidalPositions{}, 128, 12, rng);
///     auto y = positions(ctx, x, layout);  // (rows, 12) or (B, L, 12), the same shape as x
template <class T = float>
struct PositionalEncoding {
  using value_type = T;  ///< element type, float or double

  std::optional<SinusoidalPositionalEncoding<T>> sinusoids;  ///< set for SinusoidalPositions
  OptionalModule<LearnedPositionalEmbedding<T>> learned;     ///< set for LearnedPositions

  /// Of a model with these options, which have been validated.
  PositionalEncoding(const auto& options, RandomGenerator& rng)
      : PositionalEncoding(options.input_positions(), options.max_length, options.layer.d_model, rng) {}
  /// max_length: number of learned positions; d_model: features of the inputs. Throws ValueError that names
  /// the invalid field.
  PositionalEncoding(const InputPositions& positions, index_t max_length, index_t d_model,
                     RandomGenerator& rng) {
    if (const auto* o = std::get_if<SinusoidalPositions>(&positions)) sinusoids.emplace(d_model, *o);
    if (const auto* o = std::get_if<LearnedPositions>(&positions))
      learned.emplace(LearnedPositionalOptions{max_length, d_model, o->offset}, rng);
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

EIGENFORMER_MODULE_INSTANCES(PositionalEncoding)

}  // namespace detail

}  // namespace eigenformer
