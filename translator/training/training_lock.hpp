#pragma once

#include <filesystem>
#include <string>

namespace eigenformer {

/// Locks a model's folder against other trainings for its lifetime, with flock on `<folder>/training/lock`, a
/// file that holds the process id. Readers of the folder ignore the lock.
///
/// The operating system releases the lock when the process ends, however it ends, so the file of a killed
/// training blocks nobody. On file systems without locks (some network file systems) nothing is locked; see
/// held().
class TrainingLock {
 public:
  /// Locks the folder without waiting and creates it if it is missing. Throws IoError when another process
  /// holds the lock (the message has its id) and when the file cannot be written.
  explicit TrainingLock(const std::filesystem::path& folder);
  TrainingLock(const TrainingLock&) = delete;
  TrainingLock& operator=(const TrainingLock&) = delete;
  /// Releases the lock and removes its file, and the folders it created if they are still empty.
  ~TrainingLock();

  /// Whether the lock is held; false on a file system without locks.
  bool held() const noexcept { return held_; }
  /// The path of the lock file.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  bool is_at_its_path() const noexcept;
  // Returns false when the owner removed the file between opening and locking.
  bool take();

  // The process id in the file.
  std::string holder() const;

  std::filesystem::path folder_;
  std::filesystem::path path_;
  bool made_folder_ = false;
  bool held_ = false;
  int descriptor_ = -1;
};

}  // namespace eigenformer
