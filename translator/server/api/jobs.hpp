#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/server/api/detect.hpp"
#include "translator/server/api/request.hpp"
#include "translator/server/api/response.hpp"
#include "translator/server/http/message.hpp"
#include "translator/server/http/metrics.hpp"
#include "translator/server/http/reply.hpp"
#include "translator/server/models/backend.hpp"

namespace eigenformer::detail {

/// Counts the translations that a server has accepted and not answered. Thread-safe.
class JobCount {
 public:
  /// most: the number of jobs allowed at a time.
  explicit JobCount(std::size_t most) : most_(most) {}

  /// The current number of jobs.
  std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  /// Counts one more job until the result is destroyed, which must be before this object. Throws HttpError
  /// 503 when there are too many.
  std::shared_ptr<void> add() {
    if (count_.fetch_add(1) >= most_) {
      count_.fetch_sub(1);
      throw HttpError(503, "the server is busy: too many translations are waiting", {{"Retry-After", "1"}});
    }
    return {&count_, [](void* count) { static_cast<std::atomic<std::size_t>*>(count)->fetch_sub(1); }};
  }

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
  void begin(const std::shared_ptr<TranslationBackend>& backend, const std::exception_ptr& error) {
    if (cancelled()) return finish();
    if (backend == nullptr) return fail(error);
    {
      const std::scoped_lock lock(mutex_);
      backend_ = backend;
    }
    const auto self = shared_from_this();
    begin_stream();
    TaskEvents events{
        .done = [self](std::vector<TranslatedText> texts) { self->done(std::move(texts)); },
        .failed = [self](const std::exception_ptr& why) { self->fail(why); },
    };
    if (wanted_.stream) {
      events.partial = [self](std::size_t i, std::string text) {
        self->reply_.event("partial", json_text({{"index", i}, {"text", std::move(text)}}), i);
      };
    }
    try {
      auto cancel = backend->start(wanted_.task, std::move(events));
      std::unique_lock lock(mutex_);
      if (over_) return;
      cancel_ = std::move(cancel);
      if (!cancelled_) return;
      cancel = std::exchange(cancel_, nullptr);
      lock.unlock();
      cancel();
    } catch (...) {
      fail(std::current_exception());
    }
  }

  /// Cancels the job, because its client has disconnected.
  void cancel() {
    std::function<void()> cancel;
    {
      const std::scoped_lock lock(mutex_);
      cancelled_ = true;
      cancel = std::exchange(cancel_, nullptr);
    }
    if (cancel) cancel();
  }

  /// Sends the answer; called directly, without begin(), for texts that are already in the target language.
  void done(std::vector<TranslatedText> texts) {
    nlohmann::ordered_json json;
    try {
      json = wanted_.file_answer ? wanted_.file_answer(std::move(texts.at(0).text))
                                 : translation_json(texts, wanted_.list, wanted_.task, detected_);
    } catch (...) {
      return fail(std::current_exception());
    }
    std::size_t characters = 0;
    for (const std::string& text : wanted_.task.texts)
      for_each_code_point(text, [&](char32_t, std::string_view) { ++characters; });
    metrics_.add_translated(texts.size(), characters);
    finish();
    if (wanted_.stream) {
      reply_.event("done", json_text(json));
      reply_.end_stream();
      return;
    }
    reply_.send(json_answer(json));
  }

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

  void fail(const std::exception_ptr& why) {
    finish();
    try {
      std::rethrow_exception(why);
    } catch (const HttpError& error) {
      reply_.send(error);
    } catch (const std::bad_alloc&) {
      reply_.send(HttpError(503, "the server is out of memory"));
    } catch (const std::exception&) {  // its message may name files, or parts of texts
      reply_.send(HttpError(500, "the translation failed"));
    }
  }

  // Releases the model and the place before the client receives the answer and may send its next request.
  void finish() {
    std::shared_ptr<TranslationBackend> backend;
    std::shared_ptr<void> place;
    const std::scoped_lock lock(mutex_);
    over_ = true;
    cancel_ = nullptr;
    backend.swap(backend_);
    place.swap(place_);
  }

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
