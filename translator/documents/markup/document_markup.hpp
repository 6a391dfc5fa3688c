#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "translator/documents/document_translator.hpp"
#include "translator/documents/markup/translate_markup.hpp"

namespace eigenformer {

/// An AlignedTranslator that uses a DocumentTranslator: it translates the sentences of all texts together; no
/// sentence spans two texts. Without alignments in the translations, words are aligned in proportion to their
/// positions. `documents` must outlive the result.
inline AlignedTranslator aligned_translator(const DocumentTranslator& documents) {
  return [&documents](const std::vector<std::string>& texts) {
    std::string all;
    std::vector<std::size_t> begins;
    for (const std::string& text : texts) {
      begins.push_back(all.size());
      all += text + '\n';
    }
    const DocumentTranslation translated = documents.translate(all, begins);
    std::vector<AlignedText> out(texts.size());
    std::size_t i = 0, first = 0;  // the text, and where its translation begins
    for (std::size_t k = 0; k < translated.sentences.size(); ++k) {
      DocumentSentence sentence = translated.sentences[k];
      const bool next = i + 1 < begins.size() && sentence.source.begin >= begins[i + 1];
      while (i + 1 < begins.size() && sentence.source.begin >= begins[i + 1]) ++i;
      if (next || k == 0) first = sentence.target.begin;
      out[i].text = translated.text.substr(first, sentence.target.end - first);
      sentence.source = {sentence.source.begin - begins[i], sentence.source.end - begins[i]};
      sentence.target = {sentence.target.begin - first, sentence.target.end - first};
      if (const auto& alignment = sentence.translation.alignment)
        detail::append_alignment(out[i].alignment, *alignment, sentence);
    }
    return out;
  };
}

/// Translates a document with markup by a DocumentTranslator. For HTML and XML, where line breaks are white
/// space, use DocumentLayout::flow, and a TextTranslator whose options have an alignment. Throws as the
/// overload with an AlignedTranslator.
inline std::string translate_markup(std::string_view document, const MarkupOptions& options,
                                    const DocumentTranslator& documents) {
  return translate_markup(document, options, aligned_translator(documents));
}

}  // namespace eigenformer
