#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// What a Translator has done since it was made, and what it does now.
struct TranslatorStatistics {
  index_t waiting_requests = 0;  ///< accepted, with lines that no batch has taken
  index_t waiting_lines = 0;     ///< those lines
  index_t waiting_tokens = 0;    ///< their source tokens
  index_t running_batches = 0;
  index_t running_lines = 0;

  std::uint64_t accepted = 0;  ///< requests; so are the next ones
  std::uint64_t refused = 0;   ///< queue_full, too_large or shut_down; those that submit() threw for are not
                               ///< counted
  std::uint64_t done = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t deadline_exceeded = 0;

  std::uint64_t batches = 0;        ///< ended
  std::uint64_t lines = 0;          ///< in those
  std::uint64_t source_tokens = 0;  ///< in those
  std::uint64_t target_tokens = 0;  ///< steps that the searches of those lines made
  double waited_seconds = 0;        ///< sum of TranslationOutcome::waited of requests that ended
  double taken_seconds = 0;         ///< sum of TranslationOutcome::taken of requests that ended
  double busy_seconds = 0;          ///< sum over batches of the time that they took
};

}  // namespace eigenformer
