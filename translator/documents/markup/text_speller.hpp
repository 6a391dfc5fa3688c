#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "translator/documents/markup/read_markup.hpp"

namespace eigenformer::detail {

/// Writes a segment's translation with the document's spelling of characters. For a character that the source
/// writes as a reference anywhere, and for `&`, `<` and `>`, the k-th occurrence in the translation is
/// written like the k-th in the source, further ones like the last, unless that would change the meaning.
class TextSpeller {
 public:
  TextSpeller(const MarkupSegment& segment, MarkupFormat format);

  /// Appends a piece of the translation to `out`. cdata: within a CDATA section, which has no references.
  void write(std::string_view translation, ByteSpan span, bool cdata, std::string& out);

 private:
  struct Place {
    std::string_view raw, after;  // how it is written, and the text after it
  };
  struct Places {
    std::vector<Place> all{};
    std::size_t used = 0;
  };
  void collect();
  void spell(std::string_view character, std::string_view after, std::string& out);
  bool is_safe(char character, std::string_view after_source, std::string_view after,
               std::string_view out) const;
  static std::string word(std::string_view text);

  const MarkupSegment& segment_;
  MarkupFormat format_;
  std::map<std::string, Places> spelled_;
  std::array<bool, 256> watched_{};
};

}  // namespace eigenformer::detail
