#include "translator/serving/translation_queue.hpp"

#include <algorithm>
#include <utility>

#include "translator/serving/line_translator.hpp"

namespace eigenformer::detail {

void TranslationQueue::add(Job job) {
  const TranslationJob& added = *jobs_.emplace_back(std::move(job));
  lines_ += static_cast<index_t>(added.line_count());
  tokens_ += added.source_tokens();
}

void TranslationQueue::remove(const TranslationJob& job) {
  const auto at =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& other) { return other.get() == &job; });
  if (at == jobs_.end()) return;
  for (std::size_t k = job.taken; k < job.line_count(); ++k) leave(job.tokens(job.next(k)));
  jobs_.erase(at);
}

std::vector<BatchLine> TranslationQueue::take(const BatchSearchOptions& batching, index_t most_lines,
                                              Clock::time_point now) {
  std::vector<BatchLine> batch;
  if (jobs_.empty()) return batch;
  std::vector<std::size_t> sharing, taken;  // indices of jobs; per job the lines taken
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    taken.push_back(jobs_[j]->taken);
    const LineTranslator &first = jobs_.front()->translator(), &other = jobs_[j]->translator();
    if (&first == &other ||
        (first.identity() == other.identity() && translate_alike(first.options(), other.options())))
      sharing.push_back(j);
  }
  const auto most = static_cast<std::size_t>(std::max<index_t>(1, std::min(most_lines, batching.batch_size)));
  index_t tokens = 0;
  bool full = false;
  for (bool any = true; any && !full;) {
    any = false;
    for (const std::size_t j : sharing) {
      const Job& job = jobs_[j];
      if (taken[j] == job->line_count()) continue;
      const std::size_t line = job->next(taken[j]);
      full = batch.size() == most || (!batch.empty() && tokens + job->tokens(line) > batching.batch_tokens);
      if (full) break;
      tokens += job->tokens(line);
      batch.push_back({job, line});
      ++taken[j];
      any = true;
    }
  }
  std::deque<Job> waiting, again;
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    if (taken[j] == jobs_[j]->taken) {
      waiting.push_back(jobs_[j]);
    } else if (taken[j] < jobs_[j]->line_count()) {
      again.push_back(jobs_[j]);
    }
  }
  waiting.insert(waiting.end(), again.begin(), again.end());
  // Nothing throws from here on.
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    TranslationJob& job = *jobs_[j];
    if (job.taken == 0 && taken[j] > 0) job.begun = now;
    for (; job.taken < taken[j]; ++job.taken) leave(job.tokens(job.next(job.taken)));
  }
  jobs_.swap(waiting);
  return batch;
}

}  // namespace eigenformer::detail
