#include <doctest/doctest.h>

#include <map>
#include <utility>

#include "eigenformer/autograd/tape/grad_check.hpp"
#include "eigenformer/nn/adapters/lora.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/average.hpp"
#include "eigenformer/optim/clip.hpp"
#include "nn/seq2seq_test_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Seq2SeqOptions tied(Tying tying) {
  auto options = small_seq2seq();
  options.target_vocab_size = V;
  options.tying = tying;
  return options;
}

template <class T>
Gradients<T> gradients_of(Seq2SeqTransformer<T>& model) {
  const TokenBatch batch;
  Tape<T> tape;
  Gradients<T> gradients(parameters(model));
  const auto loss = model.loss(Context<T>::checking(tape), batch.source, batch.source_layout, batch.target_in,
                               batch.target_layout, batch.target_out);
  tape.backward(loss, gradients);
  return gradients;
}

// An encoder-decoder whose stacks share their self-attention and feed-forward networks.
template <class T>
struct SharedLayers : Seq2SeqTransformer<T> {
  SharedLayers(const Seq2SeqOptions& o, RandomGenerator& rng) : Seq2SeqTransformer<T>(o, rng) {
    auto& from = this->transformer.encoder.layers;
    auto& to = this->transformer.decoder.layers;
    for (std::size_t i = 0; i < to.size(); ++i) {
      tie(*to[i].self_attn, from[i].self_attn);
      tie(to[i].feed_forward, from[i].feed_forward);
    }
    name_parameters(*this);
  }
};

template <class T>
SharedLayers<T> shared_layers(std::uint64_t seed = 1) {
  RandomGenerator rng(seed);
  SharedLayers<T> model(small_seq2seq(), rng);
  randomise(model, seed + 1);
  return model;
}

template <class T>
Var<T> loss_of(const Seq2SeqTransformer<T>& model, const Context<T>& ctx) {
  const TokenBatch batch;
  return model.loss(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout,
                    batch.target_out);
}

}  // namespace

TEST_CASE("a tied matrix is counted and listed once, and saved under each of its names") {
  const auto apart = make_seq2seq<float>(tied(Tying::none)),
             target = make_seq2seq<float>(tied(Tying::target));
  auto all = make_seq2seq<float>(tied(Tying::all));
  CHECK(count_parameters(apart) - count_parameters(target) == V * D);
  CHECK(count_parameters(apart) - count_parameters(all) == 2 * V * D);
  CHECK(parameters(all).size() + 2 == state_dict(all).size());
  CHECK(names_of(all) == names_of(apart));
  std::vector<std::string> aliases;
  for (const auto& entry : state_dict(all)) {
    if (!entry.alias_of.empty()) aliases.push_back(entry.name + " = " + entry.alias_of);
  }
  CHECK(aliases == std::vector<std::string>{"target_embedding.weight = source_embedding.weight",
                                            "projection.weight = source_embedding.weight"});
  CHECK(state_dict(target)[1].alias_of.empty());
  CHECK(&target.projection_weight() == &target.target_embedding().weight);
  CHECK(all.projection_weight().id() == all.source_embedding.weight.id());
}

TEST_CASE("the gradient of a tied matrix is the sum over its uses") {
  for (const Tying tying : {Tying::target, Tying::all}) {
    auto shared = make_seq2seq<double>(tied(tying));
    auto apart = make_seq2seq<double>(tied(Tying::none));
    for (auto& entry : state_dict(apart)) {
      for (const auto& source : state_dict(shared)) {
        if (source.name == entry.name) entry.value.copy_from(source.value);
      }
    }
    const auto together = gradients_of(shared), parts = gradients_of(apart);
    auto expected = parts.of(apart.target_embedding().weight).clone();
    for (index_t i = 0; i < expected.numel(); ++i) {
      expected.data()[i] += parts.of(apart.projection_weight()).data()[i];
      if (tying == Tying::all) expected.data()[i] += parts.of(apart.source_embedding.weight).data()[i];
    }
    check_close(together.of(shared.projection_weight()), expected, 1e-12);
    CHECK(together.entries().size() == parts.entries().size() - (tying == Tying::all ? 2 : 1));
  }
}

TEST_CASE("a tied matrix is clipped and stepped once, and stays tied") {
  auto model = make_seq2seq<double>(tied(Tying::all));
  const auto gradients = gradients_of(model);
  double squares = 0;
  for_each_parameter(model, [&](const std::string&, const auto& parameter) {
    for (const double g : gradients.of(parameter).span()) squares += g * g;
  });
  CHECK(clip_factor(gradients, 1.0).norm == doctest::Approx(std::sqrt(squares)));

  const auto before = model.source_embedding.weight.value().clone();
  auto doubled = parameters(model);
  const auto twice = parameters(model);
  doubled.insert(doubled.end(), twice.begin(), twice.end());
  Adam<double> optimizer(doubled);
  optimizer.step(gradients, 0.01);
  const auto gradient = gradients.of(model.source_embedding.weight);
  for (index_t i = 0; i < before.numel(); ++i) {
    const double g = gradient.data()[i];
    if (std::abs(g) > 1e-5)
      CHECK(std::abs(before.data()[i] - model.source_embedding.weight.value().data()[i]) ==
            doctest::Approx(0.01).epsilon(0.01));
  }
  CHECK(model.projection_weight().value().data() == model.source_embedding.weight.value().data());
}

