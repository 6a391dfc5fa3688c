#pragma once

#include <string>
#include <vector>

#include "eigenformer/generation/text/text_translator.hpp"

namespace eigenformer {

/// Translates lines of text with a TextTranslator: one translation for each, empty for a line without a word.
/// What is longer than the model can read is cut.
///
///     auto model = ef::load_model_folder("en-de");
///     auto lines = ef::translate(model, {"I am reading a book."});
///
/// Throws ValueError for impossible options.
template <class M>
std::vector<std::string> translate(
    const LoadedModel<M>& model, const std::vector<std::string>& lines, GenerationOptions options,
    const BatchGenerationOptions& batching = {},
    const Context<detail::ValueOf<M>>& ctx = Context<detail::ValueOf<M>>::inference()) {
  const TextTranslator<M> translator(model, {.search = std::move(options), .batching = batching}, ctx);
  std::vector<std::string> texts;
  for (Translation& translation : translator.translate(lines)) texts.push_back(std::move(translation.text));
  return texts;
}
/// The same as the model's conventions say.
template <class M>
std::vector<std::string> translate(const LoadedModel<M>& model, const std::vector<std::string>& lines) {
  return translate(model, lines, generation_options(model.description));
}

}  // namespace eigenformer
