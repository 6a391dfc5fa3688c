#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "../fuzz.hpp"
#include "eigenformer/data/tokenizers/byte_bpe_tokenizer.hpp"

using namespace eigenformer;

// A merges.txt and, behind an empty line, a text to cut by it: the words of a text are the text.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(all.find("\n\n"), all.size());
  const std::string text(all.substr(std::min(end + 2, all.size())));
  try {
    const detail::ByteBpeTokenizer tokenizer({{"a", "b", "ab"}, -1, {}},
                                             split_lines(all.substr(0, end), "merges.txt"));
    (void)tokenizer.encode(text);
    std::string words;
    for (const std::string& word : detail::ByteBpeTokenizer::split(text)) words += word;
    if (words != valid_utf8(text)) std::abort();
  } catch (const IoError&) {
    return 0;
  } catch (const ValueError&) {
    return 0;
  }
  return 0;
}
