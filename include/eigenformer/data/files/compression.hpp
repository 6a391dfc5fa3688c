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
enum class Compression { none, gzip, zstd };

/// "no compression", "gzip" or "zstd".
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

/// What a file of this name is to be written in: gzip for .gz, zstd for .zst, else no compression.
inline Compression compression_of_name(const std::filesystem::path& path) {
  const std::string suffix = path.extension().string();
  return suffix == ".gz" ? Compression::gzip : suffix == ".zst" ? Compression::zstd : Compression::none;
}

/// What data is compressed by, as its first bytes say; nothing where more bytes are needed to tell. Four
/// bytes always suffice. None of the signatures begins a text in UTF-8, but for that of zstd's skippable
/// frames, "P*M" and a control character. (RFC 1952, RFC 8878.)
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

/// Undoes the compression of a stream, member by member (gzip) or frame by frame (zstd).
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Reads some of `in`, which it shortens, and appends what that gives to `out`, about 1 MiB at most.
  /// Returns what is wrong with the data, or null.
  virtual const char* run(std::string_view& in, std::string& out) = 0;
  /// Whether all that was read are whole members.
  virtual bool at_end_of_member() const = 0;
};

/// What needs zlib.
struct GzipFunctions {
  std::unique_ptr<Decompressor> (*decompressor)();
  /// A member that holds the text.
  std::string (*compress)(std::string_view text);
};
/// What needs libzstd.
struct ZstdFunctions {
  std::unique_ptr<Decompressor> (*decompressor)();
  /// A frame that holds the text.
  std::string (*compress)(std::string_view text);
};

/// As much as a call of Decompressor::run appends.
inline constexpr std::size_t decompressed_at_once = std::size_t{1} << 20;

}  // namespace detail

}  // namespace eigenformer
