#include "translator/server/models/translator_backend.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "eigenformer/search/text/split_lines.hpp"
#include "translator/documents/markup/translate_markup.hpp"
#include "translator/server/http/message.hpp"
#include "translator/text/word_alignments.hpp"

namespace eigenformer {

namespace {

/// Splits a text into words, each with the white space before it; white space at the end belongs to the last.
std::vector<std::string> word_pieces(std::string_view text, const std::vector<ByteSpan>& words) {
  std::vector<std::string> pieces;
  std::size_t begin = 0;
  for (const ByteSpan& word : words) {
    pieces.emplace_back(text.substr(begin, word.end - begin));
    begin = word.end;
  }
  if (pieces.empty() && !text.empty()) pieces.emplace_back();
  if (!pieces.empty()) pieces.back() += text.substr(begin);
  return pieces;
}

/// Adds words, confidences and alignment of a translation to a result.
void add_details(TranslatedText& result, const std::string& source, const Translation& translation) {
  const std::vector<ByteSpan> words = detail::word_spans(translation.text);
  result.source_words = word_pieces(source, detail::word_spans(source));
  for (std::string& piece : word_pieces(translation.text, words))
    result.words.push_back({std::move(piece), -1});
  if (words.empty()) return;
  if (translation.words.size() == words.size()) {
    for (std::size_t i = 0; i < words.size(); ++i)
      result.words[i].confidence = translation.words[i].confidence;
  }
  if (translation.alignment == nullptr) return;
  for (const AlignmentLink& link : word_links(*translation.alignment, source, translation.text))
    result.words[static_cast<std::size_t>(link.target)].sources.push_back(
        static_cast<std::uint32_t>(link.source));
}

/// A text of a task: its documents (the text itself, or the segments of its markup), and the position of
/// their sentences among the lines that are passed to the model.
class ServedDocument {
 public:
  ServedDocument(std::string text, bool html, const DocumentOptions& options,
                 detail::PreparedSentences& sentences, std::vector<PreparedLine>& lines)
      : text_(std::move(text)), html_(html), first_(lines.size()) {
    if (!html_) {
      documents_ = {text_};
    } else {
      translate_markup(text_, {}, [&](const std::vector<std::string>& segments) {
        documents_ = segments;
        return std::vector<AlignedText>(segments.size());
      });
    }
    for (const std::string& document : documents_) {
      DocumentOptions own = options;
      if (html_) own.layout = DocumentLayout::flow;
      parts_.push_back(sentences.split(document, own, lines));
    }
    lines_ = lines.size() - first_;
  }

  bool has_line(std::size_t line) const { return line >= first_ && line < first_ + lines_; }

  /// The translation so far of a text without markup, up to the first sentence that has none. so_far:
  /// translations of all lines of the task.
  std::string partial(const std::vector<std::string>& so_far) const {
    std::string text;
    std::size_t end = 0;
    for (std::size_t i = 0; i < parts_[0].size(); ++i) {
      const ByteSpan source = parts_[0][i].source;
      text += std::string_view(text_).substr(end, source.begin - end);
      if (so_far[first_ + i].empty()) break;
      text += so_far[first_ + i];
      end = source.end;
    }
    return text;
  }

  /// The translations, the best first, one for each rank that a line has. found: translations of all lines of
  /// the task.
  std::vector<Translation> translations(const std::vector<std::vector<Translation>>& found,
                                        std::size_t most) const {
    std::vector<std::vector<DocumentTranslation>> documents;
    std::size_t at = first_, count = 1;
    for (std::size_t d = 0; d < documents_.size(); ++d) {
      const auto own = std::span(found).subspan(at, parts_[d].size());
      at += parts_[d].size();
      documents.push_back(detail::assemble_documents(documents_[d], parts_[d], own, most));
      count = std::max(count, documents.back().size());
    }
    std::vector<Translation> results;
    for (std::size_t rank = 0; rank < count; ++rank) {
      const auto of_rank = [rank](std::vector<DocumentTranslation>& of_document) -> DocumentTranslation& {
        return of_document[std::min(rank, of_document.size() - 1)];
      };
      if (!html_) {
        results.push_back(detail::joined_translation(of_rank(documents.front()), false));
        continue;
      }
      results.emplace_back().text = translate_markup(text_, {}, [&](const std::vector<std::string>&) {
        std::vector<AlignedText> texts;
        for (auto& of_document : documents) {
          const DocumentTranslation& document = of_rank(of_document);
          texts.push_back({document.text, document.alignment ? *document.alignment : TextAlignment{}});
        }
        return texts;
      });
    }
    return results;
  }

  const std::string& text() const { return text_; }

