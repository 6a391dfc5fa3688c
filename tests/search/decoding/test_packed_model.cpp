#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/core/base/float16.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"
#include "isa.hpp"
#include "search/packed_test_tools.hpp"
#include "search/search_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<WeightFormat> formats = {WeightFormat::float32, WeightFormat::bf16, WeightFormat::int8};

using IdTensor = Tensor<std::int32_t>;
const IdTensor source_ids = IdTensor::from({2, 7}, {4, 17, 52, 9, 30, 11, 3, 5, 21, 8, 3, 0, 0, 0});
const IdTensor target_ids = IdTensor::from({2, 5}, {2, 9, 41, 33, 12, 2, 50, 6, 0, 0});
const IdTensor target_out = IdTensor::from({2, 5}, {9, 41, 33, 12, 3, 50, 6, 3, -100, -100});

Tensor<float> logits(const Seq2SeqTransformer<float>& model, const Context<float>& ctx) {
  return model(ctx, source_ids, target_ids).value();
}

/// The largest difference between two models' logits, over the standard deviation of the first's.
double difference(const Tensor<float>& a, const Tensor<float>& b) {
  double worst = 0, sum = 0, squares = 0;
  for (index_t i = 0; i < a.numel(); ++i) {
    const auto x = static_cast<double>(a.data()[i]);
    worst = std::max(worst, std::abs(x - static_cast<double>(b.data()[i])));
    sum += x;
    squares += x * x;
  }
  const auto n = static_cast<double>(a.numel());
  return worst / std::sqrt(squares / n - sum / n * (sum / n));
}

std::size_t bytes_in_use() { return Runtime::instance().pool().statistics().bytes_in_use; }

/// Bytes of all parameters that are packed.
std::size_t packed_bytes(const Seq2SeqTransformer<float>& model,
                         const detail::kernels::PackedWeights& packed) {
  std::size_t bytes = 0;
  for_each_parameter(model, [&](const std::string&, const Parameter<float>& p) {
    if (packed.contains(p.id())) {
      bytes += static_cast<std::size_t>(p.value().numel()) * sizeof(float);
    }
  });
  return bytes;
}

}  // namespace

TEST_CASE("packed float32 weights translate with the same bits as the parameters") {
  for (const Tying tying : {Tying::none, Tying::target, Tying::all}) {
    const auto model = float_model(tying, tying == Tying::all);
    const auto plain = Context<float>::inference();
    const auto ctx = packed_context(pack_weights(model));
    CHECK(values(logits(model, ctx)) == values(logits(model, plain)));
    CHECK(translate(model, ctx, float_model_sources()) == translate(model, plain, float_model_sources()));
    CHECK(model.loss(ctx, source_ids, target_ids, target_out).value().item() ==
          model.loss(plain, source_ids, target_ids, target_out).value().item());
  }
}

TEST_CASE("bf16 and int8 weights are used, and stay close to float32") {
  const auto model = float_model();
  const Tensor<float> exact = logits(model, Context<float>::inference());
  const double loss =
      model.loss(Context<float>::inference(), source_ids, target_ids, target_out).value().item();
  // Measured: 0.015 and 0.038.
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::int8}) {
    const double tolerance = format == WeightFormat::bf16 ? 0.04 : 0.1;
    const auto ctx = packed_context(pack_weights(model, format));
    const double error = difference(exact, logits(model, ctx));
    CAPTURE(static_cast<int>(format));
    CAPTURE(error);
    CHECK(error > 1e-4);
    CHECK(error < tolerance);
    const double loss_error =
        std::abs(model.loss(ctx, source_ids, target_ids, target_out).value().item() - loss);
    CHECK(loss_error > 0);
    CHECK(loss_error < tolerance / 2);
  }
}

TEST_CASE("a model without its weights' memory decodes with packed ones and says so without") {
  for (const Tying tying : {Tying::none, Tying::all}) {
    for (const WeightFormat format : formats) {
      auto model = float_model(tying);
      const auto packed = pack_weights(model, format);
      const auto ctx = packed_context(packed);
      const Tensor<float> before = logits(model, ctx);
      const auto translations = translate(model, ctx, float_model_sources());
      const float loss = model.loss(ctx, source_ids, target_ids, target_out).value().item();
      release_packed_weights(model, *packed);
      CHECK(values(logits(model, ctx)) == values(before));
      CHECK(translate(model, ctx, float_model_sources()) == translations);
      CHECK(model.loss(ctx, source_ids, target_ids, target_out).value().item() == loss);
      const std::string message = message_of<ValueError>([&] { logits(model, Context<float>::inference()); });
      // The first matrix on the way that was packed.
      const bool table = format != WeightFormat::float32 || tying == Tying::all;
      const std::string first =
          table ? "source_embedding.weight" : "encoder.layers.0.self_attn.in_proj_weight";
      CHECK_MESSAGE(contains(message, ("memory of '" + first + "' was released").c_str()), message);
    }
  }
}

