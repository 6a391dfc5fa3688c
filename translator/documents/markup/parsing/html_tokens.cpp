#include "translator/documents/markup/parsing/markup_token.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/parsing/entities.hpp"

namespace eigenformer::detail {

namespace {

// Whether an element has neither content nor a closing tag (HTML standard, 13.1.2). name: in lower case.
bool is_void_element(std::string_view name) {
  static constexpr auto names =
      std::to_array<std::string_view>({"area", "base", "br", "col", "embed", "hr", "img", "input", "link",
                                       "meta", "param", "source", "track", "wbr"});
  return std::ranges::binary_search(names, name);
}

// Whether an element's content up to its closing tag has no tags and entities and is not translated.
bool is_raw_text_element(std::string_view name) {
  static constexpr auto names = std::to_array<std::string_view>(
      {"iframe", "noembed", "noframes", "script", "style", "textarea", "xmp"});
  return std::ranges::binary_search(names, name);
}

// Splits HTML into tokens. Common parsers (libxml2, gumbo, lexbor) build a tree and write a different
// document: they add html, head and body to a fragment, move misplaced elements, quote attributes, and lose
// how characters were written. A translator must keep the markup byte for byte, so this scanner only finds
// where tags begin and end.
class HtmlScanner {
 public:
  explicit HtmlScanner(std::string_view document) : all_(document), last_close_(document.rfind('>')) {}

  std::vector<MarkupToken> run() {
    if (starts(0, "\xEF\xBB\xBF")) add(MarkupKind::verbatim, 0, 3);  // a byte order mark
    while (at_ < all_.size()) {
      const std::size_t less = std::min(all_.find('<', at_), all_.size());
      if (less >= all_.size() || !markup(less)) at_ = std::min(less + 1, all_.size());
    }
    flush_text();
    return std::move(tokens_);
  }

 private:
  // Text is collected because a `<` that begins no tag does not end it.
  void flush_text() {
    if (begin_ < at_) tokens_.push_back({MarkupKind::text, {begin_, at_}});
    begin_ = at_;
  }

  void add(MarkupKind kind, std::size_t begin, std::size_t end, std::string name = {},
           bool untranslated = false) {
    at_ = begin;
    flush_text();
    tokens_.push_back({kind, {begin, end}, std::move(name), untranslated});
    begin_ = at_ = end;
  }

  // The end of the first occurrence of `what`, or empty; a failed search is not repeated.
  std::optional<std::size_t> end_of(std::string_view what, std::size_t from) {
    if (missing_.contains(what)) return std::nullopt;
    const std::size_t found = all_.find(what, from);
    if (found == std::string_view::npos) {
      missing_.insert(what);
      return std::nullopt;
    }
    return found + what.size();
  }

  bool starts(std::size_t at, std::string_view what) const { return all_.substr(at, what.size()) == what; }

  // Reads the markup at a `<`; false: it is text.
  bool markup(std::size_t less) {
    if (less + 1 >= all_.size()) return false;
    const char next = all_[less + 1];
    if (is_ascii_letter(next)) return opening(less);
    if (next == '/' && less + 2 < all_.size() && is_ascii_letter(all_[less + 2])) return closing(less);
    if (next != '!' && next != '?' && next != '/') return false;
    std::optional<std::size_t> end;
    if (starts(less, "<!--")) {
      // `<!-->` and `<!--->` are comments, too; an unclosed comment extends to the end.
      end = starts(less, "<!-->") ? less + 5 : starts(less, "<!--->") ? less + 6 : end_of("-->", less + 4);
      if (!end) end = all_.size();
    } else if (starts(less, "<![CDATA[")) {
      end = end_of("]]>", less);
    } else if (next == '?') {
      end = end_of("?>", less);
    }
    if (!end) end = end_of(">", less);
    if (!end) return false;
    add(MarkupKind::verbatim, less, *end);
    return true;
  }

  std::size_t name_end(std::size_t at) const {
    while (at < all_.size() && !is_markup_space(all_[at]) && all_[at] != '/' && all_[at] != '>') ++at;
    return at;
  }

  bool closing(std::size_t less) {
    const std::optional<std::size_t> end = end_of(">", less);
    if (!end) return false;
    add(MarkupKind::close, less, *end, ascii_lower(all_.substr(less + 2, name_end(less + 2) - less - 2)));
    return true;
  }

  struct Attributes {
    std::size_t end = 0;  // after the `>`
    bool closed = false;  // `/>`
    bool untranslated = false;
  };

