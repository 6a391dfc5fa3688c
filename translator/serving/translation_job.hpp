#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/generation/text/split_lines.hpp"
#include "translator/serving/line_translator.hpp"
#include "translator/serving/request.hpp"
#include "translator/serving/stable_text.hpp"

namespace eigenformer::detail {

/// A request inside a Translator.
class TranslationJob {
 public:
  using Clock = TranslationRequest::Clock;

  /// Tokenizes the lines that are not prepared, in parts where TextTranslator would split them; a part is
  /// then what the other functions call a line. Throws ValueError for invalid lines, prefixes or options.
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
    std::vector<PreparedLine> lines = std::move(request.prepared);
    for (std::size_t i = 0; i < lines.size(); ++i) lines[i].number = request.first + i;
    if (lines.empty()) {
      const auto split = [&](const std::optional<DocumentOptions>& splitting) {
        parts_.emplace(request.lines, splitting, request.first, request.prefixes,
                       [&](const std::string& text, std::uint64_t number, const std::string& prefix,
                           std::size_t) { return translator_->prepare(text, number, prefix); });
        return !parts_->lines().empty();
      };
      if (!split(options.splitting)) split(std::nullopt);  // blank lines have no parts
      lines = std::move(parts_->lines());
    }
    lines_.resize(lines.size());
    translations_.resize(lines.size());
    shown_.resize(parts_ ? request.lines.size() : lines.size());
    open_ = lines.size();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      lines_[i].prepared = std::move(lines[i]);
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
    line.tokens = static_cast<index_t>(line.prepared.prefix.size() + ids.size());
    if (!line.text.advance(decoded).empty()) report(i);
  }

  /// Stores the translations of line `i`; returns whether all lines are translated now. Throws what
  /// on_progress throws.
  bool keep(std::size_t i, std::vector<Translation> translations) {
    const std::lock_guard<std::mutex> lock(mutex_);
    translations_[i] = std::move(translations);
    --open_;
    // What is known of the parts after it can be reported now.
    if (on_progress_ != nullptr && parts_ && i + 1 < lines_.size() && !parts_->begins_line(i + 1)) report(i);
    return open_ == 0;
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
      try {
        outcome.translations = parts_ ? parts_->join(std::move(translations_)) : std::move(translations_);
      } catch (...) {
        outcome.status = RequestStatus::failed;
        outcome.error = std::current_exception();
      }
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
    index_t tokens = 0;      // those of `text`, with a forced prefix
    StableText text;         // of this line, or of this part of one
  };

  // Calls on_progress with what is new of the request's line that line `i` is a part of: the text of its
  // parts up to the first that is not translated. The mutex is held.
  void report(std::size_t i) {
    if (ended()) return;
    const std::size_t whole = parts_ ? parts_->line_of(i) : i;
    while (parts_ && !parts_->begins_line(i)) --i;
    std::vector<std::string> texts;
    index_t tokens = 0;
    for (bool over = true; over && i < lines_.size() && (parts_ ? parts_->line_of(i) : i) == whole; ++i) {
      const Line& line = lines_[i];
      over = !translations_[i].empty();
      texts.push_back(over ? translations_[i].front().text : line.text.text());
      tokens += line.tokens;
    }
    const std::string_view added =
        shown_[whole].advance(parts_ ? parts_->beginning(whole, texts) : texts.front());
    if (!added.empty()) on_progress_({whole, shown_[whole].text(), added, tokens});
  }

  std::shared_ptr<const LineTranslator> translator_;
  Clock::time_point deadline_;
  std::stop_token cancellation_;
  std::function<void(const TranslationProgress&)> on_progress_;
  OutcomeHandler handler_;
  bool sampling_ = false;
  std::optional<PreparedParts> parts_;  // of lines that were not prepared
  std::vector<Line> lines_;
  std::vector<std::size_t> order_;
  index_t source_tokens_ = 0;
  std::atomic<index_t> target_tokens_{0};
  std::atomic<bool> ended_{false};

  std::mutex mutex_;  // guards progress and the following members
  std::vector<std::vector<Translation>> translations_;
  std::vector<StableText> shown_;  // of the request's lines, as far as it was reported
  std::size_t open_ = 0;           // lines without a translation
};

}  // namespace eigenformer::detail
