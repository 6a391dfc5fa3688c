#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "fixtures.hpp"

using namespace eigenformer;
using eigenformer::testing::Fixture;
using eigenformer::testing::TemporaryFolder;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A file of the given header and data, with the header's length before it.
std::string file_of(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

/// Opens a file of the given bytes and returns the IoError's message, or nothing when it opens.
std::string refusal(const TemporaryFolder& folder, const std::string& bytes) {
  detail::write_file(folder / "bad.safetensors", bytes);
  try {
    (void)SafetensorsFile::open(folder / "bad.safetensors");
  } catch (const IoError& error) {
    CHECK(contains(error.what(), "bad.safetensors"));
    return error.what();
  }
  return "";
}

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() &&
         (a.numel() == 0 ||
          std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.numel()) * sizeof(T)) == 0);
}

template <class T>
Tensor<T> numbers(const Shape& shape) {
  Tensor<T> t(shape);
  for (index_t i = 0; i < t.numel(); ++i) t.data()[i] = static_cast<T>(static_cast<float>(i % 7) - 3.0F);
  return t;
}

}  // namespace

TEST_CASE_TEMPLATE("every element type comes back with the same bits", T, double, float, bfloat16, float16,
                   std::int8_t, std::int16_t, std::int32_t, std::int64_t) {
  const TemporaryFolder folder;
  const Tensor<T> x = numbers<T>({2, 3, 5});
  save_safetensors<T>(folder / "x",
                      {{"x", x}, {"empty", Tensor<T>(Shape{0, 3})}, {"scalar", numbers<T>({})}});
  const auto file = SafetensorsFile::open(folder / "x");
  CHECK(file.names() == std::vector<std::string>{"empty", "scalar", "x"});
  CHECK(file.info("x").dtype == detail::dtype_of<T>());
  CHECK(same_bits(file.tensor<T>("x"), x));
  CHECK(file.tensor<T>("empty").shape() == Shape{0, 3});
  CHECK(file.tensor<T>("scalar").rank() == 0);
}

TEST_CASE("several types, metadata and awkward names in one file") {
  const TemporaryFolder folder;
  const auto mask = Tensor<bool>::from({3}, {true, false, true});
  const auto bytes = Tensor<std::uint8_t>::from({3}, {std::uint8_t{0}, std::uint8_t{200}, std::uint8_t{255}});
  SafetensorsWriter writer;
  writer.add("mask", mask)
      .add("bytes", bytes)
      .add("d", numbers<double>({2, 3}))
      .add("f", numbers<float>({5}));
  writer.add("a \"quoted\"\nname \xC3\xA4", Tensor<float>::scalar(1.5F));
  writer.set_metadata("key \"", "value\n\xE2\x82\xAC");
  writer.save(folder / "x");
  const auto file = SafetensorsFile::open(folder / "x");
  CHECK(same_bits(file.tensor<bool>("mask"), mask));
  CHECK(same_bits(file.tensor<std::uint8_t>("bytes"), bytes));
  CHECK(file.tensor<float>("a \"quoted\"\nname \xC3\xA4").item() == 1.5F);
  CHECK(file.metadata().at("key \"") == "value\n\xE2\x82\xAC");
  CHECK(file.bytes("bytes").size() == 3);
  CHECK_FALSE(file.contains("m"));
  writer.save(folder / "y");
  CHECK(detail::read_file(folder / "x") == detail::read_file(folder / "y"));
}

TEST_CASE("an empty file of tensors is a file") {
  const TemporaryFolder folder;
  save_safetensors<float>(folder / "x", {});
  CHECK(SafetensorsFile::open(folder / "x").names().empty());
}

TEST_CASE("what is written begins aligned, and aligned tensors share the mapping, copy-on-write") {
  const TemporaryFolder folder;
  const auto b = Tensor<bool>::from({1}, {true});
  SafetensorsWriter writer;
  writer.add("b", b).add("x", numbers<float>({3})).add("y", numbers<double>({7}));
  writer.save(folder / "x");
  const auto file = SafetensorsFile::open(folder / "x");
  CHECK(file.infos().front().begin % 64 == 0);
  auto y = file.tensor<double>("y");
  CHECK(static_cast<const void*>(y.data()) == static_cast<const void*>(file.bytes("y").data()));
  y.fill(9.0);
  CHECK(SafetensorsFile::open(folder / "x").tensor<double>("y").at({0}) == -3.0);
}

