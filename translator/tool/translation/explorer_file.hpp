#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "model/decoding_model.hpp"
#include "translator/explorer/explorer.hpp"

namespace translator {

/// Collects sentences for the attention explorer and writes its page.
class ExplorerFile {
 public:
  /// Maximum number of lines: a larger page would be too large for a browser.
  static constexpr std::size_t most_lines = 200;

  /// Throws IoError if the file cannot be written. An empty path: nothing is collected.
  ExplorerFile(const std::string& path, const DecodingModels& models) : models_(models) {
    if (!path.empty()) file_.emplace(path);
  }

  /// Adds a line, its forced prefix, and its translation, which has attention weights and the scores of its
  /// tokens. Throws ValueError for too many lines.
  void add(std::size_t line, const std::string& source, const std::string& prefix,
           const ef::Translation& best) {
    if (!file_ || best.attention == nullptr) return;
    if (sentences_.size() == most_lines) {
      throw ef::ValueError("translate", {"the input has more than ", most_lines,
                                                  " lines, expected at most that many with --explore"});
    }
    const ef::TextConventions& text = models_.description().text;
    const auto& tokenizers = models_.tokenizers();
    ef::ExploredSentence s;
    s.line = line;
    s.source = source;
    s.target = best.text;
    for (const std::int32_t id : ef::source_ids(
             text, *tokenizers.source, source, ef::max_source_tokens(models_.description())))
      s.source_tokens.push_back(tokenizers.source->token(id));
    for (const std::int32_t id : text.target_prefix) s.target_tokens.push_back(tokenizers.target->token(id));
    if (!prefix.empty()) {
      for (const std::int32_t id : tokenizers.target->encode(prefix))
        s.target_tokens.push_back(tokenizers.target->token(id));
    }
    for (const ef::TokenScore& token : best.tokens) s.target_tokens.push_back(token.token);
    // The weights of a truncated text include a row for the token that would have followed.
    const auto rows = static_cast<std::size_t>(best.attention->memory.front().dim(1));
    if (s.target_tokens.size() < rows) s.target_tokens.emplace_back("\xE2\x80\xA6");
    s.begin_token = tokenizers.target->token(text.begin_id);
    s.maps = *best.attention;
    sentences_.push_back(std::move(s));
  }

  void finish() {
    if (!file_) return;
    file_->write(ef::explorer_page(sentences_));
    file_->commit();
  }

 private:
  const DecodingModels& models_;
  std::optional<ef::AtomicFile> file_;
  std::vector<ef::ExploredSentence> sentences_;
};

}  // namespace translator
