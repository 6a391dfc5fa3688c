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

// One validation after the other of a model and held-out pairs: the loss of all of them, translations of a
// sample. The measure that decides comes first; what it translated serves the others, too.
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
    report.samples.push_back(translations_.empty() ? sample_.one() : sample_.one(translations_));
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

/// Validation as options.validation asks for it: by the loss of held-out pairs (nats a target token, without
/// dropout and smoothing), by BLEU or chrF of what the model translates of them, or by several of these, one
/// of which decides. Reports have one translation, of the same sentence each time.
///
///     options.loop.validation = ef::validation_of(model, pairs, text, tokenizers, options);
///     ef::Trainer trainer(model, corpus, nullptr, options, sink);
///
/// pairs: `text` as ids, by encode_corpus; of several texts, with conventions of their own, a Mixture. A
/// training that goes on from a saved state must be decided by the same measure; its sample should be the
/// same, since the best so far is a number of the former one. The model and the pairs must outlive it. Throws
/// ValueError for no pair and impossible options.
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
template <class M>
Validation validation_of(const M& model, const PairSource& pairs, const ParallelCorpus& text,
                         const TokenizerPair& tokenizers, const TrainingOptions& options) {
  return validation_of(model, pairs, std::vector<ValidationText>{{text, options.text}}, tokenizers, options);
}

}  // namespace eigenformer
