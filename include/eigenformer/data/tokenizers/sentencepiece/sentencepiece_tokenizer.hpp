#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/tokenizers/added_tokens.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/processor.hpp"

namespace eigenformer::detail {

/// A pretrained SentencePiece model (Kudo and Richardson 2018) whose pieces have the ids of a separate
/// vocabulary instead of the model's own: Marian, mBART, M2M100, NLLB, T5.
class SentencePieceTokenizer final : public ForeignTokenizer {
 public:
  /// model: the bytes of the SentencePiece model. language_codes: a text, and each part of it after an added
  /// token, may begin with a language token such as `>>de<<`, as for Marian's models with several target
  /// languages. added: tokens to match in a text as transformers' tokenizers in Python do, before the parts
  /// between them are cut into pieces; AddedToken::normalized is ignored. Throws ValueError when the bytes
  /// are not a model, and for an id outside the vocabulary.
  SentencePieceTokenizer(std::string model, ForeignVocabulary given, bool language_codes = false,
                         std::vector<AddedToken> added = {})
      : ForeignTokenizer(std::move(given)),
        processor_(made_of_model(std::move(model))),
        language_codes_(language_codes),
        added_(on_given_text(std::move(added))) {
    added_.require_ids(vocabulary_size());
  }

  /// Loads `directory/name.tokenizer`. Throws IoError.
  static SentencePieceTokenizer load(const std::filesystem::path& directory,
                                     const std::string& name = "tokenizer") {
    return made_of_parts("sentencepiece", directory, name, [](const TokenizerParts& parts) {
      return SentencePieceTokenizer(parts.get("model"), read_vocabulary(parts),
                                    parts.contains("language_codes"), AddedTokens::read(parts));
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
    return encode_parts(text, [&](std::vector<std::int32_t>& ids, std::string_view part) {
      for (const std::string& piece : processor_.encode<std::string>(part)) append(ids, piece);
    });
  }

  std::vector<std::int32_t> encode_sampled(std::string_view text, const SubwordSampling& sampling,
                                           RandomGenerator& rng) const override {
    return encode_parts(text, [&](std::vector<std::int32_t>& ids, std::string_view part) {
      for (const auto& piece : processor_.sample(part, sampling, rng)) append(ids, piece.text);
    });
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text = processor_.decode(pieces(ids));
    // SentencePiece does not decode pieces that are not its own: they keep the mark of a space. Such pieces
    // are common: Marian has one vocabulary for both languages, but a model for each.
    replace_all(text, space_mark, " ");
    return trim(text);
  }

 protected:
  void add_parts(TokenizerParts& parts) const override {
    parts.set("model", processor_.model());
    if (language_codes_) parts.set("language_codes", "");
    added_.add_to(parts);
  }

 private:
  // append_part(ids, part): appends the ids of a part without added tokens and language code.
  template <class F>
  std::vector<std::int32_t> encode_parts(std::string_view text, F&& append_part) const {
    std::vector<std::int32_t> ids;
    added_.split<AddedTokenCharacters>(
        valid_utf8(text), false, [&](std::int32_t id) { ids.push_back(id); },
        [&](std::string_view part, std::size_t) {
          take_language_code(ids, part);
          append_part(ids, part);
        });
    return ids;
  }

  // Moves the >>code<< at the start of a text, if there is one, from the text to the ids.
  void take_language_code(std::vector<std::int32_t>& ids, std::string_view& text) const {
    if (!language_codes_ || !text.starts_with(">>")) return;
    if (const std::size_t end = text.find("<<"); end != std::string_view::npos) {
      append(ids, text.substr(0, end + 2));
      text.remove_prefix(end + 2);
    }
  }

  static std::vector<AddedToken> on_given_text(std::vector<AddedToken> tokens) {
    for (AddedToken& token : tokens) token.normalized = false;
    return tokens;
  }

  static SentencePieceProcessor made_of_model(std::string model) {
    try {
      return SentencePieceProcessor(std::move(model));
    } catch (const ValueError& error) {
      throw ValueError("tokenizer", {"the file is ", message_of(error)});
    }
  }

  SentencePieceProcessor processor_;
  bool language_codes_;
  AddedTokens added_;
};

}  // namespace eigenformer::detail
