#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace eigenformer {

/// A file that appears under its name when it is complete, and whose writing can be resumed after an
/// interruption at any moment, a power failure included.
///
/// Bytes go to `<name>.part`. save() makes them durable and stores their number in `<name>.part.state`, with
/// a text of the caller that describes the progress. The next ResumableFile of this name reads that text, and
/// resume() drops all bytes after that point and appends. commit() renames the file. The part is locked, so
/// only one process can write it.
///
/// ```cpp
/// ResumableFile file("out.txt");
/// std::size_t done = file.saved() ? std::stoul(*file.saved()) : 0;
/// file.saved() ? file.resume() : file.restart();
/// for (; done < n; file.save(std::to_string(done))) file.write(result(done++));
/// file.commit();
/// ```
class ResumableFile {
 public:
  /// Opens and locks the part, and creates it if necessary. Throws IoError when the folder cannot be written,
  /// when the target exists and is not a regular file, when another process is writing it, and for a damaged
  /// state file.
  explicit ResumableFile(const std::filesystem::path& path);
  ResumableFile(const ResumableFile&) = delete;
  ResumableFile& operator=(const ResumableFile&) = delete;
  /// Keeps the part when something was saved, else removes it.
  ~ResumableFile();

  /// The text passed to the last save(), of this object or of an interrupted process; nothing without one.
  const std::optional<std::string>& saved() const noexcept { return saved_; }
  /// The path of the part, which holds the bytes written so far.
  const std::filesystem::path& part() const noexcept { return part_; }
  /// Number of bytes in the part; 0 before resume() or restart().
  std::uint64_t bytes_written() const noexcept { return bytes_; }

  /// Continues after the last saved byte. Throws ValueError when nothing was saved, IoError when the part
  /// cannot be truncated.
  void resume() { resume(saved_bytes_); }
  /// Continues after the first `bytes` bytes, such as those that a file saved together with this one belongs
  /// to. Throws as above, and ValueError when fewer were saved.
  void resume(std::uint64_t bytes);
  /// Discards what was saved and begins with an empty part. Throws IoError.
  void restart();

  /// Appends bytes; call resume() or restart() first. Throws IoError without that, after commit(), and when
  /// writing fails; saved bytes are kept.
  void write(std::string_view text);

  /// Makes all bytes written so far durable, and stores `state` with their number. Throws IoError; the state
  /// saved before is then kept.
  void save(std::string_view state);

  /// Makes the file durable and renames it to the target. Throws IoError.
  void commit();

 private:
  [[noreturn]] static void fail(const char* action, const std::filesystem::path& path, int error);
  void require_begun() const;
  void open_part();
  void read_state();
  void begin_at(std::uint64_t bytes);

  std::filesystem::path target_, part_, state_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;   // of the part when it was opened
  std::uint64_t bytes_ = 0;  // in it now
  std::uint64_t saved_bytes_ = 0;
  std::optional<std::string> saved_;
  bool begun_ = false;
};

}  // namespace eigenformer
