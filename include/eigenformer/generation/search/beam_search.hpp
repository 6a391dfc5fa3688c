#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/generation/decoding/incremental_decoder.hpp"
#include "eigenformer/generation/search/options.hpp"
#include "eigenformer/kernels/reduction/top_k.hpp"

namespace eigenformer {

namespace detail {

// The search for one sentence: hypotheses still growing, and those that have ended.
struct SentenceSearch {
  index_t input = 0;
  std::vector<Hypothesis> growing;   // the best first
  std::vector<Hypothesis> finished;  // the best first
  bool best_ended = false;           // whether the best of a beam has ended

  void finish(Hypothesis h, index_t length, const GenerationOptions& options, bool ended) {
    h.score = hypothesis_score(h.log_probability, length, options);
    h.finished = ended;
    const auto better = [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; };
    finished.insert(std::upper_bound(finished.begin(), finished.end(), h, better), std::move(h));
    // The worst of those that are kept is what the others have to beat.
    if (options.rule == SearchRule::huggingface &&
        static_cast<index_t>(finished.size()) > options.beam_size) {
      finished.pop_back();
    }
  }

  // Without a length penalty scores only fall, so the best finished ones may be final while others still
  // grow. With one, a longer hypothesis may overtake, and the search goes on until a beam's worth has ended.
  // (Where the model is sure, that may all be leftovers that end early: so the best one growing must not beat
  // what there is by ending next.)
  bool done(index_t length, const GenerationOptions& options) const {
    if (growing.empty()) return true;
    const bool full = static_cast<index_t>(finished.size()) >= options.beam_size;
    if (options.early_stopping && full) return true;
    if (options.rule == SearchRule::huggingface) {
      return full &&
             finished.back().score >= hypothesis_score(growing.front().log_probability, length, options);
    }
    if (options.rule == SearchRule::ctranslate2) {
      return options.length_penalty == 0
                 ? best_ended && static_cast<index_t>(finished.size()) >= options.num_hypotheses
                 : full;
    }
    const index_t enough = options.length_penalty == 0 ? options.num_hypotheses : options.beam_size;
    if (static_cast<index_t>(finished.size()) < enough) return false;
    return finished[static_cast<std::size_t>(options.num_hypotheses - 1)].score >=
           growing.front().log_probability / length_penalty(length + 1, options.length_penalty);
  }

  // Ended hypotheses come before those that max_length cut off.
  std::vector<Hypothesis> result(index_t length, const GenerationOptions& options) && {
    std::vector<Hypothesis> best = std::move(finished);
    SentenceSearch rest;
    if (static_cast<index_t>(best.size()) < options.num_hypotheses) {
      for (Hypothesis& h : growing) rest.finish(std::move(h), length, options, false);
      std::move(rest.finished.begin(), rest.finished.end(), std::back_inserter(best));
    }
    if (static_cast<index_t>(best.size()) > options.num_hypotheses) {
      best.resize(static_cast<std::size_t>(options.num_hypotheses));
    }
    return best;
  }
};

// One way to go on: hypothesis `parent` of the sentence with one more token.
struct Continuation {
  double log_probability;
  std::size_t parent;
  std::int32_t id;
};

inline void require_token(const char* what, std::int32_t id, index_t vocabulary) {
  if (id >= 0 && id < vocabulary) return;
  throw ValueError("generation", std::string(what) + " must be below the vocabulary's size " +
                                     std::to_string(vocabulary) + ", one is " + std::to_string(id));
}

// The tokens that would end a second occurrence of some n tokens in a row: those that followed the last n - 1
// before.
inline void find_repeating(const std::vector<std::int32_t>& first, const std::vector<std::int32_t>& rest,
                           index_t n, std::vector<std::int32_t>& found) {
  found.clear();
  const auto length = static_cast<index_t>(first.size() + rest.size());
  const auto at = [&](index_t i) {
    const auto k = static_cast<std::size_t>(i);
    return k < first.size() ? first[k] : rest[k - first.size()];
  };
  for (index_t end = n - 1; n > 0 && end < length; ++end) {
    index_t same = 0;
    while (same < n - 1 && at(end - 1 - same) == at(length - 1 - same)) ++same;
    if (same == n - 1) found.push_back(at(end));
  }
}

// Which tokens each row of logits may not go on with: one row for each hypothesis that still grows.
class ForbiddenTokens {
 public:
  ForbiddenTokens(const GenerationOptions& options, const std::vector<std::int32_t>& first)
      : options_(options), first_(first) {}

