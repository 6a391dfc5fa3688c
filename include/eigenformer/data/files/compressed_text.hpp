#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"

namespace eigenformer {

/// The format of a compressed file.
enum class Compression {
  none,  ///< not compressed
  gzip,  ///< RFC 1952; needs zlib
  zstd   ///< RFC 8878; needs libzstd
};

namespace detail {

/// The name of a format in messages: "no compression", "gzip" or "zstd".
constexpr const char* compression_name(Compression compression) {
  constexpr const char* names[] = {"no compression", "gzip", "zstd"};
  return names[static_cast<std::size_t>(compression)];
}

/// The format in which to write a file, by its extension: gzip for .gz, zstd for .zst, else none.
inline Compression compression_of_name(const std::filesystem::path& path) {
  const std::string suffix = path.extension().string();
  return suffix == ".gz" ? Compression::gzip : suffix == ".zst" ? Compression::zstd : Compression::none;
}

/// Detects the format of data from its first bytes; nothing when more bytes are needed. Four bytes always
/// suffice. No UTF-8 text begins with one of the signatures, except for that of zstd's skippable frames: a
/// letter from P to _, "*M" and a control character (RFC 1952, RFC 8878).
EIGENFORMER_FUNCTION std::optional<Compression> compression_of_content(std::string_view begin);

/// Decompresses a stream, member by member (gzip) or frame by frame (zstd).
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Consumes bytes from the front of `in` and appends at most decompressed_at_once bytes to `out`. Returns a
  /// message for damaged data, else null.
  virtual const char* run(std::string_view& in, std::string& out) = 0;
  /// Whether the input consumed so far ends at the end of a member or frame.
  bool at_end_of_member() const noexcept { return at_end_; }

 protected:
  bool at_end_ = false;
};

template <class T>
std::unique_ptr<Decompressor> make_decompressor() {
  return std::make_unique<T>();
}

/// The functions of a format that need its library.
struct CompressionFunctions {
  std::unique_ptr<Decompressor> (*decompressor)();
  /// Compresses the text to one member or frame.
  std::string (*compress)(std::string_view text);
};
/// Those that need zlib.
struct GzipFunctions : CompressionFunctions {};
/// Those that need libzstd.
struct ZstdFunctions : CompressionFunctions {};

/// Most bytes that a call of Decompressor::run appends.
inline constexpr std::size_t decompressed_at_once = std::size_t{1} << 20;

}  // namespace detail

}  // namespace eigenformer

#ifdef EIGENFORMER_WITH_ZLIB
#include <zlib.h>

#include <algorithm>
#include <new>

namespace eigenformer::detail {

/// Decompresses gzip members (RFC 1952) with zlib.
class GzipDecompressor final : public Decompressor {
 public:
  GzipDecompressor() {
    if (inflateInit2(&stream_, MAX_WBITS + 16) != Z_OK) throw std::bad_alloc();
  }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;
  ~GzipDecompressor() override { inflateEnd(&stream_); }

  const char* run(std::string_view& in, std::string& out) override {
    if (at_end_ && !in.empty()) {
      // zlib reports a wrong second byte only together with the bytes after it.
      if (static_cast<unsigned char>(in[0]) != 0x1f) return "no further member of gzip begins here";
      if (inflateReset(&stream_) != Z_OK) return "its state is damaged";
      at_end_ = false;
    }
    const std::size_t before = out.size();
    const std::size_t give = std::min<std::size_t>(in.size(), std::numeric_limits<uInt>::max());
    out.resize(before + decompressed_at_once);
    // zlib's pointer is not const, but zlib does not write through it.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(give);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream_.avail_out = static_cast<uInt>(decompressed_at_once);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    out.resize(out.size() - stream_.avail_out);
    in.remove_prefix(give - stream_.avail_in);
    if (status == Z_STREAM_END) at_end_ = true;
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR) return nullptr;
    return stream_.msg != nullptr ? stream_.msg : "the data is damaged";
  }

 private:
  z_stream stream_{};
};

inline std::string gzip_member(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  std::string member;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    const std::size_t give = std::min<std::size_t>(text.size(), std::numeric_limits<uInt>::max());
    const std::size_t before = member.size();
    member.resize(before + std::max<std::size_t>(text.size() / 2, 1024));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(give);
    stream.next_out = reinterpret_cast<Bytef*>(member.data() + before);
    stream.avail_out =
        static_cast<uInt>(std::min<std::size_t>(member.size() - before, std::numeric_limits<uInt>::max()));
    status = deflate(&stream, give == text.size() ? Z_FINISH : Z_NO_FLUSH);
    text.remove_prefix(give - stream.avail_in);
    member.resize(static_cast<std::size_t>(reinterpret_cast<char*>(stream.next_out) - member.data()));
  }
  deflateEnd(&stream);
  return member;
}

inline constexpr GzipFunctions gzip_functions{{&make_decompressor<GzipDecompressor>, &gzip_member}};
inline const bool gzip_is_linked = link(gzip_functions);

}  // namespace eigenformer::detail
#endif

#ifdef EIGENFORMER_WITH_ZSTD
#include <zstd.h>

#include <new>

namespace eigenformer::detail {

/// Decompresses zstd frames (RFC 8878) with libzstd.
class ZstdDecompressor final : public Decompressor {
 public:
  ZstdDecompressor() {
    if (stream_ == nullptr) throw std::bad_alloc();
  }

