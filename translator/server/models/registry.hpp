#pragma once

#include <algorithm>
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
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "translator/server/http/message.hpp"
#include "translator/server/models/backend.hpp"

namespace eigenformer::detail {

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
                Failure failure = {})
      : idle_(idle), notice_(std::move(notice)), failure_(std::move(failure)) {
    for (ServedModel& model : models) entries_.push_back({.model = std::move(model)});
    thread_ = std::thread([this] { work(); });
  }

  ~ModelRegistry() { shutdown(); }
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  /// Refuses further use() with HttpError 503, waits until no model is in use, and unloads all. Must not be
  /// called by several threads at once.
  void shutdown() {
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    for (Entry& entry : entries_) {
      std::unique_ptr<TranslationBackend> backend;
      {
        const std::scoped_lock lock(mutex_);
        backend.swap(entry.backend);
      }
    }
  }

  /// Number of models, loaded or not.
  std::size_t size() const noexcept { return entries_.size(); }
  /// The description of model i. Throws IndexError when there is no model i.
  const ServedModel& model(std::size_t i) const {
    require_model(i);
    return entries_[i].model;
  }
  /// Number of loaded models.
  std::size_t loaded() const {
    const std::scoped_lock lock(mutex_);
    return static_cast<std::size_t>(
        std::count_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.backend != nullptr; }));
  }

  /// The index of the model for two languages; nothing when there is none.
  std::optional<std::size_t> find(const std::string& source, const std::string& target) const {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].model.source == source && entries_[i].model.target == target) return i;
    return std::nullopt;
  }

  /// Passes model i to `ready`, after loading it if necessary. The model stays loaded while copies of the
  /// pointer exist, the last of which may be destroyed by the model's own threads. Throws IndexError when
  /// there is no model i.
  void use(std::size_t i, Ready ready) {
    require_model(i);
    std::shared_ptr<TranslationBackend> backend;
    std::exception_ptr error;
    {
      const std::scoped_lock lock(mutex_);
      Entry& entry = entries_[i];
      if (over_) {
        error = ending();
      } else if (entry.backend == nullptr) {
        entry.waiting.push_back(std::move(ready));
        if (!std::exchange(entry.wanted, true)) {
          to_load_.push_back(i);
          changed_.notify_all();
        }
        return;
      } else {
        backend = lend(entry);
      }
    }
    ready(std::move(backend), error);
  }

 private:
  static std::exception_ptr ending() {
    return std::make_exception_ptr(HttpError(503, "the server is shutting down"));
  }

  static double seconds_since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }

  struct Entry {
    ServedModel model;
    std::unique_ptr<TranslationBackend> backend{};
    bool wanted = false;       // waits to be loaded
    std::size_t users = 0;     // number of users
    Clock::time_point used{};  // when the last user released it
    std::vector<Ready> waiting{};
  };

  // One use of a model, which its destructor ends.
  struct Use {
    ModelRegistry& registry;
    Entry& entry;
    Use(ModelRegistry& r, Entry& e) noexcept : registry(r), entry(e) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      const std::scoped_lock lock(registry.mutex_);
      entry.used = Clock::now();
      if (--entry.users == 0 && (registry.over_ || registry.idle_.count() > 0))
        registry.changed_.notify_all();
    }
  };

  void require_model(std::size_t i) const {
    if (i >= entries_.size()) {
      throw IndexError("server", {"model ", i, " does not exist, there are ", entries_.size()});
    }
  }

  // Returns the model for one more user. The mutex must be held. If memory runs out, nothing changes: there
  // is no Use whose destructor would lock the mutex again.
  std::shared_ptr<TranslationBackend> lend(Entry& entry) {
    auto use = std::make_shared<Use>(*this, entry);
    ++entry.users;
    return {std::move(use), entry.backend.get()};
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (!to_load_.empty()) {
        const std::size_t i = to_load_.front();
        to_load_.pop_front();
        load(entries_[i], lock);
      } else if (!drop_idle(lock)) {
        if (const auto next = next_drop()) {
          changed_.wait_until(lock, *next);
        } else {
          changed_.wait(lock);
        }
      }
    }
    for (Entry& entry : entries_) {
      for (const Ready& ready : std::exchange(entry.waiting, {})) {
        lock.unlock();
        ready(nullptr, ending());
        lock.lock();
      }
      changed_.wait(lock, [&] { return entry.users == 0; });
    }
  }

  void load(Entry& entry, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const auto began = Clock::now();
    std::unique_ptr<TranslationBackend> backend;
    std::exception_ptr error;
    try {
      backend = entry.model.load();
      if (backend == nullptr)
        throw ValueError("server", {"the load() of ", entry.model.source, "-", entry.model.target,
                                    " returned null, expected a model"});
      if (notice_) notice_(entry.model, true, seconds_since(began));
    } catch (...) {
      error = std::current_exception();
      if (failure_) failure_(entry.model, error);
    }
    lock.lock();
    entry.wanted = false;
    entry.backend = std::move(backend);
    entry.used = Clock::now();
    for (const Ready& ready : std::exchange(entry.waiting, {})) {
      std::shared_ptr<TranslationBackend> lent;
      try {
        if (entry.backend != nullptr) lent = lend(entry);
      } catch (...) {
        error = std::current_exception();
      }
      lock.unlock();
      ready(std::move(lent), error);
      lock.lock();
    }
  }

  // The time at which an idle model is unloaded; nothing for one in use, or when models are never unloaded.
  std::optional<Clock::time_point> end_of(const Entry& entry) const {
    if (idle_.count() == 0 || entry.backend == nullptr || entry.users > 0) return std::nullopt;
    return entry.used + std::min<Clock::duration>(idle_, std::chrono::hours(24 * 365));  // stays in range
  }

  std::optional<Clock::time_point> next_drop() const {
    std::optional<Clock::time_point> next;
    for (const Entry& entry : entries_)
      if (const auto end = end_of(entry)) next = next ? std::min(*next, *end) : *end;
    return next;
  }

  // Unloads a model that has been idle for long enough, and returns whether there was one. Releases the lock
  // meanwhile, so that everything may have changed when it returns.
  bool drop_idle(std::unique_lock<std::mutex>& lock) {
    const auto now = Clock::now();
    for (Entry& entry : entries_) {
      const auto end = end_of(entry);
      if (!end || now < *end) continue;
      auto backend = std::exchange(entry.backend, nullptr);
      lock.unlock();
      backend.reset();
      if (notice_) notice_(entry.model, false, seconds_since(now));
      lock.lock();
      return true;
    }
    return false;
  }

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

}  // namespace eigenformer::detail
