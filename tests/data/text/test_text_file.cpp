#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/data/text/text_file.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

using Lines = std::vector<std::string>;

TEST_CASE("text_file: line ends of both kinds, a byte order mark, a last line without end") {
  CHECK(split_lines("a\nb\r\n\nc", "x") == Lines{"a", "b", "", "c"});
  CHECK(split_lines("a\nb\n", "x") == Lines{"a", "b"});
  CHECK(split_lines("\xEF\xBB\xBF"
                    "a\n\xEF\xBB\xBF"
                    "b",
                    "x") == Lines{"a",
                                  "\xEF\xBB\xBF"
                                  "b"});
  CHECK(split_lines("", "x").empty());
  CHECK(split_lines("\n", "x") == Lines{""});
  CHECK(split_lines("a\rb\r\r\n", "x") == Lines{"a\rb\r"});
}

TEST_CASE("text_file: all bytes of a file are read") {
  const testing::TemporaryFolder folder;
  const std::string bytes("Gr\xC3\xBC\r\n\0x", 8), long_text(200'000, 'y');
  CHECK(detail::read_text_file(folder.write("a", bytes)) == bytes);
  CHECK(detail::read_text_file(folder.write("a", long_text)) == long_text);
  CHECK(detail::read_text_file(folder.write("a", "")).empty());
}

TEST_CASE("text_file: a text that is longer than it may be is refused, compressed or not") {
  const testing::TemporaryFolder folder;
  const std::string text(5'000'000, '\n');
  CHECK(read_lines(folder.write("a", text), text.size()).size() == text.size());
  CHECK(contains(message_of<IoError>([&] { (void)read_lines(folder / "a", text.size() - 1); }),
                 "its text has more than 4999999 bytes"));
  if (detail::find_linked<detail::GzipFunctions>() == nullptr) return;
  const auto path = folder.write("b.gz", compress(Compression::gzip, text));
  CHECK(read_lines(path, text.size()).size() == text.size());
  CHECK(contains(message_of<IoError>([&] { (void)read_lines(path, 10'000); }),
                 "b.gz': its text has more than 10000 bytes"));
}

TEST_CASE("text_file: errors name the file and the place") {
  const testing::TemporaryFolder folder;
  CHECK(contains(message_of<IoError>([&] { read_lines(folder.path() / "none.en"); }),
                 "none.en': No such file"));
  CHECK(contains(message_of<IoError>([&] { read_lines(folder.path()); }), "it is a folder"));
  const auto bad = folder.write("bad.de",
                                "gut\nauch gut\nGr\xFC\xDF"
                                "e\n");
  const std::string message = message_of<IoError>([&] { read_lines(bad); });
  CHECK(contains(message, "[read_lines] invalid UTF-8 in '"));
  CHECK(contains(message, "bad.de', line 3, byte offset 15"));
  const auto nul = folder.write("nul.de", std::string("a\nb\0c\n", 6));
  CHECK(contains(message_of<IoError>([&] { read_lines(nul); }), "NUL byte in '"));
  CHECK(contains(message_of<IoError>([&] { read_lines(nul); }), "line 2, byte offset 3"));
  // At the start of a line, and of the text.
  const auto first = folder.write("first.de", std::string("a\n\0c\n", 5));
  CHECK(contains(message_of<IoError>([&] { read_lines(first); }), "line 2, byte offset 2"));
  const auto only = folder.write("only.de", std::string(1, '\0'));
  CHECK(contains(message_of<IoError>([&] { read_lines(only); }), "line 1, byte offset 0"));
}
