#include "translator/documents/markup/parsing/markup_token.hpp"

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/parsing/entities.hpp"

namespace eigenformer::detail {

namespace {

// Splits XML into tokens and checks that it is well-formed. HtmlScanner says why no library is used.
class XmlScanner {
 public:
  explicit XmlScanner(std::string_view document) : all_(document) {}

  std::vector<MarkupToken> run() {
    if (starts("\xEF\xBB\xBF")) add(MarkupKind::verbatim, 3);  // a byte order mark
    const bool declared = starts("<?xml") && at_ + 5 < all_.size() && is_markup_space(all_[at_ + 5]);
    if (declared) {
      const std::size_t begin = at_;
      through("?>", at_, "the XML declaration", MarkupKind::verbatim);
      require_utf8(begin, all_.substr(begin, at_ - begin));
    }
    while (at_ < all_.size()) {
      if (all_[at_] == '<') {
        markup();
      } else {
        text();
      }
    }
    if (!open_.empty()) {
      fail(all_.size(), "the document ends within the element <" + open_.back().name + "> of " +
                            place(open_.back().at) + ", expected </" + open_.back().name + ">");
    }
    return std::move(tokens_);
  }

 private:
  struct Open {
    std::string name;
    std::size_t at;
  };

  std::string place(std::size_t at) const {
    const std::string_view before = all_.substr(0, at);
    const std::size_t line = before.rfind('\n');
    const std::string_view column = before.substr(line == std::string_view::npos ? 0 : line + 1);
    return "line " + std::to_string(std::count(before.begin(), before.end(), '\n') + 1) + ", column " +
           std::to_string(split_code_points(column).size() + 1);
  }

  [[noreturn]] void fail(std::size_t at, const std::string& message) const {
    throw IoError("xml", {place(at), ": ", message});
  }

  // The text and the output are UTF-8, so a declaration of another encoding is an error.
  void require_utf8(std::size_t at, std::string_view declaration) const {
    const std::size_t name = declaration.find("encoding");
    if (name == std::string_view::npos) return;
    const std::size_t open = declaration.find_first_of("\"'", name);
    if (open == std::string_view::npos) return;
    const std::size_t close = declaration.find(declaration[open], open + 1);
    if (close == std::string_view::npos) return;
    const std::string encoding(declaration.substr(open + 1, close - open - 1));
    if (const std::string lower = ascii_lower(encoding); lower == "utf-8" || lower == "utf8") return;
    fail(at + open, "the document declares the encoding '" + encoding + "', expected UTF-8");
  }

  bool starts(std::string_view what) const { return all_.substr(at_, what.size()) == what; }

  void add(MarkupKind kind, std::size_t end, std::string name = {}, bool untranslated = false) {
    if (at_ < end) tokens_.push_back({kind, {at_, end}, std::move(name), untranslated});
    at_ = end;
  }

  void through(std::string_view end, std::size_t from, const std::string& what, MarkupKind kind) {
    const std::size_t found = all_.find(end, from);
    if (found == std::string_view::npos) fail(at_, what + " does not end, expected " + std::string(end));
    add(kind, found + end.size());
  }

  void text() {
    const std::size_t end = std::min(all_.find('<', at_), all_.size());
    for (std::size_t i = at_; i < end; ++i) {
      if (all_[i] == '&') {
        i += reference(i) - 1;
      } else if (all_.substr(i, 3) == "]]>") {
        fail(i, "']]>' is in the text, expected ']]&gt;'");
      } else if (static_cast<unsigned char>(all_[i]) < 0x20 && !is_markup_space(all_[i])) {
        fail(i, "the text has a control character, expected none but tabs and line ends");
      }
    }
    add(MarkupKind::text, end);
  }

  // Checks the reference at `&` and returns its length. Unknown names are allowed: a DTD may define them.
  std::size_t reference(std::size_t at) const {
    const CharacterReference found = character_reference(all_.substr(at));
    if (found.length == 0)
      fail(at, "'&' does not begin an entity, expected '&amp;' or a name or number and ';'");
    if (all_[at + 1] == '#' &&
        !is_xml_character(reference_number(all_.substr(at + 2, found.length - 3)).value_or(0)))
      fail(at, "'" + std::string(all_.substr(at, found.length)) + "' is not a character that XML allows");
    return found.length;
  }

  void markup() {
    if (starts("<!--")) {
      const std::size_t dashes = all_.find("--", at_ + 4);
      if (dashes != std::string_view::npos && all_.substr(dashes, 3) != "-->")
        fail(dashes, "'--' is within a comment, expected '-->'");
      through("-->", at_ + 4, "the comment", MarkupKind::verbatim);
    } else if (starts("<![CDATA[")) {
      add(MarkupKind::cdata_open, at_ + 9);
      const std::size_t end = all_.find("]]>", at_);
      if (end == std::string_view::npos) fail(at_ - 9, "the CDATA section does not end, expected ]]>");
      add(MarkupKind::cdata_text, end);
      add(MarkupKind::cdata_close, end + 3);
    } else if (starts("<!DOCTYPE")) {
      doctype();
    } else if (starts("<?")) {
      const std::size_t end = name_end(at_ + 2);
      const std::string target = ascii_lower(all_.substr(at_ + 2, end - at_ - 2));
      if (target.empty()) fail(at_, "'<?' is not followed by a name");
      if (target == "xml")
        fail(at_, "the XML declaration comes after other text, expected it at the beginning");
      through("?>", at_, "the processing instruction", MarkupKind::verbatim);
    } else if (starts("</")) {
      closing();
    } else {
      opening();
    }
  }

