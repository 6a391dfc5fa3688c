#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/io/numpy/npz.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "fixtures.hpp"
#include "folders.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::fixtures_folder;
using eigenformer::testing::message_of;
using eigenformer::testing::TemporaryFolder;
using eigenformer::testing::values;

namespace {

std::filesystem::path fixture(const std::string& name) { return fixtures_folder() / "numpy" / name; }

template <class T>
Tensor<T> count(const Shape& shape) {
  Tensor<T> t(shape);
  for (index_t i = 0; i < t.numel(); ++i) t.data()[i] = static_cast<T>(static_cast<float>(i));
  return t;
}

template <class T>
bool same(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.numel()) * sizeof(T)) == 0;
}

/// The message with which a .npz file of these bytes is refused, or "no error".
std::string refusal(const TemporaryFolder& folder, const std::string& bytes) {
  detail::write_file(folder / "bad.npz", bytes);
  return message_of<IoError>([&] {
    const auto file = NpzFile::open(folder / "bad.npz");
    for (const std::string& name : file.names()) (void)file.info(name);
  });
}

/// A .npz file of one array "x" whose .npy bytes are given.
std::string archive_of(const TemporaryFolder& folder, const std::string& npy) {
  detail::ZipWriter zip(folder / "made.npz");
  zip.add("x.npy", npy, {});
  zip.commit();
  return detail::read_file(folder / "made.npz");
}

std::string npy_of(const std::string& dictionary, const std::string& data = "", char version = 1) {
  std::string text("\x93NUMPY");
  text += version;
  text += '\0';
  text += static_cast<char>(dictionary.size());
  text += '\0';
  if (version > 1) text += std::string(2, '\0');
  return text + dictionary + data;
}

}  // namespace

TEST_CASE("arrays that NumPy saved: orders, versions, ranks") {
  CHECK(same(load_npy<float>(fixture("matrix.npy")), count<float>({3, 5})));
  CHECK(same(load_npy<double>(fixture("matrix.npy")), count<double>({3, 5})));
  CHECK(same(load_npy<std::int32_t>(fixture("fortran.npy")), count<std::int32_t>({2, 3, 5})));
  CHECK(same(load_npy<std::int64_t>(fixture("fortran.npy")), count<std::int64_t>({2, 3, 5})));
  CHECK(load_npy<double>(fixture("scalar.npy")).item() == 2.5);
  CHECK(load_npy<double>(fixture("scalar.npy")).rank() == 0);
  CHECK(load_npy<float>(fixture("empty.npy")).shape() == Shape{0, 3});
  CHECK(same(load_npy<std::int16_t>(fixture("version2.npy")), count<std::int16_t>({7})));
  CHECK(same(load_npy<std::int16_t>(fixture("version3.npy")), count<std::int16_t>({7})));
  CHECK(contains(message_of<IoError>([] { (void)load_npy<float>(fixture("big_endian.npy")); }),
                 "has dtype '>f4'"));
  CHECK(contains(message_of<IoError>([] { (void)load_npy<float>(fixture("complex.npy")); }),
                 "has dtype '<c8', expected"));
  CHECK(contains(message_of<IoError>([] { (void)load_npy<float>(fixture("structured.npy")); }),
                 "structured array"));
  CHECK(contains(message_of<IoError>([] { (void)load_npy<std::int8_t>(fixture("matrix.npy")); }),
                 "F32, which does not convert to I8"));
}

