#include <set>
#include <string>

#include <doctest/doctest.h>

#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/nn/models/sequence_regressor.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"
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
                                          .attention = {.kind = AttentionKind::linear,
                                                        .num_key_value_heads = 1,
                                                        .head_dim = 6,
                                                        .scale = 0.5,
                                                        .window = 7,
                                                        .query_key_norm = NormKind::rms_norm}},
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
  CHECK(back.decoder.num_layers == 4);
  CHECK(back.embedding_dropout == 0.125);
  CHECK(back.layer == given.layer);
  CHECK(back.tying == Tying::target);
  CHECK(back.positions == given.positions);
  CHECK_FALSE(back.causal);
  // No field is forgotten: each of them differs from its default here, but for the one that was left out.
  const nlohmann::json defaults = options_to_json(Seq2SeqOptions{});
  for (const auto& item : json.items()) {
    const std::string name = item.key();
    CAPTURE(name);
    // Those that are left out, and those of another kind of positions.
    const bool same = defaults.contains(name) && item.value() == defaults.at(name);
    const std::set<std::string> left_out = {"feed_forward_dropout", "attention_dropout", "padding_index",
                                            "attention_positions",  "constant_id",       "self_mixing"};
    CHECK(same == left_out.contains(name));
  }
}

TEST_CASE("fields that are left out keep their defaults") {
  const auto o = options_from_json<Seq2SeqOptions>({{"source_vocab_size", 23}});
  CHECK(o.source_vocab_size == 23);
  CHECK(o.layer.d_model == 512);
  CHECK(o.padding_index == SpecialIds::pad);
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
  model.layer.attention.positions = RotaryPositions{};
  model.layer.attention.kind = AttentionKind::linear;
  const nlohmann::json json = options_to_json(model);
  CHECK(json.at("norm") == "rms_norm");
  CHECK(json.at("activation") == "relu_squared");
  const auto back = options_from_json<LanguageModelOptions>(json);
  CHECK(options_to_json(back) == json);
  CHECK(back.layer.d_model == 12);
  CHECK(back.layer.gated);
  CHECK(back.tied);
  CHECK(std::holds_alternative<RotaryPositions>(back.layer.attention.positions));
  CHECK(back.layer.attention.kind == AttentionKind::linear);

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
  regressor.decoder.num_layers = 2;
  regressor.output_activation = Activation::tanh;
  regressor.layer.attention.positions = AlibiPositions{};
  regressor.embedding_dropout = 0.25;
  regressor.layer.attention.query_key_norm = NormKind::rms_norm;
  const nlohmann::json third = options_to_json(regressor);
  const auto regressor_back = options_from_json<SequenceRegressorOptions>(third);
  CHECK(options_to_json(regressor_back) == third);
  CHECK(regressor_back.source_features == 3);
  CHECK(regressor_back.output_activation == Activation::tanh);
  CHECK(regressor_back.layer == regressor.layer);
  CHECK(regressor_back.embedding_dropout == 0.25);
  CHECK(contains(message_of<ValueError>([] {
                   (void)options_from_json<TextEncoderOptions>({{"tied", true}});
                 }),
                 "'tied' is not an option"));
}

TEST_CASE("what differs in a stack stands in an object of its own, and only that") {
  Seq2SeqOptions given = {.source_vocab_size = 23, .layer = {.d_model = 12, .num_heads = 3}};
  given.layer.dropout.attention = 0.25;
  given.layer.attention.query_key_norm = NormKind::rms_norm;
  given.decoder.layer = given.layer;
  given.decoder.layer->num_heads = 4;
  given.decoder.layer->dim_feedforward = 20;
  given.decoder.layer->dropout.attention.reset();
  given.decoder.layer->attention.query_key_norm.reset();
  given.decoder.layer->attention.positions = RotaryPositions{.base = 500};
  given.encoder.final_norm = false;
  const nlohmann::json json = nlohmann::json::parse(options_to_json(given).dump());
  CHECK(json.at("encoder") == nlohmann::json{{"final_norm", false}});
  CHECK(json.at("decoder") == nlohmann::json{{"num_heads", 4},
                                             {"dim_feedforward", 20},
                                             {"attention_dropout", nullptr},
                                             {"query_key_norm", false},
                                             {"attention_positions", "rotary"},
                                             {"rotary_base", 500.0},
                                             {"rotary_dim", 0},
                                             {"rotary_pairing", "adjacent"}});
  const auto back = options_from_json<Seq2SeqOptions>(json);
  CHECK(options_to_json(back) == json);
  CHECK(back.decoder.layer == given.decoder.layer);
  CHECK_FALSE(back.encoder.layer.has_value());
  CHECK(back.encoder.final_norm == false);

  given.layer.attention.positions = RotaryPositions{.base = 300};
  given.decoder.layer = given.layer;
  std::get<RotaryPositions>(given.decoder.layer->attention.positions).base = 700;
  given.encoder.final_norm.reset();
  const nlohmann::json near = options_to_json(given);
  CHECK(near.at("decoder") == nlohmann::json{{"rotary_base", 700.0}});
  CHECK_FALSE(near.contains("encoder"));
  CHECK(options_from_json<Seq2SeqOptions>(near).decoder.layer == given.decoder.layer);

  const auto refusal = [](const nlohmann::json& wrong) {
    return message_of<ValueError>([&] { (void)options_from_json<Seq2SeqOptions>(wrong); });
  };
  CHECK(contains(refusal({{"decoder", 3}}), "decoder is 3, expected an object"));
  CHECK(contains(refusal({{"decoder", {{"heads", 3}}}}), "'decoder.heads' is not an option"));
  CHECK(contains(refusal({{"decoder", {{"num_heads", "x"}}}}), "num_heads is \"x\""));
}