TEST_CASE("tensors outlive the file object and the file") {
  const TemporaryFolder folder;
  save_safetensors<float>(folder / "x", {{"x", numbers<float>({4})}});
  Tensor<float> x;
  {
    const auto file = SafetensorsFile::open(folder / "x");
    x = file.tensor<float>("x");
  }
  std::filesystem::remove(folder / "x");
  CHECK(same_bits(x, numbers<float>({4})));
}

TEST_CASE("data that are not aligned for their type are copied") {
  const TemporaryFolder folder;
  const float values[2] = {1.5F, -2.0F};
  std::string data(1, '\1');
  data.append(reinterpret_cast<const char*>(values), 8);
  const std::string header = R"({"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},)"
                             R"("x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  for (std::size_t pad = 0; pad < 8; ++pad) {
    detail::write_file(folder / "x", file_of(header + std::string(pad, ' '), data));
    const auto x = SafetensorsFile::open(folder / "x").tensor<float>("x");
    CHECK(reinterpret_cast<std::uintptr_t>(x.data()) % alignof(float) == 0);
    CHECK(same_bits(x, Tensor<float>::from({2}, {1.5F, -2.0F})));
  }
}

TEST_CASE("the reference implementation's files: every type and its conversions") {
  const Fixture fixture("ops/dtypes");
  const auto f32 = fixture.get<float>("f32");
  const auto f64 = fixture.get<double>("f64");
  const auto f16 = fixture.get<float>("f16");
  const auto bf16 = fixture.get<bfloat16>("bf16");
  const auto halves = fixture.get<float16>("f16");
  const auto halved = fixture.get<float16>("f32");
  const auto narrowed = fixture.get<float>("f64");
  const auto rounded = fixture.get<bfloat16>("f32");
  const auto widened = fixture.get<double>("f32");
  for (index_t i = 0; i < f32.numel(); ++i) {
    CAPTURE(i);
    const float x = f32.data()[i];
    if (std::isnan(x)) {
      CHECK(std::isnan(f16.data()[i]));
      CHECK(std::isnan(static_cast<float>(bf16.data()[i])));
      CHECK(std::isnan(static_cast<float>(rounded.data()[i])));
      CHECK(std::isnan(static_cast<float>(halved.data()[i])));
      continue;
    }
    CHECK(widened.data()[i] == static_cast<double>(x));
    CHECK(narrowed.data()[i] == static_cast<float>(f64.data()[i]));
    CHECK(static_cast<float>(rounded.data()[i]) == static_cast<float>(bf16.data()[i]));
    CHECK(std::bit_cast<std::uint16_t>(halved.data()[i]) == std::bit_cast<std::uint16_t>(halves.data()[i]));
    // Half precision: 11 bits from 2^-14 to 65504, steps of 2^-24 below, infinity above.
    const double exact = std::abs(static_cast<double>(x));
    if (exact >= 65520.0) {
      CHECK(f16.data()[i] == std::copysign(std::numeric_limits<float>::infinity(), x));
    } else {
      CHECK(std::abs(static_cast<double>(f16.data()[i]) - static_cast<double>(x)) <=
            std::max(exact * 0x1p-11, 0x1p-25));
      CHECK(std::signbit(f16.data()[i]) == std::signbit(x));
    }
  }
  CHECK(same_bits(fixture.get<std::int8_t>("i8"), Tensor<std::int8_t>::from({4}, {-128, -1, 0, 127})));
  CHECK(same_bits(fixture.get<std::int32_t>("i8"), Tensor<std::int32_t>::from({4}, {-128, -1, 0, 127})));
  CHECK(fixture.get<std::int32_t>("i32").at({1, 1}) == 2147483647);
  CHECK(fixture.get<std::int32_t>("i64").at({0}) == std::numeric_limits<std::int32_t>::min());
  CHECK(fixture.get<std::int64_t>("i64_large").item() == 2147483648);
  CHECK(fixture.get<std::int32_t>("u8").at({2}) == 255);
  CHECK(same_bits(fixture.get<bool>("bool"), Tensor<bool>::from({1, 3}, {true, false, true})));
  CHECK(fixture.get<double>("scalar").item() == 2.5);
  CHECK(fixture.get<float>("empty").shape() == Shape{0, 3});
  CHECK_THROWS_AS(fixture.get<std::int32_t>("i64_large"), IoError);
  CHECK_THROWS_AS(fixture.get<std::int8_t>("u8"), IoError);
  CHECK_THROWS_AS(fixture.get<float>("i32"), IoError);
  CHECK_THROWS_AS(fixture.get<std::int32_t>("f32"), IoError);
  CHECK_THROWS_AS(fixture.get<std::int32_t>("bool"), IoError);
  CHECK_THROWS_AS(fixture.get<bool>("u8"), IoError);
  CHECK_THROWS_AS(fixture.get<float>("none"), IoError);
}