  void start(const std::vector<SentenceSearch>& searches, index_t length) {
    early_ = length < options_.min_length;
    most_ = 0;
    if (options_.no_repeat_ngram_size == 0) return;
    std::size_t row = 0;
    for (const SentenceSearch& search : searches) {
      for (const Hypothesis& h : search.growing) {
        if (row == repeating_.size()) repeating_.emplace_back();
        find_repeating(first_, h.ids, options_.no_repeat_ngram_size, repeating_[row]);
        most_ = std::max(most_, static_cast<index_t>(repeating_[row++].size()));
      }
    }
  }

  /// Of as many continuations of a row, this many may be forbidden.
  index_t most() const { return static_cast<index_t>(options_.forbidden_ids.size()) + 1 + most_; }

  bool contains(std::size_t row, std::int32_t id) const {
    const auto in = [id](const std::vector<std::int32_t>& ids) {
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    return in(options_.forbidden_ids) || (early_ && id == options_.end_id) ||
           (options_.no_repeat_ngram_size > 0 && in(repeating_[row]));
  }

  // CTranslate2 normalises what is left.
  template <class T>
  void take_out(Tensor<T> logits) const {
    for (index_t r = 0; r < logits.dim(0); ++r) {
      const auto take = [&](std::int32_t id) {
        if (id >= 0 && id < logits.dim(1))
          logits.data()[r * logits.dim(1) + id] = std::numeric_limits<T>::lowest();
      };
      for (const std::int32_t id : options_.forbidden_ids) take(id);
      if (early_) take(options_.end_id);
      if (options_.no_repeat_ngram_size == 0) continue;
      for (const std::int32_t id : repeating_[static_cast<std::size_t>(r)]) take(id);
    }
  }

 private:
  const GenerationOptions& options_;
  const std::vector<std::int32_t>& first_;
  std::vector<std::vector<std::int32_t>> repeating_;  // of each row
  index_t most_ = 0;
  bool early_ = false;
};

// The last of every n rows: (H n, D) -> (H, D).
template <class T>
Var<T> last_rows(const Var<T>& x, index_t n) {
  if (n == 1) return x;
  const index_t count = x.dim(0) / n, d = x.dim(1);
  Tensor<T> y(Shape{count, d});
  for (index_t i = 0; i < count; ++i)
    std::copy_n(x.value().data() + ((i + 1) * n - 1) * d, d, y.data() + i * d);
  return Var<T>(std::move(y));
}

}  // namespace detail

/// Finds the best target sentences for encoded sources, all at once, with a key/value cache.
///
/// A sentence gets the same result alone and in any batch. Beam size 1 is greedy search. Returns, for each
/// sequence of memory, options.num_hypotheses sentences or as many as there are, the best first. Throws
/// ValueError for impossible options. Wu et al. 2016, section 7.
template <class T>
std::vector<std::vector<Hypothesis>> beam_search(const Seq2SeqTransformer<T>& model, const Context<T>& ctx,
                                                 const Memory<T>& memory, const GenerationOptions& options) {
  options.validate();
  const index_t batch = memory.layout.batch();
  const index_t vocabulary = model.options.target_size();
  std::vector<std::int32_t> first_ids = {options.begin_id};
  first_ids.insert(first_ids.end(), options.prefix_ids.begin(), options.prefix_ids.end());
  for (const std::int32_t id : first_ids) detail::require_token("begin_id and prefix_ids", id, vocabulary);
  detail::require_token("end_id", options.end_id, vocabulary);
  std::vector<std::vector<Hypothesis>> results(static_cast<std::size_t>(batch));
  std::vector<detail::SentenceSearch> searches(static_cast<std::size_t>(batch));
  for (index_t b = 0; b < batch; ++b) {
    searches[static_cast<std::size_t>(b)].input = b;
    searches[static_cast<std::size_t>(b)].growing.emplace_back();
  }
  if (batch == 0) return results;

  IncrementalDecoder<T> decoder(model, ctx, memory);
  Tensor<std::int32_t> ids(Shape{batch, static_cast<index_t>(first_ids.size())});
  for (index_t b = 0; b < batch; ++b)
    std::copy(first_ids.begin(), first_ids.end(), ids.data() + b * ids.dim(1));
  // Of 2 beams' worth of continuations at most half end; forbidden ones and a premature end are passed over.
  const index_t wanted = 2 * options.beam_size;
  detail::ForbiddenTokens forbidden(options, first_ids);
  std::vector<T> values;
  std::vector<std::int32_t> best_ids;
  std::vector<detail::Continuation> continuations;
  std::vector<std::int32_t> parents, next_ids;

  for (index_t t = 0; t < options.max_length && !searches.empty(); ++t) {
    const bool last = t + 1 == options.max_length;
    const Var<T> decoded = decoder.step(ids, nullptr, t == 0 ? options.prefix_length : 0);
    const Var<T> logits = model.logits(ctx, detail::last_rows(decoded, ids.rank() == 2 ? ids.dim(1) : 1));
    const index_t rows = logits.dim(0);
    forbidden.start(searches, t);
    if (options.rule == SearchRule::ctranslate2) forbidden.take_out(logits.value());
    const index_t k = std::min(vocabulary, wanted + forbidden.most());
    values.resize(static_cast<std::size_t>(rows * k));
    best_ids.resize(values.size());
    kernels::log_softmax_top_k<T>(logits.value().data(), vocabulary, rows, vocabulary, k, values.data(),
                                  best_ids.data());

    parents.clear();
    next_ids.clear();
    std::size_t row = 0;
    for (detail::SentenceSearch& search : searches) {
      continuations.clear();
      const std::size_t first_row = row;
      for (std::size_t h = 0; h < search.growing.size(); ++h, ++row) {
        if (last && options.force_end) {
          continuations.push_back({search.growing[h].log_probability, h, options.end_id});
          continue;
        }
        for (std::size_t i = row * static_cast<std::size_t>(k); i < (row + 1) * static_cast<std::size_t>(k);
             ++i) {
          const std::int32_t id = best_ids[i];
          if (!forbidden.contains(row, id)) {
            continuations.push_back(
                {search.growing[h].log_probability + static_cast<double>(values[i]), h, id});
          }
        }
      }
      if (continuations.empty()) {  // all is forbidden: what there is, is all
        results[static_cast<std::size_t>(search.input)] =
            std::move(search).result(std::max<index_t>(1, t), options);
        search.input = -1;
        continue;
      }
      const std::size_t kept = std::min<std::size_t>(continuations.size(), static_cast<std::size_t>(wanted));
      std::partial_sort(continuations.begin(), continuations.begin() + static_cast<std::ptrdiff_t>(kept),
                        continuations.end(), [](const auto& a, const auto& b) {
                          if (a.log_probability != b.log_probability)
                            return a.log_probability > b.log_probability;
                          return a.parent != b.parent ? a.parent < b.parent : a.id < b.id;
                        });
      std::vector<Hypothesis> next;
      const std::size_t parents_before = parents.size();
      // By the other libraries' rules, what is in the beam at the last step is what the search has found.
      const bool cut = last && options.rule != SearchRule::gnmt;
      const std::size_t considered = cut ? std::min(kept, static_cast<std::size_t>(options.beam_size)) : kept;
      // CTranslate2 lets nothing but the best continuation end a forced prefix, and gives the place of others
      // away.
      const bool after_prefix =
          t == 0 && options.rule == SearchRule::ctranslate2 && !options.prefix_ids.empty();
      index_t places = options.beam_size;
      for (std::size_t i = 0; i < considered && static_cast<index_t>(next.size()) < places; ++i) {
        const detail::Continuation& c = continuations[i];
        Hypothesis h = search.growing[c.parent];
        h.log_probability = c.log_probability;
        if (c.id == options.end_id && after_prefix && i > 0) {
          --places;
          continue;
        }
        if (c.id == options.end_id) {
          // An end outside the beam would not have survived as a hypothesis either.
          search.best_ended = search.best_ended || i == 0;
          if (static_cast<index_t>(i) < options.beam_size) search.finish(std::move(h), t + 1, options, true);
          continue;
        }
        h.ids.push_back(c.id);
        if (cut) {
          search.finish(std::move(h), t + 1, options, false);
          continue;
        }
        next.push_back(std::move(h));
        parents.push_back(static_cast<std::int32_t>(first_row + c.parent));
        next_ids.push_back(c.id);
      }
      search.growing = std::move(next);
      if (search.done(t + 1, options)) {
        parents.resize(parents_before);
        next_ids.resize(parents_before);
        results[static_cast<std::size_t>(search.input)] = std::move(search).result(t + 1, options);
        search.input = -1;
      }
    }
    std::erase_if(searches, [](const detail::SentenceSearch& s) { return s.input < 0; });
    if (searches.empty() || last) break;
    decoder.reorder(parents);
    ids = Tensor<std::int32_t>::from(Shape{static_cast<index_t>(next_ids.size())}, next_ids);
  }
  for (detail::SentenceSearch& search : searches) {
    results[static_cast<std::size_t>(search.input)] = std::move(search).result(options.max_length, options);
  }
  return results;
}

EIGENFORMER_INSTANCE(std::vector<std::vector<Hypothesis>> beam_search(
    const Seq2SeqTransformer<float>&, const Context<float>&, const Memory<float>&, const GenerationOptions&))
EIGENFORMER_INSTANCE(std::vector<std::vector<Hypothesis>> beam_search(const Seq2SeqTransformer<double>&,
                                                                      const Context<double>&,
                                                                      const Memory<double>&,
                                                                      const GenerationOptions&))

}  // namespace eigenformer
