#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/corpus/vocabulary.hpp"
#include "eigenformer/data/sampling/merge_dropout.hpp"
#include "eigenformer/data/sampling/subword_sampling.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/subword_models.hpp"

namespace eigenformer {

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
    Message message(model);
    std::vector<double> scores;
    while (message.next()) {
      if (message.field() == 1) read_piece(Message(message.bytes()), scores);
      if (message.field() == 2) read_training(Message(message.bytes()));
    }
    if (kind_ != bpe_kind && kind_ != unigram_kind) {
      throw ValueError(
          "subword_sampling",
          "the SentencePiece model has one segmentation of a text; sampling needs pieces of byte "
          "pair encoding or of a unigram model");
    }
    if (is_bpe()) {
      scores_ = std::move(scores);
    } else {
      unigram_ = UnigramModel(std::move(scores), texts_);
    }
  }

  /// Whether the model is one of byte pair encoding; else it is a unigram model.
  bool is_bpe() const noexcept { return kind_ == bpe_kind; }
  /// Whether unknown characters are encoded as bytes (byte fallback).
  bool spells_bytes() const noexcept { return byte_fallback_; }

  /// Samples a segmentation of a text. plain: the pieces of SentencePiece's own encoding of the text; ids:
  /// their ids, needed only when spells_bytes(). Throws ValueError for a rate that belongs to another kind of
  /// model.
  std::vector<Piece> sample(std::span<const std::string> plain, std::span<const int> ids,
                            const SubwordSampling& sampling, RandomGenerator& rng) const {
    detail::require_rate_of(is_bpe(), sampling);
    std::vector<Piece> pieces;
    std::string text;  // as SentencePiece normalised it, between pieces that users have defined
    const auto flush = [&] {
      for (const std::string_view word : words(text)) segment(pieces, word, sampling, rng);
      text.clear();
    };
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const auto found = find_any(plain[i]);
      if (byte_fallback_ && types_[static_cast<std::size_t>(ids[i])] == byte_type) {
        text += static_cast<char>(byte_of_[static_cast<std::size_t>(ids[i])]);
      } else if (found && types_[static_cast<std::size_t>(*found)] == user_defined_type) {
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
  // Of sentencepiece_model.proto.
  static constexpr int unigram_kind = 1, bpe_kind = 2;
  static constexpr int normal_type = 1, unknown_type = 2, user_defined_type = 4, unused_type = 5,
                       byte_type = 6;

  // The fields of a message in the format of Protocol Buffers.
  class Message {
   public:
    explicit Message(std::string_view bytes) : rest_(bytes) {}

    bool next() {
      if (rest_.empty()) return false;
      const std::uint64_t key = varint();
      field_ = static_cast<int>(key >> 3);
      switch (key & 7) {
        case 0:
          number_ = varint();
          return true;
        case 1:
          (void)take(8);
          return true;
        case 2:
          bytes_ = take(varint());
          return true;
        case 5:
          bytes_ = take(4);
          return true;
        default:
          throw damaged();
      }
    }
    int field() const noexcept { return field_; }
    std::uint64_t number() const noexcept { return number_; }
    std::string_view bytes() const noexcept { return bytes_; }
    float real() const {
      if (bytes_.size() != 4) throw damaged();
      std::uint32_t bits = 0;
      for (std::size_t i = 0; i < 4; ++i)
        bits |= std::uint32_t{static_cast<std::uint8_t>(bytes_[i])} << (8 * i);
      return std::bit_cast<float>(bits);
    }

   private:
    static ValueError damaged() {
      return ValueError("subword_sampling", "the SentencePiece model is damaged");
    }
    std::string_view take(std::uint64_t size) {
      if (size > rest_.size()) throw damaged();
      const std::string_view taken = rest_.substr(0, size);
      rest_.remove_prefix(size);
      return taken;
    }
    std::uint64_t varint() {
      std::uint64_t value = 0;
      for (unsigned shift = 0; shift < 64; shift += 7) {
        const auto byte = static_cast<std::uint8_t>(take(1)[0]);
        value |= std::uint64_t{byte & 0x7Fu} << shift;
        if ((byte & 0x80u) == 0) return value;
      }
      throw damaged();
    }

    std::string_view rest_, bytes_;
    std::uint64_t number_ = 0;
    int field_ = 0;
  };

  void read_piece(Message piece, std::vector<double>& scores) {
    std::string text;
    double score = 0;
    int type = normal_type;
    while (piece.next()) {
      if (piece.field() == 1) text = std::string(piece.bytes());
      if (piece.field() == 2) score = static_cast<double>(piece.real());
      if (piece.field() == 3) type = static_cast<int>(piece.number());
    }
    const auto id = static_cast<std::int32_t>(texts_.size());
    if (type == unused_type) {
      throw ValueError("subword_sampling", "the SentencePiece model has the unused piece '" + text +
                                               "', which sampling cannot leave out");
    }
    if (type == unknown_type) unknown_id_ = id;
    std::uint8_t byte = 0;
    if (type == byte_type) {  // "<0xE4>"
      for (std::size_t i = 3; i + 1 < text.size(); ++i) {
        const char c = text[i];
        byte = static_cast<std::uint8_t>(byte * 16 + (c <= '9' ? c - '0' : c - 'A' + 10));
      }
      id_of_byte_[byte] = id;
    }
    if (type == normal_type && text.find(mark, 1) != std::string::npos) splits_words_ = false;
    scores.push_back(type == normal_type ? score : std::numeric_limits<double>::quiet_NaN());
    if (type == normal_type || type == user_defined_type) ids_.emplace(text, id);
    types_.push_back(type);
    byte_of_.push_back(byte);
    texts_.push_back(std::move(text));
  }

  void read_training(Message training) {
    while (training.next()) {
      if (training.field() == 3) kind_ = static_cast<int>(training.number());
      if (training.field() == 35) byte_fallback_ = training.number() != 0;
    }
  }

  std::optional<std::int32_t> find_any(std::string_view text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  std::optional<std::int32_t> find(std::string_view text) const {
    const auto id = find_any(text);
    return id && types_[static_cast<std::size_t>(*id)] == normal_type ? id : std::nullopt;
  }

  // Splits before each mark of a space, unless pieces may have it inside.
  std::vector<std::string_view> words(std::string_view text) const {
    std::vector<std::string_view> found;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = splits_words_ ? std::min(text.find(mark, begin + 1), text.size()) : text.size();
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
    detail::merge_with_dropout(
        symbols, sampling.bpe_dropout, rng,
        [&](std::string_view left,
            std::string_view right) -> std::optional<detail::PossibleMerge<std::string_view>> {
          const std::string_view both(left.data(), left.size() + right.size());
          const auto id = find(both);
          if (!id) return std::nullopt;
          return detail::PossibleMerge<std::string_view>{-scores_[static_cast<std::size_t>(*id)], both};
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

  static constexpr std::string_view mark = "\xE2\x96\x81";

  int kind_ = unigram_kind;
  bool byte_fallback_ = false;
  bool splits_words_ = true;
  std::int32_t unknown_id_ = 0;
  std::vector<std::string> texts_;
  std::vector<int> types_;
  std::vector<std::uint8_t> byte_of_;
  std::array<std::int32_t, 256> id_of_byte_{};
  std::vector<double> scores_;  // of byte pair encoding
  UnigramModel unigram_;
  std::unordered_map<std::string, std::int32_t, detail::StringHash, std::equal_to<>> ids_;
};

namespace detail {

/// A sampler that is made on first use and shared by copies. Thread-safe.
class LazySampler {
 public:
  /// model: the same bytes in each call. Throws as SentencePieceSampler does.
  const SentencePieceSampler& get(std::string_view model) const {
    std::call_once(shared_->once, [&] { shared_->sampler.emplace(model); });
    return *shared_->sampler;
  }

 private:
  struct Shared {
    std::once_flag once;
    std::optional<SentencePieceSampler> sampler;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

/// Samples a segmentation of a UTF-8 text. Processor: sentencepiece::SentencePieceProcessor. Throws
/// ValueError when SentencePiece or the sampler fails.
template <class Processor>
std::vector<SentencePieceSampler::Piece> sample_sentencepiece(const Processor& processor,
                                                              const SentencePieceSampler& sampler,
                                                              const std::string& text,
                                                              const SubwordSampling& sampling,
                                                              RandomGenerator& rng) {
  const auto require = [](const auto& status) {
    if (!status.ok()) throw ValueError("tokenizer", std::string("SentencePiece: ") + status.message());
  };
  std::vector<std::string> pieces;
  std::vector<int> ids;
  require(processor.Encode(text, &pieces));
  if (sampler.spells_bytes()) require(processor.Encode(text, &ids));
  return sampler.sample(pieces, ids, sampling, rng);
}

}  // namespace detail

}  // namespace eigenformer