TEST_CASE("every element type of an archive of NumPy's, and what converts") {
  const auto file = NpzFile::open(fixture("types.npz"));
  CHECK(file.names() == std::vector<std::string>{"bool", "float16", "float32", "float64", "int16", "int32",
                                                 "int64", "int8", "uint16", "uint32", "uint64", "uint8"});
  const Shape shape{2, 3};
  const auto mask = file.tensor<bool>("bool");
  CHECK(values(mask) == std::vector<bool>{false, true, true, true, true, true});
  CHECK(same(file.tensor<float16>("float16"), count<float16>(shape)));
  CHECK(same(file.tensor<float>("float16"), count<float>(shape)));
  CHECK(same(file.tensor<bfloat16>("float64"), count<bfloat16>(shape)));
  CHECK(same(file.tensor<std::uint64_t>("uint64"), count<std::uint64_t>(shape)));
  CHECK(same(file.tensor<std::int32_t>("int8"), count<std::int32_t>(shape)));
  CHECK(same(file.tensor<std::uint8_t>("uint32"), count<std::uint8_t>(shape)));
  CHECK(file.info("int16").dtype == Dtype::i16);
  CHECK_THROWS_WITH_AS((void)file.tensor<float>("int8"), doctest::Contains("array 'int8' of"), IoError);
  CHECK_THROWS_WITH_AS((void)file.tensor<float>("none"), doctest::Contains("has no array 'none'"), IoError);
  Tensor<float> wrong({3, 2});
  CHECK_THROWS_WITH_AS(file.read_into("float32", wrong), doctest::Contains("(2, 3), expected (3, 2)"),
                       IoError);
}

TEST_CASE("compressed archives are read with zlib, and without it the message says what is missing") {
  if (detail::find_linked<detail::ZlibFunctions>() != nullptr) {
    const auto file = NpzFile::open(fixture("compressed.npz"));
    CHECK(same(file.tensor<float>("layers.0.weight"), count<float>({40, 50})));
    CHECK(same(file.tensor<float>("fortran"), count<float>({3, 5})));
  } else {
    CHECK(contains(message_of<IoError>([] { NpzFile::open(fixture("compressed.npz")); }),
                   "built without zlib"));
  }
}

TEST_CASE("what is written comes back without a copy, and its own copy-on-write") {
  const TemporaryFolder folder;
  NpzWriter writer;
  writer.add("x", count<float>({3, 5}))
      .add("a longer name/with a slash", count<double>({2}))
      .add("mask", Tensor<bool>::ones({3}));
  writer.add("empty", Tensor<float>(Shape{0, 3}))
      .add("\xC3\xA4", Tensor<std::int32_t>::scalar(7))
      .save(folder / "a.npz");
  const auto file = NpzFile::open(folder / "a.npz");
  auto x = file.tensor<float>("x");
  CHECK(same(x, count<float>({3, 5})));
  CHECK(file.is_mapped<float>("x"));
  CHECK_FALSE(file.is_mapped<double>("x"));
  CHECK(file.tensor<float>("x").data() == x.data());
  x.fill(9);
  CHECK(same(NpzFile::open(folder / "a.npz").tensor<float>("x"), count<float>({3, 5})));
  CHECK(file.is_mapped<double>("a longer name/with a slash"));
  CHECK(file.tensor<std::int32_t>("\xC3\xA4").item() == 7);
  CHECK(file.tensor<float>("empty").shape() == Shape{0, 3});
  writer.save(folder / "b.npz");
  CHECK(detail::read_file(folder / "a.npz") == detail::read_file(folder / "b.npz"));
  CHECK_THROWS_AS(writer.add("x", count<float>({1})), ValueError);
  CHECK_THROWS_AS(writer.add("", count<float>({1})), ValueError);
  CHECK_THROWS_WITH_AS(writer.add("b", Tensor<bfloat16>(Shape{1})), doctest::Contains("no type for BF16"),
                       ValueError);
  save_npy(folder / "x.npy", count<std::int64_t>({2, 3, 5}));
  CHECK(same(load_npy<std::int64_t>(folder / "x.npy"), count<std::int64_t>({2, 3, 5})));
  CHECK_THROWS_AS(save_npy(folder / "b.npy", Tensor<bfloat16>(Shape{1})), ValueError);
}

TEST_CASE("zip64 records are written where they are needed, and read") {
  const TemporaryFolder folder;
  const auto x = count<float>({2, 3}), y = count<float>({5});
  detail::ZipWriter zip(folder / "zip64.npz", 1);
  zip.add("x.npy", detail::npy_header(Dtype::f32, x.shape()), std::as_bytes(x.span()));
  zip.add("y.npy", detail::npy_header(Dtype::f32, y.shape()), std::as_bytes(y.span()));
  zip.commit();
  const auto file = NpzFile::open(folder / "zip64.npz");
  CHECK(same(file.tensor<float>("x"), x));
  CHECK(same(file.tensor<float>("y"), y));
}