TEST_CASE(
    "a model without its weights' memory cannot be trained, copied or packed again, but shows attention") {
  auto model = float_model();
  const auto packed = pack_weights(model, WeightFormat::int8);
  release_packed_weights(model, *packed);
  const auto ctx = packed_context(packed);
  const auto gone = [](auto&& f) { return contains(message_of<ValueError>(f), "was released"); };
  Tape<float> tape;
  CHECK(gone([&] { (void)model.loss(Context<float>::checking(tape), source_ids, target_ids, target_out); }));
  CHECK(gone([&] {
    (void)model.transformer.encoder.layers[0].feed_forward(Context<float>::checking(tape),
                                                           Tensor<float>::zeros({2, 36}));
  }));
  CHECK(gone([&] {
    (void)linear_cross_entropy(Context<float>::inference(), Var<float>(Tensor<float>::zeros({2, 36})),
                               model.projection_weight(), model.projection_bias, IdTensor::from({2}, {4, 5}));
  }));
  CHECK(gone([&] { const Seq2SeqTransformer<float> copy(model); }));
  CHECK(gone([&] { pack_weights(model, WeightFormat::int8); }));
  CHECK(gone([&] { load_state_dict(model, state_dict(float_model())); }));
  const auto maps = attention_maps(model, ctx, {4, 5, 3}, {6}, 2);
  CHECK(maps.memory[0].dim(1) == 2);
  CHECK(maps.memory[0].dim(2) == 3);
  float sum = 0;
  for (index_t j = 0; j < 3; ++j) sum += maps.memory[0].at({0, 1, j});
  CHECK(sum == doctest::Approx(1));
}

TEST_CASE("giving back weights frees the memory of every matrix, embeddings included") {
  for (const Tying tying : {Tying::none, Tying::target, Tying::all}) {
    for (const bool in_place : {false, true}) {
      auto model = float_model(tying);
      const std::size_t expected = packed_bytes(model, *pack_weights(model, WeightFormat::int8));
      REQUIRE(expected > 0);
      const std::size_t before = bytes_in_use();
      auto packed = in_place ? pack_weights_in_place(model, WeightFormat::int8)
                             : pack_weights(model, WeightFormat::int8);
      if (!in_place) {
        CHECK(bytes_in_use() == before);
        release_packed_weights(model, *packed);
      }
      CHECK(before - bytes_in_use() >= expected);
      CHECK(packed->bytes() < expected);
      CHECK(!model.source_embedding.weight.value().defined());
      CHECK(!model.target_embedding().weight.value().defined());
      CHECK(model.own_projection.defined() == (tying == Tying::none));
      CHECK((!model.own_projection.defined() || !model.own_projection.value().defined()));
      const auto other = float_model(tying);
      CHECK(translate(model, packed_context(packed), float_model_sources()) ==
            translate(other, packed_context(pack_weights(other, WeightFormat::int8)), float_model_sources()));
    }
  }
  // In float32 a table that is only looked up has nothing to gain.
  auto model = float_model();
  (void)pack_weights_in_place(model);
  CHECK(model.source_embedding.weight.value().defined());
  CHECK(Runtime::instance().pool().statistics().bytes_cached == 0);
  auto tied = float_model(Tying::all);
  (void)pack_weights_in_place(tied);
  CHECK(!tied.source_embedding.weight.value().defined());
}

