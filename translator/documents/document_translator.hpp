#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/search/text/document_parts.hpp"
#include "eigenformer/search/text/split_lines.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "eigenformer/search/text/translation.hpp"

namespace eigenformer {

/// Translates texts of many paragraphs: splits them into sentences, translates these together, and joins the
/// translations with the white space and line breaks of the text. A sentence that is too long for the model
/// is translated in parts. Thread-safe if its functions are.
///
///     const ef::TextTranslator translator(model);
///     const ef::DocumentTranslator documents(translator);
///     std::string text = documents.translate("A man walks.  A dog runs.\n\nThe end.").text;
class DocumentTranslator {
 public:
  /// A function that returns the translations of each sentence, the best first, at least one per sentence.
  using Alternatives =
      std::function<std::vector<std::vector<Translation>>(std::span<const std::string> sentences)>;

  /// Translates with a function. fits: tells which sentences the model can read; empty: all. Throws
  /// ValueError when `translate` is empty.
  explicit DocumentTranslator(Alternatives translate, DocumentOptions options = {},
                              detail::SentenceFits fits = {});

  /// Translates with a TextTranslator, which must outlive it. Without options.splitter, paragraphs are split
  /// into sentences as the translator splits its lines. A sentence that fits is tokenized once.
  template <class M>
  explicit DocumentTranslator(const TextTranslator<M>& translator, DocumentOptions options = {})
      : options_(std::move(options)),
        prepare_([&translator](const std::string& sentence) { return translator.prepare(sentence); }),
        translate_([&translator](std::span<const PreparedLine> sentences) {
          return translator.alternatives(sentences);
        }) {
    if (options_.splitter == nullptr && translator.options().splitting)
      options_.splitter = translator.options().splitting->splitter;
  }

  /// Translates a text. boundaries: ascending byte offsets that no sentence crosses. Throws as
  /// document_parts(), and what the translator throws.
  DocumentTranslation translate(std::string_view text, std::span<const std::size_t> boundaries = {}) const {
    return std::move(alternatives(text, boundaries, 1).front());
  }

  /// Returns alternative translations of a text, at most `most`: the i-th has the i-th best translation of
  /// each sentence; see assemble_documents(). Throws as translate().
  std::vector<DocumentTranslation> alternatives(std::string_view text,
                                                std::span<const std::size_t> boundaries = {},
                                                std::size_t most = static_cast<std::size_t>(-1)) const;

  /// The options given to the constructor.
  const DocumentOptions& options() const noexcept { return options_; }

 private:
  DocumentOptions options_;
  std::function<PreparedLine(const std::string& sentence)> prepare_;
  std::function<std::vector<std::vector<Translation>>(std::span<const PreparedLine> sentences)> translate_;
};

}  // namespace eigenformer
