#pragma once

#include <string>
#include <vector>

#include "eigenformer/search/text/text_translator.hpp"

namespace eigenformer {

namespace detail {

template <class M>
std::vector<std::string> best_texts(const TextTranslator<M>& translator,
                                    const std::vector<std::string>& lines) {
  std::vector<std::string> texts;
  for (Translation& translation : translator.translate(lines)) texts.push_back(std::move(translation.text));
  return texts;
}

}  // namespace detail

/// Translates lines of text with a TextTranslator. Returns one translation per line, empty for a blank line.
/// Lines of several sentences, and lines that are too long for the model, are translated in parts, as
/// TextTranslator does.
///
///     auto model = ef::load_model_folder("en-de");
///     auto lines = ef::translate(model, {"I am reading a book."});
///
/// Throws ValueError for invalid options and as TextTranslator::alternatives().
template <class M>
std::vector<std::string> translate(
    const LoadedModel<M>& model, const std::vector<std::string>& lines, SearchOptions options,
    const BatchSearchOptions& batching = {},
    const Context<detail::ValueOf<M>>& ctx = Context<detail::ValueOf<M>>::inference()) {
  const TextTranslator<M> translator(model, {.search = std::move(options), .batching = batching}, ctx);
  return detail::best_texts(translator, lines);
}
/// The same with the options of the model's conventions.
template <class M>
std::vector<std::string> translate(const LoadedModel<M>& model, const std::vector<std::string>& lines) {
  return translate(model, lines, search_options(model.description));
}
/// The same for a model and tokenizers that are not in one LoadedModel, with the default conventions (see
/// SpecialIds): one trained in this program, for example. Throws ValueError without tokenizers, too.
///
///     auto lines = ef::translate(model, tokenizers, {"I am reading a book."});
template <GenerativeModel M>
std::vector<std::string> translate(
    const M& model, const TokenizerPair& tokenizers, const std::vector<std::string>& lines,
    SearchOptions options = {}, const BatchSearchOptions& batching = {},
    const Context<detail::ValueOf<M>>& ctx = Context<detail::ValueOf<M>>::inference()) {
  const TextTranslator<M> translator(model, tokenizers, {.model = model.options},
                                     {.search = std::move(options), .batching = batching}, ctx);
  return detail::best_texts(translator, lines);
}

EIGENFORMER_IO_INSTANCE(class TextTranslator<Seq2SeqTransformer<float>>)
EIGENFORMER_IO_INSTANCE(std::vector<std::string> translate(const LoadedModel<Seq2SeqTransformer<float>>&,
                                                           const std::vector<std::string>&))

}  // namespace eigenformer
