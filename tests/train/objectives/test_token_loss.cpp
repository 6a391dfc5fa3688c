#include "eigenformer/train/objectives/loss.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/op_check.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Tensor<std::int32_t> ids(const std::vector<std::int32_t>& v) {
  return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(v.size())}, v);
}

/// A batch of all pairs of a small corpus, each target token linked with its source.
Batch aligned_batch(index_t pairs, std::uint64_t seed) {
  EncodedCorpus corpus = reversal_corpus(pairs, seed);
  for (index_t i = 0; i < corpus.size(); ++i) {
    auto& links = corpus.alignment.emplace_back();
    const index_t n = corpus.source.length(i);
    for (index_t k = 0; k < n; ++k) links.push_back({k, n - 1 - k});
  }
  return Batcher(corpus, {.max_target_tokens = 1000}).batch(0, 0);
}

/// Log-probabilities of a batch's target tokens, at a temperature.
Tensor<double> log_probabilities(const Seq2SeqTransformer<double>& model, const Context<double>& ctx,
                                 const Batch& batch, double temperature = 1) {
  return log_softmax(model(ctx, ids(batch.source), batch.source_layout, ids(batch.target_input),
                           batch.target_layout) *
                     (1 / temperature))
      .value();
}

/// A batch whose pairs have other numbers, and so other dropout.
Batch renumbered(const Batch& batch) {
  Batch other = batch;
  std::vector<std::uint32_t> numbers;
  for (index_t b = 0; b < batch.size(); ++b)
    numbers.push_back(batch.source_layout.sequence_number(b) ^ 0x80000000u);
  other.source_layout = batch.source_layout.with_sequence_numbers(numbers);
  other.target_layout = batch.target_layout.with_sequence_numbers(numbers);
  return other;
}

/// The sum over rows of KL(p || q) of log-probabilities.
double divergence(const Tensor<double>& p, const Tensor<double>& q) {
  double sum = 0;
  for (index_t i = 0; i < p.numel(); ++i) sum += std::exp(p.data()[i]) * (p.data()[i] - q.data()[i]);
  return sum;
}

struct Sums {
  double smoothed = 0, plain = 0;
};
Sums words(const Tensor<double>& p, const Batch& batch, double smoothing) {
  Sums sums;
  const index_t classes = p.dim(1);
  for (index_t r = 0; r < p.dim(0); ++r) {
    double all = 0;
    for (index_t i = 0; i < classes; ++i) all -= p.at({r, i}) / static_cast<double>(classes);
    const double plain = -p.at({r, batch.target_output[static_cast<std::size_t>(r)]});
    sums.plain += plain;
    sums.smoothed += (1 - smoothing) * plain + smoothing * all;
  }
  return sums;
}

double part(const LossParts& parts, const std::string& name) {
  for (const Measured& p : parts.sums()) {
    if (p.name == name) return p.value;
  }
  return std::nan("");
}

struct Case {
  double alpha, share, temperature, guided;
};
const std::vector<Case> cases = {{5, 0, 1, 0},     {0, 0.6, 1, 0},     {0, 1, 3, 0},    {2, 0.3, 2, 0},
                                 {1.5, 0, 1, 0.4}, {3, 0.5, 0.5, 0.2}, {0, 0.5, 1, 0.2}};

TrainingOptions options_of(const Case& c) {
  TrainingOptions o{.label_smoothing = 0.1};
  o.guided_alignment.weight = c.guided;
  o.r_drop.weight = c.alpha;
  if (c.share > 0) o.distillation = {c.share, c.temperature};
  return o;
}

}  // namespace

