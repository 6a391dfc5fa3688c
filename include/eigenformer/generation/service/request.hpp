#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/generation/text/text_translator.hpp"

namespace eigenformer {

/// What a Translator says of a request.
enum class RequestStatus {
  accepted,           ///< of submit(): an outcome will follow
  queue_full,         ///< of submit(): too much waits; the same request may be accepted later
  too_large,          ///< of submit(): the request alone is more than the queue holds
  shut_down,          ///< of submit(): the translator accepts nothing any more
  done,               ///< translated
  failed,             ///< the model, a tokenizer or on_progress threw
  cancelled,          ///< by the request's stop token, or by a shutdown
  deadline_exceeded,  ///< its deadline passed before it was translated
};

/// A status as a word of lower case, such as "queue_full".
inline const char* name_of(RequestStatus status) {
  switch (status) {
    case RequestStatus::accepted:
      return "accepted";
    case RequestStatus::queue_full:
      return "queue_full";
    case RequestStatus::too_large:
      return "too_large";
    case RequestStatus::shut_down:
      return "shut_down";
    case RequestStatus::done:
      return "done";
    case RequestStatus::failed:
      return "failed";
    case RequestStatus::cancelled:
      return "cancelled";
    case RequestStatus::deadline_exceeded:
      break;
  }
  return "deadline_exceeded";
}

/// A request that was not translated.
class RequestError : public Error {
 public:
  RequestError(RequestStatus status, const std::string& message)
      : Error("translator", message), status_(status) {}
  /// Why: any but accepted, done and failed.
  RequestStatus status() const noexcept { return status_; }

 private:
  RequestStatus status_;
};

/// The text of a line that will not change any more, while the rest is still searched for.
struct TranslationProgress {
  std::size_t line;        ///< among the request's lines, from 0
  std::string_view text;   ///< all that is fixed; UTF-8, whole code points
  std::string_view added;  ///< its end, which is new; not empty
  index_t tokens;          ///< tokens that the text is made of, a forced prefix's included
};

/// Lines to translate, and how.
struct TranslationRequest {
  using Clock = std::chrono::steady_clock;

  std::vector<std::string> lines{};
  /// What the translation of each line begins with, as text; empty: nothing for all.
  std::vector<std::string> prefixes{};
  /// How; none: as the translator's own. `batching` is not used: batches are the translator's.
  std::optional<TextTranslatorOptions> options{};
  /// The adapter that translates, by its name among the translator's; empty: none, the model alone.
  std::string adapter{};
  /// The number of the first line, which decides with the seed what is drawn, as in
  /// TextTranslator::alternatives.
  std::uint64_t first = 0;
  /// When an answer is of no use any more.
  Clock::time_point deadline = Clock::time_point::max();
  /// Ends the work on the request when its source requests a stop; a default one never does.
  std::stop_token cancellation{};
  /// Called as the text of a line becomes fixed: with greedy search and sampling after each token (of several
  /// samples the first), with a beam as far as all hypotheses that may still be the best agree. Calls of a
  /// request come one at a time, before its outcome, from a translator's thread, which waits for them: return
  /// soon. What it throws fails the request. Never called for diverse beams and with a utility, where no part
  /// of the result is known before the end.
  std::function<void(const TranslationProgress&)> on_progress{};
};

/// What became of a request that was accepted.
struct TranslationOutcome {
  RequestStatus status = RequestStatus::done;  ///< done, failed, cancelled or deadline_exceeded
  /// Of each line, as TextTranslator::alternatives gives them; empty unless it is done.
  std::vector<std::vector<Translation>> translations{};
  std::exception_ptr error{};              ///< what was thrown, if it failed
  std::chrono::duration<double> waited{};  ///< from submit() until work on its first line began
  std::chrono::duration<double> taken{};   ///< from submit() until now
  index_t source_tokens = 0;               ///< what its lines were read as
  index_t target_tokens = 0;               ///< steps that the search made for its lines
};

/// Called once for each request that was accepted, from a translator's thread, which waits for it: return
/// soon. It may submit further requests. What it throws is dropped.
using OutcomeHandler = std::function<void(TranslationOutcome)>;

}  // namespace eigenformer
