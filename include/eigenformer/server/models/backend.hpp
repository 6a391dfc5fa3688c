#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// What a client wants translated, and what it wants to know of it.
struct TranslationTask {
  std::vector<std::string> texts;
  bool html = false;         ///< texts are HTML, of which tags stay
  index_t alternatives = 0;  ///< further translations of each text
  bool details = false;      ///< words, confidences and alignments
};

/// A word of a translation, with the white space before it.
struct TranslatedWord {
  std::string text;
  double confidence = 0;                 ///< in [0, 1]; below 0: not known
  std::vector<std::uint32_t> sources{};  ///< the words of the source that it stands for, in order
};

/// The translation of one text.
struct TranslatedText {
  std::string text;
  std::vector<std::string> alternatives{};
  /// Where details were asked for: the source cut into words, each with the white space before it, and the
  /// translation. Put together again, the pieces of either are the text.
  std::vector<std::string> source_words{};
  std::vector<TranslatedWord> words{};
};

/// What a backend says while it works on a task, by threads of its own. None of these may wait, or throw.
struct TaskEvents {
  /// The translation of texts[i] so far; the next one may be another. Empty: nobody wants to know.
  std::function<void(std::size_t i, std::string text)> partial{};
  /// Called once: with a result for each text, or with why there is none.
  std::function<void(std::vector<TranslatedText>)> done;
  std::function<void(std::exception_ptr)> failed;
};

/// A model as a server uses it: many tasks at a time.
class TranslationBackend {
 public:
  virtual ~TranslationBackend() = default;

  /// Begins a task, and returns what cancels it: that may be called once, at any time, from any thread, and
  /// then failed is called soon, or done. start() must not wait; it throws HttpError where there is no room.
  virtual std::function<void()> start(TranslationTask task, TaskEvents events) = 0;
};

}  // namespace eigenformer
