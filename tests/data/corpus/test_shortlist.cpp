#include "eigenformer/data/corpus/shortlist.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "temporary_folder.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Ids = std::vector<std::int32_t>;

const Shortlist& small() {
  static const Shortlist shortlist(3, {{}, {9, 4, 4}, {20, 1}, {5}});
  return shortlist;
}

std::string file_of(const Shortlist& shortlist) {
  const TemporaryFolder folder;
  shortlist.save(folder / "lex.bin");
  return detail::read_text_file(folder / "lex.bin");
}

void check_refused(const std::string& bytes, const std::string& word) {
  CAPTURE(word);
  try {
    (void)Shortlist::parse(bytes, "lex.bin");
    CHECK(false);
  } catch (const IoError& error) {
    CHECK(std::string(error.what()).find("lex.bin") != std::string::npos);
    CHECK_MESSAGE(std::string(error.what()).find(word) != std::string::npos, error.what());
  }
}

}  // namespace

TEST_CASE("a shortlist chooses the first ids, the sources' lists, and fills up to a multiple of eight") {
  const Shortlist& s = small();
  CHECK(s.source_size() == 4);
  CHECK(Ids(s.list(1).begin(), s.list(1).end()) == Ids{4, 9});
  CHECK(s.list(7).empty());
  CHECK(s.list(-1).empty());
  CHECK(s.choose(Ids{1, 2, 1, 99}, 30) == Ids{0, 1, 2, 3, 4, 5, 9, 20});
  CHECK(s.choose(Ids{0}, 30) == Ids{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(s.choose(Ids{1, 2, 3}, 30) == Ids{0, 1, 2, 3, 4, 5, 9, 20});
  // The source's own ids, too.
  CHECK(s.with_source_ids().choose(Ids{1, 12, 2}, 30) == Ids{0, 1, 2, 3, 4, 9, 12, 20});
  // Within the vocabulary.
  CHECK(s.choose(Ids{2}, 6) == Ids{0, 1, 2, 3, 4, 5});
  CHECK(s.choose(Ids{2}, 2) == Ids{0, 1});
  CHECK(Shortlist().choose(Ids{1}, 9).empty());
  CHECK_THROWS_AS(Shortlist(-1, {}), ValueError);
  CHECK_THROWS_AS(Shortlist(1, {{-2}}), ValueError);
}

TEST_CASE("a shortlist's file is Marian's") {
  // Written by hand: first 3, best 2, offsets 0 0 2 4 5, ids, and the checksum over what follows it.
  std::vector<std::uint64_t> head = {0xF11A48D5013417F5, 0, 3, 2, 5, 5, 0, 0, 2, 4, 5};
  const std::vector<std::uint32_t> ids = {4, 9, 1, 20, 5};
  std::string expected(reinterpret_cast<const char*>(head.data()), 8 * head.size());
  expected.append(reinterpret_cast<const char*>(ids.data()), 4 * ids.size());
  std::uint64_t sum = 0;
  for (std::size_t at = 16; at + 8 <= expected.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, expected.data() + at, 8);
    sum ^= word + 0x9e3779b9 + (sum << 6) + (sum >> 2);
  }
  std::memcpy(expected.data() + 8, &sum, 8);
  CHECK(file_of(small()) == expected);
  const Shortlist back = Shortlist::parse(expected, "lex.bin");
  CHECK(back.first() == 3);
  CHECK(file_of(back) == expected);
  for (std::int32_t id = 0; id < 4; ++id)
    CHECK(Ids(back.list(id).begin(), back.list(id).end()) ==
          Ids(small().list(id).begin(), small().list(id).end()));
}

TEST_CASE("a damaged shortlist is refused") {
  const std::string good = file_of(small());
  check_refused("", "0 bytes");
  check_refused(std::string(100, 'x'), "not a binary shortlist");
  for (std::size_t n = 48; n < good.size(); ++n) check_refused(good.substr(0, n), "truncated");
  check_refused(good + "x", "truncated");
  for (std::size_t at = 16; at < good.size() - 4; ++at) {
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    CHECK_THROWS_AS((void)Shortlist::parse(changed, "lex.bin"), IoError);
  }
  // With a checksum that fits.
  const auto with = [&](std::size_t word, std::uint64_t value) {
    std::string changed = good;
    std::memcpy(changed.data() + 8 * word, &value, 8);
    std::uint64_t sum = 0;
    for (std::size_t at = 16; at + 8 <= changed.size(); at += 8) {
      std::uint64_t read = 0;
      std::memcpy(&read, changed.data() + at, 8);
      sum ^= read + 0x9e3779b9 + (sum << 6) + (sum >> 2);
    }
    std::memcpy(changed.data() + 8, &sum, 8);
    return changed;
  };
  check_refused(with(6, 1), "offset 1 of source id 0");
  check_refused(with(8, 7), "offset 7 of source id 2");
  check_refused(with(10, 4), "end at 4");
  check_refused(with(2, std::uint64_t{1} << 40), "first ids");
  check_refused(with(11, 0xffffffff00000001), "target id 4294967295");
}

TEST_CASE("a shortlist of a lexicon has the likeliest translations") {
  const Lexicon lexicon = {{}, {{7, 0.2}, {3, 0.5}, {4, 0.2}, {9, 0.1}}};
  const Shortlist s = Shortlist::from_lexicon(lexicon, 2, 2);
  CHECK(s.first() == 2);
  CHECK(Ids(s.list(1).begin(), s.list(1).end()) == Ids{3, 4});  // of like ones the lower id
  CHECK_THROWS_AS(Shortlist::from_lexicon(lexicon, 2, -1), ValueError);
}
