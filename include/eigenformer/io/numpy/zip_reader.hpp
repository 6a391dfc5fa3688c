#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#ifdef EIGENFORMER_WITH_ZLIB
#include <zlib.h>
#endif

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"

/// Zip archives as NumPy and PyTorch write them: stored or deflated files, and a directory at the end. The
/// format is PKWARE's APPNOTE.TXT 6.3.9, with zip64 records for sizes of 4 GiB and more.
namespace eigenformer::detail {

/// One file of an archive.
struct ZipEntry {
  std::string name;
  bool deflated = false;
  std::uint64_t begin = 0;  ///< of its bytes as stored, from the start of the archive
  std::uint64_t stored = 0;
  std::uint64_t size = 0;  ///< once inflated
  std::uint32_t crc = 0;
};

/// Parses and validates the directory of an archive. path: its name in messages. Throws IoError that says
/// what is wrong.
EIGENFORMER_IO_FUNCTION std::vector<ZipEntry> parse_zip(std::span<const std::byte> bytes,
                                                        const std::string& path);

/// The functions that need zlib.
struct ZlibFunctions {
  /// Inflates raw deflate data into a buffer that it must fill exactly. Returns whether it did.
  bool (*inflate)(std::span<const std::byte> from, std::span<std::byte> to);
};

#ifdef EIGENFORMER_WITH_ZLIB
inline bool inflate_with_zlib(std::span<const std::byte> from, std::span<std::byte> to) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  constexpr std::size_t at_most = std::size_t{1} << 30;
  // zlib's pointer is not const, but zlib does not write through it.
  auto* in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(from.data()));
  auto* out = reinterpret_cast<Bytef*>(to.data());
  std::size_t in_left = from.size(), out_left = to.size();
  std::array<Bytef, 1> overflow{};
  int status = Z_OK;
  while (status == Z_OK) {
    const std::size_t give = std::min(in_left, at_most), room = std::min(out_left, at_most);
    stream.next_in = in;
    stream.avail_in = static_cast<uInt>(give);
    stream.next_out = room > 0 ? out : overflow.data();
    stream.avail_out = room > 0 ? static_cast<uInt>(room) : 1;
    status = inflate(&stream, Z_NO_FLUSH);
    in += give - stream.avail_in;
    in_left -= give - stream.avail_in;
    if (room == 0) {
      if (stream.avail_out == 0) status = Z_DATA_ERROR;
    } else {
      out += room - stream.avail_out;
      out_left -= room - stream.avail_out;
    }
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END && out_left == 0;
}
inline constexpr ZlibFunctions zlib_functions{&inflate_with_zlib};
inline const bool zlib_is_linked = link(zlib_functions);
#endif

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

