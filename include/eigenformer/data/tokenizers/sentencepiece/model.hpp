#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/charsmap_check.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/protobuf.hpp"

namespace eigenformer::detail {

/// The checked contents of a SentencePiece model, read from its bytes (sentencepiece_model.proto).
/// SentencePiece 0.1.97, which Linux distributions package, trusts its files: crafted ones end the process
/// while it loads them or encodes a text (CVE-2026-1260; google/sentencepiece issues 1263 and 1269). So
/// models are read here first, and contents that no trained model has are refused. Other fields are skipped.
struct SentencePieceModel {
  enum class Kind { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string_view text{};  ///< part of the model's bytes
    float score = 0;
    Type type = Type::normal;
  };

  /// Limits of this reader: the largest published models have 16 MB and a million pieces. SentencePiece takes
  /// the size of a file above 2 GiB for a negative number.
  static constexpr std::size_t most_bytes = 100'000'000, most_pieces = 4'000'000;
  /// Bytes of a piece. SentencePiece builds its trie by recursion, one level per byte, and 200,000 levels
  /// overflow the stack. Its releases from 0.2.2 on refuse 8000.
  static constexpr std::size_t longest_piece = 7999;
  /// The most user-defined pieces that are prefixes of one another. SentencePiece stores the matches at one
  /// position of a text in an array of 64 elements and reads beyond its end if there are more.
  static constexpr std::size_t most_matches = 64;
  /// Self-test samples, which SentencePiece encodes while it loads a model; trained models have none.
  static constexpr std::size_t most_sample_bytes = 16'384, most_samples = 100;

  std::vector<Piece> pieces{};
  Kind kind = Kind::unigram;
  bool byte_fallback = false;
  bool adds_space = true;        ///< puts a space before each text (add_dummy_prefix)
  bool collapses_spaces = true;  ///< merges spaces, strips the ends (remove_extra_whitespaces)

  /// Throws ValueError for bytes that are not a model or break one of these rules, with a text that follows
  /// "... is": each piece is UTF-8 without a zero byte, neither empty nor too long, and the only one of its
  /// text; scores are finite; there is one unknown piece; bytes are spelled <0x00> to <0xFF>, all of them or
  /// none; the ids of special pieces are those of pieces; tables of characters pass CharsmapCheck.
  static SentencePieceModel read(std::string_view bytes) {
    if (bytes.empty()) throw ValueError("sentencepiece", "empty, expected a SentencePiece model");
    if (bytes.size() > most_bytes) {
      throw damaged("it has " + std::to_string(bytes.size()) + " bytes, expected at most " +
                    std::to_string(most_bytes));
    }
    SentencePieceModel model;
    Rest rest;
    try {
      model.read_fields(ProtobufMessage(bytes), rest);
    } catch (const ValueError& error) {
      if (error.op() != "protobuf") throw;
      throw ValueError("sentencepiece",
                       "truncated or not a SentencePiece model: " + std::to_string(bytes.size()) +
                           " bytes (" + message_of(error) + ")");
    }
    model.check(rest);
    return model;
  }

