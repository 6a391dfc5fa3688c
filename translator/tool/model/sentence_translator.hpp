#pragma once

#include <utility>

#include "decoding_model.hpp"
#include "eigenformer/search/text/text_translator.hpp"

// Search and sampling are compiled once, in sentence_translator.cpp, instead of in every command.
namespace eigenformer {
extern template class TextTranslator<Ensemble<Seq2SeqTransformer<float>>>;
}  // namespace eigenformer

namespace translator {

using SentenceTranslator = eigenformer::TextTranslator<eigenformer::Ensemble<Model>>;

/// A translator of loaded models.
inline SentenceTranslator sentence_translator(const DecodingModels& models,
                                              eigenformer::TextTranslatorOptions options) {
  return {models.ensemble(), models.tokenizers(), models.description(), std::move(options)};
}

}  // namespace translator
