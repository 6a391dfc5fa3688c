#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/server/http/message.hpp"

namespace eigenformer::detail {

/// The end of a file's name that says its format, in lower case, such as ".txt"; empty: none.
inline std::string file_ending(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string() : ascii_lower(name.substr(dot));
}

/// A name that any system may store: the last component of a path, of which only ASCII letters, digits, `_`,
/// `-` and inner dots stay, with the language before its ending: "letter_de.txt".
inline std::string download_name(std::string_view given, const std::string& language) {
  constexpr std::size_t longest = 80;
  const std::string ending = file_ending(given);
  given.remove_suffix(ending.size());
  given.remove_prefix(given.find_last_of("/\\") + 1);  // npos + 1 is 0
  std::string name;
  for (const char c : given.substr(0, longest)) {
    const bool kept = is_ascii_alphanumeric(c) || c == '-' || (c == '.' && !name.empty());
    name += kept ? c : '_';
  }
  return (name.empty() ? "file" : name) + "_" + language + ending;
}

/// Translated files that can be downloaded for some time, in memory. A file's name begins with 128 random
/// bits and is all that a client needs to read it. Thread-safe.
class TranslatedFiles {
 public:
  using Clock = std::chrono::steady_clock;  ///< the clock of the time that files are kept

  /// most_bytes: of all files together; the oldest are removed for new ones.
  TranslatedFiles(std::size_t most_bytes, std::chrono::seconds kept) : most_bytes_(most_bytes), kept_(kept) {}

  /// Stores a file and returns the name that get() finds it by: random digits, a dot, and `name`. Throws
  /// HttpError 413 for one that is larger than all files may be.
  std::string add(const std::string& name, std::string content, Clock::time_point now = Clock::now()) {
    if (content.size() > most_bytes_) throw HttpError(413, "the translated file is too large to be kept");
    std::random_device device;
    std::string stored;
    for (int i = 0; i < 32; ++i) stored += "0123456789abcdef"[device() % 16];
    stored += "." + name;
    const std::scoped_lock lock(mutex_);
    forget(now, content.size());
    files_.push_back({stored, std::move(content), now});
    bytes_ += files_.back().content.size();
    return stored;
  }

  /// The content of a file; nothing when there is none of this name, or not any more.
  std::optional<std::string> get(std::string_view stored, Clock::time_point now = Clock::now()) {
    const std::scoped_lock lock(mutex_);
    forget(now, 0);
    for (const File& file : files_)
      if (file.name == stored) return file.content;
    return std::nullopt;
  }

 private:
  struct File {
    std::string name, content;
    Clock::time_point added;
  };
  static constexpr std::size_t most_files = 10'000;

  // Removes files that are too old, and the oldest until there is room.
  void forget(Clock::time_point now, std::size_t room) {
    while (!files_.empty() && (now - files_.front().added >= kept_ || bytes_ + room > most_bytes_ ||
                               files_.size() > most_files)) {
      bytes_ -= files_.front().content.size();
      files_.pop_front();
    }
  }

  const std::size_t most_bytes_;
  const std::chrono::seconds kept_;
  std::mutex mutex_;
  std::list<File> files_;  // the oldest first
  std::size_t bytes_ = 0;
};

}  // namespace eigenformer::detail
