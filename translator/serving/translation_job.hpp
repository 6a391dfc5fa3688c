#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/search/text/split_lines.hpp"
#include "translator/serving/request.hpp"

namespace eigenformer {

class LineTranslator;

namespace detail {

/// The first tokens of the best text, as far as the rest of the search cannot change them: the common prefix
/// of the growing hypotheses and the best finished one. sampling: whether the texts are samples, of which the
/// first counts. Not valid for diverse beam search, whose groups are reported separately. The result points
/// into `progress`.
std::span<const std::int32_t> stable_ids(const SearchProgress& progress, bool sampling);

/// The final part of a growing text. The text that final tokens decode to may end in an incomplete character
/// or in a space that the finished text does not have; these are held back.
class StableText {
 public:
  /// Updates the text. decoded: the text of all final tokens so far, which extend those of the last call.
  /// Returns the new part, valid until the next call; empty if there is none.
  std::string_view advance(std::string_view decoded);
  /// The final text so far.
  const std::string& text() const noexcept { return text_; }

  /// Removes spaces, tabs, line feeds, U+FFFD (decoded from incomplete characters) and incomplete characters
  /// from the end of a text.
  static std::string_view without_open_end(std::string_view text);

 private:
  std::string text_;
};

/// A request inside a Translator.
class TranslationJob {
 public:
  using Clock = TranslationRequest::Clock;

  /// Tokenizes the lines that are not prepared, in parts where TextTranslator would split them; a part is
  /// then what the other functions call a line. Throws ValueError for invalid lines, prefixes or options.
  TranslationJob(TranslationRequest request, OutcomeHandler handler,
                 std::shared_ptr<const LineTranslator> translator);

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
  void watch(std::size_t i, const SearchProgress& progress);

  /// Stores the translations of line `i`; returns whether all lines are translated now. Throws what
  /// on_progress throws.
  bool keep(std::size_t i, std::vector<Translation> translations);

  /// Marks the request as ended; returns false if it had ended before. No progress is reported afterwards.
  bool end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !ended_.exchange(true);
  }

  /// Calls the handler with the outcome. Call once, after end().
  void deliver(RequestStatus status, std::exception_ptr error, double waited_seconds,
               double taken_seconds) noexcept;

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
  void report(std::size_t i);

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

}  // namespace detail

}  // namespace eigenformer
