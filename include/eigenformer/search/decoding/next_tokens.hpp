#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/shortlist.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/search/model.hpp"

namespace eigenformer::detail {

/// model.readout(ctx, rows), projection_weight() and projection_bias: the parts of logits(), from which the
/// logits of some ids can be computed alone.
template <class M>
concept HasOutputRows = requires(const M& model, const Context<typename M::value_type>& ctx,
                                 const Var<typename M::value_type>& rows) {
  { model.readout(ctx, rows) } -> std::convertible_to<Var<typename M::value_type>>;
  { model.projection_weight() } -> std::convertible_to<const Parameter<typename M::value_type>&>;
  { model.projection_bias } -> std::convertible_to<const Parameter<typename M::value_type>&>;
};

/// The rows of a model's output projection for some ids, copied once for many products.
template <class T>
class OutputRows {
 public:
  /// ids: ascending, within the vocabulary. Uses the context's packed weights if it has them.
  template <HasOutputRows M>
  OutputRows(const M& model, const Context<T>& ctx, std::vector<std::int32_t> ids) : ids_(std::move(ids)) {
    const Parameter<T>& weight = model.projection_weight();
    const Parameter<T>& bias = model.projection_bias;
    const auto count = static_cast<index_t>(ids_.size());
    const index_t in = weight.shape()[1];
    if (bias.defined()) {
      bias_ = Tensor<T>(Shape{count});
      for (index_t i = 0; i < count; ++i) bias_.data()[i] = bias.value().data()[id(i)];
    }
    if constexpr (std::is_same_v<T, float>) {
      const kernels::PackedMatrix* packed =
          ctx.packed_weights() == nullptr ? nullptr
                                          : ctx.packed_weights()->find(weight.id(), 0, weight.shape()[0]);
      if (packed != nullptr) {
        packed_ = packed->select("shortlist", ids_.data(), count);
        return;
      }
    }
    weight_ = Tensor<T>(Shape{count, in});
    for (index_t i = 0; i < count; ++i)
      std::copy_n(weight.value().data() + id(i) * in, in, weight_.data() + i * in);
  }

  /// The id of each column of the logits.
  std::span<const std::int32_t> ids() const noexcept { return ids_; }

  /// Logits (rows, ids) from the projection's input (rows, D).
  Tensor<T> logits(const Context<T>& ctx, const Tensor<T>& x) const {
    const auto count = static_cast<index_t>(ids_.size());
    const index_t rows = x.shape().rows(), in = x.dim(-1);
    Tensor<T> y(Shape{rows, count});
    kernels::GemmEpilogue<T> epilogue;
    if (bias_.defined()) epilogue.bias = bias_.data();
    if constexpr (std::is_same_v<T, float>) {
      if (!weight_.defined()) {
        kernels::gemm_packed(rows, x.data(), in, packed_, 0, y.data(), count, epilogue);
        return y;
      }
    }
    kernels::gemm<T>(false, true, rows, count, in, T(1), x.data(), in, weight_.data(), in, T(0), y.data(),
                     count, epilogue, ctx.precision());
    return y;
  }

 private:
  index_t id(index_t i) const { return ids_[static_cast<std::size_t>(i)]; }

  std::vector<std::int32_t> ids_;
  Tensor<T> weight_, bias_;
  kernels::PackedMatrix packed_;
};

/// Computes the logits of some ids from the rows that a model's state returns. Defined for models with
/// HasOutputRows and for ensembles of them.
template <class M>
class ModelOutputRows;

template <HasOutputRows M>
class ModelOutputRows<M> {
 public:
  using T = typename M::value_type;
  /// model: must outlive it. ids: ascending, within the vocabulary.
  ModelOutputRows(const M& model, const Context<T>& ctx, std::vector<std::int32_t> ids)
      : model_(&model), rows_(model, ctx, std::move(ids)) {}

  /// The id of each column of the logits.
  std::span<const std::int32_t> ids() const noexcept { return rows_.ids(); }
  /// Logits (rows, ids).
  Tensor<T> logits(const Context<T>& ctx, const Var<T>& decoded) const {
    return rows_.logits(ctx, model_->readout(ctx, decoded).value());
  }

 private:
  const M* model_;
  OutputRows<T> rows_;
};

template <class M>
concept HasModelOutputRows = requires {
  sizeof(ModelOutputRows<M>);
};

/// The tokens before the generated text, one list per input.
using Prompts = std::vector<std::vector<std::int32_t>>;

/// The logits of the next tokens of growing sequences, independent of the model's type.
template <class T>
class NextTokens {
 public:
  virtual ~NextTokens() = default;
  /// Reads the prompts and returns logits (prompts, V) of the tokens after them. The first prefix_length
  /// tokens of each prompt (all of a shorter one) have bidirectional attention. Called once, first.
  virtual Tensor<T> begin(const Prompts& prompts, index_t prefix_length) = 0;
  /// Makes sequence i the former sequence parents[i] followed by ids[i]; returns logits (parents, V).
  virtual Tensor<T> step(std::span<const std::int32_t> parents, const std::vector<std::int32_t>& ids) = 0;
  virtual index_t vocabulary_size() const = 0;
  /// The ids of the logits' columns with a shortlist; empty: all ids.
  virtual std::span<const std::int32_t> columns() const { return {}; }
};

/// A tensor that may be written: x itself if nobody else has its storage, else a copy.
template <class T>
Tensor<T> owned(Tensor<T>&& x) {
  return x.unique() ? std::move(x) : x.clone();
}

/// Throws ShapeError unless a model's logits have the shape (rows, columns).
EIGENFORMER_FUNCTION void require_logits(const char* op, const Shape& shape, index_t rows, index_t columns);
/// Throws ShapeError unless what a state's step returned has a row for each id.
EIGENFORMER_FUNCTION void require_decoded(const char* op, const Shape& shape, std::size_t ids);

template <class M>
class ModelNextTokens final : public NextTokens<typename M::value_type> {
 public:
  using T = typename M::value_type;

