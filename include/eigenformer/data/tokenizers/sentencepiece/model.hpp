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

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer::detail {

/// The fields of a message in the wire format of Protocol Buffers (protobuf.dev, "Encoding"), read in place.
/// All members throw ValueError for other bytes; its message completes a sentence that ends with "is".
class ProtobufMessage {
 public:
  enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  explicit ProtobufMessage(std::string_view bytes) : bytes_(bytes) {}

  /// Reads the next field, whatever its number; false at the end. Groups are refused: proto3 removed them,
  /// and no version of sentencepiece_model.proto has them.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    if (key < 8 || key > 0xFFFFFFFFu) throw damaged({"a field has the number ", key >> 3});
    field_ = static_cast<std::uint32_t>(key >> 3);
    wire_ = static_cast<Wire>(key & 7);
    switch (wire_) {
      case Wire::varint:
        number_ = varint();
        return true;
      case Wire::fixed64:
        value_ = take(8);
        return true;
      case Wire::bytes:
        value_ = take(varint());
        return true;
      case Wire::fixed32:
        value_ = take(4);
        return true;
    }
    throw damaged({of_field(), " has the wire type ", key & 7});
  }

  /// The number of the field that next() has read.
  std::uint32_t field() const noexcept { return field_; }

  /// The value of that field, which must have the wire type in the function's name.
  std::uint64_t number() const {
    require(Wire::varint);
    return number_;
  }
  std::string_view bytes() const {
    require(Wire::bytes);
    return value_;
  }
  float real() const {
    require(Wire::fixed32);
    return load_as<float>(value_.data());
  }

 private:
  static ValueError damaged(std::initializer_list<MessagePart> what) { return ValueError("protobuf", what); }
  std::string of_field() const { return "field " + std::to_string(field_); }
  // SentencePiece skips a known field of another wire type, as if it were unknown.
  void require(Wire wire) const {
    if (wire_ != wire) {
      throw damaged({of_field(), " has the wire type ", static_cast<int>(wire_), ", expected ",
                     static_cast<int>(wire)});
    }
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_)
      throw damaged({of_field(), " has ", size, " bytes, ", bytes_.size() - at_, " are left"});
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += taken.size();
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80u) == 0) return value;
    }
    throw damaged({"a number at byte ", at_, " does not end"});
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::uint32_t field_ = 0;
  Wire wire_ = Wire::varint;
  std::uint64_t number_ = 0;
  std::string_view value_;
};

/// Checks a `precompiled_charsmap`, the table by which SentencePiece normalises text: the size of a trie in
/// bytes (32 bits), the trie as a double array of 32-bit units (as in the library darts-clone), and strings
/// that end with a zero byte, to which the trie's values point. SentencePiece 0.1.97 does not check offsets
/// against the end of the table. This check visits every unit that any text can reach once.
class CharsmapCheck {
 public:
  /// Limits of this reader, far above published tables: that of NFKC with case folding takes 250 kB and
  /// replaces at most 12 bytes by at most 33.
  static constexpr std::size_t most_bytes = std::size_t{8} << 20, longest_string = 128;
  /// SentencePiece stores the matches at one position of a text in an array of 32 elements
  /// (`kMaxTrieResultsSize`) and reads beyond its end if there are more.
  static constexpr std::size_t most_matches = 32;

  /// Throws ValueError if some text would lead outside the table; its message completes a sentence that ends
  /// with "is".
  static void run(std::string_view table) {
    if (!table.empty()) CharsmapCheck(table).run();
  }

 private:
  // The longest continuations of a unit of the trie.
  struct Rest {
    std::size_t matches = 0, bytes = 0;  // the most of any path
  };
  struct Step {
    std::size_t base;
    std::size_t next;  // the byte to follow next
    Rest rest;
  };
  enum Mark : std::uint8_t { unseen, open, done };

  explicit CharsmapCheck(std::string_view table) : table_(table) {
    if (table.size() > most_bytes)
      throw fault({"has ", table.size(), " bytes, expected at most ", most_bytes});
    const std::size_t size = table.size() < 4 ? 0 : word(0);
    // A step goes from a unit to any of the 256 whose numbers differ from its own in the last byte, so the
    // trie is made of blocks of 256.
    if (size == 0 || size % 1024 != 0)
      throw fault({"has a trie of ", size, " bytes, expected a multiple of 1024"});
    if (size > table.size() - 4) throw fault({"has ", table.size(), " bytes, its trie alone ", size});
    units_ = size / 4;
    strings_ = table.substr(4 + size);
    if (strings_.empty() || strings_.back() != '\0')
      throw fault({"has strings that do not end in a zero byte"});
    check_strings();
  }

