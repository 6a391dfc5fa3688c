#include "eigenformer/io/marian/marian_file.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "eigenformer/io/marian/marian_folder.hpp"
#include "io/checkpoint_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

struct Item {
  std::string name;
  std::uint64_t type;
  std::vector<std::int32_t> shape;
  std::string data;
};

template <class N>
std::string bytes_of(const std::vector<N>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(N)};
}

std::string container(const std::vector<Item>& items, std::uint64_t version = 1) {
  std::string file = bytes_of<std::uint64_t>({version, items.size()});
  for (const Item& i : items)
    file += bytes_of<std::uint64_t>({i.name.size() + 1, i.type, i.shape.size(), i.data.size()});
  for (const Item& i : items) file += i.name + '\0';
  for (const Item& i : items) file += bytes_of(i.shape);
  file += bytes_of<std::uint64_t>({3}) + std::string(3, '\0');
  for (const Item& i : items) file += i.data;
  return file;
}

const std::vector<Item> good = {
    {"a_W1", 0x404, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}) + std::string(8, 'x')},
    {"b_Wq", 0x4101, {2, 3}, bytes_of<std::int8_t>({1, -2, 127, 4, 5, 6}) + bytes_of<float>({4})},
    {"b_Wq_QuantMultA", 0x404, {1, 1}, bytes_of<float>({31.5F})},
    {"Wemb", 0x4101, {1, 2}, bytes_of<std::int8_t>({127, -4}) + bytes_of<float>({2})},
    {"c_b1", 0x404, {1, 2}, bytes_of<float>({7, 8})},
    {"special:text", 0x101, {5}, std::string("abc\0d", 5)}};

}  // namespace

TEST_CASE("items of a Marian file are read as the format says") {
  const TemporaryFolder folder;
  write_bytes(folder / "m.bin", container(good));
  const detail::MarianFile file = detail::MarianFile::open(folder / "m.bin");
  CHECK(file.names().size() == 6);
  CHECK(file.has_int8());
  // (2, 3) of inputs and outputs is (3, 2) of ours.
  CHECK(file.shape("a_W1") == Shape{3, 2});
  CHECK(values(file.tensor<float>("a_W1")) == std::vector<float>{1, 4, 2, 5, 3, 6});
  // Int8 is stored as (outputs, inputs) already.
  CHECK(file.shape("b_Wq") == Shape{3, 2});
  CHECK(values(file.tensor<double>("b_Wq")) == std::vector<double>{0.25, -0.5, 31.75, 1, 1.25, 1.5});
  float scale = 0;
  CHECK(file.int8_values("b_Wq", &scale)[2] == 127);
  CHECK(scale == 0.25F);
  CHECK(file.input_multiplier("b_Wq").value() == 31.5F);
  CHECK(!file.input_multiplier("a_W1"));
  CHECK(file.shape("Wemb") == Shape{1, 2});
  CHECK(values(file.tensor<float>("Wemb")) == std::vector<float>{63.5F, -2});
  CHECK(file.shape("c_b1") == Shape{1, 2});
  CHECK(file.text("special:text") == "abc");
  check_refused([&] { (void)file.tensor<float>("special:text"); }, {"m.bin", "special:text", "weights"});
  check_refused([&] { (void)file.text("c_b1"); }, {"c_b1", "text"});
  check_refused([&] { (void)file.item("none"); }, {"no item 'none'"});
  check_refused([&] { (void)file.int8_values("c_b1", &scale); }, {"c_b1", "int8"});
}

