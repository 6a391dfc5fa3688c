#include <doctest/doctest.h>

#include <cmath>

#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/clip.hpp"
#include "nn/seq2seq_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Seq2SeqOptions fixture_options(bool norm_first) {
  auto options = small_seq2seq(norm_first);
  options.target_vocab_size = V;
  options.layer.dropout.rate = 0;
  return options;
}

}  // namespace

TEST_CASE_TEMPLATE("the model agrees with PyTorch from tokens to loss, padded and packed", T, float, double) {
  for (const std::string order : {"post", "pre"}) {
    const Fixture fixture("models/seq2seq_" + order);
    auto model = make_seq2seq<T>(fixture_options(order == "pre"));
    const auto source = fixture.get<std::int32_t>("in.source"),
               target = fixture.get<std::int32_t>("in.target_input");
    const auto expected = fixture.get<std::int32_t>("in.target_output");
    const auto target_lengths = fixture.lengths("in.target_lengths");
    const auto sources = SequenceLayout::padded(fixture.lengths("in.source_lengths"), S),
               targets = SequenceLayout::padded(target_lengths, L);
    const CrossEntropyOptions smoothing{.ignore_index = 0, .label_smoothing = 0.1};

    const ParityOptions options{.output_tolerance = output_tolerance<T>,
                                .gradient_tolerance = gradient_tolerance<T>,
                                .lengths = {{"logits", target_lengths}}};
    check_report(eigenformer::check_parity(
        fixture, model,
        [&](const Context<T>& ctx, ParityInputs<T>&) {
          const auto logits = model(ctx, source, sources, target, targets);
          const auto loss = cross_entropy(logits, expected, smoothing);
          return ParityOutputs<T>({{"logits", logits}, {"loss", loss}}, loss);
        },
        options));
    check_report(eigenformer::check_parity(
        fixture, model,
        [&](const Context<T>& ctx, ParityInputs<T>&) {
          const auto loss =
              model.loss(ctx, source, sources, target, targets, expected, {.label_smoothing = 0.1});
          return ParityOutputs<T>({{"loss", loss}}, loss);
        },
        options));
  }
}

TEST_CASE_TEMPLATE("ten steps of Adam lose as in PyTorch", T, float, double) {
  for (const std::string order : {"post", "pre"}) {
    const Fixture start("models/seq2seq_" + order), fixture("training/seq2seq_training_" + order);
    auto options = fixture_options(order == "pre");
    options.padding_index = 0;
    auto model = make_seq2seq<T>(options);
    detail::load_parameters(start, model);
    const auto settings = fixture.options();
    Adam<T> optimizer(
        parameters(model),
        {.beta1 = settings.at("beta1"), .beta2 = settings.at("beta2"), .eps = settings.at("eps")});
    Gradients<T> gradients(parameters(model));
    const auto losses = fixture.get<double>("out.losses"), norms = fixture.get<double>("out.gradient_norms");
    // PyTorch's fixture trains the embedding's row 0 too; it is never looked up inside a sequence.
    for (index_t step = 0; step < 10; ++step) {
      const std::string batch = "." + std::to_string(step % 3);
      Tape<T> tape;
      gradients.zero();
      const auto loss = model.loss(Context<T>::checking(tape), fixture.get<std::int32_t>("in.source" + batch),
                                   fixture.get<std::int32_t>("in.target_input" + batch),
                                   fixture.get<std::int32_t>("in.target_output" + batch),
                                   {.ignore_index = 0, .label_smoothing = 0.1});
      tape.backward(loss, gradients);
      const auto clipped = clip_factor(gradients, settings.at("clip"));
      optimizer.step(gradients, settings.at("learning_rate"), clipped.factor);
      const double tolerance = std::is_same_v<T, float> ? 1e-4 : 1e-9;
      CHECK(static_cast<double>(loss.item()) == doctest::Approx(losses.at({step})).epsilon(tolerance));
      CHECK(clipped.norm == doctest::Approx(norms.at({step})).epsilon(tolerance));
    }
    const auto trained = fixture.all<T>("final.");
    for_each_parameter(model, [&](const std::string& name, const auto& parameter) {
      // The gradient of a key's bias is zero but for rounding, which Adam makes a step of; it changes no
      // output.
      if (name.find("in_proj_bias") != std::string::npos) return;
      check_close(parameter.value(), trained.at(name), std::is_same_v<T, float> ? 1e-3 : 1e-6, name);
    });
  }
}