  static ValueError fault(std::initializer_list<MessagePart> what) {
    return ValueError(
        "charsmap",
        {"a damaged SentencePiece model: its table of characters (precompiled_charsmap) ", join(what)});
  }

  std::uint32_t word(std::size_t i) const { return load_as<std::uint32_t>(table_.data() + i * 4); }
  std::uint32_t unit(std::size_t i) const { return word(1 + i); }

  // The unit that a unit leads to.
  std::size_t base_of(std::size_t at) const {
    const std::uint32_t value = unit(at);
    const std::size_t base = at ^ (std::size_t{value >> 10} << ((value & 0x200u) >> 6));
    if (base >= units_)
      throw fault({"leads from unit ", at, " of its trie to unit ", base, ", and has ", units_});
    return base;
  }

  void check_strings() const {
    for (std::size_t begin = 0; begin < strings_.size();) {
      const std::string_view string = strings_.substr(begin, strings_.find('\0', begin) - begin);
      if (string.size() > longest_string)
        throw fault({"has a string of ", string.size(), " bytes, expected at most ", longest_string});
      if (find_invalid_utf8(string)) throw fault({"has a string that is not UTF-8"});
      begin += string.size() + 1;
    }
  }

  // A value may point into another value's string, but not into the middle of a character.
  void check_value(std::size_t base) const {
    const std::size_t begin = unit(base) & 0x7FFFFFFFu;
    if (begin >= strings_.size())
      throw fault({"points to byte ", begin, " of its strings, and has ", strings_.size()});
    if ((static_cast<std::uint8_t>(strings_[begin]) & 0xC0u) == 0x80u)
      throw fault({"points into a character, at byte ", begin, " of its strings"});
  }

  void require_length(std::size_t bytes) const {
    if (bytes > longest_string)
      throw fault({"has a trie that follows more than ", longest_string, " bytes of a text"});
  }

  // Depth first. Branches may share continuations, but cycles are errors.
  void run() {
    marks_.assign(units_, unseen);
    rests_.assign(units_, Rest{});
    std::vector<Step> path{{base_of(0), 0, {}}};
    marks_[path.back().base] = open;
    while (!path.empty()) {
      Step& step = path.back();
      if (step.next == 256) {
        marks_[step.base] = done;
        rests_[step.base] = step.rest;
        path.pop_back();
        if (!path.empty()) close_branch(path.back());
        continue;
      }
      const std::size_t at = step.base ^ step.next;
      if ((unit(at) & 0x800000FFu) != step.next) {
        ++step.next;
        continue;
      }
      const std::size_t base = base_of(at);
      if (marks_[base] == open) throw fault({"has a trie that leads back to unit ", base});
      if (marks_[base] == done) {
        close_branch(step);
        continue;
      }
      if (ends_match(at)) check_value(base);
      require_length(path.size());
      marks_[base] = open;
      path.push_back({base, 0, {}});
    }
  }

  bool ends_match(std::size_t at) const { return (unit(at) & 0x100u) != 0; }

  // The continuations of the byte that `step` follows are known.
  void close_branch(Step& step) {
    const std::size_t at = step.base ^ step.next, base = base_of(at);
    if (ends_match(at)) check_value(base);  // another branch may have come here without the match
    step.rest.matches = std::max(step.rest.matches, rests_[base].matches + (ends_match(at) ? 1 : 0));
    step.rest.bytes = std::max(step.rest.bytes, rests_[base].bytes + 1);
    if (step.rest.matches > most_matches)
      throw fault({"has more than ", most_matches, " strings that are prefixes of one another"});
    require_length(step.rest.bytes);
    ++step.next;
  }

