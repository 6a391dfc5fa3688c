#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "eigenformer/data/corpus/alignment_file.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/generation/alignment/word_alignment.hpp"
#include "eigenformer/generation/text/text_translator.hpp"

namespace translator {

/// Writes alignments, one line per input line: links between words ("0-0 1-2"), and the weights of tokens in
/// Marian's format: for each target token its weights of all source tokens separated by commas, target tokens
/// separated by spaces.
class AlignmentFiles {
 public:
  /// Throws IoError if a file cannot be written. Empty paths: no such file.
  AlignmentFiles(const std::string& words, const std::string& weights) {
    if (!words.empty()) words_.emplace(words);
    if (!weights.empty()) weights_.emplace(weights);
  }

  /// Writes the next line's alignment; without one the line is empty.
  void add(std::string_view source, const eigenformer::Translation& best) {
    const eigenformer::TextAlignment* const alignment = best.alignment.get();
    if (words_) {
      words_->write((alignment == nullptr ? std::string()
                                          : eigenformer::alignment_text(
                                                eigenformer::word_links(*alignment, source, best.text))) +
                    '\n');
    }
    if (weights_) {
      weights_->write((alignment == nullptr ? std::string() : weights_text(alignment->attention)) + '\n');
    }
  }

  /// Renames the files to their final names.
  void finish() {
    if (words_) words_->commit();
    if (weights_) weights_->commit();
  }

 private:
  static std::string weights_text(const eigenformer::Tensor<float>& weights) {
    std::string text;
    const eigenformer::index_t sources = weights.dim(1);
    for (eigenformer::index_t i = 0; i < weights.numel(); ++i) {
      char number[32];
      const int size = std::snprintf(number, sizeof number, "%.6g", static_cast<double>(weights.data()[i]));
      if (i > 0) text += i % sources == 0 ? ' ' : ',';
      text.append(number, static_cast<std::size_t>(size));
    }
    return text;
  }

  std::optional<eigenformer::AtomicFile> words_, weights_;
};

}  // namespace translator
