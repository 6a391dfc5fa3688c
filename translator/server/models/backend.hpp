#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Texts to translate, and what to return for them.
struct TranslationTask {
  std::vector<std::string> texts;  ///< documents in UTF-8, of any number of lines
  bool html = false;               ///< texts are HTML, whose tags are kept
  index_t alternatives = 0;        ///< number of further translations of each text
  bool details = false;            ///< also return words, confidences and alignments; not for HTML
  std::string adapter{};           ///< one of ServedModel::adapters; empty: the model without an adapter
};

/// A word of a translation.
struct TranslatedWord {
  std::string text;                      ///< the word, with the white space before it
  double confidence = 0;                 ///< in [0, 1]; below 0: not known
  std::vector<std::uint32_t> sources{};  ///< indices in source_words of the aligned words, ascending
};

/// The translation of one text.
struct TranslatedText {
  std::string text;  ///< the best translation
  std::vector<std::string>
      alternatives{};  ///< other translations, the best first; may be fewer than requested
  /// With TranslationTask::details: the words of the source, each with the white space before it. Their
  /// concatenation is the source.
  std::vector<std::string> source_words{};
  /// With TranslationTask::details: the words of `text`. Their concatenation is `text`.
  std::vector<TranslatedWord> words{};
};

/// Callbacks of a task, called by the backend's threads. None of them may block or throw.
struct TaskEvents {
  /// Called with the translation of texts[i] so far, which later calls may change; may be empty.
  std::function<void(std::size_t i, std::string text)> partial{};
  /// Called with a result for each text. Either this or `failed` is called, once.
  std::function<void(std::vector<TranslatedText>)> done;
  /// Called when the task failed or was cancelled; the exception is never null.
  std::function<void(std::exception_ptr)> failed;
};

/// A loaded model of a server, which works on many tasks at a time.
class TranslationBackend {
 public:
  virtual ~TranslationBackend() = default;

  /// Starts a task without blocking, and returns a function that cancels it, which may be called once, at any
  /// time, from any thread; then `failed` or `done` is called soon. Throws HttpError 503 when there are too
  /// many tasks, 422 for a task that is too large.
  virtual std::function<void()> start(TranslationTask task, TaskEvents events) = 0;
};

/// A model of a server: its languages, and how it is loaded.
struct ServedModel {
  std::string source,  ///< code of the source language, such as "en"
      target;          ///< code of the target language
  /// Loads the model. Called by the registry's thread on first use, and again after the model was unloaded.
  /// May take long and may throw. Null counts as a failure to load.
  std::function<std::unique_ptr<TranslationBackend>()> load;
  /// Names of the model's adapters, one of which a request may name (TranslationTask::adapter).
  std::vector<std::string> adapters{};
};

}  // namespace eigenformer
