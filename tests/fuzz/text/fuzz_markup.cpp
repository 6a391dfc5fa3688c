#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "../fuzz.hpp"
#include "eigenformer/core/base/error.hpp"
#include "translator/documents/markup/text_units.hpp"
#include "translator/documents/markup/translate_markup.hpp"

using namespace eigenformer;
using eigenformer::detail::html_tokens;
using eigenformer::detail::MarkupKind;
using eigenformer::detail::MarkupToken;
using eigenformer::detail::xml_tokens;

// A document as HTML, as XML and as text. Its tokens must be the document, and nothing may be lost when the
// translator drops words; the first byte says how many, and how it links the others.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t step = data[0] % 7 + 1u;
  const std::string_view document(reinterpret_cast<const char*>(data) + 1, size - 1);
  const AlignedTranslator translate = [&](const std::vector<std::string>& texts) {
    std::vector<AlignedText> out;
    for (const std::string& text : texts) {
      AlignedText& one = out.emplace_back();
      for (const auto& unit : detail::text_units(text, {}))
        if (unit.kind != detail::UnitKind::space) one.alignment.source.push_back(unit.span);
      const std::size_t n = one.alignment.source.size();
      for (std::size_t i = 0; i < n; i += step % 3 + 1) {
        const std::size_t from = (i * step + step) % n;
        const std::size_t begin = one.text.size();
        one.text += one.alignment.source[from].of(text);
        one.alignment.links.emplace_back(static_cast<std::uint32_t>(from),
                                         static_cast<std::uint32_t>(one.alignment.target.size()));
        one.alignment.target.push_back({begin, one.text.size()});
        if (i % 2 == step % 2) one.text += ' ';
      }
    }
    return out;
  };
  std::string read;
  for (const MarkupToken& token : html_tokens(document)) read += token.span.of(document);
  if (read != document) std::abort();
  (void)translate_markup(document, {MarkupFormat::html}, translate);
  (void)translate_markup(document, {MarkupFormat::text}, translate);
  try {
    std::vector<std::string> tags, after;
    const auto add = [](std::vector<std::string>& to, std::string_view of) {
      for (const MarkupToken& token : xml_tokens(of))
        if (token.kind == MarkupKind::open || token.kind == MarkupKind::empty)
          to.emplace_back(token.span.of(of));
      std::sort(to.begin(), to.end());
    };
    add(tags, document);
    const std::string out = translate_markup(document, {MarkupFormat::xml}, translate);
    try {
      add(after, out);
    } catch (const IoError&) {
      std::abort();  // it was well-formed
    }
    if (tags != after) std::abort();
  } catch (const IoError&) {
    return 0;
  }
  return 0;
}