TEST_CASE("integers of every width convert where they fit, and the message says which does not") {
  const TemporaryFolder folder;
  SafetensorsWriter writer;
  writer.add("u16", Tensor<std::uint16_t>::from({2}, {std::uint16_t{7}, std::uint16_t{65535}}));
  writer.add("u32", Tensor<std::uint32_t>::from({2}, {8U, 4294967295U}));
  writer.add("u64", Tensor<std::uint64_t>::from({1}, {std::uint64_t{18446744073709551615U}}));
  writer.save(folder / "x");
  const auto file = SafetensorsFile::open(folder / "x");
  CHECK(file.info("u32").dtype == Dtype::u32);
  CHECK(same_bits(file.tensor<std::int32_t>("u16"), Tensor<std::int32_t>::from({2}, {7, 65535})));
  CHECK(file.tensor<std::int64_t>("u32").at({1}) == 4294967295);
  CHECK(file.tensor<std::uint64_t>("u64").item() == 18446744073709551615U);
  CHECK_THROWS_WITH_AS((void)file.tensor<std::int16_t>("u16"), doctest::Contains("'u16'"), IoError);
  CHECK_THROWS_WITH_AS((void)file.tensor<std::int32_t>("u32"), doctest::Contains("holds 4294967295"),
                       IoError);
  CHECK_THROWS_WITH_AS((void)file.tensor<std::int64_t>("u64"),
                       doctest::Contains("holds 18446744073709551615, which does not fit I64"), IoError);
}

TEST_CASE("tensors that share their memory are stored once and read under either name") {
  const TemporaryFolder folder;
  const auto shared = numbers<float>({3, 5});
  SafetensorsWriter writer;
  writer.add("embedding.weight", shared).add("b", numbers<float>({5})).add("projection.weight", shared);
  writer.add("row", shared.rows(0, 1))
      .add("empty", Tensor<float>(Shape{0}))
      .add("none", Tensor<float>(Shape{0}));
  writer.set_metadata("format", "pt").save(folder / "x");
  const auto file = SafetensorsFile::open(folder / "x");
  CHECK(file.names() == std::vector<std::string>{"b", "embedding.weight", "empty", "none", "row"});
  CHECK(file.aliases() == std::map<std::string, std::string>{{"projection.weight", "embedding.weight"}});
  CHECK(file.metadata().at("projection.weight") == "embedding.weight");
  CHECK(file.contains("projection.weight"));
  CHECK(file.tensor<float>("projection.weight").data() == file.tensor<float>("embedding.weight").data());
  CHECK(same_bits(file.tensor<float>("projection.weight"), shared));
  CHECK(same_bits(file.tensor<float>("row"), numbers<float>({1, 5})));

  writer.set_metadata("projection.weight", "something else");
  CHECK_THROWS_WITH_AS(writer.save(folder / "x"), doctest::Contains("projection.weight"), ValueError);
}

TEST_CASE("a second mapping of the same file does not see what was written to the first") {
  const TemporaryFolder folder;
  save_safetensors<float>(folder / "x", {{"x", numbers<float>({4})}});
  const auto file = SafetensorsFile::open(folder / "x");
  file.tensor<float>("x").fill(9.0F);
  std::filesystem::remove(folder / "x");
  const auto other = file.again();
  CHECK(file.tensor<float>("x").at({0}) == 9.0F);
  CHECK(same_bits(other.tensor<float>("x"), numbers<float>({4})));
  CHECK(file.is_mapped<float>("x"));
  CHECK_FALSE(file.is_mapped<double>("x"));

  detail::write_file(folder / "y", file_of("{}"));
  const auto cut = SafetensorsFile::open(folder / "y");
  std::filesystem::resize_file(folder / "y", 9);
  CHECK_THROWS_WITH_AS((void)cut.again(), doctest::Contains("has changed since it was opened"), IoError);
}

