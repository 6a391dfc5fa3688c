#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/generation/document/document_parts.hpp"
#include "eigenformer/generation/document/document_translation.hpp"
#include "eigenformer/generation/text/text_translator.hpp"

namespace eigenformer {

/// Translates texts of many paragraphs: cuts them into sentences, has these translated, and puts the
/// translations together with the white space and the line breaks of the text. A sentence that the model
/// cannot read at once is translated in parts.
///
///     const ef::TextTranslator translator(model);
///     ef::DocumentOptions options;
///     options.splitter = std::make_shared<ef::SentenceSplitter>(ef::SentenceOptions{.language = "en"});
///     const ef::DocumentTranslator documents(translator, options);
///     std::string text = documents.translate("A man walks.  A dog runs.\n\nThe end.").text;
class DocumentTranslator {
 public:
  /// The translations of each sentence, the best first, at least one.
  using Alternatives =
      std::function<std::vector<std::vector<Translation>>(std::span<const std::string> sentences)>;

  /// fits: which sentences the model can read. Threads may share it if they may call these functions. Throws
  /// ValueError without `translate`.
  explicit DocumentTranslator(Alternatives translate, DocumentOptions options = {}, SentenceFits fits = {})
      : translate_(std::move(translate)), options_(std::move(options)), fits_(std::move(fits)) {
    if (!translate_) throw ValueError("document", "the function that translates is empty, must be callable");
  }

  /// By a translator, which must outlive it.
  template <class M>
  explicit DocumentTranslator(const TextTranslator<M>& translator, DocumentOptions options = {})
      : DocumentTranslator(
            [&translator](std::span<const std::string> sentences) {
              return translator.alternatives(sentences);
            },
            std::move(options), [&translator](const std::string& line) { return translator.fits(line); }) {}

  /// A text's translation. boundaries: byte offsets, in ascending order, across which no sentence goes.
  /// Throws ValueError as document_parts() does, and whatever translating throws.
  DocumentTranslation translate(std::string_view text, std::span<const std::size_t> boundaries = {}) const {
    return std::move(alternatives(text, boundaries, 1).front());
  }

  /// As many translations as a sentence has, `most` at most: the i-th is of the i-th best of each sentence,
  /// or of its last where it has fewer.
  std::vector<DocumentTranslation> alternatives(std::string_view text,
                                                std::span<const std::size_t> boundaries = {},
                                                std::size_t most = static_cast<std::size_t>(-1)) const {
    const std::vector<DocumentPart> parts = document_parts(text, options_, fits_, boundaries);
    std::vector<std::string> sentences;
    for (const DocumentPart& part : parts) sentences.emplace_back(part.source.of(text));
    std::vector<std::vector<Translation>> found;
    if (!sentences.empty()) found = translate_(sentences);
    return assemble_documents(text, parts, found, most);
  }

  const DocumentOptions& options() const noexcept { return options_; }

 private:
  Alternatives translate_;
  DocumentOptions options_;
  SentenceFits fits_;
};

}  // namespace eigenformer
