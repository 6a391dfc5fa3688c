#include "eigenformer/data/tokenizers/sentencepiece/model.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "crafted_models.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
using detail::SentencePieceModel;
using std::string_literals::operator""s;

namespace {

void check_refused(const std::string& model, const std::string& expected) {
  CAPTURE(expected);
  const std::string message = message_of<ValueError>([&] { (void)SentencePieceModel::read(model); });
  CAPTURE(message);
  CHECK(contains(message, expected));
}
void check_map_refused(const std::string& map, const std::string& expected) {
  check_refused(model_of(normalizer(bytes_field(2, map))), "precompiled_charsmap) " + expected);
}

std::string byte_pieces(int count) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (int i = 0; i < count; ++i) out += piece("<0x"s + digits[i / 16] + digits[i % 16] + ">", 6, 0);
  return out;
}

}  // namespace

TEST_CASE("a SentencePiece model is read from its bytes") {
  const std::string bytes = model_of(
      byte_pieces(256) + training(number_field(35, 1) + number_field(40, 0) + number_field(43, ~0ull)) +
      normalizer(bytes_field(1, "user_defined") + number_field(3, 0) +
                 bytes_field(2, one_rule().bytes("b\0"s)) + number_field(4, 0)) +
      bytes_field(4, bytes_field(1, bytes_field(1, "a b") + bytes_field(2, "a"))) +
      bytes_field(5, bytes_field(2, one_rule().bytes("b\0"s)) + number_field(3, 1)) + number_field(200, 7) +
      varint(201 << 3 | 1) + "12345678" + bytes_field(900, "extension"));
  const SentencePieceModel model = SentencePieceModel::read(bytes);
  REQUIRE(model.pieces.size() == 7 + 256);
  CHECK(model.pieces[0].type == SentencePieceModel::Type::unknown);
  CHECK(model.pieces[6].text == "ab");
  CHECK(model.pieces[6].score == -1);
  CHECK(model.kind == SentencePieceModel::Kind::bpe);
  CHECK(model.byte_fallback);
  CHECK_FALSE(model.adds_space);
  CHECK_FALSE(model.collapses_spaces);
  CHECK(SentencePieceModel::byte_of(model.pieces[7 + 0xE4].text) == 0xE4);
  // Of a field that comes twice the last one counts.
  CHECK(SentencePieceModel::read(bytes + training(number_field(3, 1))).kind ==
        SentencePieceModel::Kind::unigram);
}

TEST_CASE("bytes that are no message are no SentencePiece model") {
  check_refused("", "empty, expected a SentencePiece model");
  const std::string cut = "truncated or not a SentencePiece model: ";
  check_refused("abc", cut + "3 bytes (field 12 has 8 bytes, 2 are left)");
  check_refused("\n", cut + "1 bytes (a number at byte 1 does not end)");
  check_refused(std::string(11, '\xFF'), cut + "11 bytes (a number at byte 10 does not end)");
  check_refused("\x0A\x05xyz", cut + "5 bytes (field 1 has 5 bytes, 3 are left)");
  check_refused("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
                "field 1 has 18446744073709551615 bytes, 0 are left");
  check_refused("\x07\x01", "a field has the number 0");
  check_refused(varint(std::uint64_t{1} << 33) + "\x01", "a field has the number 1073741824");
  check_refused("\x0B\x0C", "field 1 has the wire type 3");
  check_refused("\x08\x01", "field 1 has the wire type 0, expected 2");
  check_refused(bytes_field(1, bytes_field(1, "a") + number_field(2, 0)),
                "field 2 has the wire type 0, expected 5");
  const std::string whole = piece("<unk>", 2);
  CHECK_NOTHROW((void)SentencePieceModel::read(whole));
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK_THROWS_AS((void)SentencePieceModel::read(std::string_view(whole).substr(0, size)), ValueError);
}

TEST_CASE("each rule of a SentencePiece model's pieces") {
  CHECK_NOTHROW((void)SentencePieceModel::read(model_of()));
  check_refused(model_of(piece("")), "a damaged SentencePiece model: piece 7 is empty");
  check_refused(model_of(bytes_field(1, number_field(3, 1))), "piece 7 is empty");
  CHECK_NOTHROW((void)SentencePieceModel::read(model_of(piece(std::string(7999, 'x')))));
  check_refused(model_of(piece(std::string(8000, 'x'))), "piece 7 has 8000 bytes, expected at most 7999");
  check_refused(model_of(piece("x\xE4y")), "piece 7 is not UTF-8");
  check_refused(model_of(piece("x\0y"s)), "piece 7 has a zero byte");
  check_refused(model_of(piece("ab", 4)), "piece 7 is 'ab', the text of an earlier piece");
  check_refused(model_of(piece("x", 1, std::nanf(""))), "piece 7 has a score that is not a finite number");
  check_refused(model_of(piece("x", 1, -std::numeric_limits<float>::infinity())), "has a score");
  check_refused(model_of(piece("x", 7)), "piece 7 has the type 7, expected 1 to 6");
  check_refused(model_of(piece("x", 0)), "piece 7 has the type 0");
  check_refused(model_of(piece("x", (std::uint64_t{1} << 32) + 1)), "piece 7 has the type 4294967297");
  check_refused(model_of(piece("x", 2)), "it has 2 pieces of type unknown, expected 1");
  check_refused(piece("a"), "it has 0 pieces of type unknown, expected 1");
  check_refused(training(number_field(3, 2)), "it has no pieces");
  check_refused(model_of(byte_pieces(1)), "piece 7 stands for a byte, in a model without byte_fallback");
  const std::string with_bytes = training(number_field(35, 1));
  check_refused(model_of(byte_pieces(255) + with_bytes),
                "it has byte_fallback and 255 pieces that stand for a byte, expected 256");
  for (const char* wrong : {"<0xe4>", "<0x4>", "<0xG4>", "<0xE4", "[0xE4]", "<0x-1>"})
    check_refused(model_of(piece(wrong, 6) + with_bytes), "expected the spelling of a byte, such as <0xE4>");
  std::string nested;
  for (std::size_t i = 1; i <= 64; ++i)
    nested += piece(std::string(i, 'u'), 4) + piece("v" + std::to_string(i), 4);
  CHECK_NOTHROW((void)SentencePieceModel::read(model_of(nested)));
  check_refused(model_of(nested + piece(std::string(65, 'u'), 4)),
                "more than 64 user-defined pieces are prefixes of one another");
}

