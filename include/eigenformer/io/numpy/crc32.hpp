#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace eigenformer::detail {

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

/// The CRC-32 of zip archives, computed eight bytes at a time; `before` is that of the preceding bytes.
inline std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept {
  std::uint32_t c = ~before;
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t n = bytes.size();
  const auto& t = crc32_tables;
  for (; n >= 8; p += 8, n -= 8) {
    std::uint32_t low = 0, high = 0;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= c;
    c = t[7][low & 0xffU] ^ t[6][low >> 8U & 0xffU] ^ t[5][low >> 16U & 0xffU] ^ t[4][low >> 24U] ^
        t[3][high & 0xffU] ^ t[2][high >> 8U & 0xffU] ^ t[1][high >> 16U & 0xffU] ^ t[0][high >> 24U];
  }
  for (; n > 0; ++p, --n) c = c >> 8U ^ t[0][(c ^ *p) & 0xffU];
  return ~c;
}

}  // namespace eigenformer::detail
