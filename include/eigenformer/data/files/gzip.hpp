#pragma once

#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/files/compression.hpp"

#ifdef EIGENFORMER_WITH_ZLIB
#include <zlib.h>

#include <algorithm>
#include <limits>
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
  bool at_end_of_member() const override { return at_end_; }

 private:
  z_stream stream_{};
  bool at_end_ = false;
};

inline std::unique_ptr<Decompressor> gzip_decompressor() { return std::make_unique<GzipDecompressor>(); }

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

inline constexpr GzipFunctions gzip_functions{&gzip_decompressor, &gzip_member};
inline const bool gzip_is_linked = link(gzip_functions);

}  // namespace eigenformer::detail
#endif
