#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"
#include "eigenformer/nn/module/module.hpp"

namespace eigenformer {

namespace models {

/// model.readout(ctx, rows), projection_weight() and projection_bias: the parts of logits(), from which the
/// logits of some ids can be computed alone.
template <class M>
concept HasOutputRows = requires(const M& model, const Context<typename M::value_type>& ctx,
                                 const Var<typename M::value_type>& rows) {
  { model.readout(ctx, rows) } -> std::convertible_to<Var<typename M::value_type>>;
  { model.projection_weight() } -> std::convertible_to<const Parameter<typename M::value_type>&>;
  { model.projection_bias } -> std::convertible_to<const Parameter<typename M::value_type>&>;
};

}  // namespace models

namespace detail {

/// The rows of a model's output projection for some ids, copied once for many products.
template <class T>
class OutputRows {
 public:
  /// ids: ascending, within the vocabulary. Uses the context's packed weights if it has them.
  template <models::HasOutputRows M>
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

template <models::HasOutputRows M>
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

}  // namespace detail

}  // namespace eigenformer
