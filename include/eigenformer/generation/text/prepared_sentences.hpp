#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "eigenformer/generation/text/translation.hpp"

namespace eigenformer {

/// Tokenizes the sentences of a document once: fits() keeps the tokens of each sentence that the model can
/// read, and prepared() returns them for the parts that the document was split into. Not thread-safe.
///
///     ef::PreparedSentences sentences([&](const std::string& s) { return translator.prepare(s); });
///     const auto parts = ef::document_parts(text, {}, [&](const std::string& s) { return sentences.fits(s);
///     });
class PreparedSentences {
 public:
  /// prepare: tokenizes a sentence, such as TextTranslator::prepare() or Translator::prepare(); called once
  /// for each different sentence that fits.
  explicit PreparedSentences(std::function<PreparedLine(const std::string& sentence)> prepare)
      : prepare_(std::move(prepare)) {}

  /// Whether the model can read a sentence without cutting it. Throws what the function throws.
  bool fits(const std::string& sentence) {
    if (known_.contains(sentence)) return true;
    PreparedLine line = prepare_(sentence);
    if (line.cut) return false;
    known_.emplace(sentence, std::move(line));
    return true;
  }

  /// The sentence as the function returned it in fits(), or returns it now. Throws what the function throws.
  PreparedLine prepared(const std::string& sentence) const {
    const auto found = known_.find(sentence);
    return found == known_.end() ? prepare_(sentence) : found->second;
  }

 private:
  std::function<PreparedLine(const std::string& sentence)> prepare_;
  std::unordered_map<std::string, PreparedLine> known_;
};

}  // namespace eigenformer
