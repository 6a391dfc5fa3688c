#include "translator/documents/markup/placeholders.hpp"

#include <algorithm>
#include <cstddef>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/parsing/entities.hpp"

namespace eigenformer::detail {

namespace {

// Finds the placeholders of a text.
class PlaceholderScanner {
 public:
  explicit PlaceholderScanner(std::string_view text) : all_(text) {}

  std::vector<ByteSpan> run() const {
    std::vector<ByteSpan> found;
    for (std::size_t at = 0; at < all_.size();) {
      const std::size_t end = piece_end(at);
      if (end == at) {
        ++at;
        continue;
      }
      // Adjacent pieces, as in "%d%s", stay together.
      if (!found.empty() && found.back().end == at) {
        found.back().end = end;
      } else {
        found.push_back({at, end});
      }
      at = end;
    }
    return found;
  }

 private:
  char byte(std::size_t i) const { return i < all_.size() ? all_[i] : '\0'; }

  // The end of the piece that begins at a byte; the byte itself without a piece.
  std::size_t piece_end(std::size_t at) const {
    switch (byte(at)) {
      case '{':
        return braces(at, at);
      case '$':
        return byte(at + 1) == '{' ? braces(at + 1, at) : at;
      case '%':
        return percent(at);
      case '<':
        return numbered_tag(at);
      default:
        break;
    }
    const bool inside = at > 0 && is_ascii_alphanumeric(byte(at - 1));
    if (!inside && is_ascii_letter(byte(at))) {
      if (const std::size_t end = url(at); end != at) return end;
    }
    if (is_local(byte(at)) && (at == 0 || !is_local(byte(at - 1)))) return address(at);
    return at;
  }

  // {name}, {0:>8}, {} without spaces, {{ name }}; returns `none` without a piece.
  std::size_t braces(std::size_t at, std::size_t none) const {
    constexpr std::size_t longest = 100;
    const bool twice = byte(at + 1) == '{';
    std::size_t i = at + (twice ? 2 : 1);
    for (; i < all_.size() && i - at < longest && byte(i) != '}'; ++i) {
      const char c = byte(i);
      if (c == '{' || c == '<' || c == '\n' || (!twice && is_markup_space(c))) return none;
    }
    if (byte(i) != '}' || (twice && byte(i + 1) != '}')) return none;
    return i + (twice ? 2 : 1);
  }

  // %s, %05.2f, %1$d, %(name)s, %@, %%, and %NAME%.
  std::size_t percent(std::size_t at) const {
    std::size_t i = at + 1;
    if (byte(i) == '%') return i + 1;
    const auto digits = [&] {
      while (is_ascii_digit(byte(i))) ++i;
    };
    const auto name = [&] {
      while (is_ascii_alphanumeric(byte(i)) || byte(i) == '_') ++i;
    };
    name();
    // At least two characters and a capital, because "%d%s" is not a name.
    if (i > at + 2 && byte(i) == '%' && byte(at + 1) >= 'A' && byte(at + 1) <= 'Z') return i + 1;
    i = at + 1;
    if (byte(i) == '(') {
      ++i;
      name();
      if (byte(i) != ')') return at;
      ++i;
    } else {
      digits();
      i = byte(i) == '$' && i > at + 1 ? i + 1 : at + 1;
    }
    while (one_of(byte(i), "-+#0'")) ++i;
    byte(i) == '*' ? static_cast<void>(++i) : digits();
    if (byte(i) == '.') {
      ++i;
      byte(i) == '*' ? static_cast<void>(++i) : digits();
    }
    while (one_of(byte(i), "hlLqjzt")) ++i;
    if (!one_of(byte(i), "diouxXeEfFgGaAcCsSpn@")) return at;
    ++i;
    // "%dpx" is a piece; "100%sicher" is a missing space.
    const std::size_t specifier = i;
    name();
    return i > specifier && at > 0 && is_ascii_digit(byte(at - 1)) ? at : i;
  }

  // <0>, </0>, <0/>.
  std::size_t numbered_tag(std::size_t at) const {
    std::size_t i = at + 1;
    if (byte(i) == '/') ++i;
    const std::size_t first = i;
    while (is_ascii_digit(byte(i)) && i - first < 9) ++i;
    if (i == first) return at;
    while (byte(i) == ' ') ++i;
    if (byte(i) == '/') ++i;
    return byte(i) == '>' ? i + 1 : at;
  }

  // scheme://..., mailto:..., www....
  std::size_t url(std::size_t at) const {
    constexpr std::size_t longest_scheme = 16, longest = 2048;
    std::size_t i = at;
    while (i - at < longest_scheme && (is_ascii_alphanumeric(byte(i)) || one_of(byte(i), "+-."))) ++i;
    const std::size_t scheme = i;
    if (all_.substr(scheme, 3) == "://") {
      i = scheme + 3;
    } else if (all_.substr(at, 7) == "mailto:") {
      i = at + 7;
    } else if (all_.substr(at, 4) == "www.") {
      i = at + 4;
    } else {
      return at;
    }
    const std::size_t first = i;
    while (i < all_.size() && i - first < longest) {
      const DecodedCodePoint c = decode_front(all_.substr(i));
      if (c.length == 0 || c.value <= 0x20 || is_space(c.value) ||
          (c.value < 0x80 && one_of(byte(i), "<>\"|\\^`")) || (c.value >= 0x80 && is_punctuation(c.value)))
        break;
      i += c.length;
    }
    // Final punctuation belongs to the sentence; a closing bracket only if the URL does not open it.
    while (i > first && ends_sentence(first, i)) --i;
    return i == first ? at : i;
  }

  bool ends_sentence(std::size_t first, std::size_t end) const {
    const char last = byte(end - 1);
    if (one_of(last, ".,;:!?'*")) return true;
    const char opening = last == ')' ? '(' : last == ']' ? '[' : last == '}' ? '{' : '\0';
    if (opening == '\0') return false;
    const std::string_view url = all_.substr(first, end - first);
    return std::count(url.begin(), url.end(), opening) < std::count(url.begin(), url.end(), last);
  }

  static bool is_local(char c) { return is_ascii_alphanumeric(c) || one_of(c, "._%+-"); }

  // name@host.domain
  std::size_t address(std::size_t at) const {
    std::size_t i = at;
    while (is_local(byte(i))) ++i;
    if (byte(i) != '@' || !is_ascii_alphanumeric(byte(at))) return at;
    std::size_t end = at;  // after the last label that may be a domain
    do {
      const std::size_t label = ++i;
      bool letters = true;
      for (; is_ascii_alphanumeric(byte(i)) || byte(i) == '-'; ++i)
        letters = letters && is_ascii_letter(byte(i));
      if (i == label) break;
      if (letters && i - label >= 2 && byte(label - 1) == '.') end = i;
    } while (byte(i) == '.');
    return end;
  }

  static bool one_of(char c, std::string_view set) {
    return c != '\0' && set.find(c) != std::string_view::npos;
  }

  std::string_view all_;
};

}  // namespace

std::vector<ByteSpan> find_placeholders(std::string_view text) { return PlaceholderScanner(text).run(); }

}  // namespace eigenformer::detail
