#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/io/numpy/npy.hpp"
#include "eigenformer/io/numpy/zip_reader.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"

namespace eigenformer::detail {

/// Writes an archive of uncompressed files that are aligned to 64 bytes, so that they can be used in a mapped
/// archive. Throws IoError; an existing file is then unchanged.
class ZipWriter {
 public:
  /// Sizes and offsets from `limit` on are written as zip64.
  explicit ZipWriter(const std::filesystem::path& path, std::uint64_t limit = 0xffffffffU)
      : file_(path), limit_(limit) {}

  /// Adds a file that consists of `head` and `body`.
  void add(const std::string& name, std::string_view head, std::span<const std::byte> body);

  /// Writes the directory and renames the file to its final name.
  void commit();

 private:
  // Appends the bytes of numbers.
  template <class... T>
  static void put(std::string& text, T... values) {
    (text.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  }

  void add_to_directory(const std::string& name, const std::string& fields, std::uint64_t size,
                        std::uint64_t local);

  AtomicFile file_;
  std::uint64_t limit_;
  std::string directory_;
  std::uint64_t count_ = 0;
};

}  // namespace eigenformer::detail

namespace eigenformer {

/// A file of named NumPy arrays, as numpy.savez and numpy.savez_compressed write them, mapped into memory
/// and validated. Compressed arrays need zlib (EIGENFORMER_WITH_ZLIB, which CMake sets). Tensors may outlive
/// the object: they keep the mapping alive.
///
///     const auto file = ef::NpzFile::open("arrays.npz");
///     for (const std::string& name : file.names()) use(name, file.tensor<float>(name));
class NpzFile {
 public:
  /// Element type and shape of an array.
  struct Info {
    Dtype dtype = Dtype::f32;  ///< element type in the file
    Shape shape;               ///< its dimensions
  };

  /// Opens and validates a file and all checksums; compressed arrays are decompressed to memory here. Throws
  /// IoError that names the file, the array and what was expected.
  static NpzFile open(const std::filesystem::path& path);

  /// The path that was opened.
  const std::filesystem::path& path() const noexcept { return path_; }

  /// The names of all arrays, without ".npy", sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, array] : arrays_) out.push_back(name);
    return out;
  }

  /// Whether there is an array of this name, without ".npy".
  bool contains(const std::string& name) const { return arrays_.count(name) > 0; }

  /// Element type and shape of an array. Throws IoError when there is none of this name.
  Info info(const std::string& name) const { return {array(name).header.dtype, array(name).header.shape}; }

  /// Returns an array as a tensor. When is_mapped(), it shares the memory of the file, or that of the
  /// decompressed data: writing to it changes memory only. Otherwise its values are converted as
  /// SafetensorsFile::tensor() does. Throws IoError when there is no such array, its type does not convert to
  /// T, or a value is out of range.
  template <class T>
  Tensor<T> tensor(const std::string& name) const {
    const Array& found = array(name);
    return detail::npy_tensor<T>(found.bytes, found.header, found.keep_alive, what(name));
  }

  /// Whether `tensor<T>()` needs no copy: the type is T, the order row-major and the data aligned. Throws
  /// IoError when there is no such array.
  template <class T>
  bool is_mapped(const std::string& name) const {
    const Array& found = array(name);
    return detail::needs_no_conversion<T>(found.header.dtype, found.bytes.subspan(found.header.begin)) &&
           (!found.header.fortran_order || found.header.shape.rank() < 2);
  }

  /// Copies an array, converted as by tensor(), into an existing tensor. Throws IoError as tensor() does, and
  /// when the shapes differ.
  template <class T>
  void read_into(const std::string& name, Tensor<T>& destination) const {
    if (array(name).header.shape != destination.shape()) {
      throw IoError(
          "npz", {what(name), " has shape ", array(name).header.shape, ", expected ", destination.shape()});
    }
    destination.copy_from(tensor<T>(name));
  }

 private:
  struct Array {
    detail::NpyHeader header;
    std::span<std::byte> bytes;
    std::shared_ptr<void> keep_alive;
  };

  std::string what(const std::string& name) const {
    return "array '" + name + "' of '" + path_.string() + "'";
  }

  const Array& array(const std::string& name) const {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) throw IoError("npz", {"'", path_.string(), "' has no array '", name, "'"});
    return found->second;
  }

  Array read(const std::shared_ptr<detail::MappedFile>& map, const detail::ZipEntry& entry) const;

  std::filesystem::path path_;
  std::map<std::string, Array> arrays_;
};

