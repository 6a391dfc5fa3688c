#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "../terminal/result_output.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/search/text/translation.hpp"
#include "translator/text/resumable_file.hpp"
#include "translator/text/word_alignments.hpp"

namespace translator {

/// Writes alignments, one line per input line: links between words ("0-0 1-2"), and the weights of tokens in
/// Marian's format: for each target token its weights of all source tokens separated by commas, target tokens
/// separated by spaces. Written to .part files that an interrupted run resumes with its results, or to
/// standard output.
class AlignmentFiles {
 public:
  /// Throws IoError if a file cannot be written. Empty paths: no such file; "-": standard output.
  AlignmentFiles(const std::string& words, const std::string& weights) {
    if (!words.empty()) words_.emplace(words);
    if (!weights.empty()) weights_.emplace(weights);
  }

  /// Whether weights are written, and translations need them.
  bool wants_weights() const { return weights_.has_value(); }

  /// Begins empty files. Throws IoError.
  void restart() {
    for_each_file([](const char*, ef::ResumableFile& file) { file.restart(); });
  }

  /// How much was written so far, for resume().
  nlohmann::json written() {
    auto bytes = nlohmann::json::object();
    for_each_file(
        [&](const char* name, const ef::ResumableFile& file) { bytes[name] = file.bytes_written(); });
    return bytes;
  }

  /// Makes durable what was written. Throws IoError.
  void save() {
    for_each_file([](const char*, ef::ResumableFile& file) { file.save(""); });
  }

  /// Goes on after what written() returned; what was written after that and saved is dropped. Throws IoError
  /// where the files do not have so much.
  void resume(const nlohmann::json& bytes) {
    for_each_file([&](const char* name, ef::ResumableFile& file) {
      if (!file.saved())
        throw ef::IoError("translate", {"cannot resume: '", file.part().string(),
                                        "', which has the alignments so far, is missing or damaged; "
                                        "remove the .part file of --output to start again"});
      file.resume(bytes.at(name).get<std::uint64_t>());
    });
  }

  /// Writes the next line's alignment; without one the line is empty.
  void add(std::string_view source, const ef::Translation& best) {
    const ef::TextAlignment* const alignment = best.alignment.get();
    if (words_) {
      words_->write((alignment == nullptr
                         ? std::string()
                         : ef::alignment_text(ef::word_links(*alignment, source, best.text))) +
                    '\n');
    }
    if (weights_) {
      weights_->write((alignment == nullptr ? std::string() : weights_text(alignment->attention)) + '\n');
    }
  }

  /// Renames the files to their final names.
  void finish() {
    for_each_file([](const char*, ef::ResumableFile& file) { file.commit(); });
  }

 private:
  /// Where one kind of alignments goes.
  struct Place {
    explicit Place(const std::string& path) {
      if (path == "-") {
        stream.emplace("");
      } else {
        file.emplace(path);
      }
    }
    void write(const std::string& text) {
      if (file) {
        file->write(text);
      } else {
        stream->write(text);
      }
    }
    std::optional<ef::ResumableFile> file{};
    std::optional<ResultOutput> stream{};
  };

  template <class F>
  void for_each_file(F&& f) {
    if (words_ && words_->file) f("words", *words_->file);
    if (weights_ && weights_->file) f("weights", *weights_->file);
  }

  static std::string weights_text(const ef::Tensor<float>& weights) {
    std::string text;
    const ef::index_t sources = weights.dim(1);
    for (ef::index_t i = 0; i < weights.numel(); ++i) {
      char number[32];
      const int size = std::snprintf(number, sizeof number, "%.6g", static_cast<double>(weights.data()[i]));
      if (i > 0) text += i % sources == 0 ? ' ' : ',';
      text.append(number, static_cast<std::size_t>(size));
    }
    return text;
  }

  std::optional<Place> words_, weights_;
};

}  // namespace translator