TEST_CASE("positions that are added and those in attention have a field each, and may be read from one") {
  const auto positions = [](std::optional<InputPositions> added, AttentionPositions attention) {
    Seq2SeqOptions o;
    o.positions = std::move(added);
    o.layer.attention.positions = std::move(attention);
    const nlohmann::json json = options_to_json(o);
    const auto back = options_from_json<Seq2SeqOptions>(json);
    CHECK(back.input_positions() == o.input_positions());
    CHECK(back.layer.attention.positions == o.layer.attention.positions);
    return json;
  };
  CHECK(positions({}, {}).at("positions") == "sinusoidal");
  CHECK(positions(NoPositions{}, {}).at("positions") == "none");
  CHECK(positions(LearnedPositions{.offset = 2}, {}).at("positions") == "learned");
  CHECK(positions(LearnedPositions{.offset = 2}, {}).at("learned_position_offset") == 2);
  CHECK(positions({}, AlibiPositions{}).at("positions") == "none");
  CHECK(positions({}, AlibiPositions{}).at("attention_positions") == "alibi");
  CHECK(positions({}, RelativeBiasPositions{.buckets = 8}).at("relative_bias_buckets") == 8);
  const nlohmann::json rotary = positions(NoPositions{}, RotaryPositions{.base = 500, .dim = 2});
  CHECK(rotary.at("positions") == "none");
  CHECK(rotary.at("rotary_dim") == 2);
  CHECK(rotary.at("attention_positions") == "rotary");
  const nlohmann::json both = positions(LearnedPositions{}, ShawPositions{3});
  CHECK(both.at("positions") == "learned");
  CHECK(both.at("attention_positions") == "shaw");
  CHECK(both.at("shaw_max_distance") == 3);

  // Fields of other kinds of positions than the chosen one are read and have no effect.
  const auto old = options_from_json<Seq2SeqOptions>({{"positions", "rotary"},
                                                      {"rotary_base", 500.0},
                                                      {"shaw_max_distance", 9},
                                                      {"sinusoid_base", 20.0},
                                                      {"learned_position_offset", 0},
                                                      {"query_key_norm", true},
                                                      {"query_key_norm_kind", "rms_norm"}});
  CHECK(std::get<RotaryPositions>(old.layer.attention.positions).base == 500);
  CHECK(std::holds_alternative<NoPositions>(old.input_positions()));
  CHECK(old.layer.attention.query_key_norm == NormKind::rms_norm);
  CHECK(options_to_json(old).at("query_key_norm") == true);
  const auto without = options_from_json<LanguageModelOptions>(
      {{"query_key_norm", false}, {"query_key_norm_kind", "rms_norm"}});
  CHECK_FALSE(without.layer.attention.query_key_norm.has_value());

  const auto refusal = [](const nlohmann::json& wrong) {
    return message_of<ValueError>([&] { (void)options_from_json<Seq2SeqOptions>(wrong); });
  };
  CHECK(contains(refusal({{"positions", "round"}}),
                 "positions is \"round\", expected one of sinusoidal, learned, none, rotary, alibi, "
                 "relative_bias, shaw"));
  CHECK(contains(refusal({{"positions", 3}}), "positions is 3, expected one of sinusoidal"));
  CHECK(contains(refusal({{"positions", "rotary"}, {"attention_positions", "alibi"}}),
                 "attention_positions is"));
}