TEST_CASE("rows of packed weights are the rows that were packed, rounded as the format says") {
  RandomGenerator rng(3);
  const index_t n = 37, k = 1101;
  Tensor<float> w(Shape{n, k});
  rng.fill_normal(w.data(), w.numel(), 0, 1);
  const std::vector<std::int32_t> ids = {36, 0, 31, 32, 36};
  testing::for_each_isa([&] {
    for (const WeightFormat format : formats) {
      const auto packed = detail::kernels::PackedMatrix::pack(w.data(), n, k, format);
      Tensor<float> rows(Shape{5, k});
      packed.read_rows("embedding", ids.data(), 5, 2.0f, rows.data());
      double worst = 0;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (index_t p = 0; p < k; ++p) {
          const float x = w.at({ids[i], p});
          const float expected = format == WeightFormat::bf16 ? static_cast<float>(bfloat16(x)) : x;
          worst = std::max(
              worst, std::abs(static_cast<double>(rows.at({static_cast<index_t>(i), p}) - 2 * expected)));
        }
      }
      // int8: half a step of the largest entry of a row, which is below 5, doubled.
      CHECK(worst <= (format == WeightFormat::int8 ? 5.0 / 127 : 0.0));
    }
  });
  const auto packed = detail::kernels::PackedMatrix::pack(w.data(), n, k);
  Tensor<float> row(Shape{1, k});
  const std::int32_t outside = 37;
  CHECK(contains(message_of<IndexError>([&] { packed.read_rows("embedding", &outside, 1, 1, row.data()); }),
                 "[embedding] id 37 at position 0 is outside the vocabulary of 37"));
}

TEST_CASE("a sentence gets the same bits alone, in any batch and with any number of threads") {
  const int threads = Runtime::instance().threads();
  const auto sources = float_model_sources();
  const auto model = float_model();
  for (const WeightFormat format : formats) {
    CAPTURE(static_cast<int>(format));
    const auto ctx = packed_context(pack_weights(model, format));
    Runtime::instance().set_threads(1);
    const auto together = translate(model, ctx, sources);
    const Tensor<float> one = logits(model, ctx);
    std::vector<Found> alone;
    for (const auto& source : sources) {
      for (auto& found : translate(model, ctx, {source})) alone.push_back(found);
    }
    CHECK(alone == together);
    for (const int n : {2, 3}) {
      Runtime::instance().set_threads(n);
      CHECK(translate(model, ctx, sources) == together);
      CHECK(translate(model, ctx, sources, 1) == together);
      CHECK(values(logits(model, ctx)) == values(one));
    }
  }
  Runtime::instance().set_threads(threads);
}

namespace {

LanguageModel<float> float_language_model(bool tied, AttentionKind kind = AttentionKind::softmax) {
  RandomGenerator rng(7);
  return LanguageModel<float>({.vocab_size = 53,
                               .num_layers = 2,
                               .layer = {.d_model = 36,
                                         .num_heads = 3,
                                         .dim_feedforward = 44,
                                         .activation = Activation::silu,
                                         .gated = true,
                                         .attention = {.kind = kind}},
                               .tied = tied},
                              rng);
}

TextEncoder<float> float_text_encoder() {
  RandomGenerator rng(7);
  return TextEncoder<float>({.vocab_size = 53,
                             .num_layers = 2,
                             .layer = {.d_model = 36, .num_heads = 3, .dim_feedforward = 44},
                             .num_token_types = 2,
                             .padding_index = 0},
                            rng);
}

/// Checks pack_weights, its use, and both ways to give back memory: `run` gives a model's numbers in a
/// context, make() a model, the same each time.
template <class Make, class Run>
void check_packed(Make&& make, Run&& run, const char* first_matrix) {
  const auto model = make();
  const Tensor<float> exact = run(model, Context<float>::inference());
  CHECK(values(run(model, packed_context(pack_weights(model)))) == values(exact));
  for (const WeightFormat format : formats) {
    CAPTURE(static_cast<int>(format));
    const Tensor<float> before = run(model, packed_context(pack_weights(model, format)));
    const double error = difference(exact, before);
    CAPTURE(error);
    // Measured: at most 0.021 and 0.065.
    CHECK(error < (format == WeightFormat::int8 ? 0.1 : 0.04));
    CHECK((error > 1e-4) == (format != WeightFormat::float32));
    auto released = make(), in_place = make();
    const auto packed = pack_weights(released, format);
    release_packed_weights(released, *packed);
    CHECK(values(run(released, packed_context(packed))) == values(before));
    CHECK(values(run(in_place, packed_context(pack_weights_in_place(in_place, format)))) == values(before));
    const std::string message =
        message_of<ValueError>([&] { (void)run(released, Context<float>::inference()); });
    const std::string first = format == WeightFormat::float32 ? first_matrix : "embedding.weight";
    CHECK_MESSAGE(contains(message, "memory of '" + first + "' was released"), message);
    // Every matrix is packed but the tables of float32 that are only looked up.
    for_each_parameter(released, [&](const std::string& name, const Parameter<float>& p) {
      const bool table = format == WeightFormat::float32 && first != name &&
                         (name == "token_types.weight" || name == "embedding.weight");
      CAPTURE(name);
      CHECK(p.value().defined() == (p.shape().rank() < 2 || table));
    });
  }
}

}  // namespace

