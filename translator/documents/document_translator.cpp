#include "translator/documents/document_translator.hpp"

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

DocumentTranslator::DocumentTranslator(Alternatives translate, DocumentOptions options,
                                       detail::SentenceFits fits)
    : options_(std::move(options)),
      prepare_([fits = std::move(fits)](const std::string& sentence) {
        return PreparedLine{.text = sentence, .cut = fits && !fits(sentence)};
      }),
      translate_([translate](std::span<const PreparedLine> lines) {
        std::vector<std::string> sentences;
        for (const PreparedLine& line : lines) sentences.push_back(line.text);
        return translate(sentences);
      }) {
  if (!translate) throw ValueError("document", "the function that translates is empty, must be callable");
}

std::vector<DocumentTranslation> DocumentTranslator::alternatives(std::string_view text,
                                                                  std::span<const std::size_t> boundaries,
                                                                  std::size_t most) const {
  std::vector<PreparedLine> lines;
  const auto parts = detail::PreparedSentences(prepare_).split(text, options_, lines, boundaries);
  for (std::size_t i = 0; i < lines.size(); ++i) lines[i].number = i;
  std::vector<std::vector<Translation>> found;
  if (!lines.empty()) found = translate_(lines);
  return detail::assemble_documents(text, parts, found, most);
}

}  // namespace eigenformer