TEST_CASE("the whole model's gradients are right, for each tying, kind of position and scale") {
  const TokenBatch batch;
  std::vector<Seq2SeqOptions> kinds(4, small_seq2seq());
  kinds[1].tying = Tying::target;
  kinds[1].layer.norm_first = true;
  kinds[2].tying = Tying::all;
  kinds[2].source_vocab_size = kinds[2].target_vocab_size = V;
  kinds[2].positions = LearnedPositions{};
  kinds[2].max_length = 9;
  kinds[3].scale_embedding = false;
  kinds[3].causal = false;
  kinds[3].projection_bias = false;
  kinds[3].final_norm = false;
  for (auto& options : kinds) {
    options.layer.activation = Activation::gelu;
    auto model = make_seq2seq<double>(options);
    check_backward(model, {}, [&](const Context<double>& ctx, const auto&) {
      return model.loss(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout,
                        batch.target_out, {.label_smoothing = 0.1});
    });
  }
}

TEST_CASE("a decoder that is not causal cannot generate token by token") {
  auto options = small_seq2seq();
  options.causal = false;
  const auto model = make_seq2seq<double>(options);
  const std::vector<std::vector<std::int32_t>> sources = {{4, 5, 3}};
  CHECK_THROWS_WITH_AS((void)model.begin(Context<double>::inference(), sources),
                       doctest::Contains("options.causal is false"), ValueError);
}

TEST_CASE("the gradients are right for the numbers that dropout kept") {
  const TokenBatch batch;
  for (const auto activation : {Activation::relu, Activation::gelu}) {
    auto options = small_seq2seq(activation == Activation::gelu);
    options.layer.activation = activation;
    options.layer.dropout.rate = 0.3;
    auto model = make_seq2seq<double>(options);
    const auto result = grad_check(
        [&](Tape<double>& tape, const auto&) {
          return model.loss(Context<double>::training(tape, detail::DropoutKey{3, 1, 0}), batch.source,
                            batch.source_layout, batch.target_in, batch.target_layout, batch.target_out);
        },
        {}, parameters(model), sampled);
    CHECK_MESSAGE(result.ok, result.str());
  }
}

TEST_CASE("names are PyTorch's") {
  auto options = small_seq2seq();
  options.encoder.num_layers = options.decoder.num_layers = 1;
  const auto model = make_seq2seq<float>(options);
  const auto names = names_of(model);
  const std::vector<std::string> expected_first{"source_embedding.weight (23, 12)",
                                                "target_embedding.weight (19, 12)",
                                                "encoder.layers.0.self_attn.in_proj_weight (36, 12)"};
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 3) == expected_first);
  const std::vector<std::string> expected_last{"decoder.norm.bias (12,)", "projection.weight (19, 12)",
                                               "projection.bias (19,)"};
  CHECK(std::vector<std::string>(names.end() - 3, names.end()) == expected_last);
  CHECK(model.transformer.encoder.layers[0].feed_forward.linear1.weight.name() ==
        "encoder.layers.0.linear1.weight");
  options.positions = LearnedPositions{};
  CHECK(names_of(make_seq2seq<float>(options))[2] == "source_positions.weight (1024, 12)");
}

TEST_CASE("log probabilities are those of the logits, and encode and decode are the parts of the whole") {
  const TokenBatch batch;
  const auto model = make_seq2seq<double>(small_seq2seq());
  const auto ctx = Context<double>::inference();
  const Memory<double> memory(model.encode(ctx, batch.source, batch.source_layout), batch.source_layout);
  CHECK(memory.rows.shape() == Shape{B, S, D});
  const auto decoded = model.decode(ctx, batch.target_in, batch.target_layout, memory);
  const auto logits = model.logits(ctx, decoded);
  CHECK(logits.shape() == Shape{B, L, 19});
  CHECK(values(logits.value()) ==
        values(model(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout).value()));
  const auto log_probabilities = model.log_probabilities(ctx, decoded);
  double sum = 0;
  for (index_t v = 0; v < 19; ++v) sum += std::exp(log_probabilities.value().at({1, 4, v}));
  CHECK(sum == doctest::Approx(1));
}

TEST_CASE("without dropout the embedding is sqrt(d) times the table plus the sinusoid") {
  const auto model = make_seq2seq<double>(small_seq2seq());
  const Tokens ids = Tokens::from({1, 3}, {4, 9, 4});
  const auto y = model.embed_source(Context<double>::inference(), ids, SequenceLayout::padded(1, 3)).value();
  const double expected = std::sqrt(12.0) * model.source_embedding.weight.value().at({4, 2}) +
                          std::sin(2 * std::pow(10000.0, -2.0 / 12));
  CHECK(y.at({0, 2, 2}) == doctest::Approx(expected));
}

