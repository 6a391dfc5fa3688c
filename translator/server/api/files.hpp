#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace eigenformer::detail {

/// The end of a file's name that says its format, in lower case, such as ".txt"; empty: none.
std::string file_ending(std::string_view name);

/// A name that any system may store: the last component of a path, of which only ASCII letters, digits, `_`,
/// `-` and inner dots stay, with the language before its ending: "letter_de.txt".
std::string download_name(std::string_view given, const std::string& language);

/// Translated files that can be downloaded for some time, in memory. A file's name begins with 128 random
/// bits and is all that a client needs to read it. Thread-safe.
class TranslatedFiles {
 public:
  using Clock = std::chrono::steady_clock;  ///< the clock of the time that files are kept

  /// most_bytes: of all files together; the oldest are removed for new ones.
  TranslatedFiles(std::size_t most_bytes, std::chrono::seconds kept) : most_bytes_(most_bytes), kept_(kept) {}

  /// Stores a file and returns the name that get() finds it by: random digits, a dot, and `name`. Throws
  /// HttpError 413 for one that is larger than all files may be.
  std::string add(const std::string& name, std::string content, Clock::time_point now = Clock::now());

  /// The content of a file; nothing when there is none of this name, or not any more.
  std::optional<std::string> get(std::string_view stored, Clock::time_point now = Clock::now());

 private:
  struct File {
    std::string name, content;
    Clock::time_point added;
  };
  static constexpr std::size_t most_files = 10'000;

  // Removes files that are too old, and the oldest until there is room.
  void forget(Clock::time_point now, std::size_t room);

  const std::size_t most_bytes_;
  const std::chrono::seconds kept_;
  std::mutex mutex_;
  std::list<File> files_;  // the oldest first
  std::size_t bytes_ = 0;
};

}  // namespace eigenformer::detail
