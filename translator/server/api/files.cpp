#include "translator/server/api/files.hpp"

#include <random>
#include <utility>

#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/server/http/message.hpp"

namespace eigenformer::detail {

std::string file_ending(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string() : ascii_lower(name.substr(dot));
}

std::string download_name(std::string_view given, const std::string& language) {
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

std::string TranslatedFiles::add(const std::string& name, std::string content, Clock::time_point now) {
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

std::optional<std::string> TranslatedFiles::get(std::string_view stored, Clock::time_point now) {
  const std::scoped_lock lock(mutex_);
  forget(now, 0);
  for (const File& file : files_)
    if (file.name == stored) return file.content;
  return std::nullopt;
}

void TranslatedFiles::forget(Clock::time_point now, std::size_t room) {
  while (!files_.empty() &&
         (now - files_.front().added >= kept_ || bytes_ + room > most_bytes_ || files_.size() > most_files)) {
    bytes_ -= files_.front().content.size();
    files_.pop_front();
  }
}

}  // namespace eigenformer::detail
