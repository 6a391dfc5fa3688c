#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "eigenformer/search/text/document_parts.hpp"
#include "eigenformer/search/text/translation.hpp"

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

/// Adds the alignment of a sentence to that of its document.
EIGENFORMER_IO_FUNCTION void append_alignment(TextAlignment& all, const TextAlignment& one,
                                              const DocumentSentence& sentence);

/// Joins the translations of a document's parts with the white space between the parts. A space is added only
/// between adjacent sentences of a script without spaces whose translations are in another script. parts: as
/// document_parts() returns them for the text. Throws ValueError for unequal numbers of parts and
/// translations, for parts outside the text or out of order, and for a first part that continues another.
EIGENFORMER_IO_FUNCTION DocumentTranslation assemble_document(std::string_view text,
                                                              std::span<const DocumentPart> parts,
                                                              std::vector<Translation> translations);

/// Joins alternative translations of each part, the best first: document i has the i-th translation of each
/// part, or the last one of a part with fewer. Returns as many documents as the part with the most
/// translations has, at most `most`, and at least one unless `most` is 0. Throws as assemble_document(), and
/// ValueError for a part without a translation.
EIGENFORMER_IO_FUNCTION std::vector<DocumentTranslation> assemble_documents(
    std::string_view text, std::span<const DocumentPart> parts,
    std::span<const std::vector<Translation>> translations, std::size_t most = static_cast<std::size_t>(-1));

/// Merges the sentences of a document into one Translation: the document's text and alignment, the sums of
/// scores and log-probabilities, all tokens and words with the mean confidence of the words, and the mean
/// expected utility. Attention is kept for a single sentence only, else null. weights: whether the alignment
/// gets its attention weights, whose number grows with the square of the document's length.
EIGENFORMER_IO_FUNCTION Translation joined_translation(DocumentTranslation document, bool weights = true);

/// Tokenizes the sentences of documents once, while it splits them into parts that a model can read. Not
/// thread-safe.
///
///     ef::PreparedSentences sentences([&](const std::string& s) { return translator.prepare(s); });
///     std::vector<ef::PreparedLine> lines;
///     const auto parts = sentences.split(text, {}, lines);
class PreparedSentences {
 public:
  /// prepare: tokenizes a sentence, such as TextTranslator::prepare() or Translator::prepare(); called once
  /// for each different sentence that fits.
  explicit PreparedSentences(std::function<PreparedLine(const std::string& sentence)> prepare)
      : prepare_(std::move(prepare)) {}

  /// Whether the model can read a sentence without cutting it. Throws what the function throws.
  bool fits(const std::string& sentence) {
    if (known_.contains(sentence)) return true;
    PreparedLine line = prepare_(sentence);
    if (line.cut) return false;
    known_.emplace(sentence, std::move(line));
    return true;
  }

  /// The sentence as the function returned it in fits(), or returns it now. Throws what the function throws.
  PreparedLine prepared(const std::string& sentence) const {
    const auto found = known_.find(sentence);
    return found == known_.end() ? prepare_(sentence) : found->second;
  }

  /// Splits a document as document_parts() does, and appends its parts, tokenized, to `lines`. Throws as it
  /// does, and what the function throws.
  std::vector<DocumentPart> split(std::string_view text, const DocumentOptions& options,
                                  std::vector<PreparedLine>& lines,
                                  std::span<const std::size_t> boundaries = {});

 private:
  std::function<PreparedLine(const std::string& sentence)> prepare_;
  std::unordered_map<std::string, PreparedLine> known_;
};

/// Lines split into parts that fit a model and tokenized, for translation in one call, whose results are
/// joined again: one per line, whatever the number of parts.
class PreparedParts {
 public:
  /// Tokenizes a part of a line; see TextTranslator::prepare(). line: the index of its line.
  using Prepare = std::function<PreparedLine(const std::string& text, std::uint64_t number,
                                             const std::string& prefix, std::size_t line)>;

  /// Splits and tokenizes lines. splitting: how, as document_parts() splits a document; not set: each line is
  /// one part. Without a splitter, or with DocumentLayout::flow, a line of one part is kept unchanged, white
  /// space included, and so is one that is not UTF-8. first and prefixes: as in
  /// TextTranslator::alternatives(); samples depend on the number of the line and of the part within it. A
  /// part without a prefix is tokenized once. Throws as document_parts(), and what `prepare` throws.
  PreparedParts(std::span<const std::string> lines, const std::optional<DocumentOptions>& splitting,
                std::uint64_t first, std::span<const std::string> prefixes, const Prepare& prepare);