TEST_CASE("language models and text encoders run on packed weights, in every format, and give theirs back") {
  const IdTensor ids = IdTensor::from({2, 7}, {4, 17, 52, 9, 30, 11, 3, 5, 21, 8, 3, 0, 0, 0});
  const auto layout = SequenceLayout::padded({7, 4}, 7);
  const auto language = [&](const LanguageModel<float>& m, const Context<float>& ctx) {
    return m(ctx, ids, layout).value();
  };
  const char* const first = "decoder.layers.0.self_attn.in_proj_weight";
  check_packed([] { return float_language_model(false); }, language, first);
  check_packed([] { return float_language_model(false, AttentionKind::linear); }, language, first);
  check_packed([] { return float_language_model(true); }, language, "embedding.weight");
  const auto encoder = [&](const TextEncoder<float>& m, const Context<float>& ctx) {
    return m.vectors(ctx, ids).value();
  };
  check_packed([] { return float_text_encoder(); }, encoder, "encoder.layers.0.self_attn.in_proj_weight");
}

TEST_CASE("texts are sampled with packed weights: in float32 the same, with others what these weights say") {
  const auto model = float_language_model(true);
  const std::vector<std::vector<std::int32_t>> prompts = {{2, 9, 41}, {2, 17, 5, 30, 8}};
  for (const WeightFormat format : formats) {
    const auto ctx = packed_context(pack_weights(model, format));
    const SearchOptions options{.sampling = Sampling{.temperature = 0}, .max_length = 9, .end_id = -1};
    const auto texts = draw(model, ctx, std::span<const std::vector<std::int32_t>>(prompts), options);
    if (format == WeightFormat::float32) {
      const auto plain = draw(model, Context<float>::inference(),
                              std::span<const std::vector<std::int32_t>>(prompts), options);
      for (std::size_t i = 0; i < 2; ++i) CHECK(texts[i].ids == plain[i].ids);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      // Without a cache, with the same weights.
      auto all = prompts[i];
      all.insert(all.end(), texts[i].ids.begin(), texts[i].ids.end());
      const auto n = static_cast<index_t>(all.size()), given = static_cast<index_t>(prompts[i].size());
      const auto tokens = IdTensor::from(Shape{n}, all);
      const auto p =
          model.log_probabilities(ctx, model.decode(ctx, tokens, SequenceLayout::packed({n}))).value();
      double sum = 0;
      for (index_t t = given; t < n; ++t)
        sum += static_cast<double>(p.at({t - 1, all[static_cast<std::size_t>(t)]}));
      CHECK(texts[i].log_probability == doctest::Approx(sum).epsilon(1e-4));
    }
  }
}

TEST_CASE("a weight that is not finite is named") {
  auto model = float_model();
  model.transformer.decoder.layers[1].multihead_attn.in_proj.weight.value().at({36 + 5, 7}) =
      std::numeric_limits<float>::quiet_NaN();
  const std::string message = message_of<ValueError>([&] { pack_weights(model, WeightFormat::int8); });
  CHECK_MESSAGE(contains(message, "'decoder.layers.1.multihead_attn.in_proj_weight' from row 36 on"),
                message);
  CHECK_MESSAGE(contains(message, "(5, 7) is "), message);
  CHECK_NOTHROW(pack_weights(model, WeightFormat::bf16));
}

TEST_CASE("packed weights, the gate's too, decode what the parameters do") {
  Seq2SeqOptions options = float_model().options;
  options.layer.gated = true;
  options.layer.activation = Activation::silu;
  RandomGenerator rng(1);
  const Seq2SeqTransformer<float> model(options, rng);
  const std::vector<std::vector<std::int32_t>> sources = {{5, 6, 7, 3}, {8, 3}};
  const auto plain = generate(model, Context<float>::inference(), sources, {.max_length = 8});
  const auto packed = pack_weights(model);
  const auto& layer = model.transformer.decoder.layers[1];
  CHECK(packed->contains(layer.feed_forward.linear3->weight.id()));
  const auto found =
      generate(model, Context<float>::inference().with_packed_weights(packed), sources, {.max_length = 8});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(found[i][0].ids == plain[i][0].ids);
    CHECK(found[i][0].log_probability == doctest::Approx(plain[i][0].log_probability).epsilon(1e-5));
  }
}
