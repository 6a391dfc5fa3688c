#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/search/text/text_translator.hpp"

namespace eigenformer {

/// The status of a request to a Translator.
enum class RequestStatus {
  accepted,           ///< returned by submit(): an outcome will follow
  queue_full,         ///< returned by submit(): the queue is full; the same request may be accepted later
  too_large,          ///< returned by submit(): the request alone exceeds the queue's capacity
  shut_down,          ///< returned by submit(): the translator accepts no more requests
  done,               ///< translated
  failed,             ///< the model, a tokenizer or on_progress threw
  cancelled,          ///< by the request's stop token, or by a shutdown
  deadline_exceeded,  ///< its deadline passed before it was translated
};

/// Thrown for a request that was refused, was cancelled or missed its deadline.
class RequestError : public Error {
 public:
  /// status: any but accepted, done and failed.
  RequestError(RequestStatus status, const std::string& message)
      : Error("translator", message), status_(status) {}
  /// The reason: any but accepted, done and failed.
  RequestStatus status() const noexcept { return status_; }

 private:
  RequestStatus status_;
};

/// The part of a line's translation that is final while the search is still running. Its views are valid
/// during the call only.
struct TranslationProgress {
  std::size_t line;        ///< index of the line in the request
  std::string_view text;   ///< all text that is final; UTF-8, whole code points
  std::string_view added;  ///< the end of `text` that is new since the last call; not empty
  index_t tokens;          ///< tokens of the final text, including a forced prefix
};

/// A request to a Translator: lines and how to translate them.
struct TranslationRequest {
  /// The clock of deadlines.
  using Clock = std::chrono::steady_clock;

  std::vector<std::string> lines{};  ///< at least one, unless `prepared` has lines
  /// The text that each line's translation must begin with, one per line; empty: none.
  std::vector<std::string> prefixes{};
  /// Lines that Translator::prepare() tokenized for this `adapter`, in place of `lines`, which must be empty.
  std::vector<PreparedLine> prepared{};
  /// Options for this request; without a value the translator's own. Their `batching` is ignored.
  std::optional<TextTranslatorOptions> options{};
  /// The name of one of the translator's adapters; empty: the model without an adapter.
  std::string adapter{};
  /// The number of the first line, which determines with the seed what is sampled; see
  /// TextTranslator::alternatives().
  std::uint64_t first = 0;
  /// When to give up the request with deadline_exceeded. Default: never.
  Clock::time_point deadline = Clock::time_point::max();
  /// Cancels the request when its source requests a stop; the default never does.
  std::stop_token cancellation{};
  /// Called when more of a line's translation is final: in greedy search and sampling after each token (for
  /// the first of several samples), in beam search as far as all hypotheses that may still win agree. May be
  /// empty.
  ///
  /// Called one at a time per request, before its outcome, on a worker's thread, which waits: return soon. An
  /// exception fails the request. Never called with diverse beam search or a utility, where nothing is final
  /// before the end.
  std::function<void(const TranslationProgress&)> on_progress{};
};

/// The outcome of an accepted request.
struct TranslationOutcome {
  RequestStatus status = RequestStatus::done;  ///< done, failed, cancelled or deadline_exceeded
  /// The translations of each line, as TextTranslator::alternatives() returns them; empty unless status is
  /// done.
  std::vector<std::vector<Translation>> translations{};
  std::exception_ptr error{};              ///< the exception, if status is failed; else null
  std::chrono::duration<double> waited{};  ///< seconds from submit() until work on its first line began
  std::chrono::duration<double> taken{};   ///< seconds from submit() until the outcome
  index_t source_tokens = 0;               ///< tokens of its lines; a blank line counts as 1
  index_t target_tokens = 0;               ///< decoding steps, summed over its lines
};

/// Receives the outcome of an accepted request, once, on a worker's thread, which waits: return soon. May
/// call submit(), but must not wait for the translator. Exceptions are ignored.
using OutcomeHandler = std::function<void(TranslationOutcome)>;

}  // namespace eigenformer