  /// The tokenized parts, in the order of the lines.
  std::vector<PreparedLine>& lines() noexcept { return prepared_; }
  /// The index of the line that a part belongs to.
  std::size_t line_of(std::size_t part) const { return line_of_[part]; }
  /// Whether a part is the first of its line.
  bool begins_line(std::size_t part) const { return part == 0 || line_of_[part] != line_of_[part - 1]; }

  /// The beginning of a line's translation, from the texts of its first parts; at least one. Throws
  /// ValueError for more texts than parts.
  std::string beginning(std::size_t line, const std::vector<std::string>& texts) const;

  /// Joins the translations of the parts (one list per part, the best first) to one list per line: a line's
  /// i-th translation has the i-th translation of each part, or the last one of a part with fewer; see
  /// joined_translation(), also for `weights`. Throws ValueError for another number of parts and for a part
  /// without translations.
  std::vector<std::vector<Translation>> join(std::vector<std::vector<Translation>> of_parts,
                                             bool weights = true) const;

 private:
  std::vector<std::string> lines_;
  std::vector<std::vector<DocumentPart>> of_lines_;
  std::vector<PreparedLine> prepared_;
  std::vector<std::size_t> line_of_;  // of each part, also when lines() was moved from
  bool keeps_space_;
};

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

/// Whether a space must be added between the translations of two adjacent sentences.
inline bool needs_space(std::string_view source, std::string_view before, std::string_view after) {
  if (source.empty() || before.empty() || after.empty()) return false;
  const char32_t left = code_point_before(before, before.size()).value, right = decode_front(after).value;
  return is_unspaced_script(code_point_before(source, source.size()).value) && !is_unspaced_script(left) &&
         !is_space(left) && !is_unspaced_script(right) && !is_space(right);
}

EIGENFORMER_IO_FUNCTION void append_alignment(TextAlignment& all, const TextAlignment& one,
                                              const DocumentSentence& sentence) {
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

EIGENFORMER_IO_FUNCTION DocumentTranslation assemble_document(std::string_view text,
                                                              std::span<const DocumentPart> parts,
                                                              std::vector<Translation> translations) {
  if (parts.size() != translations.size()) {
    throw ValueError("document", {"there are ", translations.size(), " translations, must be ", parts.size(),
                                  ", one for each sentence"});
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
      throw ValueError("document",
                       {"part ", i, ", bytes ", begin_of_part, " to ", end_of_part,
                        (part.continues ? ", which continues a part," : ""),
                        " does not follow the part before within the text of ", text.size(), " bytes"});
    }
    document.text += ByteSpan{end, part.source.begin}.of(text);
    if (part.source.begin == end && !part.after_boundary &&
        needs_space(text.substr(0, end), document.text, translation.text))
      document.text += ' ';
    end = part.source.end;
    const std::size_t begin = document.text.size();
    document.text += translation.text;
    if (part.continues && !parts[i - 1].continues) ++document.num_split;
    document.sentences.push_back(
        {part.source, {begin, document.text.size()}, part.continues, std::move(translation)});
    const DocumentSentence& sentence = document.sentences.back();
    if (sentence.translation.alignment != nullptr) {
      append_alignment(alignment, *sentence.translation.alignment, sentence);
    } else {
      aligned = aligned && sentence.translation.text.empty();
    }
  }
  document.text += text.substr(end);
  if (aligned && !alignment.target.empty())
    document.alignment = std::make_shared<const TextAlignment>(std::move(alignment));
  return document;
}

EIGENFORMER_IO_FUNCTION std::vector<DocumentTranslation> assemble_documents(
    std::string_view text, std::span<const DocumentPart> parts,
    std::span<const std::vector<Translation>> translations, std::size_t most) {
  std::size_t count = 1;
  for (std::size_t i = 0; i < translations.size(); ++i) {
    count = std::max(count, translations[i].size());
    if (translations[i].empty())
      throw ValueError("document", {"sentence ", i, " has no translation, must have one"});
  }
  std::vector<DocumentTranslation> documents;
  for (std::size_t rank = 0; rank < std::min(count, most); ++rank) {
    std::vector<Translation> chosen;
    for (const auto& of_part : translations) chosen.push_back(of_part[std::min(rank, of_part.size() - 1)]);
    documents.push_back(assemble_document(text, parts, std::move(chosen)));
  }
  return documents;
}

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
  auto joined = Tensor<float>::zeros(Shape{rows, columns});
  index_t row = 0, column = 0;
  for (const DocumentSentence& sentence : document.sentences) {
    if (sentence.translation.alignment == nullptr) continue;
    const Tensor<float>& one = sentence.translation.alignment->attention;
    joined(range(row, row + one.dim(0)), range(column, column + one.dim(1))) = one;
    row += one.dim(0);
    column += one.dim(1);
  }
  return joined;
}