  const char* run(std::string_view& in, std::string& out) override {
    const std::size_t before = out.size();
    out.resize(before + decompressed_at_once);
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data() + before, decompressed_at_once, 0};
    const std::size_t status = ZSTD_decompressStream(stream_.get(), &to, &from);
    out.resize(before + to.pos);
    in.remove_prefix(from.pos);
    if (ZSTD_isError(status) != 0) return ZSTD_getErrorName(status);
    // 0: a frame has ended, and all of its text was returned.
    if (status == 0) {
      at_end_ = true;
    } else if (from.pos > 0 || to.pos > 0) {
      at_end_ = false;
    }
    return nullptr;
  }

 private:
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_{ZSTD_createDStream(),
                                                                        &ZSTD_freeDStream};
};

inline std::string zstd_frame(std::string_view text) {
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (context == nullptr) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);  // damage is found, as in gzip
  std::string frame(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ZSTD_compress2(context.get(), frame.data(), frame.size(), text.data(), text.size());
  if (ZSTD_isError(size) != 0) throw std::bad_alloc();
  frame.resize(size);
  return frame;
}

inline constexpr ZstdFunctions zstd_functions{{&make_decompressor<ZstdDecompressor>, &zstd_frame}};
inline const bool zstd_is_linked = link(zstd_functions);

}  // namespace eigenformer::detail
#endif

namespace eigenformer {

namespace detail {

/// The functions of a format other than none. Throws IoError, as `op`, when the program was built without its
/// library; the message begins with `what` and says which package to install.
EIGENFORMER_FUNCTION const CompressionFunctions& require_compression(Compression compression, const char* op,
                                                                     const std::string& what);

}  // namespace detail

/// Compresses bytes to one gzip member or zstd frame; Compression::none copies them. Results may be
/// concatenated and are read as one text. Throws IoError when the program was built without the library.
EIGENFORMER_FUNCTION std::string compress(Compression compression, std::string_view text);

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
  /// Returns whether another call may give more without further input. Throws IoError for damaged data and
  /// for an end() within a member or frame, with the name and byte offset, and when the program was built
  /// without the library.
  bool read(std::string& out);

  /// Marks the end of the input; call read() until it returns false after that.
  void end() { over_ = true; }

  /// The detected format; none until read() has seen enough bytes.
  Compression compression() const noexcept { return compression_.value_or(Compression::none); }

 private:
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
EIGENFORMER_FUNCTION std::string decompress(std::string stored, const std::string& name,
                                            std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

namespace detail {

EIGENFORMER_FUNCTION std::optional<Compression> compression_of_content(std::string_view begin) {
  std::string first(begin.substr(0, 4));
  if (!first.empty() && (first[0] & 0xF0) == 0x50) first[0] = 0x50;  // a skippable frame: 0x50 to 0x5F
  // Compares as many bytes as there are.
  const auto begins_as = [&](std::string_view signature) {
    return signature.starts_with(std::string_view(first).substr(0, signature.size()));
  };
  if (begins_as("\x1f\x8b")) return first.size() < 2 ? std::nullopt : std::optional(Compression::gzip);
  if (begins_as("\x28\xb5\x2f\xfd") || begins_as("\x50\x2a\x4d\x18"))
    return first.size() < 4 ? std::nullopt : std::optional(Compression::zstd);
  return Compression::none;
}

EIGENFORMER_FUNCTION const CompressionFunctions& require_compression(Compression compression, const char* op,
                                                                     const std::string& what) {
  const bool gzip = compression == Compression::gzip;
  const CompressionFunctions* functions = find_linked<ZstdFunctions>();
  if (gzip) functions = find_linked<GzipFunctions>();
  if (functions != nullptr) return *functions;
  throw IoError(op, {what, ", and this program was built without ", (gzip ? "zlib" : "zstd"), "; install ",
                     (gzip ? "zlib1g-dev" : "libzstd-dev"), " and build it again"});
}

}  // namespace detail

EIGENFORMER_FUNCTION std::string compress(Compression compression, std::string_view text) {
  if (compression == Compression::none) return std::string(text);
  const std::string what =
      std::string("text cannot be compressed by ") + detail::compression_name(compression);
  return detail::require_compression(compression, "compress", what).compress(text);
}

EIGENFORMER_FUNCTION bool DecompressedStream::read(std::string& out) {
  std::string_view in(waiting_.data() + (waiting_.size() - left_), left_);
  if (!compression_) {
    compression_ = detail::compression_of_content(in);
    if (!compression_ && over_) compression_ = Compression::none;
    if (!compression_) return false;
    const std::string what =
        "cannot read '" + name_ + "': it is compressed by " + detail::compression_name(*compression_);
    if (*compression_ != Compression::none)
      decompressor_ = detail::require_compression(*compression_, "read", what).decompressor();
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
    throw IoError("read", {"cannot read '", name_, "': its ", detail::compression_name(*compression_),
                           " data is damaged at about byte ", at, ": ", problem});
  }
  taken_ = at;
  left_ = in.size();
  const bool more = left_ > 0 || out.size() - before == detail::decompressed_at_once;
  if (over_ && !more && !decompressor_->at_end_of_member()) {
    throw IoError("read", {"cannot read '", name_, "': its ", detail::compression_name(*compression_),
                           " data ends too early, after byte ", taken_, "; the file is truncated"});
  }
  return more;
}

EIGENFORMER_FUNCTION std::string decompress(std::string stored, const std::string& name, std::size_t most) {
  const auto require = [&](std::size_t size) {
    if (size > most) {
      throw IoError("read", {"cannot read '", name, "': its text has more than ", most, " bytes"});
    }
  };
  if (detail::compression_of_content(stored).value_or(Compression::none) == Compression::none) {
    require(stored.size());
    return stored;
  }
  DecompressedStream stream(name);
  stream.add(stored);
  stream.end();
  std::string text;
  while (stream.read(text)) require(text.size());
  require(text.size());
  return text;
}

}  // namespace eigenformer

#endif
