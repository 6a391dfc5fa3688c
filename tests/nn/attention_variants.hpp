#pragma once

#include <string>
#include <utility>
#include <vector>

#include "eigenformer/nn/models/seq2seq_options.hpp"

namespace eigenformer::testing {

/// A small model of every kind of positions and heads; sizes differ where they may.
inline std::vector<std::pair<std::string, Seq2SeqOptions>> attention_variants() {
  const auto with = [](auto&& change) {
    Seq2SeqOptions o{.source_vocab_size = 23,
                     .target_vocab_size = 19,
                     .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                     .encoder = {.num_layers = 2},
                     .decoder = {.num_layers = 2},
                     .padding_index = -1};
    change(o);
    return o;
  };
  using O = Seq2SeqOptions;
  return {
      {"sinusoidal", with([](O&) {})},
      {"learned, from the third row", with([](O& o) {
         o.positions = LearnedPositions{.offset = 2};
         o.max_length = 160;
       })},
      {"no positions", with([](O& o) { o.positions = NoPositions{}; })},
      {"rotary", with([](O& o) { o.layer.attention.positions = RotaryPositions{}; })},
      {"rotary, halves of a part, another base", with([](O& o) {
         o.layer.attention.positions =
             RotaryPositions{.base = 50, .dim = 2, .pairing = RotaryPairing::halves};
       })},
      {"alibi", with([](O& o) { o.layer.attention.positions = AlibiPositions{}; })},
      {"relative bias", with([](O& o) {
         o.layer.attention.positions = RelativeBiasPositions{.buckets = 8, .max_distance = 6};
         o.layer.attention.scale = 1;
       })},
      {"shaw", with([](O& o) { o.layer.attention.positions = ShawPositions{.max_distance = 3}; })},
      {"one head of keys", with([](O& o) { o.layer.attention.num_key_value_heads = 1; })},
      {"groups of wide heads, normalised, rotary", with([](O& o) {
         o.layer.num_heads = 4;
         o.layer.attention.num_key_value_heads = 2;
         o.layer.attention.head_dim = 6;
         o.layer.attention.query_key_norm = NormKind::layer_norm;
         o.layer.attention.positions = RotaryPositions{};
       })},
      {"queries and keys with RMSNorm, rotary", with([](O& o) {
         o.layer.attention.query_key_norm = NormKind::rms_norm;
         o.layer.attention.positions = RotaryPositions{};
       })},
      {"groups with shaw", with([](O& o) {
         o.layer.num_heads = 4;
         o.layer.attention.num_key_value_heads = 2;
         o.layer.attention.head_dim = 5;
         o.layer.attention.positions = ShawPositions{.max_distance = 2};
       })},
      {"window with alibi", with([](O& o) {
         o.layer.attention.window = 3;
         o.layer.attention.positions = AlibiPositions{};
         o.layer.norm_first = true;
       })},
      {"window with relative bias and one head of keys", with([](O& o) {
         o.layer.attention.window = 4;
         o.layer.attention.num_key_value_heads = 1;
         o.layer.attention.positions = RelativeBiasPositions{.buckets = 8, .max_distance = 20};
       })},
  };
}

}  // namespace eigenformer::testing
