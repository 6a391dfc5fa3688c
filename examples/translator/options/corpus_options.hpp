#pragma once

#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/sampling/subword_sampling.hpp"
#include "eigenformer/data/tokenizers/tokenizer_factory.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace translator {

namespace ef = eigenformer;

/// What `translator train` reads, and how it becomes tokens.
struct CorpusOptions {
  std::string source, target, tsv, data;  ///< several: line by line
  std::string corpora, corpus_weights;
  double corpus_temperature = 1;
  std::string valid_source, valid_target;
  std::string guided_alignment;
  std::string teacher;
  std::string tokenizer = ef::has_subword_tokenizer() ? "subword" : "word";
  ef::index_t vocab_size = 8000;
  bool separate_vocab = false;
  ef::index_t max_length = 256;
  ef::SubwordSampling sampling{};

  static void fields(auto& self, auto&& visit) {
    using ef::Allowed;
    using ef::OptionField;
    visit(OptionField{"source", "sentences to translate from, one a line; given again: one more corpus"},
          self.source);
    visit(OptionField{"target", "their translations, line by line"}, self.target);
    visit(
        OptionField{"tsv", "in place of both: one file of source, tab, target; further columns are ignored"},
        self.tsv);
    visit(OptionField{"data",
                      "in place of these: the folder that translator prepare wrote, whose tokenizers are "
                      "used"},
          self.data);
    visit(OptionField{"corpora",
                      "in place of these: a JSON list of corpora with weights, tags and target languages"},
          self.corpora);
    visit(OptionField{"corpus_weights",
                      "shares of several corpora in an epoch, such as 3,1; else by their sizes"},
          self.corpus_weights);
    visit(OptionField{"corpus_temperature",
                      "shares by size to the power 1 / this: 1 every pair once, 5 nearer to equal shares",
                      Allowed::positive},
          self.corpus_temperature);
    visit(OptionField{"valid_source", "sentences to validate on; else 1 % of the pairs is held out"},
          self.valid_source);
    visit(OptionField{"valid_target", "their translations"}, self.valid_target);
    visit(OptionField{"guided_alignment",
                      "links between the words of each pair, such as 0-0 1-2, which teach the attention"},
          self.guided_alignment);
    visit(OptionField{"teacher",
                      "folders of models, separated by commas, whose probabilities the model learns, too; a "
                      "new model has their vocabulary"},
          self.teacher);
    visit(OptionField{"tokenizer", "char, word or subword"}, self.tokenizer);
    visit(OptionField{"vocab_size", "entries of a vocabulary at most", Allowed::positive}, self.vocab_size);
    visit(OptionField{"separate_vocab", "a vocabulary for each language, not one for both"},
          self.separate_vocab);
    visit(OptionField{"max_length", "pairs with more tokens on one side are left out", Allowed::positive},
          self.max_length);
    ef::SubwordSampling::fields(self.sampling, visit);
  }
};

}  // namespace translator
