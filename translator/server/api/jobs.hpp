#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "translator/server/api/detect.hpp"
#include "translator/server/api/request.hpp"
#include "translator/server/http/reply.hpp"
#include "translator/server/models/backend.hpp"

namespace eigenformer::detail {

class ServerMetrics;

/// Counts the translations that a server has accepted and not answered. Thread-safe.
class JobCount {
 public:
  /// most: the number of jobs allowed at a time.
  explicit JobCount(std::size_t most) : most_(most) {}

  /// The current number of jobs.
  std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  /// Counts one more job until the result is destroyed, which must be before this object. Throws HttpError
  /// 503 when there are too many.
  std::shared_ptr<void> add();

 private:
  const std::size_t most_;
  std::atomic<std::size_t> count_{0};
};

/// An accepted translation request until it is answered. Its model may have to be loaded first, and its
/// client may disconnect at any time. Thread-safe; held by shared_ptr.
class TranslateJob : public std::enable_shared_from_this<TranslateJob> {
 public:
  /// detected: the language, if the source was "auto". place: the result of JobCount::add().
  /// metrics: must outlive the job.
  TranslateJob(ApiTranslation wanted, std::optional<DetectedLanguage> detected, HttpReply reply,
               std::shared_ptr<void> place, ServerMetrics& metrics)
      : wanted_(std::move(wanted)),
        detected_(std::move(detected)),
        reply_(std::move(reply)),
        place_(std::move(place)),
        metrics_(metrics) {}

  /// Starts the translation with a loaded model, or answers with `error` when backend is null. Does nothing
  /// for a cancelled job.
  void begin(const std::shared_ptr<TranslationBackend>& backend, const std::exception_ptr& error);

  /// Cancels the job, because its client has disconnected.
  void cancel();

  /// Sends the answer; called directly, without begin(), for texts that are already in the target language.
  void done(std::vector<TranslatedText> texts);

  /// The texts and what to do with them.
  const TranslationTask& task() const noexcept { return wanted_.task; }
  /// Begins the stream before done() is called without begin(); does nothing unless the answer is a stream.
  void begin_stream() const {
    if (wanted_.stream) reply_.begin_stream({.content_type = "text/event-stream"});
  }

 private:
  bool cancelled() const {
    const std::scoped_lock lock(mutex_);
    return cancelled_;
  }

  void fail(const std::exception_ptr& why);

  void finish();

  const ApiTranslation wanted_;
  const std::optional<DetectedLanguage> detected_;
  const HttpReply reply_;
  std::shared_ptr<void> place_;
  ServerMetrics& metrics_;
  mutable std::mutex mutex_;
  std::shared_ptr<TranslationBackend> backend_;
  std::function<void()> cancel_;
  bool cancelled_ = false, over_ = false;
};

}  // namespace eigenformer::detail