TEST_CASE("R-Drop, teachers and guided alignment, alone and together: the value of plain loops") {
  const auto model = small_model<double>(0.3), large = small_model<double>(0, 8),
             other = small_model<double>(0, 9);
  const Batch batch = aligned_batch(6, 2), second = renumbered(batch);
  Teacher<double> teacher;
  teacher.add(large);
  teacher.add(other);
  CHECK(teacher.size() == 2);
  const double divisor = 13;
  const detail::DropoutKey key{7, 3, 0};
  for (const Case& c : cases) {
    CAPTURE(c.alpha);
    CAPTURE(c.share);
    Tape<double> tape, tape1, tape2;
    LossParts parts;
    const TrainingOptions o = options_of(c);
    const double found = detail::token_objective_loss(model, Context<double>::training(tape, key), batch, o,
                                                      c.share > 0 ? &teacher : nullptr, divisor, &parts)
                             .item();
    const auto ctx1 = Context<double>::training(tape1, key), ctx2 = Context<double>::training(tape2, key);
    const bool twice = c.alpha > 0;
    std::vector<Tensor<double>> p = {log_probabilities(model, ctx1, batch)};
    if (twice) p.push_back(log_probabilities(model, ctx2, second));
    const auto share = 1 / static_cast<double>(p.size());
    double expected = 0, plain = 0, taught = 0, differ = 0;
    for (std::size_t k = 0; k < p.size(); ++k) {
      const Sums sums = words(p[k], batch, 0.1);
      expected += share * (1 - c.share) * sums.smoothed;
      plain += share * sums.plain;
      if (c.share == 0) continue;
      Tape<double> again;
      const auto ctx = Context<double>::training(again, key);
      const auto soft = log_probabilities(model, ctx, k == 0 ? batch : second, c.temperature);
      const auto ctx0 = Context<double>::inference();
      const auto a = log_probabilities(large, ctx0, batch, c.temperature),
                 b = log_probabilities(other, ctx0, batch, c.temperature);
      for (index_t i = 0; i < a.numel(); ++i) {
        const double q = (std::exp(a.data()[i]) + std::exp(b.data()[i])) / 2;
        taught += share * q * (std::log(q) - soft.data()[i]);
      }
    }
    expected += c.share * c.temperature * c.temperature * taught;
    if (twice) {
      differ = (divergence(p[0], p[1]) + divergence(p[1], p[0])) / 2;
      CHECK(differ > 0.1);
      expected += c.alpha / 2 * differ;
      CHECK(part(parts, "r-drop") == doctest::Approx(differ).epsilon(1e-10));
    }
    if (c.guided > 0) expected += c.guided * part(parts, "alignment");
    CHECK(found == doctest::Approx(expected / divisor).epsilon(1e-10));
    CHECK(parts.shown(0) == doctest::Approx(plain).epsilon(1e-10));
    if (c.share > 0) CHECK(part(parts, "distillation") == doctest::Approx(taught).epsilon(1e-10));
    CHECK(std::isnan(part(parts, "alignment")) == (c.guided == 0));
  }
}

TEST_CASE("the alignment loss of two passes is the mean of theirs") {
  const auto model = small_model<double>(0.3);
  const Batch batch = aligned_batch(5, 3), second = renumbered(batch);
  const detail::DropoutKey key{1, 2, 0};
  LossParts parts;
  Tape<double> tape, tape1, tape2;
  (void)detail::token_objective_loss(model, Context<double>::training(tape, key), batch,
                                     options_of({1, 0, 1, 0.7}), nullptr, 11, &parts);
  const auto alone = [&](Tape<double>& t, const Batch& b) {
    LossParts of_pass;
    (void)detail::guided_alignment_loss(model, Context<double>::training(t, key), b, {.divisor = 1},
                                        {.weight = 0.7}, &of_pass);
    return part(of_pass, "alignment");
  };
  CHECK(part(parts, "alignment") ==
        doctest::Approx((alone(tape1, batch) + alone(tape2, second)) / 2).epsilon(1e-10));
}

TEST_CASE("R-Drop, teachers and guided alignment: gradients, with dropout") {
  const auto model = small_model<double>(0.3), large = small_model<double>(0, 8);
  const Batch batch = aligned_batch(3, 4);
  Teacher<double> teacher;
  teacher.add(large);
  for (const Case& c : {cases[0], cases[2], cases[5]}) {
    check_op(
        [&](Tape<double>& tape, const Vars&) {
          return detail::token_objective_loss(model,
                                              Context<double>::training(tape, detail::DropoutKey{5, 1, 0}),
                                              batch, options_of(c), c.share > 0 ? &teacher : nullptr, 19);
        },
        {}, parameters(model), {.max_elements = 4});
  }
}

