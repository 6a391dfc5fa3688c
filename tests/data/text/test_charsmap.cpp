#include "eigenformer/data/text/charsmap.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

using namespace eigenformer;

namespace {

// The bytes of a table: a node is a block of 256 units, its child for a byte the unit of that number, and the
// unit 0 says where the replacement is, if it ends here.
class Table {
 public:
  explicit Table(const std::map<std::string, std::string>& entries) : units_(1) {
    const std::size_t root = block();
    units_[0] = static_cast<std::uint32_t>(root / 256) << 10 | 0x200u;  // an offset in 256s
    for (const auto& [from, to] : entries) {
      std::size_t node = root;
      for (std::size_t i = 0; i < from.size(); ++i) {
        const auto byte = static_cast<std::uint8_t>(from[i]);
        const std::size_t at = node + byte;
        if (children_.count(at) == 0) {
          children_[at] = block();
          units_[at] = static_cast<std::uint32_t>(at ^ children_[at]) << 10 | byte;
        }
        node = children_[at];
        if (i + 1 == from.size()) units_[at] |= 0x100u;
      }
      units_[node] = 0x80000000u | static_cast<std::uint32_t>(strings_.size());
      strings_ += to + '\0';
    }
  }

  std::string bytes() const {
    std::string out;
    append(out, static_cast<std::uint32_t>(4 * units_.size()));
    for (const std::uint32_t unit : units_) append(out, unit);
    return out + strings_;
  }

 private:
  std::size_t block() {
    const std::size_t begin = (units_.size() + 255) / 256 * 256;
    units_.resize(begin + 256);
    return begin;
  }
  static void append(std::string& out, std::uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(word >> shift & 0xFFu);
  }

  std::vector<std::uint32_t> units_;
  std::map<std::size_t, std::size_t> children_;
  std::string strings_;
};

Table table() {
  return Table({{"a", "xyz"},
                {"e\xCC\x81", "\xC3\xA9"},  // e and an accent
                {"\xEF\xAC\x81", "fi"},     // a ligature
                {"\xE2\x80\x8B", ""},       // a space without width
                {"\xE3\x80\x80", " "}});    // a wide space
}

}  // namespace

TEST_CASE("a table of characters replaces what it has and leaves the rest") {
  const detail::Charsmap map(table().bytes());
  CHECK(map.apply("").empty());
  CHECK(map.apply("bad") == "bxyzd");
  CHECK(map.apply("\xEF\xAC\x81\xE3\x80\x80x\xE2\x80\x8Bz\xE7\x8A\xAC") == "fi xz\xE7\x8A\xAC");
  CHECK(map.apply("eb e\xCC\x81") == "eb \xC3\xA9");
  CHECK(map.apply("x\r\nx") == "x\r\nx");
}

TEST_CASE("what a user sees as one character is replaced as a whole if it is short") {
  const detail::Charsmap map(table().bytes());
  CHECK(map.apply("a\xCC\x81"
                  "b") == "xyzb");  // by its beginning
  // Six bytes and more: code point by code point.
  CHECK(map.apply("a\xCC\x81\xCC\x82\xCC\x83") == "xyz\xCC\x81\xCC\x82\xCC\x83");
  CHECK(map.apply("e\xCC\x81\xCC\x82\xCC\x83") == "e\xCC\x81\xCC\x82\xCC\x83");
}

TEST_CASE("bytes that are no table are refused, and damaged ones read nothing outside") {
  const std::string bytes = table().bytes();
  for (const std::string& damaged :
       {std::string(), std::string("abc"), std::string("\4\0\0\0", 4), bytes.substr(0, 200),
        "\5" + bytes.substr(1), std::string("\0\0\0\0abcd", 8)}) {
    CAPTURE(damaged.size());
    CHECK_THROWS_AS(detail::Charsmap{damaged}, ValueError);
  }
  // Units that point everywhere.
  std::string wild = bytes;
  for (std::size_t i = 4; i < wild.size(); ++i)
    wild[i] = static_cast<char>(wild[i] ^ (i % 7 == 0 ? 0x55 : 0));
  CHECK(detail::Charsmap(wild).apply("\xE7\x8A\xAC").size() <= wild.size());
  // A string without its end, and one that is not there.
  const std::string short_table = Table(std::map<std::string, std::string>{{"a", "xyz"}}).bytes();
  const std::size_t strings = short_table.size() - 4;
  CHECK(detail::Charsmap(short_table.substr(0, strings + 2)).apply("a") == "xy");
  CHECK(detail::Charsmap(short_table.substr(0, strings)).apply("a") == "a");
}
