#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "eigenformer/train/validation/validation.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// Sentences of 2 to 6 of nine words; the target is the source backwards, in capitals.
ParallelCorpus reversed_text(index_t pairs, std::uint64_t seed) {
  RandomGenerator rng(seed);
  ParallelCorpus text;
  for (index_t i = 0; i < pairs; ++i) {
    std::string source, target;
    for (auto n = 2 + rng.uniform_int(5); n > 0; --n) {
      const auto letter = static_cast<char>('a' + rng.uniform_int(9));
      source = source + (source.empty() ? "" : " ") + letter;
      target = static_cast<char>(letter - 'a' + 'A') + (target.empty() ? "" : " " + target);
    }
    text.source.push_back(source);
    text.target.push_back(target);
  }
  return text;
}

Seq2SeqTransformer<float> model_for(const TokenizerPair& tokenizers) {
  RandomGenerator rng(3);
  return {{.source_vocab_size = tokenizers.source->vocabulary_size(),
           .target_vocab_size = tokenizers.target->vocabulary_size(),
           .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .dropout = {0.1}},
           .encoder = {.num_layers = 1},
           .decoder = {.num_layers = 1}},
          rng};
}

struct Setup {
  ParallelCorpus text = reversed_text(400, 1), held_out_text = reversed_text(12, 2);
  TokenizerPair tokenizers = train_tokenizers({.kind = "word", .vocabulary_size = 30, .joint = true}, text);
  EncodedCorpus corpus = encode_corpus(text, tokenizers, {}, 50),
                held_out = encode_corpus(held_out_text, tokenizers, {}, 50);
  Seq2SeqTransformer<float> model = model_for(tokenizers);
  TrainingOptions options{.loop = {.max_steps = 60, .validate_every = 20},
                          .batch_tokens = 150,
                          .learning_rate = 1e-2,
                          .warmup = 10,
                          .label_smoothing = 0};

  Validation validation() { return validation_of(model, held_out, held_out_text, tokenizers, options); }
};

}  // namespace

TEST_CASE("validation_of: the loss, BLEU and chrF of one validation, and one sentence each time") {
  Setup s;
  s.options.validation = {.measures = "loss, bleu,chrf", .by = ValidationMeasure::chrf, .sample = 0};
  s.options.loop.validation = s.validation();
  Recorder sink;
  double loss = 0, chrf = 0, bleu = 0;
  sink.at_checkpoint = [&] {
    loss = corpus_loss(s.model, s.held_out);
    FolderDescription<Seq2SeqOptions> description;
    description.model = s.model.options;
    const TextTranslator<Seq2SeqTransformer<float>> translator(
        s.model, s.tokenizers, description, {.search = {.beam_size = 1, .max_length = 22}});
    std::vector<std::string> texts;
    for (const Translation& t : translator.translate(s.held_out_text.source)) texts.push_back(t.text);
    chrf = corpus_chrf(texts, s.held_out_text.target);
    bleu = corpus_bleu(texts, s.held_out_text.target).score;
  };
  Trainer trainer(s.model, s.corpus, nullptr, s.options, sink);
  trainer.run();
  REQUIRE(sink.validations.size() == 3);
  const ValidationReport& last = sink.validations.back();
  CHECK(last.name == "chrf");
  CHECK(last.value == doctest::Approx(chrf));
  CHECK(chrf > 0);
  REQUIRE(last.others.size() == 2);
  CHECK(last.others[0].name == "loss");
  CHECK(last.others[0].value == loss);
  CHECK(last.others[1].name == "bleu");
  CHECK(last.others[1].value == doctest::Approx(bleu));
  double best = -1;
  for (const ValidationReport& v : sink.validations) {
    REQUIRE(v.samples.size() == 3);
    CHECK(v.samples[0].source == last.samples[0].source);
    CHECK(v.samples[0].reference == last.samples[0].reference);
    CHECK(v.best == (v.value > best));
    best = std::max(best, v.value);
  }
  CHECK(trainer.best() == best);
  CHECK(std::count(s.held_out_text.target.begin(), s.held_out_text.target.end(), last.samples[0].reference) >
        0);
}

