#pragma once

#include <cstring>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "eigenformer/train/trainer.hpp"

namespace eigenformer::testing {

/// `pairs` sentences of 2 to 6 ids from `first` on, among `kinds` ones; the target is the source backwards.
inline EncodedCorpus reversal_corpus(index_t pairs, std::uint64_t seed, std::int32_t first = 4,
                                     index_t kinds = 9) {
  RandomGenerator rng(seed);
  EncodedCorpus corpus;
  for (index_t i = 0; i < pairs; ++i) {
    std::vector<std::int32_t> s(static_cast<std::size_t>(2 + rng.uniform_int(5)));
    for (auto& id : s) id = first + static_cast<std::int32_t>(rng.uniform_int(kinds));
    corpus.source.push_back(s);
    corpus.target.push_back(std::vector<std::int32_t>(s.rbegin(), s.rend()));
  }
  return corpus;
}

template <class T = float>
Seq2SeqTransformer<T> small_model(double dropout, std::uint64_t seed = 3) {
  RandomGenerator rng(seed);
  return {{.source_vocab_size = 23,
           .target_vocab_size = 24,
           .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .dropout = {dropout}},
           .encoder = {.num_layers = 1},
           .decoder = {.num_layers = 2}},
          rng};
}

/// All weights, one after the other.
template <class T>
std::vector<T> weights_of(const Seq2SeqTransformer<T>& model) {
  std::vector<T> all;
  for_each_parameter(model, [&](const std::string&, const auto& p) {
    all.insert(all.end(), p.value().span().begin(), p.value().span().end());
  });
  return all;
}

/// Writes down what training says, and does what it is told at a step or a validation.
class Recorder : public TrainingSink {
 public:
  std::vector<StepReport> steps;
  std::vector<ValidationReport> validations;
  std::vector<std::string> notices;
  int best = 0;
  int checkpoints = 0;
  std::function<void(index_t)> at_step = [](index_t) {};
  std::function<void()> at_best = [] {};
  std::function<void()> at_checkpoint = [] {};

  void on_step(const StepReport& r) override {
    steps.push_back(r);
    at_step(r.step);
  }
  void on_validation(const ValidationReport& r) override { validations.push_back(r); }
  void on_notice(const std::string& text) override { notices.push_back(text); }
  void on_best() override {
    ++best;
    at_best();
  }
  void on_checkpoint() override {
    ++checkpoints;
    at_checkpoint();
  }
};

}  // namespace eigenformer::testing