  std::string_view table_, strings_;
  std::size_t units_ = 0;
  std::vector<Mark> marks_;  // by the unit that a unit leads to
  std::vector<Rest> rests_;
};

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
    if (bytes.size() > most_bytes)
      throw damaged({"it has ", bytes.size(), " bytes, expected at most ", most_bytes});
    SentencePieceModel model;
    Rest rest;
    try {
      model.read_fields(ProtobufMessage(bytes), rest);
    } catch (const ValueError& error) {
      if (error.op() != "protobuf") throw;
      throw ValueError("sentencepiece", {"truncated or not a SentencePiece model: ", bytes.size(), " bytes (",
                                         message_of(error), ")"});
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

  static ValueError damaged(std::initializer_list<MessagePart> what) {
    return ValueError("sentencepiece", {"a damaged SentencePiece model: ", join(what)});
  }

  // Fields may come in any order and more than once; the last one counts, as in SentencePiece.
  void read_fields(ProtobufMessage model, Rest& rest) {
    while (model.next()) {
      switch (model.field()) {
        case 1:
          if (pieces.size() == most_pieces) throw damaged({"it has more than ", most_pieces, " pieces"});
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
        throw damaged({"self_test_data has more than ", most_samples, " samples"});
      ProtobufMessage sample(message.bytes());
      while (sample.next()) {
        if (sample.field() == 1 && sample.bytes().size() > most_sample_bytes) {
          throw damaged({"self_test_data has a sample of ", sample.bytes().size(),
                         " bytes, expected at most ", most_sample_bytes});
        }
      }
    }
  }

  // A value of an enumeration. SentencePiece replaces an unknown value by the default.
  template <class Name>
  static std::uint64_t in_range(std::uint64_t value, std::uint64_t last, Name&& name) {
    if (value < 1 || value > last) throw damaged({name(), " ", value, ", expected 1 to ", last});
    return value;
  }

  std::string name() const { return "piece " + std::to_string(pieces.size()); }

  void check(const Rest& rest) const {
    if (pieces.empty()) throw damaged({"it has no pieces"});
    std::unordered_set<std::string_view> texts;
    texts.reserve(pieces.size());
    std::vector<std::string_view> user_defined;
    std::size_t unknown = 0, bytes = 0;
    for (std::size_t id = 0; id < pieces.size(); ++id) {
      const Piece& piece = pieces[id];
      const auto refuse = [&](std::initializer_list<MessagePart> what) {
        return damaged({"piece ", id, " ", join(what)});
      };
      if (piece.text.empty()) throw refuse({"is empty"});
      if (piece.text.size() > longest_piece)
        throw refuse({"has ", piece.text.size(), " bytes, expected at most ", longest_piece});
      if (find_invalid_utf8(piece.text)) throw refuse({"is not UTF-8"});
      if (piece.text.find('\0') != std::string_view::npos) throw refuse({"has a zero byte"});
      if (!texts.insert(piece.text).second)
        throw refuse({"is '", piece.text, "', the text of an earlier piece"});
      if (!std::isfinite(piece.score)) throw refuse({"has a score that is not a finite number"});
      if (piece.type == Type::unknown) ++unknown;
      if (piece.type == Type::user_defined) user_defined.push_back(piece.text);
      if (piece.type == Type::byte) {
        if (!byte_fallback) throw refuse({"stands for a byte, in a model without byte_fallback"});
        if (!byte_of(piece.text))
          throw refuse({"is '", piece.text, "', expected the spelling of a byte, such as <0xE4>"});
        ++bytes;
      }
    }
    if (unknown != 1) throw damaged({"it has ", unknown, " pieces of type unknown, expected 1"});
    if (byte_fallback && bytes != 256)
      throw damaged({"it has byte_fallback and ", bytes, " pieces that stand for a byte, expected 256"});
    check_matches(std::move(user_defined));
    for (const auto& [what, id] : rest.ids) {  // an int32; negative: the model has no such piece
      if (static_cast<std::int64_t>(id) >= static_cast<std::int64_t>(pieces.size()))
        throw damaged({what, " is ", id, ", and it has ", pieces.size(), " pieces"});
    }
  }

  // In sorted order, a piece comes after all pieces that are its prefixes.
  static void check_matches(std::vector<std::string_view> user_defined) {
    std::sort(user_defined.begin(), user_defined.end());
    std::vector<std::string_view> begins;
    for (const std::string_view text : user_defined) {
      while (!begins.empty() && text.substr(0, begins.back().size()) != begins.back()) begins.pop_back();
      begins.push_back(text);
      if (begins.size() > most_matches)
        throw damaged({"more than ", most_matches, " user-defined pieces are prefixes of one another"});
    }
  }
};

}  // namespace eigenformer::detail
