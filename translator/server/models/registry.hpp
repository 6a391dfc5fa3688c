#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "translator/server/models/backend.hpp"

namespace eigenformer {

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

namespace detail {

/// The models of a server, which are loaded on first use and unloaded when they have been idle for some time.
/// Both happen in one thread, so that no other thread waits for the disk; loaded models continue to work. The
/// callbacks must not throw, except ServedModel::load. Thread-safe.
class ModelRegistry {
 public:
  using Clock = std::chrono::steady_clock;  ///< the clock of the idle time
  /// Receives the model, or null and the reason. Called by the registry's thread or, for a loaded model,
  /// within use().
  using Ready = std::function<void(std::shared_ptr<TranslationBackend>, std::exception_ptr)>;
  /// Called when a model was loaded (true) or unloaded (false), with the seconds that it took.
  using Notice = std::function<void(const ServedModel&, bool loaded, double seconds)>;
  /// Called when a model could not be loaded. The next use() of the model tries again.
  using Failure = std::function<void(const ServedModel&, const std::exception_ptr&)>;

  /// idle: time after which an unused model is unloaded; 0: never. Loads nothing yet.
  ModelRegistry(std::vector<ServedModel> models, std::chrono::milliseconds idle, Notice notice = {},
                Failure failure = {});
  ~ModelRegistry() { shutdown(); }
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  /// Refuses further use() with HttpError 503, waits until no model is in use, and unloads all. Must not be
  /// called by several threads at once.
  void shutdown();

  /// Number of models, loaded or not.
  std::size_t size() const noexcept { return entries_.size(); }
  /// The description of model i. Throws IndexError when there is no model i.
  const ServedModel& model(std::size_t i) const {
    require_model(i);
    return entries_[i].model;
  }
  /// Number of loaded models.
  std::size_t loaded() const;

  /// The index of the model for two languages; nothing when there is none.
  std::optional<std::size_t> find(const std::string& source, const std::string& target) const;

  /// Passes model i to `ready`, after loading it if necessary. The model stays loaded while copies of the
  /// pointer exist, the last of which may be destroyed by the model's own threads. Throws IndexError when
  /// there is no model i.
  void use(std::size_t i, Ready ready);

 private:
  struct Entry {
    ServedModel model;
    std::unique_ptr<TranslationBackend> backend{};
    bool wanted = false;       // waits to be loaded
    std::size_t users = 0;     // number of users
    Clock::time_point used{};  // when the last user released it
    std::vector<Ready> waiting{};
  };

  struct Use;

  void require_model(std::size_t i) const;
  std::shared_ptr<TranslationBackend> lend(Entry& entry);
  void work();
  void load(Entry& entry, std::unique_lock<std::mutex>& lock);
  std::optional<Clock::time_point> end_of(const Entry& entry) const;
  std::optional<Clock::time_point> next_drop() const;
  bool drop_idle(std::unique_lock<std::mutex>& lock);

  const std::chrono::milliseconds idle_;
  const Notice notice_;
  const Failure failure_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  std::deque<std::size_t> to_load_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace detail

}  // namespace eigenformer
