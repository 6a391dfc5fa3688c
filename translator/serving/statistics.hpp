#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

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

}  // namespace eigenformer
