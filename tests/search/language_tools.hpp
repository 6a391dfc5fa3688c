#pragma once

#include <vector>

#include "eigenformer/nn/models/language_model.hpp"

namespace eigenformer::testing {

/// Options of small language models of different kinds, over 19 ids.
inline std::vector<LanguageModelOptions> language_models() {
  LanguageModelOptions plain{
      .vocab_size = 19, .num_layers = 2, .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}};
  LanguageModelOptions modern = plain;
  modern.layer.norm_first = true;
  modern.layer.norm.kind = NormKind::rms_norm;
  modern.layer.gated = true;
  modern.layer.activation = Activation::silu;
  modern.layer.bias = false;
  LanguageModelOptions learned = plain;
  learned.positions = LearnedPositions{};
  learned.embedding_norm = true;
  learned.tied = true;
  learned.logit_scale = 0.5;
  learned.layer.sandwich_norm = true;
  LanguageModelOptions linear = modern;
  linear.layer.attention.kind = AttentionKind::linear;
  LanguageModelOptions relative = plain;
  relative.layer.attention.positions = RelativeBiasPositions{.buckets = 8, .max_distance = 9};
  relative.layer.attention.num_key_value_heads = 1;
  LanguageModelOptions rotary = modern;
  rotary.layer.attention.positions = RotaryPositions{};
  rotary.layer.attention.query_key_norm = NormKind::layer_norm;
  return {plain, modern, learned, linear, relative, rotary};
}

/// With larger logits than an untrained model has, so that texts differ in how likely they are.
inline LanguageModel<double> small_language_model(const LanguageModelOptions& options) {
  RandomGenerator rng(1);
  LanguageModel<double> model(options, rng);
  if (model.own_projection.defined()) {
    for (double& w : model.own_projection.value().span()) w *= 3;
  }
  return model;
}

}  // namespace eigenformer::testing
