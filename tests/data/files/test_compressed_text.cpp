#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

namespace {

/// Those that this program was built with.
std::vector<Compression> kinds() {
  std::vector<Compression> found;
  if (detail::find_linked<detail::GzipFunctions>() != nullptr) found.push_back(Compression::gzip);
  if (detail::find_linked<detail::ZstdFunctions>() != nullptr) found.push_back(Compression::zstd);
  return found;
}

/// Reads bytes that come in pieces of some size.
std::string in_pieces(const std::string& stored, std::size_t piece) {
  DecompressedStream stream("pieces");
  std::string text;
  for (std::size_t at = 0; at < stored.size(); at += piece) {
    stream.add(std::string_view(stored).substr(at, piece));
    while (stream.read(text)) {
    }
  }
  stream.end();
  while (stream.read(text)) {
  }
  return text;
}

}  // namespace

TEST_CASE("compressed text: names and contents tell the format") {
  CHECK(detail::compression_of_name("a/b.de.gz") == Compression::gzip);
  CHECK(detail::compression_of_name("b.zst") == Compression::zstd);
  CHECK(detail::compression_of_name("b.de") == Compression::none);
  CHECK(detail::compression_of_name("gz") == Compression::none);
  CHECK(detail::compression_of_content("\x1f\x8b\x08") == Compression::gzip);
  CHECK(detail::compression_of_content("(\xb5/\xfd") == Compression::zstd);
  CHECK(detail::compression_of_content("P*M\x18") == Compression::zstd);
  CHECK(detail::compression_of_content("(see)") == Compression::none);
  CHECK(detail::compression_of_content("P\n") == Compression::none);
  CHECK_FALSE(detail::compression_of_content("").has_value());
  CHECK_FALSE(detail::compression_of_content("(").has_value());
  CHECK_FALSE(detail::compression_of_content("\x1f").has_value());
  CHECK_FALSE(detail::compression_of_content("_*M").has_value());
}

TEST_CASE("compressed text: what is not compressed comes as it is, however short") {
  const std::vector<std::string> texts = {"", "(", "P*", "\x1f", "one\ntwo\n", std::string(200'000, 'x')};
  for (const std::string& text : texts) {
    CAPTURE(text.size());
    CHECK(decompress(text, "text") == text);
    CHECK(compress(Compression::none, text) == text);
    CHECK(in_pieces(text, 1 + text.size() / 3) == text);
  }
}

TEST_CASE("compressed text: round trips, whole and in pieces, and members one after the other") {
  std::string large;
  for (int i = 0; large.size() < 3'000'000; ++i) large += "line " + std::to_string(i * 7919) + '\n';
  for (const Compression kind : kinds()) {
    CAPTURE(detail::compression_name(kind));
    for (const std::string& text : {std::string(),
                                    std::string("Gr\xC3\xBC\xC3\x9F"
                                                "e\n"),
                                    large}) {
      const std::string stored = compress(kind, text);
      CHECK(detail::compression_of_content(stored) == kind);
      CHECK(decompress(stored, "f") == text);
      if (text.size() < 100) CHECK(in_pieces(stored, 1) == text);
      CHECK(in_pieces(stored, 65'536) == text);
      CHECK(decompress(stored + compress(kind, "end") + compress(kind, ""), "f") == text + "end");
    }
    // 4 MB of one letter are some hundred bytes: what a call gives is bounded all the same.
    DecompressedStream stream("bomb");
    stream.add(compress(kind, std::string(4'000'000, 'x')));
    std::string text;
    CHECK(stream.read(text));
    CHECK(text.size() <= detail::decompressed_at_once);
  }
}

TEST_CASE(
    "compressed text: cut anywhere, damaged, or with something behind it, it is refused with the place") {
  for (const Compression kind : kinds()) {
    CAPTURE(detail::compression_name(kind));
    const std::string text = "I see the dog.\nWe paint the cat.\nI see the dog.\n",
                      stored = compress(kind, text);
    const std::size_t signature = kind == Compression::gzip ? 2 : 4;
    for (std::size_t n = signature; n < stored.size(); ++n) {
      CAPTURE(n);
      const std::string message = message_of<IoError>([&] { decompress(stored.substr(0, n), "a.cut"); });
      CHECK(contains(message, "'a.cut'"));
      CHECK(contains(message, "after byte " + std::to_string(n) + "; the file is truncated"));
    }
    // A second member that is cut is as bad as a first one.
    CHECK_THROWS_AS(decompress(stored + stored.substr(0, stored.size() - 1), "f"), IoError);
    for (const char* behind : {"x", "rest of a line\n", "\x1f"}) {
      CAPTURE(behind);
      CHECK_THROWS_AS(decompress(stored + behind, "f"), IoError);
    }
    CHECK(contains(message_of<IoError>([&] { decompress(stored + "garbage", "f"); }),
                   "damaged at about byte "));
    // A byte of the header may say nothing about the text, such as the time; no damage gives another text.
    int refused = 0;
    for (std::size_t i = signature; i < stored.size(); ++i) {
      CAPTURE(i);
      std::string damaged = stored;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
      try {
        const std::string read = decompress(damaged, "f");
        CHECK(read == text);
      } catch (const IoError&) {
        ++refused;
      }
    }
    CHECK(refused + 8 > static_cast<int>(stored.size() - signature));
  }
}

TEST_CASE("compressed text: lines and corpora are read from it") {
  const testing::TemporaryFolder folder;
  const auto plain = folder.write("plain", "eins\nzwei\n");
  for (const Compression kind : kinds()) {
    const auto packed = folder.write("packed", compress(kind, "one\r\n") + compress(kind, "two"));
    CHECK(read_lines(packed) == std::vector<std::string>{"one", "two"});
    CHECK(read_parallel_files(packed, plain).size() == 2);
    const auto bad = folder.write("bad.en", compress(kind, "fine\nna\xEFve\n"));
    CHECK(contains(message_of<IoError>([&] { read_lines(bad); }), "bad.en', line 2, byte offset 7"));
  }
}

TEST_CASE("compressed text: without the library it says so, and what to install") {
  const auto check = [](Compression kind, const char* signature, const char* package) {
    const auto working = kinds();
    if (std::find(working.begin(), working.end(), kind) != working.end()) return;
    const std::string expected = std::string("install ") + package;
    CHECK(contains(message_of<IoError>([&] { decompress(signature, "a"); }), expected));
    CHECK(contains(message_of<IoError>([&] { compress(kind, "a"); }), expected));
  };
  check(Compression::gzip, "\x1f\x8b\x08", "zlib1g-dev");
  check(Compression::zstd, "(\xb5/\xfd", "libzstd-dev");
}