  ModelNextTokens(const char* op, const M& model, const Context<T>& ctx,
                  std::span<const typename M::Input> inputs)
      : op_(op), model_(model), ctx_(ctx), state_(model.begin(ctx, inputs)) {
    if (static_cast<index_t>(state_.sequences()) != static_cast<index_t>(inputs.size())) {
      throw ValueError(op, {"the model's begin() returned a state of ", state_.sequences(),
                            " sequences, must be ", inputs.size(), ", one for each input"});
    }
  }

  /// Restricts the logits to the ids that the shortlist chooses for the inputs, and `more` ids. Throws
  /// ValueError for a model without the members that this needs.
  void use(const Shortlist& shortlist, std::span<const typename M::Input> inputs,
           const std::vector<std::int32_t>& more) {
    if constexpr (HasModelOutputRows<M> && std::same_as<typename M::Input, std::vector<std::int32_t>>) {
      std::vector<std::int32_t> sources;
      for (const auto& input : inputs) sources.insert(sources.end(), input.begin(), input.end());
      std::vector<std::int32_t> ids =
          shortlist.choose(sources, static_cast<index_t>(model_.vocabulary_size()));
      ids.insert(ids.end(), more.begin(), more.end());
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      outputs_.emplace(model_, ctx_, std::move(ids));
    } else {
      throw ValueError(
          op_,
          "a shortlist needs a model with readout(), projection_weight() and projection_bias, and "
          "inputs that are ids");
    }
  }

  index_t vocabulary_size() const override { return static_cast<index_t>(model_.vocabulary_size()); }
  std::span<const std::int32_t> columns() const override {
    if constexpr (HasModelOutputRows<M>) {
      if (outputs_) return outputs_->ids();
    }
    return {};
  }

  Tensor<T> begin(const Prompts& prompts, index_t prefix_length) override {
    std::vector<std::int32_t> ids;
    std::vector<index_t> counts, prefix, last;
    for (const auto& prompt : prompts) {
      ids.insert(ids.end(), prompt.begin(), prompt.end());
      counts.push_back(static_cast<index_t>(prompt.size()));
      if (prefix_length > 0) prefix.push_back(std::min(prefix_length, counts.back()));
      last.push_back(static_cast<index_t>(ids.size()) - 1);
    }
    const Var<T> decoded = state_.step(id_row(ids), std::span<const index_t>(counts), prefix);
    if (ids.size() == prompts.size()) return logits(decoded, prompts.size());
    const Tensor<T>& rows = decoded.value();
    require_decoded(op_, rows.shape(), ids.size());
    const index_t d = rows.dim(1);
    Tensor<T> ends(Shape{static_cast<index_t>(last.size()), d});
    for (std::size_t i = 0; i < last.size(); ++i)
      std::copy_n(rows.data() + last[i] * d, d, ends.data() + static_cast<index_t>(i) * d);
    return logits(Var<T>(std::move(ends)), prompts.size());
  }

  Tensor<T> step(std::span<const std::int32_t> parents, const std::vector<std::int32_t>& ids) override {
    state_.reorder(parents);
    return logits(state_.step(id_row(ids)), ids.size());
  }

 private:
  Tensor<T> logits(const Var<T>& decoded, std::size_t count) const {
    if constexpr (HasModelOutputRows<M>) {
      if (outputs_) return outputs_->logits(ctx_, decoded);
    }
    Tensor<T> values;
    {
      const Var<T> made = model_.logits(ctx_, decoded);
      values = made.value();
    }
    require_logits(op_, values.shape(), static_cast<index_t>(count), vocabulary_size());
    return owned(std::move(values));
  }

  const char* op_;
  const M& model_;
  Context<T> ctx_;
  StateOf<M> state_;
  struct None {};
  template <class Model>
  struct Outputs {
    using type = None;
  };
  template <HasModelOutputRows Model>
  struct Outputs<Model> {
    using type = std::optional<ModelOutputRows<Model>>;
  };
  [[no_unique_address]] typename Outputs<M>::type outputs_;  // with a shortlist
};

}  // namespace eigenformer::detail

#if EIGENFORMER_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_FUNCTION void require_logits(const char* op, const Shape& shape, index_t rows, index_t columns) {
  const Shape expected{rows, columns};
  if (shape == expected) return;
  throw ShapeError(op,
                   {"the model's logits have shape ", shape, ", must be ", expected.str(),
                    ", a row for each of the decoder's rows and a column for each id"},
                   {shape, expected});
}

EIGENFORMER_FUNCTION void require_decoded(const char* op, const Shape& shape, std::size_t ids) {
  if (shape.rank() == 2 && shape[0] == static_cast<index_t>(ids)) return;
  throw ShapeError(
      op,
      {"the state's step returned rows of shape ", shape, ", must be (", ids, ", d_model), one for each id"},
      {shape});
}

}  // namespace eigenformer::detail

#endif
