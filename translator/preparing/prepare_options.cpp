#include "translator/preparing/prepare_options.hpp"

#include <cstddef>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/tokenizers/vocabulary.hpp"

namespace eigenformer {

bool detail::is_tag(const std::string& text) {
  return text.size() > 2 && text.front() == '<' && text.find_first_of("<, \t\n>", 1) == text.size() - 1 &&
         text.back() == '>';
}

std::vector<std::string> detail::parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

std::vector<std::string> PrepareOptions::reserved() const { return detail::parts_of(tags, ','); }

void detail::require_vocab_size(const char* op, index_t vocab_size) {
  if (vocab_size == 0 || vocab_size > Vocabulary::num_specials) return;
  throw ValueError(op, {"vocab_size is ", vocab_size,
                        ", must be at least 5, as four entries are special, or 0 (chosen for the text)"});
}

void PrepareOptions::validate() const {
  validate_fields("prepare", *this);
  detail::require_vocab_size("prepare", vocab_size);
  for (const std::string& tag : reserved()) {
    if (!detail::is_tag(tag))
      throw ValueError("prepare", {"tags has '", tag, "', expected tags such as <2de>, separated by commas"});
  }
  if (max_ratio > 0 && max_ratio < 1) {
    throw ValueError(
        "prepare", {"max_ratio is ", detail::number_text(max_ratio), ", must be 0 (no limit) or at least 1"});
  }
  if (max_length > 65535) {
    throw ValueError(
        "prepare", {"max_length is ", max_length, ", must be at most 65535, what a token file has room for"});
  }
  if (nfc) detail::require_unicode_text("prepare", "nfc");
  (void)detail::Scripts(source_script);
  (void)detail::Scripts(target_script);
}

std::string PrepareReport::str() const {
  std::string text;
  fields(*this, [&](const OptionField& field, index_t count) {
    const std::string number = std::to_string(count);
    text += std::string(number.size() < 14 ? 14 - number.size() : 0, ' ') + number + "  " + field.help + '\n';
  });
  return text;
}

}  // namespace eigenformer
