#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

#include "shard.hpp"
#include "terminal/line_reader.hpp"
#include "translation_output.hpp"

namespace translator {

/// The bytes of a file's text after decompression; those of a plain file are known without reading it. Throws
/// IoError.
inline std::uint64_t text_bytes(const std::string& path) {
  if (!ef::detail::is_compressed(path)) return std::filesystem::file_size(path);
  LineReader reader(path);
  reader.skip(std::numeric_limits<std::size_t>::max());
  return reader.offset();
}

/// The input lines of a run: all of them, or those of a shard.
class InputLines {
 public:
  /// Reads stdin if the path is empty; stdin has no shards. stop: ends reading. Throws IoError.
  InputLines(const std::string& path, const std::optional<Shard>& shard, std::stop_token stop)
      : path_(path), stop_(stop), reader_(path, std::move(stop)) {
    if (!shard) return;
    size_ = text_bytes(path);
    before_ = reader_.skip(std::numeric_limits<std::size_t>::max(), shard->begin(*size_));
    end_ = shard->end(*size_);
    reader_.end_at(end_);
  }

  LineReader& reader() { return reader_; }
  /// Number of input lines before the first of these.
  std::uint64_t before() const { return before_; }
  /// Bytes of the whole text, known only for shards.
  const std::optional<std::uint64_t>& size() const { return size_; }

  /// Skips the lines that an earlier run has translated. Throws ValueError if they have changed.
  void skip_to(const InputPosition& position) {
    const std::size_t skipped = reader_.skip(position.lines);
    if (stop_.stop_requested() ||
        (skipped == position.lines && reader_.offset() == position.offset && reader_.hash() == position.hash))
      return;
    throw ef::ValueError("translate", {"cannot resume: ", reader_.name(),
                                       " has changed in lines that the interrupted run has already "
                                       "translated; remove the file of that run to start again"});
  }

  /// The number of these lines, which takes another pass over the input; nothing if that is impossible.
  std::optional<std::uint64_t> count() const {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path_, ignored)) return std::nullopt;
    LineReader counter(path_, stop_);
    counter.skip(before_);
    return counter.skip(std::numeric_limits<std::size_t>::max(), end_);
  }

 private:
  std::string path_;
  std::stop_token stop_;
  LineReader reader_;
  std::uint64_t before_ = 0, end_ = std::numeric_limits<std::uint64_t>::max();
  std::optional<std::uint64_t> size_;
};

}  // namespace translator
