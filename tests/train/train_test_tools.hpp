#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/train/trainer.hpp"
#include "recorder.hpp"

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
template <class M>
auto weights_of(const M& model) {
  std::vector<typename M::value_type> all;
  for_each_parameter(model, [&](const std::string&, const auto& p) {
    all.insert(all.end(), p.value().span().begin(), p.value().span().end());
  });
  return all;
}

/// The first value of the parameter with this name.
template <class M>
auto& first_value(M& model, const std::string& wanted) {
  typename M::value_type* found = nullptr;
  for_each_parameter(model, [&](const std::string& name, auto& p) {
    if (name == wanted) found = p.value().data();
  });
  if (found == nullptr) throw ValueError("test", {"no parameter is named ", wanted});
  return *found;
}

}  // namespace eigenformer::testing
