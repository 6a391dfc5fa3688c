#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/generation/service/line_translator.hpp"
#include "eigenformer/generation/service/request.hpp"
#include "eigenformer/generation/service/stable_text.hpp"

namespace eigenformer::detail {

/// A request inside a Translator.
class TranslationJob {
 public:
  using Clock = TranslationRequest::Clock;

  /// Tokenizes the lines that are not prepared. Throws ValueError for invalid lines, prefixes or options.
  TranslationJob(TranslationRequest request, OutcomeHandler handler,
                 std::shared_ptr<const LineTranslator> translator)
      : submitted(Clock::now()),
        translator_(std::move(translator)),
        deadline_(request.deadline),
        cancellation_(std::move(request.cancellation)),
        on_progress_(std::move(request.on_progress)),
        handler_(std::move(handler)) {
    const TextTranslatorOptions& options = translator_->options();
    sampling_ = options.sampling.has_value();
    if (options.utility || (!sampling_ && options.search.num_beam_groups > 1)) on_progress_ = nullptr;
    const bool prepared = !request.prepared.empty();
    lines_.resize(prepared ? request.prepared.size() : request.lines.size());
    translations_.resize(lines_.size());
    open_ = lines_.size();
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (prepared) {
        lines_[i].prepared = std::move(request.prepared[i]);
        lines_[i].prepared.number = request.first + i;
      } else {
        lines_[i].prepared =
            translator_->prepare(request.lines[i], request.first + i,
                                 request.prefixes.empty() ? std::string() : request.prefixes[i]);
      }
      source_tokens_ += tokens(i);
    }
    order_.resize(lines_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    // Lines of similar length end their searches together; with on_progress the first line comes first.
    if (on_progress_ == nullptr) {
      std::stable_sort(order_.begin(), order_.end(),
                       [&](std::size_t a, std::size_t b) { return tokens(a) > tokens(b); });
    }
  }

  const LineTranslator& translator() const noexcept { return *translator_; }
  const PreparedLine& line(std::size_t i) const { return lines_[i].prepared; }
  /// The tokens that a line counts for in a queue and in a batch, at least 1.
  index_t tokens(std::size_t i) const {
    return std::max<index_t>(1, static_cast<index_t>(lines_[i].prepared.ids.size()));
  }
  index_t source_tokens() const noexcept { return source_tokens_; }
  index_t target_tokens() const noexcept { return target_tokens_.load(std::memory_order_relaxed); }
  std::size_t line_count() const noexcept { return lines_.size(); }

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// Returns cancelled or deadline_exceeded if the request must end, else accepted.
  RequestStatus interruption(Clock::time_point now) const {
    if (cancellation_.stop_requested()) return RequestStatus::cancelled;
    return now >= deadline_ ? RequestStatus::deadline_exceeded : RequestStatus::accepted;
  }

  /// Records the progress of line `i` and calls on_progress. Throws what on_progress throws. One thread at a
  /// time per line.
  void watch(std::size_t i, const SearchProgress& progress) {
    Line& line = lines_[i];
    if (progress.step > line.steps) {
      target_tokens_.fetch_add(progress.step - line.steps, std::memory_order_relaxed);
      line.steps = progress.step;
    }
    if (on_progress_ == nullptr) return;
    const auto ids = stable_ids(progress, sampling_);
    if (ids.size() <= line.stable) return;
    line.stable = ids.size();
    const std::string decoded = translator_->text_of(line.prepared, ids);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended()) return;
    const std::string_view added = line.text.advance(decoded);
    if (added.empty()) return;
    on_progress_(
        {i, line.text.text(), added, static_cast<index_t>(line.prepared.prefix.size() + ids.size())});
  }

  /// Stores the translations of line `i`; returns whether all lines are translated now.
  bool keep(std::size_t i, std::vector<Translation> translations) {
    const std::lock_guard<std::mutex> lock(mutex_);
    translations_[i] = std::move(translations);
    return --open_ == 0;
  }

  /// Marks the request as ended; returns false if it had ended before. No progress is reported afterwards.
  bool end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !ended_.exchange(true);
  }

  /// Calls the handler with the outcome. Call once, after end().
  void deliver(RequestStatus status, std::exception_ptr error, double waited_seconds,
               double taken_seconds) noexcept {
    TranslationOutcome outcome{.status = status, .error = std::move(error)};
    if (status == RequestStatus::done) {
      const std::lock_guard<std::mutex> lock(mutex_);
      outcome.translations = std::move(translations_);
    }
    outcome.waited = std::chrono::duration<double>(waited_seconds);
    outcome.taken = std::chrono::duration<double>(taken_seconds);
    outcome.source_tokens = source_tokens_;
    outcome.target_tokens = target_tokens();
    const OutcomeHandler handler = std::move(handler_);
    try {
      handler(std::move(outcome));
    } catch (...) {  // nobody else can handle it
    }
  }

  const Clock::time_point submitted;

  // Used and guarded by the queue.
  std::size_t taken = 0;      // lines taken by batches, in the order of next()
  Clock::time_point begun{};  // when the first line was taken
  std::size_t next(std::size_t k) const { return order_[k]; }

 private:
  struct Line {
    PreparedLine prepared;
    index_t steps = 0;       // decoding steps so far
    std::size_t stable = 0;  // final tokens
    StableText text;
  };

  std::shared_ptr<const LineTranslator> translator_;
  Clock::time_point deadline_;
  std::stop_token cancellation_;
  std::function<void(const TranslationProgress&)> on_progress_;
  OutcomeHandler handler_;
  bool sampling_ = false;
  std::vector<Line> lines_;
  std::vector<std::size_t> order_;
  index_t source_tokens_ = 0;
  std::atomic<index_t> target_tokens_{0};
  std::atomic<bool> ended_{false};

  std::mutex mutex_;  // guards progress and the following members
  std::vector<std::vector<Translation>> translations_;
  std::size_t open_ = 0;  // lines without a translation
};

}  // namespace eigenformer::detail
