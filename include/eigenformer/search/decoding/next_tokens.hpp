#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/shortlist.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"
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

/// Computes the logits of some ids, (rows, ids), from the rows that a model's state returns.
template <class T>
using SelectedLogits = std::function<Tensor<T>(const Var<T>& decoded)>;

/// model.selected_logits(ids) returns a SelectedLogits: an ensemble of models with HasOutputRows.
template <class M>
concept SelectsLogits = requires(const M& model, const std::vector<std::int32_t>& ids) {
  { model.selected_logits(ids) } -> std::convertible_to<SelectedLogits<typename M::value_type>>;
};

/// The logits of some ids can be computed alone.
template <class M>
concept CanSelectLogits = HasOutputRows<M> || SelectsLogits<M>;

/// The rows of a model's output projection for some ids, copied once for many products, in packed form if the
/// context has packed weights. model: must outlive the result. ids: ascending, within the vocabulary.
template <CanSelectLogits M, class T>
SelectedLogits<T> selected_logits(const M& model, const Context<T>& ctx,
                                  const std::vector<std::int32_t>& ids) {
  if constexpr (SelectsLogits<M>) {
    return model.selected_logits(ids);
  } else {
    struct Projection {
      Parameter<T> weight, bias;
      Context<T> ctx;
    };
    const Parameter<T>& weight = model.projection_weight();
    const Parameter<T>& bias = model.projection_bias;
    const Tensor<std::int32_t> rows = id_row(ids);
    const auto own = std::make_shared<Projection>(Projection{{}, {}, ctx});
    if (bias.defined()) own->bias = Parameter<T>(index_select(bias.value(), rows).value());
    const kernels::PackedMatrix* packed = nullptr;
    if (std::is_same_v<T, float> && ctx.packed_weights() != nullptr)
      packed = ctx.packed_weights()->find(weight.id(), 0, weight.shape()[0]);
    if (packed != nullptr) {
      own->weight = Parameter<T>(Tensor<T>::without_storage(Shape{rows.numel(), weight.shape()[1]}));
      const auto chosen = std::make_shared<kernels::PackedWeights>();
      chosen->add(own->weight.id(), 0, packed->select("shortlist", ids.data(), rows.numel()));
      own->ctx = ctx.with_packed_weights(chosen);
    } else {
      own->weight = Parameter<T>(index_select(weight.value(), rows).value());
    }
    return [&model, ctx, own](const Var<T>& decoded) {
      return linear(own->ctx, model.readout(ctx, decoded), own->weight, own->bias).value();
    };
  }
}

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

/// Throws ShapeError unless a model's logits have the shape (rows, columns).
inline void require_logits(const char* op, const Shape& shape, index_t rows, index_t columns) {
  const Shape expected{rows, columns};
  if (shape == expected) return;
  throw ShapeError(op,
                   {"the model's logits have shape ", shape, ", must be ", expected.str(),
                    ", a row for each of the decoder's rows and a column for each id"},
                   {shape, expected});
}

/// Throws ShapeError unless what a state's step returned has a row for each id.
inline void require_decoded(const char* op, const Shape& shape, std::size_t ids) {
  if (shape.rank() == 2 && shape[0] == static_cast<index_t>(ids)) return;
  throw ShapeError(
      op,
      {"the state's step returned rows of shape ", shape, ", must be (", ids, ", d_model), one for each id"},
      {shape});
}

template <class M>
class ModelNextTokens final : public NextTokens<typename M::value_type> {
 public:
  using T = typename M::value_type;

  ModelNextTokens(const M& model, const Context<T>& ctx, std::span<const typename M::Input> inputs)
      : model_(model), ctx_(ctx), state_(model.begin(ctx, inputs)) {
    if (static_cast<index_t>(state_.sequences()) != static_cast<index_t>(inputs.size())) {
      throw ValueError("search", {"the model's begin() returned a state of ", state_.sequences(),
                                  " sequences, must be ", inputs.size(), ", one for each input"});
    }
  }

  /// Restricts the logits to the ids that the shortlist chooses for the inputs, and `more` ids. Throws
  /// ValueError for a model without the members that this needs.
  void use(const Shortlist& shortlist, std::span<const typename M::Input> inputs,
           const std::vector<std::int32_t>& more) {
    if constexpr (CanSelectLogits<M> && std::same_as<typename M::Input, std::vector<std::int32_t>>) {
      std::vector<std::int32_t> sources;
      for (const auto& input : inputs) sources.insert(sources.end(), input.begin(), input.end());
      columns_ = shortlist.choose(sources, vocabulary_size());
      columns_.insert(columns_.end(), more.begin(), more.end());
      std::sort(columns_.begin(), columns_.end());
      columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
      selected_ = selected_logits(model_, ctx_, columns_);
    } else {
      throw ValueError(
          "search",
          "a shortlist needs a model with readout(), projection_weight() and projection_bias, and "
          "inputs that are ids");
    }
  }

  index_t vocabulary_size() const override { return static_cast<index_t>(model_.vocabulary_size()); }
  std::span<const std::int32_t> columns() const override { return columns_; }

  Tensor<T> begin(const Prompts& prompts, index_t prefix_length) override {
    std::vector<std::int32_t> ids, last;
    std::vector<index_t> counts, prefix;
    for (const auto& prompt : prompts) {
      ids.insert(ids.end(), prompt.begin(), prompt.end());
      counts.push_back(static_cast<index_t>(prompt.size()));
      if (prefix_length > 0) prefix.push_back(std::min(prefix_length, counts.back()));
      last.push_back(static_cast<std::int32_t>(ids.size()) - 1);
    }
    const Var<T> decoded = state_.step(id_row(ids), std::span<const index_t>(counts), prefix);
    if (ids.size() == prompts.size()) return logits(decoded, prompts.size());
    require_decoded("search", decoded.shape(), ids.size());
    return logits(index_select(decoded, id_row(last)), prompts.size());
  }

  Tensor<T> step(std::span<const std::int32_t> parents, const std::vector<std::int32_t>& ids) override {
    state_.reorder(parents);
    return logits(state_.step(id_row(ids)), ids.size());
  }

 private:
  Tensor<T> logits(const Var<T>& decoded, std::size_t count) const {
    if (selected_) return selected_(decoded);
    const Tensor<T> values = Var<T>(model_.logits(ctx_, decoded)).value();
    require_logits("search", values.shape(), static_cast<index_t>(count), vocabulary_size());
    return values.unique() ? values : values.clone();
  }

  const M& model_;
  Context<T> ctx_;
  StateOf<M> state_;
  std::vector<std::int32_t> columns_;
  SelectedLogits<T> selected_;  // of the columns; empty without a shortlist
};

}  // namespace eigenformer::detail