TEST_CASE("zip64 records are written for a directory that begins far behind, with files that are small") {
  const TemporaryFolder folder;
  const auto x = count<float>({20}), y = count<float>({19});
  detail::ZipWriter zip(folder / "far.npz", 300);  // each file has about 200 bytes, the directory about 100
  zip.add("x.npy", detail::npy_header(Dtype::f32, x.shape()), std::as_bytes(x.span()));
  zip.add("y.npy", detail::npy_header(Dtype::f32, y.shape()), std::as_bytes(y.span()));
  zip.commit();
  CHECK(detail::read_file(folder / "far.npz").find("PK\6\6") != std::string::npos);
  const auto file = NpzFile::open(folder / "far.npz");
  CHECK(same(file.tensor<float>("x"), x));
  CHECK(same(file.tensor<float>("y"), y));
}

TEST_CASE("a comment of an entry in the directory is skipped") {
  const TemporaryFolder folder;
  const auto x = count<float>({2, 3}), y = count<float>({5});
  NpzWriter().add("x", x).add("y", y).save(folder / "plain.npz");
  std::string bytes = detail::read_file(folder / "plain.npz");
  const std::string comment = "made by hand";
  const std::size_t entry = bytes.find("PK\1\2"), end = bytes.rfind("PK\5\6");
  REQUIRE(entry != std::string::npos);
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at]));
  };
  const std::size_t name_and_extra =
      byte(entry + 28) + 256 * byte(entry + 29) + byte(entry + 30) + 256 * byte(entry + 31);
  bytes[end + 12] = static_cast<char>(byte(end + 12) + comment.size());  // bytes of the directory
  bytes[entry + 32] = static_cast<char>(comment.size());
  bytes.insert(entry + 46 + name_and_extra, comment);
  detail::write_file(folder / "comment.npz", bytes);
  const auto file = NpzFile::open(folder / "comment.npz");
  CHECK(same(file.tensor<float>("x"), x));
  CHECK(same(file.tensor<float>("y"), y));
}

TEST_CASE("a module loads from an archive, and all mismatches are reported") {
  const TemporaryFolder folder;
  RandomGenerator rng(1);
  Linear<float> layer({3, 5}, rng);
  NpzWriter().add("weight", count<double>({5, 3})).add("bias", count<float16>({5})).save(folder / "m.npz");
  const auto file = NpzFile::open(folder / "m.npz");
  load_state_dict(layer, file);
  CHECK(same(layer.weight.value(), count<float>({5, 3})));
  CHECK(same(layer.bias.value(), count<float>({5})));
  Linear<float> other({5, 3}, rng);
  const std::string message = message_of<IoError>([&] { load_state_dict(other, file); });
  CHECK(contains(message,
                 "m.npz' does not fit the module: wrong shape: weight is (5, 3), must be (3, 5), bias is "
                 "(5,), must be (3,)"));
}

TEST_CASE("archives cut at any byte, or with any byte changed, are refused or read as something") {
  const TemporaryFolder folder;
  NpzWriter().add("x", count<float>({3})).add("y", count<std::int8_t>({2})).save(folder / "a.npz");
  const std::string whole = detail::read_file(folder / "a.npz");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    CHECK(contains(refusal(folder, whole.substr(0, n)), "bad.npz"));
  }
  int refused = 0;
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::string damaged = whole;
    damaged[n] = static_cast<char>(damaged[n] ^ 0x55);
    if (refusal(folder, damaged) != "no error") ++refused;
  }
  CHECK(refused > static_cast<int>(whole.size()) / 2);
  CHECK(refusal(folder, whole) == "no error");
  CHECK(contains(refusal(folder, "not an archive, whatever its name says"), "has no zip directory"));
  CHECK(contains(message_of<IoError>([] { NpzFile::open(fixture("other.npz")); }), "holds 'readme.txt'"));
}

TEST_CASE("arrays of an archive that share their bytes are refused") {
  const TemporaryFolder folder;
  const auto x = count<float>({5});
  NpzWriter().add("x", x).add("y", x).save(folder / "two.npz");
  std::string bytes = detail::read_file(folder / "two.npz");
  CHECK(refusal(folder, bytes) == "no error");
  const std::size_t first = bytes.find("PK\1\2"), second = bytes.find("PK\1\2", first + 1);
  REQUIRE(second != std::string::npos);
  bytes.replace(second + 42, 4, bytes.substr(first + 42, 4));
  CHECK(contains(refusal(folder, bytes), "begins inside '"));
}

