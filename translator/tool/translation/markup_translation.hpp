#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/data/text/utf8.hpp"
#include "model/decoding_model.hpp"
#include "terminal/line_reader.hpp"
#include "terminal/result_output.hpp"
#include "translate_options.hpp"
#include "translator/documents/document_translator.hpp"
#include "translator/documents/markup/translate_markup.hpp"

namespace translator {

/// A line's translations with its placeholders restored. Scores and words are those of the model's own
/// output.
inline void protect_placeholders(const std::string& line, std::vector<ef::Translation>& translations) {
  constexpr auto format = ef::MarkupFormat::text;
  const ef::detail::MarkupDocument read = ef::detail::read_markup(line, format, true);
  if (read.segments.empty() || read.segments[0].pieces.empty()) return;
  for (ef::Translation& translation : translations) {
    ef::AlignedText aligned{translation.text, {}};
    if (translation.alignment != nullptr) aligned.alignment = *translation.alignment;
    translation.text = ef::detail::restore_markup(read.segments[0], format, aligned);
  }
}

/// Describes the glossary terms that a translation lacks: "the term 'dog', and its translation does not have
/// 'Hund'".
inline std::vector<std::string> missed_terms(const ef::Translation& translation) {
  std::vector<std::string> missed;
  for (const ef::TermOutcome& term : translation.terms) {
    if (term.honoured) continue;
    std::string wanted;
    for (const std::string& target : term.targets) wanted += (wanted.empty() ? "'" : " or '") + target + "'";
    missed.push_back("the term '" + term.source + "', but its translation does not have " + wanted);
  }
  return missed;
}

/// Translates the whole input as one HTML or XML document.
inline void translate_markup_document(const TranslateOptions& options) {
  options.set_threads();
  const DecodingModels models(options.folders, options.adapter, options.target_language);
  // The document is split here, its sentences are translated as they are.
  ef::TextTranslatorOptions used = options.for_results(models, options.output_format());
  const ef::DocumentOptions reading{.layout = ef::DocumentLayout::flow, .splitter = used.splitting->splitter};
  used.splitting = ef::DocumentOptions{.layout = ef::DocumentLayout::flow};
  const SentenceTranslator translator = sentence_translator(models, std::move(used));
  const ef::DocumentTranslator documents(
      [&translator](std::span<const std::string> sentences) {
        auto translations = translator.alternatives(sentences);
        for (const auto& of_sentence : translations) {
          for (const std::string& missed : missed_terms(of_sentence.front()))
            std::fprintf(stderr, "translator: the document has %s\n", missed.c_str());
        }
        return translations;
      },
      reading, [&translator](const std::string& line) { return !translator.prepare(line).cut; });
  ResultOutput output(options.output);
  LineReader reader(options.input);
  std::string document = reader.rest();
  if (options.replaces_invalid) document = ef::valid_utf8(document);
  if (const auto wrong = ef::detail::find_invalid_utf8(document)) {
    throw ef::IoError("translate",
                      {reader.name(), " has invalid UTF-8 at byte ", *wrong + 1, "; expected text in UTF-8"});
  }
  if (document.find('<') == std::string::npos) {
    std::fprintf(stderr,
                 "translator: %s has no markup; with --input-format %s it is one paragraph, without it each "
                 "line is translated for itself\n",
                 reader.name().c_str(), options.input_format.c_str());
  }
  output.write(ef::translate_markup(document, {options.markup()}, documents));
  output.finish();
}

}  // namespace translator
