#include "eigenformer/nn/adapters/lora.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/seq2seq_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Seq2SeqOptions gated_seq2seq() {
  Seq2SeqOptions o = small_seq2seq(true);
  o.layer.activation = Activation::silu;
  o.layer.gated = true;
  o.layer.norm.kind = NormKind::rms_norm;
  return o;
}

// A model with an adapter whose B is no longer zero.
template <class T>
Seq2SeqTransformer<T> adapted(const Seq2SeqOptions& options, const LoraOptions& lora) {
  auto model = make_seq2seq<T>(options);
  RandomGenerator rng(5);
  add_lora(model, lora, rng);
  for (const auto& p : lora_parameters(model)) {
    if (p->name.ends_with("lora_B.weight")) rng.fill_normal(p->value.data(), p->value.numel(), 0, 0.3);
  }
  return model;
}

template <class T>
Tensor<T> logits_of(const Seq2SeqTransformer<T>& model, const Context<T>& ctx = Context<T>::inference()) {
  const TokenBatch batch;
  return model(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout).value();
}

double difference(const Tensor<double>& a, const Tensor<double>& b) {
  double most = 0;
  for (index_t i = 0; i < a.numel(); ++i) most = std::max(most, std::fabs(a.data()[i] - b.data()[i]));
  return most;
}

}  // namespace

TEST_CASE("the gradients of all factors and of the input are right, with and without dropout") {
  const LoraOptions lora{.rank = 2, .alpha = 3, .targets = "*"};
  for (const bool gated : {false, true}) {
    for (const double dropout : {0.0, 0.3}) {
      CAPTURE(gated);
      CAPTURE(dropout);
      LoraOptions options = lora;
      options.dropout = dropout;
      auto model = adapted<double>(gated ? gated_seq2seq() : small_seq2seq(), options);
      const TokenBatch batch;
      const auto result = grad_check(
          [&](Tape<double>& tape, std::vector<Var<double>>&) {
            return model.loss(Context<double>::training(tape, detail::DropoutKey{4, 1, 0}), batch.source,
                              batch.source_layout, batch.target_in, batch.target_layout, batch.target_out);
          },
          {}, lora_parameters(model), {.max_elements = 16});
      CHECK_MESSAGE(result.ok, result.str());
    }
  }
  // One layer: the input's gradient, and those of a weight and a bias that are not frozen.
  RandomGenerator rng(3);
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
    Linear<double> layer({.in_features = 5, .out_features = 7}, rng);
    add_lora(layer, {.rank = 2, .alpha = 5, .dropout = 0.2, .targets = "*"}, rng);
    std::vector<ParameterHandle<double>> all = lora_parameters(layer);
    rng.fill_normal(all[1]->value.data(), all[1]->value.numel(), 0, 1);
    for (const auto& p : parameters(layer)) {
      p->frozen = false;
      all.push_back(p);
    }
    const auto result = grad_check(
        [&](Tape<double>& tape, std::vector<Var<double>>& x) {
          return linear(Context<double>::training(tape, detail::DropoutKey{4, 1, 0}), x[0], layer.weight,
                        layer.bias, activation, 0.4);
        },
        {random_tensor<double>({4, 5}, 8)}, all);
    CHECK_MESSAGE(result.ok, result.str());
  }
}

TEST_CASE("a new adapter changes no bit, and merging one computes what it computes") {
  for (const bool gated : {false, true}) {
    CAPTURE(gated);
    const Seq2SeqOptions options = gated ? gated_seq2seq() : small_seq2seq();
    const auto base = make_seq2seq<double>(options);
    auto fresh = make_seq2seq<double>(options);
    RandomGenerator rng(5);
    add_lora(fresh, {.rank = 3, .targets = "*"}, rng);
    CHECK(values(logits_of(fresh)) == values(logits_of(base)));

    for (const bool stabilized : {false, true}) {
      auto model =
          adapted<double>(options, {.rank = 4, .alpha = 3, .targets = "*", .rank_stabilized = stabilized});
      const auto with = logits_of(model);
      CHECK(difference(with, logits_of(base)) > 0.1);
      const auto copy = model;  // has factors of its own
      const detail::WeightAdapter<double>& of_first =
          *detail::adaptable_rows(model).front().weight->adapter();
      CHECK(of_first.parts.front().scale() == doctest::Approx(stabilized ? 1.5 : 0.75));
      merge_lora(model);
      CHECK(lora_parameters(model).empty());
      CHECK(difference(logits_of(model), with) < 1e-10);
      CHECK(values(logits_of(copy)) == values(with));
      CHECK(message_of<ValueError>([&] { merge_lora(model); }) ==
            "[lora] the model has no adapters to merge");
    }
  }
}

