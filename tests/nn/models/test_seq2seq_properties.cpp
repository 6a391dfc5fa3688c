#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "nn/seq2seq_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// Puts the number of threads back at the end of a test.
struct ThreadsGuard {
  int before = Runtime::instance().threads();
  ~ThreadsGuard() { Runtime::instance().set_threads(before); }
};

template <class T>
struct Trained {
  std::vector<T> loss;
  Gradients<T> gradients;
};

template <class T>
Trained<T> run_loss(Seq2SeqTransformer<T>& model, const TokenBatch& batch,
                    const std::optional<detail::DropoutKey>& key = {}, bool packed = false) {
  Tape<T> tape;
  const auto ctx = key ? Context<T>::training(tape, *key) : Context<T>::checking(tape);
  Gradients<T> gradients(parameters(model));
  const auto loss = token_batch_loss(model, ctx, batch, packed);
  const std::vector<T> value{loss.item()};
  tape.backward(loss, gradients);
  return {value, std::move(gradients)};
}

template <class T>
void check_same(const Seq2SeqTransformer<T>& model, const Trained<T>& a, const Trained<T>& b) {
  CHECK(a.loss == b.loss);
  for_each_parameter(model, [&](const std::string& name, const auto& parameter) {
    CHECK_MESSAGE(values(a.gradients.of(parameter)) == values(b.gradients.of(parameter)), name);
  });
}

}  // namespace

TEST_CASE_TEMPLATE("a sentence gives the same logits alone, in a padded batch and packed, bit by bit", T,
                   float, double) {
  const TokenBatch batch;
  const auto model = make_seq2seq<T>(small_seq2seq());
  const auto ctx = Context<T>::inference();
  const auto padded =
      model(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout).value();
  const auto sources = detail::packed_layout(batch.source_layout),
             targets = detail::packed_layout(batch.target_layout);
  const auto packed = model(ctx, detail::pack_tokens(batch.source, batch.source_layout), sources,
                            detail::pack_tokens(batch.target_in, batch.target_layout), targets)
                          .value();
  CHECK(packed.shape() == Shape{8, 19});
  for (index_t b = 0; b < B; ++b) {
    const auto expected = values(sequence(padded, batch.target_layout, b));
    CHECK(values(sequence(packed, targets, b)) == expected);
    const auto alone = [&](const Tokens& ids, const SequenceLayout& layout) {
      return detail::pack_tokens(ids, layout).rows(detail::packed_layout(layout).offset(b), layout.length(b));
    };
    CHECK(values(model(ctx, alone(batch.source, batch.source_layout),
                       alone(batch.target_in, batch.target_layout))
                     .value()) == expected);
  }
}

TEST_CASE("trailing padding ids are padding where no layout is given, and their ids do not matter") {
  auto options = small_seq2seq();
  options.padding_index = 0;
  auto model = make_seq2seq<float>(options);
  const auto ctx = Context<float>::inference();
  TokenBatch batch;
  const auto pad = [](Tokens ids, const SequenceLayout& layout, std::int32_t id) {
    for (index_t b = 0; b < B; ++b) {
      for (index_t i = layout.length(b); i < layout.max_length(); ++i) ids.at({b, i}) = id;
    }
  };
  pad(batch.source, batch.source_layout, 0);
  pad(batch.target_in, batch.target_layout, 0);
  const auto by_ids = model(ctx, batch.source, batch.target_in).value();
  const auto first = run_loss(model, batch);
  pad(batch.source, batch.source_layout, 17);
  pad(batch.target_in, batch.target_layout, 8);
  pad(batch.target_out, batch.target_layout, 3);
  const auto by_layout =
      model(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout).value();
  for (index_t b = 0; b < B; ++b)
    CHECK(values(sequence(by_ids, batch.target_layout, b)) ==
          values(sequence(by_layout, batch.target_layout, b)));
  check_same(model, first, run_loss(model, batch));
}

TEST_CASE("a later target token changes no earlier logits, and an earlier one does change later ones") {
  const TokenBatch batch;
  const auto model = make_seq2seq<float>(small_seq2seq());
  const auto ctx = Context<float>::inference();
  const auto full = SequenceLayout::padded(B, L);
  const auto before = model(ctx, batch.source, batch.source_layout, batch.target_in, full).value();
  for (index_t t = 0; t < L; ++t) {
    auto changed = batch.target_in.clone();
    changed.at({1, t}) = (changed.at({1, t}) + 1) % 19;
    const auto after = model(ctx, batch.source, batch.source_layout, changed, full).value();
    for (index_t i = 0; i < L; ++i) {
      const bool same = values(after.reshape({B * L, 19}).rows(L + i, 1)) ==
                        values(before.reshape({B * L, 19}).rows(L + i, 1));
      CHECK(same == (i < t));
    }
    CHECK(values(after.rows(0, 1)) == values(before.rows(0, 1)));
  }
}

TEST_CASE("one thread and several give the same loss and gradients, bit by bit") {
  const ThreadsGuard guard;
  auto options = small_seq2seq();
  options.layer.d_model = 96;
  options.layer.dim_feedforward = 200;
  auto model = make_seq2seq<float>(options);
  TokenBatch batch;
  batch.source = random_tokens({9, 61}, V, 1);
  batch.target_in = random_tokens({9, 53}, 19, 2);
  batch.target_out = random_tokens({9, 53}, 19, 3);
  batch.source_layout = SequenceLayout::padded({61, 3, 40, 55, 17, 28, 60, 1, 33}, 61);
  batch.target_layout = SequenceLayout::padded({53, 50, 1, 37, 22, 44, 53, 12, 9}, 53);
  const detail::DropoutKey key{5, 1, 0};
  Runtime::instance().set_threads(1);
  const auto one = run_loss(model, batch, key);
  for (const int threads : {2, 3, 7}) {
    Runtime::instance().set_threads(threads);
    check_same(model, one, run_loss(model, batch, key));
  }
}