TEST_CASE("a tied model loads from a state dict with either name, and averages") {
  auto model = make_seq2seq<double>(tied(Tying::all));
  auto other = make_seq2seq<double>(tied(Tying::all));
  randomise(other, 77);
  auto entries = state_dict(other);
  std::erase_if(entries, [](const auto& e) {
    return e.name == "source_embedding.weight" || e.name == "target_embedding.weight";
  });
  auto copy = model;
  load_state_dict(copy, entries);
  CHECK(values(copy.source_embedding.weight.value()) == values(other.source_embedding.weight.value()));

  StateAverage<double> last(2);
  last.add(state_dict(copy));
  last.add(state_dict(model));
  last.add(state_dict(other));
  auto averaged = model;
  load_state_dict(averaged, last.average());
  const double expected =
      (model.projection_weight().value().at({4, 7}) + other.projection_weight().value().at({4, 7})) / 2;
  CHECK(averaged.source_embedding.weight.value().at({4, 7}) == doctest::Approx(expected));
}

TEST_CASE("copying a tied model keeps it tied within itself and apart from the original; moving keeps ids") {
  auto model = make_seq2seq<float>(tied(Tying::target));
  auto copy = model;
  CHECK(copy.projection_weight().id() == copy.target_embedding().weight.id());
  CHECK(copy.projection_weight().id() != model.projection_weight().id());
  copy.own_target_embedding->weight.value().fill(0);
  CHECK(copy.projection_weight().value().at({3, 3}) == 0);
  CHECK(model.projection_weight().value().at({3, 3}) != 0);
  const auto id = model.projection_weight().id();
  const auto* layer = model.transformer.encoder.layers.data();
  const auto moved = std::move(model);
  CHECK(moved.projection_weight().id() == id);
  CHECK(moved.transformer.encoder.layers.data() == layer);
}

TEST_CASE("parameters that tie() puts in two places count, and are listed, once") {
  auto model = shared_layers<double>();
  auto apart = make_seq2seq<double>(small_seq2seq());
  // Of each layer: two matrices and two biases of the attention, the same of the feed-forward network.
  const index_t shared = 2 * (3 * D * D + 3 * D + D * D + D + 2 * D * F + F + D);
  CHECK(count_parameters(apart) - count_parameters(model) == shared);
  const auto handles = parameters(model);
  CHECK(parameters(apart).size() - handles.size() == 16);
  CHECK(names_of(model) == names_of(apart));
  std::size_t aliases = 0;
  for (const auto& entry : state_dict(model)) {
    if (entry.alias_of.empty()) continue;
    ++aliases;
    CHECK(entry.name.starts_with("decoder."));
    CHECK(entry.alias_of == "encoder." + entry.name.substr(8));
  }
  CHECK(aliases == 16);
  const Parameter<double>& weight = model.transformer.decoder.layers[1].feed_forward.linear2.weight;
  CHECK(weight.name() == "encoder.layers.1.linear2.weight");
  CHECK(weight.handle()->aliases == std::vector<std::string>{"decoder.layers.1.linear2.weight"});
  CHECK(weight.id() == model.transformer.encoder.layers[1].feed_forward.linear2.weight.id());
}

TEST_CASE("the gradient of a parameter in two places is right by finite differences, and clipped once") {
  auto model = shared_layers<double>();
  auto& weight = model.transformer.encoder.layers[0].feed_forward.linear1.weight;
  const auto all = parameters(model);
  for (const auto& p : all) p->frozen = p->aliases.empty();
  const auto result =
      grad_check([&](Tape<double>& tape,
                     std::vector<Var<double>>&) { return loss_of(model, Context<double>::checking(tape)); },
                 {}, all, {.max_elements = 20});
  CHECK_MESSAGE(result, result.str());
  for (const auto& p : all) p->frozen = false;
  auto apart = make_seq2seq<double>(small_seq2seq());
  std::map<std::string, Tensor<double>> values;
  for (const auto& entry : state_dict(model)) values.emplace(entry.name, entry.value);
  for (auto& entry : state_dict(apart)) entry.value.copy_from(values.at(entry.name));
  const auto together = gradients_of(model), parts = gradients_of(apart);
  auto sum = parts.of(apart.transformer.encoder.layers[0].feed_forward.linear1.weight).clone();
  const auto other = parts.of(apart.transformer.decoder.layers[0].feed_forward.linear1.weight);
  for (index_t i = 0; i < sum.numel(); ++i) sum.data()[i] += other.data()[i];
  check_close(together.of(weight), sum, 1e-12);
  double squares = 0;
  for_each_parameter(model, [&](const std::string&, const auto& parameter) {
    for (const double g : together.of(parameter).span()) squares += g * g;
  });
  CHECK(clip_factor(together, 1.0).norm == doctest::Approx(std::sqrt(squares)));
}

