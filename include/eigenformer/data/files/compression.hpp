#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// The format of a compressed file.
enum class Compression {
  none,  ///< not compressed
  gzip,  ///< RFC 1952; needs zlib
  zstd   ///< RFC 8878; needs libzstd
};

/// The name of a format in messages: "no compression", "gzip" or "zstd".
constexpr const char* compression_name(Compression compression) {
  switch (compression) {
    case Compression::gzip:
      return "gzip";
    case Compression::zstd:
      return "zstd";
    case Compression::none:
      break;
  }
  return "no compression";
}

/// The format in which to write a file, by its extension: gzip for .gz, zstd for .zst, else none.
inline Compression compression_of_name(const std::filesystem::path& path) {
  const std::string suffix = path.extension().string();
  return suffix == ".gz" ? Compression::gzip : suffix == ".zst" ? Compression::zstd : Compression::none;
}

/// Detects the format of data from its first bytes; nothing when more bytes are needed. Four bytes always
/// suffice. No UTF-8 text begins with one of the signatures, except for that of zstd's skippable frames: a
/// letter from P to _, "*M" and a control character (RFC 1952, RFC 8878).
inline std::optional<Compression> compression_of_content(std::string_view begin) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(begin[i]); };
  // Compares as many bytes as there are.
  const auto matches = [&](auto... expected) {
    std::size_t i = 0;
    return ([&] {
      const bool equal = i >= begin.size() || expected(byte(i));
      ++i;
      return equal;
    }() && ...);
  };
  const auto is = [](unsigned char expected) {
    return [expected](unsigned char x) { return x == expected; };
  };
  const auto in_50_to_5f = [](unsigned char x) { return x >> 4 == 5; };
  if (matches(is(0x1f), is(0x8b))) return begin.size() < 2 ? std::nullopt : std::optional(Compression::gzip);
  if (matches(is(0x28), is(0xb5), is(0x2f), is(0xfd)) || matches(in_50_to_5f, is(0x2a), is(0x4d), is(0x18)))
    return begin.size() < 4 ? std::nullopt : std::optional(Compression::zstd);
  return Compression::none;
}

namespace detail {

/// Decompresses a stream, member by member (gzip) or frame by frame (zstd).
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Consumes bytes from the front of `in` and appends at most decompressed_at_once bytes to `out`. Returns a
  /// message for damaged data, else null.
  virtual const char* run(std::string_view& in, std::string& out) = 0;
  /// Whether the input consumed so far ends at the end of a member or frame.
  virtual bool at_end_of_member() const = 0;
};

/// The functions that need zlib.
struct GzipFunctions {
  std::unique_ptr<Decompressor> (*decompressor)();
  /// Compresses the text to one member.
  std::string (*compress)(std::string_view text);
};
/// The functions that need libzstd.
struct ZstdFunctions {
  std::unique_ptr<Decompressor> (*decompressor)();
  /// Compresses the text to one frame.
  std::string (*compress)(std::string_view text);
};

/// Most bytes that a call of Decompressor::run appends.
inline constexpr std::size_t decompressed_at_once = std::size_t{1} << 20;

}  // namespace detail

}  // namespace eigenformer
