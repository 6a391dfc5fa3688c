#include "translator/serving/translator.hpp"

#include <algorithm>
#include <future>
#include <new>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/search/beams/batches.hpp"
#include "eigenformer/search/beams/options.hpp"

namespace eigenformer {

namespace {

// How often waiting requests are checked for cancellation and deadlines while a search runs or a worker
// waits for more of them.
constexpr auto sweep_interval = std::chrono::milliseconds(5);

std::string refusal_message(RequestStatus status) {
  if (status == RequestStatus::queue_full) return "the queue is full; try again later";
  if (status == RequestStatus::too_large)
    return "the request has more tokens than the queue holds; split it into smaller ones";
  return "the translator was shut down and accepts no more requests";
}

// The translator whose worker the calling thread is; null: none.
const Translator*& translator_of_thread() {
  thread_local const Translator* translator = nullptr;
  return translator;
}

}  // namespace

/// The threads of the Runtime at its construction, for loops of the workers of all Translators: a loop is cut
/// for its worker's share of them, and its parts may run on any that is free.
class Translator::SharedThreads final : public Executor {
 public:
  /// All of them.
  index_t all() const { return all_->threads(); }
  /// A batch begins (1) or ends (-1).
  static void change(index_t batches) noexcept { running() += batches; }

  /// Those of one share, at least one.
  int threads() const override {
    return static_cast<int>(std::max<index_t>(1, all() / std::max<index_t>(1, running())));
  }
  void run(index_t count, TaskRef task) override { all_->run(count, task); }

 private:
  static std::atomic<index_t>& running() noexcept {
    static std::atomic<index_t> batches{0};
    return batches;
  }

  const std::shared_ptr<Executor> all_ = Runtime::instance().executor();
};

Translator::Translator(std::shared_ptr<const LineTranslator> lines, const TranslatorOptions& options,
                       std::map<std::string, std::shared_ptr<const LineTranslator>> adapters)
    : lines_(std::move(lines)),
      adapters_(std::move(adapters)),
      options_(options),
      threads_(std::make_shared<SharedThreads>()) {
  if (lines_ == nullptr)
    throw ValueError("translator", "the LineTranslator is null, expected one that exists");
  for (const auto& [name, adapter] : adapters_) {
    if (name.empty() || adapter == nullptr)
      throw ValueError("translator",
                       {"the adapter '", name, "' has no name or is null, must have a name and exist"});
  }
  options_.validate();
  const index_t workers = options_.workers > 0 ? options_.workers : threads_->all();
  try {
    for (index_t i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::exception&) {  // std::system_error, or std::bad_alloc
    const std::size_t started = workers_.size();
    if (options_.workers == 0 && started > 0) return;
    stop(ShutdownMode::cancel);
    throw ValueError("translator", {"cannot start ", workers, " workers: the system allows only ", started});
  }
}

RequestStatus Translator::submit(TranslationRequest request, OutcomeHandler done) {
  if (done == nullptr) throw ValueError("translator", "the handler of a request is null, must be callable");
  if (request.lines.empty() && request.prepared.empty())
    throw ValueError("translator", "a request has no lines, must have at least one");
  if (!request.lines.empty() && !request.prepared.empty())
    throw ValueError("translator", "a request has both lines and prepared lines, expected one of the two");
  detail::require_one_each("translator", "prefixes", request.prefixes.size(), request.lines.size());
  // Refuses early, before tokenizing.
  const auto lines = static_cast<index_t>(request.lines.size() + request.prepared.size());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto status = refusal(lines); status != RequestStatus::accepted) return status;
  }
  auto translator = translator_for(request.adapter, request.options);
  const auto job =
      std::make_shared<detail::TranslationJob>(std::move(request), std::move(done), std::move(translator));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const RequestStatus status = refusal(job->source_tokens());
    if (status != RequestStatus::accepted) return status;
    queue_.add(job);
    ++statistics_.accepted;
  }
  wake_.notify_one();
  return RequestStatus::accepted;
}

std::vector<std::vector<Translation>> Translator::alternatives(TranslationRequest request) {
  if (own_thread()) {
    throw ValueError("translator",
                     "a handler or on_progress waits for a translation of its own translator, which would "
                     "never end; use submit()");
  }
  const auto promise = std::make_shared<std::promise<TranslationOutcome>>();
  auto future = promise->get_future();
  const RequestStatus status = submit(
      std::move(request), [promise](TranslationOutcome outcome) { promise->set_value(std::move(outcome)); });
  if (status != RequestStatus::accepted) throw RequestError(status, refusal_message(status));
  TranslationOutcome outcome = future.get();
  switch (outcome.status) {
    case RequestStatus::done:
      return std::move(outcome.translations);
    case RequestStatus::failed:
      std::rethrow_exception(outcome.error);
    case RequestStatus::deadline_exceeded:
      throw RequestError(outcome.status, "the request's deadline passed before it was translated");
    default:
      throw RequestError(outcome.status, "the request was cancelled before it was translated");
  }
}