TEST_CASE("each rule of what else a SentencePiece model says") {
  check_refused(model_of(training(number_field(3, 5))), "its model_type is 5, expected 1 to 4");
  check_refused(model_of(training(number_field(40, 7))), "unk_id is 7, and it has 7 pieces");
  check_refused(model_of(training(number_field(41, 7))), "bos_id is 7");
  check_refused(model_of(training(number_field(42, 90))), "eos_id is 90");
  check_refused(model_of(training(number_field(43, 7))), "pad_id is 7");
  CHECK_NOTHROW((void)SentencePieceModel::read(model_of(training(number_field(43, 6)))));
  const auto sample = [](std::size_t size) {
    return bytes_field(4, bytes_field(1, bytes_field(1, std::string(size, 'a'))));
  };
  CHECK_NOTHROW((void)SentencePieceModel::read(model_of(sample(16384))));
  check_refused(model_of(sample(16385)),
                "self_test_data has a sample of 16385 bytes, expected at most 16384");
  std::string many;
  for (int i = 0; i < 101; ++i) many += sample(1);
  check_refused(model_of(many), "self_test_data has more than 100 samples");
  check_refused(std::string(100'000'001, '\0'), "it has 100000001 bytes, expected at most 100000000");
}

TEST_CASE("each rule of a table of characters") {
  const auto accepted = [](const std::string& map) {
    CHECK_NOTHROW((void)SentencePieceModel::read(model_of(normalizer(bytes_field(2, map)))));
  };
  accepted("");
  accepted(one_rule().bytes("b\0"s));
  accepted(one_rule(2).bytes("b\0\0"s));
  check_map_refused("abc", "has a trie of 0 bytes, expected a multiple of 1024");
  check_map_refused(little_endian(1000) + std::string(2000, '\0'), "has a trie of 1000 bytes");
  check_map_refused(little_endian(2048) + std::string(2047, '\0'), "has 2051 bytes, its trie alone 2048");
  check_map_refused(little_endian(0xFFFFFC00u) + std::string(2047, '\0'),
                    "has 2051 bytes, its trie alone 4294966272");
  check_map_refused(one_rule().bytes(""), "has strings that do not end in a zero byte");
  check_map_refused(one_rule().bytes("b\0b"s), "has strings that do not end in a zero byte");
  check_map_refused(one_rule(2).bytes("b\0"s), "points to byte 2 of its strings, and has 2");
  check_map_refused(one_rule(0x7FFFFFFF).bytes("b\0"s), "points to byte 2147483647");
  check_map_refused(one_rule().bytes("\xC3\0"s), "has a string that is not UTF-8");
  check_map_refused(one_rule(1).bytes("\xC3\xA4\0"s), "points into a character, at byte 1 of its strings");
  accepted(one_rule().bytes(std::string(128, 'b') + '\0'));
  check_map_refused(one_rule().bytes(std::string(129, 'b') + '\0'),
                    "has a string of 129 bytes, expected at most 128");
  check_map_refused(std::string((8u << 20) + 1, '\0'), "has 8388609 bytes, expected at most 8388608");
  // The same rules hold where the library turns tokens into text.
  check_refused(model_of(bytes_field(5, bytes_field(2, "abc"))), "has a trie of 0 bytes");

  CharsmapWriter far = one_rule();
  far.root(256);
  check_map_refused(far.bytes("b\0"s), "leads from unit 0 of its trie to unit 256, and has 256");
  CharsmapWriter later = one_rule();
  later.edge(1, 'z', 300);
  check_map_refused(later.bytes("b\0"s), "leads from unit 123 of its trie to unit 300, and has 256");
  CharsmapWriter circle = one_rule();
  circle.edge(2, 'c', 1);
  check_map_refused(circle.bytes("b\0"s), "has a trie that leads back to unit 1");

  const auto chain = [](std::uint32_t length, bool match) {
    CharsmapWriter map(4096);
    map.root(1);
    for (std::uint32_t i = 1; i <= length; ++i) {
      map.edge(i, match ? 'a' : 0xE3, i + 1, match);
      if (match) map.value(i + 1, 0);
    }
    return map.bytes("b\0"s);
  };
  accepted(chain(32, true));
  check_map_refused(chain(33, true), "has more than 32 strings that are prefixes of one another");
  check_map_refused(chain(200, false), "has a trie that follows more than 128 bytes of a text");
  // Two ways to one place, of which the second alone is a match.
  CharsmapWriter shared;
  shared.root(1);
  shared.edge(1, 'a', 2);
  shared.edge(1, 'b', 2, true);
  shared.value(2, 9);
  check_map_refused(shared.bytes("b\0"s), "points to byte 9");
}
