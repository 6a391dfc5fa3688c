#include "translator/server/api/jobs.hpp"

#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/server/api/response.hpp"
#include "translator/server/http/message.hpp"
#include "translator/server/http/metrics.hpp"

namespace eigenformer::detail {

std::shared_ptr<void> JobCount::add() {
  if (count_.fetch_add(1) >= most_) {
    count_.fetch_sub(1);
    throw HttpError(503, "the server is busy: too many translations are waiting", {{"Retry-After", "1"}});
  }
  return {&count_, [](void* count) { static_cast<std::atomic<std::size_t>*>(count)->fetch_sub(1); }};
}

void TranslateJob::begin(const std::shared_ptr<TranslationBackend>& backend,
                         const std::exception_ptr& error) {
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

void TranslateJob::cancel() {
  std::function<void()> cancel;
  {
    const std::scoped_lock lock(mutex_);
    cancelled_ = true;
    cancel = std::exchange(cancel_, nullptr);
  }
  if (cancel) cancel();
}

void TranslateJob::done(std::vector<TranslatedText> texts) {
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

void TranslateJob::fail(const std::exception_ptr& why) {
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
void TranslateJob::finish() {
  std::shared_ptr<TranslationBackend> backend;
  std::shared_ptr<void> place;
  const std::scoped_lock lock(mutex_);
  over_ = true;
  cancel_ = nullptr;
  backend.swap(backend_);
  place.swap(place_);
}

}  // namespace eigenformer::detail