std::vector<Translation> Translator::translate(std::span<const std::string> lines) {
  std::vector<Translation> best;
  if (lines.empty()) return best;
  for (auto& of_line : alternatives({.lines = {lines.begin(), lines.end()}}))
    best.push_back(std::move(of_line.front()));
  return best;
}

void Translator::shutdown(ShutdownMode mode) {
  if (own_thread()) {
    throw ValueError("translator",
                     "a handler or on_progress waits for its own translator to shut down, which would "
                     "never end; shut it down in another thread");
  }
  stop(mode);
}

TranslatorStatistics Translator::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  TranslatorStatistics now = statistics_;
  now.waiting_requests = queue_.requests();
  now.waiting_lines = queue_.lines();
  now.waiting_tokens = queue_.tokens();
  return now;
}

bool Translator::idle() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return statistics_.accepted ==
         statistics_.done + statistics_.failed + statistics_.cancelled + statistics_.deadline_exceeded;
}

RequestStatus Translator::refusal(index_t tokens) {
  const RequestStatus status =
      !accepting_                      ? RequestStatus::shut_down
      : tokens > options_.queue_tokens ? RequestStatus::too_large
      : queue_.requests() >= options_.queue_requests || queue_.tokens() + tokens > options_.queue_tokens
          ? RequestStatus::queue_full
          : RequestStatus::accepted;
  if (status != RequestStatus::accepted) ++statistics_.refused;
  return status;
}

const std::shared_ptr<const LineTranslator>& Translator::lines_of(const std::string& adapter) const {
  if (adapter.empty()) return lines_;
  const auto found = adapters_.find(adapter);
  if (found != adapters_.end()) return found->second;
  std::string names;
  for (const auto& [name, known] : adapters_) names += (names.empty() ? "; there are '" : ", '") + name + "'";
  throw ValueError("translator", {"there is no adapter '", adapter, "'",
                                  (names.empty() ? "; the translator has none" : names)});
}

std::shared_ptr<const LineTranslator> Translator::translator_for(
    const std::string& adapter, std::optional<TextTranslatorOptions>& options) const {
  const auto& lines = lines_of(adapter);
  if (!options) return lines;
  const SearchOptions& search = options->search;
  if (!search.prefixes.empty())
    throw ValueError("translator", "a request's options have prefixes, expected them in the request");
  if (!search.constraints.empty())
    throw ValueError("translator", "a request's options have constraints, expected a glossary");
  if (search.sampling && !search.sampling->numbers.empty())
    throw ValueError("translator", "a request's options have numbers, expected the request's `first`");
  if (search.observer != nullptr)
    throw ValueError("translator", "a request's options have an observer, expected on_progress");
  options->batching = lines_->options().batching;
  return lines->with_options(std::move(*options));
}

void Translator::stop(ShutdownMode mode) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    accepting_ = false;
    if (mode == ShutdownMode::cancel) cancelling_.store(true);
  }
  wake_.notify_all();
  const std::lock_guard<std::mutex> lock(join_mutex_);
  for (std::thread& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
}

bool Translator::own_thread() const { return translator_of_thread() == this; }

void Translator::work() {
  translator_of_thread() = this;
  const ThreadScope scope(threads_);
  for (;;) {
    Batch batch;
    try {
      if (!wait_for_batch(batch)) return;
    } catch (const std::bad_alloc&) {  // no memory for the batch; its lines stay queued
      std::this_thread::sleep_for(sweep_interval);
      continue;
    }
    run(batch);
  }
}

bool Translator::wait_for_batch(Batch& batch) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    ++idle_workers_;
    wake_.wait(lock, [&] { return !queue_.empty() || !accepting_; });
    if (!queue_.empty()) wait_for_others(lock);
    --idle_workers_;
    const auto now = Clock::now();
    sweep(lock, now);
    if (queue_.empty()) {  // another worker took everything, or all have ended
      if (!accepting_) return false;
      continue;
    }
    // Leave a share to idle workers, but for batches so small that each line takes longer.
    constexpr index_t least = 4;
    const index_t share = std::max(least, (queue_.lines() + idle_workers_) / (idle_workers_ + 1));
    batch = queue_.take(lines_->options().batching, share, now);
    ++statistics_.running_batches;
    SharedThreads::change(1);
    statistics_.running_lines += static_cast<index_t>(batch.size());
    if (!queue_.empty()) wake_.notify_one();
    return true;
  }
}

void Translator::wait_for_others(std::unique_lock<std::mutex>& lock) {
  if (options_.window == 0) return;
  const BatchSearchOptions& batching = lines_->options().batching;
  const auto until = queue_.jobs().front()->submitted + std::chrono::duration_cast<Clock::duration>(
                                                            std::chrono::duration<double>(options_.window));
  const auto enough = [&] {
    return !accepting_ || queue_.empty() || queue_.lines() >= batching.batch_size ||
           queue_.tokens() >= batching.batch_tokens;
  };
  for (auto now = Clock::now(); now < until && !enough(); now = Clock::now()) {
    try {
      sweep(lock, now);
    } catch (const std::bad_alloc&) {  // the next round tries again
    }
    wake_.wait_until(lock, std::min(until, now + sweep_interval), enough);
  }
}