  // Reads attributes (HTML standard, 13.2.5.32 and following); empty when a quote or the tag is not closed
  // before the end of the document.
  std::optional<Attributes> attributes(std::size_t at) const {
    Attributes result;
    const auto skip_spaces = [&] {
      while (at < all_.size() && is_markup_space(all_[at])) ++at;
    };
    for (;;) {
      skip_spaces();
      if (at >= all_.size()) return std::nullopt;
      if (all_[at] == '>') {
        result.end = at + 1;
        return result;
      }
      if (all_[at] == '/') {
        result.closed = at + 1 < all_.size() && all_[at + 1] == '>';
        ++at;
        continue;
      }
      const std::size_t begin = at++;
      while (at < all_.size() && !is_markup_space(all_[at]) && all_[at] != '/' && all_[at] != '>' &&
             all_[at] != '=')
        ++at;
      const std::string_view name = all_.substr(begin, at - begin);
      skip_spaces();
      if (at >= all_.size() || all_[at] != '=') continue;
      ++at;
      skip_spaces();
      if (at >= all_.size()) return std::nullopt;
      std::string_view value;
      if (const char quote = all_[at]; quote == '"' || quote == '\'') {
        const std::size_t end = all_.find(quote, at + 1);
        if (end == std::string_view::npos) return std::nullopt;
        value = all_.substr(at + 1, end - at - 1);
        at = end + 1;
      } else {
        const std::size_t from = at;
        while (at < all_.size() && !is_markup_space(all_[at]) && all_[at] != '>') ++at;
        value = all_.substr(from, at - from);
      }
      result.untranslated = result.untranslated || asks_to_stay(ascii_lower(name), value);
    }
  }

  static bool asks_to_stay(const std::string& name, std::string_view value) {
    if (name == "translate") return ascii_lower(value) == "no";
    if (name != "class") return false;
    const std::vector<std::string_view> classes = parts_between(value, " \t\n\r\f");
    return std::ranges::find(classes, "notranslate") != classes.end();
  }

  bool opening(std::size_t less) {
    if (last_close_ == std::string_view::npos || less > last_close_) return false;
    const std::size_t end_of_name = name_end(less + 1);
    std::string name = ascii_lower(all_.substr(less + 1, end_of_name - less - 1));
    std::optional<Attributes> tag;
    if (unclosed_ < max_unclosed) tag = attributes(end_of_name);
    if (!tag) {
      // An unclosed quote would put the rest of the document into the tag. After max_unclosed of them
      // attributes are no longer read, so that the time stays linear in the document's length.
      ++unclosed_;
      tag = Attributes{.end = all_.find('>', less) + 1};
    }
    if (is_void_element(name) || tag->closed) {
      add(MarkupKind::empty, less, tag->end, std::move(name));
    } else if (is_raw_text_element(name)) {
      const std::size_t close = closing_tag_of(name, tag->end);
      const std::size_t end = close < all_.size() ? end_of(">", close).value_or(all_.size()) : all_.size();
      add(MarkupKind::verbatim, less, end, std::move(name));
    } else {
      const bool title = name == "title";  // text with entities and without tags
      add(MarkupKind::open, less, tag->end, name, tag->untranslated);
      if (title) {
        at_ = closing_tag_of(name, at_);
        flush_text();
      }
    }
    return true;
  }

  // The begin of the closing tag of an element without inner tags, or the end of the document.
  std::size_t closing_tag_of(std::string_view name, std::size_t from) const {
    for (std::size_t at = all_.find("</", from); at != std::string_view::npos; at = all_.find("</", at + 2)) {
      const std::size_t end = at + 2 + name.size();
      if (ascii_lower(all_.substr(at + 2, name.size())) != name) continue;
      if (end == all_.size() || is_markup_space(all_[end]) || all_[end] == '/' || all_[end] == '>') return at;
    }
    return all_.size();
  }

  static constexpr int max_unclosed = 16;

  std::string_view all_;
  std::size_t last_close_;
  int unclosed_ = 0;                // tags with an unclosed quote
  std::size_t begin_ = 0, at_ = 0;  // of the text being collected
  std::set<std::string_view> missing_;
  std::vector<MarkupToken> tokens_;
};

}  // namespace

std::vector<MarkupToken> html_tokens(std::string_view document) { return HtmlScanner(document).run(); }

}  // namespace eigenformer::detail