namespace {

// Options of somebody's own model.
struct OwnOptions {
  index_t filters = 3;
  std::optional<double> rate{};
  LayerOptions layer{};
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"filters", "filters of the convolution", Allowed::positive}, self.filters);
    visit(OptionField{"rate", "of anything"}, self.rate);
    LayerOptions::fields(self.layer, visit);
  }
};

}  // namespace

TEST_CASE("any struct that lists its fields has options in JSON") {
  OwnOptions own;
  own.filters = 5;
  own.layer.attention.positions = AlibiPositions{};
  const nlohmann::json json = options_to_json(own);
  CHECK(json.at("filters") == 5);
  CHECK(json.at("rate").is_null());
  CHECK(json.at("attention_positions") == "alibi");
  const auto back = options_from_json<OwnOptions>(json);
  CHECK(back.filters == 5);
  CHECK(back.layer == own.layer);

  EncoderOptions stack{.num_layers = 3, .final_norm = true};
  stack.layer.num_heads = 2;
  const auto stack_back = options_from_json<EncoderOptions>(options_to_json(stack));
  CHECK(stack_back.num_layers == 3);
  CHECK(stack_back.final_norm);
  CHECK(stack_back.layer == stack.layer);
}

TEST_CASE("a stack's own kind of query and key norm is written and read where the model has another") {
  Seq2SeqOptions options;
  options.layer.attention.query_key_norm = NormKind::rms_norm;
  options.encoder.layer = options.layer;
  options.encoder.layer->attention.query_key_norm = NormKind::layer_norm;
  const auto back = options_from_json<Seq2SeqOptions>(options_to_json(options));
  REQUIRE(back.encoder.layer.has_value());
  CHECK(back.encoder.layer->attention.query_key_norm == NormKind::layer_norm);
  CHECK(back.layer.attention.query_key_norm == NormKind::rms_norm);
  // Without a norm of its own or the model's, a kind means nothing.
  const auto without = options_from_json<Seq2SeqOptions>({{"query_key_norm_kind", "rms_norm"}});
  CHECK_FALSE(without.layer.attention.query_key_norm.has_value());
}

TEST_CASE("JSON changes what it names in given options, stacks of their own included") {
  Seq2SeqOptions base;
  base.layer.num_heads = 4;
  base.decoder.layer = base.layer;
  base.decoder.layer->dim_feedforward = 64;
  const auto o = options_from_json(
      {{"d_model", 32}, {"encoder", {{"num_heads", 2}}}, {"decoder", {{"num_heads", 8}}}}, base);
  CHECK(o.layer.d_model == 32);
  CHECK(o.layer.num_heads == 4);
  REQUIRE(o.encoder.layer.has_value());
  CHECK(o.encoder.layer->num_heads == 2);
  CHECK(o.encoder.layer->d_model == 32);
  REQUIRE(o.decoder.layer.has_value());
  CHECK(o.decoder.layer->num_heads == 8);
  CHECK(o.decoder.layer->dim_feedforward == 64);
  CHECK(o.decoder.layer->d_model == 32);
}

TEST_CASE(
    "fields of added positions count without their word: of the kind that is there, else of sinusoids") {
  const nlohmann::json base = {{"sinusoid_base", 500}};
  const auto of = [](const Seq2SeqOptions& o) {
    return std::get<SinusoidalPositions>(o.positions.value()).base;
  };
  CHECK(of(options_from_json<Seq2SeqOptions>(base)) == 500);
  CHECK(of(options_from_json<Seq2SeqOptions>(base, {.positions = SinusoidalPositions{}})) == 500);
  const nlohmann::json offset = {{"learned_position_offset", 2}};
  const auto learned = options_from_json<Seq2SeqOptions>(offset, {.positions = LearnedPositions{}});
  CHECK(std::get<LearnedPositions>(learned.positions.value()).offset == 2);
  // What is not of that kind changes nothing, and attention's own positions stay alone.
  CHECK(options_from_json<Seq2SeqOptions>(base, {.positions = LearnedPositions{}}).positions ==
        InputPositions{LearnedPositions{}});
  CHECK_FALSE(options_from_json<Seq2SeqOptions>(offset).positions.has_value());
  Seq2SeqOptions rotary;
  rotary.layer.attention.positions = RotaryPositions{};
  CHECK_FALSE(options_from_json<Seq2SeqOptions>(base, rotary).positions.has_value());
  CHECK_FALSE(options_from_json<Seq2SeqOptions>({{"positions", nullptr}}, {.positions = LearnedPositions{}})
                  .positions.has_value());
}
