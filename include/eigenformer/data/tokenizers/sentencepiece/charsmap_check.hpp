#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer::detail {

/// Checks a `precompiled_charsmap`, the table by which SentencePiece normalises text: the size of a trie in
/// bytes (32 bits), the trie as a double array of 32-bit units (as in the library darts-clone), and strings
/// that end with a zero byte, to which the trie's values point. SentencePiece 0.1.97 does not check offsets
/// against the end of the table. This check visits every unit that any text can reach once.
class CharsmapCheck {
 public:
  /// Limits of this reader, far above published tables: that of NFKC with case folding takes 250 kB and
  /// replaces at most 12 bytes by at most 33.
  static constexpr std::size_t most_bytes = std::size_t{8} << 20, longest_string = 128;
  /// SentencePiece stores the matches at one position of a text in an array of 32 elements
  /// (`kMaxTrieResultsSize`) and reads beyond its end if there are more.
  static constexpr std::size_t most_matches = 32;

  /// Throws ValueError if some text would lead outside the table; its message completes a sentence that ends
  /// with "is".
  static void run(std::string_view table) {
    if (!table.empty()) CharsmapCheck(table).run();
  }

 private:
  // The longest continuations of a unit of the trie.
  struct Rest {
    std::size_t matches = 0, bytes = 0;  // the most of any path
  };
  struct Step {
    std::size_t base;
    std::size_t next;  // the byte to follow next
    Rest rest;
  };
  enum Mark : std::uint8_t { unseen, open, done };

  explicit CharsmapCheck(std::string_view table) : table_(table) {
    if (table.size() > most_bytes) {
      throw fault("has " + std::to_string(table.size()) + " bytes, expected at most " +
                  std::to_string(most_bytes));
    }
    const std::size_t size = table.size() < 4 ? 0 : word(0);
    // A step goes from a unit to any of the 256 whose numbers differ from its own in the last byte, so the
    // trie is made of blocks of 256.
    if (size == 0 || size % 1024 != 0)
      throw fault("has a trie of " + std::to_string(size) + " bytes, expected a multiple of 1024");
    if (size > table.size() - 4) {
      throw fault("has " + std::to_string(table.size()) + " bytes, its trie alone " + std::to_string(size));
    }
    units_ = size / 4;
    strings_ = table.substr(4 + size);
    if (strings_.empty() || strings_.back() != '\0')
      throw fault("has strings that do not end in a zero byte");
    check_strings();
  }

  static ValueError fault(const std::string& what) {
    return ValueError(
        "charsmap", "a damaged SentencePiece model: its table of characters (precompiled_charsmap) " + what);
  }

  std::uint32_t word(std::size_t i) const {
    const auto byte = [&](std::size_t k) {
      return static_cast<std::uint32_t>(static_cast<std::uint8_t>(table_[i * 4 + k]));
    };
    return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
  }
  std::uint32_t unit(std::size_t i) const { return word(1 + i); }

  // The unit that a unit leads to.
  std::size_t base_of(std::size_t at) const {
    const std::uint32_t value = unit(at);
    const std::size_t base = at ^ (std::size_t{value >> 10} << ((value & 0x200u) >> 6));
    if (base >= units_) {
      throw fault("leads from unit " + std::to_string(at) + " of its trie to unit " + std::to_string(base) +
                  ", and has " + std::to_string(units_));
    }
    return base;
  }

  void check_strings() const {
    for (std::size_t begin = 0; begin < strings_.size();) {
      const std::string_view string = strings_.substr(begin, strings_.find('\0', begin) - begin);
      if (string.size() > longest_string) {
        throw fault("has a string of " + std::to_string(string.size()) + " bytes, expected at most " +
                    std::to_string(longest_string));
      }
      if (find_invalid_utf8(string)) throw fault("has a string that is not UTF-8");
      begin += string.size() + 1;
    }
  }

  // A value may point into another value's string, but not into the middle of a character.
  void check_value(std::size_t base) const {
    const std::size_t begin = unit(base) & 0x7FFFFFFFu;
    if (begin >= strings_.size()) {
      throw fault("points to byte " + std::to_string(begin) + " of its strings, and has " +
                  std::to_string(strings_.size()));
    }
    if ((static_cast<std::uint8_t>(strings_[begin]) & 0xC0u) == 0x80u)
      throw fault("points into a character, at byte " + std::to_string(begin) + " of its strings");
  }

  void require_length(std::size_t bytes) const {
    if (bytes > longest_string) {
      throw fault("has a trie that follows more than " + std::to_string(longest_string) + " bytes of a text");
    }
  }

  // Depth first. Branches may share continuations, but cycles are errors.
  void run() {
    marks_.assign(units_, unseen);
    rests_.assign(units_, Rest{});
    std::vector<Step> path{{base_of(0), 0, {}}};
    marks_[path.back().base] = open;
    while (!path.empty()) {
      Step& step = path.back();
      if (step.next == 256) {
        marks_[step.base] = done;
        rests_[step.base] = step.rest;
        path.pop_back();
        if (!path.empty()) close_branch(path.back());
        continue;
      }
      const std::size_t at = step.base ^ step.next;
      if ((unit(at) & 0x800000FFu) != step.next) {
        ++step.next;
        continue;
      }
      const std::size_t base = base_of(at);
      if (marks_[base] == open) throw fault("has a trie that leads back to unit " + std::to_string(base));
      if (marks_[base] == done) {
        close_branch(step);
        continue;
      }
      if (ends_match(at)) check_value(base);
      require_length(path.size());
      marks_[base] = open;
      path.push_back({base, 0, {}});
    }
  }

  bool ends_match(std::size_t at) const { return (unit(at) & 0x100u) != 0; }

  // The continuations of the byte that `step` follows are known.
  void close_branch(Step& step) {
    const std::size_t at = step.base ^ step.next, base = base_of(at);
    if (ends_match(at)) check_value(base);  // another branch may have come here without the match
    step.rest.matches = std::max(step.rest.matches, rests_[base].matches + (ends_match(at) ? 1 : 0));
    step.rest.bytes = std::max(step.rest.bytes, rests_[base].bytes + 1);
    if (step.rest.matches > most_matches) {
      throw fault("has more than " + std::to_string(most_matches) +
                  " strings that are prefixes of one another");
    }
    require_length(step.rest.bytes);
    ++step.next;
  }

  std::string_view table_, strings_;
  std::size_t units_ = 0;
  std::vector<Mark> marks_;  // by the unit that a unit leads to
  std::vector<Rest> rests_;
};

}  // namespace eigenformer::detail
