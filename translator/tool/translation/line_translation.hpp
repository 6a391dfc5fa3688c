#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alignment_file.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"
#include "markup_translation.hpp"
#include "model/decoding_model.hpp"
#include "terminal/output_checks.hpp"
#include "translate_options.hpp"
#include "translator/explorer/explorer.hpp"
#include "whole_lines.hpp"

namespace translator {

/// Collects attention weights as tensors named "<line>.<source, target or memory>.<layer>", (heads, queries,
/// keys).
class AttentionFile {
 public:
  /// Throws IoError if the file cannot be written. An empty path: nothing is collected.
  explicit AttentionFile(std::string path) : path_(std::move(path)) {
    if (wanted()) check_writable_file(path_);
  }

  bool wanted() const { return !path_.empty(); }

  void add(std::size_t line, const ef::AttentionMaps& maps) {
    const auto add_layers = [&](const char* kind, const std::vector<ef::Tensor<float>>& layers) {
      for (std::size_t i = 0; i < layers.size(); ++i)
        tensors_.emplace_back(std::to_string(line) + "." + kind + "." + std::to_string(i), layers[i]);
    };
    add_layers("source", maps.source);
    add_layers("target", maps.target);
    add_layers("memory", maps.memory);
  }

  void finish() const {
    if (wanted()) ef::save_safetensors(path_, tensors_);
  }

 private:
  std::string path_;
  std::vector<std::pair<std::string, ef::Tensor<float>>> tensors_;
};

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
    for (const std::int32_t id :
         ef::source_ids(text, *tokenizers.source, source, ef::max_source_tokens(models_.description())))
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

/// Translates lines by the options of `translator translate`, independently of where lines come from and
/// results go.
class LineTranslation {
 public:
  /// Results of a chunk of lines.
  struct Results {
    std::string text;                     ///< in the output format
    std::vector<std::string> warnings{};  ///< for standard error
    std::uint64_t tokens = 0;             ///< of the best translations, if they are counted
  };

  /// Throws for invalid options, and if one of their files cannot be read or written. models must outlive it.
  LineTranslation(const TranslateOptions& options, const DecodingModels& models)
      : with_prefixes_(options.prefixes),
        protect_(options.protect),
        format_(options.output_format()),
        attention_(options.attention),
        alignments_(options.alignment, options.soft_alignment),
        explorer_(options.explore, models),
        target_(models.tokenizers().target),
        max_source_(ef::max_source_tokens(models.description())),
        translator_(sentence_translator(models, options.for_results(models, format_))) {
    const ef::TextTranslatorOptions& used = translator_.options();
    with_attention_ = used.search.attention;
    shown_ = used.utility ? 1 : static_cast<std::size_t>(used.search.num_hypotheses);
  }

  /// The alignments, which are written and resumed with the results.
  AlignmentFiles& alignments() { return alignments_; }

  /// Enables counting of tokens, which takes some time.
  void count_tokens() { counts_tokens_ = true; }

  /// The header before the results of the first line.
  std::string header() const { return ef::detail::translations_header(format_); }

  /// The number of lines to translate together.
  std::size_t lines_at_once() const {
    return static_cast<std::size_t>(translator_.options().batching.batch_size) * 32;
  }

  /// The results of lines. before: number of input lines before them.
  Results operator()(std::vector<std::string> lines, std::size_t before) {
    std::vector<std::string> prefixes;
    if (with_prefixes_) prefixes = split_prefixes(lines);
    auto [translations, num_split] =
        translate_whole(translator_, lines, before, prefixes, alignments_.wants_weights());
    split_ += num_split;
    Results results;
    for (std::size_t i = 0; i < translations.size(); ++i) {
      std::vector<ef::Translation>& of_line = translations[i];
      if (of_line.size() > shown_) of_line.resize(shown_);
      const std::size_t line = before + i + 1;
      const ef::Translation& best = of_line.front();
      if (best.attention != nullptr && attention_.wanted()) attention_.add(line, *best.attention);
      explorer_.add(line, lines[i], with_prefixes_ ? prefixes[i] : "", best);
      alignments_.add(lines[i], best);
      for (const std::string& missed : missed_terms(best))
        results.warnings.push_back("line " + std::to_string(line) + " has " + missed);
      if (with_attention_ && best.attention == nullptr && !best.text.empty()) {
        results.warnings.push_back("line " + std::to_string(line) +
                                   " was translated in parts; there are no attention weights for it");
      }
      // Alignments refer to the model's own output.
      if (protect_) protect_placeholders(lines[i], of_line);
      results.text += ef::detail::format_translations(format_, line, lines[i], of_line, shown_);
      if (counts_tokens_ && !best.text.empty()) results.tokens += target_->encode(best.text).size() + 1;
    }
    return results;
  }

  /// Warnings about all lines together; empty: none.
  std::string remark() const { return split_remark(split_, max_source_); }

  /// Writes the files that cover all lines.
  void finish() {
    attention_.finish();
    alignments_.finish();
    explorer_.finish();
  }

 private:
  // Removes the text after the first tab of each line and returns it: the forced prefix of the translation.
  static std::vector<std::string> split_prefixes(std::vector<std::string>& lines) {
    std::vector<std::string> prefixes;
    for (std::string& line : lines) {
      const std::size_t tab = line.find('\t');
      prefixes.push_back(tab == std::string::npos ? "" : line.substr(tab + 1));
      if (tab != std::string::npos) line.resize(tab);
    }
    return prefixes;
  }

  bool with_prefixes_, protect_;
  ef::OutputOptions format_;
  AttentionFile attention_;
  AlignmentFiles alignments_;
  ExplorerFile explorer_;
  std::shared_ptr<const ef::Tokenizer> target_;
  ef::index_t max_source_;
  SentenceTranslator translator_;
  std::size_t shown_ = 1;  // translations per line
  bool counts_tokens_ = false, with_attention_ = false;
  std::size_t split_ = 0;  // number of lines with a sentence that was split
};

}  // namespace translator
