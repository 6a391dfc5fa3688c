#include "translator/serving/translation_job.hpp"

#include <utility>

#include "eigenformer/core/base/stable_sort.hpp"
#include "eigenformer/search/beams/options.hpp"
#include "translator/serving/line_translator.hpp"

namespace eigenformer::detail {

namespace {

// The number of bytes at the end that begin a code point without completing it.
std::size_t incomplete_end(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;  // a continuation byte
    const std::size_t needed = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
    return needed > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::span<const std::int32_t> stable_ids(const SearchProgress& progress, bool sampling) {
  const Hypothesis* first = nullptr;
  std::size_t length = 0;
  const auto restrict_to = [&](const Hypothesis& h) {
    if (first == nullptr) {
      first = &h;
      length = h.ids.size();
      return;
    }
    const std::size_t most = std::min(length, h.ids.size());
    length = 0;
    while (length < most && first->ids[length] == h.ids[length]) ++length;
  };
  if (!progress.finished.empty()) restrict_to(progress.finished.front());
  for (const Hypothesis& h : progress.growing) {
    restrict_to(h);
    if (sampling) break;
  }
  if (first == nullptr) return {};
  return std::span<const std::int32_t>(first->ids).first(length);
}

std::string_view StableText::advance(std::string_view decoded) {
  const std::string_view sure = without_open_end(decoded);
  if (sure.size() <= text_.size() || !sure.starts_with(text_)) return {};
  const std::size_t before = text_.size();
  text_ = sure;
  return std::string_view(text_).substr(before);
}

std::string_view StableText::without_open_end(std::string_view text) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD";
  for (;;) {
    if (text.ends_with(replacement)) {
      text.remove_suffix(replacement.size());
    } else if (text.ends_with(' ') || text.ends_with('\t') || text.ends_with('\n')) {
      text.remove_suffix(1);
    } else if (const std::size_t open = incomplete_end(text); open > 0) {
      text.remove_suffix(open);
    } else {
      return text;
    }
  }
}

TranslationJob::TranslationJob(TranslationRequest request, OutcomeHandler handler,
                               std::shared_ptr<const LineTranslator> translator)
    : submitted(Clock::now()),
      translator_(std::move(translator)),
      deadline_(request.deadline),
      cancellation_(std::move(request.cancellation)),
      on_progress_(std::move(request.on_progress)),
      handler_(std::move(handler)) {
  const TextTranslatorOptions& options = translator_->options();
  sampling_ = options.search.sampling.has_value();
  if (options.utility || options.search.num_beam_groups > 1) on_progress_ = nullptr;
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
  // Lines of similar length end their searches together; with on_progress the first line comes first.
  order_ = stable_order(lines_.size(), [&](std::size_t a, std::size_t b) {
    return on_progress_ == nullptr && tokens(a) > tokens(b);
  });
}

void TranslationJob::watch(std::size_t i, const SearchProgress& progress) {
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

bool TranslationJob::keep(std::size_t i, std::vector<Translation> translations) {
  const std::lock_guard<std::mutex> lock(mutex_);
  translations_[i] = std::move(translations);
  --open_;
  // What is known of the parts after it can be reported now.
  if (on_progress_ != nullptr && parts_ && i + 1 < lines_.size() && !parts_->begins_line(i + 1)) report(i);
  return open_ == 0;
}

void TranslationJob::deliver(RequestStatus status, std::exception_ptr error, double waited_seconds,
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

void TranslationJob::report(std::size_t i) {
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

}  // namespace eigenformer::detail
