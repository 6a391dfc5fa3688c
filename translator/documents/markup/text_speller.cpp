#include "translator/documents/markup/text_speller.hpp"

#include <algorithm>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/parsing/entities.hpp"

namespace eigenformer::detail {

TextSpeller::TextSpeller(const MarkupSegment& segment, MarkupFormat format)
    : segment_(segment), format_(format) {
  if (format == MarkupFormat::text) return;
  for (const char c : {'&', '<', '>'}) spelled_[std::string(1, c)];
  for (const SpelledCharacter& s : segment.spellings) spelled_[std::string(s.text.of(segment.text))];
  for (const auto& [character, places] : spelled_) watched_[static_cast<unsigned char>(character[0])] = true;
  collect();
}

void TextSpeller::write(std::string_view translation, ByteSpan span, bool cdata, std::string& out) {
  for (std::size_t at = span.begin; at < span.end;) {
    const std::size_t length = std::max<std::size_t>(1, decode_front(translation.substr(at)).length);
    const std::string_view character = translation.substr(at, length);
    at += length;
    if (format_ == MarkupFormat::xml && character[0] >= 0 && character[0] < 0x20 &&
        !is_markup_space(character[0]))
      continue;  // not allowed in XML
    if (!cdata && watched_[static_cast<unsigned char>(character[0])]) {
      spell(character, translation.substr(at), out);
      continue;
    }
    if (cdata && character == ">" && out.ends_with("]]")) out += "]]><![CDATA[";
    out += character;
  }
}

void TextSpeller::collect() {
  const std::string_view text = segment_.text;
  std::size_t piece = 0, reference = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto& pieces = segment_.pieces;
    while (piece < pieces.size() && pieces[piece].text.end <= at) ++piece;
    if (piece < pieces.size() && pieces[piece].text.begin <= at) {
      at = pieces[piece].text.end;
      continue;
    }
    const std::size_t length = std::max<std::size_t>(1, decode_front(text.substr(at)).length);
    const std::string_view character = text.substr(at, length);
    if (watched_[static_cast<unsigned char>(character[0])]) {
      const auto& spellings = segment_.spellings;
      while (reference < spellings.size() && spellings[reference].text.begin < at) ++reference;
      // A reference may stand for two characters, which are then written as they are.
      const bool referred = reference < spellings.size() && spellings[reference].text.begin == at &&
                            spellings[reference].text.end == at + length;
      if (const auto found = spelled_.find(std::string(character)); found != spelled_.end()) {
        found->second.all.push_back(
            {referred ? spellings[reference].raw : character, text.substr(at + length)});
      }
    }
    at += length;
  }
}

void TextSpeller::spell(std::string_view character, std::string_view after, std::string& out) {
  const auto found = spelled_.find(std::string(character));
  if (found == spelled_.end()) {
    out += character;
    return;
  }
  Places& places = found->second;
  if (!places.all.empty()) {
    const Place& place = places.all[std::min(places.used++, places.all.size() - 1)];
    if (place.raw != character || is_safe(character[0], place.after, after, out)) {
      out += place.raw;
      // An old name or a number without a semicolon could be read as another one with what follows.
      if (place.raw.size() > 1 && place.raw[0] == '&' && place.raw.back() != ';' &&
          character_reference(std::string(place.raw) + word(after), true).length != place.raw.size())
        out += ';';
      return;
    }
  }
  out += character == "&" ? "&amp;" : character == "<" ? "&lt;" : character == ">" ? "&gt;" : character;
}

// Whether a character may be written literally.
bool TextSpeller::is_safe(char character, std::string_view after_source, std::string_view after,
                          std::string_view out) const {
  const bool html = format_ == MarkupFormat::html;
  switch (character) {
    case '>':
      return html || !out.ends_with("]]");
    case '<':
      return html && (after.empty() ||
                      (!is_ascii_letter(after[0]) && after[0] != '/' && after[0] != '!' && after[0] != '?'));
    case '&':
      return html && word(after) == word(after_source) &&
             character_reference("&" + word(after), true).length == 0;
    default:
      return true;
  }
}

// The longest beginning that could be the name of a reference.
std::string TextSpeller::word(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && end < 32 && (is_ascii_alphanumeric(text[end]) || text[end] == '#')) ++end;
  if (end < text.size() && text[end] == ';') ++end;
  return std::string(text.substr(0, end));
}

}  // namespace eigenformer::detail
