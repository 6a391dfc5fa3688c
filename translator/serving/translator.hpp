#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "translator/serving/line_translator.hpp"
#include "translator/serving/options.hpp"
#include "translator/serving/request.hpp"
#include "translator/serving/translation_queue.hpp"

namespace eigenformer {

/// Counters of a Translator: its current load, and sums since its construction.
struct TranslatorStatistics {
  index_t waiting_requests = 0;  ///< accepted requests with lines that are in no batch yet
  index_t waiting_lines = 0;     ///< those lines
  index_t waiting_tokens = 0;    ///< their source tokens; a blank line counts as 1
  index_t running_batches = 0;   ///< batches being translated now
  index_t running_lines = 0;     ///< lines in those batches

  std::uint64_t accepted = 0;  ///< requests that submit() accepted
  /// Requests refused as queue_full, too_large or shut_down, without those that made submit() throw.
  std::uint64_t refused = 0;
  std::uint64_t done = 0;               ///< requests translated
  std::uint64_t failed = 0;             ///< requests that failed with an exception
  std::uint64_t cancelled = 0;          ///< requests cancelled
  std::uint64_t deadline_exceeded = 0;  ///< requests that missed their deadline

  std::uint64_t batches = 0;        ///< finished batches
  std::uint64_t lines = 0;          ///< lines in finished batches
  std::uint64_t source_tokens = 0;  ///< source tokens in finished batches
  std::uint64_t target_tokens = 0;  ///< decoding steps of requests that ended
  double waited_seconds = 0;        ///< sum of TranslationOutcome::waited over requests that ended
  double taken_seconds = 0;         ///< sum of TranslationOutcome::taken over requests that ended
  double busy_seconds = 0;          ///< sum of the durations of finished batches
};

/// What Translator::shutdown() does with accepted requests.
enum class ShutdownMode {
  finish,  ///< translate them
  cancel,  ///< end them with RequestStatus::cancelled
};

/// Translates requests of many threads with one model. Requests wait in a bounded queue; worker threads,
/// started by the constructor, translate lines of different requests in shared batches. A line gets the same
/// translation, bit for bit, as from a TextTranslator alone, unless a shortlist
/// (SearchOptions::shortlist) restricts the batch. All functions are thread-safe.
///
///     auto loaded = ef::load_model_folder("en-de");
///     ef::Translator translator{ef::TextTranslator(loaded)};
///     ef::Translation t = translator.translate("I am reading a book.");   // from any number of threads
///
/// Without requests it uses no CPU. A cancelled request, or one past its deadline, ends at the next decoding
/// step; the others in its batch continue. When a batch throws, its requests are retried one by one, so that
/// a request fails only because of its own lines.
class Translator {
 public:
  /// Starts the workers. adapters: by name, the translators for requests that name one of them
  /// (TranslationRequest::adapter), such as TextTranslators of the same model with different adapters; their
  /// lines never share a batch. Throws ValueError for invalid options, a null pointer, an adapter without a
  /// name, and when the system cannot start the threads.
  explicit Translator(std::shared_ptr<const LineTranslator> lines, const TranslatorOptions& options = {},
                      std::map<std::string, std::shared_ptr<const LineTranslator>> adapters = {});

  /// Starts the workers with one TextTranslator. owner: owns the model and is kept alive; null: the model
  /// must outlive the translator. Throws as the constructor above.
  template <class M>
  explicit Translator(TextTranslator<M> translator, const TranslatorOptions& options = {},
                      std::shared_ptr<const void> owner = nullptr)
      : Translator(line_translator(std::move(translator), std::move(owner)), options) {}

  /// Cancels the requests that have not ended and waits for their outcomes. Must not run in a handler of this
  /// translator.
  ~Translator() { stop(ShutdownMode::cancel); }
  Translator(const Translator&) = delete;
  Translator& operator=(const Translator&) = delete;

  /// Queues a request and returns without waiting for it; the lines are tokenized on the calling thread.
  /// Returns accepted, and calls `done` once with the outcome, or returns queue_full, too_large or shut_down,
  /// and never calls `done`.
  ///
  /// Throws ValueError for a null handler, a request without lines or with both kinds of them, unequal
  /// numbers of prefixes and lines, a prefix that is too long for the model, invalid options, options with
  /// their own prefixes, constraints, numbers or observer, an unknown adapter, and text that a tokenizer
  /// refuses.
  [[nodiscard]] RequestStatus submit(TranslationRequest request, OutcomeHandler done);

