#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/generation/text/text_translator.hpp"
#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/metrics/chrf.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/train/loop/progress.hpp"

namespace eigenformer {

/// Every so manieth pair of a corpus: `most` of them, or all; 0: all.
inline ParallelCorpus spread_sample(const ParallelCorpus& corpus, index_t most) {
  const index_t n = corpus.size();
  const index_t count = most > 0 ? std::min(n, most) : n;
  ParallelCorpus sample;
  for (index_t k = 0; k < count; ++k) {
    const auto i = static_cast<std::size_t>(k * n / count + n / count / 2);
    sample.source.push_back(corpus.source[i]);
    sample.target.push_back(corpus.target[i]);
  }
  return sample;
}

/// Sentence pairs that a model translates while it is being trained, to be compared with their references.
///
/// Translating packs a copy of the weights as they are and gives it back; the training that goes on
/// afterwards has the bits that it would have had without.
template <class M>
class TranslationSample {
 public:
  /// pairs: at least one, with words on both sides. beam: of the search; 1: greedy. Translations end at twice
  /// the tokens of the longest reference and ten more, so that a model which knows nothing yet does not take
  /// its time. The model must outlive this. Throws ValueError for no pair, and as TextTranslator does.
  TranslationSample(const M& model, ParallelCorpus pairs, TokenizerPair tokenizers,
                    const TextConventions& text, index_t beam)
      : model_(model), pairs_(std::move(pairs)), tokenizers_(std::move(tokenizers)) {
    if (pairs_.size() == 0)
      throw ValueError("validation", "there is no pair to translate, must be at least one");
    description_.model = model.options;
    description_.text = text;
    options_ = text_translator_options(description_);
    options_.search.beam_size = beam;
    std::size_t longest = 0;
    for (const std::string& line : pairs_.target)
      longest = std::max(longest, tokenizers_.target->encode(line).size());
    options_.search.max_length =
        std::min<index_t>(options_.search.max_length, 2 * static_cast<index_t>(longest) + 10);
    (void)translator(Context<float>::inference());  // refuses now what it would refuse later
  }

  const ParallelCorpus& pairs() const noexcept { return pairs_; }

  /// What the model makes of the sources now.
  std::vector<std::string> translate() const { return translate(pairs_.source); }

  /// The pair whose source has the median length, with its translation by the model now.
  SampleTranslation one() const {
    const std::size_t i = median();
    return {pairs_.source[i], pairs_.target[i], translate({pairs_.source[i]}).front()};
  }
  /// The same with a translation that translate() has made.
  SampleTranslation one(const std::vector<std::string>& translations) const {
    const std::size_t i = median();
    return {pairs_.source[i], pairs_.target[i], translations[i]};
  }

 private:
  TextTranslator<M> translator(const Context<float>& ctx) const {
    return TextTranslator<M>(model_, tokenizers_, description_, options_, ctx);
  }
  std::vector<std::string> translate(const std::vector<std::string>& lines) const {
    const auto ctx = Context<float>::inference().with_packed_weights(pack_weights(model_));
    std::vector<std::string> texts;
    for (Translation& t : translator(ctx).translate(lines)) texts.push_back(std::move(t.text));
    return texts;
  }
  std::size_t median() const {
    std::vector<std::size_t> order(pairs_.source.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return pairs_.source[a].size() < pairs_.source[b].size();
    });
    return order[order.size() / 2];
  }

  const M& model_;
  ParallelCorpus pairs_;
  TokenizerPair tokenizers_;
  FolderDescription<std::remove_cvref_t<decltype(M::options)>> description_;
  TextTranslatorOptions options_;
};

}  // namespace eigenformer
