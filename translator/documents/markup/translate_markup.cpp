#include "translator/documents/markup/translate_markup.hpp"

#include <cstddef>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/document_translator.hpp"

namespace eigenformer {

namespace {

void move_spans(std::vector<ByteSpan>& spans, std::size_t by) {
  for (ByteSpan& span : spans) span = {span.begin + by, span.end + by};
}

}  // namespace

std::string translate_markup(std::string_view document, const MarkupOptions& options,
                             const AlignedTranslator& translate) {
  const detail::MarkupDocument read = detail::read_markup(document, options.format, options.protect);
  std::vector<std::string> texts;
  std::vector<std::size_t> leading;
  for (const detail::MarkupSegment& segment : read.segments) {
    texts.push_back(trim(segment.text));
    leading.push_back(segment.text.find(texts.back()));
  }
  std::vector<AlignedText> translations = texts.empty() ? std::vector<AlignedText>() : translate(texts);
  if (translations.size() != texts.size()) {
    throw ValueError("translate_markup",
                     {"the translator returned ", translations.size(), " translations of ", texts.size(),
                      " texts, expected one for each"});
  }
  std::string out;
  for (std::size_t i = 0; i < read.segments.size(); ++i) {
    const detail::MarkupSegment& segment = read.segments[i];
    AlignedText& translation = translations[i];
    const std::string& whole = segment.text;
    translation.text =
        whole.substr(0, leading[i]) + translation.text + whole.substr(leading[i] + texts[i].size());
    move_spans(translation.alignment.source, leading[i]);
    move_spans(translation.alignment.target, leading[i]);
    out += segment.before;
    out += detail::restore_markup(segment, options.format, translation);
  }
  out += read.after;
  return out;
}

AlignedTranslator aligned_translator(const DocumentTranslator& documents) {
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

std::string translate_markup(std::string_view document, const MarkupOptions& options,
                             const DocumentTranslator& documents) {
  return translate_markup(document, options, aligned_translator(documents));
}

}  // namespace eigenformer
