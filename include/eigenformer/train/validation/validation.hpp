#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/train/objectives/loss.hpp"
#include "eigenformer/train/options.hpp"
#include "eigenformer/train/validation/translation_sample.hpp"

namespace eigenformer {

namespace detail {

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
      report.others.push_back({name_of(measure), value(measure)});
    }
    report.samples = sample_.shown(translations_);
    translations_.clear();
  }

  static std::string name_of(ValidationMeasure measure) {
    return EnumNames<ValidationMeasure>::names[static_cast<std::size_t>(measure)];
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
          .name = detail::TranslationValidation<M>::name_of(by),
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
