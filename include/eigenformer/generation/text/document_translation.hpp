#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/generation/alignment/text_alignment.hpp"
#include "eigenformer/generation/text/document_parts.hpp"
#include "eigenformer/generation/text/translation.hpp"

namespace eigenformer {

/// A sentence of a document, or a part of a sentence that was too long for the model, with its translation.
struct DocumentSentence {
  ByteSpan source{},          ///< its bytes in the document
      target{};               ///< its bytes in the translated document
  bool continues = false;     ///< whether it continues the sentence of the element before
  Translation translation{};  ///< of the sentence alone; spans are relative to the sentence
};

/// A translated document.
struct DocumentTranslation {
  std::string text;  ///< the translation, with the document's white space between sentences
  std::vector<DocumentSentence> sentences;  ///< in the order of the document
  std::size_t num_split = 0;                ///< sentences that were split because they were too long
  /// The alignment of the whole texts, without attention; null unless every sentence with text has one.
  std::shared_ptr<const TextAlignment> alignment{};
};

namespace detail {

/// Whether a space must be added between the translations of two adjacent sentences.
inline bool needs_space(std::string_view source, std::string_view before, std::string_view after) {
  if (source.empty() || before.empty() || after.empty()) return false;
  const char32_t left = code_point_before(before, before.size()).value, right = decode_front(after).value;
  return is_unspaced_script(code_point_before(source, source.size()).value) && !is_unspaced_script(left) &&
         !is_space(left) && !is_unspaced_script(right) && !is_space(right);
}

/// Adds the alignment of a sentence to that of its document.
inline void append_alignment(TextAlignment& all, const TextAlignment& one, const DocumentSentence& sentence) {
  const auto first_source = static_cast<std::uint32_t>(all.source.size());
  const auto first_target = static_cast<std::uint32_t>(all.target.size());
  const auto add = [](std::vector<ByteSpan>& spans, const std::vector<ByteSpan>& more, std::size_t begin) {
    for (const ByteSpan span : more) spans.push_back({begin + span.begin, begin + span.end});
  };
  add(all.source, one.source, sentence.source.begin);
  add(all.target, one.target, sentence.target.begin);
  for (const auto& [source, target] : one.links)
    all.links.emplace_back(first_source + source, first_target + target);
}

}  // namespace detail

/// Joins the translations of a document's parts with the white space between the parts. A space is added only
/// between adjacent sentences of a script without spaces whose translations are in another script. parts: as
/// document_parts() returns them for the text. Throws ValueError for unequal numbers of parts and
/// translations, for parts outside the text or out of order, and for a first part that continues another.
inline DocumentTranslation assemble_document(std::string_view text, std::span<const DocumentPart> parts,
                                             std::vector<Translation> translations) {
  if (parts.size() != translations.size()) {
    throw ValueError("document", "there are " + std::to_string(translations.size()) +
                                     " translations, must be " + std::to_string(parts.size()) +
                                     ", one for each sentence");
  }
  DocumentTranslation document;
  TextAlignment alignment;
  bool aligned = true;
  std::size_t end = 0;  // of the part before
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const DocumentPart& part = parts[i];
    Translation& translation = translations[i];
    const auto [begin_of_part, end_of_part] = part.source;
    if (begin_of_part < end || end_of_part < begin_of_part || end_of_part > text.size() ||
        (i == 0 && part.continues)) {
      throw ValueError("document", "part " + std::to_string(i) + ", bytes " + std::to_string(begin_of_part) +
                                       " to " + std::to_string(end_of_part) +
                                       (part.continues ? ", which continues a part," : "") +
                                       " does not follow the part before within the text of " +
                                       std::to_string(text.size()) + " bytes");
    }
    document.text += ByteSpan{end, part.source.begin}.of(text);
    if (part.source.begin == end && !part.after_boundary &&
        detail::needs_space(text.substr(0, end), document.text, translation.text))
      document.text += ' ';
    end = part.source.end;
    const std::size_t begin = document.text.size();
    document.text += translation.text;
    if (part.continues && !parts[i - 1].continues) ++document.num_split;
    document.sentences.push_back(
        {part.source, {begin, document.text.size()}, part.continues, std::move(translation)});
    const DocumentSentence& sentence = document.sentences.back();
    if (sentence.translation.alignment != nullptr) {
      detail::append_alignment(alignment, *sentence.translation.alignment, sentence);
    } else {
      aligned = aligned && sentence.translation.text.empty();
    }
  }
  document.text += text.substr(end);
  if (aligned && !alignment.target.empty())
    document.alignment = std::make_shared<const TextAlignment>(std::move(alignment));
  return document;
}

