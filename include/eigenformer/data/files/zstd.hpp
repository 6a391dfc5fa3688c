#pragma once

#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/files/compression.hpp"

#ifdef EIGENFORMER_WITH_ZSTD
#include <zstd.h>

#include <new>

namespace eigenformer::detail {

/// Decompresses zstd frames (RFC 8878) with libzstd.
class ZstdDecompressor final : public Decompressor {
 public:
  ZstdDecompressor() : stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }
  ZstdDecompressor(const ZstdDecompressor&) = delete;
  ZstdDecompressor& operator=(const ZstdDecompressor&) = delete;
  ~ZstdDecompressor() override { ZSTD_freeDStream(stream_); }

  const char* run(std::string_view& in, std::string& out) override {
    const std::size_t before = out.size();
    out.resize(before + decompressed_at_once);
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data() + before, decompressed_at_once, 0};
    const std::size_t status = ZSTD_decompressStream(stream_, &to, &from);
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
  bool at_end_of_member() const override { return at_end_; }

 private:
  ZSTD_DStream* stream_;
  bool at_end_ = false;
};

inline std::unique_ptr<Decompressor> zstd_decompressor() { return std::make_unique<ZstdDecompressor>(); }

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

inline constexpr ZstdFunctions zstd_functions{&zstd_decompressor, &zstd_frame};
inline const bool zstd_is_linked = link(zstd_functions);

}  // namespace eigenformer::detail
#endif
