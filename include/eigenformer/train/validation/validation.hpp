#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/base/stable_sort.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/metrics/chrf.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "eigenformer/train/objectives/loss.hpp"
#include "eigenformer/train/options/options.hpp"
#include "eigenformer/train/reporting/progress.hpp"

namespace eigenformer {

/// Text to validate on, with its conventions, such as a target language's tag.
struct ValidationText {
  ParallelCorpus pairs;     ///< sources and references
  ModelConventions text{};  ///< special tokens around the sentences, and the search
};

namespace detail {

/// Copies at most `most` pairs, evenly spaced over all texts; 0: all pairs. Texts without a sampled pair are
/// left out.
EIGENFORMER_IO_FUNCTION std::vector<ValidationText> spread_sample(const std::vector<ValidationText>& texts,
                                                                  index_t most);

/// Held-out sentence pairs that a model translates during its training, for comparison with the references.
///
/// Translating packs a temporary copy of the current weights and has no effect on the training.
template <class M>
class TranslationSample {
 public:
  /// texts: at least one pair, not empty on either side. beam: beam size; 1: greedy. Translations have at
  /// most twice the tokens of the longest reference plus 10, so that an untrained model does not run up to
  /// the limit. Copies the texts; the model must outlive the sample. Throws ValueError without a pair, and as
  /// TextTranslator does.
  TranslationSample(const M& model, const std::vector<ValidationText>& texts, TokenizerPair tokenizers,
                    index_t beam)
      : model_(model), tokenizers_(std::move(tokenizers)) {
    std::size_t longest = 0;
    for (const ValidationText& text : texts) {
      pairs_.source.insert(pairs_.source.end(), text.pairs.source.begin(), text.pairs.source.end());
      pairs_.target.insert(pairs_.target.end(), text.pairs.target.begin(), text.pairs.target.end());
      for (const std::string& line : text.pairs.target)
        longest = std::max(longest, tokenizers_.target->encode(line).size());
    }
    if (pairs_.size() == 0)
      throw ValueError("validation", "there are no pairs to translate, expected at least one");
    std::size_t end = 0;
    for (const ValidationText& text : texts) {
      Part& part = parts_.emplace_back();
      part.end = end += text.pairs.source.size();
      part.description.model = model.options;
      part.description.text = text.text;
      part.options = text_translator_options(part.description);
      part.options.search.beam_size = beam;
      part.options.search.max_length =
          std::min<index_t>(part.options.search.max_length, 2 * static_cast<index_t>(longest) + 10);
      (void)translator(part, Context<float>::inference());  // throws now rather than at the first validation
    }
  }

  /// The pairs of all texts.
  const ParallelCorpus& pairs() const noexcept { return pairs_; }

  /// Translates all sources with the current weights.
  std::vector<std::string> translate() const { return translate(0, pairs_.source.size()); }

  /// Up to three pairs with their translations by the current weights: those whose sources have the quartiles
  /// of the lengths in bytes. translations: the result of translate(); empty: translates the three.
  std::vector<SampleTranslation> shown(const std::vector<std::string>& translations = {}) const {
    std::vector<SampleTranslation> samples;
    for (const std::size_t i : quartiles()) {
      samples.push_back({pairs_.source[i], pairs_.target[i],
                         translations.empty() ? translate(i, i + 1).front() : translations[i]});
    }
    return samples;
  }

 private:
  // Pairs with the same conventions; they end before pair `end`.
  struct Part {
    FolderDescription<std::remove_cvref_t<decltype(M::options)>> description;
    TextTranslatorOptions options;
    std::size_t end = 0;
  };

  TextTranslator<M> translator(const Part& part, const Context<float>& ctx) const {
    return TextTranslator<M>(model_, tokenizers_, part.description, part.options, ctx);
  }
  std::vector<std::string> translate(std::size_t begin, std::size_t end) const {
    const auto ctx = Context<float>::inference().with_packed_weights(pack_weights(model_));
    std::vector<std::string> texts;
    for (const Part& part : parts_) {
      const std::size_t last = std::min(end, part.end);
      if (begin >= last) continue;
      const std::vector<std::string> lines(pairs_.source.begin() + static_cast<std::ptrdiff_t>(begin),
                                           pairs_.source.begin() + static_cast<std::ptrdiff_t>(last));
      for (Translation& t : translator(part, ctx).translate(lines)) texts.push_back(std::move(t.text));
      begin = last;
    }
    return texts;
  }
  // Numbers of distinct pairs.
  std::vector<std::size_t> quartiles() const {
    const auto order = stable_order(pairs_.source.size(), [&](std::size_t a, std::size_t b) {
      return pairs_.source[a].size() < pairs_.source[b].size();
    });
    std::vector<std::size_t> found;
    for (const std::size_t quarter : {1, 2, 3}) {
      const std::size_t i = order[order.size() * quarter / 4];
      if (std::find(found.begin(), found.end(), i) == found.end()) found.push_back(i);
    }
    return found;
  }