TEST_CASE("targets are names, ends of names and patterns; what they do not name has no factors") {
  const auto modules = [](const std::string& targets) {
    auto model = make_seq2seq<float>(small_seq2seq());
    RandomGenerator rng(1);
    add_lora(model, {.rank = 2, .targets = targets}, rng);
    for (const auto& p : parameters(model)) CHECK(p->frozen);
    std::vector<std::string> names;
    for (const auto& p : lora_parameters(model)) names.push_back(p->name + " " + p->value.shape().str());
    return names;
  };
  CHECK(modules("decoder.layers.1.self_attn.v_proj") ==
        std::vector<std::string>{"decoder.layers.1.self_attn.v_proj.lora_A.weight (2, 12)",
                                 "decoder.layers.1.self_attn.v_proj.lora_B.weight (12, 2)"});
  CHECK(modules("encoder.*.linear1") ==
        std::vector<std::string>{"encoder.layers.0.linear1.lora_A.weight (2, 12)",
                                 "encoder.layers.0.linear1.lora_B.weight (20, 2)",
                                 "encoder.layers.1.linear1.lora_A.weight (2, 12)",
                                 "encoder.layers.1.linear1.lora_B.weight (20, 2)"});
  CHECK(modules("q_proj,v_proj").size() == 2 * 2 * 6);
  CHECK(modules("multihead_attn.k_proj,out_proj").size() == 2 * (2 + 6));
  CHECK(modules("*").size() == 2 * (2 * (4 + 2) + 2 * (8 + 2)));

  auto model = make_seq2seq<float>(small_seq2seq());
  RandomGenerator rng(1);
  CHECK(message_of<ValueError>([&] { add_lora(model, {.rank = 2, .targets = "q_proj,fc1"}, rng); }) ==
        "[lora] the target 'fc1' matches no weight matrix of the model, expected full names, patterns or "
        "some of: q_proj, k_proj, v_proj, out_proj, linear1, linear2");
  CHECK(contains(message_of<ValueError>([&] { add_lora(model, {.rank = 2, .targets = ""}, rng); }),
                 "there are no targets"));
  CHECK(contains(message_of<ValueError>([&] { add_lora(model, {}, rng); }), "rank"));
  for (const auto& p : parameters(model)) CHECK_FALSE(p->frozen);
  add_lora(model, {.rank = 2}, rng);
  CHECK(contains(message_of<ValueError>([&] { add_lora(model, {.rank = 2}, rng); }), "has adapters"));
}

TEST_CASE("a context chooses among adapters of one model, packed weights included") {
  const Seq2SeqOptions options = small_seq2seq();
  auto model = adapted<float>(options, {.rank = 2, .targets = "*"});
  const auto base = logits_of(make_seq2seq<float>(options)), first = logits_of(model);
  const std::shared_ptr<const AdapterSet<float>> one = remove_lora(model);
  CHECK(values(logits_of(model)) == values(base));

  RandomGenerator rng(77);
  add_lora(model, {.rank = 3, .alpha = 8, .targets = "linear1,q_proj"}, rng);
  for (const auto& p : lora_parameters(model)) rng.fill_normal(p->value.data(), p->value.numel(), 0, 0.5);
  const auto second = logits_of(model);
  const std::shared_ptr<const AdapterSet<float>> other = lora_adapters(model);

  const auto ctx = Context<float>::inference();
  CHECK(values(logits_of(model, ctx.with_adapters(one))) == values(first));
  CHECK(values(logits_of(model, ctx.with_adapters(other))) == values(second));
  CHECK(values(logits_of(model, ctx.with_adapters(std::make_shared<AdapterSet<float>>()))) == values(base));
  CHECK(values(logits_of(model, ctx)) == values(second));
  (void)remove_lora(model);
  attach_lora(model, *one);
  CHECK(values(logits_of(model)) == values(first));
  (void)remove_lora(model);

  const auto packed = ctx.with_packed_weights(pack_weights_in_place(model));
  CHECK(values(logits_of(model, packed.with_adapters(one))) == values(first));
  CHECK(values(logits_of(model, packed)) == values(base));
  attach_lora(model, *one);
  CHECK(contains(message_of<ValueError>([&] { merge_lora(model); }), "was released"));
}

TEST_CASE("the dropout of an adapter's input does not depend on what a sentence is batched with") {
  const auto model = adapted<double>(small_seq2seq(), {.rank = 2, .dropout = 0.4, .targets = "*"});
  const detail::DropoutKey key{9, 2, 0};
  const TokenBatch batch;
  const auto run = [&](const Tokens& source, const SequenceLayout& sources, const Tokens& target,
                       const SequenceLayout& targets) {
    Tape<double> tape;
    return model(Context<double>::training(tape, key), source, sources, target, targets).value();
  };
  const auto both = run(batch.source, batch.source_layout, batch.target_in, batch.target_layout);
  const auto alone =
      run(batch.source.rows(1, 1), SequenceLayout::padded({4}, S).with_sequence_numbers({1}),
          batch.target_in.rows(1, 1), SequenceLayout::padded({5}, L).with_sequence_numbers({1}));
  CHECK(difference(both.rows(1, 1), alone) < 1e-12);
  const auto first = run(batch.source.rows(1, 1), SequenceLayout::padded({4}, S), batch.target_in.rows(1, 1),
                         SequenceLayout::padded({5}, L));
  CHECK(difference(both.rows(1, 1), first) > 1e-3);
}
