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
                     .d_model = 12,
                     .num_heads = 3,
                     .num_encoder_layers = 2,
                     .num_decoder_layers = 2,
                     .dim_feedforward = 20};
    change(o);
    return o;
  };
  using O = Seq2SeqOptions;
  return {
      {"sinusoidal", with([](O&) {})},
      {"learned, from the third row", with([](O& o) {
         o.positions = Positions::learned;
         o.max_length = 160;
         o.learned_position_offset = 2;
       })},
      {"no positions", with([](O& o) { o.positions = Positions::none; })},
      {"rotary", with([](O& o) { o.positions = Positions::rotary; })},
      {"rotary, halves of a part, another base", with([](O& o) {
         o.positions = Positions::rotary;
         o.rotary = {.base = 50, .dim = 2, .pairing = RotaryPairing::halves};
       })},
      {"alibi", with([](O& o) { o.positions = Positions::alibi; })},
      {"relative bias", with([](O& o) {
         o.positions = Positions::relative_bias;
         o.relative_bias = {.buckets = 8, .max_distance = 6};
         o.attention_scale = 1;
       })},
      {"shaw", with([](O& o) {
         o.positions = Positions::shaw;
         o.shaw_max_distance = 3;
       })},
      {"one head of keys", with([](O& o) { o.num_key_value_heads = 1; })},
      {"groups of wide heads, normalised, rotary", with([](O& o) {
         o.num_heads = 4;
         o.num_key_value_heads = 2;
         o.head_dim = 6;
         o.query_key_norm = true;
         o.positions = Positions::rotary;
       })},
      {"queries and keys with RMSNorm, rotary", with([](O& o) {
         o.query_key_norm = true;
         o.query_key_norm_kind = NormKind::rms_norm;
         o.positions = Positions::rotary;
       })},
      {"groups with shaw", with([](O& o) {
         o.num_heads = 4;
         o.num_key_value_heads = 2;
         o.head_dim = 5;
         o.positions = Positions::shaw;
         o.shaw_max_distance = 2;
       })},
      {"window with alibi", with([](O& o) {
         o.attention_window = 3;
         o.positions = Positions::alibi;
         o.norm_first = true;
       })},
      {"window with relative bias and one head of keys", with([](O& o) {
         o.attention_window = 4;
         o.num_key_value_heads = 1;
         o.positions = Positions::relative_bias;
         o.relative_bias = {.buckets = 8, .max_distance = 20};
       })},
  };
}

}  // namespace eigenformer::testing
