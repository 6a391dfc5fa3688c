#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/module/rows.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Options of an Embedding.
struct EmbeddingOptions {
  index_t num_embeddings = 0;  ///< rows of the table, such as a vocabulary's size; required
  index_t embedding_dim = 0;   ///< features of a row; required
  index_t padding_index = -1;  ///< id whose row starts at zero and gets no gradient from lookups; -1: none
};

/// A table of vectors, looked up by id. Starts normal(0, d^-1/2) with a zero padding row, so that a row times
/// sqrt(d), which is what the Transformer uses (Vaswani et al. 2017, 3.4), has variance 1.
///
///     ef::Embedding<float> table({.num_embeddings = 23, .embedding_dim = 12}, rng);
///     auto y = table(ctx, ef::Tensor<std::int32_t>::from({2, 2}, {4, 22, 0, 7}));  // (2, 2, 12)
template <class T = float>
struct Embedding {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;         ///< (num_embeddings, embedding_dim)
  index_t padding_index = -1;  ///< id whose row gets no gradient from lookups; -1: none

  /// Throws ValueError that names the invalid field.
  Embedding(const EmbeddingOptions& options, RandomGenerator& rng) : padding_index(options.padding_index) {
    detail::require_positive("embedding", "num_embeddings", options.num_embeddings);
    detail::require_positive("embedding", "embedding_dim", options.embedding_dim);
    if (padding_index < -1 || padding_index >= options.num_embeddings) {
      throw ValueError("embedding",
                       {"padding_index is ", padding_index, ", must be -1 or below num_embeddings, which is ",
                        options.num_embeddings});
    }
    const double deviation = 1 / std::sqrt(static_cast<double>(options.embedding_dim));
    weight =
        Parameter<T>(init::normal<T>({options.num_embeddings, options.embedding_dim}, rng, 0, deviation));
    if (padding_index >= 0) weight.value().rows(padding_index, 1).fill(T(0));
    name_parameters(*this);
  }

  /// ids: any shape; returns that shape with d appended, times `scale`. With packed weights in the context,
  /// rows are read from the packed table if the table's own memory was released or the packed format is not
  /// float32. Throws IndexError for an id outside the table, ValueError if the memory was released and no
  /// packed weights are given, and for ids without memory.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tensor<std::int32_t>& ids,
                                  double scale = 1) const {
    detail::require_ids("embedding", "ids", ids);
    if constexpr (std::is_same_v<T, float>) {
      if (const detail::kernels::PackedMatrix* packed = packed_table(ctx); packed != nullptr) {
        Tensor<T> y(ids.shape().inserted(-1, weight.shape()[1]));
        packed->read_rows("embedding", ids.data(), ids.numel(), static_cast<float>(scale), y.data());
        return Var<T>(std::move(y));
      }
    }
    detail::require_memory("embedding", weight);
    return embedding(ctx.use(weight), ids, scale, padding_index);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) { visit("weight", self.weight); }
  /// Calls visit(weight) for the tables that pack_weights() packs in formats smaller than float32.
  static void tables(auto& self, auto&& visit) { visit(self.weight); }

 private:
  const detail::kernels::PackedMatrix* packed_table(const Context<T>& ctx) const {
    if (ctx.records() || ctx.packed_weights() == nullptr) return nullptr;
    const detail::kernels::PackedMatrix* packed =
        ctx.packed_weights()->find(weight.id(), 0, weight.shape()[0]);
    if (packed == nullptr) return nullptr;
    return weight.value().defined() && packed->format() == WeightFormat::float32 ? nullptr : packed;
  }
};

EIGENFORMER_MODULE_INSTANCES(Embedding)

}  // namespace eigenformer