TEST_CASE("read_into copies into existing storage and names both shapes when they differ") {
  const TemporaryFolder folder;
  save_safetensors<float>(folder / "x", {{"w", numbers<float>({2, 3})}});
  const auto file = SafetensorsFile::open(folder / "x");
  Tensor<double> into(Shape{2, 3});
  const double* before = into.data();
  file.read_into("w", into);
  CHECK(into.data() == before);
  CHECK(into.at({1, 0}) == 0.0);
  CHECK(into.at({1, 2}) == 2.0);
  Tensor<float> wrong(Shape{3, 2});
  CHECK_THROWS_WITH_AS(file.read_into("w", wrong), doctest::Contains("(2, 3), expected (3, 2)"), IoError);
}

TEST_CASE("a file cut at any byte is refused") {
  const TemporaryFolder folder;
  SafetensorsWriter writer;
  writer.add("w", numbers<float>({2, 3})).add("b", numbers<double>({1})).set_metadata("a", "b");
  writer.save(folder / "x");
  const std::string whole = detail::read_file(folder / "x");
  const auto data_begin = static_cast<std::size_t>(SafetensorsFile::open(folder / "x").infos().front().begin);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    const char* expected = n < 8            ? "at least 8"
                           : n < data_begin ? "ends outside the file"
                                            : "the file is truncated";
    CHECK(contains(refusal(folder, whole.substr(0, n)), expected));
  }
  CHECK(refusal(folder, whole).empty());
  CHECK(contains(refusal(folder, whole.substr(0, whole.size() - 1)), "'w'"));
  CHECK(contains(refusal(folder, whole + "x"), "1 bytes after its last tensor"));
}