  // A doctype ends with the first '>' outside of quotes, comments and its internal subset in brackets.
  void doctype() {
    if (elements_ > 0) fail(at_, "the doctype comes after an element, expected it before all elements");
    int depth = 0;
    for (std::size_t i = at_; i < all_.size(); ++i) {
      const char c = all_[i];
      if (c == '"' || c == '\'') {
        i = all_.find(c, i + 1);
        if (i == std::string_view::npos) break;
      } else if (all_.substr(i, 4) == "<!--") {
        i = all_.find("-->", i + 4);
        if (i == std::string_view::npos) break;
      } else if (c == '[') {
        ++depth;
      } else if (c == ']') {
        --depth;
      } else if (c == '>' && depth == 0) {
        return add(MarkupKind::verbatim, i + 1);
      }
    }
    fail(at_, "the doctype does not end, expected >");
  }

  // Names follow XML 1.0, 2.3, except that all characters beyond ASCII may be part of one.
  std::size_t name_end(std::size_t at) const {
    const auto first = [](char c) { return is_ascii_letter(c) || c == '_' || c == ':' || (c & 0x80) != 0; };
    const std::size_t begin = at;
    while (at < all_.size() && (first(all_[at]) || (at > begin && (is_ascii_digit(all_[at]) ||
                                                                   all_[at] == '-' || all_[at] == '.'))))
      ++at;
    return at;
  }

  std::size_t skip_spaces(std::size_t at) const {
    while (at < all_.size() && is_markup_space(all_[at])) ++at;
    return at;
  }

  std::string found_at(std::size_t at) const {
    if (at >= all_.size()) return "the end of the document";
    return "'" +
           std::string(all_.substr(at, std::max<std::size_t>(1, decode_front(all_.substr(at)).length))) + "'";
  }

  void closing() {
    const std::size_t name_at = at_ + 2, name_stop = name_end(name_at), end = skip_spaces(name_stop);
    const std::string name(all_.substr(name_at, name_stop - name_at));
    if (name.empty())
      fail(name_at, "found " + found_at(name_at) + " after '</', expected the name of an element");
    if (end >= all_.size() || all_[end] != '>')
      fail(end, "found " + found_at(end) + " in the closing tag </" + name + ">, expected '>'");
    if (open_.empty()) fail(at_, "found </" + name + ">, but no element is open");
    if (open_.back().name != name) {
      fail(at_, "found </" + name + ">, expected </" + open_.back().name + "> for the element of " +
                    place(open_.back().at));
    }
    open_.pop_back();
    add(MarkupKind::close, end + 1, name);
  }

  void opening() {
    const std::size_t name_at = at_ + 1;
    std::size_t at = name_end(name_at);
    std::string name(all_.substr(name_at, at - name_at));
    if (name.empty()) {
      fail(name_at, "found " + found_at(name_at) +
                        " after '<', expected the name of an element, or '&lt;' for a '<' of the text");
    }
    bool untranslated = false;
    std::unordered_set<std::string_view> attributes;
    for (;;) {
      const std::size_t next = skip_spaces(at);
      const bool spaced = next > at;
      at = next;
      if (at < all_.size() && all_[at] == '>') break;
      if (all_.substr(at, 2) == "/>") {
        ++elements_;
        return add(MarkupKind::empty, at + 2, std::move(name));
      }
      const std::size_t end = name_end(at);
      if (end == at || !spaced) {
        fail(at, "found " + found_at(at) + " in the tag <" + name + ">, expected " +
                     (end == at ? "an attribute, '/>' or '>'" : "white space before an attribute"));
      }
      const std::string_view attribute = all_.substr(at, end - at);
      if (!attributes.insert(attribute).second)
        fail(at, "the attribute '" + std::string(attribute) + "' occurs twice in the tag <" + name + ">");
      const std::string_view value = attribute_value(attribute, end, at);
      if (attribute == "translate" || attribute == "its:translate") untranslated = value == "no";
    }
    ++elements_;
    open_.push_back({name, at_});
    add(MarkupKind::open, at + 1, std::move(name), untranslated);
  }

  // Reads `="value"`; sets `at` to its end.
  std::string_view attribute_value(std::string_view attribute, std::size_t from, std::size_t& at) const {
    const std::string of_attribute = " after the attribute '" + std::string(attribute) + "', expected ";
    at = skip_spaces(from);
    if (at >= all_.size() || all_[at] != '=') fail(at, "found " + found_at(at) + of_attribute + "'='");
    at = skip_spaces(at + 1);
    if (at >= all_.size() || (all_[at] != '"' && all_[at] != '\''))
      fail(at, "found " + found_at(at) + of_attribute + "a value in quotes");
    const std::size_t begin = at + 1, end = all_.find(all_[at], begin);
    if (end == std::string_view::npos)
      fail(at, "the value of the attribute '" + std::string(attribute) + "' does not end, expected " +
                   found_at(at));
    for (std::size_t i = begin; i < end; ++i) {
      if (all_[i] == '<') fail(i, "'<' is in the value of an attribute, expected '&lt;'");
      if (all_[i] == '&') i += reference(i) - 1;
    }
    at = end + 1;
    return all_.substr(begin, end - begin);
  }

  std::string_view all_;
  std::size_t at_ = 0;
  std::size_t elements_ = 0;
  std::vector<Open> open_;
  std::vector<MarkupToken> tokens_;
};

}  // namespace

std::vector<MarkupToken> xml_tokens(std::string_view document) { return XmlScanner(document).run(); }

}  // namespace eigenformer::detail