TEST_CASE("bad headers of arrays say what is wrong") {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& npy, const std::string& expected) {
    const std::string message = refusal(folder, archive_of(folder, npy));
    CHECK_MESSAGE(contains(message, expected), message << " lacks: " << expected);
    CHECK(contains(message, "array 'x' of '"));
    detail::write_file(folder / "bad.npy", npy);
    const std::string alone = message_of<IoError>([&] { (void)load_npy<float>(folder / "bad.npy"); });
    CHECK_MESSAGE(contains(alone, expected), alone << " lacks: " << expected);
  };
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", data(8, '\0');
  CHECK(refusal(folder, archive_of(folder, npy_of(good, data))) == "no error");
  check("", "does not begin as a NumPy array");
  check("\x93NUMPX\1 and more text", "does not begin as a NumPy array");
  check(npy_of(good, data, 4), "format version 4, expected 1 to 3");
  check(npy_of(good).substr(0, 30), "ends outside its 30 bytes");
  check(npy_of(good, "1234567"), "its data take 7 bytes, but F32 of shape (2,) takes 8");
  check(npy_of(good, data + " "), "its data take 9 bytes");
  check(npy_of("{'descr': '<f4', 'fortran_order': False, }", data),
        "must have descr, fortran_order and shape");
  check(npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", data),
        "has dtype '|O', expected one of |b1");
  check(npy_of("{'descr': '<f4', 'fortran_order': 1, 'shape': (2,), }", data), "True or False");
  check(npy_of("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", data),
        "'descr' twice");
  check(npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", data),
        "tuple of non-negative integers");
  check(npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': 2, }", data), "lacks a '('");
  check(npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", data),
        "too large");
  check(npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296,), }", data),
        "more elements");
  check(npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,2), }", data),
        "more than 6 dimensions");
  check(npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x", data), "continues after");
  check(npy_of("{'descr: 4", data), "lacks");
}

TEST_CASE("NumPy reads what this library writes") {
  const char* wanted = std::getenv("EIGENFORMER_TEST_PYTHON");
  const std::string python = wanted != nullptr ? wanted : "python3";
  if (std::system(("'" + python + "' -c 'import numpy' >/dev/null 2>&1").c_str()) != 0) {
    MESSAGE("skipped: no Python with numpy; EIGENFORMER_TEST_PYTHON names one");
    return;
  }
  const TemporaryFolder folder;
  const Shape shape{2, 3};
  NpzWriter writer;
  writer.add("bool", NpzFile::open(fixture("types.npz")).tensor<bool>("bool"));
  writer.add("uint8", count<std::uint8_t>(shape)).add("int8", count<std::int8_t>(shape));
  writer.add("uint16", count<std::uint16_t>(shape)).add("int16", count<std::int16_t>(shape));
  writer.add("uint32", count<std::uint32_t>(shape)).add("int32", count<std::int32_t>(shape));
  writer.add("uint64", count<std::uint64_t>(shape)).add("int64", count<std::int64_t>(shape));
  writer.add("float16", count<float16>(shape))
      .add("float32", count<float>(shape))
      .add("float64", count<double>(shape));
  writer.save(folder / "types.npz");
  save_npy(folder / "matrix.npy", count<float>({3, 5}));
  const auto x = count<float>({2, 3}), y = count<float>({5});
  detail::ZipWriter zip(folder / "zip64.npz", 1);
  zip.add("x.npy", detail::npy_header(Dtype::f32, x.shape()), std::as_bytes(x.span()));
  zip.add("y.npy", detail::npy_header(Dtype::f32, y.shape()), std::as_bytes(y.span()));
  zip.commit();
  const std::string command = "'" + python + "' '" +
                              (fixtures_folder() / "scripts" / "numpy_files.py").string() + "' --check '" +
                              folder.path().string() + "' >'" + (folder / "log").string() + "' 2>&1";
  const int code = std::system(command.c_str());
  CHECK_MESSAGE(code == 0, detail::read_file(folder / "log"));
}