TEST_CASE("a damaged Marian file is refused with the place") {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& bytes) {
    write_bytes(folder / "m.bin", bytes);
    return [&folder] { (void)detail::MarianFile::open(folder / "m.bin"); };
  };
  const auto changed = [](std::size_t i, auto&& change) {
    std::vector<Item> items = good;
    change(items[i]);
    return container(items);
  };
  const std::string whole = container(good);
  for (std::size_t n = 0; n < whole.size(); ++n)
    check_refused(open(whole.substr(0, n)), {"m.bin", "truncated"});
  check_refused(open(whole + "x"), {"1 bytes after its last item"});
  check_refused(open(container(good, 2)), {"version 2", "expected 1"});
  check_refused(open(bytes_of<std::uint64_t>({1, std::uint64_t{1} << 60})), {"truncated", "items"});
  check_refused(open(changed(0, [](Item& i) { i.type = 0x13001; })), {"a_W1", "AVX-512 VNNI", "intgemm8"});
  check_refused(open(changed(0, [](Item& i) { i.type = 77; })), {"a_W1", "unknown type 77"});
  check_refused(open(changed(0, [](Item& i) { i.shape = {-1, 3}; })), {"a_W1", "dimension -1"});
  check_refused(open(changed(0, [](Item& i) { i.shape = {1 << 30, 1 << 30}; })), {"a_W1", "dimension"});
  check_refused(open(changed(0, [](Item& i) { i.shape = {2, 3, 1, 1, 1}; })), {"a_W1", "rank 5"});
  check_refused(open(changed(0, [](Item& i) { i.shape = {5, 3}; })), {"a_W1", "32 bytes", "at least 60"});
  check_refused(open(changed(1, [](Item& i) { i.data.resize(9); })), {"b_Wq", "9 bytes", "at least 10"});
  check_refused(open(changed(1, [](Item& i) { i.name = "a_W1"; })), {"two items 'a_W1'"});
  std::string unended = whole;
  unended[unended.find("a_W1") + 4] = '!';
  check_refused(open(unended), {"item 0", "NUL"});
}

TEST_CASE("numbers of a Marian file that cannot be are refused when they are read") {
  const TemporaryFolder folder;
  const auto read = [&](std::size_t i, const std::string& data) {
    std::vector<Item> items = good;
    items[i].data = data;
    write_bytes(folder / "m.bin", container(items));
    return [&folder] {
      const detail::MarianFile file = detail::MarianFile::open(folder / "m.bin");
      (void)file.tensor<float>("b_Wq");
      (void)file.input_multiplier("b_Wq");
    };
  };
  for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::nanf("")})
    check_refused(read(1, std::string(6, '\1') + bytes_of<float>({scale})), {"b_Wq", "scale"});
  check_refused(read(1, std::string(5, '\1') + '\x80' + bytes_of<float>({1})), {"b_Wq", "-128", "at 5"});
  for (const float multiplier : {0.0F, -3.0F, std::nanf(""), 1e30F})
    check_refused(read(2, bytes_of<float>({multiplier})), {"b_Wq_QuantMultA", "positive"});
}

TEST_CASE("Marian's settings are words, numbers and lists") {
  const detail::MarianSettings s(
      "a.yml",
      "---\nword: relu\r\nempty: \"\"\nnumber: 1.5\nlist:\n  - a b\n- 'c'\nflow: [1, 2]\n"
      "none: []\ndeep:\n  key: value\n# remark\nflag: true\n");
  CHECK(s.word("word") == "relu");
  CHECK(s.word("empty", "missing").empty());
  CHECK(s.word("absent", "missing") == "missing");
  CHECK(s.number("number", 0) == 1.5);
  CHECK(s.list("list") == std::vector<std::string>{"a b", "c"});
  CHECK(s.whole("flow", 1) == 2);
  CHECK(s.list("none").empty());
  CHECK(s.has("deep"));
  CHECK(s.flag("flag"));
  CHECK(!s.flag("absent"));
  check_refused([&] { (void)s.word("list"); }, {"a.yml", "list", "one value"});
  check_refused([&] { (void)s.number("word", 0); }, {"word relu", "a number"});
  check_refused([&] { (void)s.whole("number"); }, {"number 1.5", "whole"});
  check_refused([&] { (void)s.whole("flow", 2); }, {"no 'flow'"});
  check_refused([&] { (void)s.flag("word"); }, {"true or false"});
  check_refused([] { detail::MarianSettings("a.yml", "a: 1\nb\n"); }, {"a.yml", "line 2"});
  check_refused([] { detail::MarianSettings("a.yml", "- a\n"); }, {"line 1"});
}
