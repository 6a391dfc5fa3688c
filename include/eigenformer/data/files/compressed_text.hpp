#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/files/compression.hpp"
#include "eigenformer/data/files/gzip.hpp"
#include "eigenformer/data/files/zstd.hpp"

namespace eigenformer {

namespace detail {

/// The functions of an optional library. Throws IoError, as `op`, when the program was built without it; the
/// message begins with `what` and says which package to install.
template <class Functions>
const Functions& require_compression(const char* op, const std::string& what) {
  constexpr bool gzip = std::is_same_v<Functions, GzipFunctions>;
  if (const Functions* functions = find_linked<Functions>()) return *functions;
  throw IoError(op, what + ", and this program was built without " + (gzip ? "zlib" : "zstd") + "; install " +
                        (gzip ? "zlib1g-dev" : "libzstd-dev") + " and build it again");
}

}  // namespace detail

/// Compresses bytes to one gzip member or zstd frame; Compression::none copies them. Results may be
/// concatenated and are read as one text. Throws IoError when the program was built without the library.
inline std::string compress(Compression compression, std::string_view text) {
  const std::string what = std::string("text cannot be compressed by ") + compression_name(compression);
  switch (compression) {
    case Compression::gzip:
      return detail::require_compression<detail::GzipFunctions>("compress", what).compress(text);
    case Compression::zstd:
      return detail::require_compression<detail::ZstdFunctions>("compress", what).compress(text);
    case Compression::none:
      break;
  }
  return std::string(text);
}

/// Decompresses a stream of bytes that arrive in parts. The format (none, gzip or zstd) is detected from the
/// first bytes. Concatenated members and frames are read as one text.
class DecompressedStream {
 public:
  /// name: the name of the stream in messages.
  explicit DecompressedStream(std::string name) : name_(std::move(name)) {}

  /// Appends stored bytes to the input; they are copied.
  void add(std::string_view stored) {
    waiting_.erase(0, waiting_.size() - left_);
    waiting_.append(stored);
    left_ = waiting_.size();
  }

  /// Appends decompressed bytes to `out`: about 1 MiB at most, or all input so far when it is not compressed.
  /// Returns whether another call may give more without further input. Throws IoError for damaged data, with
  /// the name and byte offset, and when the program was built without the library.
  bool read(std::string& out) {
    std::string_view in(waiting_.data() + (waiting_.size() - left_), left_);
    if (!compression_) {
      compression_ = compression_of_content(in);
      if (!compression_ && over_) compression_ = Compression::none;
      if (!compression_) return false;
      start();
    }
    if (!decompressor_) {
      out.append(in);
      left_ = 0;
      taken_ += in.size();
      return false;
    }
    const std::size_t before = out.size();
    const char* const problem = decompressor_->run(in, out);
    const std::uint64_t at = taken_ + (left_ - in.size());
    if (problem != nullptr) {
      throw IoError("read", "cannot read '" + name_ + "': its " + compression_name(*compression_) +
                                " data is damaged at about byte " + std::to_string(at) + ": " + problem);
    }
    taken_ = at;
    left_ = in.size();
    return left_ > 0 || out.size() - before == detail::decompressed_at_once;
  }

  /// Marks the end of the input; call read() until it returns false after that.
  void end() { over_ = true; }

  /// Throws IoError when the input ended within a member or frame. Call it after end(), when read() has
  /// returned false.
  void check_end() const {
    if (!decompressor_ || decompressor_->at_end_of_member()) return;
    throw IoError("read", "cannot read '" + name_ + "': its " + compression_name(*compression_) +
                              " data ends too early, after byte " + std::to_string(taken_) +
                              "; the file is truncated");
  }

  /// Number of stored bytes consumed so far.
  std::uint64_t stored_bytes() const noexcept { return taken_; }

  /// The detected format; none until read() has seen enough bytes.
  Compression compression() const noexcept { return compression_.value_or(Compression::none); }

 private:
  void start() {
    const std::string what =
        "cannot read '" + name_ + "': it is compressed by " + compression_name(*compression_);
    if (*compression_ == Compression::gzip) {
      decompressor_ = detail::require_compression<detail::GzipFunctions>("read", what).decompressor();
    } else if (*compression_ == Compression::zstd) {
      decompressor_ = detail::require_compression<detail::ZstdFunctions>("read", what).decompressor();
    }
  }

  std::string name_;
  std::string waiting_;  // stored bytes, of which the last left_ were not read
  std::size_t left_ = 0;
  std::uint64_t taken_ = 0;
  bool over_ = false;
  std::optional<Compression> compression_;
  std::unique_ptr<detail::Decompressor> decompressor_;
};

/// Decompresses bytes that begin as gzip or zstd data; others are returned unchanged. name: their name in
/// messages; most: the most bytes that the text may have. Throws IoError as DecompressedStream does, and for
/// a longer text.
inline std::string decompress(std::string stored, const std::string& name,
                              std::size_t most = std::numeric_limits<std::size_t>::max()) {
  const auto require = [&](std::size_t size) {
    if (size > most) {
      throw IoError("read",
                    "cannot read '" + name + "': its text has more than " + std::to_string(most) + " bytes");
    }
  };
  if (compression_of_content(stored).value_or(Compression::none) == Compression::none) {
    require(stored.size());
    return stored;
  }
  DecompressedStream stream(name);
  stream.add(stored);
  stream.end();
  std::string text;
  while (stream.read(text)) require(text.size());
  require(text.size());
  stream.check_end();
  return text;
}

}  // namespace eigenformer
