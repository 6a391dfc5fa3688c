#pragma once

#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/nn/options/field.hpp"
#include "translator/preparing/prepare_options.hpp"

namespace translator {

namespace ef = eigenformer;

/// The data of `translator train`, and how it is tokenized.
struct CorpusOptions {
  std::string source, target, tsv, data;  ///< several corpora: separated by line ends
  std::string corpora, corpus_weights;
  double corpus_temperature = 1;
  std::string valid_source, valid_target;
  std::string guided_alignment;
  std::string teacher;
  std::string tokenizer = ef::has_subword_tokenizer() ? "subword" : "word";
  ef::index_t vocab_size = 0;
  bool separate_vocab = false;
  ef::index_t max_length = 256;
  ef::SubwordSampling sampling{};

  static void fields(auto& self, auto&& visit) {
    using ef::Allowed;
    using ef::OptionField;
    visit(OptionField{"source", "source sentences, one per line; repeat for more corpora"}, self.source);
    visit(OptionField{"target", "their translations, line by line"}, self.target);
    visit(OptionField{"tsv",
                      "one file of source, tab, target per line, instead of source and target; further "
                      "columns are ignored"},
          self.tsv);
    visit(
        OptionField{"data", "folder written by translator prepare, instead of text; its tokenizers are used"},
        self.data);
    visit(OptionField{"corpora", "JSON list of corpora with weights, tags and target languages"},
          self.corpora);
    visit(OptionField{"corpus_weights",
                      "weights of several corpora in an epoch, such as 3,1; not given: by size"},
          self.corpus_weights);
    visit(OptionField{"corpus_temperature",
                      "weight corpora by size to the power 1 / temperature: 1 uses every pair once, 5 makes "
                      "the shares more equal",
                      Allowed::positive},
          self.corpus_temperature);
    visit(OptionField{"valid_source",
                      "source sentences of the validation data; not given: 1 % of the pairs, at most 1000, "
                      "is held out"},
          self.valid_source);
    visit(OptionField{"valid_target", "target sentences of the validation data"}, self.valid_target);
    visit(
        OptionField{
            "guided_alignment",
            "file of links between the words of each pair, such as 0-0 1-2, that guide the attention"},
        self.guided_alignment);
    visit(OptionField{"teacher",
                      "comma-separated model folders for knowledge distillation: the model also learns their "
                      "probabilities; a new model takes their vocabulary"},
          self.teacher);
    ef::detail::vocabulary_fields(self, visit);
    visit(OptionField{"max_length", "drop pairs with more tokens on one side", Allowed::positive},
          self.max_length);
    ef::SubwordSampling::fields(self.sampling, visit);
  }
};

}  // namespace translator
