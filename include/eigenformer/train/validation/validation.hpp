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

/// Validates a model on held-out pairs: the loss of all of them, and translations of a sample. The deciding
/// measure comes first; the others reuse its translations.
///
/// Translating packs a temporary copy of the current weights and has no effect on the training.
template <class M>
class TranslationValidation {
 public:
  /// texts: at least one pair, not empty on either side. Translations have at most twice the tokens of the
  /// longest reference plus 10, so that an untrained model does not run up to the limit. Copies the sample;
  /// the model and the pairs must outlive it. Throws ValueError without a pair, and as TextTranslator does.
  TranslationValidation(const M& model, const PairSource& pairs, const std::vector<ValidationText>& texts,
                        TokenizerPair tokenizers, const TrainingOptions& options)
      : model_(model),
        pairs_(pairs),
        options_(options.validation),
        batch_tokens_(options.batch_tokens),
        text_(options.text),
        tokenizers_(std::move(tokenizers)) {
    const std::vector<ValidationText> sample = spread_sample(texts, options_.sample);
    std::size_t longest = 0;
    for (const ValidationText& text : sample) {
      sample_.source.insert(sample_.source.end(), text.pairs.source.begin(), text.pairs.source.end());
      sample_.target.insert(sample_.target.end(), text.pairs.target.begin(), text.pairs.target.end());
      for (const std::string& line : text.pairs.target)
        longest = std::max(longest, tokenizers_.target->encode(line).size());
    }
    if (sample_.size() == 0)
      throw ValueError("validation", "there are no pairs to translate, expected at least one");
    std::size_t end = 0;
    for (const ValidationText& text : sample) {
      Part& part = parts_.emplace_back();
      part.end = end += text.pairs.source.size();
      part.description.model = model.options;
      part.description.text = text.text;
      part.options = text_translator_options(part.description);
      part.options.search.beam_size = options_.beam;
      part.options.search.max_length =
          std::min<index_t>(part.options.search.max_length, 2 * static_cast<index_t>(longest) + 10);
      (void)translator(part, Context<float>::inference());  // throws now rather than at the first validation
    }
  }

  double measure() {
    translations_.clear();
    return value(options_.by);
  }

  // Adds the other measures, and up to three translations: of the sources that have the quartiles of the
  // lengths in bytes.
  void details(ValidationReport& report) {
    for (const ValidationMeasure measure :
         {ValidationMeasure::loss, ValidationMeasure::bleu, ValidationMeasure::chrf}) {
      if (measure == options_.by || !options_.has(measure)) continue;
      report.others.push_back({word_of(measure), value(measure)});
    }
    for (const std::size_t i : quartiles()) {
      report.samples.push_back({sample_.source[i], sample_.target[i],
                                translations_.empty() ? translate(i, i + 1).front() : translations_[i]});
    }
    translations_.clear();
  }

 private:
  // Sampled pairs with the same conventions; they end before pair `end`.
  struct Part {
    FolderDescription<std::remove_cvref_t<decltype(M::options)>> description;
    TextTranslatorOptions options;
    std::size_t end = 0;
  };

  double value(ValidationMeasure measure) {
    if (measure == ValidationMeasure::loss)
      return corpus_loss(model_, pairs_, batch_tokens_, Context<float>::inference(), text_);
    if (translations_.empty()) translations_ = translate(0, sample_.source.size());
    return measure == ValidationMeasure::bleu ? corpus_bleu(translations_, sample_.target).score
                                              : corpus_chrf(translations_, sample_.target);
  }
  TextTranslator<M> translator(const Part& part, const Context<float>& ctx) const {
    return TextTranslator<M>(model_, tokenizers_, part.description, part.options, ctx);
  }
  // Translates sampled sources [begin, end) with the current weights.
  std::vector<std::string> translate(std::size_t begin, std::size_t end) const {
    const auto ctx = Context<float>::inference().with_packed_weights(pack_weights(model_));
    std::vector<std::string> texts;
    for (const Part& part : parts_) {
      const std::size_t last = std::min(end, part.end);
      if (begin >= last) continue;
      const std::vector<std::string> lines(sample_.source.begin() + static_cast<std::ptrdiff_t>(begin),
                                           sample_.source.begin() + static_cast<std::ptrdiff_t>(last));
      for (Translation& t : translator(part, ctx).translate(lines)) texts.push_back(std::move(t.text));
      begin = last;
    }
    return texts;
  }
  // Numbers of distinct pairs.
  std::vector<std::size_t> quartiles() const {
    const auto order = stable_order(sample_.source.size(), [&](std::size_t a, std::size_t b) {
      return sample_.source[a].size() < sample_.source[b].size();
    });
    std::vector<std::size_t> found;
    for (const std::size_t quarter : {1, 2, 3}) {
      const std::size_t i = order[order.size() * quarter / 4];
      if (std::find(found.begin(), found.end(), i) == found.end()) found.push_back(i);
    }
    return found;
  }

  const M& model_;
  const PairSource& pairs_;
  ValidationOptions options_;
  index_t batch_tokens_;
  TextConventions text_;
  TokenizerPair tokenizers_;
  ParallelCorpus sample_;
  std::vector<Part> parts_;
  std::vector<std::string> translations_;  // of the sample, until the validation is over
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