 private:
  const std::string text_;
  const bool html_;
  const std::size_t first_;
  std::size_t lines_ = 0;
  std::vector<std::string> documents_;
  std::vector<std::vector<detail::DocumentPart>> parts_;
};

/// A task whose lines are being translated.
class ServedTask {
 public:
  ServedTask(TranslationTask task, TaskEvents events, const DocumentOptions& options,
             detail::PreparedSentences sentences)
      : task_(std::move(task)), events_(std::move(events)) {
    for (std::string& text : task_.texts)
      documents_.emplace_back(std::move(text), task_.html, options, sentences, lines);
    so_far_.resize(lines.size());
    shown_.resize(documents_.size());
  }

  std::vector<PreparedLine> lines;  ///< of all texts

  bool wants_progress() const { return events_.partial && !task_.html; }

  /// Must not be called by several threads at once.
  void progress(const TranslationProgress& progress) {
    so_far_[progress.line] = progress.text;
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < documents_.size(); ++i) {
      // At most one event in 30 ms: assembling a long text takes time, and readers do not see more.
      if (!documents_[i].has_line(progress.line) || now - shown_[i] < std::chrono::milliseconds(30)) continue;
      shown_[i] = now;
      events_.partial(i, documents_[i].partial(so_far_));
    }
  }

  void over(TranslationOutcome outcome) {
    try {
      if (outcome.status == RequestStatus::failed) std::rethrow_exception(outcome.error);
      if (outcome.status != RequestStatus::done) throw HttpError(503, "the translation was cancelled");
      finish(outcome.translations);
    } catch (...) {
      events_.failed(std::current_exception());
    }
  }
  void finish(const std::vector<std::vector<Translation>>& found) {
    std::vector<TranslatedText> results;
    for (const ServedDocument& document : documents_) {
      const auto translations =
          document.translations(found, 1 + static_cast<std::size_t>(task_.alternatives));
      TranslatedText& result = results.emplace_back();
      result.text = translations.front().text;
      for (const Translation& other : translations) {
        const auto& known = result.alternatives;
        if (!other.text.empty() && other.text != result.text &&
            std::find(known.begin(), known.end(), other.text) == known.end())
          result.alternatives.push_back(other.text);
      }
      if (task_.details && !task_.html) add_details(result, document.text(), translations.front());
    }
    events_.done(std::move(results));
  }

 private:
  TranslationTask task_;
  TaskEvents events_;
  std::vector<ServedDocument> documents_;
  std::vector<std::string> so_far_;  // of each line
  std::vector<std::chrono::steady_clock::time_point> shown_;
};

DocumentOptions with_splitter(DocumentOptions documents, const std::shared_ptr<const LineTranslator>& lines) {
  if (documents.splitter == nullptr && lines != nullptr && lines->options().splitting)
    documents.splitter = lines->options().splitting->splitter;
  return documents;
}

}  // namespace

TranslatorBackend::TranslatorBackend(std::shared_ptr<const LineTranslator> lines, bool aligns,
                                     DocumentOptions documents, const TranslatorOptions& options,
                                     std::map<std::string, std::shared_ptr<const LineTranslator>> adapters)
    : documents_(with_splitter(std::move(documents), lines)),
      aligns_(aligns),
      translator_(std::move(lines), options, std::move(adapters)) {}

std::function<void()> TranslatorBackend::start(TranslationTask task, TaskEvents events) {
  TextTranslatorOptions options = translator_.text_options(task.adapter);
  const index_t wanted = 1 + task.alternatives;
  if (wanted > 1) {
    // Groups of diverse beam search have equal parts of the beam.
    const index_t groups = options.search.num_beam_groups;
    options.search.beam_size = std::max(options.search.beam_size, (wanted + groups - 1) / groups * groups);
    options.search.num_hypotheses = wanted;
  }
  if (task.details) options.search.token_scores = true;
  if (!task.details && !task.html) {
    options.alignment.reset();
  } else if (aligns_ && !options.alignment) {
    options.alignment.emplace();
  }
  std::string adapter = task.adapter;
  const auto work = std::make_shared<ServedTask>(
      std::move(task), std::move(events), documents_,
      detail::PreparedSentences([&](const std::string& line) { return translator_.prepare(line, adapter); }));
  if (work->lines.empty()) {  // only white space and markup
    work->finish({});
    return [] {};
  }
  std::stop_source cancellation;
  TranslationRequest request{.prepared = std::move(work->lines),
                             .options = std::move(options),
                             .adapter = std::move(adapter),
                             .cancellation = cancellation.get_token()};
  if (work->wants_progress())
    request.on_progress = [work](const TranslationProgress& progress) { work->progress(progress); };
  const RequestStatus status = translator_.submit(
      std::move(request), [work](TranslationOutcome outcome) { work->over(std::move(outcome)); });
  if (status == RequestStatus::too_large)
    throw HttpError(422, "the request has more text than the server translates at once");
  if (status != RequestStatus::accepted)
    throw HttpError(503, "the server is busy: too many translations are waiting", {{"Retry-After", "1"}});
  return [cancellation]() mutable { cancellation.request_stop(); };
}

}  // namespace eigenformer