  const M& model_;
  ParallelCorpus pairs_;
  TokenizerPair tokenizers_;
  std::vector<Part> parts_;
};

// Validates a model on held-out pairs: the loss of all of them, and translations of a sample. The deciding
// measure comes first; the others reuse its translations.
template <class M>
class TranslationValidation {
 public:
  TranslationValidation(const M& model, const PairSource& pairs, const std::vector<ValidationText>& texts,
                        const TokenizerPair& tokenizers, const TrainingOptions& options)
      : model_(model),
        pairs_(pairs),
        options_(options.validation),
        batch_tokens_(options.batch_tokens),
        text_(options.text),
        sample_(model, spread_sample(texts, options_.sample), tokenizers, options_.beam) {}

  double measure() {
    translations_.clear();
    return value(options_.by);
  }

  void details(ValidationReport& report) {
    for (const ValidationMeasure measure :
         {ValidationMeasure::loss, ValidationMeasure::bleu, ValidationMeasure::chrf}) {
      if (measure == options_.by || !options_.has(measure)) continue;
      report.others.push_back({word_of(measure), value(measure)});
    }
    report.samples = sample_.shown(translations_);
    translations_.clear();
  }

 private:
  double value(ValidationMeasure measure) {
    if (measure == ValidationMeasure::loss)
      return corpus_loss(model_, pairs_, batch_tokens_, Context<float>::inference(), text_);
    if (translations_.empty()) translations_ = sample_.translate();
    return measure == ValidationMeasure::bleu ? corpus_bleu(translations_, sample_.pairs().target).score
                                              : corpus_chrf(translations_, sample_.pairs().target);
  }

  const M& model_;
  const PairSource& pairs_;
  ValidationOptions options_;
  index_t batch_tokens_;
  TextConventions text_;
  TranslationSample<M> sample_;
  std::vector<std::string> translations_;
};

}  // namespace detail

/// Creates the validation that options.validation describes: the loss of held-out pairs (nats per target
/// token, without dropout and label smoothing), BLEU or chrF (0 to 100) of the model's translations of a
/// sample, or several of these, one of which decides. Reports contain three translations, of the same
/// sentences each time: short, of median length and long.
///
///     options.loop.validation = ef::validation_of(model, pairs, text, tokenizers, options);
///     ef::Trainer trainer(model, corpus, nullptr, options, sink);
///
/// pairs: `texts` as ids, from encode_corpus(); a Mixture for several texts with their own conventions. A
/// resumed training must have the same deciding measure, and should have the same sample: the best value so
/// far was measured on it. The model and the pairs must outlive the result; texts and tokenizers are copied.
/// Throws ValueError without a pair and for invalid options.
template <class M>
Validation validation_of(const M& model, const PairSource& pairs, const std::vector<ValidationText>& texts,
                         const TokenizerPair& tokenizers, const TrainingOptions& options) {
  options.validation.validate();
  const auto validation =
      std::make_shared<detail::TranslationValidation<M>>(model, pairs, texts, tokenizers, options);
  const ValidationMeasure by = options.validation.by;
  return {.measure = [validation] { return validation->measure(); },
          .better = by == ValidationMeasure::loss ? Better::lower : Better::higher,
          .name = word_of(by),
          .data = pairs.fingerprint(),
          .details = [validation](ValidationReport& report) { validation->details(report); }};
}
/// The same for one text, with options.text as its conventions.
template <class M>
Validation validation_of(const M& model, const PairSource& pairs, const ParallelCorpus& text,
                         const TokenizerPair& tokenizers, const TrainingOptions& options) {
  return validation_of(model, pairs, std::vector<ValidationText>{{text, options.text}}, tokenizers, options);
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::vector<ValidationText> spread_sample(const std::vector<ValidationText>& texts,
                                                                  index_t most) {
  index_t n = 0;
  for (const ValidationText& text : texts) n += text.pairs.size();
  const index_t count = most > 0 ? std::min(n, most) : n;
  std::vector<ValidationText> sample;
  index_t begin = 0, k = 0;
  for (const ValidationText& text : texts) {
    ValidationText part{{}, text.text};
    for (; k < count; ++k) {
      const index_t i = k * n / count + n / count / 2 - begin;
      if (i >= text.pairs.size()) break;
      part.pairs.source.push_back(text.pairs.source[static_cast<std::size_t>(i)]);
      part.pairs.target.push_back(text.pairs.target[static_cast<std::size_t>(i)]);
    }
    begin += text.pairs.size();
    if (part.pairs.size() > 0) sample.push_back(std::move(part));
  }
  return sample;
}

}  // namespace eigenformer::detail

#endif
