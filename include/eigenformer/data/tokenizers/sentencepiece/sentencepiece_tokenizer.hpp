#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/processor.hpp"

namespace eigenformer {

/// A pretrained SentencePiece model (Kudo and Richardson 2018) whose pieces have the ids of a separate
/// vocabulary instead of the model's own: Marian, mBART, M2M100, NLLB, T5.
class SentencePieceTokenizer final : public ForeignTokenizer {
 public:
  /// model: the bytes of the SentencePiece model. language_codes: a text may begin with a language token such
  /// as `>>de<<`, as for Marian's models with several target languages. Throws ValueError when the bytes are
  /// not a model, and for a special id outside the vocabulary.
  SentencePieceTokenizer(std::string model, ForeignVocabulary given, bool language_codes = false)
      : ForeignTokenizer(std::move(given)),
        processor_(made_of_model(std::move(model))),
        language_codes_(language_codes) {}

  /// Loads `directory/name.tokenizer`. Throws IoError.
  static SentencePieceTokenizer load(const std::filesystem::path& directory,
                                     const std::string& name = "tokenizer") {
    const TokenizerParts parts = read_parts("sentencepiece", directory, name);
    return made_of(parts, [&] {
      return SentencePieceTokenizer(parts.get("model"), read_vocabulary(parts),
                                    parts.contains("language_codes"));
    });
  }

  /// The pieces of a model in the order of its own ids. Throws ValueError when the bytes are not a model.
  static std::vector<std::string> model_pieces(const std::string& model) {
    const auto processor = made_of_model(model);
    std::vector<std::string> found;
    for (int id = 0; id < processor.size(); ++id) found.push_back(processor.piece(id));
    return found;
  }

  std::string kind() const override { return "sentencepiece"; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids = take_language_code(text);
    for (const std::string& piece : processor_.encode<std::string>(valid_utf8(text))) append(ids, piece);
    return ids;
  }

  std::vector<std::int32_t> encode_sampled(std::string_view text, const SubwordSampling& sampling,
                                           RandomGenerator& rng) const override {
    std::vector<std::int32_t> ids = take_language_code(text);
    for (const auto& piece : processor_.sample(valid_utf8(text), sampling, rng)) append(ids, piece.text);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    return trim(with_spaces(processor_.decode(pieces(ids))));
  }

 protected:
  void add_parts(TokenizerParts& parts) const override {
    parts.set("model", processor_.model());
    if (language_codes_) parts.set("language_codes", "");
  }

 private:
  // The id of the >>code<< at the start of a text, from which it is removed; nothing when there is none.
  std::vector<std::int32_t> take_language_code(std::string_view& text) const {
    std::vector<std::int32_t> ids;
    if (language_codes_ && text.substr(0, 2) == ">>") {
      if (const std::size_t end = text.find("<<"); end != std::string_view::npos) {
        append(ids, text.substr(0, end + 2));
        text.remove_prefix(end + 2);
      }
    }
    return ids;
  }

  static detail::SentencePieceProcessor made_of_model(std::string model) {
    try {
      return detail::SentencePieceProcessor(std::move(model));
    } catch (const ValueError& error) {
      throw ValueError("tokenizer", "the file is " + detail::message_of(error));
    }
  }

  // SentencePiece does not decode pieces that are not its own: they keep the mark of a space. Such pieces are
  // common: Marian has one vocabulary for both languages, but a model for each.
  static std::string with_spaces(std::string text) {
    constexpr std::string_view mark = "\xE2\x96\x81";
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; ++at)
      text.replace(at, mark.size(), " ");
    return text;
  }

  detail::SentencePieceProcessor processor_;
  bool language_codes_;
};

}  // namespace eigenformer