TEST_CASE("attention maps of both stacks on request") {
  const TokenBatch batch;
  const auto model = make_seq2seq<float>(small_seq2seq());
  const auto ctx = Context<float>::inference();
  std::vector<Var<float>> source_maps;
  DecoderMaps<float> maps;
  const Memory<float> memory(model.encode(ctx, batch.source, batch.source_layout, {}, &source_maps),
                             batch.source_layout);
  (void)model.decode(ctx, batch.target_in, batch.target_layout, memory, {}, &maps);
  REQUIRE(source_maps.size() == 2);
  CHECK(source_maps[1].shape() == Shape{B, H, S, S});
  CHECK(maps.memory[1].shape() == Shape{B, H, L, S});
  CHECK(maps.target[0].value().at({1, 0, 2, 3}) == 0);
  float row = 0;
  for (index_t j = 0; j < S; ++j) row += maps.memory[1].value().at({1, 2, 4, j});
  CHECK(row == doctest::Approx(1.0));
}

TEST_CASE("the model says what does not fit") {
  const auto model = make_seq2seq<float>(small_seq2seq());
  const auto ctx = Context<float>::inference();
  const auto ids = [](const Shape& shape, std::int32_t id = 1) { return Tokens::full(shape, id); };
  CHECK(contains(message_of<IndexError>([&] { (void)model(ctx, ids({2, 7}, 23), ids({2, 5})); }), "23"));
  CHECK(contains(message_of<IndexError>([&] { (void)model(ctx, ids({2, 7}), ids({2, 5}, 19)); }), "19"));
  CHECK(contains(message_of<IndexError>([&] { (void)model(ctx, ids({2, 7}), ids({2, 5}, -1)); }), "-1"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)model(ctx, ids({2, 7, 1}), ids({2, 5}));
                 }),
                 "(2, 7, 1)"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)model(ctx, ids({2, 7}), ids({3, 5}));
                 }),
                 "3 sequences of queries and 2 of keys"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)model.encode(ctx, ids({2, 7}), SequenceLayout::padded(2, 6));
                 }),
                 "[seq2seq_transformer] source of shape (2, 7"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)model.loss(ctx, ids({2, 7}), ids({2, 5}), ids({2, 4}));
                 }),
                 "target output of shape (2, 4"));

  RandomGenerator rng(1);
  const auto refuses = [&](const auto& change) {
    auto options = small_seq2seq();
    change(options);
    return message_of<ValueError>([&] { Seq2SeqTransformer<float>(options, rng); });
  };
  CHECK(refuses([](auto& o) { o.source_vocab_size = 0; }) ==
        "[seq2seq_transformer] source_vocab_size is 0, must be positive");
  CHECK(contains(refuses([](auto& o) { o.target_vocab_size = -1; }), "target_vocab_size is -1"));
  CHECK(contains(refuses([](auto& o) { o.layer.num_heads = 5; }), "divisible by num_heads, which is 5"));
  CHECK(contains(refuses([](auto& o) { o.layer.num_heads = 0; }), "num_heads is 0"));
  CHECK(contains(refuses([](auto& o) { o.layer.d_model = -12; }), "d_model is -12"));
  CHECK(contains(refuses([](auto& o) { o.encoder.num_layers = 0; }), "num_encoder_layers is 0"));
  CHECK(contains(refuses([](auto& o) { o.layer.dim_feedforward = 0; }), "dim_feedforward is 0"));
  CHECK(contains(refuses([](auto& o) { o.layer.dropout.rate = 1; }), "dropout is 1"));
  CHECK(contains(refuses([](auto& o) { o.embedding_dropout = -0.1; }), "embedding_dropout is -0.1"));
  CHECK(contains(refuses([](auto& o) { o.tying = Tying::all; }),
                 "target_vocab_size is 19, must be source_vocab_size, which is 23"));
  CHECK(contains(refuses([](auto& o) { o.padding_index = 20; }), "padding_index is 20"));
  CHECK(contains(refuses([](auto& o) { o.positions = LearnedPositions{}, o.max_length = 0; }),
                 "max_length is 0"));
  CHECK(contains(refuses([](auto& o) { o.positions = SinusoidalPositions{.base = 0}; }), "base is 0"));
  auto learned = small_seq2seq();
  learned.positions = LearnedPositions{};
  learned.max_length = 4;
  CHECK(contains(message_of<ValueError>([&] {
                   (void)make_seq2seq<float>(learned)(ctx, ids({2, 3}), ids({2, 5}));
                 }),
                 "reaches position 4, but 'target_positions.weight' has 4 positions"));
}
