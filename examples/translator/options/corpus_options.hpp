#pragma once

#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/tokenizers/tokenizer_factory.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace translator {

namespace ef = eigenformer;

/// What `translator train` reads, and how it becomes tokens.
struct CorpusOptions {
  std::string source, target, tsv;
  std::string valid_source, valid_target;
  std::string guided_alignment;
  std::string teacher;
  std::string tokenizer = ef::has_subword_tokenizer() ? "subword" : "word";
  ef::index_t vocab_size = 8000;
  bool separate_vocab = false;
  ef::index_t max_length = 256;

  static void fields(auto& self, auto&& visit) {
    using ef::Allowed;
    using ef::OptionField;
    visit(OptionField{"source", "sentences to translate from, one a line"}, self.source);
    visit(OptionField{"target", "their translations, line by line"}, self.target);
    visit(
        OptionField{"tsv", "in place of both: one file of source, tab, target; further columns are ignored"},
        self.tsv);
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
  }
};

}  // namespace translator