/// Joins alternative translations of each part, the best first: document i has the i-th translation of each
/// part, or the last one of a part with fewer. Returns as many documents as the part with the most
/// translations has, at most `most`, and at least one unless `most` is 0. Throws as assemble_document(), and
/// ValueError for a part without a translation.
inline std::vector<DocumentTranslation> assemble_documents(
    std::string_view text, std::span<const DocumentPart> parts,
    std::span<const std::vector<Translation>> translations, std::size_t most = static_cast<std::size_t>(-1)) {
  std::size_t count = 1;
  for (std::size_t i = 0; i < translations.size(); ++i) {
    count = std::max(count, translations[i].size());
    if (translations[i].empty())
      throw ValueError("document", "sentence " + std::to_string(i) + " has no translation, must have one");
  }
  std::vector<DocumentTranslation> documents;
  for (std::size_t rank = 0; rank < std::min(count, most); ++rank) {
    std::vector<Translation> chosen;
    for (const auto& of_part : translations) chosen.push_back(of_part[std::min(rank, of_part.size() - 1)]);
    documents.push_back(assemble_document(text, parts, std::move(chosen)));
  }
  return documents;
}

namespace detail {

/// The attention of all tokens of a document, block-diagonal by sentence; empty if a sentence has none.
inline Tensor<float> joined_attention(const DocumentTranslation& document) {
  index_t rows = 0, columns = 0;
  for (const DocumentSentence& sentence : document.sentences) {
    const TextAlignment* const alignment = sentence.translation.alignment.get();
    if (alignment == nullptr) continue;
    if (alignment->attention.numel() == 0) return {};
    rows += alignment->attention.dim(0);
    columns += alignment->attention.dim(1);
  }
  auto all = Tensor<float>::zeros(Shape{rows, columns});
  index_t row = 0, column = 0;
  for (const DocumentSentence& sentence : document.sentences) {
    if (sentence.translation.alignment == nullptr) continue;
    const Tensor<float>& one = sentence.translation.alignment->attention;
    for (index_t i = 0; i < one.dim(0); ++i) {
      std::copy_n(one.data() + i * one.dim(1), one.dim(1), all.data() + (row + i) * columns + column);
    }
    row += one.dim(0);
    column += one.dim(1);
  }
  return all;
}

}  // namespace detail

/// Merges the sentences of a document into one Translation: the document's text and alignment, the sums of
/// scores and log-probabilities, all tokens and words with the mean confidence of the words, and the mean
/// expected utility. Attention is kept for a single sentence only, else null. weights: whether the alignment
/// gets its attention weights, whose number grows with the square of the document's length.
inline Translation joined_translation(DocumentTranslation document, bool weights = true) {
  Translation all;
  if (document.sentences.size() == 1) all = document.sentences.front().translation;
  all.text = std::move(document.text);
  all.alignment = document.alignment;
  if (document.alignment != nullptr && weights) {
    TextAlignment alignment = *document.alignment;
    alignment.attention = detail::joined_attention(document);
    all.alignment = std::make_shared<const TextAlignment>(std::move(alignment));
  }
  if (document.sentences.size() < 2) return all;
  const DocumentSentence* before = nullptr;
  for (DocumentSentence& sentence : document.sentences) {
    Translation& one = sentence.translation;
    all.score += one.score;
    all.log_probability += one.log_probability;
    all.cut = all.cut || one.cut;
    all.in_parts = all.in_parts || sentence.continues;
    all.expected_utility += one.expected_utility / static_cast<double>(document.sentences.size());
    std::move(one.tokens.begin(), one.tokens.end(), std::back_inserter(all.tokens));
    std::move(one.terms.begin(), one.terms.end(), std::back_inserter(all.terms));
    auto word = one.words.begin();
    // Two parts of one word, with no white space between them.
    if (before != nullptr && before->target.end == sentence.target.begin && !all.words.empty() &&
        word != one.words.end()) {
      all.words.back().word += word->word;
      all.words.back().confidence *= word->confidence;
      ++word;
    }
    std::move(word, one.words.end(), std::back_inserter(all.words));
    before = &sentence;
  }
  all.confidence = sentence_confidence(all.words);
  return all;
}

}  // namespace eigenformer
