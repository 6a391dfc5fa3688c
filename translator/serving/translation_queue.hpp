#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "eigenformer/search/beams/generate.hpp"
#include "translator/serving/translation_job.hpp"

namespace eigenformer::detail {

/// A line of a batch.
struct BatchLine {
  std::shared_ptr<TranslationJob> job;
  std::size_t line;
};

/// The requests of a Translator with lines that are in no batch yet. Guarded by its owner's mutex.
class TranslationQueue {
 public:
  using Job = std::shared_ptr<TranslationJob>;
  using Clock = TranslationRequest::Clock;

  bool empty() const noexcept { return jobs_.empty(); }
  index_t requests() const noexcept { return static_cast<index_t>(jobs_.size()); }
  index_t lines() const noexcept { return lines_; }
  index_t tokens() const noexcept { return tokens_; }
  const std::deque<Job>& jobs() const noexcept { return jobs_; }

  void add(Job job);

  /// Removes a job if it is in the queue.
  void remove(const TranslationJob& job);

  /// Takes a batch: one line in turn from the first job and from all jobs with the same options and adapter,
  /// so that a long request does not delay short ones. At least one line, at most batching.batch_tokens
  /// source tokens and most_lines lines. Jobs with lines left move to the end of the queue.
  std::vector<BatchLine> take(const BatchSearchOptions& batching, index_t most_lines, Clock::time_point now);

 private:
  void leave(index_t tokens) noexcept {
    --lines_;
    tokens_ -= tokens;
  }

  std::deque<Job> jobs_;
  index_t lines_ = 0, tokens_ = 0;  // of the jobs, without lines that batches have taken
};

}  // namespace eigenformer::detail
