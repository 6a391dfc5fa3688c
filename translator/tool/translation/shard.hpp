#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "eigenformer/core/base/error.hpp"

namespace translator {

/// Part i of n of a text: the lines whose first byte lies in that part of its bytes. Parts are consecutive,
/// each line is in exactly one, and all take about the same time.
struct Shard {
  std::uint64_t part = 1, of = 1;

  /// Reads "i/n". Throws ValueError.
  static Shard parse(const std::string& text) {
    Shard shard;
    const std::size_t slash = text.find('/');
    const auto number = [](std::string_view digits, std::uint64_t& value) {
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return error == std::errc() && end == digits.data() + digits.size();
    };
    constexpr std::uint64_t most = 1'000'000;
    if (slash == std::string::npos || !number(std::string_view(text).substr(0, slash), shard.part) ||
        !number(std::string_view(text).substr(slash + 1), shard.of) || shard.part < 1 ||
        shard.part > shard.of || shard.of > most) {
      throw eigenformer::ValueError("translate", {"--shard is '", text,
                                                  "', expected i/n, such as 1/8, with i from 1 to n and n "
                                                  "at most 1000000"});
    }
    return shard;
  }

  bool first() const { return part == 1; }

  /// The first byte of the part in a text of this size, and the first byte after it; the last part has no
  /// end, so that lines appended to the file are included.
  std::uint64_t begin(std::uint64_t bytes) const { return bound(part - 1, bytes); }
  std::uint64_t end(std::uint64_t bytes) const {
    return part == of ? std::numeric_limits<std::uint64_t>::max() : bound(part, bytes);
  }

 private:
  // bytes * k / of, without overflow.
  std::uint64_t bound(std::uint64_t k, std::uint64_t bytes) const {
    return bytes / of * k + bytes % of * k / of;
  }
};

}  // namespace translator