TEST_CASE("an optimizer steps a parameter in two places once, and both places see it") {
  auto model = shared_layers<double>();
  const auto gradients = gradients_of(model);
  const auto& weight = model.transformer.encoder.layers[0].feed_forward.linear1.weight;
  const double before = weight.value().data()[5], gradient = gradients.of(weight).data()[5];
  Adam<double> adam(parameters(model));
  adam.step(gradients, 1e-3);
  // The first step of Adam is the learning rate times the gradient's sign.
  CHECK(weight.value().data()[5] - before == doctest::Approx(gradient > 0 ? -1e-3 : 1e-3).epsilon(1e-4));
  CHECK(model.transformer.decoder.layers[0].feed_forward.linear1.weight.value().data()[5] ==
        weight.value().data()[5]);
}

TEST_CASE("a state dict of tied layers loads, and must have equal tensors under both names") {
  auto model = shared_layers<float>(), other = shared_layers<float>(7);
  auto entries = state_dict(model);
  CHECK(load_state_dict(other, entries).missing.empty());
  const TokenBatch batch;
  const auto logits_of = [&](const auto& m) {
    return values(m(Context<float>::inference(), batch.source, batch.source_layout, batch.target_in,
                    batch.target_layout)
                      .value());
  };
  CHECK(logits_of(other) == logits_of(model));
  for (auto& entry : entries) {
    entry.value = entry.value.clone();
    entry.alias_of.clear();
    if (entry.name == "decoder.layers.0.linear1.bias") entry.value.data()[0] += 1;
  }
  CHECK(contains(message_of<ValueError>([&] { (void)load_state_dict(other, entries); }),
                 "tied in the module, but given with different values: encoder.layers.0.linear1.bias and "
                 "decoder.layers.0.linear1.bias"));
  // Packed weights and adapters are found in both places.
  const auto packed = pack_weights(model);
  const auto ctx = Context<float>::inference().with_packed_weights(packed);
  const auto plain = loss_of(model, Context<float>::inference()).value().item();
  CHECK(loss_of(model, ctx).value().item() == doctest::Approx(plain).epsilon(1e-5));
  RandomGenerator rng(3);
  add_lora(model, {.rank = 2, .targets = "linear1"}, rng);
  CHECK(lora_parameters(model).size() == 4);
}

TEST_CASE("tied parameters cannot be copied, and tie() wants the same parameters in both places") {
  auto model = shared_layers<float>();
  CHECK(contains(
      message_of<ValueError>([&] { const auto copy = model; }),
      "[parameter] 'encoder.layers.0.self_attn.in_proj_weight' is tied: it stands in several places of "
      "its model"));
  const auto moved = std::move(model);
  CHECK(count_parameters(moved) == count_parameters(shared_layers<float>()));
  RandomGenerator rng(1);
  Linear<float> a({.in_features = 3, .out_features = 4}, rng), b({.in_features = 5, .out_features = 4}, rng),
      c({.in_features = 3, .out_features = 4, .bias = false}, rng);
  CHECK(message_of<ValueError>([&] { tie(a, b); }) ==
        "[tie] parameter 0 is 'weight' of shape (4, 3) in the module and 'weight' of shape (4, 5) in the "
        "source, "
        "expected the same names and shapes");
  CHECK(
      message_of<ValueError>([&] { tie(a, c); }) ==
      "[tie] parameter 1 is 'bias' of shape (4,) in the module and nothing in the source, expected the same "
      "names and shapes");
  const auto free = a;  // not tied by what was refused
  CHECK(free.weight.defined());
}

TEST_CASE("a copied parameter that is missing in the gradients is named as a copy") {
  RandomGenerator rng(1);
  Linear<float> layer({.in_features = 3, .out_features = 4, .bias = false}, rng);
  const Linear<float> copy = layer;
  Tape<float> tape;
  const auto loss = mean(copy(Context<float>::checking(tape), Tensor<float>::ones({2, 3})));
  Gradients<float> gradients(parameters(layer));
  CHECK(message_of<ValueError>([&] { tape.backward(loss, gradients); }) ==
        "[backward] parameter 'weight' of shape (4, 3) was recorded but is missing in the gradients; it is a "
        "copy, "
        "and a copy is a parameter of its own: construct the gradients with parameters() of the module that "
        "was "
        "called, or let both places share one parameter by tie()");
  const Parameter<float> plain(Tensor<float>::ones({2, 3}));
  const Parameter<float> copied = plain;
  Tape<float> second;
  const auto sum_of_copy = sum(Context<float>::checking(second).use(copied));
  CHECK(contains(message_of<ValueError>([&] { second.backward(sum_of_copy, gradients); }),
                 "[backward] a parameter without a name of shape (2, 3) was recorded but is missing in the "
                 "gradients; it is a copy"));
}