  /// Tokenizes a line for TranslationRequest::prepared, on the calling thread; PreparedLine::cut tells
  /// whether it is too long for the model. adapter: as in the request. Throws ValueError for an unknown
  /// adapter and text that the tokenizer refuses.
  PreparedLine prepare(const std::string& line, const std::string& adapter = {}) const {
    return lines_of(adapter)->prepare(line, 0, {});
  }

  /// Translates a request and waits for the result: the translations of each line, as
  /// TextTranslator::alternatives() returns them. Throws RequestError when the request is refused, is
  /// cancelled or misses its deadline, what the model throws, and as submit(); throws ValueError in a handler
  /// of this translator, which would wait for itself.
  std::vector<std::vector<Translation>> alternatives(TranslationRequest request);

  /// Translates lines with the translator's own options and waits; returns the best translation of each.
  /// Throws as alternatives().
  std::vector<Translation> translate(std::span<const std::string> lines);
  /// Translates one line and waits. Throws as alternatives().
  Translation translate(const std::string& line) { return std::move(translate(std::span(&line, 1)).front()); }

  /// Refuses further requests and waits until all accepted ones have had their outcomes and the workers have
  /// ended. Another thread can cut a `finish` short by calling it with `cancel`. Throws ValueError in a
  /// handler of this translator, which would wait for itself.
  void shutdown(ShutdownMode mode);

  /// A consistent copy of the counters.
  TranslatorStatistics statistics() const;

  /// Whether all accepted requests have ended.
  bool idle() const;

  /// The options for requests without options of their own, of the model without an adapter or with a named
  /// one; a start for such options. Throws ValueError for an unknown adapter.
  const TextTranslatorOptions& text_options(const std::string& adapter = {}) const {
    return lines_of(adapter)->options();
  }
  /// The options given to the constructor.
  const TranslatorOptions& options() const noexcept { return options_; }

 private:
  using Clock = TranslationRequest::Clock;
  using Job = std::shared_ptr<detail::TranslationJob>;
  using Batch = std::vector<detail::BatchLine>;
  class SharedThreads;

  // tokens: of the request, or a lower bound. The mutex is held.
  RequestStatus refusal(index_t tokens);

  const std::shared_ptr<const LineTranslator>& lines_of(const std::string& adapter) const;
  std::shared_ptr<const LineTranslator> translator_for(const std::string& adapter,
                                                       std::optional<TextTranslatorOptions>& options) const;

  void stop(ShutdownMode mode);
  bool own_thread() const;

  void work();
  // Returns false when the worker must end.
  bool wait_for_batch(Batch& batch);
  // Waits for a full batch, or until the first request has waited for the window. Meanwhile, requests that
  // are cancelled or past their deadlines end.
  void wait_for_others(std::unique_lock<std::mutex>& lock);

  RequestStatus interruption(const detail::TranslationJob& job, Clock::time_point now) const;
  // Ends waiting requests that are cancelled or past their deadlines. The mutex is held, but while they end.
  void sweep(std::unique_lock<std::mutex>& lock, Clock::time_point now);
  void sweep_now_and_then(Clock::time_point now);

  void run(const Batch& batch);
  // Translates each request of a failed batch by itself.
  void retry(const Batch& batch, const std::exception_ptr& error);
  // Returns the exception thrown, or null.
  std::exception_ptr translate(std::span<const detail::BatchLine> batch);
  bool watch(const Job& job, std::size_t line, const SearchProgress& progress);
  // Ends a request unless it has ended already.
  void end(const Job& job, RequestStatus status, std::exception_ptr error = nullptr);

  const std::shared_ptr<const LineTranslator> lines_;
  const std::map<std::string, std::shared_ptr<const LineTranslator>> adapters_;
  const TranslatorOptions options_;
  const std::shared_ptr<SharedThreads> threads_;

  mutable std::mutex mutex_;  // guards the following members
  std::condition_variable wake_;
  detail::TranslationQueue queue_;
  TranslatorStatistics statistics_;
  index_t idle_workers_ = 0;
  bool accepting_ = true;

  std::atomic<bool> cancelling_{false};
  std::atomic<Clock::rep> last_sweep_{0};
  std::mutex join_mutex_;
  std::vector<std::thread> workers_;
};

}  // namespace eigenformer