TEST_CASE("validation_of: the loss alone is what a validation corpus gives, with three sentences") {
  Setup s;
  auto other = model_for(s.tokenizers);
  Recorder with, without;
  Trainer by_corpus(other, s.corpus, &s.held_out, s.options, without);
  by_corpus.run();
  s.options.loop.validation = s.validation();
  Trainer trainer(s.model, s.corpus, nullptr, s.options, with);
  trainer.run();
  REQUIRE(with.validations.size() == without.validations.size());
  for (std::size_t i = 0; i < with.validations.size(); ++i) {
    CHECK(with.validations[i].name == "loss");
    CHECK(with.validations[i].value == without.validations[i].value);
    CHECK(with.validations[i].samples.size() == 3);
    CHECK(with.validations[i].others.empty());
  }
}

TEST_CASE("validation_of: translating leaves the training's bits alone, in bf16 too") {
  for (const auto precision : {GemmPrecision::full, GemmPrecision::bf16}) {
    Setup s;
    s.options.loop.precision = precision;
    auto other = model_for(s.tokenizers);
    Trainer plain(other, s.corpus, nullptr, s.options);
    plain.run();
    s.options.validation = {.measures = "bleu,chrf", .beam = 3};
    s.options.loop.validate_every = 7;
    s.options.loop.validation = s.validation();
    Trainer trainer(s.model, s.corpus, nullptr, s.options);
    trainer.run();
    CHECK(weights_of(s.model) == weights_of(other));
  }
}

TEST_CASE("validation_of: a training goes on with the measure that decided so far, and with no other") {
  Setup s;
  s.options.validation.by = ValidationMeasure::bleu;
  s.options.loop.validation = s.validation();
  Trainer trainer(s.model, s.corpus, nullptr, s.options);
  trainer.run();
  const auto state = trainer.state();
  TrainingOptions others = s.options;
  others.validation.measures = "loss,chrf";
  others.loop.validation = validation_of(s.model, s.held_out, s.held_out_text, s.tokenizers, others);
  Trainer same(s.model, s.corpus, nullptr, others);
  CHECK_NOTHROW(same.load(state));
  CHECK(same.best() == trainer.best());
  others.validation.by = ValidationMeasure::loss;
  others.loop.validation = validation_of(s.model, s.held_out, s.held_out_text, s.tokenizers, others);
  Trainer another(s.model, s.corpus, nullptr, others);
  CHECK(contains(message_of<ValueError>([&] { another.load(state); }), "validation \"bleu\""));
}

TEST_CASE("validation_of: training ends when BLEU does not get better any more") {
  Setup s;
  s.options.validation.by = ValidationMeasure::bleu;
  s.options.learning_rate = 1e-9;  // so it never does
  s.options.loop.validate_every = 2;
  s.options.loop.patience = 3;
  s.options.loop.validation = s.validation();
  Trainer trainer(s.model, s.corpus, nullptr, s.options);
  CHECK(trainer.run() == TrainingEnd::early_stopping);
  CHECK(trainer.step() <= 10);
}

TEST_CASE("validation_of: what is impossible is refused") {
  Setup s;
  s.options.validation.measures = "loss,meteor";
  CHECK(contains(message_of<ValueError>([&] { (void)s.validation(); }), "'meteor'"));
  CHECK(contains(message_of<ValueError>([&] { s.options.validate(); }), "'meteor'"));
  s.options.validation.measures = "loss,bleu, loss";
  CHECK(contains(message_of<ValueError>([&] { s.options.validate(); }), "'loss' twice"));
  s.options.validation.measures = "loss,bleu";
  CHECK(contains(message_of<ValueError>([&] { Trainer(s.model, s.corpus, &s.held_out, s.options); }),
                 "validation_of"));
  s.held_out_text = {};
  CHECK(contains(message_of<ValueError>([&] { (void)s.validation(); }), "no pair"));
  s = Setup{};
  s.options.validation.beam = 0;
  CHECK(contains(message_of<ValueError>([&] { s.options.validate(); }), "validate_beam is 0"));
}

TEST_CASE("spread_sample: every so manieth pair") {
  const ParallelCorpus text = reversed_text(10, 3);
  const auto sampled = [&](index_t most) {
    return detail::spread_sample(std::vector<ValidationText>{{.pairs = text}}, most).front().pairs;
  };
  const ParallelCorpus some = sampled(3);
  REQUIRE(some.size() == 3);
  CHECK(some.source[0] == text.source[1]);
  CHECK(some.target[1] == text.target[4]);
  CHECK(some.source[2] == text.source[7]);
  CHECK(sampled(0).source == text.source);
  CHECK(sampled(20).target == text.target);
}