TEST_CASE("R-Drop and distillation in training: what they are to bring, and what is reported") {
  const EncodedCorpus corpus = reversal_corpus(60, 1), held_out = reversal_corpus(30, 2);
  TrainingOptions o{.loop = {.max_steps = 150, .validate_every = 0, .report_every = 10},
                    .batch_tokens = 120,
                    .learning_rate = 8e-3,
                    .warmup = 20};
  auto large = small_model(0.0, 5);
  Trainer(large, reversal_corpus(300, 7), nullptr, o).run();
  auto teacher = std::make_shared<Teacher<float>>();
  teacher->add(large);

  // What of a corpus's target tokens two models differ by, nats a token.
  const auto distance = [&](const Seq2SeqTransformer<float>& student) {
    const Batch batch = Batcher(held_out, {.max_target_tokens = 1000}).batch(0, 0);
    const auto p = [&](const Seq2SeqTransformer<float>& m) {
      return log_softmax(m(Context<float>::inference(), ids(batch.source), batch.source_layout,
                           ids(batch.target_input), batch.target_layout))
          .value()
          .to<double>();
    };
    return divergence(p(large), p(student)) / static_cast<double>(batch.target_tokens());
  };
  const auto train_with = [&](double alpha, double share, Recorder& recorder) {
    auto student = small_model(0.1, 3);
    TrainingOptions own = o;
    own.r_drop.weight = alpha;
    if (share > 0) own.distillation.weight = share;
    Trainer trainer(student, corpus, nullptr, own, recorder, share > 0 ? teacher : nullptr);
    trainer.run();
    return student;
  };
  Recorder plain, drop, taught, both;
  const auto alone = train_with(0, 0, plain);
  const auto alike = train_with(5, 0, drop);
  const auto student = train_with(0, 1, taught);
  (void)train_with(1, 0.5, both);
  CHECK(distance(student) < 0.7 * distance(alone));
  MESSAGE("divergence from the teacher " << distance(alone) << ", of its student " << distance(student));

  const auto names = [](const Recorder& r) {
    std::vector<std::string> found;
    for (const Measured& p : r.steps.back().parts) found.push_back(p.name);
    return found;
  };
  CHECK(names(plain).empty());
  CHECK(names(drop) == std::vector<std::string>{"r-drop"});
  CHECK(names(taught) == std::vector<std::string>{"distillation"});
  CHECK(names(both) == std::vector<std::string>{"r-drop", "distillation"});
  const StepReport &p = plain.steps.back(), &d = drop.steps.back(), &t = taught.steps.back();
  CHECK(p.loss < p.objective);  // label smoothing
  CHECK(d.objective > d.loss + 2.4 * d.parts[0].value);
  CHECK(t.objective == doctest::Approx(t.parts[0].value).epsilon(1e-5));
  CHECK(t.parts[0].value < 0.5 * taught.steps.front().parts[0].value);

  // What two passes of the models differ by, when they have dropout.
  const auto disagreement = [&](const Seq2SeqTransformer<float>& model) {
    TrainingOptions rates;
    rates.r_drop.weight = 1;
    LossParts parts;
    Tape<float> tape;
    Batcher batcher(held_out, {.max_target_tokens = 1000});
    (void)detail::token_objective_loss(model, Context<float>::training(tape, detail::DropoutKey{3, 1, 0}),
                                       batcher.batch(0, 0), rates, nullptr, 1, &parts);
    return part(parts, "r-drop");
  };
  CHECK(disagreement(alike) < 0.7 * disagreement(alone));
}

TEST_CASE("R-Drop and distillation: resumed training is uninterrupted training; batches cut in two are one") {
  const EncodedCorpus corpus = reversal_corpus(40, 3);
  auto large = small_model(0.0, 5);
  auto teacher = std::make_shared<Teacher<float>>();
  teacher->add(large);
  TrainingOptions o{
      .loop = {.max_steps = 8, .accumulate = 2, .validate_every = 0}, .batch_tokens = 60, .warmup = 2};
  o.r_drop.weight = 2;
  auto whole = small_model(0.2);
  Trainer(whole, corpus, nullptr, o, TrainingSink::silent(), teacher).run();
  auto half = small_model(0.2), rest = small_model(0.2, 77);
  TrainingOptions first = o;
  first.loop.max_steps = 3;
  Trainer before(half, corpus, nullptr, first, TrainingSink::silent(), teacher);
  before.run();
  Trainer after(rest, corpus, nullptr, o, TrainingSink::silent(), teacher);
  after.load(before.state());
  after.run();
  CHECK(weights_of(rest) == weights_of(whole));
}