/// Collects named tensors of any element types except bfloat16 and writes them to one .npz file for
/// numpy.load. Tensors are held, not copied, and stored without compression; equal contents give identical
/// files.
///
///     ef::NpzWriter().add("x", x).add("mask", mask).save("arrays.npz");
class NpzWriter {
 public:
  /// Adds a tensor. Throws ValueError for a name that is empty, longer than 1000 bytes or used twice, for
  /// bfloat16, and for a tensor whose memory was released.
  template <class T>
  NpzWriter& add(const std::string& name, const Tensor<T>& tensor) {
    detail::require_memory_to_save("npz", name, tensor);
    if (name.empty() || name.size() > 1000)
      throw ValueError("npz", {"the name '", name, "' has ", name.size(), " bytes, must have 1 to 1000"});
    if (!names_.insert(name).second) throw ValueError("npz", {"the name '", name, "' is used twice"});
    entries_.push_back({name + ".npy", detail::npy_header(detail::dtype_of<T>(), tensor.shape()),
                        std::as_bytes(tensor.span()), std::make_shared<Tensor<T>>(tensor)});
    return *this;
  }

  /// Writes all tensors to `path`, atomically. Throws IoError; an existing file is then unchanged.
  void save(const std::filesystem::path& path) const {
    detail::ZipWriter zip(path);
    for (const Entry& entry : entries_) zip.add(entry.name, entry.header, entry.bytes);
    zip.commit();
  }

 private:
  struct Entry {
    std::string name;
    std::string header;
    std::span<const std::byte> bytes;
    std::shared_ptr<void> tensor;
  };

  std::vector<Entry> entries_;
  std::set<std::string> names_;
};

/// Loads a module from an .npz file of its state dict, written by numpy.savez(file, **{name: tensor.numpy()
/// for name, tensor in module.state_dict().items()}), as from a safetensors file; values are always copied.
template <class M>
LoadReport load_state_dict(M& module, const NpzFile& file, LoadOptions options = {}) {
  std::vector<detail::GivenTensor> given;
  for (const std::string& name : file.names()) {
    const NpzFile::Info info = file.info(name);
    given.push_back({name, info.shape, detail::unfit_for_parameters(info.dtype)});
  }
  options.map = false;
  return detail::load_given(module, file, given, file.path(), options);
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

inline constexpr std::array<std::array<std::uint32_t, 256>, 8> crc32_tables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c % 2 == 1 ? c >> 1U ^ 0xedb88320U : c >> 1U;
    tables[0][i] = c;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t i = 0; i < 256; ++i)
      tables[t][i] = tables[t - 1][i] >> 8U ^ tables[0][tables[t - 1][i] & 0xffU];
  }
  return tables;
}();

// The CRC-32 of zip archives, computed eight bytes at a time; `before` is that of the preceding bytes.
EIGENFORMER_IO_FUNCTION std::uint32_t crc32_of(std::span<const std::byte> bytes,
                                               std::uint32_t before = 0) noexcept {
  std::uint32_t c = ~before;
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t n = bytes.size();
  const auto& t = crc32_tables;
  for (; n >= 8; p += 8, n -= 8) {
    const std::uint32_t low = load_as<std::uint32_t>(p) ^ c, high = load_as<std::uint32_t>(p + 4);
    c = t[7][low & 0xffU] ^ t[6][low >> 8U & 0xffU] ^ t[5][low >> 16U & 0xffU] ^ t[4][low >> 24U] ^
        t[3][high & 0xffU] ^ t[2][high >> 8U & 0xffU] ^ t[1][high >> 16U & 0xffU] ^ t[0][high >> 24U];
  }
  for (; n > 0; ++p, --n) c = c >> 8U ^ t[0][(c ^ *p) & 0xffU];
  return ~c;
}

EIGENFORMER_IO_FUNCTION void ZipWriter::add(const std::string& name, std::string_view head,
                                            std::span<const std::byte> body) {
  const std::uint64_t size = head.size() + body.size(), local = file_.bytes_written();
  const std::uint32_t crc =
      crc32_of(body, crc32_of(std::as_bytes(std::span<const char>(head.data(), head.size()))));
  const bool large = size >= limit_;
  std::string sizes;
  if (large) put(sizes, std::uint16_t{1}, std::uint16_t{16}, size, size);
  // An extra field of zeros, with the id that zipalign uses, pads the header to the alignment.
  const std::uint64_t begin = local + 30 + name.size() + sizes.size();
  const std::uint64_t padding = begin % 64 == 0 ? 0 : 4 + (64 - (begin + 4) % 64) % 64;
  if (padding > 0) {
    put(sizes, std::uint16_t{0xd935}, static_cast<std::uint16_t>(padding - 4));
    sizes.append(static_cast<std::size_t>(padding - 4), '\0');
  }
  const auto small_size = large ? 0xffffffffU : static_cast<std::uint32_t>(size);
  std::string fields;
  // Names are UTF-8. The time is 1980-01-01 00:00: equal contents give equal files.
  put(fields, static_cast<std::uint16_t>(large ? 45 : 20), std::uint16_t{0x0800}, std::uint16_t{0},
      std::uint32_t{0x00210000}, crc, small_size, small_size, static_cast<std::uint16_t>(name.size()));
  std::string header("PK\3\4");
  header += fields;
  put(header, static_cast<std::uint16_t>(sizes.size()));
  file_.write(header + name + sizes);
  file_.write(head);
  file_.write(body);
  add_to_directory(name, fields, size, local);
  ++count_;
}