TEST_CASE("foreign and damaged files say what is wrong") {
  const TemporaryFolder folder;
  const auto entry = [](const std::string& body) {
    return file_of("{\"w\":" + body + "}", std::string(8, '\0'));
  };
  const auto check = [&](const std::string& bytes, const std::string& expected) {
    const std::string message = refusal(folder, bytes);
    CHECK_MESSAGE(contains(message, expected), message << " lacks: " << expected);
  };
  check("", "0 bytes long");
  check("PK\3\4 some zip archive with more text", "not a safetensors file");
  check(std::string(64, '\xff'), "not a safetensors file");
  check(file_of("[1]"), "does not begin with '{'");
  check(file_of(""), "does not begin with '{'");
  check(file_of("{\"w\":"), "not valid JSON");
  check(file_of("{\"w\xff\":1}"), "not valid JSON");
  check(file_of("{} {}"), "not valid JSON");
  check(file_of("{\"w\":" + std::string(5000, '[') + std::string(5000, ']') + "}"), "nested");
  std::string many = "{\"w\":[0";
  for (std::size_t i = 0; i < detail::SafetensorsHeader::max_items; ++i) many += ",0";
  check(file_of(many + "]}"), "more than 2000000 names and values");
  check(entry("7"), "'w' must be an object");
  check(entry(R"({"dtype":"F32","shape":[2]})"), "dtype, shape and data_offsets");
  check(entry(R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})"), "expected one of BOOL");
  check(entry(R"({"dtype":3,"shape":[2],"data_offsets":[0,8]})"), "string as dtype");
  check(entry(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "array as shape");
  check(entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "non-negative");
  check(entry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "non-negative");
  check(entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), "fits memory");
  check(entry(R"({"dtype":"F32","shape":[0,9223372036854775807,2],"data_offsets":[0,8]})"), "fits memory");
  check(entry(R"({"dtype":"F32","shape":[1,1,1,1,1,1,2],"data_offsets":[0,8]})"), "rank 7");
  check(entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), "takes 12 bytes");
  check(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "end before they begin");
  check(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,9]})"), "two non-negative integers");
  check(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"), "two non-negative integers");
  check(entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})"), "truncated");
  check(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]})"),
        "truncated");
  check(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), "4 bytes after the end of the header");
  check(file_of(R"({"__metadata__":{"a":1}})"), "must be a string");
  check(file_of(R"({"__metadata__":[]})"), "object of strings");
  const std::string f32 = R"({"dtype":"F32","shape":[1],"data_offsets":)";
  check(file_of("{\"w\":" + f32 + "[0,4]},\"w\":" + f32 + "[4,8]}}", std::string(8, '\0')), "'w' twice");
  check(file_of("{\"v\":" + f32 + "[0,4]},\"w\":" + f32 + "[2,6]}}", std::string(6, '\0')),
        "'w' overlaps the bytes of 'v'");
  check(file_of("{\"v\":" + f32 + "[0,4]},\"w\":" + f32 + "[5,9]}}", std::string(9, '\0')),
        "1 bytes after the end of 'v'");
  detail::write_file(folder / "b",
                     file_of(R"({"b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\1\2"));
  CHECK_THROWS_WITH_AS(SafetensorsFile::open(folder / "b").tensor<bool>("b"), doctest::Contains("byte 2"),
                       IoError);
  CHECK_THROWS_AS(SafetensorsFile::open(folder / "none"), IoError);
  CHECK_THROWS_AS(SafetensorsFile::open(folder.path()), IoError);
}

// In time quadratic in the tensors this would take minutes.
TEST_CASE("a file of very many tensors opens, and is written, tensor by tensor") {
  const TemporaryFolder folder;
  std::string json = "{";
  const std::size_t many = 60'000;
  for (std::size_t i = 0; i < many; ++i) {
    json += (i == 0 ? "\"n" : ",\"n") + std::to_string(i) +
            R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  detail::write_file(folder / "many", file_of(json + "}"));
  const auto file = SafetensorsFile::open(folder / "many");
  CHECK(file.infos().size() == many);
  CHECK(file.contains("n59999"));
  CHECK(
      contains(refusal(folder, file_of(json + R"(,"n7":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")),
               "its header has the name 'n7' twice in one object"));

  SafetensorsWriter writer;
  const auto shared = numbers<float>({2});
  for (int i = 0; i < 30'000; ++i) writer.add("w" + std::to_string(i), Tensor<float>(Shape{1}));
  writer.add("a", shared).add("b", shared).add("c", shared.reshape({1, 2}));
  writer.save(folder / "written");
  const auto written = SafetensorsFile::open(folder / "written");
  CHECK(written.infos().size() == 30'002);
  CHECK(written.aliases() == std::map<std::string, std::string>{{"b", "a"}});
}

TEST_CASE("bad names are refused before anything is written") {
  const auto x = Tensor<float>::scalar(1);
  SafetensorsWriter writer;
  writer.add("x", x);
  CHECK_THROWS_AS(writer.add("x", x), ValueError);
  CHECK_THROWS_AS(writer.add("__metadata__", x), ValueError);
  CHECK_THROWS_AS(writer.add("\xff", x), ValueError);
  CHECK_THROWS_AS(writer.set_metadata("a", "\xff"), ValueError);
  const TemporaryFolder folder;
  writer.save(folder / "x");
  CHECK(SafetensorsFile::open(folder / "x").names() == std::vector<std::string>{"x"});
}

TEST_CASE("random damage throws IoError or reads something, and never crashes") {
  const TemporaryFolder folder;
  SafetensorsWriter writer;
  writer.add("weight", numbers<float>({2, 3})).add("mask", Tensor<bool>::full({5}, true));
  writer.add("tokens", numbers<std::int32_t>({7})).add("half", numbers<bfloat16>({2})).set_metadata("a", "b");
  writer.save(folder / "x");
  const std::string whole = detail::read_file(folder / "x");
  RandomGenerator rng(7);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    const auto flips = 1 + rng.uniform_int(4);
    for (index_t i = 0; i < static_cast<index_t>(flips); ++i) {
      const auto at = static_cast<std::size_t>(rng.uniform_int(static_cast<index_t>(damaged.size())));
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ (1U << rng.uniform_int(8)));
    }
    const auto bytes = std::as_writable_bytes(std::span<char>(damaged));
    try {
      const detail::SafetensorsHeader header = detail::parse_safetensors_header(bytes, "damaged");
      for (const TensorInfo& info : header.tensors) REQUIRE(info.begin + info.bytes <= damaged.size());
      if (round % 10 != 0) continue;
      detail::write_file(folder / "y", damaged);
      const auto file = SafetensorsFile::open(folder / "y");
      for (const std::string& name : file.names()) {
        try {
          (void)file.tensor<double>(name);
        } catch (const IoError&) {
          (void)file.bytes(name);
        }
      }
    } catch (const IoError&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}