EIGENFORMER_IO_FUNCTION Translation joined_translation(DocumentTranslation document, bool weights) {
  Translation all;
  if (document.sentences.size() == 1) all = document.sentences.front().translation;
  all.text = std::move(document.text);
  all.alignment = document.alignment;
  if (document.alignment != nullptr && weights) {
    TextAlignment alignment = *document.alignment;
    alignment.attention = joined_attention(document);
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

EIGENFORMER_IO_FUNCTION std::vector<DocumentPart> PreparedSentences::split(
    std::string_view text, const DocumentOptions& options, std::vector<PreparedLine>& lines,
    std::span<const std::size_t> boundaries) {
  auto parts = document_parts(
      text, options, [this](const std::string& sentence) { return fits(sentence); }, boundaries);
  for (const DocumentPart& part : parts) lines.push_back(prepared(std::string(part.source.of(text))));
  return parts;
}

EIGENFORMER_IO_FUNCTION PreparedParts::PreparedParts(std::span<const std::string> lines,
                                                     const std::optional<DocumentOptions>& splitting,
                                                     std::uint64_t first,
                                                     std::span<const std::string> prefixes,
                                                     const Prepare& prepare)
    : lines_(lines.begin(), lines.end()),
      keeps_space_(splitting && splitting->splitter != nullptr && splitting->layout != DocumentLayout::flow) {
  PreparedSentences sentences([&](const std::string& text) { return prepare(text, 0, {}, 0); });
  const SentenceFits fits = [&](const std::string& text) { return sentences.fits(text); };
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const std::string& line = lines_[i];
    std::vector<DocumentPart> parts{{{0, line.size()}, false, true}};
    if (splitting && (keeps_space_ || !find_invalid_utf8(line)))
      parts = document_parts(line, *splitting, fits);
    const bool whole = parts.size() == 1 && !keeps_space_ &&
                       (!splitting || parts[0].source.size() == line.size() || fits(line));
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const std::string text(whole ? line : parts[k].source.of(line));
      const std::string prefix = prefixes.empty() || k > 0 ? std::string() : prefixes[i];
      const std::uint64_t number = first + i + (std::uint64_t{k} << 40);
      prepared_.push_back(prefix.empty() ? sentences.prepared(text) : prepare(text, number, prefix, i));
      prepared_.back().number = number;
      line_of_.push_back(i);
    }
    of_lines_.push_back(std::move(parts));
  }
}

EIGENFORMER_IO_FUNCTION std::string PreparedParts::beginning(std::size_t line,
                                                             const std::vector<std::string>& texts) const {
  const std::vector<DocumentPart>& of_line = of_lines_[line];
  if (texts.empty() || texts.size() > of_line.size()) {
    throw ValueError("document", {"there are texts of ", texts.size(),
                                  " parts, must be at least one and at most ", of_line.size()});
  }
  if (of_line.size() == 1 && !keeps_space_) return texts.front();
  std::vector<Translation> translations(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) translations[i].text = texts[i];
  const std::span<const DocumentPart> parts = std::span(of_line).first(texts.size());
  return assemble_document(std::string_view(lines_[line]).substr(0, parts.back().source.end), parts,
                           std::move(translations))
      .text;
}

EIGENFORMER_IO_FUNCTION std::vector<std::vector<Translation>> PreparedParts::join(
    std::vector<std::vector<Translation>> of_parts, bool weights) const {
  if (of_parts.size() != line_of_.size()) {
    throw ValueError("document",
                     {"there are translations of ", of_parts.size(), " parts, must be ", line_of_.size()});
  }
  for (std::size_t i = 0; i < of_parts.size(); ++i) {
    if (of_parts[i].empty()) throw ValueError("document", {"part ", i, " has no translation, must have one"});
  }
  std::vector<std::vector<Translation>> joined(lines_.size());
  auto next = of_parts.begin();
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const auto end = next + static_cast<std::ptrdiff_t>(of_lines_[i].size());
    if (of_lines_[i].size() == 1 && !keeps_space_) {
      joined[i] = std::move(*next);
    } else if (of_lines_[i].empty() && !keeps_space_) {
      joined[i].emplace_back();
    } else {
      for (DocumentTranslation& line : assemble_documents(lines_[i], of_lines_[i], std::span(next, end)))
        joined[i].push_back(joined_translation(std::move(line), weights));
    }
    next = end;
  }
  return joined;
}

}  // namespace eigenformer::detail

#endif