  /// The byte that a piece such as <0xE4> stands for; nothing for other texts.
  static std::optional<std::uint8_t> byte_of(std::string_view text) {
    const auto digit = [](char c) {
      return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
    const int high = digit(text[3]), low = digit(text[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<std::uint8_t>(high * 16 + low);
  }

 private:
  // Fields that are only checked.
  struct Rest {
    std::vector<std::pair<std::string, std::uint64_t>> ids;
    std::size_t samples = 0;
  };

  static ValueError damaged(const std::string& what) {
    return ValueError("sentencepiece", "a damaged SentencePiece model: " + what);
  }

  // Fields may come in any order and more than once; the last one counts, as in SentencePiece.
  void read_fields(ProtobufMessage model, Rest& rest) {
    while (model.next()) {
      switch (model.field()) {
        case 1:
          if (pieces.size() == most_pieces)
            throw damaged("it has more than " + std::to_string(most_pieces) + " pieces");
          pieces.push_back(read_piece(ProtobufMessage(model.bytes())));
          break;
        case 2:
          read_training(ProtobufMessage(model.bytes()), rest);
          break;
        case 3:
          read_normalizer(ProtobufMessage(model.bytes()), true);
          break;
        case 4:
          read_samples(ProtobufMessage(model.bytes()), rest);
          break;
        case 5:
          read_normalizer(ProtobufMessage(model.bytes()), false);
          break;
        default:
          break;
      }
    }
  }

  Piece read_piece(ProtobufMessage message) const {
    Piece piece;
    while (message.next()) {
      if (message.field() == 1) piece.text = message.bytes();
      if (message.field() == 2) piece.score = message.real();
      if (message.field() == 3)
        piece.type =
            static_cast<Type>(in_range(message.number(), 6, [&] { return name() + " has the type"; }));
    }
    return piece;
  }

  void read_training(ProtobufMessage message, Rest& rest) {
    while (message.next()) {
      const std::uint32_t field = message.field();
      if (field == 3)
        kind = static_cast<Kind>(in_range(message.number(), 4, [] { return "its model_type is"; }));
      if (field == 35) byte_fallback = message.number() != 0;
      if (field >= 40 && field <= 43) {
        static constexpr const char* names[] = {"unk_id", "bos_id", "eos_id", "pad_id"};
        rest.ids.emplace_back(names[field - 40], message.number());
      }
    }
  }

  void read_normalizer(ProtobufMessage message, bool of_input) {
    while (message.next()) {
      if (message.field() == 2) CharsmapCheck::run(message.bytes());
      if (of_input && message.field() == 3) adds_space = message.number() != 0;
      if (of_input && message.field() == 4) collapses_spaces = message.number() != 0;
    }
  }

  static void read_samples(ProtobufMessage message, Rest& rest) {
    while (message.next()) {
      if (message.field() != 1) continue;
      if (++rest.samples > most_samples)
        throw damaged("self_test_data has more than " + std::to_string(most_samples) + " samples");
      ProtobufMessage sample(message.bytes());
      while (sample.next()) {
        if (sample.field() == 1 && sample.bytes().size() > most_sample_bytes) {
          throw damaged("self_test_data has a sample of " + std::to_string(sample.bytes().size()) +
                        " bytes, expected at most " + std::to_string(most_sample_bytes));
        }
      }
    }
  }

  // A value of an enumeration. SentencePiece replaces an unknown value by the default.
  template <class Name>
  static std::uint64_t in_range(std::uint64_t value, std::uint64_t last, Name&& name) {
    if (value < 1 || value > last) {
      throw damaged(name() + (" " + std::to_string(value)) + ", expected 1 to " + std::to_string(last));
    }
    return value;
  }

  std::string name() const { return "piece " + std::to_string(pieces.size()); }

  void check(const Rest& rest) const {
    if (pieces.empty()) throw damaged("it has no pieces");
    std::unordered_set<std::string_view> texts;
    texts.reserve(pieces.size());
    std::vector<std::string_view> user_defined;
    std::size_t unknown = 0, bytes = 0;
    for (std::size_t id = 0; id < pieces.size(); ++id) {
      const Piece& piece = pieces[id];
      const auto refuse = [&](const std::string& what) {
        return damaged("piece " + std::to_string(id) + " " + what);
      };
      if (piece.text.empty()) throw refuse("is empty");
      if (piece.text.size() > longest_piece) {
        throw refuse("has " + std::to_string(piece.text.size()) + " bytes, expected at most " +
                     std::to_string(longest_piece));
      }
      if (find_invalid_utf8(piece.text)) throw refuse("is not UTF-8");
      if (piece.text.find('\0') != std::string_view::npos) throw refuse("has a zero byte");
      if (!texts.insert(piece.text).second)
        throw refuse("is '" + std::string(piece.text) + "', the text of an earlier piece");
      if (!std::isfinite(piece.score)) throw refuse("has a score that is not a finite number");
      if (piece.type == Type::unknown) ++unknown;
      if (piece.type == Type::user_defined) user_defined.push_back(piece.text);
      if (piece.type == Type::byte) {
        if (!byte_fallback) throw refuse("stands for a byte, in a model without byte_fallback");
        if (!byte_of(piece.text)) {
          throw refuse("is '" + std::string(piece.text) +
                       "', expected the spelling of a byte, such as <0xE4>");
        }
        ++bytes;
      }
    }
    if (unknown != 1)
      throw damaged("it has " + std::to_string(unknown) + " pieces of type unknown, expected 1");
    if (byte_fallback && bytes != 256) {
      throw damaged("it has byte_fallback and " + std::to_string(bytes) +
                    " pieces that stand for a byte, expected 256");
    }
    check_matches(std::move(user_defined));
    for (const auto& [what, id] : rest.ids) {  // an int32; negative: the model has no such piece
      if (static_cast<std::int64_t>(id) >= static_cast<std::int64_t>(pieces.size())) {
        throw damaged(what + " is " + std::to_string(id) + ", and it has " + std::to_string(pieces.size()) +
                      " pieces");
      }
    }
  }

  // In sorted order, a piece comes after all pieces that are its prefixes.
  static void check_matches(std::vector<std::string_view> user_defined) {
    std::sort(user_defined.begin(), user_defined.end());
    std::vector<std::string_view> begins;
    for (const std::string_view text : user_defined) {
      while (!begins.empty() && text.substr(0, begins.back().size()) != begins.back()) begins.pop_back();
      begins.push_back(text);
      if (begins.size() > most_matches) {
        throw damaged("more than " + std::to_string(most_matches) +
                      " user-defined pieces are prefixes of one another");
      }
    }
  }
};

}  // namespace eigenformer::detail
