#include <string>

#include <doctest/doctest.h>

#include "eigenformer/io/models/options_json.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using testing::contains;
using testing::message_of;

TEST_CASE("options come back from JSON as they were, every field") {
  const Seq2SeqOptions given = {.source_vocab_size = 23,
                                .target_vocab_size = 29,
                                .layer = {.d_model = 12,
                                          .num_heads = 3,
                                          .dim_feedforward = 20,
                                          .dropout = {.rate = 0.25, .residual = 0.0},
                                          .layer_drop = 0.25,
                                          .activation = Activation::gelu_tanh,
                                          .gated = true,
                                          .norm = {.kind = NormKind::rms_norm,
                                                   .eps = 1e-6,
                                                   .formula = LayerNormFormula::teaching,
                                                   .scalar_gain = true},
                                          .norm_first = true,
                                          .sandwich_norm = true,
                                          .bias = false,
                                          .attention = AttentionKind::linear,
                                          .num_key_value_heads = 1,
                                          .head_dim = 6,
                                          .attention_scale = 0.5,
                                          .attention_window = 7,
                                          .query_key_norm = NormKind::rms_norm},
                                .final_norm = false,
                                .encoder = {.num_layers = 2},
                                .decoder = {.num_layers = 4},
                                .positions = LearnedPositions{.offset = 2},
                                .max_length = 77,
                                .embedding_dropout = 0.125,
                                .embedding_norm = true,
                                .scale_embedding = false,
                                .projection_bias = false,
                                .tying = Tying::target,
                                .logit_scale = 0.5,
                                .causal = false,
                                .padding_index = 0};
  const nlohmann::json json = nlohmann::json::parse(options_to_json(given).dump());
  const auto back = options_from_json<Seq2SeqOptions>(json);
  CHECK(options_to_json(back) == json);
  CHECK(back.target_vocab_size == 29);
  CHECK(back.num_decoder_layers == 4);
  CHECK(back.embedding_dropout == 0.125);
  CHECK_FALSE(back.attention_dropout.has_value());
  CHECK(back.residual_dropout == 0.0);
  CHECK(back.activation == Activation::gelu_tanh);
  CHECK(back.norm == NormKind::rms_norm);
  CHECK(back.layer_norm_formula == LayerNormFormula::teaching);
  CHECK(back.tying == Tying::target);
  CHECK(back.positions == Positions::learned);
  CHECK(back.sinusoid.base == 500);
  CHECK(back.sinusoid.first_position == 1);
  CHECK(back.rotary.pairing == RotaryPairing::halves);
  CHECK(back.relative_bias.bidirectional == true);
  CHECK(back.attention_window == 7);
  CHECK_FALSE(back.causal);
  // No field is forgotten: each of them differs from its default here, but for the one that was left out.
  const nlohmann::json defaults = options_to_json(Seq2SeqOptions{});
  for (const auto& item : json.items()) {
    const std::string name = item.key();
    CAPTURE(name);
    CHECK((item.value() == defaults.at(name)) ==
          (name == "feed_forward_dropout" || name == "attention_dropout"));
  }
}

TEST_CASE("fields that are left out keep their defaults") {
  const auto o = options_from_json<Seq2SeqOptions>({{"source_vocab_size", 23}});
  CHECK(o.source_vocab_size == 23);
  CHECK(o.d_model == 512);
  CHECK(o.causal);
}

TEST_CASE("foreign names and values of the wrong kind are refused by name") {
  const auto refusal = [](const nlohmann::json& json) {
    return message_of<ValueError>([&] { (void)options_from_json<Seq2SeqOptions>(json); });
  };
  CHECK(contains(refusal({{"n_embd", 768}}), "'n_embd' is not an option"));
  CHECK(contains(refusal({{"d_model", "wide"}}), "d_model is \"wide\", expected a whole number"));
  CHECK(contains(refusal({{"d_model", 12.5}}), "expected a whole number"));
  CHECK(contains(refusal({{"dropout", true}}), "dropout is true, expected a number"));
  CHECK(contains(refusal({{"causal", 1}}), "causal is 1, expected true or false"));
  CHECK(contains(refusal({{"tying", "some"}}), "tying is \"some\", expected one of none, target, all"));
  CHECK(contains(refusal(nlohmann::json::array()), "expected an object"));
}

TEST_CASE("options of language models and text encoders come back from JSON, those of their layers too") {
  LanguageModelOptions model;
  model.vocab_size = 23;
  model.num_layers = 2;
  model.layer.d_model = 12;
  model.layer.norm.kind = NormKind::rms_norm;
  model.layer.gated = true;
  model.layer.activation = Activation::relu_squared;
  model.tied = true;
  model.layer.positions = RotaryPositions{};
  model.layer.attention = AttentionKind::linear;
  const nlohmann::json json = options_to_json(model);
  CHECK(json.at("norm") == "rms_norm");
  CHECK(json.at("activation") == "relu_squared");
  const auto back = options_from_json<LanguageModelOptions>(json);
  CHECK(options_to_json(back) == json);
  CHECK(back.layer.d_model == 12);
  CHECK(back.layer.gated);
  CHECK(back.tied);
  CHECK(back.layer.positions == Positions::rotary);
  CHECK(back.layer.attention == AttentionKind::linear);

  TextEncoderOptions encoder;
  encoder.vocab_size = 29;
  encoder.num_token_types = 2;
  encoder.pooling = Pooling::first;
  encoder.layer.sandwich_norm = true;
  const nlohmann::json other = options_to_json(encoder);
  const auto again = options_from_json<TextEncoderOptions>(other);
  CHECK(options_to_json(again) == other);
  CHECK(again.pooling == Pooling::first);
  CHECK(again.num_token_types == 2);
  CHECK(again.layer.sandwich_norm);

  SequenceRegressorOptions regressor;
  regressor.source_features = 3;
  regressor.num_decoder_layers = 2;
  regressor.output_activation = Activation::tanh;
  regressor.positions = Positions::alibi;
  regressor.embedding_dropout = 0.25;
  regressor.query_key_norm_kind = NormKind::rms_norm;
  const nlohmann::json third = options_to_json(regressor);
  const auto regressor_back = options_from_json<SequenceRegressorOptions>(third);
  CHECK(options_to_json(regressor_back) == third);
  CHECK(regressor_back.source_features == 3);
  CHECK(regressor_back.output_activation == Activation::tanh);
  CHECK(regressor_back.positions == Positions::alibi);
  CHECK(regressor_back.embedding_dropout == 0.25);
  CHECK(regressor_back.query_key_norm_kind == NormKind::rms_norm);
  CHECK(contains(message_of<ValueError>([] {
                   (void)options_from_json<TextEncoderOptions>({{"tied", true}});
                 }),
                 "'tied' is not an option"));
}
