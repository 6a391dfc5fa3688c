#include "translator/documents/document_translator.hpp"

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/search/text/split_lines.hpp"

namespace eigenformer {

DocumentTranslator::DocumentTranslator(Alternatives translate, DocumentOptions options,
                                       detail::SentenceFits fits)
    : translate_(std::move(translate)), options_(std::move(options)), fits_(std::move(fits)) {
  if (!translate_) throw ValueError("document", "the function that translates is empty, must be callable");
}

std::vector<DocumentTranslation> DocumentTranslator::alternatives(std::string_view text,
                                                                  std::span<const std::size_t> boundaries,
                                                                  std::size_t most) const {
  if (prepare_) return by_prepared(text, boundaries, most);
  const std::vector<detail::DocumentPart> parts = detail::document_parts(text, options_, fits_, boundaries);
  std::vector<std::string> sentences;
  for (const detail::DocumentPart& part : parts) sentences.emplace_back(part.source.of(text));
  std::vector<std::vector<Translation>> found;
  if (!sentences.empty()) found = translate_(sentences);
  return detail::assemble_documents(text, parts, found, most);
}

std::vector<DocumentTranslation> DocumentTranslator::by_prepared(std::string_view text,
                                                                 std::span<const std::size_t> boundaries,
                                                                 std::size_t most) const {
  detail::PreparedSentences sentences(prepare_);
  const detail::SentenceFits fits = [&](const std::string& sentence) { return sentences.fits(sentence); };
  const std::vector<detail::DocumentPart> parts = detail::document_parts(text, options_, fits, boundaries);
  std::vector<PreparedLine> lines;
  for (const detail::DocumentPart& part : parts) {
    lines.push_back(sentences.prepared(std::string(part.source.of(text))));
    lines.back().number = lines.size() - 1;
  }
  return detail::assemble_documents(text, parts, translate_prepared_(lines), most);
}

}  // namespace eigenformer