TEST_CASE("R-Drop and distillation: what does not fit is refused before the first update") {
  const EncodedCorpus corpus = reversal_corpus(10, 3);
  TrainingOptions o{.loop = {.max_steps = 1}};
  auto model = small_model(0.1), dry = small_model(0.0);
  const auto refusal = [&](Seq2SeqTransformer<float>& m, std::shared_ptr<const Teacher<float>> teacher) {
    return message_of<ValueError>([&] { Trainer(m, corpus, nullptr, o, TrainingSink::silent(), teacher); });
  };
  RandomGenerator rng(1);
  Seq2SeqTransformer<float> wide({.source_vocab_size = 23,
                                  .target_vocab_size = 29,
                                  .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                                  .encoder = {.num_layers = 1},
                                  .decoder = {.num_layers = 1}},
                                 rng);
  auto teacher = std::make_shared<Teacher<float>>();
  CHECK(contains(refusal(model, teacher), "there is no model"));
  teacher->add(wide);
  CHECK(contains(refusal(model, teacher), "vocabulary of 29 ids, must have 24"));
  CHECK(contains(message_of<ValueError>([&] { teacher->add(model); }), "vocabulary of 24 ids, must have 29"));
  Tape<float> tape;
  CHECK(contains(message_of<ValueError>([&] { teacher->add(wide, Context<float>::checking(tape)); }),
                 "records"));
  o.r_drop.weight = 1;
  CHECK(contains(refusal(dry, nullptr), "no dropout"));
  o.r_drop.weight = -1;
  CHECK(contains(refusal(model, nullptr), "r_drop is -1"));
}

namespace {

struct OwnTokenLoss : Seq2SeqTransformer<float> {
  using Seq2SeqTransformer<float>::Seq2SeqTransformer;
  Var<float> token_loss(const Context<float>& ctx, const Var<float>& decoded, const Tokens& targets,
                        const CrossEntropyOptions& o) const override {
    return multiply(Seq2SeqTransformer<float>::token_loss(ctx, decoded, targets, o), 2.0f);
  }
};
struct OwnLoss : Seq2SeqTransformer<float> {
  using Seq2SeqTransformer<float>::Seq2SeqTransformer;
  Var<float> loss(const Context<float>& ctx, const Tokens& source, const SequenceLayout& s,
                  const Tokens& target_in, const SequenceLayout& t, const Tokens& target_out,
                  const CrossEntropyOptions& o = {}, const std::vector<index_t>& prefix = {}) const override {
    return multiply(Seq2SeqTransformer<float>::loss(ctx, source, s, target_in, t, target_out, o, prefix),
                    2.0f);
  }
};
struct Derived : Seq2SeqTransformer<float> {
  static constexpr bool inherits_losses = true;
  using Seq2SeqTransformer<float>::Seq2SeqTransformer;
};

}  // namespace

TEST_CASE("R-Drop refuses a model whose own losses it would not call") {
  const Seq2SeqOptions options = small_model(0.1).options;
  RandomGenerator rng(1);
  const auto refusal = [&](const auto& model) {
    return message_of<ValueError>(
        [&] { detail::require_objective(model, RDropOptions{.weight = 5}, nullptr); });
  };
  CHECK(contains(refusal(OwnTokenLoss(options, rng)), "may override token_loss() or loss()"));
  CHECK(contains(refusal(OwnLoss(options, rng)), "may override token_loss() or loss()"));
  CHECK_NOTHROW(detail::require_objective(Derived(options, rng), RDropOptions{.weight = 5}, nullptr));
  CHECK_NOTHROW(detail::require_objective(OwnLoss(options, rng), RDropOptions{}, nullptr));
}