class ZipParser {
 public:
  ZipParser(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  std::vector<ZipEntry> parse() {
    find_directory();
    std::vector<ZipEntry> entries;
    std::set<std::string> names;
    std::uint64_t at = directory_;
    for (std::uint64_t i = 0; i < count_; ++i) {
      entries.push_back(read_entry(at));
      if (!names.insert(entries.back().name).second)
        fail({"it has the file '", entries.back().name, "' twice"});
    }
    if (at != directory_ + directory_bytes_)
      fail({"its directory does not have the length that the archive says"});
    check_overlap(entries);
    return entries;
  }

 private:
  static constexpr std::uint64_t end_size = 22, zip64_locator_size = 20, zip64_end_size = 56,
                                 central_size = 46, local_size = 30;

  [[noreturn]] void fail(std::initializer_list<MessagePart> message) const {
    throw IoError("zip", {"cannot read '", path_, "': ", join(message)});
  }

  // Reads a T at a byte offset. Throws IoError outside the archive.
  template <class T>
  T number(std::uint64_t at) const {
    require(at, sizeof(T));
    return load_as<T>(bytes_.data() + at);
  }
  void require(std::uint64_t at, std::uint64_t n) const {
    if (at > bytes_.size() || n > bytes_.size() - at)
      fail({"a record at byte ", at, " ends outside its ", bytes_.size(), " bytes; it is truncated"});
  }

  // Finds the end record, which only a comment may follow.
  void find_directory() {
    const std::uint64_t size = bytes_.size();
    std::uint64_t end = size;
    for (std::uint64_t comment = 0; comment <= 0xffffU && comment + end_size <= size; ++comment) {
      const std::uint64_t at = size - end_size - comment;
      if (number<std::uint32_t>(at) == 0x06054b50U && number<std::uint16_t>(at + 20) == comment) {
        end = at;
        break;
      }
    }
    if (end == size) fail({"it has no zip directory; it is truncated or in another format"});
    count_ = number<std::uint16_t>(end + 10);
    directory_bytes_ = number<std::uint32_t>(end + 12);
    directory_ = number<std::uint32_t>(end + 16);
    if (number<std::uint16_t>(end + 4) != 0 && number<std::uint16_t>(end + 4) != 0xffffU)
      fail({"it is one of several volumes, which are not supported"});
    const bool large = count_ == 0xffffU || directory_bytes_ == 0xffffffffU || directory_ == 0xffffffffU;
    if (large && end >= zip64_locator_size &&
        number<std::uint32_t>(end - zip64_locator_size) == 0x07064b50U) {
      const auto at = number<std::uint64_t>(end - zip64_locator_size + 8);
      require(at, zip64_end_size);
      if (number<std::uint32_t>(at) != 0x06064b50U) fail({"its zip64 directory is not where it should be"});
      count_ = number<std::uint64_t>(at + 32);
      directory_bytes_ = number<std::uint64_t>(at + 40);
      directory_ = number<std::uint64_t>(at + 48);
    }
    require(directory_, directory_bytes_);
    if (count_ > directory_bytes_ / central_size) fail({"its directory is too short for ", count_, " files"});
  }

  ZipEntry read_entry(std::uint64_t& at) const {
    require(at, central_size);
    if (number<std::uint32_t>(at) != 0x02014b50U) fail({"its directory is damaged at byte ", at});
    ZipEntry entry;
    const auto flags = number<std::uint16_t>(at + 8);
    const auto method = number<std::uint16_t>(at + 10);
    entry.crc = number<std::uint32_t>(at + 16);
    entry.stored = number<std::uint32_t>(at + 20);
    entry.size = number<std::uint32_t>(at + 24);
    const std::uint64_t name = number<std::uint16_t>(at + 28), extra = number<std::uint16_t>(at + 30),
                        comment = number<std::uint16_t>(at + 32);
    std::uint64_t local = number<std::uint32_t>(at + 42);
    require(at + central_size, name + extra + comment);
    entry.name.assign(reinterpret_cast<const char*>(bytes_.data() + at + central_size),
                      static_cast<std::size_t>(name));
    read_zip64(at + central_size + name, extra, entry, local);
    if (flags % 2 == 1) fail({"'", entry.name, "' is encrypted, which is not supported"});
    if (method != 0 && method != 8)
      fail({"'", entry.name, "' is compressed by method ", method, ", expected 0 (stored) or 8 (deflated)"});
    entry.deflated = method == 8;
    require(local, local_size);
    if (number<std::uint32_t>(local) != 0x04034b50U)
      fail({"'", entry.name, "' is not at byte ", local, ", where it should be"});
    entry.begin = local + local_size + number<std::uint16_t>(local + 26) + number<std::uint16_t>(local + 28);
    require(entry.begin, entry.stored);
    if (!entry.deflated && entry.stored != entry.size)
      fail({"'", entry.name, "' is stored, but its compressed and uncompressed sizes differ"});
    // Deflate expands a byte to at most 1032; a larger size is an attempt to exhaust memory.
    if (entry.deflated && entry.size / 1040 > entry.stored)
      fail({"'", entry.name, "' cannot have the size that it claims"});
    at += central_size + name + extra + comment;
    return entry;
  }

  // Files that share their bytes could inflate to the square of the archive's size (Fifield 2019, "A better
  // zip bomb").
  void check_overlap(const std::vector<ZipEntry>& entries) const {
    std::vector<const ZipEntry*> order;
    for (const ZipEntry& entry : entries) order.push_back(&entry);
    std::sort(order.begin(), order.end(),
              [](const ZipEntry* a, const ZipEntry* b) { return a->begin < b->begin; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->stored > order[i]->begin - order[i - 1]->begin)
        fail({"'", order[i]->name, "' begins inside '", order[i - 1]->name, "'"});
    }
  }

  // Reads the 64-bit values of the fields that do not fit 32 bits, in the order of the format.
  void read_zip64(std::uint64_t at, std::uint64_t length, ZipEntry& entry, std::uint64_t& local) const {
    for (const std::uint64_t end = at + length; end - at >= 4;) {
      const auto id = number<std::uint16_t>(at);
      const std::uint64_t n = number<std::uint16_t>(at + 2);
      if (n > end - at - 4) fail({"'", entry.name, "' has a damaged extra field"});
      if (id == 1) {
        std::uint64_t field = at + 4;
        for (std::uint64_t* value : {&entry.size, &entry.stored, &local}) {
          if (*value != 0xffffffffU) continue;
          if (field + 8 > at + 4 + n) fail({"'", entry.name, "' lacks its zip64 sizes"});
          *value = number<std::uint64_t>(field);
          field += 8;
        }
      }
      at += 4 + n;
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::uint64_t directory_ = 0, directory_bytes_ = 0, count_ = 0;
};

EIGENFORMER_IO_FUNCTION std::vector<ZipEntry> parse_zip(std::span<const std::byte> bytes,
                                                        const std::string& path) {
  return ZipParser(bytes, path).parse();
}

}  // namespace eigenformer::detail

#endif
