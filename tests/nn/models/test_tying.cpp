#include <doctest/doctest.h>

#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/average.hpp"
#include "eigenformer/optim/clip.hpp"
#include "nn/seq2seq_test_tools.hpp"

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
