#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/dropout.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Options of a TextEmbedding.
struct TextEmbeddingOptions {
  index_t vocab_size = 0;               ///< ids are below it; required
  index_t d_model = defaults::d_model;  ///< features of a row
  index_t num_token_types = 0;  ///< kinds of tokens with a vector each, such as BERT's two segments; 0: none
  double dropout = defaults::dropout;                ///< rate on the sum, in training
  bool scale = true;                                 ///< multiply token vectors by sqrt(d_model)
  InputPositions positions = SinusoidalPositions{};  ///< sinusoidal, learned or none
  index_t max_length = 1024;  ///< tokens of a sequence, if positions are learned: the size of their table
  /// Id whose vector starts at zero and gets no gradient from lookups; -1: none.
  index_t padding_index = SpecialIds::pad;

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const {
    detail::require_positive(op, "vocab_size", vocab_size);
    detail::require_positive(op, "d_model", d_model);
    detail::require_rate(op, "embedding_dropout", dropout);
    detail::require_not_negative(op, "num_token_types", num_token_types);
    detail::require_positive(op, "max_length", max_length);
    detail::require_input_positions(op, positions, d_model);
    detail::require_padding(op, "padding_index", padding_index, vocab_size);
  }
};

/// The input layer of a text model: dropout(norm(token + position + token type)), where all but the token are
/// optional. Devlin et al. 2019, figure 2. Part of LanguageModel and TextEncoder.
///
///     ef::TextEmbedding<float> embed("my_model", {.vocab_size = 23, .d_model = 12}, {}, rng);
///     auto x = embed(ctx, "my_model", ids, layout);  // (B, L) -> (B, L, 12)
template <class T = float>
struct TextEmbedding {
  using value_type = T;                 ///< element type, float or double
  using Tokens = Tensor<std::int32_t>;  ///< token ids

  Embedding<T> embedding;                            ///< (vocab_size, D)
  detail::PositionalEncoding<T> positions;           ///< added to token vectors
  detail::OptionalModule<Embedding<T>> token_types;  ///< (num_token_types, D); absent if that is 0
  detail::OptionalModule<Norm<T>> embedding_norm;    ///< of the sum; absent unless given
  TextEmbeddingOptions options;                      ///< as given

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  TextEmbedding(const char* op, const TextEmbeddingOptions& given, detail::OptionalModule<Norm<T>> norm,
                RandomGenerator& rng)
      : embedding({detail::validated(op, given).vocab_size, given.d_model, given.padding_index}, rng),
        positions(given.positions, given.max_length, given.d_model, rng),
        embedding_norm(std::move(norm)),
        options(given) {
    if (options.num_token_types > 0) {
      token_types.emplace(EmbeddingOptions{options.num_token_types, options.d_model}, rng);
    }
  }

  /// ids, and types if the model has token types (undefined: all 0): (B, L) or (rows), in the given layout.
  /// Returns (..., D). Throws (`[op] ...`) ShapeError if they do not match the layout, IndexError for an id
  /// outside its table, ValueError for types if the model has none.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const char* op, const Tokens& ids,
                                  const SequenceLayout& layout, const Tokens& types = {}) const {
    detail::check_tokens(op, "tokens", ids, layout);
    Var<T> x = embedding(ctx, ids, options.scale ? std::sqrt(static_cast<double>(options.d_model)) : 1.0);
    x = positions(ctx, x, layout);
    if (types.defined() && !token_types)
      throw ValueError(op, "token types were given, but the model has none");
    if (token_types) {
      if (types.defined()) detail::check_tokens(op, "token types", types, layout);
      x = add(x,
              (*token_types)(ctx, types.defined() ? types.reshape(ids.shape()) : Tokens::zeros(ids.shape())));
    }
    if (embedding_norm) x = (*embedding_norm)(ctx, x);
    return dropout(ctx.for_rows(layout), x, options.dropout);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("embedding", self.embedding);
    visit("positions", self.positions);
    visit("token_types", self.token_types);
    visit("embedding_norm", self.embedding_norm);
  }
};

EIGENFORMER_MODULE_INSTANCES(TextEmbedding)

}  // namespace eigenformer
