#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/io/numpy/crc32.hpp"

namespace eigenformer::detail {

/// Writes an archive of uncompressed files that are aligned to 64 bytes, so that they can be used in a mapped
/// archive. Throws IoError; an existing file is then unchanged.
class ZipWriter {
 public:
  /// Sizes and offsets from `limit` on are written as zip64.
  explicit ZipWriter(const std::filesystem::path& path, std::uint64_t limit = 0xffffffffU)
      : file_(path), limit_(limit) {}

  /// Adds a file that consists of `head` and `body`.
  void add(const std::string& name, std::string_view head, std::span<const std::byte> body) {
    const std::uint64_t size = head.size() + body.size(), local = file_.bytes_written();
    const std::uint32_t crc =
        crc32_of(body, crc32_of(std::as_bytes(std::span<const char>(head.data(), head.size()))));
    const bool large = size >= limit_;
    std::string sizes;
    if (large) {
      put(sizes, std::uint16_t{1});
      put(sizes, std::uint16_t{16});
      put(sizes, size);
      put(sizes, size);
    }
    // An extra field of zeros, with the id that zipalign uses, pads the header to the alignment.
    const std::uint64_t begin = local + 30 + name.size() + sizes.size();
    const std::uint64_t padding = begin % 64 == 0 ? 0 : 4 + (64 - (begin + 4) % 64) % 64;
    if (padding > 0) {
      put(sizes, std::uint16_t{0xd935});
      put(sizes, static_cast<std::uint16_t>(padding - 4));
      sizes.append(static_cast<std::size_t>(padding - 4), '\0');
    }
    const auto small_size = large ? 0xffffffffU : static_cast<std::uint32_t>(size);
    std::string fields;
    put(fields, static_cast<std::uint16_t>(large ? 45 : 20));
    put(fields, std::uint16_t{0x0800});  // names are UTF-8
    put(fields, std::uint16_t{0});
    put(fields, std::uint32_t{0x00210000});  // 1980-01-01 00:00: equal contents give equal files
    put(fields, crc);
    put(fields, small_size);
    put(fields, small_size);
    put(fields, static_cast<std::uint16_t>(name.size()));
    std::string header("PK\3\4");
    header += fields;
    put(header, static_cast<std::uint16_t>(sizes.size()));
    file_.write(header + name + sizes);
    file_.write(head);
    file_.write(body);
    add_to_directory(name, fields, size, local);
    ++count_;
  }

  /// Writes the directory and renames the file to its final name.
  void commit() {
    const std::uint64_t begin = file_.bytes_written(), length = directory_.size();
    const bool large =
        count_ >= std::min<std::uint64_t>(limit_, 0xffffU) || begin >= limit_ || length >= limit_;
    std::string end;
    if (large) {
      end += "PK\6\6";
      put(end, std::uint64_t{44});
      put(end, std::uint16_t{45});
      put(end, std::uint16_t{45});
      put(end, std::uint64_t{0});
      for (const std::uint64_t value : {count_, count_, length, begin}) put(end, value);
      end += "PK\6\7";
      put(end, std::uint32_t{0});
      put(end, begin + length);
      put(end, std::uint32_t{1});
    }
    end += "PK\5\6";
    put(end, std::uint32_t{0});
    for (int i = 0; i < 2; ++i) put(end, static_cast<std::uint16_t>(large ? 0xffffU : count_));
    put(end, static_cast<std::uint32_t>(large ? 0xffffffffU : length));
    put(end, static_cast<std::uint32_t>(large ? 0xffffffffU : begin));
    put(end, std::uint16_t{0});
    file_.write(directory_);
    file_.write(end);
    file_.commit();
  }

 private:
  template <class T>
  static void put(std::string& text, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    text.append(bytes, sizeof(T));
  }

  void add_to_directory(const std::string& name, const std::string& fields, std::uint64_t size,
                        std::uint64_t local) {
    std::string extra;
    const bool large = size >= limit_, far = local >= limit_;
    if (large || far) {
      put(extra, std::uint16_t{1});
      put(extra, static_cast<std::uint16_t>((large ? 16 : 0) + (far ? 8 : 0)));
      if (large) put(extra, size);
      if (large) put(extra, size);
      if (far) put(extra, local);
    }
    directory_ += "PK\1\2";
    put(directory_, static_cast<std::uint16_t>(45));
    directory_ += fields;
    put(directory_, static_cast<std::uint16_t>(extra.size()));
    put(directory_, std::uint16_t{0});
    put(directory_, std::uint16_t{0});
    put(directory_, std::uint16_t{0});
    put(directory_, std::uint32_t{0});
    put(directory_, static_cast<std::uint32_t>(far ? 0xffffffffU : local));
    directory_ += name + extra;
  }

  AtomicFile file_;
  std::uint64_t limit_;
  std::string directory_;
  std::uint64_t count_ = 0;
};

}  // namespace eigenformer::detail