RequestStatus Translator::interruption(const detail::TranslationJob& job, Clock::time_point now) const {
  if (cancelling_.load(std::memory_order_relaxed)) return RequestStatus::cancelled;
  return job.interruption(now);
}

void Translator::sweep(std::unique_lock<std::mutex>& lock, Clock::time_point now) {
  std::vector<Job> ending;
  for (const Job& job : queue_.jobs()) {
    if (interruption(*job, now) != RequestStatus::accepted) ending.push_back(job);
  }
  if (ending.empty()) return;
  lock.unlock();
  for (const Job& job : ending) end(job, interruption(*job, now));  // throws nothing
  lock.lock();
}

void Translator::sweep_now_and_then(Clock::time_point now) {
  const auto ticks = now.time_since_epoch().count();
  auto last = last_sweep_.load(std::memory_order_relaxed);
  if (ticks - last < std::chrono::duration_cast<Clock::duration>(sweep_interval).count()) return;
  if (!last_sweep_.compare_exchange_strong(last, ticks, std::memory_order_relaxed)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  sweep(lock, now);
}

void Translator::run(const Batch& batch) {
  const auto begin = Clock::now();
  if (const std::exception_ptr error = translate(batch)) {
    try {
      retry(batch, error);
    } catch (...) {  // no memory for retrying
      for (const auto& [job, line] : batch) end(job, RequestStatus::failed, error);
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  --statistics_.running_batches;
  SharedThreads::change(-1);
  statistics_.running_lines -= static_cast<index_t>(batch.size());
  ++statistics_.batches;
  statistics_.lines += batch.size();
  for (const auto& [job, line] : batch)
    statistics_.source_tokens += static_cast<std::uint64_t>(job->tokens(line));
  statistics_.busy_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

void Translator::retry(const Batch& batch, const std::exception_ptr& error) {
  std::vector<std::pair<Job, Batch>> jobs;
  for (const detail::BatchLine& line : batch) {
    auto at = std::find_if(jobs.begin(), jobs.end(), [&](const auto& job) { return job.first == line.job; });
    if (at == jobs.end()) at = jobs.insert(at, {line.job, {}});
    at->second.push_back(line);
  }
  for (const auto& [job, lines] : jobs) {
    if (job->ended()) continue;
    if (const std::exception_ptr own = jobs.size() == 1 ? error : translate(lines))
      end(job, RequestStatus::failed, own);
  }
}

std::exception_ptr Translator::translate(std::span<const detail::BatchLine> batch) {
  std::vector<std::vector<Translation>> translations;
  try {
    std::vector<PreparedLine> lines;
    for (const auto& [job, line] : batch) lines.push_back(job->line(line));
    translations = batch.front().job->translator().alternatives(
        lines, std::make_shared<const SearchObserver>([this, batch](const SearchProgress& progress) {
          const auto& [job, line] = batch[progress.input];
          return watch(job, line, progress);
        }));
  } catch (...) {
    return std::current_exception();
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& [job, line] = batch[i];
    try {
      if (job->keep(line, std::move(translations[i]))) end(job, RequestStatus::done);
    } catch (...) {
      end(job, RequestStatus::failed, std::current_exception());
    }
  }
  return nullptr;
}

bool Translator::watch(const Job& job, std::size_t line, const SearchProgress& progress) {
  const auto now = Clock::now();
  sweep_now_and_then(now);
  if (job->ended()) return false;
  const RequestStatus status = interruption(*job, now);
  if (status != RequestStatus::accepted) {
    end(job, status);
    return false;
  }
  try {
    job->watch(line, progress);
  } catch (...) {
    end(job, RequestStatus::failed, std::current_exception());
    return false;
  }
  return true;
}

void Translator::end(const Job& job, RequestStatus status, std::exception_ptr error) {
  if (!job->end()) return;
  double waited = 0, taken = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.remove(*job);
    const auto now = Clock::now();
    const auto begun = job->begun == Clock::time_point{} ? now : job->begun;
    waited = std::chrono::duration<double>(begun - job->submitted).count();
    taken = std::chrono::duration<double>(now - job->submitted).count();
    ++(status == RequestStatus::done        ? statistics_.done
       : status == RequestStatus::failed    ? statistics_.failed
       : status == RequestStatus::cancelled ? statistics_.cancelled
                                            : statistics_.deadline_exceeded);
    statistics_.target_tokens += static_cast<std::uint64_t>(job->target_tokens());
    statistics_.waited_seconds += waited;
    statistics_.taken_seconds += taken;
  }
  job->deliver(status, std::move(error), waited, taken);
}

}  // namespace eigenformer