EIGENFORMER_IO_FUNCTION void ZipWriter::commit() {
  const std::uint64_t begin = file_.bytes_written(), length = directory_.size();
  const bool large =
      count_ >= std::min<std::uint64_t>(limit_, 0xffffU) || begin >= limit_ || length >= limit_;
  std::string end;
  if (large) {
    end += "PK\6\6";
    put(end, std::uint64_t{44}, std::uint16_t{45}, std::uint16_t{45}, std::uint64_t{0}, count_, count_,
        length, begin);
    end += "PK\6\7";
    put(end, std::uint32_t{0}, begin + length, std::uint32_t{1});
  }
  end += "PK\5\6";
  const auto count = static_cast<std::uint16_t>(large ? 0xffffU : count_);
  put(end, std::uint32_t{0}, count, count, static_cast<std::uint32_t>(large ? 0xffffffffU : length),
      static_cast<std::uint32_t>(large ? 0xffffffffU : begin), std::uint16_t{0});
  file_.write(directory_);
  file_.write(end);
  file_.commit();
}

EIGENFORMER_IO_FUNCTION void ZipWriter::add_to_directory(const std::string& name, const std::string& fields,
                                                         std::uint64_t size, std::uint64_t local) {
  std::string extra;
  const bool large = size >= limit_, far = local >= limit_;
  if (large || far) {
    put(extra, std::uint16_t{1}, static_cast<std::uint16_t>((large ? 16 : 0) + (far ? 8 : 0)));
    if (large) put(extra, size, size);
    if (far) put(extra, local);
  }
  directory_ += "PK\1\2";
  put(directory_, std::uint16_t{45});
  directory_ += fields;
  constexpr std::uint16_t none = 0;
  put(directory_, static_cast<std::uint16_t>(extra.size()), none, none, none, std::uint32_t{0},
      static_cast<std::uint32_t>(far ? 0xffffffffU : local));
  directory_ += name + extra;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION NpzFile NpzFile::open(const std::filesystem::path& path) {
  NpzFile file;
  file.path_ = path;
  const auto map = detail::MappedFile::open(path);
  for (const detail::ZipEntry& entry : detail::parse_zip(map->bytes(), path.string())) {
    if (!entry.name.ends_with(".npy")) {
      throw IoError("npz",
                    {"'", path.string(), "' holds '", entry.name, "', expected names that end in .npy"});
    }
    file.arrays_.emplace(entry.name.substr(0, entry.name.size() - 4), file.read(map, entry));
  }
  return file;
}

EIGENFORMER_IO_FUNCTION NpzFile::Array NpzFile::read(const std::shared_ptr<detail::MappedFile>& map,
                                                     const detail::ZipEntry& entry) const {
  const std::string name = what(entry.name.substr(0, entry.name.size() - 4));
  Array array{
      {},
      map->bytes().subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.stored)),
      map};
  if (entry.deflated) {
    const auto* zlib = detail::find_linked<detail::ZlibFunctions>();
    if (zlib == nullptr) {
      throw IoError("npz", {name,
                            " is compressed, and this program was built without zlib; expected an array that "
                            "numpy.savez wrote, or a program with zlib"});
    }
    Tensor<std::int8_t> inflated(Shape{static_cast<index_t>(entry.size)});
    const auto bytes = std::as_writable_bytes(inflated.span());
    if (!zlib->inflate(array.bytes, bytes))
      throw IoError("npz", {name, " is damaged: it does not inflate to its size"});
    array.bytes = bytes;
    array.keep_alive = std::make_shared<Tensor<std::int8_t>>(inflated);
  }
  if (detail::crc32_of(array.bytes) != entry.crc)
    throw IoError("npz", {name, " is damaged: its checksum does not match"});
  array.header = detail::parse_npy(array.bytes, name);
  return array;
}

}  // namespace eigenformer

#endif
