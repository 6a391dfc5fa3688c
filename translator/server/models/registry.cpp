#include "translator/server/models/registry.hpp"

#include <algorithm>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "translator/server/http/message.hpp"

namespace eigenformer::detail {

namespace {

std::exception_ptr ending() { return std::make_exception_ptr(HttpError(503, "the server is shutting down")); }

double seconds_since(ModelRegistry::Clock::time_point time) {
  return std::chrono::duration<double>(ModelRegistry::Clock::now() - time).count();
}

}  // namespace

// One use of a model, which its destructor ends.
struct ModelRegistry::Use {
  ModelRegistry& registry;
  Entry& entry;
  Use(ModelRegistry& r, Entry& e) noexcept : registry(r), entry(e) {}
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    const std::scoped_lock lock(registry.mutex_);
    entry.used = Clock::now();
    if (--entry.users == 0 && (registry.over_ || registry.idle_.count() > 0)) registry.changed_.notify_all();
  }
};

ModelRegistry::ModelRegistry(std::vector<ServedModel> models, std::chrono::milliseconds idle, Notice notice,
                             Failure failure)
    : idle_(idle), notice_(std::move(notice)), failure_(std::move(failure)) {
  for (ServedModel& model : models) entries_.push_back({.model = std::move(model)});
  thread_ = std::thread([this] { work(); });
}

void ModelRegistry::shutdown() {
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

std::size_t ModelRegistry::loaded() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.backend != nullptr; }));
}

std::optional<std::size_t> ModelRegistry::find(const std::string& source, const std::string& target) const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].model.source == source && entries_[i].model.target == target) return i;
  return std::nullopt;
}

void ModelRegistry::use(std::size_t i, Ready ready) {
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

void ModelRegistry::require_model(std::size_t i) const {
  if (i >= entries_.size()) {
    throw IndexError("server", {"model ", i, " does not exist, there are ", entries_.size()});
  }
}

// Returns the model for one more user. The mutex must be held. If memory runs out, nothing changes: there
// is no Use whose destructor would lock the mutex again.
std::shared_ptr<TranslationBackend> ModelRegistry::lend(Entry& entry) {
  auto use = std::make_shared<Use>(*this, entry);
  ++entry.users;
  return {std::move(use), entry.backend.get()};
}

void ModelRegistry::work() {
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

void ModelRegistry::load(Entry& entry, std::unique_lock<std::mutex>& lock) {
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
std::optional<ModelRegistry::Clock::time_point> ModelRegistry::end_of(const Entry& entry) const {
  if (idle_.count() == 0 || entry.backend == nullptr || entry.users > 0) return std::nullopt;
  return entry.used + std::min<Clock::duration>(idle_, std::chrono::hours(24 * 365));  // stays in range
}

std::optional<ModelRegistry::Clock::time_point> ModelRegistry::next_drop() const {
  std::optional<Clock::time_point> next;
  for (const Entry& entry : entries_)
    if (const auto end = end_of(entry)) next = next ? std::min(*next, *end) : *end;
  return next;
}

// Unloads a model that has been idle for long enough, and returns whether there was one. Releases the lock
// meanwhile, so that everything may have changed when it returns.
bool ModelRegistry::drop_idle(std::unique_lock<std::mutex>& lock) {
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

}  // namespace eigenformer::detail
