#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/model.hpp"
#include "eigenformer/data/tokenizers/subword_models.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/data/tokenizers/vocabulary.hpp"

namespace eigenformer::detail {

/// Samples segmentations with the pieces and scores of a SentencePiece model. SentencePiece's own sampling
/// uses one random generator per thread, which cannot be seeded per sentence; this class uses the caller's.
class SentencePieceSampler {
 public:
  /// A piece of a segmentation.
  struct Piece {
    std::string text{};   ///< its text, with U+2581 for spaces
    std::int32_t id = 0;  ///< its id in the model
  };

  /// model: the bytes of the SentencePiece model. Throws ValueError for a damaged model, and for one of words
  /// or characters or with unused pieces, which cannot be sampled from.
  explicit SentencePieceSampler(std::string_view model) {
    const auto read = SentencePieceModel::read(model);
    kind_ = read.kind;
    byte_fallback_ = read.byte_fallback;
    for (const auto& piece : read.pieces) add_piece(piece);
    if (kind_ != Kind::bpe && kind_ != Kind::unigram) {
      throw ValueError("subword_sampling",
                       "the SentencePiece model has only one segmentation of a text; sampling needs a model "
                       "of byte pair encoding or a unigram model");
    }
    if (!is_bpe()) unigram_ = UnigramModel(std::move(scores_), texts_);
  }

  /// Whether the model is one of byte pair encoding; else it is a unigram model.
  bool is_bpe() const noexcept { return kind_ == Kind::bpe; }
  /// Whether unknown characters are encoded as bytes (byte fallback).
  bool spells_bytes() const noexcept { return byte_fallback_; }

  /// Samples a segmentation of a text. plain: the pieces of SentencePiece's own encoding of the text; ids:
  /// their ids, needed only when spells_bytes(). Throws ValueError for a rate that belongs to another kind of
  /// model.
  std::vector<Piece> sample(std::span<const std::string> plain, std::span<const int> ids,
                            const SubwordSampling& sampling, RandomGenerator& rng) const {
    require_rate_of(is_bpe(), sampling);
    std::vector<Piece> pieces;
    std::string text;  // as SentencePiece normalised it, between pieces that users have defined
    const auto flush = [&] {
      for (const std::string_view word : words(text)) segment(pieces, word, sampling, rng);
      text.clear();
    };
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const auto found = find_id(ids_, plain[i]);
      const std::size_t id = byte_fallback_ ? static_cast<std::size_t>(ids[i]) : 0;
      if (byte_fallback_ && types_[id] == Type::byte) {
        text += static_cast<char>(SentencePieceModel::byte_of(texts_[id]).value());
      } else if (found && types_[static_cast<std::size_t>(*found)] == Type::user_defined) {
        flush();
        pieces.push_back({plain[i], *found});
      } else {
        text += plain[i];
      }
    }
    flush();
    return pieces;
  }

 private:
  using Kind = SentencePieceModel::Kind;
  using Type = SentencePieceModel::Type;

  void add_piece(const SentencePieceModel::Piece& piece) {
    const auto id = static_cast<std::int32_t>(texts_.size());
    std::string text(piece.text);
    if (piece.type == Type::unused) {
      throw ValueError("subword_sampling", {"the SentencePiece model has the unused piece '", text,
                                            "', which sampling cannot leave out"});
    }
    if (piece.type == Type::unknown) unknown_id_ = id;
    if (piece.type == Type::byte) id_of_byte_[SentencePieceModel::byte_of(text).value()] = id;
    const bool normal = piece.type == Type::normal;
    if (normal && text.find(space_mark, 1) != std::string::npos) splits_words_ = false;
    scores_.push_back(normal ? static_cast<double>(piece.score) : std::numeric_limits<double>::quiet_NaN());
    if (normal || piece.type == Type::user_defined) ids_.emplace(text, id);
    types_.push_back(piece.type);
    texts_.push_back(std::move(text));
  }

  std::optional<std::int32_t> find(std::string_view text) const {
    const auto id = find_id(ids_, text);
    return id && types_[static_cast<std::size_t>(*id)] == Type::normal ? id : std::nullopt;
  }

  // Splits before each mark of a space, unless pieces may have it inside.
  std::vector<std::string_view> words(std::string_view text) const {
    std::vector<std::string_view> found;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end =
          splits_words_ ? std::min(text.find(space_mark, begin + 1), text.size()) : text.size();
      found.push_back(text.substr(begin, end - begin));
      begin = end;
    }
    return found;
  }

  void segment(std::vector<Piece>& pieces, std::string_view word, const SubwordSampling& sampling,
               RandomGenerator& rng) const {
    if (!is_bpe()) {
      const auto path = unigram_.sample(word, sampling.unigram_alpha, rng,
                                        [&](std::string_view piece) { return find(piece); });
      for (const auto& step : path) append(pieces, word.substr(step.begin, step.end - step.begin), step.id);
      return;
    }
    std::vector<std::string_view> symbols;
    for_each_code_point(word, [&](char32_t, std::string_view c) { symbols.push_back(c); });
    merge_with_dropout(
        symbols, sampling.bpe_dropout, rng,
        [&](std::string_view left, std::string_view right) -> std::optional<PossibleMerge<std::string_view>> {
          const std::string_view both(left.data(), left.size() + right.size());
          const auto id = find(both);
          if (!id) return std::nullopt;
          return PossibleMerge<std::string_view>{-scores_[static_cast<std::size_t>(*id)], both};
        });
    for (const std::string_view symbol : symbols) append(pieces, symbol, find(symbol).value_or(-1));
  }

  // id -1: unknown, encoded as bytes or as one piece for a run of them, as in SentencePiece.
  void append(std::vector<Piece>& pieces, std::string_view text, std::int32_t id) const {
    if (id >= 0) {
      pieces.push_back({std::string(text), id});
    } else if (byte_fallback_) {
      for (const char c : text) {
        const std::int32_t byte = id_of_byte_[static_cast<std::uint8_t>(c)];
        pieces.push_back({texts_[static_cast<std::size_t>(byte)], byte});
      }
    } else if (!pieces.empty() && pieces.back().id == unknown_id_) {
      pieces.back().text += text;
    } else {
      pieces.push_back({std::string(text), unknown_id_});
    }
  }

  Kind kind_ = Kind::unigram;
  bool byte_fallback_ = false;
  bool splits_words_ = true;
  std::int32_t unknown_id_ = 0;
  std::vector<std::string> texts_;
  std::vector<Type> types_;
  std::array<std::int32_t, 256> id_of_byte_{};
  std::vector<double> scores_;  // of byte pair encoding
  UnigramModel unigram_;
  TokenIds ids_;
};

}  // namespace eigenformer::detail