TEST_CASE("dropout's masks follow the sentence: padded, packed and re-ordered batches lose the same") {
  const TokenBatch batch;
  auto model = make_seq2seq<double>(small_seq2seq());
  const detail::DropoutKey key{5, 1, 0};
  const auto padded = run_loss(model, batch, key);
  check_same(model, padded, run_loss(model, batch, key, true));

  // One after the other, with the number that each sentence has in the epoch.
  double sum = 0;
  for (std::uint32_t b = 0; b < B; ++b) {
    const auto alone = [&](const Tokens& ids, const SequenceLayout& layout) {
      return detail::pack_tokens(ids, layout).rows(detail::packed_layout(layout).offset(b), layout.length(b));
    };
    const auto layout = [&](const SequenceLayout& from) {
      return SequenceLayout::packed({from.length(b)}).with_sequence_numbers({b});
    };
    Tape<double> tape;
    sum +=
        model
            .loss(Context<double>::training(tape, key), alone(batch.source, batch.source_layout),
                  layout(batch.source_layout), alone(batch.target_in, batch.target_layout),
                  layout(batch.target_layout), alone(batch.target_out, batch.target_layout), {.divisor = 8})
            .item();
  }
  CHECK(sum == doctest::Approx(padded.loss[0]).epsilon(1e-12));
}

TEST_CASE("each of the four dropout rates acts, only in training, and one number sets all") {
  const TokenBatch batch;
  const detail::DropoutKey key{5, 1, 0};
  auto options = small_seq2seq();
  options.layer.dropout.rate = 0;
  auto silent = make_seq2seq<double>(options);
  const auto plain = run_loss(silent, batch);
  check_same(silent, plain, run_loss(silent, batch, key));
  std::vector<double> losses;
  const auto with = [&](auto&& change) {
    auto changed = options;
    change(changed);
    auto model = make_seq2seq<double>(changed);
    CHECK(run_loss(model, batch).loss == plain.loss);
    const auto loss = run_loss(model, batch, key).loss[0];
    CHECK(loss != plain.loss[0]);
    CHECK(run_loss(model, batch, detail::DropoutKey{5, 2, 0}).loss[0] != loss);
    losses.push_back(loss);
  };
  with([](auto& o) { o.embedding_dropout = 0.3; });
  with([](auto& o) { o.layer.dropout.attention = 0.3; });
  with([](auto& o) { o.layer.dropout.feed_forward = 0.3; });
  with([](auto& o) { o.layer.dropout.residual = 0.3; });
  with([](auto& o) { o.layer.dropout.rate = 0.3; });
  with([](auto& o) { o.layer.dropout.rate = 0.3, o.embedding_dropout = 0; });
  with([](auto& o) {
    o.layer.dropout.rate = 0.9, o.embedding_dropout = o.layer.dropout.attention =
                                    o.layer.dropout.feed_forward = o.layer.dropout.residual = 0.3;
  });
  CHECK(losses[4] == losses[6]);
  CHECK(losses[4] != losses[5]);
  for (std::size_t i = 0; i < 4; ++i) CHECK(losses[i] != losses[4]);
}

TEST_CASE("micro-batches divided by all their tokens add up to one batch, unequal lengths included") {
  const TokenBatch batch;
  auto model = make_seq2seq<double>(small_seq2seq());
  const auto whole = run_loss(model, batch);
  Gradients<double> gradients(parameters(model));
  double sum = 0;
  for (index_t b = 0; b < B; ++b) {
    Tape<double> tape;
    const auto row = [&](const Tokens& ids) { return ids.rows(b, 1); };
    const auto loss = model.loss(
        Context<double>::checking(tape), row(batch.source),
        SequenceLayout::padded({batch.source_layout.length(b)}, S), row(batch.target_in),
        SequenceLayout::padded({batch.target_layout.length(b)}, L), row(batch.target_out), {.divisor = 8});
    sum += loss.item();
    tape.backward(loss, gradients);
  }
  CHECK(sum == doctest::Approx(whole.loss[0]).epsilon(1e-12));
  for_each_parameter(model, [&](const std::string& name, const auto& parameter) {
    check_close(gradients.of(parameter), whole.gradients.of(parameter), 1e-12, name);
  });
}

TEST_CASE("an empty source, an empty target and a batch of nothing are no trouble") {
  auto model = make_seq2seq<float>(small_seq2seq());
  TokenBatch batch;
  batch.source_layout = SequenceLayout::padded({7, 0}, S);
  batch.target_layout = SequenceLayout::padded({0, 5}, L);
  const auto result = run_loss(model, batch);
  CHECK(std::isfinite(result.loss[0]));
  for (const auto& entry : result.gradients.entries()) {
    for (const float g : entry.value.span()) CHECK(std::isfinite(g));
  }
  batch.target_layout = SequenceLayout::padded({0, 0}, L);
  CHECK(run_loss(model, batch).loss[0] == 0.0F);
}

TEST_CASE("one model serves many threads") {
  const TokenBatch batch;
  const auto model = make_seq2seq<float>(small_seq2seq());
  const auto run = [&] {
    return values(model(Context<float>::inference(), batch.source, batch.source_layout, batch.target_in,
                        batch.target_layout)
                      .value());
  };
  const auto expected = run();
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = run(); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == expected);
}
